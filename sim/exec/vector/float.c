// SPDX-License-Identifier: Apache-2.0
// Sums and products of floats. Source: "CDNA3" and "RDNA3" ISA, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

// ---- f32

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

/** Multiplies, rounds and adds. Both steps flush denormals, whatever MODE says: LLVM's AMDGPU
 *  backend forms mad only of operations that flush ("v_mad_f32 does not support denormals"). */
static f32x16 v_mad_f32(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 product = flush_f32(product_of(flush_f32(a), flush_f32(b)));
    return flush_f32(sum_of(product, flush_f32(c)));
}

/** Multiplies, but zero times anything is zero, even infinity and NaN. */
static f32x16 v_mul_legacy_f32(f32x16 a, f32x16 b) {
    u32x16 zero = (u32x16)((a == 0) | (b == 0));
    return (f32x16)(~zero & (u32x16)product_of(a, b));
}

static f32x16 v_mad_legacy_f32(f32x16 a, f32x16 b, f32x16 c) {
    return sum_of(v_mul_legacy_f32(a, b), c);
}

static f32x16 v_fma_dx9_zero_f32(f32x16 a, f32x16 b, f32x16 c) {
    u32x16 zero = (u32x16)((a == 0) | (b == 0));
    return choose(zero, c, fused(a, b, c));
}

/** Computes a product for lighting, or the least number in the dark. */
static f32x16 v_mullit_f32(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 least = (f32x16){} - 0x1.fffffep127f;
    u32x16 dark = (u32x16)((b == least) | (b == -__builtin_inff()) | (c <= 0));
    return choose(dark | is_nan(b) | is_nan(c), least, product_of(a, b));
}

// ---- f16, as f32: one more rounding gives the exact f16 result

static f32x16 v_add_f16(f32x16 a, f32x16 b) {
    return sum_of(a, b);
}
static f32x16 v_sub_f16(f32x16 a, f32x16 b) {
    return difference_of(a, b);
}
static f32x16 v_subrev_f16(f32x16 a, f32x16 b) {
    return difference_of(b, a);
}
static f32x16 v_mul_f16(f32x16 a, f32x16 b) {
    return product_of(a, b);
}
static f32x16 v_fma_f16(f32x16 a, f32x16 b, f32x16 c) {
    return fma_for_f16(a, b, c);
}

/** Returns f16 values as f32 with zeros for those that are subnormal in f16. */
static f32x16 flush_small(f32x16 a) {
    u32x16 tiny = (u32x16)(__builtin_elementwise_abs(a) < 0x1p-14f);
    return choose(tiny, (f32x16)((u32x16)a & 0x80000000), a);
}

/** Multiplies, rounds the product to f16, and adds. Like v_mad_f32 it flushes denormals (LLVM's
 *  AMDGPU backend forms it only if MODE flushes). */
static f32x16 v_mad_f16(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 product =
        flush_small(f32_of_f16(f16_of_f32(product_of(flush_small(a), flush_small(b)))));
    return flush_small(f32_of_f16(f16_of_f32(sum_of(product, flush_small(c)))));
}

// ---- f64

static f64x8 v_add_f64(f64x8 a, f64x8 b) {
    return sum64_of(a, b);
}
static f64x8 v_mul_f64(f64x8 a, f64x8 b) {
    return product64_of(a, b);
}
static f64x8 v_fma_f64(f64x8 a, f64x8 b, f64x8 c) {
    return fused64(a, b, c);
}

// clang-format off
#define LIST(X) \
    X(2, f32, v_add_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_sub_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_subrev_f32, "f:ff", ALL, 'i') \
    X(2, f32, v_mul_f32, "f:ff", ALL, 'i') \
    X(3, f32, v_fma_f32, "f:fff", ALL, 'i') \
    X(L3, f32, v_mad_f32, "f:fff", GFX90A, 'i') \
    X(2, f32, v_mul_legacy_f32, "f:ff", GFX9, 'i') \
    X(L3, f32, v_mad_legacy_f32, "f:fff", GFX9, 'i') \
    X(L3, f32, v_fma_dx9_zero_f32, "f:fff", GFX11P, 'i') \
    X(L3, f32, v_mullit_f32, "f:fff", GFX11P, 'i') \
    X(2, f16, v_add_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_sub_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_subrev_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_mul_f16, "h:hh", ALL, 'i') \
    X(3, f16, v_fma_f16, "x:hhh", ALL, 'i') \
    X(L3, f16, v_mad_f16, "x:hhh", GFX9, 'i') \
    X(W2, f64, v_add_f64, "d:dd", ALL, 'i') \
    X(W2, f64, v_mul_f64, "d:dd", ALL, 'i') \
    X(W3, f64, v_fma_f64, "d:ddd", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    // the same, with an addend or a factor in another place
    VALU_ALIAS(v_fmac_f32, v_fma_f32, ALL, "f:ff+")
    VALU_ALIAS(v_fmaak_f32, v_fma_f32, ALL, "f:fff")
    VALU_ALIAS(v_fmamk_f32, v_fma_f32, ALL, "f:fff")
    VALU_ALIAS(v_mac_f32, v_mad_f32, GFX90A, "f:ff+")
    VALU_ALIAS(v_madak_f32, v_mad_f32, GFX90A, "f:fff")
    VALU_ALIAS(v_madmk_f32, v_mad_f32, GFX90A, "f:fff")
    VALU_ALIAS(v_fmac_f16, v_fma_f16, ALL, "h:hh+")
    VALU_ALIAS(v_fmaak_f16, v_fma_f16, GFX11P, "h:hhh")
    VALU_ALIAS(v_fmamk_f16, v_fma_f16, GFX11P, "h:hhh")
    VALU_ALIAS(v_mac_f16, v_mad_f16, GFX9, "h:hh+")
    VALU_ALIAS(v_madak_f16, v_mad_f16, GFX9, "h:hhh")
    VALU_ALIAS(v_madmk_f16, v_mad_f16, GFX9, "h:hhh")
    VALU_ALIAS(v_fmac_f64, v_fma_f64, GFX9, "d:dd+")
    VALU_ALIAS(v_fmac_dx9_zero_f32, v_fma_dx9_zero_f32, GFX11, "f:ff+")
    // these clear the other half
    VALU_ALIAS(v_fma_legacy_f16, v_fma_f16, GFX9, "h:hhh")
    VALU_ALIAS(v_mad_legacy_f16, v_mad_f16, GFX9, "h:hhh")
    // RDNA's name
    VALU_ALIAS(v_mul_dx9_zero_f32, v_mul_legacy_f32, GFX11P, "f:ff")};
// clang-format on
SIM_TABLE(sim_ops_valu_float, opcodes);
