// SPDX-License-Identifier: Apache-2.0
// The definition of the family, in extended precision, without rounding.
//
//   x = in / sqrt(mean(in^2) + eps) * weight     where there is a weight; 0 / 0 is 0
//   y0 = x0 cos a - x1 sin a,  y1 = x1 cos a + x0 sin a
//   for each pair of the first rotary_dim elements
//   out = y, or fp8(y * scale)
//
// Cosines and sines that kernels compute from frequencies may be off by 2^-21: the angle is cut to
// 32 bits of a turn (2^-29.3), becomes an f32 of at most pi / 4 (three roundings: 2^-22.8), and
// goes through Taylor series with a remainder below 2^-25 and three roundings of results near 1.
//
// Sources: arXiv:2104.09864; arXiv:1910.07467; the frequencies of Llama 3.1 as its model card's
// code has them.
#include "rope.h"

static long double frequency(const qni_rope_law *law, int64_t pair, int64_t rotary_dim) {
    const long double exponent = -2.0L * (long double)pair / (long double)rotary_dim;
    const long double f = powl((long double)law->theta, exponent);
    if (law->high_freq_factor == 0)
        return f / (long double)law->scale;
    const long double low = (long double)law->low_freq_factor,
                      span = (long double)law->high_freq_factor - low;
    const long double smooth =
        f * (long double)law->old_context_len / (2 * acosl(-1) * span) - low / span;
    const long double s = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
    return s * f + (1 - s) * f / (long double)law->scale;
}

static void find_cos_sin(const qni_rope_problem *p, int64_t t, int64_t pair, int64_t position,
                         double *cosine, double *sine) {
    if (p->angles == QNI_ROPE_BY_FREQUENCY) {
        const long double angle = (long double)position * frequency(&p->law, pair, p->rotary_dim);
        *cosine = (double)cosl(angle);
        *sine = (double)sinl(angle);
        return;
    }
    const int64_t row = p->angles == QNI_ROPE_BY_TOKEN ? t % p->inner : position;
    const int64_t at = row * p->table_row + pair * p->table_step;
    *cosine = qni_get(p->dtype_table, p->cos, at);
    *sine = qni_get(p->dtype_table, p->sin, at);
}

/** Loads a head's elements, normed if there is a weight. */
static void load_head(const qni_rope_problem *p, const qni_rope_rows *r, int64_t at, double *x) {
    double square = 0;
    for (int64_t i = 0; i < r->width; i++) {
        x[i] = qni_get(p->dtype, r->in, at + i);
        square += x[i] * x[i] / (double)r->width;
    }
    const double root = sqrt(square + (double)p->eps);
    for (int64_t i = 0; r->weight && i < r->width; i++)
        x[i] = (root <= 0 ? 0 : x[i] / root) * qni_get(p->dtype, r->weight, i);
}

void qni_rope_ref_head(const qni_rope_problem *p, int part, int64_t t, int64_t head,
                       int64_t position, double *x, double *y) {
    const qni_rope_rows *r = &p->parts[part];
    load_head(p, r, qni_rope_in(p, r, t) + head * r->in_head, x);
    for (int64_t i = 0; i < r->width; i++)
        y[i] = x[i];
    const int64_t pairs = part <= QNI_ROPE_K ? p->rotary_dim / 2 : 0;
    for (int64_t d = 0; d < pairs; d++) {
        const int64_t first = p->is_interleaved ? 2 * d : d;
        const int64_t second = p->is_interleaved ? first + 1 : d + pairs;
        double c, s;
        find_cos_sin(p, t, d, position, &c, &s);
        y[first] = x[first] * c - x[second] * s;
        y[second] = x[second] * c + x[first] * s;
    }
    for (int64_t i = 0; i < r->width && qni_is_fp8(p->dtype_out); i++)
        y[i] *= (double)r->scale;
}
