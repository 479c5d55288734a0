// SPDX-License-Identifier: Apache-2.0
// The tiles that masked slabs really have: counts lie on the device, and the grid is for slabs that
// are full.
#ifndef QK_GEMM_GROUPS_GPU_H
#define QK_GEMM_GROUPS_GPU_H

#include "gemm_gpu.h"

/** Returns whether the layout counts the rows of slabs. */
QD_INLINE bool qk_gemm_has_counts(const qk_gemm_args *g) {
    return g->grouping == QK_GROUPED_MASKED && g->layout;
}

/** Finds the tile of `rows` rows with number `index` of those that slabs with counts have. Each
 *  lane looks at four slabs, so that 256 are known after one way to memory. All lanes must call
 *  it. */
QD_INLINE bool qk_gemm_tile_by_counts(const qk_gemm_args *g, uint32_t index, uint32_t rows,
                                      qk_gemm_tile *tile) {
    constexpr uint32_t each = 4;
    for (uint32_t first = 0; first < g->groups; first += each * QD_WAVE) {
        uint32_t count[each], tiles[each], own = 0;
        QD_UNROLL for (uint32_t i = 0; i < each; i++) {
            const uint32_t group = first + qd_lane() * each + i;
            const int32_t read = g->layout[qd_min(group, g->groups - 1)];
            count[i] = group < g->groups ? qk_gemm_clip(read, g->m) : 0;
            tiles[i] = qd_div_up(count[i], rows);
            own += tiles[i];
        }
        const uint32_t sum = qd_scan_sum(own);
        const uint64_t past = qd_ballot(index < sum);
        const uint32_t lane = past ? (uint32_t)__builtin_ctzll(past) : QD_WAVE - 1;
        uint32_t at = index - qd_read_lane(sum - own, lane);
        QD_UNROLL for (uint32_t i = 0; i < each; i++) {
            const uint32_t end = qd_read_lane(count[i], lane), num = qd_div_up(end, rows);
            if (past && at < num) {
                *tile = (qk_gemm_tile){first + lane * each + i, at * rows, end, end};
                return true;
            }
            at -= num;
        }
        index = at; // what lies before this tile was passed
    }
    return false;
}

/** As qk_gemm_find_tile, but tiles of slabs with counts follow each other without those that are
 *  missing. So the first workgroups have them all, none of which waits behind others that only look
 *  and end; those run beside the last tiles. */
QD_INLINE bool qk_gemm_find_counted(const qk_gemm_args *g, uint32_t index, uint32_t rows,
                                    qk_gemm_tile *tile) {
    if (qk_gemm_has_counts(g))
        return qk_gemm_tile_by_counts(g, index, rows, tile);
    return qk_gemm_find_tile(g, index, rows, tile);
}

#endif
