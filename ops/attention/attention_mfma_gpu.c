// SPDX-License-Identifier: Apache-2.0
// Attention of prompts on CDNA's matrix cores at their full rate: vector work stands between matrix
// instructions, and a SIMD's other waves, of other workgroups, multiply where this one waits.
//
// Needs     MFMA of 16-bit kinds, copies to LDS; q, k and v of one 16-bit kind, or with QK_FP8 k
//           and v of the target's own e4m3 and q of that or of 16 bits; head dims of exactly QK_D
//           and QK_D_VO, multiples of 64; scores that are scaled products
// Tile      128 rows by QK_TILE keys: 4 waves of 32 rows
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer;
//           QK_WAVES run on a compute unit
// LDS       QK_STAGES tiles of k and of v. k stands as slabs of 64 columns, whose 16-byte pieces
//           change places by their key (attention_mfma_gpu.h). v stands likewise where LDS
//           transposes as it is read; else an entry of 16 bytes has a lane's eight keys of a column
//           (attention_mfma_values_gpu.h)
// Registers q, o; a tile's scores, the next tile's; k and v as operands; v on its way, unless it is
//           copied to LDS; codes on their way
// Edges     keys past the end are zeros, since they are outside their buffer, and are hidden; only
//           a tile that not all of a wave's rows see pays for hiding some
// Schedule  of tile t: scores (t), between their products most weights (t - 1), reads of v (t - 1),
//           v (t) to LDS, loads of v (t + 1); meet; o (t - 1), between its products the other
//           weights, the largest of scores (t), copies of k (t + QK_STAGES) to LDS, reads of k
//           (t + 1). Where v is copied, v (t - 1 + QK_STAGES) beside k, and not before. With QK_FP8
//           k (t + 2) to LDS and loads of k (t + 3) in place of the copies. Pins keep each step
//           where it stands
#include "attention_mfma_values_gpu.h"
#include "attention_store_gpu.h"

// ---- products, with vector work between them

enum { HALVES = QD_MMA_STEPS, STEPS = KEY_UNITS * HALVES }; // of an operand, of values
enum { KEY_TILE_STEPS = D / 16 * HALVES, KEY_STEPS = S_TILES * KEY_TILE_STEPS };
enum { VALUE_STEPS = O_TILES * STEPS };
static_assert(SCORES == S_TILES * 16);

/** Returns how many of `count` things are done before step i, if they are spread over steps `first`
 *  to `end` - 1. */
QD_INLINE uint32_t done_by(uint32_t i, uint32_t count, uint32_t first, uint32_t end) {
    return i < first ? 0 : qd_min((i - first) * count / (end - first), count);
}
#define SHARE(n, i, count, first, end)                                                             \
    QD_UNROLL for (uint32_t n = done_by(i, count, first, end);                                     \
                   n < done_by((i) + 1, count, first, end); n++)

/** Scores on their way to weights. */
typedef struct scores {
    qd_mma_acc s[S_TILES];
} scores;

/** How a row's scores become weights: a weight is 2^(score unit + base), for tiles whose largest
 *  score of base 2 is from -FAR to `most`; -infinity: for no other tile. */
typedef struct measure {
    float unit, base, most;
} measure;

/** Weights, as the second product takes them, and those on their way. */
typedef struct weights {
    qd_u32x4 packed[KEY_UNITS];
    float powers[SCORES];
} weights;

// A tile's scores become weights in steps FIRST_WEIGHED to WEIGH_STEPS: between the products of the
// next tile's scores, and the first ones of values, which need the first keys' weights first.
enum { FIRST_WEIGHED = 1, WEIGH_STEPS = KEY_STEPS + 3 * VALUE_STEPS / 8 };
QD_INLINE uint32_t weighed_by(uint32_t step) {
    const uint32_t steps = step > FIRST_WEIGHED ? step - FIRST_WEIGHED : 0;
    return qd_min(steps * SCORES / (WEIGH_STEPS - FIRST_WEIGHED), SCORES);
}

QD_INLINE void weigh_some(const measure *m, const scores *x, uint32_t first, uint32_t end,
                          weights *out) {
    QD_UNROLL for (uint32_t i = first; i < end; i++)
        out->powers[i] = qd_exp2(__builtin_fmaf(score(x->s, 0, i), m->unit, m->base));
}
QD_INLINE void pack_some(row *r, uint32_t first, uint32_t end, weights *out) {
    QD_UNROLL for (uint32_t i = first; i < end; i++) {
        if (i % 2 == 0)
            continue;
        r->sum += out->powers[i - 1] + out->powers[i];
        out->packed[i / 8][i % 8 / 2] = qd_round2_fast(QK_F16, out->powers[i - 1], out->powers[i]);
    }
}

/** Does a step: exponentials, and the sum and rounding of those of the step before, as they take
 *  long. */
QD_INLINE void weigh_step(row *r, const measure *m, const scores *x, uint32_t step, weights *out) {
    weigh_some(m, x, weighed_by(step), weighed_by(step + 1), out);
    if (step > FIRST_WEIGHED)
        pack_some(r, weighed_by(step - 1), weighed_by(step), out);
}

#define MOVES_VALUES (QK_FP8 || !QD_READS_TRANSPOSED) // through registers

/** What a wave has on its way from tile to tile. */
typedef struct flow {
    const part *p;
    key_mover k;
    value_mover v;
    bool is_paged;
    window next_k, next_v;             // if there are windows
    int32_t left;                      // keys from the begin of the next tile of k on
    uint32_t plain_first, plain_count; // first keys of tiles that all of the wave's rows see
#if !QK_FP8
    uint32_t to; // the wave's own part of a slab in LDS
#endif
    uint32_t k_at[4], v_at[V_PLACES]; // the movers', at the laps of what is read next
    uint32_t lap;                     // of this tile: 0 or 1
    qd_u32x4 keys[KEY_PIECES], values[VALUE_PIECES];
#if QK_FP8
    qd_u32x2 moving_keys[SLABS];
#endif
#if MOVES_VALUES
    moving_values moving;
#endif
    measure measure;
    weights weights;
} flow;

/** Tiles of which one is moved while another one is computed: of k and of v. */
enum { K_AHEAD = QK_FP8 ? STAGES + 1 : STAGES, V_AHEAD = MOVES_VALUES ? 1 : STAGES - 1 };

/** Whether windows say where tiles lie. Heads of 256 leave gfx942 no scalar registers for them. */
QD_INLINE bool has_windows(const flow *f) {
    return D <= 192 && !f->is_paged;
}

/** Where the next tiles of k and of v, or, while is_first, those from key `begin` on lie. */
QD_INLINE __amdgpu_buffer_rsrc_t next_keys(const flow *f, bool is_first, uint32_t begin,
                                           uint32_t unit) {
    return is_first || !has_windows(f) ? buffer_of(f->p, &f->k.from, f->is_paged, begin, unit)
                                       : qd_buffer(f->next_k.from, f->next_k.bytes);
}
QD_INLINE __amdgpu_buffer_rsrc_t next_values(const flow *f, bool is_first, uint32_t begin,
                                             uint32_t unit) {
    return is_first || !has_windows(f) ? buffer_of(f->p, &f->v.from, f->is_paged, begin, unit)
                                       : qd_buffer(f->next_v.from, f->next_v.bytes);
}

/** Opens the windows that the loop begins with. */
QD_INLINE void open_windows(flow *f, uint32_t begin) {
    f->left = (int32_t)(f->p->chunk_end - begin) - K_AHEAD * TILE;
    f->next_k = open_window(&f->k.from, begin + K_AHEAD * TILE, f->left);
    f->next_v =
        open_window(&f->v.from, begin + V_AHEAD * TILE, f->left + (K_AHEAD - V_AHEAD) * TILE);
}

/** Goes on to the next tiles of k and of v. Only of the last tiles some keys are missing. */
QD_INLINE void slide(flow *f) {
    f->next_k.from += f->k.from.row * TILE;
    f->next_v.from += f->v.from.row * TILE;
    f->left -= TILE;
    if (QD_RARELY(f->left < TILE)) {
        f->next_k.bytes = bytes_there(&f->k.from, f->left);
        f->next_v.bytes = bytes_there(&f->v.from, f->left + (K_AHEAD - V_AHEAD) * TILE);
    }
}

#if !QK_FP8
QD_INLINE void copy_keys(const flow *f, QD_LDS uint8_t *to, bool is_first, uint32_t begin,
                         uint32_t i) {
    copy_slab(to + f->to, next_keys(f, is_first, begin, unit_copied(i / SLABS)), f->k.places, SLABS,
              i);
}
#endif

#if !MOVES_VALUES

enum { COPIES = KEY_COPIES + VALUE_COPIES, UNDER_WAY = (STAGES - 2) * COPIES };

/** Copies values to their stage, of which `odd` and `lap` say the number. */
QD_INLINE void copy_values(const flow *f, uint32_t odd, uint32_t lap, bool is_first, uint32_t begin,
                           uint32_t i) {
    copy_slab(v_stage(odd) + lap * V_LAP + f->to,
              next_values(f, is_first, begin, unit_copied(i / VALUE_SLABS)), f->v.places,
              VALUE_SLABS, i);
}

/** Does step i of KEY_STEPS of what is moved meanwhile: v. */
QD_INLINE void move_values(flow *f, uint32_t, uint32_t odd, uint32_t i) {
    SHARE(n, i, VALUE_PIECES, 0, KEY_STEPS)
    f->values[n] = read_values(v_stage(!odd), f->v_at, n);
}

/** Does step i of VALUE_STEPS of what is moved meanwhile: k, and v of as many tiles ahead. */
QD_INLINE void move_keys(flow *f, uint32_t begin, uint32_t odd, uint32_t i) {
    SHARE(n, i, KEY_COPIES, 0, VALUE_STEPS / 2)
    copy_keys(f, k_stage(odd) + f->lap * K_LAP, false, begin + K_AHEAD * TILE, n);
    SHARE(n, i, VALUE_COPIES, VALUE_STEPS / 2, VALUE_STEPS)
    copy_values(f, !odd, odd ? f->lap : 1 - f->lap, false, begin + V_AHEAD * TILE, n);
    SHARE(n, i, KEY_PIECES, 0, VALUE_STEPS)
    f->keys[n] = read_keys(k_stage(!odd), f->k_at, n);
}

/** Puts the first tiles on their way. BEGUN of what moves may be under way when the first tile of k
 *  has arrived. */
#define BEGUN ((STAGES - 1) * COPIES)
QD_INLINE void fill(flow *f, uint32_t begin) {
    QD_UNROLL for (uint32_t t = 0; t < STAGES; t++) {
        QD_UNROLL for (uint32_t i = 0; i < KEY_COPIES; i++)
            copy_keys(f, k_stage(t % 2) + t / 2 * K_LAP, true, begin + t * TILE, i);
        QD_UNROLL for (uint32_t i = 0; t && i < VALUE_COPIES; i++)
            copy_values(f, (t - 1) % 2, (t - 1) / 2, true, begin + (t - 1) * TILE, i);
    }
}

#else

/** Starts load i of the tile of v that begins at key `begin`. */
QD_INLINE void fetch_values(flow *f, bool is_first, uint32_t begin, uint32_t i) {
    load_values(&f->v, next_values(f, is_first, begin, unit_of_values()), i, f->moving);
}

/** Does step i of KEY_STEPS of what is moved meanwhile: v. */
QD_INLINE void move_values(flow *f, uint32_t begin, uint32_t odd, uint32_t i) {
    enum { HALF = KEY_STEPS / 2 };
    SHARE(n, i, VALUE_PIECES, 0, KEY_STEPS)
    f->values[n] = read_values(v_stage(!odd), f->v_at, n);
    SHARE(n, i, VALUE_LANDS, 0, HALF)
    land_values(&f->v, v_stage(odd), n, f->moving);
    SHARE(n, i, VALUE_LOADS, HALF, KEY_STEPS)
    fetch_values(f, false, begin + V_AHEAD * TILE, n);
}

#if QK_FP8

enum { UNDER_WAY = VALUE_LOADS + SLABS };

QD_INLINE void fetch_keys(flow *f, bool is_first, uint32_t begin, uint32_t i) {
    f->moving_keys[i] = load_codes(f->k.codes, next_keys(f, is_first, begin, unit_of_codes()), i);
}

/** Does step i of VALUE_STEPS of what is moved meanwhile: k. */
QD_INLINE void move_keys(flow *f, uint32_t begin, uint32_t odd, uint32_t i) {
    enum { HALF = VALUE_STEPS / 2 };
    SHARE(n, i, SLABS, 0, HALF)
    land_codes(f->k.codes, k_stage(odd), n, f->moving_keys[n]);
    SHARE(n, i, SLABS, HALF, VALUE_STEPS)
    fetch_keys(f, false, begin + K_AHEAD * TILE, n);
    SHARE(n, i, KEY_PIECES, HALF, VALUE_STEPS)
    f->keys[n] = read_keys(k_stage(!odd), f->k_at, n);
}

/** Puts the first tiles on their way, those of k's stages to LDS. BEGUN may be under way then. */
#define BEGUN UNDER_WAY
QD_INLINE void fill(flow *f, uint32_t begin) {
    qd_u32x2 first[SLABS];
    QD_UNROLL for (uint32_t t = 0; t <= STAGES; t++) {
        QD_UNROLL for (uint32_t i = 0; i < SLABS; i++) {
            if (t)
                first[i] = f->moving_keys[i];
            fetch_keys(f, true, begin + t * TILE, i);
        }
        QD_UNROLL for (uint32_t i = 0; t == STAGES && i < VALUE_LOADS; i++)
            fetch_values(f, true, begin, i);
        QD_UNROLL for (uint32_t i = 0; t && i < SLABS; i++)
            land_codes(f->k.codes, k_stage(t - 1), i, first[i]);
    }
}

#else

enum { UNDER_WAY = VALUE_LOADS };

/** Does step i of VALUE_STEPS of what is moved meanwhile: k. */
QD_INLINE void move_keys(flow *f, uint32_t begin, uint32_t odd, uint32_t i) {
    SHARE(n, i, KEY_COPIES, 0, VALUE_STEPS)
    copy_keys(f, k_stage(odd), false, begin + K_AHEAD * TILE, n);
    SHARE(n, i, KEY_PIECES, VALUE_STEPS / 2, VALUE_STEPS)
    f->keys[n] = read_keys(k_stage(!odd), f->k_at, n);
}

/** Puts the first tiles on their way. BEGUN of what moves may be under way when the first tile of k
 *  has arrived. */
#define BEGUN (KEY_COPIES + VALUE_LOADS)
QD_INLINE void fill(flow *f, uint32_t begin) {
    QD_UNROLL for (uint32_t t = 0; t < STAGES; t++) QD_UNROLL
        for (uint32_t i = 0; i < KEY_COPIES; i++)
            copy_keys(f, k_stage(t), true, begin + t * TILE, i);
    QD_UNROLL for (uint32_t i = 0; i < VALUE_LOADS; i++)
        fetch_values(f, true, begin, i);
}

#endif
#endif

/** Finds how a tile's scores become weights, of which the row's largest product is `top`. Mostly
 *  that is as before: two comparisons tell. */
QD_INLINE void raise(flow *f, wave *w, scores *x, float top) {
    row *r = &w->rows[0];
    float units[] = {r->scale * log2_e}, tops[] = {top * units[0]};
    if (!QD_RARELY(qd_ballot(tops[0] > f->measure.most) | qd_ballot(tops[0] < -FAR)))
        return;
    round_far_scores(x->s, units, tops);
    const bool is_far = units[0] != r->scale * log2_e;
    tops[0] -= HEADROOM;
    rise(w, tops);
    f->measure.unit = units[0];
    f->measure.base = -__builtin_fmaxf(r->top, least); // no key seen yet: finite
    f->measure.most = is_far ? -__builtin_inff() : __builtin_fminf(r->top + RISE + HEADROOM, FAR);
}

/** Keeps what a step has computed before what follows. */
QD_INLINE void anchor_weights(flow *f, wave *w, uint32_t step) {
    QD_UNROLL for (uint32_t i = weighed_by(step - 1) / 2 * 2; i < weighed_by(step); i++)
        QD_ANCHOR(f->weights.powers[i]);
    QD_UNROLL for (uint32_t i = 0; i < weighed_by(step - 1) / 2; i++)
        QD_ANCHOR(f->weights.packed[i / 4][i % 4]);
    QD_ANCHOR(w->rows[0].sum);
}

/** Multiplies q and k; weighs scores of the tile before, whose largest is `top`. */
QD_INLINE void multiply_keys(flow *f, wave *w, uint32_t begin, uint32_t odd, scores *before,
                             float top, qd_mma_acc s[S_TILES]) {
    QD_UNROLL for (uint32_t i = 0; i < KEY_STEPS; i++) {
        const uint32_t t = i / KEY_TILE_STEPS, step = i % KEY_TILE_STEPS;
        s[t] = qd_mma_step(QK_F16, i % HALVES, f->keys[i / HALVES], w->q[step / HALVES][0],
                           step ? s[t] : (qd_mma_acc)0);
        if (i == FIRST_WEIGHED)
            raise(f, w, before, top);
        if (i >= FIRST_WEIGHED)
            weigh_step(&w->rows[0], &f->measure, before, i, &f->weights);
        move_values(f, begin, odd, i);
        qd_pin();
    }
    anchor_weights(f, w, KEY_STEPS);
}

/** Multiplies weights and v, of which the last weights are yet to be found. Returns the largest
 *  score of the next tile. */
QD_INLINE float multiply_values(flow *f, wave *w, uint32_t begin, uint32_t odd,
                                const scores *before, const qd_mma_acc s[S_TILES]) {
    enum { TWOS = SCORES / 2, FIRST = VALUE_STEPS / 4, END = 3 * VALUE_STEPS / 4 };
    float top = score(s, 0, 0), other = 0;
    QD_UNROLL for (uint32_t i = 0; i < VALUE_STEPS; i++) {
        const uint32_t n = i % O_TILES, j = i / O_TILES;
        w->o[n] = qd_mma_step(QK_F16, j % HALVES, f->values[n * KEY_UNITS + j / HALVES],
                              f->weights.packed[j / HALVES], w->o[n]);
        if (KEY_STEPS + i <= WEIGH_STEPS)
            weigh_step(&w->rows[0], &f->measure, before, KEY_STEPS + i, &f->weights);
        SHARE(e, i, TWOS, FIRST, END)
        top = __builtin_fmaxf(__builtin_fmaxf(top, score(s, 0, 2 * e)), score(s, 0, 2 * e + 1));
        if (i == END)
            other = qd_as_f32(qd_other_half(qd_as_u32(top)));
        move_keys(f, begin, odd, i);
        if (has_windows(f) && i == VALUE_STEPS - 1)
            slide(f);
        qd_pin();
    }
    return __builtin_fmaxf(top, other);
}

// ---- the kernel

/** Multiplies the tile of keys from `begin` on, which is `odd` in its number, and adds the tile
 *  before, whose scores are *before and the largest of these `top`. Returns the largest of this
 *  tile's. */
QD_INLINE float turn(flow *f, wave *w, uint32_t begin, uint32_t odd, scores *now, scores *before,
                     float top) {
    multiply_keys(f, w, begin, odd, before, top, now->s);
    QD_WAIT(UNDER_WAY); // the next tile of k has arrived, this one of v is in LDS
    qd_meet_pinned();
    if (QD_RARELY(begin - f->plain_first >= f->plain_count))
        hide(w, begin, now->s);
    return multiply_values(f, w, begin, odd, before, now->s);
}

/** Goes on to the other lap with what an odd tile reads. */
QD_INLINE void change_laps(flow *f) {
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        f->k_at[i] ^= K_LAP;
    QD_UNROLL for (uint32_t i = 0; i < V_PLACES; i++)
        f->v_at[i] ^= V_LAP;
}

/** Adds the last tile. */
QD_INLINE void finish(flow *f, wave *w, scores *last, float top) {
    raise(f, w, last, top);
    weigh_some(&f->measure, last, 0, SCORES, &f->weights);
    pack_some(&w->rows[0], 0, SCORES, &f->weights);
    QD_UNROLL for (uint32_t i = 0; i < VALUE_STEPS; i++) {
        const uint32_t n = i / STEPS, j = i % STEPS;
        w->o[n] =
            qd_mma_step(QK_F16, j % HALVES, read_values(v_odd, f->v_at, n * KEY_UNITS + j / HALVES),
                        f->weights.packed[j / HALVES], w->o[n]);
    }
}

/** Returns scores that weigh nothing. */
QD_INLINE scores no_scores(void) {
    scores x;
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++)
        x.s[t] = -__builtin_inff();
    return x;
}

/** Puts the first tiles on their way, and clears the tile of v before the first one, which has no
 *  weight. */
QD_INLINE void start(flow *f, uint32_t begin) {
    fill(f, begin);
    open_windows(f, begin);
    clear_values(v_odd + (LAPS - 1) * V_LAP);
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        f->k_at[i] = f->k.at[i];
    QD_UNROLL for (uint32_t i = 0; i < V_PLACES; i++)
        f->v_at[i] = f->v.at[i] ^ V_LAP;
    QD_WAIT(BEGUN);
    qd_meet_pinned();
    QD_UNROLL for (uint32_t i = 0; i < KEY_PIECES; i++)
        f->keys[i] = read_keys(k_even, f->k_at, i);
}

typedef struct movers {
    key_mover k;
    value_mover v;
} movers;

/** Adds the tiles of a chunk's keys from `begin` to `end`, and one that nobody sees if they are odd
 *  in number. */
QD_INLINE void take_tiles(const part *p, const movers *m, wave *w, bool is_paged, uint32_t begin,
                          uint32_t end) {
    flow f = {.p = p, .k = m->k, .v = m->v, .is_paged = is_paged};
    f.measure.most = -__builtin_inff();
    f.plain_first = w->all_first;
    f.plain_count = w->all_end < w->all_first + TILE ? 0 : w->all_end - w->all_first - TILE + 1;
#if !QK_FP8
    f.to = begin_copied();
#endif
    scores even, odd = no_scores();
    float top = -__builtin_inff();
    start(&f, begin);
    QD_NO_UNROLL for (uint32_t tile = begin; tile < end; tile += 2 * TILE) {
        top = turn(&f, w, tile, 0, &even, &odd, top);
        change_laps(&f);
        top = turn(&f, w, tile + TILE, 1, &odd, &even, top);
        f.lap ^= LAPS - 1;
    }
    finish(&f, w, &odd, top);
    QD_WAIT(0);
    qd_meet_pinned(); // all waves have read the last tiles before the next ones are written
}

/** Returns two 16-bit numbers times a number; what comes out must be exact. */
QD_INLINE uint32_t times(uint32_t x, float factor) {
    if (QK_F16)
        return __builtin_bit_cast(uint32_t,
                                  __builtin_bit_cast(qd_f16x2, x) * (qd_f16x2)(_Float16)factor);
    return qd_narrow2(false, qd_as_f32(x << 16) * factor, qd_as_f32(x & 0xFFFF0000) * factor);
}

/** Makes the row's scale positive, since only then a hidden key's score stays -infinity: a sign, a
 *  zero or a NaN becomes q's. */
QD_INLINE void make_positive(wave *w) {
    row *r = &w->rows[0];
    const bool is_positive = r->scale > 0;
    const float factor = is_positive ? 1 : r->scale < 0 ? -1 : r->scale * 0;
    if (!qd_ballot(!is_positive))
        return;
    r->scale = is_positive ? r->scale : r->scale < 0 ? -r->scale : 1;
    QD_UNROLL for (uint32_t i = 0; i < D / 4; i++)
        w->q[i / 4][0][i % 4] = times(w->q[i / 4][0][i % 4], factor);
}

QD_INLINE void take_rows(const part *p, const movers *m, uint32_t row_begin) {
    const uint32_t last = qd_min(row_begin + ROWS, p->row_end) - 1, end = end_key(p, last);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    const uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    wave w;
    begin_rows(p, &w, row_begin + qd_wave() * QD_MMA_COLUMNS);
    if (D <= 192) // the host refuses such scales of others
        make_positive(&w);
    if (tile < end && m->k.from.indices)
        take_tiles(p, m, &w, true, tile, end);
    else if (tile < end)
        take_tiles(p, m, &w, false, tile, end);
    store_rows(p, &w);
}

/** Computes one workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    part p = make_part(args, work, kv_head);
    const movers m = {make_key_mover(&p, reread(args)), make_value_mover(&p, reread(args))};
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS)
            take_rows(&p, &m, row);
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

QD_WAVES_PER_EU(QK_WAVES, QK_WAVES)
QD_KERNEL(THREADS) qk_attention_mfma(qk_attention_args args) {
    const uint32_t heads = args.num_kv_heads, parts = qk_attention_count(&args) * heads;
    for (uint32_t id = qd_block(); id < parts; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(reread(&args), id / heads));
        if (qk_attention_takes(reread(&args), work.request))
            take_work(&args, &work, id % heads);
    }
}
