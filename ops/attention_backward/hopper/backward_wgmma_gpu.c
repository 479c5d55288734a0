// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention by Hopper's tensor cores: a workgroup a tile of keys, which walks
// the blocks of queries that see any of them.
//
// Needs     sm_90a; q, k, v, o and d_o of bf16, with -DQK_F16 of f16; head dims that are multiples
//           of 8, at most QK_D; scores that are products times one positive number; no left bound
//           of a window
// Tile      128 keys, 64 a team, by QUERIES queries; scores lie as [keys, queries]
// Launch    384 threads, a workgroup a tile of keys and kv head; tiles are numbered so that the
//           first ones of all heads come first
// LDS       the tile of k and of v, STAGES of q with its rows' numbers, of d_o, of ds and of dq;
//           barriers. Boxes of 64 columns with the 128-byte swizzle
// Registers of a thread: QK_D / 2 sums of dk and of dv; SUMS scores, as many dp; DQ_SUMS of dq
// Roles     two teams multiply; of the third one wave loads, two threads add dq up in memory
// Order     a row's dq is the sum over tiles of keys, from the first to the last: who adds waits
//           until the tile before has been added, which an earlier workgroup does
// Edges     what lies outside a tensor loads as zero; rows of other requests are cleared in LDS.
//           Rows of no query have an infinite log-sum-exp, and weights of zero; scores of keys that
//           a query does not see are hidden
// Schedule  a team has products under way all the time: while it computes weights, ds k^T's of the
//           block before and dp's run; while it computes ds, dv's; while it stores dq, the next
//           block's scores
// Source    arXiv:2407.08608
#include "backward_wgmma_gpu.h"

#include "bulk_add.h"
#include "flag.h"
#include "tensor_copy.h"

// SUMS, a thread's scores of a block, and OWN_SUMS, its elements of dk or dv, name operands.
#if QK_D == 64
#define SUMS 64
#define OWN_SUMS 32
#define N_QUERIES 128
#else
#define SUMS 32
#define OWN_SUMS 64
#define N_QUERIES 64
#endif
static_assert(N_QUERIES == QUERIES && SUMS == QUERIES / 2 && OWN_SUMS == QK_D / 2);
#ifdef QK_F16
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.f16.f16"
#else
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.bf16.bf16"
#endif

enum {
    BOX = QK_BACKWARD_BOX,
    BOXES = QK_D / BOX,
    LINE = 128,                   // bytes of a row of a box
    K_BOX_BYTES = KEYS * LINE,    // of k and v
    Q_BOX_BYTES = QUERIES * LINE, // of q and d_o
    DS_BOX_BYTES = KEYS * LINE,   // of ds, whose columns are queries
    K_BYTES = BOXES * K_BOX_BYTES,
    Q_BYTES = BOXES * Q_BOX_BYTES,
    ROWS_BYTES = 2 * QUERIES * 4, // log-sum-exps, then deltas
    DS_BYTES = QUERIES / BOX * DS_BOX_BYTES,
    TEAM_DQ_BYTES = DQ_SUMS * QD_TEAM * 4,
    STAGES = 2,
    K_AT = 0,
    V_AT = K_AT + K_BYTES,
    Q_AT = V_AT + K_BYTES,
    D_O_AT = Q_AT + STAGES * Q_BYTES,
    DS_AT = D_O_AT + STAGES * Q_BYTES,
    DQ_AT = DS_AT + 2 * DS_BYTES,
    ROWS_AT = DQ_AT + 2 * TEAMS * TEAM_DQ_BYTES,
    K_FULL_AT = ROWS_AT + STAGES * ROWS_BYTES,
    Q_FULL_AT = K_FULL_AT + 8,
    Q_EMPTY_AT = Q_FULL_AT + 8 * STAGES,
    D_O_FULL_AT = Q_EMPTY_AT + 8 * STAGES,
    D_O_EMPTY_AT = D_O_FULL_AT + 8 * STAGES,
    DQ_FULL_AT = D_O_EMPTY_AT + 8 * STAGES, // for each of the threads that add, and each team
    DQ_EMPTY_AT = DQ_FULL_AT + 16 * TEAMS,
    PART_AT = DQ_EMPTY_AT + 16 * TEAMS, // for what is to be cleared before it is full
    LDS_BYTES = PART_AT + 8
};
static_assert(LDS_BYTES <= 232448, "more than a multiprocessor's LDS");

// ---- tiles of keys

typedef struct tile {
    qk_attention_request request;
    uint32_t index, kv_head, number; // of the request; the tile's number among its head's
    uint32_t key;                    // the first
    uint32_t first, blocks;          // blocks of queries first .. blocks - 1 see the tile
    uint32_t steps;                  // blocks of all of the group's heads
    uint32_t first_block;            // the request's
} tile;

QD_INLINE tile find_tile(const qk_backward_wgmma_args *p) {
    const qk_attention_args *g = &p->common.common;
    const uint32_t heads = p->requests * g->num_kv_heads;
    const uint32_t number = qd_block() / heads, rest = qd_block() % heads;
    const uint32_t index = rest / g->num_kv_heads, key = number * KEYS;
    const qk_attention_request r = qk_attention_get_request(g, index);
    const uint32_t queries = qk_backward_queries(g, &r, key, key + KEYS - 1).begin;
    tile t = {.request = r,
              .index = index,
              .kv_head = rest % g->num_kv_heads,
              .number = number,
              .key = key,
              .first = number ? queries / QUERIES : 0, // the first tile begins all sums of dq
              .blocks = qd_div_up((uint32_t)r.qo_len, QUERIES),
              .first_block = qk_backward_first_block(p, &r, index, QUERIES)};
    t.first = qd_min(t.first, t.blocks);
    if (number && queries >= (uint32_t)r.qo_len)
        t.first = t.blocks;
    t.steps = g->group * (t.blocks - t.first);
    return t;
}

/** Where a thread is in the walk over a tile's blocks: heads of the group one after the other, of
 *  each the blocks from the last to the first. */
typedef struct walk {
    uint32_t head, at; // of the group; the block
} walk;

QD_INLINE walk begin_walk(const tile *t) {
    return (walk){0, t->blocks - 1};
}
QD_INLINE void advance(walk *w, const tile *t) {
    const bool ends = w->at == t->first;
    w->head += ends;
    w->at = ends ? t->blocks - 1 : w->at - 1;
}

/** Returns the number of the walk's block among those of all heads. */
QD_INLINE int64_t number_of(const qk_backward_wgmma_args *p, const tile *t, const walk *w) {
    const uint32_t head = t->kv_head * p->common.common.group + w->head;
    return (int64_t)head * p->blocks + t->first_block + w->at;
}

// ---- the wave that loads

enum { MAP_BYTES = sizeof(qk_tensor_map) };
#define MAP_Q (maps)
#define MAP_K (maps + MAP_BYTES)
#define MAP_V (maps + 2 * MAP_BYTES)
#define MAP_D_O (maps + 3 * MAP_BYTES)

/** A tile or block on its way to LDS. */
typedef struct load {
    uint32_t to, rows, bytes, full; // its place; of a box; of all copies; the barrier
    uint32_t head, token, request;  // where it begins
    uint32_t count;                 // of its rows that the request has
} load;

/** Starts a load's copies of one tensor. */
QD_INLINE void copy_boxes(const load *x, uint32_t to, uint64_t map, uint32_t bar) {
    if (qd_lane() == 0) QD_UNROLL
        for (uint32_t i = 0; i < BOXES; i++)
            qd_tensor_load4(to + i * x->rows * LINE, map, bar, i * BOX, x->head, x->token,
                            x->request);
}

/** Clears in LDS what lies behind the request's last row. */
QD_INLINE void clear_rows(const load *x, uint32_t to) {
    QD_NO_UNROLL for (uint32_t i = x->count * (LINE / 16) + qd_lane(); i < x->rows * (LINE / 16);
                      i += QD_WAVE) QD_UNROLL
        for (uint32_t box = 0; box < BOXES; box++)
            *(QD_LDS qd_u32x4 *)(uintptr_t)(to + box * x->rows * LINE + i * 16) = 0;
}

/** Where the wave that loads is. */
typedef struct loader {
    uint32_t base;
    bool may_clear;  // rows behind a request's last may be of other requests
    uint32_t parity; // of the barrier for what is to be cleared
} loader;

/** Returns the barrier that counts a load's bytes: the load's own, unless it is to be cleared. */
QD_INLINE uint32_t begin_load(const loader *l, const load *x) {
    const uint32_t bar = l->may_clear && x->count < x->rows ? l->base + PART_AT : x->full;
    if (qd_lane() == 0)
        qd_mbarrier_expect(bar, x->bytes);
    return bar;
}
/** Ends a load of one or two tensors. */
QD_INLINE void end_load(loader *l, const load *x, uint32_t to, uint32_t other) {
    if (!l->may_clear || x->count >= x->rows)
        return;
    qd_mbarrier_wait(l->base + PART_AT, l->parity);
    l->parity ^= 1;
    clear_rows(x, to);
    if (other != to)
        clear_rows(x, other);
    qd_async_fence();
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(x->full);
}

QD_INLINE void load_keys(const qk_backward_wgmma_args *p, uint64_t maps, loader *l, const tile *t) {
    const load x = {.to = l->base + K_AT,
                    .rows = KEYS,
                    .bytes = 2 * K_BYTES,
                    .full = l->base + K_FULL_AT,
                    .head = t->kv_head,
                    .token = (uint32_t)t->request.kv_begin + t->key,
                    .request = t->index * p->kv_step,
                    .count = qd_min((uint32_t)t->request.kv_len - t->key, KEYS)};
    const uint32_t bar = begin_load(l, &x);
    copy_boxes(&x, x.to, MAP_K, bar);
    copy_boxes(&x, l->base + V_AT, MAP_V, bar);
    end_load(l, &x, x.to, l->base + V_AT);
}

/** Loads a block of q with its rows' numbers, or of d_o. */
QD_INLINE void load_block(const qk_backward_wgmma_args *p, uint64_t map, loader *l, const tile *t,
                          const walk *w, uint32_t to, uint32_t full, uint32_t rows_to) {
    const load x = {.to = to,
                    .rows = QUERIES,
                    .bytes = Q_BYTES + (rows_to ? ROWS_BYTES : 0),
                    .full = full,
                    .head = t->kv_head * p->common.common.group + w->head,
                    .token = (uint32_t)t->request.qo_begin + w->at * QUERIES,
                    .request = t->index * p->q_step,
                    .count = qd_min((uint32_t)t->request.qo_len - w->at * QUERIES, QUERIES)};
    const uint32_t bar = begin_load(l, &x);
    copy_boxes(&x, to, map, bar);
    if (rows_to && qd_lane() == 0)
        qd_bulk_load(rows_to, p->rows + number_of(p, t, w) * (2 * QUERIES), ROWS_BYTES, bar);
    end_load(l, &x, to, to);
}

QD_INLINE void load_all(const qk_backward_wgmma_args *p, uint64_t maps, uint32_t base,
                        const tile *t) {
    loader l = {.base = base, .may_clear = p->common.common.schedule};
    qd_ring at = {0, 1};
    walk w = begin_walk(t);
    load_keys(p, maps, &l, t);
    QD_NO_UNROLL for (uint32_t step = 0; step < t->steps; step++, advance(&w, t)) {
        qd_mbarrier_wait(base + Q_EMPTY_AT + 8 * at.at, at.parity);
        load_block(p, MAP_Q, &l, t, &w, base + Q_AT + at.at * Q_BYTES, base + Q_FULL_AT + 8 * at.at,
                   base + ROWS_AT + at.at * ROWS_BYTES);
        qd_mbarrier_wait(base + D_O_EMPTY_AT + 8 * at.at, at.parity);
        load_block(p, MAP_D_O, &l, t, &w, base + D_O_AT + at.at * Q_BYTES,
                   base + D_O_FULL_AT + 8 * at.at, 0);
        qd_ring_advance(&at, STAGES);
    }
}

// ---- the two threads that add dq up

/** Starts the copy of a team's dq to memory, or its addition to what is there. */
QD_INLINE void add_team(float *to, uint32_t from, bool adds) {
    if (adds)
        qd_bulk_add_f32(to, from, TEAM_DQ_BYTES);
    else
        qd_bulk_store(to, from, TEAM_DQ_BYTES);
}

/** Returns the number of a team's place for dq, and of its barriers. */
QD_INLINE uint32_t dq_place(uint32_t stage, uint32_t team) {
    return stage * TEAMS + team;
}

/** Waits until both teams have put a step's dq, and copies it. */
QD_INLINE void add_block(uint32_t base, float *to, uint32_t step, bool adds) {
    QD_UNROLL for (uint32_t team = 0; team < TEAMS; team++) {
        const uint32_t place = dq_place(step % 2, team);
        qd_mbarrier_wait(base + DQ_FULL_AT + 8 * place, step / 2 % 2);
        add_team(to + team * (DQ_SUMS * QD_TEAM), base + DQ_AT + place * TEAM_DQ_BYTES, adds);
    }
    qd_bulk_wait_written();
    QD_UNROLL for (uint32_t team = 0; team < TEAMS; team++)
        qd_mbarrier_arrive(base + DQ_EMPTY_AT + 8 * dq_place(step % 2, team));
}

/** Adds every other step's dq up. It takes a step's time until what has been added is in memory,
 *  and can be told; meanwhile the other thread adds the next step's. */
QD_INLINE void add_all(const qk_backward_wgmma_args *p, uint32_t base, const tile *t,
                       uint32_t own) {
    walk w = begin_walk(t);
    QD_NO_UNROLL for (uint32_t step = 0; step < t->steps; step++, advance(&w, t)) {
        const int64_t number = number_of(p, t, &w);
        if (step % 2 != own)
            continue;
        if (t->number) {
            qd_flag_wait(p->done + number, t->number);
            qd_async_fence_all();
        }
        add_block(base, p->sums + number * (QUERIES * QK_D), step, t->number > 0);
        qd_async_fence_all();
        qd_flag_set(p->done + number, t->number + 1);
    }
}

// ---- products. Descriptors count 16 bytes

/** What a thread of a team knows. */
typedef struct work {
    uint32_t base, team;
    float scale;       // of products, log2(e) in it
    uint32_t limit[2]; // the first query that sees each of the thread's two keys
    uint32_t whole;    // from this query on all of the team's keys are seen
    uint32_t stage;    // of the block's q, d_o and ds
    float dk[OWN_SUMS], dv[OWN_SUMS];
} work;

#define TIMES_QUERIES(keep, s, a, b) QD_WGMMA(KIND(N_QUERIES), "1, 1, 0, 0", SUMS, keep, s, a, b)

/** Starts the products of the team's rows of k or v and a block's rows of q or d_o. */
QD_INLINE void start_scores(const work *w, uint32_t k_at, uint32_t q_at, float s[SUMS]) {
    // Descriptors of k and v are made anew for each block: registers would not hold them all.
    const uint64_t k = qd_wgmma_tile(qd_opaque(w->base + k_at)) + w->team * (64 * LINE / 16);
    const uint64_t q = qd_wgmma_tile(w->base + q_at);
    qd_wgmma_begin();
    TIMES_QUERIES(0, s, k, q);
    QD_UNROLL for (uint32_t i = 1; i < QK_D / 16; i++)
        TIMES_QUERIES(1, s, k + i / 4 * (K_BOX_BYTES / 16) + i % 4 * 2,
                      q + i / 4 * (Q_BOX_BYTES / 16) + i % 4 * 2);
    qd_wgmma_commit();
}

/** Starts adding to dv or dk the products of the team's weights or ds and d_o or q. */
QD_INLINE void start_own(const work *w, const uint32_t a[SUMS / 2], uint32_t at,
                         float sums[OWN_SUMS]) {
    const uint64_t b = qd_wgmma_tile_across(w->base + at, Q_BOX_BYTES);
    qd_wgmma_begin();
    QD_UNROLL for (uint32_t i = 0; i < QUERIES / 16; i++)
        QD_WGMMA_A(KIND(QK_D), "1, 1, 1", OWN_SUMS, sums, a + 4 * i, b + i * (16 * LINE / 16));
    qd_wgmma_commit();
}

/** Starts the team's part of dq: of 64 columns, or of 64 queries. */
QD_INLINE void start_dq(const work *w, float dq[32]) {
    const uint32_t own = QK_D == 64 ? 0 : w->team;
    const uint64_t a = qd_wgmma_tile_across(w->base + DS_AT, DS_BOX_BYTES) +
                       w->stage * (DS_BYTES / 16) + (w->team - own) * (DS_BOX_BYTES / 16);
    const uint64_t b =
        qd_wgmma_tile_across(qd_opaque(w->base + K_AT), K_BOX_BYTES) + own * (K_BOX_BYTES / 16);
    qd_wgmma_begin();
    QD_WGMMA(KIND(64), "1, 1, 1, 1", 32, 0, dq, a, b);
    QD_UNROLL for (uint32_t i = 1; i < KEYS / 16; i++)
        QD_WGMMA(KIND(64), "1, 1, 1, 1", 32, 1, dq, a + i * (16 * LINE / 16),
                 b + i * (16 * LINE / 16));
    qd_wgmma_commit();
}

// ---- a block's weights and ds

QD_INLINE uint32_t own_column(void) {
    return qd_lane() % 4 * 2;
}

/** Returns the numbers of two neighbouring rows, of this thread's columns of group g. */
QD_INLINE qd_f32x2 rows_of(const work *w, uint32_t which, uint32_t g) {
    const uint32_t at = w->base + ROWS_AT + w->stage * ROWS_BYTES + which * (QUERIES * 4);
    return *(const QD_LDS qd_f32x2 *)(uintptr_t)(at + (8 * g + own_column()) * 4);
}

/** Hides the scores of keys that a query of the block at `query` does not see. */
QD_INLINE void hide(const work *w, uint32_t query, float s[SUMS]) {
    const int32_t from = (int32_t)(query + own_column());
    const int32_t limit[2] = {(int32_t)w->limit[0] - from, (int32_t)w->limit[1] - from};
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++)
        s[i] = i / 4 * 8 + i % 2 >= limit[i / 2 % 2] ? s[i] : -__builtin_inff();
}

/** Turns scores into weights. */
QD_INLINE void weigh(const work *w, float s[SUMS]) {
    QD_UNROLL for (uint32_t g = 0; g < SUMS / 4; g++) {
        const qd_f32x2 lse = rows_of(w, 0, g);
        QD_UNROLL for (uint32_t i = 0; i < 4; i++)
            s[4 * g + i] = qd_exp2_flushed(__builtin_fmaf(s[4 * g + i], w->scale, -lse[i % 2]));
    }
}

QD_INLINE void pack(const float x[SUMS], uint32_t to[SUMS / 2]) {
    QD_UNROLL for (uint32_t i = 0; i < SUMS / 2; i++)
        to[i] = PACK(x[2 * i], x[2 * i + 1]);
}

/** Computes ds from weights and dp. */
QD_INLINE void find_ds(const work *w, const float p[SUMS], const float dp[SUMS],
                       uint32_t ds[SUMS / 2]) {
    QD_UNROLL for (uint32_t g = 0; g < SUMS / 4; g++) {
        const qd_f32x2 delta = rows_of(w, 1, g);
        QD_UNROLL for (uint32_t i = 4 * g; i < 4 * g + 4; i += 2)
            ds[i / 2] = PACK(p[i] * (dp[i] - delta.x), p[i + 1] * (dp[i + 1] - delta.y));
    }
}

/** Puts the team's ds into LDS, and waits until both teams have done so. */
QD_INLINE void put_ds(const work *w, const uint32_t ds[SUMS / 2]) {
    const uint32_t row = qd_thread() % QD_TEAM / 32 * 16 + qd_lane() % 16;
    const uint32_t to = w->base + DS_AT + w->stage * DS_BYTES + (w->team * 64 + row) * LINE;
    QD_UNROLL for (uint32_t c = 0; c < QUERIES / 8; c += 2) {
        const uint32_t piece = (c % 8 + qd_lane() / 16) ^ (row % 8);
        qd_store_tiles(to + c / 8 * DS_BOX_BYTES + piece * 16, ds[2 * c], ds[2 * c + 1],
                       ds[2 * c + 2], ds[2 * c + 3]);
    }
    qd_async_fence();
    qd_team_barrier(1, TEAMS * QD_TEAM);
}

QD_INLINE void release(uint32_t bar) {
    if (qd_lane() == 0)
        qd_mbarrier_arrive(bar);
}

/** Hands the team's part of a step's dq to the thread that adds. */
QD_INLINE void put_dq(const work *w, uint32_t step, const float dq[32]) {
    const uint32_t place = dq_place(step % 2, w->team);
    const uint32_t to = w->base + DQ_AT + place * TEAM_DQ_BYTES + qd_thread() % QD_TEAM * 16;
    qd_mbarrier_wait(w->base + DQ_EMPTY_AT + 8 * place, step / 2 % 2 ^ 1);
    QD_UNROLL for (uint32_t i = 0; i < DQ_SUMS / 4; i++)
        *(QD_LDS qd_f32x4 *)(uintptr_t)(to + i * QD_TEAM * 16) =
            (qd_f32x4){dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]};
    qd_async_fence();
    qd_wave_barrier();
    release(w->base + DQ_FULL_AT + 8 * place);
}

// ---- a team's walk

/** Asks for a block's scores and dp, and turns the scores into weights. Behind it dp alone is under
 *  way. */
QD_INLINE void take_scores(const work *w, uint32_t parity, uint32_t query, float s[SUMS],
                           float dp[SUMS]) {
    qd_mbarrier_wait(w->base + Q_FULL_AT + 8 * w->stage, parity);
    start_scores(w, K_AT, Q_AT + w->stage * Q_BYTES, s);
    qd_mbarrier_wait(w->base + D_O_FULL_AT + 8 * w->stage, parity);
    start_scores(w, V_AT, D_O_AT + w->stage * Q_BYTES, dp);
    QD_WGMMA_WAIT_BEFORE_LAST(SUMS, s);
    if (query < w->whole)
        hide(w, query, s);
    weigh(w, s);
    QD_WGMMA_HOLD(SUMS, s);
}

/** Takes the block whose first query is `query`, the tile's `step`th. Nothing is under way where it
 *  begins and ends. */
QD_INLINE void take_block(work *w, uint32_t step, uint32_t query) {
    float s[SUMS], dp[SUMS], dq[32];
    uint32_t weights[SUMS / 2], ds[SUMS / 2];
    w->stage = step % STAGES;
    take_scores(w, step / STAGES % 2, query, s, dp);
#if QK_D == 64 // there are not registers for weights of both kinds
    QD_WGMMA_WAIT(SUMS, dp);
    pack(s, weights);
    find_ds(w, s, dp, ds);
    start_own(w, weights, D_O_AT + w->stage * Q_BYTES, w->dv);
#else
    pack(s, weights);
    start_own(w, weights, D_O_AT + w->stage * Q_BYTES, w->dv);
    QD_WGMMA_WAIT_BEFORE_LAST(SUMS, dp);
    find_ds(w, s, dp, ds);
#endif
    put_ds(w, ds);
    start_dq(w, dq);
    start_own(w, ds, Q_AT + w->stage * Q_BYTES, w->dk);
    QD_WGMMA_WAIT_BEFORE_LAST(32, dq);
    release(w->base + D_O_EMPTY_AT + 8 * w->stage);
    put_dq(w, step, dq);
    QD_WGMMA_WAIT(OWN_SUMS, w->dk);
    QD_WGMMA_HOLD(OWN_SUMS, w->dv);
    release(w->base + Q_EMPTY_AT + 8 * w->stage);
}

/** Walks over the tile's blocks. */
QD_INLINE void walk_blocks(work *w, const tile *t) {
    walk at = begin_walk(t);
    QD_NO_UNROLL for (uint32_t step = 0; step < t->steps; step++, advance(&at, t))
        take_block(w, step, at.at * QUERIES);
}

/** Stores a team's rows of dk or dv, as a dtype, which is a constant. */
QD_INLINE void store_as(uint32_t dtype, const work *w, const tile *t, const qk_attention_rows *rows,
                        uint32_t head_dim, float factor, const float sums[OWN_SUMS]) {
    const uint32_t thread = qd_thread() % QD_TEAM;
    const uint32_t first = t->key + w->team * 64 + thread / 32 * 16 + thread % 32 / 4;
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t key = first + 8 * r;
        const int64_t at = t->index * rows->block +
                           ((int64_t)t->request.kv_begin + key) * rows->token +
                           t->kv_head * rows->head + own_column();
        if (key < (uint32_t)t->request.kv_len) QD_UNROLL
            for (uint32_t i = 0; i < OWN_SUMS / 4; i++)
                if (i * 8 < head_dim)
                    store2(dtype, rows->data, at + i * 8, sums[4 * i + 2 * r] * factor,
                           sums[4 * i + 2 * r + 1] * factor);
    }
}

QD_INLINE void store_own(uint32_t dtype, const work *w, const tile *t,
                         const qk_attention_rows *rows, uint32_t head_dim, float factor,
                         const float sums[OWN_SUMS]) {
    if (dtype == QD_F32)
        store_as(QD_F32, w, t, rows, head_dim, factor, sums);
    else if (dtype == QD_F16)
        store_as(QD_F16, w, t, rows, head_dim, factor, sums);
    else
        store_as(QD_BF16, w, t, rows, head_dim, factor, sums);
}

/** Finds which queries see the thread's keys; none sees a key behind the last. */
QD_INLINE void find_limits(const qk_attention_args *g, const tile *t, work *w) {
    const uint32_t key = t->key + w->team * 64;
    const uint32_t own = key + qd_thread() % QD_TEAM / 32 * 16 + qd_lane() / 4;
    const uint32_t keys = (uint32_t)t->request.kv_len;
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t at = own + 8 * r;
        w->limit[r] = at < keys ? qk_backward_queries(g, &t->request, at, at).begin : INT32_MAX;
    }
    w->whole = key + 64 <= keys ? qk_backward_queries(g, &t->request, key + 63, key + 63).begin
                                : INT32_MAX;
}

QD_INLINE void run_team(const qk_backward_wgmma_args *p, uint32_t base, uint32_t team,
                        const tile *t) {
    const qk_backward_args *b = &p->common;
    const qk_attention_args *g = &b->common;
    work w = {.base = base, .team = team, .scale = g->scale * log2_e};
    QD_UNROLL for (uint32_t i = 0; i < OWN_SUMS; i++)
        w.dk[i] = w.dv[i] = 0;
    find_limits(g, t, &w);
    if (t->steps) {
        qd_mbarrier_wait(base + K_FULL_AT, 0);
        walk_blocks(&w, t);
    }
    store_own(b->dtype_dk, &w, t, &b->dk, g->head_dim_qk, g->scale, w.dk);
    store_own(b->dtype_dv, &w, t, &b->dv, g->head_dim_vo, 1, w.dv);
}

// ---- the kernel

/** A barrier is full when copies' bytes are in, or each wave of a team has put its part; empty when
 *  each wave that reads, or the thread that adds, has said so. */
QD_INLINE void make_barriers(uint32_t base) {
    if (qd_thread() == 0) {
        qd_mbarrier_init(base + K_FULL_AT, 1);
        qd_mbarrier_init(base + PART_AT, 1);
        for (uint32_t i = 0; i < STAGES; i++) {
            qd_mbarrier_init(base + Q_FULL_AT + 8 * i, 1);
            qd_mbarrier_init(base + Q_EMPTY_AT + 8 * i, TEAMS * 4);
            qd_mbarrier_init(base + D_O_FULL_AT + 8 * i, 1);
            qd_mbarrier_init(base + D_O_EMPTY_AT + 8 * i, TEAMS * 4);
        }
        for (uint32_t i = 0; i < 2 * TEAMS; i++) {
            qd_mbarrier_init(base + DQ_FULL_AT + 8 * i, 4);
            qd_mbarrier_init(base + DQ_EMPTY_AT + 8 * i, 1);
        }
        qd_mbarrier_init_fence();
    }
    qd_barrier();
}

QD_KERNEL_HEAD(384, LDS_BYTES, "", qk_backward_wgmma)(const qk_backward_wgmma_args p) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    const uint64_t maps = QD_ARGUMENTS(qk_backward_wgmma);
    static_assert(QK_BACKWARD_THREADS == 384);
    make_barriers(base);
    qd_begin();
    const tile t = find_tile(&p);
    if (t.number && t.key >= (uint32_t)t.request.kv_len)
        return;
    if (team < TEAMS) {
        QD_REGISTERS_MORE(240);
        run_team(&p, base, team, &t);
    } else {
        QD_REGISTERS_LESS(24);
        if (qd_thread() / QD_WAVE == TEAMS * QD_TEAM / QD_WAVE && t.steps)
            load_all(&p, maps, base, &t);
        const uint32_t wave = qd_thread() / QD_WAVE - TEAMS * QD_TEAM / QD_WAVE;
        if ((wave == 1 || wave == 2) && qd_lane() == 0)
            add_all(&p, base, &t, wave - 1);
    }
}
