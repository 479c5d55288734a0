// SPDX-License-Identifier: Apache-2.0
// Packed instructions (VOP3P): two 16-bit or two f32 operations at once, mixed-precision fused
// multiply-add, dot products. op_sel chooses the half of each source for the low result, op_sel_hi
// for the high one; neg_lo and neg_hi negate. Source: "CDNA3" ISA, VOP3P.
#include "../numbers.h"
#include "vector.h"

// ---- two 16-bit operations

typedef u32x16 (*packed_op)(u32x16, u32x16, u32x16);

/** The half of source i for one of the results, negated as asked. */
SIM_INLINE u32x16 half_of(u32x16 block, const sim_inst *inst, unsigned i, bool high) {
    const uint8_t select = high ? inst->op_sel_hi : inst->op_sel,
                  negate = high ? inst->neg_hi : inst->neg_lo;
    u32x16 half = select >> i & 1 ? block >> 16 : block & 0xffff;
    return half ^ (negate >> i & 1 ? 0x8000u : 0);
}

static u32x16 flush_f16(u32x16 a) {
    return select16((u32x16)((a & 0x7c00) != 0), a, a & 0x8000);
}

static u32x16 is_infinite16(u32x16 a) {
    return (u32x16)((a & 0x7fff) == 0x7c00);
}

/** The two results' overflow, denormals, clamp and width. */
SIM_INLINE u32x16 finish_half(const sim_wave *w, const sim_inst *inst, u32x16 half,
                              const u32x16 in[3], bool is_float) {
    if (is_float) {
        u32x16 keep = is_infinite16(in[0]) | is_infinite16(in[1]) | is_infinite16(in[2]);
        half = sim_limit_f16(w, half & 0xffff, keep);
    }
    if (is_float && (inst->flags & SIM_CLAMP)) {
        f32x16 x = f32_of_f16(half & 0xffff), one = (f32x16){} + 1;
        half =
            f16_of_f32(min_number(max_number(choose(is_nan(x), (f32x16){}, x), (f32x16){}), one));
    }
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
                in[i] = half_of(load16(src[i] + k), inst, i, high);
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

static u32x16 low(u32x16 a) {
    return a & 0xffff;
}
static u32x16 sign(u32x16 a) {
    return (u32x16)((i32x16)(a << 16) >> 16);
}

static u32x16 v_pk_add_f16(u32x16 a, u32x16 b, u32x16) {
    return f16_of_f32(sum_of(f32_of_f16(a), f32_of_f16(b)));
}
static u32x16 v_pk_mul_f16(u32x16 a, u32x16 b, u32x16) {
    return f16_of_f32(product_of(f32_of_f16(a), f32_of_f16(b)));
}
#define BY_MODE(name, two)                                                                         \
    static u32x16 number_##name(u32x16 a, u32x16 b, u32x16) {                                      \
        return number_##two(a, b);                                                                 \
    }                                                                                              \
    static u32x16 ieee_##name(u32x16 a, u32x16 b, u32x16) {                                        \
        return ieee_##two(a, b);                                                                   \
    }
BY_MODE(v_pk_min_f16, min16)
BY_MODE(v_pk_max_f16, max16)
/** RDNA4's keep a NaN. */
static u32x16 v_pk_minimum_f16(u32x16 a, u32x16 b, u32x16) {
    return minimum16(a, b);
}
static u32x16 v_pk_maximum_f16(u32x16 a, u32x16 b, u32x16) {
    return maximum16(a, b);
}
static u32x16 v_pk_minimum3_f16(u32x16 a, u32x16 b, u32x16 c) {
    return minimum16(minimum16(a, b), c);
}
static u32x16 v_pk_maximum3_f16(u32x16 a, u32x16 b, u32x16 c) {
    return maximum16(maximum16(a, b), c);
}
static u32x16 v_pk_fma_f16(u32x16 a, u32x16 b, u32x16 c) {
    return f16_of_f32(fma_for_f16(f32_of_f16(a), f32_of_f16(b), f32_of_f16(c)));
}
static u32x16 v_pk_add_u16(u32x16 a, u32x16 b, u32x16) {
    return a + b;
}
static u32x16 v_pk_add_i16(u32x16 a, u32x16 b, u32x16) {
    return a + b;
}
static u32x16 v_pk_sub_u16(u32x16 a, u32x16 b, u32x16) {
    return a - b;
}
static u32x16 v_pk_sub_i16(u32x16 a, u32x16 b, u32x16) {
    return a - b;
}
/** With clamp: the nearest number that the type has. */
static u32x16 saturated_v_pk_add_u16(u32x16 a, u32x16 b, u32x16) {
    return __builtin_elementwise_min(low(a) + low(b), (u32x16){} + 0xffff);
}
static u32x16 saturated_v_pk_sub_u16(u32x16 a, u32x16 b, u32x16) {
    return __builtin_elementwise_sub_sat(low(a), low(b));
}
static u32x16 limit_i16(i32x16 a) {
    i32x16 least = (i32x16){} - 32768, most = (i32x16){} + 32767;
    return (u32x16)__builtin_elementwise_min(__builtin_elementwise_max(a, least), most);
}
static u32x16 saturated_v_pk_add_i16(u32x16 a, u32x16 b, u32x16) {
    return limit_i16((i32x16)sign(a) + (i32x16)sign(b));
}
static u32x16 saturated_v_pk_sub_i16(u32x16 a, u32x16 b, u32x16) {
    return limit_i16((i32x16)sign(a) - (i32x16)sign(b));
}
static u32x16 v_pk_mul_lo_u16(u32x16 a, u32x16 b, u32x16) {
    return a * b;
}
static u32x16 v_pk_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return a * b + c;
}
static u32x16 v_pk_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return a * b + c;
}
static u32x16 saturated_v_pk_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_min(low(a) * low(b) + low(c), (u32x16){} + 0xffff);
}
static u32x16 saturated_v_pk_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return limit_i16((i32x16)sign(a) * (i32x16)sign(b) + (i32x16)sign(c));
}
static u32x16 v_pk_lshlrev_b16(u32x16 a, u32x16 b, u32x16) {
    return b << (a & 15);
}
static u32x16 v_pk_lshrrev_b16(u32x16 a, u32x16 b, u32x16) {
    return low(b) >> (a & 15);
}
static u32x16 v_pk_ashrrev_i16(u32x16 a, u32x16 b, u32x16) {
    return (u32x16)((i32x16)sign(b) >> (i32x16)(a & 15));
}
static u32x16 v_pk_max_u16(u32x16 a, u32x16 b, u32x16) {
    return __builtin_elementwise_max(low(a), low(b));
}
static u32x16 v_pk_min_u16(u32x16 a, u32x16 b, u32x16) {
    return __builtin_elementwise_min(low(a), low(b));
}
static u32x16 v_pk_max_i16(u32x16 a, u32x16 b, u32x16) {
    return (u32x16)__builtin_elementwise_max((i32x16)sign(a), (i32x16)sign(b));
}
static u32x16 v_pk_min_i16(u32x16 a, u32x16 b, u32x16) {
    return (u32x16)__builtin_elementwise_min((i32x16)sign(a), (i32x16)sign(b));
}

// ---- two f32 operations on register pairs

typedef f32x16 (*packed_f32_op)(f32x16, f32x16, f32x16);

/** Constants and SGPRs as 64-bit operands; of a constant the high half is 0. */
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

static u32x16 flush_f32(u32x16 a, bool on) {
    return on ? select16((u32x16)((a & 0x7f800000) != 0), a, a & 0x80000000) : a;
}

SIM_INLINE u32x16 word_of(const uint32_t *rows, const sim_inst *inst, unsigned i, bool high,
                          unsigned k) {
    const uint8_t select = high ? inst->op_sel_hi : inst->op_sel,
                  negate = high ? inst->neg_hi : inst->neg_lo;
    u32x16 word = load16(rows + (select >> i & 1 ? SIM_LANES : 0) + k);
    return word ^ (negate >> i & 1 ? 0x80000000u : 0);
}

SIM_INLINE u32x16 finish_word(const sim_wave *w, const sim_inst *inst, f32x16 x) {
    if (inst->flags & SIM_CLAMP) {
        f32x16 one = (f32x16){} + 1;
        x = min_number(max_number(choose(is_nan(x), (f32x16){}, x), (f32x16){}), one);
    }
    return flush_f32((u32x16)x, !(w->mode >> 5 & 1));
}

/** All lanes, without modifiers; both results of a block are known before either is written. */
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
        for (unsigned k = 0; k < SIM_LANES; k += 16) {
            f32x16 in[3] = {};
            for (unsigned i = 0; i < arity; i++)
                in[i] = (f32x16)flush_f32(word_of(src[i], inst, i, high, k), flush_in);
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

/** The low result is a word of the first source, the high one a word of the second. */
static void exec_v_pk_mov_b32(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[2][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = pair_rows(w, inst, 0, tmp[0]), *b = pair_rows(w, inst, 1, tmp[1]);
    memcpy(result, a + (inst->op_sel & 1 ? SIM_LANES : 0), SIM_LANES * sizeof *result);
    memcpy(result + SIM_LANES, b + (inst->op_sel & 2 ? SIM_LANES : 0), SIM_LANES * sizeof *result);
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
    store_masked(w->v[inst->dst[0].reg + 1], result + SIM_LANES, w->exec);
}

// ---- f32 fused multiply-add of sources that are f32, or f16 halves where op_sel_hi says so

/** Whether source i is a float constant of the encoding. LLVM's operand types give one that stands
 *  for a half the f16 bits in its lower half and zeros above (the disassembler's MCInst says 0x3c00
 *  for 1.0). */
static bool is_float_constant(const sim_inst *inst, unsigned i) {
    const uint32_t field = inst->word[1] >> 9 * i & 0x1ff;
    return field >= 240 && field <= 248;
}

static f32x16 mixed_source(const sim_wave *w, const sim_inst *inst, unsigned i, const uint32_t *row,
                           unsigned k) {
    u32x16 block = load16(row + k);
    const bool is_half = inst->op_sel_hi >> i & 1, high = inst->op_sel >> i & 1;
    block = is_half && is_float_constant(inst, i) ? f16_of_f32(block) : block;
    f32x16 value = is_half ? f32_of_f16((high ? block >> 16 : block) & 0xffff)
                           : (f32x16)flush_f32(block, !(w->mode >> 4 & 1));
    value = inst->src[i].mods & SIM_ABS ? __builtin_elementwise_abs(value) : value;
    return inst->src[i].mods & SIM_NEG ? -value : value;
}

static f32x16 clamped(const sim_inst *inst, f32x16 x) {
    f32x16 one = (f32x16){} + 1;
    f32x16 inside = min_number(max_number(choose(is_nan(x), (f32x16){}, x), (f32x16){}), one);
    return inst->flags & SIM_CLAMP ? inside : x;
}

typedef enum mixed_result { MIXED_F32, MIXED_LOW, MIXED_HIGH } mixed_result;

static void mixed_fma(sim_wave *w, const sim_inst *inst, mixed_result where) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    uint32_t *dst = w->v[inst->dst[0].reg];
    const uint32_t *src[3];
    for (unsigned i = 0; i < 3; i++)
        src[i] = get32(w, inst, true, i, tmp[i]);
    const bool rounding = sim_rounding_begin(w, inst);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 a = mixed_source(w, inst, 0, src[0], k), b = mixed_source(w, inst, 1, src[1], k);
        f32x16 c = mixed_source(w, inst, 2, src[2], k), sum = fused(a, b, c);
        u32x16 keep = is_infinite(a) | is_infinite(b) | is_infinite(c);
        sum = clamped(inst, (f32x16)flush_f32((u32x16)sum, !(w->mode >> 5 & 1)));
        u32x16 half = sim_limit_f16(w, f16_of_f32(sum), keep), old = load16(dst + k);
        half = where == MIXED_F32 ? (u32x16)sum : half;
        half = where == MIXED_LOW ? (old & 0xffff0000) | half : half;
        store16(result + k, where == MIXED_HIGH ? (old & 0xffff) | half << 16 : half);
    }
    if (rounding)
        sim_rounding_end();
    store_masked(dst, result, w->exec);
}

static void exec_v_fma_mix_f32(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_F32);
}
static void exec_v_fma_mixlo_f16(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_LOW);
}
static void exec_v_fma_mixhi_f16(sim_wave *w, const sim_inst *inst) {
    mixed_fma(w, inst, MIXED_HIGH);
}

// ---- dot products: a sum of products of fields, added to the third source

SIM_INLINE u32x16 field_of(u32x16 value, unsigned i, unsigned bits, bool is_signed) {
    u32x16 shifted = value << (32 - bits * (i + 1));
    return is_signed ? (u32x16)((i32x16)shifted >> (int)(32 - bits)) : shifted >> (32 - bits);
}

/** Sums that may pass 32 bits, saturated. */
SIM_INLINE i64x16 saturated_sum(i64x16 sum, bool is_signed) {
    i64x16 least = (i64x16){} + (is_signed ? INT32_MIN : 0);
    i64x16 most = (i64x16){} + (is_signed ? INT32_MAX : UINT32_MAX);
    return __builtin_elementwise_max(__builtin_elementwise_min(sum, most), least);
}

SIM_INLINE i64x16 wide_of(u32x16 value, bool is_signed) {
    return is_signed ? __builtin_convertvector((i32x16)value, i64x16)
                     : (i64x16) __builtin_convertvector(value, u64x16);
}

SIM_INLINE u32x16 dot_block(u32x16 a, u32x16 b, u32x16 c, unsigned bits, bool is_signed,
                            bool saturate) {
    i64x16 wide = wide_of(c, is_signed);
    for (unsigned i = 0; i < 32 / bits; i++) {
        u32x16 product = field_of(a, i, bits, is_signed) * field_of(b, i, bits, is_signed);
        wide = saturate ? wide + wide_of(product, is_signed) : wide;
        c += product;
    }
    return saturate ? __builtin_convertvector(saturated_sum(wide, is_signed), u32x16) : c;
}

SIM_INLINE void dot(sim_wave *w, const sim_inst *inst, unsigned bits, bool is_signed) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = load16(a + k), y = load16(b + k), z = load16(c + k);
        store16(result + k, inst->flags & SIM_CLAMP ? dot_block(x, y, z, bits, is_signed, true)
                                                    : dot_block(x, y, z, bits, is_signed, false));
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static void exec_v_dot2_i32_i16(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 16, true);
}
static void exec_v_dot2_u32_u16(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 16, false);
}
static void exec_v_dot4_i32_i8(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 8, true);
}
static void exec_v_dot4_u32_u8(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 8, false);
}
static void exec_v_dot8_i32_i4(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 4, true);
}
static void exec_v_dot8_u32_u4(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 4, false);
}

/** The products of both halves, then the addend, each step rounded to f32. */
static void exec_v_dot2_f32_f16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 x[2], y[2];
        for (unsigned high = 0; high < 2; high++) {
            x[high] = f32_of_f16(half_of(load16(a + k), inst, 0, high));
            y[high] = f32_of_f16(half_of(load16(b + k), inst, 1, high));
        }
        f32x16 sum = fused_twice(x[1], y[1], x[0], y[0], (f32x16)load16(c + k));
        store16(result + k, (u32x16)clamped(inst, sum));
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

// ---- tables
// clang-format off
#define PACKED16(X) \
    X(v_pk_add_f16, 2, true, "H:HH", ALL) X(v_pk_mul_f16, 2, true, "H:HH", ALL) \
    X(v_pk_fma_f16, 3, true, "H:HHH", ALL) \
    \
    X(v_pk_mul_lo_u16, 2, false, "W:WW", ALL) \
    X(v_pk_lshlrev_b16, 2, false, "W:WW", ALL) X(v_pk_lshrrev_b16, 2, false, "W:WW", ALL) \
    X(v_pk_ashrrev_i16, 2, false, "W:WW", ALL) X(v_pk_max_u16, 2, false, "W:WW", ALL) \
    X(v_pk_min_u16, 2, false, "W:WW", ALL) X(v_pk_max_i16, 2, false, "W:WW", ALL) \
    X(v_pk_min_i16, 2, false, "W:WW", ALL) X(v_pk_minimum_f16, 2, true, "H:HH", GFX12) \
    X(v_pk_maximum_f16, 2, true, "H:HH", GFX12)
#define MINIMUM3(X) \
    X(v_pk_minimum3_f16, 3, true, "H:HHH", GFX950) X(v_pk_maximum3_f16, 3, true, "H:HHH", GFX950)
#define SATURATING16(X) \
    X(v_pk_add_u16, 2, false, "W:WW", ALL) X(v_pk_add_i16, 2, false, "W:WW", ALL) \
    X(v_pk_sub_u16, 2, false, "W:WW", ALL) X(v_pk_sub_i16, 2, false, "W:WW", ALL) \
    X(v_pk_mad_u16, 3, false, "W:WWW", ALL) X(v_pk_mad_i16, 3, false, "W:WWW", ALL)
#define PACKED32(X) \
    X(v_pk_add_f32, 2, "F:FF") X(v_pk_mul_f32, 2, "F:FF") X(v_pk_fma_f32, 3, "F:FFF")

#define WRAP16(name, arity, is_float, types, archs) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { run_packed16(w, inst, arity, is_float, name); }
#define WRAP_PAIR(name, arity, types) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { run_packed32(w, inst, arity, name); }
#define WRAP_SATURATING(name, arity, is_float, types, archs) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        if (inst->flags & SIM_CLAMP) { run_packed16(w, inst, arity, is_float, saturated_##name); } \
        else { run_packed16(w, inst, arity, is_float, name); } \
    }
#define WRAP_BY_MODE(name) \
    static void exec_##name(sim_wave *w, const sim_inst *inst) { \
        if (w->mode & SIM_MODE_IEEE) { run_packed16(w, inst, 2, true, ieee_##name); } \
        else { run_packed16(w, inst, 2, true, number_##name); } \
    }
WRAP_BY_MODE(v_pk_min_f16)
WRAP_BY_MODE(v_pk_max_f16)
WRAP16(number_v_pk_min_f16, 2, true, , )
WRAP16(number_v_pk_max_f16, 2, true, , )
PACKED16(WRAP16)
MINIMUM3(WRAP16)
SATURATING16(WRAP_SATURATING)
PACKED32(WRAP_PAIR)

#define LINE(name, types, archs, is_) SIM_ROW(#name, exec_##name, archs, SIM_VALU, 'i', types, .is = is_)
#define LINE16(name, arity, is_float, types, archs) LINE(name, types, archs, SIM_IS_PACKED)
#define LINE_SATURATING(name, arity, is_float, types, archs) LINE(name, types, archs, SIM_IS_PACKED | SIM_SATURATES)
#define LINE_PAIR(name, arity, types) LINE(name, types, GFX9, SIM_IS_PACKED)
#define LINE_NUMBER(name, old) SIM_ROW(#name, exec_number_##old, GFX12, SIM_VALU, 'i', "H:HH", .is = SIM_IS_PACKED)
#define LINE_DOT(name, archs) LINE(name, "i:iii", archs, SIM_IS_DOT | SIM_SATURATES)
static const sim_opcode opcodes[] = {SATURATING16(LINE_SATURATING) MINIMUM3(LINE16)
    LINE(v_pk_min_f16, "H:HH", GFX9 | GFX11, SIM_IS_PACKED) LINE(v_pk_max_f16, "H:HH", GFX9 | GFX11, SIM_IS_PACKED)
    LINE_NUMBER(v_pk_min_num_f16, v_pk_min_f16) LINE_NUMBER(v_pk_max_num_f16, v_pk_max_f16)
    PACKED16(LINE16) PACKED32(LINE_PAIR) LINE(v_pk_mov_b32, "q:qq", GFX9, SIM_IS_PACKED)
    LINE(v_fma_mix_f32, "f:fff", ALL, SIM_MIXES_HALVES) LINE(v_fma_mixlo_f16, "f:fff", ALL, SIM_MIXES_HALVES)
    LINE(v_fma_mixhi_f16, "f:fff", ALL, SIM_MIXES_HALVES)
    LINE_DOT(v_dot2_i32_i16, GFX9) LINE_DOT(v_dot2_u32_u16, GFX9) LINE_DOT(v_dot4_i32_i8, GFX9)
    LINE_DOT(v_dot4_u32_u8, ALL) LINE_DOT(v_dot8_i32_i4, GFX9) LINE_DOT(v_dot8_u32_u4, ALL)
    SIM_ROW("v_dot2_f32_f16", exec_v_dot2_f32_f16, ALL, SIM_VALU, '?', "f:HHf", .is = SIM_IS_DOT)};
// clang-format on
SIM_TABLE(sim_ops_valu_packed, opcodes);
