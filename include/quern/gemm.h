// SPDX-License-Identifier: Apache-2.0
// Matrix multiplication: f32, f16, bf16, FP8 and i8 in any mix, with scales of any form; dense, in
// batches and grouped.
#ifndef QUERN_GEMM_H
#define QUERN_GEMM_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How the rows of a and d are split among the groups of b. */
typedef enum qn_gemm_grouping {
    QN_GEMM_DENSE = 0,
    QN_GEMM_GROUPED_INDEX = 1,  /**< group_layout [m]: the group of each row, -1 for padding */
    QN_GEMM_GROUPED_ENDS = 2,   /**< group_layout [groups]: where each group's real rows end */
    QN_GEMM_GROUPED_MASKED = 3, /**< group_layout [groups]: real rows of each group's slab */
} qn_gemm_grouping;

/** What acts on a product, after bias. */
typedef enum qn_gemm_activation {
    QN_GEMM_NO_ACTIVATION = 0,
    QN_GEMM_GELU_TANH = 1,    /**< x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
    QN_GEMM_SILU_AND_MUL = 2, /**< silu(x[2j]) x[2j+1], silu(x) = x / (1 + exp(-x)): half as many
                                   columns */
} qn_gemm_activation;

/** Arguments of qn_gemm and its grouped forms; zero-initialise, then set what applies. */
typedef struct qn_gemm_args {
    size_t struct_size;           /**< sizeof(qn_gemm_args) */
    DLTensor *d;                  /**< written */
    const DLTensor *a;            /**< activations */
    const DLTensor *b;            /**< weights, or what qn_gemm_pack made of them */
    const DLTensor *c;            /**< added to the product; null: nothing is */
    const DLTensor *scale_a;      /**< null: 1 */
    const DLTensor *scale_b;      /**< null: 1 */
    const DLTensor *group_layout; /**< i32 on the device; grouped forms only */
    int64_t expected_m;   /**< masked: rows that a group likely has, > 0, only a hint; else 0 */
    int32_t b_is_packed;  /**< 1: b and scale_b come from qn_gemm_pack */
    int32_t m_alignment;  /**< ends: groups start at multiples of this; 0 means 128 */
    int32_t zero_padding; /**< ends: 1 writes zeros to the rows between groups */
    // A struct that ends here, of a caller compiled before there was the rest, is taken as well.
    const DLTensor *bias; /**< null: none */
    const DLTensor *gate; /**< dense only; null: none */
    qn_gemm_activation activation;
    // So is a struct that ends here.
    DLTensor *scale_d;             /**< d of FP8: scales, written */
    const DLTensor *given_scale_d; /**< d of FP8: one scale, read, in place of scale_d */
    float scale_d_eps;             /**< smallest amax of scale_d; 0 means 1e-10 */
} qn_gemm_args;

/** Dense product, and what a layer does next to its result. With K-blocks kb of 128 columns:
 *
 *    p[m,n] = sum_kb scale_a[m,kb] scale_b[n,kb] sum_(k in kb) a[m,k] b[n,k]
 *    d[m,n] = c[m,n] + gate[batch of m,n] activation(p[m,n] + bias[n])
 *
 *  With QN_GEMM_SILU_AND_MUL d has n/2 columns, and so do c and gate. Rows of b alternate: gate row
 *  2j is followed by up row 2j+1, which AITER and FlashInfer call interleaved:
 *
 *    x[m,n] = p[m,n] + bias[n]
 *    d[m,j] = c[m,j] + gate[batch of m,j] silu(x[m,2j]) x[m,2j+1]
 *
 *  d        [m, n]  bf16, f16, f32 or FP8 of any kind, columns contiguous, row stride >= n
 *  a        [m, k]  f32, f16, bf16, FP8 of any kind or i8; either dimension contiguous, the other
 *           dimension's stride at least as long
 *  b        [n, k]  any of these types, whatever a's is; strides as a's. What other libraries call
 *           NT, NN, TN and TT are strides here: in NT, k is contiguous in a and in b
 *  c        [m, n]  d's dtype, not FP8; may be d itself. With a gate it is the residual
 *  bias     [n]  bf16 or f32, contiguous
 *  gate     [n] or [batches, n]  bf16 or f32, columns contiguous; m is a multiple of batches, and
 *           each m / batches rows of d in a row share a row of gate
 *  scale_a  [m or 1, ceil(k/128) or 1]  f32, no stride below 0. 1 stands for all: [m, ceil(k/128)]
 *           scales a's rows by 1 x 128, [m, 1] by row, [1, 1] all of a. Dimensions of 1 at the end
 *           may be left out: [m], [1]
 *  scale_b  [n, ceil(n/128) or 1, ceil(k/128) or 1]  f32, likewise: b by 1 x 128, by 128 x 128, by
 *           row ([n]), or all of it ([1]). Packed: as qn_gemm_pack gave it
 *           Either, unless packed, may be powers of two: e8m0fnu of any of these forms, a byte e of
 *           which stands for 2^(e - 127), and 255 for NaN; or i32 [m, n or ceil(n/128) or 1,
 *           ceil(ceil(k/128) / 4)], any strides, byte j of word i being e of K-block 4 i + j, as
 *           qn_transform_scales and DeepGEMM on SM100 have it
 *  scale_d  [m, ceil(columns of d / 128)]  f32, any strides that keep elements apart: of d's groups
 *           of 128 columns, as qn_quantize_groups computes them from the result in f32. scale_d_eps
 *           is its eps: 1e-30 or more and finite
 *  given_scale_d  [1]  f32: d is quantised as by qn_quantize_static
 *  Batches: d [batches, m, n] makes as many products. a and c have the same first dimension; b,
 *           packed or not, bias, scale_a and scale_b have batches or 1 before the others, where 1
 *           stands for all; scale_d is [batches, m, ...]. Batches lie any stride apart, also 0 in
 *           what is read. gate is null: it has batches of its own, of rows of one d. Batches that
 *           share b, and whose rows go on from one to the next in every tensor, are one product of
 *           all rows.
 *  Types:   products of values of 8 and 16 bits are exact; those of f32 are on the CPU rounded to
 *           f32, if at all. Each K-block's partial sum is f32, is scaled in f32 and added to an f32
 *           sum; of i8 with i8 the partial sum is exact. bias, activation, gate and c act on that
 *           sum in this order and in f32, and the result is rounded once; for FP8 it is scaled in
 *           f32 and rounded, to qn_quantize_groups' bits. Activations have the relative errors of
 *           qn_gelu_tanh_and_mul and qn_silu_and_mul.
 *           GPUs take an f32, and an f16 beside f32 or bf16, as the sum of two bf16, high and low,
 *           and a product as high high + high low + low high. Of a product no more than 3 2^-16 is
 *           lost: 2^-16 for each operand of f32, and 2^-16 if both have low parts, which only f32
 *           and f16 have. gfx90a takes f16 beside f16 in this way, too, as its matrix cores take
 *           f16's subnormals for zeros. An f32 or bf16 below 2^-126 may count as 0, but 2^-127 as
 *           a scale does not.
 *  Align:   element size; 16-byte aligned rows allow the faster kernels, which take e4m3 with f32
 *           scales of 1 x 128 of a and 128 x 128 of b, kb contiguous in scale_b, and bf16 without
 *           scales; on gfx942, gfx950, RDNA3 and RDNA4 also f16 without scales, and unpacked e4m3
 *           (e4m3fnuz on gfx942, else e4m3fn) with f32 scales of rows or of all of a and b, or
 *           without. Other types and mixes, like other scales, go to kernels for any shape,
 *           which are several times slower; f32 takes three products in place of one. FP8 is
 *           fastest if scale_a of 1 x 128 has m contiguous. On Hopper, bf16 is fast in any layout
 *           of such rows, but SiLU-and-multiply, as all FP8, with k contiguous in a and b alone;
 *           scale_a's kb stride is best whole 16 bytes. There, bias, gate and c are best aligned to
 *           two elements, the columns of d a multiple of 8, and batches of a gate 64 rows or
 *           multiples; d of e4m3fn is fast with FP8 inputs, its columns a multiple of 128, no gate
 *           and rows of d as a's. d of f16, and in groups bias, GELU and d of e4m3fn, are fast with
 *           SiLU-and-multiply alone. Batches that are not one product are fast there as groups are,
 *           without c, and with strides above 0 unless k is contiguous in a and b.
 *  Edge:    m == 0 or n == 0 is a no-op; k == 0 makes p zero, and all else acts as ever; infinity
 *           acts as arithmetic has it; a NaN stays within its row of a, its column of b or bias (or
 *           the pair of columns that makes one), its column and batch of gate, its element of c;
 *           GELU and SiLU of -infinity are NaN, as the formulas say; any m, n, k.
 *  Overlap: d may be c itself; apart from that, d overlaps no other tensor.
 *  Async:   queued on stream; tensors must stay valid until the stream has passed it.
 *  Errors:  QN_E_INVALID (null, shape, stride, overlap, a value that no enum has),
 *           QN_E_UNSUPPORTED (dtype; dimensions of 2^31 or more on a GPU), QN_E_MEMORY (scratch of
 *           the CPU's threads), QN_E_DEVICE.
 *  Bits:    equal from run to run and for any number of threads. A row's bits depend neither on
 *           the number of other rows nor on their values, in the dense form and in grouped forms
 *           with any number of groups. On Hopper they depend on whether a's and b's rows are
 *           aligned to 16 bytes, of FP8 on all that makes a d of e4m3fn fast, and of batches on all
 *           that makes them fast.
 *  Source:  DeepGEMM's fp8_gemm_nt with recipe (1, 128, 128) or (1, 1, 128), bf16_gemm_nt and
 *           einsum. */
QN_API qn_status qn_gemm(qn_stream *stream, const qn_gemm_args *args);

/** Grouped product in which each row of a belongs to one group: d[r,:] = a[r,:] b[group of r]^T.
 *
 *  d        [m, n]  bf16, f16 or FP8; with QN_GEMM_SILU_AND_MUL [m, n/2]
 *  a        [m, k], scale_a as in qn_gemm
 *  b        [groups, n, k]
 *  scale_b  as in qn_gemm, with a dimension of groups or 1 before the others: [groups] has one
 *           scale for each group, [1] one for all
 *  bias     [groups, n], columns contiguous
 *  scale_d  [m, ceil(columns of d / 128)], of rows that are written
 *  c, gate  null
 *  grouping says what group_layout, i32, holds:
 *           QN_GEMM_GROUPED_INDEX  [m]: the group of each row, or -1. The rows of a group are
 *             contiguous, and each group starts at a multiple of 128
 *           QN_GEMM_GROUPED_ENDS  [groups]: the end of each group's real rows. Group g starts at
 *             end[g-1] rounded up to a multiple of m_alignment
 *  Edge:    groups without rows are skipped. Padding (rows of group -1, and rows between groups)
 *           affects no other row; d's rows there are left alone unless zero_padding, which for FP8
 *           also writes their scales, as of zeros. On the CPU, and on GPUs with QUERN_VALIDATE=1,
 *           errors are: ids outside -1..groups-1, ends that fall or lie outside 0..m, groups that
 *           start elsewhere. On GPUs without QUERN_VALIDATE=1 a wrong layout touches no memory
 *           outside the tensors.
 *  Async:   a GPU reads the layout on the device; the host reads it only with QUERN_VALIDATE=1.
 *  All else as in qn_gemm.
 *  Source:  DeepGEMM's m_grouped_fp8_gemm_nt_contiguous. */
QN_API qn_status qn_gemm_grouped_contiguous(qn_stream *stream, const qn_gemm_args *args,
                                            qn_gemm_grouping grouping);

/** Grouped product in which each group has a slab of m_max rows; the first group_layout[g] rows of
 *  slab g are real.
 *
 *  d        [groups, m_max, n]  bf16, f16 or FP8; with QN_GEMM_SILU_AND_MUL [groups, m_max, n/2];
 *           rows >= group_layout[g] are left untouched
 *  a        [groups, m_max, k]
 *  b        [groups, n, k]
 *  scale_a, scale_b  as in qn_gemm, with a dimension of groups or 1 before the others
 *  bias     [groups, n], columns contiguous
 *  scale_d  [groups, m_max, ceil(columns of d / 128)], of rows that are written
 *  c, gate  null
 *  group_layout  i32 [groups], 0..m_max: other values are errors on the CPU, and on GPUs with
 *           QUERN_VALIDATE=1
 *  All else as in qn_gemm.
 *  Source:  DeepGEMM's m_grouped_fp8_gemm_nt_masked. */
QN_API qn_status qn_gemm_grouped_masked(qn_stream *stream, const qn_gemm_args *args);

/** Tells the shape and dtype of the packed weights that qn_gemm_pack makes of b on this device.
 *
 *  b       [n, k] or [groups, n, k], FP8; only shape and dtype are read
 *  shape   written: groups (1 for a matrix), then n and k, rounded up to the device's tile
 *  dtype   written: the FP8 kind that the device's matrix cores take (e4m3fnuz on gfx942; b's own
 *          elsewhere)
 *  Errors: QN_E_INVALID (null, shape), QN_E_UNSUPPORTED (dtype: bf16 weights need no packing). */
QN_API qn_status qn_gemm_packed_shape(const qn_device *device, const DLTensor *b, int64_t shape[3],
                                      DLDataType *dtype);

/** Lays weights out in the order in which the device's fastest kernel reads them. An element takes
 *  one byte.
 *
 *  packed        as qn_gemm_packed_shape says, contiguous, 16-byte aligned; padding becomes zero
 *  packed_scale  scale_b's shape, f32 contiguous; doubled where e4m3fn becomes e4m3fnuz
 *  b             [n, k] or [groups, n, k], e4m3fn or e4m3fnuz, k contiguous
 *  scale_b       [.., ceil(n/128), ceil(k/128)] f32
 *  Edge:         where e4m3fn becomes e4m3fnuz, elements keep their bits and scales double; -0
 *                becomes 0, and NaN stays NaN.
 *  Overlap:      packed and packed_scale overlap no other tensor.
 *  Async:        queued on stream.
 *  Errors:       QN_E_INVALID (null, shape, stride, overlap), QN_E_UNSUPPORTED (dtype),
 *                QN_E_DEVICE. */
QN_API qn_status qn_gemm_pack(qn_stream *stream, DLTensor *packed, DLTensor *packed_scale,
                              const DLTensor *b, const DLTensor *scale_b);

#ifdef __cplusplus
}
#endif
#endif
