# SPDX-License-Identifier: Apache-2.0
"""SGLang's fused ops by quern: its classes, called as its models call them, against forward_native and f64."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, layer, near, rms
from deep_gemm_tools import F32, randn
from engine_tools import like_native
from sglang.kernels.spec import KernelBackend
from sglang.srt.layers import activation, layernorm
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from sglang.srt.layers.rotary_embedding.rope_variant import Llama3RotaryEmbedding

H, EPS = 200, 1e-5
DTYPES = [BF16, F16, F32]


def weighted(module, dtype):
    for parameter in module.parameters():
        parameter.data = randn(*parameter.shape, dtype=dtype)
    return module


def ran(family):
    return quern.last_kernel().startswith(f"{family}.cpu")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, H), (3, 2, H), (2, 3, 2, H)])
@pytest.mark.parametrize("gemma", [False, True])
def test_rms_norm(gemma, shape, dtype):
    norm = weighted((layernorm.GemmaRMSNorm if gemma else layernorm.RMSNorm)(H, eps=EPS), dtype)
    x = randn(*shape, dtype=dtype)
    got = norm(x)
    assert norm.auto_selected_backend() == KernelBackend.PLUGIN and ran("norm")
    near(got, rms(x, norm.weight, EPS, gemma), H)
    like_native(got, norm.forward_native(x), 2, H)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("gemma", [False, True])
def test_add_and_rms_norm(gemma, more, dtype):
    norm = weighted((layernorm.GemmaRMSNorm if gemma else layernorm.RMSNorm)(H, eps=EPS), dtype)
    x, residual, extra = (randn(5, H, dtype=dtype, seed=s) for s in range(3))
    native = norm.forward_native(x.clone(), residual.clone(), extra if more else None)
    exact = residual + extra if more else residual  # as SGLang's own kernels, which round this sum
    total = x.double() + exact.double()
    got, added = norm(x.clone(), residual.clone(), extra if more else None)
    assert ran("norm")
    size = float(total.abs().max())
    near(got, rms(total, norm.weight, EPS, gemma), H, size)
    near(added, total, 1)
    like_native(added, native[1], 2, size=3 * size if more else size)
    spread = (norm.weight.double().abs() + gemma) * 3 / total.square().mean(-1, keepdim=True).sqrt()
    like_native(got, native[0], 3, H, size=size * spread)  # of sums that were rounded before the norm


@pytest.mark.parametrize("options", [{"var_hidden_size": 100}, {"cast_x_before_out_mul": True}, {"override_orig_dtype": F32}])
def test_other_norms_are_sglangs(options, caplog, monkeypatch):
    monkeypatch.setattr(layernorm, "_has_vllm_rms_norm", False)  # else SGLang's own is vLLM's compiled one, where vLLM is installed
    norm = weighted(layernorm.RMSNorm(H, eps=EPS, **options), BF16)
    x = randn(5, H, dtype=BF16)
    assert torch.equal(norm(x), norm.forward_native(x)) and "the engine's own" in caplog.text


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype):
    norm, x = weighted(layernorm.LayerNorm(H, eps=EPS, dtype=dtype), dtype), randn(5, H, dtype=dtype)
    got = norm(x)
    assert ran("norm")
    near(got, layer(x, norm.weight, norm.bias, EPS), H, float(x.abs().max()) * 4)
    like_native(got, norm.forward_native(x), 1, H, spread=float(x.abs().max()) * 4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_mul(approximate, dtype):
    op, x = activation.GeluAndMul(approximate), 3 * randn(5, 2 * H, dtype=dtype)
    got, (gate, up) = op(x), x.double().chunk(2, -1)
    assert ran("activation")
    near(got, torch.nn.functional.gelu(gate, approximate=approximate) * up, 8, (gate * up).abs())
    like_native(got, op.forward_native(x), 2, 8, spread=(gate * up).abs())


@pytest.mark.parametrize("dtype", DTYPES)
def test_silu_and_mul(dtype):
    op, x = activation.SiluAndMul(), 3 * randn(5, 2 * H, dtype=dtype)
    got, (gate, up) = op(x), x.double().chunk(2, -1)
    assert ran("activation")
    near(got, torch.nn.functional.silu(gate) * up, 8)
    like_native(got, op.forward_native(x), 2, 8, spread=(gate * up).abs())


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("kind, more", [(RotaryEmbedding, ()), (Llama3RotaryEmbedding, (8.0, 1.0, 4.0, 64))], ids=["plain", "llama3"])
@pytest.mark.parametrize("offset", [None, 2])
def test_rotary_embedding(offset, kind, more, neox, dtype):
    op = kind(64, 32 if not more else 64, 128, 10000, neox, dtype, *more)
    positions, offsets = torch.tensor([0, 3, 100, 5, 5]), None if offset is None else torch.full((5,), offset)
    q, k = randn(5, 256, dtype=dtype), randn(5, 128, dtype=dtype, seed=1)
    native = op.forward_native(positions, q.clone(), k.clone(), offsets)
    got = op(positions, q, k, offsets)
    assert ran("rope")
    for ours, theirs in zip(got, native, strict=True):
        like_native(ours, theirs.to(dtype), 3, 4, 2 * float(theirs.abs().max()))


def test_sglang_can_force_its_own():
    from sglang.kernels import fused_op
    norm, x = weighted(layernorm.RMSNorm(H, eps=EPS), BF16), randn(5, H, dtype=BF16)
    assert quern.silu_and_mul(randn(1, 8)).shape == (1, 4)
    fused_op.set_fused_op_backend(KernelBackend.TORCH)
    try:
        assert torch.equal(norm(x), norm.forward_native(x)) and ran("activation")
    finally:
        fused_op.set_fused_op_backend(None)


def test_table(told):
    import os
    heads = [line for line in told.splitlines() if line.startswith("quern in")]
    assert [head.split()[2] for head in heads] == ["SGLang", "SGLang"] and "diffusion on gfx942" in heads[1]
    assert "quern, norm.gpu_" in next(line for line in told.splitlines() if line.startswith("  RMSNorm"))
    assert os.environ["QUERN_SGLANG"] == "quiet"
