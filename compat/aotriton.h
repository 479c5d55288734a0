// SPDX-License-Identifier: Apache-2.0
// What the files of AOTriton's calls share: one call's arguments, their checks, numbers that may
// lie on either side.
#ifndef QNI_AOTRITON_H
#define QNI_AOTRITON_H

#include "../runtime/runtime.h"

#include <quern/attention.h>
#include <quern/compat/aotriton.h>

/** Parameters that both attention calls have; the header says what they are. */
typedef struct qni_aotriton_call {
    const char *op; // for messages
    qn_stream *stream;
    const DLTensor *q, *k, *v, *b;
    DLTensor *softmax_lse, *out;
    const DLTensor *cu_seqlens_q, *cu_seqlens_k;
    float sm_scale, dropout_p;
    const DLTensor *philox_seed, *philox_offset1;
    int64_t philox_offset2;
    DLTensor *philox_seed_output, *philox_offset_output;
    const DLTensor *encoded_softmax;
    int32_t is_causal;
    const qn_aotriton_ext *ext;
} qni_aotriton_call;

/** A failure of quern's, under the name of the call that was made. */
static inline qn_status qni_aotriton_under(const char *op, qn_status st) {
    return st == QN_OK ? st : QN_FAIL(st, "%s: %s", op, qn_last_error());
}

/** Whether the caller gave the tensor: AOTriton's empty views have no data. One that is misshapen
 *  is there, to be refused. */
static inline bool qni_aotriton_is_there(const DLTensor *t) {
    const bool has_sizes = t && t->ndim >= 0 && t->ndim <= 4 && (t->ndim == 0 || t->shape);
    return t && t->data && (!has_sizes || !qni_is_empty(t));
}

static inline DLTensor qni_host_tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
}

/** As qni_check_tensor, for tensors that may lie on the host as well. */
qn_status qni_aotriton_check_on_either(const qn_stream *stream, const char *op, const char *name,
                                       const DLTensor *t, int ndim);
/** The number in a tensor; absent: 0. Waits for the stream if it lies on a GPU. */
qn_status qni_aotriton_read_number(qn_stream *stream, const char *op, const char *name,
                                   const DLTensor *t, uint64_t *out);

/** q, k, v are there, of four dimensions and a dtype that is accepted. */
qn_status qni_aotriton_check_operands(const qni_aotriton_call *c);
qn_status qni_aotriton_check_operand(const qni_aotriton_call *c, const char *name,
                                     const DLTensor *t);
/** out, and softmax_lse of `rows` times q's tokens, have the shapes that q and v give them. */
qn_status qni_aotriton_check_outputs(const qni_aotriton_call *c, int64_t rows);
/** sm_scale, dropout_p, ext, encoded_softmax. */
qn_status qni_aotriton_check_scalars(const qni_aotriton_call *c);
/** ext's workspace has these bytes, and what is written overlaps nothing; *out is null where none
 *  are needed. */
qn_status qni_aotriton_take_workspace(const qni_aotriton_call *c, int64_t bytes, DLTensor **out);
/** Reads dropout's numbers into args, and runs; then writes those that it took where the caller
 *  wants them. */
qn_status qni_aotriton_run(const qni_aotriton_call *c, qn_attention_args *args);

/** A tensor over another's memory; must stay where it was made. */
typedef struct qni_aotriton_view {
    DLTensor t;
    int64_t shape[3], strides[3];
} qni_aotriton_view;

/** The dimensions `dims` of t, up to three, in that order. */
DLTensor *qni_aotriton_make_view(qni_aotriton_view *out, const DLTensor *t, int ndim,
                                 const int *dims);

#endif
