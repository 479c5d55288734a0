// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats: gfx942 has the FNUZ kinds (bias 8 and 16, one NaN 0x80, no infinities), gfx950 and gfx12 the
// OCP kinds (bias 7 and 15). Source: shared notes of published chip behaviour and the OCP 8-bit format document.
#ifndef SIM_FP8_H
#define SIM_FP8_H

#include "exec.h"

typedef struct sim_fp8 {
    int exponent_bits, mantissa_bits, bias;
    bool is_fnuz;
    bool has_infinity;  // OCP e5m2
    uint32_t max_value; // bits of the largest finite number
} sim_fp8;

static const sim_fp8 sim_e4m3fnuz = {4, 3, 8, true, false, 0x7f},
                     sim_e5m2fnuz = {5, 2, 16, true, false, 0x7f},
                     sim_e4m3fn = {4, 3, 7, false, false, 0x7e},
                     sim_e5m2 = {5, 2, 15, false, true, 0x7b};

static inline float sim_fp8_decode(const sim_fp8 *kind, uint32_t bits) {
    uint32_t magnitude = bits & 0x7f, mantissa = magnitude & ((1u << kind->mantissa_bits) - 1);
    int exponent = (int)(magnitude >> kind->mantissa_bits);
    if (kind->is_fnuz ? bits == 0x80
                      : magnitude > kind->max_value && !(kind->has_infinity && magnitude == 0x7c)) {
        return as_f32(0x7fc00000);
    }
    if (kind->has_infinity && magnitude == 0x7c) {
        return as_f32(bits & 0x80 ? 0xff800000 : 0x7f800000);
    }
    int lead = exponent ? 1 << kind->mantissa_bits : 0; // denormals have no leading one
    int power = (exponent ? exponent : 1) - kind->bias - kind->mantissa_bits;
    float value = (float)(lead + (int)mantissa) * as_f32((uint32_t)(power + 127) << 23);
    return bits & 0x80 ? -value : value;
}

/** What a number beyond the largest becomes: MODE.FP16_OVFL chooses the largest number instead. */
static inline uint32_t sim_fp8_overflow(const sim_fp8 *kind, bool saturate) {
    if (saturate) {
        return kind->max_value;
    }
    return kind->is_fnuz ? 0x80 : kind->has_infinity ? 0x7c : 0x7f;
}

/** Rounds to nearest even, or, where `random` is not null, stochastically: random bits are added to the part that
 *  is cut off. */
static inline uint32_t sim_fp8_encode(const sim_fp8 *kind, float value, const uint32_t *random,
                                      bool saturate) {
    uint32_t bits = f32_bits(value), sign = bits >> 31 << 7, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
        return kind->is_fnuz ? 0x80 : sign | 0x7f;
    }
    if (magnitude == 0x7f800000) {
        uint32_t out = sim_fp8_overflow(kind, saturate);
        return kind->is_fnuz && out == 0x80 ? out : sign | out;
    }
    int exponent = (int)(magnitude >> 23) - 127 + kind->bias; // of the result, if normal
    uint64_t mantissa = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000 : 0);
    int cut = 23 - kind->mantissa_bits + (exponent < 1 ? 1 - exponent : 0);
    cut = cut > 40 ? 40 : cut;
    uint64_t unit = UINT64_C(1) << cut, kept = mantissa >> cut;
    uint64_t added = unit / 2 - 1 + (kept & 1);
    if (random) { // as many top bits of the random number as are cut off
        added = cut <= 32 ? *random >> (32 - cut) : (uint64_t)*random << (cut - 32);
    }
    uint64_t rounded = (mantissa + added) >> cut; // a carry runs into the exponent as it should
    uint64_t out = rounded + (exponent < 1 ? 0 : (uint64_t)(exponent - 1) << kind->mantissa_bits);
    if (out > kind->max_value) {
        uint32_t over = sim_fp8_overflow(kind, saturate);
        return kind->is_fnuz && over == 0x80 ? over : sign | over;
    }
    return out == 0 && kind->is_fnuz ? 0 : sign | (uint32_t)out;
}

#endif
