# SPDX-License-Identifier: Apache-2.0
"""Trials: a module and its replacement on the same small random numbers, on the CPU in f32, before the replacement is taken.

A class's name says little, and libraries change, so what a module computes decides. A trial's module is a twin: it has
the module's class and options, and small weights of its own, so that neither the model's weights nor the random state
of the process is touched.
"""

import contextlib
import copy
import sys

import torch

from . import Unfit

_generator = torch.Generator()


def numbers(*shape):
    """Returns standard normal f32 numbers, other ones at each call."""
    return torch.randn(shape, generator=_generator)


def rows(*shape):
    """Returns numbers whose first row is so small that a norm's eps counts."""
    x = numbers(*shape)
    x[(0,) * (len(shape) - 1)] *= 1e-3
    return x


def weights(*shape):
    """Returns numbers about 1, so that results differ by whether a norm uses the weight, one plus the weight, or
    none."""
    return torch.nn.Parameter(0.5 + torch.rand(shape, generator=_generator), requires_grad=False)


def linear(inputs, outputs):
    layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
    layer.weight.data.copy_(numbers(outputs, inputs))
    layer.bias.data.copy_(numbers(outputs))
    return layer


def gemm(out, a, b, c, scale_a, scale_b, bias, gate, scale_out, given_scale, activation, eps, packed):
    """Computes the op by PyTorch's operators, of any dtype without scales; activation is none or GELU."""
    y = torch.nn.functional.linear(a, b, bias)
    y = torch.nn.functional.gelu(y, approximate="tanh") if activation else y
    if gate is not None:
        y = (y.view(gate.shape[0], -1, y.shape[-1]) * gate[:, None]).view(y.shape)
    out.copy_(y if c is None else c + y)


def _act(both, function, limit, alpha, interleaved):
    gate, up = (both[..., ::2], both[..., 1::2]) if interleaved else both.chunk(2, -1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    if function == 3:
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    nn = torch.nn.functional
    return (nn.silu, nn.gelu, lambda x: nn.gelu(x, approximate="tanh"))[function](gate) * up


def fused_moe(out, workspace, x, x_scale, w1, w2, w1_scale, w2_scale, bias1, bias2, weights, ids, expert_map, addend, function,
              limit, alpha, interleaved, packed, inner):
    """Computes the op by PyTorch's operators, of any dtype without scales, a pair of token and expert at a time."""
    linear = torch.nn.functional.linear
    out.zero_()
    for (token, j), expert in zip(torch.cartesian_prod(*map(torch.arange, ids.shape)), ids.flatten(), strict=True):
        bias = [None if b is None else b[expert] for b in (bias1, bias2)]
        h = _act(linear(x[token], w1[expert], bias[0]), function, limit, alpha, interleaved)
        out[token] += weights[token, j] * linear(h, w2[expert], bias[1])


def twin(module, parameters=None, modules=None, buffers=None):
    """Returns a copy of module with other parameters, submodules and buffers; it shares all other attributes with module."""
    other = copy.copy(module)
    other.__dict__["_buffers"] = {**module._buffers, **(buffers or {})}
    other.__dict__["_parameters"] = {**module._parameters, **(parameters or {})}
    other.__dict__["_modules"] = {**module._modules, **(modules or {})}
    return other


def eager(config):
    """Returns a copy of a transformers configuration with which attention is PyTorch's, and no kernel that the model has chosen."""
    config = copy.copy(config)
    config._attn_implementation = "eager"
    return config


def native(processor):
    """Returns a copy of one of diffusers' attention processors that has chosen no kernel."""
    processor = copy.copy(processor)
    processor._attention_backend = None
    return processor


def run(function, *arguments, **named):
    """Returns function's result, without gradients and with PyTorch's attention; raises Unfit if function raises."""
    diffusers = sys.modules.get("diffusers.models.attention_dispatch")
    try:
        with torch.no_grad(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), \
                diffusers.attention_backend("native") if diffusers else contextlib.nullcontext():
            return function(*arguments, **named)
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise Unfit(f"a trial raised {type(error).__name__}: {text}") from error


def agree(got, want):
    """Returns whether two results, tensors or tuples of them, differ by no more than f32's roundings might make.

    The bound is 2^-17 of the largest element, or 128 roundings. Another formula differs by more: the two closest
    formulas here, GELU and its tanh form, differ by 2^-11 where they are about 2.
    """
    if isinstance(want, tuple):
        return isinstance(got, tuple) and len(got) == len(want) and all(map(agree, got, want))
    if want is None or got is None:
        return got is want
    return got.shape == want.shape and bool((got - want).abs().max() <= 2.0**-17 * want.abs().max())
