// SPDX-License-Identifier: Apache-2.0
// GEMM on the CPU: one loop over tiles (gemm_cpu.c), and the engine that each instruction set
// supplies to it.
//
// For each tile of d and each K-block of 128 the loop decodes the tile's rows of a once. It then
// walks panels of 64 columns of b and multiplies each with the rows into f32 sums: sum += scale *
// (partial over the K-block). A panel is decoded once for all rows of the tile, and stays in the
// first-level cache while they use it. Where the engine has products along k (gemm_dot.h) and b's
// k is contiguous, no panel is decoded.
#ifndef QNI_GEMM_CPU_H
#define QNI_GEMM_CPU_H

#include "../gemm.h"

enum {
    QNI_GEMM_PANEL_N = 64,           // columns of a panel
    QNI_GEMM_BLOCK_K = 128,          // elements a K-block
    QNI_GEMM_TILE_M = 256,           // most rows of a tile
    QNI_GEMM_TILE_PANELS = 4,        // most panels of a tile
    QNI_GEMM_PANEL_BYTES = 64 * 128, // of a packed panel
    QNI_GEMM_DOT_K = 1024,           // most elements along k that a dot product's lanes take
    QNI_GEMM_DOT_N = 8,              // columns that are multiplied along k at once
    QNI_GEMM_DOT_M = 64,             // most such rows
    QNI_GEMM_SPAN = 64 * 1024,       // most elements of a that are decoded at once
};

/** Part of a matrix in memory: element [row, k] is at data + row * row_stride + k * k_stride (in
 *  elements). */
typedef struct qni_gemm_block {
    const void *data;
    qni_dtype dtype;
    int64_t row_stride, k_stride;
    int64_t rows, depth; // that exist, at most the tile's; what lies beyond counts as zero
    bool is_packed;      // b only: data is a packed panel, strides mean nothing here
    bool is_beside_e4m3; // the other operand is e4m3
} qni_gemm_block;

/** The block of codes that comes next: 64 rows of 128 bytes, which lie `stride` bytes apart and may
 *  be fetched into the cache. */
typedef struct qni_gemm_next {
    const char *rows; // null: there is none
    int64_t stride;
} qni_gemm_next;

/** What acts on the sums of a panel before c is added. */
typedef struct qni_gemm_epilogue {
    alignas(64) float bias[QNI_GEMM_PANEL_N]; // zeros without a bias
    alignas(64) float gate[QNI_GEMM_PANEL_N]; // of columns of d; ones without a gate
    qn_gemm_activation activation;
} qni_gemm_epilogue;

/** The scale of a group of a row of d. */
typedef struct qni_gemm_scaling {
    float *found; // written; null: given is the scale
    float given, eps;
} qni_gemm_scaling;

/** What an instruction set supplies. Only the engine knows how decoded elements are laid out. */
typedef struct qni_gemm_engine {
    /** Puts 64 rows of 128 codes in a packed panel's order. */
    void (*gather)(uint8_t *panel, const uint8_t *rows, int64_t row_stride);
    /** Decodes rows of a: out[rows][128]. */
    void (*load_a)(void *out, const qni_gemm_block *a);
    /** Decodes 64 x 128 of b, in the order that multiply wants. e4m3 whose k is contiguous comes as
     *  a packed panel. */
    void (*load_b)(void *out, const qni_gemm_block *b);
    /** sums[rows][64] = (is_first ? 0 : sums) + scales[row] * (a b). */
    void (*multiply)(float *sums, const void *a, const void *b, const float *scales, int64_t rows,
                     bool is_first, qni_gemm_next next);
    /** Does what load_b and multiply do, for at most direct_rows rows, and gives the bits that they
     *  give, but keeps the decoded b in registers. Null: there is no such function. */
    void (*multiply_packed)(float *sums, const void *a, const qni_gemm_block *b,
                            const float *scales, int64_t rows, bool is_first, qni_gemm_next next);
    int64_t direct_rows;
    /** Decodes rows of a for multiply_along_k: out[rows][stride] elements of dot_bytes. What lies
     *  beyond the depth is zero. */
    void (*load_a_along_k)(void *out, const qni_gemm_block *a, int64_t stride, qni_dtype dtype_b);
    /** sums[rows][64] = (is_first ? 0 : sums) + a b for at most 8 columns, whose k is contiguous,
     *  and at most 1024 of k. Null: there is no such function. */
    void (*multiply_along_k)(float *sums, const void *a, int64_t stride, const qni_gemm_block *b,
                             int64_t rows, bool is_first);
    int64_t dot_bytes;
    bool takes_bf16_directly; // multiply_packed takes a of bf16, not e4m3 alone
    /** Turns a row of sums, all 64, into what c is added to: 64 columns of d or, where pairs make
     *  one, 32. */
    void (*finish)(float *sums, const qni_gemm_epilogue *epilogue);
    /** Stores `columns` elements of a row: d = sums, or c + sums if c is not null. */
    void (*store)(void *d, const void *c, qni_dtype dtype, const float *sums, int64_t columns);
    /** Stores up to 128 columns of a row of d as FP8; values behind them are zeros. */
    void (*quantize)(uint8_t *d, qni_dtype dtype, const qni_gemm_scaling *scaling,
                     const float *values, int64_t columns);
} qni_gemm_engine;

/** Runs the problem with the engine, on all threads. */
qn_status qni_gemm_cpu_run(const qni_gemm_engine *engine, const qni_gemm_problem *problem);

#endif
