// SPDX-License-Identifier: Apache-2.0
// The portable CPU kernel: vectors of 4 f32, and fma by the C library where the CPU has none.
#define QN_LANES 4
#include "sampling_simd.h"

qn_status qni_sampling_cpu(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return run_problem(problem);
}
