// SPDX-License-Identifier: Apache-2.0
// RDNA3's matrix instructions (WMMA of gfx11): implements gpu/mma.h.
//
// The instructions take operands twice: lanes of both halves of the wave hold all k of a line.
#ifndef QD_MMA_RDNA3_H
#define QD_MMA_RDNA3_H

#include "../elements.h"

enum { QD_MMA_ROWS = 16, QD_MMA_COLUMNS = 16, QD_MMA_ACC = 8, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 2, QD_MMA_NEXT_PAIR = 2, QD_MMA_RUN = 8, QD_MMA_RUNS = 1 };
enum { QD_MMA_FLUSHES_F16 = 0 };
typedef qd_f32x8 qd_mma_acc;
typedef qd_u32x8 qd_mma_operand; // 16 consecutive k, the same in both parts
typedef qd_f32x8 qd_mma_run;
typedef _Float16 qd_f16x16 __attribute__((ext_vector_type(16)));

// ---- places of elements

QD_INLINE uint32_t qd_mma_part(void) {
    return qd_lane() / QD_MMA_COLUMNS;
}
QD_INLINE uint32_t qd_mma_line(void) {
    return qd_lane() % QD_MMA_COLUMNS;
}
QD_INLINE uint32_t qd_mma_row(uint32_t part, uint32_t e) {
    return 2 * e + part;
}
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
    return i / 8 * 16 + i % 4 * 4 + i / 4 % 2;
}
QD_INLINE uint32_t qd_mma_turn(uint32_t row) {
    return row; // lanes that read at once read a piece of eight rows
}

// ---- products

#define QD_MMA_READ(c, piece)                                                                      \
    __builtin_shufflevector(piece(2 * (c)), piece(2 * (c) + 1), 0, 1, 2, 3, 4, 5, 6, 7)
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i) {
    return 2 * c + i;
}

QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand y[QD_MMA_OWN],
                            qd_mma_acc d) {
    return is_f16 ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(
                        __builtin_bit_cast(qd_f16x16, x), __builtin_bit_cast(qd_f16x16, y[0]), d)
                  : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(
                        __builtin_bit_cast(qd_i16x16, x), __builtin_bit_cast(qd_i16x16, y[0]), d);
}

// ---- results

QD_INLINE uint32_t qd_mma_other(uint32_t v, uint32_t step) {
    (void)step;
    return qd_other_half(v);
}
QD_INLINE qd_mma_acc qd_mma_spread(const float factor[QD_MMA_OWN]) {
    return factor[0];
}
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc d) {
    return __builtin_shufflevector(d, d, 4, 5, 6, 7, 0, 1, 2, 3);
}
QD_INLINE qd_mma_operand qd_mma_from_results(const uint32_t packed[4]) {
    const bool odd = qd_mma_part();
    qd_mma_operand operand;
    QD_UNROLL for (int i = 0; i < 4; i++) {
        const uint32_t other = qd_mma_other(packed[i], 1);
        operand[i] = odd ? other : packed[i];
        operand[4 + i] = odd ? packed[i] : other;
    }
    return operand;
}

QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc d, uint32_t own, uint32_t r) {
    const bool upper = qd_mma_part();
    qd_mma_run run;
    (void)own;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const float low = d[4 * r + i], high = d[QD_MMA_ACC / 2 + 4 * r + i];
        const float other = qd_as_f32(qd_mma_other(qd_as_u32(upper ? low : high), 1));
        run[2 * i] = upper ? other : low;
        run[2 * i + 1] = upper ? high : other;
    }
    return run;
}
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v) {
    qd_store8(dtype, p, v);
}

// ---- 16 x 16: the same instruction

enum { QD_MMA16_RUN = 16, QD_MMA16_K = 16, QD_MMA16_ACC = 8, QD_MMA16_OWN = 1 };
typedef qd_mma_acc qd_mma16_acc;
typedef qd_mma_operand qd_mma16_operand;

QD_INLINE uint32_t qd_mma16_k(uint32_t) {
    return 0;
}
QD_INLINE uint32_t qd_mma16_row(uint32_t lane, uint32_t e) {
    return qd_mma_row(lane / 16, e);
}
/** Odd rows lie in the other half of the wave: the lower half gets the other row of element e, the
 *  upper one that of element e + 1. */
#define QD_MMA16_EXCHANGES
QD_INLINE qd_f32x2 qd_mma16_pair(qd_mma16_acc d, uint32_t e) {
    const bool is_upper = qd_lane() >= 16;
    const float other = qd_as_f32(qd_other_half(qd_as_u32(is_upper ? d[e] : d[e + 1])));
    return is_upper ? (qd_f32x2){other, d[e + 1]} : (qd_f32x2){d[e], other};
}
QD_INLINE uint32_t qd_mma16_pair_of(uint32_t lane, uint32_t e) {
    return e + lane / 16;
}
QD_INLINE qd_mma16_acc qd_mma16(bool is_f16, qd_mma16_operand x, qd_mma16_operand y,
                                qd_mma16_acc d) {
    return qd_mma(is_f16, x, &y, d);
}

#endif
