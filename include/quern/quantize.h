// SPDX-License-Identifier: Apache-2.0
// Quantisation to FP8 and int8 by blocks, groups, rows and tensors; dequantisation; conversion
// between the e4m3 encodings.
#ifndef QUERN_QUANTIZE_H
#define QUERN_QUANTIZE_H

#include <quern/core.h>
#include <quern/layout.h> // layouts of scales that other libraries' GEMMs take

#ifdef __cplusplus
extern "C" {
#endif

/** Quantises x by blocks: scale = max(amax, eps) / max, q = round(x * (1 / scale)), saturating.
 *  amax is the block's largest magnitude, max the largest value of q's kind.
 *
 *  q        [rows, cols]  e4m3fn (max 448), e4m3fnuz (max 240), e5m2 or e5m2fnuz (max 57344);
 *           written
 *  scale    [ceil(rows/block_rows), ceil(cols/block_cols)]  f32, written; columns contiguous
 *  x        [rows, cols]  f32, f16 or bf16; columns contiguous, row stride >= cols
 *  block    1 x 128 (a token's group) or 128 x 128 (a block of weights)
 *  eps      smallest amax, 1e-30 or more and finite (DeepGEMM uses 1e-4): large enough that scales
 *           and their inverses are normal numbers
 *  Align:   element size.
 *  Types:   f32 throughout; rounding to nearest, ties to even; equal bits on every device.
 *  Edge:    rows == 0 or cols == 0 is a no-op. The last block of a row or column may be partial. A
 *           NaN becomes NaN in q (0x7F, or 0x80 in the FNUZ kinds, whatever its sign) and does not
 *           count in amax. An infinity makes its block's scale infinite, itself NaN (infinity * 0),
 *           and the block's finite elements 0, of their own sign where the kind has a -0.
 *  Overlap: q, scale and x do not overlap.
 *  Async:   queued on stream.
 *  Errors:  QN_E_INVALID (null, shape, stride, eps), QN_E_UNSUPPORTED (dtype, block).
 *  Source:  DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8. */
QN_API qn_status qn_quantize_fp8(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                                 int64_t block_rows, int64_t block_cols, float eps);

/** Dequantises what qn_quantize_fp8 made: x = q * scale, rounded once to x's dtype (f32, f16 or
 *  bf16). A value beyond the dtype's range becomes infinity, a NaN the dtype's positive quiet NaN.
 *  Shapes, strides, async and errors are as in qn_quantize_fp8. */
QN_API qn_status qn_dequantize_fp8(qn_stream *stream, DLTensor *x, const DLTensor *q,
                                   const DLTensor *scale, int64_t block_rows, int64_t block_cols);

/** Quantises x along its rows: scale = max(amax, eps) / max, q = code(x * (1 / scale)), saturating.
 *  amax is the group's largest magnitude, max the largest value of q's kind.
 *
 *  q            [rows, cols]  e4m3fn (max 448), e4m3fnuz (240), e5m2 or e5m2fnuz (57344), i8 (127);
 *               written
 *  scale        f32 [rows, ceil(cols / group)], written; any strides that keep elements apart, so
 *               that columns of scales may be contiguous or aligned.
 *               Or i32 [rows, ceil(ceil(cols / group) / 4)], written: UE8M0 with scale 4 i + j in
 *               byte j of word i, and 0 in bytes that belong to no group
 *  x            [rows, cols]  f32, f16 or bf16
 *  group        columns that share a scale; 0: the whole row (per token)
 *  round_scale  1: scales are rounded up to powers of two: the exponent field, plus one if any bit
 *               of the fraction is set, kept within 1 .. 254 (2^-126 .. 2^127). UE8M0 scales are
 *               always rounded
 *  eps          smallest amax, 1e-30 or more and finite (SGLang uses 1e-10, DeepGEMM 1e-4)
 *  Align:   element size; faster when all tensors begin at multiples of 16 bytes, strides are
 *           multiples of 8, and group is a power of two from 8 to 128.
 *  Types:   f32 throughout; rounding to nearest, ties to even; equal bits on every device.
 *  Edge:    rows == 0 or cols == 0 is a no-op. The last group of a row may be partial. A NaN
 *           becomes the kind's NaN (i8: 0) and does not count in amax. An infinity makes its scale
 *           infinite and itself NaN (i8: 0); if scales are rounded, the scale is 2^127 and the
 *           infinity becomes the largest code.
 *  Overlap: a tensor that is written overlaps no other tensor.
 *  Async:   queued on stream.
 *  Errors:  QN_E_INVALID (null, shape, stride, overlap, group, eps), QN_E_UNSUPPORTED (dtype).
 *  Source:  SGLang's per_token_group_quant_8bit, DeepGEMM's per_token_cast_to_fp8 and
 *           ceil_to_ue8m0. */
QN_API qn_status qn_quantize_groups(qn_stream *stream, DLTensor *q, DLTensor *scale,
                                    const DLTensor *x, int64_t group, int32_t round_scale,
                                    float eps);
/** Quantises x with one given scale: q = code(x * (1 / scale)).
 *  scale  [1] f32, on the device; above 0 and finite, which QUERN_VALIDATE=1 checks
 *  All else as in qn_quantize_groups. */
QN_API qn_status qn_quantize_static(qn_stream *stream, DLTensor *q, const DLTensor *x,
                                    const DLTensor *scale);
/** Quantises x with one scale for the whole tensor: scale = max(amax, eps) / max,
 *  q = code(x * (1 / scale)).
 *  scale      [1] f32, written
 *  workspace  [n] u8 on the device, at least qn_quantize_tensor_workspace() bytes, at a multiple of
 *             4; overwritten
 *  All else as in qn_quantize_groups. */
QN_API qn_status qn_quantize_tensor(qn_stream *stream, DLTensor *q, DLTensor *scale,
                                    const DLTensor *x, DLTensor *workspace, float eps);
/** Returns the bytes of workspace that qn_quantize_tensor needs, one number for all tensors. */
QN_API int64_t qn_quantize_tensor_workspace(void);

/** The outcome of qn_convert_fp8. */
typedef struct qn_convert_report {
    size_t struct_size;     /**< sizeof(qn_convert_report) */
    int64_t inexact_blocks; /**< blocks that are exact with neither the scale nor half of it */
    double max_rel_error;   /**< largest relative error of an element; 0 if all are exact */
} qn_convert_report;

/** Converts between e4m3fn and e4m3fnuz.
 *
 *  To e4m3fnuz: always exact. Scales double, -0 becomes 0, and NaN becomes 0x80.
 *  To e4m3fn: exact for each block whose values fit with the block's scale or with half of it.
 *
 *  q_out, q         [rows, cols], one of each e4m3 kind, contiguous; q_out may be q's memory
 *  scale_out, scale [rows, ceil(cols/128)] or [ceil(rows/128), ceil(cols/128)] f32, contiguous;
 *                   the shape tells the blocks. scale_out may be scale's memory
 *  allow_rounding   0: with an inexact block the call returns QN_E_UNSUPPORTED and writes no
 *                   tensor; 1: an inexact block keeps its scale, and its elements are off by at
 *                   most half of e4m3fn's smallest step
 *  report           may be null; filled in on success and when blocks were inexact
 *  Overlap:         an error, but for q_out on q and scale_out on scale.
 *  Device:          CPU streams only; the work is done on return.
 *  Errors:          QN_E_INVALID (null, shape, stride, a scale that f32 cannot double),
 *                   QN_E_UNSUPPORTED (dtype, device, inexact blocks). */
QN_API qn_status qn_convert_fp8(qn_stream *stream, DLTensor *q_out, DLTensor *scale_out,
                                const DLTensor *q, const DLTensor *scale, int32_t allow_rounding,
                                qn_convert_report *report);

#ifdef __cplusplus
}
#endif
#endif
