# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's numbers for layers of experts and for layouts. Their repr is a Python expression."""

import enum

import torch

from ..._public import found

DEFAULT_SWIGLU_ALPHA, DEFAULT_SWIGLU_BETA, DEFAULT_SWIGLU_LIMIT = 1.0, 0.0, torch.finfo(torch.float32).max  # which bounds nothing


class _Number(enum.IntEnum):
    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"


class RoutingMethodType(_Number):
    """How experts are chosen, and what their weights are."""

    Default = 0  # softmax, then the largest
    Renormalize = 1  # the largest, then softmax of them
    DeepSeekV3 = 2  # sigmoid plus bias, groups; weights without bias, renormalised and scaled
    Llama4 = 3  # the largest one, then sigmoid
    RenormalizeNaive = 4  # softmax, then the largest, renormalised
    TopK = 5  # the largest, as they are
    SigmoidRenorm = 6
    MiniMax2 = 7  # sigmoid plus bias; weights without bias, renormalised
    Sigmoid = 8
    TopKSigmoid = 9
    Unspecified = 10


class ActivationType(_Number):
    """What acts between an expert's two products."""

    Gelu = 0
    Relu = 1
    Silu = 2
    Swiglu = 3
    Geglu = 4
    SwigluBias = 5
    Relu2 = 6
    SwigluStep = 7
    GegluTanh = 8
    Identity = 9
    Situ = 10
    InvalidType = 11
    ClampedRelu2 = 12

    @property
    def is_gated(self):
        """Whether the first product has a gate beside each value."""
        return self in (ActivationType.Swiglu, ActivationType.Geglu, ActivationType.SwigluBias, ActivationType.SwigluStep,
                        ActivationType.GegluTanh, ActivationType.Situ)


class SfLayout(_Number):
    """Where a matrix's scales lie: in tiles of 128 x 4 or 8 x 4, or by rows."""

    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2


class WeightLayout(_Number):
    """Where a weight's elements lie: [mn, k], [k, mn], or [k / block, mn, block] with blocks of 128 bytes."""

    MajorK = 0
    MajorMn = 1
    BlockMajorK = 2


class Fp8QuantizationType(_Number):
    """What scales FP8 has."""

    NoneFp8 = 0
    DeepSeekFp8 = 1
    MxFp8 = 2
    PerTensorFp8 = 3
    PerChannelFp8 = 4


def member(op, name, kind, value):
    """Returns a number of an enum, given as such or as an integer."""
    if isinstance(value, bool) or not isinstance(value, int) or value not in list(kind):
        raise ValueError(f"{op}: {name} is {found(value)}; accepted: {', '.join(f'{m.name} ({m.value})' for m in kind)}")
    return kind(value)


def is_gated_activation(activation_type):
    """Returns whether the first product has a gate beside each value."""
    return member("is_gated_activation", "activation_type", ActivationType, activation_type).is_gated
