// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows with AVX-512.
#include "rows_simd.h"

qn_status qni_rows_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_rows_on_threads(problem, &fns);
}
