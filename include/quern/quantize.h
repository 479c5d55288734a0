// SPDX-License-Identifier: Apache-2.0
// Quantisation to FP8 and int8 by blocks, groups, rows and tensors; its inverse; conversion between
// the e4m3 encodings.
#ifndef QUERN_QUANTIZE_H
#define QUERN_QUANTIZE_H

#include <quern/core.h>
#include <quern/layout.h> // what others' GEMMs want of the scales

#ifdef __cplusplus
extern "C" {
#endif

/** Quantises x by blocks: scale = max(amax, eps) / max, q = round(x * (1 / scale)), saturating.
 *
 *  q        [rows, cols]  e4m3fn (max 448), e4m3fnuz (max 240), e5m2 or e5m2fnuz (max 57344);
 *           written
 *  scale    [ceil(rows/block_rows), ceil(cols/block_cols)]  f32, written; columns contiguous
 *  x        [rows, cols]  f32, f16 or bf16; columns contiguous, row stride >= cols
 *  block    1 x 128 (a token's group) or 128 x 128 (a block of weights)
 *  eps      smallest amax, 1e-30 or more and finite (DeepGEMM uses 1e-4); from there on scales and
 *           their inverses are normal numbers
 *  Align:   element size.
 *  Types:   f32 throughout; rounding to nearest, ties to even; the same bits on every device.
 *  Edge:    rows == 0 or cols == 0 is a no-op; the last block of a row or column may be partial; a
 *           NaN becomes NaN in q (0x7F, or 0x80 in the FNUZ kinds, whatever its sign) and does not
 *           enter amax; an infinity makes its block's scale infinite, itself NaN (infinity * 0) and
 *           the block's finite elements 0 (of their own sign where the kind has one). q, scale and
 *           x do not overlap.
 *  Async:   queued on stream.
 *  Errors:  QN_E_INVALID (null, shape, stride, eps), QN_E_UNSUPPORTED (dtype, block).
 *  Source:  DeepGEMM's per_token_cast_to_fp8 and per_block_cast_to_fp8. */
QN_API qn_status qn_quantize_fp8(qn_stream *stream, DLTensor *q, DLTensor *scale, const DLTensor *x,
                                 int64_t block_rows, int64_t block_cols, float eps);

/** The inverse: x = q * scale, rounded once to x's dtype (f32, f16, bf16), beyond its range
 *  infinity; any NaN becomes the dtype's positive quiet one. Shapes, strides, async and errors as
 *  above. */
QN_API qn_status qn_dequantize_fp8(qn_stream *stream, DLTensor *x, const DLTensor *q,
                                   const DLTensor *scale, int64_t block_rows, int64_t block_cols);

/** Quantises x along its rows: scale = max(amax, eps) / max, q = code(x * (1 / scale)), saturating.
 *
 *  q            [rows, cols]  e4m3fn (max 448), e4m3fnuz (240), e5m2 or e5m2fnuz (57344), i8 (127);
 *               written
 *  scale        [rows, ceil(cols / group)]  f32, written; any strides that keep elements apart:
 *               column-major scales and aligned columns are strides. Or i32 [rows, ceil(ceil(cols /
 *               group) / 4)]: UE8M0, scale 4 i + j in byte j of word i, bytes that no group has are
 *               0
 *  x            [rows, cols]  f32, f16 or bf16
 *  group        columns of a scale; 0: the whole row (per token)
 *  round_scale  1: scales are rounded up to powers of two: the exponent field, plus one if any bit
 *               of the fraction is set, kept within 1 .. 254 (2^-126 .. 2^127). Packed scales
 *               always are
 *  eps          smallest amax, 1e-30 or more and finite (SGLang uses 1e-10, DeepGEMM 1e-4)
 *  Align:   element size; faster when everything begins at 16 bytes, strides are multiples of 8,
 *           group is 8 to 128 and a power of two.
 *  Types:   f32 throughout; rounding to nearest, ties to even; the same bits on every device.
 *  Edge:    rows == 0 or cols == 0 is a no-op; the last group of a row may be partial. A NaN
 *           becomes the kind's NaN (i8: 0) and does not enter amax; an infinity makes its scale
 *           infinite and itself NaN (i8: 0), unless the scale is rounded: then 2^127, and the
 *           infinity the largest code.
 *  Overlap: what is written overlaps nothing else.
 *  Async:   queued on stream.
 *  Errors:  QN_E_INVALID (null, shape, stride, overlap, group, eps), QN_E_UNSUPPORTED (dtype).
 *  Source:  SGLang's per_token_group_quant_8bit, DeepGEMM's per_token_cast_to_fp8 and
 *           ceil_to_ue8m0. */
QN_API qn_status qn_quantize_groups(qn_stream *stream, DLTensor *q, DLTensor *scale,
                                    const DLTensor *x, int64_t group, int32_t round_scale,
                                    float eps);
/** With one scale for all, [1] f32, given on the device: q = code(x * (1 / scale)). It is above 0
 *  and finite, which QUERN_VALIDATE=1 checks. All else as qn_quantize_groups. */
QN_API qn_status qn_quantize_static(qn_stream *stream, DLTensor *q, const DLTensor *x,
                                    const DLTensor *scale);
/** With one scale for all, [1] f32, found and written.
 *  workspace  [n] u8 on the device, at least qn_quantize_tensor_workspace() bytes, at a multiple of
 *             4; overwritten
 *  All else as qn_quantize_groups. */
QN_API qn_status qn_quantize_tensor(qn_stream *stream, DLTensor *q, DLTensor *scale,
                                    const DLTensor *x, DLTensor *workspace, float eps);
/** Bytes of qn_quantize_tensor's workspace, the same for every tensor. */
QN_API int64_t qn_quantize_tensor_workspace(void);

/** What a conversion between encodings did. */
typedef struct qn_convert_report {
    size_t struct_size;     /**< sizeof(qn_convert_report) */
    int64_t inexact_blocks; /**< blocks that neither keeping the scale nor halving it keeps exact */
    double max_rel_error;   /**< largest relative error of an element, 0 when exact */
} qn_convert_report;

/** e4m3fn to e4m3fnuz (always exact: scale doubled, -0 becomes 0, NaN becomes 0x80) and back (exact
 *  block by block where keeping the scale or halving it allows; else an error, or rounding if
 *  asked).
 *
 *  q_out, q         [rows, cols], the two e4m3 kinds, contiguous; q_out may be q's memory
 *  scale_out, scale [rows, ceil(cols/128)] or [ceil(rows/128), ceil(cols/128)] f32, contiguous,
 *  which
 *                   says what the blocks are; scale_out may be scale's memory. Other overlap is
 *                   an error
 *  allow_rounding   0: an inexact block is QN_E_UNSUPPORTED and nothing is written; 1: such a block
 *                   keeps its scale and is off by half of e4m3fn's smallest step at most
 *  report           may be null; filled in on success and when blocks were inexact
 *  Device:          CPU streams only; done when it returns.
 *  Errors:          QN_E_INVALID (null, shape, stride, a scale that f32 cannot double),
 *                   QN_E_UNSUPPORTED (dtype, device, inexact blocks). */
QN_API qn_status qn_convert_fp8(qn_stream *stream, DLTensor *q_out, DLTensor *scale_out,
                                const DLTensor *q, const DLTensor *scale, int32_t allow_rounding,
                                qn_convert_report *report);

#ifdef __cplusplus
}
#endif
#endif
