# SPDX-License-Identifier: Apache-2.0
"""SGLang's diffusion: norms and the rotation of queries and keys, by hooks around its own functions."""

import torch
from sglang.multimodal_gen.runtime.platforms import current_platform
from sglang.multimodal_gen.runtime.platforms.plugins import HookRegistry
from sglang.srt.plugins.hook_registry import HookType

import quern

from .._layers import asked, rows
from . import _where

_LAYERS = "sglang.multimodal_gen.runtime.layers."


def _rms(original, self, x, residual=None):
    if self.variance_size_override is not None or self.cast_x_before_out_mul:
        _where.calls.tell("RMSNorm", "its variance is that of some columns, or it rounds before the weight")
        return original(self, x, residual)
    weight, eps = self.weight.data, self.variance_epsilon

    def ours():
        if residual is None:
            return quern.rmsnorm(rows(x), weight, eps).view(x.shape)
        out, total = x.reshape(-1, x.shape[-1]).clone(), residual.reshape(-1, x.shape[-1]).clone()  # neither is the op's to write
        quern.fused_add_rmsnorm(out, total, weight, eps)
        return out.view(x.shape), total.view(x.shape)

    return _where.calls("RMSNorm", ours, lambda: original(self, x, residual))


def _layernorm(original, self, x, *rest):
    gamma, beta = (None if p is None else p.data for p in (self.weight, self.bias))
    return _where.calls("LayerNorm", lambda: quern.layernorm(rows(x), gamma, beta, self.eps).view(x.shape), lambda: original(self, x, *rest))


def _is_taken(q, k, table):
    return q.dim() == 4 == k.dim() and q.shape[:2] == k.shape[:2] and q.shape[-1] == k.shape[-1] and table.dim() == 2


def _rotate(original, q, k, cos_sin_cache, *, head_size=None, is_neox=False, positions=None):
    options = {"head_size": head_size, "is_neox": is_neox, "positions": positions}
    if not _is_taken(q, k, cos_sin_cache) or head_size not in (None, q.shape[-1]):
        return original(q, k, cos_sin_cache, **options)  # which says what is wrong
    batch, n = q.shape[:2]

    def ours():
        at = torch.arange(n, device=q.device, dtype=torch.int32).repeat(batch) if positions is None else positions.view(-1).to(torch.int32)
        flat = (x.reshape(batch * n, x.shape[2], x.shape[3]) for x in (q, k))
        turned = quern.apply_rope_with_cos_sin_cache(*flat, cos_sin_cache.float(), at, not is_neox)
        return tuple(y.view(x.shape) for y, x in zip(turned, (q, k), strict=True))

    return _where.calls("apply_flashinfer_rope_qk_inplace", ours, lambda: original(q, k, cos_sin_cache, **options))


def register(table):
    method = f"forward_{'hip' if current_platform.is_hip() else 'cuda' if current_platform.is_cuda() else 'cpu'}"
    for name, target, op, hook in (
            ("RMSNorm", f"layernorm.RMSNorm.{method}", "rmsnorm", _rms),
            ("LayerNorm", f"layernorm.LayerNorm.{method}", "layernorm", _layernorm),
            ("rotation of q and k", "rotary_embedding.utils.apply_flashinfer_rope_qk_inplace", "apply_rope_with_cos_sin_cache", _rotate)):
        arguments, text = asked(op)
        HookRegistry.register(_LAYERS + target, hook, HookType.AROUND)
        table.serve(name, _where.probe().kernel(getattr(quern, op), *arguments), text)
    table.leave("norms with modulation", "SGLang's own join more than quern's: residual, gate, norm, scale and shift of any shapes")
    table.leave("attention", "SGLang chooses diffusion's by --attention-backend, and has no way to add one")
