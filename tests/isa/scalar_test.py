# SPDX-License-Identifier: Apache-2.0
"""Scalar instructions: a wave takes each of its lanes' numbers into SGPRs in turn, executes, and puts result and SCC back.
Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, SOP1, SOP2, SOPC, SOPK.
"""
from dataclasses import replace

import numpy as np
import pytest

import gpu
import ieee
import values
from integers_test import leading_signs, leading_zeros, popcount, reverse_bits, trailing_zeros, wide
from table import Op, Table, words_of

U, I, L, S, F, H = np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float16


# ---- kernels
def pair(first, words):
    return f"s{first}" if words == 1 else f"s[{first}:{first + 1}]"


def loop(result, sources, instruction):
    """Returns the text of a loop. {d} holds the result's registers, then SCC; the last source is SCC before."""
    vectors, before, after = "abc", [], []
    registers = {"a": 40, "b": 44, "c": 48}
    for letter, kind in zip(vectors, sources):
        before += [f"v_readlane_b32 s{registers[letter] + i}, {{{letter}r{i or ''}}}, s30" for i in range(words_of(kind))]
    words = words_of(result) if result else 0
    after += [f"v_writelane_b32 {{dr{i or ''}}}, s{52 + i}, m0" for i in range(words)]
    names = {letter: pair(registers[letter], words_of(kind)) for letter, kind in zip(vectors, sources)}
    scc = "c" if len(sources) > 2 else None
    lines = ["s_mov_b32 s30, 0", "1:", "s_mov_b32 m0, s30", *before, "s_mov_b64 s[52:53], 0",
             f"s_cmp_lg_u32 {names[scc]}, 0" if scc else "s_cmp_lg_u32 0, 0",
             instruction.format(d=pair(52, words or 1), **names),
             "s_cselect_b32 s31, 1, 0", *after, f"v_writelane_b32 {{dr{words or ''}}}, s31, m0",
             "s_add_u32 s30, s30, 1", "s_cmp_lt_u32 s30, {lanes}", "s_cbranch_scc1 1b"]
    return "\n".join(lines)


def scalar(names, types, formula, instruction=None, **more):
    """Returns a line of the table. formula gives result and SCC (None: its value before, 0); types are as elsewhere."""
    result, *sources = types.split()
    result = "" if result == "-" else result
    if instruction is None:
        instruction = "{{op}} " + ", ".join((["{d}"] if result else []) + [f"{{{x}}}" for x in "ab"[:min(len(sources), 2)]])
    words = (words_of(result) if result else 0) + 1

    def of(*operands):
        value, scc = formula(*operands)
        columns = []
        if result:
            value = np.ascontiguousarray(value)
            columns.append((value.view(np.uint16).astype(U) if value.dtype.itemsize == 2 else value.view(U)).reshape(
                len(value), -1))
        zero = np.zeros(len(operands[0]), U)
        columns.append((zero if scc is None else np.asarray(scc).astype(U))[:, None])
        return np.concatenate(columns, axis=1)
    kind = str(words) if "f" not in result else f"{words}xf" if result == "f32" else f"{2 * words}xh"
    return Op(names, " ".join([kind, *sources]), of, text=loop(result, sources, instruction), data=fewer, **more)


def fewer(kinds):
    """Returns all special values, and random ones: 10^6 for 32-bit sources on one chip."""
    return values.draw(tuple({"u16": "u32", "b16": "u32", "i16": "i32"}.get(kind, kind) for kind in kinds), 2**18)


# ---- formulas: (result, SCC)
def logic(function):
    def of(*operands):
        value = function(*operands)
        return value, value != 0
    return of


def plain(function):
    return lambda *operands: (function(*operands), None)


def add(a, b, c=None):
    total = wide(a) + wide(b) + (0 if c is None else (c != 0).astype(L))
    return total.astype(U), total >> L(32) != 0


def subtract(a, b, c=None):
    total = wide(a) - wide(b) - (0 if c is None else (c != 0).astype(L))
    return total.astype(U), total >> L(32) != 0


def signed(operation):
    """Returns a formula that also gives in SCC whether the result left the type's range."""
    def of(a, b):
        exact = operation(wide(a), wide(b))
        return exact.astype(I), exact != exact.astype(I)
    return of


def choose(better):
    """Returns a formula that also gives in SCC whether the first operand is taken. Of equal ones the first is the
    maximum."""
    return lambda a, b: (np.where(better(a, b), a, b), better(a, b))


def kept(value, c):
    return value, c != 0


def by(x, count, operation, bits):
    return operation(x, (count & U(bits - 1)).astype(x.dtype))


def field(a, b):
    """Returns the field of offset b[4:0] and width b[22:16]. A width beyond the register means all of it."""
    bits = U(a.dtype.itemsize * 8)
    width = np.minimum(b >> U(16) & U(127), bits)
    shifted = by(a, b, np.right_shift, int(bits))
    one = a.dtype.type(1)
    mask = np.where(width >= bits, ~a.dtype.type(0), (one << np.minimum(width, bits - U(1)).astype(a.dtype)) - one)
    return shifted, mask, width


def unsigned_field(a, b):
    shifted, mask, _ = field(a, b)
    return shifted & mask, shifted & mask != 0


def signed_field(a, b):
    shifted, mask, width = field(a, b)
    bits = a.dtype.itemsize * 8
    unused = np.where((width > 0) & (width < bits), bits - width.astype(S), 0).astype(a.dtype)
    value = np.where(width == 0, 0, (shifted & mask) << unused >> unused).astype(a.dtype)
    return value, value != 0


def shift_add(count):
    def of(a, b):
        total = (wide(a) << L(count)) + wide(b)
        return total.astype(U), total >> L(32) != 0
    return of


def two(operation):
    """Returns an operation on the halves of 64 bits as 32-bit numbers."""
    return lambda a: operation(a.astype(U), (a >> L(32)).astype(U))


def first_one(low, high):
    return np.where(low != 0, trailing_zeros(low), np.where(high != 0, trailing_zeros(high) + 32, -1)).astype(I)


def last_one(low, high):
    return np.where(high != 0, leading_zeros(high), np.where(low != 0, leading_zeros(low) + 32, -1)).astype(I)


def sign_run(a):
    flipped = (a ^ a >> S(63)).view(L)
    return two(last_one)(flipped)


def quads(a):
    any_of = (a | a >> 1 | a >> 2 | a >> 3) & a.dtype.type(0x1111111111111111 & np.iinfo(a.dtype).max)
    return any_of


def quad_mask(a):
    any_of, out = quads(a), np.zeros_like(a)
    for i in range(16):
        out |= (any_of >> L(4 * i) & L(1)) << L(i)
    return out


def doubled(a):
    out = np.zeros(len(a), L)
    for i in range(32):
        out |= (a.astype(L) >> L(i) & L(1)) * L(3) << L(2 * i)
    return out


def distance(a, b):
    with np.errstate(over="ignore"):
        return np.abs(a - b)


def mask_of(bits, kind):
    return lambda a, b: by(by(kind(1) * np.ones(len(a), kind), a, np.left_shift, bits) - kind(1), b, np.left_shift, bits)


def both_sizes(name, formula, rdna=None):
    """Returns a logical instruction of 32 and of 64 bits."""
    for bits in (32, 64):
        yield scalar(f"s_{name}_b{bits}" + (f"/s_{rdna}_b{bits}" if rdna else ""), f"u{bits} u{bits} u{bits}", logic(formula))


SOP2 = [
    scalar("s_add_u32/s_add_u32/s_add_co_u32", "u32 u32 u32", add),
    scalar("s_sub_u32/s_sub_u32/s_sub_co_u32", "u32 u32 u32", subtract),
    scalar("s_addc_u32/s_addc_u32/s_add_co_ci_u32", "u32 u32 u32 u32", add),
    scalar("s_subb_u32/s_subb_u32/s_sub_co_ci_u32", "u32 u32 u32 u32", subtract),
    scalar("s_add_i32/s_add_i32/s_add_co_i32", "i32 i32 i32", signed(np.add)),
    scalar("s_sub_i32/s_sub_i32/s_sub_co_i32", "i32 i32 i32", signed(np.subtract)),
    *(scalar(f"s_{name}_{kind}", f"{kind} {kind} {kind}", choose(better)) for kind in ("i32", "u32")
      for name, better in (("min", np.less), ("max", np.greater_equal))),
    *(scalar(f"s_cselect_b{n}", f"u{n} u{n} u{n} u32", lambda a, b, c: kept(np.where(c != 0, a, b), c)) for n in (32, 64)),
    *both_sizes("and", lambda a, b: a & b), *both_sizes("or", lambda a, b: a | b), *both_sizes("xor", lambda a, b: a ^ b),
    *both_sizes("nand", lambda a, b: ~(a & b)), *both_sizes("nor", lambda a, b: ~(a | b)),
    *both_sizes("xnor", lambda a, b: ~(a ^ b)), *both_sizes("andn2", lambda a, b: a & ~b, "and_not1"),
    *both_sizes("orn2", lambda a, b: a | ~b, "or_not1"),
    scalar("s_lshl_b32", "u32 u32 u32", logic(lambda a, b: by(a, b, np.left_shift, 32))),
    scalar("s_lshr_b32", "u32 u32 u32", logic(lambda a, b: by(a, b, np.right_shift, 32))),
    scalar("s_ashr_i32", "i32 i32 u32", logic(lambda a, b: by(a, b, np.right_shift, 32))),
    scalar("s_lshl_b64", "u64 u64 u32", logic(lambda a, b: by(a, b, np.left_shift, 64))),
    scalar("s_lshr_b64", "u64 u64 u32", logic(lambda a, b: by(a, b, np.right_shift, 64))),
    scalar("s_ashr_i64", "i64 i64 u32", logic(lambda a, b: by(a, b, np.right_shift, 64))),
    scalar("s_bfm_b32", "u32 u32 u32", plain(mask_of(32, U))), scalar("s_bfm_b64", "u64 u32 u32", plain(mask_of(64, L))),
    scalar("s_mul_i32", "u32 u32 u32", plain(lambda a, b: a * b)),
    scalar("s_mul_hi_u32", "u32 u32 u32", plain(lambda a, b: (wide(a) * wide(b) >> L(32)).astype(U))),
    scalar("s_mul_hi_i32", "i32 i32 i32", plain(lambda a, b: (wide(a) * wide(b) >> S(32)).astype(I))),
    scalar("s_bfe_u32", "u32 u32 u32", unsigned_field), scalar("s_bfe_i32", "i32 i32 u32", signed_field),
    scalar("s_bfe_u64", "u64 u64 u32", unsigned_field), scalar("s_bfe_i64", "i64 i64 u32", signed_field),
    *(scalar(f"s_lshl{n}_add_u32", "u32 u32 u32", shift_add(n)) for n in (1, 2, 3, 4)),
    scalar("s_absdiff_i32", "i32 i32 i32", logic(distance)),
    scalar("s_pack_ll_b32_b16", "u32 u32 u32", plain(lambda a, b: a & U(0xFFFF) | b << U(16))),
    scalar("s_pack_lh_b32_b16", "u32 u32 u32", plain(lambda a, b: a & U(0xFFFF) | b & U(0xFFFF0000))),
    scalar("s_pack_hh_b32_b16", "u32 u32 u32", plain(lambda a, b: a >> U(16) | b & U(0xFFFF0000))),
    scalar("-/s_pack_hl_b32_b16", "u32 u32 u32", plain(lambda a, b: a >> U(16) | b << U(16))),
    scalar("-/-/s_add_nc_u64", "u64 u64 u64", plain(lambda a, b: a + b)),
    scalar("-/-/s_sub_nc_u64", "u64 u64 u64", plain(lambda a, b: a - b)),
    scalar("-/-/s_mul_u64", "u64 u64 u64", plain(lambda a, b: a * b)),
]
SOP1 = [
    scalar("s_mov_b32", "u32 u32", plain(lambda a: a)), scalar("s_mov_b64", "u64 u64", plain(lambda a: a)),
    scalar("s_not_b32", "u32 u32", logic(lambda a: ~a)), scalar("s_not_b64", "u64 u64", logic(lambda a: ~a)),
    scalar("s_brev_b32", "u32 u32", plain(reverse_bits)),
    scalar("s_brev_b64", "u64 u64", plain(two(lambda low, high: wide(reverse_bits(low)) << L(32) | wide(reverse_bits(high))))),
    scalar("s_abs_i32", "i32 i32", logic(np.abs)),
    scalar("s_sext_i32_i8", "i32 i32", plain(lambda a: a.astype(np.int8).astype(I))),
    scalar("s_sext_i32_i16", "i32 i32", plain(lambda a: a.astype(np.int16).astype(I))),
    scalar("s_bcnt0_i32_b32", "u32 u32", logic(lambda a: popcount(~a))),
    scalar("s_bcnt1_i32_b32", "u32 u32", logic(popcount)),
    scalar("s_bcnt0_i32_b64", "u32 u64", logic(lambda a: popcount(~a))),
    scalar("s_bcnt1_i32_b64", "u32 u64", logic(popcount)),
    scalar("s_ff1_i32_b32/s_ctz_i32_b32", "i32 u32", plain(trailing_zeros)),
    scalar("s_ff1_i32_b64/s_ctz_i32_b64", "i32 u64", plain(two(first_one))),
    scalar("s_ff0_i32_b32/-", "i32 u32", plain(lambda a: trailing_zeros(~a))),
    scalar("s_ff0_i32_b64/-", "i32 u64", plain(lambda a: two(first_one)(~a))),
    scalar("s_flbit_i32_b32/s_clz_i32_u32", "i32 u32", plain(leading_zeros)),
    scalar("s_flbit_i32_b64/s_clz_i32_u64", "i32 u64", plain(two(last_one))),
    scalar("s_flbit_i32/s_cls_i32", "i32 i32", plain(leading_signs)),
    scalar("s_flbit_i32_i64/s_cls_i32_i64", "i32 i64", plain(sign_run)),
    scalar("s_wqm_b64", "u64 u64", logic(lambda a: quads(a) * L(15))),
    scalar("s_quadmask_b64", "u64 u64", logic(quad_mask)),
    scalar("s_bitreplicate_b64_b32", "u64 u32", plain(doubled)),
    scalar("s_bitset0_b32", "u32 u32", plain(lambda a: U(0) & a), "s_bitset0_b32 {d}, {a}"),
    scalar("s_bitset1_b32", "u32 u32", plain(lambda a: U(1) << (a & U(31))), "s_bitset1_b32 {d}, {a}"),
    scalar("s_bitset1_b64", "u64 u32", plain(lambda a: L(1) << (a & U(63)).astype(L)), "s_bitset1_b64 {d}, {a}"),
    scalar("s_cmov_b32", "u32 u32 u32 u32", lambda a, b, c: kept(np.where(c != 0, a, b), c),
           "s_mov_b32 {d}, {b}\ns_cmov_b32 {d}, {a}"),
    scalar("s_movk_i32", "i32 u32", plain(lambda a: np.full(len(a), -12345, I)), "s_movk_i32 {d}, 0xcfc7"),
    scalar("s_addk_i32", "i32 i32", lambda a: signed(np.add)(a, np.full_like(a, -2)), "s_mov_b32 {d}, {a}\ns_addk_i32 {d}, 0xfffe",
           on=("gfx90a", "gfx942", "gfx950", "gfx1151")),
    scalar("s_mulk_i32", "i32 i32", plain(lambda a: a * I(-3)), "s_mov_b32 {d}, {a}\ns_mulk_i32 {d}, 0xfffd"),
]
COMPARE = {"eq": np.equal, "lg": np.not_equal, "gt": np.greater, "ge": np.greater_equal, "lt": np.less, "le": np.less_equal}
SOPC = [
    *(scalar(f"s_cmp_{name}_{kind}", f"- {kind} {kind}", lambda a, b, f=function: (None, f(a, b)))
      for kind in ("i32", "u32") for name, function in COMPARE.items()),
    *(scalar(f"s_cmp_{name}_u64", "- u64 u64", lambda a, b, f=COMPARE[name]: (None, f(a, b))) for name in ("eq", "lg")),
    *(scalar(f"s_bitcmp{bit}_b{n}", f"- u{n} u32", lambda a, b, bit=bit, n=n: (
        None, by(a, b, np.right_shift, n) & a.dtype.type(1) == bit)) for bit in (0, 1) for n in (32, 64)
      ),
    *(scalar(f"s_cmpk_{name}_{kind}", f"- {kind}", lambda a, f=function, k=kind: (
        None, f(a, a.dtype.type(0x8001 if k == "u32" else 0x8001 - 65536))), f"s_cmpk_{name}_{kind} {{a}}, 0x8001",
        on=("gfx90a", "gfx942", "gfx950", "gfx1151")) for kind in ("i32", "u32") for name, function in COMPARE.items()),
]

# ---- RDNA's scalar floats
FLOATS = [
    *(scalar(f"-/s_{name}_f32", "f32 f32 f32", plain(f)) for name, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply))),
    *(scalar(f"-/s_{name}_{kind}/-", f"{kind} {kind} {kind}", plain(f)) for name, f in (
        ("min", ieee.least_ieee), ("max", ieee.greatest_ieee)) for kind in ("f32", )),
    *(scalar(f"-/-/s_{name}_f32", "f32 f32 f32", plain(f)) for name, f in (
        ("min_num", ieee.least), ("max_num", ieee.greatest), ("minimum", ieee.minimum), ("maximum", ieee.maximum))),
    *(scalar(f"-/s_{name}_f32", "f32 f32", plain(f)) for name, f in (
        ("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint))),
    scalar("-/s_fmac_f32", "f32 f32 f32", plain(lambda a, b: ieee.fma(a, b, np.full_like(a, 3))),
           "s_mov_b32 {d}, 0x40400000\ns_fmac_f32 {d}, {a}, {b}"),
    scalar("-/s_cvt_f32_i32", "f32 i32", plain(lambda a: a.astype(F))),
    scalar("-/s_cvt_f32_u32", "f32 u32", plain(lambda a: a.astype(F))),
    scalar("-/s_cvt_f16_f32", "f16 f32", plain(lambda a: a.astype(H))),
    *(scalar(f"-/s_cmp_{name}_f32", "- f32 f32", lambda a, b, f=function: (None, f(a, b))) for name, function in {
        "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
        "neq": np.not_equal, "u": lambda a, b: np.isnan(a) | np.isnan(b), "nlt": lambda a, b: ~(a < b),
        "nle": lambda a, b: ~(a <= b), "ngt": lambda a, b: ~(a > b), "nge": lambda a, b: ~(a >= b)}.items()),
]


def half(formula):
    """Computes through f32, which holds every f16 product. A sum's second rounding is innocuous there."""
    return plain(lambda *operands: formula(*(x.astype(F) for x in operands)).astype(H))


def into(kind):
    """Returns a conversion toward zero. A value beyond the type becomes its nearest value, a NaN zero."""
    info = np.iinfo(kind)
    return lambda a: np.where(np.isnan(a), 0, np.clip(np.trunc(a.astype(np.float64)), info.min, info.max)).astype(kind)


def cut(a):
    """Converts f32 to f16 toward zero."""
    near = a.astype(H)
    return np.where(np.abs(near.astype(F)) > np.abs(a), np.nextafter(near, H(0)), near)


def packed_cut(a, b):
    return cut(a).view(np.uint16).astype(U) | cut(b).view(np.uint16).astype(U) << U(16)


def finite(kinds):
    """Returns finite values, because NaN has no one place in packed results."""
    return [x[~np.isnan(x.astype(U).view(F))][:2**17] for x in values.draw(kinds, 2**18)]


K = F(1.7)
MORE_FLOATS = [
    *(scalar(f"-/s_{name}_f16", "f16 f16 f16", half(f)) for name, f in (
        ("add", np.add), ("sub", np.subtract), ("mul", np.multiply))),
    *(scalar(f"-/s_{name}_f16/-", "f16 f16 f16", plain(f)) for name, f in (
        ("min", ieee.least_ieee), ("max", ieee.greatest_ieee))),
    *(scalar(f"-/-/s_{name}_f16", "f16 f16 f16", plain(f)) for name, f in (
        ("min_num", ieee.least), ("max_num", ieee.greatest), ("minimum", ieee.minimum), ("maximum", ieee.maximum))),
    *(scalar(f"-/s_{name}_f16", "f16 f16", plain(f)) for name, f in (
        ("ceil", np.ceil), ("floor", np.floor), ("trunc", np.trunc), ("rndne", np.rint))),
    scalar("-/s_fmac_f16", "f16 f16 f16", plain(lambda a, b: ieee.fma(a, b, np.full_like(a, 3))),
           "s_mov_b32 {d}, 0x4200\ns_fmac_f16 {d}, {a}, {b}"),
    scalar("-/s_fmaak_f32", "f32 f32 f32", plain(lambda a, b: ieee.fma(a, b, np.full_like(a, K))),
           "s_fmaak_f32 {d}, {a}, {b}, 0x3fd9999a"),
    scalar("-/s_fmamk_f32", "f32 f32 f32", plain(lambda a, b: ieee.fma(a, np.full_like(a, K), b)),
           "s_fmamk_f32 {d}, {a}, 0x3fd9999a, {b}"),
    scalar("-/s_cvt_i32_f32", "i32 f32", plain(into(I))), scalar("-/s_cvt_u32_f32", "u32 f32", plain(into(U))),
    scalar("-/s_cvt_f32_f16", "f32 f16", plain(lambda a: a.astype(F))),
    scalar("-/s_cvt_hi_f32_f16", "f32 u32", plain(lambda a: (a >> U(16)).astype(np.uint16).view(H).astype(F))),
    replace(scalar("-/s_cvt_pk_rtz_f16_f32", "u32 f32 f32", plain(packed_cut)), data=finite),
    *(scalar(f"-/s_cmp_{name}_f16", "- f16 f16", lambda a, b, f=function: (None, f(a, b))) for name, function in {
        "lt": np.less, "eq": np.equal, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "lg": lambda a, b: (
            a < b) | (a > b), "o": lambda a, b: ~(np.isnan(a) | np.isnan(b)), "neq": np.not_equal}.items()),
]


# ---- transcendental functions of scalars, where they are exact
def exponents(kinds):
    """Returns even powers of two."""
    at = values.generator(31).integers(-5, 6, 2**14) * 2
    return [np.ldexp(1.0, at).astype({"f32": F, "f16": H}[kinds[0]]).view({"f32": U, "f16": np.uint16}[kinds[0]]).astype(L)]


def small_integers(kinds):
    return [values.generator(32).integers(-12, 13, 2**14).astype({"f32": F, "f16": H}[kinds[0]]).view(
        {"f32": U, "f16": np.uint16}[kinds[0]]).astype(L)]


SCALAR_EXACT = [replace(scalar(f"-/-/v_s_{name}_{kind}", f"{kind} {kind}", plain(lambda a, f=f: f(a.astype(F)).astype(a.dtype))),
                        data=data) for kind in ("f32", "f16") for name, f, data in (
    ("rcp", lambda a: 1 / a, exponents), ("rsq", lambda a: 1 / np.sqrt(a), exponents), ("sqrt", np.sqrt, exponents),
    ("log", np.log2, exponents), ("exp", np.exp2, small_integers))]


# ---- EXEC
EXEC_FORMS = {"and": lambda a, e: a & e, "or": lambda a, e: a | e, "xor": lambda a, e: a ^ e, "nand": lambda a, e: ~(a & e),
              "nor": lambda a, e: ~(a | e), "xnor": lambda a, e: ~(a ^ e), "andn1": lambda a, e: ~a & e,
              "andn2": lambda a, e: a & ~e, "orn1": lambda a, e: ~a | e, "orn2": lambda a, e: a | ~e}
RDNA_NAMES = {"andn1": "and_not0", "andn2": "and_not1", "orn1": "or_not0", "orn2": "or_not1"}


def save_exec():
    """Returns EXEC before or after, and in SCC whether it is not 0. EXEC is b."""
    for bits, kind, register, chips in ((64, "u64", "exec", gpu.CDNA), (32, "u32", "exec_lo", gpu.RDNA)):
        restore = f"s_mov_b{bits} {register}, -1"
        for name, f in EXEC_FORMS.items():
            op = f"s_{name if bits == 64 else RDNA_NAMES.get(name, name)}_saveexec_b{bits}"
            before = f"s_mov_b{bits} {register}, {{b}}\n{op} {{d}}, {{a}}\n"
            yield scalar(op, f"{kind} {kind} {kind}", lambda a, e, f=f: (e, f(a, e) != 0), before + restore, on=chips, tag="old")
            yield scalar(op, f"{kind} {kind} {kind}", lambda a, e, f=f: (f(a, e), f(a, e) != 0),
                         before + f"s_mov_b{bits} {{d}}, {register}\n" + restore, on=chips, tag="new")
            if name in ("andn1", "andn2"):
                op = op.replace("saveexec", "wrexec")
                text = f"s_mov_b{bits} {register}, {{b}}\n{op} {{d}}, {{a}}\n"
                yield scalar(op, f"{kind} {kind} {kind}", lambda a, e, f=f: (f(a, e), f(a, e) != 0), text + restore, on=chips)
                yield scalar(op, f"{kind} {kind} {kind}", lambda a, e, f=f: (f(a, e), f(a, e) != 0),
                             text + f"s_mov_b{bits} {{d}}, {register}\n" + restore, on=chips, tag="exec")


TABLE = Table(SOP2 + SOP1 + SOPC + FLOATS + MORE_FLOATS + SCALAR_EXACT + list(save_exec()))


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_scalar(case):
    TABLE.run(case)
