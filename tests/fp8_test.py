# SPDX-License-Identifier: Apache-2.0
"""ops/shared/fp8.h against ml_dtypes: every code, every f16 and bf16 value, and random f32 values.

The two differ by design where a value is too large (ml_dtypes overflows to NaN or infinity, quern saturates)
and in which of its NaN codes a kind gives.
"""
import ctypes
import os
import pathlib
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ.get("QUERN_SOURCE_DIR", pathlib.Path(__file__).parents[1]))
KINDS = [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz,
         ml_dtypes.float8_e5m2, ml_dtypes.float8_e5m2fnuz]  # in the order of qni_fp8
WRAPPER = """
#include "ops/shared/fp8.h"
void encode(int kind, int n, const float *x, uint8_t *codes) {
    for (int i = 0; i < n; i++) codes[i] = qni_fp8_encode((qni_fp8)kind, x[i]);
}
void decode(int kind, int n, const uint8_t *codes, float *x) {
    for (int i = 0; i < n; i++) x[i] = qni_fp8_decode((qni_fp8)kind, codes[i]);
}
"""


def compiler():
    cache = pathlib.Path(os.environ.get("QUERN_BUILD_DIR", ".")) / "CMakeCache.txt"
    found = re.search(r"^CMAKE_C_COMPILER:\w+=(.+)$", cache.read_text(), re.M) if cache.exists() else None
    return found.group(1) if found else "clang-22"


@pytest.fixture(scope="module")
def header(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fp8")
    (folder / "wrapper.c").write_text(WRAPPER)
    subprocess.run([compiler(), "-std=gnu23", "-O2", "-shared", "-fPIC", "-ffp-contract=off", f"-I{SOURCE}",
                    "-o", folder / "fp8.so", folder / "wrapper.c", "-lm"], check=True)
    return ctypes.CDLL(str(folder / "fp8.so"))


def encode(header, kind, x):
    codes = np.zeros(x.size, np.uint8)
    header.encode(kind, x.size, x.ctypes.data_as(ctypes.c_void_p), codes.ctypes.data_as(ctypes.c_void_p))
    return codes


def decode(header, kind, codes):
    x = np.zeros(codes.size, np.float32)
    header.decode(kind, codes.size, codes.ctypes.data_as(ctypes.c_void_p), x.ctypes.data_as(ctypes.c_void_p))
    return x


def inputs():
    every = np.arange(65536, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        sixteen = [every.view(np.float16).astype(np.float32), every.view(ml_dtypes.bfloat16).astype(np.float32)]
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 1 << 20, dtype=np.uint32).view(np.float32)
    near = np.exp2(rng.uniform(-20, 17, 1 << 20)).astype(np.float32) * rng.choice([-1, 1], 1 << 20).astype(np.float32)
    return np.concatenate([*sixteen, bits, near])


@pytest.mark.parametrize("kind", range(4))
def test_decode_every_code(header, kind):
    codes = np.arange(256, dtype=np.uint8)
    want = codes.view(KINDS[kind]).astype(np.float32)
    got = decode(header, kind, codes)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    real = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(np.uint32)[real], want.view(np.uint32)[real])


@pytest.mark.parametrize("kind", range(4))
def test_encode(header, kind):
    x = inputs()
    top = float(ml_dtypes.finfo(KINDS[kind]).max)
    got = encode(header, kind, x)
    with np.errstate(invalid="ignore"):
        want = np.clip(x, -top, top).astype(KINDS[kind]).view(np.uint8)
    nan = np.isnan(x)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    assert np.isnan(got[nan].view(KINDS[kind]).astype(np.float32)).all()
    assert len(np.unique(got[nan])) == 1
