# SPDX-License-Identifier: Apache-2.0
"""A table of instructions: each line is an opcode, its operands' types, and what NumPy makes of them."""
import functools
from dataclasses import dataclass, field
from typing import Callable, Optional

import ml_dtypes
import numpy as np

import gpu
import values

DTYPES = {"u32": np.uint32, "i32": np.int32, "f32": np.float32, "b32": np.uint32, "u64": np.uint64, "i64": np.int64,
          "f64": np.float64, "u16": np.uint16, "i16": np.int16, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
          "b16": np.uint16, "m": np.uint32}
OLD = 0x5A3CC3A5  # what a destination holds before
LETTERS = "abcde"
ELSEWHERE = 2**19  # how many of the values an instruction is tried on beyond the first chip that has it


def words_of(kind):
    """Returns how many registers an operand has: one of a type above, or of "N" words."""
    if listed(kind):
        count = int(kind[:-2])
        return {"f": count, "d": 2 * count}.get(kind[-1], (count + 1) // 2)
    return int(kind) if kind.isdigit() else 2 if kind.endswith("64") else 1


def listed(kind):
    """Returns the type of the floats that a result like "32xh" is a list of, or None."""
    return {"xh": np.float16, "xb": ml_dtypes.bfloat16, "xf": np.float32, "xd": np.float64}.get(kind[-2:])


@dataclass
class Op:
    """One instruction.

    names    for gfx9/RDNA or gfx9/gfx11/gfx12, "-" where it does not exist
    types    result, then sources: DTYPES's names, "m" a lane mask, or a number of registers; a result "u32+m" has a
             mask too; "2xh", "32xb", "2xf" or "4xd" are lists of f16, bf16, f32 or f64
    formula  of arrays of the sources' types
    text     of the instruction, if it is not {op}, result, sources; {vcc} is the mask
    on       the chips, out of those that have a name for it
    keeps    on gfx9, a 16-bit result leaves the register's other half alone (VOP3); on RDNA it always does
    ulp      by how many units in the last place a result may differ
    data     a function that gives bit patterns for the sources, if not values.draw()
    mode     directives of the kernel descriptor
    """
    names: str
    types: str
    formula: Callable
    text: Optional[str] = None
    on: tuple = gpu.CHIPS
    keeps: bool = False
    ulp: float = 0
    data: Optional[Callable] = None
    mode: dict = field(default_factory=dict)
    high: bool = False  # the upper halves of all operands
    tag: str = ""
    old: int = OLD
    lds: int = 0  # bytes

    def name(self, chip):
        parts = self.names.split("/")
        family = 0 if chip in gpu.CDNA else 1 if chip == "gfx1151" else 2
        return parts[min(family, len(parts) - 1)]

    def chips(self):
        return [chip for chip in self.on if self.name(chip) != "-"]

    @property
    def result(self):
        return self.types.split()[0].removesuffix("+m")

    @property
    def has_mask(self):
        return self.types.split()[0].endswith("m")

    @property
    def sources(self):
        return self.types.split()[1:]

    def label(self):
        return self.names.replace("/", "|") + (f".{self.tag}" if self.tag else "") + (".high" if self.high else "")


def registers(first, words):
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def moves(direction, base, words, first):
    """Returns loads or stores of `words` registers at the lane's place, in pieces of up to four."""
    out = []
    at = 0
    while at < words:
        piece = max(n for n in (1, 2, 3, 4) if n <= words - at)
        suffix = "" if piece == 1 else f"x{piece}"
        reg, address = registers(first + at, piece), f"v{3 + words}" if words < 1 else "v3"
        operands = f"{reg}, {address}" if direction == "load" else f"{address}, {reg}"
        out.append(f"global_{direction}_dword{suffix} {operands}, {base} offset:{4 * at}")
        at += piece
    return out


def wait(chip, what):
    """Waits for all loads (vm), stores, scalar loads (lgkm) or LDS (ds)."""
    if chip == "gfx1201":
        return {"vm": "s_wait_loadcnt 0x0", "lgkm": "s_wait_kmcnt 0x0", "ds": "s_wait_dscnt 0x0",
                "store": "s_wait_storecnt 0x0"}[what]
    store = "s_waitcnt_vscnt null, 0x0" if chip == "gfx1151" else "s_waitcnt vmcnt(0)"
    return {"vm": "s_waitcnt vmcnt(0)", "lgkm": "s_waitcnt lgkmcnt(0)", "ds": "s_waitcnt lgkmcnt(0)", "store": store}[what]


def place(words):
    return [f"v_mul_u32_u24 v3, {4 * words}, v1"]


def operand_text(op, kind, first, chip):
    """Returns a register as the assembler wants it: RDNA's 16-bit operands name a half."""
    if kind != "m" and kind.endswith("16") and chip in gpu.RDNA:
        return f"v{first}.{'h' if op.high else 'l'}"
    return registers(first, words_of(kind))


def instruction(op, chip, places):
    """Returns the instruction's text. places: letters to first registers."""
    vcc = "vcc" if chip in gpu.CDNA else "vcc_lo"
    kinds = dict(zip(LETTERS, op.sources), d=op.result)
    names = {letter: operand_text(op, kinds[letter], first, chip) for letter, first in places.items()}
    text = op.text
    if text is None:
        result = [vcc] if op.result == "m" else ["{D}"] + [vcc] * op.has_mask
        sources = [vcc if kind == "m" else f"{{{letter}}}" for letter, kind in zip(LETTERS, op.sources)]
        text = "{op} " + ", ".join(result + sources)
        if op.high and chip in gpu.CDNA:
            text += " op_sel:[" + ",".join("1" * (len(sources) + 1)) + "]"
    names["D"] = names.get("d", "")
    plain = {f"{letter}r{i or ''}": f"v{first + i}" for letter, first in places.items() for i in range(4)}
    if "d" in places:
        plain["pair0"], plain["pair1"] = registers(places["d"], 2), registers(places["d"] + 2, 2)
    waits = {f"wait_{what}": wait(chip, what) for what in ("vm", "ds", "store")}
    return text.format(op=op.name(chip), vcc=vcc, **waits, lanes=64 if chip in gpu.CDNA else 32, **{k: v for k, v in names.items() if k != "d"},
                       d=names.get("d", ""), **plain)


def kernel_of(op, chip, name):
    """Returns a kernel with one lane for each element: it loads the sources, executes the instruction and stores the
    result."""
    vcc = "vcc" if chip in gpu.CDNA else "vcc_lo"
    lines = ["s_load_dwordx16 s[4:19], s[0:1], 0x0", "v_and_b32 v0, 0x3ff, v0", "v_lshl_add_u32 v1, {group}, 8, v0",
             wait(chip, "lgkm")]
    places, first = {}, 4
    for i, (letter, kind) in enumerate(zip(LETTERS, op.sources)):
        places[letter] = first
        lines += place(words_of(kind)) + moves("load", f"s[{6 + 2 * i}:{7 + 2 * i}]", words_of(kind), first)
        first += words_of(kind) + 1 & ~1
    lines.append(wait(chip, "vm"))
    words = 0 if op.result == "m" else words_of(op.result)
    places["d"] = first
    lines += [f"v_mov_b32 v{first + i}, {op.old:#x}" for i in range(words)]
    for letter, kind in zip(LETTERS, op.sources):
        if kind == "m":
            lines.append(f"v_cmp_ne_u32 {vcc}, 0, v{places[letter]}")
    lines.append(instruction(op, chip, places))
    if op.has_mask:
        lines.append(f"v_cndmask_b32 v{first + words}, 0, 1, {vcc}")
    total = words + op.has_mask
    lines += place(total) + moves("store", "s[4:5]", total, first)
    return gpu.Kernel(name, "\n".join(lines), arguments=8, mode=op.mode, lds=op.lds)


class Table:
    """The lines of one file, assembled together for each chip."""

    def __init__(self, ops):
        self.ops = list(ops)

    def cases(self):
        """Returns (index, chip) for pytest, with all chips of one instruction in a row, so that its expected values are
        reused."""
        return [(i, chip) for i, op in enumerate(self.ops) for chip in op.chips()]

    def ids(self):
        return [f"{chip}-{self.ops[i].label()}" for i, chip in self.cases()]

    @functools.cache
    def module(self, chip):
        return gpu.Module(chip, [kernel_of(op, chip, f"k{i}") for i, op in enumerate(self.ops) if chip in op.chips()])

    def results(self, case):
        """Returns the chip's results for the sources, and the sources."""
        i, chip = case
        op = self.ops[i]
        inputs = drawn(op.data or values.draw, tuple(op.sources))
        if chip != op.chips()[0] and not values.LONG:
            inputs = [x[:ELSEWHERE] for x in inputs]
        count = len(inputs[0])
        out = gpu.MEMORY_OUT.array(count, words_of_result(op))
        out[...] = 0xA5A5A5A5
        self.module(chip).launch(f"k{i}", [out, *inputs], count // gpu.WORKGROUP)
        return out, inputs

    def run(self, case):
        """Holds one instruction on one chip to its formula."""
        op, chip = self.ops[case[0]], case[1]
        out, inputs = self.results(case)
        compare(op, chip, out, expected(op, chip), inputs)

    def run_within(self, case, bound):
        """Runs one instruction on one chip with an error that is bounded absolutely, or by one unit in the last
        place."""
        op, chip = self.ops[case[0]], case[1]
        out, inputs = self.results(case)
        got = typed(op.result, out[:, 0]).astype(np.float64)
        want = computed(op.formula, op.data or values.draw, tuple(op.sources), op.high).astype(np.float64)[:len(got)]
        right = np.abs(got - want) <= bound
        right |= np.isnan(got) & np.isnan(want)
        report(op, chip, right, out, expected(op, chip), inputs)


def words_of_result(op):
    return (0 if op.result == "m" else words_of(op.result)) + op.has_mask


@functools.lru_cache(maxsize=40)
def drawn(data, kinds):
    """Returns shared arrays with the sources' registers. The unused bits of a 16-bit source are random."""
    out = []
    plain = tuple("u32" if kind == "m" else kind for kind in kinds)
    for i, (kind, bits) in enumerate(zip(plain, data(plain))):
        if kind.isdigit():
            out.append(values.padded(bits, np.uint32))
        elif kind.endswith("16"):
            upper = values.generator(3, i).integers(0, 2**16, len(bits), np.uint64) << np.uint64(16)
            out.append(values.padded(bits | upper, np.uint32))
        else:
            out.append(values.padded(bits, np.uint64 if kind.endswith("64") else np.uint32))
        if kinds[i] == "m":
            out[-1] &= 1
    return out


def typed(kind, array, high=False):
    """Returns registers as the values that they stand for."""
    if kind.isdigit():
        return array
    if kind.endswith("16"):
        return (array >> 16 if high else array).astype(np.uint16).view(DTYPES[kind])
    return array.view(DTYPES[kind])


@functools.lru_cache(maxsize=1)
def computed(formula, data, kinds, high):
    """Returns the formula's results for the sources, computed once for all chips."""
    with np.errstate(all="ignore"):
        return formula(*(typed(kind, array, high) for kind, array in zip(kinds, drawn(data, kinds))))


def bits_of(kind, value):
    """Returns a result's registers, [count, words]."""
    if kind.isdigit() or listed(kind):
        return np.ascontiguousarray(value).view(np.uint32).reshape(-1, words_of(kind))
    value = np.ascontiguousarray(np.asarray(value).astype(DTYPES[kind], copy=False))
    if kind.endswith("16"):
        return value.view(np.uint16).astype(np.uint32)[:, None]
    return value.view(np.uint32).reshape(len(value), -1)


def expected(op, chip):
    """Returns the registers that the instruction leaves, [count, words]."""
    result = computed(op.formula, op.data or values.draw, tuple(op.sources), op.high)
    if chip != op.chips()[0] and not values.LONG:
        result = tuple(x[:ELSEWHERE] for x in result) if isinstance(result, tuple) else result[:ELSEWHERE]
    value, mask = result if op.has_mask and op.result != "m" else (result, result)
    columns = []
    if op.result != "m":
        bits = bits_of(op.result, value)
        if op.result.endswith("16") and op.high:
            bits = bits << 16 | op.old & 0xFFFF
        elif op.result.endswith("16") and (op.keeps or chip in gpu.RDNA):
            bits = bits | op.old & 0xFFFF0000
        columns.append(bits)
    if op.has_mask:
        columns.append(np.asarray(mask).astype(np.uint32)[:, None])
    return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)


def agrees(op, got, want):
    """Returns where the registers are right: the same bits, both NaN, or near enough."""
    if np.array_equal(got, want):
        return np.ones(len(got), bool)
    same = (got == want).all(axis=1)
    if not listed(op.result) and "f" not in op.result:
        return same
    if listed(op.result):
        kind = listed(op.result)
        bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(kind).itemsize]
        x, y = (np.ascontiguousarray(v).view(bits) for v in (got, want))
        return ((x == y) | np.isnan(x.view(kind)) & np.isnan(y.view(kind))).all(axis=1)
    with np.errstate(all="ignore"):
        count = words_of(op.result)
        x, y = (typed(op.result, np.ascontiguousarray(v[:, :count]).view(
            np.uint64 if count == 2 else np.uint32)[:, 0], op.high) for v in (got, want))
        rest = (got[:, count:] == want[:, count:]).all(axis=1)
        if op.result.endswith("16"):
            kept = 0xFFFF if op.high else 0xFFFF0000
            rest &= (got[:, 0] & kept) == (want[:, 0] & kept)
        near = np.isnan(x) & np.isnan(y)
        if op.ulp:
            near |= distance(x, y) <= op.ulp
    return same | (near & rest)


def distance(x, y):
    """Returns how many floats lie between the two of each pair; -0 and +0 are the same."""
    kind = {2: np.int16, 4: np.int32, 8: np.int64}[x.dtype.itemsize]
    far = np.abs(ordered(x, kind) - ordered(y, kind))
    return np.where(np.isnan(x) != np.isnan(y), np.inf, far)


def ordered(x, kind):
    bits = x.view(kind).astype(np.int64)
    return np.where(bits < 0, np.iinfo(kind).min - bits, bits).astype(np.float64)


def compare(op, chip, got, want, inputs):
    report(op, chip, agrees(op, got, want), got, want, inputs)


def report(op, chip, right, got, want, inputs):
    if right.all():
        return
    first = int(np.argmin(right))
    sources = ", ".join(f"{kind} {np.atleast_1d(array[first])}" if kind.isdigit() else
                        f"{kind} {int(array[first]):#x}" for kind, array in zip(op.sources, inputs))
    raise AssertionError(f"{chip} {op.name(chip)}: {np.count_nonzero(~right)} of {len(got)} are wrong, first {first}: "
                         f"of {sources} found {[hex(v) for v in got[first]]}, expected {[hex(v) for v in want[first]]} "
                         f"(QUERN_ISA_SEED={values.SEED})")
