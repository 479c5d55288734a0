# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention over keys that many requests share, and merging of results. Log-sum-exps are base 2."""

import torch

from .. import _fallback_attention
from . import _run
from ._attention import attend, caches, output_dtype, positions
from ._hints import refuse
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper

_BASE_2 = 0


def merge_state(v_a, s_a, v_b, s_b):
    """Merges v [n, heads, dim] and s [n, heads] f32 of two results. Returns (v, s)."""
    if _run.is_disabled():
        return merge_states(torch.stack([v_a, v_b], 1), torch.stack([s_a.float(), s_b.float()], 1))
    v, s = torch.empty_like(v_a), torch.empty_like(s_a, dtype=torch.float32)
    _run.run("merge_state", v, s, v_a, s_a.float(), v_b, s_b.float(), _BASE_2)
    return v, s


def merge_state_in_place(v, s, v_other, s_other, mask=None):
    """Merges the other state into v and s; mask [n] bool: only into rows where it is true."""
    if mask is None and not _run.is_disabled():
        _run.run("merge_state", v, s, v, s, v_other, s_other.float(), _BASE_2)
        return
    merged_v, merged_s = merge_state(v, s, v_other, s_other)
    chosen = torch.ones(len(v), dtype=torch.bool, device=v.device) if mask is None else mask.bool()
    v.copy_(torch.where(chosen[:, None, None], merged_v, v))
    s.copy_(torch.where(chosen[:, None], merged_s, s))


def merge_states(v, s):
    """Merges v [n, states, heads, dim] and s [n, states, heads] f32. Returns (v [n, heads, dim], s [n, heads])."""
    if _run.is_disabled():
        result = _fallback_attention.merge_states(v, s.float())
        _run.log("merge_states", [v], False)
        return result
    merged = torch.empty(v.shape[0], *v.shape[2:], dtype=v.dtype, device=v.device)
    merged_s = torch.empty(v.shape[0], v.shape[2], dtype=torch.float32, device=v.device)
    _run.run("merge_states", merged, merged_s, v, s.float(), _BASE_2)
    return merged, merged_s


# ---- shared keys

def _room(q, v, count, dtype):
    """Makes room for count results of q over keys with values like v, and their lse, as merge_states takes them."""
    shape = len(q), count, q.shape[1]
    return (torch.empty(*shape, v.shape[-1], dtype=dtype, device=q.device),
            torch.empty(shape, dtype=torch.float32, device=q.device))


class MultiLevelCascadeAttentionWrapper:
    """Attention over keys in levels, such as a prefix of all requests, prefixes of some, and each request's own.

    A level is a batch of its own over one cache; a group of queries that share keys is one request of the level. Call
    plan() once a batch, and run() any number of times.
    """

    def __init__(self, num_levels, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf_arr=None,
                 paged_kv_indptr_buf_arr=None, paged_kv_indices_buf_arr=None, paged_kv_last_page_len_buf_arr=None):
        self._op = type(self).__name__
        if num_levels < 1:
            raise ValueError(f"{self._op}: num_levels is {num_levels}; accepted: 1 or above")
        buffers = {"qo_indptr_buf_arr": qo_indptr_buf_arr, "paged_kv_indptr_buf_arr": paged_kv_indptr_buf_arr,
                   "paged_kv_indices_buf_arr": paged_kv_indices_buf_arr,
                   "paged_kv_last_page_len_buf_arr": paged_kv_last_page_len_buf_arr}
        of_levels = self._by_level(num_levels, **buffers) if use_cuda_graph else [()] * num_levels
        self._levels = [BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph, *of_level)
                        for of_level in of_levels]
        self._use_cuda_graph, self._is_planned = use_cuda_graph, False

    def _by_level(self, num_levels, **arrays):
        """Returns what the arrays hold for each level."""
        for name, array in arrays.items():
            if array is None or len(array) != num_levels:
                found = "None" if array is None else f"{len(array)} entries"
                raise ValueError(f"{self._op}: {name} has {found}, needs one for each of {num_levels} levels")
        return list(zip(*arrays.values(), strict=True))

    @property
    def is_cuda_graph_enabled(self):
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffers):
        """Sets another buffer for partial results, which all levels use in turn, and one for each level's schedule."""
        for level, (buffer,) in zip(self._levels, self._by_level(len(self._levels), int_workspace_buffers=int_workspace_buffers),
                                    strict=True):
            level.reset_workspace_buffer(float_workspace_buffer, buffer)

    def _check_levels(self, qo_indptr_arr, pos_encoding_mode, window_left):
        """Checks that several levels have the same queries, and no options that count keys, which would count those of
        each level alone."""
        if len(self._levels) == 1:
            return
        counts = [int(indptr[-1]) for indptr in qo_indptr_arr]
        if len(set(counts)) > 1:
            raise ValueError(f"{self._op}: qo_indptr_arr ends with {counts}, needs the same number of queries in each level")
        for name, found, accepted in (("pos_encoding_mode", pos_encoding_mode, "NONE"), ("window_left", window_left, -1)):
            if found != accepted and not (name == "window_left" and found < 0):
                raise NotImplementedError(f"{self._op}: {name} is {found!r}; accepted of several levels, none of which knows "
                                          f"where its keys lie among the others': {accepted!r}")

    def plan(self, qo_indptr_arr, paged_kv_indptr_arr, paged_kv_indices_arr, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim, page_size, causal=False, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, sm_scale=None,
             window_left=-1, logits_soft_cap=None, rope_scale=None, rope_theta=None, q_data_type="float16", kv_data_type=None):
        """Plans a batch. The first four arguments are lists, an entry a level, each entry as
        BatchPrefillWithPagedKVCacheWrapper.plan takes it. causal acts on the last level: queries see all keys of the
        levels before. Positions and windows work with one level alone."""
        self._is_planned = False  # until all levels are planned
        arrays = self._by_level(len(self._levels), qo_indptr_arr=qo_indptr_arr, paged_kv_indptr_arr=paged_kv_indptr_arr,
                                paged_kv_indices_arr=paged_kv_indices_arr, paged_kv_last_page_len=paged_kv_last_page_len)
        self._check_levels(qo_indptr_arr, pos_encoding_mode, window_left)
        for level, array in zip(self._levels, arrays, strict=True):
            level.plan(*array, num_qo_heads, num_kv_heads, head_dim, page_size, causal=causal and level is self._levels[-1],
                       pos_encoding_mode=pos_encoding_mode, use_fp16_qk_reduction=use_fp16_qk_reduction, sm_scale=sm_scale,
                       window_left=window_left, logits_soft_cap=logits_soft_cap, rope_scale=rope_scale, rope_theta=rope_theta,
                       q_data_type=q_data_type, kv_data_type=kv_data_type)
        self._is_planned = True

    begin_forward = plan

    def prewarm_paged_kv_stride_variant(self, variant="independent"):
        """Does nothing after plan(), as one kernel takes keys and values of any strides."""
        for level in self._levels:
            level.prewarm_paged_kv_stride_variant(variant)

    def run(self, q, paged_kv_cache):
        """Attends with q [queries, heads, dim] over all levels' pages of one cache. Returns a tensor of q's shape."""
        if not self._is_planned:
            raise RuntimeError(f"{self._op}: plan() comes before run()")
        if len(self._levels) == 1:
            return self._levels[0].run(q, paged_kv_cache)
        states, lses = _room(q, caches(paged_kv_cache)[1], len(self._levels), output_dtype(q))
        for i, level in enumerate(self._levels):
            level.run(q, paged_kv_cache, out=states[:, i], lse=lses[:, i], return_lse=True)
        return merge_states(states, lses)[0]

    forward = run


class _SharedPrefix:
    """What the two wrappers below have in common: keys of all requests in two tensors, and each request's own keys in
    pages."""

    def __init__(self, wrapper):
        self._op, self._wrapper = type(self).__name__, wrapper

    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer):
        """Sets another buffer for partial results, which both parts use in turn, and one for the schedule."""
        self._wrapper.reset_workspace_buffer(float_workspace_buffer, int_workspace_buffer)

    def _merged(self, q, k_shared, v_shared, unique_kv_cache, sm_scale):
        states, lses = _room(q, v_shared, 2, output_dtype(q))
        self._wrapper.run(q, unique_kv_cache, out=states[:, 1], lse=lses[:, 1], return_lse=True)
        if self._wrapper.has_heads_first:
            k_shared, v_shared = k_shared.transpose(0, 1), v_shared.transpose(0, 1)
        attend(self._op, q, k_shared, v_shared, out=states[:, 0], lse=lses[:, 0], return_lse=True, is_causal=False,
               window_left=-1, workspace=self._wrapper.workspace, renamed={"k": "k_shared", "v": "v_shared"},
               **positions(self._op, "NONE", None, None, None, sm_scale))
        return merge_states(states, lses)[0]


class BatchDecodeWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """One query a request. Call begin_forward() once a batch, and forward() any number of times."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        super().__init__(BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout))

    def begin_forward(self, unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim,
                      page_size, data_type="float16"):
        """Takes each request's own keys: unique_kv_indptr [batch + 1] pages, unique_kv_indices [pages in use],
        unique_kv_last_page_len [batch]."""
        self._wrapper.plan(unique_kv_indptr, unique_kv_indices, unique_kv_last_page_len, num_qo_heads, num_kv_heads, head_dim,
                           page_size, q_data_type=data_type)

    def forward(self, q, k_shared, v_shared, unique_kv_cache):
        """Attends with q [batch, heads, dim] over k_shared and v_shared [keys, kv heads, dim] ("HND": [kv heads, keys,
        dim]) and the pages."""
        return self._merged(q, k_shared, v_shared, unique_kv_cache, None)


class BatchPrefillWithSharedPrefixPagedKVCacheWrapper(_SharedPrefix):
    """Many queries a request. Call begin_forward() once a batch, and forward() any number of times."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        super().__init__(BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout))

    def begin_forward(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
                      head_dim, page_size):
        """Takes qo_indptr [batch + 1] queries; the other three arguments are each request's own keys."""
        self._wrapper.plan(qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
                           head_dim, page_size, q_data_type=None)

    def prewarm_paged_kv_stride_variant(self, variant="independent"):
        """Does nothing after begin_forward(), as one kernel takes keys and values of any strides."""
        self._wrapper.prewarm_paged_kv_stride_variant(variant)

    def forward(self, q, k_shared, v_shared, unique_kv_cache, causal=False, use_fp16_qk_reduction=False, sm_scale=None,
                rope_scale=None, rope_theta=None):
        """Attends with q [queries, heads, dim] over k_shared and v_shared [keys, kv heads, dim] ("HND": [kv heads,
        keys, dim]), which each query sees whole, and over the pages, on which causal acts."""
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction, rope_scale=rope_scale, rope_theta=rope_theta)
        self._wrapper._set_options(is_causal=causal, sm_scale=sm_scale)
        return self._merged(q, k_shared, v_shared, unique_kv_cache, sm_scale)
