// SPDX-License-Identifier: Apache-2.0
// attention_mfma_gpu.c: the problems that it takes, their costs, and its launch.
#include "attention.h"

enum { UNIT = QK_ATTENTION_CHUNK_UNIT, TILE = 32 }; // keys

/** Returns whether the kernel takes what becomes scores. Heads of 256 leave it no registers to turn
 *  queries of a scale that is not positive. */
static bool takes_scores(const qk_attention_args *g, qni_reason *why) {
    if (g->soft_cap > 0 || g->pos_encoding != QK_POS_NONE || g->mask_kind != QK_MASK_NONE ||
        g->custom_mask)
        return qni_no(why,
                      "scores have a soft cap, a position encoding or a mask; taken: products");
    if (g->head_dim_qk <= 192 || (!g->q_scales && !g->k_scales && g->scale > 0))
        return true;
    return qni_no(why,
                  "scales of heads, or an sm_scale of %g, with head_dim %u; taken: one "
                  "sm_scale above 0",
                  (double)g->scale, g->head_dim_qk);
}

/** Returns whether chunks begin at whole units. All requests of a plan have a caller's own chunk,
 *  split or not, so that a request gets one kernel in any batch; default chunks are whole. */
static bool has_whole_chunks(const qk_attention_schedule *plan) {
    if (!plan || plan->num_requests == 0)
        return true;
    const int32_t chunk = qk_attention_requests(plan)[0].kv_chunk;
    return chunk == INT32_MAX || chunk % UNIT == 0;
}

/** Returns whether keys come in units that lie in one page each, in rows of which a buffer's
 *  offsets reach a tile. */
static bool takes_keys(const qni_attention_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args;
    constexpr int64_t most = INT32_MAX / (2 * TILE);
    if (g->k.token < 0 || g->k.token > most || g->v.token < 0 || g->v.token > most)
        return qni_no(why, "keys lie more than %ld elements apart, or backwards", (long)most);
    if (g->kv_indices && g->page_size % UNIT != 0)
        return qni_no(why, "page_size is %u; taken: multiples of %d", g->page_size, UNIT);
    return !g->kv_indices || has_whole_chunks(p->plan) ||
           qni_no(why, "chunks are no multiples of %d keys", UNIT);
}

bool qni_attention_mfma_supports(const qni_variant *variant, const qn_device *device,
                                 const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    const qk_attention_args *g = &p->args;
    if (!qni_attention_plain_supports(variant, device, problem, why))
        return false;
    const uint32_t qk = variant->config.columns, vo = qk == 192 ? 128 : qk; // 192: MLA's prompts
    if (g->head_dim_qk != qk || g->head_dim_vo != vo)
        return qni_no(why, "head_dim is %u, v's %u; taken: %u, %u", g->head_dim_qk, g->head_dim_vo,
                      qk, vo);
    if (qni_is_fp8(p->dtype_kv) && p->dtype_kv != qni_usual_e4m3(device))
        return qni_no(why, "k and v are %s; taken: %s", qni_dtype_name(p->dtype_kv),
                      qni_dtype_name(qni_usual_e4m3(device)));
    return takes_scores(g, why) && takes_keys(p, why);
}

/** Returns the cost in the tile kernels' unit, whose matrix cores wait as long as they work. */
double qni_attention_mfma_cost(const qni_variant *variant, const qn_device *, const void *) {
    constexpr double faster = 4;
    return variant->config.rows * variant->config.columns / faster;
}

qn_status qni_attention_mfma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_args args = p->args;
    args.q_tile = variant->config.rows;
    return qni_attention_launch(variant, stream, p, &args, sizeof args);
}
