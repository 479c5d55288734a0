// SPDX-License-Identifier: Apache-2.0
// Transcendental instructions: reciprocal, roots, exponential, logarithm, sine, cosine; and the
// digits of 2/pi. The ISA allows 1 ulp and flushes denormals whatever MODE says. Here each is the
// double result rounded once, computed without fused operations, so every host gives the same bits.
#include "../numbers.h"
#include "vector.h"

#include <math.h>

static f32x16 infinity16(void) {
    return (f32x16){} + (float)INFINITY;
}
static f32x16 nan16(void) {
    return (f32x16){} + (float)NAN;
}

static f64x16 widen(f32x16 a) {
    return __builtin_convertvector(a, f64x16);
}
static f32x16 narrow(f64x16 a) {
    return flush_f32(__builtin_convertvector(a, f32x16));
}

static f32x16 v_rcp_f32(f32x16 a) {
    return narrow(1.0 / widen(flush_f32(a)));
}
static f32x16 v_rcp_iflag_f32(f32x16 a) {
    return v_rcp_f32(a);
}

static f32x16 v_sqrt_f32(f32x16 a) {
    return narrow(__builtin_elementwise_sqrt(widen(flush_f32(a))));
}
static f32x16 v_rsq_f32(f32x16 a) {
    return narrow(1.0 / __builtin_elementwise_sqrt(widen(flush_f32(a))));
}

/** Returns the sum of coefficients[i] x^i. */
SIM_INLINE f64x16 polynomial(f64x16 x, const double *coefficients, unsigned count) {
    f64x16 sum = (f64x16){} + coefficients[count - 1];
    for (unsigned i = count - 1; i-- > 0;)
        sum = sum * x + coefficients[i];
    return sum;
}

/** Returns 2^a. With a = n + f, |f| <= 1/2, the series of 2^f to f^9 errs by less than 2^-36. */
static f32x16 v_exp_f32(f32x16 a) {
    static const double series[] = {1,
                                    0x1.62e42fefa39efp-1,
                                    0x1.ebfbdff82c58fp-3,
                                    0x1.c6b08d704a0c0p-5,
                                    0x1.3b2ab6fba4e77p-7,
                                    0x1.5d87fe78a6731p-10,
                                    0x1.430912f86c787p-13,
                                    0x1.ffcbfc588b0c7p-17,
                                    0x1.62c0223a5c824p-20,
                                    0x1.b5253d395e7c4p-24};
    f32x16 low = (f32x16){} - 200, high = (f32x16){} + 200;
    f64x16 x = widen(min_number(max_number(flush_f32(a), low), high));
    f64x16 n = __builtin_elementwise_roundeven(x);
    f64x16 fraction = polynomial(x - n, series, 10);
    i64x16 exponent = __builtin_convertvector(n, i64x16);
    f64x16 power = (f64x16)((u64x16)(exponent + 1023) << 52);
    return choose(is_nan(a), quiet(a), narrow(fraction * power));
}

/** Returns log2 of a. With a = m 2^e, sqrt(1/2) <= m < sqrt(2), it is a series in (m-1)/(m+1) to
 *  its 17th power. */
static f32x16 v_log_f32(f32x16 a) {
    static const double series[] = {
        0x1.71547652b82fep+1,      0x1.71547652b82fep+1 / 3,  0x1.71547652b82fep+1 / 5,
        0x1.71547652b82fep+1 / 7,  0x1.71547652b82fep+1 / 9,  0x1.71547652b82fep+1 / 11,
        0x1.71547652b82fep+1 / 13, 0x1.71547652b82fep+1 / 15, 0x1.71547652b82fep+1 / 17};
    a = flush_f32(a);
    u64x16 bits = (u64x16)widen(a), offset = bits - UINT64_C(0x3fe6a09e667f3bcd); // sqrt(1/2)
    i64x16 exponent = (i64x16)offset >> 52;
    f64x16 m = (f64x16)(bits - ((u64x16)exponent << 52)), s = (m - 1) / (m + 1);
    f64x16 log = __builtin_convertvector(exponent, f64x16) + s * polynomial(s * s, series, 9);
    f32x16 out = choose((u32x16)(a == infinity16()), a, narrow(log));
    out = choose((u32x16)(a == 0), -infinity16(), out);
    return choose((u32x16)(a < 0) | is_nan(a), nan16(), out);
}

/** Returns sin(2 pi x) for |x| <= 1/4, by a series to x's 15th power. */
static f64x16 sine_of_turns(f64x16 x) {
    static const double series[] = {
        0x1.921fb54442d18p+2, -0x1.4abbce625be53p+5, 0x1.466bc6775aae2p+6, -0x1.32d2cce62bd86p+6,
        0x1.50783487ee782p+5, -0x1.e3074fde8871fp+3, 0x1.e8f434d018d63p+1, -0x1.6fadb9f155744p-1};
    return x * polynomial(x * x, series, 8);
}

/** Returns sin(2 pi x), with x reduced to half a turn on either side. */
static f32x16 turns(f64x16 x) {
    x -= __builtin_elementwise_roundeven(x);
    u64x16 far = (u64x16)(x > 0.25) | (u64x16)(x < -0.25);
    f64x16 mirrored = __builtin_elementwise_copysign((f64x16){} + 0.5, x) - x;
    x = (f64x16)((far & (u64x16)mirrored) | (~far & (u64x16)x));
    return narrow(sine_of_turns(x));
}

/** Returns the input, which counts revolutions, or 0 beyond 256 of them. */
static f64x16 in_domain(f32x16 a) {
    u32x16 inside = (u32x16)(a >= -256) & (u32x16)(a <= 256);
    return widen((f32x16)((u32x16)flush_f32(a) & inside));
}

static u32x16 is_invalid(f32x16 a) {
    return is_nan(a - a);
} // infinities and NaN

static f32x16 v_sin_f32(f32x16 a) {
    return choose(is_invalid(a), nan16(), turns(in_domain(a)));
}
static f32x16 v_cos_f32(f32x16 a) {
    return choose(is_invalid(a), nan16(), turns(in_domain(a) + 0.25));
}

// ---- f16: computed as f32, rounded once more; the ISA allows 1 ulp

static f32x16 v_rcp_f16(f32x16 a) {
    return 1.0f / a;
}
static f32x16 v_sqrt_f16(f32x16 a) {
    return __builtin_elementwise_sqrt(a);
}
static f32x16 v_rsq_f16(f32x16 a) {
    return 1.0f / __builtin_elementwise_sqrt(a);
}
static f32x16 v_exp_f16(f32x16 a) {
    return v_exp_f32(a);
}
static f32x16 v_log_f16(f32x16 a) {
    return v_log_f32(a);
}
static f32x16 v_sin_f16(f32x16 a) {
    return v_sin_f32(a);
}
static f32x16 v_cos_f16(f32x16 a) {
    return v_cos_f32(a);
}

// ---- f64: hardware gives about 2^-28 for the reciprocals; ours are exact to the last bit

static f64x8 v_rcp_f64(f64x8 a) {
    return 1.0 / a;
}
static f64x8 v_rsq_f64(f64x8 a) {
    return 1.0 / __builtin_elementwise_sqrt(a);
}
static f64x8 v_sqrt_f64(f64x8 a) {
    return __builtin_elementwise_sqrt(a);
}

// ---- 53 digits of 2/pi, for reducing large angles

/** The number of binary digits of 2/pi after the point, most significant first. The instruction
 *  takes the rest for 0. */
enum { DIGITS = 1201 };

static const uint64_t two_over_pi[] = {
    0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484,
    0xe99c7026b45f7e41, 0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f,
    0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7, 0x4f463f669e5fea2d, 0x7527bac7ebe5f17b,
    0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab,
};

static uint64_t digits(uint32_t first) {
    uint64_t out = 0;
    for (uint32_t i = first; i < first + 53; i++) {
        const uint64_t digit = i < DIGITS ? two_over_pi[i / 64] >> (63 - i % 64) & 1 : 0;
        out = out << 1 | digit;
    }
    return out;
}

/** Returns group b of 53 digits, further on for larger a. A power of two keeps the digits of the
 *  largest a from vanishing. */
static u64x8 v_trig_preop_f64(u64x8 a, u64x8 b) {
    for (unsigned i = 0; i < 8; i++) {
        uint32_t exponent = (uint32_t)(a[i] >> 52 & 2047), first = (uint32_t)(b[i] & 31) * 53;
        first += exponent > 1077 ? exponent - 1077 : 0;
        const int scale = -53 - (int)first + (exponent >= 1968 ? 128 : 0);
        a[i] = f64_bits(ldexp((double)(int64_t)digits(first), scale));
    }
    return a;
}

// ---- scalars

static void scalar_f32(sim_wave *w, const sim_inst *inst, f32x16 (*op)(f32x16)) {
    uint32_t tmp[SIM_LANES];
    f32x16 result = op((f32x16)load16(sim_row32(w, inst, 0, tmp)));
    sim_write32(w, &inst->dst[0], ((u32x16)result)[0]);
}

static void scalar_f16(sim_wave *w, const sim_inst *inst, f32x16 (*op)(f32x16)) {
    uint32_t tmp[SIM_LANES];
    f32x16 source = f32_of_f16(load16(sim_row32(w, inst, 0, tmp)) & 0xffff);
    sim_write32(w, &inst->dst[0], f16_of_f32(op(source))[0]);
}

// clang-format off
// X(shape, type, name, types, chips, known, further properties)
#define LIST(X) \
    X(1, f32, v_rcp_f32, "f:f", ALL, 'l') \
    X(1, f32, v_rcp_iflag_f32, "f:f", ALL, 'l') \
    X(1, f32, v_rsq_f32, "f:f", ALL, 'l') \
    X(1, f32, v_sqrt_f32, "f:f", ALL, 'l') \
    X(1, f32, v_exp_f32, "f:f", ALL, 'l') \
    X(1, f32, v_log_f32, "f:f", ALL, 'l') \
    X(1, f32, v_sin_f32, "f:f", ALL, '?') \
    X(1, f32, v_cos_f32, "f:f", ALL, '?') \
    X(1, f16, v_rcp_f16, "h:h", ALL, 'i', SIM_HAS_POLE) \
    X(1, f16, v_rsq_f16, "h:h", ALL, 'i', SIM_HAS_POLE) \
    X(1, f16, v_sqrt_f16, "h:h", ALL, 'i') \
    X(L1, f16, v_exp_f16, "h:h", ALL, 'i') \
    X(L1, f16, v_log_f16, "h:h", ALL, 'i', SIM_HAS_POLE) \
    X(L1, f16, v_sin_f16, "h:h", ALL, '?') \
    X(L1, f16, v_cos_f16, "h:h", ALL, '?') \
    X(W1, f64, v_rcp_f64, "d:d", ALL, '?') \
    X(W1, f64, v_rsq_f64, "d:d", ALL, '?') \
    X(W1, f64, v_sqrt_f64, "d:d", ALL, '?')

// gfx12 has some of them for scalars, encoded like vector instructions.
#define SCALAR(X) X(exp) X(log) X(rcp) X(rsq) X(sqrt)
#define WRAP_SCALAR(name) \
    static void exec_v_s_##name##_f32(sim_wave *w, const sim_inst *inst) { scalar_f32(w, inst, v_##name##_f32); } \
    static void exec_v_s_##name##_f16(sim_wave *w, const sim_inst *inst) { scalar_f16(w, inst, v_##name##_f16); }

#define ROW(name, function, archs, known, types, ...) \
    SIM_ROW(#name, exec_##function, archs, SIM_VALU, known, types, \
            .unit = SIM_UNIT_TRANS __VA_OPT__(, .is =) __VA_ARGS__)
#define LINE(shape, type, name, types, archs, known, ...) ROW(name, name, archs, known, types, __VA_ARGS__)
#define LINE_SCALAR(name) \
    ROW(v_s_##name##_f32, v_s_##name##_f32, GFX12, 'l', "f:f") \
    ROW(v_s_##name##_f16, v_s_##name##_f16, GFX12, 'l', "h:h")

LIST(VALU_WRAP)
VALU_WRAP(W2, u64, v_trig_preop_f64, "d:di", ALL, 'i')
SCALAR(WRAP_SCALAR)
static const sim_opcode opcodes[] = {LIST(LINE) SCALAR(LINE_SCALAR)
    VALU_LINE(W2, u64, v_trig_preop_f64, "d:di", ALL, 'i')
    // GCN3's older approximations: the same functions, less exact in hardware
    ROW(v_exp_legacy_f32, v_exp_f32, GFX9, '?', "f:f") ROW(v_log_legacy_f32, v_log_f32, GFX9, '?', "f:f")};
// clang-format on
SIM_TABLE(sim_ops_valu_transcendental, opcodes);
