// SPDX-License-Identifier: Apache-2.0
// The definition of every norm, in double precision, without rounding.
//
//   t = residual + gate * x
//   y = (t - mean) / sqrt(mean((t - mean)^2) + eps) * (weight + weight_plus) + beta
//
// where RMSNorm has a mean of 0.
//
// 0 / 0 is 0: where eps is 0, a row of zeros, or for LayerNorm of equal elements, gives beta.
//
// Sources: arXiv:1910.07467 (RMSNorm), arXiv:1607.06450 (LayerNorm).
#include "norm.h"

static double weight_of(const qni_norm_problem *p, const qni_norm_weights *w, int64_t batch,
                        int64_t i, double none) {
    return w->data ? qni_get(p->dtype_weights, w->data, batch * w->batch + i) : none;
}

static double mean_of(const double *t, int64_t h) {
    double sum = 0;
    for (int64_t i = 0; i < h; i++)
        sum += t[i];
    return sum / (double)h;
}

static double mean_square_of(const double *t, double mean, int64_t h) {
    double sum = 0;
    for (int64_t i = 0; i < h; i++)
        sum += (t[i] - mean) * (t[i] - mean);
    return sum / (double)h;
}

void qni_norm_ref_row(const qni_norm_problem *p, int64_t r, double *t, double *y) {
    const int64_t batch = r / p->inner;
    for (int64_t i = 0; i < p->h; i++) {
        t[i] = qni_get(p->dtype, p->x.data, qni_norm_at(p, &p->x, r) + i);
        t[i] *= weight_of(p, &p->gate, batch, i, 1);
        if (p->residual.data)
            t[i] += qni_get(p->dtype, p->residual.data, qni_norm_at(p, &p->residual, r) + i);
    }
    const double mean = p->subtracts_mean ? mean_of(t, p->h) : 0;
    const double root = sqrt(mean_square_of(t, mean, p->h) + (double)p->eps);
    for (int64_t i = 0; i < p->h; i++) {
        const double weight = weight_of(p, &p->weight, batch, i, 1 - (double)p->weight_plus);
        const double normed = root <= 0 ? 0 : (t[i] - mean) / root;
        y[i] = normed * (weight + (double)p->weight_plus) + weight_of(p, &p->beta, batch, i, 0);
    }
}
