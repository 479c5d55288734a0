// SPDX-License-Identifier: Apache-2.0
// The CPU kernels with AVX-512 (F, BW, DQ, VL): vectors of 16 f32.
#define QN_LANES 16
#include "dequantize_loops.h"
#include "quantize_simd.h"

qn_status qni_quantize_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, quantize_blocks);
    return QN_OK;
}

qn_status qni_dequantize_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_quantize_on_threads(problem, dequantize_blocks);
    return QN_OK;
}
