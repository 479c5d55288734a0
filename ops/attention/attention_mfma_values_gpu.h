// SPDX-License-Identifier: Apache-2.0
// Moves values of attention_mfma_gpu.c from memory to LDS and, transposed, to operands. Where LDS
// transposes as it is read, values are moved as keys are; elsewhere they come through registers,
// which transpose.
#ifndef QK_ATTENTION_MFMA_VALUES_GPU_H
#define QK_ATTENTION_MFMA_VALUES_GPU_H

#include "attention_mfma_gpu.h"

enum { VALUE_PIECES = O_TILES * KEY_UNITS };

#if QD_READS_TRANSPOSED

enum { V_PLACES = 2 };
#if QK_FP8
enum { VALUE_LOADS = VALUE_SLABS, VALUE_LANDS = VALUE_SLABS };
typedef qd_u32x2 moving_values[VALUE_SLABS];
#else
enum { VALUE_COPIES = KEY_GROUPS * VALUE_SLABS };
#endif

/** What a lane moves of v, and where to. */
typedef struct value_mover {
    source from;
#if QK_FP8
    code_place codes;
#else
    uint32_t places[KEY_GROUPS]; // in memory
#endif
    uint32_t at[V_PLACES]; // in LDS: of even and of odd tiles of 32 columns
} value_mover;

/** Returns the number with which the 16-byte pieces of a key change places. 32 lanes read at once,
 *  of four keys half of their 128 bytes each, and then touch all banks. */
QD_INLINE uint32_t value_turn(uint32_t key) {
    return key / 2 % 2 * 4;
}

QD_INLINE value_mover make_value_mover(const part *p, const qk_attention_args *g) {
    value_mover m = {.from = make_source(p, g, &g->v)};
#if QK_FP8
    m.codes = place_codes(m.from.row, value_turn(key_of_codes()));
#else
    QD_UNROLL for (uint32_t i = 0; i < KEY_GROUPS; i++) {
        const uint32_t key = key_copied(i);
        m.places[i] = place_copied(key, m.from.row, value_turn(key));
    }
#endif
    const uint32_t lane = qd_lane() % 16, key = qd_mma_part() * 4 + lane / 4;
    QD_UNROLL for (uint32_t odd = 0; odd < V_PLACES; odd++) {
        const uint32_t piece = odd * 4 + qd_mma_line() / 16 * 2 + lane % 4 / 2;
        m.at[odd] = key * 128 + (piece ^ value_turn(key)) * 16 + lane % 2 * 8;
    }
    return m;
}

#if QK_FP8
QD_INLINE uint32_t unit_of_values(void) {
    return unit_of_codes();
}
QD_INLINE void load_values(const value_mover *m, __amdgpu_buffer_rsrc_t from, uint32_t i,
                           moving_values values) {
    values[i] = load_codes(m->codes, from, i);
}
QD_INLINE void land_values(const value_mover *m, QD_LDS uint8_t *to, uint32_t i,
                           const moving_values values) {
    land_codes(m->codes, to, i, values[i]);
}
#endif

/** Reads piece i of a stage's values: of 32 columns a lane's eight keys. `at` is the mover's, at
 *  the stage's lap. */
QD_INLINE qd_u32x4 read_values(const QD_LDS uint8_t *v, const uint32_t at[V_PLACES], uint32_t i) {
    const uint32_t n = i / KEY_UNITS, unit = i % KEY_UNITS;
    const QD_LDS uint8_t *from = v + at[n % 2] + n / 2 * SLAB_BYTES + unit * 16 * 128;
    const qd_u32x2 low = qd_read_transposed(from), high = qd_read_transposed(from + 8 * 128);
    return (qd_u32x4){low.x, low.y, high.x, high.y};
}

#else

// A lane has four keys of a RUN of columns at a time, a wave eight keys, one of COMBOS, of 32 RUNs.
enum { COMBOS = TILE / 8, RUN = QK_FP8 && D_VO > 64 ? 4 : 2, VALUE_BYTES = KEY_UNITS * 1024 };
enum { VALUES = COMBOS * D_VO / (32 * RUN * WAVES) }; // of a lane: four keys of a run
enum { VALUE_LOADS = VALUES * 4, VALUE_LANDS = VALUES * RUN, V_PLACES = 1 };
enum { STEP = WAVES / COMBOS * 32 * RUN }; // columns from one of VALUES to the next
static_assert(VALUES * STEP == D_VO && O_TILES * VALUE_BYTES == V_STAGE);

/** Values on their way: of each key the word that holds a run. */
typedef uint32_t moving_values[VALUES][4];

/** What a lane moves of v, and where to. */
typedef struct value_mover {
    source from;
    uint32_t places[4];    // in memory, of four keys that follow each other
    uint32_t to[RUN];      // of a run's columns
    uint32_t at[V_PLACES]; // of a lane's operands
} value_mover;

/** Returns the place of a column of 32 among their entries. Lanes that read 16 bytes at once, and
 *  those that write 8 of every other or of every fourth column, then touch all banks. */
QD_INLINE uint32_t entry_of(uint32_t d) {
    return d / 8 * 8 + (d % 8 ^ d / 8);
}

QD_INLINE value_mover make_value_mover(const part *p, const qk_attention_args *g) {
    value_mover m = {.from = make_source(p, g, &g->v)};
    const uint32_t lane = qd_lane(), combo = qd_wave() % COMBOS, half = lane % 2;
    const uint32_t first = half * 8 + combo % 2 * 4 + combo / 2 * UNIT,
                   column = (qd_wave() / COMBOS * 32 + lane / 2) * RUN;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        m.places[i] = (first + i) * m.from.row + column * KV_BYTES / 4 * 4;
    const uint32_t begin = column / 32 * VALUE_BYTES + combo * 512 + half * 8;
    QD_UNROLL for (uint32_t i = 0; i < RUN; i++)
        m.to[i] = begin + entry_of(column % 32 + i) * 16;
    m.at[0] = qd_mma_part() * 512 + entry_of(qd_mma_line()) * 16;
    return m;
}

QD_INLINE uint32_t unit_of_values(void) {
    return qd_wave() % COMBOS / 2 * UNIT;
}

/** Starts load i of a tile of v, of VALUE_LOADS. */
QD_INLINE void load_values(const value_mover *m, __amdgpu_buffer_rsrc_t from, uint32_t i,
                           moving_values values) {
    values[i / 4][i % 4] = qd_buffer_load(from, m->places[i % 4] + i / 4 * STEP * KV_BYTES, 0);
}

/** Returns element e of two keys' runs, as the matrix core takes them. A word of codes has two runs
 *  of two, of neighbouring lanes. */
QD_INLINE uint32_t pair_of(uint32_t a, uint32_t b, uint32_t e) {
    const uint32_t shift = RUN == 2 ? qd_lane() / 2 % 2 * 16 : 0;
    return QK_FP8 ? qd_widen2(QD_FP8_USUAL, QK_F16, a >> shift, e, b >> shift, e)
                  : qd_halves(a, b, e);
}

/** Writes what four loads brought to LDS, i of VALUE_LANDS: four keys of a column. */
QD_INLINE void land_values(const value_mover *m, QD_LDS uint8_t *to, uint32_t i,
                           const moving_values values) {
    const uint32_t *v = values[i / RUN], e = i % RUN;
    const qd_u32x2 keys = {pair_of(v[0], v[1], e), pair_of(v[2], v[3], e)};
    *(QD_LDS qd_u32x2 *)(to + m->to[e] + i / RUN * (STEP / 32 * VALUE_BYTES)) = keys;
}

/** Reads piece i of a stage's values: of 32 columns a lane's eight keys. */
QD_INLINE qd_u32x4 read_values(const QD_LDS uint8_t *v, const uint32_t at[V_PLACES], uint32_t i) {
    return *(const QD_LDS qd_u32x4 *)(v + at[0] + i * 1024);
}

#endif

QD_INLINE void clear_values(QD_LDS uint8_t *to) {
    for (uint32_t i = qd_thread() * 16; i < V_STAGE; i += THREADS * 16)
        *(QD_LDS qd_u32x4 *)(to + i) = 0;
}

#endif
