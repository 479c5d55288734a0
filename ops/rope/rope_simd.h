// SPDX-License-Identifier: Apache-2.0
// Rotary embedding with vectors of QN_LANES f32: included by rope_cpu.c, rope_avx2.c and rope_avx512.c.
//
// A token's cosines and sines are found once, into scratch that stays in the first cache, and serve all its heads. A
// head goes straight from input to output; by way of a scratch row of f32 where there is a norm or FP8.
#ifndef QNI_ROPE_SIMD_H
#define QNI_ROPE_SIMD_H

#include "../simd.h"
#include "rope.h"

#include <stdatomic.h>

typedef uint64_t u64v __attribute__((vector_size(8 * QN_LANES)));

/** A token's angles, and the scratch row. Interleaved pairs have their cosine twice, and minus the sine, then the
 *  sine. */
typedef struct angles {
    float *cosine, *sine, *row;
} angles;

/** As cos_sin of rope_row_gpu.h: 2^32 is a full turn. */
QN_INLINE void cos_sin(u32v angle, f32v *cosine, f32v *sine) {
    const u32v quadrant = (angle + 0x20000000u) >> 30;
    const f32v y =
        __builtin_convertvector((i32v)(angle - (quadrant << 30)), f32v) * 0x1.921FB6p-30f;
    const f32v z = y * y;
    const f32v s = y + y * z *
                           (-0x1.555556p-3f +
                            z * (0x1.111112p-7f + z * (-0x1.A01A02p-13f + z * 0x1.71DE3Ap-19f)));
    const f32v c =
        1 + z * (-0.5f + z * (0x1.555556p-5f + z * (-0x1.6C16C2p-10f + z * 0x1.A01A02p-16f)));
    const i32v is_odd = -(i32v)(quadrant & 1);
    *cosine = (f32v)((u32v)select_of(is_odd, s, c) ^ (((quadrant + 1) & 2) << 30));
    *sine = (f32v)((u32v)select_of(is_odd, c, s) ^ ((quadrant & 2) << 30));
}

/** Cosines and sines of QN_LANES pairs from pair d on. */
QN_INLINE void find_angles(const uint64_t *turns, int64_t position, int64_t d, f32v *c, f32v *s) {
    u64v t;
    memcpy(&t, turns + d, sizeof t);
    cos_sin(__builtin_convertvector(t * (uint64_t)position >> 32, u32v), c, s);
}

static inline float table_at(const qni_rope_problem *p, const void *table, int64_t i) {
    return (float)qni_get(p->dtype_table, table, i);
}

/** Where pair d's values stand: once, or twice side by side. */
static inline void put_pair(const qni_rope_problem *p, const angles *a, int64_t d, float c,
                            float s) {
    if (!p->is_interleaved) {
        a->cosine[d] = c;
        a->sine[d] = s;
        return;
    }
    a->cosine[2 * d] = a->cosine[2 * d + 1] = c;
    a->sine[2 * d] = -s;
    a->sine[2 * d + 1] = s;
}

/** turns has room for QN_LANES more than there are pairs. */
static inline void load_angles(const qni_rope_problem *p, const uint64_t *turns, int64_t t,
                               int64_t position, const angles *a) {
    const int64_t pairs = p->rotary_dim / 2;
    const int64_t row = (p->angles == QNI_ROPE_BY_TOKEN ? t % p->inner : position) * p->table_row;
    if (p->angles != QNI_ROPE_BY_FREQUENCY) {
        for (int64_t d = 0; d < pairs; d++)
            put_pair(p, a, d, table_at(p, p->cos, row + d * p->table_step),
                     table_at(p, p->sin, row + d * p->table_step));
        return;
    }
    for (int64_t d = 0; d < pairs; d += QN_LANES) {
        f32v c, s;
        find_angles(turns, position, d, &c, &s);
        for (int64_t i = 0; i < QN_LANES && d + i < pairs; i++)
            put_pair(p, a, d + i, c[i], s[i]);
    }
}

// ---- turning

/** Stores past the caches if `streams`: then p + i is a multiple of the vector's size. */
QN_INLINE void put(qni_dtype dtype, bool streams, void *p, int64_t i, f32v v) {
    if (!streams)
        store(dtype, p, i, v);
    else if (dtype == QNI_F32)
        __builtin_nontemporal_store(v, (f32v *)((float *)p + i));
    else
        __builtin_nontemporal_store(dtype == QNI_F16 ? (u16v) __builtin_convertvector(v, f16v)
                                                     : to_bf16(v),
                                    (u16v *)((uint16_t *)p + i));
}

/** Pairs (i, i + half). */
QN_INLINE void turn_split(qni_dtype dtype, bool streams, const void *in, void *out, const angles *a,
                          int64_t half) {
    int64_t i = 0;
    for (; i + QN_LANES <= half; i += QN_LANES) {
        const f32v x0 = load(dtype, in, i), x1 = load(dtype, in, i + half);
        const f32v c = load(QNI_F32, a->cosine, i), s = load(QNI_F32, a->sine, i);
        put(dtype, streams, out, i, x0 * c - x1 * s);
        put(dtype, streams, out, i + half, x1 * c + x0 * s);
    }
    if (i == half)
        return;
    const int64_t rest = half - i;
    const f32v x0 = load_some(dtype, in, i, rest), x1 = load_some(dtype, in, i + half, rest);
    const f32v c = load_some(QNI_F32, a->cosine, i, rest);
    const f32v s = load_some(QNI_F32, a->sine, i, rest);
    store_some(dtype, out, i, rest, x0 * c - x1 * s);
    store_some(dtype, out, i + half, rest, x1 * c + x0 * s);
}

#if QN_LANES == 4
#define NEIGHBOURS 1, 0, 3, 2
#elif QN_LANES == 8
#define NEIGHBOURS 1, 0, 3, 2, 5, 4, 7, 6
#else
#define NEIGHBOURS 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14
#endif

/** Pairs (2i, 2i + 1). */
QN_INLINE void turn_neighbours(qni_dtype dtype, bool streams, const void *in, void *out,
                               const angles *a, int64_t count) {
    int64_t i = 0;
    for (; i + QN_LANES <= count; i += QN_LANES) {
        const f32v x = load(dtype, in, i), other = __builtin_shufflevector(x, x, NEIGHBOURS);
        put(dtype, streams, out, i,
            x * load(QNI_F32, a->cosine, i) + other * load(QNI_F32, a->sine, i));
    }
    if (i == count)
        return;
    const int64_t rest = count - i;
    const f32v x = load_some(dtype, in, i, rest), other = __builtin_shufflevector(x, x, NEIGHBOURS);
    store_some(dtype, out, i, rest,
               x * load_some(QNI_F32, a->cosine, i, rest) +
                   other * load_some(QNI_F32, a->sine, i, rest));
}

QN_INLINE void turn(const qni_rope_problem *p, qni_dtype dtype, bool streams, const void *in,
                    void *out, const angles *a) {
    if (p->is_interleaved)
        turn_neighbours(dtype, streams, in, out, a, p->rotary_dim);
    else
        turn_split(dtype, streams, in, out, a, p->rotary_dim / 2);
}

// ---- heads

/** Straight from input to output; a copy of the code for each dtype. */
static void turn_head(const qni_rope_problem *p, const qni_rope_rows *r, bool streams,
                      const char *in, char *out, const angles *a) {
    const size_t size = (size_t)qni_dtype_bytes(p->dtype);
    const size_t turned = (size_t)p->rotary_dim * size, all = (size_t)r->width * size;
    // Every store of a head must lie at a multiple of a vector.
    constexpr size_t vector = 4 * QN_LANES;
    streams = streams && ((uintptr_t)out | turned / 2) % vector == 0;
    if (p->dtype == QNI_F32)
        streams ? turn(p, QNI_F32, true, in, out, a) : turn(p, QNI_F32, false, in, out, a);
    else if (p->dtype == QNI_F16)
        streams ? turn(p, QNI_F16, true, in, out, a) : turn(p, QNI_F16, false, in, out, a);
    else
        streams ? turn(p, QNI_BF16, true, in, out, a) : turn(p, QNI_BF16, false, in, out, a);
    if (all > turned)
        memmove(out + turned, in + turned, all - turned);
}

QN_INLINE void load_head(qni_dtype dtype, const void *in, float *row, int64_t width) {
    int64_t i = 0;
    for (; i + QN_LANES <= width; i += QN_LANES)
        store(QNI_F32, row, i, load(dtype, in, i));
    if (i < width)
        store_some(QNI_F32, row, i, width - i, load_some(dtype, in, i, width - i));
}

static void norm_head(const qni_rope_problem *p, const qni_rope_rows *r, float *x) {
    f32v sum = {};
    int64_t i = 0;
    for (; i + QN_LANES <= r->width; i += QN_LANES)
        sum += load(QNI_F32, x, i) * load(QNI_F32, x, i);
    float squares = 0;
    for (; i < r->width; i++)
        squares += x[i] * x[i];
    for (int k = 0; k < QN_LANES; k++)
        squares += sum[k];
    const float root = 1.0f / sqrtf(squares / (float)r->width + p->eps);
    for (i = 0; i < r->width; i++)
        x[i] *= root * (float)qni_get(p->dtype, r->weight, i);
}

QN_INLINE void store_head(qni_dtype dtype, void *out, const float *row, int64_t width) {
    int64_t i = 0;
    for (; i + QN_LANES <= width; i += QN_LANES)
        store(dtype, out, i, load(QNI_F32, row, i));
    if (i < width)
        store_some(dtype, out, i, width - i, load_some(QNI_F32, row, i, width - i));
}

/** By way of the scratch row: RMSNorm, rotation (if `turns`), FP8. */
static void convert_head(const qni_rope_problem *p, const qni_rope_rows *r, bool turns,
                         const void *in, void *out, const angles *a) {
    float *x = a->row;
    if (p->dtype == QNI_F32)
        load_head(QNI_F32, in, x, r->width);
    else if (p->dtype == QNI_F16)
        load_head(QNI_F16, in, x, r->width);
    else
        load_head(QNI_BF16, in, x, r->width);
    if (r->weight)
        norm_head(p, r, x);
    if (turns)
        turn(p, QNI_F32, false, x, x, a);
    if (p->dtype_out == QNI_F32)
        store_head(QNI_F32, out, x, r->width);
    else if (p->dtype_out == QNI_F16)
        store_head(QNI_F16, out, x, r->width);
    else if (p->dtype_out == QNI_BF16)
        store_head(QNI_BF16, out, x, r->width);
    else
        for (int64_t i = 0; i < r->width; i++)
            ((uint8_t *)out)[i] = qni_fp8_encode(qni_fp8_of(p->dtype_out), x[i] * r->scale);
}

static void rope_part(const qni_rope_problem *p, int part, bool streams, int64_t t,
                      const angles *a) {
    const qni_rope_rows *r = &p->parts[part];
    const int64_t size = qni_dtype_bytes(p->dtype), size_out = qni_dtype_bytes(p->dtype_out);
    const int64_t from = r->heads ? qni_rope_in(p, r, t) : 0;
    const int64_t to = r->heads ? qni_rope_out(p, r, t) : -1;
    for (int64_t h = 0; to >= 0 && h < r->heads; h++) {
        const char *in = (const char *)r->in + (from + h * r->in_head) * size;
        char *out = (char *)r->out + (to + h * r->out_head) * size_out;
        if (r->weight || qni_is_fp8(p->dtype_out))
            convert_head(p, r, part <= QNI_ROPE_K, in, out, a);
        else
            turn_head(p, r, streams && in != out, in, out, a);
    }
}

/** Tokens first .. last - 1. */
static void rope_tokens(const qni_rope_problem *p, const uint64_t *turns, int64_t first,
                        int64_t last, float *scratch) {
    const int64_t room = p->rotary_dim + 16;
    const angles a = {scratch, scratch + room, scratch + 2 * room};
    // Past the caches only what is too large for them.
    const bool streams =
        p->n * (p->parts[0].heads + p->parts[1].heads) * p->parts[0].width > 1 << 20;
    for (int64_t t = first; t < last; t++) {
        int64_t position = 0;
        const bool is_there = qni_rope_position(p, t, &position);
        if (is_there)
            load_angles(p, turns, t, position, &a);
        for (int part = is_there ? 0 : QNI_ROPE_Q_NOPE; part < QNI_ROPE_PARTS; part++)
            rope_part(p, part, streams, t, &a);
    }
    if (streams) // other processors see such stores in any order
        atomic_thread_fence(memory_order_seq_cst);
}

#endif
