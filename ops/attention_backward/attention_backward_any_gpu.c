// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention for any problem, without matrix cores: five kernels, launched one
// after another.
//
//   delta    a wave a row: <d_o, o>, into the workspace
//   queries  a wave a row of q, WAVE keys at a time: a lane has a key's gradient dx, then lanes go
//            along the elements of dq
//   keys     a wave a key, WAVE rows of q at a time: likewise, for dk and dv
//   mask     a wave WAVE keys of a row of dmask, over all rows of q that share it
//   sinks    a workgroup a head
//
// Needs     nothing beyond vector instructions
// Launch    256 threads; waves step through rows, keys or pieces of dmask
// LDS       two rows of 512 f32 a wave: 32 KiB, half of that with waves of 64
// Edges     all: what a row does not see is never read
// Memory    the other side's rows are read a row a lane; runs of eight elements where everything is
//           aligned to them
// Source    arXiv:2205.14135, appendix B
#include "../attention/attention_row_gpu.h"
#include "attention_backward_abi.h"
#include "reduce.h"

enum { THREADS = 256, WAVES = THREADS / QD_WAVE, SLOTS = QK_ATTENTION_MAX_HEAD_DIM / QD_WAVE };

[[clang::loader_uninitialized]] static QD_LDS float rows_of[WAVES][2][QK_ATTENTION_MAX_HEAD_DIM];

QD_INLINE const qk_backward_args *again(const qk_backward_args *b) {
    return qd_reread(b);
}

QD_INLINE float wave_sum(float v) {
    const float row = qd_row_sum(v);
    float sum = 0;
    QD_UNROLL for (uint32_t lane = 0; lane < QD_WAVE; lane += QD_ROW)
        sum += qd_as_f32(qd_read_lane(qd_as_u32(row), lane));
    return sum;
}

// ---- rows

/** Returns where the row of a query begins in q, d_o, o or dq. */
QD_INLINE int64_t query_at(const qk_attention_rows *rows, const row_place *row) {
    return row->request * rows->block + row->token * rows->token + row->head * rows->head;
}
/** Returns where the row of a key begins in k, v, dk or dv. */
QD_INLINE int64_t key_at(const qk_attention_rows *rows, const qk_attention_request *r,
                         uint32_t request, uint32_t kv_head, uint32_t j) {
    return request * rows->block + ((int64_t)r->kv_begin + j) * rows->token + kv_head * rows->head;
}

/** Copies a row to LDS as f32, with zeros up to a run's end. */
QD_INLINE void load_row(uint32_t dtype, const void *p, int64_t at, uint32_t dim,
                        QD_LDS float *row) {
    for (uint32_t d = qd_lane(); d < (dim + QD_RUN - 1) / QD_RUN * QD_RUN; d += QD_WAVE)
        row[d] = d < dim ? qd_load1((int)dtype, element_at(dtype, p, at + d)) : 0;
}

QD_INLINE qd_f32x8 load_run(uint32_t dtype, bool is_wide, const char *p, uint32_t count) {
    return is_wide ? qd_load8((int)dtype, p) : qd_load_part((int)dtype, p, qd_min(count, QD_RUN));
}

QD_INLINE float dot_of(uint32_t dtype, bool is_wide, const QD_LDS float *a, const char *p,
                       uint32_t dim) {
    float sum = 0;
    QD_NO_UNROLL for (uint32_t d = 0; d < dim; d += QD_RUN) {
        const qd_f32x8 v = load_run(dtype, is_wide, element_at(dtype, p, d), dim - d);
        QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
            sum = __builtin_fmaf(a[d + i], v[i], sum);
    }
    return sum;
}

/** Returns the product of a row in LDS and one in memory. */
QD_INLINE float dot(uint32_t dtype, bool is_wide, const QD_LDS float *a, const void *p, int64_t at,
                    uint32_t dim) {
    const char *row = element_at(dtype, p, at);
    return dtype == QD_F32   ? dot_of(QD_F32, is_wide, a, row, dim)
           : dtype == QD_F16 ? dot_of(QD_F16, is_wide, a, row, dim)
                             : dot_of(QD_BF16, is_wide, a, row, dim);
}

/** Adds weight * row to the lanes' elements. Lanes past the end compute the last element, without
 *  effect. */
QD_INLINE void add_row(uint32_t dtype, const void *p, int64_t at, uint32_t dim, float weight,
                       float *acc) {
    QD_UNROLL for (int t = 0; t < SLOTS; t++) {
        const uint32_t first = (uint32_t)t * QD_WAVE, d = qd_min(qd_lane() + first, dim - 1);
        if (first < dim)
            acc[t] =
                __builtin_fmaf(weight, qd_load1((int)dtype, element_at(dtype, p, at + d)), acc[t]);
    }
}

QD_INLINE void store_row(uint32_t dtype, const void *p, int64_t at, uint32_t dim,
                         const float *acc) {
    QD_UNROLL for (int t = 0; t < SLOTS; t++) {
        const uint32_t d = qd_lane() + (uint32_t)t * QD_WAVE;
        if (d < dim)
            qd_store1((int)dtype, (void *)element_at(dtype, p, at + d), acc[t]);
    }
}

/** Returns a lane's 64 bits. */
QD_INLINE int64_t read_lane(int64_t x, uint32_t from) {
    const uint64_t low = qd_read_lane((uint32_t)x, from);
    const uint64_t high = qd_read_lane((uint32_t)((uint64_t)x >> 32), from);
    return (int64_t)(high << 32 | low);
}

// ---- pairs of a row and a key

/** The weight of a pair, for the product with d_o; the gradients of its score before the soft cap
 *  and the scale, and after them. */
typedef struct pair {
    float p, ds, dx;
} pair;

/** Computes a pair's weights from the products of its q and k, and of its d_o and v. */
QD_INLINE pair weigh(const qk_backward_args *b, const qk_attention_request *r, const row_place *row,
                     uint32_t j, float product, float dp) {
    const qk_attention_args *g = &again(b)->common;
    const float scale = score_scale(g, row);
    const float factor = g->v_scale * (g->v_scales ? g->v_scales[row->kv_head] : 1.0f);
    const float lse =
        g->lse[row->request * g->lse_batch + row->token * g->lse_token + row->head * g->lse_head] /
        g->lse_unit;
    const float delta = again(b)->delta[qk_backward_delta(b, row->request, row->token, row->head)];
    float x = product * scale, rise = scale;
    if (g->pos_encoding == QK_POS_ALIBI)
        x += alibi_slope(g, row->head) * (float)((int64_t)j - row->query - (r->kv_len - r->qo_len));
    if (g->soft_cap > 0) {
        x = soft_cap(g->soft_cap, x);
        const float tanh = x / g->soft_cap;
        rise *= 1 - tanh * tanh;
    }
    if (g->mask_kind)
        x += mask_value(g, row, j);
    const float p = qd_exp2(x * log2_e - lse);
    const float kept = g->has_dropout ? drop_out(g, row, j, 1) : 1;
    const float ds = p * (dp * kept * factor - delta);
    return (pair){p * kept * factor, ds, ds * rise};
}

/** Returns whether the row sees key j. */
QD_INLINE bool sees(const qk_attention_args *g, const qk_attention_request *r, const row_place *row,
                    uint32_t j) {
    return j >= qk_attention_first_key(g, r, row->query) &&
           j < qk_attention_end_key(g, r, row->query) &&
           !qk_attention_is_masked(g, r, row->query, j) &&
           !(g->mask_kind && mask_value(g, row, j) == -__builtin_inff());
}

/** Computes the pair of a row, whose q and d_o are in LDS, and key j. */
QD_INLINE pair weigh_key(const qk_backward_args *b, const qk_attention_request *r,
                         const row_place *row, uint32_t j, const QD_LDS float *q,
                         const QD_LDS float *d_o) {
    const qk_attention_args *g = &again(b)->common;
    const int64_t k = key_at(&g->k, r, row->request, row->kv_head, j);
    const int64_t v = key_at(&g->v, r, row->request, row->kv_head, j);
    const float product = dot(g->dtype_kv, b->is_wide, q, g->k.data, k, g->head_dim_qk);
    const float dp = dot(g->dtype_kv, b->is_wide, d_o, g->v.data, v, g->head_dim_vo);
    return weigh(b, r, row, j, product, dp);
}

/** Loads the q and d_o of a row into LDS. */
QD_INLINE void load_query(const qk_backward_args *b, const row_place *row, QD_LDS float *q,
                          QD_LDS float *d_o) {
    const qk_attention_args *g = &again(b)->common;
    const qk_attention_rows *rows = &again(b)->d_o;
    qd_wave_barrier(); // all lanes are done with the row before
    load_row(g->dtype_q, g->q.data, query_at(&g->q, row), g->head_dim_qk, q);
    load_row(g->dtype_o, rows->data, query_at(rows, row), g->head_dim_vo, d_o);
    qd_wave_barrier();
}

// ---- delta, queries

/** A row's number in its request, for all heads of all requests. */
typedef struct row_id {
    qk_attention_request request;
    row_place place;
    bool exists;
} row_id;

/** Finds row `id` of requests * max_qo * heads. */
QD_INLINE row_id find_id(const qk_backward_args *b, uint32_t id) {
    const qk_attention_args *g = &again(b)->common;
    const uint32_t heads = g->num_kv_heads * g->group, row = id / heads, head = id - row * heads;
    const uint32_t index = row / again(b)->max_qo, query = row - index * again(b)->max_qo;
    const qk_attention_request r = qk_attention_get_request(g, index);
    return (row_id){.request = r,
                    .place = {.request = index,
                              .query = query,
                              .head = head,
                              .kv_head = head / g->group,
                              .token = (int64_t)r.qo_begin + query},
                    .exists = query < (uint32_t)r.qo_len};
}

QD_INLINE uint32_t count_ids(const qk_backward_args *b) {
    const qk_attention_args *g = &again(b)->common;
    return qk_attention_num_requests(g) * again(b)->max_qo * g->num_kv_heads * g->group;
}

QD_INLINE uint32_t first_wave(void) {
    return qd_block() * WAVES + qd_wave();
}
QD_INLINE uint32_t count_waves(void) {
    return __gpu_num_blocks(0) * WAVES;
}

QD_INLINE void find_delta(const qk_backward_args *b, const row_place *row) {
    const qk_attention_args *g = &again(b)->common;
    const qk_attention_rows *rows = &again(b)->d_o;
    const int64_t o = o_offset(g, row), d_o = query_at(rows, row);
    float sum = 0;
    for (uint32_t d = qd_lane(); d < g->head_dim_vo; d += QD_WAVE)
        sum = __builtin_fmaf(qd_load1((int)g->dtype_o, element_at(g->dtype_o, g->o, o + d)),
                             qd_load1((int)g->dtype_o, element_at(g->dtype_o, rows->data, d_o + d)),
                             sum);
    sum = wave_sum(sum);
    if (qd_lane() == 0)
        again(b)->delta[qk_backward_delta(b, row->request, row->token, row->head)] = sum;
}

QD_KERNEL(THREADS) qk_backward_delta_rows(const qk_backward_args b) {
    for (uint32_t id = first_wave(); id < count_ids(&b); id += count_waves()) {
        const row_id row = find_id(&b, id);
        if (row.exists)
            find_delta(&b, &row.place);
    }
}

/** Computes a row of dq. */
QD_INLINE void run_query(const qk_backward_args *b, const row_id *row) {
    QD_LDS float *q = rows_of[qd_wave()][0], *d_o = rows_of[qd_wave()][1];
    const qk_attention_args *g = &again(b)->common;
    const uint32_t end = qk_attention_end_key(g, &row->request, row->place.query);
    float acc[SLOTS] = {};
    load_query(b, &row->place, q, d_o);
    for (uint32_t tile = qk_attention_first_key(g, &row->request, row->place.query); tile < end;
         tile += QD_WAVE) {
        const uint32_t j = tile + qd_lane();
        float dx = 0;
        if (j < end && sees(g, &row->request, &row->place, j))
            dx = weigh_key(b, &row->request, &row->place, j, q, d_o).dx;
        for (uint64_t left = qd_ballot(dx != 0); left; left &= left - 1) { // also for a NaN
            const uint32_t from = (uint32_t)__builtin_ctzll(left);
            const int64_t k = key_at(&again(b)->common.k, &row->request, row->place.request,
                                     row->place.kv_head, tile + from);
            const qk_attention_args *h = &again(b)->common;
            add_row(h->dtype_kv, h->k.data, k, h->head_dim_qk,
                    qd_as_f32(qd_read_lane(qd_as_u32(dx), from)), acc);
        }
    }
    store_row(again(b)->dtype_dq, again(b)->dq.data, query_at(&again(b)->dq, &row->place),
              again(b)->common.head_dim_qk, acc);
}

QD_KERNEL(THREADS) qk_backward_queries_any(const qk_backward_args b) {
    for (uint32_t id = first_wave(); id < count_ids(&b); id += count_waves()) {
        const row_id row = find_id(&b, id);
        if (row.exists)
            run_query(&b, &row);
    }
}

// ---- keys

/** A key of a request, for one kv head. */
typedef struct key_place {
    qk_attention_request request;
    uint32_t index, kv_head, key;
} key_place;

/** Adds the rows of q that lie at the lanes, which have weights, to dk and dv. */
QD_INLINE void add_rows(const qk_backward_args *b, pair own, int64_t q_at, int64_t d_o_at,
                        float *dk, float *dv) {
    for (uint64_t left = qd_ballot(own.dx != 0 || own.p != 0); left; left &= left - 1) {
        const uint32_t from = (uint32_t)__builtin_ctzll(left);
        const qk_attention_args *g = &again(b)->common;
        add_row(g->dtype_q, g->q.data, read_lane(q_at, from), g->head_dim_qk,
                qd_as_f32(qd_read_lane(qd_as_u32(own.dx), from)), dk);
        add_row(g->dtype_o, again(b)->d_o.data, read_lane(d_o_at, from), g->head_dim_vo,
                qd_as_f32(qd_read_lane(qd_as_u32(own.p), from)), dv);
    }
}

/** Adds a tile of rows, of which a lane has one, to a key's gradients. */
QD_INLINE void add_tile(const qk_backward_args *b, const key_place *key, uint32_t row, uint32_t end,
                        float *dk, float *dv) {
    const QD_LDS float *k = rows_of[qd_wave()][0], *v = rows_of[qd_wave()][1];
    const qk_attention_args *g = &again(b)->common;
    const row_place place = find_row(g, &key->request, key->index, key->kv_head, row);
    const int64_t q = query_at(&g->q, &place), d_o = query_at(&again(b)->d_o, &place);
    pair own = {};
    if (row < end && sees(g, &key->request, &place, key->key)) {
        const float product = dot(g->dtype_q, b->is_wide, k, g->q.data, q, g->head_dim_qk);
        const float dp = dot(g->dtype_o, b->is_wide, v, again(b)->d_o.data, d_o, g->head_dim_vo);
        own = weigh(b, &key->request, &place, key->key, product, dp);
    }
    add_rows(b, own, q, d_o, dk, dv);
}

/** Computes a row of dk and of dv. */
QD_INLINE void run_key(const qk_backward_args *b, const key_place *key) {
    const qk_attention_args *g = &again(b)->common;
    const qk_query_range range = qk_backward_queries(g, &key->request, key->key, key->key);
    float dk[SLOTS] = {}, dv[SLOTS] = {};
    qd_wave_barrier();
    load_row(g->dtype_kv, g->k.data,
             key_at(&g->k, &key->request, key->index, key->kv_head, key->key), g->head_dim_qk,
             rows_of[qd_wave()][0]);
    load_row(g->dtype_kv, g->v.data,
             key_at(&g->v, &key->request, key->index, key->kv_head, key->key), g->head_dim_vo,
             rows_of[qd_wave()][1]);
    qd_wave_barrier();
    const uint32_t end = range.end * g->group;
    for (uint32_t row = range.begin * g->group; row < end; row += QD_WAVE)
        add_tile(b, key, row + qd_lane(), end, dk, dv);
    const qk_backward_args *a = again(b);
    store_row(a->dtype_dk, a->dk.data,
              key_at(&a->dk, &key->request, key->index, key->kv_head, key->key),
              a->common.head_dim_qk, dk);
    store_row(a->dtype_dv, a->dv.data,
              key_at(&a->dv, &key->request, key->index, key->kv_head, key->key),
              a->common.head_dim_vo, dv);
}

QD_KERNEL(THREADS) qk_backward_keys_any(const qk_backward_args b) {
    const uint32_t heads = b.common.num_kv_heads;
    const uint32_t count = qk_attention_num_requests(&b.common) * b.max_kv * heads;
    for (uint32_t id = first_wave(); id < count; id += count_waves()) {
        const uint32_t place = id / heads, index = place / again(&b)->max_kv;
        const key_place key = {.request = qk_attention_get_request(&again(&b)->common, index),
                               .index = index,
                               .kv_head = id - place * heads,
                               .key = place - index * again(&b)->max_kv};
        if (key.key < (uint32_t)key.request.kv_len)
            run_key(&b, &key);
    }
}

// ---- the mask and sinks

/** Rows of q: of batches, heads and queries that share a row of dmask. */
typedef struct shared_rows {
    uint32_t batch, batches, head, heads, query, queries;
} shared_rows;

QD_INLINE shared_rows find_shared(const qk_backward_args *b, uint32_t row) {
    const qk_attention_args *g = &again(b)->common;
    const qk_mask_gradient *m = &again(b)->dmask;
    const uint32_t query = row % m->queries, head = row / m->queries % m->heads;
    const uint32_t batch = row / m->queries / m->heads;
    return (shared_rows){
        .batch = batch,
        .batches = m->batches > 1 ? batch + 1 : qk_attention_num_requests(g),
        .head = head,
        .heads = m->heads > 1 ? head + 1 : g->num_kv_heads * g->group,
        .query = query,
        .queries = m->queries > 1 ? query + 1 : again(b)->max_qo,
    };
}

/** Returns the sum of ds of key j over one batch's shared rows. */
QD_INLINE float add_batch(const qk_backward_args *b, const shared_rows *s, uint32_t index,
                          uint32_t j, float sum) {
    QD_LDS float *q = rows_of[qd_wave()][0], *d_o = rows_of[qd_wave()][1];
    const qk_attention_request r = qk_attention_get_request(&again(b)->common, index);
    const uint32_t group = again(b)->common.group, end = qd_min(s->queries, (uint32_t)r.qo_len);
    for (uint32_t head = s->head; head < s->heads; head++)
        for (uint32_t query = s->query; query < end; query++) {
            const row_place place = {.request = index,
                                     .query = query,
                                     .head = head,
                                     .kv_head = head / group,
                                     .token = (int64_t)r.qo_begin + query};
            load_query(b, &place, q, d_o);
            if (j < (uint32_t)r.kv_len && sees(&again(b)->common, &r, &place, j))
                sum += weigh_key(b, &r, &place, j, q, d_o).ds;
        }
    return sum;
}

QD_INLINE float sum_shared(const qk_backward_args *b, const shared_rows *s, uint32_t j, float sum) {
    for (uint32_t index = s->batch; index < s->batches; index++)
        sum = add_batch(b, s, index, j, sum);
    return sum;
}

/** Computes WAVE elements of a row of dmask, or the row's one. */
QD_INLINE void run_mask(const qk_backward_args *b, uint32_t row, uint32_t tile) {
    const shared_rows s = find_shared(b, row);
    const qk_mask_gradient *m = &again(b)->dmask;
    const uint32_t j = tile * QD_WAVE + qd_lane();
    float sum = 0;
    if (m->keys > 1)
        sum = sum_shared(b, &s, j, sum);
    else
        for (uint32_t first = 0; first < again(b)->max_kv; first += QD_WAVE)
            sum = sum_shared(b, &s, first + qd_lane(), sum);
    if (m->keys == 1)
        sum = wave_sum(sum);
    m = &again(b)->dmask;
    const int64_t at = (m->batches > 1 ? s.batch * m->batch : 0) +
                       (m->heads > 1 ? s.head * m->head : 0) +
                       (m->queries > 1 ? s.query * m->query : 0) + j * m->key;
    if (j < m->keys)
        qd_store1((int)again(b)->dtype_dmask,
                  (void *)element_at(again(b)->dtype_dmask, m->data, at), sum);
}

QD_KERNEL(THREADS) qk_backward_mask_any(const qk_backward_args b) {
    const uint32_t tiles = qd_div_up(b.dmask.keys, QD_WAVE);
    const uint32_t count = b.dmask.batches * b.dmask.heads * b.dmask.queries * tiles;
    for (uint32_t id = first_wave(); id < count; id += count_waves())
        run_mask(&b, id / tiles, id % tiles);
}

QD_SHARED(sums_of_rows);

/** Returns the sum over all threads. */
QD_INLINE float group_sum(float v) {
    QD_LDS float *sums = (QD_LDS float *)sums_of_rows[0];
    const float row = qd_row_sum(v);
    float sum = 0;
    qd_barrier();
    if (qd_thread() % QD_ROW == 0)
        sums[qd_thread() / QD_ROW] = row;
    qd_barrier();
    for (uint32_t i = 0; i < THREADS / QD_ROW; i++)
        sum += sums[i];
    return sum;
}

QD_KERNEL(THREADS) qk_backward_sinks_any(const qk_backward_args b) {
    const uint32_t head = qd_block();
    const float sink = b.common.sinks[head] * log2_e;
    float sum = 0;
    for (uint32_t index = 0; index < qk_attention_num_requests(&b.common); index++) {
        const qk_attention_args *g = &again(&b)->common;
        const qk_attention_request r = qk_attention_get_request(g, index);
        for (uint32_t i = qd_thread(); i < (uint32_t)r.qo_len; i += THREADS) {
            const int64_t token = (int64_t)r.qo_begin + i;
            const float lse =
                g->lse[index * g->lse_batch + token * g->lse_token + head * g->lse_head];
            sum -= qd_exp2(sink - lse / g->lse_unit) *
                   again(&b)->delta[qk_backward_delta(&b, index, token, head)];
        }
    }
    sum = group_sum(sum);
    if (qd_thread() == 0)
        again(&b)->dsinks[head] = sum;
}
