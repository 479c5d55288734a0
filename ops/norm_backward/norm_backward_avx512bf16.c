// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of norms' backward pass with AVX-512 and its conversion to bf16: vectors of 16
// f32. It is for bf16 alone; for other dtypes it would be the kernel of norm_backward_avx512.c.
#define QN_LANES 16
#define QN_BF16_ALONE
#include "norm_backward_simd.h"

bool qni_norm_backward_avx512bf16_supports(const qni_variant *, const qn_device *device,
                                           const void *problem, qni_reason *why) {
    (void)device;
    const qni_norm_backward_problem *p = problem;
    return p->dtype == QNI_BF16 || qni_no(why, "x is not bf16");
}

qn_status qni_norm_backward_avx512bf16(const qni_variant *, qn_stream *stream,
                                       const void *problem) {
    (void)stream;
    return qni_norm_backward_on_threads(problem, backward_part);
}
