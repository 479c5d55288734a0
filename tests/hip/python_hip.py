# SPDX-License-Identifier: Apache-2.0
"""HIP from Python through ctypes, with nothing but the library's name: quern sim --devices 2 -- python python_hip.py OBJECT."""
import ctypes
import sys

HIP = ctypes.CDLL("libamdhip64.so")
N = 100


def ok(error):
    assert error == 0, HIP.hipGetErrorName(error)


HIP.hipGetErrorName.restype = ctypes.c_char_p
count = ctypes.c_int()
ok(HIP.hipGetDeviceCount(ctypes.byref(count)))
assert count.value == 2, count
for device in range(count.value):
    ok(HIP.hipSetDevice(device))
    module, function, buffer = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    ok(HIP.hipModuleLoad(ctypes.byref(module), sys.argv[1].encode()))
    ok(HIP.hipModuleGetFunction(ctypes.byref(function), module, b"scale"))
    host = (ctypes.c_int * N)(*range(N))
    size = ctypes.c_size_t(ctypes.sizeof(host))
    ok(HIP.hipMalloc(ctypes.byref(buffer), size))
    ok(HIP.hipMemcpy(buffer, host, size, 1))
    values = buffer, ctypes.c_int(N), ctypes.c_short(device - 3)
    params = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
    ok(HIP.hipModuleLaunchKernel(function, 2, 1, 1, 64, 1, 1, 0, None, params, None))
    ok(HIP.hipMemcpy(host, buffer, size, 2))
    assert list(host) == [i * (device - 3) + 3 for i in range(N)], list(host)
    ok(HIP.hipFree(buffer))
    ok(HIP.hipModuleUnload(module))
