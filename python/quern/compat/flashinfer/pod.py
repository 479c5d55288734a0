# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention of prompts and of decoding requests in one call. quern computes one after the other; each fills a GPU."""

from ..._public import found
from ._hints import check_flags, refuse
from .decode import BatchDecodeWithPagedKVCacheWrapper
from .prefill import BatchPrefillWithPagedKVCacheWrapper, single_prefill_with_kv_cache


class PODWithPagedKVCacheWrapper:
    """One prompt with keys of its own, and a batch of one query a request over pages. Call plan() once a batch, for the latter."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, paged_kv_indptr_buffer=None,
                 paged_kv_indices_buffer=None, paged_kv_last_page_len_buffer=None, jit_args=None):
        self._op, self._layout = type(self).__name__, kv_layout
        self._wrapper = BatchDecodeWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout, use_cuda_graph, True, paged_kv_indptr_buffer,
                                                           paged_kv_indices_buffer, paged_kv_last_page_len_buffer, jit_args=jit_args)

    @property
    def is_cuda_graph_enabled(self):
        return self._wrapper.is_cuda_graph_enabled

    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer):
        """Sets another buffer for partial results, and one for the schedule."""
        self._wrapper.reset_workspace_buffer(float_workspace_buffer, int_workspace_buffer)

    def plan(self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE",
             window_left=-1, q_data_type="float16", kv_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None,
             non_blocking=True):
        """Plans the batch, as BatchDecodeWithPagedKVCacheWrapper.plan does."""
        self._planned = {"pos_encoding_mode_d": pos_encoding_mode, "window_left_d": window_left, "sm_scale_d": sm_scale,
                         "rope_scale_d": rope_scale, "rope_theta_d": rope_theta, "kv_layout_d": self._layout}
        self._wrapper.plan(indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode,
                           window_left, None, q_data_type, kv_data_type, None, data_type, sm_scale, rope_scale, rope_theta, non_blocking)

    begin_forward = plan

    def _check_repeated(self, **given):
        """Raises for an argument that is neither its default nor what plan() or the constructor said."""
        defaults = {"pos_encoding_mode_d": "NONE", "window_left_d": -1, "kv_layout_d": "NHD"}
        for name, value in given.items():
            if value not in (defaults.get(name), self._planned[name]):
                raise ValueError(f"{self._op}: {name} is {found(value)}; planned was {self._planned[name]!r}")

    def run(self, q_p, k_p, v_p, q_d, paged_kv_cache_d, custom_mask_p=None, packed_custom_mask_p=None, causal_p=False, kv_layout_p="NHD",
            pos_encoding_mode_p="NONE", sm_scale_p=None, window_left_p=-1, rope_scale_p=None, rope_theta_p=None, return_lse_p=False,
            custom_mask_d=None, packed_custom_mask_d=None, causal_d=False, kv_layout_d="NHD", pos_encoding_mode_d="NONE",
            sm_scale_d=None, window_left_d=-1, rope_scale_d=None, rope_theta_d=None, q_scale=None, k_scale=None, v_scale=None,
            return_lse_d=False, use_fp16_qk_reduction=False, enable_pdl=None):
        """Returns (what single_prefill_with_kv_cache gives for the arguments in _p, what the planned batch gives for q_d and its pages).

        q_scale, k_scale and v_scale are of the batch. What plan() said of the batch may be repeated here; causal_d changes nothing, as
        a request's one query sees all its keys."""
        refuse(self._op, return_lse_p=return_lse_p, return_lse_d=return_lse_d, custom_mask_d=custom_mask_d,
               packed_custom_mask_d=packed_custom_mask_d, use_fp16_qk_reduction=use_fp16_qk_reduction)
        check_flags(self._op, enable_pdl=enable_pdl, causal_d=causal_d)
        if not hasattr(self, "_planned"):
            raise RuntimeError(f"{self._op}: plan() comes before run()")
        self._check_repeated(kv_layout_d=kv_layout_d, pos_encoding_mode_d=pos_encoding_mode_d, sm_scale_d=sm_scale_d,
                             window_left_d=window_left_d, rope_scale_d=rope_scale_d, rope_theta_d=rope_theta_d)
        out_p = single_prefill_with_kv_cache(
            q_p, k_p, v_p, custom_mask=custom_mask_p, packed_custom_mask=packed_custom_mask_p, causal=causal_p, kv_layout=kv_layout_p,
            pos_encoding_mode=pos_encoding_mode_p, sm_scale=sm_scale_p, window_left=window_left_p, rope_scale=rope_scale_p,
            rope_theta=rope_theta_p)
        return out_p, self._wrapper.run(q_d, paged_kv_cache_d, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)


class BatchPODWithPagedKVCacheWrapper:
    """A batch of prompts and a batch of decoding requests, both over pages. Call plan() once for both."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD"):
        self._op = type(self).__name__
        self._levels = [BatchPrefillWithPagedKVCacheWrapper(float_workspace_buffer, kv_layout) for _ in range(2)]

    @property
    def is_cuda_graph_enabled(self):
        return False

    def plan(self, qo_indptr_p, kv_indptr_p, kv_indices_p, last_page_len_p, qo_indptr_d, kv_indptr_d, kv_indices_d, last_page_len_d,
             num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode="NONE", window_left=-1, q_data_type="float16",
             kv_data_type=None, data_type=None, sm_scale=None, rope_scale=None, rope_theta=None, non_blocking=True):
        """Plans both batches, as BatchPrefillWithPagedKVCacheWrapper.plan does. data_type is q_data_type's and kv_data_type's if those
        are None."""
        kinds = {"q_data_type": q_data_type or data_type, "kv_data_type": kv_data_type or data_type}
        for level, arrays in zip(self._levels, ((qo_indptr_p, kv_indptr_p, kv_indices_p, last_page_len_p),
                                                (qo_indptr_d, kv_indptr_d, kv_indices_d, last_page_len_d)), strict=True):
            level.plan(*arrays, num_qo_heads, num_kv_heads, head_dim, page_size, pos_encoding_mode=pos_encoding_mode,
                       window_left=window_left, sm_scale=sm_scale, rope_scale=rope_scale, rope_theta=rope_theta,
                       non_blocking=non_blocking, **kinds)

    begin_forward = plan

    def run(self, q_p, paged_kv_cache_p, q_d, paged_kv_cache_d, custom_mask_p=None, packed_custom_mask_p=None, causal_p=False,
            q_scale=None, k_scale=None, v_scale=None, return_lse=False, use_fp16_qk_reduction=False, enable_pdl=None):
        """Returns (out_p, out_d), with return_lse ((out_p, out_d), (lse_p, lse_d)). Masks and causal_p are of the prompts, scales of
        the decoding requests, whose queries see all their keys."""
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction)
        check_flags(self._op, enable_pdl=enable_pdl, return_lse=return_lse)
        prompts, decodes = self._levels
        prompts._set_options(is_causal=causal_p)
        prompts._set_mask(custom_mask_p, packed_custom_mask_p)
        results = (prompts.run(q_p, paged_kv_cache_p, return_lse=return_lse),
                   decodes.run(q_d, paged_kv_cache_d, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale, return_lse=return_lse))
        return tuple(zip(*results, strict=True)) if return_lse else results
