# SPDX-License-Identifier: Apache-2.0
"""What instructions are tried on: every value where there are few, else all tuples of special values and random ones."""
import functools
import itertools
import os

import numpy as np

import gpu

SEED = int(os.environ.get("QUERN_ISA_SEED", "20260"))
LONG = os.environ.get("QUERN_ISA_LONG", "") not in ("", "0")  # ten times the random values, every f32 to convert
SHORT = os.environ.get("QUERN_ISA_SHORT", "") not in ("", "0")  # a sixteenth of them, a seventeenth of the f32


def fewer(count):
    """Returns how many random values a run tries, of so many that a full one tries."""
    return count // 16 if SHORT else count


RANDOM_32 = 10**6 * 10 if LONG else fewer(10**6)
RANDOM_16 = 2**22 * 4 if LONG else 2**22


def generator(*key):
    return np.random.default_rng([SEED, *key])


def signed_pair(values, bits):
    """Returns the values and the same with the upper bit flipped."""
    return sorted({v & (1 << bits) - 1 for v in values} | {v ^ 1 << bits - 1 for v in values})


def floats(mantissa, exponent, some):
    """Returns bit patterns that matter in a float format, of both signs: zero, the least and greatest of each kind,
    NaNs, and some more."""
    one = 1 << mantissa
    bias = (1 << exponent - 1) - 1
    top = (1 << exponent) - 1 << mantissa
    base = [0, 1, 2, one // 2, one - 1, one, one + 1, top - 1, top, top + 1, top + one // 2, top + one - 1,
            bias * one, bias * one + 1, bias * one - 1, (bias + 1) * one, (bias - 1) * one, (bias + 1) * one + one // 2,
            (bias + mantissa) * one + 1, (bias + mantissa - 1) * one + 1, (bias + mantissa + 1) * one - 1,
            (bias - mantissa) * one, *some]
    return signed_pair(base, mantissa + exponent + 1)


def integers(bits):
    """Returns integers that matter: ends of ranges, powers of two and their neighbours, patterns."""
    edge = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, (1 << bits // 2) - 1, 1 << bits // 2, (1 << bits // 2) + 1,
            (1 << bits - 1) - 1, (1 << bits - 1) - 2, 0x5555555555555555, 0x3333333333333333, 0x0123456789ABCDEF,
            0xFEDCBA98765432, 0x00FF00FF00FF00FF]
    return signed_pair([v & (1 << bits) - 1 for v in edge], bits)


def fill(values, count, bits, key):
    """Returns `count` patterns: the given ones and random ones."""
    more = generator(9, key).integers(0, 2**bits, max(count - len(values), 0), np.uint64, endpoint=False) \
        if bits < 64 else generator(9, key).integers(0, 2**64 - 1, max(count - len(values), 0), np.uint64, endpoint=True)
    return np.concatenate([np.array(values[:count], np.uint64), more])


@functools.cache
def specials(kind, count):
    """Returns `count` special values of a type, as bit patterns."""
    table = {
        "f16": (floats(10, 5, [0x3555, 0x4248, 0x63FF, 0x6400]), 16),
        "bf16": (floats(7, 8, [0x3EAA, 0x4049]), 16),
        "f32": (floats(23, 8, [0x3EAAAAAB, 0x40490FDB, 0x4F000000, 0x4EFFFFFF, 0x4F800000, 0x33800000, 0x38800000,
                               0x477FE000, 0x477FF000, 0x0B800000]), 32),
        "f64": (floats(52, 11, [0x3FD5555555555555, 0x400921FB54442D18, 0x41E0000000000000, 0x41DFFFFFFFC00000,
                                0x47EFFFFFE0000000, 0x36A0000000000000]), 64),
        "16": (integers(16), 16), "32": (integers(32), 32), "64": (integers(64), 64),
    }
    key = kind if kind in table else {"u": str, "i": str, "b": str, "s": str}[kind[0]](kind[1:])
    values, bits = table[key]
    return fill(values, count, bits, bits)


def random_bits(kind, count, key):
    """Returns bit patterns, of which one half is arbitrary and the other half values near each other: floats of close
    exponents, small integers."""
    rng = generator(len(kind), key)
    bits = int(kind.lstrip("ubfis"))
    any_bits = rng.integers(0, 2**bits - 1, count, np.uint64, endpoint=True)
    if "f" in kind:
        mantissa = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[kind]
        bias = (1 << bits - 2 - mantissa) - 1
        spread = min(bias // 2, 12)
        near = rng.integers(bias - spread, bias + spread, count, np.uint64) << np.uint64(mantissa)
        near |= any_bits & np.uint64((1 << mantissa) - 1 | 1 << bits - 1)
    else:
        near = any_bits >> rng.integers(0, bits, count, np.uint64)
        near = np.where(any_bits & np.uint64(1), near, ~near) & np.uint64(2**bits - 1)
    return np.where(rng.integers(0, 2, count, np.uint8) != 0, any_bits, near)


def tuples(kinds, count):
    """Returns all tuples of `count` special values of each kind, in one array for each kind."""
    lists = [specials(kind, count) for kind in kinds]
    return [grid.ravel() for grid in np.meshgrid(*lists, indexing="ij")]


def width(kind):
    return int(kind.lstrip("ubfis"))


def draw(kinds, random_16=RANDOM_16):
    """Returns bit patterns for sources of these kinds: every one of 16 bits alone; else all tuples of special values,
    64 of 16 bits, and random ones."""
    if len(kinds) == 1 and width(kinds[0]) == 16:
        return [np.arange(65536, dtype=np.uint64)]
    widest = max(map(width, kinds))
    count, how_many = ((64, fewer(random_16)) if widest == 16 else ({1: 256, 2: 64, 3: 40}[len(kinds)], RANDOM_32))
    return [np.concatenate([special, random_bits(kind, how_many, i)])
            for i, (kind, special) in enumerate(zip(kinds, tuples(kinds, count)))]


def padded(values, dtype):
    """Returns shared memory with the values, filled up to whole workgroups with the first one."""
    total = -(-len(values) // gpu.WORKGROUP) * gpu.WORKGROUP
    out = gpu.MEMORY.array((total, *values.shape[1:]), dtype)
    out[:len(values)] = values
    out[len(values):] = values[0]
    return out


def pairs_of_bytes():
    """Returns every pair of 8-bit values."""
    return [np.array(column, np.uint64) for column in zip(*itertools.product(range(256), repeat=2))]
