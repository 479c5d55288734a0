# SPDX-License-Identifier: Apache-2.0
"""Row ops as one writes them in Triton, a program a row: a peer of bench/peer_rows.py.

    TRITON_INTERPRET=1 python bench/triton_rows.py     compares them with PyTorch, on any machine

Rows are contiguous bf16; a program holds a whole row, so one has at most 65536 elements.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _rmsnorm(out, x, weight, dim, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * dim + at, mask=at < dim, other=0).to(tl.float32)
    w = tl.load(weight + at, mask=at < dim, other=0).to(tl.float32)
    y = v * tl.rsqrt(tl.sum(v * v) / dim + eps) * w
    tl.store(out + row * dim + at, y.to(tl.bfloat16), mask=at < dim)


@triton.jit
def _fused_add(x, residual, weight, dim, eps, BLOCK: tl.constexpr):
    row, at = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    v = tl.load(x + row * dim + at, mask=at < dim, other=0).to(tl.float32)
    v += tl.load(residual + row * dim + at, mask=at < dim, other=0).to(tl.float32)
    w = tl.load(weight + at, mask=at < dim, other=0).to(tl.float32)
    tl.store(residual + row * dim + at, v.to(tl.bfloat16), mask=at < dim)
    y = v * tl.rsqrt(tl.sum(v * v) / dim + eps) * w
    tl.store(x + row * dim + at, y.to(tl.bfloat16), mask=at < dim)


@triton.jit
def _silu_and_mul(out, x, dim, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(x + row * 2 * dim + at, mask=at < dim, other=0).to(tl.float32)
    up = tl.load(x + row * 2 * dim + dim + at, mask=at < dim, other=0).to(tl.float32)
    tl.store(out + row * dim + at, (gate * tl.sigmoid(gate) * up).to(tl.bfloat16), mask=at < dim)


def _warps(block):
    return min(max(block // 512, 4), 16)


def rmsnorm(out, x, weight, eps):
    block = triton.next_power_of_2(x.shape[1])
    _rmsnorm[(x.shape[0],)](out, x, weight, x.shape[1], eps, BLOCK=block, num_warps=_warps(block))


def fused_add_rmsnorm(x, residual, weight, eps):
    block = triton.next_power_of_2(x.shape[1])
    _fused_add[(x.shape[0],)](x, residual, weight, x.shape[1], eps, BLOCK=block, num_warps=_warps(block))


def silu_and_mul(out, x):
    dim = out.shape[1]
    _silu_and_mul[(x.shape[0], triton.cdiv(dim, 2048))](out, x, dim, BLOCK=2048, num_warps=4)


STEP = 2.0**-7  # of bf16: Triton's interpreter cuts off where a GPU rounds


def main():
    torch.manual_seed(1)
    for rows, dim in ((3, 4096), (2, 7168), (5, 111)):
        x, residual = (torch.randn(rows, dim).bfloat16() for _ in range(2))
        weight, out = torch.randn(dim).bfloat16(), torch.empty_like(x)
        rmsnorm(out, x, weight, 1e-6)
        plain = torch.nn.functional.rms_norm(x.float(), (dim,), weight.float(), 1e-6)
        torch.testing.assert_close(out.float(), plain, rtol=STEP, atol=1e-6)
        total = x.float() + residual.float()
        plain = torch.nn.functional.rms_norm(total, (dim,), weight.float(), 1e-6)
        fused_add_rmsnorm(x, residual, weight, 1e-6)
        torch.testing.assert_close(x.float(), plain, rtol=STEP, atol=1e-6)
        torch.testing.assert_close(residual.float(), total, rtol=STEP, atol=1e-6)
        pairs = torch.randn(rows, 2 * dim).bfloat16()
        silu_and_mul(out, pairs)
        plain = torch.nn.functional.silu(pairs[:, :dim].float()) * pairs[:, dim:].float()
        torch.testing.assert_close(out.float(), plain, rtol=STEP, atol=1e-6)
    print("Triton's row ops agree with PyTorch's")


if __name__ == "__main__":
    main()
