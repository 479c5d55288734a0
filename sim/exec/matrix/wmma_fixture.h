// SPDX-License-Identifier: Apache-2.0
// For the tests of RDNA's matrix instructions: a wave, and small integers as elements of every
// type.
#ifndef SIM_EXEC_WMMA_FIXTURE_H
#define SIM_EXEC_WMMA_FIXTURE_H

#include "../../isa/isa.h"
#include "../../wave.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { A_REG = 8, B_REG = 16, C_REG = 24, D_REG = 40 };

static sim_wave *wave;

/** Returns an element of A (side 0), B or C, from -3 to 3. */
static inline int small_value(int side, int row, int k) {
    uint32_t h = (uint32_t)(side * 7919 + row * 1299709 + k * 15485863);
    h = (h ^ h >> 15) * 0x2c1b3c6d;
    return (int)((h ^ h >> 12) % 7) - 3;
}

/** Returns the bits of a small integer as 'i', 'f' f32, 'h' f16, 'w' bf16, '8' e4m3 or '5' e5m2. */
static inline uint32_t encode(int type, int x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint32_t sign = bits >> 31, fraction = bits & 0x7fffff,
                   exponent = (bits >> 23 & 255) - 127;
    switch (type) {
    case 'i':
        return (uint32_t)x;
    case 'f':
        return bits;
    case 'w':
        return bits >> 16;
    case 'h':
        return x == 0 ? 0 : sign << 15 | (exponent + 15) << 10 | fraction >> 13;
    case '8':
        return x == 0 ? 0 : sign << 7 | (exponent + 7) << 3 | fraction >> 20;
    default:
        return x == 0 ? 0 : sign << 7 | (exponent + 15) << 2 | fraction >> 21;
    }
}

/** Stores element `element` of `bits` bits, counted from the first bit of a register. */
static inline void put(int reg, int lane, int element, int bits, uint32_t x) {
    const int bit = element * bits;
    const uint32_t mask = (bits == 32 ? UINT32_MAX : (1u << bits) - 1) << bit % 32;
    uint32_t *at = &wave->v[reg + bit / 32][lane];
    *at = (*at & ~mask) | (x << bit % 32 & mask);
}

static inline int set_up(void **) {
    wave = aligned_alloc(64, sizeof *wave);
    return wave ? 0 : -1;
}

static inline int tear_down(void **) {
    free(wave);
    return 0;
}

#endif
