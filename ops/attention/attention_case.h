// SPDX-License-Identifier: Apache-2.0
// A case of the attention check: what is asked, the tensors that are made for it, and the right
// results.
#ifndef QNI_ATTENTION_CASE_H
#define QNI_ATTENTION_CASE_H

#include "../../check/area.h"
#include "attention.h"

enum { QNI_CASE_BATCHES = 128, QNI_CASE_LENGTHS = 3 };

typedef enum qni_case_storage {
    QNI_CASE_DENSE,
    QNI_CASE_RAGGED, // q is ragged too
    QNI_CASE_PAGED,  // q is ragged
    QNI_CASE_PADDED  // dense, with kv_len less than the room for keys
} qni_case_storage;

typedef enum qni_case_values {
    QNI_CASE_NORMAL,
    QNI_CASE_LOW,   // every score is -524288 before it is scaled
    QNI_CASE_PEAKS, // scores in the hundreds: weights are 0 and 1
    /** Scores rise by 2 or more from key to key, and fall for every other head: the last key that
     *  is seen, or the first, has most of the weight. Needs dim 3 or more, fewer than 4096 keys
     *  (f16: 1024), and q of f32, f16 or bf16. */
    QNI_CASE_RAMPS
} qni_case_values;

/** One line of the check's table; zeros make the plainest case. A dense case has the first length
 *  of each kind. Requests beyond the third have the third's and the second's lengths in turn.
 *  Request `common` has the first request's lengths, and the first request has those of request
 *  `common`. A token's values depend on its position alone, so that request `common` is alike in
 *  all cases of a seed. */
typedef struct qni_attention_spec {
    qni_case_storage storage;
    int32_t batches;
    int32_t qo[QNI_CASE_LENGTHS], kv[QNI_CASE_LENGTHS];
    int32_t qo_heads, kv_heads, dim, dim_vo; // dim_vo 0: dim
    qni_dtype dtype, dtype_kv, dtype_o;
    int32_t page;
    bool is_hnd, is_swapped; // memory is laid out in the other order than the layout's
    int32_t gap, offset;     // elements between rows; elements before the first row
    int32_t block_gap;       // elements between pages, or requests of dense tensors
    bool is_causal, is_top_left, has_left, has_right;
    int32_t left, right;
    bool has_custom_mask, is_mask_zero, has_sinks, has_scales, has_lse, is_natural;
    bool has_negative_scales; // the scale of every other head of q is negative
    int32_t mask_kind;        // QK_MASK_…
    bool is_mask_broadcast;
    qn_pos_encoding pos;
    float cap, dropout;
    int32_t chunk, splits, units; // of a plan; units: compute units
    int32_t common;
    /** The first so many keys are hidden from all queries by masks; their k is a NaN, their v the
     *  largest number. */
    int32_t hidden;
    bool is_bits_alone; // results are not compared, only bits
    qni_case_values values;
    bool is_quick; // is in the short list, too
} qni_attention_spec;

enum {
    QNI_CASE_Q,
    QNI_CASE_K,
    QNI_CASE_V,
    QNI_CASE_O,
    QNI_CASE_LSE,
    QNI_CASE_WORKSPACE,
    QNI_CASE_SCHEDULE,
    QNI_CASE_INDICES,
    QNI_CASE_MASK,
    QNI_CASE_CUSTOM_MASK,
    QNI_CASE_Q_SCALES,
    QNI_CASE_K_SCALES,
    QNI_CASE_V_SCALES,
    QNI_CASE_SINKS,
    QNI_CASE_AREAS
};

typedef struct qni_case_tensor {
    DLTensor t;
    int64_t shape[4], strides[4];
} qni_case_tensor;

typedef struct qni_attention_case {
    const qni_attention_spec *spec;
    qni_attention_problem problem; // pointers into device memory
    qni_area areas[QNI_CASE_AREAS];
    qni_case_tensor tensors[QNI_CASE_AREAS];
    qn_attention_args args;
    void *plan;
    int64_t plan_bytes;
    uint64_t seed, random;
    const DLTensor *outputs[2];
    char text[256];
} qni_attention_case;

/** Makes tensors, plan and expectations on the stream's device. Call qni_attention_case_destroy
 *  even if this fails. */
qn_status qni_attention_case_create(qni_attention_case *c, qn_stream *stream,
                                    const qni_attention_spec *spec, uint64_t seed);
void qni_attention_case_destroy(qni_attention_case *c);
/** Returns request b from what the spec asks. A plan with another request is wrong. */
qk_attention_request qni_attention_case_request(const qni_attention_spec *s, int b);
/** Returns the problem over the areas' host copies, which hides what the spec hides. */
qni_attention_problem qni_attention_case_on_host(qni_attention_case *c);

/** A case of merging; zeros make the plainest case. */
typedef struct qni_merge_spec {
    qni_dtype dtype;
    int64_t n, states, heads, dim;
    bool is_pair;     // two states, in two tensors
    bool is_in_place; // the result replaces the first state of a pair
    bool is_natural;
    int64_t
        common; // above 0: one more than the query whose states are alike in all cases of a seed
} qni_merge_spec;

enum {
    QNI_MERGE_V, // the second of a pair after the first
    QNI_MERGE_S = QNI_MERGE_V + 2,
    QNI_MERGE_OUT_V = QNI_MERGE_S + 2,
    QNI_MERGE_OUT_S,
    QNI_MERGE_AREAS
};

typedef struct qni_merge_case {
    qni_area areas[QNI_MERGE_AREAS];
    qni_area *out_v, *out_s; // of these
    qni_merge_problem problem;
    const DLTensor *outputs[2];
    char text[96];
} qni_merge_case;

/** Makes tensors and expectations, as qni_attention_case_create does. */
qn_status qni_merge_case_create(qni_merge_case *c, qn_stream *stream, const qni_merge_spec *spec,
                                uint64_t seed);
void qni_merge_case_destroy(qni_merge_case *c);

/** Compares the bits of a request, or in merging of a query, over the batches that have it in
 *  common: batches_check.c. */
qn_status qni_attention_try_batches(qni_trial_run *run);
qn_status qni_merge_try_batches(qni_trial_run *run);
/** Runs all problems of ops "merge_states" and "attention_dropout". */
qn_status qni_merge_try(qni_trial_run *run);
qn_status qni_dropout_try(qni_trial_run *run);

#endif
