// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention on the CPU with AVX-512 BF16: pairs of bf16, f32 sums.
#define QN_LANES 16
#define QN_BF16
#include "attention_backward_simd.h"

#include <math.h>

bool qni_backward_bf16_supports(const qni_variant *, const qn_device *device, const void *problem,
                                qni_reason *why) {
    (void)device;
    const qni_attention_problem *f = &((const qni_backward_problem *)problem)->forward;
    return (f->dtype == QNI_BF16 && f->dtype_kv == QNI_BF16 && f->dtype_o == QNI_BF16) ||
           qni_no(why, "q is %s, k and v %s, o %s; taken: bf16 in all of them",
                  qni_dtype_name(f->dtype), qni_dtype_name(f->dtype_kv),
                  qni_dtype_name(f->dtype_o));
}

/** Prefers this kernel to those without a cost on AMD's processors, which start two vdpbf16ps in a
 *  cycle (docs/performance.md, Zen 5): twice the products of FMAs. On an Intel Xeon it was not
 *  faster than cpu_avx512. */
double qni_backward_bf16_cost(const qni_variant *, const qn_device *device, const void *) {
    return strstr(device->info.name, "AMD") ? 1 : HUGE_VAL;
}

qn_status qni_backward_avx512bf16(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_backward_on_threads(problem, &these_functions);
}
