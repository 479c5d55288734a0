# SPDX-License-Identifier: Apache-2.0
"""Linear layers of patched models: FLUX's with the GELU or the gate and residual behind them, and transformers' FP8Linear."""

import copy

import pytest
import quern
import torch
from decoder_test import Recorder, calls_of
from flux_test import calls_in, denoise
from models import error, flux, in_double, scene
from transformers.integrations.finegrained_fp8 import FP8Linear

PRODUCTS = 6  # of a model with a block of each kind: two for the picture, two for the text, two in the single block


def sample(model, inputs):
    with torch.inference_mode():
        return model(**inputs).sample.double()


def compare(model, inputs, device=None, linears="all"):
    """Patches the model, products and all, compares its result with the exact one, and returns its calls of the product."""
    exact, plain = sample(copy.deepcopy(model).double(), in_double(inputs)), sample(model, inputs)
    with quern.patch(model, device, linears=linears) as patch:
        assert patch.counts["gemm"] == 3 and {name for _, name, _ in patch.left} == {"FluxPosEmbed", "SiLU"}
        assert error(sample(model, inputs), exact) <= 2 * error(plain, exact) + 2.0**-9
        calls = {kernel: count for (op, kernel), count in patch.calls.items() if op == "gemm"}
    assert torch.equal(sample(model, inputs), plain)
    return calls


def test_flux():
    calls = compare(flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16))
    assert sum(calls.values()) == PRODUCTS and all(".cpu" in kernel for kernel in calls)


def test_flux_on_a_simulated_gpu():
    calls = compare(flux(torch.bfloat16, 128, 1, 1), scene(torch.bfloat16, batch=1, side=2, text=3), "sim:gfx942")
    assert calls == {"gemm.any": PRODUCTS}


def test_other_dtypes_are_multiplied_by_pytorch():
    assert compare(flux(torch.float32, layers=1, single_layers=1), scene(torch.float32)) == {}


def test_hooks_are_called():
    """A layer that somebody looks at is called as it is."""
    model, seen = flux(torch.bfloat16, layers=1, single_layers=1), []
    model.single_transformer_blocks[0].proj_mlp.register_forward_hook(lambda *_: seen.append("proj_mlp"))
    model.transformer_blocks[0].ff.register_forward_hook(lambda *_: seen.append("ff"))
    with quern.patch(model, linears="all") as patch:
        sample(model, scene(torch.bfloat16))
        assert seen == ["ff", "proj_mlp"] and calls_of(patch)["gemm"] == PRODUCTS - 2


def test_four_steps():
    model, inputs = flux(torch.bfloat16), scene(torch.bfloat16)
    exact, plain = denoise(copy.deepcopy(model).double(), in_double(inputs)), denoise(model, inputs)
    with quern.patch(model, linears="all"):
        assert error(denoise(model, inputs), exact) <= 2 * error(plain, exact)


def test_compiled_is_one_graph_with_the_same_bits():
    model, inputs = flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16)
    torch._dynamo.reset()
    with quern.patch(model, linears="all"), torch.inference_mode():
        recorder = Recorder()
        want = model(**inputs).sample
        got = torch.compile(model, fullgraph=True, backend=recorder)(**inputs).sample
        assert recorder.graphs == 1 and recorder.calls == {**calls_in(1, 1), "gemm": PRODUCTS}
    assert torch.equal(got, want)


@pytest.mark.parametrize("linears, reason", [("fast", "PyTorch's own products are as fast here"), ("none", "linears is 'none'")])
def test_left_alone(linears, reason):
    with quern.patch(flux(torch.bfloat16, layers=1, single_layers=1), linears=linears) as patch:
        assert "gemm" not in patch.counts
        left = {path: text for path, _, text in patch.left}
        assert reason in left["transformer_blocks.0.ff.net.0"] and reason in left["single_transformer_blocks.0"]


def test_bad_choice():
    with pytest.raises(ValueError, match="linears is 'some'; accepted: 'fast', 'all', 'none'"):
        quern.patch(flux(torch.bfloat16), linears="some")


# ---- FP8Linear

def fp8_layer(inputs, outputs, dtype=torch.bfloat16, has_bias=True, **options):
    """Makes an FP8Linear, and what its weight stands for in double."""
    torch.manual_seed(9)
    layer = FP8Linear(inputs, outputs, **{"block_size": (128, 128), **options}, has_bias=has_bias).eval().requires_grad_(False)
    layer.weight.data = torch.randn(outputs, inputs).clamp(-4, 4).to(torch.float8_e4m3fn)
    layer.weight_scale_inv.data = 0.01 + torch.rand_like(layer.weight_scale_inv.data.float())
    if has_bias:
        layer.bias.data = torch.randn(outputs).to(dtype)
    spread = layer.weight_scale_inv.repeat_interleave(128, 0)[:outputs].repeat_interleave(128, 1)[:, :inputs]
    return layer, layer.weight.double() * spread.double()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("shape", [(5, 200), (2, 3, 256)])
def test_fp8_linear(dtype, has_bias, shape):
    layer, weight = fp8_layer(shape[-1], 136, dtype, has_bias)
    x = torch.randn(shape, dtype=dtype)
    q, scale = quern.quantize_groups(x.reshape(-1, shape[-1]), eps=1e-12)
    exact = quern.dequantize_fp8(q, scale).double() @ weight.T + (layer.bias.double() if has_bias else 0)
    with quern.patch(layer) as patch:
        got = layer(x)
        assert patch.counts == {"fp8_linear": 1} and calls_of(patch) == {"quantize_groups": 1, "gemm": 1}
    assert got.dtype == dtype and got.shape == (*shape[:-1], 136)
    assert error(got.double().reshape(exact.shape), exact) <= torch.finfo(dtype).eps + 2.0**-20


def test_fp8_linear_by_a_simulated_gpu_has_the_same_result():
    layer, _ = fp8_layer(256, 136)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    with quern.patch(layer):
        want = layer(x).double()
    with quern.patch(layer, "sim:gfx942") as patch:
        assert error(layer(x).double(), want) <= 2.0**-7
        assert all(".gpu" in kernel or kernel == "gemm.any_fp8" for _, kernel in patch.calls)


@pytest.mark.parametrize("options, reason", [({"block_size": (64, 128)}, "its blocks are (64, 128)"), ({"block_size": None}, "its blocks are None"),
                                             ({"activation_scheme": "static"}, "its scheme 'static'")])
def test_fp8_linear_of_other_kinds(options, reason):
    layer = FP8Linear(256, 128, **{"block_size": (128, 128), **options}).eval()
    with quern.patch(layer) as patch:
        assert patch.counts == {} and reason in patch.left[0][2]
