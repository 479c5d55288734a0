// SPDX-License-Identifier: Apache-2.0
// What the files of the moe family share: the problems of its ops and their definitions.
#ifndef QNI_MOE_H
#define QNI_MOE_H

#include "../shared/elements.h"
#include "moe_abi.h"

#include <quern/moe.h>

/** A valid problem of op "moe_route": route.c has checked everything. Strides are in elements. */
typedef struct qni_moe_route_problem {
    qni_dtype dtype, dtype_bias;
    const void *logits, *bias; // bias null: none
    float *weights;
    int32_t *ids;
    int64_t logits_row, weights_row, ids_row;
    int64_t tokens, experts, top_k, groups, topk_groups, shared;
    bool is_sigmoid, renormalizes;
    float scaling, shared_weight;
} qni_moe_route_problem;

/** A valid problem of op "moe_sort" is what its kernels take: sort.c has checked everything. */
typedef qk_moe_sort_args qni_moe_sort_problem;

/** A valid problem of op "moe_permute". Strides are in elements. */
typedef struct qni_moe_permute_problem {
    qni_dtype dtype;
    const void *x;
    void *out;
    const float *scale; // null: none
    float *scale_out;
    const int32_t *pair_of_row;
    int64_t x_row, out_row, scale_row, scale_column, scale_out_row, scale_out_column;
    int64_t rows, tokens, top_k, n, groups;
} qni_moe_permute_problem;

/** A valid problem of op "moe_sum". Strides are in elements. */
typedef struct qni_moe_sum_problem {
    qni_dtype dtype, dtype_out;
    const void *x, *addend; // addend null: none
    void *out;
    const float *weights;       // null: 1
    const int32_t *row_of_pair; // null: pair p's row is p
    int64_t x_row, addend_row, out_row, weights_row, row_of_pair_row;
    int64_t tokens, top_k, n, rows;
} qni_moe_sum_problem;

/** A valid problem of op "moe_activate". Strides are in elements. */
typedef struct qni_moe_activate_problem {
    qni_dtype dtype, dtype_out;
    const void *x;
    void *out;
    float *scale;                 // out of FP8
    const int32_t *expert_of_row; // null: all rows count
    int64_t x_row, out_row, scale_row, scale_column;
    int64_t rows, h;
    qn_moe_function function;
    float limit, alpha, scale_eps; // limit infinity: none
    bool is_interleaved;
} qni_moe_activate_problem;
enum { QNI_MOE_GROUP = 128 }; // elements of a scale

/** A valid problem of op "moe_few": a whole layer whose weights are packed FP8 with scales of 128 x
 *  128, whose function is SiLU, without a limit, of halves, and which has no biases. fused.c has
 *  checked everything. Strides are in elements. */
typedef struct qni_moe_few_problem {
    qni_dtype dtype, dtype_w1, dtype_w2, dtype_out;
    const void *x, *addend; // addend null: none
    void *between;          // [pairs, 2 inner], x's dtype: the first product
    void *out;
    const float *weights;
    const int32_t *ids, *expert_map; // expert_map null: ids are w1's experts
    qk_moe_few_weights w1, w2;
    int64_t x_row, addend_row, out_row, weights_row, ids_row;
    int64_t tokens, top_k, hidden, inner, experts, mapped; // mapped: entries of expert_map
    float eps;                                             // of what is quantised
} qni_moe_few_problem;

extern const qni_op qni_op_moe_route, qni_op_moe_sort, qni_op_moe_permute, qni_op_moe_activate,
    qni_op_moe_sum, qni_op_moe_few;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Routes one token by the definition, in memory that the host can read. scores and keys have room
 *  for the experts. route_ref.c. */
void qni_moe_route_ref(const qni_moe_route_problem *p, int64_t token, float *scores,
                       uint32_t *keys);

/** Returns the row of x that pair j of a token has; below 0: none. */
static inline int64_t qni_moe_row_of(const qni_moe_sum_problem *p, int64_t token, int64_t j) {
    const int64_t row =
        p->row_of_pair ? p->row_of_pair[token * p->row_of_pair_row + j] : token * p->top_k + j;
    return row < p->rows ? row : -1;
}

/** Shares tokens among the CPU's threads: route_cpu.c. `rows` routes tokens first .. end - 1;
 *  `scratch` has room for two rows of experts, rounded up to 16. */
typedef void (*qni_moe_route_fn)(const qni_moe_route_problem *p, int64_t first, int64_t end,
                                 float *scratch);
qn_status qni_moe_route_on_threads(const qni_moe_route_problem *p, qni_moe_route_fn rows);

/** Computes one element of a sum by the definition, before it is rounded to out's dtype, in memory
 *  that the host can read. rows_ref.c. */
float qni_moe_sum_ref(const qni_moe_sum_problem *p, int64_t token, int64_t i);

/** Shares the tokens of a sum among the CPU's threads: rows_cpu.c. `rows` takes tokens first ..
 *  end - 1. */
typedef void (*qni_moe_sum_fn)(const qni_moe_sum_problem *p, int64_t first, int64_t end);
void qni_moe_sum_on_threads(const qni_moe_sum_problem *p, qni_moe_sum_fn rows);

/** Checks what says how an expert's halves become one: activate.c. */
qn_status qni_moe_check_function(const char *op, qn_moe_function function, float limit, float alpha,
                                 int32_t is_interleaved);
/** Computes one element of an activation by the definition, in double precision, before it is
 *  quantised. *error gets how far f32 arithmetic may be off. activate_ref.c. */
double qni_moe_activate_ref(const qni_moe_activate_problem *p, double gate, double up,
                            double *error);

/** Shares rows among the CPU's threads: activate_cpu.c. `rows` takes rows first .. end - 1. */
typedef void (*qni_moe_activate_fn)(const qni_moe_activate_problem *p, int64_t first, int64_t end);
void qni_moe_activate_on_threads(const qni_moe_activate_problem *p, qni_moe_activate_fn rows);

#endif
