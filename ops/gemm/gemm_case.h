// SPDX-License-Identifier: Apache-2.0
// One made-up problem on a device, with its right answer. `quern check` and the tests run kernels
// on such cases.
#ifndef QNI_GEMM_CASE_H
#define QNI_GEMM_CASE_H

#include "../../check/area.h"
#include "gemm.h"

/** What the matrices hold. */
typedef enum qni_gemm_fill {
    QNI_FILL_NORMAL,   // bell-shaped
    QNI_FILL_POWERS,   // powers of two: sums are exact, and must be met exactly
    QNI_FILL_EQUAL,    // one value
    QNI_FILL_LARGE,    // the largest values of 8 bits and f16; with others, sums near f32's largest
    QNI_FILL_TINY,     // a is subnormal
    QNI_FILL_NAN,      // one NaN in a row of a, if a has several rows; one NaN in a column of b
    QNI_FILL_INFINITE, // the same with infinity in a and its opposite in b
    /** Every other K-block has one largest value; all other values are zeros, with the smallest
     *  scale. */
    QNI_FILL_SPARSE,
    QNI_FILL_NEGATIVE_ZERO, // a third of b is -0
    QNI_FILL_ANY,           // any code that is no NaN
    // The last whole K-block takes away what the first one gave, and both are large. What remains
    // is the sum of the small products and the rounding errors on the way, which tell one order of
    // sums from another even in bf16.
    QNI_FILL_CANCEL,
} qni_gemm_fill;

/** How many rows the groups have. */
typedef enum qni_gemm_rows {
    QNI_ROWS_MIXED, // 0, 1, 127, 128, 129 and others; masked: 0, 1, all, half
    QNI_ROWS_NONE,
    QNI_ROWS_FULL, // masked: all
    QNI_ROWS_FEW,  // 0 to 2
} qni_gemm_rows;

/** What the scales of an operand are for. */
typedef enum qni_gemm_scales {
    QNI_SCALES_BLOCKS, // K-blocks of a's rows, or of 128 rows of b; none if the operand is not FP8
    QNI_SCALES_LINES,  // K-blocks of rows
    QNI_SCALES_ROWS,   // rows
    QNI_SCALES_GROUPS, // groups
    QNI_SCALES_ONE,    // all
    QNI_SCALES_NONE,
} qni_gemm_scales;

/** How the scales of an operand are stored. */
typedef enum qni_gemm_exponents {
    QNI_SCALES_OF_F32,
    QNI_EXPONENTS, // e8m0fnu
    QNI_WORDS,     // i32: four exponents of K-blocks each, rows contiguous; of blocks or lines
} qni_gemm_exponents;

typedef struct qni_gemm_spec {
    qn_gemm_grouping grouping;
    int64_t groups;  // dense: batches, 0 without
    int64_t m, n, k; // n: the product's; by index and by ends, m follows from the groups
    qni_dtype dtype_a, dtype_b, dtype_d;
    qni_gemm_fill fill;
    qni_gemm_rows rows;
    bool a_transposed, b_transposed, adds_c, c_is_d, is_packed, zero_padding;
    // What acts on the product; with QNI_FILL_POWERS all but the activation is exact.
    bool has_bias, has_f32_vectors; // bias and gate are f32, not bf16
    int64_t gate_batches;           // 0: no gate; 1: a vector
    qn_gemm_activation activation;
    bool has_given_scale;   // d of FP8: of all its elements; else its groups' scales are computed
    bool is_strided;        // gaps between rows, an odd offset, scale_a by columns
    bool has_scale_columns; // scale_a by columns, without gaps: as Hopper's copy engine takes it
    bool takes_turns; // groups of a, b and d lie side by side: first lines of all, second ones, ...
    qni_gemm_scales scales_a, scales_b;
    qni_gemm_exponents exponents_a, exponents_b;
    bool shares_b, shares_bias; // batches: one for all
    int32_t m_alignment;
    int64_t expected_m; // masked; 0: m
    bool has_no_answer; // the result is not compared: the case only runs
} qni_gemm_spec;

/** A matrix or a stack of them, and how its elements lie in an area. */
typedef struct qni_gemm_matrix {
    qni_area area;
    DLTensor t; // on the device
    int64_t shape[3], strides[3];
} qni_gemm_matrix;

static inline int64_t qni_gemm_matrix_at(const qni_gemm_matrix *x, int64_t g, int64_t row,
                                         int64_t column) {
    return g * x->strides[0] + row * x->strides[1] + column * x->strides[2];
}
static inline void qni_gemm_matrix_set(qni_gemm_matrix *x, int64_t at, double value) {
    qni_put(x->area.dtype, qni_area_host(&x->area), at, value);
}
static inline double qni_gemm_matrix_get(const qni_gemm_matrix *x, int64_t at) {
    return qni_get(x->area.dtype, qni_area_host(&x->area), at);
}

typedef struct qni_gemm_case {
    qni_gemm_spec spec;
    char text[192];
    qni_gemm_matrix a, b, c, d, scale_a, scale_b, layout, bias, gate, scale_d, given_scale_d;
    qni_gemm_matrix packed, packed_scale;
    qn_gemm_args args;
    qni_gemm_problem problem; // on the device
    qn_stream *stream;
} qni_gemm_case;

/** Returns how many rows a and d have with groups by index or by ends: the groups, padded to the
 *  alignment, then a tile that is nobody's. */
int64_t qni_gemm_case_rows(const qni_gemm_spec *spec);
/** Fills the matrices, in host memory, and the layout (gemm_fill_case.c). */
void qni_gemm_case_fill(qni_gemm_case *c, uint64_t seed);

/** Makes the case on the stream's device; Call qni_gemm_case_destroy even if this fails. */
qn_status qni_gemm_case_create(qni_gemm_case *c, qn_stream *stream, const qni_gemm_spec *spec,
                               uint64_t seed);
void qni_gemm_case_destroy(qni_gemm_case *c);
/** Fills d and its scales with NaN, or d with c if d is c. */
qn_status qni_gemm_case_reset(qni_gemm_case *c);
/** Calls the op through its public function. */
qn_status qni_gemm_case_call(qni_gemm_case *c);
/** Compares d and its scales with the answer. *error becomes the largest quotient of error and
 *  tolerance, and detail says where it is. A d whose *error is NaN or more than 1 is wrong; so is
 *  one with a changed byte that belongs to no row. */
qn_status qni_gemm_case_compare(qni_gemm_case *c, double *error, char *detail, size_t room);

/** Compares the first row's bits in batches of many sizes and groupings (gemm_batches_check.c). The
 *  elements of a case's matrices depend on the seed and their place alone, so these batches share
 *  their first row. */
qn_status qni_gemm_try_batches(qni_trial_run *run);

#endif
