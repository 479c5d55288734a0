// SPDX-License-Identifier: Apache-2.0
// Matrix instructions sixteen outputs at a time: vector types, operand planes, the fused rules' parts.
//
// A strip is 16 neighbouring lanes of one result register. In every form they lie in one row of D (in
// the 4x4 forms: in the same row of four blocks) and in 16 neighbouring columns, so B comes from 16
// neighbouring slots of its plane and A from one slot (one for each quad).
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

enum { MFMA_STRIP = 16, MFMA_MAX_ELEMENTS = 1024 };

/** An operand by k, then by slot (block * rows + row): element (k, slot) at [k * slots + slot]. */
typedef struct mfma_plane {
    int slots;
    // fused rules: nothing special, and the largest exponent; else unused
    bool special;
    int largest;
    // The value, as its rule computes with it: f32 bits, sign-extended i8, or f64 bits by halves.
    _Alignas(64) uint32_t x[MFMA_MAX_ELEMENTS];
    _Alignas(64) int32_t m[MFMA_MAX_ELEMENTS], e[MFMA_MAX_ELEMENTS]; // fused rules: the term
} mfma_plane;

/** Where a strip finds its operands in the planes. */
typedef struct mfma_strip {
    int a, b;  // slots of the first lane
    bool quad; // lane l reads A at slot a + (l & ~3)
} mfma_strip;

static inline mfma_i32 mfma_select(mfma_i32 mask, mfma_i32 yes, mfma_i32 no) {
    return (mask & yes) | (~mask & no);
}
static inline mfma_i32 mfma_max(mfma_i32 a, mfma_i32 b) {
    return __builtin_elementwise_max(a, b);
}
static inline mfma_i32 mfma_min(mfma_i32 a, mfma_i32 b) {
    return __builtin_elementwise_min(a, b);
}
static inline mfma_i32 mfma_load(const void *p) {
    mfma_i32 x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
}
static inline void mfma_store(void *p, mfma_i32 x) {
    __builtin_memcpy(p, &x, sizeof x);
}

#define mfma_read_plane SIM_NAME(mfma_read_plane)
#define mfma_fused_strip SIM_NAME(mfma_fused_strip)
#define mfma_add_c SIM_NAME(mfma_add_c)

/** Reads A (side 0) or B into a plane, decoded for the form's rule. */
void mfma_read_plane(const mfma_form *f, sim_wave *w, const sim_inst *inst, int side,
                     mfma_plane *plane);

/** The fused rules for a strip: every group of products of both planes onto *c (f32 bits). The planes
 *  hold nothing special and no product reaches 2^126. */
void mfma_fused_strip(const mfma_form *f, const mfma_plane *a, const mfma_plane *b,
                      mfma_strip strip, mfma_i32 *c);

/** Ends a group of the fused rules for 16 outputs: *c (f32 bits) becomes c plus sum, a multiple of
 *  2^(e - 24), rounded as the rule says. Inf stays; NaN becomes MFMA_NAN32. */
void mfma_add_c(const mfma_form *f, const mfma_i32 *sum, const mfma_i32 *e, mfma_i32 *c);

#endif
