# SPDX-License-Identifier: Apache-2.0
"""Whole decoders of transformers by quern, on the CPU and on simulated GPUs: each layer, and 64 greedy tokens.

All decoders have two layers. On simulated GPUs their width is 128, and 256 where FP8 has blocks to fill; on the CPU it is 256.
DeepSeek-V3's heads and compressed keys have their real sizes, and 16 experts stand in 4 groups.
"""

import copy

import pytest
import torch
from models import tokens
from whole import DEVICES, assert_layers, assert_whole_text, by_quern, computed_by_pytorch
from whole_decoders import CONFIGS, by_definition, decoder, in_fp8

FP8 = "DeepseekV3-fp8"
NAMES = [*CONFIGS, FP8]
DENSE = {"rmsnorm": 5, "silu_and_mul": 2, "rope": 2, "linear": 11}
EXPERTS = {"rmsnorm": 9, "silu_and_mul": 2, "mla": 2, "moe_route": 1, "fused_moe": 1}
KINDS = {
    "Llama": DENSE,
    "Qwen3": {"rmsnorm": 5, "silu_and_mul": 2, "qk_rmsnorm_rope": 2, "linear": 11},
    "Gemma2": {"gemma_rmsnorm": 9, "gelu_tanh_and_mul": 2, "rope": 2, "linear": 11},
    "GptOss": {"rmsnorm": 5, "rope": 2, "moe_route": 2, "fused_moe": 2, "linear": 9},
    "DeepseekV3": {**EXPERTS, "linear": 13},
    FP8: {**EXPERTS, "linear": 1, "fp8_linear": 16},
}


def made(name, device, dtype=torch.bfloat16):
    """Returns a model, and what it is compared with: the exact one, and the unpatched one in its own precision."""
    if name == FP8:
        model = in_fp8(decoder("DeepseekV3", 256, dtype))
        return model, by_definition(model, torch.float64), by_definition(model, dtype)
    model = decoder(name, 128 if device else 256, dtype)
    return model, copy.deepcopy(model).double(), model


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_64_greedy_tokens(name, device):
    model, exact, plain = made(name, device)
    assert_whole_text(model, tokens(1, 5), device, torch.bfloat16, exact, plain)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_layers(name, device):
    model, exact, plain = made(name, device)
    assert_layers(model, tokens(1, 21), device, torch.bfloat16, exact, plain)


@pytest.mark.parametrize("name", NAMES)
def test_layers_of_f16(name):
    model, exact, plain = made(name, None, torch.float16)
    assert_layers(model, tokens(1, 21), None, torch.float16, exact, plain)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_to_pytorch(name):
    """Tests which modules are quern's, and that a prompt and a further token need none of PyTorch's operators that compute. Gemma 2
    caps its logits by a tanh of its own."""
    model, _, _ = made(name, None)
    with by_quern(model, None) as whole:
        assert whole.patch.counts == KINDS[name]
        assert [path for path, _, _ in whole.patch.left] == ["model.rotary_emb"]
        left = computed_by_pytorch(lambda: model.generate(**tokens(1, 5), max_new_tokens=2, do_sample=False))
        assert left == ({"aten::tanh"} if name == "Gemma2" else set())
