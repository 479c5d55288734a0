# SPDX-License-Identifier: Apache-2.0
"""What MODE changes: rounding, subnormals, clamp with and without DX10_CLAMP, omod, IEEE mode.
Source: "CDNA3" and "RDNA3.5" ISA, the MODE register; LLVM's AMDGPU usage, kernel descriptor.
"""
import numpy as np
import pytest

import gpu
import ieee
import values
from table import Op, Table

F, D, H, U = np.float32, np.float64, np.float16, np.uint32
UP, DOWN, ZERO = 1, 2, 3


# ---- rounding
def directed(x, kind, mode):
    """Rounds doubles to a narrower type. Those that are odd-rounded sums give what one rounding of the exact sums
    would."""
    nearest = x.astype(kind)
    back = nearest.astype(D)
    up, down = (np.nextafter(nearest, kind(end)) for end in (np.inf, -np.inf))
    if mode == UP:
        return np.where(back < x, up, nearest)
    if mode == DOWN:
        return np.where(back > x, down, nearest)
    return np.where(np.abs(back) > np.abs(x), np.where(back > 0, down, up), nearest)


def exact_sum(a, b, mode):
    """Computes a + b of doubles, rounded to odd. A zero has the sign that the mode gives it."""
    with ieee.rounding(mode):
        signed_zero = a + b
    total = ieee.round_to_odd(a, b)
    return np.where(total == 0, signed_zero, total)


def add(mode):
    return lambda a, b: directed(exact_sum(a.astype(D), b.astype(D), mode), a.dtype.type, mode)


def multiply(mode):
    return lambda a, b: directed(a.astype(D) * b.astype(D), a.dtype.type, mode)


def fma(mode):
    return lambda a, b, c: directed(exact_sum(a.astype(D) * b.astype(D), c.astype(D), mode), a.dtype.type, mode)


def in_mode(operation, mode):
    """Returns a double operation that NumPy or libm does in the processor's own mode."""
    def of(*operands):
        with ieee.rounding(mode):
            return operation(*operands)
    return of


def halves(operation):
    def of(*sources):
        return np.ascontiguousarray(operation(*(x.view(np.uint16).view(H) for x in sources))).view(U)
    return of


def words(operation):
    def of(*sources):
        parts = [np.ascontiguousarray(x).view(F).reshape(-1, 2) for x in sources]
        return np.ascontiguousarray(operation(*parts)).view(U).reshape(-1, 2)
    return of


def fewer(kinds):
    return values.draw(kinds, 2**18)


def sums(kinds):
    """Returns registers of halves, or pairs of f32, of like size."""
    kind, count = ("f16", 2) if kinds[0] == "b32" else ("f32", 2)
    parts = [[values.random_bits(kind, values.fewer(2**18), 2 * i + part) for part in range(count)] for i in range(len(kinds))]
    bits = np.uint64(16 if kind == "f16" else 32)
    return [low | high << bits for low, high in parts]


PACKED_SUM = "v_mov_b32 {d}, {c}\n{op} {d}, {a}, {b}"


def rounding():
    for mode, name in ((UP, "up"), (DOWN, "down"), (ZERO, "zero")):
        single, other = {"float_round_mode_32": mode}, {"float_round_mode_16_64": mode}
        for kind, field in (("f32", single), ("f16", other)):
            more = {"mode": field, "tag": name, "data": fewer}
            yield Op(f"v_add_{kind}", f"{kind} {kind} {kind}", add(mode), **more)
            yield Op(f"v_mul_{kind}", f"{kind} {kind} {kind}", multiply(mode), **more)
            yield Op(f"v_fma_{kind}", f"{kind} {kind} {kind} {kind}", fma(mode), keeps=True, **more)
        yield Op("v_add_f64", "f64 f64 f64", in_mode(np.add, mode), mode=other, tag=name)
        yield Op("v_mul_f64", "f64 f64 f64", in_mode(np.multiply, mode), mode=other, tag=name)
        yield Op("v_fma_f64", "f64 f64 f64 f64", in_mode(ieee.fma, mode), mode=other, tag=name, data=few_doubles)
        yield Op("v_cvt_f16_f32", "f16 f32", lambda a, mode=mode: directed(a.astype(D), H, mode), mode=other, tag=name)
        yield Op("v_cvt_f32_f64", "f32 f64", lambda a, mode=mode: directed(a, F, mode), mode=single, tag=name)
        yield Op("v_cvt_f32_u32", "f32 u32", lambda a, mode=mode: directed(a.astype(D), F, mode), mode=single, tag=name)
        yield Op("v_add_f32", "f32 f32 f32", lambda a, b: a + b, mode=other, tag=name + ".other-field", data=fewer)
        yield Op("v_pk_add_f16", "2xh b32 b32", halves(add(mode)), mode=other, tag=name, data=sums)
        yield Op("v_pk_mul_f16", "2xh b32 b32", halves(multiply(mode)), mode=other, tag=name, data=sums)
        yield Op("v_pk_fma_f16", "2xh b32 b32 b32", halves(fma(mode)), mode=other, tag=name, data=sums)
        yield Op("v_pk_fmac_f16", "2xh b32 b32 b32", halves(fma(mode)), mode=other, tag=name, data=sums, text=PACKED_SUM)
        for op, f in (("add", add), ("mul", multiply)):
            yield Op(f"v_pk_{op}_f32", "2xf f64 f64", words(f(mode)), mode=single, tag=name, data=sums, on=gpu.CDNA)
        yield Op("v_pk_fma_f32", "2xf f64 f64 f64", words(fma(mode)), mode=single, tag=name, data=sums, on=gpu.CDNA)
        yield Op("v_fma_mix_f32", "f32 f32 f32 f32", fma(mode), mode=single, tag=name, data=fewer)


def few_doubles(kinds):
    return [x[:2**16] for x in values.draw(kinds)]


# ---- subnormals
def flushing(operation, sources, result):
    """Returns a formula with sources and result without subnormals if the mode says so."""
    def of(*operands):
        operands = [ieee.flushed(x) if sources else x for x in operands]
        value = operation(*operands)
        return ieee.flushed(value) if result else value
    return of


def product(a, b):
    return (a.astype(D) * b.astype(D)).astype(a.dtype)


def total(a, b):
    return (a.astype(D) + b.astype(D)).astype(a.dtype) if a.dtype == H else a + b


def fused(a, b, c):
    return ieee.round_to_odd(a.astype(D) * b.astype(D), c.astype(D)).astype(a.dtype)


def tiny(kinds):
    """Returns numbers whose sums and products are near the subnormal ones."""
    kind = kinds[0]
    fraction, exponent = {"f16": (10, 5), "f32": (23, 8), "f64": (52, 11), "b32": (10, 5)}[kind]
    bias = (1 << exponent - 1) - 1
    rng, out = values.generator(18), []
    for _ in kinds:
        pattern = rng.integers(0, 2, 2**17, np.uint64) << np.uint64(fraction + exponent)
        low, high = rng.integers(0, 3, 2**17), rng.integers(bias // 2 - 3, bias // 2 + 3, 2**17)
        pattern |= np.where(rng.integers(0, 2, 2**17) == 0, low, high).astype(np.uint64) << np.uint64(fraction)
        out.append(pattern | rng.integers(0, 2**fraction, 2**17, np.uint64))
    return [x | x[::-1] << np.uint64(16) for x in out] if kind == "b32" else out


def subnormals():
    for mode, name, sources, result in ((0, "flush", True, True), (1, "flush-result", False, True),
                                        (2, "flush-sources", True, False)):
        for kind, field in (("f32", "32"), ("f16", "16_64"), ("f64", "16_64")):
            more = {"mode": {f"float_denorm_mode_{field}": mode}, "tag": name, "data": tiny}
            plain = {"add": total if kind != "f64" else np.add, "mul": product if kind != "f64" else np.multiply}
            for op, f in plain.items():
                yield Op(f"v_{op}_{kind}", f"{kind} {kind} {kind}", flushing(f, sources, result), **more)
            yield Op(f"v_fma_{kind}", f"{kind} {kind} {kind} {kind}", keeps=True, formula=flushing(
                (lambda a, b, c: ieee.round_to_odd(a.astype(D) * b.astype(D), c.astype(D)).astype(H)) if kind == "f16" else
                ieee.fma, sources, result), **more)
        more = {"mode": {"float_denorm_mode_16_64": mode}, "tag": name, "data": tiny}
        yield Op("v_pk_mul_f16", "2xh b32 b32", halves(flushing(product, sources, result)), **more)
        yield Op("v_pk_add_f16", "2xh b32 b32", halves(flushing(total, sources, result)), **more)
        yield Op("v_pk_fmac_f16", "2xh b32 b32 b32", halves(flushing(fused, sources, result)), text=PACKED_SUM, **more)


# ---- FP16_OVFL
def limited(operation, poles=False):
    """Returns an operation that replaces an infinity that no source had by the largest number. A pole keeps the
    infinity: a source (the divisor, if there are more) is 0."""
    def of(*sources):
        value = operation(*sources).astype(H)
        keep = np.any([np.isinf(x) for x in sources if x.dtype.kind == "f"], axis=0)
        keep |= poles & (sources[len(sources) > 1] == 0)
        return np.where(np.isinf(value) & ~keep, np.copysign(H(65504), value), value)
    return of


def large(kinds):
    """Returns registers whose halves are numbers near the largest, and special values, with factors that are small
    powers of two."""
    out = []
    for i, kind in enumerate(kinds):
        low, high = (values.draw(("f16", "f16"), 2**17)[part] for part in range(2))
        near_end = values.generator(20 + i).integers(0x7000, 0x7C00, len(low), np.uint64)
        low = np.where(np.arange(len(low)) % 2, low, near_end)
        out.append(low | high << np.uint64(16) if kind == "b32" else low)
    return out


def overflow():
    more = {"mode": {"fp16_overflow": 1}, "tag": "overflow", "data": large}
    for op, f in (("add", total), ("mul", product)):
        yield Op(f"v_{op}_f16", "f16 f16 f16", limited(f), **more)
        yield Op(f"v_pk_{op}_f16", "2xh b32 b32", halves(limited(f)), **more)
    yield Op("v_fma_f16", "f16 f16 f16 f16", limited(fused), keeps=True, **more)
    yield Op("v_pk_fma_f16", "2xh b32 b32 b32", halves(limited(fused)), **more)
    yield Op("v_pk_fmac_f16", "2xh b32 b32 b32", halves(limited(fused)), text=PACKED_SUM, **more)
    yield Op("v_ldexp_f16", "f16 f16 i16", limited(lambda a, b: np.ldexp(a.astype(D), b.astype(np.int32))), **more)
    yield Op("v_cvt_f16_f32", "f16 f32", limited(lambda a: a), mode=more["mode"], tag="overflow", data=fewer)
    yield Op("v_cvt_f16_u16", "f16 u16", limited(lambda a: a), mode=more["mode"], tag="overflow")
    for name, f in (("v_rcp_f16", lambda a: 1 / a), ("v_rsq_f16", lambda a: 1 / np.sqrt(a)), ("v_log_f16", np.log2)):
        for chips in (gpu.CHIPS[:4], gpu.CHIPS[4:]):
            keeps_pole = "gfx1201" not in chips
            yield Op(name, "f16 f16", limited(lambda a, f=f: f(a.astype(D)), keeps_pole), ulp=1, mode=more["mode"], on=chips,
                     tag="overflow" if keeps_pole else "overflow.pole")
    yield Op("v_exp_f16", "f16 f16", limited(lambda a: np.exp2(a.astype(D))), ulp=1, mode=more["mode"], tag="overflow")
    for part, high in (("lo", False), ("hi", True)):
        yield Op(f"v_fma_mix{part}_f16", "f16 f32 f32 f32", limited(lambda a, b, c: ieee.fma(a, b, c)), keeps=True, high=high,
                 text=f"v_mov_b32 {{dr}}, 0x5a3cc3a5\nv_fma_mix{part}_f16 {{dr}}, {{ar}}, {{br}}, {{cr}}", mode=more["mode"],
                 tag="overflow", data=moderate)


def moderate(kinds):
    """Returns factors whose sums of products lie on both sides of f16's end, and infinities."""
    rng = values.generator(23)
    parts = [rng.integers(0, 2, 2**16, np.uint64) << np.uint64(31) | rng.integers(0x42800000, 0x44000000, 2**16, np.uint64)
             for _ in kinds]
    parts[2][::7] = 0xFF800000
    return parts


# ---- clamp and omod
def unit(x, nan=0):
    """Clamps to 0 to 1."""
    zero, one = x.dtype.type(0), x.dtype.type(1)
    return np.where(np.isnan(x), x.dtype.type(nan), np.where(x > 0, np.minimum(x, one), zero))


def clamps():
    text = "{op} {d}, {a}, {b} clamp"
    for kind in ("f32", "f16", "f64"):
        f = {"f32": np.add, "f16": total, "f64": np.add}[kind]
        yield Op(f"v_add_{kind}", f"{kind} {kind} {kind}", lambda a, b, f=f: unit(f(a, b)), text=text, tag="clamp", data=fewer)
        yield Op(f"v_add_{kind}", f"{kind} {kind} {kind}", lambda a, b, f=f: unit(f(a, b), np.nan), text=text, data=fewer,
                 tag="clamp.keeps-nan", mode={"dx10_clamp": 0}, on=gpu.CHIPS[:4])
    for suffix, factor in (("mul:2", 2), ("mul:4", 4), ("div:2", 0.5)):
        text = "{op} {d}, {a}, {b} " + suffix
        yield Op("v_mul_f32", "f32 f32 f32", flushing(lambda a, b, k=F(factor): a * b * k, True, True), text=text,
                 tag=suffix, data=near, mode={"float_denorm_mode_32": 0, "ieee_mode": 0}, on=gpu.CHIPS[:4])
        yield Op("v_mul_f32", "f32 f32 f32", lambda a, b: a * b, text=text, tag=suffix + ".ieee", data=near, on=gpu.CHIPS[:4])


def near(kinds):
    rng = values.generator(19)
    return [rng.integers(0, 2, 2**16, np.uint64) << np.uint64(31) | rng.integers(0x30000000, 0x50000000, 2**16, np.uint64)
            for _ in kinds]


TABLE = Table([*rounding(), *subnormals(), *overflow(), *clamps()])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_modes(case):
    TABLE.run(case)
