// SPDX-License-Identifier: Apache-2.0
// Single-precision vector instructions. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

// ---- arithmetic

static f32x16 v_add_f32(f32x16 a, f32x16 b) {
    return sum_of(a, b);
}
static f32x16 v_sub_f32(f32x16 a, f32x16 b) {
    return difference_of(a, b);
}
static f32x16 v_subrev_f32(f32x16 a, f32x16 b) {
    return difference_of(b, a);
}
static f32x16 v_mul_f32(f32x16 a, f32x16 b) {
    return product_of(a, b);
}
static f32x16 v_fma_f32(f32x16 a, f32x16 b, f32x16 c) {
    return fused(a, b, c);
}
static f32x16 v_fmac_f32(f32x16 a, f32x16 b, f32x16 c) {
    return fused(a, b, c);
}
static f32x16 v_fmaak_f32(f32x16 a, f32x16 b, f32x16 c) {
    return fused(a, b, c);
}
static f32x16 v_fmamk_f32(f32x16 a, f32x16 b, f32x16 c) {
    return fused(a, b, c);
}

static f32x16 flushed(f32x16 a) {
    u32x16 bits = (u32x16)a;
    return (f32x16)select16((u32x16)((bits & 0x7f800000) != 0), bits, bits & 0x80000000);
}

/** mad is a multiplication, rounded, and an addition, neither of which knows denormals whatever
 *  MODE says: LLVM's AMDGPU backend forms it only of operations that flush ("v_mad_f32 does not
 *  support denormals"). */
static f32x16 v_mad_f32(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 product = flushed(product_of(flushed(a), flushed(b)));
    return flushed(sum_of(product, flushed(c)));
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
    return (f32x16)(~zero & (u32x16)product_of(a, b));
}

static f32x16 v_mad_legacy_f32(f32x16 a, f32x16 b, f32x16 c) {
    return sum_of(v_mul_legacy_f32(a, b), c);
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

/** A number that is not 0, a denormal one made normal. */
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

/** Rounded once, from double, which holds every product that is neither 0 nor infinite as f32. */
static u32x16 v_ldexp_f32(u32x16 a, u32x16 b) {
    i32x16 most = (i32x16){} + 300;
    i32x16 by = __builtin_elementwise_max(__builtin_elementwise_min((i32x16)b, most), -most);
    u64x16 power = __builtin_convertvector((u32x16)by + 1023, u64x16) << 52;
    f64x16 product = __builtin_convertvector((f32x16)a, f64x16) * (f64x16)power;
    return (u32x16) __builtin_convertvector(product, f32x16);
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
    X(1, u32, v_frexp_mant_f32, "f:f", ALL, 'i') \
    X(1, u32, v_frexp_exp_i32_f32, "i:f", ALL, 'i') \
    X(2, u32, v_ldexp_f32, "f:fi", ALL, 'i')

LIST(VALU_WRAP)
// v_mul_dx9_zero_f32 is RDNA's name of v_mul_legacy_f32.
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    SIM_ROW("v_mul_dx9_zero_f32", exec_v_mul_legacy_f32, GFX11P, SIM_VALU, 'i', "f:ff")};
// clang-format on
SIM_TABLE(sim_ops_valu_f32, opcodes);
