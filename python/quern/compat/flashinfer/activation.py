# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's gated activations. input [..., 2 h], result [..., h]."""

import torch

from ._hints import check_flags as _check_flags
from ._run import run as _run


def _gated(name, input, out, enable_pdl):
    _check_flags(name, enable_pdl=enable_pdl)
    if out is None:
        out = torch.empty((*input.shape[:-1], input.shape[-1] // 2), dtype=input.dtype, device=input.device)
    _run(name, out, input, x="input")
    return out


def silu_and_mul(input, out=None, enable_pdl=None):
    """Returns silu(input[..., :h]) * input[..., h:]."""
    return _gated("silu_and_mul", input, out, enable_pdl)


def gelu_and_mul(input, out=None, enable_pdl=None):
    """Returns gelu(input[..., :h]) * input[..., h:]."""
    return _gated("gelu_and_mul", input, out, enable_pdl)


def gelu_tanh_and_mul(input, out=None, enable_pdl=None):
    """Returns gelu(input[..., :h]) * input[..., h:], with GELU's tanh form."""
    return _gated("gelu_tanh_and_mul", input, out, enable_pdl)
