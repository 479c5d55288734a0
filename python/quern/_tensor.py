# SPDX-License-Identifier: Apache-2.0
"""Devices, tensors on them, and outputs allocated in the kind of the input: NumPy, PyTorch or quern's own."""

import dataclasses
import functools
import sys

import numpy

from ._native import ffi, tvm_ffi

Tensor = tvm_ffi.Tensor
torch = None  # the module, once quern.torch is imported
check_torch = None  # then: raises for PyTorch tensors that cannot be taken, (op, names, values)

# quern's names of dtypes -> those of ml_dtypes, PyTorch and DLPack
_ALIASES = {"f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i32": "int32", "i64": "int64",
            "u8": "uint8", "e4m3fn": "float8_e4m3fn", "e4m3fnuz": "float8_e4m3fnuz", "e5m2": "float8_e5m2",
            "e5m2fnuz": "float8_e5m2fnuz"}
# What DLPack cannot carry out of NumPy: by the unsigned integer of that size.
_NOT_IN_NUMPY = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e4m3fnuz": "uint8", "float8_e5m2": "uint8",
                 "float8_e5m2fnuz": "uint8"}
_FP8_MAX = {"float8_e4m3fn": 448.0, "float8_e4m3fnuz": 240.0, "float8_e5m2": 57344.0, "float8_e5m2fnuz": 57344.0}


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that is open: `quern.device("sim:gfx942")`."""

    spec: str
    name: str
    arch: str
    driver: str
    dlpack: tuple  # (device type, number), as __dlpack_device__ gives it

    def __str__(self):
        return self.spec

    def synchronize(self):
        """Waits until the device has done what was queued on the current stream."""
        ffi.synchronize(_ffi_device(self.dlpack))


def _ffi_device(dlpack):
    return tvm_ffi.Device(*dlpack)


def device(spec="auto"):
    """Opens a device: "cpu", "hip:0", "cuda:0", "sim:gfx942", "sim:gfx942:2", "auto". A Device is given back as it is.

    Raises ValueError (malformed), LookupError (no such device or driver), RuntimeError (the driver's error).
    """
    if isinstance(spec, Device):
        return spec
    opened = ffi.device_open(spec)
    number = (int(opened.dlpack_device_type()), opened.index)
    return Device(*ffi.device_info(opened).split("\n"), dlpack=number)


def devices():
    """The specs of all devices that can be opened here, best first, simulated ones last."""
    return ffi.device_specs().splitlines()


# ---- dtypes

def dtype_name(dtype):
    """"float8_e4m3fn" for quern's "e4m3fn", a NumPy or ml_dtypes dtype, a PyTorch dtype, or that name itself."""
    if isinstance(dtype, str):
        return _ALIASES.get(str(dtype), str(dtype))
    text = str(dtype)
    if text.startswith("torch."):
        return text[len("torch."):]
    return numpy.dtype(dtype).name


def numpy_dtype(name):
    if name in _NOT_IN_NUMPY:
        import ml_dtypes
        return numpy.dtype(getattr(ml_dtypes, name))
    return numpy.dtype(name)


def fp8_name(dtype):
    """An FP8 kind's name. Raises ValueError for any other dtype."""
    name = dtype_name(dtype)
    if name not in _FP8_MAX:
        raise ValueError(f"dtype is {name}; accepted: {', '.join(_FP8_MAX)}")
    return name


# Making these costs microseconds, and a program uses few.
_ffi_dtype = functools.cache(tvm_ffi.dtype)
_ffi_shape = functools.lru_cache(1024)(tvm_ffi.Shape)


@functools.lru_cache(1024)
def _ffi_strides(strides, item):
    if any(stride % item for stride in strides):
        raise ValueError(f"array has byte strides {strides}, needs multiples of its {item}-byte elements")
    return tvm_ffi.Shape(tuple(stride // item for stride in strides))


# ---- tensors

def is_numpy(x):
    return isinstance(x, numpy.ndarray)


def must_lend(x):
    """Whether x is an array of an ml_dtypes' type. DLPack would refuse it with an exception, which costs microseconds."""
    return type(x) is numpy.ndarray and x.dtype.kind == "V"


def is_torch(x):
    if torch is not None:
        return isinstance(x, torch.Tensor)
    # While another thread imports PyTorch, its module has no Tensor yet.
    if "torch" in sys.modules and isinstance(x, getattr(sys.modules["torch"], "Tensor", ())):
        import quern.torch  # noqa: F401  (sets torch)
        return True
    return False


@functools.cache
def _carrier(dtype):
    """What carries an ml_dtypes' type out of NumPy, the unsigned integer of its size, or None; and the type for tvm_ffi."""
    carrier = _NOT_IN_NUMPY.get(dtype.name)
    return carrier and numpy.dtype(carrier), _ffi_dtype(dtype.name)


def lend(array):
    """A tensor over a NumPy array's memory, whatever its dtype; the array must outlive it. Nothing is copied."""
    carrier, dtype = _carrier(array.dtype)
    if carrier and array.flags.writeable:
        return ffi.lend_as(array.view(carrier), dtype)
    address = array.__array_interface__["data"][0]
    strides = _ffi_strides(array.strides, array.dtype.itemsize)
    return ffi.lend(address, _ffi_shape(array.shape), strides, dtype)


def tensor(x):
    """x as a Tensor over the same memory."""
    if isinstance(x, Tensor):
        return x
    try:
        return tvm_ffi.from_dlpack(x)
    except BufferError:
        if not is_numpy(x):
            raise
        return lend(x)


def empty(shape, dtype, device="cpu"):
    """A Tensor on a device, not initialised. Raises ValueError, MemoryError, and what device() raises."""
    number = _ffi_device(globals()["device"](device).dlpack)
    return ffi.empty(_ffi_shape(tuple(shape)), _ffi_dtype(dtype_name(dtype)), number)


def empty_like(x, shape=None, dtype=None):
    """An output for input x: NumPy for NumPy, PyTorch for PyTorch, else a Tensor on x's device."""
    if is_torch(x):
        if shape is None and dtype is None:
            return torch.empty_like(x)
        return torch.empty(x.shape if shape is None else shape, device=x.device,
                           dtype=x.dtype if dtype is None else getattr(torch, dtype_name(dtype)))
    if is_numpy(x):
        return numpy.empty(x.shape if shape is None else shape, x.dtype if dtype is None else numpy_dtype(dtype_name(dtype)))
    t = tensor(x)
    name = t.dtype if dtype is None else _ffi_dtype(dtype_name(dtype))
    return ffi.empty(_ffi_shape(tuple(t.shape if shape is None else shape)), name, t.device)


def empty_strided_like(x, shape, strides, dtype=None):
    """The same with strides, in elements."""
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
    return ffi.empty_strided(_ffi_shape(tuple(shape)), _ffi_shape(tuple(strides)), name, t.device)


def strides_of(x):
    """Strides in elements."""
    if is_numpy(x):
        return tuple(stride // x.itemsize for stride in x.strides)
    return tuple(x.stride() if is_torch(x) else tensor(x).strides)


def item_size(x):
    """Bytes of an element."""
    if is_torch(x):
        return x.element_size()
    return x.itemsize if is_numpy(x) else (x.dtype.bits + 7) // 8


def device_of(x):
    """What tells x's device from others; None: the CPU."""
    if is_numpy(x):
        return None
    if is_torch(x):
        return None if x.device.type == "cpu" else x.device
    number = tensor(x).__dlpack_device__()
    return None if number[0] == 1 else number


def give_like(x, tensor):
    """A Tensor of ours as what x is, over the same memory; on the CPU if x is NumPy's."""
    if is_torch(x):
        return torch.from_dlpack(tensor)
    return _view(tensor) if is_numpy(x) else tensor


def _view(tensor):
    name = str(tensor.dtype)
    if name not in _NOT_IN_NUMPY:
        return numpy.from_dlpack(tensor)
    import ctypes
    size = numpy.dtype(_NOT_IN_NUMPY[name]).itemsize
    count = max(1, tensor.numel()) * size
    memory = (ctypes.c_char * count).from_address(tensor.data_ptr()) if tensor.numel() else bytearray(count)
    memory_owner = numpy.frombuffer(memory, dtype=_NOT_IN_NUMPY[name])[:tensor.numel()]
    return memory_owner.view(numpy_dtype(name)).reshape(tensor.shape).copy()


def to(x, device):
    """A copy of x on a device, as a Tensor.

    x       anything that speaks DLPack, and NumPy arrays of ml_dtypes' types; on a device it must be contiguous
    device  a spec or a Device; "cpu" brings a result back
    """
    if is_torch(x):
        check_torch("to", ("x",), (x,))
    source, target = tensor(x), globals()["device"](device)
    result = empty(source.shape, str(source.dtype), target)
    if source.__dlpack_device__()[0] != 1 and target.dlpack[0] != 1 and source.__dlpack_device__() != target.dlpack:
        source = to(source, "cpu")  # between devices by way of the host
    ffi.copy(result, source)
    return result


def numpy_of(x):
    """x, on any device, as a NumPy array of its own; bf16 and FP8 as ml_dtypes' types."""
    return _view(to(x, "cpu"))
