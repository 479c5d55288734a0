// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of routing with AVX2.
#include "route_simd.h"

qn_status qni_moe_route_avx2(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    return qni_moe_route_on_threads(problem, route_rows);
}
