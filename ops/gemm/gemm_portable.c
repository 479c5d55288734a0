// SPDX-License-Identifier: Apache-2.0
// GEMM on any CPU: f32 in vectors that every 64-bit processor has.
#define LANES 4
#define ROWS 4
#define VECTORS 2
#include "gemm_f32.h"

qn_status qni_gemm_portable(const qni_variant *, qn_stream *, const void *problem) {
    static const qni_gemm_engine engine = {
        .load_a = f32_load_a, .load_b = f32_load_b, .multiply = f32_multiply, .store = store_row};
    return qni_gemm_cpu_run(&engine, problem);
}
