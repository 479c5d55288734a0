// SPDX-License-Identifier: Apache-2.0
// A tile of a latent cache on CDNA: from memory to registers, to LDS, and to the operands of both
// products, as keys and, transposed in registers, as values.
//
// A key is 512 + 64 elements, of 16 bits or of the target's own FP8, which becomes 16 bits on its
// way to LDS, or with QK_CODES as operands are read. A key's 16-byte pieces change places, of four
// each, by turn_of(); lanes that read at once, keys or values, then touch all banks, as do those
// that write. Which of k an operand has is free as long as q has the same: first_element() says it.
#ifndef QK_MLA_CACHE_GPU_H
#define QK_MLA_CACHE_GPU_H

#include "mla_start_gpu.h"

/** Returns x. With QK_TIGHT, where registers are few, what follows from x is computed anew where it
 *  is used. */
QD_INLINE uint32_t anew(uint32_t x) {
    return QK_TIGHT ? qd_opaque(x) : x;
}

enum { LDS_BYTES = QK_CODES ? 1 : 2 }; // of an element in LDS
enum { ROPE_DIM = 64, KEY_BYTES = (DIM + ROPE_DIM) * LDS_BYTES };
enum { WIDE_BANKS = QK_BANKS == 64 }; // LDS's
/** Bytes between groups of four keys. Lanes that read values at once are of two such groups, of
 *  four on 64 banks, where they read four codes each. */
enum { GAP = !QK_CODES ? 0 : COLUMNS == 64 ? 64 : WIDE_BANKS ? 128 : 0 };
enum { GROUP_BYTES = 4 * KEY_BYTES + GAP };
enum { HAS_HALVES = QK_CODES && COLUMNS > 64 };
enum { STAGE_BYTES = TILE / 4 * GROUP_BYTES };

/** Returns the number with which a key's pieces change places. */
QD_INLINE uint32_t turn_of(uint32_t key) {
    if (QK_CODES)
        return (WIDE_BANKS ? 0 - key / 4 : key / 2) % 4;
    return (WIDE_BANKS ? key / 2 : key) % 4;
}

/** Returns where 16-byte piece `piece` of a key stands in a stage. */
QD_INLINE uint32_t place_of_piece(uint32_t key, uint32_t piece) {
    return key / 4 * GROUP_BYTES + key % 4 * KEY_BYTES + (piece ^ turn_of(key)) * 16;
}

/** Returns at which byte of its 16 byte `byte` of a key stands: where operands are eight codes,
 *  those of keys eight apart stand in different halves. */
QD_INLINE uint32_t place_in_piece(uint32_t key, uint32_t byte) {
    return byte % 16 ^ (HAS_HALVES ? key / 8 % 2 * 8 : 0);
}

// ---- from memory to LDS

enum { LOADERS = THREADS / TILE, CARRIED = QK_CODES ? 16 : 8 }; // elements of ckv, at once
enum { CKV_LOADS = DIM / CARRIED / LOADERS, KPE_CARRIED = ROPE_DIM / LOADERS };
enum { KPE_BYTES = KPE_CARRIED * KV_BYTES };

/** What a thread carries of ckv at once, and of kpe. */
#if QK_CODES
typedef qd_u32x4 ckv_piece;
#else
typedef kv_piece ckv_piece;
#endif
typedef struct kpe_piece {
    alignas(KPE_BYTES) uint8_t bytes[KPE_BYTES];
} kpe_piece;

/** A key by its place among its request's pages and its slot there. */
typedef struct spot {
    uint32_t place, slot;
} spot;

/** The cache of a request; strides are in bytes. */
typedef struct cache {
    const char *ckv, *kpe;
    const int32_t *pages;
    uint32_t block, token, kpe_block, kpe_token, page_size;
} cache;

/** What a thread carries to LDS: of one key every LOADERS-th piece of ckv, and one of kpe. */
typedef struct carrier {
    cache from;
    uint32_t key;        // that is asked for next
    spot at, step, last; // that key; a tile's keys; the chunk's last key
    uint32_t slot, page; // of the key that is fetched next
    ckv_piece ckv[CKV_LOADS];
    kpe_piece kpe;
} carrier;

QD_INLINE cache find_cache(const part *p) {
    const qk_mla_args *a = again(p);
    const qk_attention_rows *k = &a->common.k, *tail = &a->tail.k;
    return (cache){.ckv = k->data,
                   .kpe = tail->data,
                   .pages = a->common.kv_indices + p->request.kv_begin,
                   .block = (uint32_t)k->block * KV_BYTES,
                   .token = (uint32_t)k->token * KV_BYTES,
                   .kpe_block = (uint32_t)tail->block * KV_BYTES,
                   .kpe_token = (uint32_t)tail->token * KV_BYTES,
                   .page_size = a->common.page_size};
}

QD_INLINE spot spot_of(uint32_t key, uint32_t page_size) {
    const uint32_t place = key / page_size;
    return (spot){place, key - place * page_size};
}

QD_INLINE spot uniform_spot(uint32_t key, uint32_t page_size) {
    const spot s = spot_of(key, page_size);
    return (spot){qd_uniform(s.place), qd_uniform(s.slot)};
}

/** Returns the carrier's cache; with QK_TIGHT by the arguments, which are read again. */
QD_INLINE cache cache_of(const part *p, const carrier *c) {
    return QK_TIGHT ? find_cache(p) : c->from;
}

/** Asks for the page of the carrier's key, and goes on to the next tile. Past the end it is the
 *  last key again. */
QD_INLINE void ask_page(const part *p, carrier *c) {
    const bool is_past = c->key >= p->chunk_end;
    const cache from = cache_of(p, c);
    c->slot = is_past ? c->last.slot : c->at.slot;
    c->page = (uint32_t)from.pages[is_past ? c->last.place : c->at.place];
    c->key += TILE;
    c->at.place += c->step.place;
    c->at.slot += c->step.slot;
    const bool is_over = c->at.slot >= from.page_size;
    c->at.place += is_over ? 1 : 0;
    c->at.slot -= is_over ? from.page_size : 0;
}

/** Starts loading the key for which ask_page() asked last. */
QD_INLINE void fetch(const part *p, carrier *c) {
    const uint32_t piece = anew(qd_thread()) % LOADERS;
    const cache f = cache_of(p, c);
    const char *ckv = f.ckv + (uint64_t)c->page * f.block + (uint64_t)c->slot * f.token;
    const char *kpe = f.kpe + (uint64_t)c->page * f.kpe_block + (uint64_t)c->slot * f.kpe_token;
    QD_UNROLL for (uint32_t i = 0; i < CKV_LOADS; i++)
        c->ckv[i] = ((const ckv_piece *)ckv)[i * LOADERS + piece];
    c->kpe = ((const kpe_piece *)kpe)[piece];
}

/** Starts with the first tile of the part's chunk, and asks for the pages of the next. */
QD_INLINE carrier begin_carrier(const part *p) {
    carrier c = {.from = find_cache(p), .key = p->chunk_begin + qd_thread() / LOADERS};
    c.at = spot_of(c.key, c.from.page_size);
    c.step = uniform_spot(TILE, c.from.page_size);
    c.last = uniform_spot(p->chunk_end - 1, c.from.page_size);
    ask_page(p, &c);
    fetch(p, &c);
    ask_page(p, &c);
    return c;
}

/** Writes to a stage what fetch() loaded of ckv. */
QD_INLINE void land_ckv(const carrier *c, uint32_t key, uint32_t piece, QD_LDS uint8_t *to) {
    QD_UNROLL for (uint32_t i = 0; i < CKV_LOADS; i++) {
        QD_LDS uint8_t *const at = to + place_of_piece(key, i * LOADERS + piece);
#if QK_FP8 && !QK_CODES
        *(QD_LDS qd_u32x4 *)at = qd_widen8(QD_FP8_USUAL, QK_F16, c->ckv[i]);
#else
        const qd_u32x4 piece_i = c->ckv[i];
        *(QD_LDS qd_u32x4 *)at = place_in_piece(key, 0) ? piece_i.zwxy : piece_i;
#endif
    }
}

QD_INLINE void land(const carrier *c, QD_LDS uint8_t *to) {
    const uint32_t thread = anew(qd_thread()), key = thread / LOADERS, piece = thread % LOADERS;
    const uint32_t byte = (DIM + piece * KPE_CARRIED) * LDS_BYTES;
    QD_LDS uint8_t *const at = to + place_of_piece(key, byte / 16) + place_in_piece(key, byte);
    land_ckv(c, key, piece, to);
#if QK_FP8 && !QK_CODES
    *(QD_LDS uint32_t *)at =
        qd_widen2(QD_FP8_USUAL, QK_F16, c->kpe.bytes[0], 0, c->kpe.bytes[1], 0);
#else
    *(QD_LDS kpe_piece *)at = c->kpe;
#endif
}

// ---- keys

enum { STEPS = (DIM + ROPE_DIM) / QD_MMA_K, NOPE_STEPS = DIM / QD_MMA_K };

/** Returns the first of the eight elements of a row that the lane's operand of step 0, or if `odd`
 *  1, has; steps 2 i and 2 i + 1 have those 64 i further. Lanes whose lines are four apart then
 *  read pieces that are not of the same four. */
QD_INLINE uint32_t first_element(uint32_t odd) {
    const uint32_t part = qd_mma_part();
    return (QK_CODES ? 2 * part + odd : part % 2 * 4 + part / 2 * 2 + odd) * 8;
}

/** Returns the lane's operand of step 2 i, or if `odd` 2 i + 1, for a key, the lane's line. */
QD_INLINE qd_mma_operand read_key(const QD_LDS uint8_t *from, uint32_t key, uint32_t odd,
                                  uint32_t i) {
    const uint32_t part = qd_mma_part();
#if QK_CODES
    const uint32_t at = place_of_piece(key, part) + place_in_piece(key, odd * 8);
    return qd_widen8(QD_FP8_USUAL, QK_F16, *(const QD_LDS qd_u32x2 *)(from + at + i * 64));
#else
    const uint32_t at = place_of_piece(key, part % 2 * 4 + part / 2 * 2 + odd);
    return *(const QD_LDS qd_u32x4 *)(from + at + i * 128);
#endif
}

#if QK_CODES
/** Returns codes that the lane's operands of steps 2 i and 2 i + 1 are made from. */
QD_INLINE qd_u32x4 read_codes(const QD_LDS uint8_t *from, uint32_t key, uint32_t i) {
    return *(const QD_LDS qd_u32x4 *)(from + place_of_piece(key, qd_mma_part()) + i * 64);
}
#endif

// ---- values

enum { RUN = COLUMNS / QD_MMA_ROWS, RUN_BYTES = RUN * LDS_BYTES }; // that a lane takes of a key
enum { LANE_KEYS = TILE / 4 };
static_assert(RUN == O_TILES, "column d of tile n is element RUN d + n");

/** The elements side by side of a key that a lane takes. */
typedef uint32_t run __attribute__((ext_vector_type(RUN_BYTES / 4)));

/** Reads the runs of the lane's keys: those of which it has the weights. */
QD_INLINE void read_values(const QD_LDS uint8_t *from, run values[LANE_KEYS]) {
    const uint32_t lane = anew(qd_lane()), part = lane / QD_MMA_COLUMNS;
    const uint32_t byte = (my_column() + RUN * (lane % QD_MMA_COLUMNS)) * LDS_BYTES;
    QD_UNROLL for (uint32_t i = 0; i < LANE_KEYS; i++) {
        const uint32_t key = i / 4 * 16 + part * 4 + i % 4;
        values[i] = *(const QD_LDS run *)(from + place_of_piece(key, byte / 16) +
                                          place_in_piece(key, byte));
    }
}

/** Returns element n of the runs of two of the lane's keys, 2 i and the next. */
QD_INLINE uint32_t pair_of(const run values[LANE_KEYS], uint32_t i, uint32_t n) {
    const run a = values[2 * i], b = values[2 * i + 1];
#if QK_CODES
    return qd_widen2(QD_FP8_USUAL, QK_F16, a[n / 4], n % 4, b[n / 4], n % 4);
#else
    return qd_halves(a[n / 2], b[n / 2], n % 2);
#endif
}

#endif
