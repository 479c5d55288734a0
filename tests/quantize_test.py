# SPDX-License-Identifier: Apache-2.0
"""qn_quantize_fp8 and qn_dequantize_fp8 of the built library, bit for bit against NumPy and ml_dtypes."""
import ctypes
import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

LIBRARY = ctypes.CDLL(str(pathlib.Path(os.environ["QUERN_BUILD_DIR"]) / "libquern.so"))
LIBRARY.qn_last_error.restype = ctypes.c_char_p
# NumPy type: DLPack's code and bits
DLPACK = {np.float32: (2, 32), np.float16: (2, 16), ml_dtypes.bfloat16: (4, 16), ml_dtypes.float8_e4m3fn: (10, 8),
          ml_dtypes.float8_e4m3fnuz: (11, 8), ml_dtypes.float8_e5m2: (12, 8), ml_dtypes.float8_e5m2fnuz: (13, 8)}
FP8 = [t for t, (_, bits) in DLPACK.items() if bits == 8]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]


def tensor(array):
    """Returns a DLTensor over a NumPy matrix. It keeps the memory it points to alive."""
    code, bits = DLPACK[array.dtype.type]
    shape = (ctypes.c_int64 * 2)(*array.shape)
    strides = (ctypes.c_int64 * 2)(*(s // array.itemsize for s in array.strides))
    t = DLTensor(array.ctypes.data, 1, 0, 2, code, bits, 1, ctypes.addressof(shape), ctypes.addressof(strides), 0)
    t.alive = (array, shape, strides)
    return t


def check(status):
    assert status == 0, LIBRARY.qn_last_error().decode()


@pytest.fixture(scope="module")
def stream():
    device, out = ctypes.c_void_p(), ctypes.c_void_p()
    check(LIBRARY.qn_device_open(ctypes.byref(device), b"cpu"))
    check(LIBRARY.qn_stream_create(ctypes.byref(out), device))
    yield out
    LIBRARY.qn_stream_destroy(out)
    LIBRARY.qn_device_close(device)


def each_block(matrix, rows):
    """Gives (index of the scale, the block) of every block of rows x 128."""
    for r in range(0, matrix.shape[0], rows):
        for c in range(0, matrix.shape[1], 128):
            yield (r // rows, c // 128), np.s_[r:r + rows, c:c + 128]


def quantized(x, kind, rows, eps):
    """Quantises by the definition, in NumPy's float32."""
    top = np.float32(ml_dtypes.finfo(kind).max)
    q = np.zeros(x.shape, kind)
    scale = np.zeros((-(-x.shape[0] // rows), -(-x.shape[1] // 128)), np.float32)
    for i, block in each_block(x, rows):
        values = x[block].astype(np.float32)
        scale[i] = np.maximum(np.abs(values).max(), np.float32(eps)) / top
        y = values * (np.float32(1) / scale[i])
        q[block] = np.clip(y, -top, top).astype(kind)
    return q, scale


def values(dtype, shape):
    rng = np.random.default_rng(5)
    x = rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, (shape[0], 1)))
    return x.astype(dtype)


@pytest.mark.parametrize("rows", [1, 128])
@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_quantize(stream, dtype, kind, rows):
    x = values(dtype, (300, 500))
    want_q, want_scale = quantized(x, kind, rows, 1e-4)
    q, scale = np.zeros(x.shape, kind), np.zeros(want_scale.shape, np.float32)
    check(LIBRARY.qn_quantize_fp8(stream, ctypes.byref(tensor(q)), ctypes.byref(tensor(scale)),
                                  ctypes.byref(tensor(x)), ctypes.c_int64(rows), ctypes.c_int64(128),
                                  ctypes.c_float(1e-4)))
    np.testing.assert_array_equal(scale, want_scale)
    np.testing.assert_array_equal(q.view(np.uint8), want_q.view(np.uint8))


@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_dequantize(stream, dtype, kind):
    rng = np.random.default_rng(6)
    q = rng.integers(0, 256, (64, 640), dtype=np.uint8).view(kind)
    scale = rng.uniform(0.001, 2, (64, 5)).astype(np.float32)
    x = np.zeros(q.shape, dtype)
    check(LIBRARY.qn_dequantize_fp8(stream, ctypes.byref(tensor(x)), ctypes.byref(tensor(q)),
                                    ctypes.byref(tensor(scale)), ctypes.c_int64(1), ctypes.c_int64(128)))
    with np.errstate(over="ignore"):
        want = (q.astype(np.float64) * np.repeat(scale, 128, axis=1)).astype(dtype)
    np.testing.assert_array_equal(x.astype(np.float64), want.astype(np.float64))
