// SPDX-License-Identifier: Apache-2.0
// What vector instructions compute, one lane at a time, written apart from exec/ for its tests.
#ifndef SIM_REFS_H
#define SIM_REFS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef uint64_t u64;
typedef uint32_t u32;

static float f32(u64 bits) {
    u32 low = (u32)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}
static u64 of_f32(float x) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static double f64(u64 bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static u64 of_f64(double x) {
    u64 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static _Float16 f16(u64 bits) {
    uint16_t low = (uint16_t)bits;
    _Float16 x;
    memcpy(&x, &low, sizeof x);
    return x;
}
static u64 of_f16(_Float16 x) {
    uint16_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

// ---- f32
static u64 r_add_f32(u64 a, u64 b, u64) {
    return of_f32(f32(a) + f32(b));
}
static u64 r_sub_f32(u64 a, u64 b, u64) {
    return of_f32(f32(a) - f32(b));
}
static u64 r_subrev_f32(u64 a, u64 b, u64) {
    return of_f32(f32(b) - f32(a));
}
static u64 r_mul_f32(u64 a, u64 b, u64) {
    return of_f32(f32(a) * f32(b));
}
static u64 r_fma_f32(u64 a, u64 b, u64 c) {
    return of_f32(fmaf(f32(a), f32(b), f32(c)));
}
static u64 r_floor_f32(u64 a, u64, u64) {
    return of_f32(floorf(f32(a)));
}
static u64 r_ceil_f32(u64 a, u64, u64) {
    return of_f32(ceilf(f32(a)));
}
static u64 r_trunc_f32(u64 a, u64, u64) {
    return of_f32(truncf(f32(a)));
}
static u64 r_rndne_f32(u64 a, u64, u64) {
    return of_f32(roundevenf(f32(a)));
}
static u64 r_ldexp_f32(u64 a, u64 b, u64) {
    return of_f32(scalbnf(f32(a), (int)b));
}

static float lesser(float a, float b) {
    if (isnan(a) || isnan(b))
        return isnan(a) ? b : a;
    return a < b || (a == b && signbit(a)) ? a : b;
}
static float greater(float a, float b) {
    return -lesser(-a, -b);
}
static bool signals(u64 a) {
    return isnan(f32(a)) && !(a >> 22 & 1);
}
static u64 r_min_f32(u64 a, u64 b, u64) {
    return signals(a) || signals(b) ? 0x7fc00000 : of_f32(lesser(f32(a), f32(b)));
}
static u64 r_max_f32(u64 a, u64 b, u64) {
    return signals(a) || signals(b) ? 0x7fc00000 : of_f32(greater(f32(a), f32(b)));
}
static u64 r_min3_f32(u64 a, u64 b, u64 c) {
    return r_min_f32(r_min_f32(a, b, 0), c, 0);
}
static u64 r_max3_f32(u64 a, u64 b, u64 c) {
    return r_max_f32(r_max_f32(a, b, 0), c, 0);
}
static u64 r_med3_f32(u64 a, u64 b, u64 c) {
    const float x = f32(a), y = f32(b), z = f32(c);
    if (isnan(x) || isnan(y) || isnan(z))
        return r_min3_f32(a, b, c);
    const float most = greater(greater(x, y), z);
    return of_f32(most == x ? greater(y, z) : most == y ? greater(x, z) : greater(x, y));
}
static u64 r_frexp_mant_f32(u64 a, u64, u64) {
    int e;
    const float x = f32(a);
    return of_f32(isfinite(x) ? frexpf(x, &e) : x);
}
static u64 r_frexp_exp_f32(u64 a, u64, u64) {
    int e = 0;
    if (isfinite(f32(a)))
        frexpf(f32(a), &e);
    return (u32)e;
}
static u64 r_fract_f32(u64 a, u64, u64) {
    const float x = f32(a), part = x - floorf(x);
    return of_f32(part >= 1 ? nextafterf(1, 0) : part);
}

// ---- transcendental: in double, denormals flushed
static double flushed(u64 a) {
    return fpclassify(f32(a)) == FP_SUBNORMAL ? copysign(0, (double)f32(a)) : (double)f32(a);
}
static u64 flush_f32(double x) {
    return of_f32(fabs(x) < 0x1p-126 ? (float)copysign(0, x) : (float)x);
}
static u64 r_rcp_f32(u64 a, u64, u64) {
    return flush_f32(1 / flushed(a));
}
static u64 r_rsq_f32(u64 a, u64, u64) {
    return flush_f32(1 / sqrt(flushed(a)));
}
static u64 r_sqrt_f32(u64 a, u64, u64) {
    return flush_f32(sqrt(flushed(a)));
}
static u64 r_exp_f32(u64 a, u64, u64) {
    return flush_f32(exp2(flushed(a)));
}
static u64 r_log_f32(u64 a, u64, u64) {
    return flush_f32(log2(flushed(a)));
}
static double turns_of(u64 a) {
    const double x = flushed(a);
    return fabs(x) > 256 && isfinite(x) ? 0 : fmod(x, 1) * 6.283185307179586476925;
}
static u64 r_sin_f32(u64 a, u64, u64) {
    return of_f32((float)(isfinite(f32(a)) ? sin(turns_of(a)) : NAN));
}
static u64 r_cos_f32(u64 a, u64, u64) {
    return of_f32((float)(isfinite(f32(a)) ? cos(turns_of(a)) : NAN));
}

// ---- f64
static u64 r_add_f64(u64 a, u64 b, u64) {
    return of_f64(f64(a) + f64(b));
}
static u64 r_mul_f64(u64 a, u64 b, u64) {
    return of_f64(f64(a) * f64(b));
}
static u64 r_fma_f64(u64 a, u64 b, u64 c) {
    return of_f64(fma(f64(a), f64(b), f64(c)));
}
static u64 r_floor_f64(u64 a, u64, u64) {
    return of_f64(floor(f64(a)));
}
static u64 r_rndne_f64(u64 a, u64, u64) {
    return of_f64(roundeven(f64(a)));
}
static u64 r_ldexp_f64(u64 a, u64 b, u64) {
    return of_f64(scalbn(f64(a), (int)b));
}
static u64 r_cvt_f64_f32(u64 a, u64, u64) {
    return of_f64((double)f32(a));
}
static u64 r_cvt_f32_f64(u64 a, u64, u64) {
    return of_f32((float)f64(a));
}
static u64 r_cvt_f64_i32(u64 a, u64, u64) {
    return of_f64((double)(int32_t)a);
}
static u64 r_cvt_f64_u32(u64 a, u64, u64) {
    return of_f64((double)(u32)a);
}
static u64 saturated(double x, double low, double high) {
    return (u64)(int64_t)(isnan(x) ? 0 : x < low ? low : x > high ? high : trunc(x));
}
static u64 r_cvt_i32_f64(u64 a, u64, u64) {
    return (u32)saturated(f64(a), -0x1p31, 0x1p31 - 1);
}
static u64 r_cvt_u32_f64(u64 a, u64, u64) {
    return (u32)saturated(f64(a), 0, 0x1p32 - 1);
}

// ---- f16: exact sums and products in wider types, rounded once
static u64 r_add_f16(u64 a, u64 b, u64) {
    return of_f16((_Float16)((double)f16(a) + (double)f16(b)));
}
static u64 r_sub_f16(u64 a, u64 b, u64) {
    return of_f16((_Float16)((double)f16(a) - (double)f16(b)));
}
static u64 r_mul_f16(u64 a, u64 b, u64) {
    return of_f16((_Float16)((double)f16(a) * (double)f16(b)));
}
static u64 r_fma_f16(u64 a, u64 b, u64 c) {
    __float128 sum = (__float128)((double)f16(a) * (double)f16(b)) + (__float128)(double)f16(c);
    return of_f16((_Float16)sum);
}
static bool signals16(u64 a) {
    return isnan((float)f16(a)) && !(a >> 9 & 1);
}
static u64 r_min_f16(u64 a, u64 b, u64) {
    const float x = (float)f16(a), y = (float)f16(b);
    return signals16(a) || signals16(b) ? 0x7e00 : of_f16((_Float16)lesser(x, y));
}
static u64 r_max_f16(u64 a, u64 b, u64) {
    const float x = (float)f16(a), y = (float)f16(b);
    return signals16(a) || signals16(b) ? 0x7e00 : of_f16((_Float16)greater(x, y));
}
static u64 r_cvt_f32_f16(u64 a, u64, u64) {
    return of_f32((float)f16(a));
}
static u64 r_cvt_f16_f32(u64 a, u64, u64) {
    return of_f16((_Float16)f32(a));
}
static u64 r_cvt_f16_u16(u64 a, u64, u64) {
    return of_f16((_Float16)(double)(uint16_t)a);
}
static u64 r_cvt_i16_f16(u64 a, u64, u64) {
    return (uint16_t)saturated((double)f16(a), -32768, 32767);
}
static u64 r_cvt_u16_f16(u64 a, u64, u64) {
    return (uint16_t)saturated((double)f16(a), 0, 65535);
}
static u64 half_toward_zero(float x) {
    const _Float16 h = (_Float16)x;
    if (fabs((double)h) > fabs((double)x))
        return of_f16(h) - 1;
    return of_f16(h);
}
static u64 r_cvt_pkrtz(u64 a, u64 b, u64) {
    return half_toward_zero(f32(a)) | half_toward_zero(f32(b)) << 16;
}
static u64 r_pack_f16(u64 a, u64 b, u64) {
    return (a & 0xffff) | (b & 0xffff) << 16;
}

// ---- integers and conversions
static u64 r_mov(u64 a, u64, u64) {
    return a;
}
static u64 r_not(u64 a, u64, u64) {
    return (u32)~a;
}
static u64 r_and(u64 a, u64 b, u64) {
    return a & b;
}
static u64 r_or(u64 a, u64 b, u64) {
    return a | b;
}
static u64 r_xor(u64 a, u64 b, u64) {
    return a ^ b;
}
static u64 r_add_u32(u64 a, u64 b, u64) {
    return (u32)(a + b);
}
static u64 r_sub_u32(u64 a, u64 b, u64) {
    return (u32)(a - b);
}
static u64 r_subrev_u32(u64 a, u64 b, u64) {
    return (u32)(b - a);
}
static u64 r_lshlrev_b32(u64 a, u64 b, u64) {
    return (u32)b << (a % 32);
}
static u64 r_lshrrev_b32(u64 a, u64 b, u64) {
    return (u32)b >> (a % 32);
}
static u64 r_ashrrev_i32(u64 a, u64 b, u64) {
    return (u32)((int32_t)b >> (a % 32));
}
static u64 r_min_u32(u64 a, u64 b, u64) {
    return a < b ? a : b;
}
static u64 r_max_u32(u64 a, u64 b, u64) {
    return a > b ? a : b;
}
static u64 r_min_i32(u64 a, u64 b, u64) {
    return (int32_t)a < (int32_t)b ? a : b;
}
static u64 r_max_i32(u64 a, u64 b, u64) {
    return (int32_t)a > (int32_t)b ? a : b;
}
static u64 r_mul_lo(u64 a, u64 b, u64) {
    return (u32)(a * b);
}
static u64 r_mul_hi_u32(u64 a, u64 b, u64) {
    return a * b >> 32;
}
static u64 r_mul_hi_i32(u64 a, u64 b, u64) {
    return (u32)((int64_t)(int32_t)a * (int32_t)b >> 32);
}
static int64_t sign24(u64 a) {
    return (int64_t)(a << 40) >> 40;
}
static u64 r_mul_u32_u24(u64 a, u64 b, u64) {
    return (u32)((a % (1 << 24)) * (b % (1 << 24)));
}
static u64 r_mul_i32_i24(u64 a, u64 b, u64) {
    return (u32)(sign24(a) * sign24(b));
}
static u64 r_mad_u32_u24(u64 a, u64 b, u64 c) {
    return (u32)(r_mul_u32_u24(a, b, 0) + c);
}
static u64 r_mad_i32_i24(u64 a, u64 b, u64 c) {
    return (u32)(r_mul_i32_i24(a, b, 0) + c);
}
static u64 r_add3(u64 a, u64 b, u64 c) {
    return (u32)(a + b + c);
}
static u64 r_add_lshl(u64 a, u64 b, u64 c) {
    return (u32)((a + b) << (c % 32));
}
static u64 r_lshl_add(u64 a, u64 b, u64 c) {
    return (u32)((a << (b % 32)) + c);
}
static u64 r_lshl_or(u64 a, u64 b, u64 c) {
    return (u32)(a << (b % 32)) | c;
}
static u64 r_and_or(u64 a, u64 b, u64 c) {
    return (a & b) | c;
}
static u64 r_or3(u64 a, u64 b, u64 c) {
    return a | b | c;
}
static u64 r_xad(u64 a, u64 b, u64 c) {
    return (u32)((a ^ b) + c);
}
static u64 r_bfi(u64 a, u64 b, u64 c) {
    return (a & b) | ((u32)~a & c);
}
static u64 r_bfm(u64 a, u64 b, u64) {
    return (u32)(((UINT64_C(1) << (a % 32)) - 1) << (b % 32));
}
static u64 r_bfe_u32(u64 a, u64 b, u64 c) {
    return (a >> (b % 32)) % (UINT64_C(1) << (c % 32));
}
static u64 r_bfe_i32(u64 a, u64 b, u64 c) {
    const int64_t field = (int64_t)(int32_t)a >> (b % 32), size = INT64_C(1) << (c % 32),
                  low = field & (size - 1);
    return (u32)(c % 32 && low & size >> 1 ? low - size : low);
}
static u64 r_alignbit(u64 a, u64 b, u64 c) {
    return (u32)((a << 32 | b) >> (c % 32));
}
static u64 r_med3_i32(u64 a, u64 b, u64 c) {
    u64 low = r_min_i32(a, b, 0), high = r_max_i32(a, b, 0);
    return (int32_t)c<(int32_t)low ? low : (int32_t)c>(int32_t) high ? high : c;
}
static u64 r_max3_u32(u64 a, u64 b, u64 c) {
    return r_max_u32(r_max_u32(a, b, 0), c, 0);
}
static u64 r_bcnt(u64 a, u64 b, u64) {
    u64 n = b;
    for (; a; a &= a - 1)
        n++;
    return (u32)n;
}
static u64 r_bfrev(u64 a, u64, u64) {
    u64 out = 0;
    for (int i = 0; i < 32; i++)
        out |= (a >> i & 1) << (31 - i);
    return out;
}
static u64 r_ffbh_u32(u64 a, u64, u64) {
    for (u32 i = 0; i < 32; i++)
        if (a >> (31 - i) & 1)
            return i;
    return UINT32_MAX;
}
static u64 r_ffbl(u64 a, u64, u64) {
    for (u32 i = 0; i < 32; i++)
        if (a >> i & 1)
            return i;
    return UINT32_MAX;
}
static u64 r_ffbh_i32(u64 a, u64, u64) {
    for (u32 i = 1; i < 32; i++)
        if ((a >> (31 - i) & 1) != (a >> 31 & 1))
            return i;
    return UINT32_MAX;
}
static u64 r_perm(u64 a, u64 b, u64 c) {
    uint8_t bytes[8], out[4];
    u64 both = a << 32 | b, result = 0;
    memcpy(bytes, &both, sizeof bytes);
    for (int i = 0; i < 4; i++) {
        u32 sel = c >> 8 * i & 255;
        out[i] = sel < 8 ? bytes[sel] : 0;
        out[i] = sel >= 8 && sel < 12 ? (uint8_t)(bytes[2 * (sel - 8) + 1] >> 7 ? 255 : 0) : out[i];
        out[i] = sel > 12 ? 255 : out[i];
    }
    memcpy(&result, out, sizeof out);
    return result;
}
static u64 r_sad_u8(u64 a, u64 b, u64 c) {
    for (int i = 0; i < 32; i += 8) {
        const int x = a >> i & 255, y = b >> i & 255;
        c += (u64)(x > y ? x - y : y - x);
    }
    return (u32)c;
}
static u64 r_lshlrev_b64(u64 a, u64 b, u64) {
    return b << (a % 64);
}
static u64 r_lshrrev_b64(u64 a, u64 b, u64) {
    return b >> (a % 64);
}
static u64 r_ashrrev_i64(u64 a, u64 b, u64) {
    return (u64)((int64_t)b >> (a % 64));
}
static u64 r_lshl_add_u64(u64 a, u64 b, u64 c) {
    return (a << (b % 8)) + c;
}
static u64 r_cvt_f32_u32(u64 a, u64, u64) {
    return of_f32((float)(u32)a);
}
static u64 r_cvt_f32_i32(u64 a, u64, u64) {
    return of_f32((float)(int32_t)a);
}
static u64 r_cvt_u32_f32(u64 a, u64, u64) {
    return (u32)saturated((double)f32(a), 0, 0x1p32 - 1);
}
static u64 r_cvt_i32_f32(u64 a, u64, u64) {
    return (u32)saturated((double)f32(a), -0x1p31, 0x1p31 - 1);
}
static u64 r_cvt_ubyte2(u64 a, u64, u64) {
    return of_f32((float)(a >> 16 & 255));
}
static u64 r_cvt_off_i4(u64 a, u64, u64) {
    return of_f32((float)((a & 15) ^ 8) / 16 - 0.5f);
}
static u64 r_cvt_pk_i16(u64 a, u64 b, u64) {
    u64 low = saturated((double)(int32_t)a, -32768, 32767),
        high = saturated((double)(int32_t)b, -32768, 32767);
    return (low & 0xffff) | (high & 0xffff) << 16;
}
static u64 r_add_u16(u64 a, u64 b, u64) {
    return (uint16_t)(a + b);
}
static u64 r_mul_lo_u16(u64 a, u64 b, u64) {
    return (uint16_t)(a * b);
}
static u64 r_lshlrev_b16(u64 a, u64 b, u64) {
    return (uint16_t)(b << (a % 16));
}
static u64 r_ashrrev_i16(u64 a, u64 b, u64) {
    return (uint16_t)((int16_t)b >> (a % 16));
}
static u64 r_max_i16(u64 a, u64 b, u64) {
    return (uint16_t)((int16_t)a > (int16_t)b ? a : b);
}
static u64 r_mad_u16(u64 a, u64 b, u64 c) {
    return (uint16_t)(a * b + c);
}

typedef struct valu_case {
    const char *name, *types; // one destination; "+": the destination is the last source too
    int encoding;             // 2: VOP1 or VOP2, with DPP and SDWA forms; 3: VOP3 alone
    u64 (*ref)(u64, u64, u64);
    int ulps; // of the destination's type; 0: to the bit; negative: an absolute error of 2^ulps
} valu_case;

static const valu_case valu_cases[] = {
    {"v_add_f32", "f:ff", 2, r_add_f32, 0},
    {"v_sub_f32", "f:ff", 2, r_sub_f32, 0},
    {"v_subrev_f32", "f:ff", 2, r_subrev_f32, 0},
    {"v_mul_f32", "f:ff", 2, r_mul_f32, 0},
    {"v_fma_f32", "f:fff", 3, r_fma_f32, 0},
    {"v_fmac_f32", "f:ff+", 2, r_fma_f32, 0},
    {"v_min_f32", "f:ff", 2, r_min_f32, 0},
    {"v_max_f32", "f:ff", 2, r_max_f32, 0},
    {"v_min3_f32", "f:fff", 3, r_min3_f32, 0},
    {"v_max3_f32", "f:fff", 3, r_max3_f32, 0},
    {"v_med3_f32", "f:fff", 3, r_med3_f32, 0},
    {"v_floor_f32", "f:f", 2, r_floor_f32, 0},
    {"v_ceil_f32", "f:f", 2, r_ceil_f32, 0},
    {"v_trunc_f32", "f:f", 2, r_trunc_f32, 0},
    {"v_rndne_f32", "f:f", 2, r_rndne_f32, 0},
    {"v_fract_f32", "f:f", 2, r_fract_f32, 0},
    {"v_ldexp_f32", "f:fi", 3, r_ldexp_f32, 0},
    {"v_frexp_mant_f32", "f:f", 2, r_frexp_mant_f32, 0},
    {"v_frexp_exp_i32_f32", "i:f", 2, r_frexp_exp_f32, 0},
    {"v_rcp_f32", "f:f", 2, r_rcp_f32, 1},
    {"v_rsq_f32", "f:f", 2, r_rsq_f32, 1},
    {"v_sqrt_f32", "f:f", 2, r_sqrt_f32, 1},
    {"v_exp_f32", "f:f", 2, r_exp_f32, 1},
    {"v_log_f32", "f:f", 2, r_log_f32, 1},
    {"v_sin_f32", "f:f", 2, r_sin_f32, -23},
    {"v_cos_f32", "f:f", 2, r_cos_f32, -23},
    {"v_add_f64", "d:dd", 3, r_add_f64, 0},
    {"v_mul_f64", "d:dd", 3, r_mul_f64, 0},
    {"v_fma_f64", "d:ddd", 3, r_fma_f64, 0},
    {"v_floor_f64", "d:d", 1, r_floor_f64, 0},
    {"v_rndne_f64", "d:d", 1, r_rndne_f64, 0},
    {"v_ldexp_f64", "d:di", 3, r_ldexp_f64, 0},
    {"v_cvt_f64_f32", "d:f", 1, r_cvt_f64_f32, 0},
    {"v_cvt_f32_f64", "f:d", 1, r_cvt_f32_f64, 0},
    {"v_cvt_f64_i32", "d:i", 1, r_cvt_f64_i32, 0},
    {"v_cvt_f64_u32", "d:i", 1, r_cvt_f64_u32, 0},
    {"v_cvt_i32_f64", "i:d", 1, r_cvt_i32_f64, 0},
    {"v_cvt_u32_f64", "i:d", 1, r_cvt_u32_f64, 0},
    {"v_add_f16", "h:hh", 2, r_add_f16, 0},
    {"v_sub_f16", "h:hh", 2, r_sub_f16, 0},
    {"v_mul_f16", "h:hh", 2, r_mul_f16, 0},
    {"v_min_f16", "h:hh", 2, r_min_f16, 0},
    {"v_max_f16", "h:hh", 2, r_max_f16, 0},
    {"v_fma_f16", "x:hhh", 3, r_fma_f16, 0},
    {"v_cvt_f32_f16", "f:h", 2, r_cvt_f32_f16, 0},
    {"v_cvt_f16_f32", "h:f", 2, r_cvt_f16_f32, 0},
    {"v_cvt_f16_u16", "h:w", 2, r_cvt_f16_u16, 0},
    {"v_cvt_i16_f16", "w:h", 2, r_cvt_i16_f16, 0},
    {"v_cvt_u16_f16", "w:h", 2, r_cvt_u16_f16, 0},
    {"v_cvt_pkrtz_f16_f32", "i:ff", 3, r_cvt_pkrtz, 0},
    {"v_pack_b32_f16", "i:hh", 3, r_pack_f16, 0},
    {"v_mov_b32", "i:i", 2, r_mov, 0},
    {"v_not_b32", "i:i", 2, r_not, 0},
    {"v_and_b32", "i:ii", 2, r_and, 0},
    {"v_or_b32", "i:ii", 2, r_or, 0},
    {"v_xor_b32", "i:ii", 2, r_xor, 0},
    {"v_add_u32", "i:ii", 2, r_add_u32, 0},
    {"v_sub_u32", "i:ii", 2, r_sub_u32, 0},
    {"v_subrev_u32", "i:ii", 2, r_subrev_u32, 0},
    {"v_lshlrev_b32", "i:ii", 2, r_lshlrev_b32, 0},
    {"v_lshrrev_b32", "i:ii", 2, r_lshrrev_b32, 0},
    {"v_ashrrev_i32", "i:ii", 2, r_ashrrev_i32, 0},
    {"v_min_u32", "i:ii", 2, r_min_u32, 0},
    {"v_max_u32", "i:ii", 2, r_max_u32, 0},
    {"v_min_i32", "i:ii", 2, r_min_i32, 0},
    {"v_max_i32", "i:ii", 2, r_max_i32, 0},
    {"v_mul_lo_u32", "i:ii", 3, r_mul_lo, 0},
    {"v_mul_hi_u32", "i:ii", 3, r_mul_hi_u32, 0},
    {"v_mul_hi_i32", "i:ii", 3, r_mul_hi_i32, 0},
    {"v_mul_u32_u24", "i:ii", 2, r_mul_u32_u24, 0},
    {"v_mul_i32_i24", "i:ii", 2, r_mul_i32_i24, 0},
    {"v_mad_u32_u24", "i:iii", 3, r_mad_u32_u24, 0},
    {"v_mad_i32_i24", "i:iii", 3, r_mad_i32_i24, 0},
    {"v_add3_u32", "i:iii", 3, r_add3, 0},
    {"v_add_lshl_u32", "i:iii", 3, r_add_lshl, 0},
    {"v_lshl_add_u32", "i:iii", 3, r_lshl_add, 0},
    {"v_lshl_or_b32", "i:iii", 3, r_lshl_or, 0},
    {"v_and_or_b32", "i:iii", 3, r_and_or, 0},
    {"v_or3_b32", "i:iii", 3, r_or3, 0},
    {"v_xad_u32", "i:iii", 3, r_xad, 0},
    {"v_bfi_b32", "i:iii", 3, r_bfi, 0},
    {"v_bfm_b32", "i:ii", 3, r_bfm, 0},
    {"v_bfe_u32", "i:iii", 3, r_bfe_u32, 0},
    {"v_bfe_i32", "i:iii", 3, r_bfe_i32, 0},
    {"v_alignbit_b32", "i:iii", 3, r_alignbit, 0},
    {"v_med3_i32", "i:iii", 3, r_med3_i32, 0},
    {"v_max3_u32", "i:iii", 3, r_max3_u32, 0},
    {"v_bcnt_u32_b32", "i:ii", 3, r_bcnt, 0},
    {"v_bfrev_b32", "i:i", 2, r_bfrev, 0},
    {"v_ffbh_u32", "i:i", 2, r_ffbh_u32, 0},
    {"v_ffbl_b32", "i:i", 2, r_ffbl, 0},
    {"v_ffbh_i32", "i:i", 2, r_ffbh_i32, 0},
    {"v_perm_b32", "i:iii", 3, r_perm, 0},
    {"v_sad_u8", "i:iii", 3, r_sad_u8, 0},
    {"v_mov_b64", "q:q", 1, r_mov, 0},
    {"v_lshlrev_b64", "q:iq", 3, r_lshlrev_b64, 0},
    {"v_lshrrev_b64", "q:iq", 3, r_lshrrev_b64, 0},
    {"v_ashrrev_i64", "q:iQ", 3, r_ashrrev_i64, 0},
    {"v_lshl_add_u64", "q:qiq", 3, r_lshl_add_u64, 0},
    {"v_cvt_f32_u32", "f:i", 2, r_cvt_f32_u32, 0},
    {"v_cvt_f32_i32", "f:i", 2, r_cvt_f32_i32, 0},
    {"v_cvt_u32_f32", "i:f", 2, r_cvt_u32_f32, 0},
    {"v_cvt_i32_f32", "i:f", 2, r_cvt_i32_f32, 0},
    {"v_cvt_f32_ubyte2", "f:i", 2, r_cvt_ubyte2, 0},
    {"v_cvt_off_f32_i4", "f:i", 2, r_cvt_off_i4, 0},
    {"v_cvt_pk_i16_i32", "i:ii", 3, r_cvt_pk_i16, 0},
    {"v_add_u16", "w:ww", 2, r_add_u16, 0},
    {"v_mul_lo_u16", "w:ww", 2, r_mul_lo_u16, 0},
    {"v_lshlrev_b16", "w:ww", 2, r_lshlrev_b16, 0},
    {"v_ashrrev_i16", "w:ww", 2, r_ashrrev_i16, 0},
    {"v_max_i16", "w:ww", 2, r_max_i16, 0},
    {"v_mad_u16", "k:www", 3, r_mad_u16, 0},
};

#endif
