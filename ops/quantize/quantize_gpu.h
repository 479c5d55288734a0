// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels that quantise by blocks share: a lane's 8 elements, their largest magnitude,
// scales and codes.
#ifndef QK_QUANTIZE_GPU_H
#define QK_QUANTIZE_GPU_H

#include "fp8.h"
#include "gpu.h"
#include "quantize_abi.h"
#include "scale.h"

enum { QK_F32, QK_F16, QK_BF16 };
enum { INFINITY_BITS = 0x7F800000 };

/** The bits of 8 elements, the first in the lowest bits. Elements of 16 bits take only
 *  words[0]. */
typedef struct run {
    qd_u32x4 words[2];
} run;

QD_INLINE const char *address_of(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    return (const char *)g->x + ((int64_t)row * g->x_row + col) * (dtype == QK_F32 ? 4 : 2);
}

/** Loads 8 elements that all exist and are aligned. */
QD_INLINE run load_whole(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    const qd_u32x4 *x = (const qd_u32x4 *)address_of(dtype, g, row, col);
    run r = {.words = {x[0]}};
    if (dtype == QK_F32)
        r.words[1] = x[1];
    return r;
}

QD_INLINE float element(int dtype, const run *r, int i) {
    if (dtype == QK_F32)
        return qd_as_f32(r->words[i / 4][i % 4]);
    const uint32_t pair = r->words[0][i / 2];
    if (dtype == QK_BF16)
        return qd_as_f32(i % 2 ? pair & 0xFFFF0000 : pair << 16);
    return (float)__builtin_bit_cast(_Float16, (uint16_t)(pair >> (i % 2 * 16)));
}

/** Returns the largest of a team's 16 lanes, in each lane. */
QD_INLINE uint32_t team_max(uint32_t v) {
    v = qd_max(v, QD_ROW_PARTNER(v, 8));
    v = qd_max(v, QD_ROW_PARTNER(v, 4));
    v = qd_max(v, QD_ROW_PARTNER(v, 2));
    return qd_max(v, QD_ROW_PARTNER(v, 1));
}

/** Returns the bits of the largest magnitude; their order as integers is that of the magnitudes. A
 *  NaN's bits are above infinity's, and count only if `with_nan`. */
QD_INLINE uint32_t run_top(int dtype, const run *x, bool with_nan) {
    uint32_t top = 0;
    QD_UNROLL for (int i = 0; i < QK_RUN; i++) {
        const uint32_t bits = qd_as_u32(element(dtype, x, i)) & 0x7FFFFFFF;
        top = qd_max(top, bits <= INFINITY_BITS || with_nan ? bits : 0);
    }
    return top;
}

QD_INLINE float scale_of(const qk_quantize_args *g, uint32_t top) {
    const float amax = qd_as_f32(top);
    return (amax > g->eps ? amax : g->eps) / qd_fp8_max((int)g->kind);
}

/** Returns 8 codes, the first in the low byte; `finite`: no infinity or NaN is in the block. */
QD_INLINE qd_u32x2 encode_run(int dtype, const qk_quantize_args *g, const run *x, float inverse,
                              bool finite) {
    float y[QK_RUN];
    QD_UNROLL for (int i = 0; i < QK_RUN; i++)
        y[i] = element(dtype, x, i) * inverse;
    if (finite && qd_fp8_is_native((int)g->kind))
        return (qd_u32x2){qd_fp8_encode4((int)g->kind, y), qd_fp8_encode4((int)g->kind, y + 4)};
    qd_u32x2 codes = 0;
    QD_UNROLL for (int i = 0; i < QK_RUN; i++)
        codes[i / 4] |= qd_fp8_encode((int)g->kind, y[i]) << (i % 4 * 8);
    return codes;
}

#endif
