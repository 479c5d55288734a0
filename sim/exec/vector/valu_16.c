// SPDX-License-Identifier: Apache-2.0
// 16-bit vector instructions on the low half of registers (gfx9 clears the upper half), and those
// of VOP3 that keep the other half. Source: "CDNA3" ISA, VOP1, VOP2, VOP3.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

// ---- f16, as f32: one more rounding of these gives the exact f16 result

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
static f32x16 v_fmac_f16(f32x16 a, f32x16 b, f32x16 c) {
    return fma_for_f16(a, b, c);
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
/** Of f16 values as f32, those that are subnormal in f16. */
static f32x16 flushed(f32x16 a) {
    u32x16 tiny = (u32x16)(__builtin_elementwise_abs(a) < 0x1p-14f);
    return choose(tiny, (f32x16)((u32x16)a & 0x80000000), a);
}
/** mad and mac round the product to f16 first. Like v_mad_f32 they know no denormals (LLVM's AMDGPU
 *  backend forms them only where MODE flushes). */
static f32x16 v_mad_f16(f32x16 a, f32x16 b, f32x16 c) {
    f32x16 product = flushed(f32_of_f16(f16_of_f32(product_of(flushed(a), flushed(b)))));
    return flushed(f32_of_f16(f16_of_f32(sum_of(product, flushed(c)))));
}
static f32x16 v_mac_f16(f32x16 a, f32x16 b, f32x16 c) {
    return v_mad_f16(a, b, c);
}

static f32x16 v_fract_f16(f32x16 a) {
    f32x16 below_one = (f32x16){} + 0x1.ffcp-1f;
    f32x16 fraction = a - __builtin_elementwise_floor(a);
    return choose((u32x16)(fraction > below_one), below_one, fraction);
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

static u32x16 v_ldexp_f16(u32x16 a, u32x16 b) {
    f32x16 x = f32_of_f16(a & 0xffff);
    for (unsigned i = 0; i < 16; i++)
        x[i] = ldexpf(x[i], (int16_t)b[i]); // exact in f32, or far outside f16
    return f16_of_f32(x);
}

// ---- 16-bit integers

static u32x16 low(u32x16 a) {
    return a & 0xffff;
}
static i32x16 sign(u32x16 a) {
    return (i32x16)(a << 16) >> 16;
}

static u32x16 v_add_u16(u32x16 a, u32x16 b) {
    return low(a + b);
}
static u32x16 v_sub_u16(u32x16 a, u32x16 b) {
    return low(a - b);
}
static u32x16 v_subrev_u16(u32x16 a, u32x16 b) {
    return low(b - a);
}
static u32x16 saturated_v_add_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_min(low(a) + low(b), (u32x16){} + 0xffff);
}
static u32x16 saturated_v_sub_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(low(a), low(b));
}
static u32x16 saturated_v_subrev_u16(u32x16 a, u32x16 b) {
    return saturated_v_sub_u16(b, a);
}
static u32x16 v_add_i16(u32x16 a, u32x16 b) {
    return low(a + b);
}
static u32x16 v_sub_i16(u32x16 a, u32x16 b) {
    return low(a - b);
}
static u32x16 limit_i16(i32x16 a) {
    i32x16 least = (i32x16){} - 32768, most = (i32x16){} + 32767;
    return low((u32x16)__builtin_elementwise_min(__builtin_elementwise_max(a, least), most));
}
static u32x16 saturated_v_add_i16(u32x16 a, u32x16 b) {
    return limit_i16(sign(a) + sign(b));
}
static u32x16 saturated_v_sub_i16(u32x16 a, u32x16 b) {
    return limit_i16(sign(a) - sign(b));
}
static u32x16 v_mul_lo_u16(u32x16 a, u32x16 b) {
    return low(low(a) * low(b));
}
static u32x16 v_lshlrev_b16(u32x16 a, u32x16 b) {
    return low(b << (a & 15));
}
static u32x16 v_lshrrev_b16(u32x16 a, u32x16 b) {
    return low(b) >> (a & 15);
}
static u32x16 v_ashrrev_i16(u32x16 a, u32x16 b) {
    return low((u32x16)(sign(b) >> (i32x16)(a & 15)));
}
static u32x16 v_max_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_max(low(a), low(b));
}
static u32x16 v_min_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_min(low(a), low(b));
}
static u32x16 v_max_i16(u32x16 a, u32x16 b) {
    return low((u32x16)__builtin_elementwise_max(sign(a), sign(b)));
}
static u32x16 v_min_i16(u32x16 a, u32x16 b) {
    return low((u32x16)__builtin_elementwise_min(sign(a), sign(b)));
}
static u32x16 v_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return low(low(a) * low(b) + c);
}
static u32x16 v_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return low(low(a) * low(b) + c);
}
static u32x16 saturated_v_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_min(low(a) * low(b) + low(c), (u32x16){} + 0xffff);
}
static u32x16 saturated_v_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return limit_i16(sign(a) * sign(b) + sign(c));
}
static u32x16 v_mad_legacy_u16(u32x16 a, u32x16 b, u32x16 c) {
    return v_mad_u16(a, b, c);
}
static u32x16 v_mad_legacy_i16(u32x16 a, u32x16 b, u32x16 c) {
    return v_mad_u16(a, b, c);
}
static u32x16 saturated_v_mad_legacy_u16(u32x16 a, u32x16 b, u32x16 c) {
    return saturated_v_mad_u16(a, b, c);
}
static u32x16 saturated_v_mad_legacy_i16(u32x16 a, u32x16 b, u32x16 c) {
    return saturated_v_mad_i16(a, b, c);
}
static u32x16 v_min3_u16(u32x16 a, u32x16 b, u32x16 c) {
    return v_min_u16(v_min_u16(a, b), c);
}
static u32x16 v_max3_u16(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_u16(v_max_u16(a, b), c);
}
static u32x16 v_min3_i16(u32x16 a, u32x16 b, u32x16 c) {
    return v_min_i16(v_min_i16(a, b), c);
}
static u32x16 v_max3_i16(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_i16(v_max_i16(a, b), c);
}

static u32x16 v_med3_u16(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_u16(v_min_u16(a, b), v_min_u16(v_max_u16(a, b), c));
}

static u32x16 v_med3_i16(u32x16 a, u32x16 b, u32x16 c) {
    return v_max_i16(v_min_i16(a, b), v_min_i16(v_max_i16(a, b), c));
}

/** 16-bit factors, 32-bit sum. */
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

static u32x16 v_sat_pk_u8_i16(u32x16 a) {
    i32x16 zero = {}, most = zero + 255;
    i32x16 first = sign(a), second = (i32x16)a >> 16;
    first = __builtin_elementwise_min(__builtin_elementwise_max(first, zero), most);
    second = __builtin_elementwise_min(__builtin_elementwise_max(second, zero), most);
    return (u32x16)first | (u32x16)second << 8;
}

// clang-format off
#define LIST(X) \
    X(2, f16, v_add_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_sub_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_subrev_f16, "h:hh", ALL, 'i') \
    X(2, f16, v_mul_f16, "h:hh", ALL, 'i') \
    X(3, f16, v_fma_f16, "x:hhh", ALL, 'i') \
    X(3, f16, v_fmac_f16, "h:hh+", ALL, 'i') \
    X(3, f16, v_mad_f16, "x:hhh", GFX9, 'i') \
    X(3, f16, v_mac_f16, "h:hh+", GFX9, 'i') \
    X(1, f16, v_floor_f16, "h:h", ALL, 'i') \
    X(1, f16, v_ceil_f16, "h:h", ALL, 'i') \
    X(1, f16, v_trunc_f16, "h:h", ALL, 'i') \
    X(1, f16, v_rndne_f16, "h:h", ALL, 'i') \
    X(1, f16, v_fract_f16, "h:h", ALL, '?') \
    X(1, f16, v_frexp_mant_f16, "h:h", ALL, 'i') \
    X(1, u32, v_frexp_exp_i16_f16, "w:h", ALL, 'i') \
    X(2, u32, v_ldexp_f16, "h:hw", ALL, 'i') \
    X(S2, u32, v_add_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_sub_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_subrev_u16, "w:ww", GFX9, 'i') \
    X(S2, u32, v_add_i16, "k:ww", GFX9, 'i') \
    X(S2, u32, v_sub_i16, "k:ww", GFX9, 'i') \
    X(2, u32, v_mul_lo_u16, "w:ww", ALL, 'i') \
    X(2, u32, v_lshlrev_b16, "w:ww", ALL, 'i') \
    X(2, u32, v_lshrrev_b16, "w:ww", ALL, 'i') \
    X(2, u32, v_ashrrev_i16, "w:ww", ALL, 'i') \
    X(2, u32, v_max_u16, "w:ww", ALL, 'i') \
    X(2, u32, v_min_u16, "w:ww", ALL, 'i') \
    X(2, u32, v_max_i16, "w:ww", ALL, 'i') \
    X(2, u32, v_min_i16, "w:ww", ALL, 'i') \
    X(S3, u32, v_mad_u16, "k:www", ALL, 'i') \
    X(S3, u32, v_mad_i16, "k:www", ALL, 'i') \
    X(S3, u32, v_mad_legacy_u16, "w:www", GFX9, 'i') \
    X(S3, u32, v_mad_legacy_i16, "w:www", GFX9, 'i') \
    X(3, u32, v_min3_u16, "k:www", ALL, 'i') \
    X(3, u32, v_max3_u16, "k:www", ALL, 'i') \
    X(3, u32, v_min3_i16, "k:www", ALL, 'i') \
    X(3, u32, v_max3_i16, "k:www", ALL, 'i') \
    X(3, u32, v_med3_u16, "k:www", ALL, 'i') \
    X(3, u32, v_med3_i16, "k:www", ALL, 'i') \
    X(S3, u32, v_mad_u32_u16, "i:wwi", ALL, 'i') \
    X(S3, u32, v_mad_i32_i16, "i:wwi", ALL, 'i') \
    X(1, u32, v_sat_pk_u8_i16, "w:i", ALL, 'i')

// RDNA's names.
#define RENAMED(X) \
    X(v_add_nc_u16, GFX11P, v_add_u16, "w:ww") X(v_sub_nc_u16, GFX11P, v_sub_u16, "w:ww")
#define RENAMED_LINE(name, archs, old, types) \
    SIM_ROW(#name, exec_##old, archs, SIM_VALU, 'i', types, .is = SIM_SATURATES)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE) RENAMED(RENAMED_LINE)
    // these clear the other half
    SIM_ROW("v_fma_legacy_f16", exec_v_fma_f16, GFX9, SIM_VALU, 'i', "h:hhh")
    SIM_ROW("v_mad_legacy_f16", exec_v_mad_f16, GFX9, SIM_VALU, 'i', "h:hhh")
    SIM_ROW("v_madmk_f16", exec_v_mad_f16, GFX9, SIM_VALU, 'i', "h:hhh")
    SIM_ROW("v_madak_f16", exec_v_mad_f16, GFX9, SIM_VALU, 'i', "h:hhh")
    SIM_ROW("v_fmamk_f16", exec_v_fma_f16, GFX11P, SIM_VALU, 'i', "h:hhh")
    SIM_ROW("v_fmaak_f16", exec_v_fma_f16, GFX11P, SIM_VALU, 'i', "h:hhh")};
// clang-format on
SIM_TABLE(sim_ops_valu_16, opcodes);
