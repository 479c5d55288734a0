# SPDX-License-Identifier: Apache-2.0
"""Training through quern's attention: fine-tuning of a tiny Llama and of FLUX's transformer, whole and by LoRA, on the CPU and,
shorter, on a simulated GPU.

The same steps run three times: with PyTorch's attention in f64, which stands for the truth, with PyTorch's in f32, and with
quern's in f32. quern's losses and weights may be twice as far from the truth as PyTorch's own f32 takes them, beside one unit of
f32 for each step.
"""

import copy

import pytest
import quern.torch
import torch
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


def assert_trains(name, is_lora, steps, device=None):
    loss_of = llama_loss if name == "Llama" else flux_loss
    model = made(name, is_lora)
    truth = train(copy.deepcopy(model).double(), loss_of, steps)
    theirs = train(copy.deepcopy(model), loss_of, steps)
    with quern.torch.enable(device, fallback="error", allow_slow=device is not None) as registration:
        ours = train(copy.deepcopy(model), loss_of, steps)
    of_backward = sum(count for kernel, count in registration.calls.items() if kernel.startswith("attention_backward."))
    assert of_backward >= steps and not registration.fallbacks
    assert truth[0][-5:].mean() < truth[0][:5].mean() or steps < 10  # it learns
    for right, other, got in zip(truth, theirs, ours, strict=True):
        unit = torch.finfo(torch.float32).eps * right.abs().max() * steps
        assert (got - right).abs().max() <= 2 * (other - right).abs().max() + unit


@pytest.mark.parametrize("is_lora", [False, True], ids=["whole", "lora"])
@pytest.mark.parametrize("name", ["Llama", "FLUX"])
def test_50_steps(name, is_lora):
    assert_trains(name, is_lora, 50)


@pytest.mark.parametrize("name", ["Llama", "FLUX"])
def test_simulated_gpu(name):
    assert_trains(name, False, 2, "sim:gfx1151")
