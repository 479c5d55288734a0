// SPDX-License-Identifier: Apache-2.0
// AOTriton's flash attention, the v2 set of calls, over quern's: for programs that were written
// against it.
//
// qn_aotriton_NAME stands for aotriton::v2::flash::NAME of AOTriton 0.9 and has its parameters in
// its order. A TensorView is a DLTensor, a Stream a qn_stream, a hipError_t a qn_status with
// qn_last_error(). quern.h does not include this header.
//
// - Absent, where AOTriton takes a null view: a null pointer, or a tensor without data or without
//   elements.
// - Numbers: a tensor of one (or no) dimension with one u64 or i64. AOTriton's kernels read seed,
//   offset and cu_seqlens when they run; quern needs them on the host to cut the work. So these few
//   tensors may lie on the host as well. One on a GPU is read back, which waits for all that is
//   queued on the stream before; one on the host is read at once.
// - Scratch memory: AOTriton takes what its scheduling needs from the caller (atomic_for_causal),
//   and so does quern, which needs other scratch: ext's workspace. Nothing is allocated on a device
//   behind the caller's back, so a program that manages device memory itself stays the only one to
//   do so. A workspace that is too small is an error with both sizes.
// - Types: f32, f16 or bf16 throughout, head_dim from 1 to 512, v's may be another than q's and
//   k's.
// - A query that sees no key gives zeros and a log-sum-exp of minus infinity; AOTriton stores plus
//   infinity for a tile of queries that sees none.
#ifndef QUERN_COMPAT_AOTRITON_H
#define QUERN_COMPAT_AOTRITON_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** In the place of AOTriton's FwdExtraArguments. Null means all zero. */
typedef struct qn_aotriton_ext {
    size_t struct_size; /**< sizeof(qn_aotriton_ext) */
    /** [bytes] u8 at a multiple of 16, as large as the call's ..._workspace_bytes tells or larger;
     *  null where that is 0. The next call on the same stream may take the same one. */
    DLTensor *workspace;
} qn_aotriton_ext;

/** Whether attention runs on the stream's device: QN_OK, once a small one has run there.
 *
 *  Async:    works on a stream of its own, for which it waits, with 512 bytes of device memory that
 *            it frees; the caller's stream only names the device.
 *  Errors:   QN_E_UNSUPPORTED (no kernel for this device: AOTriton's hipErrorNoBinaryForGpu),
 *            QN_E_INVALID (null), QN_E_DEVICE, QN_E_MEMORY. */
QN_API qn_status qn_aotriton_check_gpu(qn_stream *stream);

/** out = softmax(sm_scale q k^T + b) v for each batch and head.
 *
 *  q            [batch, heads, n, head_dim]; last dimension contiguous, other strides any, as of
 *               all tensors here
 *  k, v         [batch, kv heads, m, head_dim]; heads is a multiple of kv heads
 *  b            absent, or [batch, heads, n, m], each 1 or whole, added; not with is_causal
 *  sm_scale     any finite number but 0
 *  softmax_lse  absent, or [batch * heads, n] f32, written: natural log-sum-exp of all weights,
 *               dropped ones as well
 *  out          [batch, heads, n, v's head_dim], written
 *  dropout_p    0 to below 1; weights are dropped by the rule of
 *               qn_aotriton_debug_simulate_encoded_softmax, the others times 1 / (1 - p). 0: none,
 *               and the next five are ignored
 *  philox_seed, philox_offset1          numbers; absent: 0
 *  philox_offset2                       added to philox_offset1, modulo 2^64
 *  philox_seed_output, philox_offset_output  absent, or numbers, written: the seed and the sum that
 *                                            were used
 *  encoded_softmax    must be absent; qn_aotriton_debug_simulate_encoded_softmax tells what is
 *                     dropped
 *  is_causal          not 0: query i sees keys 0 to i, counted from the top left
 *  atomic_for_causal  ignored: quern's causal attention needs no counter
 *  ext                workspace, needed for few queries and many keys
 *  Edge:     batch, n or m of 0 are no errors.
 *  Overlap:  what is written overlaps nothing else.
 *  Async:    queued on stream; captured in a graph as qn_attention is. With dropout_p, numbers on a
 *            GPU are waited for: those that are read before the launch, those that are written
 *            until it is done.
 *  Errors:   QN_E_INVALID (null, shape, stride, scalars, b with is_causal, workspace too small),
 *            QN_E_UNSUPPORTED (dtype, head_dim, encoded_softmax), QN_E_DEVICE. Nothing is written
 *            then.
 *  Source:   AOTriton 0.9, include/aotriton/flash.h; qn_attention does the work. */
QN_API qn_status qn_aotriton_attn_fwd(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                                      const DLTensor *b, float sm_scale, DLTensor *softmax_lse,
                                      DLTensor *out, float dropout_p, const DLTensor *philox_seed,
                                      const DLTensor *philox_offset1, int64_t philox_offset2,
                                      DLTensor *philox_seed_output, DLTensor *philox_offset_output,
                                      const DLTensor *encoded_softmax, int32_t is_causal,
                                      const DLTensor *atomic_for_causal, qn_stream *stream,
                                      const qn_aotriton_ext *ext);
/** Bytes of workspace that qn_aotriton_attn_fwd needs; 0 is common. Looks at shapes alone. */
QN_API qn_status qn_aotriton_attn_fwd_workspace_bytes(int64_t *bytes, const DLTensor *q,
                                                      const DLTensor *k, const DLTensor *v);

/** qn_aotriton_attn_fwd of sequences that lie one after another.
 *
 *  q, out        [1, heads, tokens, head_dim]
 *  k, v          [1, kv heads, tokens of their own, head_dim]
 *  b             must be absent
 *  cu_seqlens_q, cu_seqlens_k  [sequences + 1] i32, where each begins and the last ends; on the
 *                              host or on the device, where
 *                they are contiguous. They begin at 0 or above, never fall, and end within q and k
 *  max_seqlen_q, max_seqlen_k  at least the longest; dropout counts by them: element (s, h, i, j)
 *                              of sequence s has the random
 *                number of that place in [sequences, heads, max_seqlen_q, max_seqlen_k]
 *  softmax_lse   absent, or [heads, tokens] f32
 *  ext           workspace, on a GPU always: the schedule that quern makes of the lengths lies
 *                there for the kernels
 *  Edge:     sequences without queries or without keys are no errors. Tokens of no sequence are not
 *            written.
 *  Async:    on a GPU it waits for what is queued on stream before, for the schedule is made on the
 *            host and copied; the attention itself is queued. So it cannot be captured:
 *            qn_attention_plan and qn_attention can.
 *  All else as qn_aotriton_attn_fwd. */
QN_API qn_status qn_aotriton_attn_fwd_compact_varlen(
    const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *b,
    const DLTensor *cu_seqlens_q, const DLTensor *cu_seqlens_k, int32_t max_seqlen_q,
    int32_t max_seqlen_k, float sm_scale, DLTensor *softmax_lse, DLTensor *out, float dropout_p,
    const DLTensor *philox_seed, const DLTensor *philox_offset1, int64_t philox_offset2,
    DLTensor *philox_seed_output, DLTensor *philox_offset_output, const DLTensor *encoded_softmax,
    int32_t is_causal, const DLTensor *atomic_for_causal, qn_stream *stream,
    const qn_aotriton_ext *ext);
/** Bytes of workspace that qn_aotriton_attn_fwd_compact_varlen needs for these lengths, on the
 *  stream's device. Reads cu_seqlens, so it waits for the stream where they lie on a GPU. */
QN_API qn_status qn_aotriton_attn_fwd_compact_varlen_workspace_bytes(
    qn_stream *stream, int64_t *bytes, const DLTensor *q, const DLTensor *k, const DLTensor *v,
    const DLTensor *cu_seqlens_q, const DLTensor *cu_seqlens_k);

/** Gradients of a loss by q, k, v and b, from its gradient by out: of a call of
 *  qn_aotriton_attn_fwd, after it.
 *
 *  q, k, v, b, sm_scale, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal
 *               that call's; the offset is the sum that it used, so philox_seed_output and
 *               philox_offset_output serve here as philox_seed and philox_offset1, with 0
 *  out, softmax_lse  what it wrote; both are needed
 *  dout         the loss's gradient by out: out's shape and dtype; it may be out itself
 *  dq, dk, dv   [as q, k, v], written: f32, f16 or bf16, rounded once
 *  db           absent, or [as b], written: f32, f16 or bf16, summed over the dimensions of 1; only
 *               with b
 *  delta        ignored: ext's workspace has what AOTriton has there
 *  ext          workspace, always
 *  Edge:     batch, n or m of 0 are no errors. A query that sees no key gives zeros, if its
 *            softmax_lse is minus infinity.
 *  Overlap:  what is written overlaps nothing else.
 *  Bits:     equal on every run, and for each batch whatever the others are (but for dropout).
 *  Async:    queued on stream; captured in a graph as qn_attention_backward is. With dropout_p,
 *            numbers on a GPU are waited for.
 *  Errors:   QN_E_INVALID (null, shape, stride, overlap, scalars, b with is_causal, db without b,
 *            workspace too small), QN_E_UNSUPPORTED (dtype, head_dim), QN_E_MEMORY (on the CPU),
 *            QN_E_DEVICE. Nothing is written then.
 *  Source:   AOTriton 0.9, include/aotriton/flash.h; qn_attention_backward does the work. */
QN_API qn_status qn_aotriton_attn_bwd(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                                      const DLTensor *b, float sm_scale, const DLTensor *out,
                                      const DLTensor *dout, DLTensor *dq, DLTensor *dk,
                                      DLTensor *dv, DLTensor *db, const DLTensor *softmax_lse,
                                      const DLTensor *delta, float dropout_p,
                                      const DLTensor *philox_seed, const DLTensor *philox_offset1,
                                      int64_t philox_offset2, int32_t is_causal, qn_stream *stream,
                                      const qn_aotriton_ext *ext);
/** The same, in AOTriton one kernel, without delta; here the same kernels. */
QN_API qn_status qn_aotriton_attn_bwd_fused(const DLTensor *q, const DLTensor *k, const DLTensor *v,
                                            const DLTensor *b, float sm_scale, const DLTensor *out,
                                            const DLTensor *dout, DLTensor *dq, DLTensor *dk,
                                            DLTensor *dv, DLTensor *db, const DLTensor *softmax_lse,
                                            float dropout_p, const DLTensor *philox_seed,
                                            const DLTensor *philox_offset1, int64_t philox_offset2,
                                            int32_t is_causal, qn_stream *stream,
                                            const qn_aotriton_ext *ext);
/** Bytes of workspace that both need on the stream's device. Reads no tensor's memory. */
QN_API qn_status qn_aotriton_attn_bwd_workspace_bytes(qn_stream *stream, int64_t *bytes,
                                                      const DLTensor *q, const DLTensor *k,
                                                      const DLTensor *v, const DLTensor *out,
                                                      const DLTensor *softmax_lse);

/** qn_aotriton_attn_bwd of sequences that lie one after another: of a call of
 *  qn_aotriton_attn_fwd_compact_varlen, after it, whose tensors and numbers these are.
 *
 *  b, db         must be absent
 *  Edge:     gradients of tokens of no sequence are not written. Keys that no query sees, and keys
 *            of sequences without queries, get zeros.
 *  Async:    as qn_aotriton_attn_fwd_compact_varlen.
 *  All else as qn_aotriton_attn_bwd. */
QN_API qn_status qn_aotriton_attn_bwd_compact_varlen(
    const DLTensor *q, const DLTensor *k, const DLTensor *v, const DLTensor *cu_seqlens_q,
    const DLTensor *cu_seqlens_k, int32_t max_seqlen_q, int32_t max_seqlen_k, const DLTensor *b,
    float sm_scale, const DLTensor *out, const DLTensor *dout, DLTensor *dq, DLTensor *dk,
    DLTensor *dv, DLTensor *db, const DLTensor *softmax_lse, const DLTensor *delta, float dropout_p,
    const DLTensor *philox_seed, const DLTensor *philox_offset1, int64_t philox_offset2,
    int32_t is_causal, qn_stream *stream, const qn_aotriton_ext *ext);
/** Bytes of workspace that qn_aotriton_attn_bwd_compact_varlen needs for these lengths, on the
 *  stream's device. Reads cu_seqlens, so it waits for the stream where they lie on a GPU. */
QN_API qn_status qn_aotriton_attn_bwd_compact_varlen_workspace_bytes(
    qn_stream *stream, int64_t *bytes, const DLTensor *q, const DLTensor *k, const DLTensor *v,
    const DLTensor *out, const DLTensor *softmax_lse, const DLTensor *cu_seqlens_q,
    const DLTensor *cu_seqlens_k);

/** Dropout's random numbers, as qn_attention_dropout_rng writes them.
 *
 *  r   [batch, heads, n, m], written: i32 the words themselves, f32 word * 2.32830658e-10 + 0.5
 *  Async:    queued on stream. */
QN_API qn_status qn_aotriton_debug_fill_dropout_rng(DLTensor *r, uint64_t philox_seed,
                                                    uint64_t philox_offset, qn_stream *stream);
/** The same with numbers in tensors, which are read on the host; absent: 0. */
QN_API qn_status qn_aotriton_debug_fill_dropout_rng_tensor(DLTensor *r, const DLTensor *philox_seed,
                                                           const DLTensor *philox_offset,
                                                           qn_stream *stream);
/** What dropout does to each weight, as qn_attention_dropout_mask writes it: 0.5 where it is kept,
 *  -0.5 where it is dropped.
 *
 *  r   [batch, heads, n, m] f32, f16 or bf16, written
 *  philox_seed, philox_offset1  numbers, read on the host; absent: 0. The offset is philox_offset1
 *                               + philox_offset2
 *  Async:    queued on stream. */
QN_API qn_status qn_aotriton_debug_simulate_encoded_softmax(DLTensor *r, float dropout_p,
                                                            const DLTensor *philox_seed,
                                                            const DLTensor *philox_offset1,
                                                            uint64_t philox_offset2,
                                                            qn_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
