// SPDX-License-Identifier: Apache-2.0
// What the rope family's public functions share: a call's tensors, their checks, and how they
// become a problem.
#ifndef QNI_ROPE_CALL_H
#define QNI_ROPE_CALL_H

#include "rope.h"

/** One tensor of the call, by its names; in null: there is none. */
typedef struct rope_tensor {
    const char *name, *out_name;
    const DLTensor *in;
    DLTensor *out; // null: the part goes to a cache, or is missing, which is an error
} rope_tensor;

typedef struct rope_call {
    const char *op;
    qn_stream *stream;
    rope_tensor parts[QNI_ROPE_PARTS];
    bool may_have_batches; // q and k may be [batch, n, heads, head_dim]
    bool has_norm;         // whole heads change
} rope_call;

/** What is only read; an array of them ends with an empty one. */
typedef struct rope_read {
    const char *name;
    const DLTensor *t;
} rope_read;

/** A new problem with q and k; k may be null. */
qn_status qni_rope_set_q_k(const rope_call *c, qni_rope_problem *p);
/** dim 0: all of the heads. Heads in place then end where rotation does. */
qn_status qni_rope_set_rotary_dim(const char *op, qni_rope_problem *p, int64_t dim);
/** Angles from a cos_sin_cache, whose width is the rotary dimension, at positions called `name`. */
qn_status qni_rope_set_cache(const rope_call *c, qni_rope_problem *p, const DLTensor *cache,
                             const DLTensor *positions, const char *name);
/** What is written meets nothing; then runs. */
qn_status qni_rope_run(const rope_call *c, const rope_read *read, const qni_rope_problem *p);

#endif
