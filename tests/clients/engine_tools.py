# SPDX-License-Identifier: Apache-2.0
"""How a result of quern's inside an engine is compared with the engine's own form of the op."""

from aiter_tools import TINY, UNIT


def like_native(got, native, roundings, terms=1, size=0.0, spread=0.0):
    """Checks a result, rounded once from f32 sums of so many terms, against one that was rounded so many times on its way (a
    number, or a tensor of them). size: of values that were rounded on the way; spread: of f32's terms, where these may cancel, and by
    what values were multiplied that may have been denormal."""
    unit, scale = UNIT[got.dtype], native.double().abs()
    tolerance = (1 + roundings) * unit * (scale + size) + 2 * (terms + 8) * 2**-24 * (scale + size + spread) + TINY[got.dtype] * (1 + spread)
    error = (got.double() - native.double()).abs()
    assert got.shape == native.shape and got.dtype == native.dtype
    assert bool((error <= tolerance).all()), float((error / tolerance).nan_to_num(9e9).max())
