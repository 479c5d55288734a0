// SPDX-License-Identifier: Apache-2.0
// Launches the kernels of few_gpu.c.
#include "../../gemm/gemm_abi.h"
#include "../moe.h"

enum { FIRST_THREADS = 256, SECOND_THREADS = 512 };
// Tokens whose pairs rarely meet one expert, and do so at one time.
constexpr int64_t most_tokens = 16;

static bool is_whole(const char *name, int64_t value, int64_t most, qni_reason *why) {
    return (value % QNI_MOE_GROUP == 0 && value <= most) ||
           qni_no(why, "%s is %ld; multiples of %d up to %ld are accepted", name, (long)value,
                  QNI_MOE_GROUP, (long)most);
}

static bool is_aligned(const qni_moe_few_problem *p, qni_reason *why) {
    const bool is_even = (uintptr_t)p->x % 16 == 0 && p->x_row % 8 == 0;
    return is_even || qni_no(why, "x's rows do not begin at multiples of 16 bytes");
}

bool qni_moe_few_supports(const qni_variant *, const qn_device *device, const void *problem,
                          qni_reason *why) {
    const qni_moe_few_problem *p = problem;
    const qni_dtype usual = qni_usual_e4m3(device);
    if (p->tokens > most_tokens || p->top_k > QK_MOE_FEW_TOP_K)
        return qni_no(why, "%ld tokens of %ld pairs; up to %ld of %d are accepted", (long)p->tokens,
                      (long)p->top_k, (long)most_tokens, QK_MOE_FEW_TOP_K);
    if (p->dtype != QNI_BF16 || p->dtype_w1 != usual || p->dtype_w2 != usual)
        return qni_no(why, "x is %s, w1 %s, w2 %s; takes bf16, %s", qni_dtype_name(p->dtype),
                      qni_dtype_name(p->dtype_w1), qni_dtype_name(p->dtype_w2),
                      qni_dtype_name(usual));
    return is_whole("hidden", p->hidden, QK_MOE_FEW_HIDDEN, why) &&
           is_whole("inner", p->inner, QK_MOE_FEW_INNER, why) && is_aligned(p, why);
}

qn_status qni_moe_few(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_few_problem *p = problem;
    const uint32_t tokens = (uint32_t)p->tokens, pairs = tokens * (uint32_t)p->top_k;
    const qk_moe_few_args args = {.x = p->x,
                                  .addend = p->addend,
                                  .between = p->between,
                                  .out = p->out,
                                  .weights = p->weights,
                                  .w1 = p->w1,
                                  .w2 = p->w2,
                                  .sort = {.ids = p->ids,
                                           .expert_map = p->expert_map,
                                           .ids_row = p->ids_row,
                                           .pairs = pairs,
                                           .top_k = (uint32_t)p->top_k,
                                           .mapped = (uint32_t)p->mapped,
                                           .experts = (uint32_t)p->experts},
                                  .x_row = p->x_row,
                                  .addend_row = p->addend_row,
                                  .out_row = p->out_row,
                                  .weights_row = p->weights_row,
                                  .tokens = tokens,
                                  .hidden = (uint32_t)p->hidden,
                                  .inner = (uint32_t)p->inner,
                                  .out_dtype = (uint32_t)p->dtype_out,
                                  .eps = p->eps};
    const uint32_t first[3] = {pairs * (uint32_t)(2 * p->inner / 128), 1, 1};
    const uint32_t second[3] = {tokens * (uint32_t)(p->hidden / QK_PACK_ROWS), 1, 1};
    const qni_kernel_ref *kernel = variant->config.kernel;
    QN_TRY(qni_launch(stream, &kernel[0], first, FIRST_THREADS, &args, sizeof args));
    return qni_launch(stream, &kernel[1], second, SECOND_THREADS, &args, sizeof args);
}
