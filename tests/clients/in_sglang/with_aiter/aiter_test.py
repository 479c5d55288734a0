# SPDX-License-Identifier: Apache-2.0
"""SGLang's code for AMD GPUs, which calls AITER where SGLANG_USE_AITER=1, with quern.compat.aiter in AITER's place."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT, near, rms
from deep_gemm_tools import plain, quantised, randn
from engine_tools import like_native
from sglang.srt.layers import activation, layernorm
from sglang.srt.layers.moe import topk
from sglang.srt.layers.quantization import fp8_utils

H, EPS, F8Z = 200, 1e-5, torch.float8_e4m3fnuz


def test_sglang_is_set_to_it():
    assert layernorm._use_aiter and fp8_utils._use_aiter_gfx942 and topk._use_aiter


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("more", [False, True])
def test_rms_norm(more, dtype):
    norm = layernorm.RMSNorm(H, eps=EPS)
    norm.weight.data = randn(H, dtype=dtype)
    assert norm._forward_method == norm.forward_aiter
    x, residual = randn(5, H, dtype=dtype), randn(5, H, dtype=dtype, seed=1) if more else None
    native = norm.forward_native(x, None if residual is None else residual.clone())
    total = x.double() + (0 if residual is None else residual.double())
    if more:  # forward_aiter sends tensors of the CPU to forward_native, so this is what it calls for others
        got, added = torch.empty_like(x), torch.empty_like(x)
        layernorm.fused_add_rms_norm(got, x, residual, added, norm.weight.data, EPS)
        near(added, total, 1)
        like_native(added, native[1], 1)
    else:
        got = layernorm.rms_norm(x, norm.weight.data, EPS)
        like_native(got, native, 1, H)
    assert quern.last_kernel().startswith("norm.cpu")
    near(got, rms(total, norm.weight, EPS), H, float(total.abs().max()))


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_silu_and_mul(dtype):
    op, x = activation.SiluAndMul(), 3 * randn(5, 2 * H, dtype=dtype)
    got, (gate, up) = op.forward_aiter(x), x.double().chunk(2, -1)
    near(got, torch.nn.functional.silu(gate) * up, 8)
    like_native(got, op.forward_native(x), 2, 8, spread=(gate * up).abs())


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("bias", [False, True])
def test_block_fp8_linear(bias, rows):
    n, k = 256, 384
    w, scale = quantised(n, k, gran=(128, 128), dtype=F8Z)
    x, b = randn(rows, k, dtype=BF16), randn(n, dtype=BF16) if bias else None
    got = fp8_utils.aiter_w8a8_block_fp8_linear(x, w, [128, 128], scale, bias=b)
    assert quern.last_kernel().startswith("gemm.cpu")
    a, exact = plain(quern.quantize_groups(x, 128, F8Z)), plain((w, scale), (128, 128))
    product, size = a @ exact.T, a.abs() @ exact.abs().T
    want = product + (b.double() if bias else 0)
    bound = UNIT[BF16] * (product.abs() * bias + want.abs()) * 1.01 + 2 * (k + 2) * 2**-24 * size  # SGLang adds the bias afterwards
    assert bool(((got.double() - want).abs() <= bound).all())


def test_routing_by_sigmoid():
    logits, bias = randn(7, 32), randn(32) * 0.1
    weights, ids = torch.empty(7, 4), torch.empty(7, 4, dtype=torch.int32)
    topk.aiter_biased_grouped_topk(logits, bias, weights, ids, num_expert_group=1, topk_group=1, need_renorm=True)
    scores = logits.double().sigmoid()
    want_ids = (scores + bias.double()).topk(4, -1)[1]
    order, want_order = ids.argsort(-1), want_ids.argsort(-1)
    assert torch.equal(ids.gather(1, order).long(), want_ids.gather(1, want_order))
    want = scores.gather(1, want_ids)
    want = (want / want.sum(-1, keepdim=True)).gather(1, want_order)
    assert bool(((weights.gather(1, order).double() - want).abs() <= 2 * 40 * 2**-24 * want).all())


def test_table_says_what_is_bound(told):
    assert "SGLANG_USE_AITER=1 binds them to AITER" in told
    rows = {line.split("  ")[1]: line for line in told.splitlines() if line.startswith("  ")}
    assert all("gives" in rows[name] and "to AITER" in rows[name] for name in ("FP8 block linear", "experts, routing"))


def test_what_aiter_has_is_not_taken():
    assert fp8_utils.dispatch_w8a8_block_fp8_linear([128, 128]) is fp8_utils.aiter_w8a8_block_fp8_linear
