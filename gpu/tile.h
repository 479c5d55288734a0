// SPDX-License-Identifier: Apache-2.0
// A wave's matrix-core tile, with one interface for every target: d[16, 16] += x[16, K] y[16, K]^T.
//
// Operands lie in LDS as rows with k contiguous. A fragment is what one lane hands to the matrix
// core: QD_TILE_RUN consecutive k of row lane % 16, beginning at QD_TILE_RUN * group. `group` is
// lane / 16 on CDNA and RDNA4, and 0 on RDNA3, which takes the operand twice. CDNA's bf16
// instruction takes half a fragment, so it is issued twice; x and y are cut alike, so the order of
// k does not matter.
//
//   target            instruction (K)                       lanes   QD_TILE_RUN  QD_TILE_K  sums
//   gfx90a            mfma 16x16x16 bf16, twice             64      8            32         4
//   gfx942, gfx950    as gfx90a; mfma 16x16x32 fp8          64      8            32         4
//   gfx11             wmma 16x16x16 bf16                    32      16           16         8
//   gfx12             wmma 16x16x16 bf16, fp8               32      8            16         8
//
// The last column counts a lane's accumulators; element e of these is d[qd_tile_row(e),
// lane % 16].
// Source: AMD's matrix instruction calculator; checked by the simulator's matrix tests.
#ifndef QD_TILE_H
#define QD_TILE_H

#include "fp8.h"
#include "gpu.h"

#if defined(__GFX9__)
enum { QD_TILE_RUN = 8, QD_TILE_GROUPS = 4, QD_TILE_ACC = 4 };
typedef qd_f32x4 qd_tile_acc;
typedef qd_u32x4 qd_tile_bf16;
#elif defined(__GFX11__)
enum { QD_TILE_RUN = 16, QD_TILE_GROUPS = 1, QD_TILE_ACC = 8 };
typedef qd_f32x8 qd_tile_acc;
typedef qd_u32x8 qd_tile_bf16;
#elif defined(__GFX12__)
enum { QD_TILE_RUN = 8, QD_TILE_GROUPS = 2, QD_TILE_ACC = 8 };
typedef qd_f32x8 qd_tile_acc;
typedef qd_u32x4 qd_tile_bf16;
#else
#error "no matrix core that this header knows"
#endif
typedef int64_t qd_tile_fp8; // QD_TILE_RUN bytes; only where there is an FP8 matrix core
enum { QD_TILE_K = QD_TILE_RUN * QD_TILE_GROUPS };

/** Returns the first k of this lane's bf16 fragment. */
QD_INLINE uint32_t qd_tile_k(uint32_t lane) {
    return lane / 16 % QD_TILE_GROUPS * QD_TILE_RUN;
}

/** Returns the first k of this lane's FP8 fragment. CDNA's instruction rounds between its first and
 *  its second 16 of k, and lanes of the lower half hold the first 16. With these places the two
 *  halves are those of qd_tile32_mma_fp8's two products, so that sums have equal bits. Source:
 *  MMA-Sim, arXiv:2511.10909, for gfx942; nothing is published for gfx950. */
QD_INLINE uint32_t qd_tile_k_fp8(uint32_t lane) {
#if defined(__GFX9__)
    return lane / 16 % 2 * 16 + lane / 32 * 8;
#else
    return qd_tile_k(lane);
#endif
}

/** Returns the row of d that accumulator element e belongs to. */
QD_INLINE uint32_t qd_tile_row(uint32_t lane, uint32_t e) {
#if defined(__GFX11__)
    return 2 * e + lane / 16;
#else
    return lane / 16 * QD_TILE_ACC + e;
#endif
}

/** Returns d + x y^T, from bf16 operands, summed in f32. */
QD_INLINE qd_tile_acc qd_tile_mma_bf16(qd_tile_bf16 x, qd_tile_bf16 y, qd_tile_acc d) {
#if defined(__GFX9__)
    qd_i16x8 xs = __builtin_bit_cast(qd_i16x8, x), ys = __builtin_bit_cast(qd_i16x8, y);
    d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(xs.lo, ys.lo, d, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(xs.hi, ys.hi, d, 0, 0, 0);
#elif defined(__GFX11__)
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(__builtin_bit_cast(qd_i16x16, x),
                                                       __builtin_bit_cast(qd_i16x16, y), d);
#else
    return __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(__builtin_bit_cast(qd_i16x8, x),
                                                             __builtin_bit_cast(qd_i16x8, y), d);
#endif
}

#if defined(QD_HAS_FP8_FNUZ) || defined(QD_HAS_FP8_OCP)
/** Returns d + x y^T, from FP8 operands of the target's own kind, summed in f32. */
QD_INLINE qd_tile_acc qd_tile_mma_fp8(qd_tile_fp8 x, qd_tile_fp8 y, qd_tile_acc d) {
#if defined(__GFX9__)
    return __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(x, y, d, 0, 0, 0);
#else
    typedef int i32x2 __attribute__((ext_vector_type(2)));
    return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(__builtin_bit_cast(i32x2, x),
                                                                __builtin_bit_cast(i32x2, y), d);
#endif
}
#endif

#if defined(__gfx942__) || defined(__gfx950__)
/** Returns d[32, 32] + x[32, 16] y[32, 16]^T, from FP8 operands of the target's own kind, summed in
 *  f32. This is CDNA's larger tile, which takes half the instructions.
 *
 *  A lane of x or y holds 16 consecutive k of row lane % 32; two of these products use up all 16,
 *  and `half` says which eight. Element e of d is
 *
 *    d[8 (e / 4) + 4 (lane / 32) + e % 4, lane % 32] */
QD_INLINE qd_f32x16 qd_tile32_mma_fp8(qd_u32x4 x, qd_u32x4 y, int half, qd_f32x16 d) {
    qd_i64x2 xs = __builtin_bit_cast(qd_i64x2, x), ys = __builtin_bit_cast(qd_i64x2, y);
    return __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(half ? xs.y : xs.x, half ? ys.y : ys.x, d, 0,
                                                      0, 0);
}
#endif

#endif
