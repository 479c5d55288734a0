// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention on the CPU with AVX2 and F16C: vectors of 8 f32.
#define QN_LANES 8
#include "attention_backward_simd.h"

qn_status qni_backward_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_backward_on_threads(problem, &these_functions);
}
