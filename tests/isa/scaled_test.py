# SPDX-License-Identifier: Apache-2.0
"""gfx950's scaled conversions between floats of 4, 6 and 8 bits and wider ones, against ml_dtypes.

Every small number with every scale; every prefix of an f32 or f16 to round. Source: "CDNA4" ISA, v_cvt_scalef32_*.
"""
import ml_dtypes
import numpy as np
import pytest

import conversions_test
import values
from conversions_test import cut_after
from table import OLD, Op, Table

F, D, U = np.float32, np.float64, np.uint32
CHIP = ("gfx950", )
SMALL = {"fp8": (ml_dtypes.float8_e4m3fn, 8, 3), "bf8": (ml_dtypes.float8_e5m2, 8, 2),
         "fp6": (ml_dtypes.float6_e2m3fn, 6, 3), "bf6": (ml_dtypes.float6_e3m2fn, 6, 2),
         "fp4": (ml_dtypes.float4_e2m1fn, 4, 1)}
WIDE = {"f32": (F, 32, "f"), "f16": (np.float16, 16, "h"), "bf16": (ml_dtypes.bfloat16, 16, "b")}


def power(scale):
    """Returns 2^(exponent - 127) of an f32, or NaN for an infinity or NaN."""
    exponent = (scale.view(U) >> U(23) & U(255)).astype(np.int32)
    return np.where(exponent == 255, np.nan, np.ldexp(1.0, exponent - 127))


def unpacked(words, bits, count):
    """Unpacks [n, count] numbers of `bits` bits from rows of registers, lowest first."""
    raw = np.ascontiguousarray(words).view(np.uint8).reshape(len(words), -1)
    each = np.unpackbits(raw, axis=1, bitorder="little")[:, :bits * count].reshape(len(words), count, bits)
    return (each.astype(U) << np.arange(bits, dtype=U)).sum(axis=2, dtype=U)


def packed(numbers, bits):
    """Does the reverse: packs rows of registers. The last one is filled up with zeros."""
    each = (numbers[:, :, None] >> np.arange(bits, dtype=numbers.dtype) & 1).astype(np.uint8)
    flat = each.reshape(len(numbers), -1)
    flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % 32)))
    return np.packbits(flat, axis=1, bitorder="little").view(U)


def decoded(codes, kind):
    return codes.astype(np.uint8).view(kind).astype(F).astype(D)


def widened(small, wide, first, count):
    """Returns the formula of a conversion from small numbers, the first of which is number `first` of the source."""
    kind, bits, _ = SMALL[small]
    target = WIDE[wide][0]

    def of(a, scale):
        codes = unpacked(a.reshape(len(a), -1), bits, first + count)[:, first:]
        x = decoded(codes, kind) * power(scale)[:, None]
        return (x if wide == "f16" else x.astype(F)).astype(target)
    return of


def encoded(x, small):
    """Returns codes, rounded to nearest even. Floats of fewer than 8 bits have no infinities and NaNs: the largest
    stands for them."""
    kind, bits, _ = SMALL[small]
    if bits == 8:
        return conversions_test.encoded(x.astype(F), kind).astype(U)
    top = float(ml_dtypes.finfo(kind).max)
    clipped = np.where(np.isnan(x), np.copysign(top, x), np.clip(x, -top, top))
    return clipped.astype(kind).view(np.uint8).astype(U)


def by_chance(x, random, small):
    """Returns codes. The random number is a fraction of the last place that is added before the cut."""
    kind, _, places = SMALL[small]
    least = int(np.log2(float(ml_dtypes.finfo(kind).smallest_normal)))
    finite = np.isfinite(x)
    value = np.copysign(cut_after(np.where(finite, x, 0), random, places, least), x)
    return encoded(np.where(finite, value, x), small)


def elements(words, wide, count):
    """Returns [n, count] numbers of rows of registers, as doubles."""
    kind, bits, _ = WIDE[wide]
    raw = np.ascontiguousarray(words).reshape(len(words), -1)
    return raw.view(np.uint32 if bits == 32 else np.uint16).view(kind)[:, :count].astype(D)


def next_random(x):
    return x << U(1) ^ (x >> U(31)) * U(197)


def narrowed(small, wide, count, seeded, sources, place):
    """Returns the formula of a conversion to small numbers. place: first bit in the destination, None if it is
    replaced."""
    bits = SMALL[small][1]

    def of(*operands):
        x = np.concatenate([elements(a.reshape(len(a), -1), wide, count // sources) for a in operands[:sources]], axis=1)
        if sources == 2 and count == 32:  # they alternate
            x = x.reshape(len(x), 2, 16).transpose(0, 2, 1).reshape(len(x), 32)
        x = x / power(operands[-1])[:, None]
        if not seeded:
            codes = encoded(x, small)
        else:
            random, columns = operands[sources], []
            for i in range(count):
                columns.append(by_chance(x[:, i], random, small))
                random = next_random(random)
            codes = np.stack(columns, axis=1)
        words = packed(codes, bits)
        if place is None:
            return words
        mask = U((1 << bits * count) - 1 << place)
        return U(OLD) & ~mask | words[:, 0] << U(place) & mask
    return of


# ---- what to convert
def scales(count, near):
    """Returns f32 scales: every exponent in turn, or exponents near 1."""
    rng = values.generator(11)
    exponent = rng.integers(118, 137, count, np.uint64) if near else np.arange(count, dtype=np.uint64) // 256 % 256
    return exponent << np.uint64(23) | rng.integers(0, 2**23, count, np.uint64)


def every_code(kinds):
    """Returns every byte, in each place, with every exponent of the scale; or as many random registers."""
    rng = values.generator(12)
    words = int(kinds[0]) if kinds[0].isdigit() else 0
    if words:
        return [rng.integers(0, 2**32, (65536, words), np.uint64), scales(65536, False)]
    low = np.arange(65536, dtype=np.uint64) % 256
    return [sum((low * np.uint64(2 * i + 1) + np.uint64(7 * i)) % 256 << np.uint64(8 * i) for i in range(4)), scales(65536, False)]


def wide_numbers(rng, wide, shape):
    """Returns registers of numbers about 1, and some of all bit patterns."""
    anything = rng.integers(0, 2**32, shape, np.uint64)
    if wide == "f32":
        near = rng.integers(115, 138, shape, np.uint64) << np.uint64(23) | anything & np.uint64(0x807FFFFF)
    else:
        places, low, high = (10, 3, 26) if wide == "f16" else (7, 115, 138)
        rest = np.uint64((1 << places) - 1 | 0x8000) * np.uint64(0x10001)
        near = sum(rng.integers(low, high, shape, np.uint64) << np.uint64(places + 16 * i) for i in range(2)) | anything & rest
    return np.where(rng.integers(0, 8, shape) == 0, anything, near)


def to_round(wide):
    def of(kinds):
        rng = values.generator(13)
        count = values.fewer(2**20) if not kinds[0].isdigit() or int(kinds[0]) < 16 else 2**14
        out = []
        for kind in kinds[:-1]:
            seed = kind == "u32"
            shape = (count, int(kind)) if kind.isdigit() else count
            out.append(rng.integers(0, 2**32, shape, np.uint64) if seed else wide_numbers(rng, wide, shape))
        return [*out, scales(count, True)]
    return of


ROUND = {wide: to_round(wide) for wide in WIDE}
NAME = "v_cvt_scalef32_"


def result_words(wide, count):
    return f"{count}x{WIDE[wide][2]}"


def widening():
    for small in ("fp8", "bf8"):
        for byte in range(4):
            select = f"op_sel:[{byte & 1},{byte >> 1},0]" if byte else ""
            yield Op(f"{NAME}f32_{small}", "f32 b32 f32", lambda *x, f=widened(small, "f32", byte, 1): f(*x)[:, 0],
                     text=f"{{op}} {{d}}, {{a}}, {{b}} {select}", data=every_code, on=CHIP, tag=str(byte))
            for high in (False, True):
                select = f"op_sel:[{byte & 1},{byte >> 1},{int(high)}]"
                yield Op(f"{NAME}f16_{small}", "f16 b32 f32", lambda *x, f=widened(small, "f16", byte, 1): f(*x)[:, 0],
                         text=f"{{op}} {{d}}, {{a}}, {{b}} {select}", data=every_code, on=CHIP, tag=str(byte), high=high,
                         keeps=True)
    for wide in WIDE:
        for small, step in (("fp8", 2), ("bf8", 2), ("fp4", 2)):
            for part in range(2 if small != "fp4" else 4):
                select = f"op_sel:[{part & 1},{part >> 1},0]" if part else ""
                yield Op(f"{NAME}pk_{wide}_{small}", result_words(wide, 2) + " b32 f32", widened(small, wide, step * part, 2),
                         text=f"{{op}} {{d}}, {{a}}, {{b}} {select}", data=every_code, on=CHIP, tag=str(part))
        for small in ("fp6", "bf6"):
            yield Op(f"{NAME}pk32_{wide}_{small}", result_words(wide, 32) + " 6 f32", widened(small, wide, 0, 32),
                     data=every_code, on=CHIP)


def operands_text(sources):
    return "{op} {d}, {a}, {b}, {c}" if sources == 2 else "{op} {d}, {a}, {b}"


def narrowing():
    for wide, (_, bits, _) in WIDE.items():
        for small in ("fp8", "bf8"):
            sources = 2 if wide == "f32" else 1
            for part in range(2):
                yield Op(f"{NAME}pk_{small}_{wide}", "b32 " + "1 " * sources + "f32",
                         narrowed(small, wide, 2, False, sources, 16 * part), data=ROUND[wide], on=CHIP, tag=str(part),
                         text=operands_text(sources) +
                         (" op_sel:[" + "0," * (sources + 1) + "1]" if part else ""))
            for byte in range(4):
                yield Op(f"{NAME}sr_{small}_{wide}", "b32 1 u32 f32", narrowed(small, wide, 1, True, 1, 8 * byte),
                         data=ROUND[wide], on=CHIP, tag=str(byte),
                         text=f"{{op}} {{d}}, {{a}}, {{b}}, {{c}} op_sel:[0,0,{byte & 1},{byte >> 1}]")
        for byte in range(4):
            sources = 2 if wide == "f32" else 1
            yield Op(f"{NAME}pk_fp4_{wide}", "b32 " + "1 " * sources + "f32",
                     narrowed("fp4", wide, 2, False, sources, 8 * byte), data=ROUND[wide], on=CHIP, tag=str(byte),
                     text=operands_text(sources) + f" op_sel:[0,0,{byte & 1},{byte >> 1}]")
            yield Op(f"{NAME}sr_pk_fp4_{wide}", f"b32 {2 if wide == 'f32' else 1} u32 f32",
                     narrowed("fp4", wide, 2, True, 1, 8 * byte), data=ROUND[wide], on=CHIP, tag=str(byte),
                     text=f"{{op}} {{d}}, {{a}}, {{b}}, {{c}} op_sel:[0,0,{byte & 1},{byte >> 1}]")
        for small in ("fp6", "bf6"):
            if wide == "f32":
                yield Op(f"{NAME}2xpk16_{small}_f32", "6 16 16 f32", narrowed(small, wide, 32, False, 2, None),
                         data=ROUND[wide], on=CHIP)
            else:
                yield Op(f"{NAME}pk32_{small}_{wide}", f"6 {bits} f32", narrowed(small, wide, 32, False, 1, None),
                         data=ROUND[wide], on=CHIP)
            yield Op(f"{NAME}sr_pk32_{small}_{wide}", f"6 {bits} u32 f32", narrowed(small, wide, 32, True, 1, None),
                     data=ROUND[wide], on=CHIP)


PRNG = [Op("v_prng_b32", "b32 b32", next_random, on=CHIP)]
TABLE = Table([*widening(), *narrowing(), *PRNG])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_scaled(case):
    TABLE.run(case)
