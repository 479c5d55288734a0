# SPDX-License-Identifier: Apache-2.0
"""vLLM's routing and layers of experts of FP8 by quern: chosen, loaded and called as vLLM does."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT
from deep_gemm_tools import F32, plain, quantised, randn
from vllm import envs
from vllm.model_executor.layers.fused_moe import config as moe_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopk, grouped_topk
from vllm.model_executor.layers.quantization import fp8
from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8MoEMethod
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym, kFp8Static128BlockSym
from vllm.v1.worker.workspace import init_workspace_manager, is_workspace_manager_initialized

F8Z = torch.float8_e4m3fnuz  # gfx942's


# ---- routing

@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("scoring, biased", [("sigmoid", True), ("softmax", False), ("sigmoid", False)])
@pytest.mark.parametrize("renormalize", [True, False])
def test_grouped_topk(renormalize, scoring, biased, dtype):
    op = GroupedTopk(topk=4, renormalize=renormalize, num_expert_group=4, topk_group=2, scoring_func=scoring, routed_scaling_factor=2.5)
    logits, bias = randn(7, 32, dtype=dtype), randn(32) * 0.1 if biased else None
    weights, ids = op(torch.empty(7, 8), logits, bias)
    assert type(op).__name__ == "QuernGroupedTopk" and quern.last_kernel().startswith("moe_route.cpu")
    # vLLM's native function is compiled when called, and what it wraps is the same in eager mode. bf16 scores would tie.
    native = getattr(grouped_topk, "__wrapped__", grouped_topk)
    want, want_ids = native(torch.empty(7, 8), logits.float(), 4, renormalize, 4, 2, scoring, 2.5, bias)
    order, want_order = ids.argsort(-1), want_ids.argsort(-1)
    assert torch.equal(ids.gather(1, order), want_ids.gather(1, want_order))
    got, want = weights.gather(1, order).double(), want.gather(1, want_order).double()
    assert bool(((got - want).abs() <= 2 * (32 + 8) * 2**-24 * want.abs()).all())


# ---- experts

EXPERTS, HIDDEN, INNER, TOP_K = 6, 256, 128, 2


def config_of(activation=MoEActivation.SILU, **changes):
    return moe_config.FusedMoEConfig(
        num_experts=EXPERTS, experts_per_token=TOP_K, hidden_dim=HIDDEN, intermediate_size=INNER, num_local_experts=EXPERTS,
        num_logical_experts=EXPERTS, activation=activation, device="cpu", routing_method=moe_config.RoutingMethodType.DeepSeekV3,
        moe_parallel_config=moe_config.FusedMoEParallelConfig.make_no_parallel(), in_dtype=BF16,
        intermediate_size_per_partition=INNER, **changes)


@pytest.fixture(autouse=True)
def no_aiter(monkeypatch):
    """vLLM takes AITER's experts, and looks at no others, where these variables are set."""
    for name in ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"):
        monkeypatch.delenv(name, raising=False)


def loaded(activation=MoEActivation.SILU):
    """Returns vLLM's method, a layer as it loads it from a checkpoint of e4m3fn, and what the weights stand for."""
    if not is_workspace_manager_initialized():
        init_workspace_manager(torch.device("cpu"))
    config = config_of(activation)
    layer = torch.nn.Module()
    layer.moe_config, layer.weight_block_size = config, [128, 128]
    layer._expert_routing_tables = lambda: None
    exact = []
    for name, shape in (("w13", (EXPERTS, 2 * INNER, HIDDEN)), ("w2", (EXPERTS, HIDDEN, INNER))):
        weight, scale = quantised(*shape, gran=(128, 128))
        scale = scale / 16
        exact.append(plain((weight.clone(), scale.clone()), (128, 128)))
        setattr(layer, f"{name}_weight", torch.nn.Parameter(weight, requires_grad=False))
        setattr(layer, f"{name}_weight_scale_inv", torch.nn.Parameter(scale, requires_grad=False))
        setattr(layer, f"{name}_input_scale", None)
    method = Fp8MoEMethod(Fp8Config(is_checkpoint_fp8_serialized=True, weight_block_size=[128, 128]), type("Layer", (), {"moe_config": config}))
    method.moe_block_shape = [128, 128]
    method.process_weights_after_loading(layer)
    layer.activation, layer.global_num_experts, layer.expert_map, layer.apply_router_weight_on_input = activation, EXPERTS, None, False
    return method, layer, exact


def rounded(x):
    """Returns what FP8 by 1 x 128 keeps of x."""
    return plain(quern.quantize_groups(x.float(), 128, F8Z))


ACTS = {
    MoEActivation.SILU: lambda x: torch.nn.functional.silu(x[:, :INNER]) * x[:, INNER:],
    MoEActivation.GELU: lambda x: torch.nn.functional.gelu(x[:, :INNER]) * x[:, INNER:],
}


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", list(ACTS))
@pytest.mark.parametrize("tokens", [1, 9])
def test_experts(tokens, activation, dtype):
    method, layer, (w13, w2) = loaded(activation)
    assert method.experts_cls.__name__ == "QuernFp8BlockExperts" and layer.w13_weight.is_quern_packed
    x, weights = randn(tokens, HIDDEN, dtype=dtype), torch.rand(tokens, TOP_K, generator=torch.Generator().manual_seed(1))
    ids = torch.stack([torch.randperm(EXPERTS, generator=torch.Generator().manual_seed(t))[:TOP_K] for t in range(tokens)]).int()
    got = method.apply(layer, x, weights, ids, None, None)
    assert got.dtype == dtype and quern.last_kernel().startswith("moe_sum.cpu")
    want, size = torch.zeros(2, tokens, HIDDEN, dtype=torch.float64)
    for token in range(tokens):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            inner = ACTS[activation](rounded(x[token:token + 1]) @ w13[expert].T)
            # The inner row is rounded to FP8: a step of 2^-4 of each value, and of the group's largest near zero.
            want[token] += float(weight) * (inner @ w2[expert].T)[0]
            step = 2**-4 * inner.abs() + 2.0**-11 / 240 * inner.abs().amax()
            size[token] += float(weight) * ((step + 2**-12 * inner.abs()) @ w2[expert].abs().T)[0]
    assert bool(((got.double() - want).abs() <= size + 2 * UNIT[dtype] * want.abs() + 1e-9).all())
    alone = quern.fused_moe(x, *experts_of(layer), weights, ids, activation.value, **scales_of(layer))
    assert torch.equal(got, alone)  # the same call outside vLLM


def experts_of(layer):
    return layer.w13_weight.data, layer.w2_weight.data


def scales_of(layer):
    return {"w1_scale": layer.w13_weight_scale_inv.data, "w2_scale": layer.w2_weight_scale_inv.data, "packed": True, "inner": INNER}


@pytest.mark.parametrize("changes, why", [({"moe_backend": "triton"}, "moe_backend triton"), ({"is_lora_enabled": True}, "LoRA")])
def test_other_experts_are_vllms(changes, why, caplog):
    _, kernel = fp8.select_fp8_moe_backend(config_of(**changes), kFp8Static128BlockSym, kFp8Dynamic128Sym)
    assert not kernel.__name__.startswith("Quern") and why in caplog.text


def test_table(told):
    rows = {line.split("  ")[1]: line for line in told.splitlines()[1:]}
    assert "moe_route.gpu" in rows["GroupedTopk"]
    assert "VLLM_ROCM_USE_AITER" in rows["FP8 block experts"]  # which this process had set when it began
    assert envs.VLLM_ROCM_USE_AITER is False
