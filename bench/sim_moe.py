#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer of FP8 experts on the modelled MI300X: quern's, AITER's code objects and vLLM's Triton kernel, in one process.

    python bench/sim_moe.py --library build/release/libquernsim.so.0 --aiter CLONE --vllm SITE/vllm
    python bench/sim_moe.py --library FILE --tokens 1,64 --json result.json      quern alone
    python bench/sim_moe.py ... --sides triton --tokens 64 --json result.json    one side, beside what the file has of the others

CLONE is a clone of github.com/ROCm/aiter that has the commit of sim/clock/calibration/objects.py, SITE/vllm the folder of vLLM's
package, of which only the text of two Triton functions is taken. Times are modelled, of all workgroups of one XCD (clock=xcd,
docs/clock.md), with the board's limit of power and without it. Those of up to 64 tokens are of a second launch, with weights that
no launch has read. Experts have as many pairs as each other, within one. Weights are e4m3fnuz with scales of 128 x 128, x is bf16;
each side's weights are in the order that it likes. First every side, with few experts and all results, has to agree with the
layer in f32.

quern: quern.fused_moe, all its launches. AITER: the fastest of its layers of one kernel, and quern's launches for sorting and
quantisation, which AITER has in source alone; what clears its sums is not counted. Triton: vLLM's kernel with the fastest of the
sizes below for each product, and quern's launches between them: sorting, quantising, SiLU-and-multiply, the weighted sum. The
peers' grids have as many tiles as there are, which their callers do not know; quern's is for any ids. Needs the quern package,
numpy, ml_dtypes, torch and triton."""

import argparse
import csv
import ctypes
import io
import json
import os
import pathlib
import struct
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
from peer_common import numbers  # noqa: E402

FNUZ = "e4m3fnuz"
FAMILY = "fmoe/silu"
A_CODE = 2.0**-4  # how far a code of e4m3 may be off; x and what lies between the products are quantised
# rows, columns, rows of tiles in a band, warps
TRITON = [(16, 128, 1, 8), (16, 128, 1, 2), (16, 64, 1, 4), (32, 128, 8, 4), (64, 128, 8, 4), (128, 128, 8, 8)]


class Sim:
    """Tensors and launches on the simulated GPU."""

    def __init__(self, library):
        import quern
        import sim_peers
        self.quern, self.clock, self.is_timed = quern, sim_peers.Clock(library), "off" not in os.environ["QUERN_SIM"]

    def new(self, shape, dtype):
        return self.quern.empty(shape, dtype, "sim:gfx942")

    def upload(self, array, dtype):
        import numpy
        array = numpy.ascontiguousarray(array)
        tensor = self.new(array.shape, dtype)
        self.copy(tensor.data_ptr(), array.ctypes.data, array.nbytes, 1)
        return tensor

    def download(self, tensor, dtype):
        import numpy
        array = numpy.empty(tensor.shape, dtype)
        self.copy(array.ctypes.data, tensor.data_ptr(), array.nbytes, 2)
        return array

    def copy(self, to, source, size, kind):
        self.clock.hip.call("hipMemcpy", ctypes.c_void_p(to), ctypes.c_void_p(source), ctypes.c_size_t(size), kind)

    def time(self, run, is_long=False):
        """Returns the times of run(1), after run(0) has warmed the instruction caches unless run is long."""
        if not self.is_timed:
            run(1)
            return {"ns": 0, "unlimited_ns": 0}
        if not is_long:
            run(0)
        self.clock.hip.call("hipDeviceSynchronize")
        self.clock.times()
        run(1)
        self.clock.hip.call("hipDeviceSynchronize")
        return {key: value for key, value in self.clock.times().items() if key in ("ns", "unlimited_ns")}


def total(*parts):
    return {key: sum(p[key] for p in parts) for key in parts[0]}


# ---- the layer

class Layer:
    """Weights in one order, with nothing in them unless they are given. Sides take turns to hold them."""

    def __init__(self, sim, options, weights=None, order=lambda w: w, scales=None):
        e, h, i = options.experts, options.hidden, options.inner
        shapes = (e, 2 * i, h), (e, h, i)
        self.codes = [sim.new(s, FNUZ) if weights is None else sim.upload(order(weights[n]), FNUZ) for n, s in enumerate(shapes)]
        self.scales = [sim.new((e, s[1] // 128, s[2] // 128), "f32") if scales is None else sim.upload(scales[n], "f32")
                       for n, s in enumerate(shapes)]


def packed(w):
    """quern's order: strips of 32 rows, K-blocks of 128, pieces of 16 bytes that lanes of a wave read side by side."""
    e, n, k = w.shape
    return w.reshape(e, n // 32, 32, k // 128, 4, 2, 16).transpose(0, 1, 3, 4, 5, 2, 6).reshape(e, n, k)


def shuffled(w):
    """AITER's order: 16 rows by 32 of k, in pieces of 16 bytes."""
    e, n, k = w.shape
    return w.reshape(e, n // 16, 16, k // 32, 2, 16).transpose(0, 1, 3, 4, 2, 5).reshape(e, n, k)


def route(rng, tokens, options):
    """Returns weights and ids: all experts in a random order, top_k a token, then all in another one. So experts have as many pairs
    as each other, within one."""
    import numpy
    orders = -(-tokens * options.top_k // options.experts)
    ids = numpy.concatenate([rng.permutation(options.experts) for _ in range(orders)])[:tokens * options.top_k]
    ids = ids.reshape(tokens, options.top_k).astype(numpy.int32)
    weights = rng.random((tokens, options.top_k), numpy.float32) + 0.5
    return weights / weights.sum(1, keepdims=True), ids


def sorted_pairs(ids, experts, rows):
    """Returns pairs by expert, padded to whole tiles of `rows` with the number of pairs, and the tiles' experts."""
    import numpy
    flat, pairs, blocks = ids.reshape(-1), [], []
    for e in range(experts):
        own = numpy.flatnonzero(flat == e)
        tiles = -(-len(own) // rows)
        pairs.append(numpy.concatenate([own, numpy.full(tiles * rows - len(own), flat.size)]))
        blocks += [e] * tiles
    return numpy.concatenate(pairs).astype(numpy.int32), numpy.array(blocks, numpy.int32)


def may_be_fastest(options, ids, rows):
    """Returns whether tiles of so many rows may be the fastest. All are checked."""
    likely = -(-ids.size // options.experts)  # of an expert
    return options.is_checked or likely // 2 <= rows <= max(16, 4 * likely)


# ---- sides: each returns its times, what it chose, and its result

def quern_side(sim, make_layers, options, x, weights, ids):
    layers = make_layers()
    args = sim.upload(weights, "f32"), sim.upload(ids, "i32")
    out = sim.new(x.shape, "bf16")
    times = sim.time(lambda n: sim.quern.fused_moe(
        x, *layers[n].codes, *args, w1_scale=layers[n].scales[0], w2_scale=layers[n].scales[1], packed=True, inner=options.inner,
        out=out), is_long(x.shape[0]))
    return times, "its own", out


def is_long(tokens):
    return tokens > 64


def aiter_table(clone):
    import objects
    rows = []
    for kind in ("Fp8", "Bf16"):
        text = objects.show(clone, "gfx942", f"{FAMILY}/fmoe_bf16_blockscale{kind}_g1u1_silu.csv").decode()
        rows += [r | {"is_bf16": "_a16_" in r["co_name"]} for r in csv.DictReader(io.StringIO(text))]
    # The forms that sort by themselves are for other arguments.
    return {r["co_name"]: r for r in rows if r["flat"] == "0" and r["vskip"] == "1"}.values()


def aiter_block(options, tokens, out, x, scale, layer, pairs, weights, experts, count, groups):
    """Returns the arguments, each in 16 bytes."""
    import kernels
    e, h, i = options.experts, options.hidden, options.inner
    element = 2 if scale is None else 1
    strides = [element * h, h, i, 2 * h, 2 * i * h, h * i, 4 * (2 * i // 128) * (h // 128), 4 * (h // 128) * (i // 128), 4 * i]
    w1, w2, s1, s2 = (t.data_ptr() for t in (*layer.codes, *layer.scales))
    return kernels.pack([out, x, w1, count, w2, 0 if scale is None else scale, s1, s2, 0, pairs, weights, experts, h, i, tokens, e,
                         *strides, options.top_k, *groups])


def aiter_kernel(sim, make_layers, options, row, x, weights, ids):
    """Returns the times of one of AITER's kernels alone, and its result."""
    import numpy
    import objects
    tokens, rows, columns = x.shape[0], int(row["subGU_m"]), int(row["subGU_n"])
    pairs, blocks = sorted_pairs(ids, options.experts, rows)
    at = numpy.minimum(pairs, ids.size - 1)
    own = numpy.where(pairs < ids.size, pairs // options.top_k | pairs % options.top_k << 24, tokens | options.top_k << 24)
    arrays = own, numpy.where(pairs < ids.size, weights.reshape(-1)[at], 0), blocks, numpy.array([len(pairs), tokens])
    kinds = ("int32", "i32"), ("float32", "f32"), ("int32", "i32"), ("int32", "i32")
    # Its tables are longer than what is in them, and the kernels read ahead.
    tensors = [sim.upload(numpy.pad(a.astype(k), (0, 128)), kind) for a, (k, kind) in zip(arrays, kinds)]
    codes, scale = (x, None) if row["is_bf16"] else quantized(sim, x)
    out = sim.upload(numpy.zeros(x.shape, numpy.uint16), "bf16")
    across, stays = options.inner // columns, row["ps"] == "1"
    workgroups = 304 * int(row["tg_num_perCU"])
    groups = [workgroups // across * across if stays else 0, across]
    order, weight, experts, count = (t.data_ptr() for t in tensors)
    layers, scales = make_layers(), None if scale is None else scale.data_ptr()
    blocks_of = [aiter_block(options, tokens, out.data_ptr(), codes.data_ptr(), scales, layer, order, weight, experts, count, groups)
                 for layer in layers]
    kernel = sim.clock.hip.kernel(objects.show(options.aiter, "gfx942", f"{FAMILY}/{row['co_name']}"), row["knl_name"])
    grid = (workgroups, 1, 1) if stays else (across, len(blocks), 1)
    return sim.time(lambda n: sim.clock.launch(kernel, grid, 256, 0, blocks_of[n]), is_long(tokens)), out


def quantized(sim, x):
    """Returns x's codes and their scales, the latter as AITER has them: those of a K-block side by side."""
    q, scale = sim.quern.quantize_fp8(x, dtype=FNUZ)
    turned = sim.download(scale, "float32").T
    return q, sim.upload(turned, "f32")


def aiter_side(sim, make_layers, options, x, weights, ids):
    best = None
    device_ids = sim.upload(ids, "i32")
    for row in aiter_table(options.aiter):
        if not may_be_fastest(options, ids, int(row["subGU_m"])):
            continue
        times, out = aiter_kernel(sim, make_layers, options, row, x, weights, ids)
        before = [sim.time(lambda _, row=row: sim.quern.moe_sort(device_ids, options.experts, int(row["subGU_m"])))]
        if not row["is_bf16"]:
            before.append(sim.time(lambda _: sim.quern.quantize_fp8(x, dtype=FNUZ)))
        whole = total(times, *before)
        if options.is_checked:
            options.compare(f"AITER's {row['co_name']}", sim, out)
        if best is None or whole["ns"] < best[0]["ns"]:
            best = whole, row["co_name"].removeprefix("fmoe_bf16_").removesuffix(".co"), out
    return best


def compile_triton(kernel, constants, pointers, integers, warps):
    import triton
    from triton.backends.compiler import GPUTarget
    names = kernel.arg_names
    signature = {n: pointers.get(n) or integers.get(n) or "constexpr" for n in names}
    source = triton.compiler.ASTSource(
        fn=kernel, signature=signature, constexprs={(names.index(n),): v for n, v in constants.items()},
        attrs={(names.index(n),): [["tt.divisibility", 16]] for n in (*pointers, *integers) if n not in ("EM", "num_valid_tokens")})
    return triton.compile(source, target=GPUTarget("hip", "gfx942", 64),
                          options={"num_warps": warps, "num_stages": 2, "matrix_instr_nonkdim": 16, "kpack": 2})


POINTERS = {"a_ptr": "*fp8e4b8", "b_ptr": "*fp8e4b8", "c_ptr": "*bf16", "a_scale_ptr": "*fp32", "b_scale_ptr": "*fp32",
            "topk_weights_ptr": "*fp32", "sorted_token_ids_ptr": "*i32", "expert_ids_ptr": "*i32",
            "num_tokens_post_padded_ptr": "*i32"}
INTEGERS = dict.fromkeys(("N", "K", "EM", "num_valid_tokens", "stride_am", "stride_be", "stride_bn", "stride_cm", "stride_asm",
                          "stride_bse", "stride_bsn"), "i32")


def triton_product(sim, kernel, sizes, make_layers, which, a, scale, weights, sort, pairs, top_k, is_weighted):
    """Returns the times of a product, and its result."""
    import triton.language as tl
    (rows, columns, band, warps), layers = sizes, make_layers()
    _, n, k = layers[0].codes[which].shape
    constants = {"b_bias_ptr": None, "stride_ak": 1, "stride_bk": 1, "stride_cn": 1, "stride_ask": 1, "stride_bsk": 1,
                 "stride_bbe": 0, "stride_bbn": 0, "group_n": 128, "group_k": 128, "naive_block_assignment": False,
                 "BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": band, "SPLIT_K": 1,
                 "MUL_ROUTED_WEIGHT": is_weighted, "top_k": top_k, "compute_type": tl.bfloat16, "use_fp8_w8a8": True,
                 "use_int8_w8a8": False, "use_int8_w8a16": False, "per_channel_quant": False, "HAS_BIAS": False, "SWAP_AB": False,
                 "USE_TD": False}
    built = compile_triton(kernel, constants, POINTERS, INTEGERS, warps)
    out = sim.new((pairs, n), "bf16")
    order, blocks, count = sort
    addresses = [[t.data_ptr() for t in (a, layer.codes[which], out, scale, layer.scales[which], weights, order, blocks, count)]
                 for layer in layers]
    padded, across = order.shape[0], k // 128
    integers = [n, k, padded, pairs, k, n * k, k, n, across, n // 128 * across, across]
    blocks_of = [struct.pack("<9Q11i4x2Q", *a, *integers, 0, 0) for a in addresses]
    function = sim.clock.hip.kernel(built.asm["hsaco"], built.metadata.name)
    grid = padded // rows * -(-n // columns), 1, 1
    run = lambda n: sim.clock.launch(function, grid, 64 * warps, built.metadata.shared, blocks_of[n])  # noqa: E731
    return sim.time(run, is_long(weights.shape[0])), out


def triton_run(sim, kernel, make_layers, options, sizes, x, weights, ids):
    """Returns the times of the layer with tiles of these sizes, product by product, and the result."""
    import numpy
    pairs, blocks = sorted_pairs(ids, options.experts, sizes[0])
    sort = (sim.upload(pairs, "i32"), sim.upload(blocks, "i32"), sim.upload(numpy.array([len(pairs)], numpy.int32), "i32"))
    device_weights = sim.upload(weights, "f32")
    q, scale = sim.quern.quantize_fp8(x, dtype=FNUZ)
    first, made = triton_product(sim, kernel, sizes, make_layers, 0, q, scale, device_weights, sort, ids.size, options.top_k, False)
    codes, scales = sim.quern.moe_activate(made, dtype=FNUZ)
    second, last = triton_product(sim, kernel, sizes, make_layers, 1, codes, scales, device_weights, sort, ids.size, 1, True)
    order = sim.upload(numpy.arange(ids.size, dtype=numpy.int32).reshape(ids.shape), "i32")
    device_ids, out = sim.upload(ids, "i32"), sim.new(x.shape, "bf16")
    rest = [sim.time(run) for run in (
        lambda _: sim.quern.moe_sort(device_ids, options.experts, sizes[0]), lambda _: sim.quern.quantize_fp8(x, dtype=FNUZ),
        lambda _: sim.quern.moe_activate(made, dtype=FNUZ), lambda _: sim.quern.moe_sum(last, row_of_pair=order, out=out))]
    return first, second, total(*rest), out


def triton_side(sim, make_layers, options, x, weights, ids):
    import peer_experts
    kernel = peer_experts.load_kernel(options.vllm)
    runs = []
    for sizes in TRITON:
        if may_be_fastest(options, ids, sizes[0]):
            runs.append((sizes, *triton_run(sim, kernel, make_layers, options, sizes, x, weights, ids)))
            if options.is_checked:
                options.compare(f"Triton {sizes}", sim, runs[-1][-1])
    first, second = (min(runs, key=lambda r, n=n: r[n]["ns"]) for n in (1, 2))
    text = " and ".join("x".join(map(str, r[0][:2])) for r in (first, second))
    return total(first[1], second[2], first[3]), text, first[4]


SIDES = {"quern": (quern_side, packed), "aiter": (aiter_side, shuffled), "triton": (triton_side, lambda w: w)}


def sides_of(options):
    given = {"quern": True, "aiter": options.aiter, "triton": options.vllm}
    return [s for s in SIDES if given[s] and s in options.sides.split(",")]


# ---- whether the sides agree

def exact(x, codes, scales, weights, ids):
    import numpy
    w1, w2 = (c.astype(numpy.float32) * s.repeat(128, 1).repeat(128, 2) for c, s in zip(codes, scales))
    out = numpy.zeros(x.shape, numpy.float32)
    for t, j in numpy.ndindex(ids.shape):
        gate, up = numpy.split(w1[ids[t, j]] @ x[t], 2)
        out[t] += weights[t, j] * (w2[ids[t, j]] @ (gate / (1 + numpy.exp(-gate)) * up))
    return out


def check(options):
    """Fails unless each side computes the layer, of many tokens and of few, in a process without a clock."""
    import ml_dtypes
    import numpy
    sim, rng = Sim(options.library), numpy.random.default_rng(2)
    options.experts, options.hidden, options.inner, options.top_k, options.is_checked = 6, 1024, 512, 3, True
    e, h, i = options.experts, options.hidden, options.inner
    codes = [rng.standard_normal(s).astype(ml_dtypes.float8_e4m3fnuz) for s in ((e, 2 * i, h), (e, h, i))]
    scales = [(rng.random((e, c.shape[1] // 128, c.shape[2] // 128)) + 0.25).astype(numpy.float32) * c.shape[2]**-0.5 for c in codes]
    for tokens in (70, 5):
        weights, ids = route(rng, tokens, options)
        x = rng.standard_normal((tokens, h)).astype(ml_dtypes.bfloat16)
        check_sides(sim, options, codes, scales, x, weights, ids)


def check_sides(sim, options, codes, scales, x, weights, ids):
    import ml_dtypes
    import numpy
    wanted = exact(x.astype(numpy.float32), codes, scales, weights, ids)

    def compare(name, sim, out):
        got = sim.download(out, ml_dtypes.bfloat16).astype(numpy.float32)
        apart = numpy.linalg.norm(got - wanted) / numpy.linalg.norm(wanted)
        print(f"{name}, {len(x)} tokens: {apart:.4f} apart from f32", flush=True)
        if not apart <= 2 * A_CODE:
            raise SystemExit(f"{name} does not compute the layer")
    options.compare = compare
    for name in sides_of(options):
        side, order = SIDES[name]
        layers = [Layer(sim, options, codes, order, scales)] * 2
        _, _, out = side(sim, lambda layers=layers: layers, options, sim.upload(x, "bf16"), weights, ids)
        compare(name, sim, out)


# ---- the table

def measure(sim, layers, options, tokens):
    """Returns the row of so many tokens. Few find their experts nowhere but in memory: launches with few have weights of their
    own, which cost nothing as nothing is in them."""
    import numpy
    make_layers = (lambda: layers) if is_long(tokens) else lambda: [Layer(sim, options) for _ in range(2)]
    weights, ids = route(numpy.random.default_rng(tokens), tokens, options)
    x, result = sim.new((tokens, options.hidden), "bf16"), {"tokens": tokens, "experts_met": len(numpy.unique(ids))}
    for name in sides_of(options):
        times, choice, _ = SIDES[name][0](sim, make_layers, options, x, weights, ids)
        result[name] = times | {"choice": choice}
    return result


def rows_before(options):
    """Returns the rows that the file of results has, by tokens: sides may be measured one by one."""
    path = pathlib.Path(options.json or "")
    return {r["tokens"]: r for r in json.loads(path.read_text())["rows"]} if path.is_file() else {}


def command_of(options, rows):
    """Returns the command that checks all sides and measures all rows at once."""
    given = iter(sys.argv[1:])
    words = [w for w in given if w not in ("--sides", "--tokens", "--check") or not next(given)]
    text = " ".join(["python bench/sim_moe.py", *words, "--tokens", ",".join(str(r["tokens"]) for r in rows)])
    for path, name in ((options.aiter, "CLONE"), (options.vllm, "SITE/vllm")):
        text = text.replace(path, name) if path else text
    return text


def write(options, results):
    rows = [results[t] for t in sorted(results)]
    report = {"benchmark": "sim_moe", "command": command_of(options, rows), "rows": rows}
    pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


def line(r):
    sides = (f"{s} {r[s]['ns'] / 1e3:.1f} us ({r[s]['unlimited_ns'] / 1e3:.1f}) {r[s]['choice']}" for s in SIDES if s in r)
    return f"{r['tokens']} tokens, {r['experts_met']} experts: " + "; ".join(sides)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="libquernsim.so.0")
    parser.add_argument("--aiter", help="a clone of github.com/ROCm/aiter; without it AITER's side is left out")
    parser.add_argument("--vllm", help="folder of vLLM's package; without it Triton's side is left out")
    parser.add_argument("--tokens", type=numbers, default=[1, 16, 64, 256, 1024], help="comma list (default: 1 to 1024)")
    parser.add_argument("--sides", default=",".join(SIDES), help="comma list; the file of results keeps the others' (default: %(default)s)")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--inner", type=int, default=2048)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--check", choices=("first", "only", "not"), default="first",
                        help="when the sides' results are compared (default: %(default)s)")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.experts % options.top_k:
        parser.error(f"--experts {options.experts} is no multiple of --top-k {options.top_k}")
    if not set(options.sides.split(",")) <= set(SIDES):
        parser.error(f"--sides {options.sides}: accepted: {', '.join(SIDES)}")
    return options


def main():
    options = parse()
    options.is_checked = False
    os.environ["QUERN_SIM_LIBRARY"] = options.library
    if options.check == "only":
        os.environ["QUERN_SIM"] = "arch=gfx942;clock=off"
        check(options)
        return
    if options.check == "first" and subprocess.run([sys.executable, __file__, *sys.argv[1:], "--check", "only"]).returncode:
        raise SystemExit("the sides disagree: nothing is timed")
    os.environ.setdefault("QUERN_SIM", "arch=gfx942;clock=xcd;mfma=fast")
    sim, results = Sim(options.library), rows_before(options)
    layers = [Layer(sim, options) for _ in range(2)]  # no side's time depends on what the weights are
    for tokens in options.tokens:
        results[tokens] = results.get(tokens, {}) | measure(sim, layers, options, tokens)
        print(line(results[tokens]), flush=True)
        if options.json:
            write(options, results)


if __name__ == "__main__":
    main()
