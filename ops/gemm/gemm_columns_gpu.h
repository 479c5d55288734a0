// SPDX-License-Identifier: Apache-2.0
// The order of a gemm's tiles where a column of them is short.
#ifndef QK_GEMM_COLUMNS_GPU_H
#define QK_GEMM_COLUMNS_GPU_H

#include "gemm_gpu.h"

/** Chooses a workgroup's tile where few rows share their columns: row tiles of the same columns are
 *  eight workgroups apart, so that they run together on one XCD, whose second level reads b once.
 *  Returns the row tile's number. Divisions, which take long, are few. */
QD_INLINE uint32_t qk_gemm_column_order(const qk_gemm_args *g, uint32_t block, uint32_t *tile_n) {
    constexpr uint32_t xcds = 8;
    const uint32_t run = block / (xcds * g->tiles_m), in = block - run * xcds * g->tiles_m;
    const uint32_t width = qd_min(g->tiles_n - run * xcds, xcds);
    const uint32_t row = width == xcds ? in / xcds : in / width;
    *tile_n = run * xcds + in - row * width;
    return row;
}

#endif // QK_GEMM_COLUMNS_GPU_H
