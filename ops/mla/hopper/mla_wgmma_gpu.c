// SPDX-License-Identifier: Apache-2.0
// Latent attention by Hopper's tensor cores: all heads share one key of two parts, whose first part
// is the value, so that a tile of keys is loaded once for scores and for values.
//
// Needs     sm_90a; q of bf16, with -DQK_F16 of f16, of 512 and 64 elements; caches of q's type,
//           with -DQK_FP8 of e4m3fn; rows of q, caches and o that begin at multiples of 16 bytes.
//           Pages have any size
// Tile      64 rows, queries times heads, by pairs of tiles of 64 keys: each team computes the
//           scores of one
// Launch    384 threads, at most as many workgroups as multiprocessors; each walks work items
// LDS       q's tile and a pair of tiles of keys, in blocks of 64 columns with the 128-byte
//           swizzle; rows' tops and sums; the places of keys; barriers
// Registers of a thread: 128 sums of o, 32 scores, and as many weights in pairs
// Roles     two teams multiply: each computes the scores and weights of its own tile of a pair, and
//           all rows' o in its own half of the columns, for which it takes both tiles' weights. The
//           third team copies, 16 bytes a lane, as pages may be as short as a key; codes of FP8 it
//           converts on the way
// Edges     keys past the end and rows past the last are copied as zeros; keys that a row does not
//           see are hidden
// Schedule  team 1 goes behind team 0, so that one multiplies while the other weighs: it takes the
//           rows' tops from team 0, and tells it which of them its own tile raised. Both add tile
//           0, then tile 1, and scale o before each if a top rose. A row's bits depend on no other
//           row
#define QK_D 256 // of a team's columns
#define KEYS 64
#define SUMS 32
#define O_SUMS 128
#include "mla_wgmma_gpu.h"

#ifdef QK_F16
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.f16.f16"
#else
#define KIND(n) "m64n" QD_TEXT(n) "k16.f32.bf16.bf16"
#endif
static_assert(O_SUMS == O_ELEMENTS);
#ifdef QK_FP8 // whose codes pass through registers
#define LESS_REGISTERS QD_REGISTERS_LESS(72)
#define MORE_REGISTERS QD_REGISTERS_MORE(216)
#else
#define LESS_REGISTERS QD_REGISTERS_LESS(40)
#define MORE_REGISTERS QD_REGISTERS_MORE(232)
#endif

/** What a thread of a team knows. */
typedef struct work {
    uint32_t base, parity;
    uint32_t row;  // the thread's first in the tile; the second is 8 further
    uint32_t turn; // of sums
    rows x;
} work;

/** What a thread's rows see, and how their products become scores. */
typedef struct view {
    float unit[2];    // for logarithms of base 2
    int32_t end[2];   // of keys, counted from the thread's first of a tile at 0
    uint32_t all_end; // of keys that all rows see
} view;

QD_INLINE row_place place_of(const qk_attention_args *g, const part *p, uint32_t row) {
    return find_row(g, &p->request, p->index, 0, p->row + qd_min(row, p->rows - 1));
}

QD_INLINE view find_view(const qk_attention_args *g, const part *p, const work *w) {
    view v = {.all_end = end_of_row(g, p, p->row)};
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = qd_min(w->row + 8 * r, p->rows - 1);
        const row_place place = place_of(g, p, row);
        v.unit[r] = score_scale(g, &place) * log2_e;
        v.end[r] = (int32_t)(end_of_row(g, p, p->row + row) - qd_lane() % 4 * 2);
    }
    return v;
}

/** Says that the wave has done with what a barrier guards. */
QD_INLINE void release(uint32_t bar) {
    qd_wave_barrier();
    if (qd_lane() == 0)
        qd_mbarrier_arrive(bar);
}

// ---- scores

#define TIMES_KEYS(keep, s, q, k) QD_WGMMA(KIND(64), "1, 1, 0, 0", SUMS, keep, s, q, k)
enum { STEPS = LINE_BYTES / 32 }; // products of a block

/** Waits for a half of a tile, which the loading team's lanes have copied. */
QD_INLINE void wait_for_half(const work *w, uint32_t tile, uint32_t half) {
    qd_mbarrier_wait(full_at(w->base, tile, half), w->parity);
    qd_async_fence();
}

/** Computes the products of q and a tile's keys. */
QD_INLINE void multiply_keys(const work *w, uint32_t tile, float s[SUMS]) {
    const uint32_t base = qd_opaque(w->base); // else clang keeps all descriptors in registers
    const uint64_t q = qd_wgmma_tile(base + Q_AT), k = qd_wgmma_tile(tile_at(base, tile));
    wait_for_half(w, tile, 0);
    qd_wgmma_begin();
    TIMES_KEYS(0, s, q, k);
    QD_UNROLL for (uint32_t i = 1; i < HALF_BLOCKS * STEPS; i++)
        TIMES_KEYS(1, s, q + i / STEPS * (BLOCK_BYTES / 16) + i % STEPS * 2,
                   k + i / STEPS * (BLOCK_BYTES / 16) + i % STEPS * 2);
    wait_for_half(w, tile, 1);
    qd_wgmma_begin();
    QD_UNROLL for (uint32_t i = HALF_BLOCKS * STEPS; i < (ROPE_BLOCK + 1) * STEPS; i++)
        TIMES_KEYS(1, s, q + i / STEPS * (BLOCK_BYTES / 16) + i % STEPS * 2,
                   k + i / STEPS * (BLOCK_BYTES / 16) + i % STEPS * 2);
    qd_wgmma_commit();
    QD_WGMMA_WAIT(SUMS, s);
}

/** Computes the scores of the tile whose keys begin at `key`. */
QD_INLINE void find_scores(const work *w, const view *v, uint32_t tile, uint32_t key,
                           float s[SUMS]) {
    multiply_keys(w, tile, s);
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
        s[i] *= v->unit[i / 2 % 2];
    if (key + KEYS > v->all_end) QD_UNROLL
        for (int32_t i = 0; i < SUMS; i++)
            s[i] = (int32_t)key + i / 4 * 8 + i % 2 < v->end[i / 2 % 2] ? s[i] : -__builtin_inff();
}

// ---- tops and weights, from team to team

QD_INLINE QD_LDS float *float_at(const work *w, uint32_t at, uint32_t team) {
    return (QD_LDS float *)(uintptr_t)(w->base + at) + team * ROWS + w->row;
}

/** Puts a number of each of the thread's rows into LDS. */
QD_INLINE void put_floats(const work *w, uint32_t at, uint32_t team, const float x[2]) {
    QD_LDS float *to = float_at(w, at, team);
    if (qd_lane() % 4 == 0)
        to[0] = x[0], to[8] = x[1];
}

/** Takes the other team's tops, which are those of both teams by now. */
QD_INLINE void follow(work *w, uint32_t other) {
    const QD_LDS float *from = float_at(w, TOPS_AT, other);
    bool rises[2];
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const float top = from[8 * r], old = w->x.top[r];
        rises[r] = top > old;
        w->x.grown[r] = rises[r] ? qd_exp2_flushed(old - top) : 1;
        w->x.top[r] = top;
        w->x.sum[r] *= w->x.grown[r];
    }
    w->x.grows = qd_wave_any(rises[0] | rises[1]);
}

QD_INLINE uint32_t weights_at(uint32_t base, uint32_t tile) {
    return tile_at(base, tile) + ROPE_BLOCK * BLOCK_BYTES;
}

/** Puts the tile's weights where its kpe was, for the other team. */
QD_INLINE void put_weights(const work *w, uint32_t tile) {
    const uint32_t row = qd_thread() % QD_TEAM / 32 * 16 + qd_lane() % 16;
    const uint32_t to = weights_at(w->base, tile) + row * LINE_BYTES;
    qd_team_barrier(1 + tile, QD_TEAM); // all waves have multiplied with kpe
    QD_UNROLL for (uint32_t c = 0; c < KEYS / 16; c++) {
        const uint32_t *p = w->x.p + 4 * c;
        qd_store_tiles(to + ((2 * c + qd_lane() / 16) ^ row % 8) * 16, p[0], p[1], p[2], p[3]);
    }
    qd_async_fence();
    release(w->base + WEIGHTS_FULL_AT + 8 * tile);
}
QD_INLINE void wait_for_weights(const work *w, uint32_t tile) {
    qd_mbarrier_wait(w->base + WEIGHTS_FULL_AT + 8 * tile, w->parity);
}

// ---- values

QD_INLINE uint64_t values_of(const work *w, uint32_t tile, uint32_t team) {
    return qd_wgmma_tile_across(
        tile_at(qd_opaque(w->base), tile) + team * HALF_BLOCKS * BLOCK_BYTES, BLOCK_BYTES);
}

/** Adds the values of the team's own tile to its half of o. */
QD_INLINE void add_own(work *w, uint32_t team) {
    const uint64_t v = values_of(w, team, team);
    qd_wgmma_begin();
    QD_UNROLL for (uint32_t i = 0; i < KEYS / 16; i++)
        QD_WGMMA_A(KIND(256), "1, 1, 1", O_SUMS, w->x.o, w->x.p + 4 * i, v + i * 128);
    qd_wgmma_commit();
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    release(empty_at(w->base, team, team));
}

/** Adds the values of the other team's tile, whose weights are in LDS. */
QD_INLINE void add_other(work *w, uint32_t team) {
    const uint32_t tile = 1 - team;
    const uint64_t v = values_of(w, tile, team),
                   p = qd_wgmma_tile(weights_at(qd_opaque(w->base), tile));
    qd_wgmma_begin();
    QD_UNROLL for (uint32_t i = 0; i < KEYS / 16; i++)
        QD_WGMMA(KIND(256), "1, 1, 0, 1", O_SUMS, 1, w->x.o, p + i * 2, v + i * 128);
    qd_wgmma_commit();
    QD_WGMMA_WAIT(O_SUMS, w->x.o);
    release(empty_at(w->base, tile, team));
}

/** Takes team 0's share of a pair of tiles, whose keys begin at `key`. */
QD_INLINE void take_pair_first(work *w, const view *v, uint32_t key) {
    float s[SUMS];
    find_scores(w, v, 0, key, s);
    raise(&w->x, s);
    put_floats(w, TOPS_AT, 0, w->x.top);
    release(w->base + TOPS_FULL_AT);
    weigh_by_tops(&w->x, s);
    pack(&w->x, s);
    put_weights(w, 0);
    grow(&w->x);
    add_own(w, 0);
    wait_for_weights(w, 1);
    follow(w, 1);
    grow(&w->x);
    add_other(w, 0);
}

/** Takes team 1's share. */
QD_INLINE void take_pair_second(work *w, const view *v, uint32_t key) {
    float s[SUMS];
    find_scores(w, v, 1, key + KEYS, s);
    qd_mbarrier_wait(w->base + TOPS_FULL_AT, w->parity);
    follow(w, 0);
    grow(&w->x);
    raise(&w->x, s);
    put_floats(w, TOPS_AT, 1, w->x.top);
    weigh_by_tops(&w->x, s);
    pack(&w->x, s);
    put_weights(w, 1);
    wait_for_weights(w, 0);
    add_other(w, 1);
    grow(&w->x);
    add_own(w, 1);
}

// ---- a part's end

/** Stores a row's two elements of each group of eight of the team's columns. */
QD_INLINE void store_row_f32(const rows *x, uint32_t r, float factor, bool exists, char *to) {
    float *o = (float *)to + qd_lane() % 4 * 2;
    if (exists) QD_UNROLL
        for (uint32_t n = 0; n < O_SUMS / 4; n++) {
            const float *from = x->o + 4 * n + 2 * r;
            *(qd_f32x2 *)(o + 8 * n) =
                (qd_f32x2){(from[0] + 0.0f) * factor, (from[1] + 0.0f) * factor};
        }
}

/** Packs two elements of o for memory. */
QD_INLINE uint32_t pack_for(uint32_t dtype, const float *o, float factor) {
    const float a = (o[0] + 0.0f) * factor, b = (o[1] + 0.0f) * factor;
    return dtype == QD_F16 ? qd_pack_f16(a, b) : qd_pack_bf16(a, b);
}

/** As store_row_f32, of 16 bits; neighbours exchange pairs, so that a lane has 8 bytes of a group:
 *  of every second one, lanes with even numbers of the first. */
QD_INLINE void store_row_16(const rows *x, uint32_t r, uint32_t dtype, float factor, bool exists,
                            char *to) {
    const bool is_odd = qd_lane() % 2;
    uint32_t *o = (uint32_t *)to + (is_odd ? 4 : 0) + qd_lane() % 4 / 2 * 2;
    QD_UNROLL for (uint32_t n = 0; n < O_SUMS / 4; n += 2) {
        const uint32_t a = pack_for(dtype, x->o + 4 * n + 2 * r, factor),
                       b = pack_for(dtype, x->o + 4 * n + 4 + 2 * r, factor);
        const uint32_t other = qd_swap_lanes(is_odd ? a : b, 1);
        if (exists)
            *(qd_u32x2 *)(o + 4 * n) = is_odd ? (qd_u32x2){other, b} : (qd_u32x2){a, other};
    }
}

/** Returns the rows' sums over both teams' keys, and the tops that these go with. */
QD_INLINE void add_sums(work *w, uint32_t team, float sums[2]) {
    const uint32_t at = SUMS_AT + w->turn % 2 * TEAMS * ROWS * 4;
    const float own[2] = {total(&w->x, 0), total(&w->x, 1)};
    put_floats(w, at, team, own);
    qd_team_barrier(1 + LOADER + 1, TEAMS * QD_TEAM);
    QD_UNROLL for (uint32_t r = 0; r < 2; r++)
        sums[r] = float_at(w, at, 0)[8 * r] + float_at(w, at, 1)[8 * r];
    w->turn++;
}

/** Stores a row of a chunk that will be merged. */
QD_INLINE void store_partial(const qk_attention_args *g, const part *p, const work *w,
                             uint32_t team, uint32_t r, float sum) {
    const uint32_t row = w->row + 8 * r;
    const bool exists = row < p->rows;
    const int64_t at = qk_attention_partial(g, &p->request, p->begin, p->row + row, 0);
    store_row_f32(&w->x, r, sum > 0 ? 1 / sum : 0, exists,
                  (char *)(g->partial_o + at * QK_MLA_DIM + team * QK_D));
    if (exists && team == 0 && qd_lane() % 4 == 0)
        g->partial_lse[at] = w->x.top[r] + qd_log2(sum);
}

QD_INLINE void store_result(const qk_attention_args *g, const part *p, const work *w, uint32_t team,
                            uint32_t r, float sum) {
    const uint32_t row = w->row + 8 * r;
    const bool exists = row < p->rows;
    const row_place place = place_of(g, p, row);
    const row_end end = finish_row(g, &place, w->x.top[r], sum);
    char *to = (char *)g->o + (o_offset(g, &place) + team * QK_D) * bytes_of(g->dtype_o);
    if (g->dtype_o == QD_F32)
        store_row_f32(&w->x, r, end.factor, exists, to);
    else if (g->dtype_o == QD_F16)
        store_row_16(&w->x, r, QD_F16, end.factor, exists, to);
    else
        store_row_16(&w->x, r, QD_BF16, end.factor, exists, to);
    if (exists && team == 0 && qd_lane() % 4 == 0)
        store_lse(g, &place, end.lse);
}

QD_INLINE void store(const qk_attention_args *g, const part *p, work *w, uint32_t team) {
    float sums[2];
    add_sums(w, team, sums);
    QD_UNROLL for (uint32_t r = 0; r < 2; r++)
        if (p->request.partial_begin >= 0)
            store_partial(g, p, w, team, r, sums[r]);
        else
            store_result(g, p, w, team, r, sums[r]);
}

// ---- the kernel

/** Computes all parts; `team` is a constant. */
QD_INLINE void run_team(const qk_attention_args *g, uint32_t base, uint32_t team) {
    const uint32_t thread = qd_thread() % QD_TEAM;
    work w = {.base = base, .row = thread / 32 * 16 + qd_lane() / 4, .x = {.scale = 1}};
    walk at = begin_walk();
    uint32_t q_parity = 0;
    while (next_part(g, &at)) {
        const part p = at.part;
        const view v = find_view(g, &p, &w);
        const uint32_t pairs = count_pairs(&p);
        begin_rows(&w.x);
        if (p.is_first) {
            qd_mbarrier_wait(base + Q_FULL_AT, q_parity);
            q_parity ^= 1;
        }
        QD_NO_UNROLL for (uint32_t i = 0; i < pairs; i++) {
            if (team == 0)
                take_pair_first(&w, &v, p.begin + i * PAIR);
            else
                take_pair_second(&w, &v, p.begin + i * PAIR);
            w.parity ^= 1;
        }
        store(g, &p, &w, team);
    }
}

/** Halves and q are full when all lanes' copies are there, the others when each wave has said
 *  so. */
QD_INLINE void make_barriers(uint32_t base) {
    if (qd_thread() == 0) {
        qd_mbarrier_init(base + Q_FULL_AT, QD_TEAM);
        qd_mbarrier_init(base + TOPS_FULL_AT, QD_TEAM / 32);
        for (uint32_t tile = 0; tile < TEAMS; tile++) {
            qd_mbarrier_init(base + WEIGHTS_FULL_AT + 8 * tile, QD_TEAM / 32);
            for (uint32_t half = 0; half < 2; half++) {
                qd_mbarrier_init(full_at(base, tile, half), QD_TEAM);
                qd_mbarrier_init(empty_at(base, tile, half), QD_TEAM / 32);
            }
        }
    }
    qd_barrier();
}

QD_KERNEL_HEAD(384, LDS_BYTES, "", qk_mla_wgmma)(const qk_mla_args args) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint32_t team = qd_wave_uniform(qd_thread() / QD_TEAM);
    static_assert(QK_MLA_THREADS == 384);
    make_barriers(base);
    qd_begin();
    if (team == LOADER) {
        LESS_REGISTERS;
        load_parts(&args, base);
    } else {
        MORE_REGISTERS;
        if (team == 0)
            run_team(&args.common, base, 0);
        else
            run_team(&args.common, base, 1);
    }
}
