// SPDX-License-Identifier: Apache-2.0
// RDNA4's matrix instructions (WMMA of gfx12): implements gpu/mma.h.
#ifndef QD_MMA_RDNA4_H
#define QD_MMA_RDNA4_H

#include "../elements.h"

enum { QD_MMA_ROWS = 16, QD_MMA_COLUMNS = 16, QD_MMA_ACC = 8, QD_MMA_OWN = 1, QD_MMA_PARTS = 2 };
enum { QD_MMA_K = 16, QD_MMA_PAIR = 1, QD_MMA_NEXT_PAIR = 2, QD_MMA_RUN = 8, QD_MMA_RUNS = 1 };
enum { QD_MMA_FLUSHES_F16 = 0 };
typedef qd_f32x8 qd_mma_acc;
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
    return part * QD_MMA_ACC + e;
}
QD_INLINE uint32_t qd_mma_pair(uint32_t i) {
    return 2 * i;
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
    return is_f16 ? __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(
                        __builtin_bit_cast(qd_f16x8, x), __builtin_bit_cast(qd_f16x8, y[0]), d)
                  : __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(
                        __builtin_bit_cast(qd_i16x8, x), __builtin_bit_cast(qd_i16x8, y[0]), d);
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
    return (qd_mma_operand){packed[0], packed[1], packed[2], packed[3]};
}
QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc d, uint32_t own, uint32_t r) {
    (void)own, (void)r;
    return d;
}
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v) {
    qd_store8(dtype, p, v);
}

// ---- 16 x 16: the same instruction, and that of FP8

enum { QD_MMA16_RUN = 8, QD_MMA16_K = 16, QD_MMA16_ACC = 8, QD_MMA16_OWN = 1 };
typedef qd_mma_acc qd_mma16_acc;
typedef qd_mma_operand qd_mma16_operand;
typedef int64_t qd_mma16_codes;

QD_INLINE uint32_t qd_mma16_k(uint32_t lane) {
    return lane / 16 % 2 * QD_MMA16_RUN;
}
QD_INLINE uint32_t qd_mma16_k_fp8(uint32_t lane) {
    return qd_mma16_k(lane);
}
QD_INLINE uint32_t qd_mma16_row(uint32_t lane, uint32_t e) {
    return qd_mma_row(lane / 16, e);
}
QD_INLINE qd_mma16_acc qd_mma16(bool is_f16, qd_mma16_operand x, qd_mma16_operand y,
                                qd_mma16_acc d) {
    return qd_mma(is_f16, x, &y, d);
}
QD_INLINE qd_mma16_acc qd_mma16_fp8(qd_mma16_codes x, qd_mma16_codes y, qd_mma16_acc d) {
    typedef int i32x2 __attribute__((ext_vector_type(2)));
    return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(__builtin_bit_cast(i32x2, x),
                                                                __builtin_bit_cast(i32x2, y), d);
}

#endif
