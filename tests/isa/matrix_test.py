# SPDX-License-Identifier: Apache-2.0
"""Dense matrix instructions: every form of gfx90a and gfx942 on 10^5 random outputs and all special values, bit for bit
against matrix_rules.py; with the layouts of the ISA documents. gfx950 keeps gfx942's rules, which is not known to be
exact (docs/simulator.md).
"""
import functools
from dataclasses import dataclass

import numpy as np
import pytest

import matrix_rules as rules
import values
from table import Op, Table

OUTPUTS = values.fewer(10**5) * (10 if values.LONG else 1)
GFX90A, GFX942, BOTH = ("gfx90a", ), ("gfx942", ), ("gfx942", "gfx950")


@dataclass(frozen=True)
class Form:
    """One type and shape."""
    name: str
    on: tuple
    m: int
    k: int
    blocks: int
    a: str
    b: str
    rule: object

    @property
    def bits(self):
        return 8 if self.a == "i8" else rules.FORMATS[self.a].bits

    @property
    def lane_groups(self):
        """The number of groups of lanes that hold different k."""
        return 64 // (self.m * self.blocks)

    @property
    def per_lane(self):
        return self.k // self.lane_groups

    @property
    def words(self):
        """The number of registers of A and of B, or of C and D."""
        return self.per_lane * self.bits // 32, self.m * self.m * self.blocks // 64 * (2 if self.a == "f64" else 1)


def gfx90a_forms():
    shapes = {"f32": ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)),
              "f16": ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
              "bf16": ((32, 2, 2), (16, 2, 4), (4, 2, 16), (32, 4, 1), (16, 8, 1)),
              "i8": ((32, 4, 2), (16, 4, 4), (4, 4, 16), (32, 8, 1), (16, 16, 1)),
              "f64": ((16, 4, 1), (4, 4, 4))}
    of = {"f32": rules.chain, "f64": rules.chain, "f16": rules.pairwise(4), "bf16": rules.pairwise(2), "i8": rules.integers}
    for kind, sizes in shapes.items():
        result = {"i8": "i32", "f64": "f64"}.get(kind, "f32")
        for m, k, blocks in sizes:
            yield Form(f"v_mfma_{result}_{m}x{m}x{k}{kind}", GFX90A, m, k, blocks, kind, kind, of[kind])
    for m, k, blocks in shapes["f16"]:
        yield Form(f"v_mfma_f32_{m}x{m}x{k}bf16_1k", GFX90A, m, k, blocks, "bf16", "bf16", rules.pairwise(4))


def gfx942_forms():
    many = ((32, 4, 2), (16, 4, 4), (4, 4, 16))
    shapes = {"f32": ((32, 1, 2), (16, 1, 4), (4, 1, 16), (32, 2, 1), (16, 4, 1)),
              "f16": (*many, (32, 8, 1), (16, 16, 1)), "bf16": (*many, (32, 8, 1), (16, 16, 1)),
              "i8": (*many, (32, 16, 1), (16, 32, 1)), "f64": ((16, 4, 1), (4, 4, 4)), "xf32": ((32, 4, 1), (16, 8, 1))}
    of = {"f32": rules.chain, "f64": rules.chain, "f16": rules.fused8, "bf16": rules.fused8, "xf32": rules.fused4,
          "i8": rules.integers}
    for kind, sizes in shapes.items():
        result = {"i8": "i32", "f64": "f64"}.get(kind, "f32")
        for m, k, blocks in sizes:
            middle = f"_{blocks}b" if blocks > 1 else ""
            yield Form(f"v_mfma_{result}_{m}x{m}x{k}{middle}_{kind}", GFX942 if kind == "xf32" else BOTH, m, k, blocks,
                       kind, kind, of[kind])
    for a in ("fp8", "bf8"):
        for b in ("fp8", "bf8"):
            for m, k in ((16, 32), (32, 16)):
                yield Form(f"v_mfma_f32_{m}x{m}x{k}_{a}_{b}", GFX942, m, k, 1, a, b, rules.split16)
                yield Form(f"v_mfma_f32_{m}x{m}x{k}_{a}_{b}", ("gfx950", ), m, k, 1, "ocp-" + a, "ocp-" + b, rules.split16)
    for m, k in ((16, 32), (32, 16)):
        for kind in ("f16", "bf16"):
            yield Form(f"v_mfma_f32_{m}x{m}x{k}_{kind}", ("gfx950", ), m, k, 1, kind, kind, rules.fused8)
        yield Form(f"v_mfma_i32_{m}x{m}x{2 * k}_i8", ("gfx950", ), m, 2 * k, 1, "i8", "i8", rules.integers)


# ---- layouts: which lane and register hold an element. Source: "CDNA3" ISA, chapter on matrix instructions.
def operand_place(form):
    """Returns the lane of A[block, i, k] (or B[block, j, k]) and its element there."""
    block, i, k = np.ogrid[:form.blocks, :form.m, :form.k]
    return i + form.m * (block + form.blocks * (k // form.per_lane)), np.broadcast_to(
        k % form.per_lane, (form.blocks, form.m, form.k))


def result_place(form):
    """Returns the lane and the register of D[block, i, j]."""
    block, i, j = np.ogrid[:form.blocks, :form.m, :form.m]
    if form.a == "f64":
        lane = j + (16 * (i % 4) if form.m == 16 else 4 * block + 16 * i)
        register = i // 4 if form.m == 16 else 0 * i
    elif form.m == 4:
        lane, register = j + 4 * block, i
    else:
        rows = 64 // form.m  # groups of lanes, each with four rows in turn
        lane = j + form.m * (i // 4 % rows)
        register = i % 4 + 4 * (i // (4 * rows)) + form.m * form.m // 64 * block
    shape = (form.blocks, form.m, form.m)
    return np.broadcast_to(lane, shape), np.broadcast_to(register, shape)


def to_lanes(matrices, place, elements):
    """Rearranges [waves, blocks, i, k] into the elements of each lane, [waves, 64, elements]."""
    out = np.zeros((len(matrices), 64, elements), matrices.dtype)
    out[:, place[0], place[1]] = matrices
    return out


def registers(lanes, bits):
    """Packs elements of lanes into registers, [waves * 64, words]."""
    store = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    return np.ascontiguousarray(lanes.astype(store)).view(np.uint32).reshape(lanes.shape[0] * 64, -1)


def matrices(words, place, bits):
    """Reverses both of these."""
    store = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}[bits]
    lanes = np.ascontiguousarray(words).view(store).reshape(len(words) // 64, 64, -1)
    return lanes[:, place[0], place[1]]


# ---- inputs
def shape_of(kind):
    """Returns the numbers of mantissa and exponent bits."""
    form = rules.FORMATS[kind.replace("xf32", "f32")]
    return form.fraction, form.bits - 1 - form.fraction


def special_list(kind, count):
    """Returns `count` patterns of a type: zeros, subnormals, ends of ranges, infinities, NaNs, ones."""
    if kind == "i8":
        return np.resize(np.array([0, 1, 0xFF, 0x7F, 0x80, 0x81, 2, 0x40], np.uint64), count)
    mantissa, exponent = shape_of(kind)
    one = 1 << mantissa
    sign, top = 1 << mantissa + exponent, (1 << exponent) - 1 << mantissa
    bias = (1 << exponent - 1) - 1 << mantissa
    base = [0, sign, 1, sign | 1, one - 1, one, sign | one, bias, sign | bias, top - 1, sign | top - 1, top, sign | top,
            top + 1, top | one >> 1, bias + 1, sign | bias + 1, bias - 1, bias + one, 2 * one, sign | 3, top - one,
            bias + 12 * one if exponent > 4 else bias + 3 * one, bias // one // 2 * one, sign | bias // one // 2 * one,
            one + 1, sign | one - 1, sign | top + 1, bias + one // 2, bias - 2 * one, top - 2, sign | bias - 1]
    return np.resize(np.array(base[:32], np.uint64), count)


def random_patterns(rng, kind, shape, how):
    """Returns bit patterns of one flavour: anything, near 1, all exponents, small, large, sparse, or so low that
    products, and sums with such a C, come near f32's subnormal numbers."""
    if kind == "i8":
        return rng.integers(0, 256, shape, np.uint64)
    mantissa, exponent = shape_of(kind)
    whole = mantissa + exponent + 1
    anything = rng.integers(0, 2**whole - 1, shape, np.uint64, endpoint=True)
    rest = np.uint64(1 << whole - 1 | (1 << mantissa) - 1)
    bias, most = (1 << exponent - 1) - 1, (1 << exponent) - 1
    low, high = {"anything": (0, most), "near": (max(bias - 3, 0), min(bias + 4, most)), "wide": (bias // 2, bias + bias // 2),
                 "small": (0, max(most // 8, 2)), "large": (most - max(most // 8, 2), most), "sparse": (bias - 1, bias + 2),
                 "low": (max(bias - 64, 0), max(bias - 46, 3)), "low-sum": (max(bias - 128, 0), max(bias - 96, 3))}[how]
    out = anything if how == "anything" else rng.integers(low, high, shape, np.uint64) << np.uint64(mantissa) | anything & rest
    return np.where(rng.integers(0, 3, shape) > 0, 0, out) if how == "sparse" else out


FLAVOURS = ("anything", "near", "wide", "near", "small", "large", "sparse", "near", "low")
C_FLAVOURS = ("anything", "near", "small", "wide", "sparse")


def random_inputs(form, waves):
    rng = values.generator(21, form.m, form.k)
    result = "f64" if form.a == "f64" else "f32"
    parts = []
    for w in range(waves):
        how, of_c = FLAVOURS[w % len(FLAVOURS)], C_FLAVOURS[w // 3 % len(C_FLAVOURS)]
        of_c = ("low-sum" if w // len(FLAVOURS) % 2 else "small") if how == "low" else of_c
        a, b = (random_patterns(rng, kind, (form.blocks, form.m, form.k), how) for kind in (form.a, form.b))
        if w % len(FLAVOURS) == 3 and form.k > 1:  # products that cancel
            mantissa, exponent = (7, 0) if form.a == "i8" else shape_of(form.a)
            a[..., 1::2] = a[..., ::2] ^ np.uint64(1 << mantissa + exponent)
            b[..., 1::2] = b[..., ::2] ^ rng.integers(0, 2, b[..., ::2].shape, np.uint64)
        if form.a == "i8":
            c = rng.integers(0, 2**32, (form.blocks, form.m, form.m), np.uint64)
        else:
            c = random_patterns(rng, result, (form.blocks, form.m, form.m), of_c)
        parts.append((a, b, c))
    return [np.stack(column) for column in zip(*parts)]


def special_inputs(form):
    """Returns each pair of special values as the product of one k, with special values of C, beside several other
    products."""
    m, blocks = form.m, form.blocks
    across = 4 if m == 4 else 1  # 4x4 blocks: sixteen of them make all pairs of sixteen values
    list_a, list_b = (special_list(kind, max(m * across, 16)) for kind in (form.a, form.b))
    list_c = special_list("f64" if form.a == "f64" else "f32", 32)
    others_a, others_b = special_list(form.a, 16)[[0, 7, 11, 12, 9, 3]], special_list(form.b, 16)[[0, 7, 7, 7, 9, 3]]
    waves = len(list_c) * len(others_a)
    a = np.zeros((waves, blocks, m, form.k), np.uint64)
    b = np.zeros_like(a)
    block, i = np.ogrid[:blocks, :m]
    wave = np.arange(waves)
    place = wave % form.k
    a[wave, ..., place] = list_a[(i + m * (block // 4 % across)) % len(list_a)]
    b[wave, ..., place] = list_b[(i + m * (block % across)) % len(list_b)]
    if form.k > 1:
        other = (place + 1 + wave // 7 % (form.k - 1)) % form.k
        a[wave, ..., other] = others_a[wave // len(list_c), None, None]
        b[wave, ..., other] = others_b[wave // len(list_c), None, None]
    c = np.broadcast_to(list_c[(wave[:, None] + np.arange(blocks)) % len(list_c)][:, :, None, None], (waves, blocks, m, m))
    return a, b, c


@functools.cache
def inputs(form):
    """Returns the registers of A, B and C for all waves."""
    waves = -(-OUTPUTS // (form.m * form.m * form.blocks)) + 3 & ~3
    a, b, c = (np.concatenate(pair) for pair in zip(random_inputs(form, waves), special_inputs(form)))
    c_bits = 64 if form.a == "f64" else 32
    place, out = operand_place(form), result_place(form)
    lanes_c = to_lanes(c, out, form.words[1] * 32 // c_bits)
    return [registers(to_lanes(a, place, form.per_lane), form.bits), registers(to_lanes(b, place, form.per_lane), form.bits),
            registers(lanes_c, c_bits)]


def product(form):
    def of(a, b, c):
        place, out, c_bits = operand_place(form), result_place(form), 64 if form.a == "f64" else 32
        a, b = (matrices(x, place, form.bits) for x in (a, b))
        c = matrices(c, out, c_bits)
        results = np.concatenate([part(form, a[w:w + 64], b[w:w + 64], c[w:w + 64]) for w in range(0, len(a), 64)])
        return registers(to_lanes(results, out, form.words[1] * 32 // c_bits), c_bits)
    return of


def part(form, a, b, c):
    """Returns some waves' results as bit patterns."""
    a, b = a[:, :, :, None, :], b[:, :, None, :, :]
    if form.a == "i8":
        return form.rule(a, b, c)
    kind = np.float64 if form.a == "f64" else np.float32
    formats = [rules.FORMATS[form.a]] if form.rule not in (rules.split16, ) else [rules.FORMATS[t] for t in (form.a, form.b)]
    return form.rule(a, b, c.view(kind), *formats).view(c.dtype)


def op_of(form):
    operand, result = form.words
    kind = f"{result}" if form.a == "i8" else f"{result // 2}xd" if form.a == "f64" else f"{result}xf"
    return Op(form.name, f"{kind} {operand} {operand} {result}", product(form), data=lambda kinds, form=form: inputs(form),
              on=form.on, tag="" if "ocp" not in form.a else "ocp",
              text="{op} {d}, {a}, {b}, {c}\ns_nop 15\ns_nop 15")


TABLE = Table([op_of(form) for form in [*gfx90a_forms(), *gfx942_forms()]])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_matrix(case):
    TABLE.run(case)
