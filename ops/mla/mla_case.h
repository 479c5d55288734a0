// SPDX-License-Identifier: Apache-2.0
// A case of the mla check: what is asked, the tensors that are made for it, and the right results.
#ifndef QNI_MLA_CASE_H
#define QNI_MLA_CASE_H

#include "../../check/area.h"
#include "mla.h"

enum { QNI_MLA_CASE_BATCHES = 64, QNI_MLA_CASE_LENGTHS = 3 };

typedef enum qni_mla_values {
    QNI_MLA_NORMAL,
    QNI_MLA_PEAKS, // scores in the hundreds: weights are 0 and 1
    /** Scores rise by 2 or more from key to key, and fall for every other head, through kpe alone:
     *  the last key that is seen, or the first, has most of the weight. Needs rope_dim 3 or more
     *  and fewer than 4096 keys. */
    QNI_MLA_RAMPS
} qni_mla_values;

/** One line of the check's table; zeros make the plainest case. Requests beyond the third have the
 *  third's and the second's lengths in turn. Request `common` has the first request's lengths, and
 *  the first request has those of request `common`. A token's values depend on its position alone,
 *  so that request `common` is alike in all cases of a seed. */
typedef struct qni_mla_spec {
    int32_t batches;
    int32_t qo[QNI_MLA_CASE_LENGTHS], kv[QNI_MLA_CASE_LENGTHS];
    int32_t heads, dim, rope_dim, page;
    qni_dtype dtype, dtype_kv, dtype_o;
    bool is_joined;      // q_nope and q_pe are views of one tensor, ckv and kpe of one cache
    bool has_groups;     // ckv has scales of groups, and kpe a type of its own; not joined
    qni_dtype dtype_kpe; // with has_groups
    int32_t gap, offset; // elements between rows; elements before the first row
    bool is_causal, has_scales, has_lse, is_natural;
    qni_mla_values values;
    int32_t chunk, splits; // of a plan
    int32_t common;
    bool is_bits_alone; // results are not compared, only bits
    bool is_quick;      // is in the short list, too
} qni_mla_spec;

enum {
    QNI_MLA_Q_NOPE,
    QNI_MLA_Q_PE,
    QNI_MLA_CKV,
    QNI_MLA_KPE,
    QNI_MLA_CKV_SCALES,
    QNI_MLA_O,
    QNI_MLA_LSE,
    QNI_MLA_WORKSPACE,
    QNI_MLA_SCHEDULE,
    QNI_MLA_INDICES,
    QNI_MLA_Q_SCALES,
    QNI_MLA_KV_SCALES,
    QNI_MLA_AREAS
};

typedef struct qni_mla_tensor {
    DLTensor t;
    int64_t shape[3], strides[3];
    int area;      // that has its elements
    int64_t first; // which of them is the tensor's first
} qni_mla_tensor;

typedef struct qni_mla_case {
    const qni_mla_spec *spec;
    qni_attention_problem problem; // pointers into device memory
    qni_area areas[QNI_MLA_AREAS];
    qni_mla_tensor tensors[QNI_MLA_AREAS];
    void *plan;
    int64_t plan_bytes;
    uint64_t seed, random;
    const DLTensor *outputs[2];
    char text[200];
} qni_mla_case;

/** Makes tensors, plan and expectations on the stream's device. Call qni_mla_case_destroy even if
 *  this fails. */
qn_status qni_mla_case_create(qni_mla_case *c, qn_stream *stream, const qni_mla_spec *spec,
                              uint64_t seed);
void qni_mla_case_destroy(qni_mla_case *c);
/** Returns the first token of request `common`. */
int64_t qni_mla_case_common_token(const qni_mla_case *c);

#endif
