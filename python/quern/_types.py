# SPDX-License-Identifier: Apache-2.0
"""Types of arguments and results: for checkers, for help(), and for messages about arguments that fit none of them."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar, Union

import numpy


class Array(Protocol):
    """An array that speaks DLPack: a NumPy array, a PyTorch tensor, a quern.Tensor and others."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


class _TorchDType(Protocol):
    """The attributes of a torch.dtype, for checkers that do not know PyTorch."""

    @property
    def is_floating_point(self) -> bool: ...

    @property
    def itemsize(self) -> int: ...


A = TypeVar("A", bound=Array)  # a result is of its first array's kind and dtype

Layout = Literal["NHD", "HND"]
Activation = Literal["silu", "gelu", "gelu_tanh"]
GemmActivation = Literal["gelu_tanh", "silu_and_mul"]
MoeFunction = Literal["silu", "gelu", "gelu_tanh", "swiglu"]
MoeScoring = Literal["softmax", "sigmoid"]
PosEncoding = Literal["none", "rope_llama", "alibi"]
LseBase = Literal[2, "e"]
FilterOrder = Literal["top_k_first", "joint"]
BitOrder = Literal["big", "little"]
DTypeName = Literal["f64", "f32", "f16", "bf16", "i8", "i32", "i64", "u8", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu",
                    "float64", "float32", "float16", "bfloat16", "int8", "int32", "int64", "uint8", "bool",
                    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
DType = Union[DTypeName, numpy.dtype[Any], type, _TorchDType]
Block = tuple[int, int]
