// SPDX-License-Identifier: Apache-2.0
// Normalisation: RMSNorm and LayerNorm, with residuals, Gemma's weights, diffusion's modulation and
// FP8 results.
//
// In all functions of this header, unless a function says otherwise:
//
//  x, out    [n, h] or [n, heads, h], normalised along h: f32, f16 or bf16, last dimension
//            contiguous, other strides any that keep rows apart; out has x's shape and, unless it
//            is FP8, x's dtype
//  weights   [h], contiguous, all of one dtype: x's or f32
//  eps       added to the mean square (RMSNorm) or the variance (LayerNorm): finite, at least 0
//  Align:    element size; faster when all tensors begin at multiples of 16 bytes and h and strides
//            are multiples of 8.
//  Types:    Sums and products are f32, and results are rounded once, to nearest, ties to even. A
//            row has equal bits on every run, whatever else is in the batch. Finite values may be
//            of any size: where squares leave f32's range, the row is summed up once more with
//            its elements times a power of two.
//  Edge:     n == 0 is a no-op; h is at least 1. A row of zeros gives zeros (LayerNorm: beta), even
//            if eps is 0. A NaN makes its row NaN.
//  Overlap:  out may be x itself (equal address and strides) if it has x's dtype. Apart from that,
//            a tensor that is written overlaps no other tensor.
//  Async:    queued on stream.
//  Errors:   QN_E_INVALID (null, shape, stride, eps), QN_E_UNSUPPORTED (dtype).
//
// FP8 results (e4m3fn, e4m3fnuz, e5m2, e5m2fnuz) saturate; a NaN becomes the kind's NaN.
#ifndef QUERN_NORM_H
#define QUERN_NORM_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** out = x / sqrt(mean(x^2) + eps) * weight.
 *  Source: arXiv:1910.07467; FlashInfer's rmsnorm. */
QN_API qn_status qn_rmsnorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                            const DLTensor *weight, float eps);
/** qn_rmsnorm with 1 + weight in place of weight (Gemma). */
QN_API qn_status qn_gemma_rmsnorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                  const DLTensor *weight, float eps);

/** RMSNorm of a sum, in place: t = x + residual in f32; residual = t, rounded; x = RMSNorm(t) *
 *  weight, from t before rounding. Source: FlashInfer's fused_add_rmsnorm. */
QN_API qn_status qn_fused_add_rmsnorm(qn_stream *stream, DLTensor *x, DLTensor *residual,
                                      const DLTensor *weight, float eps);
/** qn_fused_add_rmsnorm with 1 + weight in place of weight (Gemma). */
QN_API qn_status qn_gemma_fused_add_rmsnorm(qn_stream *stream, DLTensor *x, DLTensor *residual,
                                            const DLTensor *weight, float eps);

/** out = (x - mean) / sqrt(variance + eps) * gamma + beta, with the population's variance. A null
 *  gamma stands for ones, a null beta for zeros. Source: arXiv:1607.06450. */
QN_API qn_status qn_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                              const DLTensor *gamma, const DLTensor *beta, float eps);

/** RMSNorm to FP8 with a given scale: out = fp8(norm * (1 / scale)), from the norm in f32.
 *  scale  one f32 on the device; above 0 and finite, which QUERN_VALIDATE=1 checks
 *  Source: FlashInfer's rmsnorm_quant. */
QN_API qn_status qn_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                  const DLTensor *weight, const DLTensor *scale, float eps);
/** RMSNorm of a sum to FP8: t = x + residual in f32; residual = t, rounded; out = fp8(RMSNorm(t) *
 *  weight * (1 / scale)), from t before rounding. x is only read; scale is as in
 *  qn_rmsnorm_quant. */
QN_API qn_status qn_fused_add_rmsnorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                            DLTensor *residual, const DLTensor *weight,
                                            const DLTensor *scale, float eps);
/** LayerNorm to FP8 with a given scale, as in qn_rmsnorm_quant. The norm is rounded to x's dtype
 *  before it is scaled. Source: FlashInfer's layernorm_quant. */
QN_API qn_status qn_layernorm_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                    const DLTensor *gamma, const DLTensor *beta,
                                    const DLTensor *scale, float eps);

/** RMSNorm to FP8 with computed scales: scale = max(amax, scale_eps) / max of the FP8 kind,
 *  out = fp8(norm * (1 / scale)).
 *  scale      written, f32, any strides that keep elements apart: [n] or, with heads, [n, heads]
 *             for one scale a row; [n, ceil(h / 128)] or [n, heads, ceil(h / 128)] for one in 128
 *             elements
 *  residual   null, or as in qn_fused_add_rmsnorm_quant
 *  scale_eps  1e-30 or more, finite; DeepGEMM's casts use 1e-4, FlashInfer's 1e-10 */
QN_API qn_status qn_rmsnorm_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                          const DLTensor *x, DLTensor *residual,
                                          const DLTensor *weight, float eps, float scale_eps);

/** Diffusion transformers' modulated LayerNorm: out = LayerNorm(x) * (1 + scale) + shift.
 *  x      [batch, n, h]
 *  scale, shift  [batch, h], of x's dtype or f32, last dimension contiguous
 *  Source: adaLN of arXiv:2212.09748; diffusers' AdaLayerNormZero. */
QN_API qn_status qn_adaptive_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                       const DLTensor *scale, const DLTensor *shift, float eps);
/** qn_adaptive_layernorm to FP8 with computed scales, from the result in f32:
 *  scale_out = max(amax, scale_eps) / max of the FP8 kind, out = fp8(result * (1 / scale_out)).
 *  scale_out  written, f32, any strides that keep elements apart, such as columns contiguous, as
 *             gemm's scale_a is read fastest: [batch, n] for one scale a row,
 *             [batch, n, ceil(h / 128)] for one in 128 elements
 *  scale_eps  1e-30 or more, finite */
QN_API qn_status qn_adaptive_layernorm_dynamic_quant(qn_stream *stream, DLTensor *out,
                                                     DLTensor *scale_out, const DLTensor *x,
                                                     const DLTensor *scale, const DLTensor *shift,
                                                     float eps, float scale_eps);
/** Diffusion transformers' gated residual and modulated LayerNorm: t = residual + gate * x in f32;
 *  residual = t, rounded; out = LayerNorm(t) * (1 + scale) + shift, from t before rounding.
 *  gate, scale, shift  [batch, h], of x's dtype or f32, last dimension contiguous
 *  Source: diffusers' FluxTransformerBlock. */
QN_API qn_status qn_gated_residual_layernorm(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                             DLTensor *residual, const DLTensor *gate,
                                             const DLTensor *scale, const DLTensor *shift,
                                             float eps);

#ifdef __cplusplus
}
#endif
#endif
