// SPDX-License-Identifier: Apache-2.0
// Attention of requests of few rows by Hopper's tensor cores, whose copy engine reads the cache.
//
// Needs     sm_90a; q, k and v of bf16, with -DQK_F16 of f16; head dims that are multiples of 8, at
//           most QK_D; scores that are products times one positive number; requests of at most
//           QK_ATTENTION_FEW_ROWS rows; pages of whole boxes of keys
// Tile      64 rows, of which so few are in use, by KEYS keys
// Launch    160 threads, two workgroups a multiprocessor; each walks work items and heads of k
// LDS       q's tile, STAGES of k's and v's tile, in boxes of 64 columns with the 128-byte swizzle;
//           barriers
// Registers of a thread: QK_D / 2 sums of o; of each tile SUMS scores, and as many weights in pairs
// Roles     four waves multiply, and the first of them, whose rows are in use, weighs; the fifth
//           has the stages filled, a box of keys, of one page, a lane
// Edges     rows of q past the last are zeros; keys past the end, and those before the first that
//           is seen, are hidden; values past the end are cleared, as a weight of 0 times a NaN is
//           one
// Schedule  nothing is under way when a tile begins; two workgroups cover each other, and stages
//           are filled ahead, also across work items
#include "attention_wgmma_abi.h"

#define KEYS 64
#define SUMS 32
#include "attention_wgmma_gpu.h"
static_assert(KEYS == QK_WGMMA_DECODE_KEYS);

enum {
    STAGES = 3 * 128 / QK_D,
    K_AT = TEAM_BYTES,
    V_AT = K_AT + STAGES * STAGE_BYTES,
    FULL_AT = V_AT + STAGES * STAGE_BYTES,
    EMPTY_AT = FULL_AT + 8 * STAGES,
    LDS_BYTES = EMPTY_AT + 8 * STAGES
};
static_assert(LDS_BYTES <= 113 * 1024, "two workgroups share a multiprocessor's LDS");

// ---- parts of work items

/** What a workgroup computes at a time: a request's rows, over a chunk of keys. */
typedef struct part {
    qk_attention_request request;
    uint32_t index, kv_head, rows;
    uint32_t begin, end; // keys of the chunk
} part;

/** A walk over the work items of a workgroup. */
typedef struct walk {
    uint32_t id, kv_end;
} walk;

/** Finds the walk's next work item, and its first part but for the part's end. Returns false if
 *  there is none. */
QD_INLINE bool next_item(const qk_attention_args *g, walk *w, part *p) {
    const uint32_t heads = g->num_kv_heads, items = qk_attention_count(g) * heads;
    for (; w->id < items; w->id += __gpu_num_blocks(0)) {
        const qk_attention_work work = qk_attention_find(g, w->id / heads);
        if (!qk_attention_takes(g, work.request))
            continue;
        *p = (part){.request = qk_attention_get_request(g, work.request),
                    .index = work.request,
                    .kv_head = w->id % heads,
                    .rows = work.row_end,
                    .begin = work.kv_begin};
        w->kv_end = work.kv_end;
        w->id += __gpu_num_blocks(0);
        return true;
    }
    return false;
}

/** For each part of the workgroup's items, `is_first` of its item. */
#define FOR_PARTS(g, p, is_first)                                                                  \
    for (walk walk_ = {.id = qd_block()}; next_item(g, &walk_, &p);)                               \
        for (bool is_first = true;                                                                 \
             (is_first || p.begin < walk_.kv_end) &&                                               \
             (p.end = qk_attention_next_chunk(&p.request, p.begin, walk_.kv_end), true);           \
             is_first = false, p.begin = p.end)

/** The keys of a part that a row sees. */
QD_INLINE uint32_t first_key(const qk_attention_args *g, const part *p, uint32_t row) {
    return qd_max(qk_attention_first_key(g, &p->request, row / g->group), p->begin);
}
QD_INLINE uint32_t end_key(const qk_attention_args *g, const part *p, uint32_t row) {
    return qd_min(qk_attention_end_key(g, &p->request, row / g->group), p->end);
}

/** The tiles of keys that any row of a part sees. Tiles begin at whole boxes, counted from the box
 *  where the chunk begins, whatever is seen of it. */
typedef struct span {
    uint32_t begin, end; // keys
} span;

QD_INLINE span find_span(const qk_attention_decode_args *a, const part *p) {
    const uint32_t first = first_key(&a->common, p, 0), end = end_key(&a->common, p, p->rows - 1);
    const uint32_t grid = p->begin / a->box_keys * a->box_keys;
    return (span){grid + (first - grid) / KEYS * KEYS, end};
}

// ---- the loader

/** Starts the copies of a box of keys, and of their values, by this lane. */
QD_INLINE void load_box(const qk_attention_decode_args *a, uint64_t maps, uint32_t base,
                        const part *p, uint32_t stage, uint32_t box, uint32_t key) {
    const qk_attention_args *g = &a->common;
    const uint32_t to = base + stage * STAGE_BYTES + box * a->box_keys * (BOX * 2);
    const uint32_t full = base + FULL_AT + 8 * stage, place = (uint32_t)p->request.kv_begin;
    const bool is_paged = g->kv_indices;
    const uint32_t block = is_paged     ? (uint32_t)g->kv_indices[place + key / g->page_size]
                           : g->k.block ? p->index
                                        : 0;
    const uint32_t token = is_paged ? key % g->page_size : place + key;
    QD_UNROLL for (uint32_t i = 0; i < BOXES; i++) {
        qd_tensor_load4(to + K_AT + i * K_BOX_BYTES, maps, full, i * BOX, p->kv_head, token, block);
        qd_tensor_load4(to + V_AT + i * K_BOX_BYTES, maps + sizeof(qk_tensor_map), full, i * BOX,
                        p->kv_head, token, block);
    }
}

/** Fills stages with a part's tiles. Boxes past the last key are left as they are. */
QD_INLINE void load_part(const qk_attention_decode_args *a, uint64_t maps, uint32_t base,
                         const part *p, qd_ring *r) {
    const span keys = find_span(a, p);
    QD_NO_UNROLL for (uint32_t at = keys.begin; at < keys.end; at += KEYS) {
        const uint32_t count = qd_min(qd_div_up(keys.end - at, a->box_keys), KEYS / a->box_keys);
        qd_mbarrier_wait(base + EMPTY_AT + 8 * r->at, r->parity);
        if (qd_lane() == 0)
            qd_mbarrier_expect(base + FULL_AT + 8 * r->at,
                               count * BOXES * 2 * a->box_keys * (BOX * 2));
        qd_wave_barrier();
        if (qd_lane() < count)
            load_box(a, maps, base, p, r->at, qd_lane(), at + qd_lane() * a->box_keys);
        qd_wave_barrier();
        qd_ring_advance(r, STAGES);
    }
}

QD_INLINE void load_parts(const qk_attention_decode_args *a, uint64_t maps, uint32_t base) {
    qd_ring r = {0, 1};
    part p;
    FOR_PARTS(&a->common, p, is_first)
    load_part(a, maps, base, &p, &r);
}

// ---- the team

QD_INLINE row_place place_of(const qk_attention_args *g, const part *p, uint32_t row) {
    return find_row(g, &p->request, p->index, p->kv_head, row);
}

/** Returns where 16-byte piece `piece` of a row of q, or of a box of k or v, lies. */
QD_INLINE uint32_t piece_at(uint32_t row, uint32_t piece, uint32_t box_bytes) {
    return piece / 8 * box_bytes + row * (BOX * 2) + (piece % 8 ^ row % 8) * 16;
}
QD_INLINE void put_piece(uint32_t to, qd_u32x4 x) {
    *(QD_LDS qd_u32x4 *)(uintptr_t)to = x;
}

/** Puts the rows of q into LDS; those that no request can have stay zeros. */
QD_INLINE void put_queries(const qk_attention_args *g, uint32_t base, const part *p) {
    enum { PIECES = QK_D / 8 };
    qd_team_barrier(1, QD_TEAM); // the last rows' products have ended in all waves
    QD_UNROLL for (uint32_t i = 0; i < QK_ATTENTION_FEW_ROWS * PIECES; i += QD_TEAM) {
        const uint32_t row = (i + qd_thread()) / PIECES, piece = (i + qd_thread()) % PIECES;
        const row_place place = place_of(g, p, row);
        const qd_u32x4 *q = (const qd_u32x4 *)((const char *)g->q.data + q_offset(g, &place) * 2);
        const bool is_in = row < p->rows && piece * 8 < g->head_dim_qk;
        put_piece(base + piece_at(row, piece, Q_BOX_BYTES), is_in ? q[piece] : (qd_u32x4)0);
    }
    qd_async_fence();
    qd_team_barrier(1, QD_TEAM);
}

/** Clears q's tile, before the first rows. */
QD_INLINE void clear_queries(uint32_t base) {
    for (uint32_t i = qd_thread(); i < TEAM_BYTES / 16; i += QD_TEAM)
        put_piece(base + i * 16, (qd_u32x4)0);
}

/** Clears a stage's values from row `first` on. */
QD_INLINE void clear_values(uint32_t base, uint32_t stage, uint32_t first) {
    const uint32_t v = base + V_AT + stage * STAGE_BYTES, pieces = QK_D / 8;
    for (uint32_t i = qd_thread() + first * pieces; i < KEYS * pieces; i += QD_TEAM)
        put_piece(v + piece_at(i / pieces, i % pieces, K_BOX_BYTES), (qd_u32x4)0);
    qd_async_fence();
    qd_team_barrier(1, QD_TEAM);
}

/** The keys that this thread's rows see, counted from the thread's first key of a tile at 0; none
 *  for rows that do not exist. */
typedef struct bounds {
    int32_t first[2], end[2];
} bounds;

QD_INLINE bounds find_bounds(const qk_attention_args *g, const part *p) {
    const int32_t own = (int32_t)(qd_lane() % 4 * 2);
    bounds b;
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = qd_lane() / 4 + 8 * r;
        b.first[r] = (int32_t)first_key(g, p, row) - own;
        b.end[r] = (row < p->rows ? (int32_t)end_key(g, p, row) : 0) - own;
    }
    return b;
}

/** Hides the scores of keys that rows do not see, of the tile at `at`. */
QD_INLINE void hide(float s[SUMS], const bounds *b, uint32_t at) {
    QD_UNROLL for (int32_t i = 0; i < SUMS; i++) {
        const int32_t key = (int32_t)at + i / 4 * 8 + i % 2, r = i / 2 % 2;
        s[i] = key >= b->first[r] && key < b->end[r] ? s[i] : -__builtin_inff();
    }
}

/** Adds a tile of keys. Waves whose rows no request has keep weights of 0. */
QD_INLINE void take_tile(uint32_t base, qd_ring *r, rows *x, const bounds *b, uint32_t at,
                         uint32_t end) {
    float s[SUMS];
    qd_mbarrier_wait(base + FULL_AT + 8 * r->at, r->parity);
    start_scores(base, base + K_AT, r->at, s);
    if (at + KEYS > end)
        clear_values(base, r->at, end - at);
    QD_WGMMA_WAIT(SUMS, s);
    if (qd_wave_uniform(qd_wave()) == 0) {
        hide(s, b, at);
        weigh(x, s);
        pack(x, s);
        grow(x);
    }
    start_values(base + V_AT, r->at, x);
    QD_WGMMA_WAIT(O_SUMS, x->o);
    if (qd_lane() == 0)
        qd_mbarrier_arrive(base + EMPTY_AT + 8 * r->at);
    qd_ring_advance(r, STAGES);
}

// ---- from sums to o

QD_INLINE void store_columns(const qk_attention_args *g, const rows *x, uint32_t r, float factor,
                             uint32_t dtype, char *to) {
    QD_UNROLL for (uint32_t c = 0; c < QK_D / 8; c++) {
        const uint32_t d = c * 8 + qd_lane() % 4 * 2;
        if (d >= g->head_dim_vo)
            continue;
        const float a = x->o[4 * c + 2 * r] * factor, b = x->o[4 * c + 2 * r + 1] * factor;
        qd_store1((int)dtype, to + d * bytes_of(dtype), a);
        qd_store1((int)dtype, to + (d + 1) * bytes_of(dtype), b);
    }
}

/** Stores a row's results of a chunk that will be merged. */
QD_INLINE void store_partial(const qk_attention_args *g, const part *p, const rows *x, uint32_t r,
                             uint32_t row, float sum) {
    const int64_t at = qk_attention_partial(g, &p->request, p->begin, row, p->kv_head);
    store_columns(g, x, r, sum > 0 ? 1 / sum : 0, QD_F32,
                  (char *)(g->partial_o + at * g->head_dim_vo));
    if (qd_lane() % 4 == 0)
        g->partial_lse[at] = x->top[r] * x->scale + qd_log2(sum);
}

QD_INLINE void store_result(const qk_attention_args *g, const part *p, const rows *x, uint32_t r,
                            uint32_t row, float sum) {
    const row_place place = place_of(g, p, row);
    const row_end end = finish_row(g, &place, x->top[r] * x->scale, sum);
    char *o = (char *)g->o + o_offset(g, &place) * bytes_of(g->dtype_o);
    if (g->dtype_o == QD_F32)
        store_columns(g, x, r, end.factor, QD_F32, o);
    else if (g->dtype_o == QD_F16)
        store_columns(g, x, r, end.factor, QD_F16, o);
    else
        store_columns(g, x, r, end.factor, QD_BF16, o);
    if (qd_lane() % 4 == 0)
        store_lse(g, &place, end.lse);
}

/** Stores a part's rows; by the first wave. */
QD_INLINE void store(const qk_attention_args *g, const part *p, const rows *x) {
    QD_UNROLL for (uint32_t r = 0; r < 2; r++) {
        const uint32_t row = qd_lane() / 4 + 8 * r;
        const float sum = total(x, r);
        if (row >= p->rows)
            continue;
        if (p->request.partial_begin < 0)
            store_result(g, p, x, r, row, sum);
        else
            store_partial(g, p, x, r, row, sum);
    }
}

QD_INLINE void take_part(const qk_attention_decode_args *a, uint32_t base, const part *p,
                         qd_ring *r, rows *x) {
    const span keys = find_span(a, p);
    const bounds b = find_bounds(&a->common, p);
    begin_rows(x);
    QD_NO_UNROLL for (uint32_t at = keys.begin; at < keys.end; at += KEYS)
        take_tile(base, r, x, &b, at, keys.end);
    if (qd_wave_uniform(qd_wave()) == 0)
        store(&a->common, p, x);
}

QD_INLINE void take_parts(const qk_attention_decode_args *a, uint32_t base) {
    qd_ring r = {0, 0};
    rows x = {.scale = a->common.scale * log2_e};
    part p;
    clear_queries(base);
    FOR_PARTS(&a->common, p, is_first) {
        if (is_first)
            put_queries(&a->common, base, &p);
        take_part(a, base, &p, &r, &x);
    }
}

/** A stage is full when its bytes are in, and empty when each wave of the team has said so. */
QD_INLINE void make_barriers(uint32_t base) {
    if (qd_thread() == 0) {
        for (uint32_t s = 0; s < STAGES; s++) {
            qd_mbarrier_init(base + FULL_AT + 8 * s, 1);
            qd_mbarrier_init(base + EMPTY_AT + 8 * s, QD_TEAM / QD_WAVE);
        }
        qd_mbarrier_init_fence();
    }
    qd_barrier();
}

QD_KERNEL_HEAD(160, LDS_BYTES, "", qk_attention_wgmma_decode)(const qk_attention_decode_args a) {
    const uint32_t base = qd_lds_address(qd_launch_lds);
    const uint64_t maps = QD_ARGUMENTS(qk_attention_wgmma_decode);
    static_assert(QK_WGMMA_DECODE_THREADS == 160);
    make_barriers(base);
    qd_begin();
    if (qd_wave_uniform(qd_wave()) < QD_TEAM / QD_WAVE)
        take_parts(&a, base);
    else
        load_parts(&a, maps, base);
}
