// SPDX-License-Identifier: Apache-2.0
// What the files of the rope family share: one problem for all of the family's functions, its
// angles, and the definition.
#ifndef QNI_ROPE_H
#define QNI_ROPE_H

#include "../kvcache/pages_abi.h"
#include "../shared/elements.h"

#include <quern/rope.h>

/** Where a token's angles come from; the values are those of rope_abi.h. */
typedef enum qni_rope_angles {
    QNI_ROPE_BY_FREQUENCY, // position times frequency
    QNI_ROPE_BY_POSITION,  // row `position` of the tables
    QNI_ROPE_BY_TOKEN      // row t % inner of the tables
} qni_rope_angles;

/** Tensors of one call: q and k turn, the others are only scaled. */
enum {
    QNI_ROPE_Q,
    QNI_ROPE_K,
    QNI_ROPE_Q_NOPE,
    QNI_ROPE_K_NOPE,
    QNI_ROPE_V,
    QNI_ROPE_PARTS,
    QNI_ROPE_MAX_PAIRS = 256 // of which frequencies are given
};

/** Rows of [batch, token, head, width]. Strides are in elements; heads 0: there are no such
 *  rows. */
typedef struct qni_rope_rows {
    const void *in;
    void *out;
    const void *weight; // of the heads' RMSNorm; null: none
    int64_t in_batch, in_token, in_head;
    int64_t out_batch, out_token, out_head; // paged: of a page, a place in it, a head
    int64_t heads, width;
    float scale; // FP8: elements are multiplied by it
    bool is_paged;
} qni_rope_rows;

/** How frequencies are computed, in f32 as the caller gave the numbers; high_freq_factor 0: not
 *  Llama 3.1's way. */
typedef struct qni_rope_law {
    float theta, scale, low_freq_factor, high_freq_factor;
    int64_t old_context_len;
} qni_rope_law;

/** A valid problem: rope.c has checked everything. Token t is t % inner of batch t / inner. */
typedef struct qni_rope_problem {
    qni_dtype dtype, dtype_out, dtype_table;
    int64_t n, inner;
    qni_rope_rows parts[QNI_ROPE_PARTS];
    int64_t rotary_dim;
    bool is_interleaved;
    float eps;
    qni_rope_angles angles;
    qni_rope_law law;
    const int32_t *pos_ids;          // [n]; null: by segments
    const int32_t *indptr, *offsets; // the segments, if pos_ids is null
    int64_t segments;
    const void *cos, *sin; // rows of pairs
    int64_t table_row, table_step;
    qk_pages pages;
} qni_rope_problem;

extern const qni_op qni_op_rope;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE
/** Flags of what a GPU kernel is made for: heads that are normed first, FP8 results. */
enum { QNI_ROPE_NORM = 1, QNI_ROPE_QUANT = 2 };

/** Computes each pair's turns a position, in units of 2^-64, without whole turns: position * turns,
 *  modulo 2^64, is the angle. The result is off by 2^-62 of a turn at most. rope_launch.c. */
void qni_rope_turns(const qni_rope_law *law, int64_t rotary_dim, uint64_t *turns);
/** Gives token t's position; returns false if t is in no segment. Reads host memory. */
bool qni_rope_position(const qni_rope_problem *p, int64_t t, int64_t *position);

/** Returns where token t's rows begin; qni_rope_out, where its results begin, below 0 if the token
 *  has no place in the cache. */
static inline int64_t qni_rope_in(const qni_rope_problem *p, const qni_rope_rows *r, int64_t t) {
    return t / p->inner * r->in_batch + t % p->inner * r->in_token;
}
static inline int64_t qni_rope_out(const qni_rope_problem *p, const qni_rope_rows *r, int64_t t) {
    if (!r->is_paged)
        return t / p->inner * r->out_batch + t % p->inner * r->out_token;
    const qk_place at = qk_find_place(&p->pages, t);
    return at.page < 0 ? -1 : at.page * r->out_batch + at.place * r->out_token;
}

/** Computes one head of one token of a part by the definition, in extended precision: y has room
 *  for the head's width, x for what is rotated, and for the norm behind it. Reads host memory.
 *  rope_ref.c. */
void qni_rope_ref_head(const qni_rope_problem *p, int part, int64_t t, int64_t head,
                       int64_t position, double *x, double *y);
/** How far a kernel's cosines and sines may be off if they are computed from frequencies. */
constexpr double qni_rope_angle_error = 0x1p-21;

/** Shares tokens among the CPU's threads: rope_cpu.c. */
typedef void (*qni_rope_tokens_fn)(const qni_rope_problem *p, const uint64_t *turns, int64_t first,
                                   int64_t last, float *scratch);
qn_status qni_rope_on_threads(const qni_rope_problem *p, qni_rope_tokens_fn tokens);
/** Returns the floats of a token's cosines or sines, rounded up to a multiple of what any kernel
 *  takes at a time. */
static inline int64_t qni_rope_angle_room(int64_t rotary_dim) {
    return (rotary_dim / 2 + 31) / 32 * 32;
}
/** Returns the floats of a thread's scratch: a token's cosines and sines, and a head. */
static inline int64_t qni_rope_scratch(int64_t width, int64_t rotary_dim) {
    return 2 * qni_rope_angle_room(rotary_dim) + width;
}

#endif
