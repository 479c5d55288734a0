// SPDX-License-Identifier: Apache-2.0
// Launches MLA's kernels on matrix cores, which take what attention's do but no queries of FP8, and
// the kernel for caches with scales of groups.
#include "mla.h"
#include "mla_abi.h"

#include <string.h>

static bool has_groups(const void *problem) {
    return ((const qni_attention_problem *)problem)->groups.data;
}

bool qni_mla_tile_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (qni_is_fp8(p->dtype))
        return qni_no(why, "q is %s; taken: f16, bf16", qni_dtype_name(p->dtype));
    if (has_groups(p))
        return qni_no(why, "the cache has scales of groups; taken: none");
    if (p->tail.dim % 8 != 0)
        return qni_no(why, "rope_dim is %u; taken: multiples of 8", p->tail.dim);
    return qni_attention_tile_supports(variant, device, problem, why);
}

qn_status qni_mla_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_mla_args args = {.common = p->args, .tail = p->tail};
    return qni_attention_launch(variant, stream, p, &args.common, sizeof args);
}

bool qni_mla_any_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                          qni_reason *why) {
    if (has_groups(problem))
        return qni_no(why, "the cache has scales of groups; taken: none");
    return qni_attention_any_supports(variant, device, problem, why);
}

bool qni_mla_groups_supports(const qni_variant *variant, const qn_device *device,
                             const void *problem, qni_reason *why) {
    if (!has_groups(problem))
        return qni_no(why, "the cache has no scales of groups");
    return qni_attention_any_supports(variant, device, problem, why);
}

qn_status qni_mla_groups(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    qk_attention_groups_args args = {
        .any = {.common = p->args,
                .tail = p->tail,
                .is_wide = qni_attention_is_wide(&p->tail.k, p->tail.dim)}, // codes have no runs
        .scales = p->groups,
        .dtype_tail = (uint32_t)p->dtype_tail};
    args.any.common.q_tile = variant->config.rows;
    memcpy(args.any.turns, p->turns, sizeof args.any.turns);
    return qni_attention_launch(variant, stream, p, &args.any.common, sizeof args);
}
