// SPDX-License-Identifier: Apache-2.0
// Host side of sampling's kernels for clusters, sampling_cluster_gpu.c: which problems they take,
// their launch.
#include "../sampling.h"

constexpr int64_t max_rows = 1 << 27; // a grid has fewer than 2^31 workgroups

bool qni_sampling_cluster_supports(const qni_variant *variant, const qn_device *,
                                   const void *problem, qni_reason *why) {
    const qni_sampling_problem *p = problem;
    if (!qni_sampling_is_on_rows(p))
        return qni_no(why, "speculative sampling and penalties are not taken");
    const uint32_t bytes = p->rows.dtype == QNI_F32 ? 4 : 2;
    const uint32_t part = qk_sampling_part(p->rows.vocab) * bytes,
                   most = variant->config.columns * 4;
    if (p->rows.batch > max_rows)
        return qni_no(why, "%u rows; taken: up to %ld", p->rows.batch, (long)max_rows);
    return part <= most || qni_no(why, "vocab is %u, %u bytes for each of %d workgroups; taken: %u",
                                  p->rows.vocab, part, QK_SAMPLING_PARTS, most);
}

qn_status qni_sampling_cluster(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qk_sampling_args *g = &((const qni_sampling_problem *)problem)->rows;
    const int entry = g->what == QK_SAMPLING_SOFTMAX ? 2 : qni_sampling_is_plain(g);
    const uint32_t grid[3] = {g->batch * QK_SAMPLING_PARTS, 1, 1};
    return qni_launch(stream, &variant->config.kernel[entry], grid, variant->config.waves * 32, g,
                      sizeof *g);
}
