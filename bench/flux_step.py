#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One step of a transformer of FLUX.1-dev's shape with random weights: PyTorch's ops beside quern's, in bf16 and with FP8 products.

    python bench/flux_step.py                          19 double and 38 single blocks, 4096 + 512 tokens, 24 heads of 128, on cuda:0
    python bench/flux_step.py --sides eager,bf16       some of the sides
    python bench/flux_step.py --device cpu --scale 24  anywhere, to see that it works; times of a scale above 1 say nothing
    python bench/flux_step.py --json result.json       the figures for programs as well

The sides: `eager`, PyTorch's ops, on GPUs with cuDNN's attention; `compile`, the same with each
block compiled by torch.compile; `bf16`, quern's ops and matrix products with bias, GELU, gate and residual inside; `fp8`, the same
with products of FP8, whose weights have a scale for each 128 x 128 and whose activations are quantised by groups of 128 where they
are made. Sides take turns, each a CUDA graph of one step. "apart" is the relative distance from `eager`'s result.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from peer_common import device_of, fail, processor, timer_of, versions_of  # noqa: E402

import quern  # noqa: E402

DIM, BF16 = 128, torch.bfloat16


class Sizes:
    def __init__(self, options):
        self.heads = max(1, 24 // options.scale)
        self.text, self.side = max(1, 512 // options.scale**2), max(2, 64 // options.scale)
        self.tokens = self.text + self.side**2
        self.width = self.heads * DIM
        self.double, self.single = options.blocks


# ---- weights

class Linear:
    """A layer's weights, also in FP8 with a scale for each block of 128 x 128."""

    def __init__(self, n, k):
        self.weight = torch.randn(n, k).mul_(k**-0.5).to(BF16)
        self.bias = torch.randn(n).mul_(0.02).to(BF16)
        self.quantized, self.scale = quern.quantize_fp8(self.weight, (128, 128))


class Stream:
    """What a double block has of the text, and again of the picture."""

    def __init__(self, width):
        self.modulation, self.qkv, self.out = Linear(6 * width, width), Linear(3 * width, width), Linear(width, width)
        self.up, self.down = Linear(4 * width, width), Linear(width, 4 * width)
        self.norms = [1 + 0.1 * torch.randn(DIM).to(BF16) for _ in "qk"]


class Single:
    def __init__(self, width):
        self.modulation, self.qkv = Linear(3 * width, width), Linear(3 * width, width)
        self.up, self.out = Linear(4 * width, width), Linear(width, 5 * width)
        self.norms = [1 + 0.1 * torch.randn(DIM).to(BF16) for _ in "qk"]


class Model:
    def __init__(self, sizes):
        self.sizes, width = sizes, sizes.width
        self.double = [(Stream(width), Stream(width)) for _ in range(sizes.double)]
        self.single = [Single(width) for _ in range(sizes.single)]
        self.text, self.picture = (torch.randn(n, width).to(BF16) for n in (sizes.text, sizes.tokens - sizes.text))
        self.time = torch.randn(1, width).to(BF16)
        places = torch.zeros(sizes.tokens, 3)
        places[sizes.text:, 1:] = torch.cartesian_prod(torch.arange(sizes.side), torch.arange(sizes.side))
        angles = [places[:, i, None] * 1e4 ** -(torch.arange(0, d, 2) / d) for i, d in enumerate((16, 56, 56))]
        angles = torch.cat(angles, 1)
        self.table = angles.cos(), angles.sin()


# ---- PyTorch's ops

def linear(x, layer):
    return functional.linear(x, layer.weight, layer.bias)


def parts(layer, x, n):
    """Returns n rows of a modulation, each [1, width]."""
    return linear(functional.silu(x), layer).chunk(n, -1)


def modulated(x, scale, shift):
    return functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


def normed(x, weight):
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight


def turned(x, table):
    cos, sin = (t[:, None] for t in table)
    a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2).to(x.dtype)


def heads_of(qkv, norms, table):
    q, k, v = qkv.unflatten(-1, (3, -1, DIM)).unbind(1)
    return turned(normed(q, norms[0]), table), turned(normed(k, norms[1]), table), v


def attention(q, k, v):
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    return functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)


def gelu(x):
    return functional.gelu(x, approximate="tanh")


def torch_double(block, text, picture, time, table):
    middle, streams = len(text), []
    for stream, x, part in zip(block, (text, picture), (slice(middle), slice(middle, None)), strict=True):
        m = parts(stream.modulation, time, 6)
        qkv = linear(modulated(x, m[1], m[0]), stream.qkv)
        streams.append((stream, x, m, heads_of(qkv, stream.norms, [t[part] for t in table]), part))
    o, results = attention(*(torch.cat(pair) for pair in zip(streams[0][3], streams[1][3], strict=True))), []
    for stream, x, m, _, part in streams:
        x = x + m[2] * linear(o[part], stream.out)
        results.append(x + m[5] * linear(gelu(linear(modulated(x, m[4], m[3]), stream.up)), stream.down))
    return results


def torch_single(block, x, time, table):
    m = parts(block.modulation, time, 3)
    y = modulated(x, m[1], m[0])
    o = attention(*heads_of(linear(y, block.qkv), block.norms, table))
    return x + m[2] * linear(torch.cat((o, gelu(linear(y, block.up))), -1), block.out)


# ---- quern's ops

class InBf16:
    """Products of bf16, with all that follows them."""

    def prepared(self, x):
        return x

    def modulated(self, x, scale, shift):
        return quern.adaptive_layernorm(x[None], scale, shift)[0]

    def product(self, x, layer, **options):
        return quern.gemm(x, layer.weight, bias=layer.bias, **options)

    def activated(self, x, layer):
        """The first product of an MLP, as the second one takes it."""
        return self.product(x, layer, activation="gelu_tanh")

    def beside_attention(self, attend, x, layer):
        """attend's result, which it writes to a tensor, and beside it the first product of an MLP."""
        rows, width = x.shape
        both = x.new_empty(rows, 5 * width)
        attend(both[:, :width])
        self.product(x, layer, activation="gelu_tanh", out=both[:, width:])
        return both


class InFp8:
    """Products of FP8: norms and products write what the next product takes, codes and scales of groups of 128, those of a group
    in a row, as the copy engine of Hopper takes them. Attention's result alone is quantised apart."""

    def room(self, x, columns):
        rows = len(x)
        scale = x.new_empty(columns // DIM, -(-rows // 4) * 4, dtype=torch.float32).T[:rows]
        return x.new_empty(rows, columns, dtype=torch.float8_e4m3fn), scale

    def prepared(self, x, room=None):
        q, scale = self.room(x, x.shape[1]) if room is None else room
        return quern.quantize_groups(x, q=q, scale=scale)

    def modulated(self, x, scale, shift):
        q, scales = self.room(x, x.shape[1])
        quern.adaptive_layernorm_dynamic_quant(x[None], scale, shift, out=q[None], scale_out=scales[None])
        return q, scales

    def product(self, x, layer, **options):
        return quern.gemm(x[0], layer.quantized, scale_a=x[1], scale_b=layer.scale, bias=layer.bias, **options)

    def activated(self, x, layer, room=None):
        q, scale = self.room(x[0], len(layer.weight)) if room is None else room
        self.product(x, layer, activation="gelu_tanh", out=q, scale_out=scale)
        return q, scale

    def beside_attention(self, attend, x, layer):
        width = x[0].shape[1]
        q, scale = self.room(x[0], 5 * width)
        o = q.new_empty(len(q), width, dtype=BF16)
        attend(o)
        self.prepared(o, (q[:, :width], scale[:, :width // DIM]))
        self.activated(x, layer, (q[:, width:], scale[:, width // DIM:]))
        return q, scale


def heads_in_place(qkv, norms, table):
    """Normalises and turns q and k where they lie; v stays."""
    q, k, v = qkv.unflatten(-1, (3, -1, DIM)).unbind(1)
    quern.qk_rmsnorm_rope(q, k, *norms, *table, interleave=True, q_out=q, k_out=k)
    return q, k, v


def attend(qkv, out):
    q, k, v = qkv.unflatten(-1, (3, -1, DIM))[None].unbind(2)
    quern.attention(q, k, v, out=out.unflatten(-1, (-1, DIM))[None])


def quern_double(kind, block, text, picture, time, table):
    qkv = text.new_empty(len(text) + len(picture), 3 * text.shape[1])
    places, streams = (slice(len(text)), slice(len(text), None)), []
    for stream, x, part in zip(block, (text, picture), places, strict=True):
        m = linear(time, stream.modulation).chunk(6, -1)
        kind.product(kind.modulated(x, m[1], m[0]), stream.qkv, out=qkv[part])
        heads_in_place(qkv[part], stream.norms, [t[part] for t in table])
        streams.append((stream, x, m, part))
    o, results = text.new_empty(len(qkv), text.shape[1]), []
    attend(qkv, o)
    for stream, x, m, part in streams:
        x = kind.product(kind.prepared(o[part]), stream.out, gate=m[2], c=x)
        up = kind.activated(kind.modulated(x, m[4], m[3]), stream.up)
        results.append(kind.product(up, stream.down, gate=m[5], c=x))
    return results


def quern_single(kind, block, x, time, table):
    m = linear(time, block.modulation).chunk(3, -1)
    y = kind.modulated(x, m[1], m[0])
    qkv = kind.product(y, block.qkv)
    heads_in_place(qkv, block.norms, table)
    both = kind.beside_attention(lambda o: attend(qkv, o), y, block.up)
    return kind.product(both, block.out, gate=m[2], c=x)


# ---- a step

def step_of(model, double, single, prepared=lambda time: time):
    def step():
        text, picture, time = model.text, model.picture, prepared(model.time)
        for block in model.double:
            text, picture = double(block, text, picture, time, model.table)
        x = torch.cat((text, picture))
        for block in model.single:
            x = single(block, x, time, model.table)
        return x
    return step


def quern_step(kind):
    """The modulations, of one row, stay PyTorch's bf16; what all of them take is made once."""
    return lambda model: step_of(model, lambda *x: quern_double(kind, *x), lambda *x: quern_single(kind, *x), functional.silu)


SIDES = {"eager": lambda model: step_of(model, torch_double, torch_single),
         "compile": lambda model: step_of(model, torch.compile(torch_double, dynamic=False), torch.compile(torch_single, dynamic=False)),
         "bf16": quern_step(InBf16()), "fp8": quern_step(InFp8())}


def captured(step, device):
    """Returns (a function that repeats the step, its result)."""
    if device.type == "cpu":
        return step, step()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    graph.replay()
    return graph.replay, result


def medians(sides, measure, rounds):
    times = {name: [] for name in sides}
    for _ in range(rounds):
        for name, repeat in sides.items():
            times[name].append(measure(repeat) / 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def print_profile(name, repeat):
    """Prints the kernels that take most of a step: milliseconds, launches, name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        repeat()
        torch.cuda.synchronize()
    found = sorted(((e.self_device_time_total / 1e3, e.count, e.key) for e in profile.key_averages()), reverse=True)
    print(f"{name}: {sum(ms for ms, _, _ in found):.1f} ms of kernels")
    for ms, count, key in found[:12]:
        print(f"  {ms:8.2f} ms {count:5} x {key[:100]}", flush=True)


def run(options):
    device = device_of(torch, options.device)
    sizes = Sizes(options)
    torch.manual_seed(1)
    backend = SDPBackend.CUDNN_ATTENTION if device.type == "cuda" else SDPBackend.FLASH_ATTENTION
    with torch.device(device), torch.inference_mode(), sdpa_kernel(backend):
        model, sides, results = Model(sizes), {}, {}
        for name in options.sides:
            sides[name], results[name] = captured(SIDES[name](model), device)
            print(f"{name}: ready", file=sys.stderr, flush=True)
        times = medians(sides, timer_of(torch, device), options.rounds)
    for name in options.sides if options.profile else ():
        print_profile(name, sides[name])
    exact = results[options.sides[0]].double()
    width, n = sizes.width, sizes.tokens
    flop = (sizes.double + sizes.single) * (24 * n * width**2 + 4 * n**2 * width)
    apart = {name: float((x.double() - exact).norm() / exact.norm()) for name, x in results.items()}
    return {"command": " ".join(["python bench/flux_step.py", *sys.argv[1:]]), "processor": processor(),
            "versions": versions_of(torch, device), "scale": options.scale, "rounds": options.rounds, "tflop": flop / 1e12,
            "blocks": options.blocks, "ms": times, "apart": apart}


# ---- the command

def blocks(text):
    words = text.split(",")
    if len(words) != 2 or not all(word.isdigit() for word in words) or text == "0,0":
        raise argparse.ArgumentTypeError(f"found {text}; accepted: double blocks, single blocks, such as 19,38")
    return [int(word) for word in words]


def sides(text):
    words = text.split(",")
    if unknown := set(words) - set(SIDES):
        raise argparse.ArgumentTypeError(f"found {unknown.pop()}; accepted: {', '.join(SIDES)}")
    return words


def positive(text):
    if not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"found {text}; accepted: 1 or above")
    return int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cuda:0" if torch.cuda.is_available() else "cpu", help="(default: %(default)s)")
    parser.add_argument("--sides", type=sides, default=list(SIDES), help=f"comma list (default: {','.join(SIDES)})")
    parser.add_argument("--blocks", type=blocks, default=[19, 38], help="double and single blocks (default: 19,38)")
    parser.add_argument("--scale", type=positive, default=1, help="divides heads and lengths (default: 1)")
    parser.add_argument("--rounds", type=positive, default=21, help="(default: 21)")
    parser.add_argument("--profile", action="store_true", help="the kernels that take most of a step, on GPUs")
    parser.add_argument("--json", metavar="FILE", help="where the figures go")
    options = parser.parse_args()
    if options.profile and options.device == "cpu":
        fail("--profile: the device is cpu; accepted: a GPU")
    if "eager" in options.sides[1:]:
        fail("--sides: eager must come first, since the others are compared with it")
    figures = run(options)
    best = min((ms for name, ms in figures["ms"].items() if name in ("eager", "compile")), default=math.nan)
    for name, ms in figures["ms"].items():
        print(f"{name:8} {ms:9.3f} ms  {figures['tflop'] / ms * 1e3:7.1f} TFLOP/s  {ms / best:5.3f} of PyTorch's best"
              f"  {figures['apart'][name]:.1e} apart")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
