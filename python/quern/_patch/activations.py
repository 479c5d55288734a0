# SPDX-License-Identifier: Apache-2.0
"""Gated activations: transformers' MLPs, by two projections or one, and diffusers' GEGLU and SwiGLU."""

import torch

from . import Replacement, Unfit, trial
from ..torch._gradients import is_needed
from .linear import HALVES, is_plain, wide

_FUNCTIONS = {"silu_and_mul": torch.nn.functional.silu, "gelu_and_mul": torch.nn.functional.gelu,
              "gelu_tanh_and_mul": lambda x: torch.nn.functional.gelu(x, approximate="tanh")}


def op_of(function):
    """Returns the op that has this function for its gate."""
    x = torch.linspace(-6, 6, 193)
    got = trial.run(function, x)
    for op, known in _FUNCTIONS.items():
        if isinstance(got, torch.Tensor) and trial.agree(known(x), got):
            return op
    raise Unfit("its activation is none of silu, gelu and gelu's tanh form")


# ---- gate and up beside each other, as the ops take them

def _project(run, rows, weight, bias, out):
    if run.linears == "all" and rows.dtype in HALVES:
        run("gemm", out, rows, weight, None, None, None, wide(bias), None, None, None, 0, 0.0, False)
    elif bias is None:
        torch.mm(rows, weight.t(), out=out)
    else:
        torch.addmm(bias, rows, weight.t(), out=out)


def _may_write(x, *layers):
    """Returns whether products may be written into halves of one tensor: a compiler joins them with the op before, and autograd
    records no such products."""
    return not torch.compiler.is_compiling() and not is_needed(x, *(p for layer in layers for p in (layer.weight, layer.bias)))


def _both(run, x, gate, up):
    """Returns the projections (weight, bias) of x by gate and by up, as two halves of one tensor."""
    rows, h = x.reshape(-1, x.shape[-1]), gate[0].shape[0]
    out = torch.empty(rows.shape[0], 2 * h, dtype=x.dtype, device=x.device)
    _project(run, rows, *gate, out[:, :h])
    _project(run, rows, *up, out[:, h:])
    return out.view(*x.shape[:-1], 2 * h)


def _activate(run, op, both):
    out = run.trained(op, both)
    if out is not None:
        return out
    out = torch.empty((*both.shape[:-1], both.shape[-1] // 2), dtype=both.dtype, device=both.device)
    run(op, out, both)
    return out


# ---- transformers: down(act(gate(x)) * up(x))

_PARTS = ("gate_proj", "up_proj", "down_proj")


def is_gated_mlp(module):
    return all(isinstance(module._modules.get(name), torch.nn.Module) for name in _PARTS) and hasattr(module, "act_fn")


def _mlp_function(run, op):
    def forward(self, x):
        gate, up = self.gate_proj, self.up_proj
        if is_plain(x, gate) and is_plain(x, up) and _may_write(x, gate, up):
            both = _both(run, x, (gate.weight, gate.bias), (up.weight, up.bias))
        else:
            both = torch.cat((gate(x), up(x)), dim=-1)
        return self.down_proj(_activate(run, op, both))

    return forward


def gated_mlp(run, module):
    op = op_of(module.act_fn)
    small = {"gate_proj": trial.linear(6, 8), "up_proj": trial.linear(6, 8), "down_proj": trial.linear(8, 6)}
    twin, x = trial.twin(module, modules=small), trial.numbers(2, 3, 6)
    want = trial.run(type(module).forward, twin, x)
    if not trial.agree(trial.run(_mlp_function(run.plain, op), twin, x), want):
        raise Unfit(f"it computes something else than down(act(gate(x)) * up(x)), act that of {op}")
    others = {module.act_fn: None} if isinstance(module.act_fn, torch.nn.Module) else {}
    # _both multiplies by plain layers itself.
    others.update({part: None for part in (module.gate_proj, module.up_proj) if type(part) is torch.nn.Linear})
    return Replacement(op, _mlp_function(run, op), others, is_trained=True)


# ---- gate and up from one projection, or given side by side

def _swapped(run, op):
    """Makes the forward of diffusers' GEGLU and SwiGLU, whose gate is the projection's second half."""
    def forward(self, hidden_states):
        proj, x = self.proj, hidden_states
        if is_plain(x, proj) and _may_write(x, proj):
            (up, gate), bias = proj.weight.chunk(2), proj.bias
            up_bias, gate_bias = (None, None) if bias is None else bias.chunk(2)
            both = _both(run, x, (gate, gate_bias), (up, up_bias))
        else:
            up, gate = proj(x).chunk(2, dim=-1)
            both = torch.cat((gate, up), dim=-1)
        return _activate(run, op, both)

    return forward


def _joined(run, op):
    """Makes the forward of transformers' MLPs like Phi 3's."""
    return lambda self, hidden_states: self.down_proj(_activate(run, op, self.gate_up_proj(hidden_states)))


def _given(run, op):
    """Makes the forward of diffusers' Flux2SwiGLU."""
    return lambda self, x: _activate(run, op, x)


def _form_of(module):
    """Returns (our function, small parts for a trial), or None."""
    parts, name = module._modules, type(module).__name__
    if name in ("GEGLU", "SwiGLU") and "proj" in parts:
        return _swapped, {"proj": trial.linear(6, 8)}
    if "gate_up_proj" in parts and "down_proj" in parts:
        return _joined, {"gate_up_proj": trial.linear(6, 8), "down_proj": trial.linear(4, 6)}
    if name.endswith(("GEGLU", "SwiGLU")) and not list(module.parameters()):
        return _given, {}
    return None


def is_gated_projection(module):
    return _form_of(module) is not None


def gated_projection(run, module):
    function, small = _form_of(module)
    twin, x = trial.twin(module, modules=small), 2 * trial.numbers(4, 5, 6)
    want = trial.run(type(module).forward, twin, x)
    for op in _FUNCTIONS:
        if trial.agree(trial.run(function(run.plain, op), twin, x), want):
            others = [part for name, part in module._modules.items() if name not in small]
            return Replacement(op, function(run, op), dict.fromkeys(others), is_trained=True)
    raise Unfit("it computes something else than quern's gated activations")


# ---- without a gate

def is_ungated(module):
    name = type(module).__name__
    return name.startswith(("GELU", "SiLU", "NewGELU", "ApproximateGELU"))
