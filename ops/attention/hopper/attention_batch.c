// SPDX-License-Identifier: Apache-2.0
// Host side of the kernels for batches on Hopper's tensor cores, attention_batch_gpu.c: which
// problems they take, their tensor maps, their launch.
#include "../attention.h"
#include "attention_batch_abi.h"

enum { SWIZZLE = 128 }; // bytes
enum { Q, K, V, NUM_MAPS };

// ---- tensor maps: [blocks, tokens, heads, head_dim], the innermost first

/** A map's tensor, and the rows of a box. */
typedef struct extent {
    int64_t blocks, tokens, heads, head_dim;
    uint32_t box_tokens, box_heads;
} extent;

static qni_tensor_map map_of(const qni_attention_problem *p, const char *name,
                             const qk_attention_rows *rows, extent e) {
    return (qni_tensor_map){.name = name,
                            .data = rows->data,
                            .dtype = p->dtype,
                            .rank = 4,
                            .size = {e.head_dim, e.heads, e.tokens, e.blocks},
                            .stride = {1, rows->head, rows->token, rows->block},
                            .box = {QK_BATCH_BOX, e.box_heads, e.box_tokens, 1},
                            .swizzle_bytes = SWIZZLE};
}

static bool is_dense_q(const qni_attention_problem *p) {
    return !p->plan || p->plan->is_dense_q;
}
static bool is_dense_kv(const qni_attention_problem *p) {
    return !p->plan || p->plan->is_dense_kv;
}

/** Returns whether k and v lie in one piece, or in pages that boxes divide evenly, and need no
 *  conversion. */
static bool is_boxed(const qni_attention_problem *p) {
    static_assert(QK_BATCH_PART == QK_ATTENTION_CHUNK_UNIT);
    return !qni_is_fp8(p->dtype_kv) &&
           (!p->args.kv_indices || p->args.page_size % QK_BATCH_PART == 0);
}

/** Makes the maps: those of q, k and v, or of q alone, or none. Returns how many. */
static int make_maps(const qni_variant *variant, const qni_attention_problem *p,
                     qni_tensor_map maps[NUM_MAPS]) {
    const qk_attention_args *g = &p->args;
    const uint32_t pack = qk_attention_pack(g->group);
    const int64_t heads = g->num_kv_heads;
    const int64_t requests = p->plan ? p->plan->num_requests : g->requests;
    const extent q = {is_dense_q(p) ? requests : 1, p->q_tokens, heads * g->group, g->head_dim_qk,
                      QK_ATTENTION_TEAM / pack,     pack};
    const extent k = {p->kv_blocks,
                      p->kv_tokens,
                      heads,
                      g->head_dim_qk,
                      g->kv_indices ? QK_BATCH_PART : QK_BATCH_KEYS(variant->config.columns),
                      1};
    extent v = k;
    v.head_dim = g->head_dim_vo;
    maps[Q] = map_of(p, "q", &g->q, q);
    maps[K] = map_of(p, "k", &g->k, k);
    maps[V] = map_of(p, "v", &g->v, v);
    return is_boxed(p) ? NUM_MAPS : !qni_is_fp8(p->dtype);
}

static bool fit(const qni_tensor_map *maps, int count, qni_reason *why) {
    for (int i = 0; i < count; i++)
        if (!qni_tensor_map_fits(&maps[i], why))
            return false;
    return true;
}

// ---- what they take

/** Takes scores that are products times one positive number, capped or not. */
static bool takes_scores(const qk_attention_args *g, qni_reason *why) {
    const char *const other = g->pos_encoding != QK_POS_NONE ? "a position encoding"
                              : g->mask_kind != QK_MASK_NONE ? "a mask"
                              : g->custom_mask               ? "a custom mask"
                              : g->q_scales || g->k_scales   ? "scales of heads of q or k"
                              : !(g->scale > 0)              ? "a scale that is not positive"
                                                             : nullptr;
    return !other || qni_no(why, "has %s, takes none", other);
}

/** The plan has no tiles of requests of few rows, as gpu_async is for them; but if a query must
 *  have equal bits in any request, it has. A row's sums begin with its last key's tile, and tiles
 *  begin at multiples of their keys, whatever the row's place among others is. */
static bool takes_requests(const qni_attention_problem *p, qni_reason *why) {
    if (p->has_few_rows && !qni_env_get()->batch_invariant)
        return qni_no(why, "a request has %d rows or fewer", QK_ATTENTION_FEW_ROWS);
    return !p->plan || p->plan->tile_rows > 0 ||
           qni_no(why, "the plan lists no tiles, as they are too many");
}

/** A tile's rows depend on v's head dim, as the plan's do. */
static bool takes_head_dims(const qni_variant *variant, const qni_attention_problem *p,
                            qni_reason *why) {
    return qk_attention_tile_rows(p->args.head_dim_vo) == variant->config.rows ||
           qni_no(why, "v's head_dim is %u; taken: %s 128", p->args.head_dim_vo,
                  variant->config.rows == qk_attention_tile_rows(128) ? "up to" : "above");
}

/** Pages, and all rows of FP8, are counted in 32 bits, in units of 16 bytes. */
static bool takes_pages(const char *name, const qni_attention_problem *p,
                        const qk_attention_rows *rows, qni_reason *why) {
    constexpr double most = 0x1p32 * 8; // elements
    const double end = (double)p->kv_blocks * (double)rows->block +
                       (double)p->kv_tokens * (double)rows->token +
                       (double)p->args.num_kv_heads * (double)rows->head;
    return (!p->args.kv_indices && !qni_is_fp8(p->dtype_kv)) || end < most ||
           qni_no(why, "%s reaches over %.0f elements; fewer than 2^35 are taken", name, end);
}

/** o is of the type that the kernel computes with. */
static bool takes_results(const qni_variant *variant, const qni_attention_problem *p,
                          qni_reason *why) {
    const qni_dtype taken = variant->config.flags & QNI_ATTENTION_F16 ? QNI_F16 : QNI_BF16;
    return p->dtype_o == taken ||
           qni_no(why, "o is %s; taken: %s", qni_dtype_name(p->dtype_o), qni_dtype_name(taken));
}

bool qni_attention_batch_supports(const qni_variant *variant, const qn_device *device,
                                  const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    qni_tensor_map maps[NUM_MAPS];
    if (!qni_attention_plain_supports(variant, device, problem, why) ||
        !qni_attention_takes_codes(p, why) || !takes_scores(&p->args, why) ||
        !takes_requests(p, why) || !takes_head_dims(variant, p, why) ||
        !takes_pages("k", p, &p->args.k, why) || !takes_pages("v", p, &p->args.v, why) ||
        !takes_results(variant, p, why))
        return false;
    return fit(maps, make_maps(variant, p, maps), why);
}

// ---- what it costs, and its launch

/** Returns how many tiles the rows of a dense request have, if they are of `pack` heads each. */
static double row_tiles_of(const qk_attention_args *g, uint32_t pack, uint32_t rows) {
    return (double)qk_attention_div_up(g->qo_len * pack, rows) / pack;
}

/** Dense requests of equal lengths go to gpu_wgmma_*, unless it has more tiles, as each is of one
 *  head: for as many it takes 0.93 of this kernel's time (an H200, 24 heads, a causal prompt of
 *  4608: 190 of 203 us). */
double qni_attention_batch_cost(const qni_variant *variant, const qn_device *device,
                                const void *problem) {
    constexpr double slower = 1 / 0.93;
    const qni_attention_problem *p = problem;
    const double cost = slower * qni_attention_wgmma_cost(variant, device, problem);
    const uint32_t rows = variant->config.rows, pack = qk_attention_pack(p->args.group);
    if (p->plan || p->args.qo_len == 0)
        return cost;
    return cost * row_tiles_of(&p->args, pack, rows) / row_tiles_of(&p->args, 1, rows);
}

/** Returns how many tiles there are for all heads. */
static int64_t count_tiles(const qni_attention_problem *p, uint32_t pack, uint32_t rows) {
    const qk_attention_args *g = &p->args;
    const int64_t heads = (int64_t)g->num_kv_heads * g->group / pack;
    if (p->plan)
        return p->plan->num_tiles * heads;
    return g->requests * heads * qk_attention_div_up(g->qo_len * pack, rows) *
           qk_attention_uniform_chunks(g);
}

qn_status qni_attention_batch(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const uint32_t pack = qk_attention_pack(p->args.group), rows = variant->config.rows;
    qni_tensor_map maps[NUM_MAPS];
    qk_attention_batch_args args = {
        .common = p->args,
        .is_boxed = is_boxed(p),
        .q_step = is_dense_q(p),
        .kv_step = is_dense_kv(p),
        .pack_shift = (uint32_t)__builtin_ctz(pack),
        .cap_scale =
            p->args.soft_cap > 0 ? p->args.scale / p->args.soft_cap * (2 * 0x1.715476p+0f) : 0};
    args.common.q_tile = rows;
    const int count = make_maps(variant, p, maps);
    for (int i = 0; i < count; i++)
        QN_TRY(qni_tensor_map_encode(stream->device, &maps[i], &args.maps[i]));
    const int64_t tiles = count_tiles(p, pack, rows);
    const int64_t most = stream->device->info.num_compute_units;
    const bool is_full = tiles > most || (p->plan && p->plan->is_for_graph);
    const uint32_t grid[3] = {(uint32_t)(is_full ? most : tiles), 1, 1};
    if (grid[0] > 0)
        QN_TRY(qni_launch(stream, &variant->config.kernel[0], grid, variant->config.waves * 32,
                          &args, sizeof args));
    return qni_attention_merge(variant, stream, p, &args.common);
}
