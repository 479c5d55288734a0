// SPDX-License-Identifier: Apache-2.0
// Norms of rows of any length, stride and address. Each pass reads the row from memory again.
//
// Needs     nothing beyond vector instructions
// Tile      a row belongs to a workgroup, run c of 8 elements to lane c % 256; elements are loaded
//           one by one
// Launch    256 threads, a row a workgroup
// LDS       512 bytes: sums of 16 lanes, twice
// Edges     elements past the row's end are neither read nor written; out may be x
#include "norm_row_gpu.h"

QD_SHARED(lds);

QD_INLINE void norm_read(int dtype, const qk_norm_args *g, const row *r, qd_shared *shared) {
    moments s = {.factor = 1};
    float sum = 0;
    uint32_t top = 0;
    if (g->subtracts_mean) {
        EACH_READ(c, r->lane, r->lanes) sum += run_sum(load_t(dtype, false, g, r, c));
        s.mean = sum_lanes(false, shared, sum) / (float)g->h;
    }
    qd_f32x8 squares = 0;
    EACH_READ(c, r->lane, r->lanes)
    squares = add_squares(g, false, load_t(dtype, false, g, r, c), s.mean, c, squares);
    const float mean_square = sum_lanes(false, shared, run_sum(squares)) / (float)g->h + g->eps;
    const float factor = qk_norm_factor(mean_square, s.mean);
    if (factor != 1.0f) {
        norm_scaled(dtype, false, g, r, factor);
        return;
    }
    s.inverse = qd_inverse_root(mean_square);
    if (g->quant == QK_NORM_PER_TOKEN)
        EACH_READ(c, r->lane, r->lanes)
    top = qd_max(top, qd_run_top(result_of(dtype, false, g, r, c, s)));
    write_row(dtype, false, g, r, s,
              g->quant == QK_NORM_PLAIN ? 1.0f : row_scale(g, r, false, shared, top));
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
