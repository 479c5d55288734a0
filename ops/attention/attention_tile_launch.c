// SPDX-License-Identifier: Apache-2.0
// Chooses and launches attention's kernels on matrix cores, attention_tile_gpu.c.
#include "attention.h"

#define KERNEL(d, type) {.image = "attention_" #d "_" #type, .entry = "qk_attention_tile"}
static const qni_kernel_ref kernels[][2] = {{KERNEL(64, bf16), KERNEL(64, f16)},
                                            {KERNEL(128, bf16), KERNEL(128, f16)},
                                            {KERNEL(256, bf16), KERNEL(256, f16)}};
enum { MOST_HEAD_DIM = 256 };
/** Elements of 16 bytes. */
enum { PIECE = 8 };
/** Rows of a workgroup of uniform requests. */
enum { ROWS = 128 };

static bool are_pieces(const void *data, int64_t a, int64_t b, int64_t c) {
    return (uintptr_t)data % 16 == 0 && a % PIECE == 0 && b % PIECE == 0 && c % PIECE == 0;
}

static bool begin_at_pieces(const qk_attention_rows *r) {
    return are_pieces(r->data, r->block, r->token, r->head);
}

static bool takes_head_dim(const char *name, uint32_t head_dim, qni_reason *why) {
    if (head_dim % PIECE == 0 && head_dim <= MOST_HEAD_DIM)
        return true;
    return qni_no(why, "%s=%u; taken: multiples of %d up to %d", name, head_dim, PIECE,
                  MOST_HEAD_DIM);
}

static bool takes_types(const qni_attention_problem *p, qni_reason *why) {
    if (p->dtype != QNI_BF16 && p->dtype != QNI_F16)
        return qni_no(why, "q is %s; taken: f16, bf16", qni_dtype_name(p->dtype));
    if (p->dtype_kv != p->dtype)
        return qni_no(why, "k and v are %s, q %s; taken: one type", qni_dtype_name(p->dtype_kv),
                      qni_dtype_name(p->dtype));
    return true;
}

bool qni_attention_tile_supports(const qn_device *device, const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    const qk_attention_args *g = &p->args;
    if (g->has_dropout)
        return qni_no(why, "dropout");
    if (g->pos_encoding == QK_POS_ROPE)
        return qni_no(why, "pos_encoding turns q and k inside");
    if (!takes_types(p, why) || !takes_head_dim("head_dim", g->head_dim_qk, why) ||
        !takes_head_dim("v's head_dim", g->head_dim_vo, why))
        return false;
    if (!qni_attention_any_supports(device, problem, why))
        return false;
    if (begin_at_pieces(&g->q) && begin_at_pieces(&g->k) && begin_at_pieces(&g->v) &&
        are_pieces(g->o, g->o_batch, g->o_token, g->o_head) && are_pieces(g->partial_o, 0, 0, 0))
        return true;
    return qni_no(why, "a row of q, k, v or o does not begin at a multiple of 16 bytes");
}

static const qni_kernel_ref *pick(const qni_attention_problem *p) {
    const uint32_t qk = p->args.head_dim_qk, vo = p->args.head_dim_vo, most = qk > vo ? qk : vo;
    return &kernels[most <= 64 ? 0 : most <= 128 ? 1 : 2][p->dtype == QNI_F16];
}

qn_status qni_attention_tile(qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_args args = p->args;
    args.q_tile = ROWS;
    return qni_attention_launch(stream, p, pick(p), &args, sizeof args);
}
