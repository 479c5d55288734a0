# SPDX-License-Identifier: Apache-2.0
"""SGLang's fused ops: norms, gated activations, rotary embeddings. Each class gets a method for SGLang's backend PLUGIN, which
SGLang prefers to its own kernels but for two."""

import functools
import importlib

import torch
from sglang.kernels.fused_op import _platform_key
from sglang.kernels.spec import KernelBackend
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding

import quern

from .._layers import asked, rows, table_of
from . import _where

_LAYERS = "sglang.srt.layers."


# ---- norms: (self, theirs, ...) -> result, where theirs computes the same by SGLang's own method

def _refusal(self, residual, quant_linear):
    if getattr(self, "variance_size_override", None) is not None:
        return "its variance is that of some columns, and quern's of all"
    if getattr(self, "cast_x_before_out_mul", False):
        return "it rounds before the weight"
    if getattr(self, "override_orig_dtype", None) is not None:
        return "its result has a dtype of its own"
    if getattr(self, "fp32_residual", False) and residual is not None:
        return "its residual becomes f32"
    if (getattr(self, "_quant_linear", None) if quant_linear is None else quant_linear) is not None and _platform_key() == "cuda":
        return "it is joined with a quantisation"
    return None


def _rms(function, fused):
    def forward(self, theirs, x, residual=None, post_residual_addition=None, quant_linear=None):
        why = _refusal(self, residual, quant_linear)
        if why:
            _where.calls.tell(type(self).__name__, why)
            return theirs()
        weight, eps = self.weight.data, self.variance_epsilon
        if residual is None:
            return function(rows(x), weight, eps).view(x.shape)
        if post_residual_addition is not None:
            residual = residual + post_residual_addition
        fused(x.view(-1, x.shape[-1]), residual.view(-1, x.shape[-1]), weight, eps)  # in place, as SGLang's own kernels
        return x, residual

    return forward


def _layernorm(self, theirs, x):
    gamma = self.weight.data if self.elementwise_affine else None
    return quern.layernorm(rows(x), gamma, self.bias.data if self.use_bias else None, self.variance_epsilon).view(x.shape)


# ---- gated activations

def _silu_and_mul(self, theirs, x):
    return quern.silu_and_mul(x)


def _gelu_and_mul(self, theirs, x):
    return (quern.gelu_tanh_and_mul if self.approximate == "tanh" else quern.gelu_and_mul)(x)


# ---- rotary embeddings

def _rotate(self, theirs, positions, query, key, offsets=None, fused_set_kv_buffer_arg=None):
    own = type(self).forward_native is RotaryEmbedding.forward_native and not hasattr(self, "sin_cos_cache")
    if fused_set_kv_buffer_arg is not None or not own:
        _where.calls.tell(type(self).__name__, "it rotates by another rule, or writes to a cache as it goes")
        return theirs()
    positions = (positions if offsets is None else positions + offsets).flatten().to(torch.int32)
    q, k = (x.view(len(positions), -1, self.head_size) for x in (query, key))
    quern.apply_rope_with_cos_sin_cache(q, k, table_of(self, query.device), positions, not self.is_neox_style, q_out=q, k_out=k)
    return query, key


_OPS = [
    ("layernorm", "RMSNorm", "rmsnorm", _rms(quern.rmsnorm, quern.fused_add_rmsnorm)),
    ("layernorm", "GemmaRMSNorm", "gemma_rmsnorm", _rms(quern.gemma_rmsnorm, quern.gemma_fused_add_rmsnorm)),
    ("layernorm", "LayerNorm", "layernorm", _layernorm),
    ("activation", "SiluAndMul", "silu_and_mul", _silu_and_mul),
    ("activation", "GeluAndMul", "gelu_and_mul", _gelu_and_mul),
    ("rotary_embedding.base", "RotaryEmbedding", "apply_rope_with_cos_sin_cache", _rotate),
]


def give(base, function, name=None):
    """Gives a class of SGLang's function(self, theirs, ...) as its backend for plugins. Logs call the op by name, or by its class."""
    def forward_plugin(self, *arguments, **options):
        def theirs():
            return (self._platform_method(_platform_key()) or self.forward_native)(*arguments, **options)
        return _where.calls(name or type(self).__name__, lambda: function(self, theirs, *arguments, **options), theirs)

    base.forward_plugin = functools.wraps(base.forward_native)(forward_plugin)
    base.forward_plugin.__name__ = "forward_plugin"
    base.capabilities = {**base.capabilities, KernelBackend.PLUGIN: frozenset()}


def _register(table, module, name, op, function):
    try:
        base = getattr(importlib.import_module(_LAYERS + module), name)
        arguments, text = asked(op)
        kernel = _where.probe().kernel(getattr(quern, op), *arguments)
    except (ImportError, AttributeError, NotImplementedError) as error:
        table.leave(name, str(error))
        return
    give(base, function)
    table.serve(name, kernel, text)


def register(table):
    for row in _OPS:
        _register(table, *row)
    from sglang.srt.layers.layernorm import _use_aiter
    if _use_aiter:
        table.leave("RMSNorm, SiluAndMul", "SGLANG_USE_AITER=1 binds them to AITER as they are made")
