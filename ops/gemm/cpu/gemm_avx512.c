// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX-512: f32.
#include "gemm_avx512.h"

qn_status qni_gemm_avx512(const qni_variant *, qn_stream *, const void *problem) {
    prepare_decoder();
    return qni_gemm_cpu_run(&engine, problem);
}
