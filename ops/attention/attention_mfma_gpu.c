// SPDX-License-Identifier: Apache-2.0
// Attention of prompts on CDNA's matrix cores at their full rate: vector work stands between matrix
// instructions, and a SIMD's other waves, of other workgroups, multiply where this one waits.
//
// Needs     MFMA of 16-bit kinds, copies to LDS; q, k and v of one 16-bit kind; head dims of
//           exactly QK_D and QK_D_VO, multiples of 64; scores that are the product times a positive
//           number
// Tile      128 rows by QK_TILE keys: 4 waves of 32 rows
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer;
//           QK_WAVES run on a compute unit
// LDS       two stages of k, as slabs of 64 columns, and of v, transposed. 16-byte piece p of key r
//           stands at p ^ r % 8. Of v an entry of 16 bytes has a lane's eight keys of a column, at
//           the place that entry_of gives
// Registers q, o; a tile's scores, the next tile's; k and v as operands; v on its way
// Edges     keys past the end are zeros, since they are outside their buffer, and are hidden; only
//           a tile that not all of a wave's rows see pays for hiding some
// Schedule  of tile t: scores (t), between their products most weights (t - 1), reads of v (t - 1),
//           v (t) to LDS, loads of v (t + 1); meet; o (t - 1), between its products the other
//           weights, the largest of scores (t), copies of k (t + 2) to LDS, reads of k (t + 1).
//           Pins keep each step where it stands
#include "attention_scores_gpu.h"
#include "attention_store_gpu.h"
#include "phases.h"

enum { SLABS = D / 64, KEY_UNITS = TILE / 16, UNIT = QK_ATTENTION_CHUNK_UNIT };
enum { PAIRS = UNIT / 2 / WAVES }; // of keys that a wave copies, of a unit
enum { COMBOS = TILE / 8, VALUES = COMBOS * (D_VO / 64) / WAVES }; // of 8 keys by 64 columns of v
enum { SLAB_BYTES = TILE * 128, VALUE_BYTES = KEY_UNITS * 1024 };  // of v: of 32 columns
enum { KEY_COPIES = KEY_UNITS * PAIRS * SLABS, VALUE_LOADS = VALUES * 4 }; // of a wave, for a tile
static_assert(UNIT == 16 && VALUES * WAVES == COMBOS * (D_VO / 64));

#define STAGE(name, bytes)                                                                         \
    [[clang::loader_uninitialized]] static QD_LDS uint8_t name[bytes] __attribute__((aligned(1024)))
STAGE(k_even, SLABS *SLAB_BYTES);
STAGE(k_odd, SLABS *SLAB_BYTES);
STAGE(v_even, O_TILES *VALUE_BYTES);
STAGE(v_odd, O_TILES *VALUE_BYTES);

// ---- from memory to LDS

/** k or v of a request and a head. */
typedef struct source {
    const char *begin;      // of key 0; paged: of page 0
    const int32_t *indices; // of its pages; null: none
    int64_t page;           // bytes
    uint32_t row;           // bytes
    uint32_t page_size;
} source;

/** What a lane moves, and where to. */
typedef struct mover {
    source k, v;
    uint32_t k_from[KEY_UNITS * PAIRS]; // of a tile, this lane's places
    uint32_t v_from[4];                 // the same of four keys that follow each other
    uint32_t v_to[2];                   // of an even column and the next one
    uint32_t k_at[4];                   // of a lane's operands: pieces 0 or 1, 2 or 3, …
    uint32_t v_at;
} mover;

/** Returns the place of a column of 32 among their entries. Lanes that read 16 bytes at once, and
 *  those that write 8 of every other column, then touch all banks. */
QD_INLINE uint32_t entry_of(uint32_t d) {
    const uint32_t odd = d % 2, pair = d / 2;
    return pair / 8 * 16 + odd * 8 + (pair % 8 ^ odd * 4);
}

QD_INLINE source make_source(const part *p, const qk_attention_args *g,
                             const qk_attention_rows *rows) {
    const bool is_paged = g->kv_indices;
    const int64_t first =
        is_paged ? 0 : p->index * rows->block + (int64_t)p->request.kv_begin * rows->token;
    return (source){.begin = (const char *)rows->data + (first + p->kv_head * rows->head) * 2,
                    .indices = is_paged ? g->kv_indices + p->request.kv_begin : nullptr,
                    .page = rows->block * 2,
                    .row = (uint32_t)rows->token * 2,
                    .page_size = g->page_size};
}

QD_INLINE mover make_mover(const part *p, const qk_attention_args *g) {
    mover m = {.k = make_source(p, g, &g->k), .v = make_source(p, g, &g->v)};
    const uint32_t lane = qd_lane(), part = qd_mma_part(), line = qd_mma_line();
    const uint32_t key = 2 * qd_wave() + lane / 32;
    QD_UNROLL for (uint32_t i = 0; i < KEY_UNITS * PAIRS; i++)
        m.k_from[i] =
            (key + i * 2 * WAVES) * m.k.row + (lane % 32 / 4 ^ key % 8) * 16 + lane % 4 * 4;
    const uint32_t combo = qd_wave() % COMBOS, half = lane % 2, pair = lane / 2;
    const uint32_t first = half * 8 + combo % 2 * 4 + combo / 2 * UNIT,
                   column = qd_wave() / COMBOS * 64 + pair * 2;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        m.v_from[i] = (first + i) * m.v.row + column * 2;
    const uint32_t begin = column / 32 * VALUE_BYTES + combo * 512 + half * 8;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++)
        m.v_to[i] = begin + entry_of(column % 32 + i) * 16;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        m.k_at[i] = line * 128 + ((2 * i + part) ^ line % 8) * 16;
    m.v_at = part * 512 + entry_of(line) * 16;
    return m;
}

/** Returns the buffer in which 16 keys, those from `unit` on of the tile that begins at key
 *  `begin`, lie where they would lie if the tile were contiguous: a page holds them wholly. Keys
 *  past the chunk's end are outside it. */
QD_INLINE __amdgpu_buffer_rsrc_t buffer_of(const part *p, const source *s, bool is_paged,
                                           uint32_t begin, uint32_t unit) {
    const uint32_t left = p->chunk_end - qd_scalar(qd_min(begin, p->chunk_end));
    const char *from = s->begin + (uint64_t)begin * s->row;
    if (is_paged) {
        const uint32_t key = qd_min(begin + unit, p->chunk_end - 1), page = key / s->page_size;
        const int64_t row = (int64_t)key - page * s->page_size - unit;
        from = s->begin + qd_const_i32(s->indices + page) * s->page + row * s->row;
    }
    return qd_buffer(from, qd_min(left, TILE) * s->row);
}

/** Makes copy i of a tile of k, of KEY_COPIES. */
QD_INLINE void copy_keys(const mover *m, QD_LDS uint8_t *to, __amdgpu_buffer_rsrc_t from,
                         uint32_t i) {
    const uint32_t s = i % SLABS, pair = i / SLABS;
    const uint32_t key = pair * 2 * WAVES + 2 * qd_wave();
    qd_copy_to_lds(to + s * SLAB_BYTES + key * 128, from, m->k_from[pair] + s * 128, 0);
}
QD_INLINE uint32_t unit_of_copy(uint32_t i) {
    return i / SLABS / PAIRS * UNIT;
}
QD_INLINE uint32_t unit_of_values(void) {
    return qd_wave() % COMBOS / 2 * UNIT;
}

/** Starts load i of a tile of v, of VALUE_LOADS. */
QD_INLINE void load_values(const mover *m, __amdgpu_buffer_rsrc_t from, uint32_t i,
                           uint32_t values[VALUES][4]) {
    const uint32_t column = i / 4 * (WAVES * 128 / COMBOS);
    values[i / 4][i % 4] = qd_buffer_load(from, m->v_from[i % 4] + column, 0);
}

/** Writes what four loads brought to LDS, i of 2 VALUES: four keys of an even column, or of the
 *  next one. */
QD_INLINE void land_values(const mover *m, QD_LDS uint8_t *to, uint32_t i,
                           const uint32_t values[VALUES][4]) {
    const uint32_t *v = values[i / 2], odd = i % 2;
    const qd_u32x2 keys = {qd_halves(v[0], v[1], odd), qd_halves(v[2], v[3], odd)};
    *(QD_LDS qd_u32x2 *)(to + m->v_to[odd] + i / 2 * (WAVES * 2 * VALUE_BYTES / COMBOS)) = keys;
}

QD_INLINE void clear_values(QD_LDS uint8_t *to) {
    for (uint32_t i = qd_thread() * 16; i < O_TILES * VALUE_BYTES; i += THREADS * 16)
        *(QD_LDS qd_u32x4 *)(to + i) = 0;
}

// ---- products, with vector work between them

enum { STEPS = TILE / 8, KEY_STEPS = S_TILES * D / 8, VALUE_STEPS = O_TILES * STEPS };
enum { KEY_PIECES = S_TILES * D / 16, VALUE_PIECES = O_TILES * KEY_UNITS };
static_assert(SCORES == S_TILES * 16);

/** Returns how many of `count` things are done before step i, if they are spread over steps `first`
 *  to `end` - 1. */
QD_INLINE uint32_t done_by(uint32_t i, uint32_t count, uint32_t first, uint32_t end) {
    return i < first ? 0 : qd_min((i - first) * count / (end - first), count);
}
#define SHARE(n, i, count, first, end)                                                             \
    QD_UNROLL for (uint32_t n = done_by(i, count, first, end);                                     \
                   n < done_by((i) + 1, count, first, end); n++)

QD_INLINE qd_u32x4 read_keys(const mover *m, const QD_LDS uint8_t *k, uint32_t i) {
    const uint32_t t = i / (D / 16), c = i % (D / 16);
    return *(const QD_LDS qd_u32x4 *)(k + m->k_at[c % 4] + c / 4 * SLAB_BYTES +
                                      t * QD_MMA_ROWS * 128);
}

QD_INLINE qd_u32x4 read_values(const mover *m, const QD_LDS uint8_t *v, uint32_t i) {
    return *(const QD_LDS qd_u32x4 *)(v + m->v_at + i * 1024);
}

/** Scores on their way to weights. */
typedef struct scores {
    qd_mma_acc s[S_TILES];
    float unit, base; // a weight is 2^(score unit + base)
} scores;

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

QD_INLINE void weigh_some(const scores *x, uint32_t first, uint32_t end, weights *out) {
    QD_UNROLL for (uint32_t i = first; i < end; i++)
        out->powers[i] = qd_exp2(__builtin_fmaf(score(x->s, 0, i), x->unit, x->base));
}
QD_INLINE void pack_some(row *r, uint32_t first, uint32_t end, weights *out) {
    QD_UNROLL for (uint32_t i = first; i < end; i++) {
        if (i % 2 == 0)
            continue;
        r->sum += out->powers[i - 1] + out->powers[i];
        out->packed[i / 8][i % 8 / 2] = qd_round2(QK_F16, out->powers[i - 1], out->powers[i]);
    }
}

/** Does a step: exponentials, and the sum and rounding of those of the step before, as they take
 *  long. */
QD_INLINE void weigh_step(row *r, const scores *x, uint32_t step, weights *out) {
    weigh_some(x, weighed_by(step), weighed_by(step + 1), out);
    if (step > FIRST_WEIGHED)
        pack_some(r, weighed_by(step - 1), weighed_by(step), out);
}

/** Where tiles lie: this tile of k and the next one; this tile of v and the one before. */
typedef struct stage {
    QD_LDS uint8_t *k, *next_k, *v, *v_before;
} stage;

/** What a wave has on its way from tile to tile. */
typedef struct flow {
    const part *p;
    const mover *m;
    bool is_paged;
    qd_u32x4 keys[KEY_PIECES], values[VALUE_PIECES];
    uint32_t moving[VALUES][4];
    weights weights;
} flow;

/** Does step i of KEY_STEPS of what is moved meanwhile: v. */
QD_INLINE void move_values(flow *f, uint32_t begin, stage at, uint32_t i) {
    enum { HALF = KEY_STEPS / 2 };
    SHARE(n, i, VALUE_PIECES, 0, KEY_STEPS)
    f->values[n] = read_values(f->m, at.v_before, n);
    SHARE(n, i, 2 * VALUES, 0, HALF)
    land_values(f->m, at.v, n, f->moving);
    SHARE(n, i, VALUE_LOADS, HALF, KEY_STEPS)
    load_values(f->m, buffer_of(f->p, &f->m->v, f->is_paged, begin + TILE, unit_of_values()), n,
                f->moving);
}

/** Does step i of VALUE_STEPS of what is moved meanwhile: k. */
QD_INLINE void move_keys(flow *f, uint32_t begin, stage at, uint32_t i) {
    SHARE(n, i, KEY_COPIES, 0, VALUE_STEPS)
    copy_keys(f->m, at.k, buffer_of(f->p, &f->m->k, f->is_paged, begin + 2 * TILE, unit_of_copy(n)),
              n);
    SHARE(n, i, KEY_PIECES, VALUE_STEPS / 2, VALUE_STEPS)
    f->keys[n] = read_keys(f->m, at.next_k, n);
}

/** Finds a row's top from a tile's largest product, and how its scores become weights. */
QD_INLINE void raise(wave *w, scores *x, float top) {
    float units[] = {w->rows[0].scale * log2_e}, tops[] = {top * units[0]};
    round_far_scores(x->s, units, tops);
    tops[0] -= HEADROOM;
    rise(w, tops);
    x->unit = units[0];
    x->base = -__builtin_fmaxf(w->rows[0].top, least); // no key seen yet: finite
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
QD_INLINE void multiply_keys(flow *f, wave *w, uint32_t begin, stage at, scores *before, float top,
                             qd_mma_acc s[S_TILES]) {
    QD_UNROLL for (uint32_t i = 0; i < KEY_STEPS; i++) {
        const uint32_t t = i / (D / 8), c = i % (D / 8) / 2;
        s[t] = qd_mma_half(QK_F16, i % 2, f->keys[i / 2], w->q[c][0],
                           i % (D / 8) ? s[t] : (qd_mma_acc)0);
        if (i == FIRST_WEIGHED)
            raise(w, before, top);
        if (i >= FIRST_WEIGHED)
            weigh_step(&w->rows[0], before, i, &f->weights);
        move_values(f, begin, at, i);
        qd_pin();
    }
    anchor_weights(f, w, KEY_STEPS);
}

/** Multiplies weights and v, of which the last weights are yet to be found. Returns the largest
 *  score of the next tile. */
QD_INLINE float multiply_values(flow *f, wave *w, uint32_t begin, stage at, const scores *before,
                                const qd_mma_acc s[S_TILES]) {
    enum { TWOS = SCORES / 2, FIRST = VALUE_STEPS / 4, END = 3 * VALUE_STEPS / 4 };
    float top = score(s, 0, 0), other = 0;
    QD_UNROLL for (uint32_t i = 0; i < VALUE_STEPS; i++) {
        const uint32_t n = i % O_TILES, j = i / O_TILES;
        w->o[n] = qd_mma_half(QK_F16, j % 2, f->values[n * KEY_UNITS + j / 2],
                              f->weights.packed[j / 2], w->o[n]);
        if (KEY_STEPS + i <= WEIGH_STEPS)
            weigh_step(&w->rows[0], before, KEY_STEPS + i, &f->weights);
        SHARE(e, i, TWOS, FIRST, END)
        top = __builtin_fmaxf(__builtin_fmaxf(top, score(s, 0, 2 * e)), score(s, 0, 2 * e + 1));
        if (i == END)
            other = qd_as_f32(qd_other_half(qd_as_u32(top)));
        move_keys(f, begin, at, i);
        qd_pin();
    }
    return __builtin_fmaxf(top, other);
}

// ---- the kernel

/** Multiplies the tile of keys from `begin` on, and adds the tile before, whose scores are *before
 *  and the largest of these `top`. Returns the largest of this tile's. */
QD_INLINE float turn(flow *f, wave *w, uint32_t begin, stage at, scores *now, scores *before,
                     float top) {
    multiply_keys(f, w, begin, at, before, top, now->s);
    QD_WAIT(VALUE_LOADS); // the next tile of k has arrived, this one of v is in LDS
    qd_meet_pinned();
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, now->s);
    return multiply_values(f, w, begin, at, before, now->s);
}

/** Adds the last tile. */
QD_INLINE void finish(flow *f, wave *w, scores *last, float top) {
    raise(w, last, top);
    weigh_some(last, 0, SCORES, &f->weights);
    pack_some(&w->rows[0], 0, SCORES, &f->weights);
    QD_UNROLL for (uint32_t i = 0; i < VALUE_STEPS; i++) {
        const uint32_t n = i / STEPS, j = i % STEPS;
        w->o[n] = qd_mma_half(QK_F16, j % 2, read_values(f->m, v_odd, n * KEY_UNITS + j / 2),
                              f->weights.packed[j / 2], w->o[n]);
    }
}

/** Returns scores that weigh nothing. */
QD_INLINE scores no_scores(void) {
    scores x = {.unit = 1, .base = 0};
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++)
        x.s[t] = -__builtin_inff();
    return x;
}

/** Puts the first two tiles of k and the first one of v on their way, and clears the tile of v
 *  before the first one, which has no weight. */
QD_INLINE void start(flow *f, uint32_t begin) {
    QD_UNROLL for (uint32_t t = 0; t < 2; t++) QD_UNROLL
        for (uint32_t i = 0; i < KEY_COPIES; i++)
            copy_keys(f->m, t ? k_odd : k_even,
                      buffer_of(f->p, &f->m->k, f->is_paged, begin + t * TILE, unit_of_copy(i)), i);
    QD_UNROLL for (uint32_t i = 0; i < VALUE_LOADS; i++)
        load_values(f->m, buffer_of(f->p, &f->m->v, f->is_paged, begin, unit_of_values()), i,
                    f->moving);
    clear_values(v_odd);
    QD_WAIT(KEY_COPIES + VALUE_LOADS);
    qd_meet_pinned();
    QD_UNROLL for (uint32_t i = 0; i < KEY_PIECES; i++)
        f->keys[i] = read_keys(f->m, k_even, i);
}

/** Adds the tiles of a chunk's keys from `begin` to `end`, and one that nobody sees if they are odd
 *  in number. */
QD_INLINE void take_tiles(const part *p, const mover *m, wave *w, bool is_paged, uint32_t begin,
                          uint32_t end) {
    flow f = {.p = p, .m = m, .is_paged = is_paged};
    scores even, odd = no_scores();
    float top = -__builtin_inff();
    start(&f, begin);
    QD_NO_UNROLL for (uint32_t tile = begin; tile < end; tile += 2 * TILE) {
        top = turn(&f, w, tile, (stage){k_even, k_odd, v_even, v_odd}, &even, &odd, top);
        top = turn(&f, w, tile + TILE, (stage){k_odd, k_even, v_odd, v_even}, &odd, &even, top);
    }
    finish(&f, w, &odd, top);
    QD_WAIT(0);
    qd_meet_pinned(); // all waves have read the last tiles before the next ones are written
}

QD_INLINE void take_rows(const part *p, const mover *m, uint32_t row_begin) {
    const uint32_t last = qd_min(row_begin + ROWS, p->row_end) - 1, end = end_key(p, last);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    const uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    wave w;
    begin_rows(p, &w, row_begin + qd_wave() * QD_MMA_COLUMNS);
    if (tile < end && m->k.indices)
        take_tiles(p, m, &w, true, tile, end);
    else if (tile < end)
        take_tiles(p, m, &w, false, tile, end);
    store_rows(p, &w);
}

/** Computes one workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_attention_args *args, const qk_attention_work *work,
                         uint32_t kv_head) {
    part p = make_part(args, work, kv_head);
    const mover m = make_mover(&p, reread(args));
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
