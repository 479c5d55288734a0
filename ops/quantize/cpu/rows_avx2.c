// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows with AVX2 and F16C.
#include "rows_simd.h"

qn_status qni_rows_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rows_on_threads(problem, &fns);
}
