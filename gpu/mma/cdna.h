// SPDX-License-Identifier: Apache-2.0
// CDNA's matrix cores (MFMA): implements gpu/mma.h for gfx90a, gfx942 and gfx950.
//
// An instruction takes half of a lane's 16 bytes, so it is issued twice; x and y are cut alike, so
// the order of k does not matter.
#ifndef QD_MMA_CDNA_H
#define QD_MMA_CDNA_H

#include "../elements.h"
#include "../fp8.h"

enum { QD_MMA_ROWS = 32, QD_MMA_COLUMNS = 32, QD_MMA_ACC = 16, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 1, QD_MMA_NEXT_PAIR = 2, QD_MMA_RUN = 8, QD_MMA_RUNS = 2 };
#if defined(__gfx90a__)
enum { QD_MMA_FLUSHES_F16 = 1 }; // its cores take f16's subnormals for zeros
#else
enum { QD_MMA_FLUSHES_F16 = 0 };
#endif
typedef qd_f32x16 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand; // 8 of 16 consecutive k: those of the lane's part
typedef qd_f32x8 qd_mma_run;

// ---- places of elements

QD_INLINE uint32_t qd_mma_part(void) {
    return qd_lane() / QD_MMA_COLUMNS;
}
QD_INLINE uint32_t qd_mma_line(void) {
    return qd_lane() % QD_MMA_COLUMNS;
}
QD_INLINE uint32_t qd_mma_row(uint32_t part, uint32_t e) {
    return e / 4 * 8 + part * 4 + e % 4;
}
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
    return i / 8 * 16 + i / 4 % 2 * 4 + i / 2 % 2 * 8 + i % 2 * 2;
}
QD_INLINE uint32_t qd_mma_turn(uint32_t row) {
    return row; // lanes that read at once read a piece of eight rows
}

// ---- products

#define QD_MMA_READ(c, piece) piece(2 * (c) + qd_mma_part())
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i) {
    return 2 * c + qd_mma_part() + i;
}

QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand y[QD_MMA_OWN],
                            qd_mma_acc d) {
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y[0]);
        d = __builtin_amdgcn_mfma_f32_32x32x8f16(a.lo, b.lo, d, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_32x32x8f16(a.hi, b.hi, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y[0]);
    d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.lo, b.lo, d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.hi, b.hi, d, 0, 0, 0);
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
    return __builtin_shufflevector(d, d, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3);
}
QD_INLINE qd_mma_operand qd_mma_from_results(const uint32_t packed[4]) {
    return (qd_mma_operand){packed[0], packed[1], packed[2], packed[3]};
}

QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc d, uint32_t own, uint32_t r) {
    const bool upper = qd_mma_part();
    qd_mma_run run;
    (void)own;
    QD_UNROLL for (uint32_t i = 0; i < 4; i++) {
        const float low = d[4 * r + i], high = d[QD_MMA_ACC / 2 + 4 * r + i];
        const float other = qd_as_f32(qd_mma_other(qd_as_u32(upper ? low : high), 1));
        run[i] = upper ? other : low;
        run[4 + i] = upper ? high : other;
    }
    return run;
}
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v) {
    qd_store8(dtype, p, v);
}

// ---- 16 x 16

enum { QD_MMA16_RUN = 8, QD_MMA16_K = 32, QD_MMA16_ACC = 4, QD_MMA16_OWN = 1 };
typedef qd_f32x4 qd_mma16_acc;
typedef qd_u32x4 qd_mma16_operand;
typedef int64_t qd_mma16_codes;

QD_INLINE uint32_t qd_mma16_k(uint32_t lane) {
    return lane / 16 % 4 * QD_MMA16_RUN;
}
/** Returns the first k of the lane's FP8 operand. The instruction rounds between its first and its
 *  second 16 of k, and lanes of the lower half hold the first 16. With these places the two halves
 *  are those of two steps of qd_mma32_fp8 (cdna_fp8.h) on gfx942, so that sums have equal bits.
 *  Source: MMA-Sim, arXiv:2511.10909, for gfx942; nothing is published for gfx950. */
QD_INLINE uint32_t qd_mma16_k_fp8(uint32_t lane) {
    return lane / 16 % 2 * 16 + lane / 32 * 8;
}
QD_INLINE uint32_t qd_mma16_row(uint32_t lane, uint32_t e) {
    return lane / 16 * QD_MMA16_ACC + e;
}

QD_INLINE qd_mma16_acc qd_mma16(bool is_f16, qd_mma16_operand x, qd_mma16_operand y,
                                qd_mma16_acc d) {
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y);
        d = __builtin_amdgcn_mfma_f32_16x16x16f16(a.lo, b.lo, d, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_16x16x16f16(a.hi, b.hi, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y);
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.lo, b.lo, d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.hi, b.hi, d, 0, 0, 0);
}

#if QD_HAS_FP8_FNUZ || QD_HAS_FP8_OCP
QD_INLINE qd_mma16_acc qd_mma16_fp8(qd_mma16_codes x, qd_mma16_codes y, qd_mma16_acc d) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, d, 0, 0, 0);
}
#endif

#endif
