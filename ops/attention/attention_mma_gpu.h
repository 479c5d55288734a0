// SPDX-License-Identifier: Apache-2.0
// The two products of attention on a wave's matrix core, the same interface on every target: scores
// s[keys, queries] = k q^T, and o[d, queries] += v^T p^T.
//
// Both are taken transposed, so that a lane owns one query: its maximum, sum and scale are scalars of the lane,
// and the scores of a lane are, packed, the second product's operand with little or no movement between lanes.
// Operands lie in LDS in pieces of 16 bytes: a row of k is one key, d contiguous; a row of v^T is one d, with the keys
// of a group of QD_MMA_KEYS in the order in which the second product wants them (qd_mma_place).
//
//   target          instruction                lanes  queries  keys  a lane's scores: key of element e
//   gfx90a, gfx94x  mfma 32x32x8 16-bit        64     32       32    8 (e / 4) + 4 part + e % 4
//   gfx11           wmma 16x16x16 16-bit       32     16       16    2 e + part; operands wanted twice
//   gfx12           wmma 16x16x16 16-bit       32     16       16    8 part + e
//
// part is the half of the wave that the lane is in. The rows of o, d, are numbered as the keys of s.
// Source: AMD's matrix instruction calculator; checked by the simulator's matrix tests.
#ifndef QK_ATTENTION_MMA_GPU_H
#define QK_ATTENTION_MMA_GPU_H

#include "elements.h"

typedef _Float16 qd_f16x2 __attribute__((ext_vector_type(2)));
typedef _Float16 qd_f16x16 __attribute__((ext_vector_type(16)));

#if defined(__GFX9__)
enum { QD_MMA_QUERIES = 32, QD_MMA_KEYS = 32, QD_MMA_ACC = 16, QD_MMA_PIECES = 1 };
typedef qd_f32x16 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand; // 8 of 16 consecutive k: those of the lane's part
#elif defined(__GFX11__)
enum { QD_MMA_QUERIES = 16, QD_MMA_KEYS = 16, QD_MMA_ACC = 8, QD_MMA_PIECES = 2 };
typedef qd_f32x8 qd_mma_acc;
typedef qd_u32x8 qd_mma_operand; // 16 consecutive k, the same in both parts
#else
enum { QD_MMA_QUERIES = 16, QD_MMA_KEYS = 16, QD_MMA_ACC = 8, QD_MMA_PIECES = 1 };
typedef qd_f32x8 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand;
#endif
enum { QD_MMA_FRAGMENTS = QD_MMA_KEYS / 16 }; // operands that the keys of one score tile make

QD_INLINE uint32_t qd_mma_query(void) {
    return qd_lane() % QD_MMA_QUERIES;
}
QD_INLINE uint32_t qd_mma_part(void) {
    return qd_lane() / QD_MMA_QUERIES;
}

/** Row of a lane's element e: a key of s, a d of o. */
QD_INLINE uint32_t qd_mma_row(uint32_t part, uint32_t e) {
#if defined(__GFX9__)
    return e / 4 * 8 + part * 4 + e % 4;
#elif defined(__GFX11__)
    return 2 * e + part;
#else
    return part * 8 + e;
#endif
}

/** A row of v^T is pairs of keys, 4 bytes each, in the order that puts the keys of one lane's scores side by side: pair i
 *  holds keys qd_mma_pair(i) and qd_mma_pair(i) + QD_MMA_PAIR. */
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
#if defined(__GFX9__)
    return i / 8 * 16 + i / 4 % 2 * 4 + i / 2 % 2 * 8 + i % 2 * 2;
#elif defined(__GFX11__)
    return i / 8 * 16 + i % 4 * 4 + i / 4 % 2;
#else
    return 2 * i;
#endif
}
#if defined(__GFX11__)
enum { QD_MMA_PAIR = 2 };
#else
enum { QD_MMA_PAIR = 1 };
#endif

/** The lane's operand for the 16 elements that begin at piece `first` of a row; piece(i) reads one. */
#if defined(__GFX11__)
#define QD_MMA_READ(first, piece)                                                                  \
    __builtin_shufflevector(piece(first), piece((first) + 1), 0, 1, 2, 3, 4, 5, 6, 7)
#else
#define QD_MMA_READ(first, piece) piece((first) + qd_mma_part())
#endif

/** d += x y^T over 16 elements of k, f32 sums; is_f16 is constant. */
QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, qd_mma_operand y, qd_mma_acc d) {
#if defined(__GFX9__)
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y);
        d = __builtin_amdgcn_mfma_f32_32x32x8f16(a.lo, b.lo, d, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_32x32x8f16(a.hi, b.hi, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y);
    d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.lo, b.lo, d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.hi, b.hi, d, 0, 0, 0);
#elif defined(__GFX11__)
    return is_f16 ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(__builtin_bit_cast(qd_f16x16, x),
                                                               __builtin_bit_cast(qd_f16x16, y), d)
                  : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                        __builtin_bit_cast(qd_i16x16, x), __builtin_bit_cast(qd_i16x16, y), d);
#else
    return is_f16 ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                        __builtin_bit_cast(qd_f16x8, x), __builtin_bit_cast(qd_f16x8, y), d)
                  : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                        __builtin_bit_cast(qd_i16x8, x), __builtin_bit_cast(qd_i16x8, y), d);
#endif
}

/** The value of the lane that has the same query in the wave's other part. */
QD_INLINE uint32_t qd_mma_other(uint32_t v) {
#if defined(__GFX9__)
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)((qd_lane() ^ 32) * 4), (int)v);
#else
    const uint32_t any = __builtin_nondeterministic_value(v); // what lanes that are off would keep
    return __builtin_amdgcn_permlanex16(any, v, 0x76543210, 0xFEDCBA98, false, false);
#endif
}

/** Two weights, none negative, as 16-bit values, the first low. bf16 is rounded to nearest, ties up: two additions, where
 *  ties to even would cost five instructions. */
QD_INLINE uint32_t qd_mma_pack(bool is_f16, float a, float b) {
    if (is_f16)
        return __builtin_bit_cast(uint32_t, (qd_f16x2){(_Float16)a, (_Float16)b});
    return __builtin_amdgcn_perm(qd_as_u32(b) + 0x8000, qd_as_u32(a) + 0x8000, 0x07060302);
}

/** A lane's weights, its scores' places, as the second product's operands; `packed` holds elements 2 i and 2 i + 1 in i. */
QD_INLINE void qd_mma_weights(const uint32_t packed[QD_MMA_ACC / 2],
                              qd_mma_operand operand[QD_MMA_FRAGMENTS]) {
#if defined(__GFX9__)
    QD_UNROLL for (int i = 0; i < 8; i++) operand[i / 4][i % 4] = packed[i];
#elif defined(__GFX11__)
    const bool odd = qd_mma_part();
    QD_UNROLL for (int i = 0; i < 4; i++) {
        const uint32_t other = qd_mma_other(packed[i]);
        operand[0][i] = odd ? other : packed[i];
        operand[0][4 + i] = odd ? packed[i] : other;
    }
#else
    QD_UNROLL for (int i = 0; i < 4; i++) operand[0][i] = packed[i];
#endif
}

/** The elements four places on, around. */
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc s) {
#if defined(__GFX9__)
    return __builtin_shufflevector(s, s, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3);
#else
    return __builtin_shufflevector(s, s, 4, 5, 6, 7, 0, 1, 2, 3);
#endif
}

/** A lane stores a tile of o as QD_MMA_RUNS runs of eight consecutive d; the wave's parts divide the tile. Run
 *  r begins at 8 (part QD_MMA_RUNS + r); the parts exchange elements for it, so all lanes take part. */
#if defined(__GFX9__)
enum { QD_MMA_RUNS = 2 };
#else
enum { QD_MMA_RUNS = 1 };
#endif
QD_INLINE qd_f32x8 qd_mma_run(qd_mma_acc o, uint32_t r) {
#if defined(__GFX12__)
    (void)r;
    return o;
#else
    const bool upper = qd_mma_part();
    qd_f32x8 run;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const float low = o[4 * r + i], high = o[QD_MMA_ACC / 2 + 4 * r + i];
        const float other = qd_as_f32(qd_mma_other(qd_as_u32(upper ? low : high)));
#if defined(__GFX9__)
        run[i] = upper ? other : low;
        run[4 + i] = upper ? high : other;
#else
        run[2 * i] = upper ? other : low;
        run[2 * i + 1] = upper ? high : other;
#endif
    }
    return run;
#endif
}

#endif
