// SPDX-License-Identifier: Apache-2.0
// Gated activations: out = f(gate) * up, where gate and up are the halves of x; plain, limited, or
// to FP8.
//
// In all functions of this header:
//
//  x         [..., 2 h], 1 to 8 dimensions: gate = x[..., :h], up = x[..., h:]; f32, f16 or bf16;
//            last dimension contiguous, other strides any that fold into two dimensions
//  out       [..., h], last dimension contiguous, other strides any that fold into two dimensions;
//            x's dtype, or FP8 from functions that quantise
//  Functions silu(x) = x / (1 + exp(-x)); gelu(x) = x/2 (1 + erf(x / sqrt(2)));
//            gelu_tanh(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//  Types:    Sums and products are f32, and results are rounded once, to nearest, ties to even.
//            With u = 2^-24, the relative error of f is at most
//              silu       8u + (4 + 2|x|) u exp(-|x|) for x >= 0, 8u + (4 + 2|x|) u for x < 0
//              gelu       24u + 2 x^2 u
//              gelu_tanh  as silu's, with three times the error of its exponent
//            Results below 2^-124 |gate * up|, and bf16 results below 2^-126, may be 0. A row has
//            equal bits on every run of one device, whatever else is in the batch.
//  Edge:     no rows, or h == 0: a no-op. A NaN stays in its element. f(-infinity) is NaN, as the
//            formulas say.
//  Align:    element size; faster when all tensors begin at multiples of 16 bytes and h and strides
//            are multiples of 8.
//  Overlap:  a tensor that is written overlaps no other tensor.
//  Async:    queued on stream.
//  Errors:   QN_E_INVALID (null, shape, stride, overlap, limit, scale_eps), QN_E_UNSUPPORTED
//            (dtype, strides).
//
// FP8 results (e4m3fn, e4m3fnuz, e5m2, e5m2fnuz) saturate; a NaN becomes the kind's NaN.
#ifndef QUERN_ACTIVATION_H
#define QUERN_ACTIVATION_H

#include <quern/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** out = silu(gate) * up. Source: FlashInfer's silu_and_mul; arXiv:2002.05202. */
QN_API qn_status qn_silu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x);
/** out = gelu(gate) * up. Source: FlashInfer's gelu_and_mul; arXiv:2002.05202. */
QN_API qn_status qn_gelu_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x);
/** out = gelu_tanh(gate) * up. Source: FlashInfer's gelu_tanh_and_mul; arXiv:2002.05202. */
QN_API qn_status qn_gelu_tanh_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x);

typedef enum qn_activation { QN_SILU = 0, QN_GELU = 1, QN_GELU_TANH = 2 } qn_activation;

/** Any of these activations, with a limit: out = f(min(gate, limit)) * clamp(up, -limit, limit).
 *  limit  above 0; 0 or infinity: no limit */
QN_API qn_status qn_act_and_mul(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                qn_activation function, float limit);

/** An activation to FP8 with a given scale: out = fp8(f(gate) * up * (1 / scale)), rounded once.
 *  The limit acts as in qn_act_and_mul.
 *  scale  [1], f32, on the device; above 0 and finite, which QUERN_VALIDATE=1 checks */
QN_API qn_status qn_act_and_mul_quant(qn_stream *stream, DLTensor *out, const DLTensor *x,
                                      const DLTensor *scale, qn_activation function, float limit);

/** An activation to FP8 with computed scales: scale = max(amax, scale_eps) / max of the FP8 kind,
 *  out = fp8(f(gate) * up * (1 / scale)). The limit acts as in qn_act_and_mul.
 *  scale      written, f32. One scale a row: x's shape without its last dimension. One scale for
 *             128 elements: x's shape with ceil(h / 128) as its last dimension. For 2-D x the last
 *             dimension is contiguous and the row stride any; else scale is contiguous
 *  scale_eps  1e-30 or more, finite; DeepGEMM's casts use 1e-4, SGLang's 1e-10 */
QN_API qn_status qn_act_and_mul_dynamic_quant(qn_stream *stream, DLTensor *out, DLTensor *scale,
                                              const DLTensor *x, qn_activation function,
                                              float limit, float scale_eps);

#ifdef __cplusplus
}
#endif
#endif
