// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of sampling_gpu.c.
#include "sampling.h"

enum { THREADS = 1024 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through the rows that are left

static qn_status launch(qn_stream *stream, const qni_kernel_ref *kernel, int64_t batch,
                        const void *args, size_t args_bytes) {
    const uint32_t grid[3] = {(uint32_t)(batch < max_grid ? batch : max_grid), 1, 1};
    return qni_launch(stream, kernel, grid, THREADS, args, args_bytes);
}

qn_status qni_sampling_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_sampling_problem *p = problem;
    const qni_kernel_ref *kernel = variant->config.kernel;
    const int64_t batch = qni_sampling_batch(p);
    if (p->what == QK_SAMPLING_CHAIN)
        return launch(stream, &kernel[1], batch, &p->chain, sizeof p->chain);
    if (p->what == QK_SAMPLING_PENALTIES)
        return launch(stream, &kernel[2], batch, &p->penalties, sizeof p->penalties);
    return launch(stream, &kernel[0], batch, &p->rows, sizeof p->rows);
}
