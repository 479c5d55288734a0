// SPDX-License-Identifier: Apache-2.0
// Floats to integers.
#ifndef SIM_CONVERT_H
#define SIM_CONVERT_H

#include "../numbers.h"

static inline f32x16 zero_if_nan(f32x16 a) {
    return choose(is_nan(a), (f32x16){}, a);
}

/** Truncates and saturates. NaN becomes 0. */
static inline u32x16 to_i32(f32x16 a) {
    f32x16 low = (f32x16){} - 0x1p31f, high = (f32x16){} + 0x1.fffffep30f;
    f32x16 inside = min_number(max_number(zero_if_nan(a), low), high);
    u32x16 value = (u32x16) __builtin_convertvector(inside, i32x16);
    return select16((u32x16)(a >= 0x1p31f), (u32x16){} + INT32_MAX, value);
}

static inline u32x16 to_u32(f32x16 a) {
    f32x16 high = (f32x16){} + 0x1.fffffep31f;
    f32x16 inside = min_number(max_number(zero_if_nan(a), (f32x16){}), high);
    u32x16 value = __builtin_convertvector(inside, u32x16);
    return select16((u32x16)(a >= 0x1p32f), (u32x16){} + UINT32_MAX, value);
}

static inline f32x16 limit(f32x16 a, float low, float high) {
    return min_number(max_number(zero_if_nan(a), (f32x16){} + low), (f32x16){} + high);
}

#endif
