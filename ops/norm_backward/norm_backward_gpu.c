// SPDX-License-Identifier: Apache-2.0
// The backward pass of norms in one pass over memory, and the addition of its parts.
//
// Needs     nothing beyond vector instructions
// Tile      a part of the rows belongs to a workgroup, a row after the other. A lane keeps 8
//           elements of x and d_out, 16-bit elements as they are, and the f32 sums of its columns,
//           over all rows of the part. wide: 4 runs of 8, without a gate; run c of a row belongs
//           to lane c % lanes, so that every load is of whole cache lines
// Ahead     with QK_AHEAD a row's x and d_out are loaded before the row in front is computed, and
//           the part's weights are kept, so that nothing younger than these loads is waited for.
//           wide has no registers for it
// Launch    whole waves, up to 1024 threads, wide 512; grid = parts. sum: 256 threads, 32 columns a
//           workgroup; grid = columns of all groups x (dweight, dbeta, dgate)
// LDS       1 KiB: two values of 16 lanes, twice. sum: 4 KiB
// Edges     h is a multiple of 8 and everything is aligned to 16 bytes; else
//           norm_backward_any_gpu.c. Lanes past the row's end load its last run again, so that no
//           branch stands between loads; it does not count and is not stored
// Order     part after part of rows, 32 parts apart, then these 32: the shape alone decides
// Source    the derivatives of arXiv:1910.07467 and arXiv:1607.06450
#include "norm_backward_row_gpu.h"

enum { MAX_RUNS = 4, COLUMNS = 32, SLICES = 32 };
QD_SHARED(lds);
QD_SHARED(lds_other);
[[clang::loader_uninitialized]] static QD_LDS qd_f32x4 slices[SLICES][COLUMNS / 4];

typedef struct mode {
    int dtype, runs;
    bool has_gate, is_ahead;
} mode;

/** A lane's part of a tensor's row: the bits of 16-bit elements, or f32. */
typedef struct piece {
    qd_u32x4 bits[MAX_RUNS];
    qd_f32x8 wide[MAX_RUNS];
} piece;

typedef struct kept {
    piece x, d;
} kept;

/** A lane's part of weight, if rows are loaded ahead, and the sums of its columns over the rows of
 *  the part. */
typedef struct columns {
    qd_f32x8 weight[MAX_RUNS], sums[QK_NORM_SUMS][MAX_RUNS];
} columns;

#define EACH_RUN QD_UNROLL for (int i = 0; i < m.runs; i++)
/** The lane's i-th run, and whether the row has it. */
#define RUN(i) (qd_thread() + (uint32_t)(i) * __gpu_num_threads(0))
#define IS_IN(i) (RUN(i) < g->h / QD_RUN)
/** Where the lane's i-th run begins, or the row's last run, in elements. */
#define AT(i) ((int64_t)qd_min(RUN(i), g->h / QD_RUN - 1) * QD_RUN)

QD_INLINE void load_piece(mode m, const qk_norm_backward_args *g, const void *row, piece *to) {
    if (m.dtype == QD_F32) {
        EACH_RUN to->wide[i] = qd_load8(QD_F32, qd_at(QD_F32, row, AT(i)));
        return;
    }
    EACH_RUN to->bits[i] = *(const qd_u32x4 *)qd_at(m.dtype, row, AT(i));
}

QD_INLINE qd_f32x8 run_of(mode m, const piece *from, int i) {
    return m.dtype == QD_F32 ? from->wide[i] : qd_from_16(m.dtype, from->bits[i]);
}

QD_INLINE void load_row(mode m, const qk_norm_backward_args *g, uint32_t index, kept *k) {
    const row r = find_row(m.dtype, g, index);
    load_piece(m, g, r.x, &k->x);
    load_piece(m, g, r.d_out, &k->d);
}

/** Returns a run of x times the factor, a power of two, less the mean. */
QD_INLINE qd_f32x8 x_of(mode m, const kept *k, int i, const moments *s) {
    return __builtin_elementwise_fma(run_of(m, &k->x, i), (qd_f32x8)s->factor, (qd_f32x8)-s->mean);
}

QD_INLINE qd_f32x8 load_weights(mode m, const qk_norm_backward_args *g, const part *of,
                                const void *weights, int64_t batch, int i) {
    return g->weight_dtype == QD_F32
               ? qd_load8(QD_F32, weights_at(QD_F32, of, weights, batch, AT(i)))
               : qd_load8(m.dtype, weights_at(m.dtype, of, weights, batch, AT(i)));
}

/** Returns a run of g's factors of d_out; zeros past the row's end, where nothing then counts. */
QD_INLINE qd_f32x8 factors(mode m, const qk_norm_backward_args *g, const part *of, int i) {
    if (!IS_IN(i))
        return 0;
    return g->weight ? weight_of(g, load_weights(m, g, of, g->weight, g->weight_batch, i))
                     : (qd_f32x8)1;
}

QD_INLINE qd_f32x8 g_of(mode m, const qk_norm_backward_args *g, const part *of, const columns *c,
                        const kept *k, int i) {
    return run_of(m, &k->d, i) * (m.is_ahead ? c->weight[i] : factors(m, g, of, i));
}

/** Makes the compiler convert 16-bit elements once more, rather than keep what it has converted. */
QD_INLINE void forget(mode m, kept *k) {
    if (m.dtype == QD_F32)
        return;
    EACH_RUN k->x.bits[i] = qd_opaque4(k->x.bits[i]);
    EACH_RUN k->d.bits[i] = qd_opaque4(k->d.bits[i]);
}

/** Adds to s->mean what the elements differ from it by, in the mean. Returns the mean square, with
 *  eps, of what they then differ by. */
QD_INLINE float find_square(mode m, const qk_norm_backward_args *g, const kept *k, moments *s,
                            sums *shared) {
    float sum = 0, squares = 0;
    if (g->subtracts_mean) {
        EACH_RUN sum += IS_IN(i) ? run_sum(x_of(m, k, i, s)) : 0;
        s->mean += sum_lanes(shared, sum) * g->per_h;
    }
    EACH_RUN {
        const qd_f32x8 x = x_of(m, k, i, s);
        squares += IS_IN(i) ? run_sum(x * x) : 0;
    }
    return sum_lanes(shared, squares) * g->per_h + g->eps * s->factor * s->factor;
}

/** Finds the means of g and of g n, and adds to the columns' sums. */
QD_INLINE void find_means(mode m, const qk_norm_backward_args *g, const part *of, const kept *k,
                          moments *s, columns *c, sums *shared) {
    float both[2] = {0, 0};
    EACH_RUN {
        const qd_f32x8 n = x_of(m, k, i, s) * s->inverse, d = run_of(m, &k->d, i);
        const qd_f32x8 gradient = g_of(m, g, of, c, k, i);
        both[0] += run_sum(gradient * n);
        both[1] += run_sum(gradient);
        c->sums[QK_DWEIGHT][i] = __builtin_elementwise_fma(d, n, c->sums[QK_DWEIGHT][i]);
        c->sums[QK_DBETA][i] += d;
    }
    if (g->subtracts_mean)
        sum_both(shared, both);
    else
        both[0] = sum_lanes(shared, both[0]);
    s->mean_gn = both[0] * g->per_h;
    s->mean_g = g->subtracts_mean ? both[1] * g->per_h : 0;
}

/** Writes what the gate's product has of dx, and adds to its sum. */
QD_INLINE void write_gated(mode m, const qk_norm_backward_args *g, const part *of, const row *r,
                           columns *c, int i, qd_f32x8 dx) {
    if (r->gated && IS_IN(i))
        c->sums[QK_DGATE][i] = __builtin_elementwise_fma(
            dx, qd_load8(m.dtype, qd_at(m.dtype, r->gated, AT(i))), c->sums[QK_DGATE][i]);
    if (r->d_gated && IS_IN(i))
        qd_store8(m.dtype, (void *)qd_at(m.dtype, r->d_gated, AT(i)),
                  dx * load_weights(m, g, of, g->gate, g->gate_batch, i));
}

QD_INLINE void write_dx(mode m, const qk_norm_backward_args *g, const part *of, const row *r,
                        const kept *k, const moments *s, const piece *d_sum, columns *c) {
    EACH_RUN {
        qd_f32x8 dx = dx_of(s, g_of(m, g, of, c, k, i), x_of(m, k, i, s) * s->inverse);
        if (r->d_sum)
            dx += m.is_ahead ? run_of(m, d_sum, i)
                             : qd_load8(m.dtype, qd_at(m.dtype, r->d_sum, AT(i)));
        if (IS_IN(i))
            qd_store8(m.dtype, (void *)qd_at(m.dtype, r->dx, AT(i)), dx);
        if (m.has_gate)
            write_gated(m, g, of, r, c, i, dx);
    }
}

/** Computes a row. If rows are loaded ahead, x and d_out are kept already, and those of row `next`
 *  take their place. */
QD_INLINE void backward_row(mode m, const qk_norm_backward_args *g, const part *of, uint32_t index,
                            uint32_t next, kept *k, columns *c, sums *shared) {
    const row r = find_row(m.dtype, g, index);
    moments s = {.factor = 1};
    piece d_sum = {};
    kept ahead;
    if (m.is_ahead && r.d_sum)
        load_piece(m, g, r.d_sum, &d_sum);
    load_row(m, g, m.is_ahead ? next : index, m.is_ahead ? &ahead : k);
    float square = find_square(m, g, k, &s, shared);
    QD_NO_UNROLL for (int turn = 1; turn < QK_NORM_TURNS; turn++) {
        if (!qk_norm_again(square, &s.mean, &s.factor))
            break;
        square = find_square(m, g, k, &s, shared);
    }
    s.inverse = qd_inverse_root(square);
    forget(m, k);
    find_means(m, qd_reread(g), of, k, &s, c, shared);
    forget(m, k);
    write_dx(m, qd_reread(g), of, &r, k, &s, &d_sum, c);
    if (m.is_ahead)
        *k = ahead;
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
    columns c = {};
    kept k;
    const part of = find_part(g);
    if (m.is_ahead) {
        load_row(m, g, of.first, &k);
        EACH_RUN c.weight[i] = factors(m, g, &of, i);
    }
    for (uint32_t r = of.first; r < of.end; r++) // the last row is loaded once more, from a cache
        backward_row(m, qd_reread(g), &of, r, qd_min(r + 1, of.end - 1), &k, &c, &shared);
    QD_UNROLL for (int i = 0; i < (m.has_gate ? QK_NORM_SUMS : QK_DGATE); i++)
        write_columns(m, g, g->sums[i].parts, c.sums[i]);
}

#define BACKWARD(entry, threads, registers, ...)                                                   \
    QD_KERNEL_WITHIN(threads, registers, entry)(const qk_norm_backward_args g) {                   \
        backward((mode){__VA_ARGS__}, &g);                                                         \
    }
BACKWARD(qk_norm_backward_f32, 1024, 64, QD_F32, 1, true, QK_AHEAD)
BACKWARD(qk_norm_backward_f16, 1024, 64, QD_F16, 1, true, QK_AHEAD)
BACKWARD(qk_norm_backward_bf16, 1024, 64, QD_BF16, 1, true, QK_AHEAD)
BACKWARD(qk_norm_backward_wide_f16, 512, 128, QD_F16, 4, false, false)
BACKWARD(qk_norm_backward_wide_bf16, 512, 128, QD_BF16, 4, false, false)

// ---- the parts' sums

QD_INLINE float add_slices(uint32_t column) {
    float sum = 0;
    QD_UNROLL for (uint32_t i = 0; i < SLICES; i++)
        sum += ((const QD_LDS float *)slices[i])[column];
    return sum;
}

QD_KERNEL(256) qk_norm_backward_sum(const qk_norm_backward_args g) {
    qd_begin();
    const qk_norm_sum *s = &g.sums[__gpu_block_id(1)];
    const uint32_t blocks = g.pad / COLUMNS, group = qd_block() / blocks;
    const uint32_t first = (qd_block() - group * blocks) * COLUMNS; // columns up to pad exist
    const uint32_t column = qd_thread() % (COLUMNS / 4), slice = qd_thread() / (COLUMNS / 4);
    const float *from = s->parts + (int64_t)group * g.parts_per_group * g.pad + first + column * 4;
    qd_f32x4 sum = 0;
    if (!s->to)
        return;
    QD_UNROLL_BY(8) for (uint32_t part = slice; part < g.parts_per_group; part += SLICES) {
        sum += *(const qd_f32x4 *)(from + (int64_t)part * g.pad);
    }
    slices[slice][column] = sum;
    qd_barrier();
    if (qd_thread() < COLUMNS && first + qd_thread() < g.h)
        qd_store1(
            (int)s->dtype,
            (void *)qd_at((int)s->dtype, s->to, (int64_t)group * s->batch + first + qd_thread()),
            add_slices(qd_thread()));
}
