// SPDX-License-Identifier: Apache-2.0
// Merges the chunks of split requests of latent attention, whose rows are 512 columns.
//
// Needs     wave64; a schedule; chunks' results as mla_partial_gpu.h says
// Tile      a row a wave, eight columns side by side a lane; or where waves are enough and a row
//           has many chunks, a quarter of a row, two columns a lane, so that more chunks are on
//           their way. Chunks in order, so that the same bits come out always
// Launch    up to 256 threads and any number of workgroups, which step through all rows
// LDS       none
// Edges     past the last chunk it is loaded again, with a weight of 0; no key seen: zeros
#include "../attention/attention_row_gpu.h"
#include "../attention/attention_top_gpu.h"
#include "code.h"
#include "mla_partial_gpu.h"

/** A lane's columns of o, WIDE, or NARROW where waves share a row; numbers that it loads before it
 *  uses one; chunks of which a wave takes whole rows. */
enum { WIDE = QD_RUN, NARROW = 2, LOADS = 32, FEW = 8 };
enum { THREADS = 256, SHARES = DIM / (NARROW * QD_WAVE) };
static_assert(DIM == WIDE * QD_WAVE);

/** A lane's columns of a chunk's result, as they lie in memory; of few the first ones. */
typedef struct piece {
    qd_u32x4 words[PARTIAL == QD_F32 ? 2 : 1];
} piece;

QD_INLINE piece load_piece(const char *at, uint32_t columns) {
    piece p = {};
    if (columns == WIDE)
        p = *(const piece *)at;
    else if (PARTIAL == QD_F32)
        p.words[0].lo = *(const qd_u32x2 *)at;
    else
        p.words[0].x = *(const uint32_t *)at;
    return p;
}

QD_INLINE qd_f32x8 widen(piece p) {
#if QK_FP8
    return qd_from_16(PARTIAL, p.words[0]);
#else
    return __builtin_bit_cast(qd_f32x8, p);
#endif
}

/** What a wave merges of a row: its lanes' columns. */
typedef struct merged {
    const char *from; // chunk 0
    uint32_t offset;  // of the lane's columns, in bytes
    const float *lses;
    int64_t step; // rows from chunk to chunk
    uint32_t chunks;
    float top; // the largest of the chunks' log-sum-exps, or a NaN among them
    float sum; // of the weights of chunks
    qd_f32x8 o;
} merged;

/** Starts loading chunks from `chunk` on. */
QD_INLINE void load_pieces(const merged *m, uint32_t columns, uint32_t chunk,
                           piece pieces[LOADS / NARROW]) {
    const int64_t step = m->step * DIM * qd_element_bytes(PARTIAL);
    const char *from = m->from + chunk * step;
    QD_UNROLL for (uint32_t i = 0; i < LOADS / columns; i++) {
        pieces[i] = load_piece(from + m->offset, columns);
        from += chunk + i + 1 < m->chunks ? step : 0;
    }
}

/** Adds chunks, of which lane `lane` has the first one's weight. */
QD_INLINE void add_pieces(merged *m, uint32_t columns, const piece pieces[LOADS / NARROW],
                          float weights, uint32_t lane) {
    QD_UNROLL for (uint32_t i = 0; i < LOADS / columns; i++) {
        const float weight = qd_as_f32(qd_read_lane(qd_as_u32(weights), lane + i));
        m->sum += weight;
        m->o = __builtin_elementwise_fma((qd_f32x8)weight, widen(pieces[i]), m->o);
    }
}

/** Returns the log-sum-exp of the lane's chunk of those from `chunk` on; past the end -infinity. */
QD_INLINE float load_lse(const merged *m, uint32_t chunk) {
    const uint32_t c = chunk + qd_lane();
    return c < m->chunks ? m->lses[c * m->step] : -__builtin_inff();
}

/** Adds all chunks, in order. The first ones are asked for before their weights are known. */
QD_INLINE void add_all(merged *m, uint32_t columns) {
    piece pieces[LOADS / NARROW];
    load_pieces(m, columns, 0, pieces);
    float lse = load_lse(m, 0), weights = 0;
    m->top = lse;
    for (uint32_t c = QD_WAVE; c < m->chunks; c += QD_WAVE)
        m->top = larger(m->top, load_lse(m, c));
    m->top = wave_max(m->top);
    if (m->top == -__builtin_inff()) // no key was seen
        return;
    for (uint32_t chunk = 0; chunk < m->chunks; chunk += LOADS / columns) {
        if (chunk > 0)
            load_pieces(m, columns, chunk, pieces);
        if (chunk > 0 && chunk % QD_WAVE == 0)
            lse = load_lse(m, chunk);
        if (chunk % QD_WAVE == 0)
            weights = qd_exp2(lse - m->top);
        add_pieces(m, columns, pieces, weights, chunk % QD_WAVE);
    }
}

/** Returns whether the launch merges a request. */
QD_INLINE bool is_taken(const qk_attention_args *g, const qk_attention_request *r) {
    const uint32_t rows = (uint32_t)r->qo_len * g->group;
    return rows >= g->least_rows && rows <= g->most_rows;
}

/** Stores a lane's columns of o. */
QD_INLINE void store_columns(const qk_attention_args *g, const row_place *place, uint32_t column,
                             uint32_t columns, qd_f32x8 o) {
    const int64_t to = o_offset(g, place) + column;
    if (columns == WIDE)
        qd_store8((int)g->dtype_o, (char *)g->o + to * qd_element_bytes((int)g->dtype_o), o);
    else QD_UNROLL
        for (uint32_t i = 0; i < NARROW; i++)
            store_o(g, to + i, o[i]);
}

/** Merges `columns` columns a lane of a row of a request, from column `first` on. */
QD_INLINE void merge_columns(const qk_attention_args *g, const qk_attention_request *r,
                             uint32_t request, uint32_t row, uint32_t first, uint32_t columns) {
    const int64_t at = r->partial_begin + row;
    const uint32_t column = first + qd_lane() * columns;
    merged m = {.from = partial_row(g, at),
                .offset = column * qd_element_bytes(PARTIAL),
                .lses = g->partial_lse + at,
                .step = (int64_t)r->qo_len * g->group,
                .chunks = qk_attention_chunks(r)};
    add_all(&m, columns);
    g = reread(g);
    const row_place place = find_row(g, r, request, 0, row);
    const row_end end = finish_row(g, &place, m.top, m.sum);
    // Chunks of weight 0 may have turned a -0 into 0; how many there are is the launch's choice.
    store_columns(g, &place, column, columns, (m.o + 0.0f) * end.factor);
    if (column == 0)
        store_lse(g, &place, end.lse);
}

/** Returns the logarithm of a power of two that no merge has more rows than. */
QD_INLINE uint32_t log_of_rows(const qk_attention_args *g, CONSTANT_TO(qk_attention_schedule) s) {
    const uint32_t rows = qd_min((uint32_t)s->q_tile, (uint32_t)s->max_qo_len * g->group);
    return rows > 1 ? 32 - (uint32_t)__builtin_clz(rows - 1) : 0;
}

/** Merges item i: a row, or one of SHARES parts of its columns, if waves share rows. A merge has
 *  2^log rows, some perhaps past its end. */
QD_INLINE void merge_item(const qk_attention_args *g, CONSTANT_TO(qk_attention_schedule) s,
                          uint64_t i, uint32_t log, bool is_shared) {
    const uint64_t index = is_shared ? i / SHARES : i;
    const uint32_t share = is_shared ? (uint32_t)i % SHARES : 0;
    CONSTANT_TO(qk_attention_request) requests = CONSTANT(qk_attention_request, s + 1);
    CONSTANT_TO(qk_attention_work) works = CONSTANT(qk_attention_work, requests + s->num_requests);
    const qk_attention_work work = works[s->num_works + (index >> log)];
    const qk_attention_request r = requests[work.request];
    const uint32_t row = work.row_begin + ((uint32_t)index & ((1u << log) - 1));
    if (row >= work.row_end || !is_taken(g, &r))
        return;
    if (is_shared && qk_attention_chunks(&r) > FEW)
        merge_columns(g, &r, work.request, row, share * NARROW * QD_WAVE, NARROW);
    else if (share == 0)
        merge_columns(g, &r, work.request, row, 0, WIDE);
}

static void code_end(void);

QD_KERNEL(THREADS) qk_mla_merge(const qk_attention_args g) {
    QD_ASK_FOR_CODE(code_end);
    CONSTANT_TO(qk_attention_schedule) s = CONSTANT(qk_attention_schedule, g.schedule);
    const uint32_t log = log_of_rows(&g, s), own = __gpu_num_threads(0) / QD_WAVE;
    const uint64_t rows = (uint64_t)s->num_merges << log;
    const uint64_t waves = (uint64_t)__gpu_num_blocks(0) * own;
    const bool is_shared = waves >= rows * SHARES;
    const uint64_t count = is_shared ? rows * SHARES : rows;
    for (uint64_t i = qd_block() * own + qd_wave(); i < count; i += waves)
        merge_item(&g, s, i, log, is_shared);
}

QD_CODE_END(code_end)
