// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of any rotary dimension, width, alignment and stride, in every form of the
// family.
//
// Needs     nothing beyond vector instructions
// Tile      a wave has one head of one token; a lane one pair of elements at a time, then one of
//           the tail
// Launch    256 threads; waves step through the heads that are left
// Edges     a pair is read before either of it is written, so out may be in
// Source    arXiv:2104.09864 (RoPE), arXiv:1910.07467 (RMSNorm)
#include "rope_row_gpu.h"

/** One head of one token. */
typedef struct head {
    const void *in, *weight;
    void *out;
    uint32_t width, rotary_dim;
    float scale;
    int64_t position, table;
} head;

QD_INLINE float root_of(int dtype, const qk_rope_args *g, const head *h) {
    float sum = 0;
    for (uint32_t i = qd_lane(); i < h->width; i += QD_WAVE) {
        const float x = qd_load1(dtype, qd_at(dtype, h->in, i));
        sum = __builtin_fmaf(x, x, sum);
    }
    return qd_inverse_root(add_lanes(sum, QD_WAVE) / (float)h->width + g->eps);
}

/** Loads element i, multiplied by the norm's root and weight if there is a norm. */
QD_INLINE float load_x(int dtype, const head *h, uint32_t i, float root) {
    const float x = qd_load1(dtype, qd_at(dtype, h->in, i));
    return h->weight ? x * root * qd_load1(dtype, qd_at(dtype, h->weight, i)) : x;
}

QD_INLINE void store_y(int dtype, const qk_rope_args *g, const head *h, uint32_t i, float y) {
    if (g->is_quant)
        ((uint8_t *)h->out)[i] = (uint8_t)qd_fp8_encode((int)g->kind, y * h->scale);
    else
        qd_store1(dtype, (void *)qd_at(dtype, h->out, i), y);
}

QD_INLINE float table_at(const qk_rope_args *g, const void *table, const head *h, uint32_t pair) {
    const int64_t i = h->table + (int64_t)pair * g->table_step;
    const int dtype = (int)g->table_dtype;
    return qd_load1(dtype, qd_at(dtype, table, i));
}

QD_INLINE void turn_pair(int dtype, const qk_rope_args *g, const head *h, uint32_t pair,
                         float root) {
    const uint32_t first = g->is_interleaved ? 2 * pair : pair;
    const uint32_t second = g->is_interleaved ? first + 1 : pair + h->rotary_dim / 2;
    const float x0 = load_x(dtype, h, first, root), x1 = load_x(dtype, h, second, root);
    float c, s;
    if (g->angles == QK_ROPE_BY_FREQUENCY) {
        cos_sin(angle_of(g->turns[pair], h->position), &c, &s);
    } else {
        c = table_at(g, g->cos, h, pair);
        s = table_at(g, g->sin, h, pair);
    }
    store_y(dtype, g, h, first, x0 * c - x1 * s);
    store_y(dtype, g, h, second, x1 * c + x0 * s);
}

/** Writes an element of the tail, which does not turn; its bits are kept if nothing changes it. */
QD_INLINE void copy_element(int dtype, const qk_rope_args *g, const head *h, uint32_t i,
                            float root) {
    if (g->is_quant || h->weight || dtype == QD_F32)
        store_y(dtype, g, h, i, load_x(dtype, h, i, root));
    else
        ((uint16_t *)h->out)[i] = ((const uint16_t *)h->in)[i];
}

QD_INLINE void do_head(int dtype, const qk_rope_args *g, const head *h) {
    const float root = h->weight ? root_of(dtype, g, h) : 1.0f;
    for (uint32_t pair = qd_lane(); pair < h->rotary_dim / 2; pair += QD_WAVE)
        turn_pair(dtype, g, h, pair, root);
    for (uint32_t i = h->rotary_dim + qd_lane(); i < h->width; i += QD_WAVE)
        copy_element(dtype, g, h, i, root);
}

/** Computes head `index` of token t; heads are counted through the parts. */
QD_INLINE void find_and_do(int dtype, const qk_rope_args *g, uint32_t t, uint32_t index) {
    uint32_t part = 0;
    while (index >= g->parts[part].heads)
        index -= g->parts[part++].heads;
    const qk_rope_rows *r = &g->parts[part];
    bool is_there = true;
    head h = {.width = r->width, .scale = r->scale, .weight = r->weight};
    if (part <= QK_ROPE_K) {
        h.rotary_dim = g->rotary_dim;
        if (g->angles != QK_ROPE_BY_TOKEN)
            h.position = position_of(g, t, &is_there);
        h.table = table_row(g, t, h.position);
    }
    const int64_t out = out_offset(g, r, t);
    if (!is_there || out < 0)
        return;
    h.in = qd_at(dtype, r->in, in_offset(g, r, t) + (int64_t)index * r->in_head);
    h.out = (void *)((char *)r->out + (out + (int64_t)index * r->out_head) *
                                          (g->is_quant ? 1 : qd_element_bytes(dtype)));
    do_head(dtype, g, &h);
}

QD_INLINE void rope(int dtype, const qk_rope_args *g) {
    qd_begin();
    uint32_t heads = 0;
    for (uint32_t part = 0; part < QK_ROPE_PARTS; part++)
        heads += g->parts[part].heads;
    const uint32_t waves = 256 / QD_WAVE;
    for (uint64_t u = (uint64_t)qd_block() * waves + qd_wave(); u < (uint64_t)g->n * heads;
         u += (uint64_t)__gpu_num_blocks(0) * waves)
        find_and_do(dtype, g, (uint32_t)(u / heads), (uint32_t)(u % heads));
}

QD_KERNEL(256) qk_rope_any_f32(const qk_rope_args g) {
    rope(QD_F32, &g);
}
QD_KERNEL(256) qk_rope_any_f16(const qk_rope_args g) {
    rope(QD_F16, &g);
}
QD_KERNEL(256) qk_rope_any_bf16(const qk_rope_args g) {
    rope(QD_BF16, &g);
}
