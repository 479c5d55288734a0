# SPDX-License-Identifier: Apache-2.0
"""vLLM's custom ops by quern: the classes that vLLM makes, called as its models call them, against forward_native and f64."""

import types

import pytest
import quern
import torch
from aiter_tools import BF16, F16, dequantised, layer, near, rms
from deep_gemm_tools import F32, randn
from engine_tools import like_native
from vllm.model_executor.layers import activation, layernorm, rotary_embedding
from vllm.model_executor.layers.fusion.fused_act_quant import maybe_fused_act_quant
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym, kFp8StaticTensorSym

H, EPS = 200, 1e-5
DTYPES = [BF16, F16, F32]


def weighted(module, dtype):
    """Gives a norm random weights."""
    for parameter in module.parameters():
        parameter.data = randn(*parameter.shape, dtype=dtype)
    return module


def ran(family):
    return quern.last_kernel().startswith(f"{family}.cpu")


# ---- norms

@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, H), (3, 2, H), (2, 3, 2, H)])
@pytest.mark.parametrize("gemma", [False, True])
def test_rms_norm(gemma, shape, dtype):
    norm = weighted((layernorm.GemmaRMSNorm if gemma else layernorm.RMSNorm)(H, EPS), dtype)
    x = randn(*shape, dtype=dtype)
    got = norm(x)
    assert type(norm).__name__.startswith("Quern") and ran("norm")
    near(got, rms(x, norm.weight, EPS, gemma), H)
    like_native(got, norm.forward_native(x), 2, H)


def test_rms_norm_of_heads_inside_a_row():
    norm, qkv = weighted(layernorm.RMSNorm(64, EPS), BF16), randn(5, 6 * 64, dtype=BF16)
    x = qkv[:, 128:256].view(5, 2, 64)
    near(norm(x), rms(x, norm.weight, EPS), 64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gemma", [False, True])
def test_add_and_rms_norm(gemma, dtype):
    norm = weighted((layernorm.GemmaRMSNorm if gemma else layernorm.RMSNorm)(H, EPS), dtype)
    x, residual = randn(5, H, dtype=dtype), randn(5, H, dtype=dtype, seed=1)
    native = norm.forward_native(x.clone(), residual.clone())
    total = x.double() + residual.double()
    got, added = norm(x, residual)
    assert ran("norm")
    near(got, rms(total, norm.weight, EPS, gemma), H, float(total.abs().max()))
    near(added, total, 1)
    like_native(got, native[0], 2, H, float(total.abs().max()) * 2**-12)
    like_native(added, native[1], 1)


def test_rms_norm_of_some_columns_is_vllms(caplog):
    norm = weighted(layernorm.RMSNorm(H, EPS, var_hidden_size=100), BF16)
    x = randn(5, H, dtype=BF16)
    assert torch.equal(norm(x), norm.forward_native(x))
    assert "its variance is that of some columns" in caplog.text


def test_rms_norm_without_weight():
    x = randn(5, H, dtype=BF16)
    near(layernorm.RMSNorm(H, EPS, has_weight=False, dtype=BF16)(x), rms(x, torch.ones(H), EPS), H)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm(dtype):
    norm, x = weighted(layernorm.LayerNorm(H, EPS), dtype), randn(5, H, dtype=dtype)
    got = norm(x)
    assert ran("norm")
    near(got, layer(x, norm.weight, norm.bias, EPS), H, float(x.abs().max()) * 4)
    like_native(got, norm.forward_native(x), 1, H, float(x.abs().max()) * 4)


# ---- activations

ACTIVATIONS = [
    (activation.SiluAndMul, {}, lambda gate, up: torch.nn.functional.silu(gate) * up),
    (activation.GeluAndMul, {}, lambda gate, up: torch.nn.functional.gelu(gate) * up),
    (activation.GeluAndMul, {"approximate": "tanh"}, lambda gate, up: torch.nn.functional.gelu(gate, approximate="tanh") * up),
    (activation.SiluAndMulWithClamp, {"swiglu_limit": 1.5},
     lambda gate, up: torch.nn.functional.silu(gate.clamp(max=1.5)) * up.clamp(-1.5, 1.5)),
    (activation.SiluAndMulWithClamp, {"swiglu_limit": 1.5, "alpha": 1.702, "beta": 1.0},
     lambda gate, up: gate.clamp(max=1.5) * torch.sigmoid(1.702 * gate.clamp(max=1.5)) * (up.clamp(-1.5, 1.5) + 1)),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 2 * H), (3, 2, 2 * H)])
@pytest.mark.parametrize("kind, options, exact", ACTIVATIONS, ids=["silu", "gelu", "gelu_tanh", "clamped", "swiglu"])
def test_activation(kind, options, exact, shape, dtype):
    op, x = kind(**options), 3 * randn(*shape, dtype=dtype)
    got, (gate, up) = op(x), x.double().chunk(2, -1)
    assert type(op).__name__ == f"Quern{kind.__name__}" and ran("moe_activate" if "Clamp" in kind.__name__ else "activation")
    near(got, exact(gate, up), 8, (gate * up).abs())
    turns = 1.702 * gate.abs() if "Clamp" in kind.__name__ else 0  # roundings of a sigmoid's argument
    if options != {"approximate": "tanh"}:  # for which vLLM's native form on ROCm is another function
        like_native(got, op.forward_native(x), 4 + turns, 8, spread=(gate * up).abs())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key, group", [(kFp8StaticTensorSym, 0), (kFp8Dynamic128Sym, 128)])
@pytest.mark.parametrize("shape", [(5, 512), (3, 2, 512)])
def test_silu_with_quantisation_is_one_kernel(shape, key, group, dtype):
    x, linear = 3 * randn(*shape, dtype=dtype), types.SimpleNamespace(_input_quant_key=key, input_scale=torch.tensor([0.125]))
    got = maybe_fused_act_quant(activation.SiluAndMul(), x, linear)
    assert ran("activation") and (got.quant_key, got.orig_dtype, got.orig_shape) == (key, dtype, (*shape[:-1], 256))
    gate, up = x.double().view(-1, 512).chunk(2, -1)
    want, q = torch.nn.functional.silu(gate) * up, got.data.view(-1, 256)
    if group:
        dequantised(q, got.scale.view(-1, 2), want, group, 8)
    else:
        assert got.scale is linear.input_scale
        error = (q.double() * 0.125 - want.clamp(-240 / 8, 240 / 8)).abs()
        assert bool((error <= 2**-4 * 1.01 * want.abs() + 2**-11 * 0.125).all())


@pytest.mark.parametrize("dtype", DTYPES)
def test_activation_of_gpt_oss(dtype):
    op, x = activation.SwigluOAIAndMul(), 5 * randn(5, 2 * H, dtype=dtype)
    got, gate, up = op(x), x.double()[:, ::2].clamp(max=7), x.double()[:, 1::2].clamp(-7, 7)
    near(got, gate * torch.sigmoid(1.702 * gate) * (up + 1), 8)
    like_native(got, op.forward_native(x), 5 + 1.702 * gate.abs(), 8, spread=(gate * (up + 1)).abs())


# ---- rotary embeddings

ROTARY = [  # class, its arguments behind dtype
    ("RotaryEmbedding", {}),
    ("Llama3RotaryEmbedding", {"scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "orig_max_position": 64}),
    ("YaRNScalingRotaryEmbedding", {"scaling_factor": 4.0}),
    ("DeepseekScalingRotaryEmbedding", {"scaling_factor": 4}),
]


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("name, options", ROTARY, ids=[row[0] for row in ROTARY])
def test_rotary_embedding(name, options, neox, dtype):
    where = {"scaling_factor": options.get("scaling_factor")} if "YaRN" in name or "Deepseek" in name else {}
    rest = {k: v for k, v in options.items() if k not in where}
    shared = {"head_size": 64, "rotary_dim": 32 if name == "RotaryEmbedding" else 64, "max_position_embeddings": 128, "base": 1e4,
              "is_neox_style": neox, "dtype": dtype}
    op = getattr(rotary_embedding, name)(**shared, **where, **rest)
    positions = torch.tensor([0, 3, 127, 5, 5])
    deepseek = "Deepseek" in name
    shape = (lambda heads: (5, heads, 64)) if deepseek else (lambda heads: (5, heads * 64))
    q, k = randn(*shape(4), dtype=dtype), randn(*shape(2), dtype=dtype, seed=1)
    native = op.forward_native(positions, q.clone(), k.clone())
    got = op(positions, q, k)
    assert type(op).__name__ == f"Quern{name}" and ran("rope")
    for ours, theirs in zip(got, native, strict=True):
        like_native(ours, theirs.to(dtype), 3, 4, 2 * float(theirs.abs().max()))


def test_rotary_embedding_of_queries_alone():
    op = rotary_embedding.RotaryEmbedding(64, 64, 128, 1e4, True, BF16)
    q = randn(3, 256, dtype=BF16)
    native, _ = op.forward_native(torch.arange(3), q.clone())
    got, none = op(torch.arange(3), q)
    assert none is None and got is q
    like_native(got, native, 3, 4, 2 * float(native.abs().max()))


# ---- the table, and what stays vLLM's

def test_table(told):
    rows = dict(line.split(None, 1) for line in told.splitlines()[1:])
    assert told.splitlines()[0].startswith("quern in vLLM ") and told.splitlines()[0].endswith("on gfx942")
    assert rows["RMSNorm"].startswith("quern, norm.gpu_") and rows["SiluAndMul"].startswith("quern, activation.gpu_")
    assert all(rows[f"SiluAndMul-FP8-{kind}"].startswith("quern, activation.gpu") for kind in ("static", "1x128"))
    assert all("  quern, " in line or "  the engine's own  " in line for line in told.splitlines()[1:])


def test_children_print_no_table(told):
    import os
    assert os.environ["QUERN_VLLM"] == "quiet" and told.count("quern in vLLM") == 1


def test_an_op_that_is_off_is_vllms(caplog):
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    with set_current_vllm_config(VllmConfig(compilation_config=CompilationConfig(custom_ops=["none", "+layer_norm"]))):
        norm, other = layernorm.RMSNorm(H, EPS, dtype=BF16), layernorm.LayerNorm(H, EPS, dtype=BF16)
    before = quern.rmsnorm(randn(1, 8), torch.ones(8)), quern.silu_and_mul(randn(1, 8))
    assert before and norm(randn(5, H, dtype=BF16)) is not None and not ran("norm")
    assert other(randn(5, H, dtype=BF16)) is not None and ran("norm")
    assert "custom_ops of the compilation config has neither 'all' nor '+rms_norm'" in caplog.text
