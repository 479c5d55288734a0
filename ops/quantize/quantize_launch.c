// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of quantize_gpu.c.
#include "../shared/round.h"
#include "quantize.h"
#include "quantize_abi.h"

static_assert(QK_BLOCK == QNI_BLOCK);

/** Takes what kernels can count: they count rows and columns in 32 bits, and step past the end by
 *  less than a grid. */
bool qni_quantize_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                               qni_reason *why) {
    (void)device;
    const qni_quantize_problem *p = problem;
    if (p->rows < INT32_MAX && p->cols < INT32_MAX)
        return true;
    return qni_no(why, "[%ld, %ld] is too large; fewer than 2^31 rows and columns are accepted",
                  (long)p->rows, (long)p->cols);
}

bool qni_quantize_gpu_rows_supports(const qni_variant *variant, const qn_device *device,
                                    const void *problem, qni_reason *why) {
    const qni_quantize_problem *p = problem;
    return qni_quantize_gpu_supports(variant, device, problem, why) &&
           (p->block_rows == 1 ||
            qni_no(why, "a scale for %ld rows; taken: for one", (long)p->block_rows));
}

bool qni_quantize_gpu_blocks_supports(const qni_variant *variant, const qn_device *device,
                                      const void *problem, qni_reason *why) {
    const qni_quantize_problem *p = problem;
    return qni_quantize_gpu_supports(variant, device, problem, why) &&
           (p->block_rows == QK_BLOCK ||
            qni_no(why, "a scale for %ld rows; taken: for %d", (long)p->block_rows, QK_BLOCK));
}

bool qni_quantize_has_runs(const qni_quantize_problem *p) {
    return (uintptr_t)p->x % 16 == 0 && (uintptr_t)p->q % QK_RUN == 0 && p->x_row % QK_RUN == 0 &&
           p->q_row % QK_RUN == 0;
}

/** Returns the log2 of the teams that lie side by side: as many as a row has blocks, at most all of
 *  a workgroup. */
static uint32_t teams_log2(const qni_quantize_problem *p) {
    uint32_t log2 = 0;
    while ((1 << log2) < QK_TEAMS && (1 << log2) < qni_quantize_block_cols(p))
        log2++;
    return log2;
}

qn_status qni_quantize_launch(qn_stream *stream, const qni_quantize_problem *p,
                              const qni_kernel_ref *kernel, const uint32_t grid[3],
                              uint32_t threads) {
    const qk_quantize_args args = {.x = p->x,
                                   .q = p->q,
                                   .scale = p->scale,
                                   .x_row = p->x_row,
                                   .q_row = p->q_row,
                                   .scale_row = p->scale_row,
                                   .rows = (uint32_t)p->rows,
                                   .cols = (uint32_t)p->cols,
                                   .kind = p->kind,
                                   .teams_log2 = teams_log2(p),
                                   .block_rows_log2 = p->block_rows == 1 ? 0 : 7,
                                   .eps = p->eps,
                                   .has_runs = qni_quantize_has_runs(p)};
    return qni_launch(stream, kernel, grid, threads, &args, sizeof args);
}

static uint32_t grid_size(int64_t count, int64_t tile, int64_t most) {
    const int64_t tiles = qni_pieces(count, tile);
    return (uint32_t)(tiles < most ? tiles : most);
}

/** Launches a kernel whose workgroups take tile_rows x tile_cols elements. More workgroups than the
 *  grid has would not run at one time, and kernels step through the rest. */
static qn_status launch_tiles(const qni_variant *variant, qn_stream *stream,
                              const qni_quantize_problem *p, int64_t tile_rows, int64_t tile_cols) {
    const uint32_t grid[3] = {grid_size(p->rows, tile_rows, 1 << 20),
                              grid_size(p->cols, tile_cols, 1 << 15), 1};
    return qni_quantize_launch(stream, p, &variant->config.kernel[p->dtype_x], grid, QK_THREADS);
}

/** Launches a kernel whose teams of lanes take 128 columns of `rows` rows each. */
static qn_status launch_teams(const qni_variant *variant, qn_stream *stream,
                              const qni_quantize_problem *p, int64_t rows) {
    return launch_tiles(variant, stream, p, rows * (QK_TEAMS >> teams_log2(p)),
                        (int64_t)QK_BLOCK << teams_log2(p));
}

qn_status qni_quantize_gpu_rows(const qni_variant *variant, qn_stream *stream,
                                const void *problem) {
    return launch_teams(variant, stream, problem, QK_ROWS);
}

qn_status qni_dequantize_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return launch_teams(variant, stream, problem, 1);
}

qn_status qni_quantize_gpu_blocks(const qni_variant *variant, qn_stream *stream,
                                  const void *problem) {
    return launch_tiles(variant, stream, problem, QK_BLOCK, QK_BLOCK);
}
