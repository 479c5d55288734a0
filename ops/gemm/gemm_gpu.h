// SPDX-License-Identifier: Apache-2.0
// What the GPU kernels of the gemm family share: the choice of a workgroup's tile, loads of a
// piece, stores of d.
#ifndef QK_GEMM_GPU_H
#define QK_GEMM_GPU_H

#include "elementary.h"
#include "gemm_abi.h"
#include "gpu.h"

/** The rows of the tile that a workgroup computes. */
typedef struct qk_gemm_tile {
    uint32_t group;
    uint32_t row;      // first row; masked: of the group's slab
    uint32_t end;      // rows from here on are not the group's
    uint32_t zero_end; // rows end..zero_end-1 of d become zero
} qk_gemm_tile;

/** Returns a count or end that was read from the device, held to 0..m. */
QD_INLINE uint32_t qk_gemm_clip(int32_t count, uint32_t m) {
    return count < 0 ? 0 : qd_min((uint32_t)count, m);
}

/** Returns how many rows of a group's slab are real. */
QD_INLINE uint32_t qk_gemm_slab_rows(const qk_gemm_args *g, uint32_t group) {
    int32_t count = (int32_t)g->m; // clipped, too: with a branch around that ptxas spills
    if (g->layout)
        count = g->layout[group];
    return qk_gemm_clip(count, g->m);
}

/** Returns where a group's rows begin and end, and the rows to which its tiles extend. Groups from
 *  g->groups on are empty. In the masked form each group has a slab of its own. */
QD_INLINE qk_gemm_tile qk_gemm_group_rows(const qk_gemm_args *g, bool is_masked, uint32_t group) {
    if (group >= g->groups)
        return (qk_gemm_tile){};
    if (is_masked) {
        const uint32_t count = qk_gemm_slab_rows(g, group);
        return (qk_gemm_tile){group, 0, count, count};
    }
    const uint32_t before = group ? qk_gemm_clip(g->layout[group - 1], g->m) : 0;
    const uint32_t start = qd_min(qd_div_up(before, g->m_alignment) * g->m_alignment, g->m);
    const uint32_t end = qd_max(qk_gemm_clip(g->layout[group], g->m), start);
    const uint32_t next = qd_min(qd_div_up(end, g->m_alignment) * g->m_alignment, g->m);
    return (qk_gemm_tile){group, start, end, g->zero_padding ? next : end};
}

/** Finds the tile of `rows` rows with number `index`, where the layout says how many rows each
 *  group has. Each lane looks at one group, as there may be hundreds. All lanes must call it. */
QD_INLINE bool qk_gemm_tile_by_groups(const qk_gemm_args *g, bool is_masked, uint32_t index,
                                      uint32_t rows, qk_gemm_tile *tile) {
    for (uint32_t first = 0; first < g->groups; first += QD_WAVE) {
        qk_gemm_tile own = qk_gemm_group_rows(g, is_masked, first + qd_lane());
        const uint32_t tiles = qd_div_up(own.zero_end - own.row, rows);
        const uint32_t sum = qd_scan_sum(tiles);
        const uint64_t past = qd_ballot(index < sum);
        if (past) {
            const uint32_t lane = (uint32_t)__builtin_ctzll(past);
            const uint32_t at = index - qd_read_lane(sum - tiles, lane);
            *tile = (qk_gemm_tile){first + lane, qd_read_lane(own.row, lane) + at * rows,
                                   qd_read_lane(own.end, lane), qd_read_lane(own.zero_end, lane)};
            return true;
        }
        index -= qd_read_lane(sum, QD_WAVE - 1);
    }
    return false;
}

/** Finds what the tile with number `index` of tiles_m covers. Returns false if it covers nothing.
 *  The result is uniform over the workgroup. */
QD_INLINE bool qk_gemm_find_tile(const qk_gemm_args *g, uint32_t index, uint32_t rows,
                                 qk_gemm_tile *tile) {
    *tile = (qk_gemm_tile){0, index * rows, g->m, 0};
    switch (g->grouping) {
    case QK_GROUPED_ENDS:
        return qk_gemm_tile_by_groups(g, false, index, rows, tile);
    case QK_GROUPED_INDEX:
        // Groups start at multiples of 128, and `rows` divides 128: all rows of the tile are of the
        // first row's group.
        tile->group = (uint32_t)g->layout[tile->row];
        return tile->group < g->groups;
    case QK_GROUPED_MASKED:
        tile->group = index / g->tiles_m;
        tile->row = index % g->tiles_m * rows;
        tile->end = qk_gemm_slab_rows(g, tile->group);
        return tile->row < tile->end;
    default:
        return true;
    }
}

/** Returns whether the row of a tile is the group's own, and so to be written. */
QD_INLINE bool qk_gemm_owns_row(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row) {
    if (row >= tile->end)
        return false;
    return g->grouping != QK_GROUPED_INDEX || (uint32_t)g->layout[row] == tile->group;
}

/** Chooses a workgroup's tile so that workgroups that run together share what the L2 caches hold.
 *
 *  Workgroups go round the 8 XCDs, each of which has an L2 of its own, so runs of 16 tiles are put
 *  on one XCD. Tiles are walked in bands of 4 rows of tiles, column after column. Source:
 *  HipKittens' raster (kernel sweep on MI300). */
QD_INLINE void qk_gemm_order(const qk_gemm_args *g, uint32_t block, uint32_t *tile_m,
                             uint32_t *tile_n) {
    constexpr uint32_t xcds = 8, run = 16, band_rows = 4;
    const uint32_t tiles_m = g->grouping == QK_GROUPED_MASKED ? g->tiles_m * g->groups : g->tiles_m;
    const uint32_t whole = tiles_m * g->tiles_n / (xcds * run) * (xcds * run);
    if (block < whole)
        block = block / (xcds * run) * (xcds * run) + block % xcds * run + block / xcds % run;
    const uint32_t band = block / (band_rows * g->tiles_n), in = block % (band_rows * g->tiles_n);
    const uint32_t height = qd_min(tiles_m - band * band_rows, band_rows);
    *tile_m = band * band_rows + in % height;
    *tile_n = in / height;
}

/** Loads sixteen codes of a row from k on, where k is contiguous; codes past the end are zero. */
QD_INLINE qd_u32x4 qk_gemm_load_piece(const uint8_t *row, uint32_t k, uint32_t num_k) {
    if (k + 16 <= num_k && ((uintptr_t)row + k) % 16 == 0)
        return *(const qd_u32x4 *)(row + k);
    qd_u32x4 out = 0;
    QD_UNROLL for (uint32_t i = 0; i < 16; i++)
        if (k + i < num_k)
            out[i / 4] |= (uint32_t)row[k + i] << (i % 4 * 8);
    return out;
}

/** Returns element `at` of bias or gate. */
QD_INLINE float qk_gemm_vector_at(const void *data, int type, int64_t at) {
    return type == QK_F32 ? ((const float *)data)[at] : (float)((const __bf16 *)data)[at];
}

/** Returns the gate of an element of d. */
QD_INLINE float qk_gemm_gate(const qk_gemm_args *g, uint32_t row, uint32_t column) {
    return qk_gemm_vector_at(g->gate, g->type_gate, row / g->gate_rows * g->gate_batch + column);
}

/** Returns what c is added to, where the sum of the products is `value`. */
QD_INLINE float qk_gemm_finish(const qk_gemm_args *g, uint32_t row, uint32_t column, float value) {
    if (g->bias)
        value += qk_gemm_vector_at(g->bias, g->type_bias, column);
    if (g->activation == QK_GELU_TANH)
        value = qd_gelu_tanh(value);
    if (g->gate)
        value *= qk_gemm_gate(g, row, column);
    return value;
}

/** Returns four columns of a row of bias or gate, which begins at element `row`. Columns past the
 *  last one get the last one's. */
QD_INLINE qd_f32x4 qk_gemm_vector4(const void *data, int type, int64_t row, uint32_t column,
                                   uint32_t n) {
    qd_f32x4 out;
    if (type == QK_F32) QD_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            out[e] = ((const float *)data)[row + qd_min(column + e, n - 1)];
    else QD_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            out[e] = (float)((const __bf16 *)data)[row + qd_min(column + e, n - 1)];
    return out;
}

QD_INLINE qd_f32x4 qk_gemm_bias4(const qk_gemm_args *g, uint32_t column) {
    return qk_gemm_vector4(g->bias, g->type_bias, 0, column, g->n);
}

/** Returns the gates of four columns of a row of d, which may lie past the last one; `columns` is
 *  how many d has. */
QD_INLINE qd_f32x4 qk_gemm_gate4(const qk_gemm_args *g, uint32_t row, uint32_t column,
                                 uint32_t columns) {
    const int64_t at = qd_min(row, g->m - 1) / g->gate_rows * g->gate_batch;
    return qk_gemm_vector4(g->gate, g->type_gate, at, column, columns);
}

QD_INLINE qd_f32x4 qk_gemm_gelu4(qd_f32x4 x) {
    return (qd_f32x4){qd_gelu_tanh(x.x), qd_gelu_tanh(x.y), qd_gelu_tanh(x.z), qd_gelu_tanh(x.w)};
}

/** Does for four columns what qk_gemm_finish does for one. */
QD_INLINE qd_f32x4 qk_gemm_finish4(const qk_gemm_args *g, uint32_t row, uint32_t column,
                                   qd_f32x4 values) {
    if (g->bias)
        values += qk_gemm_bias4(g, column);
    if (g->activation == QK_GELU_TANH)
        values = qk_gemm_gelu4(values);
    if (g->gate)
        values *= qk_gemm_gate4(g, row, column, g->n);
    return values;
}

/** Stores one element of d: adds c and rounds once. */
QD_INLINE void qk_gemm_store(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                             uint32_t column, float value) {
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    if (g->type_d == QK_F32) {
        if (g->c)
            value += ((const float *)g->c)[row * g->c_row + column];
        ((float *)g->d)[at] = value;
    } else {
        if (g->c)
            value += (float)((const __bf16 *)g->c)[row * g->c_row + column];
        ((__bf16 *)g->d)[at] = (__bf16)value;
    }
}

/** Returns whether row is to be written; *is_zero tells whether it is padding that becomes
 *  zero. */
QD_INLINE bool qk_gemm_writes_row(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                                  bool *is_zero) {
    *is_zero = row >= tile->end && row < tile->zero_end;
    return *is_zero || qk_gemm_owns_row(g, tile, row);
}

/** Stores four columns of a row, in one store if all four exist, are aligned and nothing is
 *  added. */
QD_INLINE void qk_gemm_store4(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row,
                              uint32_t column, qd_f32x4 values) {
    bool is_zero;
    if (!qk_gemm_writes_row(g, tile, row, &is_zero))
        return;
    if (is_zero)
        values = 0;
    const int64_t at = tile->group * g->d_group + row * g->d_row + column;
    const bool is_whole = column + 4 <= g->n && !g->c && at % 4 == 0;
    if (is_whole && g->type_d == QK_F32 && (uintptr_t)g->d % 16 == 0)
        *(qd_f32x4 *)((float *)g->d + at) = values;
    else if (is_whole && g->type_d == QK_BF16 && (uintptr_t)g->d % 8 == 0)
        *(qd_bf16x4 *)((__bf16 *)g->d + at) = __builtin_convertvector(values, qd_bf16x4);
    else QD_UNROLL
        for (uint32_t e = 0; e < 4; e++)
            if (column + e < g->n)
                qk_gemm_store(g, tile, row, column + e, values[e]);
}

#endif
