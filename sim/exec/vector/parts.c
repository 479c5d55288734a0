// SPDX-License-Identifier: Apache-2.0
// Rounding to whole numbers, and fraction, mantissa and exponent of floats. Source: "CDNA3" ISA,
// VOP1, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

// ---- whole numbers

static f32x16 v_floor_f32(f32x16 a) {
    return __builtin_elementwise_floor(a);
}
static f32x16 v_ceil_f32(f32x16 a) {
    return __builtin_elementwise_ceil(a);
}
static f32x16 v_trunc_f32(f32x16 a) {
    return __builtin_elementwise_trunc(a);
}
static f32x16 v_rndne_f32(f32x16 a) {
    return __builtin_elementwise_roundeven(a);
}
static f32x16 v_floor_f16(f32x16 a) {
    return __builtin_elementwise_floor(a);
}
static f32x16 v_ceil_f16(f32x16 a) {
    return __builtin_elementwise_ceil(a);
}
static f32x16 v_trunc_f16(f32x16 a) {
    return __builtin_elementwise_trunc(a);
}
static f32x16 v_rndne_f16(f32x16 a) {
    return __builtin_elementwise_roundeven(a);
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

// ---- fractions, always below 1

static f32x16 v_fract_f32(f32x16 a) {
    f32x16 fraction = a - __builtin_elementwise_floor(a), below_one = (f32x16){} + 0x1.fffffep-1f;
    return choose((u32x16)(fraction >= 1), below_one, fraction);
}

static f32x16 v_fract_f16(f32x16 a) {
    f32x16 below_one = (f32x16){} + 0x1.ffcp-1f;
    f32x16 fraction = a - __builtin_elementwise_floor(a);
    return choose((u32x16)(fraction > below_one), below_one, fraction);
}

static f64x8 v_fract_f64(f64x8 a) {
    f64x8 fraction = a - __builtin_elementwise_floor(a);
    return choose64((u64x8)(fraction >= 1), (f64x8){} + 0x1.fffffffffffffp-1, fraction);
}

// ---- mantissas and exponents

/** A number that is not 0. A denormal one is made normal. */
typedef struct ordinary {
    u32x16 is_one, bits;
    u32x16 exponent; // of the number before, as the register has it
} ordinary;

static ordinary ordinary_of(u32x16 a) {
    u32x16 magnitude = a & 0x7fffffff;
    u32x16 is_one = (u32x16)(magnitude - 1 < 0x7f800000 - 1), tiny = (u32x16)(magnitude < 0x800000);
    u32x16 bits = select16(tiny, (u32x16)((f32x16)a * 0x1p32f), a);
    return (ordinary){is_one, bits, (bits >> 23 & 255) - (tiny & 32)};
}

static u32x16 v_frexp_mant_f32(u32x16 a) {
    ordinary x = ordinary_of(a);
    return select16(x.is_one, (x.bits & 0x807fffff) | 0x3f000000, a);
}

static u32x16 v_frexp_exp_i32_f32(u32x16 a) {
    ordinary x = ordinary_of(a);
    return x.is_one & (x.exponent - 126);
}

static f32x16 v_frexp_mant_f16(f32x16 a) {
    for (unsigned i = 0; i < 16; i++) {
        int exponent;
        a[i] = isfinite(a[i]) && a[i] != 0 ? frexpf(a[i], &exponent) : a[i];
    }
    return a;
}

static u32x16 v_frexp_exp_i16_f16(u32x16 a) {
    f32x16 x = f32_of_f16(a & 0xffff);
    for (unsigned i = 0; i < 16; i++) {
        int exponent = 0;
        if (isfinite(x[i]) && x[i] != 0)
            frexpf(x[i], &exponent);
        a[i] = (uint32_t)exponent & 0xffff;
    }
    return a;
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

// ---- products with powers of two

/** Rounds once, from double, which holds every product that is neither 0 nor infinite as f32. */
static u32x16 v_ldexp_f32(u32x16 a, u32x16 b) {
    i32x16 most = (i32x16){} + 300;
    i32x16 by = __builtin_elementwise_max(__builtin_elementwise_min((i32x16)b, most), -most);
    u64x16 power = __builtin_convertvector((u32x16)by + 1023, u64x16) << 52;
    f64x16 product = __builtin_convertvector((f32x16)a, f64x16) * (f64x16)power;
    return (u32x16) __builtin_convertvector(product, f32x16);
}

static u32x16 v_ldexp_f16(u32x16 a, u32x16 b) {
    f32x16 x = f32_of_f16(a & 0xffff);
    for (unsigned i = 0; i < 16; i++)
        x[i] = ldexpf(x[i], (int16_t)b[i]); // exact in f32, or far outside f16
    return f16_of_f32(x);
}

static u64x8 v_ldexp_f64(u64x8 a, u64x8 b) {
    for (unsigned i = 0; i < 8; i++)
        a[i] = f64_bits(ldexp(as_f64(a[i]), (int)(uint32_t)b[i]));
    return a;
}

// clang-format off
#define LIST(X) \
    X(1, f32, v_floor_f32, "f:f", ALL, 'i') \
    X(1, f32, v_ceil_f32, "f:f", ALL, 'i') \
    X(1, f32, v_trunc_f32, "f:f", ALL, 'i') \
    X(1, f32, v_rndne_f32, "f:f", ALL, 'i') \
    X(1, f32, v_fract_f32, "f:f", ALL, '?') \
    X(1, u32, v_frexp_mant_f32, "f:f", ALL, 'i') \
    X(1, u32, v_frexp_exp_i32_f32, "i:f", ALL, 'i') \
    X(L2, u32, v_ldexp_f32, "f:fi", ALL, 'i') \
    X(1, f16, v_floor_f16, "h:h", ALL, 'i') \
    X(1, f16, v_ceil_f16, "h:h", ALL, 'i') \
    X(1, f16, v_trunc_f16, "h:h", ALL, 'i') \
    X(1, f16, v_rndne_f16, "h:h", ALL, 'i') \
    X(L1, f16, v_fract_f16, "h:h", ALL, '?') \
    X(L1, f16, v_frexp_mant_f16, "h:h", ALL, 'i') \
    X(L1, u32, v_frexp_exp_i16_f16, "w:h", ALL, 'i') \
    X(L2, u32, v_ldexp_f16, "h:hw", ALL, 'i') \
    X(W1, f64, v_floor_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_ceil_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_trunc_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_rndne_f64, "d:d", ALL, 'i') \
    X(W1, f64, v_fract_f64, "d:d", ALL, '?') \
    X(W1, f64, v_frexp_mant_f64, "d:d", ALL, 'i') \
    X(W1, u64, v_frexp_exp_i32_f64, "i:d", ALL, 'i') \
    X(W2, u64, v_ldexp_f64, "d:di", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)};
// clang-format on
SIM_TABLE(sim_ops_valu_parts, opcodes);
