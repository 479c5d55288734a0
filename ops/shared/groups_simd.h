// SPDX-License-Identifier: Apache-2.0
// FP8 with a scale for each 128 elements of a row; an op's NAME_simd.h includes this header after
// simd.h and fp8_simd.h.
//
// A chunk is CHUNK_GROUPS groups: first the values and the largest magnitudes of all its groups are
// computed, then all scales, then all codes. Taken one by one, each group would wait for the
// reduction and the two divisions of its scale.
#ifndef QNI_GROUPS_SIMD_H
#define QNI_GROUPS_SIMD_H

#include "fp8_simd.h"
#include "simd.h"

enum { GROUP = 128, CHUNK_GROUPS = 16, CHUNK = GROUP * CHUNK_GROUPS };

/** The values of up to CHUNK elements, padded with zeros to whole pairs of vectors, and the largest
 *  magnitudes of each group, lane by lane. */
typedef struct chunk {
    alignas(64) float y[CHUNK];
    u32v top[CHUNK_GROUPS];
} chunk;

/** For a function that is called once for many elements: it is not inlined, so that all callers
 *  share its code. */
#define QN_SHARED [[maybe_unused]] static __attribute__((noinline))

/** Stores the codes of 2 QN_LANES values, none of them a NaN. */
QN_INLINE void store_numbers(bool split, bool streams, const rounding *kind, const f32v v[2],
                             uint8_t *out) {
#if defined(__AVX512VBMI__) && QN_LANES == 16
    const u32v a = encode_signed(v[0], kind), b = encode_signed(v[1], kind);
    u8_codes codes = pack_codes(split, a, b) | (pick_bytes(split, 3, a, b) & 0x80);
#else
    u8_codes codes = pack_codes(split, encode_number(v[0], kind), encode_number(v[1], kind));
#endif
    if (kind->dropped == 0x80)
        codes &= (u8_codes)(codes != 0x80);
    PUT(streams, out, codes);
}

/** Stores the codes of `count` values at y, in pairs of vectors as in simd.h, without the last
 *  values that do not fill a pair. Returns whether one of the values is a NaN; unless `has_nans`, a
 *  NaN's code is wrong. */
QN_INLINE bool encode_pairs(bool split, bool streams, bool has_nans, const rounding *given,
                            const float *y, int64_t count, float inverse, uint8_t *out) {
    const rounding kind = *given; // no store of bytes may change a copy
    f32v sum = {}, v[2];          // a NaN makes it NaN; infinities may, too, which only costs time
    for (int64_t i = 0; i + 2 * QN_LANES <= count; i += 2 * QN_LANES) {
        for (int k = 0; k < 2; k++)
            v[k] = load(QNI_F32, y, i + k * QN_LANES) * inverse;
        sum = fma_of(v[0], v[1], sum);
        if (has_nans)
            store_codes(split, streams, out + i, encode_any(v[0], &kind), encode_any(v[1], &kind));
        else
            store_numbers(split, streams, &kind, v, out + i);
    }
    return __builtin_reduce_or((u32v)(sum != sum)) != 0;
}

QN_INLINE void encode_values_as(bool split, bool streams, const rounding *kind, const float *y,
                                int64_t count, float inverse, uint8_t *out) {
    if (encode_pairs(split, streams, false, kind, y, count, inverse, out))
        encode_pairs(split, streams, true, kind, y, count, inverse, out);
    const int64_t i = count / (2 * QN_LANES) * (2 * QN_LANES);
    if (i == count)
        return;
    alignas(64) uint8_t rest[2 * QN_LANES];
    store_codes(split, false, rest, encode_any(load(QNI_F32, y, i) * inverse, kind),
                encode_any(load(QNI_F32, y, i + QN_LANES) * inverse, kind));
    memcpy(out + i, rest, (size_t)(count - i));
}

QN_SHARED void encode_values(bool split, bool streams, const rounding *kind, const float *y,
                             int64_t count, float inverse, uint8_t *out) {
    if (split)
        encode_values_as(true, streams, kind, y, count, inverse, out);
    else
        encode_values_as(false, streams, kind, y, count, inverse, out);
}

QN_INLINE void encode_chunk_as(bool split, bool streams, qni_fp8 fp8, const chunk *c, int64_t count,
                               float scale_eps, float *scales, uint8_t *out) {
    const rounding kind = rounding_of(fp8);
    const float most = qni_fp8_format_of(fp8).max;
    const int64_t groups = (count + GROUP - 1) / GROUP;
    float inverse[CHUNK_GROUPS];
    for (int64_t g = 0; g < groups; g++) {
        const float amax = __builtin_bit_cast(float, __builtin_reduce_max(c->top[g]));
        scales[g] = (amax > scale_eps ? amax : scale_eps) / most;
        inverse[g] = 1.0f / scales[g];
    }
    for (int64_t g = 0; g < groups; g++) {
        const int64_t left = count - g * GROUP;
        encode_values_as(split, streams, &kind, c->y + g * GROUP, left < GROUP ? left : GROUP,
                         inverse[g], out + g * GROUP);
    }
}

/** Writes the scales and the codes of a chunk's first `count` values. */
QN_SHARED void encode_chunk(bool split, bool streams, qni_fp8 fp8, const chunk *c, int64_t count,
                            float scale_eps, float *scales, uint8_t *out) {
    if (split)
        encode_chunk_as(true, streams, fp8, c, count, scale_eps, scales, out);
    else
        encode_chunk_as(false, streams, fp8, c, count, scale_eps, scales, out);
}

#endif
