#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Row ops on a modelled GPU, by default the MI300X, beside a copy of as many bytes, in one process.

    python bench/sim_rows.py --library build/release/libquernsim.so.0 --json bench/results/sim_rows.json
    python bench/sim_rows.py --library ... --only rmsnorm,rope     some of the ops
    python bench/sim_rows.py --library ... --chip gfx1151          a Strix Halo, with a quarter of the rows

Times are modelled (docs/clock.md), of all workgroups of one XCD and with the board's limit of power: in a sample of them the second
level would keep much of what is written. Each launch reads tensors
that no launch read before, after one that warms the instruction caches. The copy is a Triton kernel whose programs move 8 KiB
each, as fast as any size of program that was tried; it reads and writes as many bytes as the op does together. Needs the quern
package, numpy and triton.
"""

import argparse
import ctypes
import json
import os
import pathlib
import struct
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TOP / "bench"), str(TOP / "sim/clock/calibration")]
import sim_peers  # noqa: E402

TO_DEVICE = 1  # hipMemcpyHostToDevice
ROWS, WIDTH, HEADS, KV_HEADS, DIM, INNER = 8192, 7168, 32, 8, 128, 14336
RDNA_ROWS = ROWS // 4  # a whole chip is one XCD, all of whose workgroups run
COPIED = 4096  # elements of bf16 of a program of the copy


class Ops:
    """Makes the ops: each method returns (a function that launches once, the bytes that it has to move)."""

    def __init__(self, hip, chip, rows):
        import quern
        self.quern, self.hip, self.chip, self.rows = quern, hip, chip, rows
        self.fp8 = "e4m3fnuz" if chip == "gfx942" else "e4m3fn"

    def new(self, *shape, dtype="bf16"):
        return self.quern.empty(shape, dtype, f"sim:{self.chip}")

    def numbers(self, count, dtype, kind):
        """A tensor of 0, 1, 2…"""
        to, values = self.new(count, dtype=dtype), (kind * count)(*range(count))
        self.hip.call("hipMemcpy", ctypes.c_void_p(to.data_ptr()), values, ctypes.c_size_t(ctypes.sizeof(values)), TO_DEVICE)
        return to

    def rmsnorm(self):
        x, weight, out = self.new(self.rows, WIDTH), self.new(WIDTH), self.new(self.rows, WIDTH)
        return lambda: self.quern.rmsnorm(x, weight, out=out), 4 * self.rows * WIDTH

    def fused_add_rmsnorm(self):
        x, weight, residual = self.new(self.rows, WIDTH), self.new(WIDTH), self.new(self.rows, WIDTH)
        return lambda: self.quern.fused_add_rmsnorm(x, residual, weight), 8 * self.rows * WIDTH

    def layernorm(self):
        x, out, gamma, beta = self.new(self.rows, WIDTH), self.new(self.rows, WIDTH), *(self.new(WIDTH, dtype="f32") for _ in "gb")
        return lambda: self.quern.layernorm(x, gamma, beta, out=out), 4 * self.rows * WIDTH

    def rmsnorm_backward(self):
        dx, d_out, x = (self.new(self.rows, WIDTH) for _ in "dox")
        weight, dweight, workspace = self.new(WIDTH), self.new(WIDTH), self.new(4 * 1056 * WIDTH, dtype="u8")
        return (lambda: self.quern.norm_backward(d_out, x, weight, dx=dx, dweight=dweight, workspace=workspace), 6 * self.rows * WIDTH)

    def gated_residual_layernorm_backward(self):
        rows = {name: self.new(1, self.rows, WIDTH) for name in ("dx", "d_gated", "d_out", "x", "d_sum", "gated")}
        weights = {name: self.new(1, WIDTH) for name in ("weight", "gate", "dweight", "dbeta", "dgate")}
        workspace = self.new(3 * 4 * 1056 * WIDTH, dtype="u8")
        return (lambda: self.quern.norm_backward(**rows, **weights, subtracts_mean=True, adds_one=True, workspace=workspace),
                12 * self.rows * WIDTH)

    def rmsnorm_group_quant(self):
        x, weight, out = self.new(self.rows, WIDTH), self.new(WIDTH), self.new(self.rows, WIDTH, dtype=self.fp8)
        scale = self.new(self.rows, WIDTH // 128, dtype="f32")
        return (lambda: self.quern.rmsnorm_dynamic_quant(x, weight, group=128, dtype=self.fp8, out=out, scale=scale),
                3 * self.rows * WIDTH + self.rows * WIDTH // 32)

    def silu_and_mul(self):
        x, out = self.new(self.rows, 2 * INNER), self.new(self.rows, INNER)
        return lambda: self.quern.silu_and_mul(x, out=out), 6 * self.rows * INNER

    def silu_and_mul_group_quant(self):
        x, out = self.new(self.rows, 2 * INNER), self.new(self.rows, INNER, dtype=self.fp8)
        scale = self.new(self.rows, INNER // 128, dtype="f32")
        return (lambda: self.quern.act_and_mul_dynamic_quant(x, group=128, dtype=self.fp8, out=out, scale=scale),
                5 * self.rows * INNER + self.rows * INNER // 32)

    def rope(self):
        q, k = self.new(self.rows, HEADS, DIM), self.new(self.rows, KV_HEADS, DIM)
        table, places = self.new(self.rows, DIM, dtype="f32"), self.numbers(self.rows, "i32", ctypes.c_int32)
        return (lambda: self.quern.apply_rope_with_cos_sin_cache(q, k, table, places, q_out=q, k_out=k),
                4 * self.rows * (HEADS + KV_HEADS) * DIM + 4 * self.rows * (DIM + 1))

    def quantize_groups(self):
        x, q, scale = self.new(self.rows, WIDTH), self.new(self.rows, WIDTH, dtype=self.fp8), self.new(self.rows, WIDTH // 128, dtype="f32")
        return lambda: self.quern.quantize_groups(x, dtype=self.fp8, q=q, scale=scale), 3 * self.rows * WIDTH + self.rows * WIDTH // 32

    def reshape_and_cache(self):
        key, value = (self.new(self.rows, KV_HEADS, DIM) for _ in "kv")
        caches = [self.new(self.rows // 16, 16, KV_HEADS, DIM) for _ in "kv"]
        slots = self.numbers(self.rows, "i32", ctypes.c_int32)
        return lambda: self.quern.reshape_and_cache(*caches, key, value, slots), 8 * self.rows * KV_HEADS * DIM + 4 * self.rows


PROBLEMS = {
    "rmsnorm": f"{WIDTH} bf16", "fused_add_rmsnorm": f"{WIDTH} bf16", "layernorm": f"{WIDTH} bf16", "rmsnorm_backward": f"{WIDTH} bf16",
    "gated_residual_layernorm_backward": f"{WIDTH} bf16", "rmsnorm_group_quant": f"{WIDTH} bf16 to FP8", "silu_and_mul": f"{INNER} bf16",
    "silu_and_mul_group_quant": f"{INNER} bf16 to FP8", "rope": f"tokens, {HEADS} and {KV_HEADS} heads of {DIM}",
    "quantize_groups": f"{WIDTH} bf16 to FP8", "reshape_and_cache": f"tokens, {KV_HEADS} heads of {DIM}",
}


def problem(ops, name):
    """Says what an op is launched for."""
    text = PROBLEMS[name].replace("FP8", ops.fp8)
    return f"{ops.rows} {text}" if text.startswith("tokens") else f"{ops.rows} × {text}"


class Copy:
    """Copies bytes by a Triton kernel."""

    def __init__(self, clock):
        import triton
        import triton.language as tl
        from triton.backends.compiler import GPUTarget

        @triton.jit
        def copy(out, x, BLOCK: tl.constexpr):
            at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
            tl.store(out + at, tl.load(x + at))

        source = triton.compiler.ASTSource(fn=copy, signature={"out": "*bf16", "x": "*bf16", "BLOCK": "constexpr"},
                                           constexprs={(2,): COPIED}, attrs={(i,): [["tt.divisibility", 16]] for i in range(2)})
        built = triton.compile(source, target=GPUTarget("hip", clock.chip, clock.wave), options={"num_warps": 4})
        self.clock, self.function = clock, clock.hip.kernel(built.asm["hsaco"], built.metadata.name)

    def make(self, size):
        """Returns a function that copies half as many bytes as `size` says, which it reads and writes."""
        programs = -(-size // (4 * COPIED))
        block = struct.pack("<QQQQ", *(self.clock.buffer(2 * COPIED * programs) for _ in "dx"), 0, 0)
        return lambda: self.clock.launch(self.function, (programs, 1, 1), 4 * self.clock.wave, 0, block)


def measure(clock, ops, copy, name):
    size = getattr(ops, name)()[1]
    times, copied = clock.measure(lambda: getattr(ops, name)()[0], 0), clock.measure(lambda: copy.make(size), 0)
    return {"op": name, "problem": problem(ops, name), "bytes": size, "us": times["ns"] / 1e3, "copy_us": copied["ns"] / 1e3}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", required=True, help="the simulated GPU, libquernsim.so.0")
    parser.add_argument("--chip", choices=sim_peers.CHIPS, default="gfx942", help="the modelled GPU (default: %(default)s)")
    parser.add_argument("--only", default=",".join(PROBLEMS), help="a comma list of ops")
    parser.add_argument("--json", type=pathlib.Path, help="write the figures to this file")
    return parser.parse_args()


def main():
    options = read_options()
    os.environ["QUERN_SIM"], os.environ["QUERN_SIM_LIBRARY"] = f"arch={options.chip};clock=xcd", options.library
    clock, rows = sim_peers.Clock(options.library, options.chip), []
    ops, copy = Ops(clock.hip, options.chip, ROWS if options.chip == "gfx942" else RDNA_ROWS), Copy(clock)
    for name in options.only.split(","):
        rows.append(measure(clock, ops, copy, name))
        print("{op}: {us:.1f} us, a copy {copy_us:.1f}".format(**rows[-1]), flush=True)
    if options.json:
        chip = "" if options.chip == "gfx942" else f" --chip {options.chip}"
        only = "" if options.only == ",".join(PROBLEMS) else f" --only {options.only}"
        command = f"python bench/sim_rows.py --library {options.library}{chip}{only} --json {options.json}"
        report = {"benchmark": "sim_rows", "chip": options.chip, "command": command, "rows": rows}
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
