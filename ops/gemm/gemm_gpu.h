// SPDX-License-Identifier: Apache-2.0
// What the host and the GPU kernels of the gemm family share: kernel arguments, tile search, packed order.
#ifndef QK_GEMM_H
#define QK_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/** Element types, as kernels know them; the first two as QD_E4M3FN and QD_E4M3FNUZ of gpu/fp8.h. */
enum { QK_E4M3FN, QK_E4M3FNUZ, QK_BF16, QK_F32 };

/** How rows are split among groups; the values of qn_gemm_grouping. */
enum { QK_DENSE, QK_GROUPED_INDEX, QK_GROUPED_ENDS, QK_GROUPED_MASKED };

/** One product, as every gemm kernel takes it. Strides in elements; dimensions below 2^31. */
typedef struct qk_gemm_args {
    void *d;                        // [groups][m, n]
    const void *a;                  // [groups][m, k]; groups of a and d only when masked
    const void *b;                  // [groups][n, k], or packed
    const void *c;                  // [m, n]; null: nothing is added
    const float *scale_a, *scale_b; // [m, ceil(k/128)], [groups][ceil(n/128), ceil(k/128)]; null: 1
    const int32_t *layout;
    int64_t d_group, d_row, c_row;
    int64_t a_group, a_row, a_k;
    int64_t b_group, b_n, b_k;
    int64_t scale_a_group, scale_a_row, scale_a_kb;
    int64_t scale_b_group, scale_b_nb;
    uint32_t m, n, k, groups;
    uint32_t m_alignment;
    uint32_t tiles_m, tiles_n; // of the grid; tiles_m: an upper bound (masked: of one group)
    uint32_t packed_k;         // packed: k rounded up
    uint8_t grouping, type_a, type_b, type_d, is_packed, zero_padding;
} qk_gemm_args;

/** Weights to be laid out for the matrix cores. Strides in elements. */
typedef struct qk_gemm_pack_args {
    void *packed;        // [groups][packed_n, packed_k] in the order of qk_gemm_packed_offset
    float *packed_scale; // [groups, ceil(n/128), ceil(k/128)], contiguous
    const void *b;       // [groups][n, k], k contiguous
    const float *scale_b;
    int64_t b_group, b_n;
    int64_t scale_b_group, scale_b_nb;
    uint32_t groups, n, k, packed_n, packed_k;
    uint8_t fn_to_fnuz; // 1: e4m3fn becomes e4m3fnuz, scales double
} qk_gemm_pack_args;

/** The packed order: strips of 32 rows; in a strip, K-blocks of 128; in a block, 4 x 64 pieces of 16 bytes.
 *
 *  Piece j of lane l holds k = 32 j + 16 (l / 32) + 0..15 of row l % 32, so that one 16-byte load a lane
 *  fetches what two v_mfma_f32_32x32x16 take, and a wave's load is 1 KiB in a row. packed_n and packed_k
 *  are multiples of 128. */
enum { QK_PACK_ROWS = 32, QK_PACK_K = 128, QK_PACK_BLOCK = QK_PACK_ROWS * QK_PACK_K };

/** Byte of element (row, k) of one group's packed matrix. */
static inline int64_t qk_gemm_packed_offset(uint32_t row, uint32_t k, uint32_t packed_k) {
    int64_t strip = (int64_t)(row / QK_PACK_ROWS) * packed_k * QK_PACK_ROWS;
    uint32_t block = k / QK_PACK_K * QK_PACK_BLOCK, in = k % QK_PACK_K;
    return strip + block + in / 32 * 1024 + in % 32 / 16 * 512 + row % 32 * 16 + in % 16;
}

#ifdef __AMDGPU__
#include "gpu.h"

/** The rows that a workgroup computes. */
typedef struct qk_gemm_tile {
    uint32_t group;
    uint32_t row;      // first row; masked: of the group's slab
    uint32_t end;      // rows from here on are not the group's
    uint32_t zero_end; // rows end..zero_end-1 of d become zero
} qk_gemm_tile;

/** A count or end read from the device, held to 0..m. */
QD_INLINE uint32_t qk_gemm_clip(int32_t count, uint32_t m) {
    return count < 0 ? 0 : qd_min((uint32_t)count, m);
}

/** The tile of `rows` rows with number `index`, where each group's rows end at ends[g]. */
QD_INLINE bool qk_gemm_tile_by_ends(const qk_gemm_args *g, uint32_t index, uint32_t rows,
                                    qk_gemm_tile *tile) {
    uint32_t start = 0;
    for (uint32_t group = 0; group < g->groups; group++) {
        uint32_t end = qd_max(qk_gemm_clip(g->layout[group], g->m), start);
        uint32_t next = qd_min(qd_div_up(end, g->m_alignment) * g->m_alignment, g->m);
        uint32_t limit = g->zero_padding ? next : end;
        uint32_t tiles = qd_div_up(limit - start, rows);
        if (index < tiles) {
            *tile = (qk_gemm_tile){group, start + index * rows, end, limit};
            return true;
        }
        index -= tiles;
        start = next;
    }
    return false;
}

/** What the tile with number `index` of tiles_m covers; false: nothing. Uniform over the workgroup. */
QD_INLINE bool qk_gemm_find_tile(const qk_gemm_args *g, uint32_t index, uint32_t rows,
                                 qk_gemm_tile *tile) {
    *tile = (qk_gemm_tile){0, index * rows, g->m, 0};
    switch (g->grouping) {
    case QK_GROUPED_ENDS:
        return qk_gemm_tile_by_ends(g, index, rows, tile);
    case QK_GROUPED_INDEX:
        // Groups start at multiples of 128, of which `rows` is a divisor: the first row speaks for the tile.
        tile->group = (uint32_t)g->layout[tile->row];
        return tile->group < g->groups;
    case QK_GROUPED_MASKED:
        tile->group = index / g->tiles_m;
        tile->row = index % g->tiles_m * rows;
        tile->end = qk_gemm_clip(g->layout[tile->group], g->m);
        return tile->row < tile->end;
    default:
        return true;
    }
}

/** Whether the row of a tile is the group's own, and so to be written. */
QD_INLINE bool qk_gemm_owns_row(const qk_gemm_args *g, const qk_gemm_tile *tile, uint32_t row) {
    if (row >= tile->end)
        return false;
    return g->grouping != QK_GROUPED_INDEX || (uint32_t)g->layout[row] == tile->group;
}
#endif

#endif
