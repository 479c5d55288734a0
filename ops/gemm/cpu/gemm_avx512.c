// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX-512: f32, 6 rows by 64 columns in registers.
#define LANES 16
#define ROWS 6
#define VECTORS 4
#include "gemm_f32.h"

qn_status qni_gemm_avx512(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {.load_a = f32_load_a,
                                           .load_b = f32_load_b,
                                           .multiply = f32_multiply,
                                           .finish = finish_row,
                                           .store = store_row,
                                           .quantize = quantize_row};
    return qni_gemm_cpu_run(&engine, problem);
}
