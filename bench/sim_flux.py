#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A step of FLUX.1-dev's transformer on the modelled MI300X, launch by launch: quern's kernels, with products of bf16 and of FP8,
beside a kernel for each op, quern's own and Triton's.

    python bench/sim_flux.py --library build/release/libquernsim.so.0 --json bench/results/sim_flux.json
    python bench/sim_flux.py --library ... --sides bf16,triton       some of the sides
    python bench/sim_flux.py --library ... --jobs 32                 as many processes, each with one launch
    python bench/sim_flux.py --prepare FOLDER                        Triton's code objects into FOLDER, nothing is timed
    python bench/sim_flux.py --library ... --prepared FOLDER         these, where there is no Triton
    python bench/sim_flux.py --svg docs/flux_gfx942.svg --json FILE  draws what FILE has; simulates nothing without --library

19 double and 38 single blocks, 512 + 4096 tokens, 24 heads of 128, batch 1. Launches of equal kind and size are simulated once and
counted as often as a step has them; FILE keeps what is done, so that a run which was stopped goes on. Times are modelled
(docs/clock.md), with the board's limit of power, each launch by itself, of all workgroups of one XCD unless QUERN_SIM says
otherwise: a sample says too much where workgroups begin together. Sides:

`bf16`: bias, GELU, gates and residuals inside the products, LayerNorm with its modulation, q's and k's norm with RoPE.
`fp8`: the same with products of FP8 (packed weights, blocks of 128); norms and products write the next one's codes.
`apart`: quern's kernels for one op each, as FlashInfer splits a step: LayerNorm, RMSNorm of heads, RoPE, attention, products with
a bias; GELU and gates by Triton's kernels, as quern has none for them alone.
`triton`: all kernels Triton's, one an op. Copies that a program may need between ops are on no side. Needs the quern package,
numpy, and for `apart` and `triton` triton, unless its code objects are prepared.
"""

import argparse
import concurrent.futures
import functools
import json
import math
import multiprocessing
import os
import pathlib
import struct
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
import sim_peers  # noqa: E402

DOUBLE, SINGLE, TEXT, PICTURE, HEADS, DIM = 19, 38, 512, 4096, 24, 128
TOKENS, WIDTH = TEXT + PICTURE, HEADS * DIM
SIDES = ("bf16", "fp8", "apart", "triton")
PARTS = ("products", "attention", "norms and RoPE", "GELU, gates, quantising")
LONG = 1e11  # operations from which on a launch is not warmed up
DEVICE = "sim:gfx942"


# ---- what a step launches: part, how often, (by, kind, rows, columns, k)

def block_of(rows, count, out_k, is_double, product, by):
    """Yields the launches of a stream's linear layers: (part, count, launch)."""
    joined = not is_double
    yield PARTS[0], count, (by, product, 1, (3 if joined else 6) * WIDTH, WIDTH, "bias")
    yield PARTS[0], count, (by, product, rows, 3 * WIDTH, WIDTH, "bias")
    yield PARTS[0], count, (by, product, rows, 4 * WIDTH, WIDTH, "gelu")
    yield PARTS[0], count, (by, product, rows, WIDTH, out_k, "gate")
    if is_double:
        yield PARTS[0], count, (by, product, rows, WIDTH, WIDTH, "gate")


STREAMS = ((TEXT, DOUBLE, 4 * WIDTH, True), (PICTURE, DOUBLE, 4 * WIDTH, True), (TOKENS, SINGLE, 5 * WIDTH, False))


def fused(is_fp8):
    for rows, count, out_k, is_double in STREAMS:
        for part, times, launch in block_of(rows, count, out_k, is_double, "product", "quern"):
            is_row = launch[2] == 1  # of bf16 on both sides
            yield part, times, ("quern", "product8", *launch[2:]) if is_fp8 and not is_row else launch
        norms = count * (2 if is_double else 1)
        yield PARTS[2], norms, ("quern", "modulated8" if is_fp8 else "modulated", rows)
        yield PARTS[2], count, ("quern", "heads", rows)
        if is_fp8:
            yield PARTS[3], count, ("quern", "quantised", rows)
    yield PARTS[1], DOUBLE + SINGLE, ("quern", "attention")


def separate(by):
    for rows, count, out_k, is_double in STREAMS:
        for part, times, (_, kind, *size, _end) in block_of(rows, count, out_k, is_double, "product", by):
            yield part, times, (by, kind, *size, "bias")
        norms = count * (2 if is_double else 1)
        yield PARTS[2], norms, (by, "layernorm", rows)
        yield PARTS[2], 2 * count, (by, "head_norm", rows)
        yield PARTS[2], count * (1 if by == "quern" else 2), (by, "rope", rows)
        yield PARTS[3], count, ("triton", "gelu", rows)
        yield PARTS[3], norms, ("triton", "gate", rows)
    yield PARTS[1], DOUBLE + SINGLE, (by, "attention")


LAUNCHES = {"bf16": lambda: fused(False), "fp8": lambda: fused(True), "apart": lambda: separate("quern"),
            "triton": lambda: separate("triton")}


# ---- quern

class Quern:
    """Makes quern's launches: each method returns (a function that launches once, operations)."""

    def __init__(self):
        import quern
        self.quern = quern

    def new(self, *shape, dtype="bf16"):
        return self.quern.empty(shape, dtype, DEVICE)

    def ends(self, rows, columns, end):
        options = {"bias": self.new(columns)}
        if end == "gelu":
            options["activation"] = "gelu_tanh"
        if end == "gate":
            options |= {"gate": self.new(1, columns), "c": self.new(rows, columns)}
        return options

    def product(self, rows, columns, k, end):
        a, b, options = self.new(rows, k), self.new(columns, k), self.ends(rows, columns, end)
        out = self.new(rows, columns)
        return lambda: self.quern.gemm(a, b, out=out, **options), 2 * rows * columns * k

    def scales(self, rows, columns):
        """Scales of groups of 128, those of a group's rows side by side."""
        return sim_peers.Turned(self.new(columns // 128, rows, dtype="f32"))

    def product8(self, rows, columns, k, end):
        a, b = self.new(rows, k, dtype="e4m3fnuz"), self.new(1, columns, k, dtype="e4m3fnuz")
        options = self.ends(rows, columns, end) | {"scale_a": self.scales(rows, k),
                                                   "scale_b": self.new(columns // 128, k // 128, dtype="f32"), "packed": True}
        options["out"] = self.new(rows, columns, dtype="e4m3fnuz" if end == "gelu" else "bf16")
        if end == "gelu":
            options["scale_out"] = self.scales(rows, columns)
        return lambda: self.quern.gemm(a, b, **options), 2 * rows * columns * k

    def modulated(self, rows):
        x, out, scale, shift = (self.new(1, rows, WIDTH), self.new(1, rows, WIDTH), self.new(1, WIDTH), self.new(1, WIDTH))
        return lambda: self.quern.adaptive_layernorm(x, scale, shift, out=out), 0

    def modulated8(self, rows):
        x, scale, shift = self.new(1, rows, WIDTH), self.new(1, WIDTH), self.new(1, WIDTH)
        out, scales = self.new(1, rows, WIDTH, dtype="e4m3fnuz"), self.new(1, rows, WIDTH // 128, dtype="f32")
        return lambda: self.quern.adaptive_layernorm_dynamic_quant(x, scale, shift, group=128, out=out, scale_out=scales), 0

    def quantised(self, rows):
        x, q, scale = self.new(rows, WIDTH), self.new(rows, WIDTH, dtype="e4m3fnuz"), self.scales(rows, WIDTH)
        return lambda: self.quern.quantize_groups(x, dtype="e4m3fnuz", q=q, scale=scale), 0

    def heads(self, rows):
        qkv, weights = self.new(rows, 3, HEADS, DIM), [self.new(DIM) for _ in "qk"]
        cos, sin = (self.new(rows, DIM // 2, dtype="f32") for _ in "cs")
        q, k = qkv[:, 0], qkv[:, 1]
        return lambda: self.quern.qk_rmsnorm_rope(q, k, *weights, cos, sin, interleave=True, q_out=q, k_out=k), 0

    def attention(self):
        qkv, out = self.new(1, TOKENS, 3, HEADS, DIM), self.new(1, TOKENS, HEADS, DIM)
        q, k, v = (qkv[:, :, i] for i in range(3))
        return lambda: self.quern.attention(q, k, v, out=out), 4 * TOKENS**2 * WIDTH

    def layernorm(self, rows):
        x, out, gamma, beta = self.new(rows, WIDTH), self.new(rows, WIDTH), self.new(WIDTH, dtype="f32"), self.new(WIDTH, dtype="f32")
        return lambda: self.quern.layernorm(x, gamma, beta, out=out), 0

    def head_norm(self, rows):
        x, out, weight = self.new(rows * HEADS, DIM), self.new(rows * HEADS, DIM), self.new(DIM)
        return lambda: self.quern.rmsnorm(x, weight, out=out), 0

    def rope(self, rows):
        q, k = self.new(rows, HEADS, DIM), self.new(rows, HEADS, DIM)
        table, places = self.new(TOKENS, DIM, dtype="f32"), self.new(rows, dtype="i32")
        return lambda: self.quern.apply_rope_with_cos_sin_cache(q, k, table, places, interleave=True, q_out=q, k_out=k), 0


# ---- Triton

def row_kernels():
    import triton
    import triton.language as tl

    @triton.jit
    def layernorm(out, x, scale, shift, N: tl.constexpr, BLOCK: tl.constexpr):
        row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
        v = tl.load(x + row * N + at, at < N, 0.0).to(tl.float32)
        v = tl.where(at < N, v - tl.sum(v) / N, 0.0)
        y = v * tl.rsqrt(tl.sum(v * v) / N + 1e-6)
        y = y * (1 + tl.load(scale + at, at < N, 0.0).to(tl.float32)) + tl.load(shift + at, at < N, 0.0).to(tl.float32)
        tl.store(out + row * N + at, y.to(tl.bfloat16), at < N)

    @triton.jit
    def head_norm(out, x, weight, HEADS: tl.constexpr, BLOCK: tl.constexpr):
        heads, at = tl.arange(0, BLOCK)[:, None], tl.arange(0, 128)[None, :]
        place = tl.program_id(0).to(tl.int64) * HEADS * 128 + heads * 128 + at
        v = tl.load(x + place, heads < HEADS, 0.0).to(tl.float32)
        y = v * tl.rsqrt(tl.sum(v * v, 1) / 128 + 1e-6)[:, None] * tl.load(weight + at).to(tl.float32)
        tl.store(out + place, y.to(tl.bfloat16), heads < HEADS)

    @triton.jit
    def rope(x, cos, sin, HEADS: tl.constexpr, BLOCK: tl.constexpr):
        row, heads, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)[:, None], tl.arange(0, 128)[None, :]
        place, half = row * HEADS * 128 + heads * 128 + at, tl.arange(0, 64)
        a, b = tl.split(tl.reshape(tl.load(x + place, heads < HEADS, 0.0).to(tl.float32), (BLOCK, 64, 2)))
        c, s = tl.load(cos + row * 64 + half)[None, :], tl.load(sin + row * 64 + half)[None, :]
        y = tl.reshape(tl.join(a * c - b * s, b * c + a * s), (BLOCK, 128))
        tl.store(x + place, y.to(tl.bfloat16), heads < HEADS)

    @triton.jit
    def gelu(out, x, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(x + at).to(tl.float32)
        tl.store(out + at, (v * tl.sigmoid(1.5957691216 * (v + 0.044715 * v * v * v))).to(tl.bfloat16))

    @triton.jit
    def gate(out, x, gates, residual, N: tl.constexpr, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        v = tl.load(residual + at).to(tl.float32) + tl.load(gates + at % N).to(tl.float32) * tl.load(x + at).to(tl.float32)
        tl.store(out + at, v.to(tl.bfloat16))

    @triton.jit
    def attention(out, q, k, v, N: tl.constexpr, STEP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
        rows, at, keys = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, 128), tl.arange(0, BN)
        head = tl.program_id(1) * 128
        mine = tl.load(q + head + rows[:, None] * STEP + at[None, :])
        top, sum = tl.full((BM,), -1e30, tl.float32), tl.zeros((BM,), tl.float32)
        total = tl.zeros((BM, 128), tl.float32)
        for first in range(0, N, BN):
            place = head + (first + keys) * STEP
            scores = tl.dot(mine, tl.load(k + place[None, :] + at[:, None])) * 0.12751743
            higher = tl.maximum(top, tl.max(scores, 1))
            weights, shrink = tl.exp2(scores - higher[:, None]), tl.exp2(top - higher)
            sum, top = sum * shrink + tl.sum(weights, 1), higher
            values = tl.load(v + place[:, None] + at[None, :])
            total = tl.dot(weights.to(tl.bfloat16), values, total * shrink[:, None])
        tl.store(out + head + rows[:, None] * STEP + at[None, :], (total / sum[:, None]).to(tl.bfloat16))

    return {f.fn.__name__: f for f in (layernorm, head_norm, rope, gelu, gate, attention)}


def key_of(name, warps, constants):
    return f"{name} of {warps} warps, " + " ".join(f"{key}={value}" for key, value in constants.items())


class Compiler:
    """Makes code objects by Triton."""

    def __init__(self):
        self.kernels = row_kernels() | {"product": sim_peers.triton_kernels()["bf16"][0]}

    def find(self, name, types, warps, constants):
        """Returns the kernel's entry, the code object, and the bytes of LDS that a launch names."""
        import triton
        from triton.backends.compiler import GPUTarget
        kernel = self.kernels[name]
        names = kernel.arg_names[:len(types)]
        signature = {name: f"*{p}" for name, p in zip(names, types, strict=True)}
        source = triton.compiler.ASTSource(fn=kernel, signature=signature | {name: "constexpr" for name in constants},
                                           constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
                                           attrs={(i,): [["tt.divisibility", 16]] for i in range(len(names))})
        built = triton.compile(source, target=GPUTarget("hip", "gfx942", 64),
                               options={"num_warps": warps, "num_stages": 2, "matrix_instr_nonkdim": 16})
        return built.metadata.name, built.asm["hsaco"], built.metadata.shared


class Prepared:
    """Finds code objects in a folder that `prepare` filled."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.index = json.loads((self.folder / "index.json").read_text())

    def find(self, name, _types, warps, constants):
        key = key_of(name, warps, constants)
        if key not in self.index:
            raise SystemExit(f"{self.folder}: has no code object of {key}; --prepare makes those of the sides that it is given")
        entry = self.index[key]
        return entry["name"], (self.folder / entry["file"]).read_bytes(), entry["shared"]


class Keeper:
    """Writes what a Compiler makes to a folder."""

    def __init__(self, folder):
        self.folder, self.compiler, self.index = pathlib.Path(folder), Compiler(), {}
        self.folder.mkdir(parents=True, exist_ok=True)

    def find(self, name, types, warps, constants):
        entry, image, shared = self.compiler.find(name, types, warps, constants)
        key = key_of(name, warps, constants)
        file = self.index.get(key, {"file": f"{len(self.index)}.co"})["file"]
        self.index[key] = {"file": file, "name": entry, "shared": shared}
        (self.folder / file).write_bytes(image)
        (self.folder / "index.json").write_text(json.dumps(self.index, indent=1) + "\n")
        return entry, image, shared


class Triton:
    """Makes Triton's launches, as Quern makes quern's; without a clock only the code objects."""

    def __init__(self, clock, objects):
        self.clock, self.objects, self.functions = clock, objects, {}

    def made(self, name, pointers, grid, warps, operations=0, **constants):
        """pointers: (dtype, bytes) of each."""
        key = key_of(name, warps, constants)
        if key not in self.functions:
            entry, image, shared = self.objects.find(name, [p for p, _ in pointers], warps, constants)
            self.functions[key] = self.clock and self.clock.hip.kernel(image, entry), shared
        function, shared = self.functions[key]

        def launch():
            block = struct.pack("<%dQ" % (len(pointers) + 2), *(self.clock.buffer(size) for _, size in pointers), 0, 0)
            self.clock.launch(function, grid, 64 * warps, shared, block)

        return launch, operations

    def product(self, rows, columns, k, _end):
        size = (256, 128, 64, 8, 8, 2) if rows > 512 else (128, 128, 64, 8, 4, 2) if rows > 64 else (64, 64, 64, 4, 4, 2)
        pointers = [("bf16", 2 * size) for size in (rows * columns, rows * k, columns * k)]
        tiles = -(-rows // size[0]) * -(-columns // size[1])
        return self.made("product", pointers, (tiles, 1, 1), size[4], 2 * rows * columns * k, M=rows,
                         N=columns, K=k, BM=size[0], BN=size[1], BK=size[2], BAND=size[3], XCDS=8)

    def layernorm(self, rows):
        x = ("bf16", 2 * rows * WIDTH)
        return self.made("layernorm", [x, x, ("bf16", 2 * WIDTH), ("bf16", 2 * WIDTH)], (rows, 1, 1), 8, N=WIDTH,
                         BLOCK=4096)

    def head_norm(self, rows):
        x = ("bf16", 2 * rows * WIDTH)
        return self.made("head_norm", [x, x, ("bf16", 2 * DIM)], (rows, 1, 1), 8, HEADS=HEADS, BLOCK=32)

    def rope(self, rows):
        table = ("fp32", 4 * rows * DIM // 2)
        return self.made("rope", [("bf16", 2 * rows * WIDTH), table, table], (rows, 1, 1), 8, HEADS=HEADS, BLOCK=32)

    def gelu(self, rows):
        x = ("bf16", 8 * rows * WIDTH)
        return self.made("gelu", [x, x], (rows * 4 * WIDTH // 2048, 1, 1), 4, BLOCK=2048)

    def gate(self, rows):
        x = ("bf16", 2 * rows * WIDTH)
        return self.made("gate", [x, x, ("bf16", 2 * WIDTH), x], (rows * WIDTH // 2048, 1, 1), 4, N=WIDTH, BLOCK=2048)

    def attention(self):
        x = ("bf16", 2 * TOKENS * WIDTH)
        return self.made("attention", [x] * 4, (TOKENS // 128, HEADS, 1), 4, 4 * TOKENS**2 * WIDTH, N=TOKENS,
                         STEP=WIDTH, BM=128, BN=64)


# ---- sums

def name_of(launch):
    by, kind, *size = launch
    return f"{by} {kind} {' '.join(map(str, size))}".strip()


def measure(clock, makers, launch):
    by, kind, *size = launch
    maker = makers[by]
    operations = getattr(maker, kind)(*size)[1]
    times = clock.measure(lambda: getattr(maker, kind)(*size)[0], sim_peers.LONG if operations > LONG else 0)
    return {"ns": times["ns"], "unlimited_ns": times["unlimited_ns"]}


@functools.cache
def clock_of(library):
    return sim_peers.Clock(library)


@functools.cache
def maker_of(library, by, prepared):
    """Returns a process's maker of launches of quern or of Triton."""
    if by == "quern":
        return Quern()
    return Triton(clock_of(library), Prepared(prepared) if prepared else Compiler())


def run(library, prepared, launch):
    clock = clock_of(library)
    return measure(clock, {launch[0]: maker_of(library, launch[0], prepared)}, launch)


def sums(report, side):
    """Returns the milliseconds of a side's parts, or None if a launch has not run."""
    found = dict.fromkeys(PARTS, 0.0)
    for part, count, launch in LAUNCHES[side]():
        times = report["launches"].get(name_of(launch))
        if not times:
            return None
        found[part] += count * times["ns"] / 1e6
    return found


def launches_of(sides):
    """Returns the launches of some sides, each once, those of most operations first."""
    found = {launch for side in sides for _, _, launch in LAUNCHES[side]()}
    return sorted(found, key=lambda launch: (launch[1] != "attention", -math.prod(x for x in launch if isinstance(x, int)), launch))


def prepare(options):
    maker = Triton(None, Keeper(options.prepare))
    for by, kind, *size in launches_of(options.sides):
        if by == "triton":
            getattr(maker, kind)(*size)


def results_of(options, launches):
    """Yields launches with their times; in several processes each in one of its own."""
    if options.jobs == 1:
        yield from ((launch, run(options.library, options.prepared, launch)) for launch in launches)
        return
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        tasks = {pool.submit(run, options.library, options.prepared, launch): launch for launch in launches}
        for task in concurrent.futures.as_completed(tasks):
            yield tasks[task], task.result()


def simulate(options, report):
    os.environ.setdefault("QUERN_SIM", "arch=gfx942;clock=xcd")
    os.environ["QUERN_SIM_LIBRARY"] = options.library
    launches = [launch for launch in launches_of(options.sides) if name_of(launch) not in report["launches"]]
    for launch, times in results_of(options, launches):
        report["launches"][name_of(launch)] = times
        print(f"{name_of(launch)}: {times['ns'] / 1e3:.1f} us", flush=True)
        write(options, report)


def write(options, report):
    report["ms"] = {side: found for side in SIDES if (found := sums(report, side))}
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")


# ---- the drawing

COLOURS = ("#3465a4", "#c17d11", "#4e9a06", "#a40000")


def drawing(ms):
    """Returns the sides as stacked bars."""
    most, bar, left = max(sum(parts.values()) for parts in ms.values()), 28, 70
    height = (bar + 14) * len(ms) + 70
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {height}" font-family="sans-serif" font-size="13">',
             f'<title>A step of FLUX.1-dev on the modelled MI300X, ms</title><rect width="720" height="{height}" fill="white"/>']
    for row, (side, parts) in enumerate(ms.items()):
        x, y = left, 14 + row * (bar + 14)
        lines.append(f'<text x="{left - 8}" y="{y + 19}" text-anchor="end">{side}</text>')
        for colour, value in zip(COLOURS, parts.values(), strict=True):
            width = 560 * value / most
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{bar}" fill="{colour}"/>')
            x += width
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 19}">{sum(parts.values()):.0f} ms</text>')
    for i, (part, colour) in enumerate(zip(PARTS, COLOURS, strict=True)):
        x, y = left + 160 * i, height - 40
        lines.append(f'<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/><text x="{x + 17}" y="{y + 11}">{part}</text>')
    return "\n".join([*lines, "</svg>", ""])


# ---- the command

def sides(text):
    names = text.split(",")
    if unknown := [name for name in names if name not in SIDES]:
        raise argparse.ArgumentTypeError(f"side is {unknown[0]}; accepted: {', '.join(SIDES)}")
    return names


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libquernsim.so.0; without it nothing is simulated")
    parser.add_argument("--sides", type=sides, default=list(SIDES), help="comma list of " + ", ".join(SIDES) + " (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--prepare", metavar="FOLDER", help="write Triton's code objects there and stop")
    parser.add_argument("--prepared", metavar="FOLDER", help="take Triton's code objects from there")
    parser.add_argument("--json", type=pathlib.Path, help="the figures, which this file keeps from run to run")
    parser.add_argument("--svg", type=pathlib.Path, help="draw the sides that are complete")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs: found {options.jobs}, accepted: 1 and more")
    if options.prepare and (options.library or options.prepared):
        parser.error("--prepare: found --library or --prepared beside it, accepted: --sides alone")
    if options.prepared and not options.library:
        parser.error("--prepared: found no --library, without which nothing is simulated")
    if not options.library and not options.prepare and not (options.json and options.json.exists()):
        parser.error("--library, --prepare, or --json with a file that exists, is needed")
    return options


def main():
    options = parse()
    if options.prepare:
        prepare(options)
        return
    report = {"benchmark": "sim_flux", "launches": {}}
    if options.json and options.json.exists():
        report = json.loads(options.json.read_text())
    if options.library:
        words = " ".join(["python bench/sim_flux.py", *sys.argv[1:]])
        report["command"] = words.replace(options.prepared, "FOLDER") if options.prepared else words
        simulate(options, report)
    write(options, report)
    for side, parts in report["ms"].items():
        print(f"{side}: {sum(parts.values()):.1f} ms; " + ", ".join(f"{part} {value:.1f}" for part, value in parts.items()))
    if options.svg:
        options.svg.write_text(drawing(report["ms"]))


if __name__ == "__main__":
    main()
