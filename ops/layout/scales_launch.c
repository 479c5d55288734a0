// SPDX-License-Identifier: Apache-2.0
// Layouts of scales: the CPU's kernels, which share the GPU's arithmetic, and the launch of the
// GPU's.
#include "scales.h"

static uint32_t at_most(int64_t count, int64_t most) {
    return (uint32_t)(count < most ? count : most);
}

/** Launches workgroups for rows, quads or words, and groups; kernels step through the rest. */
static qn_status launch(qn_stream *stream, const qni_kernel_ref *kernel, int64_t rows, int64_t y,
                        int64_t z, const void *args, size_t args_bytes) {
    const int64_t tiles = (rows + QK_SCALES_THREADS - 1) / QK_SCALES_THREADS;
    const uint32_t grid[3] = {at_most(tiles, 1 << 16), at_most(y, 1 << 12), at_most(z, 1 << 12)};
    return qni_launch(stream, kernel, grid, QK_SCALES_THREADS, args, args_bytes);
}

qn_status qni_scales_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_scales_problem *p = problem;
    return launch(stream, &variant->config.kernel[0], p->rows, p->quads, p->groups, p, sizeof *p);
}

qn_status qni_k_scales_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_k_scales_problem *p = problem;
    return launch(stream, &variant->config.kernel[0], p->rows, p->words, 1, p, sizeof *p);
}

/** Rows of one task: their lines stay in the first cache while the loop goes along quads. */
constexpr int64_t tile = 64;

static void move_tile(void *context, int64_t i) {
    const qni_scales_problem *p = context;
    const int64_t tiles = (p->rows + tile - 1) / tile, first = i % tiles * tile;
    for (uint32_t quad = 0; quad < p->quads; quad++)
        for (int64_t row = first; row < first + tile && row < p->rows; row++)
            qk_move_quad(p, (uint32_t)(i / tiles), quad, (uint32_t)row);
}

qn_status qni_scales_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_scales_problem p = *(const qni_scales_problem *)problem;
    qni_parallel((p.rows + tile - 1) / tile * p.groups, move_tile, &p);
    return QN_OK;
}

static void move_word(void *context, int64_t word) {
    const qni_k_scales_problem *p = context;
    const qk_k_word w = qk_find_k_word(p, (uint32_t)word);
    for (uint32_t row = 0; row < p->rows; row++)
        qk_move_k_quad(p, w, (uint32_t)word, row);
}

qn_status qni_k_scales_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_k_scales_problem p = *(const qni_k_scales_problem *)problem;
    qni_parallel(p.words, move_word, &p);
    return QN_OK;
}
