// SPDX-License-Identifier: Apache-2.0
// GEMM with AVX-512: f32, 6 rows by 64 columns in registers.
#define LANES 16
#define ROWS 6
#define VECTORS 4
#include "gemm_f32_dot.h"

qn_status qni_gemm_avx512(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {.load_a = f32_load_a,
                                           .load_b = f32_load_b,
                                           .multiply = f32_multiply,
                                           .load_a_along_k = f32_load_a_along_k,
                                           .multiply_along_k = f32_multiply_along_k,
                                           .dot_bytes = sizeof(float),
                                           .finish = finish_row,
                                           .store = store_row,
                                           .quantize = quantize_row};
    return qni_gemm_cpu_run(&engine, problem);
}
