# SPDX-License-Identifier: Apache-2.0
"""Comparisons and classes of every type: all the conditions of a type in one kernel, which gives a bit for each.
Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, VOPC.
"""
import numpy as np
import pytest

import gpu
import ieee
import values
from table import Op, Table

U = np.uint32
UNORDERED = lambda a, b: np.isnan(a) | np.isnan(b)  # noqa: E731
WHOLE = {"lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ne": np.not_equal, "ge": np.greater_equal}
FLOAT = {
    "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lg": lambda a, b: (a < b) | (a > b), "o": lambda a, b: ~UNORDERED(a, b), "u": UNORDERED,
    "nge": lambda a, b: ~(a >= b), "nlg": lambda a, b: ~((a < b) | (a > b)), "ngt": lambda a, b: ~(a > b),
    "nle": lambda a, b: ~(a <= b), "neq": lambda a, b: a != b, "nlt": lambda a, b: ~(a < b)}
CONSTANT = {"f": lambda a, b: np.zeros(len(a), bool), "t": lambda a, b: np.ones(len(a), bool)}


def conditions(kind):
    """Returns the comparisons of a type by their names in instructions. The constant ones exist up to RDNA3 and are
    tried on gfx9."""
    return FLOAT if "f" in kind else WHOLE


def bits_of(functions):
    def of(a, b):
        return sum(f(a, b).astype(U) << U(i) for i, f in enumerate(functions))
    return of


def masks(kind, names):
    """Returns code in which each comparison writes a mask, which chooses a bit."""
    lines = []
    for i, name in enumerate(names):
        lines += [f"v_cmp_{name}_{kind} {{vcc}}, {{a}}, {{b}}", "v_cndmask_b32 v60, 0, 1, {vcc}",
                  f"v_lshl_or_b32 {{d}}, v60, {i}, {{d}}"]
    return "\n".join(lines)


def active(kind, names, chip_is_rdna):
    """Returns code of v_cmpx, which writes EXEC: only the lanes in which it holds execute the next instruction."""
    lines = []
    for i, name in enumerate(names):
        target = "" if chip_is_rdna else "{vcc}, "
        lines += [f"v_cmpx_{name}_{kind} {target}{{a}}, {{b}}", f"v_or_b32 {{d}}, {1 << i:#x}, {{d}}",
                  "s_mov_b32 exec_lo, -1" if chip_is_rdna else "s_mov_b64 exec, -1"]
    return "\n".join(lines)


def class_bits(a, b):
    """Returns the bit of the mask b that stands for a's class. Bit 0 is a signalling NaN; then quiet NaN, -inf,
    -normal, -subnormal, -0, +0 and so on up to +inf."""
    negative, tiny = np.signbit(a), np.abs(a) < ieee.tiny(a.dtype)
    number = np.where(np.isinf(a), 0, np.where(a == 0, 3, np.where(tiny, 2, 1)))
    index = np.where(np.isnan(a), np.where(ieee.is_signalling(a), 0, 1), np.where(negative, 2 + number, 9 - number))
    return (b.astype(np.int64) >> index & 1).astype(U)


def class_ops():
    for kind, mask in (("f32", "u32"), ("f16", "u16"), ("f64", "u32")):
        yield Op(f"v_cmp_class_{kind}", f"u32 {kind} {mask}", class_bits, data=classes,
                 text=f"v_cmp_class_{kind} {{vcc}}, {{a}}, {{b}}\nv_cndmask_b32 {{d}}, 0, 1, {{vcc}}")


def classes(kinds):
    """Returns values with each single class, none and random ones."""
    kind = kinds[0]
    special = values.specials(kind, 256)
    ones = np.array([0, *(1 << i for i in range(10)), 0x3FF, 0x155, 0x2AA], np.uint64)
    count = values.fewer(2**19)
    some, random = np.tile(special, len(ones)), values.random_bits(kind, count, 0)
    return [np.concatenate([some, random]),
            np.concatenate([np.repeat(ones, len(special)), values.generator(15).integers(0, 1024, count, np.uint64)])]


KINDS = ("f32", "f64", "f16", "i32", "u32", "i64", "u64", "i16", "u16")


def ops():
    for kind in KINDS:
        named = conditions(kind)
        formula = bits_of(list(named.values()))
        yield Op(f"v_cmp_{kind}", f"u32 {kind} {kind}", formula, text=masks(kind, named), old=0)
        for chips, is_rdna in ((gpu.CDNA, False), (gpu.RDNA, True)):
            yield Op(f"v_cmpx_{kind}", f"u32 {kind} {kind}", formula, text=active(kind, named, is_rdna), old=0, on=chips)
        names = ("f", "tru" if "f" in kind else "t")
        yield Op(f"v_cmp_{kind}", f"u32 {kind} {kind}", bits_of(list(CONSTANT.values())), text=masks(kind, names), old=0,
                 on=gpu.CDNA, tag="constant")


TABLE = Table([*ops(), *class_ops()])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_compares(case):
    TABLE.run(case)
