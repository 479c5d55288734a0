# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention of many queries a request: one request, a batch over pages, a batch of ragged keys."""

import functools

import torch

from . import _run
from ._attention import (Wrapper, attend, caches, dtype_of, make_batch, mask_bytes, on_host, pack_mask, pack_single_mask,
                         positions, scales, takes)
from ._hints import check_backend, check_flags, refuse
from .page import is_hnd


def single_prefill_with_kv_cache(q, k, v, scale_q=None, scale_k=None, scale_v=None, o_dtype=None, custom_mask=None,
                                 packed_custom_mask=None, causal=False, kv_layout="NHD", pos_encoding_mode="NONE",
                                 use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
                                 rope_scale=None, rope_theta=None, backend="auto", return_lse=False, kv_cache_sf=None,
                                 k_scale=None, v_scale=None):
    """Attends with q [n, heads, dim] over k and v [m, kv heads, dim] ("HND": [kv heads, m, dim]). Returns [n, heads,
    dim], and lse [n, heads].

    custom_mask is [n, m] bool, or packed_custom_mask holds its bits, lowest first; causal is ignored with either.
    scale_q [heads], scale_k and scale_v [kv heads] f32 are those of FP8 tensors.
    """
    op = "single_prefill_with_kv_cache"
    refuse(op, use_fp16_qk_reduction=use_fp16_qk_reduction, kv_cache_sf=kv_cache_sf)
    check_backend(op, backend)
    if is_hnd(op, kv_layout):
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    heads = k.shape[1]
    return attend(op, q, k, v, dtype=("o_dtype", dtype_of(op, "o_dtype", o_dtype)), return_lse=return_lse, is_causal=causal,
                  window_left=window_left, custom_mask=pack_single_mask(q, k.shape[0], custom_mask, packed_custom_mask),
                  **positions(op, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta, sm_scale),
                  **scales(op, "q_scale", q.shape[1], scale_q=scale_q),
                  **scales(op, "k_scale", heads, scale_k=scale_k, k_scale=k_scale),
                  **scales(op, "v_scale", heads, scale_v=scale_v, v_scale=v_scale))


_LSE_BASES = {"log2": 2, "ln": "e"}
_LSE_LAYOUTS = ("NH", "HN")


single_prefill_with_kv_cache_return_lse = functools.partial(single_prefill_with_kv_cache, return_lse=True)


class _BatchPrefill(Wrapper):
    """What the wrappers of pages and of ragged keys have in common."""

    def __init__(self, float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, custom_mask_buf, mask_indptr_buf,
                 backend, jit_args, jit_kwargs):
        super().__init__(type(self).__name__, float_workspace_buffer, kv_layout, use_cuda_graph, jit_args, backend)
        refuse(self._op, jit_kwargs=jit_kwargs)
        self._qo_indptr, self._mask_buffer, self._mask_indptr = qo_indptr_buf, custom_mask_buf, mask_indptr_buf
        if use_cuda_graph and (custom_mask_buf is None) != (mask_indptr_buf is None):
            raise ValueError(f"{self._op}: found one of custom_mask_buf and mask_indptr_buf; with use_cuda_graph accepted: both, none")

    def _options(self, causal, mode, use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap, rope_scale, rope_theta):
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction)
        return {"is_causal": causal, "window_left": window_left,
                **positions(self._op, mode, logits_soft_cap, rope_scale, rope_theta, sm_scale)}

    def _attend_with(self, lse_base, lse_layout, q, k, v, out, lse, return_lse, scale_values, **options):
        """Calls _attend for an lse of another base, or of [heads, queries]."""
        for name, value, accepted in (("lse_base", lse_base, _LSE_BASES), ("lse_layout", lse_layout, _LSE_LAYOUTS)):
            if value not in accepted:
                raise ValueError(f"{self._op}: {name} is {value!r}; accepted: {', '.join(map(repr, accepted))}")
        options["lse_base"] = _LSE_BASES[lse_base]
        if lse_layout == "NH" or (lse is None and not return_lse):
            return self._attend(q, k, v, out, lse, return_lse, scale_values, **options)
        if lse is None:
            lse = torch.empty(q.shape[1], q.shape[0], dtype=torch.float32, device=q.device)
        out = self._attend(q, k, v, out, lse.T, False, scale_values, **options)
        return (out, lse) if return_lse else out

    def _put_mask(self, batch, custom_mask, packed_custom_mask):
        packed = pack_mask(batch, custom_mask, packed_custom_mask)
        if packed is None:
            return
        packed = packed.to(self.device)
        if self._use_cuda_graph:
            if self._mask_buffer is None:
                raise ValueError(f"{self._op}: custom_mask_buf is None; with use_cuda_graph a mask needs it")
            self._fill("custom_mask_buf", self._mask_buffer, packed)
            self._fill("mask_indptr_buf", self._mask_indptr, mask_bytes(batch))
            packed = self._mask_buffer[:packed.numel()]
        batch.custom_mask = packed

    def _set_mask(self, custom_mask, packed_custom_mask):
        """Replaces the planned mask, perhaps by none."""
        batch = self._planned_batch()
        batch.custom_mask = None
        self._put_mask(batch, custom_mask, packed_custom_mask)

    def _forward(self, causal, mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale, rope_scale, rope_theta):
        self._set_options(**self._options(causal, mode, use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap, rope_scale,
                                         rope_theta))


def _dtypes(op, q_data_type, kv_data_type, o_data_type):
    q_dtype = dtype_of(op, "q_data_type", q_data_type)
    return q_dtype, dtype_of(op, "kv_data_type", kv_data_type) or q_dtype, dtype_of(op, "o_data_type", o_data_type)


class BatchPrefillWithPagedKVCacheWrapper(_BatchPrefill):
    """Call plan() once a batch, and run() any number of times. backend ("auto", "fa2", "fa3"), non_blocking and
    enable_pdl change nothing."""

    _names = {"kv_indptr": "paged_kv_indptr", "kv_indices": "paged_kv_indices", "kv_last_page_len": "paged_kv_last_page_len"}

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
                 paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None,
                 mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, custom_mask_buf, mask_indptr_buf,
                         backend, jit_args, jit_kwargs)
        self._indices = paged_kv_indices_buf
        self._keep_fixed(qo_indptr_buf=qo_indptr_buf, paged_kv_indptr_buf=paged_kv_indptr_buf,
                         paged_kv_indices_buf=paged_kv_indices_buf, paged_kv_last_page_len_buf=paged_kv_last_page_len_buf)

    def _batch_of(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
                  head_dim_qk, page_size, head_dim_vo=None, custom_mask=None, packed_custom_mask=None, causal=False,
                  pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None, window_left=-1, logits_soft_cap=None,
                  rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None, o_data_type=None,
                  non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0,
                  max_item_len_ptr=None, seq_lens=None, seq_lens_q=None, block_tables=None, max_token_per_sequence=None,
                  max_sequence_kv=None, fixed_split_size=None, disable_split_kv=False):
        check_flags(self._op, non_blocking=non_blocking)
        refuse(self._op, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr,
               token_pos_in_items_len=token_pos_in_items_len or None, max_item_len_ptr=max_item_len_ptr,
               block_tables=block_tables)
        options = self._options(causal, pos_encoding_mode, use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap,
                                rope_scale, rope_theta)
        batch = make_batch(self._op, qo_indptr, paged_kv_indptr, paged_kv_last_page_len, paged_kv_indices,
                           (num_qo_heads, num_kv_heads), (head_dim_qk, head_dim_vo or head_dim_qk), page_size, (fixed_split_size, disable_split_kv),
                           _dtypes(self._op, q_data_type, kv_data_type, o_data_type), options, self._use_cuda_graph, renamed=self._names)
        self._check_lens(batch, seq_lens, seq_lens_q, max_token_per_sequence, max_sequence_kv)
        self._put_mask(batch, custom_mask, packed_custom_mask)
        return batch

    @takes(_batch_of)
    def plan(self, *arguments, **options):
        """Takes qo_indptr [batch + 1] queries, paged_kv_indptr [batch + 1] pages, paged_kv_indices [pages in use],
        paged_kv_last_page_len [batch]; then, by name or in FlashInfer's order, num_qo_heads, num_kv_heads, head_dim_qk,
        page_size, head_dim_vo, custom_mask, packed_custom_mask, causal, pos_encoding_mode, use_fp16_qk_reduction,
        sm_scale, window_left, logits_soft_cap, rope_scale, rope_theta, q_data_type ("float16"; None: q's),
        kv_data_type, o_data_type, and more.
        """
        batch = self._batch_of(*arguments, **options)
        self._check_batch_size(batch.qo_indptr, self._qo_indptr)
        self._fill_fixed(batch.qo_indptr, batch.kv_indptr, batch.kv_indices, batch.last_page_len)
        batch.kv_indices = self._indices if self._use_cuda_graph else _run.index(batch.kv_indices).to(self.device)
        self._planned(batch)

    begin_forward = plan

    @takes(_batch_of)
    def workspace_size(self, *arguments, **options):
        """Returns the bytes of the two workspaces that plan() needs with these arguments: (float, int)."""
        plan = self._batch_of(*arguments, **options).plan
        return plan.workspace_bytes, plan.host.size

    def run(self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
            lse_base="log2", lse_layout="NH", enable_pdl=None, window_left=None, sinks=None, kv_cache_sf=None,
            skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None, uses_spcompress=None):
        """Attends with q [queries, heads, dim_qk] over the pages. Returns [queries, heads, dim_vo]; with return_lse
        also [queries, heads], base 2 (lse_base "ln": e; lse_layout "HN": [heads, queries])."""
        refuse(self._op, kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
               use_fp16_softmax=use_fp16_softmax, uses_spcompress=uses_spcompress)
        check_flags(self._op, enable_pdl=enable_pdl)
        return self._attend_with(lse_base, lse_layout, q, *caches(paged_kv_cache), out, lse, return_lse,
                                 {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}, sinks=sinks,
                                 window_left=window_left)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(self, q, paged_kv_cache, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, k_scale=None,
                v_scale=None, window_left=-1, logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None,
                return_lse=False):
        """run() with other options than were planned."""
        self._forward(causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, paged_kv_cache, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class BatchPrefillWithRaggedKVCacheWrapper(_BatchPrefill):
    """Call plan() once a batch, and run() any number of times. backend ("auto", "fa2", "fa3"), non_blocking and
    enable_pdl change nothing."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None, kv_indptr_buf=None,
                 custom_mask_buf=None, mask_indptr_buf=None, backend="auto", jit_args=None, jit_kwargs=None):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, custom_mask_buf, mask_indptr_buf,
                         backend, jit_args, jit_kwargs)
        self._keep_fixed(qo_indptr_buf=qo_indptr_buf, kv_indptr_buf=kv_indptr_buf)

    def plan(self, qo_indptr, kv_indptr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo=None, custom_mask=None,
             packed_custom_mask=None, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
             logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None,
             o_data_type=None, non_blocking=True, prefix_len_ptr=None, token_pos_in_items_ptr=None, token_pos_in_items_len=0,
             max_item_len_ptr=None, fixed_split_size=None, disable_split_kv=False, seq_lens=None, seq_lens_q=None,
             max_token_per_sequence=None, max_sequence_kv=None, v_indptr=None, o_indptr=None):
        """Takes qo_indptr and kv_indptr [batch + 1]: where each request's queries and keys begin. v_indptr and o_indptr
        may only repeat these two."""
        check_flags(self._op, non_blocking=non_blocking)
        refuse(self._op, prefix_len_ptr=prefix_len_ptr, token_pos_in_items_ptr=token_pos_in_items_ptr,
               token_pos_in_items_len=token_pos_in_items_len or None, max_item_len_ptr=max_item_len_ptr)
        for name, given, own in (("v_indptr", v_indptr, kv_indptr), ("o_indptr", o_indptr, qo_indptr)):
            if given is not None and not torch.equal(on_host(given), on_host(own)):
                raise NotImplementedError(f"{self._op}: {name} differs from that of k or q, which is not supported")
        options = self._options(causal, pos_encoding_mode, use_fp16_qk_reduction, sm_scale, window_left, logits_soft_cap,
                                rope_scale, rope_theta)
        batch = make_batch(self._op, qo_indptr, kv_indptr, None, None, (num_qo_heads, num_kv_heads),
                           (head_dim_qk, head_dim_vo or head_dim_qk), 0, (fixed_split_size, disable_split_kv),
                           _dtypes(self._op, q_data_type, kv_data_type, o_data_type), options, self._use_cuda_graph, renamed=self._names)
        self._check_lens(batch, seq_lens, seq_lens_q, max_token_per_sequence, max_sequence_kv)
        self._put_mask(batch, custom_mask, packed_custom_mask)
        self._check_batch_size(qo_indptr, self._qo_indptr)
        self._fill_fixed(batch.qo_indptr, batch.kv_indptr)
        self._planned(batch)

    begin_forward = plan

    def run(self, q, k, v, *, q_scale=None, k_scale=None, v_scale=None, o_scale=None, out=None, lse=None, return_lse=False,
            lse_base="log2", lse_layout="NH", enable_pdl=None, kv_cache_sf=None):
        """Attends with q [queries, heads, dim_qk] over k, v [keys, kv heads, dim] ("HND": [kv heads, keys, dim]).
        Returns [queries, heads, dim_vo]."""
        refuse(self._op, o_scale=None if o_scale == 1 else o_scale, kv_cache_sf=kv_cache_sf)
        check_flags(self._op, enable_pdl=enable_pdl)
        return self._attend_with(lse_base, lse_layout, q, k, v, out, lse, return_lse,
                                 {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale})

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(self, q, k, v, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, window_left=-1,
                logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False):
        """run() with other options than were planned."""
        self._forward(causal, pos_encoding_mode, use_fp16_qk_reduction, window_left, logits_soft_cap, sm_scale, rope_scale,
                      rope_theta)
        return self.run(q, k, v, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


# ---- segments

class _Segments:
    """Offsets of packed requests, read on the host once, and the batches made of them, by what keys and values look
    like."""

    def __init__(self, qo_offsets, kv_offsets, num_qo_heads, causal):
        self.qo_indptr, self.kv_indptr = on_host(qo_offsets), on_host(kv_offsets)
        self.num_qo_heads, self.causal, self._batches = num_qo_heads, bool(causal), {}

    def batch(self, k, v):
        shape = k.shape[1:], v.shape[2]
        if shape not in self._batches:
            self._batches[shape] = make_batch(
                "fmha_varlen", self.qo_indptr, self.kv_indptr, None, None, (self.num_qo_heads, k.shape[1]),
                (k.shape[2], v.shape[2]), 0, (None, False), (None, None, None), {},
                renamed={"kv_indptr": "kv_segment_offsets", "qo_indptr": "qo_segment_offsets"})
        return self._batches[shape]

    def check(self, op, num_qo_heads, causal, max_qo_len):
        if (self.num_qo_heads, self.causal) != (num_qo_heads, bool(causal)):
            raise ValueError(f"{op}: q has {num_qo_heads} heads and causal is {bool(causal)}, plan_info is for "
                             f"{self.num_qo_heads} and {self.causal}")
        longest = int((self.qo_indptr[1:] - self.qo_indptr[:-1]).max()) if len(self.qo_indptr) > 1 else 0
        if max_qo_len is not None and max_qo_len < longest:
            raise ValueError(f"{op}: max_qo_len is {max_qo_len}, the longest request has {longest} queries")


def fmha_varlen_plan(module, qo_segment_offsets, kv_segment_offsets, num_qo_heads, causal):
    """Returns what fmha_varlen takes as plan_info, so that several calls read the offsets once. module is None, as no
    module is built here."""
    refuse("fmha_varlen_plan", module=module)
    return _Segments(qo_segment_offsets, kv_segment_offsets, num_qo_heads, causal)


def fmha_varlen(q, k, v, qo_segment_offsets, kv_segment_offsets, plan_info=None, max_qo_len=None, out=None, lse=None,
                causal=False, sm_scale=None, q_scale=None, k_scale=None, v_scale=None, o_scale=None, return_lse=False):
    """Attends with q [queries, heads, dim_qk] over k and v [keys, kv heads, dim], both packed. Returns (out, lse); lse
    is None if it is not asked for.

    qo_segment_offsets, kv_segment_offsets  [requests + 1]: where each request begins; read if there is no plan_info
    plan_info   of fmha_varlen_plan, from the same offsets, heads and causal
    max_qo_len  at least the longest request's queries
    """
    op = "fmha_varlen"
    refuse(op, o_scale=None if o_scale == 1 else o_scale)
    if plan_info is None:
        plan_info = fmha_varlen_plan(None, qo_segment_offsets, kv_segment_offsets, q.shape[1], causal)
    elif not isinstance(plan_info, _Segments):
        raise TypeError(f"{op}: plan_info is a {type(plan_info).__name__}; accepted: what fmha_varlen_plan gives")
    plan_info.check(op, q.shape[1], causal, max_qo_len)
    has_lse = return_lse or lse is not None
    told = positions(op, "NONE", None, None, None, sm_scale)
    result = attend(op, q, k, v, batch=plan_info.batch(k, v), out=out, lse=lse, return_lse=has_lse, is_causal=causal,
                    window_left=-1, **told, **scales(op, "q_scale", q.shape[1], q_scale=q_scale),
                    **scales(op, "k_scale", k.shape[1], k_scale=k_scale), **scales(op, "v_scale", v.shape[1], v_scale=v_scale))
    return result if has_lse else (result, None)
