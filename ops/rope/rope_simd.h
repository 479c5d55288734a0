// SPDX-License-Identifier: Apache-2.0
// Rotary embedding with vectors of QN_LANES f32: included by rope_cpu.c, rope_avx2.c and
// rope_avx512.c.
//
// A token's cosines and sines are computed once, into scratch that stays in the first cache, and
// serve all of the token's heads. A head goes straight from input to output; a head with a norm or
// FP8 goes through a scratch row of f32.
#ifndef QNI_ROPE_SIMD_H
#define QNI_ROPE_SIMD_H

#include "../shared/fp8_simd.h"
#include "../shared/simd.h"
#include "rope.h"

#include <stdatomic.h>

typedef uint64_t u64v __attribute__((vector_size(8 * QN_LANES)));

/** A token's angles, and the scratch row. If heads are held split and pairs lie half a head apart,
 *  so are the angles: each 2 QN_LANES pairs have the angles of the even ones first, then those of
 *  the odd ones. */
typedef struct angles {
    float *cosine, *sine, *row;
} angles;

/** Computes cosine and sine as cos_sin of rope_row_gpu.h does; 2^32 is a full turn. */
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

/** Computes cosines and sines of QN_LANES pairs from pair d on. */
QN_INLINE void find_angles(const uint64_t *turns, int64_t position, int64_t d, f32v *c, f32v *s) {
    u64v t;
    memcpy(&t, turns + d, sizeof t);
    cos_sin(__builtin_convertvector(t * (uint64_t)position >> 32, u32v), c, s);
}

/** Returns whether two vectors of a head are held split, as simd.h defines it. */
QN_INLINE bool is_split(const qni_rope_problem *p) {
    return p->dtype == QNI_BF16;
}

static inline float table_at(const qni_rope_problem *p, const void *table, int64_t i) {
    return (float)qni_get(p->dtype_table, table, i);
}

/** Loads cosines or sines of pairs d .. d + 2 QN_LANES - 1 in order; fewer may exist. */
QN_INLINE void load_table(const qni_rope_problem *p, const void *table, int64_t first, int64_t d,
                          f32v v[2]) {
    const int64_t left = p->rotary_dim / 2 - d;
    alignas(64) float buffer[2 * QN_LANES] = {};
    if (p->table_step == 1 && p->dtype_table == QNI_F32 && left >= 2 * QN_LANES) {
        load_two(false, QNI_F32, table, first + d, v);
        return;
    }
    for (int64_t i = 0; i < 2 * QN_LANES && i < left; i++)
        buffer[i] = table_at(p, table, first + (d + i) * p->table_step);
    load_two(false, QNI_F32, buffer, 0, v);
}

/** Loads or computes a token's angles. turns has room for 2 QN_LANES more than there are pairs. */
static inline void load_angles(const qni_rope_problem *p, const uint64_t *turns, int64_t t,
                               int64_t position, const angles *a) {
    const int64_t row = (p->angles == QNI_ROPE_BY_TOKEN ? t % p->inner : position) * p->table_row;
    for (int64_t d = 0; d < p->rotary_dim / 2; d += 2 * QN_LANES) {
        f32v c[2], s[2];
        if (p->angles == QNI_ROPE_BY_FREQUENCY) {
            find_angles(turns, position, d, &c[0], &s[0]);
            find_angles(turns, position, d + QN_LANES, &c[1], &s[1]);
        } else {
            load_table(p, p->cos, row, d, c);
            load_table(p, p->sin, row, d, s);
        }
        if (!p->is_interleaved && is_split(p)) {
            split_two(c);
            split_two(s);
        }
        memcpy(a->cosine + d, c, sizeof c);
        memcpy(a->sine + d, s, sizeof s);
    }
}

// ---- turning

/** Turns pairs (x0[i], x1[i]). */
QN_INLINE void turn_pairs(const f32v x0, const f32v x1, const f32v c, const f32v s, f32v *y0,
                          f32v *y1) {
    *y0 = x0 * c - x1 * s;
    *y1 = x1 * c + x0 * s;
}

/** Turns pairs (i, i + half). */
QN_INLINE void turn_halves(bool split, qni_dtype dtype, bool streams, const void *in, void *out,
                           const angles *a, int64_t half) {
    f32v x0[2], x1[2], c[2], s[2];
    for (int64_t i = 0; i < half; i += 2 * QN_LANES) {
        const int64_t left = half - i;
        const bool is_whole = left >= 2 * QN_LANES;
        load_two(false, QNI_F32, a->cosine, i, c);
        load_two(false, QNI_F32, a->sine, i, s);
        if (is_whole) {
            load_two(split, dtype, in, i, x0);
            load_two(split, dtype, in, i + half, x1);
        } else {
            load_two_some(split, dtype, in, i, left, x0);
            load_two_some(split, dtype, in, i + half, left, x1);
        }
        for (int k = 0; k < 2; k++)
            turn_pairs(x0[k], x1[k], c[k], s[k], &x0[k], &x1[k]);
        if (is_whole) {
            store_two(split, dtype, streams, out, i, x0);
            store_two(split, dtype, streams, out, i + half, x1);
        } else {
            store_two_some(split, dtype, out, i, left, x0);
            store_two_some(split, dtype, out, i + half, left, x1);
        }
    }
}

/** Turns pairs (2i, 2i + 1). */
QN_INLINE void turn_neighbours(qni_dtype dtype, bool streams, const void *in, void *out,
                               const angles *a, int64_t count) {
    f32v x[2];
    for (int64_t i = 0; i < count; i += 2 * QN_LANES) {
        const int64_t left = count - i;
        const f32v c = load(QNI_F32, a->cosine, i / 2), s = load(QNI_F32, a->sine, i / 2);
        if (left >= 2 * QN_LANES) {
            load_two(true, dtype, in, i, x);
            turn_pairs(x[0], x[1], c, s, &x[0], &x[1]);
            store_two(true, dtype, streams, out, i, x);
        } else {
            load_two_some(true, dtype, in, i, left, x);
            turn_pairs(x[0], x[1], c, s, &x[0], &x[1]);
            store_two_some(true, dtype, out, i, left, x);
        }
    }
}

QN_INLINE void turn(const qni_rope_problem *p, bool split, qni_dtype dtype, bool streams,
                    const void *in, void *out, const angles *a) {
    if (p->is_interleaved)
        turn_neighbours(dtype, streams, in, out, a, p->rotary_dim);
    else
        turn_halves(split, dtype, streams, in, out, a, p->rotary_dim / 2);
}

// ---- heads

/** Turns a head straight from input to output; the code has a copy for each dtype. */
static void turn_head(const qni_rope_problem *p, const qni_rope_rows *r, bool streams,
                      const char *in, char *out, const angles *a) {
    const size_t size = (size_t)qni_dtype_bytes(p->dtype);
    const size_t turned = (size_t)p->rotary_dim * size, all = (size_t)r->width * size;
    // Every store of a head must lie at a multiple of a vector.
    constexpr size_t vector = 4 * QN_LANES;
    streams = streams && ((uintptr_t)out | turned / 2) % vector == 0;
    if (p->dtype == QNI_F32)
        streams ? turn(p, false, QNI_F32, true, in, out, a)
                : turn(p, false, QNI_F32, false, in, out, a);
    else if (p->dtype == QNI_F16)
        streams ? turn(p, false, QNI_F16, true, in, out, a)
                : turn(p, false, QNI_F16, false, in, out, a);
    else
        streams ? turn(p, true, QNI_BF16, true, in, out, a)
                : turn(p, true, QNI_BF16, false, in, out, a);
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

QN_INLINE void norm_head(qni_dtype dtype, const qni_rope_problem *p, const qni_rope_rows *r,
                         float *x) {
    f32v sum = {};
    int64_t i = 0;
    for (; i + QN_LANES <= r->width; i += QN_LANES)
        sum += load(QNI_F32, x, i) * load(QNI_F32, x, i);
    float squares = 0;
    for (; i < r->width; i++)
        squares += x[i] * x[i];
    for (int k = 0; k < QN_LANES; k++)
        squares += sum[k];
    const float square = squares / (float)r->width + p->eps;
    const float root = square <= 0 ? 0 : 1.0f / sqrtf(square); // 0: a head of zeros
    for (i = 0; i + QN_LANES <= r->width; i += QN_LANES)
        store(QNI_F32, x, i, load(QNI_F32, x, i) * (root * load(dtype, r->weight, i)));
    for (; i < r->width; i++)
        x[i] *= root * (float)qni_get(dtype, r->weight, i);
}

/** Writes x times the scale as FP8. */
QN_INLINE void encode_head(const qni_rope_problem *p, const qni_rope_rows *r, uint8_t *out,
                           const float *x) {
    const qni_fp8 fp8 = qni_fp8_of(p->dtype_out);
    const rounding kind = rounding_of(fp8);
    int64_t i = 0;
    for (; i + 2 * QN_LANES <= r->width; i += 2 * QN_LANES)
        store_codes(false, false, out + i, encode_any(load(QNI_F32, x, i) * r->scale, &kind),
                    encode_any(load(QNI_F32, x, i + QN_LANES) * r->scale, &kind));
    for (; i < r->width; i++)
        out[i] = qni_fp8_encode(fp8, x[i] * r->scale);
}

QN_INLINE void store_head(qni_dtype dtype, void *out, const float *row, int64_t width) {
    int64_t i = 0;
    for (; i + QN_LANES <= width; i += QN_LANES)
        store(dtype, out, i, load(QNI_F32, row, i));
    if (i < width)
        store_some(dtype, out, i, width - i, load_some(QNI_F32, row, i, width - i));
}

/** Loads a head into the scratch row, with its RMSNorm if it has one. */
QN_INLINE void start_head(qni_dtype dtype, const qni_rope_problem *p, const qni_rope_rows *r,
                          const void *in, float *x) {
    load_head(dtype, in, x, r->width);
    if (r->weight)
        norm_head(dtype, p, r, x);
}

/** Converts a head in the scratch row: RMSNorm, rotation (if `turns`), FP8. */
static void convert_head(const qni_rope_problem *p, const qni_rope_rows *r, bool turns,
                         const void *in, void *out, const angles *a) {
    float *x = a->row;
    if (p->dtype == QNI_F32)
        start_head(QNI_F32, p, r, in, x);
    else if (p->dtype == QNI_F16)
        start_head(QNI_F16, p, r, in, x);
    else
        start_head(QNI_BF16, p, r, in, x);
    if (turns)
        turn(p, is_split(p), QNI_F32, false, x, x, a);
    if (p->dtype_out == QNI_F32)
        store_head(QNI_F32, out, x, r->width);
    else if (p->dtype_out == QNI_F16)
        store_head(QNI_F16, out, x, r->width);
    else if (p->dtype_out == QNI_BF16)
        store_head(QNI_BF16, out, x, r->width);
    else
        encode_head(p, r, out, x);
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

/** Computes tokens first .. last - 1. */
static void rope_tokens(const qni_rope_problem *p, const uint64_t *turns, int64_t first,
                        int64_t last, float *scratch) {
    const int64_t room = qni_rope_angle_room(p->rotary_dim);
    const angles a = {scratch, scratch + room, scratch + 2 * room};
    // Results go past the caches only if they are too large for them.
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
