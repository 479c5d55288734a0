# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's norms. input [n, h] or [n, heads, h]."""

import math

import torch

from ._hints import check_flags as _check_flags
from ._norm_fused import (fused_add_rmsnorm_fp8_block_quant, fused_dit_gate_residual_layernorm_gamma_beta,  # noqa: F401
                          fused_dit_gate_residual_layernorm_scale_shift, fused_dit_residual_layernorm_scale_shift,
                          fused_qk_rmsnorm_rope, fused_rmsnorm_silu)
from ._run import check_scales as _check_scales
from ._run import run as _run


def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """Returns input / sqrt(mean(input^2) + eps) * weight."""
    _check_flags("rmsnorm", enable_pdl=enable_pdl)
    out = torch.empty_like(input) if out is None else out
    _run("rmsnorm", out, input, weight, eps, x="input")
    return out


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """Returns rmsnorm with 1 + weight for weight."""
    _check_flags("gemma_rmsnorm", enable_pdl=enable_pdl)
    out = torch.empty_like(input) if out is None else out
    _run("gemma_rmsnorm", out, input, weight, eps, x="input")
    return out


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """Computes in place: residual += input; input = rmsnorm(residual), of the sum before it is rounded."""
    _check_flags("fused_add_rmsnorm", enable_pdl=enable_pdl)
    _run("fused_add_rmsnorm", input, residual, weight, eps, x="input")


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """Computes fused_add_rmsnorm with 1 + weight for weight."""
    _check_flags("gemma_fused_add_rmsnorm", enable_pdl=enable_pdl)
    _run("gemma_fused_add_rmsnorm", input, residual, weight, eps, x="input")


def layernorm(input, gemma, beta, eps=1e-6):
    """Returns LayerNorm with weight `gemma` and bias beta."""
    out = torch.empty_like(input)
    _run("layernorm", out, input, gemma, beta, eps, x="input", gamma="gemma")
    return out


def _scale_of(op, scale, x):
    """Returns a number, or a tensor of one, as quern takes it: one f32 on x's device."""
    if isinstance(scale, torch.Tensor):
        scale = scale.reshape(-1).to(torch.float32)
        _check_scales(op, "scale", scale, False)
        return scale
    if not (math.isfinite(scale) and scale > 0):
        raise ValueError(f"{op}: scale is {scale}; accepted: above 0, finite")
    return torch.full((1,), scale, dtype=torch.float32, device=x.device)


def rmsnorm_quant(out, input, weight, scale, eps=1e-6, enable_pdl=None):
    """Computes out = fp8(rmsnorm(input) / scale); scale is a number or a tensor of one."""
    _check_flags("rmsnorm_quant", enable_pdl=enable_pdl)
    _run("rmsnorm_quant", out, input, weight, _scale_of("rmsnorm_quant", scale, input), eps, x="input")


def fused_add_rmsnorm_quant(out, input, residual, weight, scale, eps=1e-6, enable_pdl=None):
    """Computes residual += input in place and out = fp8(rmsnorm(residual) / scale); input is left as it is."""
    _check_flags("fused_add_rmsnorm_quant", enable_pdl=enable_pdl)
    scale = _scale_of("fused_add_rmsnorm_quant", scale, input)
    _run("fused_add_rmsnorm_quant", out, input, residual, weight, scale, eps, x="input")


def layernorm_quant(out, input, gemma, beta, scale, eps=1e-6):
    """Computes out = fp8(layernorm(input) / scale); the norm is rounded to input's dtype first."""
    _run("layernorm_quant", out, input, gemma, beta, _scale_of("layernorm_quant", scale, input), eps, x="input", gamma="gemma")
