// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats: gfx942 has the FNUZ kinds (bias 8 and 16, one NaN 0x80, no infinities), gfx950
// and gfx12 the OCP kinds (bias 7 and 15). Source: "CDNA3" and "CDNA4" ISA; OCP 8-bit floating
// point specification.
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

/** Returns sixteen 8-bit floats as f32 patterns. */
static inline u32x16 sim_fp8_decode(const sim_fp8 *kind, u32x16 bits) {
    u32x16 magnitude = bits & 0x7f, sign = (bits & 0x80) << 24;
    const unsigned fraction = (unsigned)kind->mantissa_bits;
    u32x16 normal = (magnitude << (23 - fraction)) + ((uint32_t)(127 - kind->bias) << 23);
    const float unit =
        as_f32((uint32_t)(128 - kind->bias - kind->mantissa_bits) << 23); // of denormals
    u32x16 denormal = (u32x16)(__builtin_convertvector(magnitude, f32x16) * unit);
    u32x16 out = select16((u32x16)(magnitude >> fraction != 0), normal, denormal) | sign;
    if (kind->is_fnuz)
        return select16((u32x16)(bits == 0x80), (u32x16){} + 0x7fc00000, out);
    u32x16 infinite = (u32x16)(magnitude == 0x7c) & (kind->has_infinity ? UINT32_MAX : 0);
    out = select16((u32x16)(magnitude > kind->max_value), (u32x16){} + 0x7fc00000, out);
    return select16(infinite, sign | 0x7f800000, out);
}

/** Returns the code of a number beyond the largest one; with MODE.FP16_OVFL, the largest number's
 *  code. */
static inline uint32_t sim_fp8_overflow(const sim_fp8 *kind, bool saturate) {
    if (saturate)
        return kind->max_value;
    return kind->is_fnuz ? 0x80 : kind->has_infinity ? 0x7c : 0x7f;
}

/** Adds the sign to codes, and handles numbers beyond the largest one, NaNs and FNUZ's only
 *  zero. */
static inline u32x16 sim_fp8_finish(const sim_fp8 *kind, u32x16 bits, u32x16 out, bool saturate) {
    u32x16 sign = bits >> 31 << 7, over = (u32x16)(out > kind->max_value);
    out = select16(over, (u32x16){} + sim_fp8_overflow(kind, saturate), out);
    out = select16((u32x16)((bits & 0x7fffffff) > 0x7f800000),
                   (u32x16){} + (kind->is_fnuz ? 0x80 : 0x7f), out);
    u32x16 unsigned_zero = kind->is_fnuz ? (u32x16)((out & 0x7f) == 0) : (u32x16){};
    return out | (sign & ~unsigned_zero);
}

/** Rounds sixteen f32 patterns to nearest even. Denormal results are rounded by the addition of a
 *  number whose unit is theirs. */
static inline u32x16 sim_fp8_encode(const sim_fp8 *kind, u32x16 bits, bool saturate) {
    u32x16 magnitude = bits & 0x7fffffff;
    const unsigned fraction = (unsigned)kind->mantissa_bits, cut = 23 - fraction;
    u32x16 rounded = magnitude + ((1u << (cut - 1)) - 1) + (magnitude >> cut & 1);
    u32x16 normal = (rounded >> cut) - ((uint32_t)(127 - kind->bias) << fraction);
    const uint32_t magic = (uint32_t)(128 - kind->bias - kind->mantissa_bits + 23) << 23;
    u32x16 denormal = (u32x16)((f32x16)magnitude + as_f32(magic)) - magic;
    u32x16 is_small = (u32x16)(magnitude < (uint32_t)(128 - kind->bias) << 23);
    return sim_fp8_finish(kind, bits, select16(is_small, denormal, normal), saturate);
}

/** Rounds one f32 stochastically: if the cut takes n bits off, the top n bits of `random` are added
 *  before it. */
static inline uint32_t sim_fp8_encode_random(const sim_fp8 *kind, uint32_t bits, uint32_t random,
                                             bool saturate) {
    const uint32_t magnitude = bits & 0x7fffffff;
    int exponent = (int)(magnitude >> 23) - 127 + kind->bias; // of the result, if normal
    const uint64_t mantissa = (magnitude & 0x7fffff) | (magnitude >> 23 ? 0x800000 : 0);
    int cut = 23 - kind->mantissa_bits + (exponent < 1 ? 1 - exponent : 0);
    cut = cut > 56 ? 56 : cut; // from there on nothing is rounded up: mantissa < 2^24 = 2^(56-32)
    const uint64_t added = cut <= 32 ? random >> (32 - cut) : (uint64_t)random << (cut - 32);
    const uint64_t rounded =
        (mantissa + added) >> cut; // a carry runs into the exponent as it should
    const uint64_t out =
        rounded + (exponent < 1 ? 0 : (uint64_t)(exponent - 1) << kind->mantissa_bits);
    u32x16 block = (u32x16){} + (uint32_t)(out < 256 ? out : 255);
    return sim_fp8_finish(kind, (u32x16){} + bits, block, saturate)[0];
}

#endif
