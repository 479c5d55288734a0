# SPDX-License-Identifier: Apache-2.0
"""vLLM's custom ops: norms, gated activations, rotary embeddings. Each class of vLLM's gets a subclass, which vLLM makes in its
place, and whose method for this platform is quern's."""

import functools
import importlib

import torch

import quern

from .._layers import asked, rows, table_of
from . import _where, fused

_LAYERS = "vllm.model_executor.layers."


# ---- norms: (self, theirs, ...) -> result, where theirs computes the same by vLLM's own method

def _rms(function, fused):
    def forward(self, theirs, x, residual=None):
        if getattr(self, "variance_size_override", None) is not None:
            _where.calls.tell(type(self).__name__, "its variance is that of some columns, and quern's of all")
            return theirs()
        weight, eps = self.weight.data, self.variance_epsilon
        if residual is None:
            return function(rows(x), weight, eps).view(x.shape)
        fused(x.view(-1, x.shape[-1]), residual.view(-1, x.shape[-1]), weight, eps)  # in place, as vLLM allows
        return x, residual

    return forward


def _layernorm(self, theirs, x):
    gamma, beta = (None if p is None else p.data for p in (self.weight, self.bias))
    return quern.layernorm(rows(x), gamma, beta, self.eps).view(x.shape)


# ---- gated activations

def _silu_and_mul(self, theirs, x):
    return quern.silu_and_mul(x)


def _gelu_and_mul(self, theirs, x):
    return (quern.gelu_tanh_and_mul if self.approximate == "tanh" else quern.gelu_and_mul)(x)


def _of_experts(x, *arguments, **options):
    return quern.moe_activate(x.reshape(-1, x.shape[-1]), *arguments, **options).view(*x.shape[:-1], -1)


def _clamped(self, theirs, x):
    if (self.alpha, self.beta) != (1.0, 0.0) and self.beta != 1.0:
        _where.calls.tell(type(self).__name__, f"its beta is {self.beta} with alpha {self.alpha}, and quern's 0 or 1")
        return theirs()
    return _of_experts(x, *(("swiglu", self.swiglu_limit, self.alpha) if self.beta else ("silu", self.swiglu_limit)))


def _oai(self, theirs, x):
    return _of_experts(x, "swiglu", self.limit, self.alpha, interleaved=True)


# ---- rotary embeddings

def _heads(self, x, tokens):
    return None if x is None else x.view(tokens, -1, self.head_size)


def _rotate(self, theirs, positions, query, key=None, offsets=None):
    positions = (positions if offsets is None else positions + offsets).flatten().to(torch.int32)
    q, k = _heads(self, query, len(positions)), _heads(self, key, len(positions))
    quern.apply_rope_with_cos_sin_cache(q, k, table_of(self, query.device), positions, not self.is_neox_style, q_out=q, k_out=k)
    return query, key


# Of vLLM's classes: module, name, quern's op, function.
_NORMS = [
    ("layernorm", "RMSNorm", "rmsnorm", _rms(quern.rmsnorm, quern.fused_add_rmsnorm)),
    ("layernorm", "GemmaRMSNorm", "gemma_rmsnorm", _rms(quern.gemma_rmsnorm, quern.gemma_fused_add_rmsnorm)),
    ("layernorm", "LayerNorm", "layernorm", _layernorm),
]
_ACTIVATIONS = [
    ("activation", "SiluAndMul", "silu_and_mul", _silu_and_mul),
    ("activation", "GeluAndMul", "gelu_and_mul", _gelu_and_mul),
    ("activation", "SiluAndMulWithClamp", "moe_activate", _clamped),
    ("activation", "SwigluOAIAndMul", "moe_activate", _oai),
]
_ROTARIES = [(f"rotary_embedding.{module}", name, "apply_rope_with_cos_sin_cache", _rotate) for module, name in (
    ("base", "RotaryEmbedding"), ("llama3_rope", "Llama3RotaryEmbedding"), ("yarn_scaling_rope", "YaRNScalingRotaryEmbedding"),
    ("linear_scaling_rope", "LinearScalingRotaryEmbedding"), ("dynamic_ntk_scaling_rope", "DynamicNTKScalingRotaryEmbedding"),
    ("dynamic_ntk_alpha_rope", "DynamicNTKAlphaRotaryEmbedding"), ("ntk_scaling_rope", "NTKScalingRotaryEmbedding"),
    ("deepseek_scaling_rope", "DeepseekScalingRotaryEmbedding"))]


@functools.cache
def _kernel(op):
    return _where.probe().kernel(getattr(quern, op), *asked(op)[0])


def _subclass(base, function):
    """Returns a subclass of vLLM's class whose method for this platform is function."""
    name = _where.method()

    def forward(self, *arguments, **options):
        def theirs():
            return getattr(base, name)(self, *arguments, **options)
        return _where.calls(base.__name__, lambda: function(self, theirs, *arguments, **options), theirs)

    def dispatch_forward(self, compile_native=False):
        chosen = base.dispatch_forward(self, compile_native=compile_native)
        if not (self._enforce_enable or self.enabled()):
            _where.calls.tell(base.__name__, f"custom_ops of the compilation config has neither 'all' nor '+{base.name}'")
        return chosen

    return type(f"Quern{base.__name__}", (base,), {name: forward, "dispatch_forward": dispatch_forward, "__module__": __name__})


def register_class(table, base, name, kernel, asked, function):
    """Puts function(self, theirs, ...) in the place of a custom op's method for this platform. Returns the subclass that vLLM then makes."""
    in_tree_name = base.name
    ours = _subclass(base, function)
    base.register_oot(ours, name=name)
    ours.name = in_tree_name  # custom_ops names it so
    table.serve(name, kernel, asked)
    return ours


def _register(table, module, name, op, function):
    try:
        base = getattr(importlib.import_module(_LAYERS + module), name)
    except (ImportError, AttributeError) as error:
        table.leave(name, f"this vLLM has it not: {error}")
        return
    try:
        kernel = _kernel(op)
    except NotImplementedError as why:
        table.leave(name, str(why))
        return
    subclass = register_class(table, base, name, kernel, asked(op)[1], function)
    if name == "SiluAndMul":
        fused.register(table, subclass)


def register(table):
    for row in _NORMS + _ACTIVATIONS + _ROTARIES:
        _register(table, *row)
