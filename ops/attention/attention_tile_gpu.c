// SPDX-License-Identifier: Apache-2.0
// Attention on matrix cores, CDNA's and RDNA's: any mask, window and layout of f16 and bf16.
//
// Needs     wave matrix instructions of 16-bit kinds; q, k and v of one kind; rows that begin at multiples of 16 bytes;
//           head dims that are multiples of 8, at most QK_D
// Tile      128 rows (QK_D = 256 on RDNA: 64), of which a wave owns 32 (RDNA 16), by TILE = 8192 / QK_D keys
// Launch    256 threads; as many workgroups as there are work items and heads of k, or fewer
// LDS       a tile of k, keys as rows, and one of v, transposed: 16 KiB each. 16-byte piece p of row r stands at
//           p ^ (r & 7), of v at p ^ ((d ^ d >> 3) & 7), so that both the reads of eight lanes and the writes of a
//           transposing thread touch all banks
// Registers q and o of the wave's rows, scores of STEP keys. CDNA also holds the next tile of k and v on its way; on
//           RDNA other workgroups of the compute unit cover that way
// Edges     keys past the end repeat the last one and are hidden; elements past a head's end are zeros; a step of keys
//           that none of the wave's rows sees is skipped, and only one that not all see pays for hiding some
// Schedule  tile: meet, put k and v into LDS, meet, ask for the next; then steps: scores, maxima, weights, o.
//           A row's sum and o are scaled anew only when its maximum has risen by more than 2^RISE: weights stay
//           below that, and each row decides for itself, so that bits do not depend on its neighbours
#include "attention_gpu.h"
#include "attention_mma_gpu.h"
#include "elementary.h"
#include "elements.h"

#ifndef QK_D
#define QK_D 128 // head dims up to this
#endif
#ifndef QK_F16
#define QK_F16 0 // else bf16
#endif

enum { D = QK_D, THREADS = 256, WAVES = THREADS / QD_WAVE, RISE = 8 };
#if defined(__GFX9__)
enum { TILE = 8192 / D, SLICES = 1 };
#define QK_OCCUPANCY amdgpu_waves_per_eu(QK_D > 128 ? 1 : 2, QK_D > 128 ? 1 : 2)
#elif defined(__GFX11__)
enum {
    TILE = 4096 / D,
    SLICES = D > 128 ? 4 : 1
}; // slices of o's columns, each of a wave of its own
#define QK_OCCUPANCY amdgpu_waves_per_eu(4, 5)
#else
enum { TILE = 4096 / D, SLICES = D > 128 ? 2 : 1 };
#define QK_OCCUPANCY amdgpu_waves_per_eu(4, 5)
#endif
enum { ROWS = WAVES / SLICES * QD_MMA_QUERIES, COLUMNS = D / SLICES };
enum { S_TILES = TILE / QD_MMA_KEYS, O_TILES = COLUMNS / QD_MMA_KEYS, FRAGMENTS = TILE / 16 };
enum { PIECES = D / 8, K_ROW = 2 * D, V_ROW = 2 * TILE };
enum { PAIRS = TILE / 2 * PIECES / THREADS }; // of keys, whose piece of k and of v a thread moves
constexpr float LOG2_E = 0x1.715476p+0f, LEAST = -0x1.FFFFFEp+127f;

[[clang::loader_uninitialized]] static QD_LDS uint8_t k_tile[TILE * K_ROW]
    __attribute__((aligned(128)));
[[clang::loader_uninitialized]] static QD_LDS uint8_t v_tile[D * V_ROW]
    __attribute__((aligned(128)));

/** What a thread moves to LDS. */
typedef struct mover {
    uint32_t key, piece; // the first key, the piece of its row
    uint32_t k_turn,
        v_turn; // the piece's place in a row of k, the keys' in a row of v, as the first row turns it
} mover;

/** k or v of a request's head, where its keys are one piece of memory. */
typedef struct source {
    const char *begin;
    uint32_t row;    // bytes
    uint32_t offset; // of what this thread moves, in a tile
} source;

/** What a workgroup works at: some rows, a chunk of keys. */
typedef struct part {
    qk_attention_request request;
    uint32_t index, kv_head; // of the request
    uint32_t row_end;
    uint32_t chunk_begin, chunk_end; // keys
    source k, v;
    bool is_whole;     // k and v are as above, and a tile of them is less than 4 GiB
    uint32_t k_pieces; // of a row of k
    mover mover;
} part;

/** A lane's row, and what its wave holds of it. */
typedef struct wave {
    qd_mma_operand q[D / 16];
    qd_mma_acc o[O_TILES];
    float top, sum; // of base-2 scores: the maximum, lagging by RISE at most; this lane's keys' sum
    float scale, slope; // of natural scores
    float position;     // of its query among the keys
    uint32_t row, query, head;
    bool exists;
    uint32_t first, end;         // keys that it sees
    uint32_t all_first, all_end; // that all of the wave's rows see
    uint32_t any_first, any_end; // that any of them does
    qd_u32x4 moving[2 * PAIRS];  // pieces of k or v on their way to LDS
} wave;

// ---- keys and values, from memory to LDS

// 16-byte pieces of a row of LDS change places by the row's number.
enum { V_PIECES = V_ROW < 128 ? V_ROW / 16 : 8, V_ROWS_A_TURN = V_ROW < 128 ? 2 : 1 };

QD_INLINE QD_LDS uint8_t *k_at(uint32_t key, uint32_t piece) {
    return k_tile + key * K_ROW + piece / 8 * 128 + (piece % 8 * 16 ^ key % 8 * 16);
}
QD_INLINE QD_LDS uint8_t *v_at(uint32_t d, uint32_t byte) {
    return v_tile + d * V_ROW + (byte ^ (d / V_ROWS_A_TURN ^ d / 8) % V_PIECES * 16);
}

/** x, of which the compiler knows nothing: what follows from it is computed where it is needed, in few instructions,
 *  rather than held in registers around the loops. */
QD_INLINE uint32_t opaque(uint32_t x) {
    asm volatile("" : "+v"(x));
    return x;
}

/** The arguments, read anew where they are needed: there are more of them than scalar registers. */
QD_INLINE const qk_attention_args *again(void) {
    __attribute__((address_space(4))) void *args = __builtin_amdgcn_kernarg_segment_ptr();
    asm volatile("" : "+s"(args));
    return (const qk_attention_args *)args;
}

/** What this thread moves: a piece of the rows of four keys (PAIRS = 1: two), pairs 2 i and 2 i + 1 being keys in a row. */
QD_INLINE mover make_mover(void) {
    const uint32_t pair = qd_thread() / PIECES * PAIRS, piece = qd_thread() % PIECES;
    return (mover){.key = qd_mma_pair(pair),
                   .piece = piece,
                   .k_turn = piece * 16 ^ qd_mma_pair(pair) % 8 * 16,
                   .v_turn = pair * 4 ^ piece % V_PIECES * 16};
}
QD_INLINE uint32_t key_of(uint32_t i) {
    static_assert(PAIRS == 1 || QD_MMA_PAIR == 1);
    return i / 2 * 2 + i % 2 * QD_MMA_PAIR;
}

/** Asks for a tile of k or v, the keys from `begin` on. Keys past the end are the last one again, pieces past the end of
 *  a head its last one. */
QD_INLINE void fetch(const part *p, wave *w, bool is_v, uint32_t begin) {
    const source *from = is_v ? &p->v : &p->k;
    if (p->is_whole && begin + TILE <= p->chunk_end) {
        const char *tile = from->begin + begin * (int64_t)from->row;
        const uint32_t first = opaque(from->offset);
        QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
            w->moving[i] = *(const qd_u32x4 *)(tile + (first + key_of(i) * from->row));
        }
        return;
    }
    const qk_attention_args *g = again();
    const qk_attention_rows *rows = is_v ? &g->v : &g->k;
    const int64_t piece = qd_min(p->mover.piece, (is_v ? g->head_dim_vo : g->head_dim_qk) / 8 - 1);
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        const uint32_t key = qd_min(begin + p->mover.key + key_of(i), p->chunk_end - 1);
        const int64_t row = qk_attention_key(g, rows, &p->request, p->index, key);
        w->moving[i] = ((const qd_u32x4 *)((const char *)rows->data +
                                           (p->kv_head * rows->head + row) * 2))[piece];
    }
}

/** Puts this thread's pieces of keys into LDS. */
QD_INLINE void put_keys(const part *p, const qd_u32x4 pieces[2 * PAIRS]) {
    QD_LDS uint8_t *to = k_tile + p->mover.key * K_ROW;
    const uint32_t turn = opaque(p->mover.k_turn);
    QD_UNROLL for (uint32_t i = 0; i < 2 * PAIRS; i++) {
        *(QD_LDS qd_u32x4 *)(to + key_of(i) * K_ROW + (turn ^ key_of(i) * 16)) = pieces[i];
    }
}

QD_INLINE void land_keys(const part *p, const wave *w) {
    if (p->mover.piece < p->k_pieces)
        put_keys(p, w->moving);
}

/** Pieces past the end of a head are zeros, as they are in q. No key lands on them. */
QD_INLINE void clear_keys(const part *p) {
    const qd_u32x4 zeros[2 * PAIRS] = {};
    if (p->mover.piece >= p->k_pieces)
        put_keys(p, zeros);
}

/** Values go into LDS transposed. */
QD_INLINE void land_values(const part *p, const wave *w) {
    typedef uint32_t pairs __attribute__((ext_vector_type(PAIRS)));
    QD_LDS uint8_t *to = v_tile + p->mover.piece * 8 * V_ROW;
    const uint32_t turn = opaque(p->mover.v_turn);
    QD_UNROLL for (uint32_t e = 0; e < 8; e++) {
        pairs keys;
        QD_UNROLL for (uint32_t i = 0; i < PAIRS; i++) {
            keys[i] = __builtin_amdgcn_perm(w->moving[2 * i + 1][e / 2], w->moving[2 * i][e / 2],
                                            e % 2 ? 0x07060302 : 0x05040100);
        }
        const uint32_t byte = turn ^ e / V_ROWS_A_TURN % V_PIECES * 16;
        *(QD_LDS pairs *)(to + e * V_ROW + byte) = keys;
    }
}

// ---- scores

QD_INLINE void multiply_keys(const wave *w, qd_mma_acc s[S_TILES]) {
    const uint32_t row = D > 128 ? opaque(qd_mma_query()) : qd_mma_query();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        const uint32_t key = t * QD_MMA_KEYS + row;
        s[t] = 0;
        QD_UNROLL for (uint32_t c = 0; c < D / 16; c++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)k_at(key, i))
            s[t] = qd_mma(QK_F16, QD_MMA_READ(2 * c, PIECE), w->q[c], s[t]);
#undef PIECE
        }
    }
}

/** Whether a score is more than the product times a positive number that all heads share. */
QD_INLINE bool has_transform(const qk_attention_args *g) {
    return g->soft_cap > 0 || g->pos_encoding != QK_POS_NONE || g->mask_kind != QK_MASK_NONE ||
           g->custom_mask || g->q_scales || g->k_scales || !(g->scale > 0);
}

/** Element i of a mask's row, to be added. */
QD_INLINE float mask_of(const qk_attention_args *g, int64_t i) {
    if (g->mask_kind == QK_MASK_BOOL)
        return ((const uint8_t *)g->mask)[i] ? 0 : -__builtin_inff();
    return g->mask_kind == QK_MASK_F32 ? ((const float *)g->mask)[i]
           : g->mask_kind == QK_MASK_F16
               ? (float)((const _Float16 *)g->mask)[i]
               : qd_as_f32((uint32_t)((const uint16_t *)g->mask)[i] << 16);
}

/** cap tanh(x / cap). */
QD_INLINE float soften(float x, float cap) {
    const float e = qd_exp2(__builtin_fabsf(x / cap) * (-2 * LOG2_E));
    return __builtin_copysignf(cap * (1 - e) * qd_rcp(1 + e), x);
}

/** The base-2 score of a product, where it takes more than a scale. */
QD_INLINE float transform(const qk_attention_args *g, const part *p, const wave *w, float s,
                          uint32_t key) {
    float x = s * w->scale;
    if (g->pos_encoding == QK_POS_ALIBI)
        x += w->slope * ((float)key - w->position);
    if (g->soft_cap > 0)
        x = soften(x, g->soft_cap);
    if (g->mask_kind != QK_MASK_NONE && w->exists && key < p->chunk_end)
        x += mask_of(g, p->index * g->mask_batch + w->head * g->mask_head +
                            w->query * g->mask_query + key * g->mask_key);
    if (g->custom_mask && w->exists && key < p->chunk_end &&
        qk_attention_is_masked(g, &p->request, w->query, key))
        x = -__builtin_inff();
    // The least finite score is still a score.
    return x == -__builtin_inff() ? x : __builtin_fmaxf(x * LOG2_E, LEAST);
}

/** Every score of a step becomes a base-2 one. Four elements a turn, from the front of a ring: code that is long, once. */
QD_INLINE void transform_all(const part *p, const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const qk_attention_args *g = again();
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_NO_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e += 4) {
            QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
                const uint32_t key = begin + t * QD_MMA_KEYS + qd_mma_row(qd_mma_part(), e + i);
                s[t][i] = transform(g, p, w, s[t][i], key);
            }
            s[t] = qd_mma_turn4(s[t]);
        }
    }
}

/** Hides the keys of a step that a lane's row does not see. */
QD_INLINE void hide(const wave *w, uint32_t begin, qd_mma_acc s[S_TILES]) {
    const uint32_t part = opaque(qd_mma_part());
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            const uint32_t key = begin + t * QD_MMA_KEYS + qd_mma_row(part, e);
            s[t][e] = key < w->first || key >= w->end ? -__builtin_inff() : s[t][e];
        }
    }
}

// ---- weights and sums

QD_INLINE void rise(wave *w, float top) {
    const bool rises = top > w->top + RISE;
    if (qd_ballot(rises)) {
        const float factor = rises ? qd_exp2(w->top - top) : 1;
        w->top = rises ? top : w->top;
        w->sum *= factor;
        QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
            w->o[n] *= factor;
        }
    }
}

QD_INLINE float largest(const qd_mma_acc s[S_TILES]) {
    float top = s[0][0];
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        QD_UNROLL for (uint32_t e = 0; e < QD_MMA_ACC; e++) {
            top = __builtin_fmaxf(top, s[t][e]);
        }
    }
    return __builtin_fmaxf(top, qd_as_f32(qd_mma_other(qd_as_u32(top))));
}

/** Scores, times `unit` of base 2, become weights. */
QD_INLINE void weigh(wave *w, const qd_mma_acc s[S_TILES], float unit,
                     qd_mma_operand p[FRAGMENTS]) {
    rise(w, largest(s) * unit);
    const float base =
        __builtin_fmaxf(w->top, LEAST); // nothing seen yet: -infinity must not meet itself
    QD_UNROLL for (uint32_t t = 0; t < S_TILES; t++) {
        uint32_t packed[QD_MMA_ACC / 2];
        QD_UNROLL for (uint32_t i = 0; i < QD_MMA_ACC / 2; i++) {
            const float a = qd_exp2(__builtin_fmaf(s[t][2 * i], unit, -base));
            const float b = qd_exp2(__builtin_fmaf(s[t][2 * i + 1], unit, -base));
            w->sum += a + b;
            packed[i] = qd_mma_pack(QK_F16, a, b);
        }
        qd_mma_weights(packed, p + t * QD_MMA_FRAGMENTS);
    }
}

QD_INLINE uint32_t my_column(void) {
    return SLICES == 1 ? 0 : qd_wave() % SLICES * COLUMNS;
}

QD_INLINE void multiply_values(wave *w, const qd_mma_operand p[FRAGMENTS]) {
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        const uint32_t d = my_column() + n * QD_MMA_KEYS + qd_mma_query();
        QD_UNROLL for (uint32_t f = 0; f < FRAGMENTS; f++) {
#define PIECE(i) (*(QD_LDS qd_u32x4 *)v_at(d, (i) * 16))
            w->o[n] = qd_mma(QK_F16, QD_MMA_READ(2 * f, PIECE), p[f], w->o[n]);
#undef PIECE
        }
    }
}

/** The tile of k in LDS: weights. */
QD_INLINE void take_keys(const part *p, wave *w, uint32_t begin, bool transforms, float unit,
                         qd_mma_operand weights[FRAGMENTS]) {
    qd_mma_acc s[S_TILES];
    multiply_keys(w, s);
    if (transforms)
        transform_all(p, w, begin, s);
    if (begin < w->all_first || begin + TILE > w->all_end)
        hide(w, begin, s);
    weigh(w, s, unit, weights);
}

// ---- a row's beginning and end

QD_INLINE uint32_t first_key(const part *p, uint32_t row) {
    const qk_attention_args *g = again();
    return qk_attention_first_key(g, &p->request, row / g->group);
}
QD_INLINE uint32_t end_key(const part *p, uint32_t row) {
    const qk_attention_args *g = again();
    return qd_min(qk_attention_end_key(g, &p->request, row / g->group), p->chunk_end);
}

/** ALiBi's slope of a head; see qn_pos_encoding. */
QD_INLINE float slope_of(const qk_attention_args *g, uint32_t head) {
    const uint32_t heads = g->num_kv_heads * g->group;
    const float n = (float)(1u << (31 - __builtin_clz(heads)));
    const float h = (float)head;
    return h < n ? qd_exp2(-8 * (h + 1) / n) : qd_exp2(-4 * (2 * (h + 1 - n) - 1) / n);
}

QD_INLINE void find_row(const part *p, wave *w, uint32_t row_begin) {
    const qk_attention_args *g = again();
    const uint32_t begin = row_begin + qd_wave() / SLICES * QD_MMA_QUERIES;
    const uint32_t last = qd_min(begin + QD_MMA_QUERIES, p->row_end) - 1;
    w->row = begin + qd_mma_query();
    w->exists = w->row < p->row_end;
    w->query = w->row / g->group;
    w->head = p->kv_head * g->group + w->row % g->group;
    w->first = first_key(p, w->row);
    w->end = w->exists ? end_key(p, w->row) : 0;
    w->any_first = qd_uniform(first_key(p, begin));
    w->all_first = qd_uniform(first_key(p, last));
    w->any_end = begin < p->row_end ? qd_uniform(end_key(p, last)) : 0;
    w->all_end = qd_uniform(end_key(p, begin));
}

QD_INLINE void load_query(const part *p, wave *w) {
    const qk_attention_args *g = again();
    const char *q = (const char *)g->q.data +
                    (p->index * g->q.block +
                     (p->request.qo_begin + (int64_t)w->query) * g->q.token + w->head * g->q.head) *
                        2;
    QD_UNROLL for (uint32_t c = 0; c < D / 16; c++) {
#define PIECE(i)                                                                                   \
    (w->exists && (i) * 8 < g->head_dim_qk ? *(const qd_u32x4 *)(q + (i) * 16) : (qd_u32x4)0)
        w->q[c] = QD_MMA_READ(2 * c, PIECE);
#undef PIECE
    }
}

QD_INLINE void begin_rows(const part *p, wave *w, uint32_t row_begin) {
    const qk_attention_args *g = again();
    find_row(p, w, row_begin);
    load_query(p, w);
    w->top = -__builtin_inff();
    w->sum = 0;
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        w->o[n] = 0;
    }
    w->scale = g->scale;
    if (g->q_scales && w->exists)
        w->scale *= g->q_scales[w->head];
    if (g->k_scales)
        w->scale *= g->k_scales[p->kv_head];
    w->position = (float)((int32_t)w->query + p->request.kv_len - p->request.qo_len);
    w->slope = g->pos_encoding == QK_POS_ALIBI ? slope_of(g, w->head) : 0;
}

/** Stores a row's elements times `factor` at o. */
QD_INLINE void store_row(const part *p, const wave *w, int dtype, char *o, float factor) {
    const uint32_t head_dim = again()->head_dim_vo;
    const uint32_t begin = my_column() + opaque(qd_mma_part()) * QD_MMA_RUNS * 8;
    QD_UNROLL for (uint32_t n = 0; n < O_TILES; n++) {
        QD_UNROLL for (uint32_t r = 0; r < QD_MMA_RUNS; r++) {
            const uint32_t d = begin + n * QD_MMA_KEYS + r * 8;
            const qd_f32x8 run = qd_mma_run(w->o[n], r) * factor;
            if (w->exists && d < head_dim)
                qd_store8(dtype, o + d * qd_element_bytes(dtype), run);
        }
    }
}

/** The results of a chunk that others are merged with. */
QD_INLINE void store_partial(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = again();
    const int64_t at = qk_attention_partial(g, &p->request, p->chunk_begin, w->row, p->kv_head);
    store_row(p, w, QD_F32, (char *)(g->partial_o + at * g->head_dim_vo), sum > 0 ? 1 / sum : 0);
    if (w->exists && my_column() == 0 && qd_mma_part() == 0)
        g->partial_lse[at] = w->top + __builtin_amdgcn_logf(sum);
}

QD_INLINE void store_result(const part *p, const wave *w, float sum) {
    const qk_attention_args *g = again();
    const float sink = g->sinks && w->exists ? g->sinks[w->head] * LOG2_E : -__builtin_inff();
    const float top = __builtin_fmaxf(w->top, sink),
                shift = sink > w->top ? qd_exp2(w->top - sink) : 1;
    sum = sum * shift + (sink > -__builtin_inff() ? qd_exp2(sink - top) : 0);
    const float factor =
        sum > 0 ? shift * g->v_scale * (g->v_scales ? g->v_scales[p->kv_head] : 1) / sum : 0;
    const int64_t query = p->request.qo_begin + (int64_t)w->query;
    char *o = g->o;
    const int64_t at = p->index * g->o_batch + query * g->o_token + w->head * g->o_head;
    if (g->dtype_o == QD_F32)
        store_row(p, w, QD_F32, o + at * 4, factor);
    else if (g->dtype_o == QD_F16)
        store_row(p, w, QD_F16, o + at * 2, factor);
    else
        store_row(p, w, QD_BF16, o + at * 2, factor);
    if (g->lse && w->exists && my_column() == 0 && qd_mma_part() == 0)
        g->lse[p->index * g->lse_batch + query * g->lse_token + w->head * g->lse_head] =
            (top + __builtin_amdgcn_logf(sum)) * g->lse_unit;
}

// ---- the kernel

/** The tiles of keys of a chunk that rows row_begin to row_end - 1 see. */
QD_INLINE void take_chunk(const part *p, wave *w, uint32_t row_begin, uint32_t row_end) {
    const qk_attention_args *g = again();
    const bool transforms = has_transform(g);
    const float unit = transforms ? 1 : w->scale * LOG2_E;
    const uint32_t end = end_key(p, row_end - 1);
    const uint32_t first = qd_max(first_key(p, row_begin), p->chunk_begin);
    uint32_t tile = p->chunk_begin + (first - p->chunk_begin) / TILE * TILE;
    if (tile < end)
        fetch(p, w, false, tile);
    for (; tile < end; tile += TILE) {
        const bool is_seen = tile < w->any_end && tile + TILE > w->any_first;
        qd_mma_operand weights[FRAGMENTS];
        land_keys(p, w);
        fetch(p, w, true, tile);
        qd_barrier();
        if (is_seen)
            take_keys(p, w, tile, transforms, unit, weights);
        land_values(p, w);
        if (tile + TILE < end)
            fetch(p, w, false, tile + TILE);
        qd_barrier();
        if (is_seen)
            multiply_values(w, weights);
    }
    qd_barrier(); // the next tile of v lands when all have read this one
}

QD_INLINE void take_rows(const part *p, uint32_t row_begin) {
    wave w;
    begin_rows(p, &w, row_begin);
    take_chunk(p, &w, row_begin, qd_min(row_begin + ROWS, p->row_end));
    const float sum = w.sum + qd_as_f32(qd_mma_other(qd_as_u32(w.sum)));
    if (p->request.partial_begin < 0)
        store_result(p, &w, sum);
    else
        store_partial(p, &w, sum);
}

/** Whether a tile of rows so far apart is within 4 GiB. */
QD_INLINE bool is_near(int64_t row) {
    return row >= 0 && row <= INT32_MAX / TILE;
}

/** The same, in scalar registers. */
#define UNIFORM(x) ((typeof(x))qd_uniform((uint32_t)(x)))
QD_INLINE int64_t uniform64(int64_t x) {
    return (int64_t)((uint64_t)qd_uniform((uint32_t)(x >> 32)) << 32 | qd_uniform((uint32_t)x));
}
QD_INLINE qk_attention_request uniform_request(qk_attention_request r) {
    return (qk_attention_request){.mask_begin = uniform64(r.mask_begin),
                                  .partial_begin = uniform64(r.partial_begin),
                                  .qo_begin = UNIFORM(r.qo_begin),
                                  .qo_len = UNIFORM(r.qo_len),
                                  .kv_begin = UNIFORM(r.kv_begin),
                                  .kv_len = UNIFORM(r.kv_len),
                                  .kv_chunk = UNIFORM(r.kv_chunk)};
}
QD_INLINE qk_attention_work uniform_work(qk_attention_work w) {
    return (qk_attention_work){UNIFORM(w.request), UNIFORM(w.row_begin), UNIFORM(w.row_end),
                               UNIFORM(w.kv_begin), UNIFORM(w.kv_end)};
}

QD_INLINE source make_source(const part *p, const qk_attention_rows *rows, uint32_t head_dim) {
    const uint32_t row = (uint32_t)rows->token * 2;
    return (source){
        .begin = (const char *)rows->data + (p->kv_head * rows->head + p->index * rows->block +
                                             p->request.kv_begin * rows->token) *
                                                2,
        .row = row,
        .offset = p->mover.key * row + qd_min(p->mover.piece, head_dim / 8 - 1) * 16,
    };
}

/** One workgroup's share of a work item: for each chunk, each tile of rows. */
QD_INLINE void take_work(const qk_attention_work *work, uint32_t kv_head) {
    const qk_attention_args *g = again();
    part p = {.request = uniform_request(qk_attention_get_request(g, work->request)),
              .index = work->request,
              .kv_head = kv_head,
              .row_end = work->row_end,
              .chunk_begin = work->kv_begin,
              .is_whole = !g->kv_indices && is_near(g->k.token) && is_near(g->v.token),
              .k_pieces = g->head_dim_qk / 8,
              .mover = make_mover()};
    p.k = make_source(&p, &g->k, g->head_dim_qk);
    p.v = make_source(&p, &g->v, g->head_dim_vo);
    clear_keys(&p);
    do {
        p.chunk_end = qk_attention_next_chunk(&p.request, p.chunk_begin, work->kv_end);
        QD_NO_UNROLL for (uint32_t row = work->row_begin; row < work->row_end; row += ROWS) {
            take_rows(&p, row);
        }
        p.chunk_begin = p.chunk_end;
    } while (p.chunk_begin < work->kv_end);
}

__attribute__((QK_OCCUPANCY)) QD_KERNEL(THREADS) qk_attention_tile(qk_attention_args args) {
    const uint32_t heads = args.num_kv_heads, parts = qk_attention_count(&args) * heads;
    for (uint32_t id = qd_block(); id < parts; id += __gpu_num_blocks(0)) {
        const qk_attention_work work = uniform_work(qk_attention_find(again(), id / heads));
        take_work(&work, id % heads);
    }
}
