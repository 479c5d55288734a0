# SPDX-License-Identifier: Apache-2.0
"""What engines' layers have in common."""

import torch


def rows(x):
    """Returns x as quern's norms take it, [n, h] or [n, heads, h]: a view where x's strides allow one."""
    return x if x.ndim in (2, 3) else x.reshape(-1, x.shape[-1])


def table_of(module, device):
    """Returns a rotary embedding's table of cosines and sines in f32, made once, of the values that the engine has."""
    table = module.cos_sin_cache
    kept = getattr(module, "_quern_table", None)
    if kept is None or kept[0] is not table or kept[1].device != device:
        kept = table, table.to(device, torch.float32)
        module._quern_table = kept
    return kept[1]


def asked(op):
    """Returns what a table's kernel is asked with: the arguments of a small call of quern's op, and their description."""
    x, w = torch.ones(1, 4096, dtype=torch.bfloat16), torch.ones(4096, dtype=torch.bfloat16)
    if op in ("rmsnorm", "gemma_rmsnorm", "layernorm"):
        return (x, w, w)[:3 if op == "layernorm" else 2], "1 x 4096 of bf16"
    if op == "apply_rope_with_cos_sin_cache":
        head = torch.ones(1, 8, 128, dtype=torch.bfloat16)
        return (head, head, torch.ones(1, 128), torch.zeros(1, dtype=torch.int32)), "1 token, heads of 128, bf16"
    return (x,), "1 x 2048 of bf16"
