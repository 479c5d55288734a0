// SPDX-License-Identifier: Apache-2.0
// Matrix cores: one interface, and one file for each engine that implements it.
//
// A product is d += x y^T, summed in f32. A wave computes d[rows, columns] from x[rows, k] and
// y[columns, k]. Lanes own columns of d: a lane has all rows of its columns or, if the wave has
// several parts, its part of these rows. A value that belongs to a column (a scale, a maximum, a
// sum) is therefore a scalar of the lane. Operands come from memory or LDS as lines, which are rows
// of x or y with k contiguous.
//
//   file     instruction                       as             lanes  d        k   a lane's elements
//   cdna.h   mfma 32x32x8 f16, bf16, twice     qd_mma         64     32 x 32  16  16
//            mfma 16x16x16 f16, bf16, twice    qd_mma16       64     16 x 16  32  4
//            mfma 16x16x32 fp8, not on gfx90a  qd_mma16_fp8   64     16 x 16  32  4
//   cdna_fp8.h, FP8 over 128 k, in steps       qd_mma32_fp8   64     32 x 32  128 16
//   rdna3.h  wmma 16x16x16 f16, bf16           qd_mma         32     16 x 16  16  8
//                                              qd_mma16
//   rdna4.h  wmma 16x16x16 f16, bf16           qd_mma         32     16 x 16  16  8
//                                              qd_mma16
//            wmma 16x16x16 fp8                 qd_mma16_fp8   32     16 x 16  16  8
//   sm80.h   mma m16n8k16 f16, bf16, twice     qd_mma         32     8 x 16   32  4
//            the same, both halves of 16 rows  qd_mma16       32     16 x 16  16  8
//
// qd_mma     every engine's tile for 16-bit kinds, for attention: its results can be the next
//            product's y. It is QD_MMA_ROWS x QD_MMA_COLUMNS over QD_MMA_K. A lane owns QD_MMA_OWN
//            columns; each of the wave's QD_MMA_PARTS parts holds other rows of them:
//              file     column of the lane       row of element e, in part p  part p has of 16 k
//              cdna.h   lane % 32                8 (e / 4) + 4 p + e % 4      8 from 8 p on
//              rdna3.h  lane % 16                2 e + p                      all, in both parts
//              rdna4.h  lane % 16                8 p + e                      8 from 8 p on
//              sm80.h   lane / 4 + 8 (e / 2)     2 p + e % 2                  of 32: 8 from 8 p on
// qd_mma16   A square tile, for GEMM of any shape: f16, bf16 and, with QD_HAS_FP8_*, FP8 of the
//            target's own kind. A lane owns QD_MMA16_OWN columns, qd_mma16_column(), and of each
//            the rows qd_mma16_row(); its operand is QD_MMA16_RUN consecutive k, from qd_mma16_k()
//            on, of the lines that have its columns' numbers.
// qd_mma32   CDNA's large tile of FP8, for GEMM with large tiles: it takes half the instructions.
//            Kernels with scales of K-blocks include its file themselves.
//
// An engine whose operands are descriptors of LDS, and whose results several waves share, such as
// Hopper's, would use these names for the places of results, and names of its own for starting
// products and waiting for them. Sources: AMD's matrix instruction calculator, checked by the
// simulator's matrix tests; PTX ISA, mma.m16n8k16.
#ifndef QD_MMA_H
#define QD_MMA_H

#include "gpu.h"

#if defined(__GFX9__)
#include "mma/cdna.h"
#elif defined(__GFX11__)
#include "mma/rdna3.h"
#elif defined(__GFX12__)
#include "mma/rdna4.h"
#elif defined(__NVPTX__)
#include "mma/sm80.h"
#else
#error "no matrix core that this header knows"
#endif

// Every engine defines these constants, these types, and the functions that are declared below:
//   QD_MMA_ROWS, _COLUMNS, _K    the tile; a lane reads 16-byte pieces of each QD_MMA_K of a line
//   QD_MMA_ACC, _OWN, _PARTS     a lane's elements and columns; parts of the wave
//   QD_MMA_PAIR, _NEXT_PAIR      see qd_mma_pair; distance of an odd pair's k from the pair before
//   QD_MMA_RUN, _RUNS            see qd_mma_get_run
//   QD_MMA_FLUSHES_F16           whether f16's subnormals count as zeros: where TILE_F16 of
//                                runtime/device/targets.def is not
//   qd_mma_acc                   a lane's elements of d
//   qd_mma_operand               a lane's share of QD_MMA_K elements of a line
//   qd_mma_run                   see qd_mma_get_run

// ---- places of elements

/** Returns the part of the wave that the lane is in. */
QD_INLINE uint32_t qd_mma_part(void);

/** Returns the line of x, of QD_MMA_ROWS, that the lane reads, which is also the first line of y
 *  that the lane reads. */
QD_INLINE uint32_t qd_mma_line(void);

/** Returns the row of a lane's element e of d. */
QD_INLINE uint32_t qd_mma_row(uint32_t part, uint32_t e);

/** Returns the first k of pair i of a line of x. If results are the next product's y, that
 *  product's k runs along rows of d. x then has its k in pairs, in an order by which results need
 *  not move: pair i, 4 bytes, holds k qd_mma_pair(i) and qd_mma_pair(i) + QD_MMA_PAIR. */
QD_INLINE uint32_t qd_mma_pair(uint32_t i);

/** Returns the number with which the places of 16-byte pieces in a row of LDS are exchanged, so
 *  that lanes that read at once touch all banks. It depends on the row's number, in addition to
 *  what the row's group of eight adds. */
QD_INLINE uint32_t qd_mma_turn(uint32_t row);

// ---- products

// QD_MMA_READ(c, piece): the lane's operand for elements QD_MMA_K c on of a line; piece(i) reads
// piece i of the line.

/** Returns the number of the i-th piece that the lane's operand c is made of. */
QD_INLINE uint32_t qd_mma_piece(uint32_t c, uint32_t i);

/** Returns d + x y^T over QD_MMA_K elements. y has a line for each column that the lane owns.
 *  is_f16 is a constant; false means bf16. */
QD_INLINE qd_mma_acc qd_mma(bool is_f16, qd_mma_operand x, const qd_mma_operand y[QD_MMA_OWN],
                            qd_mma_acc d);

// ---- results

/** Returns v of the lane that owns this lane's columns in another part. Steps 1, 2, 4 … below
 *  QD_MMA_PARTS reach all parts. */
QD_INLINE uint32_t qd_mma_other(uint32_t v, uint32_t step);

/** Returns the factors of columns, spread to all elements of each column. */
QD_INLINE qd_mma_acc qd_mma_spread(const float factor[QD_MMA_OWN]);

/** Returns the elements rotated by four places. */
QD_INLINE qd_mma_acc qd_mma_turn4(qd_mma_acc d);

/** Returns four pairs of a column's results, 16 bits each and in the order of its elements, as y of
 *  the next product. All parts together give QD_MMA_K. */
QD_INLINE qd_mma_operand qd_mma_from_results(const uint32_t packed[4]);

/** Returns run r of the lane's column `own`. To store a tile, a lane stores for each of its columns
 *  QD_MMA_RUNS runs of QD_MMA_RUN consecutive rows; run r begins at row QD_MMA_RUN (QD_MMA_RUNS
 *  part + r). The parts exchange elements, so all lanes take part. */
QD_INLINE qd_mma_run qd_mma_get_run(qd_mma_acc d, uint32_t own, uint32_t r);

/** Stores a run at a multiple of 16 bytes, or on NVIDIA at a multiple of the run's size. */
QD_INLINE void qd_mma_store_run(int dtype, void *p, qd_mma_run v);

// ---- 16 x 16

/** Returns the lane's column `own`, which is also the number of a line that the lane reads. */
QD_INLINE uint32_t qd_mma16_column(uint32_t lane, uint32_t own);

/** Returns the first k of the lane's 16-bit operand; qd_mma16_k_fp8 does so for FP8. */
QD_INLINE uint32_t qd_mma16_k(uint32_t lane);

/** Returns the row of a lane's element e. The elements of a column are neighbours. */
QD_INLINE uint32_t qd_mma16_row(uint32_t lane, uint32_t e);

/** Returns rows 2 j and 2 j + 1 of a lane's column, where j is qd_mma16_pair_of(lane, e) and e is
 *  even. The elements e and e + 1 of all lanes make pairs e, one a lane; all lanes take part. */
QD_INLINE qd_f32x2 qd_mma16_pair(qd_mma16_acc d, uint32_t e);
QD_INLINE uint32_t qd_mma16_pair_of(uint32_t lane, uint32_t e);

/** Returns the lane's 16-bit operand. Its first line is at `at`, and lines are row_bytes apart;
 *  qd_mma16_read_fp8 does so for FP8. */
QD_INLINE qd_mma16_operand qd_mma16_read(const QD_LDS uint8_t *at, uint32_t row_bytes);

/** Returns the factors of columns, spread to all elements of each column. */
QD_INLINE qd_mma16_acc qd_mma16_spread(const float factor[QD_MMA16_OWN]);

/** Returns d + x y^T over QD_MMA16_K elements of f16, or else of bf16; is_f16 is a constant.
 *  qd_mma16_fp8 does so for FP8. */
QD_INLINE qd_mma16_acc qd_mma16(bool is_f16, qd_mma16_operand x, qd_mma16_operand y,
                                qd_mma16_acc d);

#if defined(__AMDGPU__) // every engine of AMD's has one column and one line a lane
QD_INLINE uint32_t qd_mma16_column(uint32_t lane, uint32_t) {
    return lane % 16;
}
QD_INLINE qd_mma16_operand qd_mma16_read(const QD_LDS uint8_t *at, uint32_t) {
    return *(const QD_LDS qd_mma16_operand *)at;
}
QD_INLINE qd_mma16_acc qd_mma16_spread(const float factor[QD_MMA16_OWN]) {
    return (qd_mma16_acc)factor[0];
}
#if QD_HAS_FP8_FNUZ || QD_HAS_FP8_OCP
QD_INLINE qd_mma16_codes qd_mma16_read_fp8(const QD_LDS uint8_t *at, uint32_t) {
    return *(const QD_LDS qd_mma16_codes *)at;
}
#endif
#endif

#if !defined(QD_MMA16_EXCHANGES) // a pair's rows are neighbouring elements of a lane
QD_INLINE qd_f32x2 qd_mma16_pair(qd_mma16_acc d, uint32_t e) {
    return (qd_f32x2){d[e], d[e + 1]};
}
QD_INLINE uint32_t qd_mma16_pair_of(uint32_t lane, uint32_t e) {
    return qd_mma16_row(lane, e) / 2;
}
#endif

// ---- functions that follow from these, for every engine

/** Returns the number, of QD_MMA_COLUMNS, of the lane's column `own`. */
QD_INLINE uint32_t qd_mma_column(uint32_t own) {
    return own * 8 + qd_mma_line();
}

/** Returns which of the lane's columns element e belongs to. */
QD_INLINE uint32_t qd_mma_own(uint32_t e) {
    return e / (QD_MMA_ACC / QD_MMA_OWN);
}

/** Returns the largest of a column's values over all parts. */
QD_INLINE float qd_mma_max(float v) {
    QD_UNROLL for (uint32_t step = 1; step < QD_MMA_PARTS; step *= 2)
        v = __builtin_fmaxf(v, qd_as_f32(qd_mma_other(qd_as_u32(v), step)));
    return v;
}
/** Returns the sum of a column's values over all parts. */
QD_INLINE float qd_mma_sum(float v) {
    QD_UNROLL for (uint32_t step = 1; step < QD_MMA_PARTS; step *= 2)
        v += qd_as_f32(qd_mma_other(qd_as_u32(v), step));
    return v;
}

#endif
