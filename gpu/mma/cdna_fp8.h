// SPDX-License-Identifier: Apache-2.0
// Products of FP8 over 128 k, for kernels that place each instruction (gfx942, gfx950).
//
// A product runs in steps, and a step issues one instruction or none. Between groups of k the sum
// is rounded to f32; kernels that follow this file have equal groups, and so equal bits, whether
// their tiles are 32 or 16 wide. Lines lie in pieces of 16 bytes, 0..7.
//
//   target  32 x 32, eight steps              16 x 16, four steps              group
//   gfx942  32x32x16_fp8_fp8, at each         16x16x32_fp8_fp8, at each        see qd_mma16_k_fp8
//   gfx950  32x32x64_f8f6f4, at steps 0, 4    16x16x128_f8f6f4, at step 0      32 k
//
// f8f6f4 multiplies FP8 in half the time of the others. Its operand is two runs of 16 bytes a lane:
// the first runs of all lanes have the first half of its k, the second runs the second half. So
// both targets take the same pieces for 32 x 32: lane l has pieces 2 j + l / 32 of line l % 32. For
// 16 x 16 the lane's operand is two registers of 16 bytes: on gfx950 pieces l / 16 and 4 + l / 16,
// on gfx942 of each half the runs of eight that begin at qd_mma16_k_fp8 and 32 k farther. Sources:
// AMD's matrix instruction calculator, LLVM; checked by the simulator's matrix tests. Nothing is
// published on gfx950's groups.
#ifndef QD_MMA_CDNA_FP8_H
#define QD_MMA_CDNA_FP8_H

#include "../mma.h"

#if defined(__GFX9__)
#if defined(__gfx950__)
enum { QD_MMA_IS_F8F6F4 = 1 };
typedef int qd_mma_f8f6f4 __attribute__((ext_vector_type(8)));

QD_INLINE qd_mma_f8f6f4 qd_mma_join(qd_u32x4 low, qd_u32x4 high) {
    return __builtin_bit_cast(qd_mma_f8f6f4,
                              __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7));
}
#else
enum { QD_MMA_IS_F8F6F4 = 0 };
#endif

/** Runs a step, 0..7, of d[32, 32] + x[32, 128] y[32, 128]^T, from FP8 operands of the target's own
 *  kind. Element e of d is
 *
 *    d[8 (e / 4) + 4 (lane / 32) + e % 4, lane % 32] */
QD_INLINE qd_f32x16 qd_mma32_fp8(const qd_u32x4 x[4], const qd_u32x4 y[4], int step, qd_f32x16 d) {
    const int j = step / 2;
#if defined(__gfx950__)
    if (step % 4 != 0)
        return d;
    return __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(
        qd_mma_join(x[j], x[j + 1]), qd_mma_join(y[j], y[j + 1]), d, 0, 0, 0, 0, 0, 0);
#else
    const qd_i64x2 xs = __builtin_bit_cast(qd_i64x2, x[j]), ys = __builtin_bit_cast(qd_i64x2, y[j]);
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(step % 2 ? xs.y : xs.x,
                                                      step % 2 ? ys.y : ys.x, d, 0, 0, 0);
#endif
}

/** Runs a step, 0..3, of d[16, 16] + x[16, 128] y[16, 128]^T: the lane's operands are its low and
 *  its high 16 bytes. */
QD_INLINE qd_f32x4 qd_mma16_fp8_step(qd_u32x4 x_low, qd_u32x4 x_high, qd_u32x4 y_low,
                                     qd_u32x4 y_high, int step, qd_f32x4 d) {
#if defined(__gfx950__)
    if (step != 0)
        return d;
    return __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(
        qd_mma_join(x_low, x_high), qd_mma_join(y_low, y_high), d, 0, 0, 0, 0, 0, 0);
#else
    const qd_i64x2 x = __builtin_bit_cast(qd_i64x2, step < 2 ? x_low : x_high);
    const qd_i64x2 y = __builtin_bit_cast(qd_i64x2, step < 2 ? y_low : y_high);
    return qd_mma16_fp8(step % 2 ? x.y : x.x, step % 2 ? y.y : y.x, d);
#endif
}

#if defined(__gfx950__)
// An operand that is read from a line in one go, for kernels of any target that use qd_mma16.
#define QD_MMA16_K_LONG 128
typedef struct qd_mma16_long {
    qd_u32x4 low, high;
} qd_mma16_long;

QD_INLINE uint32_t qd_mma16_k_long(uint32_t lane) {
    return lane / 16 * 16;
}
/** Returns the lane's operand. Its first k is at `at`, a multiple of eight. */
QD_INLINE qd_mma16_long qd_mma16_read_long(const QD_LDS uint8_t *at, uint32_t) {
    typedef qd_u32x4 unaligned4 __attribute__((aligned(8)));
    return (qd_mma16_long){*(const QD_LDS unaligned4 *)at, *(const QD_LDS unaligned4 *)(at + 64)};
}
QD_INLINE qd_f32x4 qd_mma16_fp8_long(qd_mma16_long x, qd_mma16_long y, qd_f32x4 d) {
    return qd_mma16_fp8_step(x.low, x.high, y.low, y.high, 0, d);
}
#endif

#endif

#endif
