// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of kvcache_gpu.c.
#include "../shared/round.h"
#include "kvcache.h"

enum { THREADS = 256 };
constexpr int64_t max_grid = 1 << 20; // workgroups step through the other items
constexpr int64_t most = 1 << 30;

static bool is_quant(const qni_kvcache_problem *p) {
    return p->dtype != p->dtype_out;
}

/** Returns the elements in an item of the fast kernels: those of 16 bytes, or those that become 8
 *  codes. */
static int64_t item_of(const qni_kvcache_problem *p) {
    return is_quant(p) ? 8 : 16 / qni_dtype_bytes(p->dtype);
}

static bool has_whole_items(const qni_kvcache_problem *p, const qni_cache_rows *r) {
    const int64_t item = item_of(p);
    const uintptr_t out = is_quant(p) ? 8 : 16;
    return (uintptr_t)r->in % 16 == 0 && (uintptr_t)r->out % out == 0 && r->width % item == 0 &&
           r->in_token % item == 0 && r->in_head % item == 0 && r->out_page % item == 0 &&
           r->out_place % item == 0 && r->out_head % item == 0;
}

/** Takes what kernels can count in 32 bits. */
bool qni_kvcache_gpu_any_supports(const qni_variant *, const qn_device *device, const void *problem,
                                  qni_reason *why) {
    (void)device;
    const qni_kvcache_problem *p = problem;
    for (int i = 0; i < 2; i++)
        if (p->n >= most || p->parts[i].heads >= most || p->parts[i].width >= most ||
            p->parts[i].heads * p->parts[i].width >= most)
            return qni_no(why, "%ld tokens of %ld heads of %ld; fewer than 2^30 are accepted",
                          (long)p->n, (long)p->parts[i].heads, (long)p->parts[i].width);
    return true;
}

static bool takes_items(const qni_variant *variant, const qn_device *device,
                        const qni_kvcache_problem *p, qni_reason *why) {
    if (!has_whole_items(p, &p->parts[0]) || !has_whole_items(p, &p->parts[1]))
        return qni_no(why, "a tensor or its rows are not in whole items of %ld elements, aligned",
                      (long)item_of(p));
    return qni_kvcache_gpu_any_supports(variant, device, p, why);
}

bool qni_kvcache_gpu_supports(const qni_variant *variant, const qn_device *device,
                              const void *problem, qni_reason *why) {
    return takes_items(variant, device, problem, why) &&
           (!is_quant(problem) || qni_no(why, "the cache is FP8; taken: the type of k and v"));
}

bool qni_kvcache_gpu_quant_supports(const qni_variant *variant, const qn_device *device,
                                    const void *problem, qni_reason *why) {
    return takes_items(variant, device, problem, why) &&
           (is_quant(problem) || qni_no(why, "the cache has the type of k and v; taken: FP8"));
}

bool qni_positions_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                                qni_reason *why) {
    (void)device;
    const qni_positions_problem *p = problem;
    return (p->n < most && p->batches < most) ||
           qni_no(why, "%ld tokens; fewer than 2^30 are accepted", (long)p->n);
}

/** Makes rows with strides in items instead of elements. Heads that lie side by side on both sides
 *  become one head. */
static qk_cache_rows make_rows(const qni_cache_rows *r, int64_t item) {
    const bool is_one = r->in_head == r->width && r->out_head == r->width;
    return (qk_cache_rows){.in = r->in,
                           .out = r->out,
                           .in_token = r->in_token / item,
                           .in_head = r->in_head / item,
                           .out_page = r->out_page / item,
                           .out_place = r->out_place / item,
                           .out_head = r->out_head / item,
                           .scale = r->scale,
                           .heads = is_one ? 1 : (uint32_t)r->heads,
                           .width = (uint32_t)((is_one ? r->heads : 1) * r->width / item)};
}

/** Gives rows without elements a place from which a lane may load: the other rows'. */
static void lend_place(qk_cache_rows *empty, const qk_cache_rows *other) {
    if (empty->heads * empty->width == 0)
        *empty = (qk_cache_rows){.in = other->in, .scale = other->scale, .heads = 1};
}

/** Launches a wave for each token, several times if there are more than one launch takes. Kernels
 *  do not loop over tokens, to save registers. */
static qn_status launch(qn_stream *stream, const qni_kvcache_problem *p,
                        const qni_kernel_ref *kernel, int64_t item) {
    qk_kvcache_args args = {.parts = {make_rows(&p->parts[0], item), make_rows(&p->parts[1], item)},
                            .pages = p->pages,
                            .n = (uint32_t)p->n,
                            .dtype = (uint32_t)p->dtype,
                            .item_bytes = (uint32_t)qni_dtype_bytes(p->dtype),
                            .is_quant = is_quant(p),
                            .kind = is_quant(p) ? (uint32_t)qni_fp8_of(p->dtype_out) : 0};
    const int64_t waves = THREADS / stream->device->target->wave_size;
    if (args.parts[0].heads * args.parts[0].width + args.parts[1].heads * args.parts[1].width == 0)
        return QN_OK;
    lend_place(&args.parts[0], &args.parts[1]);
    lend_place(&args.parts[1], &args.parts[0]);
    qn_status st = QN_OK;
    for (int64_t first = 0; st == QN_OK && first < p->n; first += max_grid * waves) {
        const int64_t groups = qni_pieces(p->n - first, waves);
        const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
        args.first = (uint32_t)first;
        st = qni_launch(stream, kernel, grid, THREADS, &args, sizeof args);
    }
    return st;
}

qn_status qni_kvcache_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return launch(stream, problem, &variant->config.kernel[0], item_of(problem));
}

qn_status qni_kvcache_gpu_quant(const qni_variant *variant, qn_stream *stream,
                                const void *problem) {
    const qni_kvcache_problem *p = problem;
    return launch(stream, p, &variant->config.kernel[p->dtype], item_of(p));
}

qn_status qni_kvcache_gpu_any(const qni_variant *variant, qn_stream *stream, const void *problem) {
    return launch(stream, problem, &variant->config.kernel[0], 1);
}

bool qni_gather_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                             qni_reason *why) {
    (void)device;
    const qni_gather_problem *p = problem;
    return (p->n < most && p->width < most) ||
           qni_no(why, "%ld tokens of %ld; fewer than 2^30 are accepted", (long)p->n,
                  (long)p->width);
}

/** Returns the elements in an item of a copy: those of 16 bytes where all is aligned to them. */
static int64_t gathered_item(const qni_gather_problem *p) {
    const int64_t item = 16 / qni_dtype_bytes(p->dtype);
    const bool is_whole = (((uintptr_t)p->cache | (uintptr_t)p->out) % 16 == 0) &&
                          p->width % item == 0 && p->page % item == 0 && p->place % item == 0 &&
                          p->out_token % item == 0;
    return is_whole && !p->scale && !p->scales ? item : 1;
}

qn_status qni_gather_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_gather_problem *p = problem;
    const int64_t item = gathered_item(p);
    const qk_gather_args args = {.cache = p->cache,
                                 .out = p->out,
                                 .page = p->page / item,
                                 .place = p->place / item,
                                 .out_token = p->out_token / item,
                                 .scale = p->scale,
                                 .scales = p->scales,
                                 .scale_page = p->scale_page,
                                 .scale_place = p->scale_place,
                                 .pages = p->pages,
                                 .n = (uint32_t)p->n,
                                 .width = (uint32_t)(p->width / item),
                                 .item_bytes = (uint32_t)(item * qni_dtype_bytes(p->dtype)),
                                 .kind = p->scale || p->scales ? (uint32_t)qni_fp8_of(p->dtype) : 0,
                                 .dtype_out = (uint32_t)p->dtype_out};
    const int64_t waves = THREADS / stream->device->target->wave_size;
    const int64_t groups = (p->n + waves - 1) / waves;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, THREADS, &args, sizeof args);
}

bool qni_groups_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                             qni_reason *why) {
    (void)device;
    const qni_groups_problem *p = problem;
    return (p->n < most && p->width < most && p->rope_width < most) ||
           qni_no(why, "%ld tokens of %ld + %ld; fewer than 2^30 are accepted", (long)p->n,
                  (long)p->width, (long)p->rope_width);
}

qn_status qni_groups_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_groups_problem *p = problem;
    qk_groups_args args = p->args;
    args.n = (uint32_t)p->n, args.width = (uint32_t)p->width;
    args.rope_width = (uint32_t)p->rope_width;
    args.dtype = (uint32_t)p->dtype, args.kind = (uint32_t)qni_fp8_of(p->dtype_codes);
    const int64_t waves = THREADS / stream->device->target->wave_size;
    const int64_t groups = (p->n + waves - 1) / waves;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, THREADS, &args, sizeof args);
}

/** Launches a lane for each of `count` items. */
static qn_status launch_lanes(qn_stream *stream, const qni_kernel_ref *kernel, int64_t count,
                              const void *args, size_t args_bytes) {
    const int64_t groups = (count + THREADS - 1) / THREADS;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, kernel, grid, THREADS, args, args_bytes);
}

qn_status qni_positions_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_positions_problem *p = problem;
    const qk_positions_args args = {.batch_indices = p->batch_indices,
                                    .positions = p->positions,
                                    .append_indptr = p->append_indptr,
                                    .seq_lens = p->seq_lens,
                                    .n = (uint32_t)p->n,
                                    .batches = (uint32_t)p->batches};
    return launch_lanes(stream, &variant->config.kernel[0], p->n, &args, sizeof args);
}

bool qni_seq_lens_gpu_supports(const qni_variant *, const qn_device *device, const void *problem,
                               qni_reason *why) {
    (void)device;
    const qni_seq_lens_problem *p = problem;
    return p->batches < most ||
           qni_no(why, "%ld sequences; fewer than 2^30 are accepted", (long)p->batches);
}

qn_status qni_seq_lens_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_seq_lens_problem *p = problem;
    const qk_seq_lens_args args = {.seq_lens = p->seq_lens,
                                   .kv_indptr = p->kv_indptr,
                                   .kv_last_page_len = p->kv_last_page_len,
                                   .batches = (uint32_t)p->batches,
                                   .page_size = p->page_size};
    return launch_lanes(stream, &variant->config.kernel[0], p->batches, &args, sizeof args);
}
