// SPDX-License-Identifier: Apache-2.0
// Attention's gradients on the matrix cores of CDNA, RDNA and, from sm_80 on, NVIDIA's: any mask,
// window, cap and dropout of f16 and bf16. A kernel of queries gives dq, and delta = <d_o, o> on
// its way; a kernel of keys, after it, dk and dv; where it is asked for, a third one the mask's
// gradient (attention_backward_mask_gpu.h). No two waves add to one element, so that there are no
// atomics, and sums have one order: heads of a group one after another, and tiles of each from the
// first on.
//
// Needs     wave matrix instructions of 16-bit kinds; q, k, v and o of one kind; head dims that are
//           multiples of 8, at most QK_D; rows that begin at multiples of 16 bytes
// Tile      QK_TILE rows by QD_MMA_COLUMNS columns of each of QK_THREADS' waves, which own them
//           (attention_backward_rows_gpu.h)
// Launch    QK_THREADS threads; as many workgroups as all requests' heads have tiles of columns, or
//           fewer
// LDS       QK_STAGES tiles of the first tensor that passes by, rows and turned; one of the second,
//           turned where keys are owned; what is owned but not in registers: 2 - QK_HELD tensors
// Registers what is owned, its gradients; scores and their gradients of a group of rows; a tile of
//           one tensor, on its way
// Edges     rows past the end repeat the last one and are hidden; elements past a head's end are
//           zeros; a tile that none of a wave's columns sees is skipped, and only one that not all
//           see pays for hiding some
// Schedule  scores; put the second tensor into LDS, ask for the next tile of the first, meet; their
//           gradients, weights, sums; put the first into LDS, ask for the second, meet
// Source    arXiv:2205.14135, appendix B; arXiv:2307.08691
#include "attention_backward_rows_gpu.h"
#include "results.h"

/** A tile of rows, as a wave takes it. */
typedef struct tile {
    uint32_t begin, stage, head; // its first row; its place in LDS; the head of q
} tile;

// ---- products

/** Returns the lane's line of a tile. */
QD_INLINE uint32_t my_line(void) {
    return is_tight ? qd_opaque(qd_mma_line()) : qd_mma_line();
}

QD_INLINE qd_mma_acc multiply(const wave *w, uint32_t which, uint32_t c, qd_mma_operand x,
                              qd_mma_acc d) {
#if QK_HELD < 2
    if (which >= HELD) {
        qd_mma_operand y[QD_MMA_OWN];
        QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
#define PIECE(n) (*(QD_LDS qd_u32x4 *)owned_at(which, i, n))
            y[i] = QD_MMA_READ(c, PIECE);
#undef PIECE
        }
        return qd_mma(QK_F16, x, y, d);
    }
#endif
    return qd_mma(QK_F16, x, w->own[which][c], d);
}

/** Multiplies a group of rows and the columns. */
QD_INLINE void multiply_rows(const wave *w, uint32_t which, const QD_LDS uint8_t *rows,
                             uint32_t group, qd_mma_acc d[S_TILES]) {
    const uint32_t line = my_line();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const uint32_t row = group * GROUP + t * QD_MMA_ROWS + line;
        d[t] = 0;
        QD_UNROLL for (uint32_t c = 0; c < D_STEPS; c++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)(rows + row_at(row, i)))
            d[t] = multiply(w, which, c, QD_MMA_READ(c, PIECE), d[t]);
#undef PIECE
            if (is_tight && c % 2 == 1) // no more operands than these wait in registers
                qd_pin();
        }
        qd_keep_result(&d[t]);
    }
}

/** Adds a group of rows, times their weights, to the columns' sums. */
QD_INLINE void add_rows(qd_mma_acc sums[D_TILES], const QD_LDS uint8_t *turned, uint32_t group,
                        const qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    const uint32_t line = my_line();
    QD_UNROLL for (uint32_t n = 0; n < D_TILES; n++) {
        const uint32_t d = n * QD_MMA_ROWS + line;
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)(turned + turned_at(d, (i) * 16)))
            sums[n] =
                qd_mma(QK_F16, QD_MMA_READ(group * FRAGMENTS + f, PIECE), weights[f], sums[n]);
#undef PIECE
        }
    }
}

// ---- weights

/** Returns the numbers of element e of a group's tile t. */
QD_INLINE float base_of(const wave *w, const tile *at, uint32_t row, uint32_t own) {
#if QK_OF_KEYS
    (void)w, (void)own;
    return numbers[at->stage][0][row];
#else
    (void)at, (void)row;
    return w->columns[own].base;
#endif
}
QD_INLINE float delta_of_row(const wave *w, const tile *at, uint32_t row, uint32_t own) {
#if QK_OF_KEYS
    (void)w, (void)own;
    return numbers[at->stage][1][row];
#else
    (void)at, (void)row;
    return w->columns[own].delta;
#endif
}

/** A pair of a row and a column: the product of q and k, then the weight for the product with d_o;
 *  that of d_o and v, then the gradient of the score. */
typedef struct pair {
    float s, dp;
} pair;

/** Returns whether a mask hides the pair. */
QD_INLINE bool is_masked(const part *p, const row_place *row, uint32_t key) {
    const qk_attention_args *g = &again(p->args)->common;
    return qk_attention_is_masked(g, &p->request, row->query, key) ||
           (g->mask_kind && mask_value(g, row, key) == -__builtin_inff());
}

/** Weighs a pair whose score is more than the scaled product. q's own scales, which differ from
 *  head to head, enter the gradient here, and all others at the end; none enters a mask's.
 *  `of_mask` is a constant. */
QD_INLINE pair weigh_pair(const part *p, const row_place *row, uint32_t key, bool of_mask, pair x,
                          float base, float delta) {
    const qk_attention_args *g = &again(p->args)->common;
    const qk_attention_request *r = &p->request;
    float score = x.s * score_scale(g, row), rise = g->q_scales ? g->q_scales[row->head] : 1.0f;
    if (g->pos_encoding == QK_POS_ALIBI)
        score += alibi_slope(g, row->head) *
                 (float)((int32_t)key - (int32_t)row->query - r->kv_len + r->qo_len);
    if (g->soft_cap > 0) {
        score = soft_cap(g->soft_cap, score);
        const float tanh = score / g->soft_cap;
        rise *= 1 - tanh * tanh;
    }
    if (g->mask_kind)
        score += mask_value(g, row, key);
    const float weight = qd_exp2(score * log2_e + base);
    const float kept = g->has_dropout ? drop_out(g, row, key, 1) : 1;
    const float ds = weight * (x.dp * kept * p->factor - delta);
    return (pair){weight * kept, of_mask ? ds : ds * rise};
}

QD_INLINE pair transform(const part *p, const wave *w, const tile *at, uint32_t row, uint32_t own,
                         bool of_mask, pair x) {
    const column *c = &w->columns[own];
    const uint32_t index = at->begin + row;
    const row_place place = place_of(p, at->head, OF_KEYS ? index : c->index);
    const uint32_t key = OF_KEYS ? c->index : index;
    if (!c->exists || index < c->first || index >= c->end || is_masked(p, &place, key))
        return (pair){};
    return weigh_pair(p, &place, key, of_mask, x, base_of(w, at, row, own),
                      delta_of_row(w, at, row, own));
}

/** Weighs a group. A loop handles the four elements at the front of the accumulators and then
 *  rotates these, so that the long code stands in the kernel only four times. */
QD_INLINE void transform_all(const part *p, const wave *w, const tile *at, uint32_t group,
                             bool of_mask, qd_mma_acc s[S_TILES], qd_mma_acc dp[S_TILES]) {
    QD_NO_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        qd_mma_acc a = s[0], b = dp[0];
        QD_NO_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4) {
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t row =
                    group * GROUP + t * QD_MMA_ROWS + qd_mma_row(qd_mma_part(), e + i);
                const pair x = transform(p, w, at, row, qd_mma_own(i), of_mask, (pair){a[i], b[i]});
                a[i] = x.s, b[i] = x.dp;
            }
            a = qd_mma_turn4(a), b = qd_mma_turn4(b);
        }
        QD_UNROLL for (uint32_t i = 1; i < S_TILES; i++)
            s[i - 1] = s[i], dp[i - 1] = dp[i];
        s[S_TILES - 1] = a, dp[S_TILES - 1] = b;
    }
}

/** Hides the rows of a group that a lane's columns do not see: the unit of scores is positive. */
QD_INLINE void hide(const wave *w, const tile *at, uint32_t group, qd_mma_acc s[S_TILES]) {
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t row =
                at->begin + group * GROUP + t * QD_MMA_ROWS + qd_mma_row(qd_mma_part(), e);
            const column *c = &w->columns[qd_mma_own(e)];
            s[t][e] = row < c->first || row >= c->end ? -__builtin_inff() : s[t][e];
        }
    }
}

/** Weighs a group whose scores are scaled products. */
QD_INLINE void weigh_all(const part *p, const wave *w, const tile *at, uint32_t group,
                         qd_mma_acc s[S_TILES], qd_mma_acc dp[S_TILES]) {
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t row = group * GROUP + t * QD_MMA_ROWS + qd_mma_row(qd_mma_part(), e);
            const uint32_t own = qd_mma_own(e);
            s[t][e] = qd_exp2(__builtin_fmaf(s[t][e], p->unit, base_of(w, at, row, own)));
            dp[t][e] =
                s[t][e] * __builtin_fmaf(dp[t][e], p->factor, -delta_of_row(w, at, row, own));
        }
    }
}

/** Rounds a group's numbers, as the next product takes them. */
QD_INLINE void pack(const qd_mma_acc x[S_TILES], qd_mma_operand out[FRAGMENTS][QD_MMA_OWN]) {
    QD_UNROLL for (uint32_t own = 0; own < QD_MMA_OWN; own++) {
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
            uint32_t packed[4];
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t at = f * 8 + i * 2;
                const qd_mma_acc *from = &x[at / ELEMENTS];
                packed[i] = qd_round_results(QK_F16, (*from)[own * ELEMENTS + at % ELEMENTS],
                                             (*from)[own * ELEMENTS + at % ELEMENTS + 1]);
            }
            out[f][own] = qd_mma_from_results(packed);
        }
    }
}

// ---- tiles

/** Adds a group of rows, whose products with the first of what is owned are *s. `transforms` is a
 *  constant: scores are more than the product times a positive number. */
QD_INLINE void add_group(const part *p, wave *w, const tile *at, uint32_t group, bool transforms,
                         qd_mma_acc s[S_TILES]) {
    qd_mma_acc dp[S_TILES];
    qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
    multiply_rows(w, 1, second_rows, group, dp);
    if (transforms) {
        transform_all(p, w, at, group, false, s, dp);
    } else {
        if (at->begin < w->all_first || at->begin + TILE > w->all_end)
            hide(w, at, group, s);
        weigh_all(p, w, at, group, s, dp);
    }
#if QK_OF_KEYS
    pack(s, weights);
    add_rows(w->sums[1], second_turned, group, weights);
#endif
    pack(dp, weights);
    add_rows(w->sums[0], first_turned + at->stage * TILE_BYTES, group, weights);
}

/** What passes by: tiles of each head's rows. */
typedef struct march {
    source from[2];
    uint32_t first, end, heads; // rows; heads that are left, this one too
    tile at;
} march;

QD_INLINE void set_head(const part *p, march *m, uint32_t head) {
    m->at.head = head;
    m->from[0] = make_source(p, 0, OF_KEYS ? head : p->kv_head);
    m->from[1] = make_source(p, 1, OF_KEYS ? head : p->kv_head);
}

/** Returns the rows that the workgroup's columns see, from the first tile on. */
QD_INLINE march make_march(const part *p) {
    const uint32_t last = qd_min(p->begin + COLUMNS, p->columns) - 1;
    const uint32_t first = qd_uniform(range_of(p, p->begin).begin) / TILE * TILE;
    march m = {.first = first,
               .end = qd_uniform(range_of(p, last).end),
               .heads = OF_KEYS ? again(p->args)->common.group : 1,
               .at = {.begin = first}};
    set_head(p, &m, p->head);
    return m;
}

/** Goes on to the next tile. Returns whether there is one. */
QD_INLINE bool go_on(const part *p, march *m) {
    m->at.begin += TILE;
    m->at.stage = STAGES - 1 - m->at.stage;
    if (m->at.begin < m->end)
        return true;
    if (--m->heads == 0)
        return false;
    m->at.begin = m->first;
    set_head(p, m, m->at.head + 1);
    return true;
}

QD_INLINE void fetch_first(const part *p, carrier *c, const march *m) {
    fetch(p, c, 0, &m->from[0], m->at.begin);
#if QK_OF_KEYS
    fetch_numbers(p, c, m->at.head, m->at.begin);
#endif
}
/** Writes the first tensor's tile to LDS, and asks for the second's. */
QD_INLINE void land_first(const part *p, carrier *c, const march *m) {
    land(p, c, 0, m->at.stage);
#if QK_OF_KEYS
    land_numbers(c, m->at.stage);
#endif
    fetch(p, c, 1, &m->from[1], m->at.begin);
}

/** Adds all tiles of rows that the columns see. */
QD_INLINE void take_rows(const part *p, carrier *c, wave *w, bool transforms) {
    march m = make_march(p);
    if (m.first >= m.end)
        return;
    fetch_first(p, c, &m);
    land_first(p, c, &m);
    qd_barrier();
    for (bool goes_on = true; goes_on;) {
        const tile at = m.at;
        const bool is_seen = at.begin < w->any_end && at.begin + TILE > w->any_first;
        const QD_LDS uint8_t *rows = first_rows + at.stage * TILE_BYTES;
        qd_mma_acc s[S_TILES];
        if (GROUPS == 1 && is_seen)
            multiply_rows(w, 0, rows, 0, s);
        land(p, c, 1, 0);
        goes_on = go_on(p, &m);
        if (goes_on)
            fetch_first(p, c, &m);
        qd_barrier();
        if (is_seen) QD_NO_UNROLL
            for (uint32_t i = 0; i < GROUPS; i++) {
                if (GROUPS > 1)
                    multiply_rows(w, 0, rows, i, s);
                add_group(p, w, &at, i, transforms, s);
            }
        if (STAGES == 1)
            qd_barrier();
        if (goes_on)
            land_first(p, c, &m);
        qd_barrier();
    }
}

// ---- gradients

QD_INLINE void store_as(int dtype, char *row, const wave *w, uint32_t which, uint32_t own,
                        uint32_t dim, float factor) {
    const uint32_t begin = qd_mma_part() * QD_MMA_RUNS * QD_MMA_RUN;
    QD_UNROLL for (uint32_t n = 0; n < D_TILES; n++) {
        QD_UNROLL for (uint32_t r = 0; r < QD_MMA_RUNS; r++) {
            const uint32_t d = begin + n * QD_MMA_ROWS + r * QD_MMA_RUN;
            const qd_mma_run run = qd_mma_get_run(w->sums[which][n], own, r) * factor;
            if (w->columns[own].exists && d < dim)
                qd_mma_store_run(dtype, row + d * qd_element_bytes(dtype), run);
        }
    }
}

/** Stores a gradient of the wave's columns, times `factor`. */
QD_INLINE void store(const part *p, const wave *w, uint32_t which, const qk_attention_rows *to,
                     uint32_t dtype, float factor) {
    const uint32_t dim = dim_of(again(p->args), which);
    QD_UNROLL for (uint32_t i = 0; i < QD_MMA_OWN; i++) {
        const int64_t at = row_begin(p, to, OF_KEYS, OF_KEYS ? p->kv_head : p->head) +
                           qd_opaque(w->columns[i].index) * to->token;
        char *row = (char *)element_at(dtype, to->data, at);
        if (dtype == QD_F32)
            store_as(QD_F32, row, w, which, i, dim, factor);
        else if (dtype == QD_F16)
            store_as(QD_F16, row, w, which, i, dim, factor);
        else
            store_as(QD_BF16, row, w, which, i, dim, factor);
    }
}

QD_INLINE void store_all(const part *p, const wave *w) {
    const qk_backward_args *b = again(p->args);
    const float scale =
        b->common.scale * (b->common.k_scales ? b->common.k_scales[p->kv_head] : 1.0f);
#if QK_OF_KEYS
    store(p, w, 0, &b->dk, b->dtype_dk, scale);
    store(p, w, 1, &again(p->args)->dv, again(p->args)->dtype_dv, p->factor);
#else
    store(p, w, 0, &b->dq, b->dtype_dq, scale);
#endif
}

// ---- the kernel

/** Returns the part of the columns from `begin` on, of a head of q and a request. */
QD_INLINE part part_of(const qk_backward_args *args, uint32_t index, uint32_t head,
                       uint32_t begin) {
    const qk_attention_args *g = &again(args)->common;
    const qk_attention_request r = qk_attention_get_request(g, index);
    const uint32_t kv_head = head / g->group;
    const float scale = g->scale * (g->k_scales ? g->k_scales[kv_head] : 1.0f);
    return (part){.args = args,
                  .request = r,
                  .index = index,
                  .head = head,
                  .kv_head = kv_head,
                  .begin = begin,
                  .columns = (uint32_t)(OF_KEYS ? r.kv_len : r.qo_len),
                  .rows = (uint32_t)(OF_KEYS ? r.qo_len : r.kv_len),
                  .unit = scale * log2_e,
                  .factor = g->v_scale * (g->v_scales ? g->v_scales[kv_head] : 1.0f)};
}

/** Returns the part of a workgroup: of tiles, the ones that see most with causality come first. */
QD_INLINE part make_part(const qk_backward_args *args, uint32_t id) {
    const qk_attention_args *g = &again(args)->common;
    const uint32_t heads = g->num_kv_heads * (OF_KEYS ? 1 : g->group), head = id % heads;
    const uint32_t requests = qk_attention_num_requests(g), index = id / heads % requests;
    const uint32_t tiles = qd_div_up(OF_KEYS ? again(args)->max_kv : again(args)->max_qo, COLUMNS);
    const uint32_t number = id / heads / requests;
    return part_of(args, index, OF_KEYS ? head * g->group : head,
                   (OF_KEYS ? number : tiles - 1 - number) * COLUMNS);
}

QD_INLINE void run(const qk_backward_args *args, bool transforms) {
    const qk_attention_args *g = &args->common;
    const uint32_t tiles = qd_div_up(OF_KEYS ? args->max_kv : args->max_qo, COLUMNS);
    const uint32_t heads = g->num_kv_heads * (OF_KEYS ? 1 : g->group);
    const uint32_t count = tiles * heads * qk_attention_num_requests(g);
    carrier c;
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const part p = make_part(args, id);
        if (p.begin >= p.columns)
            continue;
        wave w;
        begin_columns(&p, &w, p.begin + qd_wave() * QD_MMA_COLUMNS, false);
        clear_rest(&p);
        take_rows(&p, &c, &w, transforms);
        store_all(&p, &w);
    }
}

/** For scores that are the product times a positive number, and weights that are powers of these.
 *  */
QD_WAVES_PER_EU(QK_MIN_WAVES, QK_MAX_WAVES)
QD_KERNEL(THREADS) qk_backward_tile(const qk_backward_args args) {
    run(&args, false);
}
/** For all others, which take more registers. */
QD_WAVES_PER_EU((QK_MIN_WAVES + 1) / 2, QK_MAX_WAVES)
QD_KERNEL(THREADS) qk_backward_tile_any(const qk_backward_args args) {
    run(&args, true);
}

#if !QK_OF_KEYS
#include "attention_backward_mask_gpu.h"
#endif
