// SPDX-License-Identifier: Apache-2.0
// Double-precision vector instructions and conversions. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

static f64x8 v_add_f64(f64x8 a, f64x8 b) {
    return sum64_of(a, b);
}
static f64x8 v_mul_f64(f64x8 a, f64x8 b) {
    return product64_of(a, b);
}
static f64x8 v_fma_f64(f64x8 a, f64x8 b, f64x8 c) {
    return fused64(a, b, c);
}
static f64x8 v_fmac_f64(f64x8 a, f64x8 b, f64x8 c) {
    return fused64(a, b, c);
}
static f64x8 v_floor_f64(f64x8 a) {
    return __builtin_elementwise_floor(a);
}
static f64x8 v_ceil_f64(f64x8 a) {
    return __builtin_elementwise_ceil(a);
}
static f64x8 v_trunc_f64(f64x8 a) {
    return __builtin_elementwise_trunc(a);
}
static f64x8 v_rndne_f64(f64x8 a) {
    return __builtin_elementwise_roundeven(a);
}

static f64x8 v_fract_f64(f64x8 a) {
    f64x8 fraction = a - __builtin_elementwise_floor(a);
    return choose64((u64x8)(fraction >= 1), (f64x8){} + 0x1.fffffffffffffp-1, fraction);
}

static bool is_ordinary(double a) {
    return isfinite(a) && a != 0;
}

static f64x8 v_frexp_mant_f64(f64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        int exponent;
        a[i] = is_ordinary(a[i]) ? frexp(a[i], &exponent) : a[i];
    }
    return a;
}

static u64x8 v_frexp_exp_i32_f64(u64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        int exponent = 0;
        if (is_ordinary(as_f64(a[i])))
            frexp(as_f64(a[i]), &exponent);
        a[i] = (uint32_t)exponent;
    }
    return a;
}

static u64x8 v_ldexp_f64(u64x8 a, u64x8 b) {
    for (unsigned i = 0; i < 8; i++)
        a[i] = f64_bits(ldexp(as_f64(a[i]), (int)(uint32_t)b[i]));
    return a;
}

// ---- conversions

typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x8 __attribute__((vector_size(32)));

static u32x8 low32(u64x8 a) {
    return __builtin_convertvector(a, u32x8);
}
static u64x8 zero_extend(u32x8 a) {
    return __builtin_convertvector(a, u64x8);
}

static u64x8 v_cvt_f64_f32(u64x8 a) {
    return (u64x8) __builtin_convertvector((f32x8)low32(a), f64x8);
}
static u64x8 v_cvt_f32_f64(u64x8 a) {
    return zero_extend((u32x8) __builtin_convertvector((f64x8)a, f32x8));
}
static u64x8 v_cvt_f64_i32(u64x8 a) {
    return (u64x8) __builtin_convertvector((i32x8)low32(a), f64x8);
}
/** By halves: a host without the conversion subtracts a large number, and rounded down 0 becomes
 *  -0. */
static u64x8 v_cvt_f64_u32(u64x8 a) {
    u32x8 high = low32(a) >> 16, low = low32(a) & 0xffff;
    return (u64x8)(__builtin_convertvector((i32x8)high, f64x8) * 0x1p16 +
                   __builtin_convertvector((i32x8)low, f64x8));
}

/** Truncates, saturates; NaN is 0. */
static u64x8 v_cvt_i32_f64(u64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        const double x = as_f64(a[i]);
        const int32_t value = x >= 0x1p31    ? INT32_MAX
                              : x <= -0x1p31 ? INT32_MIN
                              : x == x       ? (int32_t)x
                                             : 0;
        a[i] = (uint32_t)value;
    }
    return a;
}

static u64x8 v_cvt_u32_f64(u64x8 a) {
    for (unsigned i = 0; i < 8; i++) {
        const double x = as_f64(a[i]);
        a[i] = x >= 0x1p32 ? UINT32_MAX : x > 0 ? (uint32_t)x : 0;
    }
    return a;
}

// clang-format off
#define LIST(X) \
    X(W2, f64, v_add_f64, "d:dd", ALL, 'i') \
    X(W2, f64, v_mul_f64, "d:dd", ALL, 'i') \
    X(W3, f64, v_fma_f64, "d:ddd", ALL, 'i') \
    X(W3, f64, v_fmac_f64, "d:dd+", GFX9, 'i') \
    X(W1, f64, v_floor_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_ceil_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_trunc_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_rndne_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_fract_f64, "d:d", ALL, '?') \
    X(W1, f64, v_frexp_mant_f64, "d:d", ALL, 'i') \
    X(W1, u64, v_frexp_exp_i32_f64, "i:d", ALL, 'i') \
    X(W2, u64, v_ldexp_f64, "d:di", ALL, 'i') \
    X(W1, u64, v_cvt_f64_f32, "d:f", ALL, 'i') \
    X(W1, u64, v_cvt_f32_f64, "f:d", ALL, 'i') \
    X(W1, u64, v_cvt_f64_i32, "d:i", ALL, 'i') \
    X(W1, u64, v_cvt_f64_u32, "d:i", ALL, 'i') \
    X(W1, u64, v_cvt_i32_f64, "i:d", ALL, 'i') \
    X(W1, u64, v_cvt_u32_f64, "i:d", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_f64, opcodes);
