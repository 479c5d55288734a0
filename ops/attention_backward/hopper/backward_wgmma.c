// SPDX-License-Identifier: Apache-2.0
// Host side of the backward pass's kernels for Hopper's tensor cores, backward_wgmma_gpu.c: which
// problems they take, their tensor maps, their room in the workspace, their launch.
#include "../../shared/round.h"
#include "../attention_backward.h"
#include "backward_wgmma_abi.h"

enum { SWIZZLE = 128 };             // bytes
enum { PREPARE, MULTIPLY, FINISH }; // the variant's kernels
enum { Q, K, V, D_O, NUM_MAPS };
constexpr double most_groups = 0x1p31;

// ---- tensor maps: [blocks, tokens, heads, head_dim], the innermost first

static bool is_dense_q(const qni_backward_problem *p) {
    return !p->forward.plan || p->forward.plan->is_dense_q;
}
static bool is_dense_kv(const qni_backward_problem *p) {
    return !p->forward.plan || p->forward.plan->is_dense_kv;
}

/** A map's tensor, and the rows of a box. */
typedef struct extent {
    int64_t blocks, tokens, heads, head_dim;
    uint32_t box_tokens;
} extent;

static qni_tensor_map map_of(const qni_backward_problem *p, const char *name,
                             const qk_attention_rows *rows, extent e) {
    return (qni_tensor_map){.name = name,
                            .data = rows->data,
                            .dtype = p->forward.dtype,
                            .rank = 4,
                            .size = {e.head_dim, e.heads, e.tokens, e.blocks},
                            .stride = {1, rows->head, rows->token, rows->block},
                            .box = {QK_BACKWARD_BOX, 1, e.box_tokens, 1},
                            .swizzle_bytes = SWIZZLE};
}

static void make_maps(const qni_variant *variant, const qni_backward_problem *p,
                      qni_tensor_map maps[NUM_MAPS]) {
    const qk_attention_args *g = &p->args.common;
    const int64_t heads = g->num_kv_heads;
    const extent q = {is_dense_q(p) ? p->requests : 1, p->forward.q_tokens, heads * g->group,
                      g->head_dim_qk, QK_BACKWARD_QUERIES(variant->config.columns)};
    const extent k = {p->forward.kv_blocks, p->forward.kv_tokens, heads, g->head_dim_qk,
                      QK_BACKWARD_KEYS};
    extent v = k, d_o = q;
    v.head_dim = d_o.head_dim = g->head_dim_vo;
    maps[Q] = map_of(p, "q", &g->q, q);
    maps[K] = map_of(p, "k", &g->k, k);
    maps[V] = map_of(p, "v", &g->v, v);
    maps[D_O] = map_of(p, "d_o", &p->args.d_o, d_o);
}

static bool fit(const qni_tensor_map maps[NUM_MAPS], qni_reason *why) {
    for (int i = 0; i < NUM_MAPS; i++)
        if (!qni_tensor_map_fits(&maps[i], why))
            return false;
    return true;
}

// ---- the workspace: sums of dq, rows' numbers, counts

/** The blocks of a head's queries: as a request's first block and its length say. */
static int64_t blocks_of(const qni_backward_problem *p, int64_t queries) {
    return is_dense_q(p) ? p->requests * qni_pieces(p->args.max_qo, queries)
                         : p->forward.q_tokens / queries + p->requests;
}

static int64_t count_blocks(const qni_backward_problem *p, int64_t queries) {
    return blocks_of(p, queries) * p->args.common.num_kv_heads * p->args.common.group;
}

/** Returns the columns of the kernel that takes these head dims; 0: none does. */
static int64_t columns_of(const qk_attention_args *g) {
    const uint32_t dim = g->head_dim_qk > g->head_dim_vo ? g->head_dim_qk : g->head_dim_vo;
    return dim <= 64 ? 64 : dim <= 128 ? 128 : 0;
}

int64_t qni_backward_wgmma_bytes(const qni_backward_problem *p, const qn_device *device) {
    const int64_t columns = columns_of(&p->args.common);
    if (!(device->features & QNI_F(WGMMA)) || !columns || p->forward.dtype == QNI_F32)
        return 0;
    const int64_t queries = QK_BACKWARD_QUERIES(columns);
    return count_blocks(p, queries) *
           (queries * (columns + 2) * (int64_t)sizeof(float) + (int64_t)sizeof(uint64_t));
}

// ---- what they take

static bool takes_types(const qni_variant *variant, const qni_backward_problem *p,
                        qni_reason *why) {
    const qni_attention_problem *f = &p->forward;
    const qni_dtype taken = variant->config.flags & QNI_ATTENTION_F16 ? QNI_F16 : QNI_BF16;
    return (f->dtype == taken && f->dtype_kv == taken && f->dtype_o == taken) ||
           qni_no(why, "q is %s, k and v %s, o %s; taken: %s", qni_dtype_name(f->dtype),
                  qni_dtype_name(f->dtype_kv), qni_dtype_name(f->dtype_o), qni_dtype_name(taken));
}

/** Takes scores that are products times one positive number: scores that are hidden are infinite
 *  before they are scaled. */
static bool takes_scores(const qni_backward_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args.common;
    const char *const other = g->has_dropout                   ? "dropout"
                              : g->pos_encoding != QK_POS_NONE ? "a position encoding"
                              : g->mask_kind != QK_MASK_NONE   ? "a mask"
                              : g->custom_mask                 ? "a custom mask"
                              : g->soft_cap > 0                ? "a soft cap"
                              : g->q_scales || g->k_scales     ? "scales of heads of q or k"
                              : g->v_scales || g->v_scale != 1 ? "scales of v"
                              : !(g->scale > 0)                ? "a scale that is not positive"
                              : g->left != INT32_MAX           ? "a window's left bound"
                              : p->args.dsinks                 ? "a gradient of sinks"
                                                               : nullptr;
    return !other || qni_no(why, "has %s, takes none", other);
}

/** Lanes load o in eights, and store neighbours. */
static bool takes_rows(const qni_backward_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args.common;
    const qk_attention_rows o = {g->o, g->o_batch, g->o_token, g->o_head};
    const struct {
        const char *name;
        const qk_attention_rows *rows;
        int64_t bytes;
    } written[] = {{"dq", &p->args.dq, qni_dtype_bytes(p->dtype_dq)},
                   {"dk", &p->args.dk, qni_dtype_bytes(p->dtype_dk)},
                   {"dv", &p->args.dv, qni_dtype_bytes(p->dtype_dv)}};
    if (!qni_attention_is_wide(&o, g->head_dim_vo) ||
        !qni_attention_is_wide(&p->args.d_o, g->head_dim_vo))
        return qni_no(why, "a row of o or d_o does not begin at a multiple of 16 bytes");
    for (int i = 0; i < 3; i++) {
        const qk_attention_rows *r = written[i].rows;
        if ((int64_t)((uintptr_t)r->data % (uintptr_t)(2 * written[i].bytes)) ||
            (r->block | r->token | r->head) % 2)
            return qni_no(why, "a row of %s does not begin at a multiple of two elements",
                          written[i].name);
    }
    return true;
}

static int64_t tiles_of(const qni_backward_problem *p) {
    const int64_t tiles = qni_pieces(p->args.max_kv, QK_BACKWARD_KEYS);
    return (tiles ? tiles : 1) * p->requests * p->args.common.num_kv_heads;
}

static bool takes_sizes(const qni_variant *variant, const qni_backward_problem *p,
                        qni_reason *why) {
    const qk_attention_args *g = &p->args.common;
    const uint32_t above = variant->config.flags >> 8, columns = variant->config.columns;
    const uint32_t dim = g->head_dim_qk > g->head_dim_vo ? g->head_dim_qk : g->head_dim_vo;
    const double blocks = (double)p->requests * p->args.max_qo * g->num_kv_heads * g->group;
    const double tiles = (double)p->requests * (p->args.max_kv + 1.0) * g->num_kv_heads;
    if (dim <= above || dim > columns || g->head_dim_qk % 8 || g->head_dim_vo % 8)
        return qni_no(why, "head_dim=%u, v's %u; taken: multiples of 8 above %u, up to %u",
                      g->head_dim_qk, g->head_dim_vo, above, columns);
    return (blocks < most_groups && tiles < most_groups) ||
           qni_no(why, "%.0f rows of queries, %.0f of keys; fewer than 2^31 are taken", blocks,
                  tiles);
}

bool qni_backward_wgmma_supports(const qni_variant *variant, const qn_device *, const void *problem,
                                 qni_reason *why) {
    const qni_backward_problem *p = problem;
    qni_tensor_map maps[NUM_MAPS];
    if (!takes_types(variant, p, why) || !takes_scores(p, why) || !takes_sizes(variant, p, why) ||
        !takes_rows(p, why))
        return false;
    make_maps(variant, p, maps);
    return fit(maps, why);
}

double qni_backward_wgmma_cost(const qni_variant *, const qn_device *, const void *) {
    return 1; // of the kernels that take a problem there is one
}

// ---- their launch

static qn_status fill_args(const qni_variant *variant, const qn_device *device,
                           const qni_backward_problem *p, qk_backward_wgmma_args *args) {
    const int64_t columns = variant->config.columns, queries = QK_BACKWARD_QUERIES(columns);
    const int64_t blocks = count_blocks(p, queries);
    qni_tensor_map maps[NUM_MAPS];
    make_maps(variant, p, maps);
    *args = (qk_backward_wgmma_args){
        .common = p->args,
        .sums = p->args.delta, // the workspace's begin
        .blocks = (uint32_t)blocks_of(p, queries),
        .block_step = is_dense_q(p) ? (uint32_t)qni_pieces(p->args.max_qo, queries) : 0,
        .most_blocks = (uint32_t)qni_pieces(p->args.max_qo, queries),
        .requests = p->requests,
        .q_step = is_dense_q(p),
        .kv_step = is_dense_kv(p)};
    args->rows = args->sums + blocks * queries * columns;
    args->done = (uint64_t *)(args->rows + blocks * queries * 2);
    for (int i = 0; i < NUM_MAPS; i++)
        QN_TRY(qni_tensor_map_encode(device, &maps[i], &args->maps[i]));
    return QN_OK;
}

static qn_status launch(const qni_variant *variant, qn_stream *stream, int which, int64_t groups,
                        uint32_t threads, const qk_backward_wgmma_args *args) {
    const uint32_t grid[3] = {(uint32_t)groups, 1, 1};
    return groups > 0 ? qni_launch(stream, &variant->config.kernel[which], grid, threads, args,
                                   sizeof *args)
                      : QN_OK;
}

qn_status qni_backward_wgmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_backward_problem *p = problem;
    const qk_attention_args *g = &p->args.common;
    qk_backward_wgmma_args args;
    QN_TRY(fill_args(variant, stream->device, p, &args));
    const int64_t blocks = (int64_t)args.most_blocks * p->requests * g->num_kv_heads * g->group;
    QN_TRY(launch(variant, stream, PREPARE, blocks, QK_BACKWARD_END_THREADS, &args));
    QN_TRY(launch(variant, stream, MULTIPLY, tiles_of(p), QK_BACKWARD_THREADS, &args));
    return launch(variant, stream, FINISH, blocks, QK_BACKWARD_END_THREADS, &args);
}
