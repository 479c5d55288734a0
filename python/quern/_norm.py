# SPDX-License-Identifier: Apache-2.0
"""Normalisation: RMSNorm and LayerNorm, with residuals, Gemma's weights, diffusion's modulation, FP8 results.

In all of these, unless the function says otherwise:

x, out    [n, h] or [n, heads, h], normalised along h: f32, f16 or bf16, last dimension contiguous
weights   [h], of x's dtype or f32
eps       finite, at least 0
out       optional: where the result goes; x itself is accepted where it has x's dtype. Without it a new tensor is made,
          in the kind of x.

n == 0 is a no-op. Sums are kept in f32 and the result is rounded once. Raises ValueError (shape, stride, overlap, eps),
NotImplementedError (dtype), TypeError (no tensor); nothing is written then.
"""

from . import _ops
from ._tensor import empty_like, fp8_name


def rmsnorm(x, weight, eps=1e-6, out=None):
    """x / sqrt(mean(x^2) + eps) * weight."""
    out = empty_like(x) if out is None else out
    _ops.rmsnorm(out, x, weight, eps)
    return out


def gemma_rmsnorm(x, weight, eps=1e-6, out=None):
    """rmsnorm with 1 + weight for weight."""
    out = empty_like(x) if out is None else out
    _ops.gemma_rmsnorm(out, x, weight, eps)
    return out


def fused_add_rmsnorm(x, residual, weight, eps=1e-6):
    """In place: t = x + residual; residual = t rounded; x = rmsnorm(t). t is not rounded before its norm."""
    _ops.fused_add_rmsnorm(x, residual, weight, eps)


def gemma_fused_add_rmsnorm(x, residual, weight, eps=1e-6):
    """fused_add_rmsnorm with 1 + weight for weight."""
    _ops.gemma_fused_add_rmsnorm(x, residual, weight, eps)


def layernorm(x, gamma=None, beta=None, eps=1e-6, out=None):
    """(x - mean) / sqrt(variance + eps) * gamma + beta, with the population's variance; None: ones, zeros."""
    out = empty_like(x) if out is None else out
    _ops.layernorm(out, x, gamma, beta, eps)
    return out


def rmsnorm_quant(x, weight, scale, eps=1e-6, dtype="e4m3fn", out=None):
    """fp8(rmsnorm(x) / scale), saturating. scale: one f32 on x's device. dtype: the FP8 kind of a new out."""
    out = empty_like(x, dtype=fp8_name(dtype)) if out is None else out
    _ops.rmsnorm_quant(out, x, weight, scale, eps)
    return out


def fused_add_rmsnorm_quant(x, residual, weight, scale, eps=1e-6, dtype="e4m3fn", out=None):
    """t = x + residual; residual = t rounded, in place; gives fp8(rmsnorm(t) / scale). x is left as it is."""
    out = empty_like(x, dtype=fp8_name(dtype)) if out is None else out
    _ops.fused_add_rmsnorm_quant(out, x, residual, weight, scale, eps)
    return out


def layernorm_quant(x, gamma, beta, scale, eps=1e-6, dtype="e4m3fn", out=None):
    """LayerNorm rounded to x's dtype, then divided by scale, to FP8."""
    out = empty_like(x, dtype=fp8_name(dtype)) if out is None else out
    _ops.layernorm_quant(out, x, gamma, beta, scale, eps)
    return out


def rmsnorm_dynamic_quant(x, weight, eps=1e-6, residual=None, group=None, scale_eps=1e-10, dtype="e4m3fn", out=None,
                          scale=None):
    """RMSNorm to FP8 with scales found on the way: (out, scale), scale = max(amax, scale_eps) / max of the kind.

    residual  None, or updated in place as in fused_add_rmsnorm_quant
    group     None: one scale for each row of x; 128: one for 128 elements. Says the shape of a new scale:
              [n], [n, ceil(h / 128)]; with heads [n, heads], [n, heads, ceil(h / 128)]
    """
    if group not in (None, 128):
        raise ValueError(f"rmsnorm_dynamic_quant: group is {group}; accepted: None, 128")
    out = empty_like(x, dtype=fp8_name(dtype)) if out is None else out
    if scale is None:
        rows, h = tuple(x.shape[:-1]), x.shape[-1]
        scale = empty_like(x, shape=rows if group is None else (*rows, -(-h // 128)), dtype="float32")
    _ops.rmsnorm_dynamic_quant(out, scale, x, residual, weight, eps, scale_eps)
    return out, scale


def adaptive_layernorm(x, scale, shift, eps=1e-6, out=None):
    """Diffusion transformers' modulation: LayerNorm(x) * (1 + scale) + shift. x [batch, n, h]; scale, shift [batch, h]."""
    out = empty_like(x) if out is None else out
    _ops.adaptive_layernorm(out, x, scale, shift, eps)
    return out


def gated_residual_layernorm(x, residual, gate, scale, shift, eps=1e-6, out=None):
    """t = residual + gate * x; residual = t rounded, in place; gives LayerNorm(t) * (1 + scale) + shift."""
    out = empty_like(x) if out is None else out
    _ops.gated_residual_layernorm(out, x, residual, gate, scale, shift, eps)
    return out
