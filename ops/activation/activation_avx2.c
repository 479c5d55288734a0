// SPDX-License-Identifier: Apache-2.0
// The CPU kernel with AVX2 and F16C: vectors of 8 f32.
#define QN_LANES 8
#include "activation_simd.h"

qn_status qni_activation_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_activation_on_threads(problem, activation_rows);
}
