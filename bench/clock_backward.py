#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention's gradients on a modelled chip: quern's kernels beside those of Triton's tutorial on fused attention, in one process.

    python bench/clock_backward.py --tutorial 06-fused-attention.py --library build/release/libquernsim.so.0
    python bench/clock_backward.py ... --chip gfx1151 --only short-128 --json result.json

The tutorial is python/tutorials/06-fused-attention.py of github.com/triton-lang/triton, whose backward kernels the installed
triton compiles for the chip: f16, causal, of whole blocks. Its block sizes are its own; of the warps and stages that --warps and
--stages name the fastest that fits into LDS counts. It computes delta in a kernel of its own, which counts, and is given k times
the scale, which does not. Times are modelled (docs/clock.md), with the board's limit of power, and without it; nothing is measured. TFLOP/s count
five products of the scores that a causal mask leaves. Needs the quern package, numpy and triton.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import re
import shutil
import struct
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
import sim_peers  # noqa: E402

# name: batch, heads, tokens, head_dim
CASES = {"causal-64": (1, 24, 4096, 64), "causal-128": (1, 24, 4096, 128), "middle-64": (1, 24, 2048, 64),
         "middle-128": (1, 24, 2048, 128), "short-64": (1, 16, 1024, 64), "short-128": (1, 16, 1024, 128)}
BLOCKS = {"BLOCK_M1": 32, "BLOCK_N1": 128, "BLOCK_M2": 128, "BLOCK_N2": 32, "BLK_SLICE_FACTOR": 2}
ROWS = 128  # of the tutorial's first kernel


def load_tutorial(path):
    """Returns a module of the tutorial's backward kernels alone: the rest of it asks for a GPU as it is loaded."""
    text = pathlib.Path(path).read_text()
    kernels = re.search(r"@triton\.jit\ndef _attn_bwd_preprocess.*?(?=^class _attention)", text, re.DOTALL | re.MULTILINE)
    if not kernels:
        raise SystemExit(f"{path}: has no kernels _attn_bwd_preprocess to _attn_bwd before class _attention")
    file = pathlib.Path(tempfile.mkdtemp()) / "tutorial.py"  # triton reads the source of what it compiles
    file.write_text("import triton\nimport triton.language as tl\n\n\n" + kernels[0])
    spec = importlib.util.spec_from_file_location("tutorial", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.folder = file.parent
    return module


# ---- quern

def quern_side(quern, clock, chip, shape, operations):
    def new(dtype, *dims):
        return quern.empty(dims, dtype, f"sim:{chip}")

    def make():
        q, k, v, o, d_o = (new("f16", *shape) for _ in range(5))
        lse = new("f32", *shape[:3])
        return lambda: quern.attention_backward(d_o, q, k, v, o, lse, layout="HND", is_causal=True)

    return sim_peers.short(clock.measure(make, operations), quern.last_kernel())


# ---- Triton

def compile_kernel(function, pointers, scalars, constants, chip, warps, stages):
    """Returns what Triton compiles: pointers by type, scalars by type, and constants by value."""
    import triton
    from triton.backends.compiler import GPUTarget
    kinds = pointers | scalars | {name: "constexpr" for name in constants}
    signature = {name: kinds[name] for name in function.arg_names}
    source = triton.compiler.ASTSource(
        fn=function, signature=signature,
        constexprs={(function.arg_names.index(name),): value for name, value in constants.items()},
        attrs={(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in (*pointers, *scalars)
               if kinds[name] != "fp32" and name != "H" and name != "Z"})
    wave = 64 if chip.startswith("gfx9") else 32
    return triton.compile(source, target=GPUTarget("hip", chip, wave), options={"num_warps": warps, "num_stages": stages})


def triton_side(clock, tutorial, chip, shape, warps, stages, operations):
    batch, heads, tokens, dim = shape
    half = {name: "*fp16" for name in ("Q", "K", "V", "DO", "DQ", "DK", "DV")}
    whole = {"M": "*fp32", "D": "*fp32"}
    strides = {"stride_z": "i32", "stride_h": "i32", "stride_tok": "i32", "H": "i32", "N_CTX": "i32"}
    main = compile_kernel(tutorial._attn_bwd, half | whole, {"sm_scale": "fp32"} | strides,
                          {"stride_d": 1, "HEAD_DIM": dim} | BLOCKS, chip, warps, stages)
    first = compile_kernel(tutorial._attn_bwd_preprocess, {"O": "*fp16", "DO": "*fp16", "Delta": "*fp32"},
                           {"Z": "i32", "H": "i32", "N_CTX": "i32"}, {"BLOCK_M": ROWS, "HEAD_DIM": dim}, chip, 4, 3)
    if main.metadata.shared > 65536:
        return None
    kernels = [clock.hip.kernel(k.asm["hsaco"], k.metadata.name) for k in (first, main)]
    wave = 64 if chip.startswith("gfx9") else 32

    def make():
        rows = batch * heads * tokens
        q, k, v, o, d_o, dq, dk, dv = (clock.buffer(2 * rows * dim) for _ in range(8))
        m, delta = clock.buffer(4 * rows), clock.buffer(4 * rows)
        before = struct.pack("<3Q3i4x2Q", o, d_o, delta, batch, heads, tokens, 0, 0)
        block = struct.pack("<3Qf4x6Q5i4x2Q", q, k, v, dim**-0.5, d_o, dq, dk, dv, m, delta, heads * tokens * dim, tokens * dim, dim,
                            heads, tokens, 0, 0)

        def run():
            clock.launch(kernels[0], (tokens // ROWS, batch * heads, 1), wave * 4, first.metadata.shared, before)
            clock.launch(kernels[1], (tokens // BLOCKS["BLOCK_N1"], 1, batch * heads), wave * warps, main.metadata.shared, block)
        return run

    return sim_peers.short(clock.measure(make, operations), f"{warps} warps, {stages} stages")


def measure(options, quern, clock, tutorial, name):
    shape = CASES[name]
    batch, heads, tokens, dim = shape
    operations = 5 * batch * heads * tokens * tokens * dim  # half of five products
    result = {"case": name, "chip": options.chip, "shape": shape, "operations": operations,
              "quern": quern_side(quern, clock, options.chip, shape, operations)}
    sides = [] if options.alone else [triton_side(clock, tutorial, options.chip, shape, warps, stages, operations)
                                      for warps in options.warps for stages in options.stages]
    result["triton"] = min(filter(None, sides), key=lambda r: r["ns"], default=None)
    return result


def line(r):
    def side(name):
        s = r[name]
        return f"{name} {s['ns'] / 1e3:.1f} us ({s['unlimited_ns'] / 1e3:.1f}) {r['operations'] / s['ns'] / 1e3:.0f} TFLOP/s " \
               f"{s['choice']}" if s else f"{name} -"
    return f"{r['case']} {r['chip']}: {side('quern')}; {side('triton')}"


def parse():
    def numbers(text):
        return [int(n) for n in text.split(",")]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tutorial", required=True, help="Triton's 06-fused-attention.py")
    parser.add_argument("--library", required=True, help="libquernsim.so.0")
    parser.add_argument("--chip", default="gfx942", help="default: %(default)s")
    parser.add_argument("--only", choices=CASES, action="append", help="this case; again for others")
    parser.add_argument("--warps", type=numbers, default=[4, 8], help="comma list of Triton's warps")
    parser.add_argument("--stages", type=numbers, default=[1, 2, 3, 4, 5], help="comma list of Triton's stages")
    parser.add_argument("--alone", action="store_true", help="quern alone")
    parser.add_argument("--json", help="also write the figures to this file")
    return parser.parse_args()


def main():
    options = parse()
    os.environ.setdefault("QUERN_SIM", f"arch={options.chip};clock=sample")
    os.environ["QUERN_SIM_LIBRARY"] = options.library
    tutorial = load_tutorial(options.tutorial)
    try:
        clock = sim_peers.Clock(options.library)
        import quern
        rows, command = [], " ".join(["python bench/clock_backward.py", *sys.argv[1:]])
        for name in options.only or CASES:
            rows.append(measure(options, quern, clock, tutorial, name))
            print(line(rows[-1]), flush=True)
            if options.json:
                report = {"benchmark": "clock_backward", "times": "modelled",
                          "command": command.replace(options.tutorial, "06-fused-attention.py"), "results": rows}
                pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    finally:
        shutil.rmtree(tutorial.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
