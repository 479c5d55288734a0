# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's multi-head latent attention over pages of compressed keys, with the up-projections absorbed into the queries."""

import dataclasses
import functools

import torch

from ... import _mla
from ..._public import flag, found
from .. import _fallback_attention
from . import _run
from ._attention import Wrapper, dtype_of, make_batch, output_dtype
from ._hints import check_flags, refuse
from ._tables import pages_of_table, used_pages

_CSR = "qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr"
_DENSE = "cum_seq_lens_q", "block_tables", "seq_lens"
_LSE_BASES = {"none": None, "base2": 2, "basee": "e"}
_LAYOUTS = None, "packed", "split"
_NAMES = {"ckv": "ckv_cache", "kpe": "kpe_cache", "kv_scales": "ckv_scale", "workspace": "float_workspace_buffer",
          "is_causal": "causal"}


@dataclasses.dataclass(frozen=True)
class MLAPlanMetadata:
    """A batch of requests: as offsets into lists of pages, as tables of pages, or both, which then agree."""

    qo_indptr: torch.Tensor | None = None
    kv_indptr: torch.Tensor | None = None
    kv_indices: torch.Tensor | None = None
    kv_len_arr: torch.Tensor | None = None
    cum_seq_lens_q: torch.Tensor | None = None
    block_tables: torch.Tensor | None = None
    seq_lens: torch.Tensor | None = None
    max_q_len: int | None = None

    @classmethod
    def csr(cls, qo_indptr, kv_indptr, kv_indices, kv_len_arr):
        """Describes requests by qo_indptr [batch + 1] queries, kv_indptr [batch + 1] pages, kv_indices [pages], kv_len_arr [batch]
        keys."""
        return cls(qo_indptr, kv_indptr, kv_indices, kv_len_arr)

    @classmethod
    def dense(cls, cum_seq_lens_q, block_tables, seq_lens, max_q_len=None):
        """Describes requests by cum_seq_lens_q [batch + 1] queries, block_tables [batch, pages] and seq_lens [batch] keys."""
        return cls(cum_seq_lens_q=cum_seq_lens_q, block_tables=block_tables, seq_lens=seq_lens, max_q_len=max_q_len)

    @classmethod
    def dual(cls, qo_indptr, kv_indptr, kv_indices, kv_len_arr, *, cum_seq_lens_q, block_tables, seq_lens, max_q_len=None):
        """Describes the same requests both ways."""
        return cls(qo_indptr, kv_indptr, kv_indices, kv_len_arr, cum_seq_lens_q, block_tables, seq_lens, max_q_len)


def _complete(op, metadata, names):
    """Returns whether all of these are given; some without the others are an error."""
    given = [name for name in names if getattr(metadata, name) is not None]
    if given and len(given) < len(names):
        missing = next(name for name in names if name not in given)
        raise ValueError(f"{op}: {missing} is None; needed beside {given[0]}")
    return bool(given)


def _requests(op, metadata, page_size):
    """Returns (queries' offsets, offsets of pages, pages, keys of the last pages)."""
    csr, dense = _complete(op, metadata, _CSR), _complete(op, metadata, _DENSE)
    if not csr and not dense:
        raise TypeError(f"{op}: metadata has neither {', '.join(_CSR)} nor {', '.join(_DENSE)}")
    if csr:
        kv_indptr = metadata.kv_indptr[:len(metadata.kv_len_arr) + 1]  # FlashInfer's own tests give more, which say nothing
        by_lists = metadata.qo_indptr, *used_pages(op, kv_indptr, metadata.kv_indices, metadata.kv_len_arr, page_size)
    if dense:
        by_tables = metadata.cum_seq_lens_q, *pages_of_table(op, metadata.block_tables, metadata.seq_lens, page_size)
    if csr and dense and not all(torch.equal(a.cpu().long(), b.cpu().long()) for a, b in zip(by_lists, by_tables, strict=True)):
        raise ValueError(f"{op}: block_tables and seq_lens say other requests than kv_indices and kv_len_arr")
    return by_lists if csr else by_tables


def _two(op, value, name, old, dim):
    """Returns the two parts of queries or of a cache, given as one tensor, as two, or by their old names."""
    if (value is None) == (old[1] is None and old[0] is None):
        raise ValueError(f"{op}: {name} and its two parts are {'both given' if value is not None else 'missing'}; accepted: one of them")
    if isinstance(value, torch.Tensor):
        return value[..., :dim], value[..., dim:]
    first, second = old if value is None else value
    if first is None or second is None:
        raise ValueError(f"{op}: one part of {name} is None; accepted: both")
    return first, second


class BatchMLAPagedAttentionWrapper(Wrapper):
    """Call plan() once a batch, and run() any number of times. backend ("auto", "fa2", "fa3") and enable_pdl change nothing."""

    _names = {"kv_last_page_len": "kv_len_arr", "num_qo_heads": "num_heads", "head_dim_vo": "head_dim_ckv"}

    def __init__(self, float_workspace_buffer, use_cuda_graph=False, qo_indptr=None, kv_indptr=None, kv_indices=None, kv_len_arr=None,
                 backend="auto"):
        super().__init__(type(self).__name__, float_workspace_buffer, "NHD", use_cuda_graph, None, backend)
        self._indptr, self._indices = qo_indptr, kv_indices
        self._keep_fixed(qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_indices=kv_indices, kv_len_arr=kv_len_arr)

    def plan(self, qo_indptr=None, kv_indptr=None, kv_indices=None, kv_len_arr=None, num_heads=None, head_dim_ckv=None,
             head_dim_kpe=None, page_size=None, causal=None, sm_scale=None, q_data_type=None, kv_data_type=None, use_profiler=False, *,
             metadata=None, cum_seq_lens_q=None, block_tables=None, seq_lens=None, max_q_len=None, query_layout=None,
             kv_cache_layout=None, lse_mode="none", output_dtype=None, output_scale="none", scale_mode="default", skip_softmax=False,
             enable_pdl=None, use_sinks=False):
        """Takes metadata, or the arguments of MLAPlanMetadata.csr or dense, all else by name: heads, sizes, causal, sm_scale, dtypes.
        query_layout and kv_cache_layout ("packed", "split") are what run() will get, lse_mode ("base2", "basee") the lse that it will
        be asked for; without metadata run() alone says so."""
        flat = MLAPlanMetadata(qo_indptr, kv_indptr, kv_indices, kv_len_arr, cum_seq_lens_q, block_tables, seq_lens, max_q_len)
        self._check_plan(metadata, flat, query_layout, kv_cache_layout, lse_mode)
        refuse(self._op, use_profiler=use_profiler, skip_softmax=skip_softmax, use_sinks=use_sinks,
               output_scale=None if output_scale == "none" else output_scale,
               scale_mode=None if scale_mode in ("default", "kv-per-tensor") else scale_mode)
        check_flags(self._op, enable_pdl=enable_pdl)
        for name, value in (("num_heads", num_heads), ("head_dim_ckv", head_dim_ckv), ("head_dim_kpe", head_dim_kpe),
                            ("page_size", page_size), ("causal", causal), ("sm_scale", sm_scale), ("q_data_type", q_data_type),
                            ("kv_data_type", kv_data_type)):
            if value is None:
                raise TypeError(f"{self._op}: {name} is None; needed")
        given = flat if metadata is None else metadata
        offsets, *pages = _requests(self._op, given, page_size)
        kinds = [dtype_of(self._op, name, value) for name, value in (("q_data_type", q_data_type), ("kv_data_type", kv_data_type),
                                                                     ("output_dtype", output_dtype))]
        batch = make_batch(self._op, offsets, pages[0], pages[2], pages[1], (num_heads, 1), (head_dim_ckv, head_dim_ckv), page_size,
                           (None, False), kinds, {"is_causal": flag(self._op, "causal", causal), "sm_scale": sm_scale},
                           self._use_cuda_graph, renamed=self._names)
        longest = int((batch.qo_indptr[1:] - batch.qo_indptr[:-1]).amax()) if len(batch.qo_indptr) > 1 else 0
        if given.max_q_len is not None and given.max_q_len < longest:
            raise ValueError(f"{self._op}: max_q_len is {given.max_q_len}, the longest request has {longest}")
        self._told = {"query": query_layout, "kv_cache": kv_cache_layout}
        self._lse_base, self._is_strict, self._dim_kpe = _LSE_BASES[lse_mode], metadata is not None, head_dim_kpe
        self._keep_batch(batch)

    def _check_plan(self, metadata, flat, query_layout, kv_cache_layout, lse_mode):
        if metadata is not None and not isinstance(metadata, MLAPlanMetadata):
            raise TypeError(f"{self._op}: metadata is {found(metadata)}; accepted: MLAPlanMetadata, None")
        if metadata is not None and flat != MLAPlanMetadata():
            raise ValueError(f"{self._op}: metadata is given beside arrays; accepted: one of them")
        for name, value, accepted in (("query_layout", query_layout, _LAYOUTS), ("kv_cache_layout", kv_cache_layout, _LAYOUTS),
                                      ("lse_mode", lse_mode, tuple(_LSE_BASES))):
            if value not in accepted:
                raise ValueError(f"{self._op}: {name} is {found(value)}; accepted: {', '.join(map(repr, accepted))}")

    def _keep_batch(self, batch):
        if self._use_cuda_graph:
            self._check_batch_size(batch.qo_indptr, self._indptr)
            lens = (batch.kv_indptr[1:] - batch.kv_indptr[:-1] - 1).clamp(min=0) * batch.page_size + batch.last_page_len
            self._fill_fixed(batch.qo_indptr, batch.kv_indptr, batch.kv_indices, lens)
        batch.kv_indices = self._indices if self._use_cuda_graph else _run.index(batch.kv_indices).to(self.device)
        self._planned(batch)

    def run(self, q_nope=None, q_pe=None, ckv_cache=None, kpe_cache=None, out=None, lse=None, return_lse=False, profiler_buffer=None,
            kv_len=None, page_table=None, return_lse_base_on_e=False, o_scale=None, *, query=None, kv_cache=None, ckv_scale=None,
            ckv_scale_arr=None, kpe_scale=None, sinks=None, skip_softmax_threshold_scale_factor=None, bmm1_scale=None, bmm2_scale=None):
        """Attends with query [tokens, heads, dim_ckv + dim_kpe], or the pair (q_nope, q_pe), over kv_cache [pages, page_size,
        dim_ckv + dim_kpe], or the pair (ckv_cache, kpe_cache). Returns [tokens, heads, dim_ckv]; with return_lse also [tokens, heads],
        base 2, or e with return_lse_base_on_e. ckv_scale and kpe_scale are one number, of FP8 caches."""
        refuse(self._op, profiler_buffer=profiler_buffer, kv_len=kv_len, page_table=page_table, o_scale=o_scale,
               ckv_scale_arr=ckv_scale_arr, sinks=sinks, skip_softmax_threshold_scale_factor=skip_softmax_threshold_scale_factor,
               bmm1_scale=bmm1_scale, bmm2_scale=bmm2_scale)
        dim = self._planned_batch().head_dim_qk
        self._check_layouts(query=query, kv_cache=kv_cache)
        q = _two(self._op, query, "query", (q_nope, q_pe), dim)
        caches = _two(self._op, kv_cache, "kv_cache", (ckv_cache, kpe_cache), dim)
        batch = self._check_planned(q[0], caches[0])
        base = "e" if flag(self._op, "return_lse_base_on_e", return_lse_base_on_e) else 2
        if self._is_strict and return_lse and base != self._lse_base:
            raise ValueError(f"{self._op}: lse_mode was planned for {self._lse_base}, run() is asked for base {base}")
        for name, x in (("q_pe", q[1]), ("kpe_cache", caches[1])):
            if x.shape[-1] != self._dim_kpe:
                raise ValueError(f"{self._op}: {name} has {x.shape[-1]} elements, planned were {self._dim_kpe}")
        scale = self._cache_scale(ckv_scale, kpe_scale, caches[0])
        return self._compute(batch, q, caches, out, lse, flag(self._op, "return_lse", return_lse),
                             {**batch.options, "kv_scale": scale, "lse_base": base})

    def _check_layouts(self, **given):
        for name, value in given.items():
            planned, found_layout = self._told[name], "packed" if isinstance(value, torch.Tensor) else "split"
            if planned not in (None, found_layout):
                raise ValueError(f"{self._op}: {name} is {found_layout}, planned was {planned!r}")

    def _cache_scale(self, ckv_scale, kpe_scale, cache):
        text = f"{self._op}: kpe_scale is {found(kpe_scale)}, ckv_scale {found(ckv_scale)}; accepted: one number for both"
        if (ckv_scale is None) != (kpe_scale is None):
            raise ValueError(text)
        if ckv_scale is not None and float(ckv_scale) != float(kpe_scale):
            raise NotImplementedError(text)
        if ckv_scale is not None and cache.dtype.itemsize > 1:
            raise ValueError(f"{self._op}: ckv_scale is {found(ckv_scale)}; accepted with a cache of {cache.dtype}: None")
        return 1.0 if ckv_scale is None else float(ckv_scale)

    def _compute(self, batch, q, caches, out, lse, return_lse, options):
        kind = batch.dtypes[2] or output_dtype(q[0])
        out = torch.empty(q[0].shape, dtype=kind, device=q[0].device) if out is None else out
        if out.dtype != kind:
            raise ValueError(f"{self._op}: out has dtype {out.dtype}, needs {kind}")
        if return_lse and lse is None:
            lse = torch.empty(q[0].shape[:-1], dtype=torch.float32, device=q[0].device)
        _run.refuse_gradients(self._op, ("query", "q_pe", "kv_cache", "kpe_cache"), (*q, *caches))
        by_pytorch = functools.partial(_by_pytorch, **options) if not self._use_cuda_graph or _run.is_disabled() else None
        try:
            is_ours = _run.compute(functools.partial(_by_quern, self._workspace, options), by_pytorch, self._op,
                                   (out, lse, *q, *caches, batch))
        except Exception as error:
            raise _run.in_words_of(error, self._op, "mla_decode", {**_NAMES, **self._names}) from None
        _run.log(self._op, [q[0]], is_ours)
        return (out, lse) if return_lse else out


def _by_quern(workspace, options, out, lse, q_nope, q_pe, ckv, kpe, batch):
    _mla.mla_decode(q_nope, q_pe, ckv, kpe, plan=batch.plan, kv_indices=batch.kv_indices, out=out, lse=lse, workspace=workspace,
                    **options)


def _by_pytorch(out, lse, q_nope, q_pe, ckv, kpe, batch, sm_scale, is_causal, kv_scale, lse_base):
    k = torch.cat([ckv.float(), kpe.float()], -1)[:, :, None]
    _fallback_attention.attention(out, lse, torch.cat([q_nope.float(), q_pe.float()], -1), k, ckv[:, :, None], batch, sm_scale=sm_scale,
                                  is_causal=is_causal, k_scale=kv_scale, v_scale=kv_scale, lse_base=lse_base, pos_encoding="none",
                                  window_left=-1, logits_soft_cap=0.0)
