# SPDX-License-Identifier: Apache-2.0
"""Training through quern's attention, and through patched norms, rotations and activations: a few steps of what training.py does
with more, on the CPU and on a simulated GPU."""

import copy
from unittest import mock

import pytest
import quern
import torch
from models import error
from training import LOSSES, compare, made

STEPS = 10


def assert_trains(*arguments, **options):
    losses, found = compare(*arguments, **options)
    assert all(part <= 1 for parts in found for part in parts), found
    return losses


@pytest.mark.parametrize("name, is_lora", [("Llama", False), ("Llama", True), ("FLUX", False), ("FLUX", True), ("SD3", False), ("SD3", True),
                                           ("Wan", False)])
def test_steps(name, is_lora):
    losses = assert_trains(name, is_lora, STEPS)
    assert losses[-5:].mean() < losses[:5].mean()  # it learns


@pytest.mark.parametrize("name", ["Llama", "FLUX"])
def test_simulated_gpu(name):
    assert_trains(name, False, 2, "sim:gfx1151")


@pytest.mark.parametrize("name", LOSSES)
def test_patched_checkpointing_and_compile(name):
    """Tests that a patched model has the same gradients under activation checkpointing, and compiled whole."""
    model, loss_of = made(name, False).train(), LOSSES[name]
    gradients = []
    with quern.patch(model, compiled="all"):
        for how in ("plain", "checkpoint", "compile"):
            model.zero_grad()
            if how == "checkpoint":
                model.gradient_checkpointing_enable({"use_reentrant": False}) if name == "Llama" else model.enable_gradient_checkpointing()
            call = torch.compile(model, backend="aot_eager") if how == "compile" else model
            loss_of(call, 0).backward()
            model.gradient_checkpointing_disable() if name == "Llama" else model.disable_gradient_checkpointing()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for other in gradients[1:]:
        for g, w in zip(other, gradients[0], strict=True):
            torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_a_model_that_does_not_train_has_gradients(name):
    """Tests that a model that is patched for inference, products too, still gives its weights gradients, about as far from those in
    f64 as PyTorch's own in bf16 are."""
    def gradients(model):
        LOSSES[name](model, 0).backward()
        found = torch.cat([p.grad.double().flatten() for p in model.parameters()])
        model.zero_grad()
        return found

    model = made(name, False, torch.bfloat16).eval()
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        exact = gradients(copy.deepcopy(model).double())
    plain = gradients(model)
    with quern.patch(model, linears="all") as patch:
        assert patch.counts["linear"] > 5
        patched = gradients(model)
        assert patch.calls["gemm", "PyTorch"] > 5
    assert error(patched, exact) <= 2 * error(plain, exact)
