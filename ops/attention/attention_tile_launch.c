// SPDX-License-Identifier: Apache-2.0
// Attention's kernels on matrix cores: attention_tile_gpu.c, and attention_decode_gpu.c for
// requests of few rows. This file has the problems that they take, the costs of these, and their
// launch.
#include "attention.h"
#include "attention_decode_abi.h"

/** Elements that a thread moves at once: 16 bytes, or 8 bytes of FP8. */
enum { PIECE = 8 };

static bool are_pieces(qni_dtype dtype, const void *data, int64_t a, int64_t b, int64_t c) {
    const uintptr_t bytes = PIECE * (qni_is_fp8(dtype) ? 1 : 2);
    return (uintptr_t)data % bytes == 0 && a % PIECE == 0 && b % PIECE == 0 && c % PIECE == 0;
}

static bool begin_at_pieces(qni_dtype dtype, const qk_attention_rows *r) {
    return are_pieces(dtype, r->data, r->block, r->token, r->head);
}

static bool takes_head_dim(const char *name, uint32_t head_dim, qni_reason *why) {
    return head_dim % PIECE == 0 ||
           qni_no(why, "%s=%u; taken: multiples of %d", name, head_dim, PIECE);
}

/** Returns whether the matrix cores take f16's subnormals for zeros, as gfx90a's do. e5m2's
 *  smallest values are such subnormals. */
static bool loses_subnormals(const qn_device *device) {
    return qni_has(device, QNI_F(MFMA_BF16)) &&
           !(device->features & (QNI_F(MFMA_FP8_FNUZ) | QNI_F(MFMA_FP8_OCP)));
}

/** Returns whether the kernels take the dtype of q. Queries of FP8 need caches of FP8, and become
 *  bf16. */
static bool takes_queries(const qn_device *device, const qni_attention_problem *p,
                          qni_reason *why) {
    const qni_dtype q = p->dtype, kv = p->dtype_kv;
    if (q == QNI_BF16 || q == QNI_F16)
        return true;
    if (q != qni_usual_e4m3(device) && q != QNI_E4M3FN && q != QNI_E5M2)
        return qni_no(why, "q is %s; taken: f16, bf16, %se4m3fn, e5m2", qni_dtype_name(q),
                      qni_usual_e4m3(device) == QNI_E4M3FN ? "" : "e4m3fnuz, ");
    return qni_is_fp8(kv) || qni_no(why, "q is %s, k and v %s; taken: FP8 in all of them",
                                    qni_dtype_name(q), qni_dtype_name(kv));
}

static bool takes_types(const qn_device *device, const qni_attention_problem *p, qni_reason *why) {
    const qni_dtype q = p->dtype, kv = p->dtype_kv;
    if (!takes_queries(device, p, why))
        return false;
    if (kv != q && !qni_is_fp8(kv))
        return qni_no(why, "k and v are %s, q %s; taken: q's type, FP8", qni_dtype_name(kv),
                      qni_dtype_name(q));
    if (q == QNI_F16 && (kv == QNI_E5M2 || kv == QNI_E5M2FNUZ) && loses_subnormals(device))
        return qni_no(why, "k and v are %s, q f16, whose subnormals are zeros here; taken: e4m3",
                      qni_dtype_name(kv));
    return true;
}

/** Returns whether the kernel computes with the problem's types: with f16 if q is f16, else with
 *  bf16. */
static bool is_for_types(const qni_variant *variant, const qni_attention_problem *p,
                         qni_reason *why) {
    const bool is_f16 = p->dtype == QNI_F16, is_fp8 = qni_is_fp8(p->dtype_kv);
    if (is_fp8 != !!(variant->config.flags & QNI_ATTENTION_FP8))
        return qni_no(why, "k and v are %s; taken: %s", qni_dtype_name(p->dtype_kv),
                      is_fp8 ? "q's type" : "FP8");
    if (is_f16 != !!(variant->config.flags & QNI_ATTENTION_F16))
        return qni_no(why, "q is %s; taken: %s", qni_dtype_name(p->dtype),
                      is_f16 ? "what is computed with as bf16" : "f16");
    return true;
}

static bool takes_rows_in_memory(const qni_attention_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args;
    if (begin_at_pieces(p->dtype, &g->q) && begin_at_pieces(p->dtype_kv, &g->k) &&
        begin_at_pieces(p->dtype_kv, &g->v) && begin_at_pieces(p->dtype, &p->tail.q) &&
        begin_at_pieces(p->dtype_kv, &p->tail.k) &&
        are_pieces(p->dtype_o, g->o, g->o_batch, g->o_token, g->o_head) &&
        are_pieces(QNI_F32, g->partial_o, 0, 0, 0))
        return true;
    return qni_no(why, "a row of q, k, v or o does not begin at a multiple of 16 bytes, of FP8 8");
}

/** Refuses first what no matrix core takes, so that all these kernels give one reason. */
bool qni_attention_tile_supports(const qni_variant *variant, const qn_device *device,
                                 const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    const qk_attention_args *g = &p->args;
    if (g->has_dropout && qni_is_fp8(p->dtype_kv))
        return qni_no(why,
                      "dropout_p is not 0, and k and v are %s; taken: 0, or k and v of f16 or "
                      "bf16",
                      qni_dtype_name(p->dtype_kv));
    if (g->pos_encoding == QK_POS_ROPE)
        return qni_no(why, "pos_encoding is QN_POS_ROPE_LLAMA; taken: none, ALiBi (qn_apply_rope "
                           "rotates q and k before)");
    return takes_types(device, p, why) && takes_head_dim("head_dim", g->head_dim_qk, why) &&
           takes_head_dim("v's head_dim", g->head_dim_vo, why) && takes_rows_in_memory(p, why) &&
           is_for_types(variant, p, why) && qni_attention_fits(variant, p, why);
}

bool qni_attention_plain_supports(const qni_variant *variant, const qn_device *device,
                                  const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (p->args.has_dropout)
        return qni_no(why, "dropout_p is not 0; taken: 0");
    return qni_attention_tile_supports(variant, device, problem, why);
}

/** Takes requests of few rows. The kernel's bits differ from the tile's, so a request must get one
 *  kernel in any batch; and if a query must have equal bits in any request, these kernels are not
 *  used. */
bool qni_attention_decode_supports(const qni_variant *variant, const qn_device *device,
                                   const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (!qni_attention_plain_supports(variant, device, problem, why))
        return false;
    if (p->has_more_rows)
        return qni_no(why, "a request has more than %d rows", QK_ATTENTION_FEW_ROWS);
    if (qni_is_fp8(p->dtype_kv) && p->dtype_kv != qni_usual_e4m3(device))
        return qni_no(why, "k and v are %s; taken: %s", qni_dtype_name(p->dtype_kv),
                      qni_dtype_name(qni_usual_e4m3(device)));
    return !qni_env_get()->batch_invariant || qni_no(why, "QUERN_BATCH_INVARIANT is 1");
}

/** Returns how many elements a workgroup multiplies for a key, whatever part of its tile is
 *  used. */
double qni_attention_tile_cost(const qni_variant *variant, const qn_device *, const void *) {
    return (double)variant->config.rows * variant->config.columns;
}

qn_status qni_attention_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_args args = p->args;
    args.q_tile = variant->config.rows;
    return qni_attention_launch(variant, stream, p, &args, sizeof args);
}

// ---- attention.gpu_decode_*

/** Returns whether workgroups that take a request and a head of k each, with all chunks, fill the
 *  device, and none of them has more keys than there are for each of so many workgroups. */
static bool fills_with_requests(const qn_stream *stream, const qni_attention_problem *p) {
    const qk_attention_schedule *s = p->plan;
    int64_t keys = 0, longest = 0;
    for (uint32_t i = 0; s && i < s->num_requests; i++) {
        const qk_attention_request *r = &qk_attention_requests(s)[i];
        const int64_t rows = r->qo_len * (int64_t)p->args.group;
        if (rows == 0 || rows > QK_ATTENTION_FEW_ROWS)
            continue;
        keys += r->kv_len;
        longest = r->kv_len > longest ? r->kv_len : longest;
    }
    const int64_t enough = 3 * (int64_t)stream->device->info.num_compute_units / 2;
    return longest > 0 && longest * enough <= keys * p->args.num_kv_heads;
}

qn_status qni_attention_decode(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_decode_args args = {.common = p->args, .is_whole = fills_with_requests(stream, p)};
    args.common.q_tile = variant->config.rows;
    qk_attention_find_page_factor(p->args.page_size, &args.page_factor, &args.page_bits);
    if (!args.is_whole)
        return qni_attention_launch(variant, stream, p, &args.common, sizeof args);
    args.merges = !p->is_merged_later;
    const int64_t groups = qni_attention_groups_of(stream, p, p->plan->num_requests);
    return qni_attention_launch_groups(variant, stream, groups, &args.common, sizeof args);
}
