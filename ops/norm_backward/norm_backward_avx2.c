// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of norms' backward pass with AVX2 and F16C: vectors of 8 f32.
#define QN_LANES 8
#include "norm_backward_simd.h"

qn_status qni_norm_backward_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_norm_backward_on_threads(problem, backward_part);
}
