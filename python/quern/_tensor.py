# SPDX-License-Identifier: Apache-2.0
"""quern's own arrays on devices, and new arrays of an input's kind: NumPy's, PyTorch's or quern's own."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

import numpy

from ._device import Device, device, device_at, ffi_device
from ._native import ffi, tvm_ffi
from ._public import public
from ._types import Array, DType, DTypeName

open_device = device  # where a parameter has that name
torch = None  # the module, once quern.torch is imported
check_torch = None  # then: raises for PyTorch tensors that cannot be taken, (op, names, values)

# quern's names of dtypes -> those of ml_dtypes, PyTorch and DLPack
_ALIASES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i32": "int32", "i64": "int64",
            "u8": "uint8", "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2",
            "e5m2fnuz": "float8_e5m2fnuz", "e8m0fnu": "float8_e8m0fnu"}
# Dtypes that DLPack cannot carry out of NumPy, and the unsigned integer of that size that carries each.
_NOT_IN_NUMPY = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e4m3fnuz": "uint8", "float8_e5m2": "uint8",
                 "float8_e5m2fnuz": "uint8", "float8_e8m0fnu": "uint8"}
_COPIED = "f64, f32, f16, bf16, FP8, i64, i32, i8, u8, bool"
_FP8_MAX = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0}


# ---- dtypes

def dtype_name(dtype):
    """Returns "float8_e4m3fn" for quern's "e4m3fn", a NumPy, ml_dtypes or PyTorch dtype of that name, or that name itself."""
    if isinstance(dtype, str):
        return _ALIASES.get(str(dtype), str(dtype))
    text = str(dtype)
    if dtype is None:
        return text  # which NumPy would take for float64
    if text.startswith("torch."):
        return text[len("torch."):]
    try:
        return numpy.dtype(dtype).name
    except TypeError:
        return text


@functools.cache
def numpy_dtype(name):
    if name in _NOT_IN_NUMPY:
        import ml_dtypes
        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def choose_dtype(op, dtype, accepted, parameter="dtype"):
    """Returns the dtype's name. Raises ValueError unless it is among the accepted."""
    name = dtype_name(dtype)
    if name not in accepted:
        known = {full: short for short, full in _ALIASES.items()}
        raise ValueError(f"{op}: {parameter} is {dtype if isinstance(dtype, str) else name!r}; "
                         f"accepted: {', '.join(known.get(x, x) for x in accepted)}")
    return name


def fp8_name(op, dtype):
    """Returns an FP8 kind's name. Raises ValueError for any other dtype."""
    return choose_dtype(op, dtype, _FP8_MAX)


def number_name(op, dtype):
    """Returns the name of an FP8 kind or int8. Raises ValueError for any other dtype."""
    return choose_dtype(op, dtype, (*_FP8_MAX, "int8"))


# Making one costs microseconds, and a program uses few, so they are kept.
_ffi_dtype = functools.cache(tvm_ffi.dtype)
_ffi_shape = functools.lru_cache(1024)(tvm_ffi.Shape)


@functools.lru_cache(1024)
def _ffi_strides(strides, item):
    if any(stride % item for stride in strides):
        raise ValueError(f"has byte strides {strides}; accepted: multiples of its {item}-byte elements")
    return tvm_ffi.Shape(tuple(stride // item for stride in strides))


# ---- quern's own

class Tensor:
    """An array on a device. quern.to, quern.empty and functions on Tensors make it.

    A Tensor speaks DLPack. Indices, slices with steps above 0, None and ... give views of its memory. On the CPU, numpy()
    and numpy.asarray() give its memory; on other devices they raise an error, and quern.numpy(x) copies it to the host. Its
    text is its content with shape, dtype and device. copy and pickle make a new Tensor on its device.

    >>> x = quern.to(numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "sim:gfx942")
    >>> x[1, 1:]
    quern.Tensor([4., 5.], shape=(2,), dtype=float32, device='sim:gfx942')
    """

    __slots__ = ("_ffi", "__weakref__")

    def __init__(self, ffi_tensor: Any) -> None:
        if not isinstance(ffi_tensor, tvm_ffi.Tensor):
            raise TypeError(f"Tensor: found a {type(ffi_tensor).__name__}; quern.to and quern.empty make Tensors")
        self._ffi = ffi_tensor

    def __tvm_ffi_object__(self) -> Any:
        return self._ffi

    def __dlpack__(self, *, stream: Any = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        return self._ffi.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._ffi.__dlpack_device__()

    # ---- what it is

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's sizes."""
        return tuple(self._ffi.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance from one element to the next along each dimension, in elements."""
        return tuple(self._ffi.strides)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._ffi.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._ffi.shape)

    @property
    def dtype(self) -> numpy.dtype[Any]:
        """The dtype: NumPy's, or ml_dtypes' for bf16 and FP8."""
        return numpy_dtype(str(self._ffi.dtype))

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.itemsize

    @property
    def device(self) -> Device:
        """The device that holds the tensor."""
        return device_at(self._ffi.__dlpack_device__())

    def data_ptr(self) -> int:
        """Returns the address of the first element on its device."""
        return self._ffi.data_ptr()

    def is_contiguous(self) -> bool:
        """Returns whether its elements lie one after another, with the last dimension running fastest."""
        return self._ffi.is_contiguous()

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("Tensor: len() of a tensor without dimensions")
        return self._ffi.shape[0]

    def __bool__(self) -> bool:
        return bool(numpy_of(self))

    def __repr__(self) -> str:
        text = numpy.array2string(numpy_of(self), separator=", ", prefix="quern.Tensor(")
        return f"quern.Tensor({text}, shape={self.shape}, dtype={self.dtype.name}, device={self.device.spec!r})"

    # ---- its memory

    def __getitem__(self, index: Any) -> Tensor:
        offset, shape, strides = _view(index, self.shape, self.strides)
        return Tensor(ffi.view(self._ffi, offset * self.itemsize, _ffi_shape(shape), _ffi_shape(strides)))

    def numpy(self) -> numpy.ndarray[Any, Any]:
        """Returns its memory as a NumPy array. Raises TypeError unless it is host memory."""
        if self._ffi.__dlpack_device__()[0] != 1:
            raise TypeError(f"Tensor.numpy: the tensor is on {self.device}; quern.numpy(x) copies it to the host")
        name = str(self._ffi.dtype)
        if name not in _NOT_IN_NUMPY:
            return numpy.from_dlpack(self._ffi)
        return numpy.from_dlpack(ffi.lend_as(self._ffi, _ffi_dtype(_NOT_IN_NUMPY[name]))).view(numpy_dtype(name))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> numpy.ndarray[Any, Any]:
        return numpy.array(self.numpy(), dtype, copy=copy)

    def __copy__(self) -> Tensor:
        return to(self, self.device)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return self.__copy__()

    def __reduce__(self) -> Any:
        return to, (numpy_of(self), self.device.spec)


def _view(index, shape, strides):
    """Returns the offset, the shape and the strides, in elements, of the view that an index takes."""
    index = list(index) if isinstance(index, tuple) else [index]
    taken = sum(part is not None and part is not Ellipsis for part in index)
    rest = [slice(None)] * (len(shape) - taken)
    if taken > len(shape):
        raise IndexError(f"Tensor: found {taken} indices; accepted: {len(shape)} for shape {shape}")
    at = next((i for i, part in enumerate(index) if part is Ellipsis), len(index))
    index[at:at + 1] = rest
    offset, dim, sizes, steps = 0, 0, [], []
    for part in index:
        if part is None:
            sizes.append(1)
            steps.append(0)
            continue
        size, stride, dim = shape[dim], strides[dim], dim + 1
        if isinstance(part, slice):
            begin, end, step = part.indices(size)
            if step < 1:
                raise IndexError(f"Tensor: a slice has step {step}; accepted: 1 or above")
            sizes.append(len(range(begin, end, step)))
            steps.append(stride * step)
        else:
            begin = _position(part, size)
        offset += begin * stride if sizes[-1:] != [0] else 0
    return offset, tuple(sizes), tuple(steps)


def _position(part, size):
    try:
        i = operator.index(part)
    except TypeError:
        raise IndexError(f"Tensor: an index is a {type(part).__name__}; accepted: integers, slices, None, ...") from None
    if not -size <= i < size:
        raise IndexError(f"Tensor: index {i} is out of range; accepted: {-size} to {size - 1}")
    return i % size


# ---- others' arrays

def is_numpy(x):
    return isinstance(x, numpy.ndarray)


def is_torch(x):
    if torch is not None:
        return isinstance(x, torch.Tensor)
    # While another thread imports PyTorch, its module has no Tensor yet.
    if "torch" in sys.modules and isinstance(x, getattr(sys.modules["torch"], "Tensor", ())):
        import quern.torch  # noqa: F401  (sets torch)
        return True
    return False


def is_masked(x):
    """Returns whether x is one of NumPy's masked arrays, whose mask DLPack does not carry."""
    return is_numpy(x) and "numpy.ma" in sys.modules and isinstance(x, numpy.ma.MaskedArray)


def fault_of(x):
    """Returns what of x DLPack does not describe, and what to pass instead; None if DLPack describes all of x."""
    if not is_numpy(x):
        return None
    if is_masked(x):
        return "is a masked array; accepted: one without a mask, such as x.filled(0)"
    if x.dtype.names is not None:
        return f"has the structured dtype {x.dtype}; accepted: one field of it, such as x[{x.dtype.names[0]!r}]"
    if not x.dtype.isnative:
        return f"has dtype {x.dtype.str}, of the other byte order; accepted: this machine's, such as x.astype({x.dtype.name!r})"
    if x.dtype.kind in "OSUMmT":
        return f"has dtype {x.dtype}; accepted: numbers"
    return None


@functools.cache
def _carrier(dtype):
    """Returns the unsigned integer type that carries an ml_dtypes type out of NumPy, or None; and the type for tvm_ffi."""
    carrier = _NOT_IN_NUMPY.get(dtype.name)
    try:
        return carrier and numpy.dtype(carrier), _ffi_dtype(dtype.name)
    except ValueError:
        raise NotImplementedError(f"has dtype {dtype}; accepted: {_COPIED}") from None


def lend(array):
    """Returns TVM-FFI's tensor over a NumPy array's memory, of any dtype. The array must outlive it; nothing is copied."""
    if fault := fault_of(array):
        raise ValueError(fault)
    carrier, dtype = _carrier(array.dtype)
    if carrier and array.flags.writeable:
        return ffi.lend_as(array.view(carrier), dtype)
    address = array.__array_interface__["data"][0]
    strides = _ffi_strides(array.strides, array.dtype.itemsize)
    return ffi.lend(address, _ffi_shape(array.shape), strides, dtype)


def tensor(x):
    """Returns TVM-FFI's tensor over x's memory."""
    if isinstance(x, Tensor):
        return x._ffi
    if isinstance(x, tvm_ffi.Tensor):
        return x
    if is_masked(x):
        return lend(x)
    try:
        return tvm_ffi.from_dlpack(x)
    except BufferError:
        if not is_numpy(x):
            raise
        return lend(x)


# ---- new ones

def _new(shape, dtype, number):
    return Tensor(ffi.empty(_ffi_shape(tuple(shape)), dtype, ffi_device(number)))


@public(op="device", spec="device")
def empty(shape: Sequence[int], dtype: DType, device: str | Device = "cpu") -> Tensor:
    """Makes a Tensor on a device. Its content is undefined.

    shape   sizes, at least 0
    dtype   of the elements
    device  a spec, as quern.device has them, or a Device

    Raises ValueError (a negative size, an unknown dtype), MemoryError, and what quern.device raises.

    >>> quern.empty((2, 3), "bf16", "sim:gfx942").shape
    (2, 3)
    """
    accepted = [name for name in DTypeName.__args__ if name not in _ALIASES]
    name = choose_dtype("empty", dtype, accepted)
    return _new(shape, _ffi_dtype(name), open_device(device).dlpack)


def empty_like(x, shape=None, dtype=None):
    """Returns a new output for input x: NumPy's for NumPy, PyTorch's for PyTorch, else a Tensor on x's device."""
    if is_torch(x):
        if shape is None and dtype is None:
            return torch.empty_like(x)
        return torch.empty(x.shape if shape is None else shape, device=x.device,
                           dtype=x.dtype if dtype is None else getattr(torch, dtype_name(dtype)))
    if is_numpy(x):
        return numpy.empty(x.shape if shape is None else shape, x.dtype if dtype is None else numpy_dtype(dtype_name(dtype)))
    t = tensor(x)
    name = t.dtype if dtype is None else _ffi_dtype(dtype_name(dtype))
    return _new(t.shape if shape is None else shape, name, t.__dlpack_device__())


def empty_strided_like(x, shape, strides, dtype=None):
    """Returns a new array as empty_like does, with these strides, in elements."""
    if is_torch(x):
        return torch.empty_strided(shape, strides, device=x.device,
                                   dtype=x.dtype if dtype is None else getattr(torch, dtype_name(dtype)))
    if is_numpy(x):
        name = x.dtype if dtype is None else numpy_dtype(dtype_name(dtype))
        extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
        flat = numpy.empty(extent, name)
        return numpy.ndarray(shape, name, flat, strides=[stride * flat.itemsize for stride in strides])
    t = tensor(x)
    name = t.dtype if dtype is None else _ffi_dtype(dtype_name(dtype))
    return Tensor(ffi.empty_strided(_ffi_shape(tuple(shape)), _ffi_shape(tuple(strides)), name, t.device))


def dims(op, name, x, *accepted):
    """Returns x's shape. Raises ValueError unless its number of dimensions is among the accepted."""
    shape = tuple(x.shape)
    if len(shape) not in accepted:
        raise ValueError(f"{op}: {name} has shape {list(shape)}, needs {' or '.join(map(str, accepted))} dimensions")
    return shape


def strides_of(x):
    """Returns x's strides in elements."""
    if is_numpy(x):
        return tuple(stride // x.itemsize for stride in x.strides)
    return tuple(x.stride() if is_torch(x) else tensor(x).strides)


def item_size(x):
    """Returns the size of an element in bytes."""
    return x.element_size() if is_torch(x) else (tensor(x).dtype.bits + 7) // 8


def device_of(x):
    """Returns a value that differs between devices: None for the CPU."""
    if is_numpy(x):
        return None
    if is_torch(x):
        return None if x.device.type == "cpu" else x.device
    number = tensor(x).__dlpack_device__()
    return None if number[0] == 1 else number


def give_like(x, tensor):
    """Returns an array of x's kind over the memory of TVM-FFI's tensor, which is on the CPU if x is NumPy's."""
    if is_torch(x):
        return torch.from_dlpack(tensor)
    return Tensor(tensor).numpy() if is_numpy(x) else Tensor(tensor)


# ---- from one device to another

def _on_host(source):
    """Returns a copy of a device's tensor in host memory, with its strides, as devices copy only contiguous memory."""
    shape, strides = _ffi_shape(tuple(source.shape)), _ffi_shape(tuple(source.strides))
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if 0 not in shape else 0
    stretch = ffi.view(source, 0, _ffi_shape((extent,)), _ffi_shape((1,)))
    return ffi.view(to(Tensor(stretch), "cpu")._ffi, 0, shape, strides)


@public(op="device", spec="device")
def to(x: Array, device: str | Device) -> Tensor:
    """Copies x to a device.

    x       any array; strided ones, and those that go from one GPU to another, pass through the host
    device  a spec, as quern.device has them, or a Device; "cpu" brings a result back, as quern.numpy does

    Raises TypeError (no array), NotImplementedError (dtype), MemoryError, and what quern.device raises.

    >>> quern.to(numpy.ones(3, numpy.float32), "sim:gfx942")
    quern.Tensor([1., 1., 1.], shape=(3,), dtype=float32, device='sim:gfx942')
    """
    if is_torch(x):
        check_torch("to", ("x",), (x,))
    source, target = tensor(x), open_device(device)
    here = source.__dlpack_device__()
    if here[0] != 1 and (not source.is_contiguous() or (target.dlpack[0] != 1 and here != target.dlpack)):
        source = _on_host(source)
    try:
        dtype = source.dtype
    except ValueError:  # one that TVM-FFI has no name for
        raise NotImplementedError(f"to: x has dtype {dtype_name(x.dtype)}; accepted: {_COPIED}") from None
    result = _new(source.shape, dtype, target.dlpack)
    ffi.copy(result, source)
    return result


@public(name="numpy", op="to")
def numpy_of(x: Array) -> numpy.ndarray[Any, Any]:
    """Copies x, from any device, to a NumPy array; bf16 and FP8 become ml_dtypes' types.

    x  any array

    Raises TypeError (no array), NotImplementedError (dtype), MemoryError, RuntimeError (the driver's error).

    >>> quern.numpy(quern.to(numpy.ones(3, numpy.float32), "sim:gfx942"))
    array([1., 1., 1.], dtype=float32)
    """
    return to(x, "cpu").numpy()
