# SPDX-License-Identifier: Apache-2.0
"""quern.patch itself: what it refuses, leaves alone, logs and takes back."""

import copy
import logging
import os
import re
import subprocess
import sys

import pytest
import quern
import torch
from experts_test import mixture
from models import decoder, flux, run, scene, tokens


def logits(model):
    with torch.inference_mode():
        return model(**tokens()).logits


def test_unpatch_gives_the_model_back():
    model = decoder("qwen3", torch.bfloat16, layers=1)
    names, want = {path: set(m.__dict__) for path, m in model.named_modules()}, logits(model)
    patch = quern.patch(model)
    got = logits(model)
    assert not torch.equal(got, want)
    patch.unpatch()
    patch.unpatch()
    assert torch.equal(logits(model), want)
    assert {path: set(m.__dict__) for path, m in model.named_modules()} == names
    with quern.patch(model):
        assert torch.equal(logits(model), got)
    assert torch.equal(logits(model), want)


def test_processors_come_back():
    model = flux(torch.float32, layers=1, single_layers=1)
    processors = [m.processor for m in model.modules() if hasattr(m, "processor")]
    with quern.patch(model):
        assert not {id(p) for p in processors} & {id(m.processor) for m in model.modules() if hasattr(m, "processor")}
        model.set_attention_backend("native")
        assert len(processors) == 2 and all(m.processor._attention_backend == "native" for m in model.modules()
                                            if hasattr(m, "processor"))
        with torch.inference_mode():
            model(**scene(torch.float32))
    assert all(processor._attention_backend == "native" for processor in processors)
    assert [m.processor for m in model.modules() if hasattr(m, "processor")] == processors


def test_other_models_of_the_class_are_left():
    model, other = decoder("llama", torch.bfloat16, layers=1), decoder("llama", torch.bfloat16, layers=1)
    want = logits(other)
    with quern.patch(model) as patch:
        before = dict(patch.calls)
        assert torch.equal(logits(other), want) and patch.calls == before
        assert not torch.equal(logits(model), want)


def test_the_process_is_left_as_it_was():
    torch.manual_seed(11)
    want = torch.rand(3)
    model, picture = decoder("qwen3", torch.float32, layers=1), flux(torch.float32, layers=1, single_layers=1)
    weights = copy.deepcopy(model.state_dict())
    torch.manual_seed(11)
    quern.patch(model), quern.patch(picture)
    assert torch.equal(torch.rand(3), want)
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())


# ---- what is refused

def test_refused():
    model = decoder("llama", torch.float32, layers=1)
    with pytest.raises(TypeError, match="patch: model is str, needs a torch.nn.Module"):
        quern.patch("llama")
    with pytest.raises(LookupError):
        quern.patch(model, device="hip:99")
    with quern.patch(model), pytest.raises(ValueError, match="patched already"):
        quern.patch(model)
    quern.patch(model).unpatch()


def test_what_has_no_gradients():
    """Tests that a router refuses, and that it is left alone in a model that trains."""
    pair, x = mixture("Qwen3Moe", {"num_experts": 8, "moe_intermediate_size": 64}, torch.float32), torch.randn(5, 128).requires_grad_()
    with quern.patch(pair) as patch, pytest.raises(RuntimeError, match="moe_route: .* requires a gradient.*inference_mode"):
        pair[0](x)
    assert "moe_route" in patch.counts
    with quern.patch(pair.train()) as patch:
        pair[0](x)[1].sum().backward()
        assert x.grad is not None and not patch.counts
        assert any("no gradients" in reason and "Router" in name for _, name, reason in patch.left)


def test_dtypes_that_differ():
    norm = torch.nn.Sequential(torch.nn.RMSNorm(64, eps=1e-6)).eval()
    with quern.patch(norm), torch.inference_mode():
        with pytest.raises(NotImplementedError, match="patched RMSNorm: its input is torch.bfloat16 and its weights"):
            norm(torch.randn(2, 64, dtype=torch.bfloat16))


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_tables_of_any_strides(name):
    """Tests tables of angles whose last dimension is not contiguous, as those of gpt-oss are on a GPU."""
    model = decoder(name, torch.bfloat16, layers=1)
    ids = tokens(1)
    table = model.model.rotary_emb.forward
    with quern.patch(model), torch.inference_mode():
        want = model(**ids).logits
        model.model.rotary_emb.forward = lambda *args, **more: tuple(t.mT.contiguous().mT for t in table(*args, **more))
        assert model.model.rotary_emb(ids["input_ids"], torch.arange(33)[None])[0].stride(-1) != 1
        assert torch.equal(model(**ids).logits, want)


def test_a_copy_of_a_patched_model():
    """Tests that modules that know themselves only by `self` may be copied, and that others say that they may not."""
    model = torch.nn.Sequential(torch.nn.RMSNorm(64, eps=1e-6), torch.nn.LayerNorm(64)).eval()
    with quern.patch(model), torch.inference_mode():
        x, other = torch.randn(2, 64), copy.deepcopy(model)
        torch.nn.init.constant_(other[0].weight, 3.0)
        assert torch.equal(other[0](x), 3 * model[0](x))
    model, inputs = flux(torch.float32, layers=1, single_layers=1), scene(torch.float32)
    with quern.patch(model) as patch, torch.inference_mode():
        want, other, calls = model(**inputs).sample, copy.deepcopy(model), dict(patch.calls)
        assert torch.equal(other(**inputs).sample, want)
        assert patch.calls == {key: 2 * count for key, count in calls.items()}
    model = decoder("llama", torch.float32, layers=1)
    with quern.patch(model), pytest.raises(RuntimeError, match="copy of a patched module"):
        logits(copy.deepcopy(model))


# ---- what is left alone

class ShiftedRMSNorm(torch.nn.Module):
    """A norm whose name promises what the code does not do."""

    def __init__(self, h):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(h)), 1e-6

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) + self.weight


class GemmaRMSNorm(ShiftedRMSNorm):
    def forward(self, x):
        return (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)) * (1 + self.weight)


class UpGated(torch.nn.Module):
    """A module with projections that have SwiGLU's names and another product."""

    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = (torch.nn.Linear(8, 8) for _ in range(3))
        self.act_fn = torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.gate_proj(x) * self.act_fn(self.up_proj(x)))


class Tanh(UpGated):
    def __init__(self):
        super().__init__()
        self.act_fn = torch.nn.Tanh()


@pytest.mark.parametrize("module, reason", [
    (ShiftedRMSNorm(64), "computes something else than rmsnorm and gemma_rmsnorm"),
    (torch.nn.RMSNorm(64), "no eps, or one that depends on the dtype"),
    (torch.nn.RMSNorm(64, eps=1e-6, elementwise_affine=False), "no weight"),
    (torch.nn.RMSNorm((4, 8), eps=1e-6), "norms more than the last dimension"),
    (torch.nn.LayerNorm((4, 8)), "does not say that it norms the last dimension alone"),
    (torch.nn.GroupNorm(2, 8), "no norm over groups"),
    (torch.nn.BatchNorm1d(8), "no norm over groups"),
    (torch.nn.GELU(), "together with the product by a gate"),
    (UpGated(), r"something else than down\(act\(gate\(x\)\) \* up\(x\)\)"),
    (Tanh(), "activation is none of silu"),
])
def test_left_alone(module, reason):
    with quern.patch(torch.nn.Sequential(module).eval()) as patch:
        assert not patch.replaced and patch.left[0][:2] == ("0", type(module).__name__)
        assert re.search(reason, patch.left[0][2]) and re.search(reason, str(patch))


def test_what_something_else_replaced():
    norm = torch.nn.RMSNorm(64, eps=1e-6)
    norm.forward = forward = lambda x: x
    with quern.patch(torch.nn.Sequential(norm).eval()) as patch:
        assert "something else has replaced its forward" in patch.left[0][2]
    assert norm.forward is forward


def test_an_adapter_is_called():
    """Tests that a projection that is more than a Linear is still called itself."""
    model = decoder("llama", torch.float32, layers=1)
    seen = []
    model.model.layers[0].mlp.up_proj.register_forward_hook(lambda module, arguments, output: seen.append(output) or 2 * output)
    want = run(model, tokens())
    with quern.patch(model):
        got = run(model, tokens())
    assert len(seen) == 2
    torch.testing.assert_close(got[""], want[""], rtol=1e-4, atol=1e-4)


def test_gemma():
    norm = torch.nn.Sequential(GemmaRMSNorm(64)).eval()
    with quern.patch(norm) as patch, torch.inference_mode():
        assert patch.counts == {"gemma_rmsnorm": 1}
        for shape in ((64,), (3, 64), (2, 3, 64), (2, 3, 5, 64), (0, 64)):
            x = torch.randn(shape)
            torch.testing.assert_close(norm(x), GemmaRMSNorm.forward(norm[0], x))


# ---- devices and the log

def test_changed_weights_reach_the_device():
    model = torch.nn.Sequential(torch.nn.RMSNorm(64, eps=1e-6)).eval()
    x = torch.randn(2, 64)
    with quern.patch(model, device="sim:gfx942"), torch.inference_mode():
        before = model(x)
        with torch.inference_mode(False), torch.no_grad():
            model[0].weight.fill_(4.0)
        torch.testing.assert_close(model(x), 4 * before)


def test_on_the_device_already_nothing_is_staged():
    model = torch.nn.Sequential(torch.nn.LayerNorm(64)).eval()
    with quern.patch(model, device="cpu") as patch, torch.inference_mode():
        model(torch.randn(2, 64))
        assert patch.device.spec == "cpu" and all(".cpu" in kernel for _, kernel in patch.calls)


def test_staging_is_said_once(caplog):
    model = decoder("llama", torch.float32, hidden=64, layers=1)
    with caplog.at_level(logging.INFO, "quern.patch"), quern.patch(model, device="sim:gfx942"):
        logits(model), logits(model)
    warnings = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warnings == ["tensors are staged to sim:gfx942 for each op, and results back"]
    kernels = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert sorted(line.partition(":")[0] for line in kernels) == ["qk_rmsnorm_rope", "rmsnorm", "silu_and_mul"]
    assert all(".gpu" in line for line in kernels)


def test_staged_and_compiled_is_an_error():
    model = torch.nn.Sequential(torch.nn.LayerNorm(64)).eval()
    with quern.patch(model, device="sim:gfx942"), torch.inference_mode():
        with pytest.raises(Exception, match="staged to sim:gfx942, which torch.compile cannot do"):
            torch.compile(model, backend="eager", fullgraph=True)(torch.randn(2, 64))


def test_the_log_of_a_process():
    code = ("import torch, quern; m = torch.nn.Sequential(torch.nn.LayerNorm(64)).eval(); quern.patch(m)\n"
            "with torch.no_grad(): m(torch.ones(2, 64))")
    logs = [subprocess.run([sys.executable, "-c", code], env={**os.environ, "SGLANG_LOG_KERNEL": ours, "QUERN_LOG": library},
                           check=True, capture_output=True, text=True).stderr for ours, library in (("1", "kernel"), ("", ""))]
    assert "\nlayernorm: norm.cpu" in "\n" + logs[0] and "quern: kernel: norm on cpu" in logs[0] and "norm.cpu" not in logs[1]


def test_quern_stays_light():
    code = ("import sys, quern; quern.Patch; assert 'torch' not in sys.modules and 'quern._patch.run' not in sys.modules; "
            "import torch; quern.patch(torch.nn.Sequential().eval()); assert callable(quern.patch)")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_scene_of_no_batch():
    model, inputs = flux(torch.float32, layers=1, single_layers=1), scene(torch.float32, batch=0)
    with quern.patch(model), torch.inference_mode():
        assert model(**inputs).sample.shape == (0, 36, 16)
