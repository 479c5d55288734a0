# SPDX-License-Identifier: Apache-2.0
"""diffusers' FLUX transformer with its norms and rotary embedding by quern, and diffusers' gated feed-forward layers."""

import copy

import pytest
import quern
import torch
from decoder_test import Recorder, calls_of
from diffusers.models.attention import FeedForward
from models import DTYPES, assert_as_good, error, flux, in_double, put, run, scene


def counts_of(layers, single_layers):
    return {"adaptive_layernorm": 2 * layers + single_layers + 1, "gated_residual_layernorm": layers,
            "qk_rmsnorm_rope": layers + single_layers}


def calls_in(layers, single_layers):
    """Returns the calls that a model makes. A block of two streams makes each twice."""
    return {"adaptive_layernorm": 2 * layers + single_layers + 1, "gated_residual_layernorm": 2 * layers,
            "qk_rmsnorm_rope": 2 * layers + single_layers}


def check(dtype, device=None, hidden=256, layers=2, single_layers=2, where="cpu", **size):
    model, inputs = flux(dtype, hidden, layers, single_layers).to(where), put(scene(dtype, **size), where)
    exact, plain = run(copy.deepcopy(model).double(), in_double(inputs)), run(model, inputs)
    with quern.patch(model, device, linears="none") as patch:
        assert patch.counts == counts_of(layers, single_layers)
        assert {kind for _, kind, _ in patch.left} == {"FluxPosEmbed", "FluxSingleTransformerBlock", "GELU", "SiLU"}
        patched = run(model, inputs)
        assert calls_of(patch) == calls_in(layers, single_layers)
        kernels = {kernel for _, kernel in patch.calls}
    assert_as_good(patched, plain, exact, dtype)
    return kernels


@pytest.mark.parametrize("dtype", DTYPES)
def test_layers(dtype):
    assert all(".cpu" in kernel for kernel in check(dtype))


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
def test_layers_on_a_simulated_gpu(device):
    kernels = check(torch.bfloat16, device, hidden=128, layers=1, single_layers=1, batch=1, side=2, text=3)
    assert all(".gpu" in kernel for kernel in kernels)


def test_inputs_are_left_as_they_are():
    """Tests that inputs are not written, though the op behind the block works in place."""
    block, x, text, embedding = flux(torch.float32, layers=1).transformer_blocks[0], torch.randn(1, 4, 256), \
        torch.randn(1, 3, 256), torch.randn(1, 256)
    angles, before = torch.randn(7, 64), (x.clone(), text.clone())
    with quern.patch(block), torch.inference_mode():
        block(x, text, embedding, (angles.cos(), angles.sin()))
    assert torch.equal(x, before[0]) and torch.equal(text, before[1])


def denoise(model, inputs, steps=4):
    """Takes Euler's steps along the model's velocity, from noise at 1 to a picture at 0."""
    x = inputs["hidden_states"]
    with torch.inference_mode():
        for step in range(steps):
            now = {**inputs, "hidden_states": x, "timestep": torch.full_like(inputs["timestep"], 1 - step / steps)}
            x = x - model(**now).sample / steps
    return x.double()


def test_four_steps():
    model, inputs = flux(torch.bfloat16), scene(torch.bfloat16)
    exact, plain = denoise(copy.deepcopy(model).double(), in_double(inputs)), denoise(model, inputs)
    with quern.patch(model):
        patched = denoise(model, inputs)
    assert error(patched, exact) <= 2 * error(plain, exact)


def test_compiled_is_one_graph_with_the_same_bits():
    model, inputs = flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16)
    torch._dynamo.reset()
    with quern.patch(model), torch.inference_mode():
        recorder = Recorder()
        want = model(**inputs).sample
        got = torch.compile(model, fullgraph=True, backend=recorder)(**inputs).sample
        assert recorder.graphs == 1 and recorder.calls == calls_in(1, 1)
    assert torch.equal(got, want)


def test_compiled_before_it_was_patched():
    """Tests that a graph made before is not used after, nor one of the patched model when that is unpatched."""
    model, inputs, recorder = flux(torch.float32, layers=1, single_layers=0), scene(torch.float32), Recorder()
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=recorder)
    with torch.inference_mode():
        want = compiled(**inputs).sample
        assert recorder.graphs == 1 and not recorder.calls
        with quern.patch(model):
            assert not torch.equal(compiled(**inputs).sample, want)
            assert recorder.calls == calls_in(1, 0)
        assert torch.equal(compiled(**inputs).sample, want)


@pytest.mark.parametrize("function, op", [("geglu", "gelu_and_mul"), ("swiglu", "silu_and_mul")])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_feed_forward(function, op, dtype):
    torch.manual_seed(5)
    layer, x = FeedForward(96, activation_fn=function).to(dtype).eval(), torch.randn(2, 7, 96).to(dtype)
    with torch.inference_mode():
        exact, plain = copy.deepcopy(layer).double()(x.double()), layer(x).double()
        with quern.patch(layer) as patch:
            assert patch.counts == {op: 1} and not patch.left
            patched = layer(x).double()
            assert calls_of(patch) == {op: 1}
    assert error(patched, exact) <= 2 * error(plain, exact)
