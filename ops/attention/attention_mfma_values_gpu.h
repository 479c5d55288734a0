// SPDX-License-Identifier: Apache-2.0
// Moves values of attention_mfma_gpu.c from memory to LDS and, transposed, to operands. Where LDS
// transposes as it is read, values are copied to it as keys are; elsewhere they come through
// registers, which transpose.
#ifndef QK_ATTENTION_MFMA_VALUES_GPU_H
#define QK_ATTENTION_MFMA_VALUES_GPU_H

#include "attention_mfma_gpu.h"

enum { VALUE_PIECES = O_TILES * KEY_UNITS };

#if QD_READS_TRANSPOSED

enum { VALUE_COPIES = KEY_GROUPS * VALUE_SLABS, V_PLACES = 2 };

/** What a lane moves of v, and where to. */
typedef struct value_mover {
    source from;
    uint32_t places[KEY_GROUPS]; // in memory
    uint32_t at[V_PLACES];       // in LDS: of even and of odd tiles of 32 columns
} value_mover;

/** Returns the number with which the 16-byte pieces of a key change places. 32 lanes read at once,
 *  of four keys half of their 128 bytes each, and then touch all banks. */
QD_INLINE uint32_t value_turn(uint32_t key) {
    return key / 2 % 2 * 4;
}

QD_INLINE value_mover make_value_mover(const part *p, const qk_attention_args *g) {
    value_mover m = {.from = make_source(p, g, &g->v)};
    QD_UNROLL for (uint32_t i = 0; i < KEY_GROUPS; i++) {
        const uint32_t key = key_copied(i);
        m.places[i] = place_copied(key, m.from.row, value_turn(key));
    }
    const uint32_t lane = qd_lane() % 16, key = qd_mma_part() * 4 + lane / 4;
    QD_UNROLL for (uint32_t odd = 0; odd < V_PLACES; odd++) {
        const uint32_t piece = odd * 4 + qd_mma_line() / 16 * 2 + lane % 4 / 2;
        m.at[odd] = key * 128 + (piece ^ value_turn(key)) * 16 + lane % 2 * 8;
    }
    return m;
}

/** Reads piece i of a stage's values: of 32 columns a lane's eight keys. `at` is the mover's, at
 *  the stage's lap. */
QD_INLINE qd_u32x4 read_values(const QD_LDS uint8_t *v, const uint32_t at[V_PLACES], uint32_t i) {
    const uint32_t n = i / KEY_UNITS, unit = i % KEY_UNITS;
    const QD_LDS uint8_t *from = v + at[n % 2] + n / 2 * SLAB_BYTES + unit * 16 * 128;
    const qd_u32x2 low = qd_read_transposed(from), high = qd_read_transposed(from + 8 * 128);
    return (qd_u32x4){low.x, low.y, high.x, high.y};
}

#else

enum { COMBOS = TILE / 8, VALUES = COMBOS * VALUE_SLABS / WAVES }; // of 8 keys by 64 columns of v
enum { VALUE_BYTES = KEY_UNITS * 1024, VALUE_LOADS = VALUES * 4 }; // of 32 columns; of a wave
enum { V_PLACES = 1 };
static_assert(VALUES * WAVES == COMBOS * VALUE_SLABS && O_TILES * VALUE_BYTES == V_STAGE);

/** What a lane moves of v, and where to. */
typedef struct value_mover {
    source from;
    uint32_t places[4];    // in memory, of four keys that follow each other
    uint32_t to[2];        // of an even column and the next one
    uint32_t at[V_PLACES]; // of a lane's operands
} value_mover;

/** Returns the place of a column of 32 among their entries. Lanes that read 16 bytes at once, and
 *  those that write 8 of every other column, then touch all banks. */
QD_INLINE uint32_t entry_of(uint32_t d) {
    const uint32_t odd = d % 2, pair = d / 2;
    return pair / 8 * 16 + odd * 8 + (pair % 8 ^ odd * 4);
}

QD_INLINE value_mover make_value_mover(const part *p, const qk_attention_args *g) {
    value_mover m = {.from = make_source(p, g, &g->v)};
    const uint32_t lane = qd_lane(), combo = qd_wave() % COMBOS, half = lane % 2, pair = lane / 2;
    const uint32_t first = half * 8 + combo % 2 * 4 + combo / 2 * UNIT,
                   column = qd_wave() / COMBOS * 64 + pair * 2;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++)
        m.places[i] = (first + i) * m.from.row + column * 2;
    const uint32_t begin = column / 32 * VALUE_BYTES + combo * 512 + half * 8;
    QD_UNROLL for (uint32_t i = 0; i < 2; i++)
        m.to[i] = begin + entry_of(column % 32 + i) * 16;
    m.at[0] = qd_mma_part() * 512 + entry_of(qd_mma_line()) * 16;
    return m;
}

QD_INLINE uint32_t unit_of_values(void) {
    return qd_wave() % COMBOS / 2 * UNIT;
}

/** Starts load i of a tile of v, of VALUE_LOADS. */
QD_INLINE void load_values(const value_mover *m, __amdgpu_buffer_rsrc_t from, uint32_t i,
                           uint32_t values[VALUES][4]) {
    const uint32_t column = i / 4 * (WAVES * 128 / COMBOS);
    values[i / 4][i % 4] = qd_buffer_load(from, m->places[i % 4] + column, 0);
}

/** Writes what four loads brought to LDS, i of 2 VALUES: four keys of an even column, or of the
 *  next one. */
QD_INLINE void land_values(const value_mover *m, QD_LDS uint8_t *to, uint32_t i,
                           const uint32_t values[VALUES][4]) {
    const uint32_t *v = values[i / 2], odd = i % 2;
    const qd_u32x2 keys = {qd_halves(v[0], v[1], odd), qd_halves(v[2], v[3], odd)};
    *(QD_LDS qd_u32x2 *)(to + m->to[odd] + i / 2 * (WAVES * 2 * VALUE_BYTES / COMBOS)) = keys;
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
