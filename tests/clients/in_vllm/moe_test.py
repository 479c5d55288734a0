# SPDX-License-Identifier: Apache-2.0
"""vLLM's routing and layers of experts of FP8 by quern: chosen, loaded and called as vLLM does."""

import inspect

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT
from deep_gemm_tools import F32, plain, quantised, randn
from vllm import envs
from vllm._aiter_ops import rocm_aiter_ops
from vllm.model_executor.layers.fused_moe import config as moe_config
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import GroupedTopKRouter, grouped_topk
from vllm.model_executor.layers.quantization import fp8
from vllm.model_executor.layers.quantization.fp8 import Fp8Config, Fp8MoEMethod
from vllm.model_executor.layers.quantization.utils.quant_utils import kFp8Dynamic128Sym, kFp8Static128BlockSym
from vllm.v1.worker.workspace import init_workspace_manager, is_workspace_manager_initialized

F8Z = torch.float8_e4m3fnuz  # gfx942's


@pytest.fixture(autouse=True)
def no_aiter():
    """vLLM takes AITER's experts and routing, and looks at no others, where these variables are set."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE"):
            patch.delenv(name, raising=False)
        rocm_aiter_ops.refresh_env_variables()
        yield
    rocm_aiter_ops.refresh_env_variables()


# ---- routing

@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("scoring, biased", [("sigmoid", True), ("softmax", False), ("sigmoid", False)])
@pytest.mark.parametrize("renormalize", [True, False])
def test_grouped_topk(renormalize, scoring, biased, dtype):
    logits, bias = randn(7, 32, dtype=dtype), randn(32) * 0.1 if biased else None
    router = GroupedTopKRouter(4, 32, 4, 2, renormalize, scoring, 2.5, bias)
    weights, ids = router.select_experts(torch.empty(7, 8), logits)
    assert quern.last_kernel().startswith("moe_route.cpu")
    # vLLM's own function is compiled when called, and what it wraps is the same in eager mode. bf16 scores would tie.
    native = inspect.unwrap(grouped_topk)
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


def loaded(activation=MoEActivation.SILU, **changes):
    """Returns vLLM's method, a layer as it loads it from a checkpoint of e4m3fn, and what the weights stand for."""
    if not is_workspace_manager_initialized():
        init_workspace_manager(torch.device("cpu"))
    config = config_of(activation, **changes)
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


def clamped(gate, up, limit, alpha=1.702, beta=1.0):
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(alpha * gate) * (up + beta)


GPT_OSS = {"swiglu_limit": 5.0, "swiglu_alpha": 1.5, "swiglu_beta": 1.0}
# Activation, changes of the configuration, what it is.
ACTS = {
    "silu": (MoEActivation.SILU, {}, lambda x: torch.nn.functional.silu(x[:, :INNER]) * x[:, INNER:]),
    "silu to 5": (MoEActivation.SILU, {"swiglu_limit": 5.0}, lambda x: clamped(x[:, :INNER], x[:, INNER:], 5.0, 1.0, 0.0)),
    "gelu": (MoEActivation.GELU, {"swiglu_limit": 1.0}, lambda x: torch.nn.functional.gelu(x[:, :INNER]) * x[:, INNER:]),  # not read
    "gpt-oss": (MoEActivation.SWIGLUOAI, {}, lambda x: clamped(x[:, ::2], x[:, 1::2], 7.0)),
    "gpt-oss's halves": (MoEActivation.SWIGLUOAI_UNINTERLEAVE, GPT_OSS, lambda x: clamped(x[:, :INNER], x[:, INNER:], 5.0, 1.5)),
    "no beta": (MoEActivation.SWIGLUOAI_UNINTERLEAVE, {"swiglu_limit": 5.0}, lambda x: clamped(x[:, :INNER], x[:, INNER:], 5.0, 1.0, 0.0)),
}


def in_f64(x, weights, ids, act, w13, w2):
    """Returns the layer in f64, and a bound for what rounding the inner rows makes of it. Ids below 0 do not count."""
    want, size = torch.zeros(2, *x.shape, dtype=torch.float64)
    for token in range(len(x)):
        for weight, expert in zip(weights[token], ids[token], strict=True):
            if expert < 0:
                continue
            inner = act(rounded(x[token:token + 1]) @ w13[expert].T)
            # The inner row is rounded to FP8: a step of 2^-4 of each value, and of the group's largest near zero.
            want[token] += float(weight) * (inner @ w2[expert].T)[0]
            step = 2**-4 * inner.abs() + 2.0**-11 / 240 * inner.abs().amax()
            size[token] += float(weight) * ((step + 2**-12 * (1 + inner.abs())) @ w2[expert].abs().T)[0]
    return want, size


def check(got, x, *of_layer):
    want, size = in_f64(x, *of_layer)
    assert bool(((got.double() - want).abs() <= size + 2 * UNIT[x.dtype] * want.abs() + 1e-9).all())


def routed(tokens, experts=EXPERTS):
    return (torch.rand(tokens, TOP_K, generator=torch.Generator().manual_seed(1)),
            torch.stack([torch.randperm(experts, generator=torch.Generator().manual_seed(t))[:TOP_K] for t in range(tokens)]).int())


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("kind", list(ACTS))
@pytest.mark.parametrize("tokens", [1, 9])
def test_experts(tokens, kind, dtype):
    activation, changes, act = ACTS[kind]
    method, layer, (w13, w2) = loaded(activation, **changes)
    assert method.experts_cls.__name__ == "QuernFp8BlockExperts" and layer.w13_weight.is_quern_packed
    x, (weights, ids) = 8 * randn(tokens, HIDDEN, dtype=dtype), routed(tokens)
    before = rounded(x[:1]) @ w13[ids[0, 0]].T
    assert float(before.abs().max()) > 7  # limits matter
    got = method.apply(layer, x, weights, ids, None, None)
    assert got.dtype == dtype and quern.last_kernel().startswith("moe_sum.cpu")
    check(got, x, weights, ids, act, w13, w2)
    if activation not in (MoEActivation.SILU, MoEActivation.GELU) or layer.moe_config.swiglu_limit:
        return
    alone = quern.fused_moe(x, *experts_of(layer), weights, ids, activation.value, **scales_of(layer))
    assert torch.equal(got, alone)  # the same call outside vLLM


def test_experts_of_other_ranks_do_not_count():
    method, layer, (w13, w2) = loaded()
    x, (weights, ids) = randn(9, HIDDEN, dtype=BF16), routed(9, 2 * EXPERTS)
    layer.global_num_experts, layer.expert_map = 2 * EXPERTS, torch.tensor([-1] * EXPERTS + list(range(EXPERTS)), dtype=torch.int32)
    ids[4] = -1
    ids[5] = torch.tensor([0, EXPERTS - 1], dtype=torch.int32)
    got = method.apply(layer, x, weights, ids, None, None)
    here = torch.where(ids >= EXPERTS, ids - EXPERTS, -1)
    check(got, x, weights, here, ACTS["silu"][2], w13, w2)
    assert not got[4:6].any() and got.any()


def test_what_shared_experts_made_is_added_by_vllm():
    """vLLM runs shared experts apart; here as one more expert, whose result is the same as among the routed ones."""
    method, layer, (w13, w2) = loaded()
    x, (weights, ids) = randn(5, HIDDEN, dtype=BF16), routed(5)
    shared = torch.full((5, 1), 2, dtype=torch.int32)
    apart = method.apply(layer, x, weights, ids, None, None) + method.apply(layer, x, torch.ones(5, 1), shared, None, None)
    joined = torch.cat([weights, torch.ones(5, 1)], 1), torch.cat([ids, shared], 1)
    want, size = in_f64(x, *joined, ACTS["silu"][2], w13, w2)
    assert bool(((apart.double() - want).abs() <= size + 6 * UNIT[BF16] * want.abs().amax() + 1e-9).all())


def test_routing_that_quern_has_not_is_vllms(caplog):
    weights, ids = GroupedTopKRouter(4, 32, 4, 2).select_experts(torch.empty(7, 8), randn(7, 32).double())
    assert "grouped_topk: the engine's own: " in caplog.text and weights.shape == ids.shape == (7, 4)


def test_a_beta_that_quern_has_not_is_refused():
    activation, changes, _ = ACTS["gpt-oss's halves"]
    method, layer, _ = loaded(activation, **{**changes, "swiglu_beta": 0.5})
    with pytest.raises(NotImplementedError, match="beta is 0.5 with alpha 1.5"):
        method.apply(layer, randn(1, HIDDEN, dtype=BF16), *routed(1), None, None)


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
    for name in ("grouped_topk", "FP8 block experts"):
        assert "VLLM_ROCM_USE_AITER is set" in rows[name].replace(" or VLLM_ROCM_USE_AITER_MOE", "")  # when this process began
    assert envs.VLLM_ROCM_USE_AITER is False
