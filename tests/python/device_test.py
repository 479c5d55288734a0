# SPDX-License-Identifier: Apache-2.0
"""Devices, tensors on them, and what the package does to a process."""

import gc
import os
import pathlib
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, assert_close, normal, rms_reference

ALL = [np.float32, np.float16, np.float64, np.int32, np.int64, np.uint8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
       ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]


@pytest.mark.parametrize("spec", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("dtype", ALL)
def test_there_and_back(spec, dtype):
    x = (normal(1, (3, 5, 7)) * 9).astype(dtype)
    for array in (x, x[:, ::2], x[:0], x[0, 0, :1].reshape(())):
        back = quern.numpy(quern.to(array, spec))
        assert back.dtype == array.dtype and back.shape == array.shape
        np.testing.assert_array_equal(back.view(np.uint8) if back.ndim and back.size else back.astype(float),
                                      np.ascontiguousarray(array).view(np.uint8) if array.ndim and array.size
                                      else array.astype(float))


def test_a_result_outlives_its_tensor():
    arrays = [quern.numpy(quern.to(np.full((1 << 12,), i, BF16), "cpu")) for i in range(64)]
    gc.collect()
    assert all((array == i).all() for i, array in enumerate(arrays))


@pytest.mark.parametrize("spec", ["sim:gfx942", "sim:gfx1201"])
def test_rmsnorm_on_a_simulated_device(spec):
    x, weight = normal(2, (5, 256), BF16), normal(3, (256,), BF16)
    out = quern.rmsnorm(quern.to(x, spec), quern.to(weight, spec))
    assert isinstance(out, quern.Tensor) and out.__dlpack_device__() == quern.device(spec).dlpack
    assert_close(quern.numpy(out), rms_reference(x, weight), 256)
    assert ".gpu" in quern.last_kernel()


def test_between_devices():
    x = normal(4, (4, 4))
    there = quern.to(quern.to(x, "sim:gfx942"), "sim:gfx1151")
    np.testing.assert_array_equal(quern.numpy(there), x)


def test_device():
    device = quern.device("sim:gfx942")
    assert (device.spec, device.arch, str(device)) == ("sim:gfx942", "gfx942", "sim:gfx942")
    assert quern.device(device) is device and quern.device("sim:gfx942") == device
    assert {"cpu", "sim:gfx942"} <= set(quern.devices())
    device.synchronize()


@pytest.mark.parametrize("call, error, message", [
    (lambda: quern.device("tpu"), ValueError, "no such kind of device"),
    (lambda: quern.device(7), TypeError, "device: spec is 7; accepted: a string, a Device"),
    (lambda: quern.device("sim:gfx000"), ValueError, "no such architecture"),
    (lambda: quern.device("hip:64"), LookupError, "hip"),
    (lambda: quern.empty((-1,), "f32"), ValueError, "at least 0"),
    (lambda: quern.empty((1 << 62, 4), "f32"), ValueError, "at least 0"),
    (lambda: quern.empty((1 << 62, 2), "u8"), ValueError, "at least 0"),
    (lambda: quern.empty((1 << 50,), "f32"), MemoryError, "the system has no"),
    (lambda: quern.rmsnorm(quern.to(np.ones((1, 8), np.float32), "sim:gfx942"), np.ones(8, np.float32)), ValueError,
     "rmsnorm: weight is on DLPack device"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment}).stdout


def test_pytorch_is_left_alone(tmp_path):
    """Tests that importing quern does not touch PyTorch: a torch that cannot be imported stands first in the path."""
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    path = f"{tmp_path}:{os.environ['PYTHONPATH']}"
    code = ("import numpy as np, quern, sys; quern.rmsnorm(np.ones((1, 8), np.float32), np.ones(8, np.float32)); "
            "print('torch' in sys.modules)")
    assert run(sys.executable, "-c", code, PYTHONPATH=path).strip() == "False"


def test_command():
    assert run(sys.executable, "-m", "quern", "--version").split()[-1] == quern.__version__
    assert "sim:gfx942" in run(sys.executable, "-m", "quern", "devices")


def test_hip_names_lead_to_the_simulator():
    folder = pathlib.Path(quern.__file__).parent / "_native/lib/quern/sim"
    assert f'"folder": "{folder}"' in run(sys.executable, "-m", "quern", "sim", "--env")
    code = "import ctypes, sys; h = ctypes.CDLL(sys.argv[1]); n = ctypes.c_int(); print(h.hipGetDeviceCount(ctypes.byref(n)), n.value)"
    for name in ("libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"):
        assert run(sys.executable, "-m", "quern", "sim", "--", sys.executable, "-c", code, name).split() == ["0", "1"]


def test_exports_are_ours():
    native = pathlib.Path(quern.__file__).parent / "_native"
    symbols = {line.split()[-1] for line in run("nm", "-D", "--defined-only", str(native / "quern_ffi.so")).splitlines()}
    assert symbols and all(symbol.startswith("__tvm_ffi_") for symbol in symbols)
