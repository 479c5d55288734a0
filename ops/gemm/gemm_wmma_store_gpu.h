// SPDX-License-Identifier: Apache-2.0
// How a tile of gemm_wmma_gpu.c becomes d: from registers where it is plain, else through LDS as
// f32; sums of FP8 are multiplied by the scales of rows before.
#ifndef QK_GEMM_WMMA_STORE_GPU_H
#define QK_GEMM_WMMA_STORE_GPU_H

#include "gemm_wmma_gpu.h"

/** Returns the place in LDS of column `column` and the three behind it, of row `row` of those that
 *  take part. */
QD_INLINE QD_LDS qd_f32x4 *result_at(uint32_t row, uint32_t column) {
    return (QD_LDS qd_f32x4 *)(lds + (row * RESULT_PITCH + column / 4) * 16);
}

/** Returns eight columns of d, of which the first is `column` of the tile's columns of d. */
QD_INLINE qd_f32x8 finished(const qk_gemm_args *g, uint32_t r, uint32_t row, uint32_t n0,
                            uint32_t column, uint32_t ratio) {
    qd_f32x4 part[4];
    QD_UNROLL for (uint32_t i = 0; i < 2 * ratio; i++) {
        const uint32_t at = column * ratio + 4 * i;
        part[i] = *result_at(r, at);
        if (g->has_epilogue)
            part[i] = qk_gemm_finish_full(g, row, n0 + at, ratio, part[i]);
    }
    if (ratio == 2) {
        part[0] = __builtin_shufflevector(part[0], part[1], 0, 1, 4, 5);
        part[1] = __builtin_shufflevector(part[2], part[3], 0, 1, 4, 5);
    }
    return __builtin_shufflevector(part[0], part[1], 0, 1, 2, 3, 4, 5, 6, 7);
}

/** Stores the rows in LDS, tile row m of each row of waves. */
QD_INLINE void store_runs(const qk_gemm_full_args *f, const qk_gemm_tile *tile, uint32_t n0,
                          uint32_t m, uint32_t ratio) {
    const qk_gemm_args *g = &f->g;
    const uint32_t lanes = TN / 8 / ratio, step = THREADS / lanes; // lanes: of a row
    const uint32_t column = qd_thread() % lanes * 8, end = g->n / ratio;
    QD_NO_UNROLL for (uint32_t r = qd_thread() / lanes; r < PASS_ROWS; r += step) {
        const uint32_t row = tile->row + (r / 16 * MT + m) * 16 + r % 16;
        const qd_f32x8 v = finished(g, r, row, n0, column, ratio);
        if (HAS_CODES && qk_gemm_has_codes(g))
            qk_gemm_quantize8(g, &f->scaling, tile, row, n0 / ratio + column, end, v);
        else
            qk_gemm_store8(g, tile, row, n0 / ratio + column, end, v);
    }
}

/** Puts a row of tiles of this wave into LDS, as f32. */
QD_INLINE void put_results(const qd_mma16_acc sum[NT]) {
    const uint32_t row = qd_wave() / WN * 16 + qd_lane() % 16;
    const uint32_t column = qd_wave() % WN * (16 * NT) + qd_lane() / 16 * (8 * NT);
    QD_UNROLL for (uint32_t n = 0; n < NT; n++) {
        *result_at(row, column + n * 8) = sum[n].lo;
        *result_at(row, column + n * 8 + 4) = sum[n].hi;
    }
}

/** Stores the tile through LDS. */
QD_INLINE void store(const wave *w, const qk_gemm_full_args *f, const qk_gemm_tile *tile,
                     uint32_t n0, uint32_t ratio) {
    QD_NO_UNROLL for (uint32_t m = 0; m < MT; m++) {
        qd_barrier(); // no wave reads LDS any more
        QD_UNROLL for (uint32_t i = 0; i < MT; i++)
            if (i == m)
                put_results(w->sum[i]);
        qd_barrier();
        store_runs(f, tile, n0, m, ratio);
    }
}

/** Returns whether store_plain() can store the tile: whole runs of 16 bits as they are. */
QD_INLINE bool is_plain(const qk_gemm_args *g, uint32_t n0) {
    const bool is_aligned = (uintptr_t)g->d % 16 == 0 && (g->d_row | g->d_group) % 8 == 0;
    const bool has_halves = g->type_d == QK_BF16 || g->type_d == QK_F16;
    return is_aligned && has_halves && !g->c && !g->has_epilogue && n0 + TN <= g->n;
}

/** Stores the tile from registers. */
QD_INLINE void store_plain(const wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile,
                           uint32_t n0) {
    const uint32_t row = tile->row + qd_wave() / WN * (16 * MT) + qd_lane() % 16;
    const uint32_t column = n0 + qd_wave() % WN * (16 * NT) + qd_lane() / 16 * (8 * NT);
    uint16_t *d = (uint16_t *)g->d + tile->group * g->d_group + column;
    const bool is_f16 = g->type_d == QK_F16;
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        bool is_zero;
        if (!qk_gemm_writes_row(g, tile, row + m * 16, &is_zero))
            continue;
        qd_u32x4 *to = (qd_u32x4 *)(d + (row + m * 16) * g->d_row);
        QD_UNROLL for (uint32_t n = 0; n < NT; n++) {
            const qd_f32x8 v = is_zero ? 0 : w->sum[m][n];
            qd_u32x4 out;
            QD_UNROLL for (int i = 0; i < 4; i++)
                out[i] = qk_gemm_pair16(is_f16, (qd_f32x2){v[2 * i], v[2 * i + 1]});
            to[n] = out;
        }
    }
}

/** Multiplies the sums by the scales of their row of a and their row of b. */
QD_INLINE void scale_sums(wave *w, const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t n0) {
    const uint32_t column = qd_wave() % WN * (16 * NT) + qd_lane() / 16 * (8 * NT);
    float a[MT];
    QD_UNROLL for (uint32_t m = 0; m < MT; m++) {
        const uint32_t row = (qd_wave() / WN * MT + m) * 16 + qd_lane() % 16;
        a[m] = 1;
        if (g->scale_a)
            a[m] = g->scale_a[tile->group * g->scale_a_group +
                              (tile->row + qd_min(row, w->rows - 1)) * g->scale_a_row];
    }
    QD_UNROLL for (uint32_t i = 0; i < NT * 8; i++) {
        const uint32_t at = n0 + qd_min(column + i, w->columns - 1);
        const float b =
            g->scale_b ? g->scale_b[tile->group * g->scale_b_group + at * g->scale_b_nb] : 1;
        QD_UNROLL for (int m = 0; m < MT; m++)
            w->sum[m][i / 8][i % 8] *= SCALE * (a[m] * b);
    }
}

QD_INLINE void finish(wave *w, const qk_gemm_full_args *f, const qk_gemm_tile *tile, uint32_t n0,
                      uint32_t by_blocks) {
    const qk_gemm_full_args full = qk_gemm_reread(f, tile);
    if (IS_FP8 && !by_blocks && w->rows > 0 && full.g.k > 0)
        scale_sums(w, &full.g, tile, n0);
    if (is_plain(&full.g, n0)) {
        store_plain(w, &full.g, tile, n0);
        return;
    }
    QK_GEMM_EACH_RATIO(&full.g, { store(w, &full, tile, n0, ratio); })
}

#endif
