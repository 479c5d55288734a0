// SPDX-License-Identifier: Apache-2.0
// SiLU-and-multiply in the gemm kernels for Hopper's tensor cores (QK_PAIRS): two neighbouring
// columns of the product, which one thread holds, become one of d. Bias acts before, in registers.
// d of bf16 and f16 goes to memory in boxes, by the copy engine; any other, and with it gate and c,
// by lanes, which know which rows are the group's.
#ifndef QK_GEMM_WGMMA_PAIRS_GPU_H
#define QK_GEMM_WGMMA_PAIRS_GPU_H

#define QK_FULL // d of every type
#include "../gemm_full_gpu.h"
#include "gemm_wgmma_gpu.h"

// Of group g of four columns of d a thread has column 4 g + lane % 4: element 2 g of its pairs in
// its upper row, 2 g + 1 in the row 8 below it.
enum {
    PAIRS = SUMS / 2,
    D_COLUMNS = BN / 2,
    D_BOX = D_COLUMNS % 64 == 0   ? 64 // columns that one store takes
            : D_COLUMNS % 32 == 0 ? 32
                                  : 16,
    D_ROW_BYTES = D_BOX * 2, // and the bytes of the swizzle
    // Columns of f32 that lanes take from LDS at a time, in pieces of 16 bytes, exchanged by row.
    D_PART = TEAM_D_BYTES / (64 * 4) < D_COLUMNS ? TEAM_D_BYTES / (64 * 4) : D_COLUMNS,
    D_TURNS = D_PART / 4 < 8 ? D_PART / 4 : 8,
};
static_assert(!HAS_PAIRS || (CHUNKS == 1 && D_COLUMNS <= PASS && D_COLUMNS % D_PART == 0),
              "pairs of one chunk, which a team's place holds");

/** Makes the team meet once its stores have read their LDS. */
QD_INLINE void wait_for_stores(uint32_t team) {
    if (qd_thread() % QD_TEAM == 0)
        qd_tensor_store_wait();
    qd_team_barrier(1 + team, QD_TEAM);
}

/** This thread's upper row of the team's 64. */
QD_INLINE uint32_t upper_row(void) {
    return qd_thread() % QD_TEAM / 32 * 16 + qd_lane() / 4;
}

/** Adds the group's bias from column n on; columns past the last get the last one's. */
QD_INLINE void add_bias(const qk_gemm_wgmma_args *p, uint32_t region, uint32_t team, uint32_t group,
                        uint32_t n, float sum[SUMS]) {
    const qk_gemm_args *g = &p->g;
    const uint32_t pair = region + qd_lane() % 4 * 8;
    wait_for_stores(team);
    QD_NO_UNROLL for (uint32_t i = qd_thread() % QD_TEAM; i < BN; i += QD_TEAM)
        *(QD_LDS float *)(uintptr_t)(region + 4 * i) = qk_gemm_vector_at(
            g->bias, g->type_bias, group * p->bias_group + qd_min(n + i, g->n - 1));
    qd_team_barrier(1 + team, QD_TEAM);
    QD_UNROLL for (uint32_t i = 0; i < SUMS; i++)
        sum[i] += qd_lds_f32(pair + i / 4 * 32 + i % 2 * 4);
    qd_team_barrier(1 + team, QD_TEAM); // the bias' place is d's
}

/** Turns a tile's sums, from column n of the group on, into pairs. */
QD_INLINE void make_pairs(const qk_gemm_wgmma_args *p, uint32_t region, uint32_t team,
                          uint32_t group, uint32_t n, float sum[SUMS], float pair[PAIRS]) {
    if (p->g.bias)
        add_bias(p, region, team, group, n, sum);
    QD_UNROLL for (uint32_t i = 0; i < PAIRS; i++)
        pair[i] = qd_silu(sum[2 * i]) * sum[2 * i + 1];
}

// ---- in boxes

/** Puts a tile's pairs into LDS at `region`, as boxes, whose pieces of 16 bytes the copy engine
 *  expects exchanged. */
QD_INLINE void put_pairs(uint32_t region, bool is_f16, const float pair[PAIRS]) {
    const uint32_t own = upper_row(), turn = own * D_ROW_BYTES / 128 % (D_ROW_BYTES / 16);
    const uint32_t row = region + own * D_ROW_BYTES + qd_lane() % 4 * 2;
    QD_UNROLL for (uint32_t g = 0; g < GROUPS; g++) {
        const uint32_t column = 4 * g, piece = column % D_BOX / 8 ^ turn;
        const uint32_t to = row + column / D_BOX * (64 * D_ROW_BYTES) + piece * 16 + column % 8 * 2;
        const uint32_t both = is_f16 ? qd_pack_f16(pair[2 * g], pair[2 * g + 1])
                                     : qd_pack_bf16(pair[2 * g], pair[2 * g + 1]);
        *(QD_LDS uint16_t *)(uintptr_t)to = (uint16_t)both;
        *(QD_LDS uint16_t *)(uintptr_t)(to + 8 * D_ROW_BYTES) = (uint16_t)(both >> 16);
    }
}

/** Stores a tile's pairs in boxes. */
QD_INLINE void store_pair_boxes(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t region,
                                uint32_t team, const target *to, const float pair[PAIRS]) {
    wait_for_stores(team);
    put_pairs(region, p->g.type_d == QK_F16, pair);
    qd_async_fence();
    qd_team_barrier(1 + team, QD_TEAM);
    if (qd_thread() % QD_TEAM == 0) QD_UNROLL
        for (uint32_t i = 0; i < D_COLUMNS; i += D_BOX)
            qd_tensor_store2(maps + offsetof(qk_gemm_wgmma_args, d),
                             region + i / D_BOX * (64 * D_ROW_BYTES), to->n / 2 + i,
                             to->row + team * 64);
}

// ---- by lanes

/** Multiplies eight columns of a row of d, from `column` on, by their gates. */
QD_INLINE qd_f32x8 gated(const qk_gemm_args *g, uint32_t row, uint32_t column, qd_f32x8 v) {
    v.lo *= qk_gemm_gate4(g, row, column, g->n / 2);
    v.hi *= qk_gemm_gate4(g, row, column + 4, g->n / 2);
    return v;
}

/** Stores columns x to x + D_PART - 1 of a tile's by lanes, eight columns each; `row` is the team's
 *  first. */
QD_INLINE void store_pair_part(const qk_gemm_args *g, uint32_t region, uint32_t team,
                               const place *at, uint32_t row, uint32_t x, const float *pair) {
    constexpr uint32_t runs = D_PART / 8;
    const uint32_t own = upper_row();
    QD_UNROLL for (uint32_t i = 0; i < D_PART / 4; i++) {
        const uint32_t to =
            region + own * D_PART * 4 + (i ^ own % D_TURNS) * 16 + qd_lane() % 4 * 4;
        *(QD_LDS float *)(uintptr_t)to = pair[x / 2 + 2 * i];
        *(QD_LDS float *)(uintptr_t)(to + 8 * D_PART * 4) = pair[x / 2 + 2 * i + 1];
    }
    qd_team_barrier(1 + team, QD_TEAM);
    QD_NO_UNROLL for (uint32_t i = qd_thread() % QD_TEAM; i < 64 * runs; i += QD_TEAM) {
        const uint32_t r = i / runs, piece = i % runs * 2, turn = r % D_TURNS;
        const uint32_t from = region + r * D_PART * 4, column = at->n / 2 + x + piece * 4;
        qd_f32x8 v;
        v.lo = *(const QD_LDS qd_f32x4 *)(uintptr_t)(from + (piece ^ turn) * 16);
        v.hi = *(const QD_LDS qd_f32x4 *)(uintptr_t)(from + ((piece + 1) ^ turn) * 16);
        if (g->gate)
            v = gated(g, row + r, column, v);
        qk_gemm_store8(g, &at->tile, row + r, column, g->n / 2, v);
    }
    qd_team_barrier(1 + team, QD_TEAM);
}

/** Stores a team's sums of a tile, at whose place the ring is, as pairs. */
QD_INLINE void store_pairs(const qk_gemm_wgmma_args *p, uint64_t maps, uint32_t base,
                           const qd_ring *r, uint32_t team, const target *to, float sum[SUMS]) {
    const uint32_t region = qd_opaque(base) + team * TEAM_D_BYTES;
    const place at = place_of(&p->g, base, r, to);
    float pair[PAIRS];
    make_pairs(p, region, team, at.tile.group, at.n, sum, pair);
    if (IS_DENSE ? p->has_map_d : to->boxes >> team & 1) {
        store_pair_boxes(p, maps, region, team, to, pair);
    } else if (to->others >> team & 1) {
        wait_for_stores(team);
        QD_UNROLL for (uint32_t x = 0; x < D_COLUMNS; x += D_PART)
            store_pair_part(&p->g, region, team, &at, at.tile.row + 64 * team, x, pair);
    }
}

// ---- as codes and their scales, by quantize's formulas (gpu/scale.h)

/** Returns the largest magnitude of a row of d, of which four neighbouring lanes have columns:
 *  elements `first`, `first` + 2, … of each tile's pairs. */
QD_INLINE uint32_t top_of_pairs(const float pair[2][PAIRS], uint32_t first) {
    float top = 0;
    QD_UNROLL for (uint32_t i = first; i < PAIRS; i += 2)
        top = __builtin_fmaxf(
            top, __builtin_fmaxf(__builtin_fabsf(pair[0][i]), __builtin_fabsf(pair[1][i])));
    uint32_t bits = qd_as_u32(top);
    bits = qd_max(bits, qd_swap_lanes(bits, 1));
    return qd_max(bits, qd_swap_lanes(bits, 2));
}

/** Puts a row's 128 codes into LDS at `to`, their pieces of 16 exchanged by `turn`; the pairs are
 *  as in top_of_pairs. Returns the row's scale. */
QD_INLINE float put_pair_codes(const qk_gemm_scaling *scaling, uint32_t to, uint32_t turn,
                               uint32_t first, const float pair[2][PAIRS]) {
    const float scale =
        scaling->found ? qd_scale_of(top_of_pairs(pair, first), scaling->eps, qd_fp8_max(QD_E4M3FN))
                       : *scaling->given;
    const float inverse = 1.0f / scale;
    QD_UNROLL for (uint32_t i = 0; i < 2 * GROUPS; i += 2) { // groups of four columns
        const float *s = &pair[i / GROUPS][i % GROUPS * 2 + first];
        const uint32_t at = to + (i / 4 ^ turn) * 16 + i % 4 * 4 + qd_lane() % 4;
        const uint32_t codes = qd_fp8_encode2(QD_E4M3FN, s[0] * inverse, s[2] * inverse);
        *(QD_LDS uint8_t *)(uintptr_t)at = (uint8_t)codes;
        *(QD_LDS uint8_t *)(uintptr_t)(at + 4) = (uint8_t)(codes >> 8);
    }
    return scale;
}

/** Stores the codes of a team's rows, from `row` on: 16 by a lane. */
QD_INLINE void store_code_rows(const qk_gemm_args *g, uint32_t region, const place *at,
                               uint32_t row) {
    uint8_t *d = (uint8_t *)g->d + at->tile.group * g->d_group + at->n / 2;
    QD_NO_UNROLL for (uint32_t i = qd_thread() % QD_TEAM; i < 64 * 8; i += QD_TEAM) {
        const uint32_t r = i / 8, from = region + r * 128 + (i % 8 ^ r % 8) * 16;
        bool is_zero;
        if (qk_gemm_writes_row(g, &at->tile, row + r, &is_zero))
            *(qd_u32x4 *)(d + (row + r) * g->d_row + i % 8 * 16) =
                *(const QD_LDS qd_u32x4 *)(uintptr_t)from;
    }
}

/** Stores the pairs of a team's two tiles as codes, and their scales. */
QD_INLINE void store_pair_codes(const qk_gemm_wgmma_args *p, uint32_t region, uint32_t team,
                                const place *at, float pair[2][PAIRS]) {
    const uint32_t own = upper_row(), row = at->tile.row + team * 64;
    float *scales =
        p->scaling.found + at->tile.group * p->scaling.group + at->n / (2 * 128) * p->scaling.nb;
    qd_team_barrier(1 + team, QD_TEAM); // all have read what lay there
    QD_UNROLL for (uint32_t i = 0; i < 2; i++) {
        const uint32_t r = own + 8 * i;
        bool is_zero;
        const bool writes = qk_gemm_writes_row(&p->g, &at->tile, row + r, &is_zero);
        QD_UNROLL for (uint32_t j = i; j < 2 * PAIRS; j += 2)
            pair[j / PAIRS][j % PAIRS] = is_zero ? 0 : pair[j / PAIRS][j % PAIRS];
        const float scale = put_pair_codes(&p->scaling, region + r * 128, r % 8, i, pair);
        if (p->scaling.found && qd_lane() % 4 == 0 && writes)
            scales[(row + r) * p->scaling.row] = scale;
    }
    qd_team_barrier(1 + team, QD_TEAM);
    store_code_rows(&p->g, region, at, row);
}

#endif
