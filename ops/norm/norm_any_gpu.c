// SPDX-License-Identifier: Apache-2.0
// Norms of rows of any length, stride and address, read from memory again for each pass.
//
// Needs     nothing beyond vector instructions
// Tile      a row belongs to a workgroup, run c of 8 elements to lane c % 256; elements are loaded one by one
// Launch    256 threads, a row a workgroup
// LDS       512 bytes: sums of 16 lanes, twice
// Edges     elements past the row's end are neither read nor written; out may be x
#include "norm_row_gpu.h"

QD_SHARED(lds);

/** Run c's result; zeros past the row's end. */
QD_INLINE qd_f32x8 result_of(int dtype, const qk_norm_args *g, const row *r, uint32_t c, float mean,
                             float inverse) {
    qd_f32x8 y = (load_t(dtype, false, g, r, c) - mean) * inverse;
    if (r->weight)
        y *= load_weights(dtype, g, r->weight, c) + g->weight_plus;
    if (r->beta)
        y += load_weights(dtype, g, r->beta, c);
    if (g->rounds_first)
        y = qd_rounded(dtype, y);
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++) {
        y[i] = i < run_length(g, c) ? y[i] : 0;
    }
    return y;
}

/** Lanes of 16 stay together, past the row's end too, since they exchange values. */
#define EACH_READ(c) for (uint32_t c = r->lane; c - r->lane % QD_ROW < runs; c += r->lanes)

QD_INLINE void norm_read(int dtype, const qk_norm_args *g, const row *r, qd_shared *shared) {
    const uint32_t runs = qd_div_up(g->h, QD_RUN);
    float mean = 0, sum = 0;
    uint32_t top = 0;
    if (g->subtracts_mean) {
        EACH_READ(c) sum += run_sum(load_t(dtype, false, g, r, c));
        mean = sum_lanes(false, shared, sum) / (float)g->h;
    }
    qd_f32x8 squares = 0;
    EACH_READ(c) squares = add_squares(g, false, load_t(dtype, false, g, r, c), mean, c, squares);
    const float inverse = inverse_root(g, false, shared, run_sum(squares));
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_READ(c) top = qd_max(top, qd_run_top(result_of(dtype, g, r, c, mean, inverse)));
    const float inverse_scale =
        g->quant == QK_NORM_PLAIN ? 1.0f : row_scale(g, r, false, shared, top);
    EACH_READ(
        c) { // out may be x, and the residual is replaced: both are read before either is written
        const qd_f32x8 t = load_t(dtype, false, g, r, c);
        const qd_f32x8 y = result_of(dtype, g, r, c, mean, inverse);
        if (r->residual)
            store_run(dtype, false, g, r->residual, c, t);
        if (g->quant == QK_NORM_PLAIN)
            store_run(dtype, false, g, r->out, c, y);
        else if (g->quant == QK_NORM_PER_GROUP)
            quantize_group((int)g->kind, false, g, r, c, y);
        else
            store_codes((int)g->kind, false, g, r, c, y * inverse_scale);
    }
}

QD_INLINE void norm(int dtype, const qk_norm_args *g) {
    qd_shared shared = {lds, 0};
    qd_begin();
    const row r = find_row(dtype, g, g->first + qd_block(), false);
    norm_read(dtype, g, &r, &shared);
}

QD_KERNEL(256) qk_norm_any_f32(const qk_norm_args g) {
    norm(QD_F32, &g);
}
QD_KERNEL(256) qk_norm_any_f16(const qk_norm_args g) {
    norm(QD_F16, &g);
}
QD_KERNEL(256) qk_norm_any_bf16(const qk_norm_args g) {
    norm(QD_BF16, &g);
}
