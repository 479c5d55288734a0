// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of activations' backward pass with AVX-512: vectors of 16 f32.
#define QN_LANES 16
#include "activation_backward_simd.h"

qn_status qni_activation_backward_avx512(const qni_variant *, qn_stream *stream,
                                         const void *problem) {
    (void)stream;
    return qni_activation_backward_on_threads(problem, backward_rows);
}
