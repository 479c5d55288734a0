// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernels, and how every CPU kernel's blocks are shared among threads.
#include "../quantize.h"
#include "dequantize_loops.h"

/** Elements of one task: enough that starting a task costs nothing beside it, few enough that
 *  threads end together. */
constexpr int64_t task_elements = 1 << 16;

typedef struct shared_blocks {
    const qni_quantize_problem *problem;
    qni_quantize_blocks blocks;
} shared_blocks;

static void run_blocks(void *context, int64_t first, int64_t end, void *) {
    const shared_blocks *s = context;
    s->blocks(s->problem, first, end);
}

void qni_quantize_on_threads(const qni_quantize_problem *p, qni_quantize_blocks blocks) {
    qni_parallel_runs(qni_quantize_num_blocks(p), task_elements / (p->block_rows * QNI_BLOCK), 0,
                      run_blocks, &(shared_blocks){p, blocks});
}

/** Returns the largest magnitude of a block; NaNs do not count. */
static float block_amax(const qni_quantize_problem *p, const qni_block *b) {
    float amax = 0;
    for (int64_t r = b->row; r < b->row + b->rows; r++)
        for (int64_t c = b->col; c < b->col + b->cols; c++) {
            const float magnitude =
                __builtin_fabsf(qni_load_element(p->dtype_x, p->x, r * p->x_row + c));
            amax = magnitude > amax ? magnitude : amax; // false for a NaN
        }
    return amax;
}

static void quantize_block(const qni_quantize_problem *p, const qni_block *b) {
    *b->scale = qni_quantize_scale(p, block_amax(p, b));
    const float inverse = 1.0f / *b->scale;
    for (int64_t r = b->row; r < b->row + b->rows; r++)
        for (int64_t c = b->col; c < b->col + b->cols; c++) {
            const float x = qni_load_element(p->dtype_x, p->x, r * p->x_row + c);
            p->q[r * p->q_row + c] = qni_fp8_encode(p->kind, x * inverse);
        }
}

void qni_quantize_blocks_scalar(const qni_quantize_problem *p, const qni_block *b, int count) {
    qni_block each = *b;
    for (int i = 0; i < count; i++, each.col += QNI_BLOCK, each.scale++)
        quantize_block(p, &each);
}

static void quantize_blocks(const qni_quantize_problem *p, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        const qni_block b = qni_quantize_block(p, i);
        quantize_block(p, &b);
    }
}

qn_status qni_quantize_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, quantize_blocks);
    return QN_OK;
}

qn_status qni_dequantize_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, dequantize_blocks);
    return QN_OK;
}
