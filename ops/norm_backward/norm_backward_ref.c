// SPDX-License-Identifier: Apache-2.0
// The definition of norms' backward pass, in double precision without rounding, as the top of
// include/quern/norm_backward.h has it; and the errors that f32 arithmetic may make in any order of
// summation with at most h / 4 + 64 additions in a row.
//
// 0 / 0 is 0, as in norm_ref.c: where eps is 0, a row of zeros, or for LayerNorm of equal elements,
// has n = 0 and r = 0.
//
// Sources: the derivatives of arXiv:1910.07467 (RMSNorm) and arXiv:1607.06450 (LayerNorm).
#include "norm_backward.h"

/** A row's numbers, and how far off a kernel's may be. `sum` is the relative error of a sum of
 *  positive values, `spread` that of the root. */
typedef struct moments {
    double mean, inverse, mean_g, mean_gn;
    double sum, spread, mean_bound, mean_g_bound, mean_gn_bound;
} moments;

static constexpr double unit = 0x1p-24; // half an ulp

/** Finds mean and root of the row in n, which becomes the normalised row. */
static moments normalise(const qni_norm_backward_problem *p, const qni_norm_gradients *out) {
    const double h = (double)p->h;
    moments m = {.sum = (h / 4 + 64) * unit};
    double magnitude = 0, square = 0;
    for (int64_t i = 0; i < p->h; i++) {
        magnitude += fabs(out->n[i]) / h;
        m.mean += p->subtracts_mean ? out->n[i] / h : 0;
    }
    for (int64_t i = 0; i < p->h; i++)
        square += (out->n[i] - m.mean) * (out->n[i] - m.mean) / h;
    const double root = sqrt(square + (double)p->eps);
    m.inverse = root > 0 ? 1 / root : root == 0 ? 0 : root; // a NaN stays
    m.mean_bound = p->subtracts_mean ? (m.sum + 2 * unit) * magnitude : 0;
    const double shift = m.mean_bound * m.inverse;
    m.spread = m.sum + 4 * unit + 2 * shift + shift * shift;
    for (int64_t i = 0; i < p->h; i++) {
        out->n[i] = (out->n[i] - m.mean) * m.inverse;
        out->n_bound[i] = shift + fabs(out->n[i]) * (m.spread + 3 * unit);
    }
    return m;
}

/** Finds the means of g and of g n. */
static void find_means(const qni_norm_backward_problem *p, const qni_norm_gradients *out,
                       moments *m) {
    const double h = (double)p->h;
    double magnitude = 0, product = 0, error = 0;
    for (int64_t i = 0; i < p->h; i++) {
        const double g = out->g[i], n = out->n[i];
        m->mean_g += p->subtracts_mean ? g / h : 0;
        m->mean_gn += g * n / h;
        magnitude += fabs(g) / h;
        product += fabs(g * n) / h;
        error += fabs(g) * out->n_bound[i] / h;
    }
    m->mean_g_bound = p->subtracts_mean ? (m->sum + 4 * unit) * magnitude : 0;
    m->mean_gn_bound = (m->sum + 6 * unit) * product + error;
}

static void find_dx(const qni_norm_backward_problem *p, int64_t r, const moments *m,
                    const qni_norm_gradients *out) {
    for (int64_t i = 0; i < p->h; i++) {
        const double g = out->g[i], n = out->n[i], across = n * m->mean_gn;
        const double inner = g - m->mean_g - across;
        const double inner_bound = 6 * unit * (fabs(g) + fabs(m->mean_g) + fabs(across)) +
                                   m->mean_g_bound + out->n_bound[i] * fabs(m->mean_gn) +
                                   (fabs(n) + out->n_bound[i]) * m->mean_gn_bound;
        const double own = m->inverse * inner;
        double dx = own;
        if (p->d_sum.data)
            dx += qni_get(p->dtype, p->d_sum.data, qni_norm_backward_at(p, &p->d_sum, r) + i);
        out->dx.value[i] = dx;
        out->dx.bound[i] = m->inverse * inner_bound * (1 + m->spread) +
                           fabs(own) * (m->spread + 4 * unit) + 2 * unit * fabs(dx);
        if (p->dtype == QNI_BF16 && fabs(dx) < 0x1p-126)
            out->dx.bound[i] = fmax(out->dx.bound[i], fabs(dx)); // a conversion may give zero
    }
}

/** Adds a row to the sums. No kernel has more additions in a row than a part has rows, there are
 *  parts, and a few. */
static void add_to_sums(const qni_norm_backward_problem *p, int64_t at,
                        const qni_norm_gradients *out) {
    const double steps = (double)(p->rows_per_part + p->parts + 8) * unit;
    for (int64_t i = 0; i < p->h; i++) {
        const double d = qni_get(p->dtype, p->d_out.data, at + i), product = d * out->n[i];
        if (out->dweight.value) {
            out->dweight.value[i] += product;
            out->dweight.bound[i] += fabs(d) * out->n_bound[i] + steps * fabs(product);
        }
        if (out->dbeta.value) {
            out->dbeta.value[i] += d;
            out->dbeta.bound[i] += steps * fabs(d);
        }
    }
}

void qni_norm_backward_ref_row(const qni_norm_backward_problem *p, int64_t r,
                               const qni_norm_gradients *out) {
    const int64_t at = qni_norm_backward_at(p, &p->x, r);
    const int64_t at_d = qni_norm_backward_at(p, &p->d_out, r);
    for (int64_t i = 0; i < p->h; i++) {
        const double weight =
            p->weight ? qni_get(p->dtype_weight, p->weight, i) : 1 - (double)p->weight_plus;
        out->n[i] = qni_get(p->dtype, p->x.data, at + i);
        out->g[i] = qni_get(p->dtype, p->d_out.data, at_d + i) * (weight + (double)p->weight_plus);
    }
    moments m = normalise(p, out);
    find_means(p, out, &m);
    find_dx(p, r, &m, out);
    add_to_sums(p, at_d, out);
}
