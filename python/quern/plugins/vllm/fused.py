# SPDX-License-Identifier: Apache-2.0
"""vLLM's SiLU with the quantisation for the linear layer behind it, in one kernel. vLLM finds such kernels by the activation's class and the
layer's kind of input, so that quern's subclass of the activation needs lines of its own; without them layers would get two kernels."""

import torch
from vllm.model_executor.layers.activation import SiluAndMul
from vllm.model_executor.layers.fusion import fused_act_quant
from vllm.model_executor.layers.fusion.quant_activation import QuantizedActivation
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym, kFp8StaticTensorSym
from vllm.platforms import current_platform

import quern

from .._layers import asked
from . import _where


def _half(x):
    return torch.empty(*x.shape[:-1], x.shape[-1] // 2, dtype=current_platform.fp8_dtype(), device=x.device)


def _static(x, linear):
    out = quern.act_and_mul_quant(x, linear.input_scale.view(1), out=_half(x))
    return QuantizedActivation(out, linear.input_scale, x.dtype, out.shape, kFp8StaticTensorSym)


def _groups(x, linear):
    out, scale = quern.act_and_mul_dynamic_quant(x, group=128, out=_half(x))
    return QuantizedActivation(out, scale, x.dtype, out.shape, kFp8Dynamic128Sym)


# The layer's kind of input, quern's producer, its name in the table, quern's op, and with what else that is asked.
_PRODUCERS = [
    (kFp8StaticTensorSym, _static, "SiluAndMul-FP8-static", quern.act_and_mul_quant, {"scale": torch.ones(1)}),
    (kFp8Dynamic128Sym, _groups, "SiluAndMul-FP8-1x128", quern.act_and_mul_dynamic_quant, {"group": 128}),
]


def _either(name, ours, theirs):
    return lambda x, linear: _where.calls(name, lambda: ours(x, linear), lambda: theirs(x, linear))


def register(table, subclass):
    """Puts quern's producers beside vLLM's own of SiluAndMul, for quern's subclass of it."""
    (x,), text = asked("silu_and_mul")
    for key, ours, name, op, options in _PRODUCERS:
        theirs = fused_act_quant._FUSED_ACT_QUANT.get((SiluAndMul, key))
        if theirs is not None:
            fused_act_quant._FUSED_ACT_QUANT[subclass, key] = _either(name, ours, theirs)
            table.serve(name, _where.probe().kernel(op, x, **options), text)
