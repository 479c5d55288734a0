// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU with AVX-512 BF16: pairs of bf16, f32 sums.
#define QN_LANES 16
#define QN_BF16
#include "attention_decode_simd.h"

bool qni_attention_bf16_supports(const qni_variant *, const qn_device *device, const void *problem,
                                 qni_reason *why) {
    (void)device;
    const qni_attention_problem *p = problem;
    if (p->dtype != QNI_BF16 || (p->dtype_kv != QNI_BF16 && !qni_is_fp8(p->dtype_kv)))
        return qni_no(why, "q is %s, k and v %s; taken: q of bf16, k and v of bf16 or FP8",
                      qni_dtype_name(p->dtype), qni_dtype_name(p->dtype_kv));
    if (p->groups.data)
        return qni_no(why, "the cache has scales of groups, and scaled codes would be rounded to "
                           "bf16; taken: none");
    return p->args.pos_encoding != QK_POS_ROPE ||
           qni_no(why, "pos_encoding is QN_POS_ROPE_LLAMA, and rotated q and k would be rounded "
                       "to bf16; taken: none, ALiBi");
}

qn_status qni_attention_avx512bf16(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_attention_on_threads(problem, run_item, ROWS);
}
