// SPDX-License-Identifier: Apache-2.0
// Chooses and launches attention's kernels on matrix cores: attention_tile_gpu.c, and
// attention_decode_gpu.c for requests of few rows.
#include "attention.h"

#define KERNEL(d, types) {.image = "attention_" #d "_" #types, .entry = "qk_attention_tile"}
/** By head dim, by whether q is f16, by whether k and v are FP8. */
static const qni_kernel_ref kernels[][2][2] = {
    {{KERNEL(64, bf16), KERNEL(64, bf16_fp8)}, {KERNEL(64, f16), KERNEL(64, f16_fp8)}},
    {{KERNEL(128, bf16), KERNEL(128, bf16_fp8)}, {KERNEL(128, f16), KERNEL(128, f16_fp8)}},
    {{KERNEL(256, bf16), KERNEL(256, bf16_fp8)}, {KERNEL(256, f16), KERNEL(256, f16_fp8)}}};
/** Of requests of few rows: by whether q is f16, by whether k and v are FP8. Which of the two
 *  kernels takes a request is decided by that request alone, so that its bits do not depend on its
 *  neighbours. */
#define DECODE(types) {.image = "attention_decode_" #types, .entry = "qk_attention_decode"}
static const qni_kernel_ref decode[2][2] = {{DECODE(bf16), DECODE(bf16_fp8)},
                                            {DECODE(f16), DECODE(f16_fp8)}};
enum { MOST_HEAD_DIM = 256 };
/** Elements that a thread moves at once: 16 bytes, of FP8 8. */
enum { PIECE = 8 };
/** Rows of a workgroup of uniform requests. */
enum { ROWS = 128 };

static bool are_pieces(qni_dtype dtype, const void *data, int64_t a, int64_t b, int64_t c) {
    const uintptr_t bytes = PIECE * (qni_is_fp8(dtype) ? 1 : 2);
    return (uintptr_t)data % bytes == 0 && a % PIECE == 0 && b % PIECE == 0 && c % PIECE == 0;
}

static bool begin_at_pieces(qni_dtype dtype, const qk_attention_rows *r) {
    return are_pieces(dtype, r->data, r->block, r->token, r->head);
}

static bool takes_head_dim(const char *name, uint32_t head_dim, qni_reason *why) {
    if (head_dim % PIECE == 0 && head_dim <= MOST_HEAD_DIM)
        return true;
    return qni_no(why, "%s=%u; taken: multiples of %d up to %d", name, head_dim, PIECE,
                  MOST_HEAD_DIM);
}

/** gfx90a's matrix cores take f16's subnormals for zeros, and e5m2's smallest values are such. */
static bool loses_subnormals(const qn_device *device) {
    return qni_has(device, QNI_F(MFMA_BF16)) &&
           !(device->features & (QNI_F(MFMA_FP8_FNUZ) | QNI_F(MFMA_FP8_OCP)));
}

/** Queries of FP8 have caches of FP8, and are computed with as bf16. */
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

bool qni_attention_tile_supports(const qni_variant *variant, const qn_device *device,
                                 const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    const qk_attention_args *g = &p->args;
    if (g->has_dropout)
        return qni_no(why, "dropout_p is not 0; taken: 0");
    if (g->pos_encoding == QK_POS_ROPE)
        return qni_no(why, "pos_encoding is QN_POS_ROPE_LLAMA; taken: none, ALiBi (qn_apply_rope "
                           "rotates q and k before)");
    if (!takes_types(device, p, why) || !takes_head_dim("head_dim", g->head_dim_qk, why) ||
        !takes_head_dim("v's head_dim", g->head_dim_vo, why))
        return false;
    if (!qni_attention_any_supports(variant, device, problem, why))
        return false;
    if (begin_at_pieces(p->dtype, &g->q) && begin_at_pieces(p->dtype_kv, &g->k) &&
        begin_at_pieces(p->dtype_kv, &g->v) &&
        are_pieces(p->dtype_o, g->o, g->o_batch, g->o_token, g->o_head) &&
        are_pieces(QNI_F32, g->partial_o, 0, 0, 0))
        return true;
    return qni_no(why, "a row of q, k, v or o does not begin at a multiple of 16 bytes, of FP8 8");
}

/** Of kernels: 0 for head dims up to 64, 1 up to 128, 2 beyond. */
static int head_dim_index(const qni_attention_problem *p) {
    const uint32_t qk = p->args.head_dim_qk, vo = p->args.head_dim_vo, most = qk > vo ? qk : vo;
    return most <= 64 ? 0 : most <= 128 ? 1 : 2;
}

/** Requests of how many rows are attention_decode_gpu.c's, whose bits are not the tile's. */
static uint32_t few_rows_of(const qn_device *device, const qni_attention_problem *p) {
    const bool is_taken = !qni_is_fp8(p->dtype_kv) || p->dtype_kv == qni_usual_e4m3(device);
    return head_dim_index(p) < 2 && is_taken && !qni_env_get()->batch_invariant
               ? QK_ATTENTION_FEW_ROWS
               : 0;
}

/** Whether there are requests of few rows, or of more. In a graph there may come some of both. */
static bool has_requests(const qni_attention_problem *p, const qk_attention_args *args,
                         bool of_few_rows) {
    qk_attention_args g = *args;
    g.schedule = p->plan; // the host's
    if (p->plan && p->plan->is_for_graph)
        return g.few_rows > 0 || !of_few_rows;
    for (uint32_t i = 0; i < (p->plan ? p->plan->num_requests : 1); i++)
        if (qk_attention_has_few_rows(&g, i) == of_few_rows)
            return true;
    return false;
}

qn_status qni_attention_tile(const qni_variant *, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const int dim = head_dim_index(p), is_f16 = p->dtype == QNI_F16,
              is_fp8 = qni_is_fp8(p->dtype_kv);
    qk_attention_args args = p->args;
    args.q_tile = ROWS;
    args.few_rows = few_rows_of(stream->device, p);
    if (has_requests(p, &args, true))
        QN_TRY(qni_attention_launch(stream, p, &decode[is_f16][is_fp8], &args, sizeof args));
    if (has_requests(p, &args, false))
        QN_TRY(qni_attention_launch(stream, p, &kernels[dim][is_f16][is_fp8], &args, sizeof args));
    return qni_attention_launch_merge(stream, p, &args);
}
