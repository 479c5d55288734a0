// SPDX-License-Identifier: Apache-2.0
// Integers of 16 bits in the lower halves of lanes, for one of them and for two at once (packed.c).
// The upper half of a source is ignored; that of a result is 0.
#ifndef SIM_HALF_H
#define SIM_HALF_H

#include "../exec.h"

static inline u32x16 low(u32x16 a) {
    return a & 0xffff;
}
static inline i32x16 sign(u32x16 a) {
    return (i32x16)(a << 16) >> 16;
}

static inline u32x16 limit_i16(i32x16 a) {
    i32x16 least = (i32x16){} - 32768, most = (i32x16){} + 32767;
    return low((u32x16)__builtin_elementwise_min(__builtin_elementwise_max(a, least), most));
}

static inline u32x16 v_add_u16(u32x16 a, u32x16 b) {
    return low(a + b);
}
static inline u32x16 v_sub_u16(u32x16 a, u32x16 b) {
    return low(a - b);
}
static inline u32x16 v_subrev_u16(u32x16 a, u32x16 b) {
    return low(b - a);
}
static inline u32x16 v_add_i16(u32x16 a, u32x16 b) {
    return low(a + b);
}
static inline u32x16 v_sub_i16(u32x16 a, u32x16 b) {
    return low(a - b);
}
static inline u32x16 v_mul_lo_u16(u32x16 a, u32x16 b) {
    return low(low(a) * low(b));
}
static inline u32x16 v_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return low(low(a) * low(b) + c);
}
static inline u32x16 v_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return low(low(a) * low(b) + c);
}
static inline u32x16 v_lshlrev_b16(u32x16 a, u32x16 b) {
    return low(b << (a & 15));
}
static inline u32x16 v_lshrrev_b16(u32x16 a, u32x16 b) {
    return low(b) >> (a & 15);
}
static inline u32x16 v_ashrrev_i16(u32x16 a, u32x16 b) {
    return low((u32x16)(sign(b) >> (i32x16)(a & 15)));
}
static inline u32x16 v_max_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_max(low(a), low(b));
}
static inline u32x16 v_min_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_min(low(a), low(b));
}
static inline u32x16 v_max_i16(u32x16 a, u32x16 b) {
    return low((u32x16)__builtin_elementwise_max(sign(a), sign(b)));
}
static inline u32x16 v_min_i16(u32x16 a, u32x16 b) {
    return low((u32x16)__builtin_elementwise_min(sign(a), sign(b)));
}

// ---- with clamp: the nearest number that the type has

static inline u32x16 saturated_v_add_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_min(low(a) + low(b), (u32x16){} + 0xffff);
}
static inline u32x16 saturated_v_sub_u16(u32x16 a, u32x16 b) {
    return __builtin_elementwise_sub_sat(low(a), low(b));
}
static inline u32x16 saturated_v_subrev_u16(u32x16 a, u32x16 b) {
    return saturated_v_sub_u16(b, a);
}
static inline u32x16 saturated_v_add_i16(u32x16 a, u32x16 b) {
    return limit_i16(sign(a) + sign(b));
}
static inline u32x16 saturated_v_sub_i16(u32x16 a, u32x16 b) {
    return limit_i16(sign(a) - sign(b));
}
static inline u32x16 saturated_v_mad_u16(u32x16 a, u32x16 b, u32x16 c) {
    return __builtin_elementwise_min(low(a) * low(b) + low(c), (u32x16){} + 0xffff);
}
static inline u32x16 saturated_v_mad_i16(u32x16 a, u32x16 b, u32x16 c) {
    return limit_i16(sign(a) * sign(b) + sign(c));
}

#endif
