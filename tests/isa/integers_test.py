# SPDX-License-Identifier: Apache-2.0
"""32-bit and 64-bit integer instructions. Source: "CDNA3", "CDNA4" and "RDNA3.5" ISA, VOP1, VOP2, VOP3."""
import numpy as np
import pytest

import gpu
import values
from table import Op, Table

U, I, L, S = np.uint32, np.int32, np.uint64, np.int64
GFX9_1151 = ("gfx90a", "gfx942", "gfx950", "gfx1151")
GFX940 = ("gfx942", "gfx950")


def wide(x):
    """Returns an operand as 64-bit numbers of its signedness."""
    return x.astype(S if x.dtype == I else L)


def limited(x, kind):
    """Returns the nearest value of the type."""
    info = np.iinfo(kind)
    return np.clip(x, info.min, info.max).astype(kind)


def signed24(x):
    return wide((x.view(U) << 8).view(I) >> 8)


def low24(x):
    return wide(x & U(0xFFFFFF))


def unsigned_product_high(a, b):
    return (wide(a) * wide(b) >> L(32)).astype(U)


def extract_signed(a, b, c):
    """Returns `c` bits of a from bit b on, with the upper one repeated."""
    bits = (c & 31).astype(S)
    field = (a.view(I) >> (b & 31).astype(I)).astype(S) & (S(1) << bits) - S(1)
    sign = np.where(bits > 0, S(1) << np.maximum(bits - 1, 0), 0)
    return ((field ^ sign) - sign).astype(I)


def popcount(x):
    return np.bitwise_count(x).astype(U)


def reverse_bits(x):
    out = np.zeros_like(x)
    for i in range(32):
        out |= (x >> U(i) & U(1)) << U(31 - i)
    return out


def leading_zeros(x):
    """Returns the number of leading zeros, or -1 for zero."""
    exponent = np.frexp(x.astype(np.float64))[1]
    return np.where(x == 0, -1, 32 - exponent).astype(I)


def trailing_zeros(x):
    lowest = x & (~x + U(1))
    return np.where(x == 0, -1, np.frexp(lowest.astype(np.float64))[1] - 1).astype(I)


def leading_signs(x):
    """Returns how many bits from the top on equal the sign, or -1 if all do."""
    return leading_zeros((x ^ x >> 31).view(U))


def byte(x, i):
    return x >> U(8 * i) & U(255)


def permute(a, b, c):
    """Selects by each byte of c: a byte of b or a, a sign, 0x00 or 0xff."""
    data = wide(a) << L(32) | wide(b)
    out = np.zeros_like(a)
    for i in range(4):
        select = byte(c, i)
        chosen = (data >> (L(8) * (select & U(7)).astype(L)) & L(255)).astype(U)
        word = np.select([select == 8, select == 9, select == 10], [U(1), U(3), U(5)], U(7))
        sign = (data >> (L(8) * word.astype(L) + L(7)) & L(1)).astype(U) * U(255)
        value = np.select([select < 8, select < 12, select == 12], [chosen, sign, np.zeros_like(a)], U(255))
        out |= value << U(8 * i)
    return out


def distance(a, b):
    return np.where(a > b, a - b, b - a)


def byte_differences(a, b, masked=False):
    total = np.zeros_like(a)
    for i in range(4):
        x, y = byte(a, i), byte(b, i)
        total += np.where(masked & (y == 0), U(0), distance(x, y))
    return total


def word_differences(a, b):
    return distance(a & U(0xFFFF), b & U(0xFFFF)) + distance(a >> U(16), b >> U(16))


def average_bytes(a, b, c):
    out = np.zeros_like(a)
    for i in range(4):
        out |= (byte(a, i) + byte(b, i) + (byte(c, i) & U(1)) >> U(1)) << U(8 * i)
    return out


def quad_differences(a, b, c, masked, most=None):
    """Returns four sums of byte differences between a's four bytes from byte i on and b, added to c's halves."""
    out = np.zeros_like(c)
    for i in range(4):
        window = (a >> L(8 * i)).astype(U)
        total = (c >> L(16 * i) & L(0xFFFF)) + byte_differences(window, b, masked).astype(L)
        total = np.minimum(total, L(most)) if most else total
        out |= (total & L(0xFFFF)) << L(16 * i)
    return out


def median(a, b, c):
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


def truth_table(table):
    """Returns the function of three bits whose value for (a, b, c) is bit 4a + 2b + c."""
    def of(a, b, c):
        out = np.zeros_like(a)
        for i in range(8):
            if table >> i & 1:
                out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
        return out
    return of


def carry(a, b, c=0):
    total = wide(a) + wide(b) + np.asarray(c).astype(L)
    return total.astype(U), total >> L(32)


def borrow(a, b, c=0):
    total = wide(a) - wide(b) - np.asarray(c).astype(L)
    return total.astype(U), total >> L(63)


def clamped(operation, limit):
    """Returns a formula that clamps: a result that carries becomes the limit, and the carry stays."""
    def of(*operands):
        value, over = operation(*operands)
        return np.where(over != 0, U(limit), value), over
    return of


def clamped_multiply_add(a, b, c):
    value, over = multiply_add(a, b, c)
    return np.where(over, ~L(0), value), over


def clamped_signed_multiply_add(a, b, c):
    """Computes the sum in Python's integers, which have no end."""
    exact = (wide(a).astype(object) * wide(b).astype(object) + c.astype(object))
    return np.clip(exact, np.iinfo(S).min, np.iinfo(S).max).astype(S)


def multiply_add(a, b, c):
    """Returns the sum modulo 2^64 and the bit above."""
    product = wide(a) * wide(b)
    return product + c, product + c < product


def fewer(kinds):
    return [x[-2**15:] for x in values.draw(kinds, 2**16)]


def fields(x, bits, is_signed):
    for i in range(32 // bits):
        value = x << U(32 - bits * (i + 1))
        yield (value.view(I) >> I(32 - bits)).astype(S) if is_signed else (value >> U(32 - bits)).astype(S)


def dot(bits, a_signed, b_signed, limit=None):
    """Returns a formula for a sum of products of fields, added to c, modulo 2^32 or limited to a type."""
    def of(a, b, c):
        total = wide(c).astype(S)
        for x, y in zip(fields(a, bits, a_signed), fields(b, bits, b_signed)):
            total = total + x * y
        return limited(total, limit).view(U) if limit else total.astype(U)
    return of


def pack_bytes(low, high):
    def of(a, b, c):
        by = (c & U(31)).astype(I)
        first, second = (np.clip(x >> by, low, high).view(U) & U(255) for x in (a, b))
        return (first | second << U(8)).astype(np.uint16)
    return of


def shift(x, by, bits, operation):
    return operation(x, (by & (bits - 1)).astype(x.dtype))


def small_shifts(kinds):
    """Returns shift counts of 0 to 4, the range of v_lshl_add_u64."""
    a, b, c = values.draw(kinds)
    return [a, b % np.uint64(5), c]


LOGIC = [
    Op("v_mov_b32", "b32 b32", lambda a: a),
    Op("v_not_b32", "b32 b32", lambda a: ~a),
    Op("v_bfrev_b32", "b32 b32", reverse_bits),
    Op("v_ffbh_u32/v_clz_i32_u32", "i32 u32", leading_zeros),
    Op("v_ffbl_b32/v_ctz_i32_b32", "i32 b32", trailing_zeros),
    Op("v_ffbh_i32/v_cls_i32", "i32 i32", leading_signs),
    Op("v_and_b32", "b32 b32 b32", lambda a, b: a & b),
    Op("v_or_b32", "b32 b32 b32", lambda a, b: a | b),
    Op("v_xor_b32", "b32 b32 b32", lambda a, b: a ^ b),
    Op("v_xnor_b32", "b32 b32 b32", lambda a, b: ~(a ^ b)),
    Op("v_lshlrev_b32", "b32 u32 b32", lambda a, b: shift(b, a, 32, np.left_shift)),
    Op("v_lshrrev_b32", "b32 u32 b32", lambda a, b: shift(b, a, 32, np.right_shift)),
    Op("v_ashrrev_i32", "i32 u32 i32", lambda a, b: shift(b, a, 32, np.right_shift)),
    Op("v_bfm_b32", "b32 u32 u32", lambda a, b: shift(shift(U(1), a, 32, np.left_shift) - U(1), b, 32, np.left_shift)),
    Op("v_bcnt_u32_b32", "u32 b32 u32", lambda a, b: popcount(a) + b),
    Op("v_and_or_b32", "b32 b32 b32 b32", lambda a, b, c: a & b | c),
    Op("v_or3_b32", "b32 b32 b32 b32", lambda a, b, c: a | b | c),
    Op("-/v_xor3_b32", "b32 b32 b32 b32", lambda a, b, c: a ^ b ^ c),
    Op("v_bfi_b32", "b32 b32 b32 b32", lambda a, b, c: a & b | ~a & c),
    Op("v_lshl_or_b32", "b32 b32 u32 b32", lambda a, b, c: shift(a, b, 32, np.left_shift) | c),
    Op("v_bfe_u32", "u32 u32 u32 u32",
       lambda a, b, c: shift(a, b, 32, np.right_shift) & shift(U(1), c, 32, np.left_shift) - U(1)),
    Op("v_bfe_i32", "i32 i32 u32 u32", extract_signed),
    Op("v_perm_b32", "b32 b32 b32 b32", permute),
    *(Op("v_bitop3_b32", "b32 b32 b32 b32", truth_table(t), text=f"{{op}} {{d}}, {{a}}, {{b}}, {{c}} bitop3:{t:#x}",
         on=("gfx950", ), tag=f"{t:#x}") for t in (0x00, 0x1B, 0x96, 0xE8, 0xD8, 0xFF)),
    Op("v_cndmask_b32", "b32 b32 b32 m", lambda a, b, m: np.where(m, b, a)),
    Op("v_alignbit_b32", "b32 b32 b32 u32", lambda a, b, c: (
        (wide(a) << L(32) | wide(b)) >> (c & U(31)).astype(L)).astype(U), on=gpu.CDNA),
    Op("v_alignbyte_b32", "b32 b32 b32 u32", lambda a, b, c: (
        (wide(a) << L(32) | wide(b)) >> (L(8) * (c & U(3)).astype(L))).astype(U), on=gpu.CDNA),
    Op("v_alignbit_b32", "b32 b32 b32 u16", lambda a, b, c: (
        (wide(a) << L(32) | wide(b)) >> (c & 31).astype(L)).astype(U), on=gpu.RDNA, tag="half"),
    Op("v_alignbyte_b32", "b32 b32 b32 u16", lambda a, b, c: (
        (wide(a) << L(32) | wide(b)) >> (L(8) * (c & 3).astype(L))).astype(U), on=gpu.RDNA, tag="half"),
]

SUMS = [
    Op("v_add_u32/v_add_nc_u32", "u32 u32 u32", lambda a, b: a + b),
    Op("v_sub_u32/v_sub_nc_u32", "u32 u32 u32", lambda a, b: a - b),
    Op("v_subrev_u32/v_subrev_nc_u32", "u32 u32 u32", lambda a, b: b - a),
    Op("v_add_i32/v_add_nc_i32", "i32 i32 i32", lambda a, b: a + b),
    Op("v_sub_i32/v_sub_nc_i32", "i32 i32 i32", lambda a, b: a - b),
    *(Op(name, f"{t} {t} {t}", formula, text="{op} {d}, {a}, {b} clamp", tag="clamp") for name, t, formula in (
        ("v_add_u32/v_add_nc_u32", "u32", lambda a, b: limited(wide(a) + wide(b), U)),
        ("v_sub_u32/v_sub_nc_u32", "u32", lambda a, b: np.where(a > b, a - b, U(0))),
        ("v_add_i32/v_add_nc_i32", "i32", lambda a, b: limited(wide(a) + wide(b), I)),
        ("v_sub_i32/v_sub_nc_i32", "i32", lambda a, b: limited(wide(a) - wide(b), I)))),
    Op("v_add_co_u32", "u32+m u32 u32", carry),
    Op("v_sub_co_u32", "u32+m u32 u32", borrow),
    Op("v_subrev_co_u32", "u32+m u32 u32", lambda a, b: borrow(b, a)),
    Op("v_addc_co_u32/v_add_co_ci_u32", "u32+m u32 u32 m", carry),
    Op("v_subb_co_u32/v_sub_co_ci_u32", "u32+m u32 u32 m", borrow),
    Op("v_subbrev_co_u32/v_subrev_co_ci_u32", "u32+m u32 u32 m", lambda a, b, m: borrow(b, a, m)),
    *(Op(names, "u32+m u32 u32" + " m" * ("addc" in names or "subb" in names), clamped(formula, limit), tag="clamp",
         text="{op} {d}, {vcc}, {a}, {b}" + (", {vcc} clamp" if "addc" in names or "subb" in names else " clamp"))
      for names, formula, limit in (
          ("v_add_co_u32", carry, 2**32 - 1), ("v_sub_co_u32", borrow, 0),
          ("v_subrev_co_u32", lambda a, b: borrow(b, a), 0), ("v_addc_co_u32/v_add_co_ci_u32", carry, 2**32 - 1),
          ("v_subb_co_u32/v_sub_co_ci_u32", borrow, 0),
          ("v_subbrev_co_u32/v_subrev_co_ci_u32", lambda a, b, m: borrow(b, a, m), 0))),
    Op("v_add3_u32", "u32 u32 u32 u32", lambda a, b, c: a + b + c),
    Op("v_add_lshl_u32", "u32 u32 u32 u32", lambda a, b, c: shift(a + b, c, 32, np.left_shift)),
    Op("v_lshl_add_u32", "u32 u32 u32 u32", lambda a, b, c: shift(a, b, 32, np.left_shift) + c),
    Op("v_xad_u32", "u32 u32 u32 u32", lambda a, b, c: (a ^ b) + c),
    Op("v_sad_u8", "u32 u32 u32 u32", lambda a, b, c: byte_differences(a, b) + c),
    Op("v_sad_hi_u8", "u32 u32 u32 u32", lambda a, b, c: (byte_differences(a, b) << U(16)) + c),
    Op("v_sad_u16", "u32 u32 u32 u32", lambda a, b, c: word_differences(a, b) + c),
    Op("v_sad_u32", "u32 u32 u32 u32", lambda a, b, c: distance(a, b) + c),
    Op("v_msad_u8", "u32 u32 u32 u32", lambda a, b, c: byte_differences(a, b, True) + c),
    Op("v_lerp_u8", "u32 u32 u32 u32", average_bytes),
    Op("v_ashr_pk_i8_i32", "b16 i32 i32 u32", pack_bytes(-128, 127), on=("gfx950", ), keeps=True),
    Op("v_ashr_pk_u8_i32", "b16 i32 i32 u32", pack_bytes(0, 255), on=("gfx950", ), keeps=True),
]

ORDER = [Op(f"v_{name}_{t}", " ".join([t] * (count + 1)), formula, on=on) for t in ("u32", "i32")
         for name, count, formula, on in (
             ("min", 2, np.minimum, gpu.CHIPS), ("max", 2, np.maximum, gpu.CHIPS),
             ("min3", 3, lambda a, b, c: np.minimum(np.minimum(a, b), c), gpu.CHIPS),
             ("max3", 3, lambda a, b, c: np.maximum(np.maximum(a, b), c), gpu.CHIPS), ("med3", 3, median, gpu.CHIPS),
             ("minmax", 3, lambda a, b, c: np.maximum(np.minimum(a, b), c), gpu.RDNA),
             ("maxmin", 3, lambda a, b, c: np.minimum(np.maximum(a, b), c), gpu.RDNA))]

PRODUCTS = [
    Op("v_mul_lo_u32", "u32 u32 u32", lambda a, b: a * b),
    Op("v_mul_hi_u32", "u32 u32 u32", unsigned_product_high),
    Op("v_mul_hi_i32", "i32 i32 i32", lambda a, b: (wide(a) * wide(b) >> S(32)).astype(I)),
    Op("v_mul_u32_u24", "u32 u32 u32", lambda a, b: (low24(a) * low24(b)).astype(U)),
    Op("v_mul_i32_i24", "i32 i32 i32", lambda a, b: (signed24(a) * signed24(b)).astype(I)),
    Op("v_mul_hi_u32_u24", "u32 u32 u32", lambda a, b: (low24(a) * low24(b) >> L(32)).astype(U)),
    Op("v_mul_hi_i32_i24", "i32 i32 i32", lambda a, b: (signed24(a) * signed24(b) >> S(32)).astype(I)),
    Op("v_mad_u32_u24", "u32 u32 u32 u32", lambda a, b, c: (low24(a) * low24(b) + wide(c)).astype(U)),
    Op("v_mad_i32_i24", "i32 i32 i32 i32", lambda a, b, c: (signed24(a) * signed24(b) + wide(c)).astype(I)),
    Op("v_mad_u64_u32/v_mad_u64_u32/v_mad_co_u64_u32", "u64+m u32 u32 u64",
       multiply_add, text="{op} {d}, {vcc}, {a}, {b}, {c}"),
    Op("v_mad_u64_u32/v_mad_u64_u32/v_mad_co_u64_u32", "u64+m u32 u32 u64", clamped_multiply_add,
       text="{op} {d}, {vcc}, {a}, {b}, {c} clamp", tag="clamp"),
    Op("v_mad_i64_i32/v_mad_i64_i32/v_mad_co_i64_i32", "i64 i32 i32 i64", clamped_signed_multiply_add, data=fewer,
       text="{op} {d}, {vcc}, {a}, {b}, {c} clamp", tag="clamp"),
    Op("v_mad_i64_i32/v_mad_i64_i32/v_mad_co_i64_i32", "i64 i32 i32 i64",
       lambda a, b, c: wide(a) * wide(b) + c, text="{op} {d}, {vcc}, {a}, {b}, {c}"),
    Op("v_dot2_i32_i16", "u32 u32 u32 u32", dot(16, True, True), on=gpu.CDNA),
    Op("v_dot2_u32_u16", "u32 u32 u32 u32", dot(16, False, False), on=gpu.CDNA),
    Op("v_dot4_i32_i8", "u32 u32 u32 u32", dot(8, True, True), on=gpu.CDNA),
    Op("v_dot4_u32_u8", "u32 u32 u32 u32", dot(8, False, False)),
    Op("v_dot8_i32_i4", "u32 u32 u32 u32", dot(4, True, True), on=gpu.CDNA),
    Op("v_dot8_u32_u4", "u32 u32 u32 u32", dot(4, False, False)),
    *(Op(f"v_dot{32 // bits}_i32_iu{bits}", "u32 u32 u32 u32", dot(bits, a, b), on=gpu.RDNA, tag=f"neg{a:d}{b:d}",
         text=f"{{op}} {{d}}, {{a}}, {{b}}, {{c}} neg_lo:[{a:d},{b:d},0]")
      for bits in (8, 4) for a in (False, True) for b in (False, True)),
    *(Op(f"v_dot{n}_{kind}", f"{t} u32 u32 {t}", dot(32 // n, is_signed, is_signed, limit), on=on, tag="clamp",
         text="{op} {d}, {a}, {b}, {c} clamp") for n, kind, t, is_signed, limit, on in (
             (2, "i32_i16", "i32", True, I, gpu.CDNA), (4, "i32_i8", "i32", True, I, gpu.CDNA),
             (8, "i32_i4", "i32", True, I, gpu.CDNA), (2, "u32_u16", "u32", False, U, gpu.CDNA),
             (4, "u32_u8", "u32", False, U, gpu.CHIPS), (8, "u32_u4", "u32", False, U, gpu.CHIPS))),
    *(Op(f"v_dot{32 // bits}c_i32_i{bits}", "u32 u32 u32 u32", dot(bits, True, True), on=gpu.CDNA,
         text="v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}") for bits in (16, 8, 4)),
]

WIDE = [
    Op("v_mov_b64/-", "u64 u64", lambda a: a, on=GFX940),
    Op("v_lshlrev_b64", "u64 u32 u64", lambda a, b: shift(b, a, 64, np.left_shift)),
    Op("v_lshrrev_b64", "u64 u32 u64", lambda a, b: shift(b, a, 64, np.right_shift)),
    Op("v_ashrrev_i64", "i64 u32 i64", lambda a, b: shift(b, a, 64, np.right_shift)),
    Op("v_lshl_add_u64", "u64 u64 u32 u64", lambda a, b, c: (a << (b & U(7)).astype(L)) + c, on=GFX940,
       data=small_shifts),
    Op("v_pk_mov_b32", "u64 u64 u64", lambda a, b: a >> L(32) | b << L(32),
       text="{op} {d}, {a}, {b} op_sel:[1,0]", on=gpu.CDNA, tag="hi-lo"),
    Op("v_pk_mov_b32", "u64 u64 u64", lambda a, b: a & L(0xFFFFFFFF) | b >> L(32) << L(32),
       text="{op} {d}, {a}, {b} op_sel:[0,1]", on=gpu.CDNA, tag="lo-hi"),
    Op("v_qsad_pk_u16_u8", "u64 u64 u32 u64", lambda a, b, c: quad_differences(a, b, c, False)),
    Op("v_mqsad_pk_u16_u8", "u64 u64 u32 u64", lambda a, b, c: quad_differences(a, b, c, True)),
    *(Op(name, "u64 u64 u32 u64", lambda a, b, c, m=masked: quad_differences(a, b, c, m, 0xFFFF), tag="clamp",
         data=fewer, text="{op} {d}, {a}, {b}, {c} clamp") for name, masked in (
             ("v_qsad_pk_u16_u8", False), ("v_mqsad_pk_u16_u8", True))),
]


TABLE = Table(LOGIC + SUMS + ORDER + PRODUCTS + WIDE)


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_integers(case):
    TABLE.run(case)
