// SPDX-License-Identifier: Apache-2.0
// GEMM on the CPU: the one loop over tiles (gemm_cpu.c) and what an instruction set supplies to it,
// an engine.
//
// For each tile of d and each K-block of 128: the rows of a are decoded once, then panel after
// panel of 64 columns of b, and the two multiplied into f32 sums: sum += scale * (partial over the
// K-block). A panel is decoded once for all rows of the tile and stays in the first-level cache
// meanwhile.
#ifndef QNI_GEMM_CPU_H
#define QNI_GEMM_CPU_H

#include "gemm.h"

enum {
    QNI_GEMM_PANEL_N = 64,           // columns of a panel
    QNI_GEMM_BLOCK_K = 128,          // elements a K-block
    QNI_GEMM_TILE_M = 256,           // most rows of a tile
    QNI_GEMM_TILE_PANELS = 4,        // most panels of a tile
    QNI_GEMM_PANEL_BYTES = 64 * 128, // of a packed panel
};

/** Part of a matrix in memory: element [row, k] is at data + row * row_stride + k * k_stride (in
 *  elements). */
typedef struct qni_gemm_block {
    const void *data;
    qni_dtype dtype;
    int64_t row_stride, k_stride;
    int64_t rows, depth; // real ones: at most the tile's; what lies beyond counts as zero
    bool is_packed;      // b only: data is a packed panel, strides mean nothing
} qni_gemm_block;

/** What an instruction set supplies. Decoded elements are the engine's own affair. */
typedef struct qni_gemm_engine {
    /** out[rows][128] */
    void (*load_a)(void *out, const qni_gemm_block *a);
    /** out: 64 x 128 in the order that multiply wants */
    void (*load_b)(void *out, const qni_gemm_block *b);
    /** sums[rows][64] = (is_first ? 0 : sums) + scales[row] * (a b). `next`, if not null, is the
     *  packed panel that load_b will be given next: time to fetch it. */
    void (*multiply)(float *sums, const void *a, const void *b, const float *scales, int64_t rows,
                     bool is_first, const char *next);
    /** load_b and multiply in one, for at most direct_rows rows: the same bits, without the way
     *  through memory. Null: there is none. */
    void (*multiply_packed)(float *sums, const void *a, const qni_gemm_block *b,
                            const float *scales, int64_t rows, bool is_first, const char *next);
    int64_t direct_rows;
    /** `columns` elements of a row: d = sums, or c + sums where c is not null. */
    void (*store)(void *d, const void *c, qni_dtype dtype, const float *sums, int64_t columns);
} qni_gemm_engine;

/** Runs the problem with the engine, on all threads. */
qn_status qni_gemm_cpu_run(const qni_gemm_engine *engine, const qni_gemm_problem *problem);

/** Copies an FP8 block of b, of any strides, into a packed panel. */
void qni_gemm_gather_panel(uint8_t *panel, const qni_gemm_block *b);

#endif
