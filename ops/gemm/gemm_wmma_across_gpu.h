// SPDX-License-Identifier: Apache-2.0
// How operands of 16 bits reach a stage of gemm_wmma_gpu.c if their rows, not k, are contiguous in
// memory: a thread loads a run of neighbouring rows of two k, and writes each row's pair as a word.
//
// LDS       a wave writes rows of eight runs for four pairs of k at once. Rows of runs of eight lie
//           656 bytes apart, for which each eight has 16 bytes more, so that all banks are touched
// Lines     eight runs of eight rows are a cache's line
// Edges     runs past the end are copies of the last one that begins before it. That one may pass
//           the end: it then has what follows in memory, whose results nobody stores, and is in
//           bounds if BEHIND more of k follow. So the last ones go through run_rest()
#ifndef QK_GEMM_WMMA_ACROSS_GPU_H
#define QK_GEMM_WMMA_ACROSS_GPU_H

#include "gemm_wmma_gpu.h"
#include "halves.h"

enum { RUNS = THREADS / 16, RUN_WAVES = RUNS / 8 }; // of an operand; waves with other runs
enum { BEHIND = 8 };
/** The rows of a run, where lines take `loads` pieces of a thread. */
#define RUN_OF(loads) (4 * (uint32_t)(loads))
typedef qd_u32x2 __attribute__((aligned(ELEMENT))) half_piece;
static_assert(RUNS % 8 == 0 && LOADS_A <= 2 && LOADS_B == 2);

/** Returns this thread's run. */
QD_INLINE uint32_t run_of_thread(void) {
    return qd_lane() % 8 + qd_wave() % RUN_WAVES * 8;
}

/** Returns the first of this thread's two k. */
QD_INLINE uint32_t k_of_thread(void) {
    return (qd_lane() / 8 + qd_wave() / RUN_WAVES * 4) * 2;
}

/** Returns the row of a stage, counted from the operand's first, that b's column 8 `run` is in:
 *  column_of() the other way round. */
QD_INLINE uint32_t row_of_run_b(uint32_t run) {
    return run / (2 * NT) * (16 * NT) + run % NT * 16 + qd_mma16_row(run / NT % 2 * 16, 0);
}

/** Returns where row i of a run lies, counted from the run's first. */
QD_INLINE uint32_t in_run(uint32_t i, bool is_b) {
    return row_at(is_b ? qd_mma16_row(0, i) : i);
}

/** Says where this thread's run of an operand, of which `rows` exist, comes from and goes. Returns
 *  the bytes from a K-block to the next one. */
QD_INLINE uint32_t aim_across(across *x, uint32_t *offset, int64_t stride, uint32_t rows, int loads,
                              bool is_b) {
    const uint32_t run = run_of_thread(), last = (rows - 1) / RUN_OF(loads);
    x->step = (uint32_t)stride * ELEMENT;
    x->to = row_at(is_b ? TM + row_of_run_b(run) : run * RUN_OF(loads)) + k_of_thread() * ELEMENT;
    *offset = k_of_thread() * x->step + qd_min(run, last) * (RUN_OF(loads) * ELEMENT);
    return BLOCK_K * x->step;
}

/** Loads the run of a K-block that begins at `from`. */
QD_INLINE void load_across(codes *to, const MEMORY uint8_t *from, uint32_t offset, uint32_t step,
                           int loads) {
    const MEMORY uint8_t *const of_k[2] = {from, in_scalars(from + step)};
    QD_UNROLL for (int k = 0; k < 2; k++) {
        if (loads == 2) {
            to[k] = *(const MEMORY piece *)(of_k[k] + offset);
            continue;
        }
        const qd_u32x2 half = *(const MEMORY half_piece *)(of_k[k] + offset);
        to[0][2 * k] = half.x;
        to[0][2 * k + 1] = half.y;
    }
}

/** Writes a run, whose first row goes to `to`. */
QD_INLINE void put_across(QD_LDS uint8_t *to, const codes *run, int loads, bool is_b) {
    QD_UNROLL for (uint32_t i = 0; i < RUN_OF(loads); i++) {
        const uint32_t first = run[0][i / 2];
        const uint32_t second = loads == 2 ? run[1][i / 2] : run[0][2 + i / 2];
        *(QD_LDS uint32_t *)(to + in_run(i, is_b)) = qd_halves(first, second, i % 2);
    }
}

/** Fills an operand's rows of both stages with a line, which begins at `from` and of which `count`
 *  of k exist, or all; the others are zero. Rows past the end are copies of the last one. */
QD_INLINE void put_rest_across(const MEMORY uint8_t *from, const across *x, uint32_t rows,
                               uint32_t count, int loads, bool is_b) {
    const uint32_t first = run_of_thread() * RUN_OF(loads);
    QD_UNROLL for (uint32_t block = 0; block < 2; block++) QD_UNROLL
        for (uint32_t i = 0; i < RUN_OF(loads); i++) {
            const uint32_t k = block * BLOCK_K + k_of_thread();
            const MEMORY uint8_t *row = from + qd_min(first + i, rows - 1) * ELEMENT;
            const uint32_t low = *(const MEMORY uint16_t *)(row + qd_min(k, count - 1) * x->step);
            const uint32_t high =
                *(const MEMORY uint16_t *)(row + qd_min(k + 1, count - 1) * x->step);
            *(QD_LDS uint32_t *)(lds + x->to + block * STAGE_BYTES + in_run(i, is_b)) =
                (k < count ? low : 0) | (k + 1 < count ? high << 16 : 0);
        }
}

#endif
