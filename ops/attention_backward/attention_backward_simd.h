// SPDX-License-Identifier: Apache-2.0
// The backward pass on the CPU, in vectors of QN_LANES f32. attention_backward_cpu.c, _avx2.c,
// _avx512.c and, with QN_BF16, _avx512bf16.c compile this header, each for its instructions.
//
// An item is one kv head of a request. Its keys are taken in blocks, which stay in the second
// cache: k in rows for dq and, like v, in columns for the scores. All blocks of queries that see
// any of the keys go past them, and five products of blocks follow each other:
//
//   s = q k', dp = d_o v', then p and dx by elements; dv += p' d_o, dk += dx' q, dq += dx k
//
// dk and dv stay with the block. dq is summed in the workspace, block after block of keys, each in
// its turn (attention_backward_cpu.h): no sum depends on the number of threads.
//
// Products multiply cells: an f32, or with QN_BF16 a pair of bf16 that vdpbf16ps multiplies. Pairs
// run along the sum: along the head for s and dp, whose operands are rows as they lie in memory
// and columns of such cells; along queries for dv and dk, along keys for dq, whose second operands
// are rows in pairs.
#ifndef QNI_ATTENTION_BACKWARD_SIMD_H
#define QNI_ATTENTION_BACKWARD_SIMD_H

#include "../attention/cpu/attention_cpu.h"
#include "../shared/round.h"
#include "../shared/simd.h"
#include "attention_backward_cpu.h"

enum { TILE_ROWS = 4, TILE_VECTORS = QN_LANES == 16 ? 4 : 2 }; // of a product in registers

#ifdef QN_BF16
enum { PAIR = 2 };
typedef uint32_t cell;
#else
enum { PAIR = 1 };
typedef float cell;
#endif

/** A block of queries of one head, or of keys. */
typedef struct block {
    uint32_t first, count;
} block;

/** What an item works on. */
typedef struct item {
    const qni_backward_problem *p;
    const qk_backward_args *b;
    const qk_attention_args *g;
    qk_attention_request request;
    uint32_t index, kv_head;
    uint32_t head;                            // of the queries in turn
    int64_t dim, dim_vo, dim_pad, dim_vo_pad; // head dims; the same, whole vectors
    int64_t rows;                             // of a block
    qni_backward_scratch *room;
} item;

// ---- products of blocks

static int64_t cells_of(int64_t elements) {
    return qni_pieces(elements, PAIR);
}

#if defined(QN_BF16) && defined(__AVX512BF16__)
/** Returns acc + a b, where all lanes of b multiply by the one cell a. */
QN_INLINE f32v meet(f32v acc, cell a, f32v b) {
    return (f32v)_mm512_dpbf16_ps((__m512)acc, (__m512bh)_mm512_set1_epi32((int)a), (__m512bh)b);
}
#elif defined(QN_BF16) // for a test on processors without the instruction: what it computes
QN_INLINE f32v meet(f32v acc, cell a, f32v b) {
    const f32v odd = (f32v)((u32v)b & 0xFFFF0000), even = (f32v)((u32v)b << 16);
    acc = fma_of(all_of(__builtin_bit_cast(float, a & 0xFFFF0000)), odd, acc);
    return fma_of(all_of(__builtin_bit_cast(float, a << 16)), even, acc);
}
#else
QN_INLINE f32v meet(f32v acc, cell a, f32v b) {
    f32v all; // not all_of's sum with 0, which the innermost loop would pay for
    for (int k = 0; k < QN_LANES; k++)
        all[k] = a;
    return fma_of(all, b, acc);
}
#endif

/** c (+)= a b for TILE_ROWS rows of c and `vectors` vectors of columns, over `count` cells: a[m][k]
 *  lies at a[m * a_row + k * a_step]. */
QN_INLINE void multiply_tile(int vectors, bool adds, const cell *a, int64_t a_row, int64_t a_step,
                             const cell *b, int64_t b_row, int64_t count, float *c, int64_t c_row) {
    f32v sum[TILE_ROWS][TILE_VECTORS] = {};
    for (int m = 0; adds && m < TILE_ROWS; m++)
        for (int n = 0; n < vectors; n++)
            memcpy(&sum[m][n], c + m * c_row + n * QN_LANES, sizeof sum[m][n]);
    for (int64_t k = 0; k < count; k++) {
        f32v row[TILE_VECTORS];
        for (int n = 0; n < vectors; n++)
            memcpy(&row[n], b + k * b_row + n * QN_LANES, sizeof row[n]);
        for (int m = 0; m < TILE_ROWS; m++)
            for (int n = 0; n < vectors; n++)
                sum[m][n] = meet(sum[m][n], a[m * a_row + k * a_step], row[n]);
    }
    for (int m = 0; m < TILE_ROWS; m++)
        for (int n = 0; n < vectors; n++)
            memcpy(c + m * c_row + n * QN_LANES, &sum[m][n], sizeof sum[m][n]);
}

/** c (+)= a b, of `rows` rows, a multiple of TILE_ROWS, and `columns` columns, of QN_LANES. */
QN_INLINE void multiply(bool adds, int64_t rows, int64_t columns, int64_t count, const cell *a,
                        int64_t a_row, int64_t a_step, const cell *b, int64_t b_row, float *c,
                        int64_t c_row) {
    constexpr int64_t wide = TILE_VECTORS * QN_LANES;
    for (int64_t n = 0; n < columns; n += columns - n >= wide ? wide : QN_LANES)
        for (int64_t m = 0; m < rows; m += TILE_ROWS)
            if (columns - n >= wide)
                multiply_tile(TILE_VECTORS, adds, a + m * a_row, a_row, a_step, b + n, b_row, count,
                              c + m * c_row + n, c_row);
            else
                multiply_tile(1, adds, a + m * a_row, a_row, a_step, b + n, b_row, count,
                              c + m * c_row + n, c_row);
}

// ---- blocks

/** Loads a row, with zeros behind it up to `pad` elements. */
static void load_row(qni_dtype dtype, const void *p, int64_t at, int64_t dim, int64_t pad,
                     cell *row) {
#ifdef QN_BF16
    (void)dtype;
    memcpy(row, (const uint16_t *)p + at, (size_t)dim * sizeof(uint16_t));
    memset((uint16_t *)row + dim, 0, (size_t)(pad - dim) * sizeof(uint16_t));
#else
    int64_t d = 0;
    for (; d + QN_LANES <= dim; d += QN_LANES)
        *(f32v *)(row + d) = load(dtype, p, at + d);
    for (; d < pad; d += QN_LANES)
        *(f32v *)(row + d) = load_some(dtype, p, at + d, dim > d ? dim - d : 0);
#endif
}

static void store_row(qni_dtype dtype, void *p, int64_t at, int64_t dim, const float *row) {
    int64_t d = 0;
    for (; d + QN_LANES <= dim; d += QN_LANES)
        store(dtype, p, at + d, load(QNI_F32, row, d));
    if (d < dim)
        store_some(dtype, p, at + d, dim - d, load_some(QNI_F32, row, d, dim - d));
}

/** Returns where a block's rows stand in pairs: with QN_BF16 behind the rows, else they are the
 *  rows. */
static cell *pairs_of(const item *t, cell *rows, int64_t pad) {
    return PAIR == 1 ? rows : rows + t->rows * pad / PAIR;
}

/** Writes rows 2 i and 2 i + 1 of a block as pairs: [rows / 2][pad]. */
static void pair_rows(const item *t, int64_t pad, cell *rows) {
    const uint16_t *from = (const uint16_t *)rows;
    cell *to = pairs_of(t, rows, pad);
    for (int64_t i = 0; PAIR == 2 && i < t->rows; i += 2, from += 2 * pad, to += pad)
        for (int64_t d = 0; d < pad; d += QN_LANES) {
            u16v low, high;
            memcpy(&low, from + d, sizeof low);
            memcpy(&high, from + pad + d, sizeof high);
            const u32v pairs =
                __builtin_convertvector(low, u32v) | __builtin_convertvector(high, u32v) << 16;
            memcpy(to + d, &pairs, sizeof pairs);
        }
}

/** Loads a block's rows; rows behind its end are zeros. step: from a row to the next. */
static void load_block(const item *t, qni_dtype dtype, const void *p, int64_t at, int64_t step,
                       block of, int64_t dim, int64_t pad, cell *rows) {
    const int64_t cells = pad / PAIR;
    for (int64_t i = 0; i < t->rows; i++)
        if (i < of.count)
            load_row(dtype, p, at + i * step, dim, pad, rows + i * cells);
        else
            memset(rows + i * cells, 0, (size_t)cells * sizeof *rows);
}

/** Writes the transpose of a block's cells: [cells of dim][rows]. */
static void transpose(const item *t, const cell *rows, int64_t dim, int64_t pad, cell *columns) {
    for (int64_t i = 0; i < t->rows; i += TILE_ROWS)
        for (int64_t c = 0; c < cells_of(dim); c++)
            for (int64_t k = 0; k < TILE_ROWS; k++)
                columns[c * t->rows + i + k] = rows[(i + k) * (pad / PAIR) + c];
}

static int64_t query_at(const item *t, const qk_attention_rows *rows, uint32_t query) {
    return t->index * rows->block + ((int64_t)t->request.qo_begin + query) * rows->token +
           t->head * rows->head;
}
static int64_t key_at(const item *t, const qk_attention_rows *rows, uint32_t key) {
    return t->index * rows->block + ((int64_t)t->request.kv_begin + key) * rows->token +
           t->kv_head * rows->head;
}
static qk_attention_rows o_rows(const qk_attention_args *g) {
    return (qk_attention_rows){g->o, g->o_batch, g->o_token, g->o_head};
}
static qk_attention_rows lse_rows(const qk_attention_args *g) {
    return (qk_attention_rows){g->lse, g->lse_batch, g->lse_token, g->lse_head};
}
static int64_t row_at(const item *t, uint32_t query) {
    return qk_backward_delta(t->b, t->index, (int64_t)t->request.qo_begin + query, t->head);
}

// ---- weights and their gradients

/** A row of a block of scores: what its pairs with keys have in common. */
typedef struct score_row {
    qni_attention_row place;
    uint32_t first, end; // the keys that causality and window leave
    float scale, factor, lse, delta, slope, level;
    bool has_parts; // masks or dropout, which are looked up for each pair
} score_row;

static score_row find_row(const item *t, uint32_t query) {
    const qk_attention_args *g = t->g;
    const qk_attention_rows lse = lse_rows(g);
    const qni_attention_row place = {t->request, t->index, query, t->head};
    score_row r = {.place = place,
                   .first = qk_attention_first_key(g, &t->request, query),
                   .end = qk_attention_end_key(g, &t->request, query),
                   .scale = qni_attention_scale(g, &place),
                   .factor = g->v_scale * (g->v_scales ? g->v_scales[t->kv_head] : 1.0f),
                   .lse = g->lse[query_at(t, &lse, query)] / g->lse_unit,
                   .delta = t->b->delta[row_at(t, query)],
                   .level = (float)((int64_t)query + t->request.kv_len - t->request.qo_len),
                   .has_parts = g->mask_kind || g->custom_mask || g->has_dropout};
    if (g->pos_encoding == QK_POS_ALIBI)
        r.slope = qni_attention_slope(g, t->head);
    return r;
}

/** Looks up what masks add to the scores of keys first .. first + QN_LANES - 1, and dropout's
 *  factors. */
static void find_parts(const item *t, const score_row *r, uint32_t first, f32v *added, f32v *kept) {
    for (int k = 0; k < QN_LANES; k++) {
        const uint32_t key = first + (uint32_t)k;
        (*added)[k] = qni_attention_mask(t->g, &r->place, key);
        (*kept)[k] = !t->g->has_dropout                          ? 1
                     : qni_attention_keeps(t->g, &r->place, key) ? t->g->dropout_scale
                                                                 : 0;
    }
}

QN_INLINE i32v lane_numbers(void) {
    i32v n;
    for (int k = 0; k < QN_LANES; k++)
        n[k] = k;
    return n;
}

/** Weights of QN_LANES keys, for the product with d_o; the scores' gradients before the soft cap
 *  and the scale, and after them. */
typedef struct weights {
    f32v p, ds, dx;
} weights;

/** Computes the weights of keys first .. from their products with q and d_o. */
QN_INLINE weights weigh(const item *t, const score_row *r, uint32_t first, f32v product, f32v dp) {
    const float cap = t->g->soft_cap;
    f32v x = product * r->scale, rise = all_of(r->scale), added = {}, kept = all_of(1);
    const i32v key = lane_numbers() + (int32_t)first;
    if (t->g->pos_encoding == QK_POS_ALIBI)
        x += r->slope * (__builtin_convertvector(key, f32v) - r->level);
    if (cap > 0) {
        const f32v tanh = 1.0f - 2.0f / (1.0f + exp2_of(x * (2 * QNI_LOG2_E / cap), 0));
        x = cap * tanh;
        rise *= 1.0f - tanh * tanh;
    }
    if (r->has_parts)
        find_parts(t, r, first, &added, &kept);
    const i32v sees = (key >= (int32_t)r->first) & (key < (int32_t)r->end) & (added > -HUGE_VALF);
    const f32v e = exp2_of((x + added) * QNI_LOG2_E - r->lse, 0);
    const f32v p = select_of(sees, e, all_of(0));
    const f32v ds = p * (dp * kept * r->factor - r->delta);
    return (weights){p * kept * r->factor, ds, ds * rise};
}

/** Returns where rows of dx stand, which dq's product takes; dk's takes them in pairs. */
static cell *rows_of_dx(const item *t) {
    return PAIR == 1 ? (cell *)t->room->dp : (cell *)t->room->dx_rows;
}

/** Keeps the weights of rows i .. i + PAIR - 1 and of keys from j on. They take the places of their
 *  products or, in pairs, of rows that have been weighed. */
QN_INLINE void keep(const item *t, int64_t i, int64_t j, const weights w[PAIR]) {
    const int64_t at = i / PAIR * t->rows + j;
#ifdef QN_BF16
    const u32v p = to_bf16_pairs(w[0].p, w[1].p), dx = to_bf16_pairs(w[0].dx, w[1].dx);
    for (int k = 0; k < PAIR; k++) {
        const u16v row = to_bf16(w[k].dx);
        memcpy((uint16_t *)rows_of_dx(t) + (i + k) * t->rows + j, &row, sizeof row);
    }
#else
    const f32v p = w[0].p, dx = w[0].dx;
#endif
    memcpy(t->room->s + at, &p, sizeof p);
    memcpy(t->room->dp + at, &dx, sizeof dx);
}

/** Turns a block's products into weights p and gradients dx. Rows behind the block's end get
 *  zeros. */
static void weigh_block(const item *t, block queries, block keys) {
    const qni_backward_scratch *room = t->room;
    for (int64_t i = 0; i < t->rows; i += PAIR) {
        score_row r[PAIR];
        for (int64_t k = 0; k < PAIR && i + k < queries.count; k++)
            r[k] = find_row(t, queries.first + (uint32_t)(i + k));
        for (int64_t j = 0; j < t->rows; j += QN_LANES) {
            weights w[PAIR] = {};
            for (int64_t k = 0; k < PAIR && i + k < queries.count; k++)
                w[k] = weigh(t, &r[k], keys.first + (uint32_t)j,
                             load(QNI_F32, room->s, (i + k) * t->rows + j),
                             load(QNI_F32, room->dp, (i + k) * t->rows + j));
            keep(t, i, j, w);
        }
    }
}

// ---- items

static int64_t whole_tiles(int64_t rows) {
    return qni_pieces(rows, TILE_ROWS) * TILE_ROWS;
}

static void load_queries(const item *t, block queries) {
    const qk_attention_rows *q = &t->g->q, *d_o = &t->b->d_o;
    cell *to_q = (cell *)t->room->q, *to_d_o = (cell *)t->room->d_o;
    load_block(t, t->p->forward.dtype, q->data, query_at(t, q, queries.first), q->token, queries,
               t->dim, t->dim_pad, to_q);
    load_block(t, t->p->forward.dtype_o, d_o->data, query_at(t, d_o, queries.first), d_o->token,
               queries, t->dim_vo, t->dim_vo_pad, to_d_o);
    pair_rows(t, t->dim_pad, to_q);
    pair_rows(t, t->dim_vo_pad, to_d_o);
}

/** Adds a block's dq, which lies in q's place, to the sums in the workspace. */
static void add_dq(const item *t, block queries) {
    for (int64_t i = 0; i < queries.count; i++) {
        float *sum = t->b->dq_sum + row_at(t, queries.first + (uint32_t)i) * t->dim_pad;
        const float *part = t->room->q + i * t->dim_pad;
        for (int64_t d = 0; d < t->dim_pad; d += QN_LANES)
            store(QNI_F32, sum, d, load(QNI_F32, sum, d) + load(QNI_F32, part, d));
    }
}

/** Computes the products of a block of queries and a block of keys, and weighs them. */
static void score_pair(const item *t, block queries, block keys) {
    qni_backward_scratch *room = t->room;
    const int64_t rows = t->rows, used = whole_tiles(queries.count);
    load_queries(t, queries);
    multiply(false, used, rows, cells_of(t->dim), (cell *)room->q, t->dim_pad / PAIR, 1,
             (cell *)room->k_columns, rows, room->s, rows);
    multiply(false, used, rows, cells_of(t->dim_vo), (cell *)room->d_o, t->dim_vo_pad / PAIR, 1,
             (cell *)room->v_columns, rows, room->dp, rows);
    weigh_block(t, queries, keys);
}

/** Adds a block of queries to the gradients, with a block of keys. */
static void run_pair(const item *t, block queries, block keys) {
    qni_backward_scratch *room = t->room;
    const int64_t rows = t->rows, dim = t->dim_pad, dim_vo = t->dim_vo_pad;
    const int64_t used = whole_tiles(queries.count), used_keys = whole_tiles(keys.count);
    score_pair(t, queries, keys);
    multiply(true, used_keys, dim_vo, cells_of(queries.count), (cell *)room->s, 1, rows,
             pairs_of(t, (cell *)room->d_o, dim_vo), dim_vo, room->dv, dim_vo);
    multiply(true, used_keys, dim, cells_of(queries.count), (cell *)room->dp, 1, rows,
             pairs_of(t, (cell *)room->q, dim), dim, room->dk, dim);
    multiply(false, used, dim, cells_of(keys.count), rows_of_dx(t), rows / PAIR, 1,
             pairs_of(t, (cell *)room->k, dim), dim, room->q, dim);
}

/** Loads a block of keys, in rows and in columns, and of values in columns; clears its
 *  gradients. */
static void load_keys(const item *t, block keys) {
    const qk_attention_rows *k = &t->g->k, *v = &t->g->v;
    const qni_dtype dtype = t->p->forward.dtype_kv;
    qni_backward_scratch *room = t->room;
    cell *rows = (cell *)room->k;
    load_block(t, dtype, v->data, key_at(t, v, keys.first), v->token, keys, t->dim_vo,
               t->dim_vo_pad, rows);
    transpose(t, rows, t->dim_vo, t->dim_vo_pad, (cell *)room->v_columns);
    load_block(t, dtype, k->data, key_at(t, k, keys.first), k->token, keys, t->dim, t->dim_pad,
               rows);
    transpose(t, rows, t->dim, t->dim_pad, (cell *)room->k_columns);
    pair_rows(t, t->dim_pad, rows);
    memset(room->dk, 0, sizeof room->dk);
    memset(room->dv, 0, sizeof room->dv);
}

static void store_keys(const item *t, block keys) {
    const qk_attention_rows *dk = &t->b->dk, *dv = &t->b->dv;
    for (uint32_t j = 0; j < keys.count; j++) {
        store_row(t->p->dtype_dk, (void *)(uintptr_t)dk->data, key_at(t, dk, keys.first + j),
                  t->dim, t->room->dk + j * t->dim_pad);
        store_row(t->p->dtype_dv, (void *)(uintptr_t)dv->data, key_at(t, dv, keys.first + j),
                  t->dim_vo, t->room->dv + j * t->dim_vo_pad);
    }
}

/** Computes the parts of one head's queries, and adds each to dq in its turn. */
static void run_head(const item *t, block keys, const qni_backward_turn *turn) {
    const uint32_t rows = (uint32_t)t->rows;
    const int64_t before = (t->head - t->kv_head * t->g->group) * (int64_t)t->request.qo_len;
    const qk_query_range range =
        qk_backward_queries(t->g, &t->request, keys.first, keys.first + keys.count - 1);
    for (uint32_t i = range.begin; i < range.end; i += rows) {
        const block queries = {i, range.end - i < rows ? range.end - i : rows};
        run_pair(t, queries, keys);
        qni_backward_await(turn, before + i + queries.count);
        add_dq(t, queries);
        qni_backward_pass(turn, before + i + queries.count);
    }
    qni_backward_pass(turn, before + t->request.qo_len);
}

static item make_item(const qni_backward_problem *p, uint32_t index, uint32_t kv_head,
                      void *scratch) {
    const qk_attention_args *g = &p->args.common;
    return (item){.p = p,
                  .b = &p->args,
                  .g = g,
                  .request = qk_attention_get_request(g, index),
                  .index = index,
                  .kv_head = kv_head,
                  .dim = g->head_dim_qk,
                  .dim_vo = g->head_dim_vo,
                  .dim_pad = qni_round_up(g->head_dim_qk, QNI_BACKWARD_PAD),
                  .dim_vo_pad = qni_round_up(g->head_dim_vo, QNI_BACKWARD_PAD),
                  .rows = qni_backward_block_rows(p),
                  .room = scratch};
}

/** Computes dk and dv of the block of keys from `first` on, and adds its part of dq. */
static void run_keys(const qni_backward_problem *p, uint32_t index, uint32_t kv_head,
                     uint32_t first, const qni_backward_turn *turn, void *scratch) {
    item t = make_item(p, index, kv_head, scratch);
    const uint32_t rows = (uint32_t)t.rows, left = (uint32_t)t.request.kv_len - first;
    const block keys = {first, left < rows ? left : rows};
    load_keys(&t, keys);
    for (uint32_t h = 0; h < t.g->group; h++) {
        t.head = kv_head * t.g->group + h;
        run_head(&t, keys, turn);
    }
    store_keys(&t, keys);
}

// ---- rows of queries

/** Finds <d_o, o> of a row, and clears its sum of dq. */
static void begin_row(const item *t, uint32_t query) {
    const qk_attention_rows o = o_rows(t->g);
    const int64_t at_o = query_at(t, &o, query), at_d = query_at(t, &t->b->d_o, query);
    const int64_t row = row_at(t, query);
    f32v sum = {};
    for (int64_t d = 0; d < t->dim_vo; d += QN_LANES) {
        const int64_t count = t->dim_vo - d < QN_LANES ? t->dim_vo - d : QN_LANES;
        sum = fma_of(load_some(t->p->forward.dtype_o, o.data, at_o + d, count),
                     load_some(t->p->forward.dtype_o, t->b->d_o.data, at_d + d, count), sum);
    }
    float delta = 0;
    for (int k = 0; k < QN_LANES; k++)
        delta += sum[k];
    t->b->delta[row] = delta;
    memset(t->b->dq_sum + row * t->dim_pad, 0, (size_t)t->dim_pad * sizeof(float));
}

/** Begins a query's row of one head or, once all its parts have been added, stores dq. */
static void run_row(const qni_backward_problem *p, uint32_t index, uint32_t head, uint32_t query,
                    bool begins) {
    item t = make_item(p, index, head / p->args.common.group, nullptr);
    t.head = head;
    if (begins)
        begin_row(&t, query);
    else
        store_row(p->dtype_dq, (void *)(uintptr_t)t.b->dq.data, query_at(&t, &t.b->dq, query),
                  t.dim, t.b->dq_sum + row_at(&t, query) * t.dim_pad);
}

// ---- the mask's gradient

static float dot(qni_dtype dtype_a, const void *a, int64_t at_a, qni_dtype dtype_b, const void *b,
                 int64_t at_b, int64_t dim) {
    f32v sum = {};
    float total = 0;
    for (int64_t d = 0; d < dim; d += QN_LANES) {
        const int64_t count = dim - d < QN_LANES ? dim - d : QN_LANES;
        sum = fma_of(load_some(dtype_a, a, at_a + d, count), load_some(dtype_b, b, at_b + d, count),
                     sum);
    }
    for (int k = 0; k < QN_LANES; k++)
        total += sum[k];
    return total;
}

/** Adds the gradients of one row's scores to the row of sums, one for each key. */
static void add_scores(item *t, uint32_t head, uint32_t query, float *sums) {
    const qk_attention_args *g = t->g;
    const qk_attention_rows *d_o = &t->b->d_o;
    const qni_attention_problem *f = &t->p->forward;
    t->head = head, t->kv_head = head / g->group;
    const score_row r = find_row(t, query);
    for (uint32_t first = 0; first < (uint32_t)t->request.kv_len; first += QN_LANES) {
        f32v s = {}, dp = {};
        for (uint32_t k = 0; k < QN_LANES && first + k < (uint32_t)t->request.kv_len; k++) {
            s[k] = dot(f->dtype, g->q.data, query_at(t, &g->q, query), f->dtype_kv, g->k.data,
                       key_at(t, &g->k, first + k), t->dim);
            dp[k] = dot(f->dtype_o, d_o->data, query_at(t, d_o, query), f->dtype_kv, g->v.data,
                        key_at(t, &g->v, first + k), t->dim_vo);
        }
        const weights w = weigh(t, &r, first, s, dp);
        store(QNI_F32, sums, first, load(QNI_F32, sums, first) + w.ds);
    }
}

/** Computes a row of dmask: the sum over all batches, heads and queries that share it. */
static void run_mask_row(const qni_backward_problem *p, int64_t row, void *scratch) {
    const qk_mask_gradient *m = &p->args.dmask;
    const uint32_t query = (uint32_t)(row % m->queries);
    const uint32_t head = (uint32_t)(row / m->queries % m->heads);
    const uint32_t batch = (uint32_t)(row / m->queries / m->heads);
    const uint32_t heads = p->args.common.num_kv_heads * p->args.common.group;
    float *sums = scratch;
    memset(sums, 0, (size_t)qni_backward_mask_bytes(p));
    for (uint32_t b = batch; b < (m->batches > 1 ? batch + 1 : p->requests); b++) {
        item t = make_item(p, b, 0, nullptr);
        const uint32_t queries = (uint32_t)t.request.qo_len;
        const uint32_t end = m->queries > 1 ? query + 1 : queries;
        for (uint32_t h = head; h < (m->heads > 1 ? head + 1 : heads); h++)
            for (uint32_t i = query; i < end && i < queries; i++)
                add_scores(&t, h, i, sums);
    }
    if (m->keys == 1)
        for (uint32_t j = 1; j < p->args.max_kv; j++)
            sums[0] += sums[j];
    for (uint32_t j = 0; j < m->keys; j++)
        store_some(p->dtype_dmask, m->data,
                   batch * m->batch + head * m->head + query * m->query + j * m->key, 1,
                   all_of(sums[j]));
}

static const qni_backward_functions these_functions = {run_row, run_keys, run_mask_row};

#endif
