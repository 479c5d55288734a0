// SPDX-License-Identifier: Apache-2.0
// Attention by Hopper's tensor cores, of requests of any lengths, ragged, padded, dense or in
// pages: prompts, and chunks of prompts.
//
// Needs     sm_90a; q, k, v and o of bf16, with -DQK_F16 of f16; head dims that are multiples of 8,
//           v's at most QK_D, q's and k's at most QK_DIM_QK; one positive scale of products. With
//           -DQK_FP8=1 k and v of e4m3fn, head dims that are multiples of 16, and q may be of FP8
//           unless o is of f16
// Tile      64 rows a team by KEYS keys. A row is a query and one of `pack` heads that
//           share keys
// Launch    (TEAMS + 1) * 128 threads, at most as many workgroups as multiprocessors; each walks
//           the plan's tiles, those with most keys first, there and back
// LDS       q's tile, o's unless it goes through q's, STAGES of k's and of v's tile, in boxes of 64
//           columns with the 128-byte swizzle; codes of FP8 on their way; tiles to compute;
//           barriers
// Registers of a thread: QK_D / 2 sums of o; of each tile SUMS scores, and as many weights in pairs
// Roles     the last team loads, attention_batch_gpu.h; the others multiply and store
// Order     a row's tiles of keys from the last to the first. They are counted from the chunk's
//           begin
// Edges     keys past a chunk's end, and those that bounds hide, are hidden by their scores; values
//           past the request's end are cleared in LDS. Rows past the request's end are not stored
// Schedule  as attention_wgmma_gpu.c: a team starts q k^T of a tile and p v of the tile before, and
//           weighs the one's scores while the other runs
#ifndef QK_FP8
#define QK_FP8 0
#endif
#if QK_D == 64
#define KEYS 128
#define SUMS 64
#elif QK_D == 256 && QK_FP8 // as many as LDS has room for beside their codes
#define KEYS 64
#define SUMS 32
#else
#define KEYS 80
#define SUMS 40
#endif
// Stages and teams: as many as LDS, and registers, have room for.
#if QK_D == 256
enum { TEAMS = 2, STAGES = 2 };
#define THREADS 384
#define REGISTERS 232
#define REGISTERS_OF_LOADER 40
#elif QK_FP8 // with fewer the loader waits for each line of codes before the next
enum { TEAMS = 3, STAGES = 2 };
#define THREADS 512
#define REGISTERS 152
#define REGISTERS_OF_LOADER 56
#elif defined(QK_DIM_QK)
enum { TEAMS = 3, STAGES = 2 };
#define THREADS 512
#define REGISTERS 160
#define REGISTERS_OF_LOADER 32
#else
enum { TEAMS = 3, STAGES = 3 };
#define THREADS 512
#define REGISTERS 160
#define REGISTERS_OF_LOADER 32
#endif
#include "attention_batch_gpu.h"
static_assert(THREADS == (TEAMS + 1) * QD_TEAM);

// ---- a team's tile

/** What a thread knows. */
typedef struct work {
    const qk_attention_batch_args *args;
    uint32_t base, team, round;
    uint32_t tile; // its address
    qd_ring at;    // of the tile of keys whose values are next
    rows x;
} work;

QD_INLINE void release(uint32_t bar) {
    if (qd_lane() == 0)
        qd_mbarrier_arrive(bar);
}
QD_INLINE void wait_for_keys(const work *w, qd_ring at) {
    qd_mbarrier_wait(w->base + K_FULL_AT + 8 * at.at, at.parity);
}
QD_INLINE void leave_keys(const work *w, qd_ring at) {
    release(w->base + K_EMPTY_AT + 8 * at.at);
}
QD_INLINE void wait_for_values(const work *w) {
    qd_mbarrier_wait(w->base + V_FULL_AT + 8 * w->at.at, w->at.parity);
}
QD_INLINE void leave_values(const work *w) {
    release(w->base + V_EMPTY_AT + 8 * w->at.at);
}
QD_INLINE void leave_queries(const work *w) {
    release(w->base + Q_EMPTY_AT + 8 * w->team);
}

/** This thread's number in its team, anew: what is computed from it would take registers from the
 *  loop over keys. */
QD_INLINE uint32_t thread_anew(void) {
    return qd_opaque(qd_thread()) % QD_TEAM;
}

/** Returns the tile, whose fields' addresses would take registers from that loop as well. */
QD_INLINE const QD_LDS tile *tile_of(const work *w) {
    return (const QD_LDS tile *)(uintptr_t)qd_opaque(w->tile);
}

/** The team's first row of a tile. */
QD_INLINE uint32_t team_row(const work *w) {
    return tile_of(w)->row + w->team * QK_ATTENTION_TEAM;
}
/** This thread's first row; it has the one 8 further as well. */
QD_INLINE uint32_t first_row(const work *w) {
    const uint32_t thread = thread_anew();
    return team_row(w) + thread / QD_WAVE * 16 + thread % QD_WAVE / 4;
}

// ---- scores

QD_INLINE void hide_after(float s[SUMS], const int32_t end[2]) {
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++)
        s[i] = i / 4 * 8 + i % 2 < end[i / 2 % 2] ? s[i] : -__builtin_inff();
}
QD_INLINE void hide_before(float s[SUMS], const int32_t first[2]) {
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++)
        s[i] = i / 4 * 8 + i % 2 >= first[i / 2 % 2] ? s[i] : -__builtin_inff();
}

/** Hides what the thread's rows do not see of tile `at` of keys. */
QD_INLINE void hide(const work *w, uint32_t at, float s[SUMS]) {
    const QD_LDS tile *t = tile_of(w);
    const uint32_t origin = at * KEYS + thread_anew() % 4 * 2;
    int32_t first[2], end[2];
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t query = (first_row(w) + 8 * r) >> w->args->pack_shift;
        const span keys = find_keys(t->first, t->end, t->chunk, t->end_key, query);
        first[r] = (int32_t)(keys.begin - origin);
        end[r] = (int32_t)(keys.end - origin);
    }
    hide_after(s, end);
    if (w->args->common.left != INT32_MAX)
        hide_before(s, first);
}

/** Turns products into the scores that rows are weighed by, w->x.scale times which are of base
 *  2. */
QD_INLINE void finish_scores(const work *w, uint32_t at, bool is_whole, float s[SUMS]) {
    const qk_attention_args *g = &w->args->common;
    if (g->soft_cap > 0) QD_UNROLL
        for (uint32_t i = 0; i < SUMS; i++)
            s[i] = g->soft_cap - 2 * g->soft_cap * qd_rcp(1 + qd_exp2(s[i] * w->args->cap_scale));
    if (!is_whole)
        hide(w, at, s);
}

/** Turns a tile's scores into weights. Where a top is so large that rounding its product with the
 *  scale shows, it is subtracted before: its own weight is then one. */
QD_INLINE void weigh_exactly(rows *w, float s[SUMS]) {
    constexpr float large = 64;
    raise(w, s);
    float base[2] = {base_of(w, 0), base_of(w, 1)};
    const bool is_large[2] = {__builtin_fabsf(base[0]) > large, __builtin_fabsf(base[1]) > large};
    if (qd_wave_any(is_large[0] | is_large[1])) {
        QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
            s[i] -= is_large[i / 2 % 2] ? w->top[i / 2 % 2] : 0;
        QD_UNROLL for (uint32_t r = 0; r < 2; r++)
            base[r] = is_large[r] ? 0 : base[r];
    }
    raise_to_powers(w, s, base);
}

QD_INLINE void ask_scores(const work *w, qd_ring at, float s[SUMS]) {
    start_scores(w->base + w->team * Q_BYTES, w->base + K_AT, at.at, s);
}
QD_INLINE void ask_values(work *w) {
    start_values(w->base + V_AT, w->at.at, &w->x);
}

/** Takes the last tile of keys, with which nothing else runs. */
QD_INLINE void take_first(work *w, uint32_t at) {
    float s[SUMS];
    wait_for_keys(w, w->at);
    ask_scores(w, w->at, s);
    QD_WGMMA_WAIT(SUMS, s);
    leave_keys(w, w->at);
    finish_scores(w, at, false, s);
    weigh_exactly(&w->x, s);
    pack(&w->x, s);
    w->x.grows = false; // o is still zero
}

/** Takes the scores of one more tile of keys, and the values of the tile before. Nothing is under
 *  way where it begins and ends, so that loops and branches around it cost no copies. */
QD_INLINE void take_next(work *w, uint32_t at) {
    float s[SUMS];
    qd_ring next = w->at;
    qd_ring_advance(&next, STAGES);
    wait_for_keys(w, next);
    ask_scores(w, next, s);
    grow(&w->x);
    wait_for_values(w);
    ask_values(w);
    QD_WGMMA_WAIT_BEFORE_LAST(SUMS, s);
    leave_keys(w, next);
    const span whole = tile_of(w)->team_whole[w->team];
    finish_scores(w, at, at >= whole.begin && at < whole.end, s);
    weigh_exactly(&w->x, s);
    // ptxas moves the last wait above the exponentials, unless a branch stands between them: this
    // one, for values that have come already.
    QD_WGMMA_HOLD(SUMS, s);
    wait_for_values(w);
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    QD_WGMMA_HOLD(SUMS, s);
    leave_values(w);
    pack(&w->x, s);
    w->at = next;
}

/** Takes the values of the first tile of keys. */
QD_INLINE void take_last(work *w) {
    grow(&w->x);
    wait_for_values(w);
    ask_values(w);
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    leave_values(w);
    qd_ring_advance(&w->at, STAGES);
}

/** Passes over tiles of keys of which none of the team's rows sees any, from `at` down to `end`. */
QD_INLINE void skip_keys(work *w, uint32_t at, uint32_t end) {
    QD_NO_UNROLL for (; at > end; at--) {
        wait_for_keys(w, w->at);
        leave_keys(w, w->at);
        wait_for_values(w);
        leave_values(w);
        qd_ring_advance(&w->at, STAGES);
    }
}

/** Takes the tiles of keys that the team sees, at least one. */
QD_INLINE void take_keys(work *w) {
    uint32_t at = tile_of(w)->team_keys[w->team].end - 1;
    take_first(w, at);
    QD_NO_UNROLL while (at > tile_of(w)->team_keys[w->team].begin) {
        at--;
        take_next(w, at);
    }
    if (O_HAS_PLACE)
        leave_queries(w);
    take_last(w);
}

/** Computes o, undivided, of the team's rows of a tile. */
QD_INLINE void attend(work *w) {
    const span keys = tile_of(w)->team_keys[w->team];
    begin_rows(&w->x);
    skip_keys(w, tile_of(w)->keys.end, keys.end);
    if (keys.begin < keys.end)
        take_keys(w);
    else if (O_HAS_PLACE)
        leave_queries(w);
    skip_keys(w, tile_of(w)->team_keys[w->team].begin, tile_of(w)->keys.begin);
}

// ---- from sums to o

/** Returns the query and head of a row. */
QD_INLINE row_place place_of(const work *w, uint32_t row) {
    const QD_LDS tile *t = tile_of(w);
    const uint32_t shift = w->args->pack_shift, query = row >> shift;
    return (row_place){.request = t->index,
                       .query = query,
                       .head = t->head + (row - (query << shift)),
                       .kv_head = t->kv_head,
                       .token = (int64_t)t->token + query};
}

/** Finishes a row: stores its lse, and returns what its sums are to be multiplied by. */
QD_INLINE float finish(const work *w, uint32_t r) {
    const uint32_t row = first_row(w) + 8 * r;
    const row_place place = place_of(w, row);
    const row_end end =
        finish_row(&w->args->common, &place, w->x.top[r] * w->x.scale, total(&w->x, r));
    if (qd_lane() % 4 == 0 && row < tile_of(w)->rows)
        store_lse(&w->args->common, &place, end.lse);
    return end.factor;
}

/** Stores a row of a chunk's results. */
QD_INLINE void store_partial(const work *w, uint32_t r) {
    const qk_attention_args *g = &w->args->common;
    const uint32_t row = first_row(w) + 8 * r;
    const row_place place = place_of(w, row);
    const float sum = total(&w->x, r), by = sum == 0 ? 0 : 1 / sum;
    const uint32_t in_group = place.head - place.kv_head * g->group;
    const int64_t in_request = (int64_t)place.query * g->group + in_group;
    const int64_t at = (tile_of(w)->partial + in_request) * g->num_kv_heads + place.kv_head;
    if (row >= tile_of(w)->rows)
        return;
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 8; c++) {
        const uint32_t column = c * 8 + qd_lane() % 4 * 2;
        if (column < g->head_dim_vo)
            *(qd_f32x2 *)(g->partial_o + at * g->head_dim_vo + column) =
                (qd_f32x2){w->x.o[4 * c + 2 * r] * by, w->x.o[4 * c + 2 * r + 1] * by};
    }
    if (qd_lane() % 4 == 0)
        g->partial_lse[at] = sum == 0 ? -__builtin_inff() : w->x.top[r] * w->x.scale + qd_log2(sum);
}

/** Puts the team's rows into LDS. */
QD_INLINE void put_rows(const work *w, uint32_t to, const float by[2]) {
    const uint32_t thread = thread_anew(), lane = thread % QD_WAVE;
    const uint32_t row = thread / QD_WAVE * 16 + lane % 16;
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 8; c += 2) {
        const uint32_t piece = (c % 8 + lane / 16) ^ (row % 8);
        const float *x = &w->x.o[4 * c];
        qd_store_tiles(to + c / 8 * Q_BOX_BYTES + row * 128 + piece * 16,
                       PACK(x[0] * by[0], x[1] * by[0]), PACK(x[2] * by[1], x[3] * by[1]),
                       PACK(x[4] * by[0], x[5] * by[0]), PACK(x[6] * by[1], x[7] * by[1]));
    }
}

/** Stores the team's rows that lie in LDS, those that the request has. */
QD_INLINE void get_rows(const work *w, uint32_t from) {
    enum { PIECES = QK_D / 8, EACH = QD_TEAM / PIECES };
    const qk_attention_args *g = &w->args->common;
    const uint32_t thread = thread_anew(), piece = thread % PIECES;
    const uint32_t first = team_row(w);
    const uint32_t end = piece * 8 < g->head_dim_vo ? tile_of(w)->rows - first : 0;
    QD_UNROLL for (uint32_t i = 0; i < QK_ATTENTION_TEAM; i += EACH) {
        const uint32_t row = i + thread / PIECES;
        const row_place place = place_of(w, first + row);
        const uint32_t at = from + piece / 8 * Q_BOX_BYTES + row * 128 + (piece % 8 ^ row % 8) * 16;
        const qd_u32x4 x = *(const QD_LDS qd_u32x4 *)(uintptr_t)at;
        if (row < end)
            *((qd_u32x4 *)((uint16_t *)g->o + o_offset(g, &place)) + piece) = x;
    }
}

QD_INLINE void store_whole(const work *w) {
    const uint32_t at = w->base + O_AT + w->team * TEAM_BYTES;
    const float by[2] = {finish(w, 0), finish(w, 1)};
    qd_team_barrier(1 + w->team, QD_TEAM); // the last tile's rows have left this place
    put_rows(w, at, by);
    qd_team_barrier(1 + w->team, QD_TEAM);
    get_rows(w, at);
}

QD_INLINE void store(const work *w) {
    if (team_row(w) < tile_of(w)->rows) {
        if (tile_of(w)->partial < 0)
            store_whole(w);
        else QD_UNROLL
            for (uint32_t r = 0; r < 2; r++)
                store_partial(w, r);
    }
    if (!O_HAS_PLACE) {
        qd_async_fence();
        qd_wave_barrier();
        leave_queries(w);
    }
}

QD_INLINE void run_tiles(const qk_attention_batch_args *p, uint32_t base, uint32_t team) {
    const float scale = p->common.soft_cap > 0 ? 1 : p->common.scale;
    work w = {.args = p, .base = base, .team = team, .x = {.scale = scale * log2_e}};
    QD_NO_UNROLL for (;; w.round++) {
        qd_mbarrier_wait(base + Q_FULL_AT + 8 * team, w.round % 2);
        w.tile = (uint32_t)(uintptr_t)tile_at(base, w.round);
        if (tile_of(&w)->rows == 0)
            break;
        attend(&w);
        store(&w);
        leave_tile(base, w.round);
    }
}

/** A barrier is full when the loader's bytes are in, or each loading wave has said so; it is empty
 *  when each wave that reads has said so: of tiles also those of the loaders that teams may not
 *  wait for. */
QD_INLINE void make_barriers(uint32_t base, uint32_t loaders, uint32_t loaders_of_q) {
    if (qd_thread() == 0) {
        for (uint32_t team = 0; team < TEAMS; team++) {
            qd_mbarrier_init(base + Q_FULL_AT + 8 * team, loaders_of_q);
            qd_mbarrier_init(base + Q_EMPTY_AT + 8 * team, 4);
        }
        for (uint32_t s = 0; s < STAGES; s++) {
            qd_mbarrier_init(base + K_FULL_AT + 8 * s, loaders);
            qd_mbarrier_init(base + V_FULL_AT + 8 * s, loaders);
            qd_mbarrier_init(base + K_EMPTY_AT + 8 * s, TEAMS * 4);
            qd_mbarrier_init(base + V_EMPTY_AT + 8 * s, TEAMS * 4);
        }
        for (uint32_t i = 0; i < TILES; i++) {
            qd_mbarrier_init(base + TILE_FULL_AT + 8 * i, 1);
            qd_mbarrier_init(base + TILE_EMPTY_AT + 8 * i, TEAMS * 4 + loaders);
        }
        qd_mbarrier_init(base + V_RAW_AT, 1);
        qd_mbarrier_init_fence();
    }
    qd_barrier();
}

/** Pages are loaded in boxes unless these would reach over a page's end, as a chunk's first one
 *  may. Codes never are. */
QD_INLINE bool loads_boxes(const qk_attention_batch_args *p) {
    const qk_attention_args *g = &p->common;
    return !QK_FP8 && p->is_boxed && !(g->kv_indices && g->schedule->has_odd_chunks);
}

QD_KERNEL_HEAD(THREADS, LDS_BYTES, "", qk_attention_batch)(const qk_attention_batch_args p) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    const uint64_t maps = QD_ARGUMENTS(qk_attention_batch);
    qd_begin();
    const bool is_boxed = loads_boxes(&p);
    make_barriers(base, is_boxed ? 1 : LOADERS, are_codes(&p.common) ? LOADERS : 1);
    if (team < TEAMS) {
        QD_REGISTERS_MORE(REGISTERS);
        run_tiles(&p, base, team);
    } else {
        QD_REGISTERS_LESS(REGISTERS_OF_LOADER);
        loader l = {.args = &p, .maps = maps, .base = base};
        if (is_boxed)
            load_boxes(&l);
        else
            copy_pages(&l);
    }
}
