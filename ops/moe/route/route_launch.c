// SPDX-License-Identifier: Apache-2.0
// Launches the kernel of route_gpu.c.
#include "../moe.h"

enum { LANES = 16, LEAST_TOKENS = 4 }; // lanes a token; tokens of a wave of 64
constexpr int64_t max_grid = 1 << 20;  // workgroups step through the other tokens

bool qni_moe_route_gpu_supports(const qni_variant *, const qn_device *, const void *problem,
                                qni_reason *why) {
    const qni_moe_route_problem *p = problem;
    if (p->experts > QK_MOE_MAX_EXPERTS)
        return qni_no(why, "%ld experts; up to %d are accepted", (long)p->experts,
                      QK_MOE_MAX_EXPERTS);
    if (p->tokens >= INT32_MAX || p->shared >= INT32_MAX - QK_MOE_MAX_EXPERTS)
        return qni_no(why, "%ld tokens and %ld shared experts; fewer than 2^31 are accepted",
                      (long)p->tokens, (long)p->shared);
    return true;
}

/** Returns how many tokens a workgroup's LDS has room for, of whole waves. */
static int64_t tokens_of(const qni_moe_route_problem *p) {
    const int64_t room = QK_MOE_ROUTE_WORDS / p->experts / LEAST_TOKENS * LEAST_TOKENS;
    return room < QK_MOE_ROUTE_TOKENS ? room : QK_MOE_ROUTE_TOKENS;
}

qn_status qni_moe_route_gpu(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_moe_route_problem *p = problem;
    const qk_moe_route_args args = {.logits = p->logits,
                                    .bias = p->bias,
                                    .weights = p->weights,
                                    .ids = p->ids,
                                    .logits_row = p->logits_row,
                                    .weights_row = p->weights_row,
                                    .ids_row = p->ids_row,
                                    .tokens = (uint32_t)p->tokens,
                                    .experts = (uint32_t)p->experts,
                                    .top_k = (uint32_t)p->top_k,
                                    .shared = (uint32_t)p->shared,
                                    .groups = (uint32_t)p->groups,
                                    .topk_groups = (uint32_t)p->topk_groups,
                                    .dtype = (uint32_t)p->dtype,
                                    .bias_dtype = (uint32_t)p->dtype_bias,
                                    .is_sigmoid = p->is_sigmoid,
                                    .renormalizes = p->renormalizes,
                                    .scaling = p->scaling,
                                    .shared_weight = p->shared_weight};
    const int64_t tokens = tokens_of(p), groups = (p->tokens + tokens - 1) / tokens;
    const uint32_t grid[3] = {(uint32_t)(groups < max_grid ? groups : max_grid), 1, 1};
    return qni_launch(stream, &variant->config.kernel[0], grid, (uint32_t)(LANES * tokens), &args,
                      sizeof args);
}
