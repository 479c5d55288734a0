// SPDX-License-Identifier: Apache-2.0
// What the files of the quantize family share: a checked problem, which kernels take, and the
// definition.
#ifndef QNI_QUANTIZE_H
#define QNI_QUANTIZE_H

#include "../../runtime/runtime.h"
#include "../shared/fp8.h"

#include <quern/quantize.h>

/** Columns of every block; a block has 1 or 128 rows. */
#define QNI_BLOCK 128

static_assert(QNI_E4M3FNUZ - QNI_E4M3FN == QNI_FP8_E4M3FNUZ &&
              QNI_E5M2 - QNI_E4M3FN == QNI_FP8_E5M2 &&
              QNI_E5M2FNUZ - QNI_E4M3FN == QNI_FP8_E5M2FNUZ);

/** A valid problem: quantize.c has checked every pointer, shape, stride and dtype. Strides are in
 *  elements. Quantising reads x and writes q and scale; dequantising reads q and scale and writes
 *  x. */
typedef struct qni_quantize_problem {
    qni_dtype dtype_x; // f32, f16 or bf16
    qni_fp8 kind;      // of q
    int64_t rows, cols, block_rows;
    void *x;      // [rows, cols]
    uint8_t *q;   // [rows, cols]
    float *scale; // [ceil(rows / block_rows), ceil(cols / 128)]
    int64_t x_row, q_row, scale_row;
    float eps; // the least amax
} qni_quantize_problem;

extern const qni_op qni_op_quantize, qni_op_dequantize;

/** The kernels: what variants.def lists. */
#define QN_VARIANT QN_PROTOTYPES
#define QN_IMAGE(...)
#include "variants.def"
#undef QN_VARIANT
#undef QN_IMAGE

/** Returns whether a lane's 8 elements can be loaded and stored at once. */
bool qni_quantize_has_runs(const qni_quantize_problem *p);
qn_status qni_quantize_launch(qn_stream *stream, const qni_quantize_problem *p,
                              const qni_kernel_ref *kernel, const uint32_t grid[3],
                              uint32_t threads);

static inline int64_t qni_quantize_block_cols(const qni_quantize_problem *p) {
    return (p->cols + QNI_BLOCK - 1) / QNI_BLOCK;
}
static inline int64_t qni_quantize_num_blocks(const qni_quantize_problem *p) {
    return (p->rows + p->block_rows - 1) / p->block_rows * qni_quantize_block_cols(p);
}

/** The definitions, in host memory: quantize_ref.c. */
void qni_quantize_ref(const qni_quantize_problem *p);
void qni_dequantize_ref(const qni_quantize_problem *p);

/** The part of x or q that shares a scale: rows row .. row + rows - 1, columns col .. col + cols -
 *  1. */
typedef struct qni_block {
    int64_t row, col, rows, cols;
    float *scale;
} qni_block;

/** Returns the block of index i; blocks are counted along the rows of scale. */
static inline qni_block qni_quantize_block(const qni_quantize_problem *p, int64_t i) {
    const int64_t per_row = qni_quantize_block_cols(p), br = i / per_row, bc = i % per_row;
    qni_block b = {.row = br * p->block_rows, .col = bc * QNI_BLOCK};
    b.rows = p->rows - b.row < p->block_rows ? p->rows - b.row : p->block_rows;
    b.cols = p->cols - b.col < QNI_BLOCK ? p->cols - b.col : QNI_BLOCK;
    b.scale = p->scale + br * p->scale_row + bc;
    return b;
}

/** Quantises or dequantises blocks first .. last - 1. */
typedef void (*qni_quantize_blocks)(const qni_quantize_problem *p, int64_t first, int64_t last);
/** Shares all blocks among the CPU's threads: quantize_cpu.c. */
void qni_quantize_on_threads(const qni_quantize_problem *p, qni_quantize_blocks blocks);
/** Quantises `count` blocks from b to the right, one element at a time. The vector kernels leave
 *  blocks with infinities and NaNs to this function. */
void qni_quantize_blocks_scalar(const qni_quantize_problem *p, const qni_block *b, int count);

/** Returns a block's scale from the block's largest magnitude. */
static inline float qni_quantize_scale(const qni_quantize_problem *p, float amax) {
    return (amax > p->eps ? amax : p->eps) / qni_fp8_format_of(p->kind).max;
}

/** Returns the bytes of an element of x. */
static inline int64_t qni_element_bytes(qni_dtype dtype) {
    return dtype == QNI_F32 ? 4 : 2;
}

/** Loads one element of f32, f16 or bf16. */
static inline float qni_load_element(qni_dtype dtype, const void *x, int64_t i) {
    if (dtype == QNI_F32)
        return ((const float *)x)[i];
    if (dtype == QNI_F16)
        return (float)((const _Float16 *)x)[i];
    return __builtin_bit_cast(float, (uint32_t)((const uint16_t *)x)[i] << 16);
}

#endif
