// SPDX-License-Identifier: Apache-2.0
// What the files of attention's backward pass share: its problem, and its definition.
#ifndef QNI_ATTENTION_BACKWARD_H
#define QNI_ATTENTION_BACKWARD_H

#include "../attention/attention.h"
#include "attention_backward_abi.h"

#include <quern/attention_backward.h>

/** A valid problem of op "attention_backward": attention_backward_args.c has checked everything. */
typedef struct qni_backward_problem {
    qni_attention_problem forward; // its args hold what `args` holds
    qk_backward_args args;         // as kernels take it; on the CPU the schedule is in host memory
    qni_dtype dtype_dq, dtype_dk, dtype_dv, dtype_dmask;
    uint32_t requests;
} qni_backward_problem;

enum { QNI_BACKWARD_PAD = 16 }; // a row of dq_sum has whole runs of so many elements

extern const qni_op qni_op_attention_backward;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Checks a call and fills the problem. attention_backward_args.c. */
qn_status qni_backward_make(const qn_stream *stream, const qn_attention_backward_args *args,
                            qni_backward_problem *p);

/** Returns the bytes of workspace that Hopper's kernels need, in place of others'; 0: they do not
 *  take such tensors, or are not for the device. hopper/backward_wgmma.c. */
int64_t qni_backward_wgmma_bytes(const qni_backward_problem *p, const qn_device *device);

/** Launches the kernels of the mask's and the sinks' gradients, which read delta. `mask` and
 *  `sinks` are their places among the variant's kernels. attention_backward_launch.c. */
qn_status qni_backward_others(const qni_variant *variant, qn_stream *stream, const void *problem,
                              int mask, int sinks);

/** Values, and how far off a kernel's may be before they are rounded. */
typedef struct qni_bounded {
    double *value, *bound;
} qni_bounded;

/** Gradients of one request and kv head by the definition, in f64: [qo_len, group, head_dim_qk],
 *  [kv_len, head_dim_qk], [kv_len, head_dim_vo]; of the whole mask, in its own shape, and of all
 *  sinks, where they are asked for. All begin with zeros. */
typedef struct qni_gradients {
    qni_bounded dq, dk, dv, dmask, dsinks;
} qni_gradients;

/** Adds to *out what the request's heads of one kv head give. Reads host memory. Returns false if
 *  there is no memory. attention_backward_ref.c. */
bool qni_backward_ref(const qni_backward_problem *p, const qk_attention_request *r,
                      uint32_t request, uint32_t kv_head, const qni_gradients *out);

#endif
