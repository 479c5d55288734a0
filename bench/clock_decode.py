#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's decoding beside AITER's code objects for an MI300X and an MI355X, both on the simulator's clock (docs/clock.md).

    git clone --filter=blob:none --no-checkout https://github.com/ROCm/aiter CLONE
    python bench/clock_decode.py --aiter CLONE                            every case
    python bench/clock_decode.py --only mla-64x4096x16-fp8 --json result.json   this one, without AITER
    python bench/clock_decode.py --aiter CLONE --prepare FOLDER           writes AITER's code objects there: FOLDER is then as
    python bench/clock_decode.py --aiter FOLDER --jobs 60                 good as CLONE, on a machine of more cores

Times are modelled, with the board's power limit and without it, of the sum of a call's kernels; nothing is measured. A case
is one token for each request, from pages of 16 keys in random order (MLA: quern 64, AITER 1): attention of 32 heads
on 8 of 128, or MLA of 512 + 64. q is bf16, but AITER's kernels for MLA's FP8 take q in FP8, too, and so does quern in a case
with "q8" in its name. A case whose name begins with mi355x- is on that chip. Behind an @ stand the keys of a chunk of quern's, or "all". AITER's own merge of MLA's parts is
Triton's and is not in its times; nor do its kernels for attention cut the keys. Each side of a case runs once in a process of
its own, and nothing is in a cache before. The limit is the longer of what the modelled memory takes for the keys and values,
once, and the matrix units at 2.1 GHz (MI355X: 2.4) for the products.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import random
import re
import struct
import subprocess
import sys
import tempfile

import peer_attention
import peer_mla
from peer_common import CODES, CPU, DLTensor

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "sim/clock/calibration"))
from clock_attention import Library, add_options, check_options, command_of, modelled  # noqa: E402
import hip  # noqa: E402
import kernels  # noqa: E402
import objects  # noqa: E402

QO_HEADS, KV_HEADS, DIM = 32, 8, 128  # of attention
LATENT, ROPE = 512, 64  # of MLA
UNITS = {"gfx942": 304, "gfx950": 256}
HBM_GB_S = {"gfx942": 128 * 32.8, "gfx950": 128 * 50}  # sim/chip/timing.c
PEAK_TFLOPS = {"gfx942": {"bf16": 1307.4, "fp8": 2614.9}, "gfx950": {"bf16": 2516.6, "fp8": 5033.2}}
CASES = ["64x4096-bf16", "64x4096-bf16@all", "64x4096-fp8", "64x4096-fp8@all", "8x4096-bf16", "8x4096-fp8",
         "mla-64x4096x16-bf16", "mla-64x4096x16-bf16@1024", "mla-64x4096x16-fp8", "mla-64x4096x16-fp8@1024", "mla-8x4096x16-fp8",
         "mla-64x4096x128-bf16", "mla-64x4096x128-bf16@1024", "mla-64x4096x128-fp8@1024", "mla-64x4096x128-fp8-q8",
         "mla-64x4096x128-fp8-q8@1024", "mi355x-64x4096-bf16", "mi355x-64x4096-fp8", "mi355x-mla-64x4096x16-bf16",
         "mi355x-mla-64x4096x16-fp8", "mi355x-mla-64x4096x128-bf16@1024", "mi355x-mla-64x4096x128-fp8-q8@1024"]
FP8 = {"gfx942": "float8_e4m3fnuz", "gfx950": "float8_e4m3fn"}


class Case:
    def __init__(self, name):
        found = re.fullmatch(r"(?:mi355x-)?(mla-)?(\d+)x(\d+)(?:x(\d+))?-(bf16|fp8)(-q8)?(?:@(\d+|all))?", name)
        if not found or bool(found[1]) != bool(found[4]):
            raise argparse.ArgumentTypeError(f"found {name}, accepted: 64x4096-bf16, mla-64x4096x16-fp8-q8@1024 and the like")
        self.chunk, self.is_mla, self.kind = -1 if found[7] == "all" else int(found[7] or 0), bool(found[1]), found[5]
        self.chip = "gfx950" if name.startswith("mi355x") else "gfx942"
        self.dtypes = {"bf16": "bfloat16", "fp8": FP8[self.chip]}
        self.batch, self.keys, self.heads = int(found[2]), int(found[3]), int(found[4] or QO_HEADS)
        self.q_kind = self.kind if found[6] else "bf16"
        self.page = 64 if self.is_mla else 16
        self.size = 1 if self.kind == "fp8" else 2  # bytes of an element
        self.width = LATENT + ROPE if self.is_mla else 2 * KV_HEADS * DIM
        self.flops = 2 * self.batch * self.heads * self.keys * (2 * LATENT + ROPE if self.is_mla else 2 * DIM)
        self.bytes = self.batch * self.keys * self.width * self.size

    def limit_us(self):
        return max(self.bytes / HBM_GB_S[self.chip] / 1e3, self.flops / PEAK_TFLOPS[self.chip][self.q_kind] / 1e6)

    def order(self, page):
        """Returns the pages of all requests, in a random order that is the same on each side."""
        pages = list(range(self.batch * self.keys // page))
        random.Random(1).shuffle(pages)
        return pages


# ---- quern

class Quern(Library):
    """libquern with tensors in the simulated chip's memory."""

    def __init__(self, path, chip):
        super().__init__(path, chip)
        self.api = hip.Hip(str(pathlib.Path(path).with_name("libquernsim.so.0")))

    def pointer(self, dtype, shape, address=None, strides=None):
        """Returns a tensor at an address, or of new memory whose numbers are small."""
        (code, bits), dims = CODES[dtype], (ctypes.c_int64 * len(shape))(*shape)
        size = bits // 8
        for n in shape:
            size *= n
        on = self.lib.qn_device_id(self.device)
        steps = (ctypes.c_int64 * len(shape))(*strides) if strides else None
        data = self.api.buffer(size, kernels.SMALL) if address is None else address
        tensor = DLTensor(data, on.type, on.id, len(shape), code, bits, 1, dims, steps, 0)
        tensor.keep = dims, steps
        return ctypes.pointer(tensor)

    def filled(self, dtype, raw):
        """Returns a tensor of one dimension with these bytes."""
        count = len(raw) * 8 // CODES[dtype][1]
        out, dims = self.pointer(dtype, [count]), (ctypes.c_int64 * 1)(count)
        host = ctypes.create_string_buffer(raw, len(raw))
        code, bits = CODES[dtype]
        of_host = DLTensor(ctypes.addressof(host), CPU, 0, 1, code, bits, 1, dims, None, 0)
        self.call("qn_copy", self.stream, out, ctypes.byref(of_host))
        self.call("qn_stream_sync", self.stream)
        return out


def numbers(values):
    return (ctypes.c_int32 * len(values))(*values)


def planned(quern, case, page, kv_heads, vo):
    """Returns the members of a call that its plan decides, and what must outlive it."""
    each, ends = case.keys // page, range(case.batch + 1)
    a = peer_attention.PlanArgs(struct_size=ctypes.sizeof(peer_attention.PlanArgs), batches=case.batch,
                                qo_indptr=numbers(list(ends)), kv_indptr=numbers([i * each for i in ends]),
                                kv_last_page_len=numbers([page] * case.batch), page_size=page, num_qo_heads=case.heads,
                                num_kv_heads=kv_heads, head_dim_vo=vo, num_compute_units=UNITS[case.chip],
                                kv_chunk=case.chunk)
    plan, plan_bytes, room_bytes = peer_attention.make_plan(quern, a)
    return {"plan": ctypes.cast(plan, ctypes.c_void_p), "plan_bytes": plan_bytes,
            "schedule": quern.filled("uint8", plan.raw[:plan_bytes]),
            "kv_indices": quern.filled("int32", struct.pack(f"{case.batch * each}i", *case.order(page))),
            "workspace": quern.pointer("uint8", [max(room_bytes, 1)])}, plan


def attention_args(quern, case):
    pages = [case.batch * case.keys // case.page, case.page, KV_HEADS, DIM]
    members, plan = planned(quern, case, case.page, KV_HEADS, DIM)
    tokens, cache = [case.batch, QO_HEADS, DIM], case.dtypes[case.kind]
    args = peer_attention.AttentionArgs(
        struct_size=ctypes.sizeof(peer_attention.AttentionArgs), layout=peer_attention.NHD, o=quern.pointer("bfloat16", tokens),
        q=quern.pointer(case.dtypes[case.q_kind], tokens), k=quern.pointer(cache, pages), v=quern.pointer(cache, pages), **members)
    args.keep = plan
    return "qn_attention", args


def mla_args(quern, case):
    count, row = case.batch * case.keys // case.page, LATENT + ROPE
    cache = quern.api.buffer(case.bytes, kernels.SMALL)
    members, plan = planned(quern, case, case.page, 1, LATENT)
    strides = [case.page * row, row, 1]
    query, rows = case.dtypes[case.q_kind], [case.batch, case.heads]
    args = peer_mla.MlaArgs(
        struct_size=ctypes.sizeof(peer_mla.MlaArgs), o=quern.pointer("bfloat16", [*rows, LATENT]),
        q_nope=quern.pointer(query, [*rows, LATENT]), q_pe=quern.pointer(query, [*rows, ROPE]),
        ckv=quern.pointer(case.dtypes[case.kind], [count, case.page, LATENT], cache, strides),
        kpe=quern.pointer(case.dtypes[case.kind], [count, case.page, ROPE], cache + LATENT * case.size, strides),
        sm_scale=192**-0.5, **members)
    args.keep = plan
    return "qn_mla_decode", args


def run_quern(options, case):
    quern = Quern(options.library, case.chip)
    name, args = (mla_args if case.is_mla else attention_args)(quern, case)
    quern.call(name, quern.stream, ctypes.byref(args))
    quern.call("qn_stream_sync", quern.stream)
    print(quern.lib.qn_last_kernel().decode())


# ---- AITER

PA = {"bf16": "pa_bf16_noquant_gqa8_1tg_4w", "fp8": "pa_bf16_pertokenFp8_gqa8_2tg_4w_hp"}
MLA = {("bf16", 16): "mla_dec_stage1_bf16_a16w16_subQ16_mqa16", ("bf16", 128): "mla_dec_stage1_bf16_a16w16_subQ128_mqa128",
       ("fp8", 16): "mla_a8w8_qh16_qseqlen1_gqaratio16", ("fp8", 128): "mla_a8w8_qh128_m32x4_n16x2_msk1"}


def int32s(api, values):
    """Returns the address of a buffer with these numbers."""
    raw = struct.pack(f"{len(values)}i", *values)
    address = api.buffer(len(raw), 0)
    api.call("hipMemcpy", ctypes.c_void_p(address), raw, ctypes.c_size_t(len(raw)), 1)
    return address


def mangled(name):
    return f"_ZN5aiter{len(name)}{name}E"


def aiter_object(clone, case):
    """Returns the code object of AITER that takes a case, and its name."""
    name = MLA[case.kind, case.heads] if case.is_mla else PA[case.kind]
    return objects.show(clone, case.chip, f"{'mla' if case.is_mla else 'pa'}/{name}.co"), name


def launch_pa(options, case, api):
    """csrc/py_itfs_cu/asm_pa.cu"""
    image, name = aiter_object(options.aiter, case)
    each, tokens = case.keys // case.page, case.batch * QO_HEADS * DIM * 2
    half, page_bytes = case.bytes // 2, KV_HEADS * case.page * DIM * case.size
    scales = 4 * case.batch * case.keys * KV_HEADS
    block = kernels.pack([
        api.buffer(tokens, kernels.ZERO), api.buffer(tokens, kernels.SMALL), api.buffer(half, kernels.SMALL),
        api.buffer(half, kernels.SMALL), int32s(api, case.order(case.page)), int32s(api, [case.keys] * case.batch),
        *(api.buffer(scales, kernels.SMALL) if case.kind == "fp8" else 0 for _ in "kv"),
        math.log2(math.e) / DIM**0.5, each, KV_HEADS, QO_HEADS * DIM * 2, page_bytes, case.page * DIM * case.size, 0,
        case.heads // KV_HEADS, 0])
    api.launch(api.kernel(image, mangled(name)), (KV_HEADS, case.batch, 1), 256, block)
    return name


def parts_of(case):
    """Returns into how many parts aiter/mla.py cuts the keys."""
    def score(parts):
        groups = case.batch * parts
        return groups / (math.ceil(groups / UNITS[case.chip]) * UNITS[case.chip]) * case.keys / (case.keys + 84.1 * parts)
    return max(range(1, 17), key=score)


def launch_mla(options, case, api):
    """csrc/py_itfs_cu/asm_mla.cu; the parts' merge is not launched."""
    (image, name), parts, row = aiter_object(options.aiter, case), parts_of(case), LATENT + ROPE
    rows, tokens = case.batch * parts * case.heads, case.batch * case.keys
    scale = api.buffer(4, kernels.SMALL)
    block = kernels.pack([
        api.buffer(4 * rows * LATENT, kernels.ZERO), api.buffer(4 * rows, kernels.ZERO),
        api.buffer(case.batch * case.heads * row * 2, kernels.SMALL), api.buffer(case.bytes, kernels.SMALL),
        int32s(api, [i * case.keys for i in range(case.batch + 1)]), int32s(api, case.order(1)), int32s(api, [1] * case.batch),
        192**-0.5, case.heads, parts, case.heads * row * (1 if case.kind == "fp8" else 2), row * case.size, 0,
        int32s(api, range(case.batch + 1)), int32s(api, [i * parts for i in range(case.batch + 1)]), 0, scale, scale,
        int(parts == 1), 0, 0, 1, 0])
    tile = 16 if case.kind == "bf16" and case.heads == 16 else 128
    api.launch(api.kernel(image, mangled(name)), (math.ceil(case.heads / tile), case.batch, parts), 256, block)
    return f"{name} x {parts}"


def run_aiter(options, case):
    api = hip.Hip(str(pathlib.Path(options.library).with_name("libquernsim.so.0")))
    print((launch_mla if case.is_mla else launch_pa)(options, case, api))


# ---- all sides

def model(options, name, side):
    """Returns what the clock says of a side of a case."""
    case = Case(name)
    with tempfile.TemporaryDirectory() as folder:
        profile = pathlib.Path(folder) / "profile.json"
        env = dict(os.environ, QUERN_SIM=f"arch={case.chip};clock=sample;profile={profile}")
        done = subprocess.run([sys.executable, __file__, "--library", options.library, "--aiter", options.aiter or "",
                               "--one", name, side], env=env, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{name}, {side}: {done.stderr.strip()}")
        clocks = [k["clock"] for k in json.loads(profile.read_text())["kernels"]]
    ns = sum(c["ns"] for c in clocks)
    return {"case": name, "chip": case.chip, "side": side, "kernel": done.stdout.strip(), "us": ns / 1e3,
            "us_without_limit": sum(c["unlimited_ns"] for c in clocks) / 1e3, "kernels_us": [c["ns"] / 1e3 for c in clocks],
            "tflops": round(case.flops / ns / 1e3, 1), "gb_s": round(case.bytes / ns, 1), "of_limit": case.limit_us() * 1e3 / ns}


def sides_of(options, name):
    """Returns a case's sides; AITER's kernels have no choice of a chunk."""
    return ("quern", "aiter") if options.aiter and "@" not in name else ("quern",)


def prepare(options):
    with objects.exporting(options.prepare):
        for name in options.only or CASES:
            if "aiter" in sides_of(options, name):
                aiter_object(options.aiter, Case(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    options = parser.parse_args()
    check_options(parser, options)
    if options.one:
        name, side = options.one
        return {"quern": run_quern, "aiter": run_aiter}[side](options, Case(name))
    if options.prepare:
        return prepare(options)
    report = {"benchmark": "clock_decode", "times": "modelled", "aiter": objects.COMMIT, "results": []}
    if options.json:
        report["command"] = command_of("clock_decode", options)
    print(f"{'case':24} {'side':6} {'us':>9} {'no limit':>9} {'TFLOP/s':>8} {'GB/s':>7} {'of limit':>8}")
    tasks = [(name, side) for name in options.only or CASES for side in sides_of(options, name)]
    for r in modelled(options, tasks, lambda task: model(options, *task), lambda task: Case(task[0]).flops):
        report["results"].append(r)
        print(f"{r['case']:24} {r['side']:6} {r['us']:9.1f} {r['us_without_limit']:9.1f} {r['tflops']:8.1f} {r['gb_s']:7.0f} "
              f"{r['of_limit']:8.0%} {r['kernel']}", flush=True)
        if options.json:
            options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
