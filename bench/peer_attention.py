#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern's attention beside each backend of PyTorch's scaled_dot_product_attention, in one process, the sides taking turns.

    python bench/peer_attention.py                              prompts of 1024 and a decoding step, one and two threads
    python bench/peer_attention.py --seq 256,1024,4096          other lengths
    python bench/peer_attention.py --dim 64                     heads of another size
    python bench/peer_attention.py --device cuda:0              on a GPU, timed with its events
    python bench/peer_attention.py --device cuda:0 --graph      replayed in a CUDA graph, so without the host's part
    python bench/peer_attention.py --device cuda:0 --graph --seq "" --caches 64x4096,1x16384 --page 16
                                                                decoding alone, from pages of 16 keys
    python bench/peer_attention.py --device cuda:0 --graph --seq "" --caches "" --batches 1x8192,4x2048
                                                                batches of causal prompts, ragged; --page 16: from pages
    python bench/peer_attention.py --device cuda:0 --graph --seq "" --caches 64x4096 --page 16 --kv e4m3fn
                                                                quern's keys and values in FP8; beside it quern's in bf16
    python bench/peer_attention.py --json result.json           the figures for programs as well

bf16. With --kv e4m3fn quern reads codes, and the other sides the same numbers in bf16: GB/s are of each side's own bytes. A
prompt is a batch of one with 24 heads of 128; decoding is one token for each of eight caches of 4096 keys (--caches),
32 heads on 8. With --page quern, and FlashInfer if it is installed, read the caches from pages in random order; PyTorch's
backends read dense ones. --batches are prompts of equal lengths, causal, 32 heads on 8 (--heads), which quern and FlashInfer
read by a plan as ragged tensors, as engines send them, or keys from pages; the backends get them dense. Prompts are given as
arithmetic, that of causal ones without what the mask leaves out, decoding as GB/s of the cache's keys and values. A backend
that does not take a problem is "-", and the JSON says why. The ratio is to the fastest of them; above 1 quern is faster. It
compares medians, `of best` each side's fastest run, which other programs on the machine disturb less. Needs torch.
"""

import argparse
import copy
import ctypes
import importlib.util
import json
import warnings

import peer_common
from peer_common import GRAPH_CALLS, DLTensor, Side, numbers, take_turns, timer_of

BACKENDS = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
NHD, HND = 0, 1
QO_HEADS, KV_HEADS = 32, 8  # of decoding, and of batches unless --heads says others


# ---- quern

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


class Attention:
    """The arguments of qn_attention on dense tensors [batch, heads, length, dim]."""

    def __init__(self, o, q, k, v, causal):
        self.tensors, self.causal = {"o": o, "q": q, "k": k, "v": v}, causal

    def make(self, quern):
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in self.tensors.items()}
        args = AttentionArgs(struct_size=ctypes.sizeof(AttentionArgs), layout=HND, is_causal=self.causal, **pointers)
        size = ctypes.c_int64()
        quern.call("qn_attention_workspace_bytes", ctypes.byref(size), ctypes.byref(args))
        if size.value:
            room = quern.torch.empty(size.value, dtype=quern.torch.uint8, device=self.tensors["q"].device)
            pointers["workspace"] = args.workspace = ctypes.pointer(quern.tensor(room))
        args.keep = pointers
        return args


class PlanArgs(ctypes.Structure):
    """qn_attention_plan_args."""
    _fields_ = [("struct_size", ctypes.c_size_t), ("batches", ctypes.c_int64), ("qo_indptr", ctypes.POINTER(ctypes.c_int32)),
                ("qo_len", ctypes.c_int64), ("kv_indptr", ctypes.POINTER(ctypes.c_int32)),
                ("kv_last_page_len", ctypes.POINTER(ctypes.c_int32)), ("kv_lens", ctypes.POINTER(ctypes.c_int32)),
                *((name, ctypes.c_int64) for name in (
                    "kv_len", "page_size", "num_qo_heads", "num_kv_heads", "head_dim_vo", "kv_chunk", "max_kv_splits", "q_tile",
                    "num_compute_units", "max_qo_len", "max_kv_len")),
                ("is_for_graph", ctypes.c_int32)]


def make_plan(quern, args):
    """Returns (a plan's memory, its bytes, the workspace's bytes)."""
    plan_bytes, room_bytes = ctypes.c_int64(), ctypes.c_int64()
    for _ in range(2):  # the sizes, then the plan
        plan = ctypes.create_string_buffer(plan_bytes.value) if plan_bytes.value else None
        quern.call("qn_attention_plan", plan, ctypes.byref(plan_bytes), ctypes.byref(room_bytes), ctypes.byref(args))
    return plan, plan_bytes.value, room_bytes.value


class Pages:
    """Caches [batch, heads, keys, dim] again as pages [pages, page, heads, dim], in random order."""

    def __init__(self, torch, page, *caches):
        self.page, self.batch, self.keys = page, caches[0].shape[0], caches[0].shape[2]
        self.each = -(-self.keys // page)  # pages of a request
        self.last = self.keys - (self.each - 1) * page
        self.indices = torch.randperm(self.batch * self.each, device=caches[0].device, dtype=torch.int32)
        self.caches = [self.cut(torch, cache) for cache in caches]

    def cut(self, torch, cache):
        batch, heads, _, dim = cache.shape
        rows = torch.nn.functional.pad(cache.transpose(1, 2), (0, 0, 0, 0, 0, self.page - self.last))
        pages = torch.empty(batch * self.each, self.page, heads, dim, dtype=cache.dtype, device=cache.device)
        pages[self.indices.long()] = rows.reshape(pages.shape)
        return pages

    def encoded(self, dtype):
        """Returns the same pages with elements of another dtype."""
        pages = copy.copy(self)
        pages.caches = [cache.to(dtype) for cache in self.caches]
        return pages

    def indptr(self, step):
        return range(0, (self.batch + 1) * step, step)


class PlannedAttention:
    """The arguments of qn_attention for a batch with a plan. o and q are [batch, heads, length, dim], whose tokens lie one after the
    other; k and v are Pages, or such tensors as q."""

    def __init__(self, o, q, keys, causal=False):
        self.batch, self.heads, self.length, _ = q.shape
        self.o, self.q = self.tokens(o), self.tokens(q)
        self.pages = keys if isinstance(keys, Pages) else None
        self.keys = keys.caches if self.pages else [self.tokens(t) for t in keys]
        self.kv_length = keys.keys if self.pages else keys[0].shape[2]
        self.causal = causal

    @staticmethod
    def tokens(t):
        return t.transpose(1, 2).view(-1, t.shape[1], t.shape[3])

    def plan(self, quern):
        def numbers(values):
            return (ctypes.c_int32 * len(values))(*values)
        p, ends = self.pages, range(self.batch + 1)
        args = PlanArgs(struct_size=ctypes.sizeof(PlanArgs), batches=self.batch, qo_indptr=numbers([i * self.length for i in ends]),
                        kv_indptr=numbers(p.indptr(p.each) if p else [i * self.kv_length for i in ends]),
                        kv_last_page_len=numbers([p.last] * p.batch) if p else None, page_size=p.page if p else 0,
                        num_qo_heads=self.heads, num_kv_heads=self.keys[0].shape[-2], head_dim_vo=self.keys[1].shape[-1])
        return make_plan(quern, args)

    def make(self, quern):
        torch, device = quern.torch, self.q.device
        plan, plan_bytes, room_bytes = self.plan(quern)
        tensors = {"o": self.o, "q": self.q, "k": self.keys[0], "v": self.keys[1],
                   "schedule": torch.frombuffer(plan, dtype=torch.uint8).to(device),
                   "workspace": torch.empty(max(room_bytes, 1), dtype=torch.uint8, device=device)}
        if self.pages:
            tensors["kv_indices"] = self.pages.indices
        pointers = {name: ctypes.pointer(quern.tensor(t)) for name, t in tensors.items()}
        args = AttentionArgs(struct_size=ctypes.sizeof(AttentionArgs), layout=NHD, plan=ctypes.cast(plan, ctypes.c_void_p),
                             plan_bytes=plan_bytes, is_causal=self.causal, **pointers)
        args.keep = pointers, plan
        return args


# ---- peers

class Peer(Side):
    """A side that quern is compared with."""

    refused = None  # why it does not take the problem

    def forced(self, function):
        return function()

    def figures(self, flops, cache_bytes):
        if not self.times:
            return {"refused": self.refused}
        return {"ms": self.median / 1e6, "best_ms": self.best / 1e6, "runs": len(self.times),
                "gflops": flops / self.median, "gb_s": cache_bytes / self.median}


FLASHINFER_ROOM = 256 << 20  # bytes


def on_device(torch, q, *lists):
    return [torch.tensor(list(numbers), dtype=torch.int32, device=q.device) for numbers in lists]


def flashinfer_decode(torch, q, pages):
    """Returns FlashInfer's decode with its tensor cores, which reads the same pages."""
    import flashinfer
    room = torch.empty(FLASHINFER_ROOM, dtype=torch.uint8, device=q.device)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(room, "NHD", use_tensor_cores=True)
    indptr, last = on_device(torch, q, pages.indptr(pages.each), [pages.last] * pages.batch)
    wrapper.plan(indptr, pages.indices, last, QO_HEADS, KV_HEADS, q.shape[-1], pages.page, q_data_type=q.dtype,
                 kv_data_type=q.dtype)
    tokens = q.view(q.shape[0], q.shape[1], q.shape[3])
    return Peer("flashinfer", lambda: wrapper.run(tokens, tuple(pages.caches)).view(q.shape))


def flashinfer_prefill(torch, ours):
    """Returns FlashInfer's causal prefill of the same ragged tensors or pages."""
    import flashinfer
    p, q = ours.pages, ours.q
    room, ends = torch.empty(FLASHINFER_ROOM, dtype=torch.uint8, device=q.device), range(ours.batch + 1)
    heads, types = (q.shape[1], ours.keys[0].shape[-2], q.shape[2]), {"q_data_type": q.dtype, "kv_data_type": q.dtype}
    qo, kv, pages = on_device(torch, q, [i * ours.length for i in ends], [i * ours.kv_length for i in ends],
                              p.indptr(p.each) if p else [])
    if p:
        wrapper, last = flashinfer.BatchPrefillWithPagedKVCacheWrapper(room, "NHD"), on_device(torch, q, [p.last] * p.batch)[0]
        wrapper.plan(qo, pages, p.indices, last, *heads, p.page, causal=True, **types)
    else:
        wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(room, "NHD")
        wrapper.plan(qo, kv, *heads, head_dim_vo=ours.o.shape[2], causal=True, **types)
    keys = (tuple(ours.keys),) if p else tuple(ours.keys)
    shape = ours.batch, ours.length, *ours.o.shape[1:]
    return Peer("flashinfer", lambda: wrapper.run(q, *keys).view(shape).transpose(1, 2))


class Backend(Peer):
    """One of PyTorch's backends, forced; `refused` says why it does not take the problem."""

    def __init__(self, torch, name, run):
        super().__init__(name, run)
        self.attention = torch.nn.attention
        self.backend = getattr(self.attention.SDPBackend, BACKENDS[name], None)
        if self.backend is None:
            self.refused = f"PyTorch {torch.__version__} does not have it"

    def forced(self, function):
        """Returns the function's result with no other backend allowed, or None if the backend refuses."""
        if self.refused:
            return None
        with warnings.catch_warnings(record=True) as said, self.attention.sdpa_kernel(self.backend):
            warnings.simplefilter("always")
            try:
                return function()
            except RuntimeError as error:
                self.refused = reason_of(error, said)
        return None

    def timed(self, measure):
        return self.forced(lambda: measure(self.run))

    def record(self, torch):
        self.forced(lambda: super(Backend, self).record(torch))


def reason_of(error, said):
    """Returns a backend's reason. PyTorch warns of each backend's reasons, then raises an error that says nothing."""
    texts = [str(warning.message).split(" (Triggered internally")[0].strip() for warning in said]
    reasons = [text for text in texts if not text.endswith("because:") and "runtime disabled" not in text]
    return "; ".join(reasons or [(str(error) or repr(error)).splitlines()[0]])[:400]


# ---- the measurement

CAUSAL = "causal", "batch"


def tensors_of(torch, options, device, problem):
    """Returns o, q, k and v, [batch, heads, length, dim]; those of a batch lie as engines have them, token after token."""
    _, kind, _, q_shape, kv_shape = problem
    v_shape = *kv_shape[:3], options.dim_v or options.dim
    o_shape = *q_shape[:3], v_shape[3]

    def make(fill, shape):
        if kind != "batch":
            return fill(shape, dtype=torch.bfloat16, device=device)
        return fill((shape[0], shape[2], shape[1], shape[3]), dtype=torch.bfloat16, device=device).transpose(1, 2)
    return make(torch.empty, o_shape), *(make(torch.randn, shape) for shape in (q_shape, kv_shape, v_shape))


def problems_of(options):
    """Returns name, kind, length, shapes of q and of k and v."""
    for length in options.seq:
        shape = (1, 24, length, options.dim)
        yield f"prompt of {length}", "prompt", length, shape, shape
        yield f"prompt of {length} causal", "causal", length, shape, shape
    for batch, keys in options.caches:
        name = f"decode {batch} of {keys}" + (f" in {options.page}s" if options.page else "")
        yield name, "decode", keys, (batch, QO_HEADS, 1, options.dim), (batch, KV_HEADS, keys, options.dim)
    for batch, length in options.batches:
        name = f"{batch} prompts of {length}" + (f" in {options.page}s" if options.page else "")
        qo_heads, kv_heads = options.heads
        yield name, "batch", length, (batch, qo_heads, length, options.dim), (batch, kv_heads, length, options.dim)


def ours_of(o, q, keys, kind):
    if isinstance(keys, Pages) or kind == "batch":
        return PlannedAttention(o, q, keys, kind in CAUSAL)
    return Attention(o, q, *keys, kind in CAUSAL)


def in_codes(torch, quern, tensors, pages, kind):
    """Returns quern with keys and values as codes, which writes o, and quern with those of bf16 as its peer."""
    o, q, k, v = tensors
    codes = pages.encoded(torch.float8_e4m3fn) if pages else [t.to(torch.float8_e4m3fn) for t in (k, v)]
    other = torch.empty_like(o)
    plain = quern.prepare("qn_attention", ours_of(other, q, pages or (k, v), kind))

    def run_plain():
        plain()
        return other
    return [Side("quern", quern.prepare("qn_attention", ours_of(o, q, codes, kind))), Peer("quern bf16", run_plain)]


def sides_of(torch, quern, options, tensors, kind):
    o, q, k, v = tensors
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}

    def theirs():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=kind in CAUSAL, **grouped)
    pages = Pages(torch, options.page, k, v) if options.page and kind in ("decode", "batch") else None
    ours = ours_of(o, q, pages or (k, v), kind)
    sides = [Side("quern", quern.prepare("qn_attention", ours)), *(Backend(torch, name, theirs) for name in options.backends)]
    if options.kv != "bf16":
        sides[:1] = in_codes(torch, quern, tensors, pages, kind)
    if (kind == "batch" or pages) and q.is_cuda and importlib.util.find_spec("flashinfer"):
        sides.append(flashinfer_prefill(torch, ours) if kind == "batch" else flashinfer_decode(torch, q, pages))
    return sides


def beside_best(sides, flops, our_bytes, cache_bytes):
    """Returns quern's figures, every peer's, and those of the fastest peer as "torch"."""
    ours, backends = sides[0], {side.name: side.figures(flops, cache_bytes) for side in sides[1:]}
    row = {"quern_ms": ours.median / 1e6, "quern_best_ms": ours.best / 1e6, "quern_gflops": flops / ours.median,
           "quern_gb_s": our_bytes / ours.median, "backends": backends}
    ran = [side for side in sides[1:] if side.times]
    if not ran:
        return row, None
    best = min(ran, key=lambda side: side.median)
    names = {"ms": "torch_ms", "best_ms": "torch_best_ms", "gflops": "torch_gflops", "gb_s": "torch_gb_s"}
    row |= {names[key]: backends[best.name][key] for key in names}
    row |= {"torch_backend": best.name, "ratio": best.median / ours.median,
            "best_ratio": min(side.best for side in ran) / ours.best}
    return row, best


def difference(o, best):
    theirs = best.forced(getattr(best, "recorded", best.run))
    return (o.float() - theirs.float()).abs().max().item()


def measure(torch, quern, options, device, problem):
    name, kind, length, q_shape, kv_shape = problem
    o, q, k, v = tensors_of(torch, options, device, problem)
    if options.kv != "bf16":
        k, v = (t.to(torch.float8_e4m3fn).to(t.dtype) for t in (k, v))
    causal = kind in CAUSAL
    sides = sides_of(torch, quern, options, (o, q, k, v), kind)
    sides[0].run()
    kernel = quern.lib.qn_last_kernel().decode()
    if options.graph:
        for side in sides:
            side.record(torch)
    take_turns(sides, timer_of(torch, device), options, GRAPH_CALLS if options.graph else 1)
    scores = q_shape[2] * kv_shape[2] - (length * (length - 1) // 2 if causal else 0)
    flops = 2 * q_shape[0] * q_shape[1] * (q_shape[3] + v.shape[3]) * scores
    cache_bytes = (k.numel() + v.numel()) * k.element_size()
    row, best = beside_best(sides, flops, cache_bytes // (1 if options.kv == "bf16" else 2), cache_bytes)
    on_cpu = device.type == "cpu"
    return {"problem": name, "kind": kind, "seq": length, "device": str(device), "graph": options.graph,
            "threads": options.threads_here if on_cpu else None, "runs": options.runs, "flops": flops,
            "cache_bytes": cache_bytes, "kernel": kernel, "torch": torch.__version__, **row,
            "largest_difference": difference(o, best) if best else None}


def worker(options):
    """Runs all problems with one number of threads, and prints JSON."""
    import torch
    import torch.nn.attention
    device = peer_common.device_of(torch, options.device)
    torch.manual_seed(1)
    if device.type == "cpu":
        torch.set_num_threads(options.threads_here)
    quern = peer_common.Quern(torch, options.library, device)
    with torch.no_grad():
        rows = [measure(torch, quern, options, device, problem) for problem in problems_of(options)]
    print(json.dumps({"versions": peer_common.versions_of(torch, device), "rows": rows}))


def caches(text):
    try:
        return [tuple(int(number) for number in word.split("x", 1)) for word in text.split(",") if word]
    except ValueError:
        raise argparse.ArgumentTypeError(f"found {text}, accepted: BATCHxKEYS,…, such as 64x4096,1x16384") from None


def lengths(text):
    return numbers(text) if text else []


def names(text):
    words = text.split(",")
    if set(words) - set(BACKENDS):
        raise argparse.ArgumentTypeError(f"found {text}, accepted: {', '.join(BACKENDS)}")
    return words


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seq", type=lengths, default=[1024], help="lengths of prompts, comma list; may be empty")
    parser.add_argument("--dim", type=int, default=128, help="head_dim (default: %(default)s)")
    parser.add_argument("--dim-v", type=int, default=0, help="head_dim of v and o (default: that of q and k)")
    parser.add_argument("--batches", type=caches, default=[], help="comma list of batches of prompts, BATCHxLENGTH each")
    parser.add_argument("--heads", type=numbers, default=[QO_HEADS, KV_HEADS], help="of batches: query heads, kv heads (default: 32,8)")
    parser.add_argument("--caches", type=caches, default=[(8, 4096)],
                        help="comma list of decoding steps, BATCHxKEYS each; may be empty (default: 8x4096)")
    parser.add_argument("--page", type=int, default=0, help="keys of a page; 0: dense caches (default: %(default)s)")
    parser.add_argument("--kv", choices=["bf16", "e4m3fn"], default="bf16", help="quern's keys and values (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu, cuda:N or hip:N")
    parser.add_argument("--graph", action="store_true", help="on a GPU: replay recorded calls")
    parser.add_argument("--backends", type=names, default=list(BACKENDS), help="comma list of: " + ", ".join(BACKENDS))
    peer_common.add_options(parser)
    parser.set_defaults(most=5)
    options = parser.parse_args()
    if options.graph and options.device == "cpu":
        parser.error("--graph: the CPU has no graphs")
    return options


def unit_of(row):
    """Returns the unit of the row's speeds: its name, the sides' key, how many of theirs make one."""
    if row["kind"] == "decode":
        return "GB/s", "gb_s", 1
    return ("GFLOP/s", "gflops", 1) if row["device"] == "cpu" else ("TFLOP/s", "gflops", 1000)


def print_table(result):
    rows = result["rows"]
    sides = list(rows[0]["backends"])
    print(f"{result['versions'].get('device', result['processor'])}; torch {rows[0]['torch']}; medians of {rows[0]['runs']} runs")
    print(f"{'threads':>7} {'problem':22} {'quern ms':>9} {'unit':>7} {'quern':>8}" + "".join(f"{s:>11}" for s in sides) +
          f" {'ratio':>6} {'of best':>7}  kernel")
    for r in rows:
        unit, key, scale = unit_of(r)
        speeds = "".join(f"{b[key] / scale:11.1f}" if key in b else f"{'-':>11}" for b in r["backends"].values())
        ratios = f"{r['ratio']:6.2f} {r['best_ratio']:7.2f}" if "ratio" in r else f"{'-':>6} {'-':>7}"
        print(f"{r['threads'] or '-':>7} {r['problem']:22} {r['quern_ms']:9.3f} {unit:>7} {r['quern_' + key] / scale:8.1f}"
              f"{speeds} {ratios}  {r['kernel']}")


def main():
    options = parse()
    if options.threads_here:
        worker(options)
        return
    peer_common.need("torch")
    result = peer_common.collect(options.threads if options.device == "cpu" else [1])
    peer_common.publish(result, options.json, print_table)


if __name__ == "__main__":
    main()
