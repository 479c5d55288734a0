// SPDX-License-Identifier: Apache-2.0
// Host side of the kernel for requests of few rows on Hopper, attention_async_gpu.c: which problems
// it takes, its launch; which FP8 Hopper's kernels take.
#include "../attention.h"
#include "attention_async_abi.h"

/** Takes scores that depend on the product and the row alone. */
static bool takes_scores(const qk_attention_args *g, qni_reason *why) {
    const char *const other = g->pos_encoding != QK_POS_NONE ? "a position encoding"
                              : g->mask_kind != QK_MASK_NONE ? "a mask"
                              : g->custom_mask               ? "a custom mask"
                                                             : nullptr;
    return !other || qni_no(why, "has %s, takes none", other);
}

/** Rows are counted in 32 bits, in units of 16 bytes. */
static bool takes_extent(const char *name, const qni_attention_problem *p,
                         const qk_attention_rows *rows, qni_reason *why) {
    constexpr double most = 0x1p32 * 8; // elements
    const double end = (double)p->kv_blocks * (double)rows->block +
                       (double)p->kv_tokens * (double)rows->token +
                       (double)p->args.num_kv_heads * (double)rows->head;
    return end < most ||
           qni_no(why, "%s reaches over %.0f elements; fewer than 2^35 are taken", name, end);
}

static bool are_whole(const qk_attention_rows *rows) {
    return (uintptr_t)rows->data % 16 == 0 && rows->block % 16 == 0 && rows->token % 16 == 0 &&
           rows->head % 16 == 0;
}

bool qni_attention_takes_codes(const qni_attention_problem *p, qni_reason *why) {
    const qk_attention_args *g = &p->args;
    if (!qni_is_fp8(p->dtype_kv))
        return true;
    if (p->dtype_kv != QNI_E4M3FN)
        return qni_no(why, "k and v are %s; taken: e4m3fn", qni_dtype_name(p->dtype_kv));
    if (g->head_dim_qk % 16 || g->head_dim_vo % 16)
        return qni_no(why, "head_dim=%u, v's %u; taken of FP8: multiples of 16", g->head_dim_qk,
                      g->head_dim_vo);
    return (are_whole(&g->k) && are_whole(&g->v)) ||
           qni_no(why, "a row of k or v does not begin at a multiple of 16 bytes");
}

/** As qni_attention_decode_supports says, the rows of all requests and QUERN_BATCH_INVARIANT
 *  decide. */
bool qni_attention_async_supports(const qni_variant *variant, const qn_device *device,
                                  const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    return qni_attention_decode_supports(variant, device, problem, why) &&
           qni_attention_takes_codes(p, why) && takes_scores(&p->args, why) &&
           takes_extent("k", p, &p->args.k, why) && takes_extent("v", p, &p->args.v, why);
}

qn_status qni_attention_async(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_args args = p->args;
    args.q_tile = variant->config.rows;
    const int64_t groups = qni_attention_count_groups(stream, p, &args);
    const int64_t most = (int64_t)QK_ASYNC_WORKGROUPS(variant->config.columns) *
                         stream->device->info.num_compute_units;
    const uint32_t grid[3] = {(uint32_t)(groups < most ? groups : most), 1, 1};
    if (groups > 0)
        QN_TRY(qni_launch(stream, &variant->config.kernel[0], grid, QK_ASYNC_THREADS, &args,
                          sizeof args));
    return qni_attention_merge(variant, stream, p, &args);
}
