// SPDX-License-Identifier: Apache-2.0
// Quantisation along rows to FP8 and int8, with given scales or scales of groups, of rows, of the
// tensor, and with the bits of rows_ref.c.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      tiles: a lane holds 4 runs of 8 elements (2 of f32), run c of a tile in lane c % lanes;
//           a group of 8 to 128 elements belongs to 1 to 16 neighbouring lanes. any: a workgroup
//           takes one group of one row of any length
// Launch    256 threads. tiles: as activation_gpu.c; any: grid = groups of all rows; amax: up to
//           QK_ROWS_MAXIMA workgroups, each of which leaves the largest magnitude of its rows in
//           `maxima`. Workgroups step through what is left
// LDS       512 bytes: largest magnitudes of 16 lanes, twice
// Edges     tiles: rows of whole, aligned runs; lanes past the end load the last run again and
//           store nothing. any: each element by itself unless has_runs; a found scale reads its
//           group twice
// Source    SGLang's per_token_group_quant_8bit; DeepGEMM's ceil_to_ue8m0
#include "elements.h"
#include "reduce.h"
#include "rows_abi.h"
#include "scale.h"

QD_SHARED(lds);
enum { MAX_RUNS = 4 };

// ---- scales and codes

QD_INLINE float most_of(uint32_t kind) {
    return kind == QK_KIND_I8 ? 127.0f : qd_fp8_max((int)kind);
}

QD_INLINE float found_scale(const qk_rows_args *g, uint32_t top) {
    const float scale = qd_scale_of(top, g->eps, most_of(g->kind));
    if (g->form != QK_SCALE_POWER && g->form != QK_SCALE_PACKED)
        return scale;
    const uint32_t bits = qd_as_u32(scale), e = (bits >> 23) + ((bits & 0x7FFFFF) != 0);
    return qd_as_f32(qd_min(qd_max(e, 1), 254) << 23);
}

/** Writes the scale of group i of a row. The row's last scale also clears the rest of its word. */
QD_INLINE void put_scale(const qk_rows_args *g, uint32_t row, uint32_t i, float scale) {
    const bool is_packed = g->form == QK_SCALE_PACKED;
    const int64_t at = row * g->scale_row + (int64_t)(is_packed ? i / 4 : i) * g->scale_col;
    if (!is_packed) {
        ((float *)g->scale)[at] = scale;
        return;
    }
    uint8_t *word = (uint8_t *)((uint32_t *)g->scale + at);
    word[i % 4] = (uint8_t)(qd_as_u32(scale) >> 23);
    for (uint32_t k = i % 4 + 1; i + 1 == g->groups && k < 4; k++)
        word[k] = 0;
}

QD_INLINE qd_u32x2 encode_i8(qd_f32x8 v) {
    qd_u32x2 codes = 0;
    QD_UNROLL for (int i = 0; i < QD_RUN; i++) {
        const float low = v[i] > 127.0f ? 127.0f : v[i] < -127.0f ? -127.0f : v[i];
        const float x = low != low ? 0.0f : low;
        codes[i / 4] |= ((uint32_t)(int32_t)__builtin_rintf(x) & 0xFF) << (i % 4 * 8);
    }
    return codes;
}

QD_INLINE qd_u32x2 encode_run(const qk_rows_args *g, qd_f32x8 v) {
    if (g->kind == QD_FP8_USUAL) // this copy of the code knows the kind when it is compiled
        return qd_encode8(QD_FP8_USUAL, v);
    return g->kind == QK_KIND_I8 ? encode_i8(v) : qd_encode8((int)g->kind, v);
}

/** Returns the largest of `lanes` neighbouring lanes, in each of these lanes; `lanes` is a power of
 *  two up to 16. */
QD_INLINE uint32_t neighbours_max(uint32_t v, uint32_t lanes) {
    QD_UNROLL for (uint32_t step = 1; step < QD_ROW; step *= 2) {
        const uint32_t other = qd_swap_lanes(v, step);
        v = step < lanes ? qd_max(v, other) : v;
    }
    return v;
}

/** Returns the largest of the workspace's maxima. */
QD_INLINE uint32_t tensor_top(const qk_rows_args *g, qd_shared *shared) {
    uint32_t top = 0;
    QD_UNROLL for (uint32_t i = 0; i < QK_ROWS_MAXIMA / QK_ROWS_THREADS; i++)
        top = qd_max(top, g->maxima[qd_thread() + i * QK_ROWS_THREADS]);
    return qd_workgroup_max(shared, top);
}

/** Returns the only scale of GIVEN and TENSOR; 0 for the other forms. */
QD_INLINE float only_scale(const qk_rows_args *g, qd_shared *shared) {
    if (g->form == QK_SCALE_GIVEN)
        return *(const float *)g->scale;
    if (g->form != QK_SCALE_TENSOR)
        return 0;
    const float scale = found_scale(g, tensor_top(g, shared));
    if (qd_thread() == 0 && qd_block() == 0 && __gpu_block_id(1) == 0)
        *(float *)g->scale = scale;
    return scale;
}

// ---- whole runs, groups of at most 128

QD_INLINE void quantize_tile(int dtype, int runs, const qk_rows_args *g, uint32_t row,
                             uint32_t first, float scale) {
    const uint32_t count = g->cols / QD_RUN, step = 1u << g->lanes_log2;
    const void *x = qd_at(dtype, g->x, row * g->x_row);
    qd_u32x2 *q = (qd_u32x2 *)(g->q + row * g->q_row);
    qd_f32x8 v[MAX_RUNS];
    qd_u32x4 raw[MAX_RUNS];
    QD_UNROLL for (int i = 0; i < runs; i++) {
        const uint32_t c = qd_min(first + (uint32_t)i * step, count - 1);
        if (dtype == QD_F32)
            v[i] = qd_load8(dtype, qd_at(dtype, x, (int64_t)c * QD_RUN));
        else
            raw[i] = qd_stream_load4((const qd_u32x4 *)x + c);
    }
    QD_UNROLL for (int i = 0; i < runs; i++) {
        const uint32_t c = first + (uint32_t)i * step;
        const qd_f32x8 y = dtype == QD_F32 ? v[i] : qd_from_16(dtype, raw[i]);
        if (g->form != QK_SCALE_GIVEN && g->form != QK_SCALE_TENSOR) {
            scale = found_scale(g, neighbours_max(c < count ? qd_run_top(y) : 0, g->group_lanes));
            if (c % g->group_lanes == 0 && c < count)
                put_scale(g, row, c / g->group_lanes, scale);
        }
        const qd_u32x2 codes = encode_run(g, y * (1.0f / scale));
        if (c < count)
            q[c] = codes;
    }
}

/** Quantises four runs of groups of 128, of 16 bits, to the usual kind with scales of f32. */
QD_INLINE void quantize_usual(int dtype, const qk_rows_args *g, uint32_t row, uint32_t first) {
    const uint32_t count = g->cols / QD_RUN, step = 1u << g->lanes_log2;
    const qd_u32x4 *x = qd_at(dtype, g->x, row * g->x_row);
    qd_u32x4 raw[QD_GROUPS];
    qd_u32x2 codes[QD_GROUPS];
    QD_UNROLL for (uint32_t i = 0; i < QD_GROUPS; i++)
        raw[i] = qd_stream_load4(x + qd_min(first + i * step, count - 1));
    const float scale = qd_quantize_four(dtype, QD_FP8_USUAL, g->eps, raw, codes);
    const uint32_t own = qd_lane() % QD_ROW, scaled = first + own * step;
    if (own < QD_GROUPS && scaled < count)
        put_scale(g, row, scaled / QD_ROW, scale);
    QD_UNROLL for (uint32_t i = 0; i < QD_GROUPS; i++)
        qd_store2_if(first + i * step < count,
                     (qd_u32x2 *)(g->q + row * g->q_row) + first + i * step, codes[i]);
}

QD_INLINE void walk_rows(int dtype, bool is_usual, const qk_rows_args *g, float scale) {
    const uint32_t runs = dtype == QD_F32 ? 2 : 4, lanes = 1u << g->lanes_log2;
    const uint32_t below = QK_ROWS_THREADS >> g->lanes_log2, mine = qd_thread() >> g->lanes_log2;
    const uint32_t first = __gpu_block_id(1) * lanes * runs + (qd_thread() & (lanes - 1));
    for (uint32_t r = qd_block() * below; r < g->rows; r += __gpu_num_blocks(0) * below) {
        // Lanes past the last row stay, as their wave finds its scales together.
        const bool is_in = r + mine < g->rows;
        const uint32_t row = is_in ? r + mine : r, at = is_in ? first : g->cols;
        if (is_usual && dtype != QD_F32)
            quantize_usual(dtype, g, row, at);
        else
            quantize_tile(dtype, (int)runs, g, row, at, scale);
    }
}

/** Returns whether a group is 128 elements of the usual kind with a scale of f32. */
QD_INLINE bool is_usual(const qk_rows_args *g) {
    return g->form == QK_SCALE_F32 && g->kind == QD_FP8_USUAL && g->group_lanes == QD_ROW;
}

QD_INLINE void quantize_tiles(int dtype, const qk_rows_args *g) {
    qd_begin();
    qd_shared shared = {lds, 0};
    if (is_usual(g)) { // a copy of the code that knows so when it is compiled
        qk_rows_args known = *g;
        known.form = QK_SCALE_F32, known.kind = QD_FP8_USUAL, known.group_lanes = QD_ROW;
        walk_rows(dtype, true, &known, 0);
    } else {
        walk_rows(dtype, false, g, only_scale(g, &shared));
    }
}

// ---- any address and group

QD_INLINE qd_f32x8 load_run(int dtype, const qk_rows_args *g, const void *x, uint32_t at,
                            uint32_t count) {
    const void *from = qd_at(dtype, x, at);
    return g->has_runs ? qd_load8(dtype, from)
                       : qd_load_part(dtype, from, qd_min(count - at, QD_RUN));
}

/** Returns the bits of the largest magnitude that this lane finds in `count` elements of a row. */
QD_INLINE uint32_t lane_top(int dtype, const qk_rows_args *g, const void *x, uint32_t count) {
    uint32_t top = 0;
    for (uint32_t at = qd_thread() * QD_RUN; at < count; at += QK_ROWS_THREADS * QD_RUN)
        top = qd_max(top, qd_run_top(load_run(dtype, g, x, at, count)));
    return top;
}

QD_INLINE void quantize_group(int dtype, const qk_rows_args *g, uint32_t row, uint32_t i,
                              float scale, qd_shared *shared) {
    const uint32_t col = i * g->group, count = qd_min(g->cols - col, g->group);
    const void *x = qd_at(dtype, g->x, row * g->x_row + col);
    uint8_t *q = g->q + row * g->q_row + col;
    if (g->form != QK_SCALE_GIVEN && g->form != QK_SCALE_TENSOR) {
        scale = found_scale(g, qd_workgroup_max(shared, lane_top(dtype, g, x, count)));
        if (qd_thread() == 0)
            put_scale(g, row, i, scale);
    }
    for (uint32_t at = qd_thread() * QD_RUN; at < count; at += QK_ROWS_THREADS * QD_RUN) {
        const qd_u32x2 codes = encode_run(g, load_run(dtype, g, x, at, count) * (1.0f / scale));
        if (g->has_runs)
            *(qd_u32x2 *)(q + at) = codes;
        else
            qd_store_codes_part(q + at, qd_min(count - at, QD_RUN), codes);
    }
}

/** Quantises with a grid of rows x groups. */
QD_INLINE void quantize_any(int dtype, const qk_rows_args *g) {
    qd_begin();
    qd_shared shared = {lds, 0};
    const float scale = only_scale(g, &shared);
    for (uint32_t r = qd_block(); r < g->rows; r += __gpu_num_blocks(0))
        for (uint32_t i = __gpu_block_id(1); i < g->groups; i += __gpu_num_blocks(1))
            quantize_group(dtype, g, r, i, scale, &shared);
}

/** Finds maxima. A workgroup takes rows block, block + blocks, …, and clears the maxima that no
 *  workgroup writes. */
QD_INLINE void find_maxima(int dtype, const qk_rows_args *g) {
    qd_begin();
    qd_shared shared = {lds, 0};
    uint32_t top = 0;
    for (uint32_t r = qd_block(); r < g->rows; r += __gpu_num_blocks(0))
        top = qd_max(top, lane_top(dtype, g, qd_at(dtype, g->x, r * g->x_row), g->cols));
    top = qd_workgroup_max(&shared, top);
    if (qd_thread() != 0)
        return;
    for (uint32_t i = qd_block(); i < QK_ROWS_MAXIMA; i += __gpu_num_blocks(0))
        g->maxima[i] = i == qd_block() ? top : 0;
}

#define KERNEL(entry, body, dtype)                                                                 \
    QD_KERNEL(QK_ROWS_THREADS) entry(const qk_rows_args g) {                                       \
        body(dtype, &g);                                                                           \
    }
#define KERNELS(name, dtype)                                                                       \
    KERNEL(qk_rows_tiles_##name, quantize_tiles, dtype)                                            \
    KERNEL(qk_rows_any_##name, quantize_any, dtype)                                                \
    KERNEL(qk_rows_maxima_##name, find_maxima, dtype)
KERNELS(f32, QD_F32)
KERNELS(f16, QD_F16)
KERNELS(bf16, QD_BF16)
