// SPDX-License-Identifier: Apache-2.0
// Parts of the GPU kernels of norms' backward pass: a part's and a row's place, a row's numbers.
#ifndef QK_NORM_BACKWARD_ROW_GPU_H
#define QK_NORM_BACKWARD_ROW_GPU_H

#include "elements.h"
#include "norm_backward_abi.h"
#include "reduce.h"

/** The rows of a workgroup, and whose row of weights they share. */
typedef struct part {
    uint32_t group, first, end;
} part;

/** One row of the problem. */
typedef struct row {
    const void *x, *d_out, *d_sum, *gated;
    void *dx, *d_gated;
} row;

/** What a row's sums gave. The elements were multiplied by factor before. */
typedef struct moments {
    float factor, mean, inverse, mean_g, mean_gn;
} moments;

/** LDS for two sums at once. */
typedef struct sums {
    qd_shared one, other;
} sums;

/** Finds the workgroup's part. */
QD_INLINE part find_part(const qk_norm_backward_args *g) {
    const uint32_t group = g->parts_per_group == 1 ? qd_block() : qd_block() / g->parts_per_group;
    const uint32_t first = (qd_block() - group * g->parts_per_group) * g->rows_per_part;
    const uint32_t begin = group * g->rows_per_group;
    return (part){group, begin + first,
                  begin + qd_min(first + g->rows_per_part, g->rows_per_group)};
}

/** Returns where element i of the part's row of weight or gate is. */
QD_INLINE const void *weights_at(int dtype, const part *of, const void *weights, int64_t batch,
                                 int64_t i) {
    return qd_at(dtype, weights, (int64_t)of->group * batch + i);
}

QD_INLINE const void *row_of(int dtype, const qk_norm_rows *t, uint32_t batch, uint32_t i) {
    return t->data ? qd_at(dtype, t->data, (int64_t)batch * t->batch + (int64_t)i * t->row)
                   : nullptr;
}

QD_INLINE row find_row(int dtype, const qk_norm_backward_args *g, uint32_t r) {
    // The branch avoids a division, which takes longer than all else before the first load.
    const uint32_t batch = r < g->inner ? 0 : r / g->inner, i = r - batch * g->inner;
    return (row){.x = row_of(dtype, &g->x, batch, i),
                 .d_out = row_of(dtype, &g->d_out, batch, i),
                 .d_sum = row_of(dtype, &g->d_sum, batch, i),
                 .gated = row_of(dtype, &g->gated, batch, i),
                 .dx = (void *)row_of(dtype, &g->dx, batch, i),
                 .d_gated = (void *)row_of(dtype, &g->d_gated, batch, i)};
}

QD_INLINE float run_sum(qd_f32x8 v) {
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
}

/** Returns a value that is equal in all lanes, in a scalar register if the target has such. */
QD_INLINE float uniform(float v) {
    return qd_as_f32(qd_uniform(qd_as_u32(v)));
}

QD_INLINE float sum_lanes(sums *s, float v) {
    return uniform(qd_workgroup_sum(&s->one, v));
}

/** Sums two values up with one barrier. */
QD_INLINE void sum_both(sums *s, float v[2]) {
    const QD_LDS uint32_t *one = qd_put_row(&s->one, qd_as_u32(qd_row_sum(v[0])));
    const QD_LDS uint32_t *other = qd_put_row(&s->other, qd_as_u32(qd_row_sum(v[1])));
    qd_barrier();
    v[0] = uniform(qd_shared_sum(one));
    v[1] = uniform(qd_shared_sum(other));
}

/** Returns g's factor of d_out for a run of weights. */
QD_INLINE qd_f32x8 weight_of(const qk_norm_backward_args *g, qd_f32x8 weight) {
    return weight + g->weight_plus;
}

/** Returns a run of dx without d_sum. */
QD_INLINE qd_f32x8 dx_of(const moments *s, qd_f32x8 g, qd_f32x8 n) {
    const qd_f32x8 inner = __builtin_elementwise_fma(n, (qd_f32x8)-s->mean_gn, g - s->mean_g);
    return inner * s->inverse * s->factor;
}

#endif
