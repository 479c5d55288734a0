// SPDX-License-Identifier: Apache-2.0
// The CPU kernels with AVX2, F16C: vectors of 8 f32.
#define QN_LANES 8
#include "dequantize_loops.h"
#include "quantize_simd.h"

qn_status qni_quantize_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, quantize_blocks);
    return QN_OK;
}

qn_status qni_dequantize_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, dequantize_blocks);
    return QN_OK;
}
