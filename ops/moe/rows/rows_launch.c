// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of rows_gpu.c.
#include "../moe.h"

enum { THREADS = 256, RUN = 8 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through what is left

static bool counts_fit(qni_reason *why, int64_t rows, int64_t tokens, int64_t columns,
                       int64_t pairs) {
    if (rows < INT32_MAX && tokens < INT32_MAX && columns < INT32_MAX && pairs < INT32_MAX)
        return true;
    return qni_no(why, "%ld rows, %ld tokens, %ld columns, %ld pairs; fewer than 2^31 are accepted",
                  (long)rows, (long)tokens, (long)columns, (long)pairs);
}

/** Returns tokens * top_k, or the most that 63 bits hold. */
static int64_t pairs_of(int64_t tokens, int64_t top_k) {
    int64_t pairs;
    return __builtin_mul_overflow(tokens, top_k, &pairs) ? INT64_MAX : pairs;
}

static qn_status launch(const qni_variant *variant, qn_stream *stream, int64_t groups,
                        const void *args, size_t bytes) {
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, THREADS, args, bytes);
}

// ---- permute

bool qni_moe_permute_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                                  qni_reason *why) {
    const qni_moe_permute_problem *p = problem;
    return counts_fit(why, p->rows, p->tokens, p->n * qni_dtype_bytes(p->dtype) + p->groups,
                      pairs_of(p->tokens, p->top_k));
}

/** Returns the bytes of the largest items of which rows are whole. */
static int64_t item_of(const qni_moe_permute_problem *p) {
    const int64_t size = qni_dtype_bytes(p->dtype);
    const uint64_t all = (uintptr_t)p->x | (uintptr_t)p->out |
                         (uint64_t)(p->n * size | p->x_row * size | p->out_row * size);
    return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
}

qn_status qni_moe_permute_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_permute_problem *p = problem;
    const int64_t item = item_of(p), size = qni_dtype_bytes(p->dtype);
    const int64_t waves = THREADS / stream->device->target->wave_size;
    const qk_moe_permute_args args = {.x = p->x,
                                      .out = p->out,
                                      .scale = p->scale,
                                      .scale_out = p->scale_out,
                                      .pair_of_row = p->pair_of_row,
                                      .x_row = p->x_row * size / item,
                                      .out_row = p->out_row * size / item,
                                      .scale_row = p->scale_row,
                                      .scale_column = p->scale_column,
                                      .scale_out_row = p->scale_out_row,
                                      .scale_out_column = p->scale_out_column,
                                      .rows = (uint32_t)p->rows,
                                      .pairs = (uint32_t)(p->tokens * p->top_k),
                                      .top_k = (uint32_t)p->top_k,
                                      .items = (uint32_t)(p->n * size / item),
                                      .item_bytes = (uint32_t)item,
                                      .groups = (uint32_t)p->groups};
    return launch(variant, stream, (p->rows + waves - 1) / waves, &args, sizeof args);
}

// ---- sum

bool qni_moe_sum_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                              qni_reason *why) {
    const qni_moe_sum_problem *p = problem;
    return counts_fit(why, p->rows, p->tokens, p->n + RUN * THREADS, pairs_of(p->tokens, p->top_k));
}

/** Returns whether rows begin at multiples of 16 bytes. A null tensor is aligned. */
static bool is_aligned(const void *data, int64_t row, qni_dtype dtype) {
    return (uintptr_t)data % 16 == 0 && row * qni_dtype_bytes(dtype) % 16 == 0;
}

qn_status qni_moe_sum_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_sum_problem *p = problem;
    const int64_t blocks = (p->n + RUN * THREADS - 1) / (RUN * THREADS);
    const qk_moe_sum_args args = {.x = p->x,
                                  .addend = p->addend,
                                  .out = p->out,
                                  .weights = p->weights,
                                  .row_of_pair = p->row_of_pair,
                                  .x_row = p->x_row,
                                  .addend_row = p->addend_row,
                                  .out_row = p->out_row,
                                  .weights_row = p->weights_row,
                                  .row_of_pair_row = p->row_of_pair_row,
                                  .tokens = (uint32_t)p->tokens,
                                  .top_k = (uint32_t)p->top_k,
                                  .n = (uint32_t)p->n,
                                  .rows = (uint32_t)p->rows,
                                  .x_dtype = (uint32_t)p->dtype,
                                  .out_dtype = (uint32_t)p->dtype_out,
                                  .is_aligned = is_aligned(p->x, p->x_row, p->dtype) &&
                                                is_aligned(p->out, p->out_row, p->dtype_out) &&
                                                is_aligned(p->addend, p->addend_row, p->dtype_out)};
    return launch(variant, stream, p->tokens * blocks, &args, sizeof args);
}
