// SPDX-License-Identifier: Apache-2.0
// Packing of bits: the CPU's kernel, and the launch of the GPU's.
#include "pack.h"
#include "pack_abi.h"

constexpr int64_t max_grid[2] = {1 << 16, 1 << 15}; // kernels step through the rest

void qni_pack_segment(const uint8_t *x, int64_t count, uint8_t *out, bool is_little) {
    for (int64_t b = 0; b * 8 < count; b++) {
        uint32_t bits = 0;
        for (int i = 0; i < 8 && b * 8 + i < count; i++)
            bits |= (uint32_t)(x[b * 8 + i] != 0) << (is_little ? i : 7 - i);
        out[b] = (uint8_t)bits;
    }
}

/** Values of one task if there are no segments: a multiple of 8. */
constexpr int64_t task_values = 1 << 16;

static void pack_part(void *context, int64_t i) {
    const qni_pack_problem *p = context;
    const int64_t first = i * task_values, left = p->count - first;
    qni_pack_segment(p->x + first, left < task_values ? left : task_values, p->out + first / 8,
                     p->is_little);
}

static void pack_segment(void *context, int64_t i) {
    const qni_pack_problem *p = context;
    qni_pack_segment(p->x + p->indptr[i], p->indptr[i + 1] - p->indptr[i],
                     p->out + p->indptr_out[i], p->is_little);
}

qn_status qni_pack_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    const qni_pack_problem *p = problem;
    qni_pack_problem copy = *p;
    if (!p->indptr) {
        qni_parallel((p->count + task_values - 1) / task_values, pack_part, &copy);
        return QN_OK;
    }
    p->indptr_out[0] = 0;
    for (int64_t i = 0; i < p->segments; i++)
        p->indptr_out[i + 1] = p->indptr_out[i] + (p->indptr[i + 1] - p->indptr[i] + 7) / 8;
    qni_parallel(p->segments, pack_segment, &copy);
    return QN_OK;
}

bool qni_pack_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                           qni_reason *why) {
    (void)device;
    const qni_pack_problem *p = problem;
    return p->segments < INT32_MAX ||
           qni_no(why, "%ld segments; fewer than 2^31 are accepted", (long)p->segments);
}

qn_status qni_pack_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_pack_problem *p = problem;
    const qk_pack_args args = {.x = p->x,
                               .out = p->out,
                               .indptr = p->indptr,
                               .indptr_out = p->indptr_out,
                               .count = p->count,
                               .segments = (uint32_t)p->segments,
                               .is_little = p->is_little};
    const int64_t per_segment = p->count / (p->segments > 0 ? p->segments : 1);
    const int64_t tiles = 1 + per_segment / (8 * QK_PACK_THREADS);
    const int64_t rows = p->indptr ? p->segments : 1;
    const uint32_t grid[3] = {(uint32_t)(tiles < max_grid[0] ? tiles : max_grid[0]),
                              (uint32_t)(rows < max_grid[1] ? rows : max_grid[1]), 1};
    const qni_kernel_ref *bytes = &variant->config.kernel[0], *starts = &variant->config.kernel[1];
    if (p->indptr)
        QN_TRY(qni_launch(stream, starts, (const uint32_t[]){1, 1, 1},
                          (uint32_t)stream->device->target->wave_size, &args, sizeof args));
    return qni_launch(stream, bytes, grid, QK_PACK_THREADS, &args, sizeof args);
}
