// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows, to FP8 or int8, with a given scale, or with one computed for a group of
// columns, a row or the tensor.
#ifndef QNI_QUANTIZE_ROWS_H
#define QNI_QUANTIZE_ROWS_H

#include "../shared/elements.h"
#include "quantize.h"

/** What scale holds; the values are those of rows_abi.h. */
typedef enum qni_scale_form {
    QNI_SCALE_GIVEN,  // f32, read
    QNI_SCALE_F32,    // written
    QNI_SCALE_POWER,  // f32 powers of two, written
    QNI_SCALE_PACKED, // UE8M0, four to an i32, written
    QNI_SCALE_TENSOR  // one f32, written: computed from the workspace's maxima
} qni_scale_form;

/** A valid problem: rows.c has checked everything. Strides are in elements. */
typedef struct qni_rows_problem {
    qni_dtype dtype_x, dtype_q; // of q: FP8 or i8
    int64_t rows, cols, group;  // columns of a scale; all columns if the tensor has one scale
    const void *x;              // [rows, cols]
    uint8_t *q;                 // [rows, cols]
    void *scale; // [rows, ceil(cols / group)]; packed, a quarter as many words; or one f32
    int64_t x_row, q_row, scale_row, scale_col;
    uint32_t *maxima; // TENSOR: the caller's QNI_ROWS_MAXIMA
    qni_scale_form form;
    float eps;
} qni_rows_problem;

/** The workspace holds the largest magnitudes of so many parts of a tensor. */
enum { QNI_ROWS_MAXIMA = 1024 };

extern const qni_op qni_op_quantize_rows;

static inline int64_t qni_rows_groups(const qni_rows_problem *p) {
    return (p->cols + p->group - 1) / p->group;
}
static inline bool qni_rows_has_one_scale(const qni_rows_problem *p) {
    return p->form == QNI_SCALE_GIVEN || p->form == QNI_SCALE_TENSOR;
}

/** Returns the number that the largest magnitude is scaled to. */
static inline float qni_rows_most(qni_dtype dtype_q) {
    return dtype_q == QNI_I8 ? 127 : qni_fp8_format_of(qni_fp8_of(dtype_q)).max;
}

/** Returns the scale for a largest magnitude. */
static inline float qni_rows_scale(const qni_rows_problem *p, float amax) {
    const float scale = (amax > p->eps ? amax : p->eps) / qni_rows_most(p->dtype_q);
    const bool is_power = p->form == QNI_SCALE_POWER || p->form == QNI_SCALE_PACKED;
    return is_power ? __builtin_bit_cast(float, qni_ue8m0_up(scale) << 23) : scale;
}

/** Writes the scale of group i of a row. The row's last scale also clears the rest of its word. */
static inline void qni_rows_put_scale(const qni_rows_problem *p, int64_t row, int64_t i,
                                      float scale) {
    if (p->form != QNI_SCALE_PACKED) {
        ((float *)p->scale)[row * p->scale_row + i * p->scale_col] = scale;
        return;
    }
    uint8_t *word = (uint8_t *)((int32_t *)p->scale + row * p->scale_row + i / 4 * p->scale_col);
    word[i % 4] = (uint8_t)(__builtin_bit_cast(uint32_t, scale) >> 23);
    for (int64_t k = i % 4 + 1; i == qni_rows_groups(p) - 1 && k < 4; k++)
        word[k] = 0;
}

/** Returns one code: x rounded to nearest, ties to even. A NaN becomes the kind's NaN, in int8
 *  0. */
static inline uint8_t qni_rows_encode(qni_dtype dtype_q, float x) {
    if (dtype_q != QNI_I8)
        return qni_fp8_encode(qni_fp8_of(dtype_q), x);
    x = x > 127 ? 127 : x < -127 ? -127 : x != x ? 0 : x;
    return (uint8_t)(int8_t)__builtin_rintf(x);
}

/** Quantises by the definition, in host memory: rows_ref.c. */
void qni_quantize_rows_ref(const qni_rows_problem *p);

/** Shares rows among the CPU's threads: rows_cpu.c. */
typedef struct qni_rows_fns {
    float (*amax)(const qni_rows_problem *p, int64_t row, int64_t col, int64_t count);
    void (*encode)(const qni_rows_problem *p, int64_t row, int64_t col, int64_t count,
                   float inverse);
} qni_rows_fns;
qn_status qni_rows_on_threads(const qni_rows_problem *p, const qni_rows_fns *fns);

#endif
