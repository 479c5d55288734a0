// SPDX-License-Identifier: Apache-2.0
// CDNA's small tile of 16-bit kinds, 16 x 16 x 32, as qd_mma of gpu/mma.h, which it stands in for:
// products of at most 16 columns would waste half the large tile's registers and half its time.
// Include it before anything that includes mma.h. What is there for GEMM alone is not here.
//
//   column of the lane   row of element e, in part p   part p has of 32 k
//   lane % 16            4 p + e                       8 from 8 p on
//
// An instruction takes half of a lane's 16 bytes, so it is issued twice; x and y are cut alike, so
// the order of k does not matter. Two tiles' results are the next product's y.
#if defined(QD_MMA_H)
#error "mma.h is here already"
#endif
#define QD_MMA_H

#include "../elements.h"
#include "../fp8.h"

#if defined(__gfx90a__)
enum { QD_MMA_FLUSHES_F16 = 1 }; // its cores take f16's subnormals for zeros
#else
enum { QD_MMA_FLUSHES_F16 = 0 };
#endif

enum { QD_MMA_ROWS = 16, QD_MMA_COLUMNS = 16, QD_MMA_ACC = 4, QD_MMA_OWN = 1, QD_MMA_PARTS = 4 };
enum { QD_MMA_K = 32, QD_MMA_PAIR = 1 };
typedef qd_f32x4 qd_mma_acc;
typedef qd_u32x4 qd_mma_operand; // 8 of 32 consecutive k: those of the lane's part

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
    return i / 16 * 32 + i / 2 % 2 * 16 + i / 4 % 4 * 4 + i % 2 * 2;
}

// ---- products

#define QD_MMA_READ(c, piece) piece(4 * (c) + qd_mma_part())
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i) {
    return 4 * c + qd_mma_part() + i;
}

QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand y[QD_MMA_OWN],
                            qd_mma_acc d) {
    if (is_f16) {
        const qd_f16x8 a = __builtin_bit_cast(qd_f16x8, x), b = __builtin_bit_cast(qd_f16x8, y[0]);
        d = __builtin_amdgcn_mfma_f32_16x16x16f16(a.lo, b.lo, d, 0, 0, 0);
        return __builtin_amdgcn_mfma_f32_16x16x16f16(a.hi, b.hi, d, 0, 0, 0);
    }
    const qd_i16x8 a = __builtin_bit_cast(qd_i16x8, x), b = __builtin_bit_cast(qd_i16x8, y[0]);
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.lo, b.lo, d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a.hi, b.hi, d, 0, 0, 0);
}

/** Returns d + x y^T over 16 k: of both, half an operand. */
QD_INLINE qd_mma_acc qd_mma_half(bool is_f16, qd_u32x2 x, qd_u32x2 y, qd_mma_acc d) {
    typedef short i16x4 __attribute__((ext_vector_type(4)));
    typedef _Float16 f16x4 __attribute__((ext_vector_type(4)));
    if (is_f16)
        return __builtin_amdgcn_mfma_f32_16x16x16f16(__builtin_bit_cast(f16x4, x),
                                                     __builtin_bit_cast(f16x4, y), d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(__builtin_bit_cast(i16x4, x),
                                                     __builtin_bit_cast(i16x4, y), d, 0, 0, 0);
}

#if QD_HAS_FP8_FNUZ || QD_HAS_FP8_OCP
/** Returns d + x y^T over 32 k of e4m3 of the target's own kind; a lane has codes where an operand
 *  of 16 bits has elements. */
QD_INLINE qd_mma_acc qd_mma_codes(qd_u32x2 x, qd_u32x2 y, qd_mma_acc d) {
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(__builtin_bit_cast(int64_t, x),
                                                      __builtin_bit_cast(int64_t, y), d, 0, 0, 0);
}
#endif

// ---- results

QD_INLINE uint32_t qd_mma_other(uint32_t v, uint32_t step) {
    enum { SWAP_16 = 0x401F }; // ds_swizzle: lane ^ 16
    return step == 1 ? (uint32_t)__builtin_amdgcn_ds_swizzle((int)v, SWAP_16) : qd_other_half(v);
}
QD_INLINE qd_mma_acc qd_mma_spread(const float factor[QD_MMA_OWN]) {
    return factor[0];
}
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc d) {
    return d;
}
QD_INLINE qd_mma_operand qd_mma_from_results(const uint32_t packed[4]) {
    return (qd_mma_operand){packed[0], packed[1], packed[2], packed[3]};
}

// ---- functions that follow from these, as in mma.h

QD_INLINE uint32_t qd_mma_column(uint32_t own) {
    (void)own;
    return qd_mma_line();
}
QD_INLINE uint32_t qd_mma_own(uint32_t e) {
    (void)e;
    return 0;
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
