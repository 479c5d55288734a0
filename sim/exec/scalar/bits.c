// SPDX-License-Identifier: Apache-2.0
// Scalar logic, shifts, fields of bits, counts of bits. Source: "CDNA3" and "RDNA3" ISA, SOP1,
// SOP2.
#include "scalar.h"

// ---- logic

// clang-format off
#define DEFINE_LOGIC(name, meaning, logic) \
    static uint32_t s_##name##_b32(sim_wave *w, uint32_t a, uint32_t b) { return flag(w, meaning); } \
    static uint64_t s_##name##_b64(sim_wave *w, uint64_t a, uint64_t b) { return flag64(w, meaning); }
LOGIC(DEFINE_LOGIC)
// clang-format on

static uint32_t s_not_b32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, ~a);
}
static uint64_t s_not_b64(sim_wave *w, uint64_t a, uint64_t) {
    return flag64(w, ~a);
}

// ---- shifts and fields

static uint32_t s_lshl_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a << (b & 31));
}
static uint64_t s_lshl_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a << (b & 63));
}
static uint32_t s_lshr_b32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, a >> (b & 31));
}
static uint64_t s_lshr_b64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, a >> (b & 63));
}
static uint32_t s_ashr_i32(sim_wave *w, uint32_t a, uint32_t b) {
    return flag(w, (uint32_t)((int32_t)a >> (b & 31)));
}
static uint64_t s_ashr_i64(sim_wave *w, uint64_t a, uint64_t b) {
    return flag64(w, (uint64_t)((int64_t)a >> (b & 63)));
}
static uint32_t s_bfm_b32(sim_wave *, uint32_t a, uint32_t b) {
    return ((1u << (a & 31)) - 1) << (b & 31);
}
static uint64_t s_bfm_b64(sim_wave *, uint64_t a, uint64_t b) {
    return ((UINT64_C(1) << (a & 63)) - 1) << (b & 63);
}

/** Returns a field of `a`: its offset is in b[4:0], its width in b[22:16]. */
static uint32_t s_bfe_u32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t width = b >> 16 & 0x7f, field = a >> (b & 31);
    return flag(w, width < 32 ? field & ((1u << width) - 1) : field);
}

static uint64_t s_bfe_u64(sim_wave *w, uint64_t a, uint64_t b) {
    const uint64_t width = b >> 16 & 0x7f, field = a >> (b & 63);
    return flag64(w, width < 64 ? field & ((UINT64_C(1) << width) - 1) : field);
}

static uint32_t s_bfe_i32(sim_wave *w, uint32_t a, uint32_t b) {
    const uint32_t width = b >> 16 & 0x7f;
    if (width == 0)
        return flag(w, 0);
    const int32_t field = (int32_t)a >> (b & 31);
    const uint32_t unused = width < 32 ? 32 - width : 0;
    return flag(w, (uint32_t)((int32_t)((uint32_t)field << unused) >> unused));
}

static uint64_t s_bfe_i64(sim_wave *w, uint64_t a, uint64_t b) {
    const uint64_t width = b >> 16 & 0x7f;
    if (width == 0)
        return flag64(w, 0);
    const uint64_t unused = width < 64 ? 64 - width : 0;
    const uint64_t field = (uint64_t)((int64_t)a >> (b & 63));
    return flag64(w, (uint64_t)((int64_t)(field << unused) >> unused));
}

static uint32_t s_sext_i32_i8(sim_wave *, uint32_t a, uint32_t) {
    return (uint32_t)(int8_t)a;
}
static uint32_t s_sext_i32_i16(sim_wave *, uint32_t a, uint32_t) {
    return (uint32_t)(int16_t)a;
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
static uint32_t s_pack_hl_b32_b16(sim_wave *, uint32_t a, uint32_t b) {
    return a >> 16 | b << 16;
}

// ---- places of bits

static uint32_t s_brev_b32(sim_wave *, uint32_t a, uint32_t) {
    return __builtin_bitreverse32(a);
}
static uint64_t s_brev_b64(sim_wave *, uint64_t a, uint64_t) {
    return __builtin_bitreverse64(a);
}

/** Sets each bit of every group of four to the group's OR. */
static uint32_t s_wqm_b32(sim_wave *w, uint32_t a, uint32_t) {
    return flag(w, ((a | a >> 1 | a >> 2 | a >> 3) & 0x11111111) * 15);
}

static uint64_t s_wqm_b64(sim_wave *w, uint64_t a, uint64_t) {
    const uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & UINT64_C(0x1111111111111111);
    return flag64(w, any * 15);
}

/** Returns one bit for each group of four: the group's OR. */
static uint64_t s_quadmask_b64(sim_wave *w, uint64_t a, uint64_t) {
    uint64_t any = (a | a >> 1 | a >> 2 | a >> 3) & UINT64_C(0x1111111111111111), out = 0;
    for (unsigned i = 0; i < 16; i++)
        out |= (any >> 4 * i & 1) << i;
    return flag64(w, out);
}

static uint32_t s_quadmask_b32(sim_wave *w, uint32_t a, uint32_t) {
    return (uint32_t)s_quadmask_b64(w, a, 0);
}

/** Returns every bit twice. */
static uint64_t s_bitreplicate_b64_b32(sim_wave *, uint64_t a, uint64_t) {
    uint64_t out = 0;
    for (unsigned i = 0; i < 32; i++)
        out |= (a >> i & 1) * 3 << 2 * i;
    return out;
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

// ---- counts

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

/** Returns the number of leading bits equal to the sign bit, or -1 if all are. */
static uint32_t s_flbit_i32(sim_wave *, uint32_t a, uint32_t) {
    const uint32_t flipped = (int32_t)a < 0 ? ~a : a;
    return flipped ? (uint32_t)__builtin_clz(flipped) : UINT32_MAX;
}

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

// clang-format off
#define BITS32(X) \
    X(s_not_b32, "i:ii", BITS(ANY)) X(s_lshl_b32, "i:ii") X(s_lshr_b32, "i:ii") X(s_ashr_i32, "i:ii") \
    X(s_bfm_b32, "i:ii", KEEPS) X(s_bfe_u32, "i:ii") X(s_bfe_i32, "i:ii") X(s_sext_i32_i8, "i:ii", KEEPS) \
    X(s_sext_i32_i16, "i:ii", KEEPS) X(s_pack_ll_b32_b16, "i:ii", KEEPS) X(s_pack_lh_b32_b16, "i:ii", KEEPS) \
    X(s_pack_hh_b32_b16, "i:ii", KEEPS) X(s_brev_b32, "i:ii", KEEPS) X(s_wqm_b32, "i:i") X(s_quadmask_b32, "i:ii") \
    X(s_bcnt0_i32_b32, "i:ii") X(s_bcnt1_i32_b32, "i:ii") X(s_ff1_i32_b32, "i:ii", KEEPS) \
    X(s_ff0_i32_b32, "i:ii", KEEPS) X(s_flbit_i32_b32, "i:ii", KEEPS) X(s_flbit_i32, "i:ii", KEEPS)
#define BITS64(X) \
    X(s_not_b64, "q:q", BITS(ANY)) X(s_lshl_b64, "q:qi") X(s_lshr_b64, "q:qi") X(s_ashr_i64, "Q:Qi") \
    X(s_bfm_b64, "q:ii", KEEPS) X(s_bfe_u64, "q:qi") X(s_bfe_i64, "Q:Qi") X(s_brev_b64, "q:q", KEEPS) \
    X(s_wqm_b64, "q:q") X(s_quadmask_b64, "q:q") X(s_bitreplicate_b64_b32, "q:i", KEEPS)
#define COUNTS64(X) \
    X(s_bcnt0_i32_b64, "i:q") X(s_bcnt1_i32_b64, "i:q") X(s_ff1_i32_b64, "i:q", KEEPS) X(s_ff0_i32_b64, "i:q", KEEPS) \
    X(s_flbit_i32_b64, "i:q", KEEPS) X(s_flbit_i32_i64, "i:Q", KEEPS)
#define WRAP_LOGIC(name, meaning, logic) SALU_WRAP32(s_##name##_b32) SALU_WRAP64(s_##name##_b64)
#define LINE_LOGIC(name, meaning, logic) \
    SALU_LINE(s_##name##_b32, "i:ii", BITS(logic)) SALU_LINE(s_##name##_b64, "q:qq", BITS(logic))

LOGIC(WRAP_LOGIC)
BITS32(SALU_WRAP32)
BITS64(SALU_WRAP64)
COUNTS64(SALU_WRAP32_OF_64)
SALU_WRAP32(s_pack_hl_b32_b16)

static const sim_opcode opcodes[] = {
    LOGIC(LINE_LOGIC) BITS32(SALU_LINE) BITS64(SALU_LINE) COUNTS64(SALU_LINE)
    SALU_ROW(s_pack_hl_b32_b16, GFX11P, "i:ii", KEEPS)
    SALU_LINE(s_bitset0_b32, "i:i", KEEPS) SALU_LINE(s_bitset1_b32, "i:i", KEEPS)
    SALU_LINE(s_bitset0_b64, "q:i", KEEPS) SALU_LINE(s_bitset1_b64, "q:i", KEEPS)
    // gfx9's names and RDNA's names
    SALU_ALIAS(s_andn2_b32, s_and_not1_b32, GFX9, "i:ii", BITS(AND_NOT1))
    SALU_ALIAS(s_andn2_b64, s_and_not1_b64, GFX9, "q:qq", BITS(AND_NOT1))
    SALU_ALIAS(s_orn2_b32, s_or_not1_b32, GFX9, "i:ii", BITS(OR_NOT1))
    SALU_ALIAS(s_orn2_b64, s_or_not1_b64, GFX9, "q:qq", BITS(OR_NOT1))
    SALU_ALIAS(s_ctz_i32_b32, s_ff1_i32_b32, GFX11P, "i:i", KEEPS) SALU_ALIAS(s_ctz_i32_b64, s_ff1_i32_b64, GFX11P, "i:q", KEEPS)
    SALU_ALIAS(s_clz_i32_u32, s_flbit_i32_b32, GFX11P, "i:i", KEEPS)
    SALU_ALIAS(s_clz_i32_u64, s_flbit_i32_b64, GFX11P, "i:q", KEEPS)
    SALU_ALIAS(s_cls_i32, s_flbit_i32, GFX11P, "i:i", KEEPS) SALU_ALIAS(s_cls_i32_i64, s_flbit_i32_i64, GFX11P, "i:Q", KEEPS)};
// clang-format on
SIM_TABLE(sim_ops_salu_bits, opcodes);
