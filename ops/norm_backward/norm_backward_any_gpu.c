// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms over rows of any length, stride and address. Each pass reads the row
// from memory again, and the sums of dweight, dbeta and dgate grow in memory.
//
// Needs     nothing beyond vector instructions
// Tile      a part of the rows belongs to a workgroup, a row after the other; run c of 8 elements
//           belongs to lane c % 256; elements are loaded one by one
// Launch    256 threads; grid = parts
// LDS       1 KiB: two values of 16 lanes, twice
// Edges     elements past the row's end are neither read nor written
#include "norm_backward_row_gpu.h"

QD_SHARED(lds);
QD_SHARED(lds_other);

/** Walks the lane's runs of a row. */
#define EACH_READ(c)                                                                               \
    QD_NO_UNROLL for (uint32_t c = qd_thread(); c * QD_RUN < g->h; c += __gpu_num_threads(0))

QD_INLINE uint32_t run_length(const qk_norm_backward_args *g, uint32_t c) {
    return qd_min(g->h - c * QD_RUN, QD_RUN);
}

QD_INLINE qd_f32x8 load_run(int dtype, const qk_norm_backward_args *g, const void *p, uint32_t c) {
    return qd_load_part(dtype, qd_at(dtype, p, (int64_t)c * QD_RUN), run_length(g, c));
}

/** Returns a run of x times the factor, less the mean; zeros past the row's end. */
QD_INLINE qd_f32x8 x_of(int dtype, const qk_norm_backward_args *g, const row *r, uint32_t c,
                        const moments *s) {
    qd_f32x8 x = load_run(dtype, g, r->x, c) * s->factor - s->mean;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        x[i] = i < run_length(g, c) ? x[i] : 0;
    return x;
}

QD_INLINE qd_f32x8 load_weights(int dtype, const qk_norm_backward_args *g, const part *of,
                                const void *weights, int64_t batch, uint32_t c) {
    const int kind = g->weight_dtype == QD_F32 ? QD_F32 : dtype;
    return load_run(kind, g, weights_at(kind, of, weights, batch, 0), c);
}

QD_INLINE qd_f32x8 g_of(int dtype, const qk_norm_backward_args *g, const part *of, qd_f32x8 d,
                        uint32_t c) {
    return g->weight ? d * weight_of(g, load_weights(dtype, g, of, g->weight, g->weight_batch, c))
                     : d;
}

/** Adds to s->mean what the elements differ from it by, in the mean. Returns the mean square, with
 *  eps, of what they then differ by. */
QD_INLINE float find_square(int dtype, const qk_norm_backward_args *g, const row *r, moments *s,
                            sums *shared) {
    qd_f32x8 squares = 0;
    float sum = 0;
    if (g->subtracts_mean) {
        EACH_READ(c) sum += run_sum(x_of(dtype, g, r, c, s));
        s->mean += sum_lanes(shared, sum) * g->per_h;
    }
    EACH_READ(c) {
        const qd_f32x8 x = x_of(dtype, g, r, c, s);
        squares = __builtin_elementwise_fma(x, x, squares);
    }
    return sum_lanes(shared, run_sum(squares)) * g->per_h + g->eps * s->factor * s->factor;
}

/** Adds a run to the part's sums, which begin with the part's first row. */
QD_INLINE void add_run(const qk_norm_backward_args *g, float *to, bool is_first, uint32_t c,
                       qd_f32x8 v) {
    float *at = to + (int64_t)qd_block() * g->pad + (int64_t)c * QD_RUN;
    if (to)
        qd_store8(QD_F32, at, is_first ? v : qd_load8(QD_F32, at) + v);
}

QD_INLINE void find_means(int dtype, const qk_norm_backward_args *g, const part *of, const row *r,
                          moments *s, bool is_first, sums *shared) {
    float both[2] = {0, 0};
    EACH_READ(c) {
        const qd_f32x8 n = x_of(dtype, g, r, c, s) * s->inverse;
        const qd_f32x8 d = load_run(dtype, g, r->d_out, c), gradient = g_of(dtype, g, of, d, c);
        both[0] += run_sum(gradient * n);
        both[1] += run_sum(gradient);
        add_run(g, g->sums[QK_DWEIGHT].parts, is_first, c, d * n);
        add_run(g, g->sums[QK_DBETA].parts, is_first, c, d);
    }
    sum_both(shared, both);
    s->mean_gn = both[0] * g->per_h;
    s->mean_g = g->subtracts_mean ? both[1] * g->per_h : 0;
}

QD_INLINE void store_run(int dtype, const qk_norm_backward_args *g, void *p, uint32_t c,
                         qd_f32x8 v) {
    qd_store_part(dtype, (void *)qd_at(dtype, p, (int64_t)c * QD_RUN), run_length(g, c), v);
}

QD_INLINE void write_gated(int dtype, const qk_norm_backward_args *g, const part *of, const row *r,
                           bool is_first, uint32_t c, qd_f32x8 dx) {
    if (r->d_gated)
        store_run(dtype, g, r->d_gated, c,
                  dx * load_weights(dtype, g, of, g->gate, g->gate_batch, c));
    if (r->gated)
        add_run(g, g->sums[QK_DGATE].parts, is_first, c, dx * load_run(dtype, g, r->gated, c));
}

QD_INLINE void write_dx(int dtype, const qk_norm_backward_args *g, const part *of, const row *r,
                        const moments *s, bool is_first) {
    EACH_READ(c) {
        const qd_f32x8 gradient = g_of(dtype, g, of, load_run(dtype, g, r->d_out, c), c);
        qd_f32x8 dx = dx_of(s, gradient, x_of(dtype, g, r, c, s) * s->inverse);
        if (r->d_sum)
            dx += load_run(dtype, g, r->d_sum, c);
        store_run(dtype, g, r->dx, c, dx);
        write_gated(dtype, g, of, r, is_first, c, dx);
    }
}

QD_INLINE void backward_row(int dtype, const qk_norm_backward_args *g, const part *of,
                            uint32_t index, sums *shared) {
    const bool is_first = index == of->first;
    const row r = find_row(dtype, g, index);
    moments s = {.factor = 1};
    float square = find_square(dtype, g, &r, &s, shared);
    QD_NO_UNROLL for (int turn = 1; turn < QK_NORM_TURNS; turn++) {
        if (!qk_norm_again(square, &s.mean, &s.factor))
            break;
        square = find_square(dtype, g, &r, &s, shared);
    }
    s.inverse = qd_inverse_root(square);
    find_means(dtype, qd_reread(g), of, &r, &s, is_first, shared);
    write_dx(dtype, qd_reread(g), of, &r, &s, is_first);
}

QD_INLINE void backward(int dtype, const qk_norm_backward_args *g) {
    qd_begin();
    sums shared = {{lds, 0}, {lds_other, 0}};
    const part of = find_part(g);
    for (uint32_t r = of.first; r < of.end; r++)
        backward_row(dtype, qd_reread(g), &of, r, &shared);
}

QD_KERNEL(256) qk_norm_backward_any_f32(const qk_norm_backward_args g) {
    backward(QD_F32, &g);
}
QD_KERNEL(256) qk_norm_backward_any_f16(const qk_norm_backward_args g) {
    backward(QD_F16, &g);
}
QD_KERNEL(256) qk_norm_backward_any_bf16(const qk_norm_backward_args g) {
    backward(QD_BF16, &g);
}
