// SPDX-License-Identifier: Apache-2.0
// Copies tokens to the rows of their experts, and adds up what experts made of a token.
//
// Needs     nothing beyond vector instructions
// Tile      copies: a wave a row, in items of 16 bytes, 4 bytes or 1; sums: a lane eight elements
//           of a token, whose pairs come in their order
// Launch    256 threads; waves and lanes step through what is left
// Edges     any shape; a row's last elements and rows off 16 bytes go an element at a time
// Source    the serving engines' permutation and moe_sum
#include "../moe_abi.h"
#include "elements.h"

#define COPY_ITEMS(type)                                                                           \
    for (uint32_t i = qd_lane(); i < g->items; i += QD_WAVE)                                       \
        ((type *)g->out)[row * g->out_row + i] = ((const type *)g->x)[token * g->x_row + i];

QD_INLINE void copy_row(const qk_moe_permute_args *g, int64_t row) {
    const uint32_t pair = (uint32_t)g->pair_of_row[row];
    const int64_t token = pair / g->top_k;
    if (pair >= g->pairs)
        return;
    if (g->item_bytes == 16)
        COPY_ITEMS(qd_u32x4)
    else if (g->item_bytes == 4)
        COPY_ITEMS(uint32_t)
    else
        COPY_ITEMS(uint8_t)
    for (uint32_t i = qd_lane(); g->scale && i < g->groups; i += QD_WAVE)
        g->scale_out[row * g->scale_out_row + i * g->scale_out_column] =
            g->scale[token * g->scale_row + i * g->scale_column];
}

QD_KERNEL(256) qk_moe_permute(const qk_moe_permute_args g) {
    qd_begin();
    const uint32_t waves = 256 / QD_WAVE;
    for (uint32_t row = qd_block() * waves + qd_wave(); row < g.rows;
         row += __gpu_num_blocks(0) * waves)
        copy_row(&g, row);
}

/** Returns the row of x that pair j of a token has; a number that is no row: none. */
QD_INLINE uint64_t row_of(const qk_moe_sum_args *g, int64_t token, uint32_t j) {
    return g->row_of_pair ? (uint64_t)(int64_t)g->row_of_pair[token * g->row_of_pair_row + j]
                          : (uint64_t)token * g->top_k + j;
}

QD_INLINE float weight_of(const qk_moe_sum_args *g, int64_t token, uint32_t j) {
    return g->weights ? g->weights[token * g->weights_row + j] : 1.0f;
}

/** Computes eight elements, which begin at multiples of 16 bytes. */
QD_INLINE void sum_run(const qk_moe_sum_args *g, int64_t token, uint32_t i) {
    const int x_dtype = (int)g->x_dtype, out_dtype = (int)g->out_dtype;
    qd_f32x8 sum = 0;
    for (uint32_t j = 0; j < g->top_k; j++) {
        const uint64_t row = row_of(g, token, j);
        if (row >= g->rows)
            continue;
        const float weight = weight_of(g, token, j);
        const qd_f32x8 x = qd_load8(x_dtype, qd_at(x_dtype, g->x, (int64_t)row * g->x_row + i));
        QD_UNROLL for (int k = 0; k < QD_RUN; k++)
            sum[k] = __builtin_fmaf(weight, x[k], sum[k]);
    }
    if (g->addend)
        sum += qd_load8(out_dtype, qd_at(out_dtype, g->addend, token * g->addend_row + i));
    qd_store8(out_dtype, (void *)qd_at(out_dtype, g->out, token * g->out_row + i), sum);
}

/** Computes one element, wherever it lies. */
QD_INLINE void sum_one(const qk_moe_sum_args *g, int64_t token, uint32_t i) {
    const int x_dtype = (int)g->x_dtype, out_dtype = (int)g->out_dtype;
    float sum = 0;
    for (uint32_t j = 0; j < g->top_k; j++) {
        const uint64_t row = row_of(g, token, j);
        if (row < g->rows)
            sum = __builtin_fmaf(
                weight_of(g, token, j),
                qd_load1(x_dtype, qd_at(x_dtype, g->x, (int64_t)row * g->x_row + i)), sum);
    }
    if (g->addend)
        sum += qd_load1(out_dtype, qd_at(out_dtype, g->addend, token * g->addend_row + i));
    qd_store1(out_dtype, (void *)qd_at(out_dtype, g->out, token * g->out_row + i), sum);
}

QD_KERNEL(256) qk_moe_sum(const qk_moe_sum_args g) {
    qd_begin();
    const uint32_t runs = qd_div_up(g.n, QD_RUN), blocks = qd_div_up(runs, 256);
    for (uint64_t b = qd_block(); b < (uint64_t)g.tokens * blocks; b += __gpu_num_blocks(0)) {
        const uint32_t run = (uint32_t)(b % blocks) * 256 + qd_thread();
        const uint32_t i = run * QD_RUN, end = run < runs ? qd_min(i + QD_RUN, g.n) : i;
        if (g.is_aligned && end == i + QD_RUN)
            sum_run(&g, (int64_t)(b / blocks), i);
        else QD_NO_UNROLL
            for (uint32_t k = i; k < end; k++)
                sum_one(&g, (int64_t)(b / blocks), k);
    }
}
