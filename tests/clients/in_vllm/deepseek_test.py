# SPDX-License-Identifier: Apache-2.0
"""vLLM's whole layer of DeepSeek's experts, with its gate, its routing, the shared experts and the sum: made, loaded and called as vLLM
does. Shared experts are a layer of their own, or, with AITER's stand-in, experts among the routed ones."""

import contextlib
import inspect
import types

import pytest
import quern
import torch
from aiter_tools import BF16
from deep_gemm_tools import plain, quantised, randn
from moe_test import rounded
from upstream.cpu import OnCpu
from vllm._aiter_ops import rocm_aiter_ops
from vllm.distributed import parallel_state
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import grouped_topk
from vllm.model_executor.layers.quantization.fp8 import Fp8Config
from vllm.model_executor.model_loader.utils import process_weights_after_loading
from vllm.model_executor.models.deepseek_v2 import DeepseekV2MoE
from vllm.v1.worker.workspace import init_workspace_manager, is_workspace_manager_initialized

EXPERTS, HIDDEN, INNER, TOP_K, GROUPS, TOP_GROUPS = 16, 256, 128, 4, 4, 2
SEED = 100  # of a gate that gives no token two equal logits
AITER = ("VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MOE", "VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS")


@pytest.fixture(scope="module", autouse=True)
def groups(tmp_path_factory):
    """vLLM's groups of processes, of this one alone."""
    from vllm.config import VllmConfig, set_current_vllm_config
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(1, 0, f"file://{tmp_path_factory.mktemp('groups') / 'store'}", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
    if not is_workspace_manager_initialized():
        init_workspace_manager(torch.device("cpu"))
    yield
    parallel_state.destroy_model_parallel()
    parallel_state.destroy_distributed_environment()


@contextlib.contextmanager
def aiter(is_on):
    """Switches AITER, of which quern's stand-in is there, on or off for what is made meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_DISABLE_SHARED_EXPERTS_STREAM", "1")  # the CPU has no streams
        for name in AITER:
            patch.setenv(name, "1") if is_on else patch.delenv(name, raising=False)
        rocm_aiter_ops.refresh_env_variables()
        with OnCpu() if is_on else contextlib.nullcontext():  # vLLM makes a buffer for "cuda" then
            yield
    rocm_aiter_ops.refresh_env_variables()


def model_of(scoring, shared):
    return types.SimpleNamespace(
        routed_scaling_factor=2.5, n_routed_experts=EXPERTS, n_shared_experts=shared, hidden_act="silu", hidden_size=HIDDEN,
        moe_intermediate_size=INNER, topk_method="noaux_tc" if scoring == "sigmoid" else "group_limited_greedy", num_experts_per_tok=TOP_K,
        norm_topk_prob=True, n_group=GROUPS, topk_group=TOP_GROUPS, scoring_func=scoring)


class Model:
    """A checkpoint of one such layer, of e4m3fn, and what its weights stand for."""

    def __init__(self, shared):
        self.tensors, self.exact = {}, {}
        for expert in range(EXPERTS + shared):  # the shared ones come last, here
            for n, (name, shape) in enumerate((("gate_proj", (INNER, HIDDEN)), ("up_proj", (INNER, HIDDEN)), ("down_proj", (HIDDEN, INNER)))):
                weight, scale = quantised(*shape, gran=(128, 128), seed=3 * expert + n)
                scale = scale / (16 if expert < EXPERTS else 13)  # shared ones weigh less than 2.5
                self.tensors[expert, name] = weight, scale
                self.exact[expert, name] = plain((weight.clone(), scale.clone()), (128, 128))
        self.gate, self.bias = randn(EXPERTS, HIDDEN, dtype=BF16, seed=SEED) / 16, randn(EXPERTS) * 0.1

    def of(self, expert):
        return [self.exact[expert, name] for name in ("gate_proj", "up_proj", "down_proj")]


def load(layer, model, shared):
    """Loads a checkpoint as DeepSeek's model does: shared experts side by side in their own layer, or behind the routed ones."""
    layer.gate.weight.data.copy_(model.gate)
    if layer.gate.e_score_correction_bias is not None:
        layer.gate.e_score_correction_bias.data.copy_(model.bias)
    apart = layer.shared_experts is not None
    names = [(expert, name) for expert, name in model.tensors if expert < EXPERTS or not apart]
    list(layer.experts.load_weights(
        (f"{expert}.{name}.{kind}", model.tensors[expert, name][n].clone()) for expert, name in names
        for n, kind in enumerate(("weight", "weight_scale_inv"))))
    for module, name, shard in [("gate_up_proj", "gate_proj", (0,)), ("gate_up_proj", "up_proj", (1,)), ("down_proj", "down_proj", ())] * apart:
        for n, kind in enumerate(("weight", "weight_scale_inv")):
            parameter = getattr(getattr(layer.shared_experts, module), kind)
            parts = [model.tensors[EXPERTS + i, name][n] for i in range(shared)]
            parameter.weight_loader(parameter, torch.cat(parts, 1 if name == "down_proj" else 0), *shard)
    of_model = types.SimpleNamespace(quantization="fp8", word_embeddings_untied_by_checkpoint=False)
    process_weights_after_loading(layer, of_model, torch.device("cpu"))


def made(config, scoring="sigmoid", shared=1, **options):
    """Returns vLLM's layer, loaded, and its checkpoint."""
    config.model_config = types.SimpleNamespace(dtype=BF16, quantization="fp8", hf_config=None, hf_text_config=None)
    torch.set_default_dtype(BF16)
    try:
        layer = DeepseekV2MoE(model_of(scoring, shared), config.parallel_config,
                              Fp8Config(is_checkpoint_fp8_serialized=True, weight_block_size=[128, 128]), prefix="model.layers.3.mlp", **options)
    finally:
        torch.set_default_dtype(torch.float32)
    model = Model(shared or 0)
    load(layer, model, shared)
    return layer, model


# ---- in f64

def routed(logits, model, scoring):
    assert bool((logits.float().sort().values.diff() > 0).all())  # of equal ones either may be chosen
    native = inspect.unwrap(grouped_topk)
    bias = model.bias if scoring == "sigmoid" else None
    return native(torch.empty(len(logits), 1), logits.float(), TOP_K, True, GROUPS, TOP_GROUPS, scoring, 2.5, bias)


def expert_in_f64(x, gate, up, down, goes_through_bf16):
    """Returns an expert in f64, and the variance of what rounding makes of it. What is within is rounded to FP8, in vLLM's own layer of
    shared experts to bf16 before and after SiLU as well; errors up to a step either way, independent of each other."""
    rows = rounded(x)
    gate, up = rows @ gate.T, rows @ up.T
    inner = torch.nn.functional.silu(gate) * up
    step = 2**-4 * inner.abs() + 2.0**-11 / 240 * inner.abs().amax(1, keepdim=True) + 2**-16 * (1 + inner.abs())
    step += goes_through_bf16 * 2**-8 * (1.1 * gate.abs() * up.abs() + 2 * inner.abs())  # SiLU's slope is below 1.1
    return inner @ down.T, step.square() / 3 @ down.square().T


def check(got, x, logits, model, scoring, shared, are_apart):
    weights, ids = routed(logits, model, scoring)
    parts, variance = torch.zeros(1 + shared, *x.shape, dtype=torch.float64), torch.zeros(x.shape, dtype=torch.float64)
    for expert in range(EXPERTS + shared):
        is_shared = expert >= EXPERTS
        weight = torch.ones(len(x), 1).double() if is_shared else (weights.double() * (ids == expert)).sum(1, keepdim=True)
        out, more = expert_in_f64(x, *model.of(expert), is_shared and are_apart)
        parts[expert - EXPERTS + 1 if is_shared else 0] += weight * out
        variance += weight.square() * more
    want = parts.sum(0)
    bound = 6 * variance.sqrt() + 2**-7 * (want.abs() + parts.abs().sum(0))  # each part is rounded to bf16, and so is the sum
    assert bool((parts.abs() > 2 * bound).flatten(1).any(1).all())  # a part left out would be seen
    assert bool(((got.double() - want).abs() <= bound).all())


@pytest.fixture
def called(monkeypatch):
    """Names of quern's functions, as the plugin calls them."""
    names = []

    def noted(name, function):
        return lambda *arguments, **options: (names.append(name), function(*arguments, **options))[1]

    for name in ("gemm", "silu_and_mul", "moe_route", "fused_moe"):
        monkeypatch.setattr(quern, name, noted(name, getattr(quern, name)))
    return names


@pytest.mark.parametrize("tokens", [1, 9])
@pytest.mark.parametrize("scoring, shared, options", [
    ("sigmoid", 1, {}), ("softmax", 2, {}), ("sigmoid", 2, {"apply_routed_scale_to_output": True}), ("softmax", 0, {})])
def test_layer(scoring, shared, options, tokens, called, config):
    with aiter(False):
        layer, model = made(config, scoring, shared or None, **options)
        x = randn(tokens, HIDDEN, dtype=BF16)
        with set_forward_context(None, config):
            got = layer(x)
    assert called == ["gemm", "silu_and_mul", "gemm"] * bool(shared) + ["moe_route", "fused_moe"]
    check(got, x, layer.gate(x)[0], model, scoring, shared, True)


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax"])
def test_layer_by_aiters_stand_in_with_shared_experts_among_the_routed(scoring, config):
    with aiter(True):
        layer, model = made(config, scoring)
        assert layer.is_fused_shared_expert_enabled and layer.shared_experts is None
        x = randn(5, HIDDEN, dtype=BF16)
        with set_forward_context(None, config):
            got = layer(x)
        assert quern.last_kernel().startswith("moe_sum.cpu")
        check(got, x, layer.gate(x)[0], model, scoring, 1, False)
