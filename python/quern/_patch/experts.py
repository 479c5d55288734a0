# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts in transformers: routers, which choose a token's experts, and layers of experts."""

import inspect
import itertools
import types

import torch

from .. import _moe
from . import Replacement, Unfit, trial
from .activations import op_of
from .linear import HALVES, want_halves, wide

# ---- routers: (logits, weights, experts) of rows

_SCORINGS = {"softmax": 0, "sigmoid": 1}


def _number(module, *names):
    """Returns the module's first attribute of these names, or None."""
    return next((getattr(module, name) for name in names if getattr(module, name, None) is not None), None)


def is_router(module):
    weight = module._parameters.get("weight")
    return type(module).__name__.endswith("Router") and weight is not None and weight.ndim == 2 and hasattr(module, "top_k")


def _logits(run, x, weight, bias):
    """Returns the rows' products with the experts' weights, in f32."""
    if run.linears == "all" and x.dtype in HALVES and weight.dtype in HALVES:
        out = torch.empty(x.shape[0], weight.shape[0], dtype=torch.float32, device=x.device)
        run("gemm", out, x, weight, None, None, None, wide(bias), None, None, None, 0, 0.0, False)
        return out
    return torch.nn.functional.linear(x.float(), weight.float(), None if bias is None else bias.float())


def _router_function(run, scoring, renormalize):
    def forward(self, hidden_states):
        x = hidden_states.reshape(-1, self.weight.shape[1])
        logits = _logits(run, x, self.weight, self._parameters.get("bias"))
        weights = torch.empty(x.shape[0], self.top_k, dtype=torch.float32, device=x.device)
        ids = torch.empty_like(weights, dtype=torch.int32)
        groups = _number(self, "num_group", "n_group") or 1
        run("moe_route", weights, ids, logits, getattr(self, "e_score_correction_bias", None), _SCORINGS[scoring], groups,
            _number(self, "topk_group") or groups, renormalize, _number(self, "routed_scaling_factor") or 1.0, 0, 1.0)
        return logits, weights, ids.long()

    return forward


def _spread(result):
    """Returns a router's logits, and its weights at their experts' columns: the order of a token's experts is free."""
    logits, weights, ids = result
    return logits, torch.zeros_like(logits).scatter(1, ids, weights.to(logits.dtype))


def router(run, module):
    n, h = module.weight.shape
    buffers = {name: 0.1 * trial.numbers(*x.shape) for name, x in module._buffers.items() if x is not None}
    parameters = {name: torch.nn.Parameter(trial.numbers(*x.shape) * h**-0.5, False) for name, x in module._parameters.items()
                  if x is not None}
    twin, x = trial.twin(module, parameters, buffers=buffers), trial.numbers(6, h)
    want = trial.run(type(module).forward, twin, x)
    if not isinstance(want, tuple) or len(want) != 3 or getattr(want[0], "shape", None) != (6, n):
        raise Unfit("its result is not (logits, weights, experts)")
    for scoring, renormalize in itertools.product(_SCORINGS, (True, False)):
        got = trial.run(_router_function(run.plain, scoring, renormalize), twin, x)
        if trial.agree(_spread(got), _spread(want)):
            return Replacement("moe_route", _router_function(run, scoring, renormalize))
    raise Unfit("it chooses or weighs experts in another way than moe_route")


# ---- layers of experts

_FUNCTIONS = {"silu_and_mul": "silu", "gelu_and_mul": "gelu", "gelu_tanh_and_mul": "gelu_tanh"}


def is_experts(module):
    down = module._parameters.get("down_proj")
    return type(module).__name__.endswith("Experts") and down is not None and down.ndim == 3


def _is_fp8(module):
    return module.gate_up_proj.dtype == torch.float8_e4m3fn


def _want(run, module):
    """Raises Unfit unless the user wants these experts' products by quern, and quern has them."""
    if run.linears == "none":
        raise Unfit("linears is 'none'")
    if not _is_fp8(module):
        want_halves(module.gate_up_proj)
        if run.linears != "all":
            raise Unfit("quern was not measured to be faster; linears='all' takes quern's")
        return
    if tuple(module.block_size or ()) != (128, 128) or module.activation_scheme != "dynamic":
        raise Unfit(f"its blocks are {module.block_size}, its scheme {module.activation_scheme!r}; "
                    "quern takes 128 x 128 and 'dynamic'")
    for name in ("gate_up_proj", "down_proj"):
        scale, (experts, rows, columns) = getattr(module, name + "_scale_inv"), getattr(module, name).shape
        need = experts, -(-rows // 128), -(-columns // 128)
        if tuple(scale.shape) != need or scale.dtype != torch.float32:
            raise Unfit(f"the scales of its {name} are {tuple(scale.shape)} of {scale.dtype}; quern takes {need} of f32")


def _weights_of(module):
    """Returns both weights with a row for each result, their scales and their biases."""
    names = ("gate_up_proj", "down_proj")
    weights = [getattr(module, name) for name in names]
    if getattr(module, "is_transposed", False):
        weights = [w.transpose(1, 2) for w in weights]
    scales = [getattr(module, name + "_scale_inv") if w.dtype == torch.float8_e4m3fn else None
              for name, w in zip(names, weights, strict=True)]
    return *weights, *scales, *(wide(module._parameters.get(name + "_bias")) for name in names)


def _experts_function(run, names, function, limit, alpha, interleaved):
    number = _moe._FUNCTIONS[function]

    def forward(self, *arguments, **named):
        x, ids, weights = *arguments, *(named[name] for name in names[len(arguments):])
        w1, w2, *others = _weights_of(self)
        if x.dtype not in HALVES and not run.is_trial:
            raise NotImplementedError(f"patched {type(self).__name__}: its input is {x.dtype}; accepted: bf16, f16")
        if getattr(self, "_is_expert_parallel", False):  # what is not here has the number behind the last
            ids = torch.where(ids < w1.shape[0], ids, -1)
        (tokens, hidden), inner = x.shape, w1.shape[1] // 2
        size = _moe._workspace(tokens, tokens * ids.shape[1], hidden, inner, w1.shape[0])
        workspace = torch.empty(size, dtype=torch.uint8, device=x.device)
        out = torch.empty_like(x)
        run("fused_moe", out, workspace, x, None, w1, w2, *others, weights.float(), ids.to(torch.int32), None, None, number,
            limit, alpha, interleaved, False, 0)
        return out

    return forward


def _small(module, experts=3, hidden=8, inner=6):
    """Makes a twin with small f32 weights, which computes eagerly."""
    shapes = {"gate_up_proj": (2 * inner, hidden), "down_proj": (hidden, inner)}
    parameters = {}
    for name, (rows, columns) in shapes.items():
        shape = (columns, rows) if getattr(module, "is_transposed", False) else (rows, columns)
        parameters[name] = torch.nn.Parameter(trial.numbers(experts, *shape), False)
        if module._parameters.get(name + "_bias") is not None:
            parameters[name + "_bias"] = torch.nn.Parameter(trial.numbers(experts, rows), False)
    twin = trial.twin(module, parameters)
    twin.__dict__.update(num_experts=experts, hidden_dim=hidden, intermediate_dim=inner,
                         config=types.SimpleNamespace(_experts_implementation="eager"))
    return twin


def _candidates(module):
    """Returns what the activation may be: (function, limit, alpha)."""
    limit, alpha = _number(module, "limit", "swiglu_limit") or 0.0, _number(module, "alpha", "swiglu_alpha")
    found = [] if alpha is None else [("swiglu", limit, alpha)]
    if hasattr(module, "act_fn"):
        function = _FUNCTIONS[op_of(module.act_fn)]
        found += [(function, bound, 0.0) for bound in dict.fromkeys((limit, 0.0))]
    return found


def experts(run, module):
    """Replaces a layer of experts. The trial is of f32 weights, which FP8Experts takes as well: its own products of FP8 run on
    GPUs alone."""
    if "gate_up_proj" not in module._parameters or getattr(module, "has_post_expert_norm", False):
        raise Unfit("its experts have no gate, or a norm of their own")
    _want(run, module)
    names = list(inspect.signature(inspect.unwrap(type(module).forward)).parameters)[1:4]
    twin, x = _small(module), 4 * trial.numbers(5, 8)
    ids, weights = torch.tensor([[0, 2], [2, 1], [0, 1], [1, 0], [2, 0]]), trial.weights(5, 2)
    want = trial.run(type(module).forward, twin, x, ids, weights)
    for candidate, interleaved in itertools.product(_candidates(module), (False, True)):
        got = trial.run(_experts_function(run.plain, names, *candidate, interleaved), twin, x, ids, weights)
        if trial.agree(got, want):
            return Replacement("fused_moe", _experts_function(run, names, *candidate, interleaved),
                               dict.fromkeys(module._modules.values()))
    raise Unfit("its experts compute something else than fused_moe")
