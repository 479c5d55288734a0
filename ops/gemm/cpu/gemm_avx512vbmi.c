// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX-512 and its byte permutes: f32; e4m3 is looked up in tables.
#include "gemm_avx512.h"

qn_status qni_gemm_avx512vbmi(const qni_variant *, qn_stream *, const void *problem) {
    prepare_decoder();
    return qni_gemm_cpu_run(&engine, problem);
}
