// SPDX-License-Identifier: Apache-2.0
// Latent attention of more than 16 rows, queries times heads, on CDNA's matrix cores, which limit
// it: products of one tile of keys run beside those of the next.
//
// Needs     as mla_few_gpu.c
// Tile      128 rows by 16 keys. Of eight waves each has the scores of 16 rows, and 64 columns of
//           all rows' o
// Launch    512 threads; as many workgroups as there are work items, or fewer; one runs on a
//           compute unit
// LDS       three tiles of keys of 16 bits (mla_cache_gpu.h), 54 KiB; two tiles' weights; by how
//           much rows' sums shrink when their tops rise
// Registers of 16 rows q; 64 columns of 128 rows' o; of the next tile of keys a part, on its way
// Edges     keys past the end repeat the last one and are hidden; rows past the end are the last
//           one again and are not stored; pairs of sixteens of rows past the end are not
//           multiplied
// Schedule  put tile t + 2 into LDS, ask for the next; scores and weights of tile t + 1, values of
//           tile t; meet. Half of the waves take values first, so that of a SIMD's two one
//           multiplies while the other one weighs
// clang-format off: this stands in for mma.h, which the others include
#include "mma/narrow.h"
// clang-format on

#include "code.h"
#include "mla_cache_gpu.h"

enum { AHEAD = QK_AHEAD }; // operands that are read before they are used
enum { STAGES = 3, BLOCKS = WAVES, BLOCK = QD_MMA_COLUMNS }; // of rows
static_assert(TILE == QD_MMA_ROWS && COLUMNS * WAVES == DIM && STAGE_BYTES % 256 == 0);

[[clang::loader_uninitialized]] static QD_LDS uint8_t stages[STAGES * STAGE_BYTES]
    __attribute__((aligned(256)));
/** Weights of two tiles, as operands. */
[[clang::loader_uninitialized]] static QD_LDS qd_u32x2 weights[2][BLOCKS][QD_WAVE];
/** The factors of sums; whether some of a block are not 1. */
[[clang::loader_uninitialized]] static QD_LDS float factors[2][BLOCKS][BLOCK];
[[clang::loader_uninitialized]] static QD_LDS uint32_t rises[2][BLOCKS]
    __attribute__((aligned(16)));

/** What a lane holds: its row, of the wave's own block; its columns of all blocks' o. */
typedef struct sums {
    row r;
    uint32_t blocks; // that have rows, rounded up to pairs
    qd_mma_acc o[BLOCKS][O_TILES];
} sums;

/** A step's part of a row of q: 16 bits, or with QK_CODES codes, which keys are, too. */
#if QK_CODES
typedef qd_u32x2 query_step;
#else
typedef qd_mma_operand query_step;
#endif

QD_INLINE query_step load_step(const char *at, [[maybe_unused]] bool is_fp8) {
#if QK_CODES
    return *(const qd_u32x2 *)at;
#else
    return query_at(at, is_fp8);
#endif
}

QD_INLINE void load_row(const query *from, bool is_fp8, query_step q[STEPS]) {
    const uint32_t bytes = is_fp8 ? 1 : 2;
    QD_UNROLL for (uint32_t odd = 0; odd < 2; odd++) {
        const uint32_t first = qd_opaque(first_element(odd) * bytes);
        const char *const nope = from->nope + first;
        QD_UNROLL for (uint32_t i = 0; i < NOPE_STEPS / 2; i++)
            q[2 * i + odd] = load_step(nope + i * 64 * bytes, is_fp8);
        q[NOPE_STEPS + odd] = load_step(from->pe + first, is_fp8);
    }
}

/** Loads the row of q that the lane owns, of those from `begin` on. */
QD_INLINE void load_queries(const part *p, uint32_t begin, query_step q[STEPS]) {
    const query from = find_query(p, begin + qd_wave() * BLOCK + qd_mma_line());
    if (from.is_fp8)
        load_row(&from, true, q);
    else
        load_row(&from, false, q);
}

// ---- scores and weights

#if QK_CODES
typedef qd_u32x4 key_piece;
enum { PIECE_STEPS = 2 };
#else
typedef qd_mma_operand key_piece;
enum { PIECE_STEPS = 1 };
#endif
enum { KEY_PIECES = STEPS / PIECE_STEPS };

QD_INLINE key_piece read_piece(const QD_LDS uint8_t *stage, uint32_t key, uint32_t i) {
#if QK_CODES
    return read_codes(stage, key, i);
#else
    return read_key(stage, key, i % 2, i / 2);
#endif
}

/** Returns s and what piece i of a key adds. */
QD_INLINE qd_mma_acc multiply_piece(key_piece keys, const query_step q[STEPS], uint32_t i,
                                    qd_mma_acc s) {
#if QK_CODES
    s = qd_mma_codes(keys.lo, q[2 * i], s);
    return qd_mma_codes(keys.hi, q[2 * i + 1], s);
#else
    return qd_mma(QK_F16, keys, &q[i], s);
#endif
}

/** Returns the base-2 scores of the wave's rows for the tile of keys from `tile` on. */
QD_INLINE qd_mma_acc multiply_keys(const row *r, const query_step q[STEPS],
                                   const QD_LDS uint8_t *stage, uint32_t tile, uint32_t all_end) {
    const uint32_t key = qd_opaque(qd_mma_line());
    key_piece keys[AHEAD];
    qd_mma_acc s = 0;
    QD_UNROLL for (uint32_t i = 0; i < AHEAD; i++)
        keys[i] = read_piece(stage, key, i);
    QD_UNROLL for (uint32_t i = 0; i < KEY_PIECES; i++) {
        s = multiply_piece(keys[i % AHEAD], q, i, s);
        if (i + AHEAD < KEY_PIECES)
            keys[i % AHEAD] = read_piece(stage, key, i + AHEAD);
        qd_pin();
    }
    s *= r->scale;
    if (tile + TILE > all_end) QD_UNROLL
        for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t key = tile + qd_mma_row(qd_mma_part(), e);
            s[e] = key >= r->end ? -__builtin_inff() : s[e];
        }
    return s;
}

/** Raises a row's top where its scores have risen far, and tells all waves by how much its sums
 *  shrink. */
QD_INLINE void raise(row *r, qd_mma_acc s, uint32_t buffer) {
    const float pair = __builtin_fmaxf(__builtin_fmaxf(s[0], s[1]), __builtin_fmaxf(s[2], s[3]));
    const float top = qd_mma_max(pair);
    const bool is_risen = top > r->top + RISE;
    if (qd_ballot(is_risen)) {
        const float factor = is_risen ? qd_exp2(r->top - top) : 1;
        r->top = is_risen ? top : r->top;
        r->sum *= factor;
        factors[buffer][qd_wave()][qd_mma_line()] = factor;
        rises[buffer][qd_wave()] = 1;
    } else {
        rises[buffer][qd_wave()] = 0;
    }
}

/** Turns scores into weights and hands them to all waves. */
QD_INLINE void weigh(row *r, qd_mma_acc s, uint32_t buffer) {
    const float base = __builtin_fmaxf(r->top, least); // no key seen: not -infinity minus itself
    float power[QD_MMA_ACC];
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        power[e] = qd_exp2(s[e] - base);
        r->sum += power[e];
    }
    weights[buffer][qd_wave()][qd_lane()] =
        (qd_u32x2){qd_round2(QK_F16, power[0], power[1]), qd_round2(QK_F16, power[2], power[3])};
}

// ---- values

/** Scales the sums of rows whose tops have risen. */
QD_INLINE void shrink(sums *w, uint32_t buffer) {
    const QD_LDS qd_u32x4 *flags = (const QD_LDS qd_u32x4 *)rises[buffer];
    const qd_u32x4 any = flags[0] | flags[1];
    if (!qd_uniform(any.x | any.y | any.z | any.w))
        return;
    QD_UNROLL for (uint32_t b = 0; b < BLOCKS; b++) {
        if (!qd_uniform(rises[buffer][b]))
            continue;
        const float factor = factors[buffer][b][qd_mma_line()];
        QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
            w->o[b][n] *= factor;
    }
}

QD_INLINE void multiply_values(sums *w, const QD_LDS uint8_t *stage, uint32_t buffer) {
    run values[LANE_KEYS];
    qd_u32x2 v[O_TILES];
    read_values(stage, values);
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        v[n] = (qd_u32x2){pair_of(values, 0, n), pair_of(values, 1, n)};
    QD_UNROLL for (uint32_t b = 0; b < BLOCKS; b++) {
        if (b % 2 == 0 && b >= w->blocks)
            break;
        const qd_u32x2 p = weights[buffer][b][qd_lane()];
        if (b % 2 == 0)
            qd_pin();
        QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
            w->o[b][n] = qd_mma_half(QK_F16, v[n], p, w->o[b][n]);
    }
}

// ---- a tile

/** The tiles in LDS, from the oldest on. */
typedef struct ring {
    uint32_t at[STAGES];
} ring;

QD_INLINE void turn(ring *r) {
    const uint32_t first = r->at[0];
    r->at[0] = r->at[1], r->at[1] = r->at[2], r->at[2] = first;
}

QD_INLINE void take_values(sums *w, const ring *r, uint32_t buffer) {
    shrink(w, buffer);
    multiply_values(w, stages + r->at[0], buffer);
}

/** Returns whether the wave adds values before it computes scores. It costs registers. */
QD_INLINE bool takes_values_first(void) {
    return !QK_TIGHT && qd_wave() >= WAVES / 2;
}

/** Adds the tiles of the chunk's keys below `end`, which the last row sees. */
QD_INLINE void take_tiles(const part *p, sums *w, carrier *c, uint32_t begin, uint32_t end,
                          uint32_t all_end) {
    const bool has_rows = qd_wave() < w->blocks;
    ring r = {{2 * STAGE_BYTES, 0, STAGE_BYTES}};
    query_step q[STEPS];
    uint32_t buffer = 0;
    rises[0][qd_wave()] = rises[1][qd_wave()] = 0; // of blocks without rows
    load_queries(p, begin, q);
    land(c, stages);
    fetch(p, c);
    ask_page(p, c);
    qd_barrier();
    for (uint32_t tile = p->chunk_begin; tile < end + TILE; tile += TILE) {
        land(c, stages + r.at[2]);
        fetch(p, c);
        ask_page(p, c);
        qd_pin();
        if (tile > p->chunk_begin && takes_values_first())
            take_values(w, &r, buffer ^ 1);
        if (has_rows && tile < end) {
            const qd_mma_acc s = multiply_keys(&w->r, q, stages + r.at[1], tile, all_end);
            raise(&w->r, s, buffer);
            weigh(&w->r, s, buffer);
        }
        if (tile > p->chunk_begin && !takes_values_first())
            take_values(w, &r, buffer ^ 1);
        qd_barrier();
        turn(&r);
        buffer ^= 1;
    }
}

// ---- the end

/** Stores the wave's columns of a block's rows times `factor` at o, which is the lane's row. */
QD_INLINE void store_row(const qd_mma_acc o[O_TILES], int dtype, char *to, float factor) {
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        const uint32_t d = my_column() + RUN * qd_mma_row(qd_mma_part(), e);
        const qd_f32x4 v = (qd_f32x4){o[0][e], o[1][e], o[2][e], o[3][e]} * factor;
        if (dtype == QD_F32) {
            *(qd_f32x4 *)(to + d * 4) = v;
        } else {
            const qd_u32x4 halves = qd_to_16(dtype, (qd_f32x8){v[0], v[1], v[2], v[3]});
            *(qd_u32x2 *)(to + d * 2) = halves.lo;
        }
    }
}

/** Finds how the wave's own rows end: stores their log-sum-exps, and tells their factors. */
QD_INLINE void end_rows(const part *p, const row *r, uint32_t begin) {
    const qk_attention_args *g = reread(p->args);
    const float sum = qd_mma_sum(r->sum);
    const uint32_t index = begin + qd_wave() * BLOCK + qd_opaque(qd_mma_line());
    const bool speaks = index < p->row_end && qd_mma_part() == 0;
    float factor;
    if (p->request.partial_begin < 0) {
        const row_place place = find_row(g, &p->request, p->index, 0, index);
        const row_end end = finish_row(g, &place, r->top, sum);
        factor = end.factor;
        if (speaks)
            store_lse(g, &place, end.lse);
    } else {
        factor = sum > 0 ? 1 / sum : 0;
        if (speaks)
            g->partial_lse[qk_attention_partial(g, &p->request, p->chunk_begin, index, 0)] =
                r->top + qd_log2(sum);
    }
    factors[0][qd_wave()][qd_mma_line()] = factor;
}

/** Stores a block's rows of a chunk that will be merged. The block's first row is row `begin`. */
QD_INLINE void store_partial(const part *p, const qd_mma_acc o[O_TILES], uint32_t b,
                             uint32_t begin) {
    const qk_attention_args *g = reread(p->args);
    const uint32_t index = begin + b * BLOCK + qd_opaque(qd_mma_line());
    const int64_t at = qk_attention_partial(g, &p->request, p->chunk_begin, index, 0);
    if (index < p->row_end)
        store_row(o, PARTIAL, partial_row(g, at), factors[0][b][qd_mma_line()]);
}

/** Stores a block's rows, the first of which is row `begin`. */
QD_INLINE void store_result(const part *p, const qd_mma_acc o[O_TILES], uint32_t b,
                            uint32_t begin) {
    const qk_attention_args *g = reread(p->args);
    const uint32_t index = begin + b * BLOCK + qd_opaque(qd_mma_line());
    const float factor = factors[0][b][qd_mma_line()];
    if (index >= p->row_end)
        return;
    const row_place place = find_row(g, &p->request, p->index, 0, index);
    char *to = (char *)g->o + o_offset(g, &place) * qd_element_bytes((int)g->dtype_o);
    if (g->dtype_o == QD_F32)
        store_row(o, QD_F32, to, factor);
    else if (g->dtype_o == QD_F16)
        store_row(o, QD_F16, to, factor);
    else
        store_row(o, QD_BF16, to, factor);
}

/** Moves all blocks' sums down by two. */
QD_INLINE void move_down(sums *w) {
    QD_UNROLL for (uint32_t b = 0; b + 2 < BLOCKS; b++) QD_UNROLL
        for (uint32_t n = 0; n < O_TILES; n++)
            w->o[b][n] = w->o[b + 2][n];
}

/** Stores all blocks, two at a time by the same code: waves come to each line of code once, and
 *  wait for it. Loops inside of an if would take more registers than there are. */
QD_INLINE void store_blocks(const part *p, sums *w, uint32_t begin) {
    const bool is_partial = p->request.partial_begin >= 0;
    QD_NO_UNROLL for (uint32_t b = 0; is_partial && b < w->blocks; b += 2, move_down(w)) {
        store_partial(p, w->o[0], b, begin);
        store_partial(p, w->o[1], b + 1, begin);
    }
    QD_NO_UNROLL for (uint32_t b = 0; !is_partial && b < w->blocks; b += 2, move_down(w)) {
        store_result(p, w->o[0], b, begin);
        store_result(p, w->o[1], b + 1, begin);
    }
}

// ---- the kernel

/** Adds up a chunk for at most 128 rows, from `begin` on. */
QD_INLINE void take_rows(const part *p, uint32_t begin) {
    const qk_mla_args *a = again(p);
    const uint32_t last = qd_min(begin + BLOCKS * BLOCK, p->row_end) - 1;
    carrier c = {};
    sums w = {.blocks = ((last - begin) / BLOCK + 2) / 2 * 2};
    if (p->chunk_begin < p->chunk_end)
        c = begin_carrier(p);
    w.r = begin_row(p, begin + qd_wave() * BLOCK + qd_mma_line());
    QD_UNROLL for (uint32_t b = 0; b < BLOCKS; b++) QD_UNROLL
        for (uint32_t n = 0; n < O_TILES; n++)
            w.o[b][n] = 0;
    const uint32_t end = qd_uniform(end_of(a, p, last / a->common.group));
    const uint32_t all_end = qd_uniform(end_of(a, p, begin / a->common.group));
    if (p->chunk_begin < end)
        take_tiles(p, &w, &c, begin, end, all_end);
    end_rows(p, &w.r, begin);
    qd_barrier();
    store_blocks(p, &w, begin);
    qd_barrier(); // all waves have read the factors
}

/** Computes a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(part *p, const qk_attention_work *work) {
    do {
        p->chunk_end = qk_attention_next_chunk(&p->request, p->chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end;
                          row += BLOCKS * BLOCK)
            take_rows(p, row);
        p->chunk_begin = p->chunk_end;
    } while (p->chunk_begin < work->kv_end);
}

static void code_end(void);

QD_WAVES_PER_EU(2, 2)
QD_KERNEL(THREADS) qk_mla_many(qk_mla_args args) {
    QD_ASK_FOR_CODE(code_end);
    const uint32_t count = CONSTANT(qk_attention_schedule, args.common.schedule)->num_works;
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = find_work(&args.common, id);
        part p = begin_part(&args, &work);
        if (is_taken(&args, &p))
            take_work(&p, &work);
    }
}

QD_CODE_END(code_end)
