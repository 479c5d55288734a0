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
        m.mean += p->subtracts_mean ? out->n[i] : 0;
    }
    m.mean /= h; // of the sum, which is exact for equal elements
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

static void find_d_gated(const qni_norm_backward_problem *p, int64_t group,
                         const qni_norm_gradients *out) {
    for (int64_t i = 0; out->d_gated.value && i < p->h; i++) {
        const double gate = qni_get(p->dtype_weight, p->gate.data, group * p->gate.batch + i);
        const double d = gate * out->dx.value[i];
        out->d_gated.value[i] = d;
        out->d_gated.bound[i] = fabs(gate) * out->dx.bound[i] + 2 * unit * fabs(d);
        if (p->dtype == QNI_BF16 && fabs(d) < 0x1p-126)
            out->d_gated.bound[i] = fmax(out->d_gated.bound[i], fabs(d));
    }
}

/** Adds a product, one factor of which may be off by a bound. No kernel has more additions in a row
 *  than a part has rows, a group has parts, and a few. */
static void add_to_sum(const qni_norm_backward_problem *p, const qni_norm_bounded *sum, int64_t i,
                       double exact, double factor, double bound) {
    const double steps = (double)(p->rows_per_part + p->parts_per_group + 8) * unit;
    if (!sum->value)
        return;
    sum->value[i] += exact * factor;
    sum->bound[i] += fabs(exact) * bound + steps * fabs(exact * factor);
}

static void add_to_sums(const qni_norm_backward_problem *p, int64_t r,
                        const qni_norm_gradients *out) {
    const int64_t at = qni_norm_backward_at(p, &p->d_out, r);
    const int64_t at_gated = qni_norm_backward_at(p, &p->gated, r);
    for (int64_t i = 0; i < p->h; i++) {
        const double d = qni_get(p->dtype, p->d_out.data, at + i);
        add_to_sum(p, &out->sums[QK_DWEIGHT], i, d, out->n[i], out->n_bound[i]);
        add_to_sum(p, &out->sums[QK_DBETA], i, d, 1, 0);
        if (out->sums[QK_DGATE].value)
            add_to_sum(p, &out->sums[QK_DGATE], i, qni_get(p->dtype, p->gated.data, at_gated + i),
                       out->dx.value[i], out->dx.bound[i]);
    }
}

void qni_norm_backward_ref_row(const qni_norm_backward_problem *p, int64_t r,
                               const qni_norm_gradients *out) {
    const int64_t at = qni_norm_backward_at(p, &p->x, r);
    const int64_t at_d = qni_norm_backward_at(p, &p->d_out, r);
    const int64_t group = r / qni_norm_backward_group_rows(p), at_w = group * p->weight.batch;
    for (int64_t i = 0; i < p->h; i++) {
        const double weight = p->weight.data ? qni_get(p->dtype_weight, p->weight.data, at_w + i)
                                             : 1 - (double)p->weight_plus;
        out->n[i] = qni_get(p->dtype, p->x.data, at + i);
        out->g[i] = qni_get(p->dtype, p->d_out.data, at_d + i) * (weight + (double)p->weight_plus);
    }
    moments m = normalise(p, out);
    find_means(p, out, &m);
    find_dx(p, r, &m, out);
    find_d_gated(p, group, out);
    add_to_sums(p, r, out);
}
