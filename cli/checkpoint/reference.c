// SPDX-License-Identifier: Apache-2.0
// A layer's right product, by plain sums in double precision, and the distance of a result from it.
#include "layer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

/** Marks which of `count` rows (or columns) are summed. */
static bool *choose(int64_t count, int64_t wanted, cli_random *random) {
    static const int64_t edges[] = {0, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256};
    bool *chosen = cli_alloc((size_t)count);
    if (wanted >= count) {
        for (int64_t i = 0; i < count; i++)
            chosen[i] = true;
        return chosen;
    }
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        if (edges[i] < count)
            chosen[edges[i]] = true;
    chosen[count - 1] = true;
    for (int64_t i = 0; i < wanted; i++)
        chosen[cli_random_next(random) % (uint64_t)count] = true;
    return chosen;
}

/** A sample takes so many rows and columns besides the edges. */
constexpr int64_t sample_lines = 8;
constexpr double sample_above = 1e9; // products

typedef struct sums {
    double exact, quantised, magnitude;
} sums;

/** Sums the products of a row of activations, unquantised x and quantised a, with a row of weights,
 *  unquantised w (may be null) and quantised b. */
static sums dot(const double *x, const double *a, const double *w, const double *b, int64_t k) {
    sums s = {0};
    for (int64_t i = 0; i < k; i++) {
        const double product = a[i] * b[i];
        s.quantised += product;
        s.magnitude += fabs(product);
    }
    for (int64_t i = 0; w && i < k; i++)
        s.exact += x[i] * w[i];
    return s;
}

static double *wide_exact(DLDataType dtype, const void *data, int64_t first, int64_t count) {
    double *wide = cli_alloc((size_t)count * sizeof *wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = cli_number_get(dtype, data, first + i);
    return wide;
}

/** Computes a row of FP8 values times their scales. */
static void dequantise(double *out, DLDataType kind, const uint8_t *q, const float *scale,
                       int64_t k) {
    for (int64_t i = 0; i < k; i++)
        out[i] = cli_number_get(kind, q, i) * (double)scale[i / LAYER_BLOCK];
}

static void reference_column(layer_reference *r, const layer *l, int64_t col, const double *x,
                             const double *a, double *b) {
    const int64_t k = r->k, blocks = (k + LAYER_BLOCK - 1) / LAYER_BLOCK;
    dequantise(b, l->kind, l->q + col * k, l->scale + col / LAYER_BLOCK * blocks, k);
    double *w = l->exact ? wide_exact(l->exact_dtype, l->exact, col * k, k) : nullptr;
    for (int64_t row = 0; row < r->m; row++)
        if (r->has_row[row] || r->has_col[col]) {
            sums s = dot(x + row * k, a + row * k, w, b, k);
            r->quantised[row * r->n + col] = s.quantised;
            r->magnitude[row * r->n + col] = s.magnitude;
            if (r->exact)
                r->exact[row * r->n + col] = s.exact;
        }
    free(w);
}

void layer_reference_make(layer_reference *out, const layer *l, const layer_input *input,
                          const uint8_t *q, const float *scale, uint64_t seed) {
    const int64_t m = input->m, n = l->n, k = l->k, blocks = (k + LAYER_BLOCK - 1) / LAYER_BLOCK;
    const bool is_sampled = (double)m * (double)n * (double)k > sample_above;
    cli_random random = {seed};
    const size_t bytes = (size_t)(m * n) * sizeof(double);
    *out = (layer_reference){.m = m, .n = n, .k = k};
    out->has_row = choose(m, is_sampled ? sample_lines : m, &random);
    out->has_col = choose(n, is_sampled ? sample_lines : n, &random);
    out->exact = l->exact ? cli_alloc(bytes) : nullptr;
    out->quantised = cli_alloc(bytes);
    out->magnitude = cli_alloc(bytes);
    double *x = wide_exact(input->dtype, input->data, 0, m * k);
    double *a = cli_alloc((size_t)(m * k) * sizeof *a), *b = cli_alloc((size_t)k * sizeof *b);
    for (int64_t row = 0; row < m; row++)
        dequantise(a + row * k, l->kind, q + row * k, scale + row * blocks, k);
    for (int64_t col = 0; col < n; col++)
        reference_column(out, l, col, x, a, b);
    free(x);
    free(a);
    free(b);
}

void layer_reference_free(layer_reference *r) {
    free(r->has_row);
    free(r->has_col);
    free(r->exact);
    free(r->quantised);
    free(r->magnitude);
    *r = (layer_reference){0};
}

// ---- comparison

/** The sums of DeepGEMM's measure, element by element; two NaNs agree. */
typedef struct diff {
    double xy, xx, yy;
} diff;

static void diff_add(diff *d, double x, double y) {
    if (isnan(x) && isnan(y))
        return;
    d->xy += x * y;
    d->xx += x * x;
    d->yy += y * y;
}

static double diff_value(const diff *d) {
    return d->xx + d->yy > 0 ? 1 - 2 * d->xy / (d->xx + d->yy) : d->xx + d->yy;
}

/** Returns the quotient of error and tolerance of one element: 0 if both are NaN, infinite if one
 *  is. */
static double error_of(const layer_reference *r, int64_t i, double got, double u_out) {
    const double want = r->quantised[i];
    if (isnan(want) && isnan(got))
        return 0;
    double tolerance =
        u_out * fabs(want) + 2 * (double)r->k * 0x1p-24 * r->magnitude[i] + (double)FLT_MIN;
    const double error = fabs(got - want) / tolerance;
    return isnan(error) ? INFINITY : error;
}

void layer_compare(layer_error *out, const layer_reference *r, const float *d, DLDataType dtype) {
    const double u_out = dtype.code == kDLBfloat ? 0x1p-8 : 0x1p-24;
    diff exact = {0}, quantised = {0};
    *out = (layer_error){.exact_diff = NAN};
    for (int64_t i = 0; i < r->m * r->n; i++) {
        if (!r->has_row[i / r->n] && !r->has_col[i % r->n])
            continue;
        const double got = (double)d[i], error = error_of(r, i, got, u_out);
        out->compared++;
        diff_add(&quantised, got, r->quantised[i]);
        if (r->exact)
            diff_add(&exact, got, r->exact[i]);
        if (error > out->worst || out->compared == 1) {
            out->worst = error;
            out->worst_row = i / r->n;
            out->worst_col = i % r->n;
        }
    }
    out->quantised_diff = diff_value(&quantised);
    if (r->exact)
        out->exact_diff = diff_value(&exact);
}
