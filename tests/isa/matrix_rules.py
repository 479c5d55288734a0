# SPDX-License-Identifier: Apache-2.0
"""How matrix cores of gfx90a and gfx942 round, as MMA-Sim (arXiv:2511.10909) gives it, on arrays of exact integers.

Every function takes a [..., k], b [..., k] as bit patterns and c [...] as f32 (f64 for f64), k running upward, and
returns what one instruction adds up. Nothing here is shared with the simulator.
"""
from dataclasses import dataclass

import ml_dtypes
import numpy as np

import ieee

F, D, S = np.float32, np.float64, np.int64


@dataclass(frozen=True)
class Format:
    """A float of the matrix cores; `fraction` bits, least exponent `least`, as bit patterns of `store`."""
    bits: int
    fraction: int
    least: int
    kind: type

    def value(self, patterns):
        store = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[self.bits]
        return patterns.astype(store).view(self.kind).astype(D)


FORMATS = {
    "f64": Format(64, 52, -1022, np.float64), "f32": Format(32, 23, -126, F), "xf32": Format(32, 10, -126, F),
    "f16": Format(16, 10, -14, np.float16), "bf16": Format(16, 7, -126, ml_dtypes.bfloat16),
    "fp8": Format(8, 3, -7, ml_dtypes.float8_e4m3fnuz), "bf8": Format(8, 2, -15, ml_dtypes.float8_e5m2fnuz),
    "ocp-fp8": Format(8, 3, -6, ml_dtypes.float8_e4m3fn), "ocp-bf8": Format(8, 2, -14, ml_dtypes.float8_e5m2),
}
ZERO_EXPONENT = -126  # whatever the type


def split(x, form):
    """Splits finite doubles: x = m * 2^(e - fraction), where m is a whole number. Subnormals are not normalised."""
    ordinary = np.isfinite(x) & (x != 0)
    safe = np.where(ordinary, x, 1)
    exponent = np.maximum(np.frexp(safe)[1] - 1, form.least).astype(S)
    whole = np.ldexp(safe, (form.fraction - exponent).astype(np.int32)).astype(S)
    return np.where(ordinary, whole, 0), np.where(ordinary, exponent, ZERO_EXPONENT)


def floor_shift(x, by):
    return x >> np.minimum(by, 62)


def zero_shift(x, by):
    return np.sign(x) * (np.abs(x) >> np.minimum(by, 62))


# ---- rule 1
def chain(a, b, c, form):
    """Does one fused multiply-add for each k."""
    kind = F if form.bits == 32 else D
    a, b, total = form.value(a).astype(kind), form.value(b).astype(kind), c
    for k in range(a.shape[-1]):
        x, y, total = np.broadcast_arrays(a[..., k], b[..., k], total)
        total = ieee.fma(x, y, total)
    return total


# ---- rule 2
def positive_flush(x, least):
    """Returns x with subnormals of a type as +0."""
    return np.where(np.abs(x) < 2.0**least, 0.0, x).astype(F)


def pairwise(size):
    """Returns the rule that adds in f32 in a tree over `size` products and flushes every subnormal."""
    def of(a, b, c, form):
        a, b = positive_flush(form.value(a), form.least), positive_flush(form.value(b), form.least)
        total = positive_flush(c, -126)
        for k in range(0, a.shape[-1], size):
            products = [ieee.flushed(a[..., i] * b[..., i] + F(0)) for i in range(k, k + size)]
            while len(products) > 1:
                products = [ieee.flushed(x + y) for x, y in zip(products[::2], products[1::2])]
            total = ieee.flushed(total + products[0])
        return total
    return of


# ---- rules 3 and 4
def specials(a, b, c):
    """Returns the result of a group with a NaN, an infinity or a product of 2^128 or more, and where there is one."""
    with np.errstate(all="ignore"):
        exact = a * b
    infinite = np.isinf(a) | np.isinf(b)
    up = (infinite & (exact > 0)).any(axis=-1) | (c == np.inf)
    down = (infinite & (exact < 0)).any(axis=-1) | (c == -np.inf)
    nan = np.isnan(exact).any(axis=-1) | np.isnan(c) | (up & down)
    high = (~infinite & (exact >= 2.0**128)).any(axis=-1)
    low = (~infinite & (exact <= -2.0**128)).any(axis=-1)
    value = np.where(up, np.inf, np.where(down, -np.inf, np.where(high & low, np.nan, np.where(high, np.inf, -np.inf))))
    return np.where(nan, np.nan, value), nan | up | down | high | low


def aligned_sum(m, e):
    """Sums products that are cut toward zero below the greatest exponent."""
    top = e.max(axis=-1)
    return zero_shift(m, top[..., None] - e).sum(axis=-1), top


def finish(total, top, c, low_c):
    """Adds c to a sum of products and rounds once. low_c: how far below the sum c counts as nothing."""
    whole, exponent = split(c.astype(D), FORMATS["f32"])
    most = np.maximum(top, exponent)
    addend = floor_shift(2 * whole, most - exponent)
    if low_c is not None:
        addend = np.where(exponent < most - low_c, 0, addend)
    exact = floor_shift(total << 7, most - top) + (addend << 7)
    return np.ldexp(exact.astype(D), (most - 31).astype(np.int32)).astype(F)


def products(a, b, form_a, form_b):
    (ma, ea), (mb, eb) = split(a, form_a), split(b, form_b)
    return ma * mb << 24 - form_a.fraction - form_b.fraction, ea + eb


def in_groups(size, group):
    """Returns the rule that applies one of `size` products to all k in turn."""
    def of(a, b, c, form_a, form_b=None):
        form_b = form_b or form_a
        if form_a is FORMATS["xf32"]:
            a, b = a & np.uint32(0xFFFFE000), b & np.uint32(0xFFFFE000)
        a, b, total = form_a.value(a), form_b.value(b), c
        step = min(size, a.shape[-1])
        for k in range(0, a.shape[-1], step):
            x, y = a[..., k:k + step], b[..., k:k + step]
            special, is_special = specials(x, y, total.astype(D))
            total = np.where(is_special, special.astype(F), group(*products(x, y, form_a, form_b), total))
        return total
    return of


def fused_group(m, e, c):
    return finish(*aligned_sum(m, e), c, None)


def split_group(m, e, c):
    """Applies a rule to even and to odd k separately."""
    (even, e0), (odd, e1) = aligned_sum(m[..., ::2], e[..., ::2]), aligned_sum(m[..., 1::2], e[..., 1::2])
    top = np.maximum(e0, e1)
    return finish(floor_shift(even, top - e0) + floor_shift(odd, top - e1), top, c, 25)


fused4, fused8 = in_groups(4, fused_group), in_groups(8, fused_group)
split16 = in_groups(16, split_group)


def integers(a, b, c):
    """Sums exactly, modulo 2^32."""
    return (c.astype(S) + (a.astype(np.int8).astype(S) * b.astype(np.int8).astype(S)).sum(axis=-1)).astype(np.uint32)
