// SPDX-License-Identifier: Apache-2.0
// What the public functions of the rope family share: a call's tensors, the checks of these
// tensors, and the making of a problem.
#ifndef QNI_ROPE_CALL_H
#define QNI_ROPE_CALL_H

#include "../../runtime/tensor/read.h"
#include "rope.h"

/** One tensor of the call and its names; `in` null: there is none. */
typedef struct rope_tensor {
    const char *name, *out_name;
    const DLTensor *in;
    DLTensor *out; // null: the part goes to a cache, or is missing, which is an error
} rope_tensor;

enum { // tensors of a call: its parts, then those that are only read, and caches
    QNI_ROPE_IN,
    QNI_ROPE_OUT = QNI_ROPE_IN + QNI_ROPE_PARTS,
    QNI_ROPE_REST = QNI_ROPE_OUT + QNI_ROPE_PARTS,
    QNI_ROPE_MAX_TENSORS = QNI_ROPE_REST + 10
};

typedef struct rope_call {
    qni_call of;
    qn_stream *stream;
    rope_tensor parts[QNI_ROPE_PARTS];
    bool may_have_batches; // q and k may be [batch, n, heads, head_dim]
    bool has_norm;         // whole heads change, not only the part that turns
    qni_tensor t[QNI_ROPE_MAX_TENSORS];
    int num_rest;
} rope_call;

/** Returns room for one more tensor, beside those of the parts. */
static inline qni_tensor *qni_rope_next(rope_call *c) {
    return &c->t[QNI_ROPE_REST + c->num_rest++];
}
/** Reads one more tensor. */
qn_status qni_rope_read(rope_call *c, qni_tensor stated, const qni_tensor **out);
/** Reads q and k into a new problem; k may be null. */
qn_status qni_rope_read_q_k(rope_call *c, qni_rope_problem *p);
/** Sets the rotary dimension; dim 0: all of each head. Heads that are written in place then end
 *  where rotation ends. */
qn_status qni_rope_read_rotary_dim(const char *op, qni_rope_problem *p, int64_t dim);
/** Reads a cos_sin_cache, whose width is the rotary dimension, and positions, whose argument is
 *  called `name`. */
qn_status qni_rope_read_cache(rope_call *c, qni_rope_problem *p, const DLTensor *cache,
                              const DLTensor *positions, const char *name);
/** Checks that no output overlaps another tensor, then runs the op. */
qn_status qni_rope_run(const rope_call *c, const qni_rope_problem *p);

#endif
