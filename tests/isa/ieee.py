# SPDX-License-Identifier: Apache-2.0
"""IEEE 754 as the ISA uses it, on NumPy arrays: fused multiply-add, minimum and maximum, rounding modes, subnormals."""
import contextlib
import ctypes

import numpy as np

LIBM = ctypes.CDLL("libm.so.6")
LIBM.fma.restype = ctypes.c_double
LIBM.fma.argtypes = [ctypes.c_double] * 3
BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}
QUIET = {2: 1 << 9, 4: 1 << 22, 8: 1 << 51}


def bits(x):
    return x.view(BITS[x.dtype.itemsize])


def is_signalling(x):
    return np.isnan(x) & (bits(x) & BITS[x.dtype.itemsize](QUIET[x.dtype.itemsize]) == 0)


def tiny(dtype):
    """Returns the smallest normal number."""
    return np.finfo(dtype).smallest_normal


def flushed(x):
    """Returns x with subnormals as zeros of their sign."""
    return np.where(np.abs(x) < tiny(x.dtype), np.copysign(x.dtype.type(0), x), x)


def round_to_odd(a, b):
    """Computes a + b of doubles, cut to double, and sets the last bit if that is not exact. So a later rounding to a
    format of at most 51 bits gives what one rounding of the exact sum would."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    pattern = total.view(np.int64).copy()
    inexact = (error != 0) & np.isfinite(total) & np.isfinite(error) & (pattern & 1 == 0)
    toward_zero = (error < 0) != (total < 0)
    pattern += np.where(inexact, np.where(toward_zero, -1, 1), 0)
    return pattern.view(np.float64)


def fma(a, b, c):
    """Rounds once to the type of the operands."""
    if a.dtype == np.float64:
        return np.frompyfunc(LIBM.fma, 3, 1)(a, b, c).astype(np.float64)
    product = a.astype(np.float64) * b.astype(np.float64)
    return round_to_odd(product, c.astype(np.float64)).astype(a.dtype)


def mad(a, b, c):
    """Computes a product and a sum, each rounded and without subnormals. A sum of f16 loses in f32 less than half of a
    place."""
    kind = a.dtype.type
    exact = np.float64 if kind == np.float16 else kind
    product = flushed((flushed(a).astype(exact) * flushed(np.asarray(b)).astype(exact)).astype(kind))
    return flushed((product.astype(exact) + flushed(np.asarray(c)).astype(exact)).astype(kind))


def below(a, b):
    """Returns whether a is less than b, where -0 is less than +0."""
    return (a < b) | ((a == b) & np.signbit(a) & ~np.signbit(b))


def least(a, b):
    """Returns the smaller. A number beats a NaN."""
    return np.where(np.isnan(b) | (below(a, b) & ~np.isnan(a)), a, b)


def greatest(a, b):
    return np.where(np.isnan(b) | (below(b, a) & ~np.isnan(a)), a, b)


def least_ieee(a, b):
    """Returns the smaller. In IEEE mode, a signalling NaN makes the result NaN."""
    return np.where(is_signalling(a) | is_signalling(b), a.dtype.type(np.nan), least(a, b))


def greatest_ieee(a, b):
    return np.where(is_signalling(a) | is_signalling(b), a.dtype.type(np.nan), greatest(a, b))


def minimum(a, b):
    """Returns the smaller. A NaN wins."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), least(a, b))


def maximum(a, b):
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), greatest(a, b))


def of_three(two):
    return lambda a, b, c: two(two(a, b), c)


def median(lower, upper):
    """Returns a formula for the median as the ISA's text defines it: without the greatest one, the greater of the
    others; with a NaN, the least."""
    def of(a, b, c):
        top = upper(upper(a, b), c)
        rest = np.where(top == a, upper(b, c), np.where(top == b, upper(a, c), upper(a, b)))
        nan = np.isnan(a) | np.isnan(b) | np.isnan(c)
        return np.where(nan, lower(lower(a, b), c), rest)
    return of


def fraction(a):
    """Returns the fraction, which is always below 1."""
    return np.minimum(a - np.floor(a), np.nextafter(a.dtype.type(1), a.dtype.type(0)))


def mantissa(a):
    """Returns the mantissa in [1/2, 1), or the value itself if it has none."""
    return np.where(np.isfinite(a) & (a != 0), np.frexp(a)[0], a)


def exponent(a):
    return np.where(np.isfinite(a) & (a != 0), np.frexp(a)[1], 0)


def scaled(a, power):
    """Computes a * 2^power with one rounding."""
    return np.ldexp(a, np.clip(power.astype(np.int64), -5000, 5000).astype(np.int32))


@contextlib.contextmanager
def rounding(mode):
    """Runs NumPy's arithmetic in MODE's rounding: 0 to nearest, 1 up, 2 down, 3 toward zero."""
    LIBM.fesetround((0, 0x800, 0x400, 0xC00)[mode])
    try:
        yield
    finally:
        LIBM.fesetround(0)
