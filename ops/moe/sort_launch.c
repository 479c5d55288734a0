// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of sort_gpu.c: one counts, the next places; or, of few pairs, one does both.
#include "moe.h"

enum { ONE_THREADS = 1024, THREADS = 256 };
static const uint32_t one[3] = {1, 1, 1};

bool qni_moe_sort_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                               qni_reason *why) {
    const qni_moe_sort_problem *p = problem;
    return p->experts <= QK_MOE_MAX_EXPERTS ||
           qni_no(why, "%u experts; up to %d are accepted", p->experts, QK_MOE_MAX_EXPERTS);
}

qn_status qni_moe_sort_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_sort_problem *p = problem;
    const uint32_t waves = THREADS / (uint32_t)stream->device->target->wave_size;
    const uint32_t grid[3] = {(p->experts + waves) / waves, 1, 1};
    QN_TRY(qni_launch(stream, &variant->config.kernel[0], one, ONE_THREADS, p, sizeof *p));
    return qni_launch(stream, &variant->config.kernel[1], grid, THREADS, p, sizeof *p);
}

bool qni_moe_sort_few_supports(const qni_variant *variant, const qn_device *device,
                               const void *problem, qni_reason *why) {
    const qni_moe_sort_problem *p = problem;
    if (p->pairs > QK_MOE_FEW_PAIRS)
        return qni_no(why, "%u pairs; up to %d are accepted", p->pairs, QK_MOE_FEW_PAIRS);
    return qni_moe_sort_gpu_supports(variant, device, problem, why);
}

qn_status qni_moe_sort_few(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_sort_problem *p = problem;
    return qni_launch(stream, &variant->config.kernel[0], one, ONE_THREADS, p, sizeof *p);
}
