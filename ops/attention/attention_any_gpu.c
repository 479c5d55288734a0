// SPDX-License-Identifier: Apache-2.0
// The attention kernel that takes any problem: head_dim up to 512, all types, strides, masks,
// positions, dropout; and latent attention, whose rows of q and k have a tail in other memory, and
// perhaps scales of groups of k's elements.
//
// Needs     nothing beyond vector instructions
// Tile      a row at a time for a wave, WAVE keys at a time: a lane has a key's score, then lanes
//           go along v's elements
// Launch    256 threads; workgroups step through work items and kv heads, a workgroup's waves
//           through an item's rows
// LDS       the rows of q, in f32: 4 KiB up to 128 elements, else 16 KiB, with a tail 18 KiB; half
//           of that with waves of 64
// Edges     all: keys that a row does not see are never read
// Memory    k is read a row a lane, v along its rows; runs of eight elements where everything is
//           aligned to them
// Source    arXiv:2205.14135 (online softmax)
#include "attention_groups_abi.h"
#include "attention_row_gpu.h"
#include "reduce.h"

enum { THREADS = 256, WAVES = THREADS / QD_WAVE };

/** What a wave knows of its row. */
typedef struct row_state {
    const qk_attention_any_args *any;
    const qk_attention_args *g;
    const qk_attention_request *request;
    row_place place;
    const QD_LDS float *q; // head_dim_qk, then zeros up to a run's end; then a tail likewise
    bool has_tail;
    bool has_groups; // then there are pages, and no masks, rotation, cap or dropout
    uint32_t first_key, end_key;
    float scale, slope;
    float max, sum;
} row_state;

// ---- the wave

QD_INLINE float wave_sum(float v) {
    const float row = qd_row_sum(v);
    float sum = 0;
    QD_UNROLL for (uint32_t lane = 0; lane < QD_WAVE; lane += QD_ROW)
        sum += qd_as_f32(qd_read_lane(qd_as_u32(row), lane));
    return sum;
}

QD_INLINE float larger(float a, float b) {
    return a > b ? a : b;
}

QD_INLINE float wave_max(float v) {
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 8)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 4)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 2)));
    v = larger(v, qd_as_f32(QD_ROW_PARTNER(qd_as_u32(v), 1)));
    float max = -__builtin_inff();
    QD_UNROLL for (uint32_t lane = 0; lane < QD_WAVE; lane += QD_ROW)
        max = larger(max, qd_as_f32(qd_read_lane(qd_as_u32(v), lane)));
    return max;
}

// ---- q and scores

/** Rotates a pair. An angle is an integer, of which 2^32 is a full turn, so it is reduced exactly
 *  at any position. */
QD_INLINE void rotate(const qk_attention_any_args *any, uint32_t pair, int64_t position, float *x0,
                      float *x1) {
    float c, s;
    qk_cos_sin((uint32_t)((uint64_t)position * any->turns[pair] >> 32), &c, &s);
    const float first = *x0 * c - *x1 * s;
    *x1 = *x1 * c + *x0 * s;
    *x0 = first;
}

/** Returns the tail's place, read from the arguments again. */
QD_INLINE const qk_attention_tail *get_tail(const row_state *s) {
    return &((const qk_attention_any_args *)qd_reread(s->any))->tail;
}

/** Returns the arguments of keys with scales of groups, of which the others are the first. */
QD_INLINE const qk_attention_groups_args *get_groups(const row_state *s) {
    return (const qk_attention_groups_args *)qd_reread(s->any);
}

/** Where a key lies: latent caches have pages. Its rows in three memories have places in common. */
typedef struct key_place {
    int32_t page;
    uint32_t slot;
} key_place;

QD_INLINE key_place find_page(const row_state *s, uint32_t j) {
    const qk_attention_args *g = reread(s->g);
    const uint32_t page = j / g->page_size;
    return (key_place){g->kv_indices[s->request->kv_begin + page], j - page * g->page_size};
}

QD_INLINE int64_t offset_in(const qk_attention_rows *rows, key_place at) {
    return at.page * rows->block + at.slot * rows->token;
}

/** Returns the scales of a key's groups. */
QD_INLINE const float *find_scales(const row_state *s, key_place at) {
    const qk_attention_rows *rows = &get_groups(s)->scales;
    return (const float *)rows->data + offset_in(rows, at);
}

/** Returns the elements of a row of q and k that lie together, in front of the tail. */
QD_INLINE uint32_t count_head(const row_state *s) {
    return reread(s->g)->head_dim_qk - (s->has_tail ? get_tail(s)->dim : 0);
}

QD_INLINE uint32_t whole_runs(uint32_t dim) {
    return (dim + QD_RUN - 1) / QD_RUN * QD_RUN;
}

/** Writes q's tail to LDS, and zeros behind it. */
QD_INLINE void load_q_tail(const row_state *s, QD_LDS float *q) {
    const qk_attention_rows *rows = &get_tail(s)->q;
    const uint32_t dim = get_tail(s)->dim, dtype = reread(s->g)->dtype_q;
    const int64_t at = s->place.token * rows->token + s->place.head * rows->head;
    for (uint32_t d = qd_lane(); d < whole_runs(dim); d += QD_WAVE)
        q[d] = d < dim ? load_element(dtype, element_at(dtype, rows->data, at + d)) : 0;
}

/** Writes q to LDS, rotated if the problem asks, and zeros behind it. */
QD_INLINE void load_q(const row_state *s, QD_LDS float *q) {
    const qk_attention_args *g = reread(s->g);
    const uint32_t dim = count_head(s), half = dim / 2;
    const int64_t at = q_offset(g, &s->place);
    const int64_t position = (int64_t)s->request->kv_len - s->request->qo_len + s->place.query;
    qd_wave_barrier(); // all lanes are done with the previous row
    if (s->has_tail)
        load_q_tail(s, q + whole_runs(dim));
    for (uint32_t d = qd_lane(); d < whole_runs(dim); d += QD_WAVE) {
        float x = d < dim ? load_element(g->dtype_q, element_at(g->dtype_q, g->q.data, at + d)) : 0;
        if (!s->has_groups && g->pos_encoding == QK_POS_ROPE && d < dim) {
            const uint32_t other = d < half ? d + half : d - half;
            const float y = load_element(g->dtype_q, element_at(g->dtype_q, g->q.data, at + other));
            float x0 = d < half ? x : y, x1 = d < half ? y : x;
            rotate(s->any, d < half ? d : other, position, &x0, &x1);
            x = d < half ? x0 : x1;
        }
        q[d] = x;
    }
    qd_wave_barrier();
}

/** Loads eight elements, of which `count` exist; the others are zero. */
QD_INLINE qd_f32x8 load_run(uint32_t dtype, bool is_wide, const char *p, uint32_t count) {
    qd_f32x8 v = 0;
    if (is_wide && dtype <= QD_BF16)
        return qd_load8((int)dtype, p);
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (i < count)
            v[i] = load_element(dtype, element_at(dtype, p, i));
    return v;
}

/** Returns sum + <q, k> over `dim` elements. */
QD_INLINE float add_dot(const row_state *s, uint32_t dtype, const QD_LDS float *q, const char *k,
                        uint32_t dim, float sum) {
    QD_NO_UNROLL for (uint32_t d = 0; d < dim; d += QD_RUN) {
        const qd_f32x8 v = load_run(dtype, s->any->is_wide, element_at(dtype, k, d), dim - d);
        QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
            sum = __builtin_fmaf(q[d + i], v[i], sum);
    }
    return sum;
}

/** Returns <q, k> of codes with scales of groups, and of a tail without. */
QD_INLINE float dot_groups(const row_state *s, key_place at) {
    const uint32_t dim = count_head(s), dtype = reread(s->g)->dtype_kv;
    const char *k = (const char *)reread(s->g)->k.data + offset_in(&reread(s->g)->k, at);
    const float *scales = find_scales(s, at);
    float sum = 0;
    QD_NO_UNROLL for (uint32_t d = 0; d < dim; d += QK_ATTENTION_GROUP) {
        const uint32_t count = qd_min(dim - d, QK_ATTENTION_GROUP);
        sum = __builtin_fmaf(add_dot(s, dtype, s->q + d, k + d, count, 0),
                             scales[d / QK_ATTENTION_GROUP], sum);
    }
    const qk_attention_rows *rows = &get_tail(s)->k;
    const uint32_t dtype_tail = get_groups(s)->dtype_tail;
    return add_dot(s, dtype_tail, s->q + whole_runs(dim),
                   element_at(dtype_tail, rows->data, offset_in(rows, at)), get_tail(s)->dim, sum);
}

QD_INLINE float dot(const row_state *s, uint32_t dtype, const char *k, const char *tail) {
    const uint32_t dim = count_head(s);
    const float sum = add_dot(s, dtype, s->q, k, dim, 0);
    return s->has_tail ? add_dot(s, dtype, s->q + whole_runs(dim), tail, get_tail(s)->dim, sum)
                       : sum;
}

QD_INLINE float rotated_dot(const row_state *s, const char *k, uint32_t position) {
    const qk_attention_args *g = reread(s->g);
    const uint32_t half = g->head_dim_qk / 2, dtype = g->dtype_kv;
    float sum = 0;
    QD_NO_UNROLL for (uint32_t d = 0; d < half; d++) {
        float x0 = load_element(dtype, element_at(dtype, k, d));
        float x1 = load_element(dtype, element_at(dtype, k, d + half));
        rotate(s->any, d, position, &x0, &x1);
        sum = __builtin_fmaf(s->q[d], x0, sum);
        sum = __builtin_fmaf(s->q[d + half], x1, sum);
    }
    return sum;
}

/** Returns where key j lies, or its tail. */
QD_INLINE const char *find_key(const row_state *s, const qk_attention_rows *rows, uint32_t j) {
    const qk_attention_args *g = reread(s->g);
    const int64_t at =
        qk_attention_key(g, rows, s->request, s->place.request, j) + s->place.kv_head * rows->head;
    return element_at(g->dtype_kv, rows->data, at);
}

QD_INLINE float product(const row_state *s, uint32_t j) {
    const qk_attention_args *g = reread(s->g);
    const char *k = find_key(s, &g->k, j);
    const char *tail = s->has_tail ? find_key(s, &get_tail(s)->k, j) : k;
    if (!s->has_tail && g->pos_encoding == QK_POS_ROPE)
        return rotated_dot(s, k, j);
    return g->dtype_kv == QD_F32    ? dot(s, QD_F32, k, tail)
           : g->dtype_kv == QD_F16  ? dot(s, QD_F16, k, tail)
           : g->dtype_kv == QD_BF16 ? dot(s, QD_BF16, k, tail)
                                    : dot(s, g->dtype_kv, k, tail);
}

/** Returns the score of key j, for weights 2^x; -infinity: the key is not seen. */
QD_INLINE float score(const row_state *s, uint32_t j) {
    const qk_attention_args *g = reread(s->g);
    const qk_attention_request *r = s->request;
    if (j < s->first_key || j >= s->end_key)
        return -__builtin_inff();
    if (s->has_groups)
        return dot_groups(s, find_page(s, j)) * s->scale * log2_e;
    if (qk_attention_is_masked(g, r, s->place.query, j))
        return -__builtin_inff();
    const float added = g->mask_kind ? mask_value(g, &s->place, j) : 0;
    if (added == -__builtin_inff())
        return added;
    float x = product(s, j) * s->scale;
    if (g->pos_encoding == QK_POS_ALIBI)
        x += s->slope * (float)((int64_t)j - s->place.query - (r->kv_len - r->qo_len));
    if (g->soft_cap > 0)
        x = soft_cap(g->soft_cap, x);
    return (x + added) * log2_e;
}

// ---- values

/** Adds weight * v to the lanes' elements for one key. Lanes past the end compute the last element,
 *  without effect. */
QD_INLINE void add_value(uint32_t dtype, uint32_t dim, int slots, const char *v, float weight,
                         float *acc) {
    QD_UNROLL for (int t = 0; t < slots; t++) {
        const uint32_t first = (uint32_t)t * QD_WAVE, d = qd_min(qd_lane() + first, dim - 1);
        if (first < dim)
            acc[t] = __builtin_fmaf(weight, load_element(dtype, element_at(dtype, v, d)), acc[t]);
    }
}

/** Does what add_value does for codes with scales of groups. */
QD_INLINE void add_codes(const row_state *s, int slots, key_place at, float weight, float *acc) {
    const qk_attention_args *g = reread(s->g);
    const uint32_t dim = g->head_dim_vo, dtype = g->dtype_kv;
    const uint8_t *v = (const uint8_t *)g->v.data + offset_in(&g->v, at);
    const float *scales = find_scales(s, at);
    QD_UNROLL for (int t = 0; t < slots; t++) {
        const uint32_t first = (uint32_t)t * QD_WAVE, d = qd_min(qd_lane() + first, dim - 1);
        if (first < dim)
            acc[t] = __builtin_fmaf(weight * scales[d / QK_ATTENTION_GROUP],
                                    load_element(dtype, v + d), acc[t]);
    }
}

/** Does what add_values does, likewise. */
QD_INLINE void add_values_of_groups(const row_state *s, int slots, uint32_t tile, float weight,
                                    float *acc) {
    key_place own = {};
    if (weight != 0) // also for a NaN
        own = find_page(s, tile + qd_lane());
    for (uint64_t left = qd_ballot(weight != 0); left; left &= left - 1) {
        const uint32_t from = (uint32_t)__builtin_ctzll(left);
        const key_place at = {(int32_t)qd_read_lane((uint32_t)own.page, from),
                              qd_read_lane(own.slot, from)};
        add_codes(s, slots, at, qd_as_f32(qd_read_lane(qd_as_u32(weight), from)), acc);
    }
}

/** Adds keys tile .. tile + WAVE - 1, each with a lane's weight. If a weight is 0, its value is not
 *  read. */
QD_INLINE void add_values(const row_state *s, int slots, uint32_t tile, float weight, float *acc) {
    const qk_attention_args *g = reread(s->g);
    const uint32_t dim = g->head_dim_vo, dtype = g->dtype_kv, j = tile + qd_lane();
    int64_t at = 0;
    if (weight != 0) // also for a NaN
        at = qk_attention_key(g, &g->v, s->request, s->place.request, j);
    for (uint64_t left = qd_ballot(weight != 0); left; left &= left - 1) {
        const uint32_t from = (uint32_t)__builtin_ctzll(left);
        const float w = qd_as_f32(qd_read_lane(qd_as_u32(weight), from));
        const uint64_t low = qd_read_lane((uint32_t)at, from);
        const uint64_t high = qd_read_lane((uint32_t)((uint64_t)at >> 32), from);
        const int64_t key = (int64_t)(high << 32 | low) + s->place.kv_head * g->v.head;
        const char *v = element_at(dtype, g->v.data, key);
        if (dtype == QD_F32)
            add_value(QD_F32, dim, slots, v, w, acc);
        else if (dtype == QD_F16)
            add_value(QD_F16, dim, slots, v, w, acc);
        else if (dtype == QD_BF16)
            add_value(QD_BF16, dim, slots, v, w, acc);
        else
            add_value(dtype, dim, slots, v, w, acc);
    }
}

// ---- rows

QD_INLINE void add_tile(row_state *s, int slots, uint32_t tile, uint32_t end, float *acc) {
    const uint32_t j = tile + qd_lane();
    const float x = j < end ? score(s, j) : -__builtin_inff();
    const float max = larger(s->max, wave_max(x));
    if (!qd_ballot(x > -__builtin_inff() || x != x))
        return;
    float weight = qd_exp2(x - max);
    const float shrink = qd_exp2(s->max - max);
    s->sum = s->sum * shrink + wave_sum(weight);
    s->max = max;
    if (!s->has_groups && s->g->has_dropout)
        weight = drop_out(reread(s->g), &s->place, j, weight);
    QD_UNROLL for (int t = 0; t < slots; t++)
        acc[t] *= shrink;
    if (s->has_groups)
        add_values_of_groups(s, slots, tile, weight, acc);
    else
        add_values(s, slots, tile, weight, acc);
}

/** Stores a chunk that is a part of a request: o divided by its sum, and its log-sum-exp. */
QD_INLINE void store_partial(const row_state *s, int slots, int64_t row, const float *acc) {
    const qk_attention_args *g = reread(s->g);
    const float inverse = s->sum == 0 ? 0 : 1 / s->sum;
    QD_UNROLL for (int t = 0; t < slots; t++) {
        const uint32_t d = qd_lane() + (uint32_t)t * QD_WAVE;
        if (d < g->head_dim_vo)
            g->partial_o[row * g->head_dim_vo + d] = acc[t] * inverse;
    }
    if (qd_lane() == 0)
        g->partial_lse[row] = s->sum == 0 ? -__builtin_inff() : s->max + qd_log2(s->sum);
}

QD_INLINE void store_row(const row_state *s, int slots, const float *acc) {
    const qk_attention_args *g = reread(s->g);
    const row_end end = finish_row(g, &s->place, s->max, s->sum);
    const int64_t at = o_offset(g, &s->place);
    QD_UNROLL for (int t = 0; t < slots; t++) {
        const uint32_t d = qd_lane() + (uint32_t)t * QD_WAVE;
        if (d < g->head_dim_vo)
            store_o(g, at + d, acc[t] * end.factor);
    }
    if (qd_lane() == 0)
        store_lse(g, &s->place, end.lse);
}

QD_INLINE void run_chunk(row_state *s, int slots, uint32_t row, uint32_t begin, uint32_t end) {
    float acc[QK_ATTENTION_MAX_HEAD_DIM / QD_WAVE] = {};
    s->max = -__builtin_inff();
    s->sum = 0;
    uint32_t tile =
        begin; // goes in whole tiles from the chunk's begin to the first key that the row sees
    if (s->first_key > begin)
        tile += (s->first_key - begin) / QD_WAVE * QD_WAVE;
    for (; tile < qd_min(end, s->end_key); tile += QD_WAVE)
        add_tile(s, slots, tile, end, acc);
    if (s->request->partial_begin < 0)
        store_row(s, slots, acc);
    else
        store_partial(s, slots,
                      qk_attention_partial(s->g, s->request, begin, row, s->place.kv_head), acc);
}

QD_INLINE void run_row(const qk_attention_any_args *any, const qk_attention_request *r,
                       const qk_attention_work *work, uint32_t kv_head, uint32_t row, int slots,
                       bool has_tail, bool has_groups, QD_LDS float *q) {
    const qk_attention_args *g = reread(&any->common);
    const row_place place = find_row(g, r, work->request, kv_head, row);
    row_state s = {.any = any,
                   .g = &any->common,
                   .request = r,
                   .place = place,
                   .q = q,
                   .has_tail = has_tail,
                   .has_groups = has_groups,
                   .first_key = qk_attention_first_key(g, r, place.query),
                   .end_key = qk_attention_end_key(g, r, place.query),
                   .scale = score_scale(g, &place)};
    if (!has_groups && g->pos_encoding == QK_POS_ALIBI)
        s.slope = alibi_slope(g, place.head);
    load_q(&s, q);
    uint32_t begin = work->kv_begin;
    do {
        const uint32_t end = qk_attention_next_chunk(r, begin, work->kv_end);
        run_chunk(&s, slots, row, begin, end);
        begin = end;
    } while (begin < work->kv_end);
}

/** Computes a workgroup's share of a work item: each wave takes every WAVES-th row. */
QD_INLINE void take_work(const qk_attention_any_args *any, const qk_attention_work *work,
                         uint32_t kv_head, int slots, bool has_tail, bool has_groups,
                         QD_LDS float *q) {
    const qk_attention_request r = qk_attention_get_request(reread(&any->common), work->request);
    for (uint32_t row = work->row_begin + qd_wave(); row < work->row_end; row += WAVES)
        run_row(any, &r, work, kv_head, row, slots, has_tail, has_groups, q);
}

QD_INLINE void run(const qk_attention_any_args *any, int slots, bool has_tail, bool has_groups,
                   QD_LDS float *q) {
    const uint32_t count = qk_attention_count(&any->common) * any->common.num_kv_heads;
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const qk_attention_args *g = reread(&any->common);
        const qk_attention_work work = qk_attention_find(g, id / g->num_kv_heads);
        if (qk_attention_takes(g, work.request))
            take_work(any, &work, id % g->num_kv_heads, slots, has_tail, has_groups, q);
    }
}

#define ROWS_OF_Q(name, dim)                                                                       \
    [[clang::loader_uninitialized]] static QD_LDS float q_of_##name[WAVES][dim]
#define KERNEL(name, dim, tail)                                                                    \
    ROWS_OF_Q(name, (dim) + (tail));                                                               \
    QD_KERNEL(THREADS) name(const qk_attention_any_args any) {                                     \
        run(&any, (dim) / QD_WAVE, (tail) > 0, false, q_of_##name[qd_wave()]);                     \
    }
KERNEL(qk_attention_any_128, 128, 0)
KERNEL(qk_attention_any_512, 512, 0)
KERNEL(qk_attention_any_tail, QK_ATTENTION_MAX_HEAD_DIM, QK_ATTENTION_MAX_TAIL)

ROWS_OF_Q(groups, QK_ATTENTION_MAX_ROW);
QD_KERNEL(THREADS) qk_attention_any_groups(const qk_attention_groups_args g) {
    run(&g.any, QK_ATTENTION_MAX_HEAD_DIM / QD_WAVE, true, true, q_of_groups[qd_wave()]);
}
