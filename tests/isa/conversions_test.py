# SPDX-License-Identifier: Apache-2.0
"""Conversions between integers, f64, f32, f16, bf16 and the small floats, against NumPy and ml_dtypes.

16-bit and 8-bit sources: every value. f32 sources: every pattern of the upper 19 bits with lower ones just below, at and
above each half, so that every rounding decision to 16 bits or fewer is met, and random ones. Source: "CDNA3", "CDNA4",
"RDNA3.5" and "RDNA4" ISA, VOP1 and VOP3; the OCP 8-bit formats.
"""
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

import gpu
import ieee
import values
from table import OLD, Op, Table

F, D, H, U, I, W, V = np.float32, np.float64, np.float16, np.uint32, np.int32, np.uint16, np.int16
LOW_BITS = (0x0000, 0x0001, 0x0FFF, 0x1000, 0x1001, 0x1FFF)  # below f16's last place


def every_f32(kinds):
    """Returns each 19-bit prefix of an f32 (in a short run every 17th, so that all last bits occur) with each of
    LOW_BITS, and random values; more sources get them in other orders."""
    prefixes = np.arange(0, 2**19, 17 if values.SHORT else 1, dtype=np.uint64) << np.uint64(13)
    some = values.random_bits("f32", values.fewer(10**6), 0)
    first = np.concatenate([*(prefixes | np.uint64(low) for low in LOW_BITS), some])
    rng = values.generator(6)
    first = first[rng.permutation(len(first))]
    more = [first[rng.permutation(len(first))] if kind == "f32" else values.random_bits(kind, len(first), i)
            for i, kind in enumerate(kinds[1:])]
    return [first, *more]


def every_u16(kinds):
    """Returns every 16-bit pattern; more sources get them in other orders."""
    first = np.arange(65536, dtype=np.uint64)
    return [first, *(first[values.generator(7, i).permutation(65536)] for i in range(len(kinds) - 1))]


# ---- integers
def truncated(x, kind):
    """Truncates toward zero, then to the nearest value of the type. NaN becomes 0."""
    info = np.iinfo(kind)
    x = np.trunc(np.where(np.isnan(x), 0, x).astype(D))
    return np.where(x > info.max, info.max, np.where(x < info.min, info.min, np.clip(x, info.min, info.max))).astype(kind)


def two_halves(low, high):
    return np.ascontiguousarray(low).view(W).astype(U) | np.ascontiguousarray(high).view(W).astype(U) << U(16)


def normal(x, kind):
    """Returns -1 (or 0) to 1 as a whole number, ties to even. NaN becomes 0."""
    top = np.iinfo(kind).max
    return np.rint(np.clip(np.where(np.isnan(x), 0, x).astype(D), 0 if kind is W else -1, 1) * top).astype(kind)


def limited(x, kind):
    info = np.iinfo(kind)
    return np.clip(x, info.min, info.max).astype(kind)


def put_byte(a, b, c):
    shift = U(8) * (b & U(3))
    return c & ~(U(255) << shift) | truncated(a, np.uint8).astype(U) << shift


INTEGERS = [
    Op("v_cvt_f32_u32", "f32 u32", lambda a: a.astype(F)), Op("v_cvt_f32_i32", "f32 i32", lambda a: a.astype(F)),
    Op("v_cvt_u32_f32", "u32 f32", lambda a: truncated(a, U), data=every_f32),
    Op("v_cvt_i32_f32", "i32 f32", lambda a: truncated(a, I), data=every_f32),
    Op("v_cvt_flr_i32_f32/v_cvt_floor_i32_f32", "i32 f32", lambda a: truncated(np.floor(a), I), data=every_f32),
    Op("v_cvt_rpi_i32_f32/v_cvt_nearest_i32_f32", "i32 f32", lambda a: truncated(np.floor(a + F(0.5)), I), data=every_f32),
    *(Op(f"v_cvt_f32_ubyte{i}", "f32 u32", lambda a, i=i: (a >> U(8 * i) & U(255)).astype(F)) for i in range(4)),
    Op("v_cvt_off_f32_i4", "f32 u32", lambda a: ((a & U(15)).astype(I) - 16 * (a >> U(3) & U(1)).astype(I)).astype(F) / F(16)),
    Op("v_cvt_f16_u16", "f16 u16", lambda a: a.astype(H)), Op("v_cvt_f16_i16", "f16 i16", lambda a: a.astype(H)),
    Op("v_cvt_u16_f16", "u16 f16", lambda a: truncated(a, W)), Op("v_cvt_i16_f16", "i16 f16", lambda a: truncated(a, V)),
    Op("v_cvt_f64_u32", "f64 u32", lambda a: a.astype(D)), Op("v_cvt_f64_i32", "f64 i32", lambda a: a.astype(D)),
    Op("v_cvt_u32_f64", "u32 f64", lambda a: truncated(a, U)), Op("v_cvt_i32_f64", "i32 f64", lambda a: truncated(a, I)),
    Op("v_cvt_pk_u16_u32", "b32 u32 u32", lambda a, b: two_halves(limited(a, W), limited(b, W))),
    Op("v_cvt_pk_i16_i32", "b32 i32 i32", lambda a, b: two_halves(limited(a, V), limited(b, V))),
    Op("-/v_cvt_pk_u16_f32", "b32 f32 f32", lambda a, b: two_halves(truncated(a, W), truncated(b, W)), data=every_f32),
    Op("-/v_cvt_pk_i16_f32", "b32 f32 f32", lambda a, b: two_halves(truncated(a, V), truncated(b, V)), data=every_f32),
    Op("v_cvt_pknorm_u16_f32/v_cvt_pk_norm_u16_f32", "b32 f32 f32",
       lambda a, b: two_halves(normal(a, W), normal(b, W)), data=every_f32),
    Op("v_cvt_pknorm_i16_f32/v_cvt_pk_norm_i16_f32", "b32 f32 f32",
       lambda a, b: two_halves(normal(a, V), normal(b, V)), data=every_f32),
    Op("v_cvt_norm_u16_f16", "u16 f16", lambda a: normal(a, W)), Op("v_cvt_norm_i16_f16", "i16 f16", lambda a: normal(a, V)),
    Op("v_cvt_pknorm_u16_f16/v_cvt_pk_norm_u16_f16", "b32 f16 f16",
       lambda a, b: two_halves(normal(a, W), normal(b, W)), data=every_u16),
    Op("v_cvt_pknorm_i16_f16/v_cvt_pk_norm_i16_f16", "b32 f16 f16",
       lambda a, b: two_halves(normal(a, V), normal(b, V)), data=every_u16),
    Op("v_cvt_pk_u8_f32", "b32 f32 u32 b32", put_byte, data=every_f32),
    Op("v_cvt_pkaccum_u8_f32/-", "b32 f32 u32 b32", put_byte, text="v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}", data=every_f32),
    Op("v_sat_pk_u8_i16", "b16 b32", lambda a: sum(limited((a >> U(16 * i)).astype(W).view(V), np.uint8).astype(W) << W(8 * i)
                                                   for i in range(2))),
]


# ---- f64, f32, f16, bf16
def toward_zero(x):
    """Rounds to f16 toward zero. Only an infinity gives an infinity."""
    nearest = x.astype(H)
    return np.where(np.abs(nearest.astype(F)) > np.abs(x), np.nextafter(nearest, H(0)), nearest)


def cut_after(x, random, places, least):
    """Rounds |x| to a multiple of the last place: adds a 32-bit fraction of it and cuts. The rest is exact in double,
    with the sum cut there too. A number has `places` mantissa bits and, if normal, at least the exponent `least`."""
    x = np.abs(x.astype(D))
    exponent = np.maximum(np.frexp(np.where(x > 0, x, 1))[1] - 1, least)
    with ieee.rounding(3):
        units = np.floor(np.ldexp(x, places - exponent) + random.astype(D) * 2.0**-32)
    return np.ldexp(units, exponent - places)


def stochastic(kind, places, least):
    def of(x, random):
        value = np.copysign(cut_after(x, random, places, least), x)
        return np.where(np.isfinite(x), value, x).astype(F).astype(kind)
    return of


FLOATS = [
    Op("v_cvt_f32_f16", "f32 f16", lambda a: a.astype(F)),
    Op("v_cvt_f16_f32", "f16 f32", lambda a: a.astype(H), data=every_f32),
    Op("v_cvt_f64_f32", "f64 f32", lambda a: a.astype(D), data=every_f32),
    Op("v_cvt_f32_f64", "f32 f64", lambda a: a.astype(F)),
    Op("v_cvt_pkrtz_f16_f32/v_cvt_pk_rtz_f16_f32", "2xh f32 f32",
       lambda a, b: two_halves(toward_zero(a), toward_zero(b)), data=every_f32),
    Op("v_cvt_pk_f16_f32/-", "2xh f32 f32", lambda a, b: two_halves(a.astype(H), b.astype(H)), data=every_f32,
       on=("gfx950", )),
    Op("v_pack_b32_f16", "2xh f16 f16", two_halves, data=every_u16),
    Op("v_cvt_f32_bf16/-", "f32 bf16", lambda a: a.astype(F), on=("gfx950", )),
    Op("v_cvt_pk_bf16_f32/-", "2xb f32 f32",
       lambda a, b: two_halves(a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)), data=every_f32, on=("gfx950", )),
    Op("v_cvt_sr_f16_f32/-", "f16 f32 u32", stochastic(H, 10, -14), keeps=True, data=every_f32, on=("gfx950", )),
    Op("v_cvt_sr_bf16_f32/-", "bf16 f32 u32", stochastic(ml_dtypes.bfloat16, 7, -126), keeps=True, data=every_f32,
       on=("gfx950", )),
]

# ---- 8-bit floats: FNUZ on gfx942, OCP on gfx950 and gfx12
SMALL = {"fp8": {"gfx942": ml_dtypes.float8_e4m3fnuz, "ocp": ml_dtypes.float8_e4m3fn},
         "bf8": {"gfx942": ml_dtypes.float8_e5m2fnuz, "ocp": ml_dtypes.float8_e5m2}}
PLACES = {"fp8": 3, "bf8": 2}
NAN_OF = {ml_dtypes.float8_e4m3fn: 0x7F, ml_dtypes.float8_e5m2: 0x7F,
          ml_dtypes.float8_e4m3fnuz: 0x80, ml_dtypes.float8_e5m2fnuz: 0x80}


def encoded(x, kind, saturate=False):
    """Returns bytes. A NaN is the format's own NaN, with the source's sign if the format has one; a value beyond the
    range is an infinity, a NaN, or the largest number."""
    if saturate:
        top = F(ml_dtypes.finfo(kind).max)
        x = np.where(np.isnan(x), x, np.clip(x, -top, top))
    byte = x.astype(kind).view(np.uint8)
    nan = np.isnan(byte.view(kind).astype(F))
    sign = np.where(NAN_OF[kind] == 0x80, 0, np.signbit(x) * np.uint8(0x80)).astype(np.uint8)
    return np.where(nan, np.uint8(NAN_OF[kind]) | sign, byte)


def decoded(byte, kind):
    return byte.astype(np.uint8).view(kind).astype(F)


def rounded_by(kind, places):
    least = int(np.log2(float(ml_dtypes.finfo(kind).smallest_normal)))

    def of(x, random):
        value = np.copysign(cut_after(x, random, places, least), x)
        return encoded(np.where(np.isfinite(x), value, x).astype(F), kind)
    return of


def eight_bit_ops():
    for name, kinds in SMALL.items():
        for family, kind in kinds.items():
            on = ("gfx942", ) if family == "gfx942" else ("gfx950", "gfx1201")
            places = PLACES[name]

            def pair(a, b, kind=kind, saturate=False):
                return encoded(a, kind, saturate).astype(W) | encoded(b, kind, saturate).astype(W) << W(8)

            def both(a, kind=kind):
                return np.stack([decoded(a & W(255), kind), decoded(a >> W(8), kind)], axis=1)
            more = {"on": on, "tag": family}
            yield Op(f"v_cvt_pk_{name}_f32", "b16 f32 f32", pair, keeps=True, data=every_f32, **more)
            yield Op(f"v_cvt_pk_{name}_f32", "b16 f32 f32", lambda a, b, pair=pair: pair(a, b, saturate=True), keeps=True,
                     data=every_f32, mode={"fp16_overflow": 1}, on=on, tag=family + ".saturating")
            yield Op(f"v_cvt_pk_{name}_f32", "b16 f32 f32", pair, keeps=True, high=True, data=every_f32, **more,
                     text=None if "gfx1201" in on and on == ("gfx1201", ) else "{op} {d}, {a}, {b} op_sel:[0,0,1]")
            yield Op(f"v_cvt_pk_f32_{name}", "2xf b16", both, **more)
            yield Op(f"v_cvt_pk_f32_{name}", "2xf b16", both, high=True, text="{op}_sdwa {d}, {a} src0_sel:WORD_1",
                     on=tuple(c for c in on if c in gpu.CDNA), tag=family)
            yield Op(f"v_cvt_pk_f32_{name}", "2xf b16", both, high=True, on=tuple(c for c in on if c in gpu.RDNA), tag=family)
            for byte in range(4):
                def one(a, kind=kind, byte=byte):
                    return decoded(a >> U(8 * byte) & U(255), kind)

                def insert(a, b, byte=byte, rounded=rounded_by(kind, places)):
                    return U(OLD & ~(255 << 8 * byte)) | rounded(a, b).astype(U) << U(8 * byte)
                for chips, text, select in (
                        (gpu.CDNA, f"{{op}}_sdwa {{d}}, {{a}} src0_sel:BYTE_{byte}", f"op_sel:[0,0,{byte & 1},{byte >> 1}]"),
                        (gpu.RDNA, f"{{op}} {{d}}, {{a}} byte_sel:{byte}", f"byte_sel:{byte}")):
                    chips = tuple(c for c in on if c in chips)
                    tag = f"{family}.{byte}"
                    yield Op(f"v_cvt_f32_{name}", "f32 b32", one, text=text, on=chips, tag=tag, data=every_byte)
                    yield Op(f"v_cvt_sr_{name}_f32", "b32 f32 u32", insert, text=f"{{op}} {{d}}, {{a}}, {{b}} {select}",
                             on=chips, tag=tag, data=every_f32 if byte == 0 else None)


def every_byte(kinds):
    """Returns every value of each byte, with the other bytes random."""
    random = values.generator(8).integers(0, 2**32, (4, 1024), np.uint64)
    place = np.uint64(8) * np.arange(4, dtype=np.uint64)[:, None]
    low = np.arange(1024, dtype=np.uint64) & np.uint64(255)
    return [(random & ~(np.uint64(255) << place) | low << place).ravel()]


EIGHT_BIT = [op for op in eight_bit_ops() if op.on]
HIGH = [replace(op, high=True, text="{op} {d}, {a}", on=gpu.RDNA) for op in INTEGERS + FLOATS
        if op.types in ("f16 u16", "f16 i16", "u16 f16", "i16 f16", "f32 f16")]
TABLE = Table(INTEGERS + FLOATS + EIGHT_BIT + HIGH)


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_conversions(case):
    TABLE.run(case)
