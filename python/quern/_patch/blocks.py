# SPDX-License-Identifier: Apache-2.0
"""What the blocks of diffusion transformers have in common: a gated residual and the norm after it, and a feed-forward layer
with its gate and residual."""

import torch

from . import norms
from .linear import by_pytorch, multiply


def halfway(run, norm, residual, x, gate, scale, shift):
    """Returns (t, LayerNorm(t) * (1 + scale) + shift) of t = residual + gate * x; residual is left as it is. Gate, scale and shift
    [batch, h] are of x's dtype or f32."""
    norms.same_dtype(norm, x, residual)
    recorded = run.trained("gated_residual_layernorm", x, residual, gate, scale, shift, norm.eps)
    if recorded is not None:
        return recorded[1], recorded[0]
    total, out = residual.clone(), torch.empty_like(x)
    run("gated_residual_layernorm", out, x, total, gate, scale, shift, norm.eps)
    return total, out


def second_half(run, norm, feed_forward, residual, attended, gate, shift_mlp, scale_mlp, gate_mlp):
    """Returns a block's result of what its attention gave: two gated residuals, the norm and the feed-forward layer."""
    residual, normed = halfway(run, norm, residual, attended, gate, scale_mlp, shift_mlp)
    return fed_forward(run, feed_forward, residual, normed, gate_mlp)


def fed_forward(run, feed_forward, residual, normed, gate):
    """Returns residual + gate * feed_forward(normed); gate has a row for each batch of equally many rows."""
    first, last = _parts_of(feed_forward)
    if last is None:
        return by_pytorch(feed_forward(normed), gate=gate, residual=residual)
    return multiply(run, first(normed), last, gate=gate, residual=residual)


def _parts_of(feed_forward):
    """Returns a FeedForward's layer with its activation, and its other layer; or two Nones if there is more to it."""
    net = getattr(feed_forward, "net", ())
    has_more = feed_forward._forward_hooks or feed_forward._forward_pre_hooks or "forward" in feed_forward.__dict__
    if (type(feed_forward).__name__ != "FeedForward" or has_more or len(net) != 3 or type(net[1]) is not torch.nn.Dropout
            or net[1].training):
        return None, None
    return net[0], net[2]
