// SPDX-License-Identifier: Apache-2.0
// The CPU kernel of activations with AVX-512: vectors of 16 f32.
#define QN_LANES 16
#include "activate_simd.h"

qn_status qni_moe_activate_avx512(const qni_variant *, qn_stream *stream, const void *problem) {
    (void)stream;
    qni_moe_activate_on_threads(problem, activate_rows);
    return QN_OK;
}
