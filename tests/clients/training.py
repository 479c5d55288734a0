#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning of tiny models with random weights, whole and by LoRA, beside PyTorch's own.

    python tests/clients/training.py --steps 50
    python tests/clients/training.py --steps 50 --device cuda:0 --dtypes float32,bfloat16

The same steps run four times: by PyTorch in f64, which stands for the truth; by PyTorch in the dtype; with quern's attention in the
dtype; and with the model patched as well. quern's losses and weights may be twice as far from the truth as PyTorch's own take them,
beside one unit of the dtype. The command prints how far they are, and fails where it is farther.
"""

import argparse
import contextlib
import copy
import sys
import time
from unittest import mock

import diffusers
import quern.torch
import torch
from models import decoder, flux, in_double, put, scene, sd3, spread_norms
from torch.nn.attention import SDPBackend, sdpa_kernel

RATE = 1e-3
# Without cuDNN's, whose gradients are NaNs at some lengths that are no multiples of its tile.
PYTORCHS_ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Lora(torch.nn.Module):
    """A linear layer that stays as it is, with a trained product of rank 4 beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        generator = torch.Generator().manual_seed(base.in_features)
        self.a = torch.nn.Parameter((torch.randn(4, base.in_features, generator=generator) / 16).to(base.weight.dtype))
        self.b = torch.nn.Parameter(torch.zeros(base.out_features, 4, dtype=base.weight.dtype))

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


# ---- models, and the losses of their steps

def wan(dtype):
    torch.manual_seed(10)
    return spread_norms(diffusers.WanTransformer3DModel(
        num_attention_heads=2, attention_head_dim=64, in_channels=4, out_channels=4, text_dim=48, freq_dim=32, ffn_dim=256, num_layers=1,
        rope_max_seq_len=32)).to(dtype)


def numbers(step, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(step % 5))


def llama_loss(model, step):
    ids = torch.randint(1, 512, (2, 24), generator=torch.Generator().manual_seed(step % 5)).to(model.device)
    return model(input_ids=ids, labels=ids, use_cache=False).loss


def picture_loss(model, inputs, step):
    """Returns how far a model's picture is from one of five."""
    inputs = put({name: x.to(model.dtype) if x.is_floating_point() and "ids" not in name else x for name, x in inputs.items()}, model.device)
    out = model(**(in_double(inputs) if model.dtype == torch.float64 else inputs), return_dict=False)[0]
    return (out - numbers(step, *out.shape).to(out)).square().mean()


def flux_loss(model, step):
    return picture_loss(model, scene(torch.float32, 1, 4, 5), step)


def wan_loss(model, step):
    return picture_loss(model, {"hidden_states": numbers(7, 1, 4, 2, 8, 8), "encoder_hidden_states": numbers(8, 1, 7, 48),
                                "timestep": torch.ones(1)}, step)


def sd3_loss(model, step):
    return picture_loss(model, {"hidden_states": numbers(7, 1, 4, 8, 8), "encoder_hidden_states": numbers(8, 1, 7, 48),
                                "pooled_projections": numbers(9, 1, 32), "timestep": torch.full((1,), 500.0)}, step)


LOSSES = {"Llama": llama_loss, "FLUX": flux_loss, "SD3": sd3_loss, "Wan": wan_loss}
# What of each model is quern's while it trains, but for products.
KINDS = {"Llama": {"rmsnorm": 5, "rope": 2, "silu_and_mul": 2},
         "FLUX": {"adaptive_layernorm": 4, "gated_residual_layernorm": 1, "qk_rmsnorm_rope": 2},
         "SD3": {"adaptive_layernorm": 5, "gated_residual_layernorm": 2, "rmsnorm": 8},
         "Wan": {"gated_residual_layernorm": 1, "rmsnorm": 4, "rope": 1, "layernorm": 1}}
PRODUCTS = {"gemm", "linear"}


def made(name, is_lora, dtype=torch.float32):
    model = {"Llama": lambda: decoder("llama", dtype, 128, 2), "FLUX": lambda: flux(dtype, 128, 1, 1), "SD3": lambda: sd3(dtype),
             "Wan": lambda: wan(dtype)}[name]()
    return with_lora(model) if is_lora else model


# ---- training

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
    return torch.tensor(losses, dtype=torch.float64), torch.cat([w.detach().double().cpu().flatten() for w in weights])


def truth_of(model, loss_of, steps):
    """Trains a copy in f64. Parts of models that widen to f32 whatever the dtype widen to f64."""
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return train(copy.deepcopy(model).double().train(), loss_of, steps)


@contextlib.contextmanager
def patched(name, model, device):
    """Patches a model that trains, and tests that quern ran what was replaced, forwards and backwards."""
    before = quern.torch.calls.copy()
    with quern.patch(model.train(), device=device, allow_slow=device is not None) as patch:
        yield
    assert {kind: count for kind, count in patch.counts.items() if kind not in PRODUCTS} == KINDS[name]
    ops = {(op, kernel) for op, kernel in patch.calls if op not in PRODUCTS}
    assert {op for op, _ in ops} >= {"qk_rmsnorm_rope" if kind == "rope" else kind for kind in KINDS[name]}
    assert all(kernel != "PyTorch" for _, kernel in ops)
    families = {kernel.partition(".")[0] for kernel in quern.torch.calls - before}
    assert families >= {"norm_backward"} | {"rope" for kind in KINDS[name] if "rope" in kind} | \
        ({"activation_backward"} if name == "Llama" else set())


def distances(ours, theirs, truth, dtype):
    """Returns how far losses and weights are from the truth, as parts of what they may be."""
    parts = []
    for right, other, got in zip(truth, theirs, ours, strict=True):
        assert right.isfinite().all() and other.isfinite().all(), "PyTorch's own numbers are not finite"
        unit = torch.finfo(dtype).eps * right.abs().max()
        parts.append(float((got - right).abs().max() / (2 * (other - right).abs().max() + unit)))
    return parts


def compare(name, is_lora, steps, device=None, where="cpu", dtype=torch.float32):
    """Trains a model and returns (the true losses, for quern's attention alone and for the patched model the distances of losses and
    weights). device: where tensors are copied for quern; where: where the model is."""
    loss_of = LOSSES[name]
    model = made(name, is_lora, dtype).to(where)
    truth = truth_of(model, loss_of, steps)
    with sdpa_kernel(PYTORCHS_ATTENTION):
        theirs = train(copy.deepcopy(model).train(), loss_of, steps)
    allow_slow = device is not None or where != "cpu"  # f32 has slow kernels alone on GPUs
    found = []
    for is_patched in (False, True):
        trained = copy.deepcopy(model).train()
        with patched(name, trained, device) if is_patched else contextlib.nullcontext(), \
                quern.torch.enable(device, fallback="error", allow_slow=allow_slow) as registration:
            ours = train(trained, loss_of, steps)
        of_backward = sum(count for kernel, count in registration.calls.items() if kernel.startswith("attention_backward."))
        assert of_backward >= steps and not registration.fallbacks
        found.append(distances(ours, theirs, truth, dtype))
    return truth[0], found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--device", default="cpu", help="where models are: cpu, cuda:0; sim:… : copied there for each call")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--models", default=",".join(LOSSES))
    options = parser.parse_args()
    is_there = options.device == "cpu" or options.device.startswith("cuda")
    places = {"where": options.device} if is_there else {"device": options.device}
    print("model  trained  dtype     loss: first   last    of what losses and weights may be off: attention     patched      s")
    failed = False
    for dtype in options.dtypes.split(","):
        for name in options.models.split(","):
            for how in ("whole", "lora"):
                start = time.monotonic()
                losses, found = compare(name, how == "lora", options.steps, dtype=getattr(torch, dtype), **places)
                failed |= not all(part <= 1 for parts in found for part in parts)
                texts = ["  ".join(f"{part:.2f}" for part in parts) for parts in found]
                print(f"{name:6} {how:8} {dtype:9} {losses[0]:11.4f} {losses[-1]:7.4f} {texts[0]:>52} {texts[1]:>11} "
                      f"{time.monotonic() - start:6.1f}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
