// SPDX-License-Identifier: Apache-2.0
// Sums over a token's experts with vectors of QN_LANES f32: included by rows_cpu.c, rows_avx2.c and
// rows_avx512.c.
#ifndef QNI_MOE_ROWS_SIMD_H
#define QNI_MOE_ROWS_SIMD_H

#include "../../shared/simd.h"
#include "../moe.h"

/** Adds up elements i .. i + 4 QN_LANES - 1 of a token's rows, of which `count` exist. */
QN_INLINE void sum_part(qni_dtype dtype, const qni_moe_sum_problem *p, int64_t token, int64_t i,
                        int64_t count, f32v sum[4]) {
    const int64_t row_bytes = p->x_row * qni_dtype_bytes(dtype);
    for (int v = 0; v < 4; v++)
        sum[v] = all_of(0);
    for (int64_t j = 0; j < p->top_k; j++) {
        const int64_t row = qni_moe_row_of(p, token, j);
        if (row < 0)
            continue;
        const char *from = (const char *)p->x + row * row_bytes;
        const f32v weight = all_of(p->weights ? p->weights[token * p->weights_row + j] : 1);
        for (int v = 0; v < 4; v++) {
            const int64_t left = count - v * QN_LANES;
            const f32v x = left >= QN_LANES ? load(dtype, from, i + v * QN_LANES)
                           : left > 0       ? load_some(dtype, from, i + v * QN_LANES, left)
                                            : all_of(0);
            sum[v] = __builtin_elementwise_fma(weight, x, sum[v]);
        }
    }
}

QN_INLINE void finish_part(const qni_moe_sum_problem *p, int64_t token, int64_t i, int64_t count,
                           f32v sum[4]) {
    const int64_t size = qni_dtype_bytes(p->dtype_out);
    const char *addend =
        p->addend ? (const char *)p->addend + token * p->addend_row * size : nullptr;
    char *out = (char *)p->out + token * p->out_row * size;
    for (int v = 0; v < 4; v++) {
        const int64_t at = i + v * QN_LANES, left = count - v * QN_LANES;
        if (left <= 0)
            return;
        const int64_t some = left < QN_LANES ? left : QN_LANES;
        if (addend)
            sum[v] += some == QN_LANES ? load(p->dtype_out, addend, at)
                                       : load_some(p->dtype_out, addend, at, some);
        if (some == QN_LANES)
            store(p->dtype_out, out, at, sum[v]);
        else
            store_some(p->dtype_out, out, at, some, sum[v]);
    }
}

QN_INLINE void sum_token(qni_dtype dtype, const qni_moe_sum_problem *p, int64_t token) {
    f32v sum[4];
    int64_t i = 0;
    for (; i + 4 * QN_LANES <= p->n; i += 4 * QN_LANES) {
        sum_part(dtype, p, token, i, 4 * QN_LANES, sum);
        finish_part(p, token, i, 4 * QN_LANES, sum);
    }
    if (i < p->n) {
        sum_part(dtype, p, token, i, p->n - i, sum);
        finish_part(p, token, i, p->n - i, sum);
    }
}

/** Adds up tokens first .. end - 1. */
static void sum_tokens(const qni_moe_sum_problem *p, int64_t first, int64_t end) {
    for (int64_t t = first; t < end; t++)
        if (p->dtype == QNI_BF16)
            sum_token(QNI_BF16, p, t);
        else if (p->dtype == QNI_F16)
            sum_token(QNI_F16, p, t);
        else
            sum_token(QNI_F32, p, t);
}

#endif
