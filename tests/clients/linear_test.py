# SPDX-License-Identifier: Apache-2.0
"""Linear layers of patched models: FLUX's with the GELU or the gate and residual behind them, and transformers' FP8Linear."""

import copy
import json

import pytest
import quern
import torch
from decoder_test import Recorder, calls_of
from flux_test import calls_in, denoise
from models import error, flux, in_double, scene
from quern._patch import blocks, linear, table
from quern._patch import flux as flux_layers
from transformers.integrations.finegrained_fp8 import FP8Linear

PRODUCTS = 6  # with GELU, or gate and residual: of a model with a block of each kind two for the picture, two for the text, two in
# the single block


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


def linears_of(model):
    return sum(type(m) is torch.nn.Linear for m in model.modules())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_flux(dtype):
    """Tests that with linears="all" quern multiplies in each layer, once."""
    model = flux(dtype, layers=1, single_layers=1)
    calls = compare(model, scene(dtype))
    assert sum(calls.values()) == linears_of(model) > PRODUCTS and all(".cpu" in kernel for kernel in calls)


def test_flux_on_a_simulated_gpu():
    model = flux(torch.bfloat16, 128, 1, 1)
    calls = compare(model, scene(torch.bfloat16, batch=1, side=2, text=3), "sim:gfx942")
    assert calls == {"gemm.bf16_rows_16x16": linears_of(model)}


def test_f32_is_multiplied_by_pytorch():
    model, inputs = flux(torch.float32, layers=1, single_layers=1), scene(torch.float32)
    with quern.patch(model, linears="all") as patch:
        sample(model, inputs)
        told = {path for path, _, reason in patch.left if "its weights are torch.float32; quern takes bf16 and f16" in reason}
        assert told >= {path for path, m in model.named_modules() if type(m) is torch.nn.Linear}
        assert "gemm" not in calls_of(patch) and "linear" not in patch.counts


def test_a_layer_that_gets_another_dtype():
    model = torch.nn.Sequential(torch.nn.Linear(8, 8)).bfloat16().eval().requires_grad_(False)
    with quern.patch(model, linears="all"), pytest.raises(NotImplementedError, match="patched Linear: its input is torch.float32"):
        model(torch.ones(2, 8))


def test_hooks_are_called():
    """A layer that somebody looks at is called as it is."""
    model, seen = flux(torch.bfloat16, layers=1, single_layers=1), []
    model.single_transformer_blocks[0].proj_mlp.register_forward_hook(lambda *_: seen.append("proj_mlp"))
    model.transformer_blocks[0].ff.register_forward_hook(lambda *_: seen.append("ff"))
    with quern.patch(model, linears="all") as patch:
        sample(model, scene(torch.bfloat16))
        assert seen == ["ff", "proj_mlp"] and calls_of(patch)["gemm"] == linears_of(model)


def test_four_steps():
    model, inputs = flux(torch.bfloat16), scene(torch.bfloat16)
    exact, plain = denoise(copy.deepcopy(model).double(), in_double(inputs)), denoise(model, inputs)
    with quern.patch(model, linears="all"):
        assert error(denoise(model, inputs), exact) <= 2 * error(plain, exact)


def test_compiled_is_one_graph_with_the_same_bits():
    model, inputs = flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16)
    torch._dynamo.reset()
    with quern.patch(model, linears="all", compiled="all"), torch.inference_mode():
        recorder = Recorder()
        want = model(**inputs).sample
        got = torch.compile(model, fullgraph=True, backend=recorder)(**inputs).sample
        assert recorder.graphs == 1 and recorder.calls == {**calls_in(1, 1), "gemm": linears_of(model)}
    assert torch.equal(got, want)


def test_compiled_graphs_keep_what_follows_a_product():
    model, inputs, recorder = flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16), Recorder()
    torch._dynamo.reset()
    with quern.patch(model, linears="all"), torch.inference_mode():
        torch.compile(model, fullgraph=True, backend=recorder)(**inputs)
    assert recorder.graphs == 1 and recorder.calls == {**calls_in(1, 1), "gemm": PRODUCTS}


@pytest.mark.parametrize("linears, reason", [("fast", "PyTorch's own products are as fast here"), ("none", "linears is 'none'")])
def test_left_alone(linears, reason):
    with quern.patch(flux(torch.bfloat16, layers=1, single_layers=1), linears=linears) as patch:
        assert "gemm" not in patch.counts
        left = {path: text for path, _, text in patch.left}
        assert reason in left["transformer_blocks.0.ff.net.0"] and reason in left["single_transformer_blocks.0"]


def test_bad_choice():
    with pytest.raises(ValueError, match="linears is 'some'; accepted: 'fast', 'all', 'none'"):
        quern.patch(flux(torch.bfloat16), linears="some")
    with pytest.raises(ValueError, match="compiled is 'none'; accepted: 'fast', 'all'"):
        quern.patch(flux(torch.bfloat16), compiled="none")


# ---- a linear layer by itself

@pytest.fixture
def cpu_table(monkeypatch):
    """Makes the table say that the CPU is faster with 3 to 5 and with 9 rows of a layer without bias, and with 4 of one with."""
    rows = [{"n": 24, "k": 16, "bias": bias, "first_m": first, "last_m": last, "ratio": 1.5}
            for bias, first, last in ((False, 3, 5), (False, 9, 9), (True, 4, 4))]
    read = table.read(json.dumps({"command": "", "device": "cpu", "rows": rows}))
    monkeypatch.setattr(table, "shipped", lambda: read)


def plain_layer(bias=False, dtype=torch.bfloat16, n=24):
    torch.manual_seed(10)
    return torch.nn.Sequential(torch.nn.Linear(16, n, bias=bias, dtype=dtype)).eval().requires_grad_(False)


def by_pytorch(patch):
    """Returns how many calls PyTorch computed, and how many quern did."""
    theirs = patch.calls["gemm", "PyTorch"]
    return theirs, sum(patch.calls.values()) - theirs


@pytest.mark.parametrize("bias, shape, is_ours", [
    (False, (2, 16), False), (False, (3, 16), True), (False, (5, 16), True), (False, (6, 16), False), (False, (3, 3, 16), True),
    (False, (1, 2, 2, 16), True), (False, (16,), False), (False, (0, 16), False), (True, (4, 16), True), (True, (3, 16), False)])
def test_linear_by_the_table(cpu_table, bias, shape, is_ours):
    model, x = plain_layer(bias), torch.randn(shape, dtype=torch.bfloat16)
    exact, plain = copy.deepcopy(model).double()(x.double()), model(x)
    with quern.patch(model) as patch:
        got = model(x)
        assert patch.counts == {"linear": 1} and by_pytorch(patch) == (int(not is_ours), int(is_ours))
        assert ("quern with 4 rows, else PyTorch (0)" if bias else "quern with 3 to 5, 9 rows, else PyTorch (0)") in str(patch)
    # A sum in f32 of 17 terms, and one rounding to bf16.
    terms = x.abs().double() @ model[0].weight.abs().double().T + (model[0].bias.abs().double() if bias else 0)
    assert got.shape == plain.shape and bool(((got - exact).abs() <= 2.0**-8 * exact.abs() + 34 * 2.0**-24 * terms).all())
    assert torch.equal(model(x), plain) and (is_ours or torch.equal(got, plain))


def test_linear_goes_back_where_a_call_differs_from_what_was_measured(cpu_table):
    model, x = plain_layer(), torch.randn(4, 16, dtype=torch.bfloat16)
    with quern.patch(model) as patch:
        want = model(x)
        assert torch.equal(model(x.t().contiguous().t()), torch.nn.functional.linear(x, model[0].weight))
        with torch.autocast("cpu", torch.bfloat16):
            model(x)
        model.float()
        model(x.float())
        assert by_pytorch(patch) == (3, 1)
        model.bfloat16()
        assert torch.equal(model(x), want) and by_pytorch(patch) == (3, 2)


def test_hooks_of_a_linear_layer_are_called(cpu_table):
    model, seen = plain_layer(), []
    model[0].register_forward_hook(lambda *_: seen.append(1))
    with quern.patch(model) as patch:
        model(torch.randn(4, 16, dtype=torch.bfloat16))
        assert seen == [1] and by_pytorch(patch) == (0, 1)


@pytest.mark.parametrize("other", [{"n": 16}, {"dtype": torch.float16}, {"dtype": torch.float32}])
def test_linear_that_the_table_lacks_is_not_looked_at(cpu_table, other):
    with quern.patch(plain_layer(**other)) as patch:
        assert not patch.replaced and not patch.left and not patch.notes


@pytest.mark.parametrize("options, reason", [({"linears": "none"}, "linears is 'none'"), ({"device": "cpu"}, "where their tensors are")])
def test_linear_left_alone(cpu_table, options, reason):
    with quern.patch(plain_layer(), **options) as patch:
        assert not patch.replaced and reason in patch.left[0][2]


def test_linear_that_trains_is_pytorchs(cpu_table):
    model, x = plain_layer().requires_grad_(True), torch.randn(4, 16, dtype=torch.bfloat16)
    right = model(x)
    with quern.patch(model) as patch:
        got = model(x)
        got.sum().backward()
    assert torch.equal(got, right) and all(p.grad is not None for p in model.parameters())
    assert {kernel for _, kernel in patch.calls} == {"PyTorch"}


@pytest.mark.parametrize("compiled, ours", [("fast", {}), ("all", {"gemm": 1})])
def test_linear_compiled(cpu_table, compiled, ours):
    model, x, recorder = plain_layer(), torch.randn(4, 16, dtype=torch.bfloat16), Recorder()
    torch._dynamo.reset()
    with quern.patch(model, compiled=compiled), torch.inference_mode():
        torch.compile(model, fullgraph=True, backend=recorder)(x)
    assert recorder.graphs == 1 and recorder.calls == ours


def test_layers_with_what_follows_stay_one_product(monkeypatch):
    """Tests, as if this CPU were a GPU on which both are faster, that a table with all of FLUX's layers takes none of them away from
    the products with GELU or gate."""
    monkeypatch.setattr(linear, "_is_fast_on", lambda device: True)
    monkeypatch.setattr(linear, "_FEW", 0)
    model, inputs = flux(torch.bfloat16, layers=1, single_layers=1), scene(torch.bfloat16)
    shapes = {tuple(m.weight.shape) for m in model.modules() if isinstance(m, torch.nn.Linear)}
    monkeypatch.setattr(table, "shipped", lambda: {("cpu", *shape, True): ((1, 10**6),) for shape in shapes})
    exact, plain = sample(copy.deepcopy(model).double(), in_double(inputs)), sample(model, inputs)
    with quern.patch(model, linears="fast") as patch:
        seen, run = [], linear.multiply
        for module in (linear, blocks, flux_layers):
            monkeypatch.setattr(module, "multiply", lambda *a, **named: seen.append(named.get("is_chosen", False)) or run(*a, **named))
        assert error(sample(model, inputs), exact) <= 2 * error(plain, exact) + 2.0**-9
        assert patch.counts["linear"] >= 4 and seen.count(False) == PRODUCTS and by_pytorch(patch)[0] == 0
        assert calls_of(patch)["gemm"] == len(seen) > PRODUCTS  # each product once


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
        assert all(".gpu" in kernel or kernel.startswith("gemm.fp8_flat_") for _, kernel in patch.calls)


@pytest.mark.parametrize("options, reason", [({"block_size": (64, 128)}, "its blocks are (64, 128)"), ({"block_size": None}, "its blocks are None"),
                                             ({"activation_scheme": "static"}, "its scheme 'static'")])
def test_fp8_linear_of_other_kinds(options, reason):
    layer = FP8Linear(256, 128, **{"block_size": (128, 128), **options}).eval()
    with quern.patch(layer) as patch:
        assert patch.counts == {} and reason in patch.left[0][2]
