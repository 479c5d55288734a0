#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer of FP8 experts beside the same layer around Triton's and DeepGEMM's products, on an NVIDIA GPU, the sides taking turns.

    python bench/peer_experts.py --vllm SITE/vllm                     DeepSeek-V3's layer, 1 to 4096 tokens
    python bench/peer_experts.py --deep-gemm SITE/vllm/third_party --tokens 1,64 --json result.json

--vllm is the folder of vLLM's package, of which only the text of two Triton functions and the tables of tuned configurations are
taken; --deep-gemm a folder that has DeepGEMM's package. Sides: `quern`, quern.fused_moe; `triton`, vLLM's fused_moe_kernel with
the fastest of its tuned, its default and some more configurations; `deep_gemm`, m_grouped_fp8_gemm_nt_contiguous. Both peers
have quern's kernels between their products: sorting, quantising, SiLU-and-multiply and the weighted sum, DeepGEMM's also the
fused quantisation, so that only products differ. All sides are replayed in graphs. "apart" is the relative distance from the
layer in float32 of the same quantised weights. Needs torch, triton and the quern package."""

import argparse
import ast
import importlib.util
import json
import os
import pathlib
import sys
import tempfile

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_common import GRAPH_CALLS, Side, device_of, fail, numbers, processor, take_turns, timer_of, versions_of  # noqa: E402

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn
KERNELS = {"fused_moe_kernel", "write_zeros_to_output"}
ALIGNMENT = 128  # of DeepGEMM's groups


# ---- vLLM's Triton kernel

def load_kernel(vllm):
    """Returns the kernel as a function of a module that has nothing but these functions' text: vLLM itself is not imported."""
    text = (pathlib.Path(vllm) / "model_executor/layers/fused_moe/fused_moe.py").read_text()
    parts = [ast.get_source_segment(text, f) for f in ast.parse(text).body if isinstance(f, ast.FunctionDef) and f.name in KERNELS]
    if len(parts) != len(KERNELS):
        fail(f"--vllm: found {len(parts)} of the functions {', '.join(sorted(KERNELS))} in {vllm}")
    path = pathlib.Path(tempfile.mkdtemp(prefix="quern-bench-")) / "vllm_moe.py"  # Triton reads a kernel's text from its file
    path.write_text("import triton\nimport triton.language as tl\n\n" + "\n\n".join(f"@triton.jit\n{p}" for p in parts) + "\n")
    spec = importlib.util.spec_from_file_location("vllm_moe", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.fused_moe_kernel


def configuration(rows, columns, group, warps, stages):
    return {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": group, "num_warps": warps,
            "num_stages": stages}


def configurations(vllm, experts, inner, tokens):
    """Returns what vLLM has tuned for that many experts or for others of such a size, its default, and tiles for many tokens."""
    folder = pathlib.Path(vllm) / "model_executor/layers/fused_moe/configs"
    found = []
    for path in sorted(folder.glob("E=*,N=*,device_name=NVIDIA_H[12]00*,dtype=fp8_w8a8,block_shape=[[]128,128].json")):
        tuned = {int(k): v for k, v in json.loads(path.read_text()).items() if k.isdigit()}
        found.append(tuned[min(tuned, key=lambda m: abs(m - tokens))])
    default = configuration(16 if tokens <= 64 else 64, 64 if tokens <= 8 else 128, 1 if tokens <= 16 else 32, 4, 4 if tokens <= 4 else 3)
    more = [configuration(128, 128, 32, 8, 3), configuration(64, 128, 16, 4, 4), configuration(128, 128, 16, 4, 3)] if tokens > 512 else []
    unique = []
    for c in [default, *more, *found]:
        c = {**c, "BLOCK_SIZE_K": min(c["BLOCK_SIZE_K"], 128)}
        c.pop("SPLIT_K", None)
        if c not in unique:
            unique.append(c)
    return unique


class TritonLayer:
    """The layer as vLLM's fused_experts has it."""

    def __init__(self, quern, kernel, layer, weights, ids):
        self.quern, self.kernel, self.layer, self.weights, self.ids = quern, kernel, layer, weights, ids

    def product(self, config, out, a, scale_a, b, scale_b, sort, top_k, is_weighted):
        import triton
        import triton.language as tl
        pairs = a.shape[0] * top_k
        padded = min(sort[2].shape[0], pairs * config["BLOCK_SIZE_M"])
        grid = (triton.cdiv(padded, config["BLOCK_SIZE_M"]) * triton.cdiv(b.shape[1], config["BLOCK_SIZE_N"]),)
        swaps = config["BLOCK_SIZE_M"] < 64 and config["BLOCK_SIZE_N"] >= 64 and torch.cuda.get_device_capability()[0] == 9
        self.kernel[grid](
            a, b, out, None, scale_a, scale_b, self.weights, sort[2], sort[4], sort[5], b.shape[1], b.shape[2], padded, pairs,
            a.stride(0), 1, b.stride(0), 1, b.stride(1), out.stride(0), 1, scale_a.stride(0), scale_a.stride(1),
            scale_b.stride(0), scale_b.stride(2), scale_b.stride(1), 0, 0, 128, 128, naive_block_assignment=False, SPLIT_K=1,
            MUL_ROUTED_WEIGHT=is_weighted, top_k=top_k, compute_type=tl.bfloat16, use_fp8_w8a8=True, use_int8_w8a8=False,
            use_int8_w8a16=False, per_channel_quant=False, HAS_BIAS=False, SWAP_AB=swaps, USE_TD=False, **config)

    def run(self, x, config):
        layer, top_k = self.layer, self.ids.shape[1]
        pairs, inner = x.shape[0] * top_k, layer.q2[0].shape[2]
        sort = self.quern.moe_sort(self.ids, len(layer.q1[0]), config["BLOCK_SIZE_M"])
        first, last = x.new_empty(pairs, 2 * inner), x.new_empty(pairs, x.shape[1])
        self.product(config, first, *self.quern.quantize_fp8(x), *layer.q1, sort, top_k, False)
        self.product(config, last, *self.quern.moe_activate(first, dtype="e4m3fn"), *layer.q2, sort, 1, True)
        return self.quern.moe_sum(last, row_of_pair=torch.arange(pairs, dtype=torch.int32, device=x.device).view_as(self.ids))

    def fastest(self, x, candidates, timer):
        best = None
        for config in candidates:
            side = Side("", lambda config=config: self.run(x, config))
            try:
                side.run()
            except Exception as error:  # more LDS or registers than there are: Triton has many kinds of errors
                print(f"  {config}: {type(error).__name__}", file=sys.stderr)
                continue
            side.record(torch)
            take_turns([side], timer, argparse.Namespace(runs=5, pause=0, most=5), GRAPH_CALLS)
            if best is None or side.median < best[0]:
                best = side.median, config
        return best[1]


# ---- DeepGEMM

def deep_gemm_layer(quern, deep_gemm, layer, x, weights, ids):
    rows = [t for t in quern.moe_sort(ids, len(layer.q1[0]), ALIGNMENT)]
    count, inner = rows[2].shape[0], layer.q2[0].shape[2]
    columns = lambda n: x.new_empty(-(-n // 128), count, dtype=torch.float32).t()  # noqa: E731 (as DeepGEMM wants scales)
    scale, second = columns(x.shape[1]), columns(inner)
    a, _ = quern.moe_permute(*(lambda q: (q[0], rows[2], ids.shape[1], q[1]))(quern.quantize_fp8(x)), scale_out=scale)
    first, last = x.new_empty(count, 2 * inner), x.new_empty(count, x.shape[1])
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, scale), layer.q1, first, rows[3])
    made, _ = quern.moe_activate(first, dtype="e4m3fn", expert_of_row=rows[3], scale=second)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((made, second), layer.q2, last, rows[3])
    return quern.moe_sum(last, weights, rows[1])


# ---- the layer

class Layer:
    def __init__(self, quern, options):
        e, h, i = options.experts, options.hidden, options.inner
        self.q1, self.q2 = (self.quantized(quern, *shape) for shape in ((e, 2 * i, h), (e, h, i)))

    def quantized(self, quern, experts, rows, columns):
        codes = torch.empty(experts, rows, columns, dtype=E4M3)
        scales = torch.empty(experts, -(-rows // 128), -(-columns // 128))
        for e in range(experts):
            codes[e], scales[e] = quern.quantize_fp8(torch.randn(rows, columns, dtype=BF16).mul_(columns**-0.5), block=(128, 128))
        return codes, scales

    def weight(self, which, e):
        codes, scales = which
        return codes[e].float() * scales[e].repeat_interleave(128, 0).repeat_interleave(128, 1)

    def exact(self, x, weights, ids):
        """Returns the layer in f32, its activations not quantised, of the first tokens."""
        out = torch.zeros(len(x), x.shape[1])
        for t in range(len(x)):
            for w, e in zip(weights[t], ids[t].tolist()):
                gate, up = (self.weight(self.q1, e) @ x[t].float()).chunk(2)
                out[t] += w * (self.weight(self.q2, e) @ (torch.nn.functional.silu(gate) * up))
        return out


def sides_of(quern, layer, tokens, options, timer):
    x = torch.randn(tokens, options.hidden).to(BF16)
    weights, ids = quern.moe_route(torch.randn(tokens, options.experts), options.top_k, renormalize=True)
    (q1, s1), (q2, s2) = layer.q1, layer.q2
    sides = {"quern": lambda: quern.fused_moe(x, q1, q2, weights, ids, w1_scale=s1, w2_scale=s2)}
    config = None
    if options.kernel:
        triton = TritonLayer(quern, options.kernel, layer, weights, ids)
        config = triton.fastest(x, configurations(options.vllm, options.experts, options.inner, tokens), timer)
        sides["triton"] = lambda: triton.run(x, config)
    if options.module:
        sides["deep_gemm"] = lambda: deep_gemm_layer(quern, options.module, layer, x, weights, ids)
    few = slice(0, min(tokens, 4))
    return sides, layer.exact(x[few], weights[few], ids[few]), config


def measure(tokens, quern, layer, options, results):
    timer = timer_of(torch, device_of(torch, options.device))
    sides, wanted, config = sides_of(quern, layer, tokens, options, timer)
    apart = {name: float((run()[:len(wanted)].float() - wanted).norm() / wanted.norm()) for name, run in sides.items()}
    timed = [Side(name, run) for name, run in sides.items()]
    for side in timed:
        side.record(torch)
    take_turns(timed, timer, options, GRAPH_CALLS)
    peer = min((s.median for s in timed[1:]), default=None)
    for side in timed:
        results.append({"tokens": tokens, "side": side.name, "median_us": side.median / 1e3, "best_us": side.best / 1e3,
                        "apart": apart[side.name], **({"configuration": config} if side.name == "triton" else {})})
        ratio = f"{peer / side.median:6.2f} of the fastest peer" if peer else ""
        print(f"{tokens:6} tokens  {side.name:10}{side.median / 1e3:10.1f} us {apart[side.name]:8.1e} apart {ratio}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=numbers, default=[1, 16, 64, 256, 1024, 4096], help="comma list")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--inner", type=int, default=2048)
    parser.add_argument("--top-k", type=int, default=8)
    parser.add_argument("--device", default="cuda:0", help="cuda:N (default: %(default)s)")
    parser.add_argument("--vllm", help="folder of vLLM's package")
    parser.add_argument("--deep-gemm", help="folder that has the package deep_gemm")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each side (default: %(default)s)")
    parser.add_argument("--most", type=float, default=600, help="seconds after which a side runs no more")
    parser.add_argument("--pause", type=float, default=0, help="seconds between runs (default: 0)")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    report = {"options": {k: v for k, v in vars(options).items() if k not in ("vllm", "deep_gemm")}}
    torch.manual_seed(1)
    torch.set_default_device(device_of(torch, options.device))
    import quern
    options.kernel = load_kernel(options.vllm) if options.vllm else None
    options.module = None
    if options.deep_gemm:
        sys.path.insert(0, os.path.abspath(options.deep_gemm))
        import deep_gemm as options_module
        options.module = options_module
    results = []
    with torch.no_grad():
        layer = Layer(quern, options)
        for tokens in options.tokens:
            measure(tokens, quern, layer, options, results)
    if options.json:
        report |= {"processor": processor(), **versions_of(torch, device_of(torch, options.device)), "results": results}
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
