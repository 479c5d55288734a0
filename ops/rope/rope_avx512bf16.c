// SPDX-License-Identifier: Apache-2.0
// The CPU kernel with AVX-512 and its conversion to bf16: vectors of 16 f32.
#define QN_LANES 16
#include "rope_simd.h"

qn_status qni_rope_avx512bf16(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rope_on_threads(problem, rope_tokens);
}
