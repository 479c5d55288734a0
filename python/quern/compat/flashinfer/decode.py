# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention of one query a request, over one cache or a batch's pages."""

import functools

import torch

from ..._public import flag
from . import _run
from ._absent import absent
from ._attention import Wrapper, attend, caches, dtype_of, make_batch, positions, scales, takes
from ._by_table import cudnn_batch_decode_with_kv_cache, sm110_gqa_decode  # noqa: F401
from ._hints import check_flags, refuse
from .page import is_hnd


def single_decode_with_kv_cache(q, k, v, kv_layout="NHD", pos_encoding_mode="NONE", use_tensor_cores=False, q_scale=None,
                                k_scale=None, v_scale=None, window_left=-1, logits_soft_cap=None, sm_scale=None,
                                rope_scale=None, rope_theta=None, return_lse=False):
    """Attends with one query q [heads, dim] over k and v [n, kv heads, dim] ("HND": [kv heads, n, dim]). Returns
    [heads, dim], and lse [heads]."""
    op = "single_decode_with_kv_cache"
    check_flags(op, use_tensor_cores=use_tensor_cores)
    if is_hnd(op, kv_layout):
        k, v = k.transpose(0, 1), v.transpose(0, 1)
    heads = k.shape[1]
    result = attend(op, q[None], k, v, return_lse=return_lse, window_left=window_left,
                    **positions(op, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta, sm_scale),
                    **scales(op, "q_scale", q.shape[0], q_scale=q_scale),
                    **scales(op, "k_scale", heads, k_scale=k_scale), **scales(op, "v_scale", heads, v_scale=v_scale))
    return (result[0][0], result[1][0]) if return_lse else result[0]


class BatchDecodeWithPagedKVCacheWrapper(Wrapper):
    """Call plan() once a batch, and run() any number of times. use_tensor_cores, backend ("auto", "fa2", "fa3"),
    non_blocking and enable_pdl change nothing."""

    _names = {"head_dim_vo": "head_dim", "kv_indptr": "indptr", "kv_indices": "indices", "kv_last_page_len": "last_page_len"}

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, use_tensor_cores=False,
                 paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None, backend="auto",
                 jit_args=None):
        super().__init__(type(self).__name__, float_workspace_buffer, kv_layout, use_cuda_graph, jit_args, backend)
        self._use_tensor_cores = flag(self._op, "use_tensor_cores", use_tensor_cores)
        self._indptr, self._indices = paged_kv_indptr_buffer, paged_kv_indices_buffer
        self._keep_fixed(paged_kv_indptr_buffer=paged_kv_indptr_buffer, paged_kv_indices_buffer=paged_kv_indices_buffer,
                         paged_kv_last_page_len_buffer=paged_kv_last_page_len_buffer)

    @property
    def use_tensor_cores(self):
        return self._use_tensor_cores

    def _batch_of(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
                  pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type="float16", kv_data_type=None,
                  o_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True,
                  block_tables=None, seq_lens=None, fixed_split_size=None, disable_split_kv=False, q_len_per_req=1, *,
                  window_right=0):
        refuse(self._op, block_tables=block_tables)
        check_flags(self._op, non_blocking=non_blocking)
        both = dtype_of(self._op, "data_type", data_type)
        q_dtype = dtype_of(self._op, "q_data_type", q_data_type) or both
        kv_dtype = dtype_of(self._op, "kv_data_type", kv_data_type) or both or q_dtype
        options = {"is_causal": window_right == 0, "window_left": window_left, "window_right": window_right or -1,
                   **positions(self._op, pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta, sm_scale)}
        if q_len_per_req < 1:
            raise ValueError(f"{self._op}: q_len_per_req is {q_len_per_req}; accepted: 1 or above")
        qo_indptr = torch.arange(len(indptr), dtype=torch.int32) * q_len_per_req
        dtypes = q_dtype, kv_dtype, dtype_of(self._op, "o_data_type", o_data_type)
        batch = make_batch(self._op, qo_indptr, indptr, last_page_len, indices, (num_qo_heads, num_kv_heads), (head_dim, head_dim),
                           page_size, (fixed_split_size, disable_split_kv), dtypes, options, self._use_cuda_graph,
                           renamed=self._names)
        self._check_lens(batch, seq_lens)
        return batch

    @takes(_batch_of)
    def plan(self, *arguments, **options):
        """Takes indptr [batch + 1] pages, indices [pages in use], last_page_len [batch]; then, by name or in
        FlashInfer's order, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode, window_left,
        logits_soft_cap, q_data_type ("float16"), kv_data_type, o_data_type, data_type, sm_scale, rope_scale,
        rope_theta, non_blocking, block_tables, seq_lens, fixed_split_size (pages), disable_split_kv, q_len_per_req,
        window_right (0; -1: none).
        """
        batch = self._batch_of(*arguments, **options)
        self._check_batch_size(batch.kv_indptr, self._indptr)
        self._fill_fixed(batch.kv_indptr, batch.kv_indices, batch.last_page_len)
        batch.kv_indices = self._indices if self._use_cuda_graph else _run.index(batch.kv_indices).to(self.device)
        self._planned(batch)

    begin_forward = plan

    @takes(_batch_of)
    def workspace_size(self, *arguments, **options):
        """Returns the bytes of the two workspaces that plan() needs with these arguments: (float, int)."""
        plan = self._batch_of(*arguments, **options).plan
        return plan.workspace_bytes, plan.host.size

    def run(self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None, return_lse=False,
            enable_pdl=None, window_left=None, sinks=None, q_len_per_req=None, skip_softmax_threshold_scale_factor=None,
            kv_cache_sf=None):
        """Attends with q [batch * q_len_per_req, heads, dim] over the pages. Returns a tensor of q's shape; with
        return_lse also [.., heads], base 2."""
        refuse(self._op, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor, kv_cache_sf=kv_cache_sf)
        check_flags(self._op, enable_pdl=enable_pdl)
        if self._batch is not None and q_len_per_req is not None and \
                q_len_per_req * (len(self._batch.qo_indptr) - 1) != int(self._batch.qo_indptr[-1]):
            raise ValueError(f"{self._op}: q_len_per_req is {q_len_per_req}, planned was another")
        return self._attend(q, *caches(paged_kv_cache), out, lse, return_lse,
                            {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale}, sinks=sinks,
                            window_left=window_left)

    run_return_lse = functools.partialmethod(run, return_lse=True)

    def forward(self, q, paged_kv_cache, pos_encoding_mode="NONE", q_scale=None, k_scale=None, v_scale=None, window_left=-1,
                logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None, return_lse=False):
        """Calls run() with options that replace the planned ones."""
        self._set_options(window_left=window_left, **positions(self._op, pos_encoding_mode, logits_soft_cap, rope_scale,
                                                              rope_theta, sm_scale))
        return self.run(q, paged_kv_cache, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse)

    forward_return_lse = functools.partialmethod(forward, return_lse=True)


class CUDAGraphBatchDecodeWithPagedKVCacheWrapper(BatchDecodeWithPagedKVCacheWrapper):
    """A BatchDecodeWithPagedKVCacheWrapper with use_cuda_graph, for batches of one size."""

    def __init__(self, workspace_buffer, indptr_buffer, indices_buffer, last_page_len_buffer, kv_layout="NHD",
                 use_tensor_cores=False):
        super().__init__(workspace_buffer, kv_layout, True, use_tensor_cores, indptr_buffer, indices_buffer,
                         last_page_len_buffer)


def fast_decode_plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size,
                     pos_encoding_mode="NONE", window_left=-1, logits_soft_cap=None, q_data_type=None, kv_data_type=None,
                     data_type=None, sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True, fixed_split_size=None,
                     disable_split_kv=False, q_len_per_req=1, global_override_indptr_cpu=None):
    """Calls a wrapper's plan(); global_override_indptr_cpu is read in place of indptr, without waiting for the
    device."""
    # This calls the class's plan: the caller may have set a wrapper's own plan to this function.
    type(self).plan(
        self, indptr if global_override_indptr_cpu is None else global_override_indptr_cpu, indices, last_page_len,
        num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode, window_left, logits_soft_cap,
        q_data_type or data_type or "float16", kv_data_type, data_type=data_type, sm_scale=sm_scale, rope_scale=rope_scale,
        rope_theta=rope_theta, non_blocking=non_blocking, fixed_split_size=fixed_split_size,
        disable_split_kv=disable_split_kv, q_len_per_req=q_len_per_req)


_PREPARED = "quern has no calls prepared for one GPU; use BatchDecodeWithPagedKVCacheWrapper"
launch_sm110_gqa_decode_prepared = absent("launch_sm110_gqa_decode_prepared", _PREPARED)
prepare_sm110_gqa_decode = absent("prepare_sm110_gqa_decode", _PREPARED)
prepare_balanced_batch_decode_with_kv_cache = absent("prepare_balanced_batch_decode_with_kv_cache", _PREPARED)
