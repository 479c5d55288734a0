# SPDX-License-Identifier: Apache-2.0
"""f32 and f64 instructions. Source: "CDNA3", "CDNA4", "RDNA3.5" and "RDNA4" ISA, VOP1, VOP2, VOP3."""
import numpy as np
import pytest

import gpu
import ieee
import values
from table import Op, Table

F, D = np.float32, np.float64
IEEE = ("gfx90a", "gfx942", "gfx950", "gfx1151")  # have MODE.IEEE, on unless a kernel says otherwise
LITERAL = ("gfx942", "gfx950", "gfx1151", "gfx1201")  # v_fmaak and v_fmamk
ACCUMULATE = "v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}"


def legacy_product(a, b):
    """Multiplies, but zero times anything is zero."""
    return np.where((a == 0) | (b == 0), a.dtype.type(0), a * b)


def both(operation, *sources):
    """Returns an operation on two f32 of each 64-bit source."""
    parts = [np.ascontiguousarray(x).view(F).reshape(-1, 2) for x in sources]
    return np.ascontiguousarray(operation(*parts)).view(np.uint64)[:, 0]


def near_one(kinds):
    """Returns floats whose products are normal numbers."""
    rng = values.generator(5)
    return [(rng.uniform(-8, 8, values.RANDOM_32) * 2.0**rng.integers(-20, 20, values.RANDOM_32)).astype(F).view(
        np.uint32).astype(np.uint64) for _ in kinds]


def zero_beside(kinds, which):
    """Returns zeros of both signs, and any other number."""
    rng = values.generator(6)
    out = [values.random_bits("f32", 2**12, i) for i in range(len(kinds))]
    out[which] = rng.integers(0, 2, len(out[0]), np.uint64) << np.uint64(31)
    return out


def divide_scale_by_zero(a, _):
    """Returns the result for a zero, which no factor can help: NaN, and VCC as tinygrad's tests measured it on
    RDNA3."""
    return np.full(len(a), np.nan, F), np.ones(len(a), np.uint32)


def least_normal(kinds):
    """Returns 2^-126 and numbers just above."""
    return [np.arange(2**12, dtype=np.uint64) + np.uint64(0x800000), np.full(2**12, 0x3F800000, np.uint64)]


def subnormal_divisors(kinds):
    return [values.random_bits("f32", 2**12, 0), 1 + values.generator(7).integers(0, 2**23 - 1, 2**12, np.uint64)]


SINGLE = [
    Op("v_add_f32", "f32 f32 f32", lambda a, b: a + b),
    Op("v_sub_f32", "f32 f32 f32", lambda a, b: a - b),
    Op("v_subrev_f32", "f32 f32 f32", lambda a, b: b - a),
    Op("v_mul_f32", "f32 f32 f32", lambda a, b: a * b),
    Op("v_mul_legacy_f32/v_mul_dx9_zero_f32", "f32 f32 f32", legacy_product),
    Op("v_fma_f32", "f32 f32 f32 f32", ieee.fma),
    Op("v_fmac_f32", "f32 f32 f32 f32", ieee.fma, text=ACCUMULATE),
    Op("v_fmaak_f32", "f32 f32 f32", lambda a, b: ieee.fma(a, b, np.full_like(a, 1.7)),
       text="{op} {d}, {a}, {b}, 0x3fd9999a", on=LITERAL),
    Op("v_fmamk_f32", "f32 f32 f32", lambda a, b: ieee.fma(a, np.full_like(a, 1.7), b),
       text="{op} {d}, {a}, 0x3fd9999a, {b}", on=LITERAL),
    Op("v_madak_f32", "f32 f32 f32", lambda a, b: ieee.mad(a, b, F(1.7)), text="{op} {d}, {a}, {b}, 0x3fd9999a",
       on=("gfx90a", )),
    Op("v_madmk_f32", "f32 f32 f32", lambda a, b: ieee.mad(a, F(1.7), b), text="{op} {d}, {a}, 0x3fd9999a, {b}",
       on=("gfx90a", )),
    Op("-/v_fma_dx9_zero_f32", "f32 f32 f32 f32",
       lambda a, b, c: np.where((a == 0) | (b == 0), c, ieee.fma(a, b, c))),
    *(Op(name, "f32 f32 f32 f32", ieee.mad, text=text, on=("gfx90a", )) for name, text in (
        ("v_mad_f32", None), ("v_mac_f32", ACCUMULATE))),
    # what this one does with subnormals is not documented
    Op("v_mad_legacy_f32", "f32 f32 f32 f32", lambda a, b, c: a * b + c, data=near_one, on=("gfx90a", )),
    *(Op("v_div_scale_f32", "f32+m f32 f32", divide_scale_by_zero, text="{op} {d}, {vcc}, {a}, {b}, {a}", data=one_zero,
         tag=tag) for tag, one_zero in (("of-zero", lambda kinds: zero_beside(kinds, 0)),
                                        ("by-zero", lambda kinds: zero_beside(kinds, 1)))),
    # measured by tinygrad's tests on RDNA3, the second under the flushing MODE of LLVM's default kernel descriptor
    Op("v_div_scale_f32", "f32+m f32 f32", lambda a, b: (a * F(2**64), np.ones(len(a), np.uint32)), data=least_normal,
       text="{op} {d}, {vcc}, {a}, {b}, {a}", tag="least-normal"),
    Op("v_div_scale_f32", "f32+m f32 f32", divide_scale_by_zero, text="{op} {d}, {vcc}, {a}, {b}, {a}",
       data=subnormal_divisors, mode={"float_denorm_mode_32": 0}, tag="by-flushed"),
    Op("v_floor_f32", "f32 f32", np.floor), Op("v_ceil_f32", "f32 f32", np.ceil),
    Op("v_trunc_f32", "f32 f32", np.trunc), Op("v_rndne_f32", "f32 f32", np.rint),
    Op("v_fract_f32", "f32 f32", ieee.fraction),
    Op("v_frexp_mant_f32", "f32 f32", ieee.mantissa),
    Op("v_frexp_exp_i32_f32", "i32 f32", ieee.exponent),
    Op("v_ldexp_f32", "f32 f32 i32", ieee.scaled),
    Op("v_add_f32", "f32 f32 f32", lambda a, b: np.abs(a) - b, text="{op} {d}, |{a}|, -{b}", tag="abs-neg"),
    Op("v_fma_f32", "f32 f32 f32 f32", lambda a, b, c: ieee.fma(-np.abs(a), b, -c),
       text="{op} {d}, -|{a}|, {b}, -{c}", tag="neg-abs"),
]

ORDER = [
    *(Op(name, "f32 " * count + "f32", formula, on=on) for name, count, formula, on in (
        ("v_min_f32", 2, ieee.least_ieee, IEEE), ("v_max_f32", 2, ieee.greatest_ieee, IEEE),
        ("v_min3_f32", 3, ieee.of_three(ieee.least_ieee), IEEE),
        ("v_max3_f32", 3, ieee.of_three(ieee.greatest_ieee), IEEE),
        ("v_med3_f32", 3, ieee.median(ieee.least_ieee, ieee.greatest_ieee), IEEE),
        ("v_minmax_f32", 3, lambda a, b, c: ieee.greatest_ieee(ieee.least_ieee(a, b), c), ("gfx1151", )),
        ("v_maxmin_f32", 3, lambda a, b, c: ieee.least_ieee(ieee.greatest_ieee(a, b), c), ("gfx1151", )),
        ("v_min_num_f32", 2, ieee.least, ("gfx1201", )), ("v_max_num_f32", 2, ieee.greatest, ("gfx1201", )),
        ("v_min3_num_f32", 3, ieee.of_three(ieee.least), ("gfx1201", )),
        ("v_max3_num_f32", 3, ieee.of_three(ieee.greatest), ("gfx1201", )),
        ("v_med3_num_f32", 3, ieee.median(ieee.least, ieee.greatest), ("gfx1201", )),
        ("v_minmax_num_f32", 3, lambda a, b, c: ieee.greatest(ieee.least(a, b), c), ("gfx1201", )),
        ("v_maxmin_num_f32", 3, lambda a, b, c: ieee.least(ieee.greatest(a, b), c), ("gfx1201", )),
        ("v_minimum_f32", 2, ieee.minimum, ("gfx1201", )), ("v_maximum_f32", 2, ieee.maximum, ("gfx1201", )),
        ("v_minimum3_f32", 3, ieee.of_three(ieee.minimum), ("gfx950", "gfx1201")),
        ("v_maximum3_f32", 3, ieee.of_three(ieee.maximum), ("gfx950", "gfx1201")),
        ("v_minimummaximum_f32", 3, lambda a, b, c: ieee.maximum(ieee.minimum(a, b), c), ("gfx1201", )),
        ("v_maximumminimum_f32", 3, lambda a, b, c: ieee.minimum(ieee.maximum(a, b), c), ("gfx1201", )))),
    *(Op(name, "f32 " * count + "f32", formula, on=IEEE, tag="no-ieee", mode={"ieee_mode": 0})
      for name, count, formula in (
        ("v_min_f32", 2, ieee.least), ("v_max_f32", 2, ieee.greatest), ("v_min3_f32", 3, ieee.of_three(ieee.least)),
        ("v_med3_f32", 3, ieee.median(ieee.least, ieee.greatest)))),
]

PACKED = [
    Op("v_pk_add_f32", "u64 f64 f64", lambda a, b: both(np.add, a, b), on=gpu.CDNA),
    Op("v_pk_mul_f32", "u64 f64 f64", lambda a, b: both(np.multiply, a, b), on=gpu.CDNA),
    Op("v_pk_fma_f32", "u64 f64 f64 f64", lambda a, b, c: both(ieee.fma, a, b, c), on=gpu.CDNA),
]

DOUBLE = [
    Op("v_add_f64", "f64 f64 f64", lambda a, b: a + b),
    Op("v_mul_f64", "f64 f64 f64", lambda a, b: a * b),
    Op("v_fma_f64", "f64 f64 f64 f64", ieee.fma),
    Op("v_fmac_f64/-", "f64 f64 f64 f64", ieee.fma,
       text="v_mov_b32 {dr}, {cr}\nv_mov_b32 {dr1}, {cr1}\n{op} {d}, {a}, {b}"),
    Op("v_floor_f64", "f64 f64", np.floor), Op("v_ceil_f64", "f64 f64", np.ceil),
    Op("v_trunc_f64", "f64 f64", np.trunc), Op("v_rndne_f64", "f64 f64", np.rint),
    Op("v_fract_f64", "f64 f64", ieee.fraction),
    Op("v_frexp_mant_f64", "f64 f64", ieee.mantissa),
    Op("v_frexp_exp_i32_f64", "i32 f64", ieee.exponent),
    Op("v_ldexp_f64", "f64 f64 i32", ieee.scaled),
    Op("v_min_f64/v_min_f64/-", "f64 f64 f64", ieee.least_ieee), Op("v_max_f64/v_max_f64/-", "f64 f64 f64", ieee.greatest_ieee),
    Op("-/-/v_min_num_f64", "f64 f64 f64", ieee.least), Op("-/-/v_max_num_f64", "f64 f64 f64", ieee.greatest),
    Op("-/-/v_minimum_f64", "f64 f64 f64", ieee.minimum), Op("-/-/v_maximum_f64", "f64 f64 f64", ieee.maximum),
]


# ---- transcendental functions: subnormals are flushed whatever MODE says
def of_double(function):
    """Returns an f32 function made of one of f64, with sources and result without subnormals."""
    return lambda a: ieee.flushed(function(ieee.flushed(a).astype(D)).astype(F))


def turns(function):
    """Returns a function of a in revolutions; beyond 256 of them, of 0."""
    def of(a):
        inside = np.where(np.abs(a) <= 256, a, 0)
        return np.where(np.isfinite(a), function(2 * np.pi * (inside - np.rint(inside))), np.nan)
    return of


ROOTS = [
    Op("v_rcp_f32", "f32 f32", of_double(lambda a: 1 / a), ulp=1),
    Op("v_rcp_iflag_f32", "f32 f32", of_double(lambda a: 1 / a), ulp=1),
    Op("v_rsq_f32", "f32 f32", of_double(lambda a: 1 / np.sqrt(a)), ulp=1),
    Op("v_sqrt_f32", "f32 f32", of_double(np.sqrt), ulp=1),
    Op("v_exp_f32", "f32 f32", of_double(np.exp2), ulp=1),
    Op("v_log_f32", "f32 f32", of_double(np.log2), ulp=1),
]
# ---- IEEE division, the sequence that compilers make
DIVIDE_F32 = """v_div_scale_f32 v40, {vcc}, {b}, {b}, {a}
v_div_scale_f32 v41, {vcc}, {a}, {b}, {a}
v_rcp_f32 v42, v40
v_fma_f32 v43, -v40, v42, 1.0
v_fma_f32 v42, v43, v42, v42
v_mul_f32 v43, v41, v42
v_fma_f32 v44, -v40, v43, v41
v_fma_f32 v43, v44, v42, v43
v_fma_f32 v44, -v40, v43, v41
v_div_fmas_f32 v44, v44, v42, v43
v_div_fixup_f32 {d}, v44, {b}, {a}"""
DIVIDE_F64 = """v_div_scale_f64 v[40:41], {vcc}, {b}, {b}, {a}
v_rcp_f64 v[42:43], v[40:41]
v_fma_f64 v[44:45], -v[40:41], v[42:43], 1.0
v_fma_f64 v[42:43], v[42:43], v[44:45], v[42:43]
v_fma_f64 v[44:45], -v[40:41], v[42:43], 1.0
v_fma_f64 v[42:43], v[42:43], v[44:45], v[42:43]
v_div_scale_f64 v[44:45], {vcc}, {a}, {b}, {a}
v_mul_f64 v[46:47], v[44:45], v[42:43]
v_fma_f64 v[40:41], -v[40:41], v[46:47], v[44:45]
v_div_fmas_f64 v[40:41], v[40:41], v[42:43], v[46:47]
v_div_fixup_f64 {d}, v[40:41], {b}, {a}"""
DIVISION = [
    Op("v_div_f32", "f32 f32 f32", lambda a, b: a / b, text=DIVIDE_F32),
    Op("v_div_f64", "f64 f64 f64", lambda a, b: a / b, text=DIVIDE_F64),
    Op("v_rcp_f64", "f64 f64", lambda a: 1 / a, ulp=2**24),
    Op("v_rsq_f64", "f64 f64", lambda a: 1 / np.sqrt(a), ulp=2**24),
    Op("v_sqrt_f64", "f64 f64", np.sqrt, ulp=2**24),
]

TABLE = Table(SINGLE + ORDER + PACKED + DOUBLE + ROOTS + DIVISION)


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_floats(case):
    TABLE.run(case)


# The error of sine and cosine is absolute: near a zero of the function the relative one has no bound.
TURNS = [Op("v_sin_f32", "f32 f32", turns(np.sin)), Op("v_cos_f32", "f32 f32", turns(np.cos))]
TURN_TABLE = Table(TURNS)


@pytest.mark.parametrize("case", TURN_TABLE.cases(), ids=TURN_TABLE.ids())
def test_turns(case):
    TURN_TABLE.run_within(case, 2.0**-22)
