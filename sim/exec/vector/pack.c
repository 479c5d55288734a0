// SPDX-License-Identifier: Apache-2.0
// Packs of two or more small numbers, converted or cut, into one register. Source: "CDNA3", "CDNA4"
// and "RDNA3" ISA, VOP2, VOP3.
#include "../numbers.h"
#include "convert.h"
#include "vector.h"

// ---- floats

static u32x16 v_cvt_pkrtz_f16_f32(u32x16 a, u32x16 b) {
    return f16_toward_zero((f32x16)a) | f16_toward_zero((f32x16)b) << 16;
}

static u32x16 v_cvt_pk_f16_f32(u32x16 a, u32x16 b) {
    return f16_of_f32((f32x16)a) | f16_of_f32((f32x16)b) << 16;
}
static u32x16 v_cvt_pk_bf16_f32(u32x16 a, u32x16 b) {
    return bf16_of(a) | bf16_of(b) << 16;
}
static u32x16 v_pack_b32_f16(u32x16 a, u32x16 b) {
    return (a & 0xffff) | b << 16;
}

// ---- floats from -1 (or 0) to 1 as integers

/** Returns a number from -1 (or 0) to 1 as a whole number. The product is exact, so it is rounded
 *  once. */
static u32x16 normalised(f32x16 a, float scale) {
    f64x16 product = __builtin_convertvector(limit(a, scale > 32767 ? 0 : -1, 1), f64x16) *
                     ((f64x16){} + (double)scale);
    return to_i32(__builtin_convertvector(__builtin_elementwise_roundeven(product), f32x16)) &
           0xffff;
}

static u32x16 v_cvt_pknorm_i16_f32(u32x16 a, u32x16 b) {
    return normalised((f32x16)a, 32767) | normalised((f32x16)b, 32767) << 16;
}
static u32x16 v_cvt_pknorm_u16_f32(u32x16 a, u32x16 b) {
    return normalised((f32x16)a, 65535) | normalised((f32x16)b, 65535) << 16;
}
static u32x16 v_cvt_norm_i16_f16(u32x16 a) {
    return normalised(f32_of_f16(a & 0xffff), 32767);
}
static u32x16 v_cvt_norm_u16_f16(u32x16 a) {
    return normalised(f32_of_f16(a & 0xffff), 65535);
}

static u32x16 v_cvt_pk_norm_i16_f16(u32x16 a, u32x16 b) {
    return normalised(f32_of_f16(a & 0xffff), 32767) | normalised(f32_of_f16(b & 0xffff), 32767)
                                                           << 16;
}

static u32x16 v_cvt_pk_norm_u16_f16(u32x16 a, u32x16 b) {
    return normalised(f32_of_f16(a & 0xffff), 65535) | normalised(f32_of_f16(b & 0xffff), 65535)
                                                           << 16;
}

// ---- small integers

static u32x16 v_cvt_pk_u16_u32(u32x16 a, u32x16 b) {
    u32x16 most = (u32x16){} + 65535;
    return __builtin_elementwise_min(a, most) | __builtin_elementwise_min(b, most) << 16;
}

static u32x16 clamp_i16(u32x16 a) {
    i32x16 low = (i32x16){} - 32768, high = (i32x16){} + 32767;
    return (u32x16)__builtin_elementwise_min(__builtin_elementwise_max((i32x16)a, low), high) &
           0xffff;
}

static u32x16 v_cvt_pk_i16_i32(u32x16 a, u32x16 b) {
    return clamp_i16(a) | clamp_i16(b) << 16;
}

static u32x16 v_cvt_pk_i16_f32(u32x16 a, u32x16 b) {
    u32x16 low = to_i32(limit((f32x16)a, -32768, 32767));
    return (low & 0xffff) | to_i32(limit((f32x16)b, -32768, 32767)) << 16;
}

static u32x16 v_cvt_pk_u16_f32(u32x16 a, u32x16 b) {
    return to_u32(limit((f32x16)a, 0, 65535)) | to_u32(limit((f32x16)b, 0, 65535)) << 16;
}

/** Puts the first source as a byte into byte b of the third. */
static u32x16 v_cvt_pk_u8_f32(u32x16 a, u32x16 b, u32x16 c) {
    u32x16 shift = (b & 3) * 8, byte = to_u32(limit((f32x16)a, 0, 255));
    return (c & ~((u32x16){} + 255 << shift)) | byte << shift;
}

static u32x16 v_sat_pk_u8_i16(u32x16 a) {
    i32x16 zero = {}, most = zero + 255;
    i32x16 first = (i32x16)(a << 16) >> 16, second = (i32x16)a >> 16;
    first = __builtin_elementwise_min(__builtin_elementwise_max(first, zero), most);
    second = __builtin_elementwise_min(__builtin_elementwise_max(second, zero), most);
    return (u32x16)first | (u32x16)second << 8;
}

// clang-format off
#define LIST(X) \
    X(2, u32, v_cvt_pkrtz_f16_f32, "H:ff", GFX9, 'i') \
    X(2, u32, v_cvt_pk_f16_f32, "H:ff", GFX950, 'l') \
    X(2, u32, v_cvt_pk_bf16_f32, "i:ff", GFX950, 'l') \
    X(2, u32, v_pack_b32_f16, "H:hh", ALL, 'i') \
    X(L2, u32, v_cvt_pknorm_i16_f32, "i:ff", GFX9, 'i') \
    X(L2, u32, v_cvt_pknorm_u16_f32, "i:ff", GFX9, 'i') \
    X(L1, u32, v_cvt_norm_i16_f16, "w:h", ALL, 'i') \
    X(L1, u32, v_cvt_norm_u16_f16, "w:h", ALL, 'i') \
    X(L2, u32, v_cvt_pk_norm_i16_f16, "i:hh", GFX11P, 'i') \
    X(L2, u32, v_cvt_pk_norm_u16_f16, "i:hh", GFX11P, 'i') \
    X(2, u32, v_cvt_pk_u16_u32, "i:ii", ALL, 'i') \
    X(2, u32, v_cvt_pk_i16_i32, "i:ii", ALL, 'i') \
    X(L2, u32, v_cvt_pk_i16_f32, "i:ff", GFX11P, 'i') \
    X(L2, u32, v_cvt_pk_u16_f32, "i:ff", GFX11P, 'i') \
    X(3, u32, v_cvt_pk_u8_f32, "i:fii", ALL, 'i') \
    X(L1, u32, v_sat_pk_u8_i16, "w:i", ALL, 'i')

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    VALU_ALIAS(v_cvt_pkaccum_u8_f32, v_cvt_pk_u8_f32, GFX9, "i:fi+")
    // gfx9's names and RDNA's names
    VALU_ALIAS(v_cvt_pknorm_i16_f16, v_cvt_pk_norm_i16_f16, GFX9, "i:hh")
    VALU_ALIAS(v_cvt_pknorm_u16_f16, v_cvt_pk_norm_u16_f16, GFX9, "i:hh")
    VALU_ALIAS(v_cvt_pk_rtz_f16_f32, v_cvt_pkrtz_f16_f32, GFX11P, "H:ff")
    VALU_ALIAS(v_cvt_pk_norm_i16_f32, v_cvt_pknorm_i16_f32, GFX11P, "i:ff")
    VALU_ALIAS(v_cvt_pk_norm_u16_f32, v_cvt_pknorm_u16_f32, GFX11P, "i:ff")};
// clang-format on
SIM_TABLE(sim_ops_valu_pack, opcodes);
