// SPDX-License-Identifier: Apache-2.0
// What acts on the halves of experts' first products, plain or quantised, row by row.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a lane takes runs of 8 results; 16 lanes side by side have the 128 of a scale
// Launch    256 threads, a row a workgroup; workgroups step through the rows that are left
// Edges     any shape: elements past a row's end are read as the last one, count as zeros and are
//           not stored. Rows of no expert are passed over
// Source    gpt-oss's experts; the gated activations of quern/activation.h
#include "elementary.h"
#include "elements.h"
#include "moe_abi.h"
#include "reduce.h"
#include "scale.h"

typedef struct halves {
    qd_f32x8 gate, up;
} halves;

/** Loads run i of a row, which begins at element 8 i of both halves. */
QD_INLINE halves load_run_as(int dtype, const qk_moe_activate_args *g, const void *row,
                             uint32_t i) {
    const uint32_t first = i * QD_RUN, step = g->is_interleaved ? 2 : 1;
    const uint32_t up = g->is_interleaved ? 1 : g->h;
    halves v = {};
    if (g->is_aligned && first + QD_RUN <= g->h) {
        const qd_f32x8 low = qd_load8(dtype, qd_at(dtype, row, (int64_t)first * step));
        const qd_f32x8 high =
            qd_load8(dtype, qd_at(dtype, row,
                                  step == 2 ? (int64_t)first * 2 + QD_RUN : (int64_t)first + up));
        if (step == 1)
            return (halves){low, high};
        return (halves){__builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14),
                        __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15)};
    }
    QD_UNROLL for (uint32_t k = 0; k < QD_RUN; k++) {
        const int64_t at = (int64_t)qd_min(first + k, g->h - 1) * step;
        v.gate[k] = qd_load1(dtype, qd_at(dtype, row, at));
        v.up[k] = qd_load1(dtype, qd_at(dtype, row, at + up));
    }
    return v;
}

QD_INLINE halves load_run(const qk_moe_activate_args *g, const void *row, uint32_t i) {
    return g->dtype == QD_F32   ? load_run_as(QD_F32, g, row, i)
           : g->dtype == QD_F16 ? load_run_as(QD_F16, g, row, i)
                                : load_run_as(QD_BF16, g, row, i);
}

QD_INLINE float swiglu(float gate, float alpha) {
    return gate * qd_rcp(1.0f + qd_exp2_flushed(gate * alpha * -0x1.715476p+0f)); // log2(e)
}

QD_INLINE qd_f32x8 result(const qk_moe_activate_args *g, halves v) {
    qd_f32x8 y;
    QD_UNROLL for (int k = 0; k < QD_RUN; k++) {
        v.gate[k] = v.gate[k] > g->limit ? g->limit : v.gate[k];
        v.up[k] = v.up[k] < -g->limit ? -g->limit : v.up[k];
        v.up[k] = v.up[k] > g->limit ? g->limit : v.up[k];
    }
#define EACH(f, u)                                                                                 \
    QD_UNROLL for (int k = 0; k < QD_RUN; k++)                                                     \
    y[k] = (f) * (u)
    if (g->function == QK_MOE_SILU)
        EACH(qd_silu(v.gate[k]), v.up[k]);
    else if (g->function == QK_MOE_GELU)
        EACH(qd_gelu(v.gate[k]), v.up[k]);
    else if (g->function == QK_MOE_GELU_TANH)
        EACH(qd_gelu_tanh(v.gate[k]), v.up[k]);
    else
        EACH(swiglu(v.gate[k], g->alpha), v.up[k] + 1.0f);
    return y;
}

QD_INLINE void store_run_as(int dtype, const qk_moe_activate_args *g, void *row, uint32_t i,
                            qd_f32x8 y) {
    const uint32_t first = i * QD_RUN;
    void *to = (void *)qd_at(dtype, row, first);
    if (g->is_aligned && first + QD_RUN <= g->h) {
        qd_store8(dtype, to, y);
        return;
    }
    QD_UNROLL for (uint32_t k = 0; k < QD_RUN; k++)
        if (first + k < g->h)
            qd_store1(dtype, (void *)qd_at(dtype, to, k), y[k]);
}

QD_INLINE void store_run(const qk_moe_activate_args *g, void *row, uint32_t i, qd_f32x8 y) {
    if (g->dtype == QD_F32)
        store_run_as(QD_F32, g, row, i, y);
    else if (g->dtype == QD_F16)
        store_run_as(QD_F16, g, row, i, y);
    else
        store_run_as(QD_BF16, g, row, i, y);
}

/** Stores a run's codes, and the scale of its group. All lanes of the wave take part. */
QD_INLINE void quantize_run(const qk_moe_activate_args *g, uint8_t *row, float *scales, uint32_t i,
                            qd_f32x8 y) {
    const uint32_t first = i * QD_RUN;
    QD_UNROLL for (uint32_t k = 0; k < QD_RUN; k++)
        y[k] = first + k < g->h ? y[k] : 0.0f;
    const float scale =
        qd_scale_of(qd_row_max(qd_run_top(y)), g->scale_eps, qd_fp8_max((int)g->kind));
    const qd_u32x2 codes = qd_encode8((int)g->kind, y * (1.0f / scale));
    if (i % QD_ROW == 0 && first < g->h)
        scales[i / QD_ROW * g->scale_column] = scale;
    if (g->is_aligned && first + QD_RUN <= g->h)
        *(qd_u32x2 *)(row + first) = codes;
    else if (first < g->h)
        qd_store_codes_part(row + first, g->h - first, codes);
}

QD_INLINE void activate_row(const qk_moe_activate_args *g, int64_t r) {
    const uint32_t runs = qd_div_up(g->h, QD_RUN), bytes = qd_element_bytes((int)g->dtype);
    const void *x = (const char *)g->x + r * g->x_row * bytes;
    // Waves stay together, as lanes compute scales together.
    for (uint32_t i = qd_thread(); i - i % QD_WAVE < runs; i += 256) {
        const qd_f32x8 y = result(g, load_run(g, x, i));
        if (g->scale)
            quantize_run(g, (uint8_t *)g->out + r * g->out_row, g->scale + r * g->scale_row, i, y);
        else if (i < runs)
            store_run(g, (char *)g->out + r * g->out_row * bytes, i, y);
    }
}

QD_KERNEL(256) qk_moe_activate(const qk_moe_activate_args g) {
    qd_begin();
    for (uint32_t r = qd_block(); r < g.rows; r += __gpu_num_blocks(0))
        if (!g.expert_of_row || g.expert_of_row[r] >= 0)
            activate_row(&g, r);
}
