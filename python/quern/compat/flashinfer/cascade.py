# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's merging of attention over different keys. Log-sum-exps are base 2."""

import torch

from .. import _fallback_attention
from . import _run

_BASE_2 = 0


def merge_state(v_a, s_a, v_b, s_b):
    """v [n, heads, dim] and s [n, heads] f32 of two results: (v, s)."""
    if _run.is_disabled():
        return merge_states(torch.stack([v_a, v_b], 1), torch.stack([s_a.float(), s_b.float()], 1))
    v, s = torch.empty_like(v_a), torch.empty_like(s_a, dtype=torch.float32)
    _run.run("merge_state", v, s, v_a, s_a.float(), v_b, s_b.float(), _BASE_2)
    return v, s


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    """Merges the other state into v and s; mask [n] bool: into those rows where it is true."""
    if mask is None and not _run.is_disabled():
        _run.run("merge_state", v, s, v, s, v_other, s_other.float(), _BASE_2)
        return
    merged_v, merged_s = merge_state(v, s, v_other, s_other)
    chosen = torch.ones(len(v), dtype=torch.bool, device=v.device) if mask is None else mask.bool()
    v.copy_(torch.where(chosen[:, None, None], merged_v, v))
    s.copy_(torch.where(chosen[:, None], merged_s, s))


def merge_states(v, s):
    """v [n, states, heads, dim] and s [n, states, heads] f32: (v [n, heads, dim], s [n, heads])."""
    if _run.is_disabled():
        result = _fallback_attention.merge_states(v, s.float())
        _run.log("merge_states", [v])
        return result
    merged = torch.empty(v.shape[0], *v.shape[2:], dtype=v.dtype, device=v.device)
    merged_s = torch.empty(v.shape[0], v.shape[2], dtype=torch.float32, device=v.device)
    _run.run("merge_states", merged, merged_s, v, s.float(), _BASE_2)
    return merged, merged_s
