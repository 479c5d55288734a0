# SPDX-License-Identifier: Apache-2.0
"""Whole models with quern's attention: through transformers' and diffusers' own choice by name, and under PyTorch's function."""

import contextlib
import copy

import pytest
import quern.torch
import torch
from models import DECODERS, DTYPES, assert_as_good, decoder, error, flux, in_double, run, scene, sd3, spread_norms, tokens
from transformers import Gemma2Config, Gemma2ForCausalLM

LAYERS = 4


@contextlib.contextmanager
def chosen(model, how, device=None):
    """Gives the model quern's attention, by the library's own choice or under PyTorch's function, and counts kernels'
    calls."""
    before = quern.torch.calls.copy()
    if how == "sdpa":
        with quern.torch.enable(device, fallback="error"):
            yield lambda: quern.torch.calls - before
        return
    if hasattr(model, "set_attn_implementation"):
        quern.torch.register_transformers(device)
        model.set_attn_implementation("quern")
    else:
        quern.torch.register_diffusers(device)
        model.set_attention_backend("quern")
    try:
        yield lambda: quern.torch.calls - before
    finally:
        if hasattr(model, "set_attn_implementation"):
            model.set_attn_implementation("sdpa")
        else:
            model.set_attention_backend("native")


def check(model, inputs, dtype, how, layers, device=None, exact_inputs=None):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        exact = run(copy.deepcopy(model).double(), exact_inputs or inputs)
    plain = run(model, inputs)
    with chosen(model, how, device) as calls:
        ours = run(model, inputs)
        assert calls().total() == layers
        where = ".cpu" if device is None else ".gpu"
        assert all((".gpu" in kernel) == (where == ".gpu") for kernel in calls())
    assert_as_good(ours, plain, exact, dtype)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["name", "sdpa"])
def test_decoders(name, dtype, how):
    check(decoder(name, dtype), tokens(), dtype, how, LAYERS)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
def test_decoders_on_a_simulated_gpu(name, device):
    check(decoder(name, torch.bfloat16, hidden=64, layers=1), tokens(1, 5), torch.bfloat16, "name", 1, device)


@pytest.mark.parametrize("name", DECODERS)
def test_padding(name):
    mask = torch.ones(2, 33, dtype=torch.int64)
    mask[1, :9] = 0
    inputs = tokens() | {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    check(decoder(name, torch.bfloat16), inputs, torch.bfloat16, "name", LAYERS)


def generate(model, start, count=64):
    with torch.inference_mode():
        result = model.generate(**start, max_new_tokens=count, min_new_tokens=count, do_sample=False, output_logits=True,
                                return_dict_in_generate=True)
    return result.sequences[0, start["input_ids"].shape[1]:], torch.stack(result.logits)[:, 0].double()


def assert_same_tokens(got, got_logits, want, want_logits):
    """Checks that the tokens are the same, or differ first where two logits are closer than the models' errors."""
    different = (want != got).nonzero()
    if len(different):
        first = int(different[0])
        tolerance = 2 * (want_logits[first] - got_logits[first]).abs().max()
        best = want_logits[first].topk(2).values
        assert best[0] - best[1] <= tolerance and (want_logits[first] - got_logits[first]).norm() < 0.1 * want_logits[first].norm()


@pytest.mark.parametrize("name, how", [("llama", "sdpa"), ("llama", "name"), ("qwen3", "name")])
def test_64_greedy_tokens(name, how):
    model, start = decoder(name, torch.bfloat16), tokens(1, 9)
    want, want_logits = generate(model, start)
    with chosen(model, how) as calls:
        got, got_logits = generate(model, start)
        assert calls().total() == 64 * LAYERS
    assert len(got) == 64 and len(want.unique()) > 8
    assert_same_tokens(got, got_logits, want, want_logits)


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("name", DECODERS)
def test_greedy_tokens_on_a_simulated_gpu(name, device):
    model, start = decoder(name, torch.bfloat16, hidden=64, layers=1), tokens(1, 5)
    want, want_logits = generate(model, start)
    with chosen(model, "name", device) as calls:
        got, got_logits = generate(model, start)
        assert calls().total() == 64 and all(".gpu" in kernel for kernel in calls())
    assert_same_tokens(got, got_logits, want, want_logits)


def gemma2(window=8):
    torch.manual_seed(7)
    return spread_norms(Gemma2ForCausalLM(Gemma2Config(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32, intermediate_size=256,
        vocab_size=512, sliding_window=window, attn_logit_softcapping=0.5, query_pre_attn_scalar=4, initializer_range=0.2,
        pad_token_id=0))).float()


def test_soft_caps_and_windows_act():
    """Tests Gemma 2. PyTorch's function has no soft cap, so it is compared with the eager implementation."""
    model, inputs = gemma2(), tokens(1, 21)
    model.set_attn_implementation("eager")
    want = run(copy.deepcopy(model).double(), inputs)
    plain = run(model, inputs)
    quern.torch.register_transformers()
    model.set_attn_implementation("quern")
    got = run(model, inputs)
    first = lambda results: {path: values[:1] for path, values in results.items()}  # noqa: E731  eager gives weights as well
    assert_as_good(first(got), first(plain), first(want), torch.float32)
    got, got_logits = generate(model, inputs, 12)  # one query at a time, beyond the window
    model.set_attn_implementation("eager")
    assert_same_tokens(got, got_logits, *generate(model, inputs, 12))


def test_a_window_or_sinks_without_a_mask_act():
    attend = quern.torch._models._transformers_attention(None)
    q, k, v = (torch.randn(1, heads, 9, 32) for heads in (4, 2, 2))
    keys, module = torch.arange(9), torch.nn.Module()
    seen = (keys <= keys[:, None]) & (keys > keys[:, None] - 3)
    want, _ = attend(module, q, k, v, seen, scaling=0.2)
    torch.testing.assert_close(attend(module, q, k, v, None, scaling=0.2, sliding_window=3)[0], want)
    last = attend(module, q[:, :, -1:], k, v, None, scaling=0.2, sliding_window=3)[0]
    torch.testing.assert_close(last, want[:, -1:])
    far = attend(module, q, k, v, None, s_aux=torch.full((4,), 50.0))[0]
    assert far.abs().max() < 1e-6
    for options in ({"position_bias": q}, {"cache": object()}, {"output_attentions": True}):
        with pytest.raises(NotImplementedError, match=next(iter(options))):
            attend(module, q, k, v, None, **options)
    attend(module, q.requires_grad_(), k, v, None, s_aux=torch.zeros(4), softcap=2.0)[0].sum().backward()
    assert q.grad.shape == q.shape and q.grad.abs().max() > 0


def blocks(model):
    return len(model.transformer_blocks) + len(getattr(model, "single_transformer_blocks", []))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["name", "sdpa"])
def test_flux(dtype, how):
    model, inputs = flux(dtype), scene(dtype)
    check(model, inputs, dtype, how, blocks(model), exact_inputs=in_double(inputs))


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
def test_flux_on_a_simulated_gpu(device):
    model, inputs = flux(torch.bfloat16, 128, 1, 1), scene(torch.bfloat16, 1, 2, 3)
    check(model, inputs, torch.bfloat16, "name", 2, device, in_double(inputs))


def picture(dtype, batch=2):
    generator = torch.Generator().manual_seed(4)
    return {"hidden_states": torch.randn(batch, 4, 8, 8, generator=generator).to(dtype),
            "encoder_hidden_states": torch.randn(batch, 7, 48, generator=generator).to(dtype),
            "pooled_projections": torch.randn(batch, 32, generator=generator).to(dtype),
            "timestep": torch.full((batch,), 500, dtype=dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
def test_sd3(dtype):
    """Tests that it calls PyTorch's function."""
    inputs = picture(dtype)
    check(sd3(dtype), inputs, dtype, "sdpa", 2, exact_inputs={name: x.double() for name, x in inputs.items()})


@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
def test_sd3_on_a_simulated_gpu(device):
    inputs = picture(torch.bfloat16, 1)
    check(sd3(torch.bfloat16), inputs, torch.bfloat16, "sdpa", 2, device, {name: x.double() for name, x in inputs.items()})


def test_four_steps_within_a_bound():
    """Tests four of Euler's steps from the same noise: the pictures differ by roundings alone."""
    model, inputs = flux(torch.bfloat16), scene(torch.bfloat16)

    def picture_of(model):
        x = inputs["hidden_states"]
        with torch.inference_mode():
            for step in range(4):
                x = x - model(**{**inputs, "hidden_states": x, "timestep": torch.full_like(inputs["timestep"], 1 - step / 4)}).sample / 4
        return x.double()

    want = picture_of(model)
    with chosen(model, "name"):
        got = picture_of(model)
    assert error(got, want) < 4 * 2.0**-8


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("how", ["name", "sdpa"])
def test_compiled_is_one_graph(name, how):
    model, inputs = decoder(name, torch.bfloat16, layers=2), tokens()
    torch._dynamo.reset()
    with chosen(model, how) as calls, torch.inference_mode():
        want = model(**inputs).logits
        got = torch.compile(model, fullgraph=True, backend="aot_eager")(**inputs).logits
        assert calls().total() == 4
    torch.testing.assert_close(got, want, rtol=2.0**-7, atol=2.0**-7)
