# SPDX-License-Identifier: Apache-2.0
"""AITER's attention over MLA's caches. V is the first part of a row of the cache. Index arrays are read on the host, which waits for
the device."""

from __future__ import annotations

import torch

from ... import _attention, _mla
from ..._public import flag
from . import _check
from ._absent import PERSISTENT, absent
from ._run import run

Tensor = torch.Tensor
_NAMES = {"q_nope": "q", "q_pe": "q", "ckv": "kv_buffer", "kpe": "kv_buffer", "out": "o", "kv_last_page_len": "kv_last_page_lens"}


def _check_caches(op, q, kv_buffer, o, kv_indices, logit_cap):
    _check.tensors(op, {"o": o, "q": q, "kv_buffer": kv_buffer, "kv_indices": kv_indices})
    _check.shape(op, "q", q, None, None, None)
    _check.shape(op, "kv_buffer", kv_buffer, None, None, 1, q.shape[2])
    _check.shape(op, "o", o, q.shape[0], q.shape[1], None)
    if o.shape[2] >= q.shape[2]:
        raise ValueError(f"{op}: o has shape {list(o.shape)}, needs fewer than {q.shape[2]} elements, q's")
    _check.only(op, "a bound of scores", 0, logit_cap=logit_cap)


def _decode(op, q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, last, sm_scale, logit_cap, causal, return_lse, q_scale=None,
            kv_scale=None):
    _check_caches(op, q, kv_buffer, o, kv_indices, logit_cap)
    sm_scale = q.shape[2] ** -0.5 if sm_scale is None else _check.number(op, "sm_scale", sm_scale)
    qo_indptr, dim, size = qo_indptr.cpu(), o.shape[2], kv_buffer.shape[1]
    plan = run(op, _attention.attention_plan, _NAMES, q.shape[1], 1, dim, qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_last_page_len=last,
               page_size=size)
    n = int(qo_indptr[-1])
    cache = kv_buffer.squeeze(2)
    lse = torch.full(q.shape[:2], -torch.inf, dtype=torch.float32, device=q.device) if return_lse else None
    run(op, _mla.mla_decode, _NAMES, q[:n, :, :dim], q[:n, :, dim:], cache[..., :dim], cache[..., dim:], plan=plan, kv_indices=kv_indices,
        sm_scale=sm_scale, is_causal=causal, q_scales=_check.scale(op, "q_scale", q_scale, q, q.shape[1]),
        kv_scales=_check.scale(op, "kv_scale", kv_scale, q), lse_base="e", out=o[:n], lse=None if lse is None else lse[:n])
    return lse


def mla_decode_fwd(q: Tensor, kv_buffer: Tensor, o: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
                   kv_last_page_lens: Tensor, max_seqlen_q: int, page_size: int = 1, nhead_kv: int = 1, sm_scale: float | None = None,
                   logit_cap: float = 0.0, num_kv_splits: int | None = None, num_kv_splits_indptr: Tensor | None = None,
                   work_meta_data: Tensor | None = None, work_indptr: Tensor | None = None, work_info_set: Tensor | None = None,
                   reduce_indptr: Tensor | None = None, reduce_final_map: Tensor | None = None,
                   reduce_partial_map: Tensor | None = None, q_scale: Tensor | None = None, kv_scale: Tensor | None = None,
                   intra_batch_mode: bool = False, return_logits: bool = False, return_lse: bool = False, g_kv_indptr: None = None,
                   cp_world_size: int = 1, cp_rank: int = 0, causal: bool = True) -> tuple[Tensor, Tensor | None]:
    """Writes to o softmax(sm_scale q kv^T) kv[.., :o's last size]. Returns (o [tokens, 1, heads, dim], lse f32 [tokens, heads] or
    None).

    q          [tokens, heads, dim + rope_dim] of bf16, f16 or FP8; kv_buffer [pages, page_size, 1, dim + rope_dim]
    sm_scale   None: 1 / sqrt(dim + rope_dim)
    q_scale, kv_scale  f32 [1], of FP8
    page_size, nhead_kv  kv_buffer's own
    max_seqlen_q, num_kv_splits, num_kv_splits_indptr, work_*, reduce_*, intra_batch_mode  change nothing: quern splits for itself
    logit_cap 0, return_logits False, g_kv_indptr None, cp_world_size 1, cp_rank 0
    """
    op = "mla_decode_fwd"
    _check.only(op, "partial results", False, return_logits=return_logits)
    _check.refuse(op, "over several GPUs", g_kv_indptr=g_kv_indptr)
    _check.only(op, "over several GPUs", 1, cp_world_size=cp_world_size)
    _check.only(op, "over several GPUs", 0, cp_rank=cp_rank)
    _check.integer(op, "nhead_kv", nhead_kv, 1, 1)
    _check.integer(op, "page_size", page_size, kv_buffer.shape[1], kv_buffer.shape[1])
    lse = _decode(op, q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, sm_scale, logit_cap, flag(op, "causal", causal),
                  flag(op, "return_lse", return_lse), q_scale, kv_scale)
    return o.unsqueeze(1), lse


def mla_prefill_fwd(q: Tensor, kv_buffer: Tensor, o: Tensor, qo_indptr: Tensor, kv_indptr: Tensor, kv_indices: Tensor,
                    kv_last_page_lens: Tensor, max_seqlen_q: int, sm_scale: float | None = None, logit_cap: float = 0.0,
                    num_kv_splits: int | None = None) -> tuple[Tensor, Tensor]:
    """Computes mla_decode_fwd of prompts, causal. Returns (o, lse f32 [tokens, 1, heads, 1]). max_seqlen_q and num_kv_splits
    change nothing."""
    lse = _decode("mla_prefill_fwd", q, kv_buffer, o, qo_indptr, kv_indptr, kv_indices, kv_last_page_lens, sm_scale, logit_cap, True, True)
    return o, lse[:, None, :, None]


mla_prefill_ps_fwd = absent("mla_prefill_ps_fwd", PERSISTENT)
