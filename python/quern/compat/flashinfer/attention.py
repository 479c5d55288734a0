# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention over pages for batches whose requests have one query or many, and with sinks."""

import functools
import inspect

import torch

from . import _run
from ._attention import Wrapper, caches, dtype_of, make_batch, positions
from ._hints import check_flags, refuse
from ._tables import used_pages
from .prefill import BatchPrefillWithPagedKVCacheWrapper


class BatchAttention(Wrapper):
    """One call for requests of one query and of many. Call plan() once a batch, and run() any number of times. A graph
    that captured run() takes later plans whose kv_indices lie where the captured plan's lay. The workspaces are the
    wrapper's own, as large as FlashInfer's."""

    _names = {"kv_last_page_len": "kv_len_arr"}

    def __init__(self, kv_layout="NHD", device="cuda"):
        self.float_workspace_buffer = torch.empty(384 << 20, dtype=torch.uint8, device=device)
        self.int_workspace_buffer = torch.empty(8 << 20, dtype=torch.uint8, device=device)
        schedule, chosen = self.int_workspace_buffer.chunk(2)
        super().__init__(type(self).__name__, self.float_workspace_buffer, kv_layout, False, None)
        self.reset_workspace_buffer(self.float_workspace_buffer, schedule)
        self._chosen = chosen.view(torch.int32)  # the pages in use, if more were given

    def plan(self, qo_indptr, kv_indptr, kv_indices, kv_len_arr, num_qo_heads, num_kv_heads, head_dim_qk, head_dim_vo, page_size,
             causal=False, sm_scale=None, logits_soft_cap=None, q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16,
             use_profiler=False):
        """Takes qo_indptr [batch + 1] queries, kv_indptr [batch + 1] pages, kv_indices [pages], and kv_len_arr [batch]
        keys, which may leave a request's last pages unused."""
        refuse(self._op, use_profiler=use_profiler)
        indptr, indices, last = used_pages(self._op, kv_indptr, kv_indices, kv_len_arr, page_size)
        options = {"is_causal": causal, "window_left": -1,
                   **positions(self._op, "NONE", logits_soft_cap, None, None, sm_scale)}
        dtypes = dtype_of(self._op, "q_data_type", q_data_type), dtype_of(self._op, "kv_data_type", kv_data_type), None
        batch = make_batch(self._op, qo_indptr, indptr, last, indices, (num_qo_heads, num_kv_heads), (head_dim_qk, head_dim_vo),
                           page_size, (None, False), dtypes, options, True, renamed=self._names)
        batch.kv_indices = _run.index(indices).to(self.device) if indices is kv_indices else self._keep(indices)
        self._planned(batch)

    def _keep(self, indices):
        if indices.numel() > self._chosen.numel():
            raise ValueError(f"{self._op}: {indices.numel()} pages are in use; where others were given as well, accepted: "
                             f"{self._chosen.numel()}")
        return self._chosen[:indices.numel()].copy_(indices)

    def run(self, q, kv_cache, out=None, lse=None, k_scale=None, v_scale=None, logits_soft_cap=0.0, profiler_buffer=None,
            kv_cache_sf=None):
        """Attends with q [queries, heads, dim_qk] over the pages. Returns (out [queries, heads, dim_vo], lse [queries,
        heads], base 2). logits_soft_cap 0: as planned; another number only if a cap was planned."""
        refuse(self._op, profiler_buffer=profiler_buffer, kv_cache_sf=kv_cache_sf)
        if logits_soft_cap and not self._planned_batch().options["logits_soft_cap"]:
            raise ValueError(f"{self._op}: logits_soft_cap is {logits_soft_cap}, but none was planned; accepted: 0")
        return self._attend(q, *caches(kv_cache), out, lse, True, {"q_scale": None, "k_scale": k_scale, "v_scale": v_scale},
                            logits_soft_cap=logits_soft_cap or None)


# Arguments of the constructor below that say what kernels FlashInfer would build.
_UNSAID = {"pos_encoding_mode": "NONE", "use_fp16_qk_reduction": False, "q_data_type": torch.bfloat16,
           "kv_data_type": torch.bfloat16, "head_dim_qk": 128, "head_dim_vo": 128, "window_left": -1}


class BatchAttentionWithAttentionSinkWrapper(BatchPrefillWithPagedKVCacheWrapper):
    """Attention with a sink for each head, which run() takes. The constructor's dtypes, head sizes, positions and
    window hold where plan() does not give them. plan() may give no other values, save for the window, where plan()'s
    counts."""

    def __init__(self, float_workspace_buffer, kv_layout="NHD", use_cuda_graph=False, qo_indptr_buf=None,
                 paged_kv_indptr_buf=None, paged_kv_indices_buf=None, paged_kv_last_page_len_buf=None, custom_mask_buf=None,
                 mask_indptr_buf=None, backend="auto", pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                 q_data_type=torch.bfloat16, kv_data_type=torch.bfloat16, head_dim_qk=128, head_dim_vo=128, window_left=-1):
        super().__init__(float_workspace_buffer, kv_layout, use_cuda_graph, qo_indptr_buf, paged_kv_indptr_buf,
                         paged_kv_indices_buf, paged_kv_last_page_len_buf, custom_mask_buf, mask_indptr_buf, backend)
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction)
        told = {"pos_encoding_mode": pos_encoding_mode, "q_data_type": dtype_of(self._op, "q_data_type", q_data_type),
                "kv_data_type": dtype_of(self._op, "kv_data_type", kv_data_type), "head_dim_qk": head_dim_qk,
                "head_dim_vo": head_dim_vo, "window_left": window_left}
        self._said = {name: value for name, value in told.items() if value != _UNSAID[name]}
        self._q_data_type = q_data_type

    def _batch_of(self, *arguments, **options):
        call = inspect.signature(super()._batch_of).bind(*arguments, **options)
        for name, said in self._said.items():
            planned = call.arguments.setdefault(name, said)
            planned = dtype_of(self._op, name, planned) if name.endswith("_type") else planned
            if name != "window_left" and planned not in (None, said):
                raise ValueError(f"{self._op}: {name} is {planned} in plan(), the constructor said {said}")
            if planned is None:
                call.arguments[name] = said
        call.arguments.setdefault("q_data_type", self._q_data_type)
        return super()._batch_of(*call.args, **call.kwargs)

    def run(self, q, paged_kv_cache, sink=None, sm_scale=None, *, q_scale=None, k_scale=None, v_scale=None, out=None, lse=None,
            return_lse=False, lse_base="log2", lse_layout="NH", enable_pdl=None, window_left=None, sinks=None, kv_cache_sf=None,
            skip_softmax_threshold_scale_factor=None, use_fp16_softmax=None, uses_spcompress=None):
        """Runs as without sinks, but e^sink joins each query's denominator; sink, or sinks, [heads] f32. sm_scale None:
        as planned."""
        refuse(self._op, kv_cache_sf=kv_cache_sf, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
               use_fp16_softmax=use_fp16_softmax, uses_spcompress=uses_spcompress)
        check_flags(self._op, enable_pdl=enable_pdl)
        if (sink is None) == (sinks is None):
            raise ValueError(f"{self._op}: found {'neither' if sink is None else 'both'} of sink and sinks; accepted: one of them")
        return self._attend_with(lse_base, lse_layout, q, *caches(paged_kv_cache), out, lse, return_lse,
                                 {"q_scale": q_scale, "k_scale": k_scale, "v_scale": v_scale},
                                 sinks=sink if sinks is None else sinks, window_left=window_left, sm_scale=sm_scale)

    run_return_lse = functools.partialmethod(run, return_lse=True)
