// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU with AVX2 and F16C: vectors of 8 f32.
#define QN_LANES 8
#include "attention_decode_simd.h"

qn_status qni_attention_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_attention_on_threads(problem, run_item, ROWS);
}
