// SPDX-License-Identifier: Apache-2.0
// Attention on the CPU with AVX-512: vectors of 16 f32.
#define QN_LANES 16
#include "attention_decode_simd.h"

qn_status qni_attention_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_attention_on_threads(problem, run_item, ROWS);
}
