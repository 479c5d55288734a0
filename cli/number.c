// SPDX-License-Identifier: Apache-2.0
// Number formats as doubles, and seeded random numbers.
#include "number.h"

#include <math.h>
#include <string.h>

static double get_f32(const char *at) {
    float value;
    memcpy(&value, at, sizeof value);
    return value;
}

static double get_f64(const char *at) {
    double value;
    memcpy(&value, at, sizeof value);
    return value;
}

/** Returns the double of a sign, exponent and mantissa in a binary format without infinities or
 *  NaN. */
static double assemble(bool is_negative, int exponent, int bias, int mantissa, int mantissa_bits) {
    const double size =
        exponent ? ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits)
                 : ldexp(mantissa, 1 - bias - mantissa_bits);
    return is_negative ? -size : size;
}

static double get_f16(const char *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    if (exponent == 31)
        return mantissa ? NAN : bits >> 15 ? -INFINITY : INFINITY;
    return assemble(bits >> 15, exponent, 15, mantissa, 10);
}

static double get_bf16(const char *at) {
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/** Decodes e4m3. OCP has a bias of 7, and its NaN is all ones; FNUZ has a bias of 8, and its NaN is
 *  0x80. */
static double decode_e4m3(uint8_t bits, bool is_fnuz) {
    if (is_fnuz ? bits == 0x80 : (bits & 0x7F) == 0x7F)
        return NAN;
    return assemble(bits >> 7, bits >> 3 & 15, is_fnuz ? 8 : 7, bits & 7, 3);
}

double cli_number_get(DLDataType dtype, const void *array, int64_t index) {
    const char *at = (const char *)array + index * (dtype.bits / 8);
    switch (dtype.code) {
    case kDLBfloat:
        return get_bf16(at);
    case kDLFloat8_e4m3fn:
        return decode_e4m3((uint8_t)*at, false);
    case kDLFloat8_e4m3fnuz:
        return decode_e4m3((uint8_t)*at, true);
    case kDLFloat:
        return dtype.bits == 64 ? get_f64(at) : dtype.bits == 32 ? get_f32(at) : get_f16(at);
    default:
        return NAN;
    }
}

uint16_t cli_to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

bool cli_same_dtype(DLDataType a, DLDataType b) {
    return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

/** Returns the next number of splitmix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom
 *  number generators", 2014. */
uint64_t cli_random_next(cli_random *random) {
    uint64_t z = random->state += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

/** Returns a uniform number in (0, 1). */
static double uniform(cli_random *random) {
    return ((double)(cli_random_next(random) >> 11) + 0.5) * 0x1p-53;
}

double cli_random_normal(cli_random *random) {
    const double radius = sqrt(-2 * log(uniform(random)));
    return radius * cos(2 * M_PI * uniform(random));
}
