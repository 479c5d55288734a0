# SPDX-License-Identifier: Apache-2.0
"""Triton's kernels for AMD GPUs, compiled and launched by Triton itself, on the simulated GPU, against NumPy.

Usage: quern sim -- triton_test.py [-k WORD] [ARCH...]; or without quern sim: TRITON_LIBHIP_PATH, which Triton reads too,
names the simulated GPU.
"""
import argparse
import ctypes
import math
import os
import sys
import time

import numpy as np
import triton
import triton.language as tl
from triton.backends.amd.driver import HIPDriver, HIPLauncher, HIPUtils
from triton.language.extra import libdevice

ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1151", "gfx1201")
HIP = ctypes.CDLL(os.environ.get("TRITON_LIBHIP_PATH", "libamdhip64.so"), mode=ctypes.RTLD_GLOBAL)
HIP.hipGetErrorString.restype = ctypes.c_char_p
TESTS = []


def hip(name, *arguments):
    error = getattr(HIP, name)(*arguments)
    if error:
        raise RuntimeError(f"{name}: {HIP.hipGetErrorString(error).decode()}")


class Driver(HIPDriver):
    """Triton's own driver, without the PyTorch built for AMD that it asks for the current device and stream."""

    def __init__(self):
        self.device = 0
        self.utils = HIPUtils()
        self.launcher_cls = HIPLauncher

    def get_current_device(self):
        return self.device

    def set_current_device(self, device):
        hip("hipSetDevice", ctypes.c_int(device))
        self.device = device

    def get_current_stream(self, device=None):
        return 0


class Array:
    """Device memory as Triton takes it: a dtype by its Triton name and data_ptr()."""

    def __init__(self, host, dtype=None):
        host = np.ascontiguousarray(host)
        self.shape, self.host_dtype, self.num_bytes = host.shape, host.dtype, host.nbytes
        self.dtype = dtype or {"float32": "fp32", "float16": "fp16", "int32": "i32", "int8": "i8", "int64": "i64"}[
            host.dtype.name]
        self.pointer = ctypes.c_void_p()
        hip("hipMalloc", ctypes.byref(self.pointer), ctypes.c_size_t(max(self.num_bytes, 1)))
        hip("hipMemcpy", self.pointer, host.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(self.num_bytes), 1)

    def data_ptr(self):
        return self.pointer.value

    def numpy(self):
        host = np.empty(self.shape, self.host_dtype)
        hip("hipDeviceSynchronize")
        hip("hipMemcpy", host.ctypes.data_as(ctypes.c_void_p), self.pointer, ctypes.c_size_t(self.num_bytes), 2)
        return host

    def __del__(self):
        HIP.hipFree(self.pointer)


def empty(shape, dtype=np.float32):
    """Returns an output of NaNs, so that an element that no kernel wrote fails."""
    host = np.empty(shape, dtype)
    host.view(np.uint8)[...] = 0xFF
    return Array(host)


def test(*, skip=()):
    """Registers a test for all chips but the named ones. It is given a random generator and the chip's name."""
    def add(function):
        TESTS.append((function, skip))
        return function
    return add


def check(got, want, bound):
    """Holds every |got - want| to bound, an array or number; NaN fails."""
    error = np.abs(got.astype(np.float64) - want)
    worse = ~(error <= bound)
    if worse.any():
        at = tuple(int(i) for i in np.argwhere(worse)[0])
        allowed = np.broadcast_to(bound, error.shape)[at]
        raise AssertionError(f"{worse.sum()} of {worse.size} are wrong, first at {at}: found {got[at]}, "
                             f"expected {want[at]} within {allowed:.3g}")


# Narrow types, each as bytes and the values that those stand for, by definition.
def decode_fp8(exponent_bits, fnuz):
    """Returns the 256 values of e4m3 (4 exponent bits) or e5m2 (5): fnuz as on gfx942, or OCP."""
    mantissa_bits = 7 - exponent_bits
    codes = np.arange(256)
    exponent = codes >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = (codes & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    bias = (1 << exponent_bits - 1) - (0 if fnuz else 1)
    value = np.where(exponent == 0, mantissa * 2.0**(1 - bias), (1 + mantissa) * 2.0**(exponent - bias))
    return np.where(codes & 0x80, -value, value)


def to_bf16(x):
    """Returns x rounded to bfloat16 (to nearest, ties to even): its 16 bits and its values."""
    bits = np.asarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return bits.astype(np.uint16), (bits << 16).astype(np.uint32).view(np.float32)


# ---- element-wise ----
@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    tl.store(out + at, tl.load(x + at, inside) + tl.load(y + at, inside), inside)


@test()
def vector_add(random, arch):
    for n in (1, 255, 1000):
        x, y = random.standard_normal((2, n), np.float32)
        out = empty(n + 8)
        add_kernel[(triton.cdiv(n, 256), )](Array(x), Array(y), out, n, BLOCK=256)
        check(out.numpy()[:n], x + y, 0)
        assert np.isnan(out.numpy()[n:]).all(), "written beyond the end"


# ---- matrix products ----
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sum = tl.zeros((BM, BN), ACC)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        left = tl.load(a + rows[:, None] * K + k[None, :], (rows[:, None] < M) & (k[None, :] < K), 0.0)
        right = tl.load(b + k[:, None] * N + columns[None, :], (k[:, None] < K) & (columns[None, :] < N), 0.0)
        sum = tl.dot(left, right, sum, out_dtype=ACC, input_precision="ieee")
    tl.store(c + rows[:, None] * N + columns[None, :], sum, (rows[:, None] < M) & (columns[None, :] < N))


def matmul(random, make, dtype, acc=tl.float32, M=72, N=40, K=96):
    """Multiplies what make(shape) gives: stored elements and their values."""
    a, a_values = make((M, K))
    b, b_values = make((K, N))
    c = empty((M, N), np.int32 if acc is tl.int32 else np.float32)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 32))
    matmul_kernel[grid](Array(a, dtype), Array(b, dtype), c, M, N, K, 64, 32, 64, acc)
    want = a_values.astype(np.float64) @ b_values.astype(np.float64)
    size = np.abs(a_values).astype(np.float64) @ np.abs(b_values).astype(np.float64)
    check(c.numpy(), want, 0 if acc is tl.int32 else 2 * K * 2.0**-24 * size)


@test()
def matmul_f16(random, arch):
    def make(shape):
        x = random.standard_normal(shape).astype(np.float16)
        return x, x
    matmul(random, make, "fp16")


@test()
def matmul_bf16(random, arch):
    matmul(random, lambda shape: to_bf16(random.standard_normal(shape)), "bf16")


@test()
def matmul_f32(random, arch):
    def make(shape):
        x = random.standard_normal(shape, np.float32)
        return x, x
    matmul(random, make, "fp32")


@test()
def matmul_i8(random, arch):
    def make(shape):
        x = random.integers(-128, 128, shape).astype(np.int8)
        return x, x
    matmul(random, make, "i8", tl.int32)


def matmul_fp8(random, arch, exponent_bits, names):
    fnuz = arch == "gfx942"
    values = decode_fp8(exponent_bits, fnuz)

    def make(shape):
        codes = random.integers(0, 0x78, shape) | random.integers(0, 2, shape) << 7
        codes[codes == 0x80] = 0  # NaN with fnuz
        return codes.astype(np.uint8), values[codes]
    matmul(random, make, names[not fnuz])


@triton.jit
def grouped_kernel(a, b, c, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                   BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    """Multiplies whole tiles in groups of rows, with pointers that advance and any strides, like Triton's tutorial on
    matrix products."""
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    tile = tl.program_id(0)
    first = tile // (GROUP * tiles_n) * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + tile % (GROUP * tiles_n) % size
    tile_n = tile % (GROUP * tiles_n) // size
    rows = (tile_m * BM + tl.arange(0, BM)) % M
    columns = (tile_n * BN + tl.arange(0, BN)) % N
    k = tl.arange(0, BK)
    left = a + rows[:, None] * stride_am + k[None, :] * stride_ak
    right = b + k[:, None] * stride_bk + columns[None, :] * stride_bn
    sum = tl.zeros((BM, BN), tl.float32)
    for k0 in range(0, tl.cdiv(K, BK)):
        sum = tl.dot(tl.load(left, k[None, :] < K - k0 * BK, 0.0), tl.load(right, k[:, None] < K - k0 * BK, 0.0), sum)
        left += BK * stride_ak
        right += BK * stride_bk
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c + rows[:, None] * stride_cm + columns[None, :] * stride_cn, sum.to(tl.float16), inside)


@test()
def matmul_pipelined(random, arch):
    """Multiplies with several tile shapes, waves, pipeline stages and sizes of matrix instruction. B is transposed in
    memory."""
    M, N, K = 136, 80, 160
    a = random.standard_normal((M, K)).astype(np.float16)
    b = random.standard_normal((N, K)).astype(np.float16)
    want = a.astype(np.float64) @ b.astype(np.float64).T
    size = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64).T
    for BM, BN, BK, warps, stages, instruction in ((64, 64, 32, 4, 3, 16), (128, 64, 64, 8, 2, 32), (32, 32, 64, 2, 1, 0)):
        c = empty((M, N), np.float16)
        grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN), )
        grouped_kernel[grid](Array(a), Array(b), c, M, N, K, K, 1, 1, K, N, 1, BM, BN, BK, 2, num_warps=warps,
                             num_stages=stages, matrix_instr_nonkdim=instruction)
        check(c.numpy(), want, 2 * K * 2.0**-24 * size + 2.0**-11 * np.abs(want))


@test(skip=("gfx90a", "gfx1151"))
def matmul_e4m3(random, arch):
    matmul_fp8(random, arch, 4, ("fp8e4b8", "fp8e4nv"))


@test(skip=("gfx90a", "gfx1151"))
def matmul_e5m2(random, arch):
    matmul_fp8(random, arch, 5, ("fp8e5b16", "fp8e5"))


# ---- rows ----
@triton.jit
def softmax_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, at < n, -float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * n + at, values / tl.sum(values, 0), at < n)


@test()
def softmax(random, arch):
    for n, warps in ((100, 1), (1000, 4)):
        x = (3 * random.standard_normal((5, n))).astype(np.float32)
        out = empty(x.shape)
        softmax_kernel[(5, )](Array(x), out, n, triton.next_power_of_2(n), num_warps=warps)
        want = np.exp(x - x.max(1, keepdims=True), dtype=np.float64)
        want /= want.sum(1, keepdims=True)
        check(out.numpy(), want, (64 + np.log2(n)) * 2.0**-24 * want + 2.0**-149)


@triton.jit
def layer_norm_kernel(x, weight, bias, out, mean_out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + at, at < n, 0.0).to(tl.float32)
    mean = tl.sum(values, 0) / n
    centered = tl.where(at < n, values - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centered * centered, 0) / n + eps)
    y = centered * scale * tl.load(weight + at, at < n) + tl.load(bias + at, at < n)
    tl.store(out + row * n + at, y, at < n)
    tl.store(mean_out + row, mean)


@test()
def layer_norm(random, arch):
    n = 300
    x = random.standard_normal((4, n)).astype(np.float16)
    weight, bias = random.standard_normal((2, n), np.float32)
    out, mean_out = empty(x.shape), empty(4)
    layer_norm_kernel[(4, )](Array(x), Array(weight), Array(bias), out, mean_out, n, 1e-5, 512)
    wide = x.astype(np.float64)
    mean = wide.mean(1, keepdims=True)
    normal = (wide - mean) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    unit = 2.0**-24 * (np.log2(n) + 10)
    check(mean_out.numpy(), mean[:, 0], unit * np.abs(wide).mean(1))
    check(out.numpy(), normal * weight + bias, 4 * unit * ((np.abs(normal) + 1) * np.abs(weight) + np.abs(bias)))


# ---- atomics ----
@triton.jit
def histogram_kernel(keys, counts, sums, highest, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, at < n, 0)
    tl.atomic_add(counts + key, 1, at < n)
    tl.atomic_add(sums + key, key * 0.5, at < n)
    tl.atomic_max(highest + key, at, at < n)


@triton.jit
def lock_kernel(lock, total, BLOCK: tl.constexpr):
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + tl.program_id(0))
    tl.atomic_xchg(lock, 0)


@test()
def atomics(random, arch):
    keys = random.integers(0, 16, 1000).astype(np.int32)
    zeros = np.zeros(16, np.int32)
    counts, sums, highest = Array(zeros), Array(zeros.astype(np.float32)), Array(zeros - 1)
    histogram_kernel[(4, )](Array(keys), counts, sums, highest, 1000, 256)
    want = np.bincount(keys, minlength=16)
    check(counts.numpy(), want, 0)
    check(sums.numpy(), want * np.arange(16) * 0.5, 0)
    check(highest.numpy(), np.array([np.flatnonzero(keys == key).max(initial=-1) for key in range(16)]), 0)
    lock, total = Array(zeros[:1]), Array(zeros[:1])
    lock_kernel[(20, )](lock, total, 1)
    check(total.numpy(), np.array([190]), 0)


# ---- scan and sort ----
@triton.jit
def highest(a, b):
    return tl.maximum(a, b)


@triton.jit
def scan_kernel(x, sums, running, sorted, flipped, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(sums + at, tl.cumsum(values, 0))
    tl.store(running + at, tl.associative_scan(values, 0, highest, reverse=True))
    tl.store(sorted + at, tl.sort(values))
    tl.store(flipped + at, tl.sort(values, descending=True))


@test()
def scan_and_sort(random, arch):
    n = 256
    x = random.integers(-1000, 1000, n).astype(np.int32)
    outs = [empty(n, np.int32) for _ in range(4)]
    scan_kernel[(1, )](Array(x), *outs, n)
    want = np.cumsum(x), np.maximum.accumulate(x[::-1])[::-1], np.sort(x), np.sort(x)[::-1]
    for out, right in zip(outs, want):
        check(out.numpy(), right, 0)


# ---- attention ----
@triton.jit
def attention_kernel(q, k, v, out, length, scale, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
                     DIM: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    head = tl.program_id(1) * length * DIM
    dims = tl.arange(0, DIM)
    query = tl.load(q + head + rows[:, None] * DIM + dims[None, :], rows[:, None] < length, 0.0)
    top = tl.full((BM, ), -float("inf"), tl.float32)
    total = tl.zeros((BM, ), tl.float32)
    sum = tl.zeros((BM, DIM), tl.float32)
    last = tl.minimum((tl.program_id(0) + 1) * BM, length) if CAUSAL else length
    for start in range(0, last, BN):
        columns = start + tl.arange(0, BN)
        inside = columns[:, None] < length
        key = tl.load(k + head + columns[:, None] * DIM + dims[None, :], inside, 0.0)
        score = tl.dot(query, tl.trans(key)) * (scale * 1.4426950408889634)
        seen = columns[None, :] < length
        if CAUSAL:
            seen = seen & (columns[None, :] <= rows[:, None])
        score = tl.where(seen, score, -float("inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        weight = tl.math.exp2(score - higher[:, None])
        fade = tl.math.exp2(top - higher)
        value = tl.load(v + head + columns[:, None] * DIM + dims[None, :], inside, 0.0)
        sum = tl.dot(weight.to(value.dtype), value, sum * fade[:, None])
        total = total * fade + tl.sum(weight, 1)
        top = higher
    tl.store(out + head + rows[:, None] * DIM + dims[None, :], sum / total[:, None], rows[:, None] < length)


def attention(random, causal, dtype="fp16"):
    heads, length, dim = 2, 80, 32
    given = random.standard_normal((3, heads, length, dim))
    stored, values = to_bf16(given) if dtype == "bf16" else 2 * (given.astype(np.float16), )
    q, k, v = values.astype(np.float64)
    out = empty(q.shape)
    scale = dim**-0.5
    attention_kernel[(triton.cdiv(length, 32), heads)](*(Array(x, dtype) for x in stored), out, length, scale, causal, 32,
                                                       32, dim)
    score = q @ k.transpose(0, 2, 1) * scale
    if causal:
        score[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
    weight = np.exp(score - score.max(2, keepdims=True))
    weight /= weight.sum(2, keepdims=True)
    # The weights are rounded, 2^-11 or 2^-8 each; all else is f32.
    check(out.numpy(), weight @ v, 2.0**(-7 if dtype == "bf16" else -10) * (weight @ np.abs(v)))


@test()
def attention_plain(random, arch):
    attention(random, False)


@test()
def attention_causal(random, arch):
    attention(random, True)


@test()
def attention_bf16(random, arch):
    attention(random, False, "bf16")
    attention(random, True, "bf16")


# ---- random numbers ----
@triton.jit
def dropout_kernel(x, out, bits, seed, n, p, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(bits + at, tl.randint(seed, at), at < n)
    keep = tl.rand(seed, at) > p
    values = tl.load(x + at, at < n)
    tl.store(out + at, tl.where(keep, values / (1 - p), 0.0), at < n)


def philox(seed, counter):
    """Returns the first word of Philox4x32-10 of the key seed: Salmon et al., Parallel random numbers, 2011."""
    c = [counter.astype(np.uint64)] + [np.zeros(counter.shape, np.uint64)] * 3
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)]
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [second >> np.uint64(32) ^ c[1] ^ key[0], second & mask, first >> np.uint64(32) ^ c[3] ^ key[1],
             first & mask]
        key = [key[0] + np.uint64(0x9E3779B9) & mask, key[1] + np.uint64(0xBB67AE85) & mask]
    return c[0].astype(np.uint32)


@test()
def dropout(random, arch):
    n, p, seed = 1000, 0.25, 0x123456789ABC
    x = random.standard_normal(n, np.float32)
    out, bits = empty(n), empty(n, np.int32)
    dropout_kernel[(4, )](Array(x), out, bits, seed, n, p, 256)
    word = philox(seed, np.arange(n))
    assert (bits.numpy().view(np.uint32) == word).all(), "not Philox's words"
    signed = word.view(np.int32).astype(np.int64)
    uniform = np.where(signed < 0, -signed - 1, signed) * np.float32(4.6566127342e-10)
    want = np.where(uniform > p, x.astype(np.float64) / (1 - p), 0)
    check(out.numpy(), want, 4 * 2.0**-24 * np.abs(want))


# ---- elementary functions ----
@triton.jit
def functions_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    values = tl.load(x + at)
    tl.store(out + at, tl.exp(values))
    tl.store(out + n + at, tl.log(tl.abs(values)))
    tl.store(out + 2 * n + at, tl.sin(values))
    tl.store(out + 3 * n + at, tl.cos(values))
    tl.store(out + 4 * n + at, tl.erf(values))
    tl.store(out + 5 * n + at, libdevice.tanh(values))
    tl.store(out + 6 * n + at, tl.rsqrt(tl.abs(values)))
    tl.store(out + 7 * n + at, tl.floor(values))


@test()
def functions(random, arch):
    n = 256
    x = (5 * random.standard_normal(n)).astype(np.float32)
    out = empty((8, n))
    functions_kernel[(1, )](Array(x), out, n, n)
    wide = x.astype(np.float64)
    want = [np.exp(wide), np.log(abs(wide)), np.sin(wide), np.cos(wide), np.array([math.erf(v) for v in wide]),
            np.tanh(wide), abs(wide)**-0.5, np.floor(wide)]
    got = out.numpy()
    for row, right in enumerate(want):
        check(got[row], right, 2.0**-20 * np.maximum(abs(right), 1))


def run(arch, device, chosen):
    """Runs the chip's tests and counts those that gave wrong results. A fault of a kernel ends the program."""
    failed = 0
    triton.runtime.driver.active.set_current_device(device)
    for function, skip in TESTS:
        if chosen not in function.__name__ or arch in skip:
            continue
        start = time.monotonic()
        try:
            function(np.random.default_rng(1), arch)
            result = "ok"
        except AssertionError as error:  # one that is wrong must not hide the others
            failed += 1
            result = f"FAILED: {error}"
        print(f"{arch:8} {function.__name__:17} {time.monotonic() - start:5.1f} s  {result}", flush=True)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-k", default="", metavar="WORD", help="only tests that have WORD in their name")
    parser.add_argument("arch", nargs="*", default=ARCHS, help=f"chips, of {' '.join(ARCHS)}")
    options = parser.parse_args()
    # One device of each chip, after any that QUERN_SIM gives.
    if HIP.quernsim_configure(("arch=" + ",".join(options.arch)).encode()):
        sys.exit("no such devices")
    count = ctypes.c_int()
    hip("hipGetDeviceCount", ctypes.byref(count))
    triton.runtime.driver.set_active(Driver())
    first = count.value - len(options.arch)
    sys.exit(sum(run(arch, device, options.k) for device, arch in enumerate(options.arch, first)) != 0)


if __name__ == "__main__":
    main()
