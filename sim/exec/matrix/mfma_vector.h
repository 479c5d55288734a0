// SPDX-License-Identifier: Apache-2.0
// Executes matrix instructions sixteen outputs at a time: vector types, planes of operands, and
// parts of the fused rules.
//
// A strip is 16 neighbouring lanes of one result register. In every form a strip lies in one row of
// D (in 4x4 forms in one row of each of four blocks) and in 16 neighbouring columns. B therefore
// comes from 16 neighbouring slots of its plane, and A from one slot (one for each quad).
#ifndef SIM_EXEC_MFMA_VECTOR_H
#define SIM_EXEC_MFMA_VECTOR_H

#include "mfma.h"

typedef float mfma_f32 __attribute__((vector_size(64)));
typedef int32_t mfma_i32 __attribute__((vector_size(64)));
typedef uint32_t mfma_u32 __attribute__((vector_size(64)));
typedef int32_t mfma_i32x8 __attribute__((vector_size(32)));
typedef float mfma_f32x8 __attribute__((vector_size(32)));
typedef int64_t mfma_i64 __attribute__((vector_size(64)));
typedef double mfma_f64 __attribute__((vector_size(64)));

#define MFMA_INLINE static inline __attribute__((always_inline))

enum { MFMA_STRIP = 16, MFMA_MAX_ELEMENTS = 1024 };

/** An operand, ordered by k and then by slot = block * rows + row: element (k, slot) lies at
 *  [k * slots + slot]. */
typedef struct mfma_plane {
    int slots;
    uint64_t special; // fused rules: bit i: slot i holds an Inf or a NaN; they lie here as zeros
    int largest;      // fused rules: exponent
    // The value, as its rule computes with it: f32 bits, sign-extended i8, or f64 bits by halves.
    _Alignas(64) uint32_t x[MFMA_MAX_ELEMENTS];
    _Alignas(64) int32_t m[MFMA_MAX_ELEMENTS], e[MFMA_MAX_ELEMENTS]; // fused rules: the term
} mfma_plane;

/** The places of a strip's operands in the planes. */
typedef struct mfma_strip {
    int slots; // of either plane
    int a, b;  // slots of the first lane
    bool quad; // lane l reads A at slot a + (l & ~3)
} mfma_strip;

/** Returns the places of strip `at` (lanes 16 at to 16 at + 15) of result register `reg`, for
 *  32-bit results of n columns, as mfma_place_of gives them for the strip's first lane. */
MFMA_INLINE mfma_strip mfma_strip_of(int n, int slots, int reg, int at) {
    if (n == 32) {
        const int block = reg / 16 * 32, row = reg / 4 % 4 * 8 + at / 2 * 4 + reg % 4;
        return (mfma_strip){slots, block + row, block + at % 2 * MFMA_STRIP, false};
    }
    if (n == 16) {
        const int block = reg / 4 * 16;
        return (mfma_strip){slots, block + at * 4 + reg % 4, block, false};
    }
    return (mfma_strip){slots, at * MFMA_STRIP + reg, at * MFMA_STRIP, true};
}

MFMA_INLINE mfma_i32 mfma_splat(int32_t x) {
    return (mfma_i32){0} + x;
}
MFMA_INLINE mfma_i32 mfma_select(mfma_i32 mask, mfma_i32 yes, mfma_i32 no) {
    return (mask & yes) | (~mask & no);
}
MFMA_INLINE mfma_i32 mfma_max(mfma_i32 a, mfma_i32 b) {
    return __builtin_elementwise_max(a, b);
}
MFMA_INLINE mfma_i32 mfma_min(mfma_i32 a, mfma_i32 b) {
    return __builtin_elementwise_min(a, b);
}
MFMA_INLINE mfma_i32 mfma_load(const void *p) {
    mfma_i32 x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
MFMA_INLINE void mfma_store(void *p, mfma_i32 x) {
    __builtin_memcpy(p, &x, sizeof x);
}

typedef mfma_i32 mfma_strip_rule(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                 mfma_strip s, mfma_i32 c);

/** Runs a loop of mfma_each_strip, with n and slots known to the compiler. */
MFMA_INLINE void mfma_each_strip_of(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                    uint32_t d[][SIM_LANES], mfma_strip_rule *rule, int n,
                                    int slots) {
    for (int reg = 0; reg < n * slots / SIM_LANES; reg++) {
        for (int at = 0; at < SIM_LANES / MFMA_STRIP; at++) {
            uint32_t *strip = d[reg] + at * MFMA_STRIP;
            mfma_store(strip, rule(f, a, b, mfma_strip_of(n, slots, reg, at), mfma_load(strip)));
        }
    }
}

/** Replaces C by D in every strip of `d`; inlined together with its rule. */
MFMA_INLINE void mfma_each_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                                 uint32_t d[][SIM_LANES], mfma_strip_rule *rule) {
    if (a->slots == 16)
        mfma_each_strip_of(f, a, b, d, rule, 16, 16);
    else if (a->slots == 32)
        mfma_each_strip_of(f, a, b, d, rule, 32, 32);
    else if (f->n == 32)
        mfma_each_strip_of(f, a, b, d, rule, 32, SIM_LANES);
    else if (f->n == 16)
        mfma_each_strip_of(f, a, b, d, rule, 16, SIM_LANES);
    else
        mfma_each_strip_of(f, a, b, d, rule, 4, SIM_LANES);
}

/** Returns a strip of one of A's planes: one element for all lanes, or one for each quad. */
MFMA_INLINE mfma_i32 mfma_a_strip(const void *plane, mfma_strip s, int k) {
    const int32_t *from = (const int32_t *)plane + k * s.slots + s.a;
    mfma_i32 out = (mfma_i32){0} + *from;
    if (s.quad)
        for (int lane = 4; lane < MFMA_STRIP; lane++)
            out[lane] = from[lane & ~3];
    return out;
}

MFMA_INLINE mfma_i32 mfma_b_strip(const void *plane, mfma_strip s, int k) {
    return mfma_load((const int32_t *)plane + k * s.slots + s.b);
}

#define mfma_fused_tile SIM_NAME(mfma_fused_tile)
#define mfma_add_c SIM_NAME(mfma_add_c)

/** Applies the fused rules to a tile: replaces C by D in `d` (f32 bits). The planes hold neither
 *  infinities nor NaNs, and no product reaches 2^126. */
void mfma_fused_tile(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                     uint32_t d[][SIM_LANES]);

/** Ends a group of the fused rules for 16 outputs: adds to *c (f32 bits) the sum, a multiple of
 *  2^(e - 24), and rounds as the rule says. An infinity stays; a NaN becomes MFMA_NAN32. */
void mfma_add_c(const mfma_form *f, const mfma_i32 *sum, const mfma_i32 *e, mfma_i32 *c);

#endif
