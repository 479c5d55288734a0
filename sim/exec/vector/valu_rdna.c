// SPDX-License-Identifier: Apache-2.0
// 32-bit vector instructions of RDNA: chained minima and maxima of integers, dot products of mixed
// signs and of small floats. Three of these dot products exist on CDNA as well, two of them under
// other names. Source: "RDNA3" and "RDNA4" ISA, VOP1, VOP2, VOP3, VOP3P.
#include "../fp8.h"
#include "../numbers.h"
#include "vector.h"

static i32x16 v_minmax_i32(i32x16 a, i32x16 b, i32x16 c) {
    return __builtin_elementwise_max(__builtin_elementwise_min(a, b), c);
}
static i32x16 v_maxmin_i32(i32x16 a, i32x16 b, i32x16 c) {
    return __builtin_elementwise_min(__builtin_elementwise_max(a, b), c);
}
static u32x16 v_minmax_u32(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_max(__builtin_elementwise_min(a, b), c);
}
static u32x16 v_maxmin_u32(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_min(__builtin_elementwise_max(a, b), c);
}

/** Zero times anything is zero, even infinity and NaN. */
static f32x16 v_fma_dx9_zero_f32(f32x16 a, f32x16 b, f32x16 c) {
    u32x16 zero = (u32x16)((a == 0) | (b == 0));
    return choose(zero, c, fused(a, b, c));
}

// ---- extensions

static u32x16 v_cvt_u32_u16(u32x16 a) {
    return a & 0xffff;
}
static u32x16 v_cvt_i32_i16(u32x16 a) {
    return (u32x16)((i32x16)(a << 16) >> 16);
}

// ---- dot products

static int64_t field_of(uint32_t value, unsigned i, unsigned bits, bool is_signed) {
    const uint32_t top = value << (32 - bits * (i + 1));
    return is_signed ? (int64_t)((int32_t)top >> (32 - bits)) : (int64_t)(top >> (32 - bits));
}

/** neg_lo says of each factor that it is signed; the sum is. */
static void mixed_dot(sim_wave *w, const sim_inst *inst, unsigned bits) {
    uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        int64_t sum = (int32_t)c[lane];
        for (unsigned i = 0; i < 32 / bits; i++) {
            sum += field_of(a[lane], i, bits, inst->neg_lo & 1) *
                   field_of(b[lane], i, bits, inst->neg_lo & 2);
        }
        const int64_t clamped = sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum;
        result[lane] = (uint32_t)(inst->flags & SIM_CLAMP ? clamped : sum);
    }
    store_masked(w->v[inst->dst[0].reg], result, w->exec);
}

static void exec_v_dot4_i32_iu8(sim_wave *w, const sim_inst *inst) {
    mixed_dot(w, inst, 8);
}
static void exec_v_dot8_i32_iu4(sim_wave *w, const sim_inst *inst) {
    mixed_dot(w, inst, 4);
}

/** Four products of 8-bit floats, then the addend, each step rounded to f32. */
static void float_dot(sim_wave *w, const sim_inst *inst, const sim_fp8 *a_kind,
                      const sim_fp8 *b_kind) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = get32(w, inst, true, 0, tmp[0]), *b = get32(w, inst, true, 1, tmp[1]);
    const uint32_t *c = get32(w, inst, true, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
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

/** The halves' products, then the addend, each step rounded to f32. */
static u32x16 v_dot2acc_f32_f16(u32x16 a, u32x16 b, u32x16 c) {
    return (u32x16)fused_twice(f32_of_f16(a >> 16), f32_of_f16(b >> 16), f32_of_f16(a & 0xffff),
                               f32_of_f16(b & 0xffff), (f32x16)c);
}

static u32x16 v_dot2acc_f32_bf16(u32x16 a, u32x16 b, u32x16 c) {
    return (u32x16)fused_twice((f32x16)(a & 0xffff0000), (f32x16)(b & 0xffff0000),
                               (f32x16)(a << 16), (f32x16)(b << 16), (f32x16)c);
}

static u32x16 v_dot2_f32_bf16(u32x16 a, u32x16 b, u32x16 c) {
    return v_dot2acc_f32_bf16(a, b, c);
}

// clang-format off
#define LIST(X) \
    X(3, i32, v_minmax_i32, "i:iii", GFX11P, 'i') \
    X(3, i32, v_maxmin_i32, "i:iii", GFX11P, 'i') \
    X(3, u32, v_minmax_u32, "i:iii", GFX11P, 'i') \
    X(3, u32, v_maxmin_u32, "i:iii", GFX11P, 'i') \
    X(3, f32, v_fma_dx9_zero_f32, "f:fff", GFX11P, 'i') \
    X(1, u32, v_cvt_u32_u16, "i:w", GFX11P, 'i') \
    X(1, u32, v_cvt_i32_i16, "i:w", GFX11P, 'i') \
    X(OWN, u32, v_dot4_i32_iu8, "i:iii", GFX11P, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot8_i32_iu4, "i:iii", GFX11P, 'i', SIM_IS_DOT | SIM_SATURATES) \
    X(OWN, u32, v_dot4_f32_fp8_fp8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_fp8_bf8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_bf8_fp8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(OWN, u32, v_dot4_f32_bf8_bf8, "f:iif", GFX12, '?', SIM_IS_DOT) \
    X(3, u32, v_dot2acc_f32_f16, "f:HH+", GFX11P, '?', SIM_IS_DOT) \
    X(3, u32, v_dot2acc_f32_bf16, "f:WW+", GFX11P, '?', SIM_IS_DOT | SIM_IS_BF16) \
    X(3, u32, v_dot2_f32_bf16, "f:WWf", GFX11P | GFX950, '?', SIM_IS_DOT | SIM_IS_BF16)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    SIM_ROW("v_fmac_dx9_zero_f32", exec_v_fma_dx9_zero_f32, GFX11, SIM_VALU, 'i', "f:ff+")
    // CDNA's names of v_dot2acc_*
    SIM_ROW("v_dot2c_f32_f16", exec_v_dot2acc_f32_f16, GFX9, SIM_VALU, '?', "f:HH+", .is = SIM_IS_DOT)
    SIM_ROW("v_dot2c_f32_bf16", exec_v_dot2acc_f32_bf16, GFX950, SIM_VALU, '?', "f:WW+", .is = SIM_IS_DOT | SIM_IS_BF16)};
// clang-format on
SIM_TABLE(sim_ops_valu_rdna, opcodes);
