# SPDX-License-Identifier: Apache-2.0
"""What the Python package's tests share: random inputs, references in float64, computed tolerances."""

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), np.dtype(np.float16), BF16]
# Half the distance from 1 to its neighbour: what rounding to the type may add, relative.
UNIT = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11, BF16: 2.0**-8}


def normal(seed, shape, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def rms_reference(x, weight, eps=1e-6):
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight.astype(np.float64)


def layer_reference(x, gamma, beta, eps=1e-6):
    x = x.astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * gamma + beta


def assert_close(got, want, h, spread=0.0):
    """Checks a result that was rounded once from an f32 sum of h terms. spread: the size of the terms, if they may
    cancel."""
    unit = UNIT[got.dtype]
    got, want = got.astype(np.float64), np.asarray(want, np.float64)
    tiny = float(np.finfo(np.float32).tiny) if unit < 2.0**-20 else 2.0**-24  # f16's smallest step
    bound = unit * np.abs(want) + 2 * (h + 8) * 2.0**-24 * (np.abs(want) + spread) + tiny
    worst = np.max(np.abs(got - want) / bound, initial=0)
    assert worst <= 1, f"error is {worst:.2f} of the tolerance"  # a NaN fails as well
