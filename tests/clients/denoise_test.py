# SPDX-License-Identifier: Apache-2.0
"""Whole diffusion transformers of diffusers by quern, on the CPU and on simulated GPUs: each layer, and four denoising steps."""

import copy

import pytest
import torch
from diffusers import SD3Transformer2DModel, WanTransformer3DModel
from flux_test import denoise
from models import assert_as_good, error, flux, in_double, run, scene, spread_norms
from whole import DEVICES, by_quern, computed_by_pytorch

BF16 = torch.bfloat16


def _randomized(model):
    """Gives random numbers to what starts as zeros, such as biases, so that they show."""
    for path, x in model.named_parameters():
        if path.endswith("bias"):
            torch.nn.init.normal_(x.data, std=0.1)
    return spread_norms(model)


def _noise(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4))


def _sd3(device, dual):
    torch.manual_seed(9)
    model = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=64, num_attention_heads=2, joint_attention_dim=48,
        caption_projection_dim=128, pooled_projection_dim=32, out_channels=4, pos_embed_max_size=8, qk_norm="rms_norm",
        dual_attention_layers=(0,) if dual else ())
    side = 4 if device else 8
    return _randomized(model).to(BF16), {
        "hidden_states": _noise(2, 4, side, side).to(BF16), "encoder_hidden_states": _noise(2, 7, 48).to(BF16),
        "pooled_projections": _noise(2, 32).to(BF16), "timestep": torch.full((2,), 1.0, dtype=BF16)}


def _wan(device, per_token):
    """Makes a Wan; per_token: with a time for each token, as Wan 2.2 has."""
    torch.manual_seed(10)
    model = WanTransformer3DModel(num_attention_heads=2, attention_head_dim=64, in_channels=4, out_channels=4, text_dim=48, freq_dim=32,
                                  ffn_dim=256, num_layers=2, rope_max_seq_len=32)
    side = 4 if device else 8
    tokens = 2 * (side // 2) ** 2
    return _randomized(model).to(BF16), {
        "hidden_states": _noise(2, 4, 2, side, side).to(BF16), "encoder_hidden_states": _noise(2, 7, 48).to(BF16),
        "timestep": torch.ones((2, tokens) if per_token else 2, dtype=BF16)}


def _flux(device):
    size = {"side": 2, "text": 3} if device else {}
    return _randomized(flux(torch.float32, 128 if device else 256)).to(BF16), scene(BF16, **size)


MODELS = {"flux": _flux, "sd3": lambda device: _sd3(device, False), "sd3.5": lambda device: _sd3(device, True),
          "wan": lambda device: _wan(device, False), "wan2.2": lambda device: _wan(device, True)}
KINDS = {
    "flux": {"adaptive_layernorm": 7, "gated_residual_layernorm": 2, "qk_rmsnorm_rope": 4, "gemm": 6, "linear": 48},
    "sd3": {"adaptive_layernorm": 5, "gated_residual_layernorm": 2, "rmsnorm": 8, "gemm": 3, "linear": 32},
    "sd3.5": {"adaptive_layernorm": 5, "gated_residual_layernorm": 2, "rmsnorm": 10, "gemm": 3, "linear": 36},
}
KINDS["wan"] = KINDS["wan2.2"] = {"gated_residual_layernorm": 2, "rmsnorm": 8, "rope": 2, "layernorm": 1, "gemm": 2, "linear": 26}
# What stands by itself in the layers that embed time and text, and tables.
LEFT = {"flux": {"FluxPosEmbed", "SiLU"}, "sd3": {"SiLU"}, "sd3.5": {"SiLU"}, "wan": {"GELU", "SiLU", "WanRotaryPosEmbed"}}
LEFT["wan2.2"] = LEFT["wan"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_layers(name, device):
    model, inputs = MODELS[name](device)
    exact, plain = run(copy.deepcopy(model).double(), in_double(inputs)), run(model, inputs)
    with by_quern(model, device):
        patched = run(model, inputs)
    assert_as_good(patched, plain, exact, BF16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", MODELS)
def test_four_steps(name, device):
    """Tests that the patched model's picture is at most twice as far from the exact one as the unpatched model's is."""
    model, inputs = MODELS[name](device)
    exact, plain = denoise(copy.deepcopy(model).double(), in_double(inputs)), denoise(model, inputs)
    with by_quern(model, device):
        patched = denoise(model, inputs)
    assert error(inputs["hidden_states"].double(), exact) > 0.1  # something was done
    assert error(patched, exact) <= 2 * error(plain, exact) + 2.0**-9


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_to_pytorch(name):
    """Tests which modules are quern's. PyTorch's own are activations that stand by themselves, convolutions and FLUX's table."""
    model, inputs = MODELS[name](None)
    with by_quern(model, None) as whole:
        assert whole.patch.counts == KINDS[name]
        assert {kind for _, kind, _ in whole.patch.left} == LEFT[name]
        assert computed_by_pytorch(lambda: model(**inputs)) <= {"aten::silu", "aten::gelu", "aten::pow"}
