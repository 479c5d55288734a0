// SPDX-License-Identifier: Apache-2.0
// The CPU kernel with AVX2 and F16C: vectors of 8 f32.
#define QN_LANES 8
#include "rope_simd.h"

qn_status qni_rope_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rope_on_threads(problem, rope_tokens);
}
