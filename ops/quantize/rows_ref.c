// SPDX-License-Identifier: Apache-2.0
// The definition of quantisation along rows, in double precision, rounded where it says so.
//
//   scale = f32(max(amax, eps) / max)      amax over the group, NaNs left out;
//                                          a power of two: rounded up
//   q     = code(f32(x * f32(1 / scale)))  to nearest, ties to even, saturating
//
// Sources: SGLang's per_token_group_quant_8bit; DeepGEMM's per_token_cast_to_fp8 and ceil_to_ue8m0.
#include "rows.h"

static float at(const qni_rows_problem *p, int64_t row, int64_t col) {
    return (float)qni_get(p->dtype_x, p->x, row * p->x_row + col);
}

static float amax_of(const qni_rows_problem *p, int64_t row, int64_t rows, int64_t col,
                     int64_t cols) {
    float amax = 0;
    for (int64_t r = row; r < row + rows; r++)
        for (int64_t c = col; c < col + cols; c++)
            amax = fabsf(at(p, r, c)) > amax ? fabsf(at(p, r, c)) : amax; // false for a NaN
    return amax;
}

/** Returns the scale that f32 arithmetic gives: a quotient rounded to double and then to f32 is
 *  correctly rounded. */
static float scale_of(const qni_rows_problem *p, float amax) {
    const double clamped = (double)(amax > p->eps ? amax : p->eps);
    const float scale = (float)(clamped / (double)qni_rows_most(p->dtype_q));
    if (p->form != QNI_SCALE_POWER && p->form != QNI_SCALE_PACKED)
        return scale;
    int power;
    const double fraction = frexp((double)scale, &power); // in [1/2, 1)
    power -= fraction == 0.5;
    return ldexpf(1, !isfinite(scale) || power > 127 ? 127 : power < -126 ? -126 : power);
}

void qni_quantize_rows_ref(const qni_rows_problem *p) {
    const int64_t groups = qni_rows_groups(p);
    float scale = 1;
    if (p->form == QNI_SCALE_GIVEN)
        scale = *(const float *)p->scale;
    if (p->form == QNI_SCALE_TENSOR)
        *(float *)p->scale = scale = scale_of(p, amax_of(p, 0, p->rows, 0, p->cols));
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < groups; i++) {
            const int64_t col = i * p->group, left = p->cols - col;
            const int64_t count = left < p->group ? left : p->group;
            if (!qni_rows_has_one_scale(p)) {
                scale = scale_of(p, amax_of(p, r, 1, col, count));
                qni_rows_put_scale(p, r, i, scale);
            }
            const double inverse = (double)(float)(1 / (double)scale);
            for (int64_t c = col; c < col + count; c++)
                p->q[r * p->q_row + c] =
                    qni_rows_encode(p->dtype_q, (float)((double)at(p, r, c) * inverse));
        }
}
