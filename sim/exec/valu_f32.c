// SPDX-License-Identifier: Apache-2.0
// Single-precision vector instructions. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "numbers.h"
#include "valu.h"

#include <math.h>

// ---- arithmetic

static f32x16 v_add_f32(f32x16 a, f32x16 b) {
    return a + b;
}
static f32x16 v_sub_f32(f32x16 a, f32x16 b) {
    return a - b;
}
static f32x16 v_subrev_f32(f32x16 a, f32x16 b) {
    return b - a;
}
static f32x16 v_mul_f32(f32x16 a, f32x16 b) {
    return a * b;
}
static f32x16 v_fma_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}
static f32x16 v_fmac_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}
static f32x16 v_fmaak_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}
static f32x16 v_fmamk_f32(f32x16 a, f32x16 b, f32x16 c) {
    return __builtin_elementwise_fma(a, b, c);
}

static f32x16 flushed(f32x16 a) {
    u32x16 bits = (u32x16)a;
    return (f32x16)select16((u32x16)((bits & 0x7f800000) != 0), bits, bits & 0x80000000);
}

/** mad is a multiplication, rounded, and an addition, neither of which knows denormals whatever MODE says: LLVM's
 *  AMDGPU backend forms it only of operations that flush ("v_mad_f32 does not support denormals"). */
static f32x16 v_mad_f32(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 product = flushed(flushed(a) * flushed(b));
    return flushed(product + flushed(c));
}
static f32x16 v_mac_f32(f32x16 a, f32x16 b, f32x16 c) {
    return v_mad_f32(a, b, c);
}
static f32x16 v_madak_f32(f32x16 a, f32x16 b, f32x16 c) {
    return v_mad_f32(a, b, c);
}
static f32x16 v_madmk_f32(f32x16 a, f32x16 b, f32x16 c) {
    return v_mad_f32(a, b, c);
}

/** Zero times anything is zero, even infinity and NaN. */
static f32x16 v_mul_legacy_f32(f32x16 a, f32x16 b) {
    u32x16 zero = (u32x16)((a == 0) | (b == 0));
    return (f32x16)(~zero & (u32x16)(a * b));
}

static f32x16 v_mad_legacy_f32(f32x16 a, f32x16 b, f32x16 c) {
    return v_mul_legacy_f32(a, b) + c;
}

// ---- rounding and parts of numbers

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

/** Always below 1. */
static f32x16 v_fract_f32(f32x16 a) {
    f32x16 fraction = a - __builtin_elementwise_floor(a), below_one = (f32x16){} + 0x1.fffffep-1f;
    return choose((u32x16)(fraction >= 1), below_one, fraction);
}

static bool is_ordinary(float a) {
    return isfinite(a) && a != 0;
}

static f32x16 v_frexp_mant_f32(f32x16 a) {
    for (unsigned i = 0; i < 16; i++) {
        int exponent;
        a[i] = is_ordinary(a[i]) ? frexpf(a[i], &exponent) : a[i];
    }
    return a;
}

static u32x16 v_frexp_exp_i32_f32(u32x16 a) {
    for (unsigned i = 0; i < 16; i++) {
        int exponent = 0;
        if (is_ordinary(as_f32(a[i]))) {
            frexpf(as_f32(a[i]), &exponent);
        }
        a[i] = (uint32_t)exponent;
    }
    return a;
}

static u32x16 v_ldexp_f32(u32x16 a, u32x16 b) {
    for (unsigned i = 0; i < 16; i++) {
        a[i] = f32_bits(ldexpf(as_f32(a[i]), (int)b[i]));
    }
    return a;
}

// clang-format off
#define LIST(X) \
    X(2, f32, v_add_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_sub_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_subrev_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_mul_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_mul_legacy_f32, "f:ff", GFX9, 'i') \
    X(3, f32, v_mad_legacy_f32, "f:fff", GFX9, 'i') \
    X(3, f32, v_fma_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_fmac_f32, "f:ff+", ALL, 'i') \
    X(3, f32, v_fmaak_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_fmamk_f32, "f:fff", ALL, 'i') \
    X(3, f32, v_mad_f32, "f:fff", GFX90A, 'i') \
    X(3, f32, v_mac_f32, "f:ff+", GFX90A, 'i') \
    X(3, f32, v_madak_f32, "f:fff", GFX90A, 'i') \
    X(3, f32, v_madmk_f32, "f:fff", GFX90A, 'i') \
    X(1, f32, v_floor_f32, "f:f", ALL, 'i') \
    X(1, f32, v_ceil_f32, "f:f", ALL, 'i') \
    X(1, f32, v_trunc_f32, "f:f", ALL, 'i') \
    X(1, f32, v_rndne_f32, "f:f", ALL, 'i') \
    X(1, f32, v_fract_f32, "f:f", ALL, '?') \
    X(1, f32, v_frexp_mant_f32, "f:f", ALL, 'i') \
    X(1, u32, v_frexp_exp_i32_f32, "i:f", ALL, 'i') \
    X(2, u32, v_ldexp_f32, "f:fi", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    {"v_mul_dx9_zero_f32", exec_v_mul_legacy_f32, GFX11P, SIM_VALU, 'i', "f:ff"}}; // RDNA's name
// clang-format on
SIM_TABLE(sim_ops_valu_f32, opcodes);
