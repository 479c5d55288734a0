// SPDX-License-Identifier: Apache-2.0
// Sums and products of integers. Source: "CDNA3" ISA, VOP2, VOP3.
#include "half.h"
#include "vector.h"

// ---- sums

static u32x16 v_add_u32(u32x16 a, u32x16 b) {
    return a + b;
}
static u32x16 v_sub_u32(u32x16 a, u32x16 b) {
    return a - b;
}
static u32x16 v_subrev_u32(u32x16 a, u32x16 b) {
    return b - a;
}
static u32x16 saturated_v_add_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_add_sat(a, b);
}
static u32x16 saturated_v_sub_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(a, b);
}
static u32x16 saturated_v_subrev_u32(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(b, a);
}
static i32x16 v_add_i32(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)a + (u32x16)b);
}
static i32x16 v_sub_i32(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)a - (u32x16)b);
}
static i32x16 saturated_v_add_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_add_sat(a, b);
}
static i32x16 saturated_v_sub_i32(i32x16 a, i32x16 b) {
    return __builtin_elementwise_sub_sat(a, b);
}
static u32x16 v_add3_u32(u32x16 a, u32x16 b, u32x16 c) {
    return a + b + c;
}
static u32x16 v_xad_u32(u32x16 a, u32x16 b, u32x16 c) {
    return (a ^ b) + c;
}

// ---- products

static u32x16 v_mul_lo_u32(u32x16 a, u32x16 b) {
    return a * b;
}

static u32x16 high_product(u32x16 a, u32x16 b) {
    u64x16 product = __builtin_convertvector(a, u64x16) * __builtin_convertvector(b, u64x16);
    return __builtin_convertvector(product >> 32, u32x16);
}

static u32x16 signed_high_product(i32x16 a, i32x16 b) {
    i64x16 product = __builtin_convertvector(a, i64x16) * __builtin_convertvector(b, i64x16);
    return __builtin_convertvector((u64x16)product >> 32, u32x16);
}

static u32x16 v_mul_hi_u32(u32x16 a, u32x16 b) {
    return high_product(a, b);
}
static i32x16 v_mul_hi_i32(i32x16 a, i32x16 b) {
    return (i32x16)signed_high_product(a, b);
}

// of 24 bits

static i32x16 low24(i32x16 a) {
    return (i32x16)((u32x16)a << 8) >> 8;
}
static u32x16 v_mul_u32_u24(u32x16 a, u32x16 b) {
    return (a & 0xffffff) * (b & 0xffffff);
}
static i32x16 v_mul_i32_i24(i32x16 a, i32x16 b) {
    return (i32x16)((u32x16)low24(a) * (u32x16)low24(b));
}
static u32x16 v_mul_hi_u32_u24(u32x16 a, u32x16 b) {
    return high_product(a & 0xffffff, b & 0xffffff);
}
static i32x16 v_mul_hi_i32_i24(i32x16 a, i32x16 b) {
    return (i32x16)signed_high_product(low24(a), low24(b));
}

// ---- products and sums

static u32x16 v_mad_u32_u24(u32x16 a, u32x16 b, u32x16 c) {
    return v_mul_u32_u24(a, b) + c;
}
static i32x16 v_mad_i32_i24(i32x16 a, i32x16 b, i32x16 c) {
    return (i32x16)((u32x16)v_mul_i32_i24(a, b) + (u32x16)c);
}

/** Saturates the sums, which have more than 32 bits when exact. */
static u32x16 saturated_v_mad_u32_u24(u32x16 a, u32x16 b, u32x16 c) {
    u64x16 x = __builtin_convertvector(a & 0xffffff, u64x16);
    u64x16 y = __builtin_convertvector(b & 0xffffff, u64x16);
    u64x16 sum = x * y + __builtin_convertvector(c, u64x16), most = (u64x16){} + UINT32_MAX;
    return __builtin_convertvector(__builtin_elementwise_min(sum, most), u32x16);
}

static i32x16 saturated_v_mad_i32_i24(i32x16 a, i32x16 b, i32x16 c) {
    i64x16 x = __builtin_convertvector(low24(a), i64x16);
    i64x16 y = __builtin_convertvector(low24(b), i64x16);
    i64x16 sum = x * y + __builtin_convertvector(c, i64x16);
    i64x16 least = (i64x16){} + INT32_MIN, most = (i64x16){} + INT32_MAX;
    sum = __builtin_elementwise_max(__builtin_elementwise_min(sum, most), least);
    return __builtin_convertvector(sum, i32x16);
}

/** Multiplies 16-bit factors and adds in 32 bits. */
static u32x16 v_mad_u32_u16(u32x16 a, u32x16 b, u32x16 c) {
    return low(a) * low(b) + c;
}

static u32x16 v_mad_i32_i16(u32x16 a, u32x16 b, u32x16 c) {
    return (u32x16)sign(a) * (u32x16)sign(b) + c;
}
static u32x16 saturated_v_mad_u32_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_add_sat(v_mad_u32_u16(a, b, (u32x16){}), c);
}

static u32x16 saturated_v_mad_i32_i16(u32x16 a, u32x16 b, u32x16 c) {
    i32x16 product = (i32x16)v_mad_i32_i16(a, b, (u32x16){});
    return (u32x16)__builtin_elementwise_add_sat(product, (i32x16)c);
}

// clang-format off
#define LIST(X) \
    X(S2, u32, v_add_u32, "i:ii", GFX9, 'i') \
    X(S2, u32, v_sub_u32, "i:ii", GFX9, 'i') \
    X(S2, u32, v_subrev_u32, "i:ii", GFX9, 'i') \
    X(S2, i32, v_add_i32, "i:ii", GFX9, 'i') \
    X(S2, i32, v_sub_i32, "i:ii", GFX9, 'i') \
    X(S2, u32, v_add_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_sub_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_subrev_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_add_i16, "k:ww", GFX9, 'i') \
    X(S2, u32, v_sub_i16, "k:ww", GFX9, 'i') \
    X(3, u32, v_add3_u32, "i:iii", ALL, 'i') \
    X(3, u32, v_xad_u32, "i:iii", ALL, 'i') \
    X(2, u32, v_mul_lo_u32, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_hi_u32, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_hi_i32, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_lo_u16, "w:ww", ALL, 'i') \
    X(2, u32, v_mul_u32_u24, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_i32_i24, "i:ii", ALL, 'i') \
    X(2, u32, v_mul_hi_u32_u24, "i:ii", ALL, 'i') \
    X(2, i32, v_mul_hi_i32_i24, "i:ii", ALL, 'i') \
    X(S3, u32, v_mad_u32_u24, "i:iii", ALL, 'i') \
    X(S3, i32, v_mad_i32_i24, "i:iii", ALL, 'i') \
    X(S3, u32, v_mad_u16, "k:www", ALL, 'i') \
    X(S3, u32, v_mad_i16, "k:www", ALL, 'i') \
    X(S3, u32, v_mad_u32_u16, "i:wwi", ALL, 'i') \
    X(S3, u32, v_mad_i32_i16, "i:wwi", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    // these clear the other half
    VALU_ALIAS(v_mad_legacy_u16, v_mad_u16, GFX9, "w:www", .is = SIM_SATURATES)
    VALU_ALIAS(v_mad_legacy_i16, v_mad_i16, GFX9, "w:www", .is = SIM_SATURATES)
    // RDNA's names
    VALU_ALIAS(v_add_nc_u32, v_add_u32, GFX11P, "i:ii", .is = SIM_SATURATES)
    VALU_ALIAS(v_sub_nc_u32, v_sub_u32, GFX11P, "i:ii", .is = SIM_SATURATES)
    VALU_ALIAS(v_subrev_nc_u32, v_subrev_u32, GFX11P, "i:ii", .is = SIM_SATURATES)
    VALU_ALIAS(v_add_nc_i32, v_add_i32, GFX11P, "i:ii", .is = SIM_SATURATES)
    VALU_ALIAS(v_sub_nc_i32, v_sub_i32, GFX11P, "i:ii", .is = SIM_SATURATES)
    VALU_ALIAS(v_add_nc_u16, v_add_u16, GFX11P, "w:ww", .is = SIM_SATURATES)
    VALU_ALIAS(v_sub_nc_u16, v_sub_u16, GFX11P, "w:ww", .is = SIM_SATURATES)
    VALU_ALIAS(v_add_nc_i16, v_add_i16, GFX11P, "w:ww", .is = SIM_SATURATES)
    VALU_ALIAS(v_sub_nc_i16, v_sub_i16, GFX11P, "w:ww", .is = SIM_SATURATES)};
// clang-format on
SIM_TABLE(sim_ops_valu_integer, opcodes);
