# SPDX-License-Identifier: Apache-2.0
"""Attention for training: a custom op of the forward pass, one of the backward pass, and what autograd must know of them.

torch.compile and activation checkpointing see the two ops as they see PyTorch's own. The backward pass has no gradient of
its own: a second one is refused.
"""

import torch

from .. import _tensor
from .. import last_kernel as _last_kernel
from .._attention import attention, attention_backward
from .._native import ffi
from . import _slow
from ._ops import library

_OPTIONS = ("float dropout_p, bool is_causal, float? scale, int window_left, float logits_soft_cap, str device, bool allow_slow")


def note(kernel):
    """Is told of each kernel that computed a call; _sdpa.py puts its count here."""


def is_needed(*tensors):
    """Returns whether autograd will ask for a gradient of one of the tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def contiguous_rows(x):
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


def _aligned_rows(x):
    """Returns x with contiguous rows that begin at multiples of 16 bytes on a GPU, as kernels on matrix cores take them, where rows
    are such multiples."""
    x, size = contiguous_rows(x), x.element_size()
    if x.device.type == "cpu" or x.ndim < 4 or x.shape[-1] * size % 16:
        return x
    steps = [x.data_ptr(), *(step * size for step, n in zip(x.stride()[:-1], x.shape[:-1], strict=True) if n > 1)]
    return x.clone(memory_format=torch.contiguous_format) if any(step % 16 for step in steps) else x


def _there(device, *tensors):
    """Returns the tensors as quern takes them, on the device if one is named."""
    if not device:
        return [None if t is None else _aligned_rows(t) for t in tensors]
    place = _tensor.device(device)
    return [None if t is None else _tensor.to(t.contiguous(), place) for t in tensors]


def _back(device, result, like):
    """Returns a result as a PyTorch tensor where `like` is."""
    if not device:
        return result
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    ffi.copy(out, result)
    return out


def _options(dropout_p, is_causal, scale, window_left, logits_soft_cap, seed):
    return {"layout": "HND", "is_causal": is_causal, "is_top_left": True, "sm_scale": scale, "dropout_p": dropout_p,
            "window_left": window_left, "logits_soft_cap": logits_soft_cap, "dropout_seed": int(seed)}


def _outputs(query, value):
    """Returns a new result, in memory as query is, and a new log-sum-exp."""
    batch, heads, n, _ = query.shape
    is_nhd = query.stride(1) < query.stride(2)
    out = query.new_empty(batch, n, heads, value.shape[-1]).transpose(1, 2) if is_nhd else \
        query.new_empty(batch, heads, n, value.shape[-1])
    return out, query.new_empty(batch, heads, n, dtype=torch.float32)


def _forward(query, key, value, mask, sinks, dropout_p, is_causal, scale, window_left, logits_soft_cap, device, allow_slow):
    seed = torch.zeros((), dtype=torch.int64)
    if dropout_p > 0:
        seed.random_()  # from PyTorch's generator, so that torch.manual_seed acts
    out, lse = _outputs(query, value)
    if out.numel() == 0:
        return out, lse.fill_(-torch.inf), seed
    q, k, v, m, s = _there(device, query, key, value, mask, sinks)
    options = _options(dropout_p, is_causal, scale, window_left, logits_soft_cap, seed)
    if not device:
        options |= {"out": out, "lse": lse}
    there = _slow.run(allow_slow, attention, q, k, v, mask=m, sinks=s, return_lse=True, **options)
    note(_last_kernel())
    return (*(_back(device, x, like) for x, like in zip(there, (out, lse), strict=True)), seed)


def _backward(d_out, query, key, value, mask, sinks, out, lse, seed, needs_mask, needs_sinks, dropout_p, is_causal, scale,
              window_left, logits_soft_cap, device, allow_slow):
    if out.numel() == 0:
        return [torch.zeros_like(x) for x in _gradients_like(query, key, value, mask, sinks, needs_mask, needs_sinks)]
    d, q, k, v, m, s, o, e = _there(device, d_out, query, key, value, mask, sinks, out, lse)
    there = _slow.run(allow_slow, attention_backward, d, q, k, v, o, e, mask=m, sinks=s, needs_dmask=needs_mask,
                      needs_dsinks=needs_sinks, **_options(dropout_p, is_causal, scale, window_left, logits_soft_cap, seed))
    note(_last_kernel())
    like = _gradients_like(query, key, value, mask, sinks, needs_mask, needs_sinks)
    return [x if g is None else _back(device, g, x) for g, x in zip(there, like, strict=True)]


def _gradients_like(query, key, value, mask, sinks, needs_mask, needs_sinks):
    """Returns new gradients; those that are not needed are empty."""
    nothing = query.new_empty(0)
    return [*map(torch.empty_like, (query, key, value)), torch.empty_like(mask) if needs_mask else nothing,
            torch.empty_like(sinks) if needs_sinks else nothing.float()]


library.define(f"attention_forward(Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? sinks, {_OPTIONS}) "
               "-> (Tensor, Tensor, Tensor)", tags=(torch.Tag.nondeterministic_seeded,))
library.define("attention_gradients(Tensor d_out, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor? sinks, Tensor out, "
               f"Tensor lse, Tensor seed, bool needs_mask, bool needs_sinks, {_OPTIONS}) -> Tensor[]")
library.impl("attention_forward", _forward, "CompositeExplicitAutograd")
library.impl("attention_gradients", _backward, "CompositeExplicitAutograd")


@torch.library.register_fake("quern::attention_forward", lib=library)
def _fake_forward(query, key, value, *_):
    return *_outputs(query, value), torch.empty((), dtype=torch.int64)


@torch.library.register_fake("quern::attention_gradients", lib=library)
def _fake_backward(d_out, query, key, value, mask, sinks, out, lse, seed, needs_mask, needs_sinks, *_):
    return _gradients_like(query, key, value, mask, sinks, needs_mask, needs_sinks)


def _keep(ctx, inputs, output):
    *tensors, ctx.dropout_p, ctx.is_causal, ctx.scale, ctx.window_left, ctx.cap, ctx.device, ctx.allow_slow = inputs
    ctx.save_for_backward(*tensors, *output)


def _gradients(ctx, d_out, _d_lse, _d_seed):
    query, key, value, mask, sinks, out, lse, seed = ctx.saved_tensors
    needs_mask, needs_sinks = ctx.needs_input_grad[3], ctx.needs_input_grad[4]
    dq, dk, dv, dmask, dsinks = torch.ops.quern.attention_gradients(
        d_out, query, key, value, mask, sinks, out, lse, seed, needs_mask, needs_sinks, ctx.dropout_p, ctx.is_causal, ctx.scale,
        ctx.window_left, ctx.cap, ctx.device, ctx.allow_slow)
    return (dq, dk, dv, dmask if needs_mask else None, dsinks if needs_sinks else None, *(None,) * 7)


def _refuse_second(ctx, *_):
    raise NotImplementedError("scaled_dot_product_attention: a gradient of its gradient is asked for; quern computes first ones; "
                              "accepted: quern.torch.disable() around such calls")


torch.library.register_autograd("quern::attention_forward", _gradients, setup_context=_keep, lib=library)
torch.library.register_autograd("quern::attention_gradients", _refuse_second, lib=library)


def attend(query, key, value, mask, dropout_p, is_causal, scale, device, sinks, window_left, logits_soft_cap, allow_slow):
    """Computes attention over [batch, heads, n, dim], for autograd."""
    out, _, _ = torch.ops.quern.attention_forward(query, key, value, mask, sinks, dropout_p, is_causal, scale, window_left,
                                                  logits_soft_cap, device, allow_slow)
    return out
