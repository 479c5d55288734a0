#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Matrix products on a modelled GPU, an MI300X if no other is named: quern's kernels beside AITER's code objects and Triton's kernels, in one process.

    python bench/sim_peers.py --aiter CLONE --library build/release/libquernsim.so.0
    python bench/sim_peers.py --shapes 2112x7168 --m 64,4096 --types fp8      some of the products
    python bench/sim_peers.py --json result.json                              the figures for programs as well
    python bench/sim_peers.py --jobs 32                                       as many processes, each with one kernel at a time
    python bench/sim_peers.py --aiter CLONE --prepare FOLDER                  peers' code objects into FOLDER, nothing is timed
    python bench/sim_peers.py --prepared FOLDER                               these, where there is no clone and no Triton
    python bench/sim_peers.py --chip gfx1151 --types bf16                     a Strix Halo, without AITER's side
    python bench/sim_peers.py --chip gfx950 --types bf16 --alone              quern alone on an MI355X
    python bench/sim_peers.py --types bf16 --layout nn --alone                weights as [k, n]

CLONE is a clone of github.com/ROCm/aiter that has the commit of sim/clock/calibration/objects.py. Times are modelled
(docs/clock.md): with the board's limit of power, and without it. Each launch reads tensors that no launch read before, after one
that warms the instruction caches; a product of more than 500 GFLOP runs once.

Types: `fp8`, e4m3fnuz with scales of 1 x 128, those of a K-block side by side, and of 128 x 128; `fn`, the same with activations
of e4m3fn; `open`, as fp8 with weights as checkpoints hold them; `bf16`. quern chooses its kernel itself. Of AITER's kernels, tiles of 128 columns with pre-shuffled
weights, and of Triton's, in the form of its tutorial with the sizes below, the fastest on this clock counts. AITER's kernels take n
of whole 128, and what its parts of k are added to is taken to be zero. They have no large product of bf16. With --jobs each kernel
is measured in a process of its own, so that a fresh instruction cache warms up before each. Needs the quern package, numpy and, unless
peers' code objects are prepared, triton.
"""

import argparse
import concurrent.futures
import ctypes
import functools
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import struct
import sys
import types

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
from peer_common import numbers  # noqa: E402

LONG = 5e11  # operations
SHAPES = "2112x7168,3072x1536,7168x2048,4608x7168,4096x512,512x7168,24576x1536,7168x16384"
# rows, columns, k, rows of tiles in a band, warps, stages
TRITON = {
    "fp8": [(128, 128, 128, 8, 4, 2), (128, 128, 128, 4, 8, 2), (64, 128, 128, 8, 4, 2), (32, 64, 128, 4, 4, 2),
            (16, 32, 128, 1, 2, 2)],
    "bf16": [(256, 256, 32, 8, 8, 2), (256, 128, 64, 8, 8, 2), (128, 128, 64, 8, 4, 2), (64, 64, 64, 4, 4, 2)],
}
TRITON_RDNA = [(128, 128, 32, 8, 4, 2), (128, 128, 32, 8, 8, 2), (64, 64, 64, 8, 4, 2), (16, 64, 128, 1, 4, 2)]
CHIPS = {"gfx90a": (64, 1), "gfx942": (64, 8), "gfx950": (64, 8), "gfx1151": (32, 1), "gfx1201": (32, 1)}  # lanes of a wave, XCDs
TILES = ("32x128", "48x128", "64x128", "80x128", "96x128", "128x128")


class Clock:
    """The simulated GPU's HIP, and the modelled time of what ran."""

    def __init__(self, library, chip="gfx942"):
        import hip
        self.chip, self.wave = chip, CHIPS[chip][0]
        self.hip = hip.Hip(library)
        self.constants = hip

    def times(self):
        """Returns what launches since the last call took."""
        text = ctypes.create_string_buffer(4096)
        if not self.hip.lib.quernsim_clock(-1, text, ctypes.c_size_t(len(text))):
            raise SystemExit("the simulated GPU models no time: QUERN_SIM must not switch its clock off")
        return json.loads(text.value)

    def buffer(self, size):
        return self.hip.make("hipMalloc", ctypes.c_size_t(size + self.constants.SPARE)).value

    def launch(self, kernel, grid, threads, shared, block):
        hip = self.constants
        data, size = ctypes.create_string_buffer(block, len(block)), ctypes.c_size_t(len(block))
        extra = (hip.POINTER * 5)(hip.LAUNCH_BUFFER, ctypes.addressof(data), hip.LAUNCH_SIZE, ctypes.addressof(size),
                                  hip.LAUNCH_END)
        self.hip.call("hipModuleLaunchKernel", kernel, *map(ctypes.c_uint, (*grid, threads, 1, 1, shared)), None, None, extra)

    def measure(self, make, operations):
        """Returns the times of `make()()`: of what it returns the second time, unless that is long."""
        if operations < LONG:
            make()()
            self.hip.call("hipDeviceSynchronize")
        run = make()
        self.times()
        run()
        self.hip.call("hipDeviceSynchronize")
        times = self.times()
        if not times["ns"]:
            raise SystemExit("a launch took no modelled time")
        return times


# ---- quern

class _Tensor(ctypes.Structure):  # DLPack's DLManagedTensor
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


KINDS = {"f32": (2, 32), "bf16": (4, 16)}  # DLPack's


class Turned:
    """A matrix of f32 or bf16 whose transpose is a Tensor."""

    def __init__(self, tensor, dtype="f32"):
        self.tensor, (rows, columns) = tensor, tensor.shape
        self.sizes, self.steps = (ctypes.c_int64 * 2)(columns, rows), (ctypes.c_int64 * 2)(1, columns)
        device = (ctypes.c_int32 * 2)(*tensor.__dlpack_device__())
        self.form = _Tensor(tensor.data_ptr(), device, 2, *KINDS[dtype], 1, self.sizes, self.steps)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.form), b"dltensor", None)


def quern_side(quern, clock, kind, layout, m, n, k):
    """Returns the times of quern's product."""
    def new(shape, dtype):
        return quern.empty(shape, dtype, f"sim:{clock.chip}")

    def operand(rows, is_turned):
        return Turned(new((k, rows), "bf16"), "bf16") if is_turned else new((rows, k), "bf16")

    def make():
        if kind == "bf16":
            d, a, b = new((m, n), "bf16"), operand(m, layout[0] == "t"), operand(n, layout[1] == "n")
            return lambda: quern.gemm(a, b, out=d)
        blocks, across = math.ceil(k / 128), math.ceil(n / 128)
        d, a = new((m, n), "bf16"), new((m, k), "e4m3fn" if kind == "fn" else "e4m3fnuz")
        scale_a, scale_b = Turned(new((blocks, m), "f32")), new((across, blocks), "f32")
        is_packed = kind != "open"
        b = new((1, across * 128, blocks * 128) if is_packed else (n, k), "e4m3fnuz")
        return lambda: quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, packed=is_packed, out=d)

    return clock.measure(make, 2 * m * n * k)


# ---- AITER

def aiter_object(clone, tile):
    """Returns a code object out of a clone, its name, and the name of its kernel."""
    import objects
    name = next((name for name in objects.table(clone, "gfx942", "fp8") if name.endswith(f"BpreShuffle_{tile}")), None)
    if not name:
        raise SystemExit(f"{clone}: AITER's table has no tile of {tile}")
    return name, *objects.load(clone, "gfx942", "fp8", name)


def aiter_side(clock, code, parts, m, n, k):
    import kernels
    name, image, entry = code
    kernel = clock.hip.kernel(image, entry)
    row = types.SimpleNamespace(family="fp8", shape=(m, n, k), parts=parts, code_object=name)

    def make():
        block = kernels.block_of(row, lambda size, _: clock.buffer(size))
        return lambda: clock.launch(kernel, kernels.grid_of(row), 256, 0, block)

    return clock.measure(make, 2 * m * n * k)


def aiter_candidates(m, n, k):
    """Yields the tiles and parts of k that may be fastest."""
    for tile in TILES:
        rows = int(tile.split("x")[0])
        groups = math.ceil(m / rows) * (n // 128)
        if m >= 1024 and rows < 96 or rows > 2 * m:
            continue
        yield from ((tile, parts) for parts in (1, 2, 4, 8) if parts == 1 or groups * parts <= 640 and k // 128 >= 2 * parts)


# ---- Triton

def triton_kernels():
    import triton
    import triton.language as tl

    @triton.jit
    def place(M: tl.constexpr, N: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BAND: tl.constexpr, XCDS: tl.constexpr):
        block, tiles_m, tiles_n = tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN)
        whole = tiles_m * tiles_n // XCDS * XCDS  # the chip's XCDs take programs in turn
        if block < whole:
            block = block % XCDS * (whole // XCDS) + block // XCDS
        band = block // (BAND * tiles_n)
        height = min(tiles_m - band * BAND, BAND)
        at = block % (BAND * tiles_n)
        return band * BAND + at % height, at // height

    @triton.jit
    def fp8(d, a, b, scale_a, scale_b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
            BK: tl.constexpr, BAND: tl.constexpr, XCDS: tl.constexpr):
        tile_m, tile_n = place(M, N, BM, BN, BAND, XCDS)
        rows, columns = (tile_m * BM + tl.arange(0, BM)) % M, (tile_n * BN + tl.arange(0, BN)) % N
        at = tl.arange(0, BK)
        left, right = a + rows[:, None] * K + at[None, :], b + columns[None, :] * K + at[:, None]
        sum = tl.zeros((BM, BN), tl.float32)
        for block in range(K // BK):
            by_rows = tl.load(scale_a + block * M + rows)
            by_columns = tl.load(scale_b + columns // 128 * (K // 128) + block)
            sum += tl.dot(tl.load(left), tl.load(right)) * by_rows[:, None] * by_columns[None, :]
            left += BK
            right += BK
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        tl.store(d + rows[:, None].to(tl.int64) * N + columns[None, :], sum.to(tl.bfloat16),
                 (rows[:, None] < M) & (columns[None, :] < N))

    @triton.jit
    def bf16(d, a, b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
             BAND: tl.constexpr, XCDS: tl.constexpr):
        tile_m, tile_n = place(M, N, BM, BN, BAND, XCDS)
        rows, columns = (tile_m * BM + tl.arange(0, BM)) % M, (tile_n * BN + tl.arange(0, BN)) % N
        at = tl.arange(0, BK)
        left, right = a + rows[:, None] * K + at[None, :], b + columns[None, :] * K + at[:, None]
        sum = tl.zeros((BM, BN), tl.float32)
        for _ in range(K // BK):
            sum = tl.dot(tl.load(left), tl.load(right), sum)
            left += BK
            right += BK
        rows, columns = tile_m * BM + tl.arange(0, BM), tile_n * BN + tl.arange(0, BN)
        tl.store(d + rows[:, None].to(tl.int64) * N + columns[None, :], sum.to(tl.bfloat16),
                 (rows[:, None] < M) & (columns[None, :] < N))

    return {"fp8": (fp8, ("bf16", "fp8e4b8", "fp8e4b8", "fp32", "fp32")), "bf16": (bf16, ("bf16", "bf16", "bf16"))}


def triton_object(chip, kernel, pointers, sizes, m, n, k):
    """Compiles a kernel. Returns its name, its code object, and the bytes of LDS that a launch names."""
    import triton
    from triton.backends.compiler import GPUTarget
    wave, xcds = CHIPS[chip]
    constants = dict(zip(("M", "N", "K", "BM", "BN", "BK", "BAND", "XCDS"), (m, n, k, *sizes[:4], xcds)))
    names = kernel.arg_names[:len(pointers)]
    source = triton.compiler.ASTSource(
        fn=kernel, signature={name: f"*{p}" for name, p in zip(names, pointers)} | {name: "constexpr" for name in constants},
        constexprs={(kernel.arg_names.index(name),): value for name, value in constants.items()},
        attrs={(i,): [["tt.divisibility", 16]] for i in range(len(names))})
    built = triton.compile(source, target=GPUTarget("hip", chip, wave),
                           options={"num_warps": sizes[4], "num_stages": sizes[5], "matrix_instr_nonkdim": 16})
    return built.metadata.name, built.asm["hsaco"], built.metadata.shared


def triton_side(clock, code, kind, sizes, m, n, k):
    name, image, shared = code
    function = clock.hip.kernel(image, name)
    byte = 2 if kind == "bf16" else 1
    bytes_of = [2 * m * n, byte * m * k, byte * n * k, 4 * m * (k // 128), 4 * math.ceil(n / 128) * (k // 128)]

    def make():
        tensors = bytes_of[:3 if kind == "bf16" else 5]
        block = struct.pack("<%dQ" % (len(tensors) + 2), *map(clock.buffer, tensors), 0, 0)
        grid = math.ceil(m / sizes[0]) * math.ceil(n / sizes[1]), 1, 1
        return lambda: clock.launch(function, grid, clock.wave * sizes[4], shared, block)

    return clock.measure(make, 2 * m * n * k)


def triton_candidates(chip, kind, m, n):
    for sizes in TRITON["bf16" if kind == "bf16" else "fp8"] if chip.startswith("gfx9") else TRITON_RDNA:
        tiles = math.ceil(m / sizes[0]) * math.ceil(n / sizes[1])
        if sizes[0] <= 2 * m and (tiles <= 4096 or sizes[0] >= 128):
            yield sizes


# ---- peers' code objects, made here or before

class Made:
    """Code objects of a clone of AITER and of Triton's compiler."""

    def __init__(self, clone, chip):
        self.clone, self.chip = clone, chip

    def aiter(self, tile):
        return aiter_object(self.clone, tile)

    def triton(self, kind, sizes, m, n, k):
        return triton_object(self.chip, *triton_kernels()[kind], sizes, m, n, k)


class Prepared:
    """The same out of a folder that `prepare` filled."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.index = json.loads((self.folder / "index.json").read_text())

    def find(self, key):
        if key not in self.index:
            raise SystemExit(f"{self.folder}: has no code object of {key}; --prepare makes those of the shapes that it is given")
        name, last = self.index[key]["name"], self.index[key]["last"]
        return name, (self.folder / self.index[key]["file"]).read_bytes(), last

    def aiter(self, tile):
        return self.find(f"aiter {tile}")

    def triton(self, kind, sizes, m, n, k):
        return self.find(f"triton {kind} {m}x{n}x{k} {'x'.join(map(str, sizes))}")


def prepare(options, tasks):
    """Writes the code objects of all tasks to options.prepare."""
    made, folder, index = Made(options.aiter, options.chip), pathlib.Path(options.prepare), {}
    folder.mkdir(parents=True, exist_ok=True)
    for kind, m, n, k, side, choice in tasks:
        key = f"aiter {choice[0]}" if side == "aiter" else f"triton {kind} {m}x{n}x{k} {'x'.join(map(str, choice or ()))}"
        if side == "quern" or key in index:
            continue
        name, image, last = made.aiter(choice[0]) if side == "aiter" else made.triton(kind, choice, m, n, k)
        index[key] = {"file": f"{len(index)}.co", "name": name, "last": last}
        (folder / index[key]["file"]).write_bytes(image)
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


# ---- the table: a task is a product by one kernel of one side: (type, m, n, k, side, choice)

def tasks_of(options, kind, m, n, k):
    """Yields a product's tasks."""
    yield kind, m, n, k, "quern", None
    if options.alone:
        return
    if kind == "fp8" and n % 128 == 0 and (options.aiter or options.prepared):
        yield from ((kind, m, n, k, "aiter", choice) for choice in aiter_candidates(m, n, k))
    if kind in TRITON:
        yield from ((kind, m, n, k, "triton", sizes) for sizes in triton_candidates(options.chip, kind, m, n))


@functools.cache
def side_of(library, chip, aiter, prepared):
    """Returns a process's clock, the quern package and the peers' code objects."""
    clock = Clock(library, chip)
    import quern
    return clock, quern, Prepared(prepared) if prepared else Made(aiter, chip)


def run(options, task):
    """Returns a task's times."""
    kind, m, n, k, side, choice = task
    clock, quern, peers = side_of(options.library, options.chip, options.aiter, options.prepared)
    if side == "quern":
        return short(quern_side(quern, clock, kind, options.layout, m, n, k), "its own")
    if side == "aiter":
        return short(aiter_side(clock, peers.aiter(choice[0]), choice[1], m, n, k), f"{choice[0]}, {choice[1]} parts")
    times = triton_side(clock, peers.triton(kind, choice, m, n, k), kind, choice, m, n, k)
    return short(times, "x".join(map(str, choice[:3])))


def short(times, choice):
    return {"ns": times["ns"], "unlimited_ns": times["unlimited_ns"], "mhz": times["mhz"], "choice": choice}


def products_of(options):
    """Returns the tasks of each product, in the table's order."""
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shapes.split(",")]
    return [list(tasks_of(options, kind, m, *shape))
            for kind, shape, m in itertools.product(options.types.split(","), shapes, options.m)]


def row_of(tasks, results):
    """Returns a product's line: of each side the fastest."""
    row = dict(zip(("type", "m", "n", "k"), tasks[0]))
    for task, times in zip(tasks, results):
        if times["ns"] < row.get(task[4], {"ns": math.inf})["ns"]:
            row[task[4]] = times
    return row


def rows_of(options, products):
    """Yields the products' lines. In several processes the longest tasks come first, each in a process of its own."""
    if options.jobs == 1:
        yield from (row_of(tasks, [run(options, task) for task in tasks]) for tasks in products)
        return
    everything = sorted(itertools.chain(*products), key=lambda task: -task[1] * task[2] * task[3])
    with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        results = {task: pool.submit(run, options, task) for task in everything}
        yield from (row_of(tasks, [results[task].result() for task in tasks]) for tasks in products)


def line(r):
    def side(name):
        s = r.get(name)
        if not s:
            return f"{name} -"
        flops = 2 * r["m"] * r["n"] * r["k"]
        return (f"{name} {s['ns'] / 1e3:.1f} us ({s['unlimited_ns'] / 1e3:.1f}) {flops / s['ns'] / 1e3:.0f} TFLOP/s "
                f"{s['choice']}")
    return f"{r['type']} {r['m']}x{r['n']}x{r['k']}: " + "; ".join(side(s) for s in ("quern", "aiter", "triton"))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--aiter", help="a clone of github.com/ROCm/aiter; without it AITER's side is left out")
    parser.add_argument("--library", required=True, help="libquernsim.so.0")
    parser.add_argument("--chip", choices=CHIPS, default="gfx942", help="the modelled GPU (default: %(default)s)")
    parser.add_argument("--types", default="fp8,bf16", help="comma list of fp8, fn, open, bf16 (default: %(default)s)")
    parser.add_argument("--shapes", default=SHAPES, help="comma list of NxK (default: DeepSeek's)")
    parser.add_argument("--m", type=numbers, default=[64, 1024, 4096, 16384], help="comma list of rows")
    parser.add_argument("--alone", action="store_true", help="quern alone")
    parser.add_argument("--layout", choices=("nt", "nn", "tn", "tt"), default="nt", help="quern's bf16: a as [m, k] or, t, [k, m], "
                        "b as [k, n] or, t, [n, k] (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s, which measures everything by itself)")
    parser.add_argument("--prepare", metavar="FOLDER", help="write the peers' code objects there and stop")
    parser.add_argument("--prepared", metavar="FOLDER", help="take the peers' code objects from there")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.chip != "gfx942" and (options.aiter or options.types != "bf16"):
        parser.error(f"--chip {options.chip}: takes --types bf16, and no --aiter, whose code is for gfx942")
    if options.layout != "nt" and (options.types != "bf16" or not options.alone):
        parser.error(f"--layout {options.layout}: takes --types bf16 and --alone, as peers' products are nt")
    if options.jobs < 1:
        parser.error(f"--jobs: found {options.jobs}, accepted: 1 and more")
    if options.prepared and (options.aiter or options.prepare):
        parser.error("--prepared: found --aiter or --prepare beside it, accepted: one of them")
    if options.prepare and options.alone:
        parser.error("--prepare: found --alone, by which there are no peers")
    return options


def main():
    options = parse()
    os.environ.setdefault("QUERN_SIM", f"arch={options.chip};clock=sample")
    os.environ["QUERN_SIM_LIBRARY"] = options.library
    products = products_of(options)
    if options.prepare:
        prepare(options, itertools.chain(*products))
        return
    results, command = [], " ".join(["python bench/sim_peers.py", *sys.argv[1:]])
    for path, word in ((options.aiter, "CLONE"), (options.prepared, "FOLDER")):
        command = command.replace(path, word) if path else command
    for row in rows_of(options, products):
        results.append(row)
        print(line(row), flush=True)
        if options.json:
            report = {"benchmark": "sim_peers", "chip": options.chip, "command": command, "rows": results}
            pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
