// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of quantize_wide_gpu.c, and says when they are the better ones.
#include "quantize.h"
#include "quantize_abi.h"

enum { ROWS = 4, THREADS = QK_BLOCK / ROWS * QK_TEAM };
constexpr int64_t most_rows = 65535; // of blocks, a grid's second dimension

bool qni_quantize_wide_blocks_supports(const qni_variant *variant, const qn_device *device,
                                       const void *problem, qni_reason *why) {
    const qni_quantize_problem *p = problem;
    if (!qni_quantize_gpu_blocks_supports(variant, device, problem, why))
        return false;
    if (!qni_quantize_has_runs(p))
        return qni_no(why, "runs of 8 elements are not aligned, to 16 bytes in x, to 8 in q");
    if (p->rows % QK_BLOCK != 0 || p->cols % QK_BLOCK != 0)
        return qni_no(why, "[%ld, %ld] is not of whole blocks of %d x %d", (long)p->rows,
                      (long)p->cols, QK_BLOCK, QK_BLOCK);
    return p->rows / QK_BLOCK <= most_rows ||
           qni_no(why, "%ld rows take more workgroups than a launch has", (long)p->rows);
}

/** The kernels are better if their workgroups fill the device several times. By measurement on an
 *  H200; no AMD card has timed them. */
double qni_quantize_wide_cost(const qni_variant *, const qn_device *device, const void *problem) {
    return qni_quantize_num_blocks(problem) >= 4 * device->info.num_compute_units ? 1 : INFINITY;
}

qn_status qni_quantize_wide_blocks(const qni_variant *variant, qn_stream *stream,
                                   const void *problem) {
    const qni_quantize_problem *p = problem;
    const uint32_t grid[3] = {(uint32_t)(p->cols / QK_BLOCK), (uint32_t)(p->rows / QK_BLOCK), 1};
    return qni_quantize_launch(stream, p, &variant->config.kernel[p->dtype_x], grid, THREADS);
}
