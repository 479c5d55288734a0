// SPDX-License-Identifier: Apache-2.0
// Dot products: a sum of products of fields, added to the third source or the destination. Source:
// "CDNA3", "RDNA3" and "RDNA4" ISA, VOP2, VOP3, VOP3P.
#include "../fp8.h"
#include "../numbers.h"
#include "vector.h"

// ---- integers

SIM_INLINE u32x16 field_of(u32x16 value, unsigned i, unsigned bits, bool is_signed) {
    u32x16 shifted = value << (32 - bits * (i + 1));
    return is_signed ? (u32x16)((i32x16)shifted >> (int)(32 - bits)) : shifted >> (32 - bits);
}

/** Returns sums that may pass 32 bits, saturated. */
SIM_INLINE i64x16 saturated_sum(i64x16 sum, bool is_signed) {
    i64x16 least = (i64x16){} + (is_signed ? INT32_MIN : 0);
    i64x16 most = (i64x16){} + (is_signed ? INT32_MAX : UINT32_MAX);
    return __builtin_elementwise_max(__builtin_elementwise_min(sum, most), least);
}

SIM_INLINE i64x16 wide_of(u32x16 value, bool is_signed) {
    return is_signed ? __builtin_convertvector((i32x16)value, i64x16)
                     : (i64x16) __builtin_convertvector(value, u64x16);
}

/** Which of the factors and the sum are signed. */
enum { UNSIGNED = 0, FIRST = 1, SECOND = 2, SUM = 4, SIGNED = 7 };

SIM_INLINE u32x16 dot_block(u32x16 a, u32x16 b, u32x16 c, unsigned bits, unsigned signs,
                            bool saturate) {
    i64x16 wide = wide_of(c, signs & SUM);
    for (unsigned i = 0; i < 32 / bits; i++) {
        u32x16 product = field_of(a, i, bits, signs & FIRST) * field_of(b, i, bits, signs & SECOND);
        wide = saturate ? wide + wide_of(product, signs & SUM) : wide;
        c += product;
    }
    return saturate ? __builtin_convertvector(saturated_sum(wide, signs & SUM), u32x16) : c;
}

SIM_INLINE void dot(sim_wave *w, const sim_inst *inst, unsigned bits, unsigned signs) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 x = load16(a + k), y = load16(b + k), z = load16(c + k);
        store16(result + k, inst->flags & SIM_CLAMP ? dot_block(x, y, z, bits, signs, true)
                                                    : dot_block(x, y, z, bits, signs, false));
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static void exec_v_dot2_i32_i16(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 16, SIGNED);
}
static void exec_v_dot2_u32_u16(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 16, UNSIGNED);
}
static void exec_v_dot4_i32_i8(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 8, SIGNED);
}
static void exec_v_dot4_u32_u8(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 8, UNSIGNED);
}
static void exec_v_dot8_i32_i4(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 4, SIGNED);
}
static void exec_v_dot8_u32_u4(sim_wave *w, const sim_inst *inst) {
    dot(w, inst, 4, UNSIGNED);
}

/** Computes a dot product whose sum is signed. neg_lo says for each factor whether it is
 *  signed. */
static void mixed_dot(sim_wave *w, const sim_inst *inst, unsigned bits) {
    dot(w, inst, bits, (inst->neg_lo & (FIRST | SECOND)) | SUM);
}

static void exec_v_dot4_i32_iu8(sim_wave *w, const sim_inst *inst) {
    mixed_dot(w, inst, 8);
}
static void exec_v_dot8_i32_iu4(sim_wave *w, const sim_inst *inst) {
    mixed_dot(w, inst, 4);
}

// The forms of VOP2 add to the destination. Clamp, which their long form has, is inferred to
// saturate the sum as in all other integer instructions: the ISA documents do not name it.

static u32x16 v_dot2c_i32_i16(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 16, SIGNED, false);
}
static u32x16 saturated_v_dot2c_i32_i16(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 16, SIGNED, true);
}
static u32x16 v_dot4c_i32_i8(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 8, SIGNED, false);
}
static u32x16 saturated_v_dot4c_i32_i8(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 8, SIGNED, true);
}
static u32x16 v_dot8c_i32_i4(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 4, SIGNED, false);
}
static u32x16 saturated_v_dot8c_i32_i4(u32x16 a, u32x16 b, u32x16 c) {
    return dot_block(a, b, c, 4, SIGNED, true);
}

// ---- 8-bit floats

/** Adds four products of 8-bit floats, then the addend, and rounds each step to f32. */
static void float_dot(sim_wave *w, const sim_inst *inst, const sim_fp8 *a_kind,
                      const sim_fp8 *b_kind) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    COMPACT for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 sum = (f32x16)load16(c + k);
        for (unsigned shift = 0; shift < 32; shift += 8) {
            f32x16 x = (f32x16)sim_fp8_decode(a_kind, load16(a + k) >> shift & 255);
            f32x16 y = (f32x16)sim_fp8_decode(b_kind, load16(b + k) >> shift & 255);
            sum = fused(x, y, sum);
        }
        store16(result + k, (u32x16)sum);
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static void exec_v_dot4_f32_fp8_fp8(sim_wave *w, const sim_inst *inst) {
    float_dot(w, inst, &sim_e4m3fn, &sim_e4m3fn);
}
static void exec_v_dot4_f32_fp8_bf8(sim_wave *w, const sim_inst *inst) {
    float_dot(w, inst, &sim_e4m3fn, &sim_e5m2);
}
static void exec_v_dot4_f32_bf8_fp8(sim_wave *w, const sim_inst *inst) {
    float_dot(w, inst, &sim_e5m2, &sim_e4m3fn);
}
static void exec_v_dot4_f32_bf8_bf8(sim_wave *w, const sim_inst *inst) {
    float_dot(w, inst, &sim_e5m2, &sim_e5m2);
}

// ---- halves: the products, then the addend, each step rounded to f32

/** Returns the half of source i that op_sel names, negated if the instruction says so. */
SIM_INLINE f32x16 chosen_half(u32x16 block, const sim_inst *inst, unsigned i, bool high) {
    return f32_of_f16(sim_packed_half(block, inst, i, high));
}

static void exec_v_dot2_f32_f16(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        f32x16 x[2], y[2];
        for (unsigned high = 0; high < 2; high++) {
            x[high] = chosen_half(load16(a + k), inst, 0, high);
            y[high] = chosen_half(load16(b + k), inst, 1, high);
        }
        f32x16 sum = fused_twice(x[1], y[1], x[0], y[0], (f32x16)load16(c + k));
        store16(result + k, (u32x16)(inst->flags & SIM_CLAMP ? clamp_to_one(sum) : sum));
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

SIM_INLINE f32x16 dot_halves(u32x16 a, u32x16 b, f32x16 c) {
    return fused_twice(f32_of_f16(a >> 16), f32_of_f16(b >> 16), f32_of_f16(a & 0xffff),
                       f32_of_f16(b & 0xffff), c);
}

SIM_INLINE f32x16 dot_bf16(u32x16 a, u32x16 b, f32x16 c) {
    return fused_twice((f32x16)(a & 0xffff0000), (f32x16)(b & 0xffff0000), (f32x16)(a << 16),
                       (f32x16)(b << 16), c);
}

static u32x16 v_dot2acc_f32_f16(u32x16 a, u32x16 b, u32x16 c) {
    return (u32x16)dot_halves(a, b, (f32x16)c);
}
static u32x16 v_dot2acc_f32_bf16(u32x16 a, u32x16 b, u32x16 c) {
    return (u32x16)dot_bf16(a, b, (f32x16)c);
}

// The sum is rounded once more.

static u32x16 v_dot2_f16_f16(u32x16 a, u32x16 b, u32x16 c) {
    return f16_of_f32(dot_halves(a, b, f32_of_f16(c & 0xffff)));
}
static u32x16 v_dot2_bf16_bf16(u32x16 a, u32x16 b, u32x16 c) {
    return bf16_of((u32x16)dot_bf16(a, b, (f32x16)(c << 16)));
}

// clang-format off
#define LIST(X) \
    X(S3, u32, v_dot2c_i32_i16, "i:ii+", GFX9, 'i', SIM_IS_DOT) \
    X(S3, u32, v_dot4c_i32_i8, "i:ii+", GFX9, 'i', SIM_IS_DOT) \
    X(S3, u32, v_dot8c_i32_i4, "i:ii+", GFX9, 'i', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_i32_iu8, "i:iii", GFX11P, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot8_i32_iu4, "i:iii", GFX11P, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot4_f32_fp8_fp8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_fp8_bf8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_bf8_fp8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_bf8_bf8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(3, u32, v_dot2acc_f32_f16, "f:HH+", GFX11P, '?', SIM_IS_DOT) \
    X(3, u32, v_dot2acc_f32_bf16, "f:WW+", GFX11P, '?', SIM_IS_DOT | SIM_IS_BF16) \
    X(L3, u32, v_dot2_f16_f16, "x:HHh", GFX11P, '?', SIM_IS_DOT) \
    X(L3, u32, v_dot2_bf16_bf16, "k:WWw", GFX11P, '?', SIM_IS_DOT | SIM_IS_BF16) \
    X(OWN, u32, v_dot2_i32_i16, "i:iii", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot2_u32_u16, "i:iii", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot4_i32_i8, "i:iii", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot4_u32_u8, "i:iii", ALL, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot8_i32_i4, "i:iii", GFX9, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot8_u32_u4, "i:iii", ALL, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, f32, v_dot2_f32_f16, "f:HHf", ALL, '?', SIM_IS_DOT)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    SIM_ROW("v_dot2_f32_bf16", exec_v_dot2acc_f32_bf16, GFX11P | GFX950, SIM_VALU, '?', "f:WWf", .is = SIM_IS_DOT | SIM_IS_BF16)
    // CDNA's names of v_dot2acc_*
    SIM_ROW("v_dot2c_f32_f16", exec_v_dot2acc_f32_f16, GFX9, SIM_VALU, '?', "f:HH+", .is = SIM_IS_DOT)
    SIM_ROW("v_dot2c_f32_bf16", exec_v_dot2acc_f32_bf16, GFX950, SIM_VALU, '?', "f:WW+", .is = SIM_IS_DOT | SIM_IS_BF16)};
// clang-format on
SIM_TABLE(sim_ops_valu_dot, opcodes);
