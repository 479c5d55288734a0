# SPDX-License-Identifier: Apache-2.0
"""Normalisation: RMSNorm and LayerNorm, with residuals, Gemma's weights, diffusion's modulation, FP8 results.

Sums are kept in f32 and the result is rounded once. n may be 0.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from . import _ops
from ._native import ffi
from ._public import flag, public
from ._tensor import empty_like, fp8_name
from ._types import A, Array, DType


@public()
def rmsnorm(x: A, weight: Array, eps: float = 1e-6, out: A | None = None) -> A:
    """Computes the root-mean-square norm of each row: x / sqrt(mean(x^2) + eps) * weight.

    x       [n, h] or [n, heads, h] of f32, f16 or bf16, normalised along h, which is contiguous; n may be 0
    weight  [h], of x's dtype or f32
    eps     finite, at least 0
    out     as x, which it may be; None: a new one

    Returns out. A NaN or an infinity stays within its row. Raises ValueError (shape, stride, overlap, eps),
    NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> x = numpy.array([[3, 4]], numpy.float32)
    >>> quern.rmsnorm(x, numpy.ones(2, numpy.float32)).round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("rmsnorm", x, weight, eps)) is not None:
        return result
    out = empty_like(x) if out is None else out
    _ops.rmsnorm(out, x, weight, eps)
    return out


@public()
def gemma_rmsnorm(x: A, weight: Array, eps: float = 1e-6, out: A | None = None) -> A:
    """Computes rmsnorm with 1 + weight, summed in f32, for weight: x / sqrt(mean(x^2) + eps) * (1 + weight).

    x       [n, h] or [n, heads, h] of f32, f16 or bf16, normalised along h, which is contiguous; n may be 0
    weight  [h], of x's dtype or f32
    eps     finite, at least 0
    out     as x, which it may be; None: a new one

    Returns out. Raises what rmsnorm raises.

    >>> x = numpy.array([[3, 4]], numpy.float32)
    >>> quern.gemma_rmsnorm(x, numpy.zeros(2, numpy.float32)).round(3)
    array([[0.849, 1.131]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("gemma_rmsnorm", x, weight, eps)) is not None:
        return result
    out = empty_like(x) if out is None else out
    _ops.gemma_rmsnorm(out, x, weight, eps)
    return out


@public()
def fused_add_rmsnorm(x: Array, residual: Array, weight: Array, eps: float = 1e-6) -> None:
    """Computes, in place, t = x + residual; residual = t rounded; x = rmsnorm(t). t is not rounded before its norm.

    x         [n, h] of f32, f16 or bf16, written
    residual  as x, written; the two share no memory
    weight    [h], of x's dtype or f32
    eps       finite, at least 0

    Returns None. Raises what rmsnorm raises; a read-only array is a ValueError.

    >>> x, residual = numpy.ones((1, 2), numpy.float32), numpy.full((1, 2), 2, numpy.float32)
    >>> quern.fused_add_rmsnorm(x, residual, numpy.ones(2, numpy.float32))
    >>> residual, x.round(3)
    (array([[3., 3.]], dtype=float32), array([[1., 1.]], dtype=float32))
    """
    if (result := _ops.recorded("fused_add_rmsnorm", x, residual, weight, eps)) is not None:
        x.copy_(result[0])
        residual.copy_(result[1])
        return
    _ops.fused_add_rmsnorm(x, residual, weight, eps)


@public()
def gemma_fused_add_rmsnorm(x: Array, residual: Array, weight: Array, eps: float = 1e-6) -> None:
    """Computes fused_add_rmsnorm with 1 + weight for weight, in place.

    x         [n, h] of f32, f16 or bf16, written
    residual  as x, written; the two share no memory
    weight    [h], of x's dtype or f32
    eps       finite, at least 0

    Returns None. Raises what rmsnorm raises; a read-only array is a ValueError.

    >>> x, residual = numpy.ones((1, 2), numpy.float32), numpy.full((1, 2), 2, numpy.float32)
    >>> quern.gemma_fused_add_rmsnorm(x, residual, numpy.ones(2, numpy.float32))
    >>> x.round(3)
    array([[2., 2.]], dtype=float32)
    """
    if (result := _ops.recorded("gemma_fused_add_rmsnorm", x, residual, weight, eps)) is not None:
        x.copy_(result[0])
        residual.copy_(result[1])
        return
    _ops.gemma_fused_add_rmsnorm(x, residual, weight, eps)


@public()
def layernorm(x: A, gamma: Array | None = None, beta: Array | None = None, eps: float = 1e-6, out: A | None = None) -> A:
    """Computes (x - mean) / sqrt(variance + eps) * gamma + beta of each row, with the population's variance.

    x      [n, h] or [n, heads, h] of f32, f16 or bf16, normalised along h, which is contiguous; n may be 0
    gamma  [h], of x's dtype or f32; None: ones
    beta   [h], of x's dtype or f32; None: zeros
    eps    finite, at least 0
    out    as x, which it may be; None: a new one

    Returns out. Raises what rmsnorm raises.

    >>> quern.layernorm(numpy.array([[1, 3]], numpy.float32)).round(3)
    array([[-1.,  1.]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("layernorm", x, gamma, beta, eps)) is not None:
        return result
    out = empty_like(x) if out is None else out
    _ops.layernorm(out, x, gamma, beta, eps)
    return out


@public()
def rmsnorm_quant(x: Array, weight: Array, scale: Array, eps: float = 1e-6, dtype: DType = "e4m3fn",
                  out: Array | None = None) -> Any:
    """Computes fp8(rmsnorm(x) / scale), saturating.

    x       [n, h] or [n, heads, h] of f32, f16 or bf16; n may be 0
    weight  [h], of x's dtype or f32
    scale   [1] f32 on x's device, above 0 and finite, which QUERN_VALIDATE=1 checks
    eps     finite, at least 0
    dtype   of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out     x's shape, of an FP8 kind; None: a new one

    Returns out, of x's kind. Raises ValueError (shape, stride, overlap, eps, dtype's name), NotImplementedError (dtype, device),
    TypeError (no array, no number); nothing is written then.

    >>> x, one = numpy.array([[3, 4]], numpy.float32), numpy.ones(2, numpy.float32)
    >>> quern.rmsnorm_quant(x, one, numpy.ones(1, numpy.float32)).astype(numpy.float32)
    array([[0.875, 1.125]], dtype=float32)
    """
    out = empty_like(x, dtype=fp8_name("rmsnorm_quant", dtype)) if out is None else out
    _ops.rmsnorm_quant(out, x, weight, scale, eps)
    return out


@public()
def fused_add_rmsnorm_quant(x: Array, residual: Array, weight: Array, scale: Array, eps: float = 1e-6,
                            dtype: DType = "e4m3fn", out: Array | None = None) -> Any:
    """Computes t = x + residual, writes t rounded to residual and returns fp8(rmsnorm(t) / scale), saturating.

    x is not written.

    x         [n, h] of f32, f16 or bf16
    residual  as x, written
    weight    [h], of x's dtype or f32
    scale     [1] f32 on x's device, above 0 and finite, which QUERN_VALIDATE=1 checks
    eps       finite, at least 0
    dtype     of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out       x's shape, of an FP8 kind; None: a new one

    Raises what rmsnorm_quant raises.

    >>> x, residual, one = numpy.ones((1, 2), numpy.float32), numpy.ones((1, 2), numpy.float32), numpy.ones(2, numpy.float32)
    >>> quern.fused_add_rmsnorm_quant(x, residual, one, one[:1]).astype(numpy.float32), residual
    (array([[1., 1.]], dtype=float32), array([[2., 2.]], dtype=float32))
    """
    out = empty_like(x, dtype=fp8_name("fused_add_rmsnorm_quant", dtype)) if out is None else out
    _ops.fused_add_rmsnorm_quant(out, x, residual, weight, scale, eps)
    return out


@public()
def layernorm_quant(x: Array, gamma: Array | None, beta: Array | None, scale: Array, eps: float = 1e-6,
                    dtype: DType = "e4m3fn", out: Array | None = None) -> Any:
    """Computes layernorm rounded to x's dtype, then divided by scale, as FP8, saturating.

    x      [n, h] or [n, heads, h] of f32, f16 or bf16; n may be 0
    gamma  [h], of x's dtype or f32; None: ones
    beta   [h], of x's dtype or f32; None: zeros
    scale  [1] f32 on x's device, above 0 and finite, which QUERN_VALIDATE=1 checks
    eps    finite, at least 0
    dtype  of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out    x's shape, of an FP8 kind; None: a new one

    Returns out, of x's kind. Raises what rmsnorm_quant raises.

    >>> x, scale = numpy.array([[1, 3]], numpy.float32), numpy.full(1, 0.5, numpy.float32)
    >>> quern.layernorm_quant(x, None, None, scale).astype(numpy.float32)
    array([[-2.,  2.]], dtype=float32)
    """
    out = empty_like(x, dtype=fp8_name("layernorm_quant", dtype)) if out is None else out
    _ops.layernorm_quant(out, x, gamma, beta, scale, eps)
    return out


@public()
def rmsnorm_dynamic_quant(x: Array, weight: Array, eps: float = 1e-6, residual: Array | None = None,
                          group: Literal[128] | None = None, scale_eps: float = 1e-10, dtype: DType = "e4m3fn",
                          out: Array | None = None, scale: Array | None = None) -> tuple[Any, Any]:
    """Computes RMSNorm as FP8 and its scales: (out, scale), scale = max(amax, scale_eps) / max of the kind.

    x          [n, h] or [n, heads, h] of f32, f16 or bf16; n may be 0
    weight     [h], of x's dtype or f32
    eps        finite, at least 0
    residual   None, or as x: x is added to it first, in place, as fused_add_rmsnorm_quant does
    group      None: a scale for each row of x; 128: one for 128 elements. Gives the shape of a new scale
    scale_eps  above 0, finite
    dtype      of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out        x's shape, of an FP8 kind; None: a new one
    scale      f32 [n] or [n, ceil(h / 128)], with heads [n, heads] or [n, heads, ceil(h / 128)]; None: a new one

    Raises ValueError (shape, stride, overlap, eps, group), NotImplementedError (dtype, device), TypeError (no array, no
    number); nothing is written then.

    >>> x = numpy.array([[3, 4]], numpy.float32)
    >>> out, scale = quern.rmsnorm_dynamic_quant(x, numpy.ones(2, numpy.float32))
    >>> out.astype(numpy.float32), scale.shape
    (array([[320., 448.]], dtype=float32), (1,))
    """
    _check_group("rmsnorm_dynamic_quant", group)
    out = empty_like(x, dtype=fp8_name("rmsnorm_dynamic_quant", dtype)) if out is None else out
    if scale is None:
        rows, h = tuple(x.shape[:-1]), x.shape[-1]
        scale = empty_like(x, shape=rows if group is None else (*rows, -(-h // 128)), dtype="float32")
    _ops.rmsnorm_dynamic_quant(out, scale, x, residual, weight, eps, scale_eps)
    return out, scale


def _check_group(op, group):
    if group not in (None, 128):
        raise ValueError(f"{op}: group is {group}; accepted: None, 128")


@public()
def adaptive_layernorm(x: A, scale: Array, shift: Array, eps: float = 1e-6, out: A | None = None) -> A:
    """Computes layernorm(x) * (1 + scale) + shift, the modulation of diffusion transformers.

    x      [batch, n, h] of f32, f16 or bf16; n may be 0
    scale  [batch, h], of x's dtype or f32
    shift  as scale
    eps    finite, at least 0
    out    as x, which it may be; None: a new one

    Returns out. Raises what rmsnorm raises.

    >>> x, one = numpy.array([[[1, 3]]], numpy.float32), numpy.ones((1, 2), numpy.float32)
    >>> quern.adaptive_layernorm(x, one, one).round(3)
    array([[[-1.,  3.]]], dtype=float32)
    """
    if out is None and (result := _ops.recorded("adaptive_layernorm", x, scale, shift, eps)) is not None:
        return result
    out = empty_like(x) if out is None else out
    _ops.adaptive_layernorm(out, x, scale, shift, eps)
    return out


@public()
def adaptive_layernorm_dynamic_quant(x: Array, scale: Array, shift: Array, eps: float = 1e-6, group: Literal[128] | None = None,
                                     scale_eps: float = 1e-10, dtype: DType = "e4m3fn", out: Array | None = None,
                                     scale_out: Array | None = None) -> tuple[Any, Any]:
    """Computes adaptive_layernorm as FP8 and its scales: (out, scale_out), scale_out = max(amax, scale_eps) / max of the kind.

    x          [batch, n, h] of f32, f16 or bf16; n may be 0
    scale      [batch, h], of x's dtype or f32
    shift      as scale
    eps        finite, at least 0
    group      None: a scale for each row of x; 128: one for 128 elements. Gives the shape of a new scale_out
    scale_eps  above 0, finite
    dtype      of a new out: e4m3fn, e4m3fnuz, e5m2 or e5m2fnuz
    out        x's shape, of an FP8 kind; None: a new one
    scale_out  f32 [batch, n] or [batch, n, ceil(h / 128)], any strides; None: a new one

    Returns (out, scale_out). Raises what rmsnorm_dynamic_quant raises.

    >>> x, one = numpy.array([[[1, 3]]], numpy.float32), numpy.ones((1, 2), numpy.float32)
    >>> out, scale = quern.adaptive_layernorm_dynamic_quant(x, one, one)
    >>> out.astype(numpy.float32), scale.shape
    (array([[[-144.,  448.]]], dtype=float32), (1, 1))
    """
    op = "adaptive_layernorm_dynamic_quant"
    _check_group(op, group)
    out = empty_like(x, dtype=fp8_name(op, dtype)) if out is None else out
    if scale_out is None:
        rows, h = tuple(x.shape[:-1]), x.shape[-1]
        scale_out = empty_like(x, shape=rows if group is None else (*rows, -(-h // 128)), dtype="float32")
    _ops.adaptive_layernorm_dynamic_quant(out, scale_out, x, scale, shift, eps, scale_eps)
    return out, scale_out


@public()
def gated_residual_layernorm(x: A, residual: Array, gate: Array, scale: Array, shift: Array, eps: float = 1e-6,
                             out: A | None = None) -> A:
    """Computes t = residual + gate * x, writes t rounded to residual and returns layernorm(t) * (1 + scale) + shift.

    x         [batch, n, h] of f32, f16 or bf16; n may be 0
    residual  as x, written
    gate      [batch, h], of x's dtype or f32
    scale     as gate
    shift     as gate
    eps       finite, at least 0
    out       as x, which it may be; None: a new one

    Returns out. Raises what rmsnorm raises.

    >>> x, residual = numpy.array([[[1, 3]]], numpy.float32), numpy.ones((1, 1, 2), numpy.float32)
    >>> one = numpy.ones((1, 2), numpy.float32)
    >>> quern.gated_residual_layernorm(x, residual, one, one, one).round(3), residual
    (array([[[-1.,  3.]]], dtype=float32), array([[[2., 4.]]], dtype=float32))
    """
    if out is None and (result := _ops.recorded("gated_residual_layernorm", x, residual, gate, scale, shift, eps)) is not None:
        residual.copy_(result[1])
        return result[0]
    out = empty_like(x) if out is None else out
    _ops.gated_residual_layernorm(out, x, residual, gate, scale, shift, eps)
    return out


# ---- gradients

class NormGradients(NamedTuple):
    """What norm_backward returns: the gradients by x, by the weight, by beta, by what a gate multiplied, and by the gate; None if
    these were not asked for."""

    dx: Any
    dweight: Any
    dbeta: Any
    d_gated: Any
    dgate: Any


_WORKSPACE = 5


def with_workspace(arguments):
    """Returns norm_backward's native arguments with a new workspace. The custom op uses it too."""
    if arguments[_WORKSPACE] is not None:
        return arguments
    try:
        needed = ffi.norm_backward_workspace_bytes(*arguments)
    except BufferError:  # as where ops are called
        needed = ffi.norm_backward_workspace_bytes(*_ops.lend("norm_backward", arguments))
    workspace = empty_like(arguments[0], shape=(needed,), dtype="u8")
    return [*arguments[:_WORKSPACE], workspace, *arguments[_WORKSPACE + 1:]]


def _new_row(x, weight, gate):
    """Returns a new tensor like weight or gate, or without both a row of f32."""
    like = gate if weight is None else weight
    return empty_like(x, shape=tuple(x.shape[-1:]), dtype="f32") if like is None else empty_like(like, shape=tuple(like.shape))


@public()
def norm_backward(d_out: Array, x: Array, weight: Array | None = None, eps: float = 1e-6, *, subtracts_mean: bool = False,
                  adds_one: bool = False, d_sum: Array | None = None, gate: Array | None = None, gated: Array | None = None,
                  dx: Array | None = None, dweight: Array | None = None, dbeta: Array | None = None, d_gated: Array | None = None,
                  dgate: Array | None = None, needs_dweight: bool = False, needs_dbeta: bool = False,
                  workspace: Array | None = None) -> NormGradients:
    """Computes the gradients of a loss by what a norm read, from its gradient by the norm's result: a NormGradients.

    d_out           the loss's gradient by the result: x's shape and dtype
    x               what was normalised: [n, h] or [n, heads, h] of f32, f16 or bf16; of fused_add_rmsnorm and
                    gated_residual_layernorm the new residual
    weight          [h], of x's dtype or f32; None: ones; of adaptive_layernorm and gated_residual_layernorm scale [batch, h], with
                    x [batch, n, h], subtracts_mean and adds_one
    eps             as in the forward pass
    subtracts_mean  False: RMSNorm; True: LayerNorm
    adds_one        weight stands for 1 + weight, as in gemma_rmsnorm
    d_sum           None, or as x: is added to dx; of a norm of a sum the gradient by the new residual
    gate            None, or as weight, of its dtype: gated_residual_layernorm's; asks for d_gated
    gated           None, or as x: what the gate multiplied; asks for dgate
    dx, d_gated     as x; None: a new one
    dweight, dbeta, dgate  as weight, of x's dtype or f32; None: a new one if needed
    needs_dweight, needs_dbeta  whether to make new ones, of weight's dtype (dbeta without a weight: f32)
    workspace       u8, as qn_norm_backward_workspace_bytes says; None: made as needed

    Equal bits on every run. Raises ValueError (shape, stride, overlap, eps, what there is no gradient of), NotImplementedError (dtype,
    device), TypeError (no array, no number); nothing is written then.

    >>> x, one = numpy.array([[3, 4]], numpy.float32), numpy.ones(2, numpy.float32)
    >>> quern.norm_backward(x, x, one, eps=0, needs_dweight=True).dweight.round(3)
    array([2.546, 4.525], dtype=float32)
    """
    op = "norm_backward"
    if flag(op, "needs_dweight", needs_dweight) and dweight is None and weight is not None:
        dweight = _new_row(x, weight, gate)
    if flag(op, "needs_dbeta", needs_dbeta) and dbeta is None:
        dbeta = _new_row(x, weight, gate)
    if gate is not None and d_gated is None:
        d_gated = empty_like(x)
    if gated is not None and dgate is None:
        dgate = _new_row(x, weight, gate)
    gradients = NormGradients(empty_like(x) if dx is None else dx, dweight, dbeta, d_gated, dgate)
    arguments = [*gradients, workspace, d_out, x, weight, d_sum, gate, gated, eps, flag(op, "subtracts_mean", subtracts_mean),
                 flag(op, "adds_one", adds_one)]
    if not _ops.is_being_traced():  # the custom op in the graph makes its own
        arguments = with_workspace(arguments)
    _ops.norm_backward(*arguments)
    return gradients
