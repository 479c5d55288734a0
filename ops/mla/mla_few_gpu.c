// SPDX-License-Identifier: Apache-2.0
// Latent attention of at most 16 rows, queries times heads, on CDNA's matrix cores: memory limits
// it, so that the cache is read once, and always.
//
// Needs     MFMA of 16-bit kinds; q of bf16, or with QK_FP8 of FP8; a cache of bf16, or with QK_FP8
//           of the target's own e4m3; 512 + 64 elements; rows that begin at multiples of 16 bytes,
//           kpe's of FP8 at multiples of 8
// Tile      16 rows by 32 keys. Four waves have a half of the keys and of k each for the scores,
//           and 128 columns of o each
// Launch    256 threads; as many workgroups as there are work items, or fewer; QK_WAVES run on a
//           compute unit
// LDS       a tile of the cache (mla_cache_gpu.h), 36 KiB or 18, read as keys and as values; the
//           waves' products: 4 KiB
// Registers a half of the rows' q; a quarter of o; the next tile of the cache, on its way
// Edges     keys past the end repeat the last one and are hidden
// Schedule  put the tile into LDS, ask for the next one, whose pages came a tile earlier; meet;
//           products; meet; scores, weights and values; meet. All waves add up the same products in
//           the same order and weigh them alike, so that weights need not move
// clang-format off: this stands in for mma.h, which the others include
#include "mma/narrow.h"
// clang-format on

#include "../attention/attention_scores_gpu.h"
#include "code.h"
#include "mla_cache_gpu.h"

enum { KEY_PARTS = TILE / QD_MMA_ROWS, SPLITS = WAVES / KEY_PARTS, OWN_STEPS = STEPS / SPLITS };
static_assert(ROWS == QD_MMA_COLUMNS && KEY_PARTS == 2 && QD_MMA_K == TILE && OWN_STEPS == 9);

[[clang::loader_uninitialized]] static QD_LDS uint8_t stage[STAGE_BYTES]
    __attribute__((aligned(256)));
/** Products over a part of k, of a part of the tile's keys. */
[[clang::loader_uninitialized]] static QD_LDS qd_mma_acc products[KEY_PARTS][SPLITS][QD_WAVE]
    __attribute__((aligned(16)));

/** Returns which part of a tile's keys the wave multiplies, and which part of k. */
QD_INLINE uint32_t my_keys(void) {
    return qd_wave() / SPLITS;
}
QD_INLINE uint32_t my_split(void) {
    return qd_wave() % SPLITS;
}

// ---- queries

QD_INLINE void load_row(const query *from, bool is_fp8, qd_mma_operand q[OWN_STEPS]) {
    const uint32_t bytes = is_fp8 ? 1 : 2, first = first_element(my_split()) * bytes;
    const char *const nope = from->nope + first;
    QD_UNROLL for (uint32_t i = 0; i < OWN_STEPS; i++)
        q[i] = query_at(i < NOPE_STEPS / SPLITS ? nope + i * 64 * bytes : from->pe + first, is_fp8);
}

/** Loads the wave's part of the row of q that the lane owns. */
QD_INLINE void load_queries(const part *p, qd_mma_operand q[OWN_STEPS]) {
    const query from = find_query(p, qd_mma_line());
    if (from.is_fp8)
        load_row(&from, true, q);
    else
        load_row(&from, false, q);
}

// ---- scores and weights

/** Multiplies the wave's part of keys and q, and tells the result to all waves. */
QD_INLINE void multiply_keys(const qd_mma_operand q[OWN_STEPS]) {
    const uint32_t key = my_keys() * QD_MMA_ROWS + qd_mma_line();
    qd_mma_acc s = 0;
    QD_UNROLL for (uint32_t i = 0; i < OWN_STEPS; i++)
        s = qd_mma(QK_F16, read_key(stage, key, my_split(), i), &q[i], s);
    products[my_keys()][my_split()][qd_lane()] = s;
}

/** Adds up the parts of products, in order, and makes base-2 scores of them. */
QD_INLINE void add_products(qd_mma_acc s[S_TILES], float unit) {
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        s[t] = products[t][0][qd_lane()];
        QD_UNROLL for (uint32_t i = 1; i < SPLITS; i++)
            s[t] += products[t][i][qd_lane()];
        s[t] *= unit;
    }
}

// ---- a tile

QD_INLINE void multiply_values(wave *w, const qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN]) {
    run values[LANE_KEYS];
    read_values(stage, values);
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        const qd_mma_operand v = {pair_of(values, 0, n), pair_of(values, 1, n),
                                  pair_of(values, 2, n), pair_of(values, 3, n)};
        w->o[n] = qd_mma(QK_F16, v, weights[0], w->o[n]);
    }
}

/** Adds the tile of keys from `tile` on, which is in LDS; all waves come here together. All weigh
 *  the same scores alike, and multiply their own columns of o. */
QD_INLINE void take_tile(wave *w, const qd_mma_operand q[OWN_STEPS], uint32_t tile) {
    qd_mma_operand weights[FRAGMENTS][QD_MMA_OWN];
    qd_mma_acc s[S_TILES];
    multiply_keys(q);
    qd_barrier();
    add_products(s, w->rows[0].scale);
    if (tile < w->all_first || tile + TILE > w->all_end)
        hide(w, tile, s);
    weigh(w, s, true, weights);
    multiply_values(w, weights);
}

/** Adds the tiles of the chunk's keys that a row sees. */
QD_INLINE void take_tiles(const part *p, wave *w, carrier *c) {
    qd_mma_operand q[OWN_STEPS];
    load_queries(p, q);
    for (uint32_t tile = p->chunk_begin; tile < w->any_end; tile += TILE) {
        land(c, stage);
        fetch(p, c);
        ask_page(p, c);
        qd_barrier();
        take_tile(w, q, tile);
        qd_barrier(); // all waves must have read this tile before the next is written
    }
}

// ---- a row's end

/** Stores the wave's columns of a row times `factor` at o. */
QD_INLINE void store_row(const wave *w, int dtype, char *o, float factor) {
    QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
        const uint32_t d = my_column() + RUN * qd_mma_row(qd_mma_part(), e);
        qd_f32x8 run;
        QD_UNROLL for (uint32_t n = 0; n < RUN; n++)
            run[n] = w->o[n][e] * factor;
        if (w->rows[0].exists)
            qd_store8(dtype, o + d * qd_element_bytes(dtype), run);
    }
}

/** Returns whether this lane stores the numbers of which a row has one. */
QD_INLINE bool speaks_for(const row *r) {
    return r->exists && qd_wave() == 0 && qd_mma_part() == 0;
}

/** Stores the results of a chunk that will be merged. */
QD_INLINE void store_partial(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[0];
    const int64_t at =
        qk_attention_partial(g, &p->request, p->chunk_begin, r->query * g->group + r->head, 0);
    store_row(w, PARTIAL, partial_row(g, at), sum > 0 ? 1 / sum : 0);
    if (speaks_for(r))
        g->partial_lse[at] = r->top + qd_log2(sum);
}

QD_INLINE void store_result(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = reread(p->args);
    const row *r = &w->rows[0];
    const row_place place = place_of(p, r);
    const row_end end = finish_row(g, &place, r->top, sum);
    char *o = (char *)g->o + o_offset(g, &place) * qd_element_bytes((int)g->dtype_o);
    if (g->dtype_o == QD_F32)
        store_row(w, QD_F32, o, end.factor);
    else if (g->dtype_o == QD_F16)
        store_row(w, QD_F16, o, end.factor);
    else
        store_row(w, QD_BF16, o, end.factor);
    if (speaks_for(r))
        store_lse(g, &place, end.lse);
}

// ---- the kernel

/** Starts the wave's rows, which are all of the request. */
QD_INLINE void begin_wave(const part *p, wave *w) {
    w->rows[0] = begin_row(p, qd_mma_line());
    w->all_first = 0;
    w->all_end = end_of(again(p), p, 0);
    w->any_end = end_of(again(p), p, (uint32_t)p->request.qo_len - 1);
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++)
        w->o[n] = 0;
}

/** Adds up a chunk. Its first keys are asked for before all else. */
QD_INLINE void take_chunk(const part *p) {
    carrier c = {};
    wave w;
    if (p->chunk_begin < p->chunk_end)
        c = begin_carrier(p);
    begin_wave(p, &w);
    take_tiles(p, &w, &c);
    const float sum = qd_mma_sum(w.rows[0].sum);
    if (p->request.partial_begin < 0)
        store_result(p, &w, sum);
    else
        store_partial(p, &w, sum);
}

/** Computes a work item, chunk by chunk. A request of so few rows is one tile of rows. */
QD_INLINE void take_work(part *p, uint32_t kv_end) {
    do {
        p->chunk_end = qk_attention_next_chunk(&p->request, p->chunk_begin, kv_end);
        take_chunk(p);
        p->chunk_begin = p->chunk_end;
    } while (p->chunk_begin < kv_end);
}

static void code_end(void);

QD_WAVES_PER_EU(QK_WAVES, QK_WAVES)
QD_KERNEL(THREADS) qk_mla_few(qk_mla_args args) {
    QD_ASK_FOR_CODE(code_end);
    const uint32_t count = CONSTANT(qk_attention_schedule, args.common.schedule)->num_works;
    for (uint32_t id = qd_block(); id < count; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = find_work(&args.common, id);
        part p = begin_part(&args, &work);
        if (is_taken(&args, &p))
            take_work(&p, work.kv_end);
    }
}

QD_CODE_END(code_end)
