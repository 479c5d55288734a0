// SPDX-License-Identifier: Apache-2.0
// Attention of requests of few rows on Hopper, at the speed of memory.
//
// Needs     sm_90a; q, k and v of bf16, with -DQK_F16 of f16; with -DQK_FP8=1 k and v of e4m3fn,
//           and q of FP8 if it is not of these; head dims that are multiples of 8, beside FP8 of
//           16, at most QK_D; rows of k and v, of q and of o that begin at multiples of 16 bytes,
//           of q of FP8 8; requests of at most QK_ATTENTION_FEW_ROWS rows. Pages have any size
// Tile      16 rows by KEYS keys. A chunk's tile t is wave t % WAVES's, whatever is seen of it; the
//           waves' results are merged in the waves' order at the chunk's end
// Launch    160 threads, WORKGROUPS a multiprocessor; each walks work items and heads of k
// LDS       a stage a wave: a tile of k, and of v; ROOMS of q and of what is to be computed with
//           it; the waves' results of a chunk; barriers. In tiles, and in q beside tiles of 16
//           bits, 16-byte pieces of 128 bytes are exchanged by the row's number modulo 8
// Registers of a thread: QK_D / 2 sums of o; of each tile SUMS scores, and as many weights in pairs
// Roles     four waves compute, each at its own pace, on keys that it copies itself: a lane 16
//           bytes at a time, as pages may be as short as a key. The fifth plans what comes next,
//           merges the four's results and stores
// FP8       codes stay codes in LDS and become 16 bits between LDS and the tensor cores. There a
//           lane finds four codes that lie side by side: of a key's elements these are two runs of
//           a product's, for which q is read likewise, and of two keys' values two columns each,
//           which two products take
// Edges     keys past the end and columns past the head dim are copied as zeros; keys that a row
//           does not see are hidden
// Schedule  a wave asks for its next tile of k as soon as it has multiplied this one, and for v
//           likewise, also across chunks and work items; while it waits, other waves compute. What
//           is read to find the keys, work items, requests and page numbers, is asked for a step
//           before it is needed
#include "attention_async_abi.h"

#ifndef QK_FP8
#define QK_FP8 0
#endif
#define KV_BYTES (QK_FP8 ? 1 : 2)
#define KEYS ((QK_D == 64 ? 128 : 64) / KV_BYTES)
#define SUMS (KEYS / 2)
#if QK_D == 256
#define WORKGROUPS 1
#else
#define WORKGROUPS 2
#endif
#include "attention_async_gpu.h"
#include "attention_weights_gpu.h"
#include "mma.h"

#ifdef QK_F16
#define IS_F16 true
#define MULTIPLY(d, a, b0, b1) QD_MMA_PTX("f16", d, (a)[0], (a)[1], (a)[2], (a)[3], b0, b1)
#else
#define IS_F16 false
#define MULTIPLY(d, a, b0, b1) QD_MMA_PTX("bf16", d, (a)[0], (a)[1], (a)[2], (a)[3], b0, b1)
#endif

/** Returns the lane's number. What is computed from it is computed again for each tile: the many
 *  places in LDS would take more registers than there are. */
QD_INLINE uint32_t lane_anew(void) {
    return qd_opaque(qd_lane());
}

// ---- tiles on their way

/** Lanes that copy 128 bytes of a row, or all of a shorter one, and rows that are copied so at
 *  once. */
enum { LANES_OF_LINE = LINE_BYTES < 128 ? LINE_BYTES / 16 : 8, LINES = QD_WAVE / LANES_OF_LINE };
enum { OWN = KEYS / QD_WAVE };     // keys of a tile that a lane finds the places of
enum { PIECE_OF = 16 / KV_BYTES }; // elements of k or v in 16 bytes

/** Where a key lies: its page or request, and its number there. */
typedef struct place {
    uint32_t block, token;
} place;

/** A tile to be copied, of which so many keys exist. */
typedef struct tile {
    bool is_any;
    uint32_t count, kv_head;
    place places[OWN];
} tile;

/** Asks for the places of a tile's keys. */
QD_INLINE tile find_tile(const qk_attention_args *g, const QD_LDS part *p, uint32_t number) {
    const uint32_t begin = p->begin + number * KEYS, end = p->end;
    const uint32_t from = (uint32_t)p->request.kv_begin;
    tile t = {.is_any = true, .count = end > begin ? end - begin : 0, .kv_head = p->kv_head};
    QD_UNROLL for (uint32_t i = 0; i < OWN; i++) {
        const uint32_t key = begin + i * QD_WAVE + qd_lane();
        t.places[i] = (place){p->index, from + key};
        if (g->kv_indices && key < end)
            t.places[i] =
                (place){(uint32_t)g->kv_indices[from + key / g->page_size], key % g->page_size};
    }
    return t;
}

/** Returns the wave's first tile of a part. */
QD_INLINE uint32_t first_tile(const QD_LDS part *p, uint32_t wave) {
    return p->tile + (wave - p->tile) % WAVES;
}

/** Returns the wave's tile after `number`: of the same part, or of the next one if that has one. */
QD_INLINE tile next_tile(const qk_attention_args *g, uint32_t base, uint32_t wave, rounds at,
                         uint32_t number) {
    const QD_LDS part *p = &room_at(base, at.room.at)->part;
    number += WAVES;
    if (number >= p->tiles_end) {
        next_round(&at);
        p = &enter_room(base, &at)->part;
        number = first_tile(p, wave);
        if (p->rows == 0 || number >= p->tiles_end)
            return (tile){};
    }
    return find_tile(g, p, number);
}

/** Starts the copies of a tile's rows, which begin so many 16 bytes behind `data`; lanes have those
 *  of their keys. is_whole, a constant: nothing is left out. */
QD_INLINE void copy_lines(const char *data, const uint32_t own[OWN], uint32_t to, uint32_t count,
                          uint32_t head_dim, bool is_whole) {
    const uint32_t lane = lane_anew(), line = lane / LANES_OF_LINE, piece = lane % LANES_OF_LINE;
    QD_UNROLL for (uint32_t i = 0; i < KEYS / LINES; i++) {
        const uint32_t key = i * LINES + line;
        const uint32_t at = qd_from_lane(own[i * LINES / QD_WAVE], key % QD_WAVE);
        const char *row = data + (uint64_t)at * 16;
        QD_UNROLL for (uint32_t c = 0; c < LINE_BYTES / 16; c += LANES_OF_LINE)
            qd_copy16(to + piece_at(key, c + piece), row + (c + piece) * 16,
                      is_whole || (key < count && (c + piece) * PIECE_OF < head_dim));
    }
}

/** Starts the copies of a tile's rows of k or v. */
QD_INLINE void copy_rows(const qk_attention_rows *rows, uint32_t head_dim, uint32_t to,
                         const tile *t) {
    const uint32_t block = (uint32_t)(rows->block / PIECE_OF);
    const uint32_t token = (uint32_t)(rows->token / PIECE_OF);
    const uint32_t head = t->kv_head * (uint32_t)(rows->head / PIECE_OF);
    uint32_t own[OWN];
    if (!t->is_any)
        return;
    QD_UNROLL for (uint32_t i = 0; i < OWN; i++) {
        const uint32_t at = t->places[i].block * block + t->places[i].token * token + head;
        own[i] = i * QD_WAVE + qd_lane() < t->count ? at : 0;
    }
    if (t->count >= KEYS && head_dim == QK_D)
        copy_lines(rows->data, own, to, KEYS, QK_D, true);
    else
        copy_lines(rows->data, own, to, t->count, head_dim, false);
}

QD_INLINE void copy_keys(const qk_attention_args *g, uint32_t stage, const tile *t) {
    copy_rows(&g->k, g->head_dim_qk, stage, t);
    qd_copy_commit();
}
QD_INLINE void copy_values(const qk_attention_args *g, uint32_t stage, const tile *t) {
    copy_rows(&g->v, g->head_dim_vo, stage + TILE_BYTES, t);
    qd_copy_commit();
}

/** Waits for all of the wave's copies but those of the last commit. */
QD_INLINE void wait_for_copies(void) {
    qd_copy_wait_before_last();
    qd_wave_barrier();
}

// ---- the waves that compute

/** What a lane needs to know of a part's rows. */
typedef struct view {
    float scale[2];              // of the lane's two rows' products, for natural scores
    int32_t first[2], end[2];    // keys that they see, counted from the lane's first of a tile at 0
    uint32_t all_first, all_end; // keys that all rows see
} view;

QD_INLINE view find_view(const QD_LDS room *from) {
    const int32_t own = (int32_t)(qd_lane() % 4 * 2);
    view w = {.all_first = (uint32_t)from->sights[ROWS - 1].first,
              .all_end = (uint32_t)from->sights[0].end};
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const sight of = from->sights[qd_lane() / 4 + 8 * r];
        w.scale[r] = of.scale;
        w.first[r] = of.first - own;
        w.end[r] = of.end - own;
    }
    return w;
}

/** Computes the products of q's rows and a tile's keys. */
#if QK_FP8
QD_INLINE void multiply_keys(uint32_t q, uint32_t k, float s[SUMS]) {
    const uint32_t lane = lane_anew(), own = q + lane / 4 * Q_LINE_BYTES + lane % 4 * 8;
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
        s[i] = 0;
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 16; c++) {
        const qd_u32x2 low = *(const QD_LDS qd_u32x2 *)(uintptr_t)(own + c * 32);
        const qd_u32x2 high =
            *(const QD_LDS qd_u32x2 *)(uintptr_t)(own + 8 * Q_LINE_BYTES + c * 32);
        const uint32_t a[4] = {low.x, high.x, low.y, high.y};
        QD_UNROLL for (uint32_t n = 0; n < KEYS / 32; n++) {
            const qd_u32x4 codes = qd_load_tiles(k + piece_at(n * 32 + lane, c));
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                uint32_t b[2];
                qd_widen4_e4m3fn(IS_F16, false, codes[i], b);
                MULTIPLY(s + 16 * n + 4 * i, a, b[0], b[1]);
            }
        }
    }
}
#else
QD_INLINE void multiply_keys(uint32_t q, uint32_t k, float s[SUMS]) {
    const uint32_t lane = lane_anew();
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
        s[i] = 0;
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 16; c++) {
        const qd_u32x4 a = qd_load_tiles(q + piece_at(lane % 16, 2 * c + lane / 16));
        QD_UNROLL for (uint32_t n = 0; n < KEYS / 16; n++) {
            const uint32_t key = n * 16 + lane / 16 * 8 + lane % 8;
            const qd_u32x4 b = qd_load_tiles(k + piece_at(key, 2 * c + lane / 8 % 2));
            MULTIPLY(s + 8 * n, a, b.x, b.y);
            MULTIPLY(s + 8 * n + 4, a, b.z, b.w);
        }
    }
}
#endif

/** Turns products into base-2 scores. These are rounded before a row's top is subtracted, so that
 *  the top's own weight is one. */
QD_INLINE void scale_scores(const qk_attention_args *g, const view *w, float s[SUMS]) {
    const float unit[2] = {w->scale[0] * log2_e, w->scale[1] * log2_e};
    if (g->soft_cap > 0) QD_UNROLL
        for (uint32_t i = 0; i < SUMS; i++)
            s[i] = soft_cap(g->soft_cap, s[i] * w->scale[i / 2 % 2]) * log2_e;
    else QD_UNROLL
        for (uint32_t i = 0; i < SUMS; i++)
            s[i] = s[i] * unit[i / 2 % 2];
}

/** Hides the keys of the tile at `at` that the lane's rows do not see. */
QD_INLINE void hide(const view *w, uint32_t at, float s[SUMS]) {
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++) {
        const int32_t key = (int32_t)at + i / 4 * 8 + i % 2, r = i / 2 % 2;
        s[i] = key >= w->first[r] && key < w->end[r] ? s[i] : -__builtin_inff();
    }
}

/** Adds a tile's weighted values to o. */
#if QK_FP8
QD_INLINE void multiply_values(uint32_t v, rows *x) {
    const uint32_t lane = lane_anew();
    QD_UNROLL for (uint32_t c = 0; c < KEYS / 16; c++) {
        QD_UNROLL for (uint32_t n = 0; n < QK_D / 16; n += 2) {
            const uint32_t at = v + piece_at(c * 16 + lane % 16, n + lane / 16);
            const qd_u32x4 codes = qd_load_tiles_turned(at);
            QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
                uint32_t b[2][2]; // of eight keys each, even and odd columns
                qd_widen4_e4m3fn(IS_F16, true, codes[2 * i], b[0]);
                qd_widen4_e4m3fn(IS_F16, true, codes[2 * i + 1], b[1]);
                MULTIPLY(x->o + 8 * (n + i), x->p + 4 * c, b[0][0], b[1][0]);
                MULTIPLY(x->o + 8 * (n + i) + 4, x->p + 4 * c, b[0][1], b[1][1]);
            }
        }
    }
}
#else
QD_INLINE void multiply_values(uint32_t v, rows *x) {
    const uint32_t lane = lane_anew();
    QD_UNROLL for (uint32_t c = 0; c < KEYS / 16; c++) {
        QD_UNROLL for (uint32_t n = 0; n < QK_D / 16; n++) {
            const uint32_t at = v + piece_at(c * 16 + lane % 16, 2 * n + lane / 16);
            const qd_u32x4 b = qd_load_tiles_turned(at);
            MULTIPLY(x->o + 8 * n, x->p + 4 * c, b.x, b.y);
            MULTIPLY(x->o + 8 * n + 4, x->p + 4 * c, b.z, b.w);
        }
    }
}
#endif

/** Takes the tile in the wave's stage, and asks for the next one. */
QD_INLINE void take_tile(const qk_attention_args *g, uint32_t q, uint32_t stage, const view *w,
                         uint32_t at, const tile *next, rows *x) {
    float s[SUMS];
    wait_for_copies();
    multiply_keys(q, stage, s);
    qd_wave_barrier();
    copy_keys(g, stage, next);
    scale_scores(g, w, s);
    if (at < w->all_first || at + KEYS > w->all_end)
        hide(w, at, s);
    weigh(x, s);
    pack(x, s);
    grow(x);
    wait_for_copies();
    multiply_values(stage + TILE_BYTES, x);
    qd_wave_barrier();
    copy_values(g, stage, next);
}

// ---- the waves' results

QD_INLINE QD_LDS float *result_at(uint32_t base, uint32_t wave, uint32_t row) {
    return (QD_LDS float *)(uintptr_t)(base + RESULTS_AT + (wave * ROWS + row) * STRIDE * 4);
}
QD_INLINE QD_LDS qd_f32x2 *state_at(uint32_t base, uint32_t wave, uint32_t row) {
    return (QD_LDS qd_f32x2 *)(uintptr_t)(base + STATES_AT + (wave * ROWS + row) * 8);
}

/** Puts o of one of the lane's two rows into LDS. */
QD_INLINE void put_row(QD_LDS float *to, const rows *x, uint32_t r) {
    QD_UNROLL for (uint32_t n = 0; n < QK_D / 8; n += 2) {
        const float *a = x->o + 4 * n + 2 * r, *b = a + 4;
        if (QK_FP8) { // b's columns lie between a's
            *(QD_LDS qd_f32x4 *)(to + 8 * n + qd_lane() % 4 * 4) =
                (qd_f32x4){a[0], b[0], a[1], b[1]};
            continue;
        }
        *(QD_LDS qd_f32x2 *)(to + 8 * n + qd_lane() % 4 * 2) = (qd_f32x2){a[0], a[1]};
        *(QD_LDS qd_f32x2 *)(to + 8 * n + 8 + qd_lane() % 4 * 2) = (qd_f32x2){b[0], b[1]};
    }
}

/** Puts tops, sums and o of the wave's rows, of which there are `count`, into LDS. */
QD_INLINE void put_results(uint32_t base, uint32_t wave, uint32_t count, const rows *x) {
    const float sums[2] = {total(x, 0), total(x, 1)};
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = qd_lane() / 4 + 8 * r;
        if (row >= count)
            continue;
        if (qd_lane() % 4 == 0)
            *state_at(base, wave, row) = (qd_f32x2){x->top[r], sums[r]};
        put_row(result_at(base, wave, row), x, r);
    }
}

/** A row's top and sum over all waves, and the waves' factors. */
typedef struct whole {
    float top, sum, factor[WAVES];
} whole;

QD_INLINE whole add_up(uint32_t base, uint32_t row) {
    qd_f32x2 states[WAVES];
    whole w = {.top = -__builtin_inff()};
    QD_UNROLL for (uint32_t i = 0; i < WAVES; i++) {
        states[i] = *state_at(base, i, row);
        w.top = __builtin_fmaxf(w.top, states[i].x);
    }
    const float top = w.top == -__builtin_inff() ? 0 : w.top;
    QD_UNROLL for (uint32_t i = 0; i < WAVES; i++) {
        w.factor[i] = qd_exp2_flushed(states[i].x - top);
        w.sum += states[i].y * w.factor[i];
    }
    return w;
}

/** Where the lane's row of o goes, and by what it is multiplied before. */
typedef struct output {
    char *o;
    float factor;
} output;

/** Finds the output of the lane's row, and stores the row's log-sum-exp. */
QD_INLINE output finish(const qk_attention_args *g, const walk *w, const part *p, const whole *of) {
    const uint32_t row = qd_min(qd_lane() % ROWS, p->rows - 1);
    if (p->request.partial_begin >= 0) { // a chunk that will be merged
        const int64_t at = qk_attention_partial(g, &p->request, p->begin, row, p->kv_head);
        if (qd_lane() < p->rows)
            g->partial_lse[at] = of->top + qd_log2(of->sum);
        return (output){(char *)(g->partial_o + at * g->head_dim_vo),
                        of->sum > 0 ? 1 / of->sum : 0};
    }
    const row_place own = own_place(g, w, p);
    const row_end end = finish_row(g, &own, of->top, of->sum);
    if (qd_lane() < p->rows)
        store_lse(g, &own, end.lse);
    return (output){(char *)g->o + o_offset(g, &own) * bytes_of(g->dtype_o), end.factor};
}

QD_INLINE void store4(uint32_t dtype, char *to, qd_f32x4 v) {
    if (dtype == QD_F32)
        *(qd_f32x4 *)to = v;
    else
        *(qd_u32x2 *)to = dtype == QD_F16
                              ? (qd_u32x2){qd_pack_f16(v.x, v.y), qd_pack_f16(v.z, v.w)}
                              : (qd_u32x2){qd_pack_bf16(v.x, v.y), qd_pack_bf16(v.z, v.w)};
}

/** Merges the waves' results of a part, in the waves' order, and stores them. */
QD_INLINE void merge_part(const qk_attention_args *g, uint32_t base, const walk *w, const part *p) {
    const whole own = add_up(base, qd_lane() % ROWS);
    const output to = finish(g, w, p, &own);
    const uint32_t dtype = p->request.partial_begin >= 0 ? (uint32_t)QD_F32 : g->dtype_o;
    QD_NO_UNROLL for (uint32_t row = 0; row < p->rows; row++) {
        char *o = (char *)qd_from_lane2((int64_t)to.o, row);
        float factors[WAVES];
        QD_UNROLL for (uint32_t i = 0; i < WAVES; i++)
            factors[i] = qd_as_f32(qd_from_lane(qd_as_u32(own.factor[i] * to.factor), row));
        for (uint32_t d = 4 * qd_lane(); d < g->head_dim_vo; d += 4 * QD_WAVE) {
            qd_f32x4 sum = 0;
            QD_UNROLL for (uint32_t i = 0; i < WAVES; i++)
                sum = __builtin_elementwise_fma(*(QD_LDS qd_f32x4 *)(result_at(base, i, row) + d),
                                                (qd_f32x4)factors[i], sum);
            store4(dtype, o + d * bytes_of(dtype), sum);
        }
    }
}

// ---- the kernel

/** Takes the wave's tiles of the part in `at`'s room. is_asked: the first one is on its way.
 *  Returns whether the next part's is. */
QD_INLINE bool take_part(const qk_attention_args *g, uint32_t base, uint32_t wave, const rounds *at,
                         bool is_asked, rows *x) {
    const QD_LDS room *of = room_at(base, at->room.at);
    const uint32_t stage = base + wave * STAGE_BYTES, q = base + Q_AT + at->room.at * Q_BYTES;
    const uint32_t begin = of->part.begin, end = of->part.tiles_end;
    const view w = find_view(of);
    uint32_t number = first_tile(&of->part, wave);
    if (number < end && !is_asked) {
        const tile first = find_tile(g, &of->part, number);
        copy_keys(g, stage, &first);
        copy_values(g, stage, &first);
    }
    is_asked = false;
    begin_rows(x);
    QD_NO_UNROLL for (; number < end; number += WAVES) {
        const tile next = next_tile(g, base, wave, *at, number);
        take_tile(g, q, stage, &w, begin + number * KEYS, &next, x);
        is_asked = next.is_any;
    }
    return is_asked;
}

QD_INLINE void take_all(const qk_attention_args *g, uint32_t base, uint32_t wave) {
    bool is_asked = false;
    for (rounds at = {{0, 0}, {0, 1}};; next_round(&at)) {
        const uint32_t count = enter_room(base, &at)->part.rows;
        rows x = {.scale = 1};
        if (count == 0)
            return;
        is_asked = take_part(g, base, wave, &at, is_asked, &x);
        leave_room(base, &at);
        qd_mbarrier_wait(base + RESULTS_EMPTY_AT, at.results.parity);
        put_results(base, wave, count, &x);
        qd_wave_barrier();
        if (qd_lane() == 0)
            qd_mbarrier_arrive(base + RESULTS_FULL_AT);
    }
}

/** Plans two parts ahead, and merges. */
QD_INLINE void plan_all(const qk_attention_args *g, uint32_t base) {
    walk w = begin_walk(g);
    for (uint32_t i = 0; i < ROOMS; i++)
        put_part(g, base, &w);
    for (rounds at = {};; next_round(&at)) {
        const part p = room_at(base, at.room.at)->part;
        if (p.rows == 0)
            return;
        qd_mbarrier_wait(base + RESULTS_FULL_AT, at.results.parity);
        merge_part(g, base, &w, &p);
        qd_wave_barrier();
        if (qd_lane() == 0)
            qd_mbarrier_arrive(base + RESULTS_EMPTY_AT);
        put_part(g, base, &w);
    }
}

/** A room is full when what is to be computed and the planning wave's copies are there, results
 *  when each computing wave's are. The computing waves empty a room, the planning wave the
 *  results. */
QD_INLINE void make_barriers(uint32_t base) {
    if (qd_thread() == 0) {
        for (uint32_t i = 0; i < ROOMS; i++) {
            qd_mbarrier_init(base + ROOM_FULL_AT + 8 * i, QD_WAVE + 1);
            qd_mbarrier_init(base + ROOM_EMPTY_AT + 8 * i, WAVES);
        }
        qd_mbarrier_init(base + RESULTS_FULL_AT, WAVES);
        qd_mbarrier_init(base + RESULTS_EMPTY_AT, 1);
    }
    qd_barrier();
}

QD_KERNEL_HEAD_BESIDE(WORKGROUPS, 160, LDS_BYTES, "", qk_attention_async)
(const qk_attention_args g) {
    const uint32_t base = qd_lds_address(qd_launch_lds), wave = qd_wave_uniform(qd_wave());
    static_assert(QK_ASYNC_THREADS == 160);
    make_barriers(base);
    qd_begin();
    if (wave < WAVES)
        take_all(&g, base, wave);
    else
        plan_all(&g, base);
}
