# SPDX-License-Identifier: Apache-2.0
"""Norms: RMSNorm, Gemma's, LayerNorm, and diffusers' LayerNorms with modulation."""

import torch

from . import Replacement, Unfit, trial


def rows_of(x):
    """Returns x as the ops take it, [n, h] or [n, heads, h]: a view, or a copy if x's strides allow no view."""
    if x.ndim == 1:
        return x[None]
    return x if x.ndim <= 3 else x.flatten(0, -3)


def eps_of(module):
    for name in ("variance_epsilon", "eps"):
        if isinstance(getattr(module, name, None), float):
            return getattr(module, name)
    raise Unfit("it has no eps, or one that depends on the dtype")


def same_dtype(module, x, other):
    if x.dtype != other.dtype:
        raise NotImplementedError(f"patched {type(module).__name__}: its input is {x.dtype} and its weights or modulation "
                                  f"are {other.dtype}; accepted: one dtype")


# ---- RMSNorm

def is_rmsnorm(module):
    return "RMSNorm" in type(module).__name__


def rms_function(run, op, eps):
    def forward(self, x):
        same_dtype(self, x, self.weight)
        rows = rows_of(x)
        out = run.trained(op, rows, self.weight, eps)
        if out is None:
            out = torch.empty_like(rows)
            run(op, out, rows, self.weight, eps)
        return out.view(x.shape)

    return forward


def rmsnorm(run, module):
    weight, eps = module._parameters.get("weight"), eps_of(module)
    if weight is None or weight.ndim != 1:
        raise Unfit("it has no weight" if weight is None else "it norms more than the last dimension")
    twin, x = trial.twin(module, {"weight": trial.weights(*weight.shape)}), trial.rows(3, *weight.shape)
    want = trial.run(type(module).forward, twin, x)
    for op in ("rmsnorm", "gemma_rmsnorm"):
        if trial.agree(trial.run(rms_function(run.plain, op, eps), twin, x), want):
            return Replacement(op, rms_function(run, op, eps), is_trained=True)
    raise Unfit("it computes something else than rmsnorm and gemma_rmsnorm")


# ---- LayerNorm

def is_layernorm(module):
    return isinstance(module, torch.nn.LayerNorm) or ("LayerNorm" in type(module).__name__ and not module._modules)


def layer_function(run, eps):
    def forward(self, x):
        rows = rows_of(x)
        weights = self.weight, self.bias
        if type(self).__name__ == "FP32LayerNorm":  # diffusers', which widens its weights
            weights = [None if w is None else w.float() for w in weights]
        out = run.trained("layernorm", rows, *weights, eps)
        if out is None:
            out = torch.empty_like(rows)
            run("layernorm", out, rows, *weights, eps)
        return out.view(x.shape)

    return forward


def layernorm(run, module):
    shape, eps = getattr(module, "normalized_shape", None), eps_of(module)
    if shape is None or len(shape) != 1:
        raise Unfit("it does not say that it norms the last dimension alone")
    names = [name for name in ("weight", "bias") if module._parameters.get(name) is not None]
    twin, x = trial.twin(module, {name: trial.weights(*shape) for name in names}), trial.rows(3, *shape)
    if not trial.agree(trial.run(layer_function(run.plain, eps), twin, x), trial.run(type(module).forward, twin, x)):
        raise Unfit("it computes something else than layernorm")
    return Replacement("layernorm", layer_function(run, eps), is_trained=True)


# ---- LayerNorm with scale and shift

def modulate(run, x, scale, shift, eps):
    """Returns LayerNorm(x) * (1 + scale) + shift; x [batch, n, h], scale and shift [batch, h] of x's dtype or f32."""
    out = run.trained("adaptive_layernorm", x, scale, shift, eps)
    if out is None:
        out = torch.empty_like(x)
        run("adaptive_layernorm", out, x, scale, shift, eps)
    return out


def modulated(run, module, x, scale, shift, eps):
    """Returns what modulate does, of scale and shift [batch or 1, h] of x's dtype."""
    same_dtype(module, x, scale)
    return modulate(run, x, scale.expand(x.shape[0], -1), shift.expand(x.shape[0], -1), eps)


def _zero(run, eps):
    def forward(self, x, timestep=None, class_labels=None, hidden_dtype=None, emb=None):
        if self.emb is not None:
            emb = self.emb(timestep, class_labels, hidden_dtype=hidden_dtype)
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp = self.linear(self.silu(emb)).chunk(6, dim=1)
        return modulated(run, self, x, scale, shift, eps), gate, shift_mlp, scale_mlp, gate_mlp

    return forward


def _zero_single(run, eps):
    def forward(self, x, emb=None):
        shift, scale, gate = self.linear(self.silu(emb)).chunk(3, dim=1)
        return modulated(run, self, x, scale, shift, eps), gate

    return forward


def _continuous(run, eps):
    def forward(self, x, conditioning_embedding):
        scale, shift = self.linear(self.silu(conditioning_embedding).to(x.dtype)).chunk(2, dim=1)
        return modulated(run, self, x, scale, shift, eps)

    return forward


def _zero_twice(run, eps):
    def forward(self, hidden_states, emb=None):
        x = hidden_states
        shift, scale, gate, shift_mlp, scale_mlp, gate_mlp, shift2, scale2, gate2 = self.linear(self.silu(emb)).chunk(9, dim=1)
        first, second = modulated(run, self, x, scale, shift, eps), modulated(run, self, x, scale2, shift2, eps)
        return first, gate, shift_mlp, scale_mlp, gate_mlp, second, gate2

    return forward


# diffusers' class -> (how many tensors its linear layer gives, the name of that layer's input, our function)
_MODULATED = {"AdaLayerNormZero": (6, "emb", _zero), "AdaLayerNormZeroSingle": (3, "emb", _zero_single),
              "AdaLayerNormContinuous": (2, "conditioning_embedding", _continuous),
              "SD35AdaLayerNormZeroX": (9, "emb", _zero_twice)}


def is_adaptive(module):
    return "AdaLayerNorm" in type(module).__name__


def is_bare_layernorm(norm):
    return isinstance(norm, torch.nn.LayerNorm) and norm.weight is None and norm.bias is None


def adaptive(run, module):
    """Replaces a norm together with the norm inside it, which is not looked at by itself."""
    name = type(module).__name__
    if name not in _MODULATED:
        raise Unfit(f"of diffusers' modulated norms quern has {', '.join(_MODULATED)}")
    if not is_bare_layernorm(module.norm):
        raise Unfit("the norm inside has weights or is no LayerNorm")
    count, argument, function = _MODULATED[name]
    eps, h = eps_of(module.norm), 16
    small = torch.nn.LayerNorm(h, eps, elementwise_affine=False)
    changed = {"linear": trial.linear(8, count * h), "norm": small}
    twin = trial.twin(module, modules={**changed, **({"emb": None} if "emb" in module._modules else {})})
    x, arguments = trial.rows(2, 3, h), {argument: trial.numbers(2, 8)}
    want = trial.run(type(module).forward, twin, x, **arguments)
    if not trial.agree(trial.run(function(run.plain, eps), twin, x, **arguments), want):
        raise Unfit("it computes something else than adaptive_layernorm")
    return Replacement("adaptive_layernorm", function(run, eps), {module.norm: None}, is_trained=True)


def is_other(module):
    """Returns whether a norm is over something else than the last dimension."""
    return isinstance(module, (torch.nn.GroupNorm, torch.nn.LocalResponseNorm, torch.nn.modules.batchnorm._NormBase))
