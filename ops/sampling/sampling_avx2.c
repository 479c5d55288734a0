// SPDX-License-Identifier: Apache-2.0
// The CPU kernel with AVX2: vectors of 8 f32.
#define QN_LANES 8
#include "sampling_simd.h"

qn_status qni_sampling_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return run_problem(problem);
}
