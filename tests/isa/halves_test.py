# SPDX-License-Identifier: Apache-2.0
"""16-bit instructions: of one operand on every value, of more on all tuples of 64 special values and 2^22 random ones;
halves of registers (true16, op_sel) and packed pairs. Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, VOP1 to VOP3P."""
from dataclasses import replace

import numpy as np
import pytest

import gpu
import ieee
import values
from table import Op, Table

H, W, V, I, U = np.float16, np.uint16, np.int16, np.int32, np.uint32
GFX11, GFX12 = ("gfx1151", ), ("gfx1201", )


def product(a, b):
    return (a.astype(np.float32) * b.astype(np.float32)).astype(H)


def total(a, b):
    return (a.astype(np.float32) + b.astype(np.float32)).astype(H)


def difference(a, b):
    return total(a, -b)


def fma(a, b, c):
    """Rounds once: the product is exact in double, the sum is rounded to odd there."""
    return ieee.round_to_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)).astype(H)


def near(function):
    """Returns an f16 function, computed in double and so within one unit."""
    return lambda a: function(a.astype(np.float64)).astype(H)


def turns(function):
    def of(a):
        x = a.astype(np.float64)
        inside = np.where(np.abs(x) <= 256, x, 0)
        return np.where(np.isfinite(x), function(2 * np.pi * (inside - np.rint(inside))), np.nan).astype(H)
    return of


def limited(x, kind):
    info = np.iinfo(kind)
    return np.clip(x, info.min, info.max).astype(kind)


def shift(x, by, operation):
    return operation(x, (by & 15).astype(x.dtype))


def median(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def scaled(a, power):
    return np.ldexp(a.astype(np.float64), power.astype(np.int32)).astype(H)


FLOATS = [
    Op("v_add_f16", "f16 f16 f16", total),
    Op("v_sub_f16", "f16 f16 f16", difference),
    Op("v_subrev_f16", "f16 f16 f16", lambda a, b: difference(b, a)),
    Op("v_mul_f16", "f16 f16 f16", product),
    Op("v_fma_f16", "f16 f16 f16 f16", fma, keeps=True),
    Op("v_fma_legacy_f16/-", "f16 f16 f16 f16", fma),
    Op("v_mad_f16/-", "f16 f16 f16 f16", ieee.mad, keeps=True),
    Op("v_ldexp_f16", "f16 f16 i16", scaled),
    Op("v_floor_f16", "f16 f16", np.floor), Op("v_ceil_f16", "f16 f16", np.ceil),
    Op("v_trunc_f16", "f16 f16", np.trunc), Op("v_rndne_f16", "f16 f16", np.rint),
    Op("v_fract_f16", "f16 f16", ieee.fraction),
    Op("v_frexp_mant_f16", "f16 f16", ieee.mantissa), Op("v_frexp_exp_i16_f16", "i16 f16", ieee.exponent),
    Op("v_rcp_f16", "f16 f16", near(lambda a: 1 / a), ulp=1), Op("v_sqrt_f16", "f16 f16", near(np.sqrt), ulp=1),
    Op("v_rsq_f16", "f16 f16", near(lambda a: 1 / np.sqrt(a)), ulp=1),
    Op("v_exp_f16", "f16 f16", near(np.exp2), ulp=1), Op("v_log_f16", "f16 f16", near(np.log2), ulp=1),
    Op("v_sin_f16", "f16 f16", turns(np.sin), ulp=1), Op("v_cos_f16", "f16 f16", turns(np.cos), ulp=1),
]
IEEE_ORDER = {"min": ieee.least_ieee, "max": ieee.greatest_ieee}
NUMBER_ORDER = {"min": ieee.least, "max": ieee.greatest}
ORDER = [
    *(Op(f"v_{name}_f16/v_{name}_f16/-", "f16 f16 f16", two) for name, two in IEEE_ORDER.items()),
    *(Op(f"v_{name}3_f16/v_{name}3_f16/-", "f16 f16 f16 f16", ieee.of_three(two), keeps=True)
      for name, two in IEEE_ORDER.items()),
    Op("v_med3_f16/v_med3_f16/-", "f16 f16 f16 f16", ieee.median(*IEEE_ORDER.values()), keeps=True),
    Op("-/v_minmax_f16/-", "f16 f16 f16 f16", lambda a, b, c: ieee.greatest_ieee(ieee.least_ieee(a, b), c)),
    Op("-/v_maxmin_f16/-", "f16 f16 f16 f16", lambda a, b, c: ieee.least_ieee(ieee.greatest_ieee(a, b), c)),
    *(Op(f"-/-/v_{name}_num_f16", "f16 f16 f16", two) for name, two in NUMBER_ORDER.items()),
    *(Op(f"-/-/v_{name}3_num_f16", "f16 f16 f16 f16", ieee.of_three(two)) for name, two in NUMBER_ORDER.items()),
    Op("-/-/v_med3_num_f16", "f16 f16 f16 f16", ieee.median(*NUMBER_ORDER.values())),
    Op("-/-/v_minmax_num_f16", "f16 f16 f16 f16", lambda a, b, c: ieee.greatest(ieee.least(a, b), c)),
    Op("-/-/v_maxmin_num_f16", "f16 f16 f16 f16", lambda a, b, c: ieee.least(ieee.greatest(a, b), c)),
    Op("-/-/v_minimum_f16", "f16 f16 f16", ieee.minimum), Op("-/-/v_maximum_f16", "f16 f16 f16", ieee.maximum),
    Op("-/-/v_minimum3_f16", "f16 f16 f16 f16", ieee.of_three(ieee.minimum)),
    Op("-/-/v_maximum3_f16", "f16 f16 f16 f16", ieee.of_three(ieee.maximum)),
    Op("-/-/v_minimummaximum_f16", "f16 f16 f16 f16", lambda a, b, c: ieee.maximum(ieee.minimum(a, b), c)),
    Op("-/-/v_maximumminimum_f16", "f16 f16 f16 f16", lambda a, b, c: ieee.minimum(ieee.maximum(a, b), c)),
]
INTEGERS = [
    Op("v_add_u16/v_add_nc_u16", "u16 u16 u16", lambda a, b: a + b),
    Op("v_sub_u16/v_sub_nc_u16", "u16 u16 u16", lambda a, b: a - b),
    Op("v_subrev_u16/-", "u16 u16 u16", lambda a, b: b - a),
    Op("v_add_i16/v_add_nc_i16", "i16 i16 i16", lambda a, b: a + b, keeps=True),
    Op("v_sub_i16/v_sub_nc_i16", "i16 i16 i16", lambda a, b: a - b, keeps=True),
    Op("v_add_u16/-", "u16 u16 u16", lambda a, b: limited(a.astype(I) + b, W), text="{op} {d}, {a}, {b} clamp", tag="clamp"),
    *(Op(names, "i16 i16 i16", lambda a, b, sign=sign: limited(a.astype(I) + sign * b.astype(I), V),
         text="{op} {d}, {a}, {b} clamp", tag="clamp", keeps=True)
      for names, sign in (("v_add_i16/v_add_nc_i16", 1), ("v_sub_i16/v_sub_nc_i16", -1))),
    # of these, tinygrad's tests measured v_mad_u16 on RDNA3
    *(Op(name, f"{t}16 {t}16 {t}16 {t}16", lambda a, b, c: limited(a.astype(np.int64) * b + c, a.dtype),
         text="{op} {d}, {a}, {b}, {c} clamp", tag="clamp", keeps=True) for name, t in (("v_mad_u16", "u"), ("v_mad_i16", "i"))),
    Op("v_mul_lo_u16", "u16 u16 u16", lambda a, b: a * b),
    Op("v_lshlrev_b16", "b16 u16 b16", lambda a, b: shift(b, a, np.left_shift)),
    Op("v_lshrrev_b16", "b16 u16 b16", lambda a, b: shift(b, a, np.right_shift)),
    Op("v_ashrrev_i16", "i16 u16 i16", lambda a, b: shift(b, a, np.right_shift)),
    *(Op(f"v_{name}_{t}16", f"{t}16 {t}16 {t}16", two) for t in "ui"
      for name, two in (("min", np.minimum), ("max", np.maximum))),
    *(Op(f"v_{name}_{t}16", f"{t}16 {t}16 {t}16 {t}16", three, keeps=True) for t in "ui" for name, three in (
        ("min3", lambda a, b, c: np.minimum(np.minimum(a, b), c)),
        ("max3", lambda a, b, c: np.maximum(np.maximum(a, b), c)), ("med3", median),
        ("mad", lambda a, b, c: a * b + c))),
    *(Op(f"v_mad_legacy_{t}16/-", f"{t}16 {t}16 {t}16 {t}16", lambda a, b, c: a * b + c) for t in "ui"),
    Op("v_mad_u32_u16", "u32 u16 u16 u32", lambda a, b, c: a.astype(U) * b.astype(U) + c),
    Op("v_mad_i32_i16", "i32 i16 i16 i32", lambda a, b, c: a.astype(I) * b.astype(I) + c),
    Op("-/v_mov_b16", "b16 b16", lambda a: a), Op("-/v_not_b16", "b16 b16", lambda a: ~a),
    Op("-/v_and_b16", "b16 b16 b16", lambda a, b: a & b), Op("-/v_or_b16", "b16 b16 b16", lambda a, b: a | b),
    Op("-/v_xor_b16", "b16 b16 b16", lambda a, b: a ^ b),
    Op("-/v_cndmask_b16", "b16 b16 b16 m", lambda a, b, m: np.where(m, b, a)),
    Op("-/v_cvt_u32_u16", "u32 u16", lambda a: a.astype(U)), Op("-/v_cvt_i32_i16", "i32 i16", lambda a: a.astype(I)),
]


def pairs(operation, kind):
    """Returns an operation on both halves of 32-bit sources."""
    def of(*sources):
        parts = [x.view(W).view(kind) for x in sources]
        return np.ascontiguousarray(operation(*parts)).view(W).view(U)
    return of


def packed_draw(kind):
    """Returns the function that draws sources whose lower halves are the values for 16-bit instructions, and whose
    upper halves are the same in another order."""
    def of(kinds):
        low = values.draw((kind, ) * len(kinds), values.RANDOM_16 // 2)  # each of them is tried twice
        order = values.generator(4).permutation(len(low[0]))
        return [x | x[order] << np.uint64(16) for x in low]
    return of


DRAW_F16, DRAW_U16 = packed_draw("f16"), packed_draw("u16")


def unit(x):
    """Clamps to 0 to 1. A NaN becomes 0."""
    return np.where(x > 0, np.minimum(x, H(1)), H(0))


def packed(names, count, formula, kind, **more):
    result = "2xh" if kind is H else "b32"
    return Op(names, " ".join([result] + ["b32"] * count), pairs(formula, kind),
              data=DRAW_F16 if kind is H else DRAW_U16, **more)


PACKED = [
    packed("v_pk_add_f16", 2, total, H), packed("v_pk_mul_f16", 2, product, H), packed("v_pk_fma_f16", 3, fma, H),
    packed("v_pk_min_f16/v_pk_min_f16/-", 2, ieee.least_ieee, H),
    packed("v_pk_max_f16/v_pk_max_f16/-", 2, ieee.greatest_ieee, H),
    packed("-/-/v_pk_min_num_f16", 2, ieee.least, H), packed("-/-/v_pk_max_num_f16", 2, ieee.greatest, H),
    packed("-/-/v_pk_minimum_f16", 2, ieee.minimum, H), packed("-/-/v_pk_maximum_f16", 2, ieee.maximum, H),
    packed("v_pk_minimum3_f16", 3, ieee.of_three(ieee.minimum), H, on=("gfx950", )),
    packed("v_pk_maximum3_f16", 3, ieee.of_three(ieee.maximum), H, on=("gfx950", )),
    packed("v_pk_fmac_f16/-", 3, fma, H, text="v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}"),
    packed("v_pk_add_u16", 2, lambda a, b: a + b, W), packed("v_pk_sub_u16", 2, lambda a, b: a - b, W),
    packed("v_pk_add_i16", 2, lambda a, b: a + b, V), packed("v_pk_sub_i16", 2, lambda a, b: a - b, V),
    packed("v_pk_mul_lo_u16", 2, lambda a, b: a * b, W),
    packed("v_pk_mad_u16", 3, lambda a, b, c: a * b + c, W), packed("v_pk_mad_i16", 3, lambda a, b, c: a * b + c, V),
    packed("v_pk_lshlrev_b16", 2, lambda a, b: shift(b, a, np.left_shift), W),
    packed("v_pk_lshrrev_b16", 2, lambda a, b: shift(b, a, np.right_shift), W),
    packed("v_pk_ashrrev_i16", 2, lambda a, b: shift(b, a, np.right_shift), V),
    packed("v_pk_min_u16", 2, np.minimum, W), packed("v_pk_max_u16", 2, np.maximum, W),
    packed("v_pk_min_i16", 2, np.minimum, V), packed("v_pk_max_i16", 2, np.maximum, V),
    *(packed(f"v_pk_{name}_{t}16", 2, formula, kind, text="{op} {d}, {a}, {b} clamp", tag="clamp")
      for t, kind in (("u", W), ("i", V)) for name, formula in (
          ("add", lambda a, b: limited(a.astype(I) + b, a.dtype)), ("sub", lambda a, b: limited(a.astype(I) - b, a.dtype)))),
    *(packed(f"v_pk_mad_{t}16", 3, lambda a, b, c: limited(a.astype(np.int64) * b + c, a.dtype), kind,
             text="{op} {d}, {a}, {b}, {c} clamp", tag="clamp") for t, kind in (("u", W), ("i", V))),
    # a float constant: 32 bits of f32 for integers (measured by tinygrad's tests on RDNA3), f16 below zeros for halves
    *(Op(f"v_pk_add_{t}16", f"{result} b32", formula, text="{op} {d}, {a}, 2.0", data=DRAW, tag="2.0")
      for t, result, DRAW, formula in (("u", "b32", DRAW_U16, lambda a: a + U(0x40000000)),
                                       ("f", "2xh", DRAW_F16, lambda a: pairs(total, H)(a, np.full_like(a, 0x4000))))),
    Op("v_pk_add_f16", "2xh b32 b32", lambda a, b: pairs(total, H)(a << U(16) | a >> U(16), b ^ U(0x8000)),
       text="{op} {d}, {a}, {b} op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[0,1]", data=DRAW_F16, tag="crossed"),
    packed("v_pk_mul_f16", 2, lambda a, b: unit(product(a, b)), H,
           text="{op} {d}, {a}, {b} clamp", tag="clamp"),
]

ALL = FLOATS + ORDER + INTEGERS


def fewer(kinds):
    """Returns fewer values, because the upper halves take the same path as the lower ones."""
    return values.draw(kinds, 2**18)


def has_halves(op):
    return op.text is None and all(t.endswith("16") for t in op.types.split())


# On gfx9 only instructions that keep the other half can name one. v_mad_f16's op_sel is not tried.
HIGH = [replace(op, high=True, data=fewer, on=tuple(chip for chip in op.chips() if chip in gpu.RDNA or op.keeps)) for op in ALL
        if has_halves(op)]
TABLE = Table(ALL + HIGH + PACKED)


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_halves(case):
    TABLE.run(case)
