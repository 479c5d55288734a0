// SPDX-License-Identifier: Apache-2.0
// Writes to paged caches, by copies of 16 bytes, by quantisation to FP8, with one scale or with
// scales of groups, or element by element; and computes batch indices, positions and lengths. Reads
// tokens of an MLA cache.
//
// Needs     nothing beyond vector instructions; FP8 conversions where the target has its own kind's
// Tile      a wave has a token's keys and its values; lanes go along heads and elements in items of
//           16 bytes (copy), 8 elements (quant) or one (any), four items a lane at a time
// Launch    256 threads; waves step through what is left
// Edges     copy and quant: rows are whole items and everything is aligned to an item; any: none
// Memory    a token's loads are under way before its place is known, which takes three reads behind
//           each other
// Source    FlashInfer's append_paged_kv_cache and get_batch_indices_positions
#include "elements.h"
#include "kvcache_abi.h"
#include "reduce.h"
#include "rows.h"
#include "scale.h"

enum { HELD = 4, COPY, QUANT, ANY };

/** Returns the bits of one element, as it is or as f32 that is to become FP8. */
QD_INLINE uint32_t load_any(const qk_kvcache_args *g, const void *p, int64_t i) {
    if (g->is_quant)
        return qd_as_u32(g->dtype == QD_F32   ? qd_load1(QD_F32, (const float *)p + i)
                         : g->dtype == QD_F16 ? qd_load1(QD_F16, (const uint16_t *)p + i)
                                              : qd_load1(QD_BF16, (const uint16_t *)p + i));
    return g->item_bytes == 4   ? ((const uint32_t *)p)[i]
           : g->item_bytes == 2 ? ((const uint16_t *)p)[i]
                                : ((const uint8_t *)p)[i];
}

QD_INLINE void store_any(const qk_kvcache_args *g, void *p, int64_t i, uint32_t v, float inverse) {
    if (g->is_quant)
        ((uint8_t *)p)[i] = (uint8_t)qd_fp8_encode((int)g->kind, qd_as_f32(v) * inverse);
    else if (g->item_bytes == 4)
        ((uint32_t *)p)[i] = v;
    else if (g->item_bytes == 2)
        ((uint16_t *)p)[i] = (uint16_t)v;
    else
        ((uint8_t *)p)[i] = (uint8_t)v;
}

/** An item as it was loaded; f32 takes both words. */
typedef struct item {
    qd_u32x4 low, high;
} item;

QD_INLINE item load_item(int how, int dtype, const qk_kvcache_args *g, const void *p, int64_t i) {
    item v = {};
    if (how == ANY) {
        v.low.x = load_any(g, p, i);
    } else if (how == QUANT && dtype == QD_F32) {
        v.low = qd_stream_load4((const qd_u32x4 *)p + 2 * i);
        v.high = qd_stream_load4((const qd_u32x4 *)p + 2 * i + 1);
    } else {
        v.low = qd_stream_load4((const qd_u32x4 *)p + i);
    }
    return v;
}

QD_INLINE void store_item(int how, int dtype, const qk_kvcache_args *g, void *p, int64_t i, item v,
                          float inverse) {
    if (how == ANY) {
        store_any(g, p, i, v.low.x, inverse);
    } else if (how == COPY) {
        ((qd_u32x4 *)p)[i] = v.low;
    } else {
        const qd_f32x4 low = __builtin_bit_cast(qd_f32x4, v.low);
        const qd_f32x4 high = __builtin_bit_cast(qd_f32x4, v.high);
        const qd_f32x8 x = dtype == QD_F32
                               ? __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7)
                               : qd_from_16(dtype, v.low);
        ((qd_u32x2 *)p)[i] = g->kind == QD_FP8_USUAL ? qd_encode8(QD_FP8_USUAL, x * inverse)
                                                     : qd_encode8((int)g->kind, x * inverse);
    }
}

/** Returns where a token's row begins: strides are in items. */
QD_INLINE const void *in_row(int how, int dtype, const qk_kvcache_args *g, const qk_cache_rows *r,
                             uint32_t t) {
    const uint32_t bytes = how == ANY ? g->item_bytes : how == QUANT && dtype == QD_F32 ? 32 : 16;
    return (const char *)r->in + t * r->in_token * bytes;
}

/** Returns how many items a lane has at a time. */
QD_INLINE uint32_t held_by(int how) {
    return how == COPY ? HELD : 1;
}

/** A lane's items of a row, from `first` on. */
typedef struct held {
    item v[HELD];
    uint32_t head[HELD], at[HELD]; // at: in the head
    bool is_in[HELD];
} held;
#define EACH_HELD QD_UNROLL for (uint32_t i = 0; i < held_by(how); i++)

/** Loads a lane's items; those past the row's end are the row's last, so that no branch stands
 *  between loads. `is_one`: the row has one head, which is known when the code is compiled. */
QD_INLINE void load_items(int how, int dtype, bool is_one, const qk_kvcache_args *g,
                          const qk_cache_rows *r, uint32_t t, uint32_t first, held *k) {
    const void *in = in_row(how, dtype, g, r, t);
    EACH_HELD {
        const uint32_t item = first + i * QD_WAVE, items = r->heads * r->width;
        const uint32_t near = qd_min(item, qd_max(items, 1) - 1);
        k->is_in[i] = item < items;
        k->head[i] = is_one ? 0 : near / r->width;
        k->at[i] = near - k->head[i] * r->width;
        k->v[i] = load_item(how, dtype, g, in, (is_one ? 0 : k->head[i] * r->in_head) + k->at[i]);
    }
}

QD_INLINE void store_items(int how, int dtype, bool is_one, const qk_kvcache_args *g,
                           const qk_cache_rows *r, qk_place to, const held *k) {
    const uint32_t bytes = how == COPY ? 16 : how == QUANT ? 8 : g->is_quant ? 1 : g->item_bytes;
    char *out = (char *)r->out + (to.page * r->out_page + to.place * r->out_place) * bytes;
    const float inverse = how != COPY && g->is_quant ? 1.0f / *r->scale : 1.0f;
    EACH_HELD if (k->is_in[i]) store_item(
        how, dtype, g, out, (is_one ? 0 : k->head[i] * r->out_head) + k->at[i], k->v[i], inverse);
}

/** Moves a token's keys and values. */
QD_INLINE void move_token(int how, int dtype, bool is_one, const qk_kvcache_args *g, uint32_t t) {
    const uint32_t step = held_by(how) * QD_WAVE;
    held k[2];
    QD_UNROLL for (int p = 0; p < 2; p++)
        load_items(how, dtype, is_one, g, &g->parts[p], t, qd_lane(), &k[p]);
    const qk_place to = qk_find_place(&g->pages, t);
    if (to.page < 0)
        return;
    QD_UNROLL for (int p = 0; p < 2; p++) {
        const qk_cache_rows *r = &g->parts[p];
        store_items(how, dtype, is_one, g, r, to, &k[p]);
        QD_NO_UNROLL for (uint32_t first = step; first < r->heads * r->width; first += step) {
            held rest;
            load_items(how, dtype, is_one, g, r, t, first + qd_lane(), &rest);
            store_items(how, dtype, is_one, g, r, to, &rest);
        }
    }
}

QD_INLINE void move(int how, int dtype, const qk_kvcache_args *g) {
    qd_begin();
    qd_ask(g, sizeof *g);
    const uint32_t t = g->first + qd_block() * (256 / QD_WAVE) + qd_wave();
    if (t >= g->n)
        return;
    if (g->parts[0].heads == 1 && g->parts[1].heads == 1)
        move_token(how, dtype, true, g, t);
    else
        move_token(how, dtype, false, g, t);
}

QD_KERNEL(256) qk_kvcache_copy(const qk_kvcache_args g) {
    move(COPY, QD_F32, &g);
}
QD_KERNEL(256) qk_kvcache_any(const qk_kvcache_args g) {
    move(ANY, QD_F32, &g);
}
QD_KERNEL(256) qk_kvcache_quant_f32(const qk_kvcache_args g) {
    move(QUANT, QD_F32, &g);
}
QD_KERNEL(256) qk_kvcache_quant_f16(const qk_kvcache_args g) {
    move(QUANT, QD_F16, &g);
}
QD_KERNEL(256) qk_kvcache_quant_bf16(const qk_kvcache_args g) {
    move(QUANT, QD_BF16, &g);
}

// ---- groups with scales of their own

QD_INLINE float load_new(uint32_t dtype, const void *p, int64_t i) {
    return dtype == QD_F32   ? qd_load1(QD_F32, (const float *)p + i)
           : dtype == QD_F16 ? qd_load1(QD_F16, (const uint16_t *)p + i)
                             : qd_load1(QD_BF16, (const uint16_t *)p + i);
}

/** Quantises a group of a token, which 16 lanes share. Lanes of groups past the end take part in
 *  what the wave does together. */
QD_INLINE void cache_group(const qk_groups_args *g, uint32_t t, qk_place to, uint32_t group) {
    const uint32_t lane = qd_lane() % QD_ROW, first = group * QK_CACHE_GROUP;
    const uint32_t left = first < g->width ? g->width - first : 0;
    qd_f32x8 x = 0;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (lane + i * QD_ROW < left)
            x[i] = load_new(g->dtype, g->ckv, t * g->ckv_token + first + lane + i * QD_ROW);
    const uint32_t top = qd_row_max(qd_run_top(x));
    const float scale = qd_scale_of(top, qk_cache_eps, qd_fp8_max((int)g->kind));
    if (left > 0 && lane == 0)
        g->scales[to.page * g->scales_page + to.place * g->scales_place + group] = scale;
    uint8_t *codes = g->codes + to.page * g->codes_page + to.place * g->codes_place + first;
    QD_UNROLL for (uint32_t i = 0; i < QD_RUN; i++)
        if (lane + i * QD_ROW < left)
            codes[lane + i * QD_ROW] = (uint8_t)qd_fp8_encode((int)g->kind, x[i] * (1.0f / scale));
}

/** Copies a token's rotated keys. */
QD_INLINE void cache_rope(const qk_groups_args *g, uint32_t t, qk_place to) {
    const int64_t in = t * g->kpe_token, out = to.page * g->rope_page + to.place * g->rope_place;
    for (uint32_t i = qd_lane(); i < g->rope_width; i += QD_WAVE)
        if (g->dtype == QD_F32)
            ((uint32_t *)g->rope)[out + i] = ((const uint32_t *)g->kpe)[in + i];
        else
            ((uint16_t *)g->rope)[out + i] = ((const uint16_t *)g->kpe)[in + i];
}

/** Writes tokens; a wave takes a token, and 16 lanes a group of it. */
QD_KERNEL(256) qk_kvcache_groups(const qk_groups_args g) {
    qd_begin();
    const uint32_t waves = 256 / QD_WAVE, at_once = QD_WAVE / QD_ROW;
    const uint32_t groups = (g.width + QK_CACHE_GROUP - 1) / QK_CACHE_GROUP;
    for (uint32_t t = qd_block() * waves + qd_wave(); t < g.n; t += __gpu_num_blocks(0) * waves) {
        const qk_place to = qk_find_place(&g.pages, t);
        for (uint32_t i = 0; to.page >= 0 && i < groups; i += at_once)
            cache_group(&g, t, to, i + qd_lane() / QD_ROW);
        if (to.page >= 0)
            cache_rope(&g, t, to);
    }
}

// ---- reading a cache

QD_INLINE void copy_item(const qk_gather_args *g, void *out, const void *in, int64_t i) {
    if (g->item_bytes == 16)
        ((qd_u32x4 *)out)[i] = ((const qd_u32x4 *)in)[i];
    else if (g->item_bytes == 4)
        ((uint32_t *)out)[i] = ((const uint32_t *)in)[i];
    else if (g->item_bytes == 2)
        ((uint16_t *)out)[i] = ((const uint16_t *)in)[i];
    else
        ((uint8_t *)out)[i] = ((const uint8_t *)in)[i];
}

QD_INLINE void decode_item(const qk_gather_args *g, void *out, const void *in, int64_t i,
                           float scale) {
    const float x = qd_fp8_decode((int)g->kind, ((const uint8_t *)in)[i]) * scale;
    if (g->dtype_out == QD_F32)
        qd_store1(QD_F32, (float *)out + i, x);
    else if (g->dtype_out == QD_F16)
        qd_store1(QD_F16, (uint16_t *)out + i, x);
    else
        qd_store1(QD_BF16, (uint16_t *)out + i, x);
}

/** Copies a token's row, or decodes it; lanes go along items. */
QD_INLINE void gather_row(const qk_gather_args *g, uint32_t t) {
    const qk_place from = qk_find_place(&g->pages, t);
    if (from.page < 0)
        return;
    const int64_t in = from.page * g->page + from.place * g->place, out = t * g->out_token;
    const float *scales =
        g->scales ? g->scales + from.page * g->scale_page + from.place * g->scale_place : g->scale;
    const uint32_t in_bytes = scales ? 1 : g->item_bytes;
    const uint32_t out_bytes = !scales ? g->item_bytes : g->dtype_out == QD_F32 ? 4 : 2;
    const char *from_row = (const char *)g->cache + in * in_bytes;
    char *to_row = (char *)g->out + out * out_bytes;
    for (uint32_t i = qd_lane(); i < g->width; i += QD_WAVE)
        if (scales)
            decode_item(g, to_row, from_row, i, scales[g->scales ? i / QK_CACHE_GROUP : 0]);
        else
            copy_item(g, to_row, from_row, i);
}

/** Reads tokens; a wave takes a token. */
QD_KERNEL(256) qk_kvcache_gather(const qk_gather_args g) {
    qd_begin();
    const uint32_t waves = 256 / QD_WAVE;
    for (uint32_t t = qd_block() * waves + qd_wave(); t < g.n; t += __gpu_num_blocks(0) * waves)
        gather_row(&g, t);
}

/** Computes positions; a lane takes a token. */
QD_KERNEL(256) qk_kvcache_positions(const qk_positions_args g) {
    qd_begin();
    for (uint32_t t = qd_block() * 256 + qd_thread(); t < g.n; t += __gpu_num_blocks(0) * 256) {
        const int32_t b = qk_find_segment(g.append_indptr, g.batches, (int32_t)t);
        g.batch_indices[t] = b;
        g.positions[t] = b < 0 ? 0 : qk_position(g.seq_lens[b], g.append_indptr[b + 1], t);
    }
}

/** Computes lengths; a lane takes a sequence. */
QD_KERNEL(256) qk_kvcache_seq_lens(const qk_seq_lens_args g) {
    qd_begin();
    for (uint32_t b = qd_block() * 256 + qd_thread(); b < g.batches; b += __gpu_num_blocks(0) * 256)
        g.seq_lens[b] = qk_seq_len(g.kv_indptr, g.kv_last_page_len, g.page_size, b);
}
