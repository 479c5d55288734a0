// SPDX-License-Identifier: Apache-2.0
// Packed instructions (VOP3P): two 16-bit or two f32 operations at once. op_sel chooses the half of
// each source for the low result, op_sel_hi for the high one; neg_lo and neg_hi negate. Source:
// "CDNA3" ISA, VOP3P.
#include "../numbers.h"
#include "half.h"
#include "vector.h"

// ---- two 16-bit operations

typedef u32x16 (*packed_op)(u32x16, u32x16, u32x16);

static u32x16 flush_f16(u32x16 a) {
    return select16((u32x16)((a & 0x7c00) != 0), a, a & 0x8000);
}
static u32x16 is_infinite16(u32x16 a) {
    return (u32x16)((a & 0x7fff) == 0x7c00);
}

/** Applies overflow, denormals, clamp and width to the two results. */
SIM_INLINE u32x16 finish_half(const sim_wave *w, const sim_inst *inst, u32x16 half,
                              const u32x16 in[3], bool is_float) {
    if (is_float) {
        u32x16 keep = is_infinite16(in[0]) | is_infinite16(in[1]) | is_infinite16(in[2]);
        half = sim_limit_f16(w, half & 0xffff, keep);
    }
    if (is_float && (inst->flags & SIM_CLAMP))
        half = f16_of_f32(clamp_to_one(f32_of_f16(half & 0xffff)));
    if (is_float && !(w->mode >> 7 & 1))
        half = flush_f16(half & 0xffff);
    return half & 0xffff;
}

SIM_INLINE void run_packed16(sim_wave *w, const sim_inst *inst, unsigned arity, bool is_float,
                             packed_op op) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *src[3] = {};
    const bool flush_in = is_float && !(w->mode >> 6 & 1);
    for (unsigned i = 0; i < arity; i++)
        src[i] = get32(w, inst, true, i, tmp[i]);
    const bool rounding = sim_rounding_begin(w, inst);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 halves[2];
        for (unsigned high = 0; high < 2; high++) {
            u32x16 in[3] = {};
            for (unsigned i = 0; i < arity; i++) {
                in[i] = sim_packed_half(load16(src[i] + k), inst, i, high);
                in[i] = flush_in ? flush_f16(in[i]) : in[i];
            }
            halves[high] = finish_half(w, inst, op(in[0], in[1], in[2]), in, is_float);
        }
        store16(result + k, halves[0] | halves[1] << 16);
    }
    if (rounding)
        sim_rounding_end();
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static u32x16 pk_add_f16(u32x16 a, u32x16 b) {
    return f16_of_f32(sum_of(f32_of_f16(a), f32_of_f16(b)));
}
static u32x16 pk_mul_f16(u32x16 a, u32x16 b) {
    return f16_of_f32(product_of(f32_of_f16(a), f32_of_f16(b)));
}
static u32x16 pk_fma_f16(u32x16 a, u32x16 b, u32x16 c) {
    return f16_of_f32(fma_for_f16(f32_of_f16(a), f32_of_f16(b), f32_of_f16(c)));
}

// RDNA4's minimum and maximum keep a NaN.
static u32x16 pk_minimum3_f16(u32x16 a, u32x16 b, u32x16 c) {
    return minimum16(minimum16(a, b), c);
}
static u32x16 pk_maximum3_f16(u32x16 a, u32x16 b, u32x16 c) {
    return maximum16(maximum16(a, b), c);
}

// ---- with the modifiers of VOP2

static f32x16 plain_half(u32x16 block, bool high, bool flush) {
    u32x16 half = high ? block >> 16 : block & 0xffff;
    return f32_of_f16(flush ? flush_f16(half) : half);
}

/** Does two fused multiply-adds of halves. They follow MODE's f16 rounding, denormals and
 *  overflow. */
static void exec_v_pk_fmac_f16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *src[3];
    for (unsigned i = 0; i < 3; i++)
        src[i] = sim_row32(w, inst, i, tmp[i]);
    const bool rounding = sim_rounding_begin(w, inst);
    const bool flush_in = !(w->mode >> 6 & 1), flush_out = !(w->mode >> 7 & 1);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 a = load16(src[0] + k), b = load16(src[1] + k), c = load16(src[2] + k), both = {};
        for (unsigned high = 0; high < 2; high++) {
            f32x16 x = plain_half(a, high, flush_in), y = plain_half(b, high, flush_in);
            f32x16 z = plain_half(c, high, flush_in);
            u32x16 half = f16_of_f32(fma_for_f16(x, y, z));
            half = sim_limit_f16(w, half, is_infinite(x) | is_infinite(y) | is_infinite(z));
            both |= (flush_out ? flush_f16(half) : half) << 16 * high;
        }
        store16(result + k, both);
    }
    if (rounding)
        sim_rounding_end();
    sim_finish32(w, inst, result);
}

// ---- two f32 operations on register pairs

typedef f32x16 (*packed_f32_op)(f32x16, f32x16, f32x16);

/** Returns the rows of a 64-bit source, also of SGPRs and constants. The high half of a constant is
 *  0. */
static const uint32_t *pair_rows(const sim_wave *w, const sim_inst *inst, unsigned i,
                                 uint32_t *tmp) {
    const sim_operand *op = &inst->src[i];
    if (op->kind == SIM_OP_VGPR)
        return w->v[op->reg];
    const uint64_t value = sim_read64(w, op);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        tmp[lane] = (uint32_t)value;
        tmp[SIM_LANES + lane] = (uint32_t)(value >> 32);
    }
    return tmp;
}

SIM_INLINE u32x16 word_of(const uint32_t *rows, const sim_inst *inst, unsigned i, bool high,
                          unsigned k) {
    const uint8_t select = high ? inst->op_sel_hi : inst->op_sel,
                  negate = high ? inst->neg_hi : inst->neg_lo;
    u32x16 word = load16(rows + (select >> i & 1 ? SIM_LANES : 0) + k);
    return word ^ (negate >> i & 1 ? 0x80000000u : 0);
}

SIM_INLINE u32x16 finish_word(const sim_wave *w, const sim_inst *inst, f32x16 x) {
    x = inst->flags & SIM_CLAMP ? clamp_to_one(x) : x;
    return (u32x16)(w->mode >> 5 & 1 ? x : flush_f32(x));
}

/** Runs all lanes without modifiers. Both results of a block are known before either is
 *  written. */
SIM_INLINE void run_whole_pairs(uint32_t *rows, const uint32_t *const src[3], unsigned arity,
                                packed_f32_op op) {
    const uint32_t *a = src[0], *b = src[1], *c = arity > 2 ? src[2] : a;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        const unsigned high = SIM_LANES + k;
        f32x16 first = op((f32x16)load16(a + k), (f32x16)load16(b + k), (f32x16)load16(c + k));
        f32x16 second =
            op((f32x16)load16(a + high), (f32x16)load16(b + high), (f32x16)load16(c + high));
        store16(rows + k, (u32x16)first);
        store16(rows + high, (u32x16)second);
    }
}

SIM_INLINE void run_packed32(sim_wave *w, const sim_inst *inst, unsigned arity, packed_f32_op op) {
    _Alignas(64) uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *src[3] = {};
    const bool flush_in = !(w->mode >> 4 & 1);
    for (unsigned i = 0; i < arity; i++)
        src[i] = pair_rows(w, inst, i, tmp[i]);
    if (sim_is_plain(w, inst) && inst->op_sel_hi == 7 && w->exec == UINT64_MAX) {
        run_whole_pairs(w->v[inst->dst[0].reg], src, arity, op);
        return;
    }
    const bool rounding = sim_rounding_begin(w, inst);
    for (unsigned high = 0; high < 2; high++) {
        COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16) {
            f32x16 in[3] = {};
            for (unsigned i = 0; i < arity; i++) {
                f32x16 word = (f32x16)word_of(src[i], inst, i, high, k);
                in[i] = flush_in ? flush_f32(word) : word;
            }
            store16(result + SIM_LANES * high + k, finish_word(w, inst, op(in[0], in[1], in[2])));
        }
    }
    if (rounding)
        sim_rounding_end();
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
    store_masked(w->v[inst->dst[0].reg + 1], result + SIM_LANES, w->exec);
}

static f32x16 v_pk_add_f32(f32x16 a, f32x16 b, f32x16) {
    return sum_of(a, b);
}
static f32x16 v_pk_mul_f32(f32x16 a, f32x16 b, f32x16) {
    return product_of(a, b);
}
static f32x16 v_pk_fma_f32(f32x16 a, f32x16 b, f32x16 c) {
    return fused(a, b, c);
}

/** Moves two words: the low result is a word of the first source, the high one a word of the
 *  second. */
static void exec_v_pk_mov_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = pair_rows(w, inst, 0, tmp[0]), *b = pair_rows(w, inst, 1, tmp[1]);
    memcpy(result, a + (inst->op_sel & 1 ? SIM_LANES : 0), SIM_LANES * sizeof *result);
    memcpy(result + SIM_LANES, b + (inst->op_sel & 2 ? SIM_LANES : 0), SIM_LANES * sizeof *result);
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
    store_masked(w->v[inst->dst[0].reg + 1], result + SIM_LANES, w->exec);
}

// ---- tables: X(name, arity, is_float, operation, types, chips)
// clang-format off
#define PACKED16(X) \
    X(v_pk_add_f16, 2, true, pk_add_f16, "H:HH", ALL) X(v_pk_mul_f16, 2, true, pk_mul_f16, "H:HH", ALL) \
    X(v_pk_fma_f16, 3, true, pk_fma_f16, "H:HHH", ALL) \
    X(v_pk_minimum_f16, 2, true, minimum16, "H:HH", GFX12) X(v_pk_maximum_f16, 2, true, maximum16, "H:HH", GFX12) \
    X(v_pk_minimum3_f16, 3, true, pk_minimum3_f16, "H:HHH", GFX950) \
    X(v_pk_maximum3_f16, 3, true, pk_maximum3_f16, "H:HHH", GFX950) \
    X(v_pk_min_num_f16, 2, true, number_min16, "H:HH", GFX12) \
    X(v_pk_max_num_f16, 2, true, number_max16, "H:HH", GFX12) \
    X(v_pk_mul_lo_u16, 2, false, v_mul_lo_u16, "W:WW", ALL) \
    X(v_pk_lshlrev_b16, 2, false, v_lshlrev_b16, "W:WW", ALL) X(v_pk_lshrrev_b16, 2, false, v_lshrrev_b16, "W:WW", ALL) \
    X(v_pk_ashrrev_i16, 2, false, v_ashrrev_i16, "W:WW", ALL) X(v_pk_max_u16, 2, false, v_max_u16, "W:WW", ALL) \
    X(v_pk_min_u16, 2, false, v_min_u16, "W:WW", ALL) X(v_pk_max_i16, 2, false, v_max_i16, "W:WW", ALL) \
    X(v_pk_min_i16, 2, false, v_min_i16, "W:WW", ALL)
#define SATURATING16(X) \
    X(v_pk_add_u16, 2, false, v_add_u16, "W:WW", ALL) X(v_pk_add_i16, 2, false, v_add_i16, "W:WW", ALL) \
    X(v_pk_sub_u16, 2, false, v_sub_u16, "W:WW", ALL) X(v_pk_sub_i16, 2, false, v_sub_i16, "W:WW", ALL) \
    X(v_pk_mad_u16, 3, false, v_mad_u16, "W:WWW", ALL) X(v_pk_mad_i16, 3, false, v_mad_i16, "W:WWW", ALL)
// MODE's bit IEEE chooses.
#define BY_MODE(X) X(v_pk_min_f16, min16) X(v_pk_max_f16, max16)
#define PACKED32(X) \
    X(v_pk_add_f32, 2, "F:FF") X(v_pk_mul_f32, 2, "F:FF") X(v_pk_fma_f32, 3, "F:FFF")

#define CALL_2(op) op(a, b)
#define CALL_3(op) op(a, b, c)
#define WRAP16(name, arity, is_float, op, types, archs) \
    static u32x16 block_##name(u32x16 a, u32x16 b, UNUSED u32x16 c) { return CALL_##arity(op); } \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { run_packed16(w, inst, arity, is_float, block_##name); }
#define WRAP_SATURATING(name, arity, is_float, op, types, archs) \
    WRAP16(wrapped_##name, arity, is_float, op, types, archs) \
    WRAP16(saturated_##name, arity, is_float, saturated_##op, types, archs) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        if (inst->flags & SIM_CLAMP) { exec_saturated_##name(w, inst); } else { exec_wrapped_##name(w, inst); } \
    }
#define WRAP_BY_MODE(name, op) \
    WRAP16(number_##name, 2, true, number_##op, , ) \
    WRAP16(ieee_##name, 2, true, ieee_##op, , ) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        if (w->mode & SIM_MODE_IEEE) { exec_ieee_##name(w, inst); } else { exec_number_##name(w, inst); } \
    }
#define WRAP_PAIR(name, arity, types) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { run_packed32(w, inst, arity, name); }
PACKED16(WRAP16)
SATURATING16(WRAP_SATURATING)
BY_MODE(WRAP_BY_MODE)
PACKED32(WRAP_PAIR)

#define LINE(name, types, archs, is_) SIM_ROW(#name, exec_##name, archs, SIM_VALU, 'i', types, .is = is_)
#define LINE16(name, arity, is_float, op, types, archs) LINE(name, types, archs, SIM_IS_PACKED)
#define LINE_SATURATING(name, arity, is_float, op, types, archs) LINE(name, types, archs, SIM_IS_PACKED | SIM_SATURATES)
#define LINE_BY_MODE(name, op) LINE(name, "H:HH", GFX9 | GFX11, SIM_IS_PACKED)
#define LINE_PAIR(name, arity, types) LINE(name, types, GFX9, SIM_IS_PACKED)
static const sim_opcode opcodes[] = {
    PACKED16(LINE16) SATURATING16(LINE_SATURATING) BY_MODE(LINE_BY_MODE) PACKED32(LINE_PAIR)
    LINE(v_pk_fmac_f16, "H:ii+", ALL, SIM_IS_PACKED) LINE(v_pk_mov_b32, "q:qq", GFX9, SIM_IS_PACKED)};
// clang-format on
SIM_TABLE(sim_ops_valu_packed, opcodes);
