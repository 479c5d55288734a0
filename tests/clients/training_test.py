# SPDX-License-Identifier: Apache-2.0
"""Training through quern's attention, and through patched norms, rotations and activations: fine-tuning of a tiny Llama and of
FLUX's transformer, whole and by LoRA, on the CPU and, shorter, on a simulated GPU.

The same steps run three times: with PyTorch's attention in f64, which stands for the truth, with PyTorch's in f32, and with
quern's in f32. quern's losses and weights may be twice as far from the truth as PyTorch's own f32 takes them, beside one unit of
f32 for each step.
"""

import contextlib
import copy

import pytest
import quern.torch
import torch
import transformers
from models import decoder, flux, in_double, scene

RATE = 1e-3


class Lora(torch.nn.Module):
    """A linear layer that stays as it is, with a trained product of rank 4 beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        generator = torch.Generator().manual_seed(base.in_features)
        self.a = torch.nn.Parameter(torch.randn(4, base.in_features, generator=generator) / 16)
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, 4))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


def with_lora(model):
    """Puts Lora in place of the linear layers that make queries and values."""
    model.requires_grad_(False)
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if name in ("q_proj", "v_proj", "to_q", "to_v"):
                setattr(module, name, Lora(child))
    return model


def llama_loss(model, step):
    ids = torch.randint(1, 512, (2, 24), generator=torch.Generator().manual_seed(step % 5))
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def flux_loss(model, step):
    dtype = model.x_embedder.weight.dtype
    inputs = scene(torch.float32, 1, 4, 5)
    target = torch.randn(inputs["hidden_states"].shape, generator=torch.Generator().manual_seed(step % 5)).to(dtype)
    return (model(**(in_double(inputs) if dtype == torch.float64 else inputs), return_dict=False)[0] - target).square().mean()


def train(model, loss_of, steps):
    """Returns the losses of the steps, and the trained weights behind them, in f64."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=RATE, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64), torch.cat([w.detach().double().flatten() for w in weights])


def made(name, is_lora):
    model = decoder("llama", torch.float32, 128, 2) if name == "Llama" else flux(torch.float32, 128, 1, 1)
    return with_lora(model) if is_lora else model


@contextlib.contextmanager
def patched(model, device):
    """Patches a model that trains, and tests that quern ran what was replaced, forwards and backwards."""
    families = {"rmsnorm": "norm_backward.", "silu_and_mul": "activation_backward."}
    before = quern.torch.calls.copy()
    with quern.patch(model.train(), device=device, allow_slow=device is not None) as patch:
        yield
    if isinstance(model, transformers.LlamaForCausalLM):
        assert patch.counts == {"rmsnorm": 5, "rope": 2, "silu_and_mul": 2}
    assert patch.counts and {op for op, _ in patch.calls} == {"qk_rmsnorm_rope" if kind == "rope" else kind for kind in patch.counts}
    assert all(kernel != "PyTorch" for _, kernel in patch.calls)
    ran = quern.torch.calls - before
    assert all(any(kernel.startswith(families[kind]) for kernel in ran) for kind in patch.counts.keys() & families.keys())


def assert_near(ours, theirs, truth, steps):
    for right, other, got in zip(truth, theirs, ours, strict=True):
        unit = torch.finfo(torch.float32).eps * right.abs().max() * steps
        assert (got - right).abs().max() <= 2 * (other - right).abs().max() + unit


def assert_trains(name, is_lora, steps, device=None):
    loss_of = llama_loss if name == "Llama" else flux_loss
    model = made(name, is_lora)
    truth = train(copy.deepcopy(model).double(), loss_of, steps)
    theirs = train(copy.deepcopy(model), loss_of, steps)
    assert truth[0][-5:].mean() < truth[0][:5].mean() or steps < 10  # it learns
    for is_patched in (False, True):
        trained = copy.deepcopy(model)
        with patched(trained, device) if is_patched else contextlib.nullcontext(), \
                quern.torch.enable(device, fallback="error", allow_slow=device is not None) as registration:
            ours = train(trained, loss_of, steps)
        of_backward = sum(count for kernel, count in registration.calls.items() if kernel.startswith("attention_backward."))
        assert of_backward >= steps and not registration.fallbacks
        assert_near(ours, theirs, truth, steps)


@pytest.mark.parametrize("is_lora", [False, True], ids=["whole", "lora"])
@pytest.mark.parametrize("name", ["Llama", "FLUX"])
def test_50_steps(name, is_lora):
    assert_trains(name, is_lora, 50)


@pytest.mark.parametrize("name", ["Llama", "FLUX"])
def test_simulated_gpu(name):
    assert_trains(name, False, 2, "sim:gfx1151")


def test_patched_checkpointing_and_compile():
    """Tests that a patched Llama has the same gradients under activation checkpointing, and compiled whole."""
    model = made("Llama", False).train()
    gradients = []
    with quern.patch(model, compiled="all"):
        for how in ("plain", "checkpoint", "compile"):
            model.zero_grad()
            if how == "checkpoint":
                model.gradient_checkpointing_enable({"use_reentrant": False})
            call = torch.compile(model, backend="aot_eager") if how == "compile" else model
            llama_loss(call, 0).backward()
            model.gradient_checkpointing_disable()
            gradients.append([p.grad.clone() for p in model.parameters()])
    for other in gradients[1:]:
        for g, w in zip(other, gradients[0], strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-6)
