// SPDX-License-Identifier: Apache-2.0
// attention_backward_tile_gpu.c: the problems that it takes, its cost, and its launches.
#include "../shared/round.h"
#include "attention_backward.h"

enum { PIECE = 8 }; // a piece has eight elements, 16 bytes of f16 and bf16
enum { QUERIES, QUERIES_ANY, KEYS, KEYS_ANY, MASK_ANY, SINKS }; // the variant's kernels
constexpr int64_t max_grid = 1 << 20; // workgroups step through the other tiles

static bool is_near(const qk_attention_rows *rows, uint32_t tile) {
    return rows->token >= 0 && rows->token <= INT32_MAX / (2 * (int64_t)tile);
}

/** Returns whether rows begin at multiples of 16 bytes. */
static bool are_pieces(qni_dtype dtype, const qk_attention_rows *r) {
    const int64_t piece = 16 / qni_dtype_bytes(dtype);
    return (uintptr_t)r->data % 16 == 0 && r->block % piece == 0 && r->token % piece == 0 &&
           r->head % piece == 0;
}

static bool takes_types(const qni_variant *variant, const qni_backward_problem *p,
                        qni_reason *why) {
    const qni_dtype wanted = variant->config.flags & QNI_ATTENTION_F16 ? QNI_F16 : QNI_BF16;
    const qni_attention_problem *f = &p->forward;
    return (f->dtype == wanted && f->dtype_kv == wanted && f->dtype_o == wanted) ||
           qni_no(why, "q is %s, k and v %s, o %s; taken: %s in all of them",
                  qni_dtype_name(f->dtype), qni_dtype_name(f->dtype_kv), qni_dtype_name(f->dtype_o),
                  qni_dtype_name(wanted));
}

static bool takes_head_dims(const qni_variant *variant, const qk_attention_args *g,
                            qni_reason *why) {
    const uint32_t qk = g->head_dim_qk, vo = g->head_dim_vo, dim = qk > vo ? qk : vo;
    const uint32_t above = variant->config.flags >> 8, columns = variant->config.columns;
    return (dim > above && dim <= columns && qk % PIECE == 0 && vo % PIECE == 0) ||
           qni_no(why, "head_dim is %u, v's %u; taken: multiples of %d above %u, up to %u", qk, vo,
                  PIECE, above, columns);
}

static bool takes_rows_in_memory(const qni_backward_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args.common;
    const qk_attention_rows o = {g->o, g->o_batch, g->o_token, g->o_head};
    const qni_dtype dtype = p->forward.dtype;
    const bool begin_well =
        are_pieces(dtype, &g->q) && are_pieces(dtype, &g->k) && are_pieces(dtype, &g->v) &&
        are_pieces(dtype, &o) && are_pieces(dtype, &p->args.d_o) &&
        are_pieces(p->dtype_dq, &p->args.dq) && are_pieces(p->dtype_dk, &p->args.dk) &&
        are_pieces(p->dtype_dv, &p->args.dv);
    if (!begin_well)
        return qni_no(why, "a row of q, k, v, o, d_o, dq, dk or dv does not begin at a multiple of "
                           "16 bytes");
    constexpr uint32_t tile = 64; // the most rows whose places are counted in 32 bits
    return (is_near(&g->q, tile) && is_near(&g->k, tile) && is_near(&g->v, tile) &&
            is_near(&p->args.d_o, tile)) ||
           qni_no(why, "rows of q, k, v or d_o lie more than 2^24 elements apart, or backwards");
}

bool qni_backward_tile_supports(const qni_variant *variant, const qn_device *device,
                                const void *problem, qni_reason *why) {
    const qni_backward_problem *p = problem;
    return takes_types(variant, p, why) && takes_head_dims(variant, &p->args.common, why) &&
           takes_rows_in_memory(p, why) && qni_backward_any_supports(variant, device, problem, why);
}

/** Returns the time beside gpu_any's, which has no cost: always less. */
double qni_backward_tile_cost(const qni_variant *variant, const qn_device *, const void *) {
    return variant->config.columns;
}

/** Returns whether scores are more than the product times a positive number, or weights more than
 *  powers of them. Scales of heads are in the device's memory, so any may be negative. */
static bool has_any_score(const qk_attention_args *g) {
    return g->soft_cap > 0 || g->pos_encoding != QK_POS_NONE || g->mask_kind != QK_MASK_NONE ||
           g->custom_mask || g->has_dropout || g->q_scales || g->k_scales || !(g->scale > 0);
}

/** Launches a kernel, of whose workgroups each has a tile of a head's `length` rows. Head dims
 *  above 64 leave RDNA's LDS room for the keys of half as many waves. */
static qn_status launch(const qni_variant *variant, qn_stream *stream, const void *problem,
                        int which, uint32_t length, int64_t heads) {
    const qni_backward_problem *p = problem;
    const bool is_half = (which == KEYS || which == KEYS_ANY) && variant->config.columns > 64 &&
                         stream->device->target->wave_size == 32;
    const uint32_t rows = is_half ? variant->config.rows / 2 : variant->config.rows;
    const int64_t groups = qni_pieces(length, rows) * heads * p->requests;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return groups > 0 ? qni_launch(stream, &variant->config.kernel[which], grid, 2 * rows, &p->args,
                                   sizeof p->args)
                      : QN_OK;
}

/** Launches the kernel of a mask's gradient, of whose elements each workgroup has a tile. It stands
 *  in the image of the queries' kernels. Workgroups may have two tiles of keys, or nothing to do,
 *  as tiles differ from target to target. */
static qn_status launch_mask(const qni_variant *variant, qn_stream *stream,
                             const qk_backward_args *args) {
    constexpr int64_t keys = 32;
    const qk_mask_gradient *m = &args->dmask;
    const uint32_t rows = variant->config.rows;
    qni_kernel_ref kernel = variant->config.kernel[QUERIES];
    kernel.entry = "qk_backward_tile_mask";
    const int64_t groups =
        qni_pieces(m->queries, rows) * qni_pieces(m->keys, keys) * m->batches * m->heads;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return groups > 0 ? qni_launch(stream, &kernel, grid, 2 * rows, args, sizeof *args) : QN_OK;
}

qn_status qni_backward_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_backward_problem *p = problem;
    const qk_attention_args *g = &p->args.common;
    const bool any = has_any_score(g);
    QN_TRY(launch(variant, stream, p, any ? QUERIES_ANY : QUERIES, p->args.max_qo,
                  (int64_t)g->num_kv_heads * g->group));
    QN_TRY(launch(variant, stream, p, any ? KEYS_ANY : KEYS, p->args.max_kv, g->num_kv_heads));
    const qk_mask_gradient *m = &p->args.dmask;
    if (!m->data || m->queries == 1 || m->keys == 1)
        return qni_backward_others(variant, stream, problem, MASK_ANY, SINKS);
    QN_TRY(launch_mask(variant, stream, &p->args));
    qni_backward_problem rest = *p;
    rest.args.dmask.data = nullptr;
    return qni_backward_others(variant, stream, &rest, MASK_ANY, SINKS);
}
