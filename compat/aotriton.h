// SPDX-License-Identifier: Apache-2.0
// What the files of AOTriton's calls share: a call's arguments, which are read once each under
// AOTriton's names, and numbers that may lie on the host or on the device.
#ifndef QNI_AOTRITON_H
#define QNI_AOTRITON_H

#include "../runtime/tensor/read.h"

#include <quern/attention.h>
#include <quern/attention_backward.h>
#include <quern/compat/aotriton.h>

/** The tensors of all attention calls. */
enum {
    QNI_AOT_Q,
    QNI_AOT_K,
    QNI_AOT_V,
    QNI_AOT_B,
    QNI_AOT_CU_Q,
    QNI_AOT_CU_K,
    QNI_AOT_SEED,
    QNI_AOT_OFFSET1,
    QNI_AOT_SEED_OUTPUT,
    QNI_AOT_OFFSET_OUTPUT,
    QNI_AOT_OUT,
    QNI_AOT_LSE,
    QNI_AOT_DOUT,
    QNI_AOT_DQ,
    QNI_AOT_DK,
    QNI_AOT_DV,
    QNI_AOT_DB,
    QNI_AOT_WORKSPACE,
    QNI_AOT_TENSORS
};

/** Parameters of the attention calls and their gradients'; the public header explains them. */
typedef struct qni_aotriton_call {
    const char *op; // for messages
    qn_stream *stream;
    const DLTensor *q, *k, *v, *b, *dout;
    const DLTensor *softmax_lse, *out; // written by the forward calls
    DLTensor *dq, *dk, *dv, *db;
    const DLTensor *cu_seqlens_q, *cu_seqlens_k;
    float sm_scale, dropout_p;
    const DLTensor *philox_seed, *philox_offset1;
    int64_t philox_offset2;
    DLTensor *philox_seed_output, *philox_offset_output;
    const DLTensor *encoded_softmax;
    int32_t is_causal;
    const qn_aotriton_ext *ext;
    qni_tensor t[QNI_AOT_TENSORS]; // what has been read
} qni_aotriton_call;

/** Returns quern's status; a failure's message gets the name of AOTriton's call. */
static inline qn_status qni_aotriton_under(const char *op, qn_status st) {
    return st == QN_OK ? st : QN_FAIL(st, "%s: %s", op, qn_last_error());
}

/** Returns whether the caller gave the tensor; AOTriton's empty views have no data. A misshapen
 *  tensor counts as given, and is refused later. */
static inline bool qni_aotriton_is_there(const DLTensor *t) {
    const bool has_sizes = t && t->ndim >= 0 && t->ndim <= 4 && (t->ndim == 0 || t->shape);
    return t && t->data && (!has_sizes || !qni_is_empty(t));
}

static inline DLTensor qni_host_tensor(void *data, DLDataType dtype, int32_t ndim, int64_t *shape) {
    return (DLTensor){
        .data = data, .device = {kDLCPU, 0}, .ndim = ndim, .dtype = dtype, .shape = shape};
}

/** Reads the number in a tensor; 0 if the tensor is absent. Waits for the stream if the tensor lies
 *  on a GPU. */
qn_status qni_aotriton_read_number(qn_stream *stream, const char *op, const char *name,
                                   const DLTensor *t, uint64_t *out);

/** States the tensor and reads it. */
qn_status qni_aotriton_read(qni_aotriton_call *c, int which, qni_tensor stated);
/** Reads q, k and v. `batch` is the batch that q must have; below 0: any. */
qn_status qni_aotriton_read_operands(qni_aotriton_call *c, int64_t batch);
/** Reads b of a dense call, which may be absent. */
qn_status qni_aotriton_read_b(qni_aotriton_call *c);
/** Reads out and softmax_lse, whose shapes follow from q and v. If they are written softmax_lse may
 *  be absent; else they are the forward pass's. */
qn_status qni_aotriton_read_outputs(qni_aotriton_call *c, bool are_written);
/** Reads dout, dq, dk and dv, and db, which may be absent. */
qn_status qni_aotriton_read_gradients(qni_aotriton_call *c);
/** Checks sm_scale, dropout_p, ext and encoded_softmax. */
qn_status qni_aotriton_check_scalars(const qni_aotriton_call *c);
/** Reads ext's workspace, which must have so many bytes, and the tensors of dropout's numbers, and
 *  checks that no output overlaps another tensor. *out is null if no bytes are needed. */
qn_status qni_aotriton_take_workspace(qni_aotriton_call *c, int64_t bytes, DLTensor **out);
/** Takes dropout's numbers and runs attention; then writes the numbers where the caller wants
 *  them. */
qn_status qni_aotriton_run(const qni_aotriton_call *c, qn_attention_args *args);
/** Gives `forward`, the forward pass of `args`, dropout's numbers, and runs the backward pass. */
qn_status qni_aotriton_run_backward(const qni_aotriton_call *c, qn_attention_args *forward,
                                    const qn_attention_backward_args *args);

/** A tensor over another's memory. It must not be moved, as it points into itself. */
typedef struct qni_aotriton_view {
    DLTensor t;
    int64_t shape[3], strides[3];
} qni_aotriton_view;

/** Makes a view of the dimensions `dims` of t, up to three, in that order. */
DLTensor *qni_aotriton_make_view(qni_aotriton_view *out, const DLTensor *t, int ndim,
                                 const int *dims);
/** Makes a view of softmax_lse [batch * heads, n] as [batch, heads, n]. */
DLTensor *qni_aotriton_view_lse(qni_aotriton_view *out, const qni_aotriton_call *c);

/** The members of a call of the backward pass that has AOTriton's parameters by their names. */
#define QNI_AOTRITON_BACKWARD(name)                                                                \
    .op = name, .stream = stream, .q = q, .k = k, .v = v, .b = b, .dout = dout,                    \
    .softmax_lse = softmax_lse, .out = out, .dq = dq, .dk = dk, .dv = dv, .db = db,                \
    .sm_scale = sm_scale, .dropout_p = dropout_p, .philox_seed = philox_seed,                      \
    .philox_offset1 = philox_offset1, .philox_offset2 = philox_offset2, .is_causal = is_causal,    \
    .ext = ext

#endif
