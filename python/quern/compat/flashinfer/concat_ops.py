# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's joining of MLA's keys."""

import torch

from .._check import shape, tensors
from ._hints import check_backend


def concat_mla_k(k, k_nope, k_rope, *, backend="default"):
    """Writes k [tokens, heads, dim + rope_dim]: k_nope [tokens, heads, dim], then k_rope [tokens, 1, rope_dim] for each head."""
    op = "concat_mla_k"
    check_backend(op, backend, ("default",))
    tensors(op, {"k": k, "k_nope": k_nope, "k_rope": k_rope})
    shape(op, "k", k, None, None, None)
    for name, x, heads in (("k_nope", k_nope, k.shape[1]), ("k_rope", k_rope, 1)):
        shape(op, name, x, len(k), heads, None)
        if x.dtype != k.dtype:
            raise ValueError(f"{op}: {name} has dtype {x.dtype}, needs k's, {k.dtype}")
    if k_nope.shape[2] + k_rope.shape[2] != k.shape[2]:
        raise ValueError(f"{op}: k has {k.shape[2]} elements, needs {k_nope.shape[2] + k_rope.shape[2]}: those of k_nope and k_rope")
    whole = k.view(torch.uint8) if k.dtype.itemsize == 1 else k
    for at, x in ((slice(k_nope.shape[2]), k_nope), (slice(k_nope.shape[2], None), k_rope)):
        whole[..., at] = x.view(torch.uint8) if x.dtype.itemsize == 1 else x
