// SPDX-License-Identifier: Apache-2.0
// Scalar arithmetic: SOP1, SOP2, SOPK. Source: "CDNA3" ISA, scalar ALU instructions.
#include "../exec.h"

// ---- 32 bits in and out; the functions set SCC where the ISA says so

static uint32_t flag(sim_wave *w, uint32_t value) {
    w->scc = value != 0;
    return value;
}

static uint32_t s_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a + b < a;
    return a + b;
}

static uint32_t s_sub_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = b > a;
    return a - b;
}

static uint32_t s_addc_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint64_t sum = (uint64_t)a + b + w->scc;
    w->scc = sum >> 32 != 0;
    return (uint32_t)sum;
}

static uint32_t s_subb_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint64_t difference = (uint64_t)a - b - w->scc;
    w->scc = difference >> 32 != 0;
    return (uint32_t)difference;
}

static uint32_t s_add_i32(sim_wave *w, uint32_t a, uint32_t b) {
    int32_t sum;
    w->scc = __builtin_add_overflow((int32_t)a, (int32_t)b, &sum);
    return (uint32_t)sum;
}

static uint32_t s_sub_i32(sim_wave *w, uint32_t a, uint32_t b) {
    int32_t difference;
    w->scc = __builtin_sub_overflow((int32_t)a, (int32_t)b, &difference);
    return (uint32_t)difference;
}

static uint32_t s_min_i32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = (int32_t)a < (int32_t)b;
    return w->scc ? a : b;
}

static uint32_t s_min_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a < b;
    return w->scc ? a : b;
}

/** Of equal operands the first is the maximum, so that SCC is set; it is not the minimum. */
static uint32_t s_max_i32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = (int32_t)a >= (int32_t)b;
    return w->scc ? a : b;
}

static uint32_t s_max_u32(sim_wave *w, uint32_t a, uint32_t b) {
    w->scc = a >= b;
    return w->scc ? a : b;
}

static uint32_t s_cselect_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return w->scc ? a : b;
}
static uint32_t s_and_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a & b);
}
static uint32_t s_or_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a | b);
}
static uint32_t s_xor_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a ^ b);
}
static uint32_t s_andn2_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a & ~b);
}
static uint32_t s_orn2_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a | ~b);
}
static uint32_t s_nand_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, ~(a & b));
}
static uint32_t s_nor_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, ~(a | b));
}
static uint32_t s_xnor_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, ~(a ^ b));
}
static uint32_t s_lshl_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a << (b & 31));
}
static uint32_t s_lshr_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a >> (b & 31));
}

static uint32_t s_ashr_i32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, (uint32_t)((int32_t)a >> (b & 31)));
}

static uint32_t s_bfm_b32(sim_wave *, uint32_t a, uint32_t b) {
    return ((1u << (a & 31)) - 1) << (b & 31);
}

static uint32_t s_mul_i32(sim_wave *, uint32_t a, uint32_t b) {
    return a * b;
}

static uint32_t s_mul_hi_u32(sim_wave *, uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}

static uint32_t s_mul_hi_i32(sim_wave *, uint32_t a, uint32_t b) {
    return (uint32_t)((int64_t)(int32_t)a * (int32_t)b >> 32);
}

/** A field of `a`: offset in b[4:0], width in b[22:16]. */
static uint32_t s_bfe_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t width = b >> 16 & 0x7f, field = a >> (b & 31);
    return flag(w, width < 32 ? field & ((1u << width) - 1) : field);
}

static uint32_t s_bfe_i32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t width = b >> 16 & 0x7f;
    if (width == 0)
        return flag(w, 0);
    const int32_t field = (int32_t)a >> (b & 31);
    const uint32_t unused = width < 32 ? 32 - width : 0;
    return flag(w, (uint32_t)((int32_t)((uint32_t)field << unused) >> unused));
}

static uint32_t shift_add(sim_wave *w, uint32_t a, uint32_t b, unsigned shift) {
    const uint64_t sum = ((uint64_t)a << shift) + b;
    w->scc = sum >> 32 != 0;
    return (uint32_t)sum;
}

static uint32_t s_lshl1_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 1);
}
static uint32_t s_lshl2_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 2);
}
static uint32_t s_lshl3_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 3);
}
static uint32_t s_lshl4_add_u32(sim_wave *w, uint32_t a, uint32_t b) {
    return shift_add(w, a, b, 4);
}

static uint32_t s_absdiff_i32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t difference = a - b;
    return flag(w, (int32_t)difference < 0 ? 0 - difference : difference);
}

static uint32_t s_pack_ll_b32_b16(sim_wave *, uint32_t a, uint32_t b) {
    return (a & 0xffff) | b << 16;
}
static uint32_t s_pack_lh_b32_b16(sim_wave *, uint32_t a, uint32_t b) {
    return (a & 0xffff) | (b & 0xffff0000);
}
static uint32_t s_pack_hh_b32_b16(sim_wave *, uint32_t a, uint32_t b) {
    return a >> 16 | (b & 0xffff0000);
}

static uint32_t s_mov_b32(sim_wave *, uint32_t a, uint32_t) {
    return a;
}
static uint32_t s_not_b32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, ~a);
}
static uint32_t s_brev_b32(sim_wave *, uint32_t a, uint32_t) {
    return __builtin_bitreverse32(a);
}
static uint32_t s_abs_i32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, (int32_t)a < 0 ? 0 - a : a);
}
static uint32_t s_sext_i32_i8(sim_wave *, uint32_t a, uint32_t) {
    return (uint32_t)(int8_t)a;
}
static uint32_t s_sext_i32_i16(sim_wave *, uint32_t a, uint32_t) {
    return (uint32_t)(int16_t)a;
}

static uint32_t s_bcnt0_i32_b32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, (uint32_t)__builtin_popcount(~a));
}

static uint32_t s_bcnt1_i32_b32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, (uint32_t)__builtin_popcount(a));
}

static uint32_t s_ff1_i32_b32(sim_wave *, uint32_t a, uint32_t) {
    return a ? (uint32_t)__builtin_ctz(a) : UINT32_MAX;
}

static uint32_t s_ff0_i32_b32(sim_wave *, uint32_t a, uint32_t) {
    return ~a ? (uint32_t)__builtin_ctz(~a) : UINT32_MAX;
}

static uint32_t s_flbit_i32_b32(sim_wave *, uint32_t a, uint32_t) {
    return a ? (uint32_t)__builtin_clz(a) : UINT32_MAX;
}

/** Leading bits equal to the sign bit; -1 if all are. */
static uint32_t s_flbit_i32(sim_wave *, uint32_t a, uint32_t) {
    const uint32_t flipped = (int32_t)a < 0 ? ~a : a;
    return flipped ? (uint32_t)__builtin_clz(flipped) : UINT32_MAX;
}

// ---- 64 bits

static uint64_t flag64(sim_wave *w, uint64_t value) {
    w->scc = value != 0;
    return value;
}

static uint64_t s_cselect_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return w->scc ? a : b;
}
static uint64_t s_and_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a & b);
}
static uint64_t s_or_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a | b);
}
static uint64_t s_xor_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a ^ b);
}
static uint64_t s_andn2_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a & ~b);
}
static uint64_t s_orn2_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a | ~b);
}
static uint64_t s_nand_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, ~(a & b));
}
static uint64_t s_nor_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, ~(a | b));
}
static uint64_t s_xnor_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, ~(a ^ b));
}
static uint64_t s_lshl_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a << (b & 63));
}
static uint64_t s_lshr_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a >> (b & 63));
}

static uint64_t s_ashr_i64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, (uint64_t)((int64_t)a >> (b & 63)));
}

static uint64_t s_bfm_b64(sim_wave *, uint64_t a, uint64_t b) {
    return ((UINT64_C(1) << (a & 63)) - 1) << (b & 63);
}

static uint64_t s_bfe_u64(sim_wave *w, uint64_t a, uint64_t b) {
    const uint64_t width = b >> 16 & 0x7f, field = a >> (b & 63);
    return flag64(w, width < 64 ? field & ((UINT64_C(1) << width) - 1) : field);
}

static uint64_t s_bfe_i64(sim_wave *w, uint64_t a, uint64_t b) {
    const uint64_t width = b >> 16 & 0x7f;
    if (width == 0)
        return flag64(w, 0);
    const uint64_t unused = width < 64 ? 64 - width : 0;
    const uint64_t field = (uint64_t)((int64_t)a >> (b & 63));
    return flag64(w, (uint64_t)((int64_t)(field << unused) >> unused));
}

static uint64_t s_mov_b64(sim_wave *, uint64_t a, uint64_t) {
    return a;
}
static uint64_t s_not_b64(sim_wave *w, uint64_t a, uint64_t) {
    return flag64(w, ~a);
}
static uint64_t s_brev_b64(sim_wave *, uint64_t a, uint64_t) {
    return __builtin_bitreverse64(a);
}

/** Each bit of every group of four becomes the group's OR. */
static uint64_t s_wqm_b64(sim_wave *w, uint64_t a, uint64_t) {
    const uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & UINT64_C(0x1111111111111111);
    return flag64(w, any * 15);
}

static uint32_t s_quadmask_b32(sim_wave *w, uint32_t a, uint32_t) {
    uint32_t any = (a | a >> 1 | a >> 2 | a >> 3) & 0x11111111, out = 0;
    for (unsigned i = 0; i < 8; i++)
        out |= (any >> 4 * i & 1) << i;
    return flag(w, out);
}

static uint64_t s_quadmask_b64(sim_wave *w, uint64_t a, uint64_t) {
    uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & UINT64_C(0x1111111111111111), out = 0;
    for (unsigned i = 0; i < 16; i++)
        out |= (any >> 4 * i & 1) << i;
    return flag64(w, out);
}

/** Every bit twice. */
static uint64_t s_bitreplicate_b64_b32(sim_wave *, uint64_t a, uint64_t) {
    uint64_t out = 0;
    for (unsigned i = 0; i < 32; i++)
        out |= (a >> i & 1) * 3 << 2 * i;
    return out;
}

// ---- results of 32 bits from 64

static uint32_t s_bcnt0_i32_b64(sim_wave *w, uint64_t a, uint64_t) {
    return flag(w, (uint32_t)__builtin_popcountll(~a));
}

static uint32_t s_bcnt1_i32_b64(sim_wave *w, uint64_t a, uint64_t) {
    return flag(w, (uint32_t)__builtin_popcountll(a));
}

static uint32_t s_ff1_i32_b64(sim_wave *, uint64_t a, uint64_t) {
    return a ? (uint32_t)__builtin_ctzll(a) : UINT32_MAX;
}

static uint32_t s_ff0_i32_b64(sim_wave *, uint64_t a, uint64_t) {
    return ~a ? (uint32_t)__builtin_ctzll(~a) : UINT32_MAX;
}

static uint32_t s_flbit_i32_b64(sim_wave *, uint64_t a, uint64_t) {
    return a ? (uint32_t)__builtin_clzll(a) : UINT32_MAX;
}

static uint32_t s_flbit_i32_i64(sim_wave *, uint64_t a, uint64_t) {
    const uint64_t flipped = (int64_t)a < 0 ? ~a : a;
    return flipped ? (uint32_t)__builtin_clzll(flipped) : UINT32_MAX;
}

// ---- EXEC: save it, combine it with the source

static uint64_t s_and_saveexec_b64(uint64_t a, uint64_t exec) {
    return a & exec;
}
static uint64_t s_or_saveexec_b64(uint64_t a, uint64_t exec) {
    return a | exec;
}
static uint64_t s_xor_saveexec_b64(uint64_t a, uint64_t exec) {
    return a ^ exec;
}
static uint64_t s_andn2_saveexec_b64(uint64_t a, uint64_t exec) {
    return a & ~exec;
}
static uint64_t s_orn2_saveexec_b64(uint64_t a, uint64_t exec) {
    return a | ~exec;
}
static uint64_t s_nand_saveexec_b64(uint64_t a, uint64_t exec) {
    return ~(a & exec);
}
static uint64_t s_nor_saveexec_b64(uint64_t a, uint64_t exec) {
    return ~(a | exec);
}
static uint64_t s_xnor_saveexec_b64(uint64_t a, uint64_t exec) {
    return ~(a ^ exec);
}
static uint64_t s_andn1_saveexec_b64(uint64_t a, uint64_t exec) {
    return ~a & exec;
}
static uint64_t s_orn1_saveexec_b64(uint64_t a, uint64_t exec) {
    return ~a | exec;
}

// ---- what does not fit a shape

static void exec_s_cmov_b32(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        sim_write32(w, &inst->dst[0], sim_read32(w, &inst->src[0]));
}

static void exec_s_cmov_b64(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        sim_write64(w, &inst->dst[0], sim_read64(w, &inst->src[0]));
}

static void exec_s_bitset0_b32(sim_wave *w, const sim_inst *inst) {
    w->s[inst->dst[0].reg] &= ~(1u << (sim_read32(w, &inst->src[0]) & 31));
}

static void exec_s_bitset1_b32(sim_wave *w, const sim_inst *inst) {
    w->s[inst->dst[0].reg] |= 1u << (sim_read32(w, &inst->src[0]) & 31);
}

static void exec_s_bitset0_b64(sim_wave *w, const sim_inst *inst) {
    const uint64_t bit = UINT64_C(1) << (sim_read32(w, &inst->src[0]) & 63);
    sim_write64(w, &inst->dst[0], sim_read64(w, &inst->dst[0]) & ~bit);
}

static void exec_s_bitset1_b64(sim_wave *w, const sim_inst *inst) {
    const uint64_t bit = UINT64_C(1) << (sim_read32(w, &inst->src[0]) & 63);
    sim_write64(w, &inst->dst[0], sim_read64(w, &inst->dst[0]) | bit);
}

static void exec_s_movk_i32(sim_wave *w, const sim_inst *inst) {
    sim_write32(w, &inst->dst[0], (uint32_t)(int16_t)inst->imm);
}

static void exec_s_cmovk_i32(sim_wave *w, const sim_inst *inst) {
    if (w->scc)
        exec_s_movk_i32(w, inst);
}

static void exec_s_addk_i32(sim_wave *w, const sim_inst *inst) {
    uint32_t *dst = &w->s[inst->dst[0].reg];
    *dst = s_add_i32(w, *dst, (uint32_t)(int16_t)inst->imm);
}

static void exec_s_mulk_i32(sim_wave *w, const sim_inst *inst) {
    w->s[inst->dst[0].reg] *= (uint32_t)(int16_t)inst->imm;
}

// ---- tables: X(name, operand types)
// clang-format off

// Beside these, the columns of a row that the scalar ALU's are not all alike in.
#define KEEPS .is = SIM_KEEPS_SCC
#define BITS(logic_) .logic = SIM_LOGIC_##logic_

#define ARITHMETIC32(X) \
    X(s_add_u32) X(s_sub_u32) X(s_addc_u32) X(s_subb_u32) X(s_add_i32) X(s_sub_i32) X(s_min_i32) \
    X(s_min_u32) X(s_max_i32) X(s_max_u32) X(s_cselect_b32, .flow = SIM_FLOW_SELECT, KEEPS) \
    X(s_and_b32, BITS(AND)) X(s_or_b32, BITS(OR)) X(s_xor_b32, BITS(ANY)) X(s_andn2_b32, BITS(AND_NOT1)) \
    X(s_orn2_b32, BITS(OR_NOT1)) X(s_nand_b32, BITS(AND)) X(s_nor_b32, BITS(OR)) X(s_xnor_b32, BITS(ANY)) \
    X(s_lshl_b32) X(s_lshr_b32) X(s_ashr_i32) X(s_bfm_b32, KEEPS) X(s_mul_i32, KEEPS) X(s_mul_hi_u32, KEEPS) \
    X(s_mul_hi_i32, KEEPS) X(s_bfe_u32) X(s_bfe_i32) X(s_lshl1_add_u32) X(s_lshl2_add_u32) \
    X(s_lshl3_add_u32) X(s_lshl4_add_u32) X(s_absdiff_i32) X(s_pack_ll_b32_b16, KEEPS) \
    X(s_pack_lh_b32_b16, KEEPS) X(s_pack_hh_b32_b16, KEEPS) X(s_mov_b32, BITS(ANY), KEEPS) \
    X(s_not_b32, BITS(ANY)) X(s_brev_b32, KEEPS) X(s_abs_i32) X(s_sext_i32_i8, KEEPS) X(s_sext_i32_i16, KEEPS) \
    X(s_bcnt0_i32_b32) X(s_bcnt1_i32_b32) X(s_ff1_i32_b32, KEEPS) X(s_ff0_i32_b32, KEEPS) X(s_flbit_i32_b32, KEEPS) \
    X(s_flbit_i32, KEEPS) X(s_quadmask_b32)

#define ARITHMETIC64(X) \
    X(s_cselect_b64, "q:qq", .flow = SIM_FLOW_SELECT, KEEPS) X(s_and_b64, "q:qq", BITS(AND)) \
    X(s_or_b64, "q:qq", BITS(OR)) X(s_xor_b64, "q:qq", BITS(ANY)) X(s_andn2_b64, "q:qq", BITS(AND_NOT1)) \
    X(s_orn2_b64, "q:qq", BITS(OR_NOT1)) X(s_nand_b64, "q:qq", BITS(AND)) X(s_nor_b64, "q:qq", BITS(OR)) \
    X(s_xnor_b64, "q:qq", BITS(ANY)) X(s_lshl_b64, "q:qi") X(s_lshr_b64, "q:qi") X(s_ashr_i64, "Q:Qi") \
    X(s_bfm_b64, "q:ii", KEEPS) X(s_bfe_u64, "q:qi") X(s_bfe_i64, "Q:Qi") X(s_mov_b64, "q:q", BITS(ANY), KEEPS) \
    X(s_not_b64, "q:q", BITS(ANY)) X(s_brev_b64, "q:q", KEEPS) X(s_wqm_b64, "q:q") \
    X(s_quadmask_b64, "q:q") X(s_bitreplicate_b64_b32, "q:i", KEEPS)

#define COUNTS64(X) \
    X(s_bcnt0_i32_b64, "i:q") X(s_bcnt1_i32_b64, "i:q") X(s_ff1_i32_b64, "i:q", KEEPS) X(s_ff0_i32_b64, "i:q", KEEPS) \
    X(s_flbit_i32_b64, "i:q", KEEPS) X(s_flbit_i32_i64, "i:Q", KEEPS)

#define SAVEEXEC(X) \
    X(s_and_saveexec_b64, AND) X(s_or_saveexec_b64, OR) X(s_xor_saveexec_b64, ANY) \
    X(s_andn2_saveexec_b64, AND_NOT1) X(s_orn2_saveexec_b64, OR_NOT1) X(s_nand_saveexec_b64, AND) \
    X(s_nor_saveexec_b64, OR) X(s_xnor_saveexec_b64, ANY) X(s_andn1_saveexec_b64, AND_NOT0) \
    X(s_orn1_saveexec_b64, OR_NOT0)

#define WRAP_ARITHMETIC32(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        uint32_t a = sim_read32(w, &inst->src[0]), b = sim_read32(w, &inst->src[1]); \
        sim_write32(w, &inst->dst[0], name(w, a, b)); \
    }
#define WRAP_ARITHMETIC64(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        uint64_t a = sim_read64(w, &inst->src[0]), b = sim_read64(w, &inst->src[1]); \
        sim_write64(w, &inst->dst[0], name(w, a, b)); \
    }
#define WRAP_COUNT64(name, ...) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        sim_write32(w, &inst->dst[0], name(w, sim_read64(w, &inst->src[0]), 0)); \
    }
#define WRAP_SAVEEXEC(name, logic) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        uint64_t a = sim_read64(w, &inst->src[0]), old = w->exec; \
        sim_write64(w, &inst->dst[0], old); \
        w->exec = name(a, old); \
        w->scc = w->exec != 0; \
    }

ARITHMETIC32(WRAP_ARITHMETIC32)
ARITHMETIC64(WRAP_ARITHMETIC64)
COUNTS64(WRAP_COUNT64)
SAVEEXEC(WRAP_SAVEEXEC)

#define LINE(name, types, ...) SIM_ROW(#name, exec_##name, ALL, SIM_SALU, 'i', types, __VA_ARGS__)
#define LINE32(name, ...) LINE(name, "i:ii", __VA_ARGS__)
#define LINE_SAVEEXEC(name, logic_) LINE(name, "q:q", .is = SIM_WRITES_EXEC, BITS(logic_))

// What RDNA calls differently: its name, chips, gfx9's name, operand types.
#define SAVES(logic_) .is = SIM_WRITES_EXEC, BITS(logic_)
#define RENAMED(X) \
    X(s_and_not1_b32, GFX11P, s_andn2_b32, "i:ii", BITS(AND_NOT1)) \
    X(s_or_not1_b32, GFX11P, s_orn2_b32, "i:ii", BITS(OR_NOT1)) \
    X(s_and_not1_b64, GFX11P, s_andn2_b64, "q:qq", BITS(AND_NOT1)) \
    X(s_or_not1_b64, GFX11P, s_orn2_b64, "q:qq", BITS(OR_NOT1)) \
    X(s_ctz_i32_b32, GFX11P, s_ff1_i32_b32, "i:i", KEEPS) X(s_ctz_i32_b64, GFX11P, s_ff1_i32_b64, "i:q", KEEPS) \
    X(s_clz_i32_u32, GFX11P, s_flbit_i32_b32, "i:i", KEEPS) X(s_clz_i32_u64, GFX11P, s_flbit_i32_b64, "i:q", KEEPS) \
    X(s_cls_i32, GFX11P, s_flbit_i32, "i:i", KEEPS) X(s_cls_i32_i64, GFX11P, s_flbit_i32_i64, "i:Q", KEEPS) \
    X(s_and_not0_saveexec_b64, GFX11P, s_andn1_saveexec_b64, "q:q", SAVES(AND_NOT0)) \
    X(s_and_not1_saveexec_b64, GFX11P, s_andn2_saveexec_b64, "q:q", SAVES(AND_NOT1)) \
    X(s_or_not0_saveexec_b64, GFX11P, s_orn1_saveexec_b64, "q:q", SAVES(OR_NOT0)) \
    X(s_or_not1_saveexec_b64, GFX11P, s_orn2_saveexec_b64, "q:q", SAVES(OR_NOT1)) \
    X(s_add_co_u32, GFX12, s_add_u32, "i:ii") X(s_sub_co_u32, GFX12, s_sub_u32, "i:ii") \
    X(s_add_co_i32, GFX12, s_add_i32, "i:ii") X(s_sub_co_i32, GFX12, s_sub_i32, "i:ii") \
    X(s_add_co_ci_u32, GFX12, s_addc_u32, "i:ii") X(s_sub_co_ci_u32, GFX12, s_subb_u32, "i:ii") \
    X(s_addk_co_i32, GFX12, s_addk_i32, "i:i")
#define LINE_RENAMED(name, archs, function, types, ...) \
    SIM_ROW(#name, exec_##function, archs, SIM_SALU, 'i', types, __VA_ARGS__)

static const sim_opcode opcodes[] = {
    RENAMED(LINE_RENAMED) ARITHMETIC32(LINE32) ARITHMETIC64(LINE) COUNTS64(LINE) SAVEEXEC(LINE_SAVEEXEC)
    LINE(s_cmov_b32, "i:i", BITS(ANY), KEEPS) LINE(s_cmov_b64, "q:q", BITS(ANY), KEEPS)
    LINE(s_bitset0_b32, "i:i", KEEPS) LINE(s_bitset1_b32, "i:i", KEEPS) LINE(s_bitset0_b64, "q:i", KEEPS) LINE(s_bitset1_b64, "q:i", KEEPS)
    LINE(s_movk_i32, "i:i", KEEPS) LINE(s_cmovk_i32, "i:i", KEEPS) LINE(s_addk_i32, "i:i")
    LINE(s_mulk_i32, "i:i", KEEPS)};

// clang-format on
SIM_TABLE(sim_ops_salu, opcodes);
