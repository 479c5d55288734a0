// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms in one pass over memory, and the addition of its parts.
//
// Needs     nothing beyond vector instructions
// Tile      a part of the rows belongs to a workgroup, a row after the other. A lane keeps 4 runs
//           of 8 elements (2 of f32) of x and d_out, 16-bit elements as they are, and the f32 sums
//           of dweight and dbeta of its columns, over all rows of the part; run c of a row belongs
//           to lane c % lanes, so that every load is of whole cache lines
// Launch    whole waves, up to 512 threads; grid = parts. sum: 256 threads, 32 columns a workgroup;
//           grid = columns x (dweight, dbeta)
// LDS       1 KiB: two values of 16 lanes, twice. sum: 1 KiB
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else
//           norm_backward_any_gpu.c. Lanes past the row's end load its last run again, so that no
//           branch stands between loads; it does not count and is not stored
// Order     part after part of rows, eight parts apart, then these eight: the shape alone decides
// Source    the derivatives of arXiv:1910.07467 and arXiv:1607.06450
#include "norm_backward_row_gpu.h"

enum { MAX_RUNS = 4, COLUMNS = 32, SLICES = 8 };
QD_SHARED(lds);
QD_SHARED(lds_other);
[[clang::loader_uninitialized]] static QD_LDS float slices[SLICES][COLUMNS];

typedef struct mode {
    int dtype, runs;
} mode;

/** A lane's part of a row: the bits of 16-bit elements, or f32. */
typedef struct kept {
    qd_u32x4 x[MAX_RUNS], d[MAX_RUNS];
    qd_f32x8 wide_x[MAX_RUNS], wide_d[MAX_RUNS];
} kept;

/** A lane's sums of its columns, over the rows of the part. */
typedef struct columns {
    qd_f32x8 weight[MAX_RUNS], beta[MAX_RUNS];
} columns;

#define EACH_RUN QD_UNROLL for (int i = 0; i < m.runs; i++)
/** The lane's i-th run, and whether the row has it. */
#define RUN(i) (qd_thread() + (uint32_t)(i) * __gpu_num_threads(0))
#define IS_IN(i) (RUN(i) < g->h / QD_RUN)
/** Where the lane's i-th run begins, or the row's last run, in elements. */
#define AT(i) ((int64_t)qd_min(RUN(i), g->h / QD_RUN - 1) * QD_RUN)

QD_INLINE void load_row(mode m, const qk_norm_backward_args *g, const row *r, kept *k) {
    if (m.dtype == QD_F32) {
        EACH_RUN k->wide_x[i] = qd_load8(QD_F32, qd_at(QD_F32, r->x, AT(i)));
        EACH_RUN k->wide_d[i] = qd_load8(QD_F32, qd_at(QD_F32, r->d_out, AT(i)));
        return;
    }
    EACH_RUN k->x[i] = *(const qd_u32x4 *)qd_at(m.dtype, r->x, AT(i));
    EACH_RUN k->d[i] = *(const qd_u32x4 *)qd_at(m.dtype, r->d_out, AT(i));
}

/** Returns a run of x times the factor, less the mean; zeros past the row's end. */
QD_INLINE qd_f32x8 x_of(mode m, const qk_norm_backward_args *g, const kept *k, int i,
                        const moments *s) {
    const qd_f32x8 x = m.dtype == QD_F32 ? k->wide_x[i] : qd_from_16(m.dtype, k->x[i]);
    return IS_IN(i) ? x * s->factor - s->mean : (qd_f32x8)0;
}

/** Returns a run of d_out; zeros past the row's end. */
QD_INLINE qd_f32x8 d_of(mode m, const qk_norm_backward_args *g, const kept *k, int i) {
    const qd_f32x8 d = m.dtype == QD_F32 ? k->wide_d[i] : qd_from_16(m.dtype, k->d[i]);
    return IS_IN(i) ? d : (qd_f32x8)0;
}

QD_INLINE qd_f32x8 g_of(mode m, const qk_norm_backward_args *g, const kept *k, int i) {
    const qd_f32x8 d = d_of(m, g, k, i);
    if (!g->weight)
        return d;
    const qd_f32x8 weight = g->weight_dtype == QD_F32
                                ? qd_load8(QD_F32, qd_at(QD_F32, g->weight, AT(i)))
                                : qd_load8(m.dtype, qd_at(m.dtype, g->weight, AT(i)));
    return d * weight_of(g, weight);
}

/** Finds the mean, and the mean square of what differs from it, with eps. */
QD_INLINE float find_square(mode m, const qk_norm_backward_args *g, const kept *k, moments *s,
                            sums *shared) {
    qd_f32x8 squares = 0;
    float sum = 0;
    s->mean = 0;
    if (g->subtracts_mean) {
        EACH_RUN sum += run_sum(x_of(m, g, k, i, s));
        s->mean = sum_lanes(shared, sum) * g->per_h;
    }
    EACH_RUN {
        const qd_f32x8 x = x_of(m, g, k, i, s);
        squares = __builtin_elementwise_fma(x, x, squares);
    }
    return sum_lanes(shared, run_sum(squares)) * g->per_h + g->eps * s->factor * s->factor;
}

/** Finds the means of g and of g n, and adds to the columns' sums. */
QD_INLINE void find_means(mode m, const qk_norm_backward_args *g, const kept *k, moments *s,
                          columns *of, sums *shared) {
    float both[2] = {0, 0};
    EACH_RUN {
        const qd_f32x8 n = x_of(m, g, k, i, s) * s->inverse, d = d_of(m, g, k, i);
        const qd_f32x8 gradient = g_of(m, g, k, i);
        both[0] += run_sum(gradient * n);
        both[1] += run_sum(gradient);
        of->weight[i] = __builtin_elementwise_fma(d, n, of->weight[i]);
        of->beta[i] += d;
    }
    if (g->subtracts_mean)
        sum_both(shared, both);
    else
        both[0] = sum_lanes(shared, both[0]);
    s->mean_gn = both[0] * g->per_h;
    s->mean_g = g->subtracts_mean ? both[1] * g->per_h : 0;
}

QD_INLINE void write_dx(mode m, const qk_norm_backward_args *g, const row *r, const kept *k,
                        const moments *s) {
    EACH_RUN {
        qd_f32x8 dx = dx_of(s, g_of(m, g, k, i), x_of(m, g, k, i, s) * s->inverse);
        if (r->d_sum)
            dx += qd_load8(m.dtype, qd_at(m.dtype, r->d_sum, AT(i)));
        if (IS_IN(i))
            qd_store8(m.dtype, (void *)qd_at(m.dtype, r->dx, AT(i)), dx);
    }
}

QD_INLINE void backward_row(mode m, const qk_norm_backward_args *g, uint32_t index, columns *of,
                            sums *shared) {
    const row r = find_row(m.dtype, g, index);
    moments s = {.factor = 1};
    kept k;
    load_row(m, g, &r, &k);
    float square = find_square(m, g, &k, &s, shared);
    s.factor = uniform(qk_norm_factor(square));
    if (s.factor != 1.0f)
        square = find_square(m, g, &k, &s, shared);
    s.inverse = qd_inverse_root(square);
    find_means(m, qd_reread(g), &k, &s, of, shared);
    write_dx(m, qd_reread(g), &r, &k, &s);
}

QD_INLINE void write_columns(mode m, const qk_norm_backward_args *g, float *to,
                             const qd_f32x8 v[MAX_RUNS]) {
    if (!to)
        return;
    EACH_RUN if (IS_IN(i)) qd_store8(QD_F32, to + (int64_t)qd_block() * g->pad + AT(i), v[i]);
}

QD_INLINE void backward(mode m, const qk_norm_backward_args *g) {
    qd_begin();
    sums shared = {{lds, 0}, {lds_other, 0}};
    columns of = {};
    const uint32_t first = qd_block() * g->rows_per_part;
    const uint32_t end = qd_min(first + g->rows_per_part, g->rows);
    for (uint32_t r = first; r < end; r++)
        backward_row(m, qd_reread(g), r, &of, &shared);
    write_columns(m, g, g->weight_sums, of.weight);
    write_columns(m, g, g->beta_sums, of.beta);
}

QD_KERNEL_UP_TO(512) qk_norm_backward_f32(const qk_norm_backward_args g) {
    backward((mode){QD_F32, 2}, &g);
}
QD_KERNEL_UP_TO(512) qk_norm_backward_f16(const qk_norm_backward_args g) {
    backward((mode){QD_F16, 4}, &g);
}
QD_KERNEL_UP_TO(512) qk_norm_backward_bf16(const qk_norm_backward_args g) {
    backward((mode){QD_BF16, 4}, &g);
}

// ---- the parts' sums

QD_INLINE float add_slices(uint32_t column) {
    float sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < SLICES; i++)
        sum += slices[i][column];
    return sum;
}

QD_KERNEL(256) qk_norm_backward_sum(const qk_norm_backward_args g) {
    qd_begin();
    const bool is_beta = __gpu_block_id(1);
    const float *from = is_beta ? g.beta_sums : g.weight_sums;
    void *to = is_beta ? g.dbeta : g.dweight;
    const int dtype = (int)(is_beta ? g.dbeta_dtype : g.dweight_dtype);
    const uint32_t column = qd_thread() % COLUMNS, slice = qd_thread() / COLUMNS;
    const uint32_t i = qd_block() * COLUMNS + column;
    float sum = 0;
    if (!to)
        return;
    for (uint32_t part = slice; part < g.parts; part += SLICES) // columns up to pad exist
        sum += from[(int64_t)part * g.pad + i];
    slices[slice][column] = sum;
    qd_barrier();
    if (slice == 0 && i < g.h)
        qd_store1(dtype, (void *)qd_at(dtype, to, i), add_slices(column));
}
