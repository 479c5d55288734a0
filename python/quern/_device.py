# SPDX-License-Identifier: Apache-2.0
"""Devices, which are opened by their specs, and their properties."""

from __future__ import annotations

import dataclasses
import functools

from ._native import ffi, tvm_ffi
from ._public import public


@dataclasses.dataclass(frozen=True)
class Device:
    """A device that is open: `quern.device("sim:gfx942")`. Its text is its spec.

    >>> quern.device("cpu").spec
    'cpu'
    """

    spec: str
    name: str
    arch: str
    driver: str
    dlpack: tuple[int, int]  # (device type, number), as __dlpack_device__ gives it

    def __str__(self) -> str:
        return self.spec

    def synchronize(self) -> None:
        """Waits until the device has done all work that was queued on the current stream."""
        ffi.synchronize(ffi_device(self.dlpack))


@functools.lru_cache(256)
def ffi_device(dlpack):
    """Returns TVM-FFI's own device of that DLPack type and number."""
    return tvm_ffi.Device(*dlpack)


@functools.lru_cache(256)
def device_at(dlpack):
    """Returns the Device, which is open, of that DLPack type and number."""
    return Device(*ffi.device_info(ffi_device(dlpack)).split("\n"), dlpack=dlpack)


@public()
def device(spec: str | Device = "auto") -> Device:
    """Opens a device and returns it. A device stays open, and opening it again returns the same Device.

    spec  "cpu", "hip:0", "cuda:0", "sim:gfx942", "sim:gfx942:2" (a second simulated one), "auto" (the best device here),
          or a Device, which is returned unchanged

    Raises ValueError (malformed), LookupError (no such device or driver), RuntimeError (the driver's error), TypeError.

    >>> quern.device("sim:gfx942").name
    'AMD Instinct MI300X (simulated)'
    """
    if isinstance(spec, Device):
        return spec
    try:
        opened = ffi.device_open(spec)
    except ValueError as error:
        raise ValueError(f"device: spec is {str(error).removeprefix('device: ')}") from None
    return device_at((int(opened.dlpack_device_type()), opened.index))


@public()
def devices() -> list[str]:
    """Returns the specs of all devices that can be opened here, best first, simulated ones last.

    Raises RuntimeError if a driver fails.

    >>> "cpu" in quern.devices()
    True
    """
    return ffi.device_specs().splitlines()
