// SPDX-License-Identifier: Apache-2.0
// The definitions of quantize and dequantize, in double precision, rounded where they say so.
//
//   scale = f32(max(amax, eps) / max)        amax over the block, NaNs left out
//   q     = fp8(f32(x * f32(1 / scale)))     to nearest, ties to even, saturating
//   x     = dtype(q * scale)                 rounded once; a NaN of any kind gives
//                                            dtype's positive quiet one
//
// A double holds the product of two f32 exactly, and a quotient of two f32 rounded to double and
// then to f32 is the correctly rounded one (53 >= 2 * 24 + 2), so each f32() above is what IEEE f32
// arithmetic gives. Source: DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8.
#include "quantize.h"

static double block_amax(const qni_quantize_problem *p, const qni_block *b) {
    double amax = 0;
    for (int64_t r = b->row; r < b->row + b->rows; r++)
        for (int64_t c = b->col; c < b->col + b->cols; c++) {
            const double magnitude =
                fabs((double)qni_load_element(p->dtype_x, p->x, r * p->x_row + c));
            if (magnitude > amax) // false for a NaN
                amax = magnitude;
        }
    return amax;
}

void qni_quantize_ref(const qni_quantize_problem *p) {
    for (int64_t i = 0; i < qni_quantize_num_blocks(p); i++) {
        const qni_block b = qni_quantize_block(p, i);
        const double amax = block_amax(p, &b);
        const double clamped = amax > (double)p->eps ? amax : (double)p->eps;
        *b.scale = (float)(clamped / (double)qni_fp8_format_of(p->kind).max);
        const double inverse = (double)(float)(1 / (double)*b.scale);
        for (int64_t r = b.row; r < b.row + b.rows; r++)
            for (int64_t c = b.col; c < b.col + b.cols; c++) {
                const double x = (double)qni_load_element(p->dtype_x, p->x, r * p->x_row + c);
                p->q[r * p->q_row + c] = qni_fp8_encode(p->kind, (float)(x * inverse));
            }
    }
}

/** Rounds v to the nearest multiple of its last place, for a significand of `bits` bits and nothing
 *  below 2^min_power. */
static double round_to(double v, int bits, int min_power) {
    if (v == 0 || !isfinite(v))
        return v;
    int power;
    frexp(v, &power);
    const int last_place = power - bits > min_power ? power - bits : min_power;
    return ldexp(rint(ldexp(v, -last_place)), last_place);
}

static void store_rounded(qni_dtype dtype, void *x, int64_t i, double v) {
    if (isnan(v))
        v = (double)__builtin_nanf("");
    if (dtype == QNI_F32)
        ((float *)x)[i] = (float)v;
    else if (dtype == QNI_F16)
        ((_Float16 *)x)[i] = (_Float16)(float)round_to(v, 11, -24);
    else
        ((uint16_t *)x)[i] =
            (uint16_t)(__builtin_bit_cast(uint32_t, (float)round_to(v, 8, -133)) >> 16);
}

void qni_dequantize_ref(const qni_quantize_problem *p) {
    for (int64_t i = 0; i < qni_quantize_num_blocks(p); i++) {
        const qni_block b = qni_quantize_block(p, i);
        for (int64_t r = b.row; r < b.row + b.rows; r++)
            for (int64_t c = b.col; c < b.col + b.cols; c++) {
                const double q = (double)qni_fp8_decode(p->kind, p->q[r * p->q_row + c]);
                store_rounded(p->dtype_x, p->x, r * p->x_row + c, q * (double)*b.scale);
            }
    }
}
