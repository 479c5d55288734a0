// SPDX-License-Identifier: Apache-2.0
// Moves keys of attention_mfma_gpu.c from memory to LDS and to operands: stages, buffers, copies,
// and codes of FP8, which go through registers.
#ifndef QK_ATTENTION_MFMA_GPU_H
#define QK_ATTENTION_MFMA_GPU_H

#include "attention_scores_gpu.h"
#include "phases.h"

enum { SLABS = D / 64, VALUE_SLABS = D_VO / 64, KEY_UNITS = TILE / 16 };
enum { UNIT = QK_ATTENTION_CHUNK_UNIT, SLAB_BYTES = TILE * 128 };
static_assert(UNIT == 16);

// Even tiles have stages of their own, and odd ones: k and v of QK_STAGES tiles at a time. Of two
// stages of even tiles one lap of the loop takes one, and the next lap the other one.
enum { STAGES = QK_STAGES, LAPS = STAGES / 2 };
enum { K_STAGE = (SLABS == 3 ? 4 : SLABS) * SLAB_BYTES, V_STAGE = VALUE_SLABS * SLAB_BYTES };
enum { K_LAP = LAPS > 1 ? K_STAGE : 0, V_LAP = LAPS > 1 ? V_STAGE : 0 };
static_assert(LAPS <= 2 && (K_LAP & (K_LAP - 1)) == 0 && (V_LAP & (V_LAP - 1)) == 0);

#define STAGE(name, bytes)                                                                         \
    [[clang::loader_uninitialized]] static QD_LDS uint8_t name[bytes] __attribute__((aligned(1024)))
STAGE(k_even, LAPS *K_STAGE);
STAGE(k_odd, LAPS *K_STAGE);
STAGE(v_even, LAPS *V_STAGE);
STAGE(v_odd, LAPS *V_STAGE);

QD_INLINE QD_LDS uint8_t *k_stage(uint32_t odd) {
    return odd ? k_odd : k_even;
}
QD_INLINE QD_LDS uint8_t *v_stage(uint32_t odd) {
    return odd ? v_odd : v_even;
}

/** k or v of a request and a head. */
typedef struct source {
    const char *begin;      // of key 0; paged: of page 0
    const int32_t *indices; // of its pages; null: none
    int64_t page;           // bytes
    uint32_t row;           // bytes
    uint32_t page_size;
} source;

QD_INLINE source make_source(const part *p, const qk_attention_args *g,
                             const qk_attention_rows *rows) {
    const bool is_paged = g->kv_indices;
    const int64_t first =
        is_paged ? 0 : p->index * rows->block + (int64_t)p->request.kv_begin * rows->token;
    return (source){.begin =
                        (const char *)rows->data + (first + p->kv_head * rows->head) * KV_BYTES,
                    .indices = is_paged ? g->kv_indices + p->request.kv_begin : nullptr,
                    .page = rows->block * KV_BYTES,
                    .row = (uint32_t)rows->token * KV_BYTES,
                    .page_size = g->page_size};
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

/** The next tile of keys that lie one behind the other: where it begins, and how many bytes of it
 *  there are. */
typedef struct window {
    const char *from;
    uint32_t bytes;
} window;

QD_INLINE uint32_t bytes_there(const source *s, int32_t keys) {
    const uint32_t some = qd_scalar((uint32_t)(keys > 0 ? keys : 0));
    return qd_min(some, TILE) * s->row;
}

/** Returns the window of the tile that begins at key `begin`, of the chunk's last `left`. */
QD_INLINE window open_window(const source *s, uint32_t begin, int32_t left) {
    return (window){s->begin + (uint64_t)begin * s->row, bytes_there(s, left)};
}

#if QK_FP8

// ---- codes of a slab, 64 columns: eight lanes have a key's. They become 16 bits on their way

enum { CODE_LANES = 8, CODE_KEYS = QD_WAVE / CODE_LANES }; // of a wave
static_assert(CODE_KEYS * WAVES == TILE && UNIT % CODE_KEYS == 0);

/** Where a lane's eight codes of the first slab lie, in bytes from the begin of a tile and of a
 *  stage. */
typedef struct code_place {
    uint32_t from, to;
} code_place;

QD_INLINE uint32_t key_of_codes(void) {
    return qd_wave() * CODE_KEYS + qd_lane() / CODE_LANES;
}
QD_INLINE uint32_t unit_of_codes(void) {
    return qd_wave() * CODE_KEYS / UNIT * UNIT;
}

/** Returns this lane's place; the 16-byte pieces of its key change places by `turn`. */
QD_INLINE code_place place_codes(uint32_t row, uint32_t turn) {
    const uint32_t key = key_of_codes(), piece = qd_lane() % CODE_LANES;
    return (code_place){.from = key * row + piece * 8, .to = key * 128 + (piece ^ turn) * 16};
}

QD_INLINE qd_u32x2 load_codes(code_place at, __amdgpu_buffer_rsrc_t from, uint32_t slab) {
    return qd_buffer_load2(from, at.from + slab * 64, 0);
}
QD_INLINE void land_codes(code_place at, QD_LDS uint8_t *to, uint32_t slab, qd_u32x2 codes) {
    *(QD_LDS qd_u32x4 *)(to + at.to + slab * SLAB_BYTES) = qd_widen8(QD_FP8_USUAL, QK_F16, codes);
}

#else

// ---- copies of a slab, 64 columns

enum { ROW_LANES = 128 / QD_WIDE_COPY, COPIED = QD_WAVE / ROW_LANES }; // keys of a slab, at once
enum { KEY_GROUPS = TILE / COPIED / WAVES }; // of keys that a wave copies at once
static_assert(UNIT % COPIED == 0 && KEY_GROUPS * COPIED * WAVES == TILE);

/** Returns the first key of a tile that the wave copies at once in group i. */
QD_INLINE uint32_t first_copied(uint32_t i) {
    return (i * WAVES + qd_wave()) * COPIED;
}

/** Returns where the wave's first copy of a slab goes, in a scalar register that stays. */
QD_INLINE uint32_t begin_copied(void) {
    return qd_scalar(first_copied(0) * 128);
}

/** Returns which of a tile's units the wave copies in group i, by its first key. */
QD_INLINE uint32_t unit_copied(uint32_t i) {
    enum { STRIDE = COPIED * WAVES }; // keys from group to group
    return (STRIDE <= UNIT ? i * STRIDE : first_copied(i)) / UNIT * UNIT;
}

/** Returns this lane's key of those that are copied at once in group i. */
QD_INLINE uint32_t key_copied(uint32_t i) {
    return first_copied(i) + qd_lane() / ROW_LANES;
}

/** Returns this lane's place in the first slab in memory, in bytes from a tile's begin, whose
 *  16-byte pieces change places by `turn`. */
QD_INLINE uint32_t place_copied(uint32_t key, uint32_t row, uint32_t turn) {
    const uint32_t byte = qd_lane() % ROW_LANES * QD_WIDE_COPY;
    return key * row + (byte / 16 ^ turn) * 16 + byte % 16;
}

/** Makes copy i of a tile, of slabs x groups; `to` is the wave's own part of a stage. */
QD_INLINE void copy_slab(QD_LDS uint8_t *to, __amdgpu_buffer_rsrc_t from, const uint32_t *places,
                         uint32_t slabs, uint32_t i) {
    const uint32_t s = i % slabs, group = i / slabs;
    qd_copy_wide(to + s * SLAB_BYTES + group * (WAVES * COPIED * 128), from,
                 places[group] + s * 128);
}

#endif

// ---- keys

enum { KEY_PIECES = S_TILES * D / 16 };
#if !QK_FP8
enum { KEY_COPIES = KEY_GROUPS * SLABS };
#endif

/** What a lane moves of k, and where to. */
typedef struct key_mover {
    source from;
#if QK_FP8
    code_place codes;
#else
    uint32_t places[KEY_GROUPS]; // in memory
#endif
    uint32_t at[4]; // in LDS, of a lane's operands: pieces 0 or 1, 2 or 3, …
} key_mover;

/** Returns the number with which the 16-byte pieces of a key change places in its 128 bytes. Lanes
 *  that read at once then touch all banks. */
QD_INLINE uint32_t key_turn(uint32_t key) {
    return key / (QK_BANKS / 32) % 8;
}

QD_INLINE key_mover make_key_mover(const part *p, const qk_attention_args *g) {
    key_mover m = {.from = make_source(p, g, &g->k)};
    const uint32_t part = qd_mma_part(), line = qd_mma_line();
#if QK_FP8
    m.codes = place_codes(m.from.row, key_turn(key_of_codes()));
#else
    QD_UNROLL for (uint32_t i = 0; i < KEY_GROUPS; i++) {
        const uint32_t key = key_copied(i);
        m.places[i] = place_copied(key, m.from.row, key_turn(key));
    }
#endif
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        m.at[i] = line * 128 + ((2 * i + part) ^ key_turn(line)) * 16;
    return m;
}

/** Reads piece i of a stage's keys; `at` is the mover's, at the stage's lap. */
QD_INLINE qd_u32x4 read_keys(const QD_LDS uint8_t *k, const uint32_t at[4], uint32_t i) {
    const uint32_t t = i / (D / 16), c = i % (D / 16);
    return *(const QD_LDS qd_u32x4 *)(k + at[c % 4] + c / 4 * SLAB_BYTES + t * QD_MMA_ROWS * 128);
}

#endif
