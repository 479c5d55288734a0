// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of sums with AVX-512: vectors of 16 f32.
#define QN_LANES 16
#include "rows_simd.h"

qn_status qni_moe_sum_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_moe_sum_on_threads(problem, sum_tokens);
    return QN_OK;
}
