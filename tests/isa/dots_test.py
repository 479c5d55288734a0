# SPDX-License-Identifier: Apache-2.0
"""Dot products of floats, on numbers whose every product and sum is exact: how a chip rounds between them is not
documented. Source: "CDNA3", "CDNA4", "RDNA3.5" and "RDNA4" ISA, VOP2, VOP3 and VOP3P.
"""
import ml_dtypes
import numpy as np
import pytest

import values
from table import Op, Table

U, F, H, B = np.uint32, np.float32, np.float16, ml_dtypes.bfloat16
E4, E5 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
ACCUMULATE = "v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}"
COUNT = 2**16


def parts(register, kind):
    """Returns a register's numbers, [count, parts]."""
    return np.ascontiguousarray(register).view(kind).reshape(len(register), -1).astype(np.float64)


def dot(a_kind, b_kind):
    def of(a, b, c):
        return (np.sum(parts(a, a_kind) * parts(b, b_kind), axis=1) + c.astype(np.float64)).astype(c.dtype)
    return of


def integers(most, *kinds):
    """Returns registers full of integers up to `most` in size, of halves or bytes. The last one is an addend."""
    def draw(_):
        rng, out = values.generator(41), []
        for i, kind in enumerate(kinds):
            size = np.dtype(kind).itemsize
            count = 1 if i == 2 else 4 // size
            numbers = rng.integers(-most, most + 1, (COUNT, count)).astype(F).astype(kind)
            word = {1: np.uint8, 2: np.uint16, 4: U}[size]
            out.append(numbers.view(word).view(U if count > 1 else word)[:, 0].astype(np.uint64))
        return out
    return draw


def line(names, kinds, formula, most, sources, **more):
    return Op(names, kinds, formula, data=integers(most, *sources), **more)


TABLE = Table([
    line("v_dot2_f32_f16", "f32 u32 u32 f32", dot(H, H), 100, (H, H, F)),
    line("v_dot2_f32_bf16", "f32 u32 u32 f32", dot(B, B), 100, (B, B, F), on=("gfx950", "gfx1151", "gfx1201")),
    line("v_dot2c_f32_f16", "f32 u32 u32 f32", dot(H, H), 100, (H, H, F), text=ACCUMULATE,
         on=("gfx90a", "gfx942", "gfx950")),
    line("v_dot2c_f32_bf16", "f32 u32 u32 f32", dot(B, B), 100, (B, B, F), text=ACCUMULATE, on=("gfx950", )),
    line("-/v_dot2_f16_f16", "f16 u32 u32 f16", dot(H, H), 16, (H, H, H)),
    line("-/v_dot2_bf16_bf16", "bf16 u32 u32 bf16", dot(B, B), 7, (B, B, B)),
    *(line(f"-/-/v_dot4_f32_{a}_{b}", "f32 u32 u32 f32", dot(kinds[a], kinds[b]), 4, (kinds[a], kinds[b], F))
      for kinds in ({"fp8": E4, "bf8": E5}, ) for a in kinds for b in kinds),
])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_dots(case):
    TABLE.run(case)
