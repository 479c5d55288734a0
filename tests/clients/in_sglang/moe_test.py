# SPDX-License-Identifier: Apache-2.0
"""SGLang's layers of experts and its routing with groups, by quern: made, loaded and called as its models do."""

import types

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT
from deep_gemm_tools import F32, plain, quantised, randn
from sglang.srt.layers.moe import fused_moe_native, topk
from sglang.srt.layers.moe.fused_moe_triton import FusedMoE
from sglang.srt.layers.moe.token_dispatcher import standard
from sglang.srt.layers.moe.topk import StandardTopKOutput
from sglang.srt.layers.moe.utils import MoeRunnerBackend
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.runtime_context import get_flags, get_lora

pytestmark = pytest.mark.usefixtures("one_gpu")
EXPERTS, HIDDEN, INNER, TOP_K = 6, 256, 128, 2
F8Z = torch.float8_e4m3fnuz  # gfx942's
FP8 = Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128])
GPT_OSS = {"gemm1_alpha": 1.702, "gemm1_clamp_limit": 7.0}
LAYERS = {"silu": {}, "gelu": {"activation": "gelu"}, "gpt-oss": {**GPT_OSS, "with_bias": True},
          "halves": {**GPT_OSS, "gate_up_interleaved": False}, "clamped": {"swiglu_limit": 10.0}}


def activated(x, layer):
    """Returns what a layer makes of gates and ups, in f64, as SGLang's Triton runner defines it."""
    config = layer.moe_runner_config
    gate, up = (x[:, ::2], x[:, 1::2]) if config.gemm1_alpha and config.gate_up_interleaved else x.chunk(2, -1)
    if config.gemm1_alpha:
        gate, up = gate.clamp(max=config.gemm1_clamp_limit), up.clamp(-config.gemm1_clamp_limit, config.gemm1_clamp_limit)
        return gate * torch.sigmoid(config.gemm1_alpha * gate) * (up + 1)
    if config.swiglu_limit:
        gate, up = gate.clamp(max=config.swiglu_limit), up.clamp(-config.swiglu_limit, config.swiglu_limit)
    return getattr(torch.nn.functional, config.activation)(gate) * up


def weights_of(layer, name, shape):
    """Loads a layer's weights. Returns what they stand for in f64."""
    if layer.quant_config is None:
        weight = randn(*shape, dtype=layer.params_dtype, seed=len(name)) / shape[-1]**0.5
        getattr(layer, f"{name}_weight").data = weight.clone()
        return weight.double()
    weight, scale = quantised(*shape, gran=(128, 128), seed=len(name))
    scale = scale / shape[-1]**0.5
    getattr(layer, f"{name}_weight").data, getattr(layer, f"{name}_weight_scale_inv").data = weight.clone(), scale.clone()
    return plain((weight, scale), (128, 128))


def loaded(quant_config, dtype=BF16, experts=EXPERTS, **options):
    """Returns a layer as SGLang loads it, and for w13 and w2 what their weights and biases stand for."""
    options = {"num_experts": experts, "hidden_size": HIDDEN, "intermediate_size": INNER, "layer_id": 0, "top_k": TOP_K,
               "params_dtype": dtype, "quant_config": quant_config, "prefix": "mlp.experts", **options}
    layer, exact = FusedMoE(**options), []
    for name, shape in (("w13", (2 * INNER, HIDDEN)), ("w2", (HIDDEN, INNER))):
        bias = getattr(layer, f"{name}_weight_bias", None)
        if bias is not None:
            bias.data = randn(*bias.shape, dtype=bias.dtype, seed=11)
        exact.append((weights_of(layer, name, (layer.num_local_experts, *shape)), 0 if bias is None else bias.double()))
    layer.quant_method.process_weights_after_loading(layer)
    return layer, exact


def routed(tokens, ids=None, experts=EXPERTS):
    """Returns weights and ids as SGLang's routing gives them to a layer."""
    draw = torch.Generator().manual_seed(7)
    ids = torch.stack([torch.randperm(experts, generator=draw)[:TOP_K] for _ in range(tokens)]).int() if ids is None else ids
    return StandardTopKOutput(torch.rand(ids.shape, generator=draw), ids, None)


def in_f64(layer, exact, x, weights, ids):
    """Returns the layer in f64, of this rank's ids, and a bound for what rounding the inner rows makes of it."""
    (w13, b13), (w2, b2), eight = *exact, layer.quant_config is not None
    rows = plain(quern.quantize_groups(x, 128, F8Z)) if eight else x.double()
    want, size = torch.zeros(2, *x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for weight, expert in zip(weights[token].double(), ids[token], strict=True):
            if expert < 0:
                continue
            before = rows[token:token + 1] @ w13[expert].T
            # What f32's sum, and a rounding to 16 bits before and behind the activation, may do. Its slope is below 12 by the limits.
            inner = activated(before + (b13[expert] if torch.is_tensor(b13) else 0), layer)
            near = 2 * UNIT[x.dtype] * (12 * before.abs().amax() + inner.abs()) + 2**-12 * inner.abs()
            # In FP8: a step of 2^-4 of each value, and of the group's largest near zero.
            step = near + (2**-4 * inner.abs() + 2.0**-11 / 240 * inner.abs().amax() if eight else 0)
            want[token] += weight * (inner @ w2[expert].T + (b2[expert] if torch.is_tensor(b2) else 0))[0]
            size[token] += weight * (step @ w2[expert].abs().T + 2 * UNIT[x.dtype] * (inner.abs() @ w2[expert].abs().T))[0]
    return want, size


def check(got, layer, exact, x, weights, ids):
    want, size = in_f64(layer, exact, x, weights, ids)
    assert got.shape == x.shape and got.dtype == x.dtype
    error = (got.double() - want).abs()
    assert bool((error <= size + 2 * UNIT[x.dtype] * want.abs() + 1e-9).all()), float((error / size).max())
    assert float(error.norm() / want.norm()) < (0.04 if layer.quant_config is not None else 4 * UNIT[x.dtype])


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("kind", list(LAYERS))
@pytest.mark.parametrize("quant_config", [FP8, None], ids=["fp8", "16 bits"])
@pytest.mark.parametrize("tokens", [1, 9])
def test_experts(tokens, quant_config, kind, dtype):
    layer, exact = loaded(quant_config, dtype, **LAYERS[kind])
    far = 8 if LAYERS[kind] and kind != "gelu" else 1  # where limits matter
    x, routing = far * randn(tokens, HIDDEN, dtype=dtype), routed(tokens)
    kept = x.clone()
    got = layer(x, routing)
    assert quern.last_kernel().startswith("moe_sum.cpu") and torch.equal(x, kept)
    assert hasattr(layer.w2_weight, "quern_rows") == (quant_config is not None)  # these are packed
    check(got, layer, exact, x, routing.topk_weights, routing.topk_ids)


@pytest.mark.parametrize("kind", ["silu", "gelu", "gpt-oss"])
def test_like_sglangs_own(kind):
    layer, exact = loaded(None, **LAYERS[kind])
    x, routing = randn(9, HIDDEN, dtype=BF16), routed(9)
    got = layer(x, routing)
    with torch.compiler.set_stance("force_eager"):  # its activation is compiled when it is called
        native = fused_moe_native.moe_forward_native(layer, x, routing, layer.moe_runner_config)
    _, size = in_f64(layer, exact, x, routing.topk_weights, routing.topk_ids)
    assert bool(((got.double() - native.double()).abs() <= 2 * size + 4 * UNIT[BF16] * native.double().abs()).all())


@pytest.mark.parametrize("quant_config", [FP8, None], ids=["fp8", "16 bits"])
def test_experts_of_other_ranks_do_not_count(quant_config, one_gpu, monkeypatch):
    monkeypatch.setattr(standard, "get_device", lambda: "cpu")
    pair = types.SimpleNamespace(device_group=None, world_size=2)
    with one_gpu.override(tp_group=pair, moe_ep_group=pair, tp_size=2, tp_rank=1, attn_tp_size=2, moe_ep_size=2, moe_ep_rank=1):
        layer, exact = loaded(quant_config)
        assert layer.num_local_experts == 3
        x, routing = randn(9, HIDDEN, dtype=BF16), routed(9)
        routing.topk_ids[4] = -1  # padding
        routing.topk_ids[5] = torch.tensor([0, 2])  # of the other rank
        got = layer(x, routing)
    assert quern.last_kernel().startswith("moe_sum.cpu")
    here = torch.where(routing.topk_ids >= 3, routing.topk_ids - 3, -1)
    check(got, layer, exact, x, routing.topk_weights, here)
    assert not got[4:6].any() and got.any()


@pytest.mark.parametrize("quant_config", [FP8, None], ids=["fp8", "16 bits"])
def test_shared_experts_among_the_routed_ones(quant_config):
    layer, exact = loaded(quant_config, experts=EXPERTS + 1, num_fused_shared_experts=1, routed_scaling_factor=2.5)
    x, ids = randn(5, HIDDEN, dtype=BF16), torch.tensor([[0, EXPERTS], [5, EXPERTS], [2, EXPERTS], [0, EXPERTS], [3, EXPERTS]], dtype=torch.int32)
    routing = routed(5, ids)
    check(layer(x, routing), layer, exact, x, 2.5 * routing.topk_weights, ids)


def refused(quant_config, caplog, **options):
    """Makes a layer that stays SGLang's. Returns what was said of it."""
    layer, _ = loaded(quant_config, **options)
    if quant_config is None:
        with pytest.raises(NotImplementedError, match="inplace_fused_experts|outplace_fused_experts"):  # SGLang's own, which has no CPU form
            layer(randn(1, HIDDEN, dtype=BF16), routed(1))
    assert not hasattr(layer.w2_weight, "quern_rows") and not getattr(layer.quant_method, "is_by_quern", False)
    return caplog.text


@pytest.mark.parametrize("quant_config", [FP8, None], ids=["fp8", "16 bits"])
@pytest.mark.parametrize("options, why", [
    ({"activation": "situ"}, "its activation is situ"), ({"gemm1_clamp_limit": 7.0}, "clamps what its activation makes"),
    ({"apply_router_weight_on_input": True}, "weights its input"), ({**GPT_OSS, "gemm1_beta": 0.5}, "beta is 0.5")])
def test_other_layers_are_sglangs(options, why, quant_config, caplog):
    assert why in refused(quant_config, caplog, **options)


@pytest.mark.parametrize("quant_config", [FP8, None], ids=["fp8", "16 bits"])
def test_what_sglang_was_told_is_taken(quant_config, caplog):
    with get_flags().moe.override(runner_backend=MoeRunnerBackend.TRITON):
        assert "SGLang was told which experts to take" in refused(quant_config, caplog)


def test_lora_reads_the_weights(caplog):
    with get_lora().override(enable_lora=True):
        assert "LoRA" in refused(FP8, caplog)


def test_other_blocks_are_sglangs(caplog):
    config = Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[64, 128])
    options = {"num_experts": 2, "hidden_size": HIDDEN, "intermediate_size": INNER, "layer_id": 0, "top_k": 1, "params_dtype": BF16}
    layer = FusedMoE(quant_config=config, **options)
    layer.quant_method.process_weights_after_loading(layer)
    assert "blocks of [128, 128]: [64, 128]" in caplog.text and not layer.quant_method.is_by_quern


# ---- routing

def chosen(logits, bias, shared, **options):
    """Routes by SGLang's own way to its function. Returns (weights, ids)."""
    config = topk.TopKConfig(top_k=4 + shared, use_grouped_topk=True, num_expert_group=4, topk_group=2, correction_bias=bias,
                             shared_experts=topk.SharedExpertsConfig(num_fused_shared_experts=shared), **options)
    return topk.select_experts(torch.empty(len(logits), 8), logits, config)[:2]


def in_order(weights, ids):
    order = ids.argsort(-1)
    return weights.gather(1, order).double(), ids.gather(1, order)


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("on_output", [True, False])
@pytest.mark.parametrize("kind", ["bias", "bias and shared", "softmax", "sigmoid"])
def test_routing_with_groups(kind, on_output, renormalize, dtype):
    logits, bias, shared = randn(7, 32).to(dtype), randn(32) * 0.1 if kind.startswith("bias") else None, int(kind.endswith("shared"))
    options = {"renormalize": renormalize, "routed_scaling_factor": 2.5, "apply_routed_scaling_factor_on_output": on_output}
    scoring = {} if bias is not None else {"scoring_func": kind}
    got = in_order(*chosen(logits, bias, shared, **options, **scoring))
    assert quern.last_kernel().startswith("moe_route.cpu")
    fixed = {"num_expert_group": 4, "topk_group": 2, "num_fused_shared_experts": shared, **options, **scoring}
    hidden, exact = torch.empty(7, 8), logits.float()  # bf16 scores would tie
    with torch.compiler.set_stance("force_eager"):
        want = in_order(*(topk.grouped_topk_gpu(hidden, exact, 4, **fixed) if bias is None else
                          topk.biased_grouped_topk_impl(hidden, exact, bias, 4 + shared, **fixed)))
    assert torch.equal(got[1], want[1])
    assert bool(((got[0] - want[0]).abs() <= 2 * (32 + 8) * 2**-24 * want[0].abs()).all())


def test_a_bias_for_each_token_is_sglangs(caplog):
    logits, bias = randn(7, 32), randn(7, 32)
    with torch.compiler.set_stance("force_eager"):
        got = in_order(*topk.biased_grouped_topk(torch.empty(7, 8), logits, bias, 4, True, 4, 2))
        want = in_order(*topk.biased_grouped_topk_impl(torch.empty(7, 8), logits, bias, 4, True, 4, 2))
    assert torch.equal(got[1], want[1]) and "a bias of its own" in caplog.text


def test_table(told):
    rows = {line.split("  ")[1]: line for line in told.splitlines() if line.startswith("  ")}
    assert "moe_route.gpu" in rows["routing with groups"] and "packed" in rows["FP8 block experts"]
    assert "quern, gemm.fp8" in rows["FP8 block experts"] and "quern, gemm.bf16_" in rows["16-bit experts"]
