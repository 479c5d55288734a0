// SPDX-License-Identifier: Apache-2.0
// A computation of some thousand different steps: unrolled, a kernel of 100 KB that runs each
// instruction once.
#ifndef BENCH_STRAIGHT_H
#define BENCH_STRAIGHT_H

#include <stdint.h>

enum { STRAIGHT_STEPS = 6200, STRAIGHT_LANES = 64 };

static inline uint32_t straight_step(uint32_t x, uint32_t *y, uint32_t i) {
    const uint32_t shift = i % 31 + 1;
    switch (i % 9) {
    case 0:
        return x * (2 * i + 3) + *y;
    case 1:
        return x ^ x >> shift;
    case 2:
        return (x << shift | x >> (32 - shift)) + i * 0x9e3779b9u;
    case 3:
        *y += x & i * 0x85ebca6bu;
        return x - *y;
    case 4:
        return (uint32_t)((uint64_t)x * (*y | 1) >> 32) + x;
    case 5:
        return x > *y ? x ^ i : *y - x;
    case 6:
        return x + (uint32_t)__builtin_popcount(*y ^ i);
    case 7:
        *y ^= x << shift;
        return ~x | *y >> 3;
    default:
        return (x >> shift % 24 & 0xff) * 0x01000193u ^ *y;
    }
}

#endif
