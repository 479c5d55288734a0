// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of routing with AVX-512.
#include "route_simd.h"

qn_status qni_moe_route_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_moe_route_on_threads(problem, route_rows);
}
