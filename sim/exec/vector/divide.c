// SPDX-License-Identifier: Apache-2.0
// The three steps around a division: v_div_scale, v_div_fmas, v_div_fixup. Source: "CDNA3" ISA
// pseudo-code; where that contradicts itself (the factor of v_div_fmas), the value that makes the
// compiler's division sequence correctly rounded. The factor of f32, 2^64 or 2^-64 by the third
// source, was measured on RDNA3 by tinygrad's tests. They also saw v_div_scale_f32 set VCC for
// 2^-126 over 1, whose quotient is no denormal, so VCC is taken to depend on the exponents alone.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

static int exponent64(uint64_t bits) {
    return (int)(bits >> 52 & 2047);
}

static bool is_denormal(double value, double smallest) {
    return value != 0 && fabs(value) < smallest;
}

// ---- scale: s0 is the denominator s1 or the numerator s2; VCC says that div_fmas must scale back

typedef struct scaled {
    double value;
    bool vcc;
} scaled;

/** Scales f64. The quotients are judged in long double, which represents their denormals; that of
 *  s2 and s1 also by the distance of the exponents. */
static scaled scale(double s0, double s1, double s2, int e1, int e2) {
    enum { BIG = 768, TINY = 53, LEAST = -1022, BY = 128 };
    const long double smallest = 0x1p-1022L;
    const long double reciprocal = 1.0L / (long double)s1,
                      quotient = (long double)s2 / (long double)s1;
    const bool is_denominator = s0 == s1, small_s1 = is_denormal(s1, (double)smallest);
    const bool small_reciprocal = reciprocal != 0 && fabsl(reciprocal) < smallest;
    bool small_quotient =
        isfinite(s1) && (e2 - e1 <= LEAST || (quotient != 0 && fabsl(quotient) < smallest));
    if (s1 == 0 || s2 == 0) // VCC as measured on RDNA3; the documents' pseudo-code leaves it 0
        return (scaled){NAN, true};
    if (e2 - e1 >= BIG) // the quotient is near the maximum
        return (scaled){is_denominator ? ldexp(s0, BY) : s0, true};
    if (small_s1)
        return (scaled){ldexp(s0, BY), false};
    if (small_reciprocal && small_quotient)
        return (scaled){is_denominator ? ldexp(s0, -BY) : s0, true};
    if (small_reciprocal)
        return (scaled){ldexp(s0, -BY), false};
    if (small_quotient)
        return (scaled){s0 == s2 ? ldexp(s0, BY) : s0, true};
    return (scaled){e2 <= TINY ? ldexp(s0, BY) : s0, false};
}

typedef struct scaled16 {
    f32x16 value;
    u32x16 vcc;
} scaled16;

/** Applies the same rules to sixteen f32. The operands alone answer all questions about the
 *  quotients: 1/s1 is denormal if s1 is beyond 2^126, and s2/s1 if s2 * 2^126 < s1, a product that
 *  is exact or infinite, or by the distance of the exponents. */
static scaled16 scale_f32(f32x16 s0, f32x16 s1, f32x16 s2) {
    f32x16 size1 = __builtin_elementwise_abs(s1), size2 = __builtin_elementwise_abs(s2);
    f32x16 one = (f32x16){} + 1, up = (f32x16){} + 0x1p64f, down = (f32x16){} + 0x1p-64f;
    u32x16 e1 = (u32x16)s1 >> 23 & 255, e2 = (u32x16)s2 >> 23 & 255;
    u32x16 finite = (u32x16)(e1 < 255), denominator = (u32x16)(s0 == s1);
    u32x16 small_reciprocal = (u32x16)(size1 > 0x1p126f) & finite;
    u32x16 small_quotient = (u32x16)((i32x16)(e2 - e1) <= -126);
    small_quotient = (small_quotient | (u32x16)(size2 * 0x1p126f < size1)) & finite;
    u32x16 zero = (u32x16)((s1 == 0) | (s2 == 0)), large = (u32x16)((i32x16)(e2 - e1) >= 96);
    u32x16 small_s1 = (u32x16)(e1 == 0);
    f32x16 by = choose((u32x16)(e2 <= 23), up, one);
    by = choose(small_quotient, choose((u32x16)(s0 == s2), up, one), by);
    f32x16 of_reciprocal = choose(denominator | ~small_quotient, down, one);
    by = choose(small_reciprocal, of_reciprocal, by);
    by = choose(small_s1, up, by);
    by = choose(large, choose(denominator, up, one), by);
    f32x16 nan = (f32x16)((u32x16){} + 0x7fc00000);
    return (scaled16){choose(zero, nan, s0 * by), zero | large | (small_quotient & ~small_s1)};
}

static void exec_v_div_scale_f32(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row32(w, inst, 2, tmp[2]);
    uint64_t vcc = 0;
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        scaled16 s = scale_f32((f32x16)load16(a + k), (f32x16)load16(b + k), (f32x16)load16(c + k));
        store16(result + k, (u32x16)s.value);
        vcc |= (uint64_t)bits16(s.vcc) << k;
    }
    sim_finish32(w, inst, result);
    sim_write_lanes(w, &inst->dst[1], vcc & w->exec);
}

static double lane64(const uint32_t *rows, unsigned lane) {
    return as_f64(rows[lane] | (uint64_t)rows[SIM_LANES + lane] << 32);
}

static void put_lane64(uint32_t *rows, unsigned lane, double value) {
    rows[lane] = (uint32_t)f64_bits(value);
    rows[SIM_LANES + lane] = (uint32_t)(f64_bits(value) >> 32);
}

static void exec_v_div_scale_f64(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row64(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row64(w, inst, 2, tmp[2]);
    uint64_t vcc = 0;
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        const double s0 = lane64(a, lane), s1 = lane64(b, lane), s2 = lane64(c, lane);
        scaled s = scale(s0, s1, s2, exponent64(f64_bits(s1)), exponent64(f64_bits(s2)));
        put_lane64(result, lane, s.value);
        vcc |= (uint64_t)s.vcc << lane;
    }
    sim_finish64(w, inst, result);
    sim_write_lanes(w, &inst->dst[1], vcc & w->exec);
}

// ---- fmas: a fused multiply-add; where VCC is set, one of the operands had been scaled, and the
// result is scaled back: down where it is below 2 (a denormal quotient), up where it is not. Scaled
// down, it is rounded once, from quadruple precision.

static float scaled_down_f32(float a, float b, float c) {
    return (float)(((__float128)a * b + c) * 0x1p-64);
}

static f32x16 fmas_f32(f32x16 a, f32x16 b, f32x16 c, u32x16 scaled_before) {
    f32x16 sum = __builtin_elementwise_fma(a, b, c);
    u32x16 up = (u32x16)(((u32x16)c >> 23 & 255) > 127);
    f32x16 out = choose(scaled_before & up, sum * 0x1p64f, sum);
    u32x16 exact = (u32x16)(((u32x16)a >> 23 & 255) > 64) & (u32x16)(((u32x16)c >> 23 & 255) > 64);
    f32x16 down = __builtin_elementwise_fma(a * 0x1p-64f, b, c * 0x1p-64f);
    out = choose(scaled_before & ~up & exact, down, out);
    for (uint32_t left = bits16(scaled_before & ~up & ~exact); left; left &= left - 1) {
        const int i = __builtin_ctz(left);
        out[i] = scaled_down_f32(a[i], b[i], c[i]);
    }
    return with_nan(out, a, b, c);
}

static double fmas_f64(double a, double b, double c, bool scaled_before) {
    if (isnan(a) || isnan(b) || isnan(c)) // the first NaN's bits, as in with_nan64
        return as_f64(f64_bits(isnan(a) ? a : isnan(b) ? b : c) | UINT64_C(1) << 51);
    if (!scaled_before)
        return fma(a, b, c);
    if (exponent64(f64_bits(c)) > 1023)
        return fma(a, b, c) * 0x1p128;
    return (double)(((__float128)a * b + c) * 0x1p-128);
}

static void exec_v_div_fmas_f32(sim_wave *w, const sim_inst *inst) {
    _Alignas(64) uint32_t tmp[3][SIM_LANES], result[SIM_LANES];
    const uint32_t *a = sim_row32(w, inst, 0, tmp[0]), *b = sim_row32(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row32(w, inst, 2, tmp[2]);
    for (unsigned k = 0; k < SIM_LANES; k += 16) {
        u32x16 scaled_before = lanes16((uint32_t)(w->vcc >> k) & 0xffff);
        f32x16 sum = fmas_f32((f32x16)load16(a + k), (f32x16)load16(b + k), (f32x16)load16(c + k),
                              scaled_before);
        store16(result + k, (u32x16)sum);
    }
    sim_finish32(w, inst, result);
}

static void exec_v_div_fmas_f64(sim_wave *w, const sim_inst *inst) {
    uint32_t tmp[3][2 * SIM_LANES], result[2 * SIM_LANES];
    const uint32_t *a = sim_row64(w, inst, 0, tmp[0]), *b = sim_row64(w, inst, 1, tmp[1]);
    const uint32_t *c = sim_row64(w, inst, 2, tmp[2]);
    for (unsigned lane = 0; lane < SIM_LANES; lane++) {
        double sum =
            fmas_f64(lane64(a, lane), lane64(b, lane), lane64(c, lane), w->vcc >> lane & 1);
        put_lane64(result, lane, sum);
    }
    sim_finish64(w, inst, result);
}

// ---- fixup: s0 the quotient so far, s1 the denominator, s2 the numerator. A quotient that
// overflowed on the way is NaN by now (infinity minus infinity), and infinite in truth.

static double finished(double s0, double sign) {
    return isnan(s0) ? sign * INFINITY : sign * fabs(s0);
}

/** Gives the result if one of the operands is special; returns false if none is. Both precisions
 *  fit in double. */
static bool special_quotient(double s1, double s2, double *out) {
    const double sign = copysign(1.0, s1) * copysign(1.0, s2);
    if (isnan(s2) || isnan(s1))
        *out = isnan(s2) ? s2 : s1;
    else if ((s1 == 0 && s2 == 0) || (isinf(s1) && isinf(s2)))
        *out = -NAN; // 0xffc00000
    else if (s1 == 0 || isinf(s2))
        *out = sign * INFINITY;
    else if (isinf(s1) || s2 == 0)
        *out = sign * 0;
    else
        return false;
    return true;
}

/** Applies the same rules to sixteen f32. The quotient is 0 if it `vanishes`, unless an operand is
 *  special. */
SIM_INLINE f32x16 fixed_up(f32x16 s0, f32x16 s1, f32x16 s2, u32x16 vanishes) {
    u32x16 infinity = (u32x16){} + 0x7f800000, sign = ((u32x16)s1 ^ (u32x16)s2) & 0x80000000;
    u32x16 size0 = (u32x16)s0 & 0x7fffffff, size1 = (u32x16)s1 & 0x7fffffff;
    u32x16 size2 = (u32x16)s2 & 0x7fffffff;
    u32x16 zero1 = (u32x16)(size1 == 0), zero2 = (u32x16)(size2 == 0);
    u32x16 infinite1 = (u32x16)(size1 == infinity), infinite2 = (u32x16)(size2 == infinity);
    u32x16 out = select16((u32x16)(size0 > infinity), infinity, size0) & ~vanishes;
    out &= ~(infinite1 | zero2);
    out = select16(zero1 | infinite2, infinity, out) | sign;
    out = select16((zero1 & zero2) | (infinite1 & infinite2), (u32x16){} + 0xffc00000, out);
    out = select16((u32x16)(size1 > infinity), (u32x16)s1 | 0x400000, out);
    return (f32x16)select16((u32x16)(size2 > infinity), (u32x16)s2 | 0x400000, out);
}

static u32x16 v_div_fixup_f32(u32x16 a, u32x16 b, u32x16 c) {
    i32x16 distance = (i32x16)((c >> 23 & 255) - (b >> 23 & 255));
    return (u32x16)fixed_up((f32x16)a, (f32x16)b, (f32x16)c, (u32x16)(distance < -150));
}

static u64x8 v_div_fixup_f64(u64x8 a, u64x8 b, u64x8 c) {
    for (unsigned i = 0; i < 8; i++) {
        double s1 = as_f64(b[i]), s2 = as_f64(c[i]), special;
        double sign = copysign(1.0, s1) * copysign(1.0, s2), value = finished(as_f64(a[i]), sign);
        if (special_quotient(s1, s2, &special))
            value = special;
        else if (exponent64(c[i]) - exponent64(b[i]) < -1075)
            value = sign * 0;
        a[i] = f64_bits(value);
    }
    return a;
}

static f32x16 v_div_fixup_f16(f32x16 a, f32x16 b, f32x16 c) {
    return fixed_up(a, b, c, (u32x16){});
}

// clang-format off
#define LIST(X) \
    X(OWN, f32, v_div_scale_f32, "fm:fff", ALL, '?') \
    X(OWN, f64, v_div_scale_f64, "dm:ddd", ALL, '?') \
    X(OWN, f32, v_div_fmas_f32, "f:fff", ALL, 'm', SIM_IS_DIV_FMAS) \
    X(OWN, f64, v_div_fmas_f64, "d:ddd", ALL, '?', SIM_IS_DIV_FMAS) \
    X(3, u32, v_div_fixup_f32, "f:fff", ALL, '?') \
    X(W3, u64, v_div_fixup_f64, "d:ddd", ALL, '?') \
    X(3, f16, v_div_fixup_f16, "x:hhh", ALL, '?', SIM_HAS_POLE)

LIST(VALU_WRAP)
static const sim_opcode opcodes[] = {LIST(VALU_LINE)
    // clears the other half
    SIM_ROW("v_div_fixup_legacy_f16", exec_v_div_fixup_f16, GFX9, SIM_VALU, 'i', "h:hhh", .is = SIM_HAS_POLE)};
// clang-format on
SIM_TABLE(sim_ops_valu_divide, opcodes);
