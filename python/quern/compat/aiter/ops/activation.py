# SPDX-License-Identifier: Apache-2.0
"""AITER's gated activations: out [.., h] = f(gate) * up, where input [.., 2 h] has gate, then up."""

import torch

from .... import _activation
from ...._public import flag, found
from .. import _check
from .._absent import absent
from .._run import run
from .rmsnorm import scales_of

Tensor = torch.Tensor


def _gated(op, out, input, function, limit=0.0):
    _check.tensors(op, {"out": out, "input": input})
    run(op, _activation.act_and_mul, {"x": "input"}, input, function, _check.number(op, "limit", limit), out=out)


def silu_and_mul(out: Tensor, input: Tensor, limit: float = 0.0) -> None:
    """Writes silu(gate) * up. limit above 0: of min(gate, limit) and clamp(up, -limit, limit)."""
    _gated("silu_and_mul", out, input, "silu", limit)


def gelu_and_mul(out: Tensor, input: Tensor) -> None:
    """Writes gelu(gate) * up."""
    _gated("gelu_and_mul", out, input, "gelu")


def gelu_tanh_and_mul(out: Tensor, input: Tensor) -> None:
    """Writes gelu(gate) * up, with GELU's tanh form."""
    _gated("gelu_tanh_and_mul", out, input, "gelu_tanh")


def scaled_silu_and_mul(out: Tensor, input: Tensor, scale: Tensor) -> None:
    """Writes silu(gate) * up / scale as FP8; scale is f32 [1]."""
    op = "scaled_silu_and_mul"
    _check.tensors(op, {"out": out, "input": input, "scale": scale})
    run(op, _activation.act_and_mul_quant, {"x": "input"}, input, scale.reshape(-1), out=out)


def quantised(op, out, input, scale, function, limit, group, is_turned, input_name="input"):
    """Writes the activation as FP8 with scales for each row, or for 128 columns of it."""
    if group not in (0, 128) or isinstance(group, bool):
        raise NotImplementedError(f"{op}: group_size is {found(group)}; accepted: 0 for a scale each row, 128")
    x = _check.rows_of(input)
    written = scales_of(op, "scale", scale, x.shape[0], group, x.shape[1] // 2, is_turned)
    rows = torch.empty_like(written, memory_format=torch.contiguous_format) if is_turned else written
    run(op, _activation.act_and_mul_dynamic_quant, {"x": input_name}, x, function, limit, group or None, out=_check.rows_of(out),
        scale=rows)
    if is_turned:
        written.copy_(rows)


def silu_and_mul_quant(out: Tensor, input: Tensor, scale: Tensor, group_size: int, limit: float = 0.0,
                       shuffle_scale: bool = False) -> None:
    """Writes silu(gate) * up as FP8 to out, and its scales: f32 for each row (group_size 0), or for 128 columns of it.

    shuffle_scale  the scales' bytes lie as [groups, rows]
    """
    op = "silu_and_mul_quant"
    _check.tensors(op, {"out": out, "input": input, "scale": scale})
    quantised(op, out, input, scale, "silu", _check.number(op, "limit", limit), group_size, flag(op, "shuffle_scale", shuffle_scale))


_EXPERTS = "quern has no activation with a bias for each expert; set VLLM_ROCM_USE_AITER_MOE=0"
swiglu_and_mul = absent("swiglu_and_mul", "quern has no swiglu of clamped parts by itself; set VLLM_ROCM_USE_AITER_MOE=0")
silu_and_mul_bias = absent("silu_and_mul_bias", _EXPERTS)
swiglu_and_mul_bias = absent("swiglu_and_mul_bias", _EXPERTS)
gelu_and_mul_bias = absent("gelu_and_mul_bias", _EXPERTS)
gelu_fast = absent("gelu_fast", "quern has no activation without a gate; use PyTorch's own")
