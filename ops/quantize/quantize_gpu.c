// SPDX-License-Identifier: Apache-2.0
// Quantisation to FP8 with scales for blocks of 1 x 128 and 128 x 128, and back, with the bits of
// quantize_ref.c.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane holds 8 elements of a row, a team of 16 lanes 128; see quantize_abi.h
// Launch    256 threads; rows: grid = a quarter of the row tiles x column tiles, as a team takes
//           four rows at once where it can; blocks: block rows x block columns. Any other grid is
//           right too: workgroups step through what is left.
// LDS       blocks: 64 bytes, each team's largest magnitude
// Edges     elements past the edge count as zeros and are not stored; any stride and alignment.
//           Where rows begin at multiples of 8 elements (has_runs), 8 of them are loaded and stored
//           at once.
// Source    DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8
#include "quantize_gpu.h"

/** Loads 8 elements from column col on, one by one; zeros past the edge. */
QD_INLINE run load_part(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    const char *x = address_of(dtype, g, row, col);
    run r = {};
    QD_UNROLL for (uint32_t i = 0; i < QK_RUN; i++) {
        if (row >= g->rows || col + i >= g->cols)
            continue;
        if (dtype == QK_F32)
            r.words[i / 4][i % 4] = ((const uint32_t *)x)[i];
        else
            r.words[0][i / 2] |= (uint32_t)((const uint16_t *)x)[i] << (i % 2 * 16);
    }
    return r;
}

QD_INLINE void store_codes(const qk_quantize_args *g, uint32_t row, uint32_t col, qd_u32x2 codes) {
    uint8_t *q = g->q + (int64_t)row * g->q_row + col;
    if (g->has_runs && row < g->rows && col + QK_RUN <= g->cols) {
        *(qd_u32x2 *)q = codes;
        return;
    }
    QD_UNROLL for (uint32_t i = 0; i < QK_RUN; i++)
        if (row < g->rows && col + i < g->cols)
            q[i] = (uint8_t)(codes[i / 4] >> (i % 4 * 8));
}

/** Where the workgroup's first tile begins, where this lane's team is in a tile, and the distance
 *  to the next tile. */
typedef struct place {
    uint32_t row, col, team_row, team_col, next_row, next_col;
} place;

QD_INLINE place place_of(const qk_quantize_args *g) {
    const uint32_t team = qd_thread() / QK_TEAM, wide = 1u << g->teams_log2;
    const uint32_t tile_rows = QK_TEAMS >> g->teams_log2, tile_cols = QK_BLOCK << g->teams_log2;
    return (place){.row = __gpu_block_id(0) * tile_rows,
                   .col = __gpu_block_id(1) * tile_cols,
                   .team_row = team >> g->teams_log2,
                   .team_col = (team & (wide - 1)) * QK_BLOCK,
                   .next_row = __gpu_num_blocks(0) * tile_rows,
                   .next_col = __gpu_num_blocks(1) * tile_cols};
}

/** Returns the largest number of a team's 16 lanes, which is `top` unless there is a NaN. The whole
 *  wave takes part. */
QD_INLINE uint32_t without_nan(int dtype, const run *x, uint32_t top) {
    return qd_ballot(top > INFINITY_BITS) ? team_max(run_top(dtype, x, false)) : top;
}

/** Quantises one team's 128 elements of one row, if there is such a row. The whole wave takes
 *  part. */
QD_INLINE void quantize_team(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    const uint32_t mine = col + qd_thread() % QK_TEAM * QK_RUN;
    const bool is_whole = g->has_runs && row < g->rows && mine + QK_RUN <= g->cols;
    const run x = is_whole ? load_whole(dtype, g, row, mine) : load_part(dtype, g, row, mine);
    const uint32_t top = team_max(run_top(dtype, &x, true));
    const float scale = scale_of(g, without_nan(dtype, &x, top));
    store_codes(g, row, mine, encode_run(dtype, g, &x, 1.0f / scale, top < INFINITY_BITS));
    if (mine == col && row < g->rows && col < g->cols)
        g->scale[(int64_t)row * g->scale_row + col / QK_BLOCK] = scale;
}

/** Quantises one team's 128 elements of four rows, `step` apart, of 16 bits and to the usual kind;
 *  cols is a multiple of 8. The whole wave takes part. */
QD_INLINE void quantize_four_rows(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t step,
                                  uint32_t col) {
    const uint32_t lane = qd_thread() % QK_TEAM, mine = col + lane * QK_RUN;
    qd_u32x4 raw[QD_GROUPS];
    qd_u32x2 codes[QD_GROUPS];
    QD_UNROLL for (uint32_t i = 0; i < QD_GROUPS; i++)
        raw[i] = qd_stream_load4((const qd_u32x4 *)address_of(
            dtype, g, qd_min(row + i * step, g->rows - 1), qd_min(mine, g->cols - QK_RUN)));
    const float scale = qd_quantize_four(dtype, QD_FP8_USUAL, g->eps, raw, codes);
    const uint32_t scaled = row + lane * step;
    if (lane < QD_GROUPS && scaled < g->rows && col < g->cols)
        g->scale[(int64_t)scaled * g->scale_row + col / QK_BLOCK] = scale;
    QD_UNROLL for (uint32_t i = 0; i < QD_GROUPS; i++)
        qd_store2_if(row + i * step < g->rows && mine < g->cols,
                     (qd_u32x2 *)(g->q + (int64_t)(row + i * step) * g->q_row + mine), codes[i]);
}

/** Quantises blocks of 1 x 128. */
QD_INLINE void quantize_rows(int dtype, const qk_quantize_args *g) {
    qd_begin();
    const place p = place_of(g);
    const bool is_usual =
        dtype != QK_F32 && g->kind == QD_FP8_USUAL && g->has_runs && g->cols % QK_RUN == 0;
    const uint32_t rows = is_usual ? QD_GROUPS : 1;
    for (uint32_t row = p.row; row < g->rows; row += rows * p.next_row)
        for (uint32_t col = p.col; col < g->cols; col += p.next_col)
            if (is_usual)
                quantize_four_rows(dtype, g, row + p.team_row, p.next_row, col + p.team_col);
            else
                quantize_team(dtype, g, row + p.team_row, col + p.team_col);
}

[[clang::loader_uninitialized]] static QD_LDS uint32_t team_tops[QK_TEAMS];

/** Returns the largest of all the workgroup's values, in each lane. */
QD_INLINE uint32_t workgroup_max(uint32_t v) {
    const uint32_t lane = qd_thread() % QK_TEAM;
    qd_barrier(); // all lanes have read the last call's values
    v = team_max(v);
    if (lane == 0)
        team_tops[qd_thread() / QK_TEAM] = v;
    qd_barrier();
    return qd_uniform(team_max(team_tops[lane]));
}

/** Quantises one block of 128 x 128; a team takes the block's rows team, team + 16, …. */
QD_INLINE void quantize_block(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    enum { PASSES = QK_BLOCK / QK_TEAMS };
    const uint32_t first = row + qd_thread() / QK_TEAM;
    const uint32_t mine = col + qd_thread() % QK_TEAM * QK_RUN;
    const bool is_whole = g->has_runs && row + QK_BLOCK <= g->rows && col + QK_BLOCK <= g->cols;
    run x[PASSES];
    uint32_t top = 0;
    if (is_whole) // all loads under way at once
        QD_UNROLL
        for (uint32_t i = 0; i < PASSES; i++)
            x[i] = load_whole(dtype, g, first + i * QK_TEAMS, mine);
    else QD_UNROLL
        for (uint32_t i = 0; i < PASSES; i++)
            x[i] = load_part(dtype, g, first + i * QK_TEAMS, mine);
    QD_UNROLL for (uint32_t i = 0; i < PASSES; i++)
        top = qd_max(top, run_top(dtype, &x[i], true));
    top = workgroup_max(top);
    const bool finite = top < INFINITY_BITS;
    if (top > INFINITY_BITS) {
        top = 0;
        QD_UNROLL for (uint32_t i = 0; i < PASSES; i++)
            top = qd_max(top, run_top(dtype, &x[i], false));
        top = workgroup_max(top);
    }
    const float scale = scale_of(g, top), inverse = 1.0f / scale;
    QD_UNROLL for (uint32_t i = 0; i < PASSES; i++)
        store_codes(g, first + i * QK_TEAMS, mine, encode_run(dtype, g, &x[i], inverse, finite));
    if (qd_thread() == 0)
        g->scale[(int64_t)(row / QK_BLOCK) * g->scale_row + col / QK_BLOCK] = scale;
}

/** Quantises blocks of 128 x 128. */
QD_INLINE void quantize_blocks(int dtype, const qk_quantize_args *g) {
    qd_begin();
    const uint32_t next_row = __gpu_num_blocks(0) * QK_BLOCK;
    const uint32_t next_col = __gpu_num_blocks(1) * QK_BLOCK;
    for (uint32_t row = __gpu_block_id(0) * QK_BLOCK; row < g->rows; row += next_row)
        for (uint32_t col = __gpu_block_id(1) * QK_BLOCK; col < g->cols; col += next_col)
            quantize_block(dtype, g, row, col);
}

/** Returns a * b in f32 with the last bit set if the product is inexact ("rounded to odd").
 *  Rounding this number to a narrower type gives what rounding the exact product gives. */
QD_INLINE float product_to_odd(float a, float b) {
    const float p = a * b;
    // A small product's error would be a denormal or vanish, so it is computed 2^64 times as large.
    const float up = __builtin_fabsf(p) < 0x1p-64f ? 0x1p64f : 1.0f;
    const float error = __builtin_fmaf(a, b * up, -(p * up)); // exact product less p
    const uint32_t bits = qd_as_u32(p);
    const bool is_inexact = error > 0 || error < 0; // not for a NaN
    const bool is_too_large = ((qd_as_u32(error) ^ bits) >> 31) != 0;
    return is_inexact ? qd_as_f32((bits - (uint32_t)is_too_large) | 1) : p;
}

QD_INLINE uint32_t bf16_from_odd(float x) {
    const uint32_t bits = qd_as_u32(x);
    return x != x ? 0x7FC0 : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

QD_INLINE uint32_t f16_from_odd(float x) {
    return x != x ? 0x7E00 : __builtin_bit_cast(uint16_t, (_Float16)x);
}

/** Returns the bits of q * scale in dtype. Any NaN becomes the NaN that quantize_ref.c gives. */
QD_INLINE uint32_t dequantized(int dtype, float q, float scale) {
    if (dtype == QK_F32) {
        const float x = q * scale;
        return x != x ? 0x7FC00000 : qd_as_u32(x);
    }
    const float odd = product_to_odd(q, scale);
    return dtype == QK_F16 ? f16_from_odd(odd) : bf16_from_odd(odd);
}

QD_INLINE void store_vector(int dtype, void *x, const uint32_t bits[QK_RUN]) {
    if (dtype == QK_F32) {
        ((qd_u32x4 *)x)[0] = (qd_u32x4){bits[0], bits[1], bits[2], bits[3]};
        ((qd_u32x4 *)x)[1] = (qd_u32x4){bits[4], bits[5], bits[6], bits[7]};
        return;
    }
    *(qd_u32x4 *)x = (qd_u32x4){bits[0] | bits[1] << 16, bits[2] | bits[3] << 16,
                                bits[4] | bits[5] << 16, bits[6] | bits[7] << 16};
}

/** Dequantises 8 elements from column col on, or as many as exist. */
QD_INLINE void dequantize_run(int dtype, const qk_quantize_args *g, uint32_t row, uint32_t col) {
    const float scale =
        g->scale[(int64_t)(row >> g->block_rows_log2) * g->scale_row + col / QK_BLOCK];
    const uint8_t *q = g->q + (int64_t)row * g->q_row + col;
    char *x = (char *)g->x + ((int64_t)row * g->x_row + col) * (dtype == QK_F32 ? 4 : 2);
    if (g->has_runs && col + QK_RUN <= g->cols) {
        const qd_u32x2 codes = *(const qd_u32x2 *)q;
        float values[QK_RUN];
        uint32_t bits[QK_RUN];
        qd_fp8_decode4((int)g->kind, codes.x, values);
        qd_fp8_decode4((int)g->kind, codes.y, values + 4);
        QD_UNROLL for (int i = 0; i < QK_RUN; i++)
            bits[i] = dequantized(dtype, values[i], scale);
        store_vector(dtype, x, bits);
        return;
    }
    for (uint32_t i = 0; i < QK_RUN && col + i < g->cols; i++) {
        const uint32_t bits = dequantized(dtype, qd_fp8_decode((int)g->kind, q[i]), scale);
        if (dtype == QK_F32)
            ((uint32_t *)x)[i] = bits;
        else
            ((uint16_t *)x)[i] = (uint16_t)bits;
    }
}

QD_INLINE void dequantize(int dtype, const qk_quantize_args *g) {
    qd_begin();
    const place p = place_of(g);
    const uint32_t lane_col = p.team_col + qd_thread() % QK_TEAM * QK_RUN;
    for (uint32_t row = p.row + p.team_row; row < g->rows; row += p.next_row)
        for (uint32_t col = p.col + lane_col; col < g->cols; col += p.next_col)
            dequantize_run(dtype, g, row, col);
}

#define QK_ENTRY(name, body, dtype)                                                                \
    QD_KERNEL(QK_THREADS) name(const qk_quantize_args g) {                                         \
        body(dtype, &g);                                                                           \
    }
#define QK_ENTRIES(suffix, dtype)                                                                  \
    QD_KERNEL_WITHIN(QK_THREADS, 48, qk_quantize_rows_##suffix)(const qk_quantize_args g) {        \
        quantize_rows(dtype, &g);                                                                  \
    }                                                                                              \
    QK_ENTRY(qk_quantize_blocks_##suffix, quantize_blocks, dtype)                                  \
    QK_ENTRY(qk_dequantize_##suffix, dequantize, dtype)

QK_ENTRIES(f32, QK_F32)
QK_ENTRIES(f16, QK_F16)
QK_ENTRIES(bf16, QK_BF16)
