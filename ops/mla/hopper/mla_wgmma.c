// SPDX-License-Identifier: Apache-2.0
// Host side of MLA's kernel for Hopper's tensor cores, mla_wgmma_gpu.c: which problems it takes,
// its launch.
#include "../mla.h"
#include "mla_wgmma_abi.h"

static bool takes_dims(const qni_attention_problem *p, qni_reason *why) {
    return (p->args.head_dim_vo == QK_MLA_DIM && p->tail.dim == QK_ATTENTION_MAX_TAIL) ||
           qni_no(why, "dim is %u, rope_dim %u; taken: %d, %d", p->args.head_dim_vo, p->tail.dim,
                  QK_MLA_DIM, QK_ATTENTION_MAX_TAIL);
}

/** Keys' places are counted in 32 bits, in units of 16 bytes. */
static bool takes_extent(const char *name, const qni_attention_problem *p,
                         const qk_attention_rows *rows, qni_reason *why) {
    constexpr double most = 0x1p32 * 8; // elements
    const double end =
        (double)p->kv_blocks * (double)rows->block + (double)p->kv_tokens * (double)rows->token;
    return end < most ||
           qni_no(why, "%s reaches over %.0f elements; fewer than 2^35 are taken", name, end);
}

static bool is_aligned(const qk_attention_rows *rows) {
    return (uintptr_t)rows->data % 16 == 0 && rows->block % 16 == 0 && rows->token % 16 == 0;
}

/** Caches of FP8 come to L2 in runs of 16 bytes. */
static bool takes_fp8(const qn_device *device, const qni_attention_problem *p, qni_reason *why) {
    if (!qni_is_fp8(p->dtype_kv))
        return true;
    if (p->dtype_kv != qni_usual_e4m3(device))
        return qni_no(why, "ckv and kpe are %s; taken: %s", qni_dtype_name(p->dtype_kv),
                      qni_dtype_name(qni_usual_e4m3(device)));
    return (is_aligned(&p->args.k) && is_aligned(&p->tail.k)) ||
           qni_no(why, "a row of ckv or kpe does not begin at a multiple of 16 bytes");
}

bool qni_mla_wgmma_supports(const qni_variant *variant, const qn_device *device,
                            const void *problem, qni_reason *why) {
    const qni_attention_problem *p = problem;
    return qni_mla_tile_supports(variant, device, problem, why) && takes_dims(p, why) &&
           takes_fp8(device, p, why) && takes_extent("ckv", p, &p->args.k, why) &&
           takes_extent("kpe", p, &p->tail.k, why);
}

/** A work item of more rows than a workgroup's is that of several workgroups. */
qn_status qni_mla_wgmma(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_mla_args args = {.common = p->args, .tail = p->tail};
    const int64_t tiles = (p->plan->q_tile + QK_MLA_ROWS - 1) / QK_MLA_ROWS;
    const int64_t items = tiles * qni_attention_count_groups(stream, p, &args.common);
    const int64_t most = stream->device->info.num_compute_units;
    const uint32_t grid[3] = {(uint32_t)(items < most ? items : most), 1, 1};
    if (items > 0)
        QN_TRY(qni_launch(stream, &variant->config.kernel[0], grid, QK_MLA_THREADS, &args,
                          sizeof args));
    return qni_attention_merge(variant, stream, p, &args.common);
}
