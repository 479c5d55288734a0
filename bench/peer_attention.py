#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's attention beside PyTorch's scaled_dot_product_attention on the CPU, in one process, the sides taking turns.

    python bench/peer_attention.py                              prompts of 1024 and a decoding step, one and two threads
    python bench/peer_attention.py --seq 256,1024,4096          other lengths
    python bench/peer_attention.py --json result.json           the figures for programs as well

bf16. A prompt is a batch of one with 24 heads of 128; decoding is one token for each of eight caches of 4096 keys, 32
heads on 8. A ratio above 1 means that quern is faster; it compares medians, `of best` each side's fastest run, which
other programs on the machine disturb less. GB/s are of keys and values. Needs torch and numpy.
"""

import argparse
import ctypes
import json
import pathlib
import statistics
import sys

from peers import DLTensor, Quern, dl_tensor, numbers, of_child, processor, take_turns


class AttentionArgs(ctypes.Structure):
    """include/quern/attention.h."""
    _fields_ = [("struct_size", ctypes.c_size_t)] + [
        (name, ctypes.POINTER(DLTensor)) for name in ("o", "lse", "q", "k", "v")] + [
        ("layout", ctypes.c_int32), ("kv_indices", ctypes.POINTER(DLTensor)),
        ("plan", ctypes.c_void_p), ("plan_bytes", ctypes.c_int64),
        ("schedule", ctypes.POINTER(DLTensor)), ("workspace", ctypes.POINTER(DLTensor)),
        ("is_causal", ctypes.c_int32), ("is_top_left", ctypes.c_int32),
        ("has_window_left", ctypes.c_int32), ("has_window_right", ctypes.c_int32),
        ("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64),
        ("custom_mask", ctypes.POINTER(DLTensor)), ("mask", ctypes.POINTER(DLTensor)),
        ("pos_encoding", ctypes.c_int32), ("rope_scale", ctypes.c_float), ("rope_theta", ctypes.c_float),
        ("sm_scale", ctypes.c_float), ("logits_soft_cap", ctypes.c_float),
        ("q_scale", ctypes.c_float), ("k_scale", ctypes.c_float), ("v_scale", ctypes.c_float),
        ("q_scales", ctypes.POINTER(DLTensor)), ("k_scales", ctypes.POINTER(DLTensor)),
        ("v_scales", ctypes.POINTER(DLTensor)), ("sinks", ctypes.POINTER(DLTensor)),
        ("dropout_p", ctypes.c_float), ("dropout_seed", ctypes.c_uint64), ("dropout_offset", ctypes.c_uint64),
        ("lse_base", ctypes.c_int32)]


HND = 1


def attention(torch, quern, o, q, k, v, causal):
    """A function that runs quern's; all that Python must prepare is prepared here."""
    tensors = [dl_tensor(t) for t in (o, q, k, v)]
    pointers = [ctypes.pointer(t) for t in tensors]
    args = AttentionArgs(struct_size=ctypes.sizeof(AttentionArgs), o=pointers[0], q=pointers[1], k=pointers[2],
                         v=pointers[3], layout=HND, is_causal=causal)
    size = ctypes.c_int64()
    quern.call("qn_attention_workspace_bytes", ctypes.byref(size), ctypes.byref(args))
    room = torch.empty(size.value // 4 + 1, dtype=torch.int32)
    workspace = dl_tensor(room.view(torch.int32))
    workspace.code, workspace.bits, workspace.shape[0] = 1, 8, max(size.value, 1)  # as bytes
    args.workspace = ctypes.pointer(workspace)

    def run():
        if quern.lib.qn_attention(quern.stream, ctypes.byref(args)) != 0:
            sys.exit(f"peer_attention.py: {quern.lib.qn_last_error().decode()}")
    run.keep = (tensors, pointers, args, room, workspace)
    return run


def measure(torch, quern, options, name, q_shape, kv_shape, causal):
    q, k, v = (torch.randn(shape, dtype=torch.bfloat16) for shape in (q_shape, kv_shape, kv_shape))
    o = torch.empty_like(q)
    ours = attention(torch, quern, o, q, k, v, causal)
    grouped = q_shape[1] != kv_shape[1]

    def theirs():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
    times = take_turns((lambda i: ours(), lambda i: theirs()), options.runs, options.pause)
    medians = [statistics.median(t) / 1e6 for t in times]
    scores = q_shape[2] * kv_shape[2] - (q_shape[2] * (q_shape[2] - 1) // 2 if causal else 0)
    flops = 4 * q_shape[0] * q_shape[1] * q_shape[3] * scores
    cache = 2 * k.numel() * 2
    error = (o.float() - theirs().float()).abs().max().item()
    return {"problem": name, "threads": options.threads_here, "runs": options.runs, "quern_ms": medians[0],
            "torch_ms": medians[1], "quern_best_ms": times[0][0] / 1e6, "torch_best_ms": times[1][0] / 1e6,
            "ratio": medians[1] / medians[0], "best_ratio": times[1][0] / times[0][0],
            "quern_gflops": flops / medians[0] * 1e-6, "torch_gflops": flops / medians[1] * 1e-6,
            "quern_gb_s": cache / medians[0] * 1e-6, "torch_gb_s": cache / medians[1] * 1e-6, "largest_difference": error,
            "kernel": quern.lib.qn_last_kernel().decode(), "torch": torch.__version__}


def worker(options):
    """All problems with one number of threads; prints a JSON list."""
    import torch
    torch.manual_seed(1)
    torch.set_num_threads(options.threads_here)
    quern = Quern(options.library)
    rows = []
    for length in options.seq:
        shape = (1, 24, length, 128)
        for causal in (False, True):
            rows.append(measure(torch, quern, options, f"prompt of {length}{' causal' if causal else ''}", shape, shape,
                                causal))
    rows.append(measure(torch, quern, options, "decode", (8, 32, 1, 128), (8, 8, 4096, 128), False))
    print(json.dumps(rows))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", type=numbers, default=[1024], help="lengths of prompts, comma list")
    parser.add_argument("--threads", type=numbers, default=[1, 2], help="numbers of threads, comma list")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each side")
    parser.add_argument("--pause", type=float, default=0.002, help="seconds between runs, as in peers.py")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--library", help="libquern.so")
    parser.add_argument("--threads-here", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = parse()
    if options.threads_here:
        worker(options)
        return
    rows = []
    for threads in options.threads:  # a process each: both libraries make their threads once
        rows += of_child(threads)
    print(f"{processor()}; torch {rows[0]['torch']}; medians of {options.runs} runs")
    print(f"{'threads':>7} {'problem':22} {'quern ms':>9} {'torch ms':>9} {'quern GF/s':>11} {'torch GF/s':>11}"
          f" {'quern GB/s':>11} {'ratio':>6} {'of best':>7}  kernel")
    for r in rows:
        print(f"{r['threads']:7} {r['problem']:22} {r['quern_ms']:9.3f} {r['torch_ms']:9.3f} {r['quern_gflops']:11.1f}"
              f" {r['torch_gflops']:11.1f} {r['quern_gb_s']:11.1f} {r['ratio']:6.2f} {r['best_ratio']:7.2f}  {r['kernel']}")
    if options.json:
        command = " ".join(["python", "bench/peer_attention.py", *sys.argv[1:]])
        result = {"processor": processor(), "command": command, "rows": rows}
        pathlib.Path(options.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
