// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX2 and FMA: f32, 6 rows by 16 columns in registers.
#define LANES 8
#define ROWS 6
#define VECTORS 2
#include "gemm_f32.h"

qn_status qni_gemm_avx2([[maybe_unused]] qn_stream *stream, const void *problem) {
    return qni_gemm_cpu_run(&f32_engine, problem);
}
