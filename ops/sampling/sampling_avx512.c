// SPDX-License-Identifier: Apache-2.0
// The CPU kernel with AVX-512: vectors of 16 f32.
#define QN_LANES 16
#include "sampling_simd.h"

qn_status qni_sampling_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return run_problem(problem);
}
