// SPDX-License-Identifier: Apache-2.0
// What the files of the attention family share: the problems of its three ops and their
// definitions.
#ifndef QNI_ATTENTION_H
#define QNI_ATTENTION_H

#include "../../runtime/tensor/read.h"
#include "../shared/elements.h"
#include "../shared/philox_abi.h"
#include "attention_groups_abi.h"

#include <quern/attention.h>

/** A valid problem of op "attention": attention_args.c has checked everything. */
typedef struct qni_attention_problem {
    qk_attention_args args; // as kernels take it; on the CPU the schedule is in host memory
    const qk_attention_schedule *plan; // host memory; null: uniform
    qni_dtype dtype, dtype_kv, dtype_o;
    qk_attention_tail tail;   // op "mla" alone has one; mla/mla_args.c has checked it
    qni_dtype dtype_tail;     // of keys; of q: dtype
    qk_attention_rows groups; // f32 scales of QK_ATTENTION_GROUP elements of keys in front of their
                              // tails, which are their values, too; no data: there are none
    float rope_theta, rope_scale;
    float dropout_p;
    int64_t kv_blocks, kv_tokens;     // of k and v: pages or requests (ragged: 1), and of each
    int64_t q_tokens;                 // of q; dense: of each request
    int64_t max_rows;                 // most rows of a request: qo_len * group
    bool has_few_rows, has_more_rows; // requests of at most QK_ATTENTION_FEW_ROWS rows; requests of
                                      // more
    void *workspace;                  // the call's; null: none
    int64_t workspace_bytes;
    bool is_merged_later; // the call's other part merges: attention_parts.c
    bool merges_own;      // the call's other part merges its requests itself
    uint64_t turns[QK_ATTENTION_MAX_HEAD_DIM / 2]; // RoPE: the turns of each pair, see
                                                   // qni_rope_turns
} qni_attention_problem;

/** A valid problem of op "merge_states". State i of query n is at v + n * v_token + i * v_state, or
 *  in v[1]. */
typedef struct qni_merge_problem {
    qni_dtype dtype;
    const void *v[2]; // v[1] null: all states are in v[0]
    const float *s[2];
    int64_t v_token[2], v_state, v_head[2], s_token[2], s_state, s_head[2];
    void *o;
    float *lse;
    int64_t o_token, o_head, lse_token, lse_head;
    int64_t n, heads, head_dim, states;
    float lse_unit; // as in qk_attention_args
} qni_merge_problem;

/** A valid problem of op "attention_dropout". */
typedef struct qni_dropout_problem {
    qk_attention_args args; // in use: dropout's fields, num_kv_heads, and group, which is 1
    void *r;
    int64_t r_batch, r_head, r_query; // strides
    qni_dtype dtype;
    uint32_t what; // QK_DROPOUT_MASK, …
    int64_t batches, heads, queries, keys;
} qni_dropout_problem;

extern const qni_op qni_op_attention, qni_op_merge_states, qni_op_attention_dropout;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Flags of a GPU kernel of op "attention": it computes with f16 (else with bf16); k and v are FP8;
 *  the larger head dim must be above n. The kernel holds head dims up to config.columns. */
enum { QNI_ATTENTION_F16 = 1, QNI_ATTENTION_FP8 = 2 };
#define QNI_ATTENTION_ABOVE(n) ((uint32_t)(n) << 8)

/** Returns the workgroups of the variant's kernel, one for each work item and head of k. args are
 *  the kernel's arguments, with q_tile set. attention_launch.c. */
int64_t qni_attention_count_groups(const qn_stream *stream, const qni_attention_problem *p,
                                   const qk_attention_args *args);
/** Launches a variant's kernel of op "attention" on all work items, then qni_attention_merge. args
 *  are the kernel's arguments, which begin with the common ones; q_tile is set.
 *  attention_launch.c. */
qn_status qni_attention_launch(const qni_variant *variant, qn_stream *stream,
                               const qni_attention_problem *p, const qk_attention_args *args,
                               size_t bytes);
/** Launches the variant's first kernel with so many workgroups of 256 threads. */
qn_status qni_attention_launch_groups(const qni_variant *variant, qn_stream *stream, int64_t groups,
                                      const qk_attention_args *args, size_t bytes);
/** Returns the workgroups for `count` things of each head of k. With a graph more may come; but a
 *  device never runs more workgroups than it returns then at a time. */
int64_t qni_attention_groups_of(const qn_stream *stream, const qni_attention_problem *p,
                                uint32_t count);

/** As qni_attention_launch, whose workgroups have 256 threads, with so many. */
qn_status qni_attention_launch_of(const qni_variant *variant, qn_stream *stream,
                                  const qni_attention_problem *p, uint32_t threads,
                                  const qk_attention_args *args, size_t bytes);
/** Launches a variant's second kernel, which merges split requests, unless the call's other part
 *  does so. It merges those of both parts, or of its own. */
qn_status qni_attention_merge(const qni_variant *variant, qn_stream *stream,
                              const qni_attention_problem *p, const qk_attention_args *args);
/** Returns whether all rows of k or of its tail are whole runs of eight elements, each of them at a
 *  multiple of its size. attention_launch.c. */
bool qni_attention_is_wide(const qk_attention_rows *k, uint32_t dim);
/** Returns what qni_attention_tile_supports returns, for kernels that take no dropout.
 *  attention_tile_launch.c. */
bool qni_attention_plain_supports(const qni_variant *variant, const qn_device *device,
                                  const void *problem, qni_reason *why);
/** Returns whether the problem meets what all GPU kernels need, rows and head dims that they can
 *  count, and has head dims that the variant is for. */
bool qni_attention_fits(const qni_variant *variant, const qni_attention_problem *p,
                        qni_reason *why);

/** Returns whether the batch has requests of few rows and of more rows, which may run by two
 *  kernels. */
static inline bool qni_attention_is_mixed(const qni_attention_problem *p) {
    return p->has_few_rows && p->has_more_rows;
}
/** Runs an op whose kernels honour least_rows and most_rows. Requests of few rows, and those of
 *  more, each run by the kernel that they would have alone. attention_parts.c. */
qn_status qni_attention_run_parts(const qni_op *op, qn_stream *stream,
                                  const qni_attention_problem *p);
/** Runs op "attention" on a qni_attention_problem, in parts. */
qn_status qni_attention_run(qn_stream *stream, const void *problem);
/** Returns qni_attention_run, which the check harness calls; null where it runs a single
 *  kernel. */
static inline qn_status (*qni_attention_call(const qni_attention_problem *p))(qn_stream *,
                                                                              const void *) {
    return qni_attention_is_mixed(p) ? qni_attention_run : nullptr;
}

/** Places of a call's tensors among those that qni_attention_read fills. */
enum {
    QNI_ATTENTION_Q,
    QNI_ATTENTION_K,
    QNI_ATTENTION_V,
    QNI_ATTENTION_MASK = 5,
    QNI_ATTENTION_SINKS = 10,
    QNI_ATTENTION_O,
    QNI_ATTENTION_TENSORS = 14
};
/** Returns where rows of a tensor of tokens and heads lie, which has been read.
 *  attention_args.c. */
qk_attention_rows qni_attention_rows(const qni_tensor *t, bool is_hnd);
/** Checks a call but for its workspace, and where its tensors lie; fills the problem and the
 *  tensors. attention_args.c. */
qn_status qni_attention_read(const qni_call *of, const qn_attention_args *args,
                             qni_attention_problem *p, qni_tensor t[QNI_ATTENTION_TENSORS]);
/** Checks a call and fills the problem. attention_args.c. */
qn_status qni_attention_make(const qn_stream *stream, const qn_attention_args *args,
                             qni_attention_problem *p);
/** The tensors of a call as far as a plan must fit them, and their names for messages. */
typedef struct qni_attention_shapes {
    const char *q_name, *k_name;
    int q_ndim, k_ndim;
    int64_t q_blocks, q_tokens;
    int64_t entries; // of kv_indices; without pages, tokens of k
    bool is_paged, is_dense_q, is_dense_kv;
} qni_attention_shapes;
/** Checks a call's plan, and reads the schedule, the plan's copy on the device, into *read. The
 *  problem has heads, head dims, kv_blocks and kv_tokens, and gets what the plan says.
 *  attention_schedule.c. */
qn_status qni_attention_read_plan(const qni_call *call, const qni_attention_shapes *shapes,
                                  const void *plan, int64_t plan_bytes, const DLTensor *schedule,
                                  qni_tensor *read, qni_attention_problem *p);
/** Finds which kinds of requests there are. With a graph there may be requests of both kinds.
 *  attention_schedule.c. */
void qni_attention_find_rows(qni_attention_problem *p);
/** Reads a call's workspace into *read; the problem gets places for partial results.
 *  attention_schedule.c. */
qn_status qni_attention_read_workspace(const qni_call *call, DLTensor *workspace, qni_tensor *read,
                                       qni_attention_problem *p);
/** Checks kv_indices of the problem's requests, if the device and QUERN_VALIDATE ask for it.
 *  attention_schedule.c. */
qn_status qni_attention_validate_pages(qn_stream *stream, const char *op,
                                       const qni_attention_problem *p);
/** Returns how many rows of partial results the problem needs for each kv head.
 *  attention_schedule.c. */
int64_t qni_attention_workspace_rows(const qni_attention_problem *p);
/** Returns the bytes of `rows` rows of partial results; INT64_MAX if they are too many to
 *  count. */
static inline int64_t qni_attention_workspace_bytes(int64_t rows, int64_t num_kv_heads,
                                                    int64_t head_dim_vo) {
    int64_t bytes;
    return __builtin_mul_overflow(rows, num_kv_heads, &bytes) ||
                   __builtin_mul_overflow(bytes, (head_dim_vo + 1) * (int64_t)sizeof(float), &bytes)
               ? INT64_MAX
               : bytes;
}
/** Returns whether k and v are not FP8, or so that Hopper's kernels copy their codes 16 at a time:
 *  of e4m3fn, in rows of whole 16 codes that begin at multiples of 16 bytes.
 *  hopper/attention_async.c. */
bool qni_attention_takes_codes(const qni_attention_problem *p, qni_reason *why);
/** Returns the bytes of workspace with which Hopper's kernel for dense requests is faster; 0: it is
 *  not. heads: of all requests. hopper/attention_wgmma.c. */
int64_t qni_attention_states_bytes(int64_t heads, int64_t qo_len, int64_t kv_len, int64_t head_dim);
/** Returns the keys of a chunk for a request; INT32_MAX: the request is not split. The result
 *  depends on the request's lengths alone. attention_plan.c. */
int32_t qni_attention_default_chunk(int64_t qo_len, int64_t kv_len);
/** Returns what is wrong with a plan; null: nothing. Checks the header alone, or the whole plan if
 *  is_thorough. */
const char *qni_attention_check_plan(const void *plan, int64_t plan_bytes, bool is_thorough);
void qni_attention_set_dropout(qk_attention_args *g, float p, uint64_t seed, uint64_t offset);

/** One row of a request, for which the definition computes a result. */
typedef struct qni_attention_row {
    qk_attention_request request;
    uint32_t index; // of the row in the request
    uint32_t query, head;
} qni_attention_row;

/** What all rows of a request and kv head share: the keys, rotated if the problem asks for it, and
 *  the values, in f64. */
typedef struct qni_attention_keys {
    double *k, *v; // [kv_len, head_dim_qk], to be freed; [kv_len, head_dim_vo], in the memory of k
    double turns[QK_ATTENTION_MAX_HEAD_DIM / 2]; // of each pair, from a position to the next
} qni_attention_keys;

/** Returns the element of k or v at which key j of a request begins for kv head 0, as the
 *  definition sees it. attention_ref.c. */
int64_t qni_attention_place(const qk_attention_args *g, const qk_attention_rows *rows,
                            const qk_attention_request *r, int64_t request, int64_t j);
/** Loads the keys and values from host memory. k is null if there is no memory.
 *  attention_ref.c. */
qni_attention_keys qni_attention_load_keys(const qni_attention_problem *p,
                                           const qk_attention_request *r, uint32_t request,
                                           uint32_t kv_head);
/** The weights e^(x - max) of a row's keys. */
typedef struct qni_attention_softmax {
    double sum, max; // of the weights, a sink's included; of the scores
    double off;      // how far off a kernel's worst score may be
    int64_t visible; // keys that the row sees
} qni_attention_softmax;

/** Returns how far off rounding to a dtype may make a weight, relatively. attention_ref.c. */
double qni_attention_weight_rounding(qni_dtype dtype);

/** Computes a row's weights in f64 into x, which has room for kv_len; a key that is not seen has 0.
 *  slope gets each score's derivative by the scaled product; it may be null. attention_ref.c. */
qni_attention_softmax qni_attention_find_weights(const qni_attention_problem *p,
                                                 const qni_attention_row *row,
                                                 const qni_attention_keys *keys, double *x,
                                                 double *slope);
/** Computes one row in f64, by the definition; o has room for head_dim_vo, x for kv_len. bound gets
 *  how far each element of a kernel's o may be off before it is rounded, *lse_bound how far its lse
 *  may be off. Reads host memory. attention_ref.c. */
void qni_attention_ref(const qni_attention_problem *p, const qni_attention_row *row,
                       const qni_attention_keys *keys, double *x, double *o, double *lse,
                       double *bound, double *lse_bound);
/** qni_attention_word returns the random word of the row's weight of key j. qni_attention_keeps
 *  returns whether dropout keeps that weight; true without dropout. */
uint32_t qni_attention_word(const qk_attention_args *g, const qni_attention_row *row, uint32_t j);
bool qni_attention_keeps(const qk_attention_args *g, const qni_attention_row *row, uint32_t j);

#endif
