// SPDX-License-Identifier: Apache-2.0
// Attention by Hopper's tensor cores, of requests of equal lengths: each query sees the keys up to
// a bound.
//
// Needs     sm_90a; q, k, v and o of bf16, with -DQK_F16 of f16; head dims that are multiples of 8,
//           at most QK_D; scores that are products times one positive number; no left bound of a
//           window
// Tile      QK_WGMMA_ROWS queries of a head, 64 a team, by QK_WGMMA_KEYS keys
// Launch    (QK_WGMMA_TEAMS + 1) * 128 threads, at most as many workgroups as multiprocessors; each
//           walks tiles
// LDS       q's tile, o's, STAGES of k's and of v's tile, in boxes of 64 columns with the 128-byte
//           swizzle; barriers
// Registers of a thread: QK_D / 2 sums of o; of each tile SUMS scores, and as many weights in pairs
// Roles     one thread of the last team loads by the copy engine; the others multiply and store
// Order     a row's tiles of keys from the last to the first, so that edges come first. Tiles of
//           queries that see most keys come first, there and back. If all see the same keys, and
//           there is room for states, workgroups have equal shares: see qk_wgmma_shares
// Edges     what lies outside a tensor loads as zero and is not stored; scores are hidden in the
//           tiles where a bound or the last key lies
// Schedule  a team starts q k^T of a tile and p v of the tile before, and weighs the one's scores
//           while the other runs; three teams cover each other. A row's sum and o are scaled anew
//           only when its top score has risen by more than RISE, and each row decides for itself
#include "attention_wgmma_abi.h"

#if QK_D == 64
#define KEYS 128
#define SUMS 64
#else
#define KEYS 80
#define SUMS 40
#endif
#include "attention_wgmma_gpu.h"
#include "flag.h"
static_assert(KEYS == QK_WGMMA_KEYS(QK_D));

enum {
    TEAMS = QK_WGMMA_TEAMS,
    STAGES = 3,
    O_AT = TEAMS * TEAM_BYTES,
    K_AT = O_AT + TEAMS * TEAM_BYTES,
    V_AT = K_AT + STAGES * STAGE_BYTES,
    Q_FULL_AT = V_AT + STAGES * STAGE_BYTES, // a barrier for each team
    Q_EMPTY_AT = Q_FULL_AT + 8 * TEAMS,
    K_FULL_AT = Q_EMPTY_AT + 8 * TEAMS, // a barrier for each stage
    K_EMPTY_AT = K_FULL_AT + 8 * STAGES,
    V_FULL_AT = K_EMPTY_AT + 8 * STAGES,
    V_EMPTY_AT = V_FULL_AT + 8 * STAGES,
    LDS_BYTES = V_EMPTY_AT + 8 * STAGES
};
static_assert(LDS_BYTES <= 232448, "the stages are more than a multiprocessor's LDS");

// ---- tiles

/** A tile of queries, or a part of one. All of its rows see tiles of keys 0 to whole - 1; none
 *  sees tile `end`. */
typedef struct tile {
    uint32_t request, head, row; // row: the first query
    uint32_t first, whole, end;  // tiles of keys: the part's are first .. end - 1
    bool is_begun;               // another workgroup did what comes before
} tile;

/** Lengths, as the functions of attention_abi.h want them. */
QD_INLINE qk_attention_request lengths(const qk_attention_args *g) {
    return (qk_attention_request){.qo_len = (int32_t)g->qo_len, .kv_len = (int32_t)g->kv_len};
}

/** Returns the tiles of keys that a row, or the last row if there are fewer, sees. It is at least
 *  one: a row without keys hides all of it. */
QD_INLINE uint32_t tiles_of_row(const qk_attention_args *g, uint32_t row) {
    const qk_attention_request r = lengths(g);
    const uint32_t keys = qk_attention_end_key(g, &r, qd_min(row, g->qo_len - 1));
    return qd_max(qd_div_up(keys, KEYS), 1);
}

QD_INLINE uint32_t tiles_of_head(const qk_attention_args *g) {
    return qd_div_up(g->qo_len, QK_WGMMA_ROWS);
}
QD_INLINE uint32_t count_tiles(const qk_attention_args *g) {
    return g->requests * g->num_kv_heads * g->group * tiles_of_head(g);
}

/** Finds a tile by its number. Without a bound the tiles of a head come one after the other, so
 *  that they share keys in L2; with one, longer tiles of all heads come before shorter ones. */
QD_INLINE tile find_tile(const qk_attention_args *g, uint32_t index) {
    const uint32_t tiles = tiles_of_head(g), q_heads = g->num_kv_heads * g->group;
    const uint32_t all_heads = g->requests * q_heads;
    const bool is_bounded = g->right != INT32_MAX;
    const uint32_t head = is_bounded ? index % all_heads : index / tiles;
    const uint32_t row =
        (is_bounded ? tiles - 1 - index / all_heads : index % tiles) * QK_WGMMA_ROWS;
    const qk_attention_request r = lengths(g);
    return (tile){.request = head / q_heads,
                  .head = head % q_heads,
                  .row = row,
                  .whole = qk_attention_end_key(g, &r, row) / KEYS,
                  .end = tiles_of_row(g, row + QK_WGMMA_ROWS - 1)};
}

/** Finds the tile, or the part of one, that this workgroup does after `done` tiles of keys of its
 *  share. */
QD_INLINE bool find_part(const qk_attention_args *g, uint32_t done, tile *t) {
    const qk_wgmma_shares shares = {count_tiles(g), tiles_of_row(g, 0), __gpu_num_blocks(0)};
    qk_wgmma_part part;
    if (!qk_wgmma_find_part(&shares, qd_block(), done, &part))
        return false;
    *t = find_tile(g, part.tile);
    t->first = part.first, t->end = part.end, t->is_begun = part.end < shares.steps;
    return true;
}

/** This workgroup's tile of a round; count_tiles(g) or more: none. Who had a shorter tile in one
 *  round gets a longer one in the next. */
QD_INLINE uint32_t tile_of_round(uint32_t round) {
    const uint32_t grid = __gpu_num_blocks(0);
    return round * grid + (round % 2 ? grid - 1 - qd_block() : qd_block());
}

/** Finds what this workgroup does next, and counts it in *done, at first zero: tiles of keys of
 *  its share, or rounds. */
QD_INLINE bool next_tile(const qk_attention_wgmma_args *p, uint32_t *done, tile *t) {
    const qk_attention_args *g = &p->common;
    if (p->states) {
        if (!find_part(g, *done, t))
            return false;
        *done += t->end - t->first;
        return true;
    }
    const uint32_t index = tile_of_round((*done)++);
    if (index >= count_tiles(g))
        return false;
    *t = find_tile(g, index);
    return true;
}

// ---- the loader

/** The addresses of the maps; they are what the arguments begin with. */
enum { MAP_BYTES = sizeof(qk_tensor_map) };
#define MAP_Q (maps)
#define MAP_K (maps + MAP_BYTES)
#define MAP_V (maps + 2 * MAP_BYTES)
#define MAP_O (maps + 3 * MAP_BYTES)

/** Where tiles of k, or of v, pass through LDS. */
typedef struct way {
    uint32_t at, full, empty; // addresses
    uint64_t map;
    qd_ring ring;
} way;

QD_INLINE void load_keys(way *w, uint32_t head, uint32_t key, uint32_t request) {
    const uint32_t full = w->full + 8 * w->ring.at, to = w->at + w->ring.at * STAGE_BYTES;
    qd_mbarrier_wait(w->empty + 8 * w->ring.at, w->ring.parity);
    qd_mbarrier_expect(full, STAGE_BYTES);
    QD_UNROLL for (uint32_t i = 0; i < BOXES; i++)
        qd_tensor_load4(to + i * K_BOX_BYTES, w->map, full, i * BOX, head, key, request);
    qd_ring_advance(&w->ring, STAGES);
}

QD_INLINE void load_queries(uint64_t maps, uint32_t base, uint32_t team, const tile *t,
                            uint32_t parity) {
    const uint32_t full = base + Q_FULL_AT + 8 * team, to = base + team * TEAM_BYTES;
    const uint32_t row = t->row + 64 * team;
    qd_mbarrier_wait(base + Q_EMPTY_AT + 8 * team, parity);
    qd_mbarrier_expect(full, TEAM_BYTES);
    QD_UNROLL for (uint32_t i = 0; i < BOXES; i++)
        qd_tensor_load4(to + i * Q_BOX_BYTES, MAP_Q, full, i * BOX, t->head, row, t->request);
}

/** Loads a tile's queries, keys and values, as the teams want them: the first team may begin when
 *  its queries and one tile of keys are there. */
QD_INLINE void load_tile(const qk_attention_args *g, uint64_t maps, uint32_t base, const tile *t,
                         uint32_t q_parity, way *k, way *v) {
    const uint32_t head = t->head / g->group;
    load_queries(maps, base, 0, t, q_parity);
    load_keys(k, head, (t->end - 1) * KEYS, t->request);
    QD_UNROLL for (uint32_t team = 1; team < TEAMS; team++)
        load_queries(maps, base, team, t, q_parity);
    QD_NO_UNROLL for (uint32_t i = t->end - 1; i > t->first; i--) {
        load_keys(k, head, (i - 1) * KEYS, t->request);
        load_keys(v, head, i * KEYS, t->request);
    }
    load_keys(v, head, t->first * KEYS, t->request);
}

/** Loads what all of the workgroup's tiles need; one thread. */
QD_INLINE void load_tiles(const qk_attention_wgmma_args *p, uint64_t maps, uint32_t base) {
    way k = {base + K_AT, base + K_FULL_AT, base + K_EMPTY_AT, MAP_K, {0, 1}};
    way v = {base + V_AT, base + V_FULL_AT, base + V_EMPTY_AT, MAP_V, {0, 1}};
    uint32_t done = 0, q_parity = 1;
    tile t;
    QD_NO_UNROLL while (next_tile(p, &done, &t)) {
        load_tile(&p->common, maps, base, &t, q_parity, &k, &v);
        q_parity ^= 1;
    }
}

// ---- a team's tile

/** What a thread knows. */
typedef struct work {
    uint32_t base, team;
    qd_ring k, v;
    rows x;
} work;

QD_INLINE void release(uint32_t bar) {
    if (qd_lane() == 0)
        qd_mbarrier_arrive(bar);
}
QD_INLINE void wait_for_keys(const work *w) {
    qd_mbarrier_wait(w->base + K_FULL_AT + 8 * w->k.at, w->k.parity);
}
QD_INLINE void leave_keys(work *w) {
    release(w->base + K_EMPTY_AT + 8 * w->k.at);
    qd_ring_advance(&w->k, STAGES);
}
QD_INLINE void wait_for_values(const work *w) {
    qd_mbarrier_wait(w->base + V_FULL_AT + 8 * w->v.at, w->v.parity);
}
QD_INLINE void leave_values(work *w) {
    release(w->base + V_EMPTY_AT + 8 * w->v.at);
    qd_ring_advance(&w->v, STAGES);
}

/** Hides the scores of keys from `limit` of their row on, which counts from this thread's first. */
QD_INLINE void hide(float s[SUMS], const int32_t limit[2]) {
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++)
        s[i] = i / 4 * 8 + i % 2 < limit[i / 2 % 2] ? s[i] : -__builtin_inff();
}

QD_INLINE void ask_scores(const work *w, float s[SUMS]) {
    start_scores(w->base + w->team * TEAM_BYTES, w->base + K_AT, w->k.at, s);
}
QD_INLINE void ask_values(work *w) {
    start_values(w->base + V_AT, w->v.at, &w->x);
}

/** Takes the last tile of keys, with which nothing else runs. */
QD_INLINE void take_first(work *w, const int32_t limit[2], bool is_whole) {
    float s[SUMS];
    wait_for_keys(w);
    ask_scores(w, s);
    QD_WGMMA_WAIT(SUMS, s);
    leave_keys(w);
    if (!is_whole)
        hide(s, limit);
    weigh(&w->x, s);
    pack(&w->x, s);
}

/** Takes the scores of one more tile of keys, and the values of the tile before. Nothing is under
 *  way where it begins and ends, so that loops and branches around it cost no copies. */
QD_INLINE void take_next(work *w, const int32_t limit[2], bool is_whole) {
    float s[SUMS];
    wait_for_keys(w);
    ask_scores(w, s);
    grow(&w->x);
    wait_for_values(w);
    ask_values(w);
    QD_WGMMA_WAIT_BEFORE_LAST(SUMS, s);
    leave_keys(w);
    if (!is_whole)
        hide(s, limit);
    weigh(&w->x, s);
    // ptxas moves the last wait above the exponentials, unless a branch stands between them: this
    // one, for values that have come already.
    QD_WGMMA_HOLD(SUMS, s);
    wait_for_values(w);
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    QD_WGMMA_HOLD(SUMS, s);
    leave_values(w);
    pack(&w->x, s);
}

/** Takes the values of the first tile of keys. */
QD_INLINE void take_last(work *w) {
    grow(&w->x);
    wait_for_values(w);
    ask_values(w);
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    leave_values(w);
}

/** The query of this thread's first row. */
QD_INLINE uint32_t first_row(const work *w, const tile *t) {
    return t->row + w->team * 64 + qd_thread() % QD_TEAM / 32 * 16 + qd_lane() / 4;
}

/** Where the keys of a row end, from this thread's first key of tile `at` of keys on. */
QD_INLINE int32_t limit_of(const qk_attention_args *g, uint32_t row, uint32_t at) {
    const qk_attention_request r = lengths(g);
    const uint32_t end = qk_attention_end_key(g, &r, row);
    return (int32_t)end - (int32_t)(at * KEYS + qd_lane() % 4 * 2);
}

/** Passes over tiles of keys which none of the team's rows sees. Returns the last one that is
 *  seen. */
QD_INLINE uint32_t skip_keys(const qk_attention_args *g, work *w, const tile *t) {
    const uint32_t end = qd_min(t->end, tiles_of_row(g, t->row + w->team * 64 + 63));
    QD_NO_UNROLL for (uint32_t at = t->end; at > end; at--) {
        wait_for_keys(w);
        leave_keys(w);
        wait_for_values(w);
        leave_values(w);
    }
    return end - 1;
}

/** Adds a tile's values, undivided, to the o of the team's rows. */
QD_INLINE void attend(const qk_attention_args *g, work *w, const tile *t, uint32_t q_parity) {
    uint32_t at = skip_keys(g, w, t);
    const uint32_t row = first_row(w, t);
    int32_t limit[2] = {limit_of(g, row, at), limit_of(g, row + 8, at)};
    qd_mbarrier_wait(w->base + Q_FULL_AT + 8 * w->team, q_parity);
    take_first(w, limit, at < t->whole);
    QD_NO_UNROLL while (at > qd_max(t->whole, t->first)) {
        at--;
        QD_UNROLL for (uint32_t r = 0; r < 2; r++)
            limit[r] += KEYS;
        take_next(w, limit, false);
    }
    QD_NO_UNROLL while (at > t->first) {
        at--;
        take_next(w, limit, true);
    }
    release(w->base + Q_EMPTY_AT + 8 * w->team);
    take_last(w);
}

// ---- tiles of queries that two workgroups share

enum { STATE_FOURS = QK_WGMMA_STATE_FLOATS(QK_D) / 4 };

/** The first of this thread's floats of the state that a workgroup's team leaves, in fours. */
QD_INLINE qd_f32x4 *state_of(const qk_attention_wgmma_args *p, const work *w, uint32_t group) {
    const uint32_t slot = group * TEAMS + w->team;
    return (qd_f32x4 *)p->states + slot * (STATE_FOURS * QD_TEAM) + qd_thread() % QD_TEAM;
}

/** Leaves the rows to the workgroup that goes on with the tile, which is the next one. */
QD_INLINE void leave(const qk_attention_wgmma_args *p, const work *w) {
    qd_f32x4 *const to = state_of(p, w, qd_block());
    const rows *x = &w->x;
    QD_UNROLL for (uint32_t i = 0; i < O_SUMS / 4; i++)
        to[i * QD_TEAM] =
            (qd_f32x4){x->o[4 * i], x->o[4 * i + 1], x->o[4 * i + 2], x->o[4 * i + 3]};
    to[O_SUMS / 4 * QD_TEAM] = (qd_f32x4){x->top[0], x->top[1], x->sum[0], x->sum[1]};
    qd_team_barrier(1 + w->team, QD_TEAM);
    if (qd_thread() % QD_TEAM == 0)
        qd_flag_set(p->are_there + qd_block() * TEAMS + w->team, p->launch);
}

/** Waits until the workgroup before has left its state, and forgets that it has. */
QD_INLINE void wait_for_state(const qk_attention_wgmma_args *p, const work *w) {
    uint64_t *const flag = p->are_there + (qd_block() - 1) * TEAMS + w->team;
    if (qd_thread() % QD_TEAM == 0) {
        qd_flag_wait(flag, p->launch);
        *flag = 0;
    }
    qd_team_barrier(1 + w->team, QD_TEAM);
}

/** Goes on with the rows that the workgroup before has begun. */
QD_INLINE void resume(const qk_attention_wgmma_args *p, work *w) {
    const qd_f32x4 *const from = state_of(p, w, qd_block() - 1);
    rows *x = &w->x;
    wait_for_state(p, w);
    QD_UNROLL for (uint32_t i = 0; i < O_SUMS / 4; i++) {
        const qd_f32x4 o = from[i * QD_TEAM];
        QD_UNROLL for (uint32_t j = 0; j < 4; j++)
            x->o[4 * i + j] = o[j];
    }
    const qd_f32x4 last = from[O_SUMS / 4 * QD_TEAM];
    x->top[0] = last[0], x->top[1] = last[1], x->sum[0] = last[2], x->sum[1] = last[3];
}

// ---- from sums to o

/** Finishes a row: stores its lse, and returns what its sums are to be multiplied by. */
QD_INLINE float finish(const qk_attention_args *g, const work *w, const tile *t, uint32_t row) {
    const uint32_t query = first_row(w, t) + 8 * row;
    const row_place place = {.request = t->request,
                             .query = query,
                             .head = t->head,
                             .kv_head = t->head / g->group,
                             .token = query};
    const row_end end = finish_row(g, &place, w->x.top[row] * w->x.scale, total(&w->x, row));
    if (qd_lane() % 4 == 0 && query < g->qo_len)
        store_lse(g, &place, end.lse);
    return end.factor;
}

/** Stores the team's rows by way of LDS; the copies run on while the next tile begins. */
QD_INLINE void store(const qk_attention_args *g, uint64_t maps, const work *w, const tile *t) {
    const uint32_t thread = qd_thread() % QD_TEAM, lane = qd_lane();
    const uint32_t row = thread / 32 * 16 + lane % 16, to = w->base + O_AT + w->team * TEAM_BYTES;
    const float by[2] = {finish(g, w, t, 0), finish(g, w, t, 1)};
    if (thread == 0)
        qd_tensor_store_wait();
    qd_team_barrier(1 + w->team, QD_TEAM); // the last tile's copies have read their LDS
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 8; c += 2) {
        const uint32_t piece = (c % 8 + lane / 16) ^ (row % 8);
        const float *x = &w->x.o[4 * c];
        qd_store_tiles(to + c / 8 * Q_BOX_BYTES + row * 128 + piece * 16,
                       PACK(x[0] * by[0], x[1] * by[0]), PACK(x[2] * by[1], x[3] * by[1]),
                       PACK(x[4] * by[0], x[5] * by[0]), PACK(x[6] * by[1], x[7] * by[1]));
    }
    qd_async_fence();
    qd_team_barrier(1 + w->team, QD_TEAM);
    if (thread == 0) QD_UNROLL
        for (uint32_t i = 0; i < BOXES; i++)
            qd_tensor_store4(MAP_O, to + i * Q_BOX_BYTES, i * BOX, t->head, t->row + w->team * 64,
                             t->request);
}

QD_INLINE void run_tiles(const qk_attention_wgmma_args *p, uint64_t maps, uint32_t base,
                         uint32_t team) {
    const qk_attention_args *g = &p->common;
    work w = {.base = base, .team = team, .x = {.scale = g->scale * log2_e}};
    uint32_t done = 0, q_parity = 0;
    tile t;
    QD_NO_UNROLL while (next_tile(p, &done, &t)) {
        if (t.is_begun)
            resume(p, &w);
        else
            begin_rows(&w.x);
        attend(g, &w, &t, q_parity);
        if (t.first)
            leave(p, &w);
        else
            store(g, maps, &w, &t);
        q_parity ^= 1;
    }
    if (qd_thread() % QD_TEAM == 0)
        qd_tensor_store_wait(); // LDS goes with the workgroup
}

/** A barrier is full when the loader's bytes are in, and empty when each wave that reads has said
 *  so. */
QD_INLINE void make_barriers(uint32_t base) {
    if (qd_thread() == 0) {
        for (uint32_t team = 0; team < TEAMS; team++) {
            qd_mbarrier_init(base + Q_FULL_AT + 8 * team, 1);
            qd_mbarrier_init(base + Q_EMPTY_AT + 8 * team, 4);
        }
        for (uint32_t s = 0; s < STAGES; s++) {
            qd_mbarrier_init(base + K_FULL_AT + 8 * s, 1);
            qd_mbarrier_init(base + V_FULL_AT + 8 * s, 1);
            qd_mbarrier_init(base + K_EMPTY_AT + 8 * s, TEAMS * 4);
            qd_mbarrier_init(base + V_EMPTY_AT + 8 * s, TEAMS * 4);
        }
        qd_mbarrier_init_fence();
    }
    qd_barrier();
}

QD_INLINE void prefetch_maps(uint64_t maps) {
    if (qd_thread() == 0) {
        qd_tensor_prefetch(MAP_Q);
        qd_tensor_prefetch(MAP_K);
        qd_tensor_prefetch(MAP_V);
        qd_tensor_prefetch(MAP_O);
    }
}

QD_KERNEL_HEAD(512, LDS_BYTES, "", qk_attention_wgmma)(const qk_attention_wgmma_args p) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    const uint64_t maps = QD_ARGUMENTS(qk_attention_wgmma);
    static_assert(QK_WGMMA_THREADS == 512);
    make_barriers(base);
    prefetch_maps(maps);
    qd_begin();
    if (team < TEAMS) {
        QD_REGISTERS_MORE(160);
        run_tiles(&p, maps, base, team);
    } else {
        QD_REGISTERS_LESS(32);
        if (qd_thread() == TEAMS * QD_TEAM)
            load_tiles(&p, maps, base);
    }
}
