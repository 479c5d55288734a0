// SPDX-License-Identifier: Apache-2.0
// Attention on matrix cores, CDNA's, RDNA's and NVIDIA's: any mask, window and layout of f16 and bf16, and of FP8 caches.
//
// Needs     wave matrix instructions of 16-bit kinds; k and v of q's kind, or with QK_FP8 of any FP8 kind; head dims that
//           are multiples of 8, at most QK_D; rows that begin at multiples of eight elements, 16 bytes or of FP8 8
// Tile      128 rows (QK_D = 256: 64 on NVIDIA and gfx12, 32 on gfx11), of which a wave owns 16 (CDNA 32), by TILE keys
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer
// LDS       a tile of k, keys as rows, and one of v, transposed. 16-byte piece p of row r stands at p ^ qd_mma_turn(r), of
//           v at p ^ qd_mma_turn(d) ^ d / 8, so that lanes that read and threads that transpose touch all banks
// Registers q and o of the wave's rows; scores and weights of a tile; half of the next tile, on its way
// Edges     keys past the end repeat the last one and are hidden; elements past a head's end are zeros; a tile that
//           none of the wave's rows sees is skipped, and only one that not all see pays for hiding some
// Schedule  put k into LDS, ask for v, meet; scores, maxima, weights; put v into LDS, ask for the next k, meet; o.
//           A row's sum and o are scaled anew only when its maximum has risen by more than RISE: weights stay
//           below 2^RISE, and each row decides for itself, so that bits do not depend on its neighbours
#include "attention_kv_gpu.h"

// ---- scores

QD_INLINE void multiply_keys(const wave *w, qd_mma_acc s[S_TILES]) {
    const uint32_t line = D > 128 || QD_MMA_OWN > 1 ? qd_opaque(qd_mma_line()) : qd_mma_line();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const uint32_t key = t * QD_MMA_KEYS + line;
        s[t] = 0;
        QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)k_at(key, i))
            s[t] = qd_mma(QK_F16, QD_MMA_READ(c, PIECE), w->q[c], s[t]);
#undef PIECE
        }
    }
}

/** Whether a score is more than the product times a positive number that all heads share. */
QD_INLINE bool has_transform(const qk_attention_args *g) {
    return g->soft_cap > 0 || g->pos_encoding != QK_POS_NONE || g->mask_kind != QK_MASK_NONE ||
           g->custom_mask || g->q_scales || g->k_scales || !(g->scale > 0);
}

QD_INLINE row_place place_of(const part *p, const row *r) {
    return (row_place){.request = p->index,
                       .query = r->query,
                       .head = r->head,
                       .kv_head = p->kv_head,
                       .token = (int64_t)p->request.qo_begin + r->query};
}

/** The base-2 score of a product, where it takes more than a scale. */
QD_INLINE float transform(const qk_attention_args *g, const part *p, const row *r, float s,
                          uint32_t key) {
    const bool is_there = r->exists && key < p->chunk_end;
    const row_place place = place_of(p, r);
    float x = s * r->scale;
    if (g->pos_encoding == QK_POS_ALIBI)
        x += alibi_slope(g, r->head) *
             (float)((int32_t)key - (int32_t)r->query - p->request.kv_len + p->request.qo_len);
    if (g->soft_cap > 0)
        x = soft_cap(g->soft_cap, x);
    if (g->mask_kind != QK_MASK_NONE && is_there)
        x += mask_value(g, &place, key);
    if (g->custom_mask && is_there && qk_attention_is_masked(g, &p->request, r->query, key))
        x = -__builtin_inff();
    // The least finite score is still a score.
    return x == -__builtin_inff() ? x : __builtin_fmaxf(x * log2_e, least);
}

/** Every score of a tile becomes a base-2 one. Four elements a turn, from the front of rings: code that is long, once. */
QD_INLINE void transform_all(const part *p, const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const qk_attention_args *g = reread(p->args);
    QD_NO_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        qd_mma_acc front = s[0];
        QD_NO_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4) {
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t key = begin + t * QD_MMA_KEYS + qd_mma_column(qd_mma_part(), e + i);
                front[i] = transform(g, p, &w->rows[qd_mma_own(i)], front[i], key);
            }
            front = qd_mma_turn4(front);
        }
        QD_UNROLL for (uint32_t i = 1; i < S_TILES; i++) {
            s[i - 1] = s[i];
        }
        s[S_TILES - 1] = front;
    }
}

/** Hides the keys of a tile that a lane's rows do not see. */
QD_INLINE void hide(const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const uint32_t part = qd_opaque(qd_mma_part());
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t key = begin + t * QD_MMA_KEYS + qd_mma_column(part, e);
            const row *r = &w->rows[qd_mma_own(e)];
            s[t][e] = key < r->first || key >= r->end ? -__builtin_inff() : s[t][e];
        }
    }
}

// ---- weights and sums

/** Where a maximum has risen far, the row's sum and o are scaled anew. */
QD_INLINE void rise(wave *w, const float tops[QD_MMA_OWN]) {
    bool rises[QD_MMA_OWN], any = false;
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        rises[i] = tops[i] > w->rows[i].top + RISE;
        any |= rises[i];
    }
    if (!qd_ballot(any))
        return;
    float factors[QD_MMA_OWN];
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        row *r = &w->rows[i];
        factors[i] = rises[i] ? qd_exp2(r->top - tops[i]) : 1;
        r->top = rises[i] ? tops[i] : r->top;
        r->sum *= factors[i];
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        w->o[n] *= qd_mma_spread(factors);
    }
}

enum {
    ELEMENTS = QD_MMA_ACC / QD_MMA_OWN,
    SCORES = S_TILES * ELEMENTS
}; // of a row: of a tile, of all

/** Score i of a lane's row. */
QD_INLINE float score(const qd_mma_acc s[S_TILES], uint32_t own, uint32_t i) {
    return s[i / ELEMENTS][own * ELEMENTS + i % ELEMENTS];
}

QD_INLINE float largest(const qd_mma_acc s[S_TILES], uint32_t own) {
    float top = score(s, own, 0);
    QD_UNROLL for (uint32_t i = 1; i < SCORES; i++) {
        top = __builtin_fmaxf(top, score(s, own, i));
    }
    return qd_mma_max(top);
}

/** A row's scores, times its `unit` of base 2, become weights. */
QD_INLINE void weigh_row(row *r, const qd_mma_acc s[S_TILES], uint32_t own, float unit,
                         qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    const float base =
        __builtin_fmaxf(r->top, least); // nothing seen yet: -infinity must not meet itself
    QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
        uint32_t packed[4];
        QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
            const uint32_t at = f * 8 + i * 2;
            const float a = qd_exp2(__builtin_fmaf(score(s, own, at), unit, -base));
            const float b = qd_exp2(__builtin_fmaf(score(s, own, at + 1), unit, -base));
            r->sum += a + b;
            packed[i] = qd_mma_pack(QK_F16, a, b);
        }
        weights[f][own] = qd_mma_weights(packed);
    }
}

QD_INLINE void weigh(wave *w, const qd_mma_acc s[S_TILES], bool transforms,
                     qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    float units[QD_MMA_OWN], tops[QD_MMA_OWN];
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        units[i] = transforms ? 1 : w->rows[i].scale * log2_e;
        tops[i] = largest(s, i) * units[i];
    }
    rise(w, tops);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        weigh_row(&w->rows[i], s, i, units[i], weights);
    }
}

QD_INLINE uint32_t my_column(void) {
    return SLICES == 1 ? 0 : qd_wave() % SLICES * COLUMNS;
}

QD_INLINE void multiply_values(wave *w, const qd_mma_operand p[FRAGMENTS][QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        const uint32_t d = my_column() + n * QD_MMA_KEYS + qd_mma_line();
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)v_at(d, (i) * 16))
            w->o[n] = qd_mma(QK_F16, QD_MMA_READ(f, PIECE), p[f], w->o[n]);
#undef PIECE
        }
    }
}

/** The tile of k in LDS: weights. */
QD_INLINE void take_keys(const part *p, wave *w, uint32_t begin, bool transforms,
                         qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    qd_mma_acc s[S_TILES];
    multiply_keys(w, s);
    if (transforms)
        transform_all(p, w, begin, s);
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, s);
    weigh(w, s, transforms, weights);
}

// ---- a row's beginning and end

QD_INLINE uint32_t first_key(const part *p, uint32_t row) {
    const qk_attention_args *g = reread(p->args);
    return qk_attention_first_key(g, &p->request, row / g->group);
}
QD_INLINE uint32_t end_key(const part *p, uint32_t row) {
    const qk_attention_args *g = reread(p->args);
    return qd_min(qk_attention_end_key(g, &p->request, row / g->group), p->chunk_end);
}

/** What the wave's rows from row_begin on see. */
QD_INLINE void find_keys(const part *p, wave *w, uint32_t row_begin) {
    const uint32_t last = qd_min(row_begin + QD_MMA_QUERIES, p->row_end) - 1;
    w->any_first = qd_uniform(first_key(p, row_begin));
    w->all_first = qd_uniform(first_key(p, last));
    w->any_end = row_begin < p->row_end ? qd_uniform(end_key(p, last)) : 0;
    w->all_end = qd_uniform(end_key(p, row_begin));
}

QD_INLINE row make_row(const part *p, uint32_t index) {
    const qk_attention_args *g = reread(p->args);
    const bool exists = index < p->row_end;
    row r = {.top = -__builtin_inff(),
             .query = index / g->group,
             .head = p->kv_head * g->group + index % g->group,
             .exists = exists,
             .first = first_key(p, index),
             .end = exists ? end_key(p, index) : 0};
    const row_place place = place_of(p, &r);
    r.scale = score_scale(g, &place);
    return r;
}

QD_INLINE void load_query(const part *p, wave *w, uint32_t own) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const row_place place = place_of(p, r);
    const char *q = (const char *)g->q.data + q_offset(g, &place) * 2;
    QD_UNROLL for (uint32_t c = 0; c < D / QD_MMA_K; c++) {
#define PIECE(i)                                                                                   \
    (r->exists && (i) * 8 < g->head_dim_qk ? *(const qd_u32x4 *)(q + (i) * 16) : (qd_u32x4)0)
        w->q[c][own] = QD_MMA_READ(c, PIECE);
#undef PIECE
    }
}

QD_INLINE void begin_rows(const part *p, wave *w, uint32_t row_begin) {
    const uint32_t begin = row_begin + qd_wave() / SLICES * QD_MMA_QUERIES;
    find_keys(p, w, begin);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        w->rows[i] = make_row(p, begin + qd_mma_query(i));
        load_query(p, w, i);
    }
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        w->o[n] = 0;
    }
}

/** Stores a row's elements times `factor` at o. */
QD_INLINE void store_row(const part *p, const wave *w, uint32_t own, int dtype, char *o,
                         float factor) {
    const uint32_t head_dim = reread(p->args)->head_dim_vo;
    const uint32_t begin = my_column() + qd_opaque(qd_mma_part()) * QD_MMA_RUNS * QD_MMA_RUN;
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        QD_UNROLL for (uint32_t r = 0; r < QD_MMA_RUNS; r++) {
            const uint32_t d = begin + n * QD_MMA_KEYS + r * QD_MMA_RUN;
            const qd_mma_run run = qd_mma_get_run(w->o[n], own, r) * factor;
            if (w->rows[own].exists && d < head_dim)
                qd_mma_store_run(dtype, o + d * qd_element_bytes(dtype), run);
        }
    }
}

/** Whether this lane is the one that stores what a row has one of. */
QD_INLINE bool speaks_for(const row *r) {
    return r->exists && my_column() == 0 && qd_mma_part() == 0;
}

/** The results of a chunk that others are merged with. */
QD_INLINE void store_partial(const part *p, const wave *w, uint32_t own, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const uint32_t row = r->query * g->group + r->head - p->kv_head * g->group;
    const int64_t at = qk_attention_partial(g, &p->request, p->chunk_begin, row, p->kv_head);
    char *o = (char *)(g->partial_o + at * g->head_dim_vo);
    store_row(p, w, own, QD_F32, o, sum > 0 ? 1 / sum : 0);
    if (speaks_for(r))
        g->partial_lse[at] = r->top + log2_of(sum);
}

QD_INLINE void store_result(const part *p, const wave *w, uint32_t own, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[own];
    const row_place place = place_of(p, r);
    const row_end end = finish_row(g, &place, r->top, sum);
    const int64_t at = o_offset(g, &place);
    char *o = g->o;
    if (g->dtype_o == QD_F32)
        store_row(p, w, own, QD_F32, o + at * 4, end.factor);
    else if (g->dtype_o == QD_F16)
        store_row(p, w, own, QD_F16, o + at * 2, end.factor);
    else
        store_row(p, w, own, QD_BF16, o + at * 2, end.factor);
    if (speaks_for(r))
        store_lse(g, &place, end.lse);
}

// ---- the kernel

/** The tiles of keys of a chunk that rows row_begin to row_end - 1 see. */
QD_INLINE void take_chunk(const part *p, wave *w, uint32_t row_begin, uint32_t row_end) {
    const qk_attention_args *g = reread(p->args);
    const bool transforms = has_transform(g);
    const uint32_t end = end_key(p, row_end - 1);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    if (tile < end)
        fetch(p, w, false, tile);
    for (; tile < end; tile += TILE) {
        const bool is_seen = tile < w->any_end && tile + TILE > w->any_first;
        qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
        land(p, w, false);
        fetch(p, w, true, tile);
        qd_barrier();
        if (is_seen)
            take_keys(p, w, tile, transforms, weights);
        land(p, w, true);
        if (tile + TILE < end)
            fetch(p, w, false, tile + TILE);
        qd_barrier();
        if (is_seen)
            multiply_values(w, weights);
    }
    qd_barrier(); // the next tile of v lands when all have read this one
}

QD_INLINE void take_rows(const part *p, uint32_t row_begin) {
    wave w;
    begin_rows(p, &w, row_begin);
    take_chunk(p, &w, row_begin, qd_min(row_begin + ROWS, p->row_end));
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const float sum = qd_mma_sum(w.rows[i].sum);
        if (p->request.partial_begin < 0)
            store_result(p, &w, i, sum);
        else
            store_partial(p, &w, i, sum);
    }
}

/** The same, in scalar registers. */
#define UNIFORM(x) ((typeof(x))qd_uniform((uint32_t)(x)))
QD_INLINE int64_t uniform64(int64_t x) {
    return (int64_t)((uint64_t)qd_uniform((uint32_t)(x >> 32)) << 32 | qd_uniform((uint32_t)x));
}
QD_INLINE qk_attention_request uniform_request(qk_attention_request r) {
    return (qk_attention_request){.mask_begin = uniform64(r.mask_begin),
                                  .partial_begin = uniform64(r.partial_begin),
                                  .qo_begin = UNIFORM(r.qo_begin),
                                  .qo_len = UNIFORM(r.qo_len),
                                  .kv_begin = UNIFORM(r.kv_begin),
                                  .kv_len = UNIFORM(r.kv_len),
                                  .kv_chunk = UNIFORM(r.kv_chunk)};
}
QD_INLINE qk_attention_work uniform_work(qk_attention_work w) {
    return (qk_attention_work){UNIFORM(w.request), UNIFORM(w.row_begin), UNIFORM(w.row_end),
                               UNIFORM(w.kv_begin), UNIFORM(w.kv_end)};
}

/** One workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    const qk_attention_args *g = reread(args);
    part p = {.args = args,
              .request = uniform_request(qk_attention_get_request(g, work->request)),
              .index = work->request,
              .kv_head = kv_head,
              .row_end = work->row_end,
              .chunk_begin = work->kv_begin,
              .is_whole = !g->kv_indices && is_near(g->k.token) && is_near(g->v.token),
              .k_pieces = g->head_dim_qk / 8,
              .kind = (int)g->dtype_kv - 3, // qni_dtype's first of FP8
              .mover = make_mover()};
    p.k = make_source(&p, &g->k, g->head_dim_qk);
    p.v = make_source(&p, &g->v, g->head_dim_vo);
    clear_keys(&p);
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS) {
            take_rows(&p, row);
        }
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

__attribute__((QK_OCCUPANCY)) QD_KERNEL(THREADS) qk_attention_tile(qk_attention_args args) {
    const uint32_t heads = args.num_kv_heads, parts = qk_attention_count(&args) * heads;
    for (uint32_t id = qd_block(); id < parts; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(reread(&args), id / heads));
        take_work(&args, &work, id % heads);
    }
}
