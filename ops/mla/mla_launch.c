// SPDX-License-Identifier: Apache-2.0
// Launches MLA's kernels on matrix cores. They take what attention's do, but no queries of FP8.
#include "mla.h"
#include "mla_abi.h"

bool qni_mla_tile_supports(const qni_variant *variant, const qn_device *device, const void *problem,
                           qni_reason *why) {
    const qni_attention_problem *p = problem;
    if (qni_is_fp8(p->dtype))
        return qni_no(why, "q is %s; taken: f16, bf16", qni_dtype_name(p->dtype));
    if (p->tail.dim % 8 != 0)
        return qni_no(why, "rope_dim is %u; taken: multiples of 8", p->tail.dim);
    return qni_attention_tile_supports(variant, device, problem, why);
}

qn_status qni_mla_tile(const qni_variant *variant, qn_stream *stream, const void *problem) {
    const qni_attention_problem *p = problem;
    const qk_mla_args args = {.common = p->args, .tail = p->tail};
    return qni_attention_launch(variant, stream, p, &args.common, sizeof args);
}
