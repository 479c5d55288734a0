// SPDX-License-Identifier: Apache-2.0
// The two products of attention on a wave's matrix core, the same interface on every target: scores
// s[queries, keys] = q k^T, and o[queries, d] += p v.
//
// On AMD both are computed transposed. Everywhere a lane owns QD_MMA_OWN queries, whose maximum,
// sum and scale are scalars of its own, of which the wave's other QD_MMA_PARTS - 1 parts hold other
// keys; and its scores are, packed, the second product's operand with little or no movement between
// lanes. Operands of k and v lie in LDS in pieces of 16 bytes: a row of k is one key, d contiguous;
// a row of v^T is one d, its keys in pairs in an order that suits the second product (qd_mma_pair).
// A lane reads, of each QD_MMA_K elements of a row, the pieces that belong to its part.
//
//   target          instruction                 lanes  queries  keys  key of element e, in part p
//   gfx90a, gfx94x  mfma 32x32x8 16-bit         64     32       32    8 (e / 4) + 4 p + e % 4
//   gfx11           wmma 16x16x16 16-bit        32     16       16    2 e + p; operands twice
//   gfx12           wmma 16x16x16 16-bit        32     16       16    8 p + e
//   sm_80           mma m16n8k16 16-bit         32     16       8     2 p + e % 2, query e / 2
//
// The columns of o, d, are numbered as the keys of s. Sources: AMD's matrix instruction calculator,
// checked by the simulator's matrix tests; PTX ISA, mma.m16n8k16.
#ifndef QK_ATTENTION_MMA_GPU_H
#define QK_ATTENTION_MMA_GPU_H

#include "elementary.h"
#include "elements.h"
#include "halves.h"

typedef _Float16 qd_f16x16 __attribute__((ext_vector_type(16)));

#if defined(__NVPTX__)
enum { QD_MMA_QUERIES = 16, QD_MMA_KEYS = 8, QD_MMA_ACC = 4, QD_MMA_OWN = 2, QD_MMA_PARTS = 4 };
enum { QD_MMA_K = 32, QD_MMA_PAIR = 1 };
typedef qd_f32x4 qd_mma_acc;
typedef qd_u32x4
    qd_mma_operand; // of each 32 consecutive k the part's 8, in the order of two instructions
#elif defined(__GFX9__)
enum { QD_MMA_QUERIES = 32, QD_MMA_KEYS = 32, QD_MMA_ACC = 16, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 1 };
typedef qd_f32x16 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand; // 8 of 16 consecutive k: those of the lane's part
#elif defined(__GFX11__)
enum { QD_MMA_QUERIES = 16, QD_MMA_KEYS = 16, QD_MMA_ACC = 8, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 2 };
typedef qd_f32x8 qd_mma_acc;
typedef qd_u32x8 qd_mma_operand; // 16 consecutive k, the same in both parts
#else
enum { QD_MMA_QUERIES = 16, QD_MMA_KEYS = 16, QD_MMA_ACC = 8, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 1 };
typedef qd_f32x8 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand;
#endif

// ---- what a lane has

/** The part of the wave that the lane is in. */
QD_INLINE uint32_t qd_mma_part(void) {
#if defined(__NVPTX__)
    return qd_lane() % 4;
#else
    return qd_lane() / QD_MMA_QUERIES;
#endif
}

/** The row of k, of QD_MMA_KEYS, or of v^T that the lane reads. */
QD_INLINE uint32_t qd_mma_line(void) {
#if defined(__NVPTX__)
    return qd_lane() / 4;
#else
    return qd_lane() % QD_MMA_QUERIES;
#endif
}

/** The lane's query `own` of the wave's QD_MMA_QUERIES. */
QD_INLINE uint32_t qd_mma_query(uint32_t own) {
    return own * 8 + qd_mma_line();
}

/** Which of the lane's queries element e belongs to. */
QD_INLINE uint32_t qd_mma_own(uint32_t e) {
    return e / (QD_MMA_ACC / QD_MMA_OWN);
}

/** Key of the lane's element e of s, d of o. */
QD_INLINE uint32_t qd_mma_column(uint32_t part, uint32_t e) {
#if defined(__NVPTX__)
    return 2 * part + e % 2;
#elif defined(__GFX9__)
    return e / 4 * 8 + part * 4 + e % 4;
#elif defined(__GFX11__)
    return 2 * e + part;
#else
    return part * 8 + e;
#endif
}

/** Pair i of a row of v^T, 4 bytes, holds keys qd_mma_pair(i) and qd_mma_pair(i) + QD_MMA_PAIR: the
 *  keys of one lane's scores stand side by side. */
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
#if defined(__NVPTX__)
    return i / 16 * 32 + i % 4 * 8 + i / 4 % 4 * 2;
#elif defined(__GFX9__)
    return i / 8 * 16 + i / 4 % 2 * 4 + i / 2 % 2 * 8 + i % 2 * 2;
#elif defined(__GFX11__)
    return i / 8 * 16 + i % 4 * 4 + i / 4 % 2;
#else
    return 2 * i;
#endif
}

/** How far the key of an odd pair is from that of the pair before. */
#if defined(__NVPTX__)
enum { QD_MMA_NEXT_PAIR = 8 };
#else
enum { QD_MMA_NEXT_PAIR = 2 };
#endif

/** What pieces of LDS change places by, so that lanes that read at once touch all banks: by a row's
 *  number on top of what the row's group of eight adds. */
QD_INLINE uint32_t qd_mma_turn(uint32_t row) {
#if defined(__NVPTX__)
    return row % 2 * 4; // eight lanes read four pieces of two rows
#else
    return row; // a piece of eight rows
#endif
}

// ---- products

/** The lane's operand for elements QD_MMA_K c on of a row; piece(i) reads piece i. */
#if defined(__NVPTX__)
#define QD_MMA_READ(c, piece) piece(4 * (c) + qd_mma_part())
#elif defined(__GFX11__)
#define QD_MMA_READ(c, piece)                                                                      \
    __builtin_shufflevector(piece(2 * (c)), piece(2 * (c) + 1), 0, 1, 2, 3, 4, 5, 6, 7)
#else
#define QD_MMA_READ(c, piece) piece(2 * (c) + qd_mma_part())
#endif

/** Piece i of those that the lane's operand c is made of. */
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i) {
#if defined(__NVPTX__)
    return 4 * c + qd_mma_part() + i;
#elif defined(__GFX11__)
    return 2 * c + i;
#else
    return 2 * c + qd_mma_part() + i;
#endif
}

#if defined(__NVPTX__)
#define QD_MMA_PTX(type, d, a0, a1, a2, a3, b0, b1)                                                \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                            \
                 ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                 : "+f"((d)[0]), "+f"((d)[1]), "+f"((d)[2]), "+f"((d)[3])                          \
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))
#endif

/** d += the lane's queries or weights `mine`, by `x` of k or v, over QD_MMA_K elements, f32 sums;
 *  is_f16 is constant. */
QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand mine[QD_MMA_OWN],
                            qd_mma_acc acc) {
#if defined(__NVPTX__)
    const qd_mma_operand a = mine[0], b = mine[1];
    float d[4] = {acc.x, acc.y, acc.z, acc.w};
    if (is_f16) {
        QD_MMA_PTX("f16", d, a.x, b.x, a.y, b.y, x.x, x.y);
        QD_MMA_PTX("f16", d, a.z, b.z, a.w, b.w, x.z, x.w);
    } else {
        QD_MMA_PTX("bf16", d, a.x, b.x, a.y, b.y, x.x, x.y);
        QD_MMA_PTX("bf16", d, a.z, b.z, a.w, b.w, x.z, x.w);
    }
    return (qd_mma_acc){d[0], d[1], d[2], d[3]};
#elif defined(__GFX9__)
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x);
        const qd_f16x8 b = __builtin_bit_cast(qd_f16x8, mine[0]);
        acc = __builtin_amdgcn_mfma_f32_32x32x8f16(a.lo, b.lo, acc, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_32x32x8f16(a.hi, b.hi, acc, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, mine[0]);
    acc = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.lo, b.lo, acc, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.hi, b.hi, acc, 0, 0, 0);
#elif defined(__GFX11__)
    return is_f16
               ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
                     __builtin_bit_cast(qd_f16x16, x), __builtin_bit_cast(qd_f16x16, mine[0]), acc)
               : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                     __builtin_bit_cast(qd_i16x16, x), __builtin_bit_cast(qd_i16x16, mine[0]), acc);
#else
    return is_f16
               ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                     __builtin_bit_cast(qd_f16x8, x), __builtin_bit_cast(qd_f16x8, mine[0]), acc)
               : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                     __builtin_bit_cast(qd_i16x8, x), __builtin_bit_cast(qd_i16x8, mine[0]), acc);
#endif
}

// ---- between the products

/** The value of the lane with the same queries in another part: of all of them, by steps 1, 2 …
 *  below QD_MMA_PARTS. */
QD_INLINE uint32_t qd_mma_other(uint32_t v, uint32_t step) {
#if defined(__NVPTX__)
    return (uint32_t)__nvvm_shfl_sync_bfly_i32(0xFFFFFFFF, (int)v, (int)step, 31);
#elif defined(__GFX9__)
    (void)step;
    return (uint32_t)__builtin_amdgcn_ds_bpermute((int)((qd_lane() ^ 32) * 4), (int)v);
#else
    (void)step;
    const uint32_t any = __builtin_nondeterministic_value(v); // what lanes that are off would keep
    return __builtin_amdgcn_permlanex16(any, v, 0x76543210, 0xFEDCBA98, false, false);
#endif
}

QD_INLINE float qd_mma_max(float v) {
    QD_UNROLL for (uint32_t step = 1; step < QD_MMA_PARTS; step *= 2)
        v = __builtin_fmaxf(v, qd_as_f32(qd_mma_other(qd_as_u32(v), step)));
    return v;
}
QD_INLINE float qd_mma_sum(float v) {
    QD_UNROLL for (uint32_t step = 1; step < QD_MMA_PARTS; step *= 2)
        v += qd_as_f32(qd_mma_other(qd_as_u32(v), step));
    return v;
}

/** Each query's factor, for all of its elements. */
QD_INLINE qd_mma_acc qd_mma_spread(const float factor[QD_MMA_OWN]) {
#if defined(__NVPTX__)
    return (qd_mma_acc){factor[0], factor[0], factor[1], factor[1]};
#else
    return factor[0];
#endif
}

/** The elements four places on, around. */
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc s) {
#if defined(__NVPTX__)
    return s;
#elif defined(__GFX9__)
    return __builtin_shufflevector(s, s, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3);
#else
    return __builtin_shufflevector(s, s, 4, 5, 6, 7, 0, 1, 2, 3);
#endif
}

/** Two weights, none negative, as 16-bit values, the first low. On AMD bf16 is rounded to nearest,
 *  ties up: two additions, where ties to even would cost five instructions. */
QD_INLINE uint32_t qd_mma_pack(bool is_f16, float a, float b) {
    if (is_f16)
        return __builtin_bit_cast(uint32_t, (qd_f16x2){(_Float16)a, (_Float16)b});
#if defined(__NVPTX__)
    return __builtin_bit_cast(uint32_t, (qd_bf16x2){(__bf16)a, (__bf16)b});
#else
    return qd_halves(qd_as_u32(a) + 0x8000, qd_as_u32(b) + 0x8000, true);
#endif
}

/** Four packed pairs of a query's weights, which follow each other in the order of its elements, as
 *  the second product's operand for as many keys as all parts have there: QD_MMA_K. */
QD_INLINE qd_mma_operand qd_mma_weights(const uint32_t packed[4]) {
#if defined(__GFX11__)
    const bool odd = qd_mma_part();
    qd_mma_operand operand;
    QD_UNROLL for (int i = 0; i < 4; i++) {
        const uint32_t other = qd_mma_other(packed[i], 1);
        operand[i] = odd ? other : packed[i];
        operand[4 + i] = odd ? packed[i] : other;
    }
    return operand;
#else
    return (qd_mma_operand){packed[0], packed[1], packed[2], packed[3]};
#endif
}

// ---- results

// Of a tile of o a lane stores, for each of its queries, QD_MMA_RUNS runs of QD_MMA_RUN consecutive
// d.
#if defined(__NVPTX__)
enum { QD_MMA_RUN = 2, QD_MMA_RUNS = 1 };
typedef qd_f32x2 qd_mma_run;
#elif defined(__GFX9__)
enum { QD_MMA_RUN = 8, QD_MMA_RUNS = 2 };
typedef qd_f32x8 qd_mma_run;
#else
enum { QD_MMA_RUN = 8, QD_MMA_RUNS = 1 };
typedef qd_f32x8 qd_mma_run;
#endif

/** Run r of a query, which begins at d = QD_MMA_RUN (QD_MMA_RUNS part + r). The parts exchange
 *  elements for it: all lanes take part. */
QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc o, uint32_t own, uint32_t r) {
#if defined(__NVPTX__)
    (void)r;
    return own ? o.zw : o.xy;
#elif defined(__GFX12__)
    (void)own, (void)r;
    return o;
#else
    const bool upper = qd_mma_part();
    qd_mma_run run;
    (void)own;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const float low = o[4 * r + i], high = o[QD_MMA_ACC / 2 + 4 * r + i];
        const float other = qd_as_f32(qd_mma_other(qd_as_u32(upper ? low : high), 1));
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

/** At a multiple of 16 bytes, on NVIDIA of the run's size. */
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v) {
#if defined(__NVPTX__)
    if (dtype == QD_F32)
        *(qd_f32x2 *)p = v;
    else if (dtype == QD_F16)
        *(qd_f16x2 *)p = __builtin_convertvector(v, qd_f16x2);
    else
        *(qd_bf16x2 *)p = __builtin_convertvector(v, qd_bf16x2);
#else
    qd_store8(dtype, p, v);
#endif
}

#endif
