// SPDX-License-Identifier: Apache-2.0
// Host side of the kernels for Hopper's tensor cores, attention_wgmma_gpu.c: which problems they
// take, their tensor maps, what they cost.
#include "../../shared/round.h"
#include "../attention.h"
#include "attention_wgmma_abi.h"

enum { SWIZZLE = 128, QUERIES = 64 }; // bytes; of a box

// ---- tensor maps: [blocks, tokens, heads, head_dim], the innermost first

typedef struct extent {
    int64_t blocks, tokens, heads, head_dim;
    uint32_t box_tokens;
} extent;

static qni_tensor_map map_of(const qni_attention_problem *p, const char *name,
                             const qk_attention_rows *rows, extent e) {
    return (qni_tensor_map){.name = name,
                            .data = rows->data,
                            .dtype = p->dtype,
                            .rank = 4,
                            .size = {e.head_dim, e.heads, e.tokens, e.blocks},
                            .stride = {1, rows->head, rows->token, rows->block},
                            .box = {QK_WGMMA_BOX, 1, e.box_tokens, 1},
                            .swizzle_bytes = SWIZZLE};
}

enum { Q, K, V, O, NUM_MAPS };

/** The maps of requests of equal lengths. */
static void make_maps(const qni_variant *variant, const qni_attention_problem *p,
                      qni_tensor_map maps[NUM_MAPS]) {
    const qk_attention_args *g = &p->args;
    const int64_t heads = g->num_kv_heads;
    const extent q = {g->requests, g->qo_len, heads * g->group, g->head_dim_qk, QUERIES},
                 k = {g->requests, g->kv_len, heads, g->head_dim_qk,
                      QK_WGMMA_KEYS(variant->config.columns)};
    const qk_attention_rows o_rows = {g->o, g->o_batch, g->o_token, g->o_head};
    extent v = k, o = q;
    v.head_dim = o.head_dim = g->head_dim_vo;
    maps[Q] = map_of(p, "q", &g->q, q);
    maps[K] = map_of(p, "k", &g->k, k);
    maps[V] = map_of(p, "v", &g->v, v);
    maps[O] = map_of(p, "o", &o_rows, o);
}

static bool fit(const qni_tensor_map *maps, int count, qni_reason *why) {
    for (int i = 0; i < count; i++)
        if (!qni_tensor_map_fits(&maps[i], why))
            return false;
    return true;
}

static qn_status encode(const qn_device *device, const qni_tensor_map *maps, int count,
                        qk_tensor_map *out) {
    for (int i = 0; i < count; i++)
        QN_TRY(qni_tensor_map_encode(device, &maps[i], &out[i]));
    return QN_OK;
}

// ---- what they take

static bool takes_types(const qni_variant *variant, const qni_attention_problem *p,
                        qni_reason *why) {
    const qni_dtype taken = variant->config.flags & QNI_ATTENTION_F16 ? QNI_F16 : QNI_BF16;
    if (p->dtype == taken && p->dtype_kv == taken)
        return true;
    return qni_no(why, "q is %s, k and v %s; taken: %s", qni_dtype_name(p->dtype),
                  qni_dtype_name(p->dtype_kv), qni_dtype_name(taken));
}

/** Takes scores that are products times one positive number. */
static bool takes_scores(const qk_attention_args *g, qni_reason *why) {
    const char *const other = g->has_dropout                   ? "dropout"
                              : g->pos_encoding != QK_POS_NONE ? "a position encoding"
                              : g->mask_kind != QK_MASK_NONE   ? "a mask"
                              : g->custom_mask                 ? "a custom mask"
                              : g->soft_cap > 0                ? "a soft cap"
                              : g->q_scales || g->k_scales     ? "scales of heads of q or k"
                              : !(g->scale > 0)                ? "a scale that is not positive"
                                                               : nullptr;
    return !other || qni_no(why, "has %s, takes none", other);
}

static bool takes_head_dims(const qk_attention_args *g, qni_reason *why) {
    return (g->head_dim_qk % 8 == 0 && g->head_dim_vo % 8 == 0) ||
           qni_no(why, "head_dim=%u, v's %u; taken: multiples of 8", g->head_dim_qk,
                  g->head_dim_vo);
}

static bool takes_all(const qni_variant *variant, const qni_attention_problem *p, qni_reason *why) {
    return takes_types(variant, p, why) && takes_scores(&p->args, why) &&
           takes_head_dims(&p->args, why) && qni_attention_fits(variant, p, why);
}

/** The bits of a query must not depend on how its request is stored, if they may not depend on the
 *  request's other queries either; this kernel knows dense requests alone. */
static bool takes_requests(const qni_attention_problem *p, qni_reason *why) {
    if (p->plan)
        return qni_no(why, "requests have lengths of their own, takes equal ones");
    if (qk_attention_uniform_chunks(&p->args) > 1)
        return qni_no(why, "keys are cut into chunks, takes whole requests");
    return !qni_env_get()->batch_invariant || qni_no(why, "QUERN_BATCH_INVARIANT is 1");
}

/** The copy engine stores o, as q's type. */
static bool takes_results(const qni_attention_problem *p, qni_reason *why) {
    return p->dtype_o == p->dtype ||
           qni_no(why, "o is %s; taken: %s", qni_dtype_name(p->dtype_o), qni_dtype_name(p->dtype));
}

bool qni_attention_wgmma_supports(const qni_variant *variant, const qn_device *,
                                  const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    qni_tensor_map maps[NUM_MAPS];
    make_maps(variant, p, maps);
    if (p->args.left != INT32_MAX)
        return qni_no(why, "has a window's left bound, takes none");
    return takes_all(variant, p, why) && takes_results(p, why) && takes_requests(p, why) &&
           fit(maps, NUM_MAPS, why);
}

// ---- what it costs, and its launch

/** Returns a cost in the unit of qni_attention_tile_cost: elements that a workgroup multiplies for
 *  a key. These tensor cores multiply several times as many in the same time. */
double qni_attention_wgmma_cost(const qni_variant *variant, const qn_device *, const void *) {
    constexpr double faster = 6;
    return variant->config.rows * variant->config.columns / faster;
}

// ---- room for states of rows, of each workgroup and team, and their flags

static int64_t state_bytes(int64_t head_dim) {
    const int64_t columns = head_dim <= 64 ? 64 : 128;
    return QK_WGMMA_STATE_FLOATS(columns) * (int64_t)sizeof(float) * 128;
}

int64_t qni_attention_states_bytes(int64_t heads, int64_t qo_len, int64_t kv_len,
                                   int64_t head_dim) {
    constexpr int64_t least_steps = 8; // below, states would cost more than they save
    const int64_t steps = qni_pieces(kv_len, QK_WGMMA_KEYS(head_dim <= 64 ? 64 : 128));
    const int64_t head_tiles = qni_pieces(qo_len, QK_WGMMA_ROWS);
    int64_t all;
    if (head_dim > 128 || steps < least_steps || head_tiles * heads < 2 ||
        __builtin_mul_overflow(head_tiles * heads, steps, &all) || all > INT32_MAX)
        return 0;
    return QK_WGMMA_MOST_GROUPS * QK_WGMMA_TEAMS *
           (state_bytes(head_dim) + (int64_t)sizeof(uint64_t));
}

/** Returns a number that memory does not hold by chance, another one each time. */
static uint64_t number_launch(void) {
    static _Atomic uint64_t launches;
    return ++launches * 0x9E3779B97F4A7C15;
}

/** Gives states room if a last round of tiles would leave multiprocessors idle. */
static void place_states(const qni_attention_problem *p, int64_t tiles, int64_t groups,
                         qk_attention_wgmma_args *args) {
    const qk_attention_args *g = &p->args;
    const int64_t head_dim = g->head_dim_qk > g->head_dim_vo ? g->head_dim_qk : g->head_dim_vo;
    const int64_t bytes = qni_attention_states_bytes(
        (int64_t)g->requests * g->num_kv_heads * g->group, g->qo_len, g->kv_len, head_dim);
    if (g->right != INT32_MAX || !bytes || p->workspace_bytes < bytes || tiles % groups == 0 ||
        groups > QK_WGMMA_MOST_GROUPS)
        return;
    args->states = p->workspace;
    args->are_there =
        (uint64_t *)((char *)p->workspace + groups * QK_WGMMA_TEAMS * state_bytes(head_dim));
    args->launch = number_launch();
}

qn_status qni_attention_wgmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_attention_args *g = &p->args;
    qni_tensor_map maps[NUM_MAPS];
    qk_attention_wgmma_args args = {.common = *g};
    make_maps(variant, p, maps);
    QN_TRY(encode(stream->device, maps, NUM_MAPS, args.maps));
    const int64_t tiles =
        (int64_t)g->requests * g->num_kv_heads * g->group * qni_pieces(g->qo_len, QK_WGMMA_ROWS);
    const int64_t most = stream->device->info.num_compute_units;
    const int64_t groups = tiles < most ? tiles : most;
    place_states(p, tiles, groups, &args);
    const uint32_t grid[3] = {(uint32_t)groups, 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, QK_WGMMA_THREADS, &args,
                      sizeof args);
}
