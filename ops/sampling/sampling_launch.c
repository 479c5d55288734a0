// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of sampling_gpu.c.
#include "../shared/round.h"
#include "sampling.h"

enum { THREADS = 1024 };
enum { GROUPS_OF_UNIT = 8 };          // of QK_PENALTIES_THREADS; chips run about so many at a time
constexpr int64_t max_grid = 1 << 20; // workgroups step through the rows that are left

static uint32_t rows_of_grid(int64_t batch) {
    return (uint32_t)(batch < max_grid ? batch : max_grid);
}

/** Launches workgroups that have whole rows. */
static qn_status launch(qn_stream *stream, const qni_kernel_ref *kernel, int64_t batch,
                        const void *args, size_t args_bytes) {
    const uint32_t grid[3] = {rows_of_grid(batch), 1, 1};
    return qni_launch(stream, kernel, grid, THREADS, args, args_bytes);
}

/** Launches penalties: so many workgroups share a row that each lane has one group, but no more
 *  than run at a time. */
static qn_status launch_penalties(qn_stream *stream, const qni_kernel_ref *kernel,
                                  const qk_penalty_args *g) {
    const int64_t units = stream->device->info.num_compute_units;
    const int64_t wanted = qni_pieces(g->vocab, QK_PENALTIES_GROUP * QK_PENALTIES_THREADS);
    const int64_t room = qni_pieces(GROUPS_OF_UNIT * units, g->batch);
    const uint32_t grid[3] = {rows_of_grid(g->batch), (uint32_t)(wanted < room ? wanted : room), 1};
    return qni_launch(stream, kernel, grid, QK_PENALTIES_THREADS, g, sizeof *g);
}

qn_status qni_sampling_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_sampling_problem *p = problem;
    const qni_kernel_ref *kernel = variant->config.kernel;
    if (p->what == QK_SAMPLING_CHAIN)
        return launch(stream, &kernel[1], p->chain.batch, &p->chain, sizeof p->chain);
    if (p->what == QK_SAMPLING_PENALTIES)
        return launch_penalties(stream, &kernel[2], &p->penalties);
    return launch(stream, &kernel[0], p->rows.batch, &p->rows, sizeof p->rows);
}
