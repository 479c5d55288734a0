# SPDX-License-Identifier: Apache-2.0
"""What FlashInfer's attention functions and wrappers share: a batch and its plan, scales, masks, the call itself."""

import dataclasses
import functools
import inspect
import math
import numbers
import types

import torch

from ..._attention import attention, attention_plan
from ..._public import flag, found
from ...torch._tensors import refuse_gradients
from .. import _fallback_attention
from . import _run
from ._hints import check_backend, refuse
from .page import is_hnd
from .quantization import packbits, segment_packbits

_POS_ENCODINGS = {"NONE": "none", "ROPE_LLAMA": "rope_llama", "ALIBI": "alibi"}


def dtype_of(op, name, dtype):
    """Returns the torch.dtype of a dtype or a name; None stays None."""
    known = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(known, (torch.dtype, types.NoneType)) or (known is None and dtype is not None):
        raise TypeError(f"{op}: {name} is {found(dtype)}; accepted: a torch.dtype, or the name of one")
    return known


def positions(op, mode, logits_soft_cap, rope_scale, rope_theta, sm_scale):
    """Returns quern's options for what plan() and single calls are told about scores."""
    if mode not in _POS_ENCODINGS:
        raise _run.UnknownWord(f"{op}: pos_encoding_mode is {mode!r}; accepted: {', '.join(map(repr, _POS_ENCODINGS))}")
    return {"pos_encoding": _POS_ENCODINGS[mode], "logits_soft_cap": logits_soft_cap or 0.0,
            "rope_scale": 1.0 if rope_scale is None else rope_scale, "rope_theta": 1e4 if rope_theta is None else rope_theta,
            "sm_scale": sm_scale}


def scales(op, name, heads, **values):
    """Returns {name: number, name + "s": f32 [heads]} for quern. Each value is None, a number, a tensor of one or of
    one for each head; its keyword is the caller's name for it."""
    number, vector = 1.0, None
    for said, value in values.items():
        if isinstance(value, torch.Tensor):
            value = value.reshape(-1).float()
            if value.numel() not in (1, heads):
                raise ValueError(f"{op}: {said} has {value.numel()} entries, needs 1 or {heads}")
            _run.check_scales(op, said, value, True)
            vector = value.expand(heads) if vector is None else vector * value
        elif value is not None:
            if not isinstance(value, numbers.Real):
                raise TypeError(f"{op}: {said} is {found(value)}; accepted: a number, a tensor")
            if value == 0 or not math.isfinite(value):
                raise ValueError(f"{op}: {said} is {value}; accepted: any other finite number")
            number *= value
    return {name: number, name + "s": None if vector is None else vector.contiguous()}


def caches(paged_kv_cache):
    """Returns (k, v) of a tuple of two, or of one tensor with a dimension of 2 after the first."""
    return paged_kv_cache if isinstance(paged_kv_cache, (tuple, list)) else paged_kv_cache.unbind(1)


@dataclasses.dataclass
class Batch:
    """A planned batch: index arrays on the host, the plan, and what every run uses."""

    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor  # tokens, or pages
    last_page_len: torch.Tensor | None
    page_size: int  # 0: ragged
    plan: object
    kv_indices: torch.Tensor | None
    head_dim_qk: int
    dtypes: tuple  # of q, of k and v, of the output; None: any
    options: dict
    is_for_graph: bool
    custom_mask: torch.Tensor | None = None
    replan: object = None  # keys of a chunk -> such a plan; None: the caller said how requests are split

    def fit(self, room):
        """Takes longer chunks, of which there are fewer, where the partial results would need more than `room` bytes."""
        for chunk in (1024, 2048, 4096, 8192, 16384, 32768, -1) if self.replan else ():
            if self.plan.workspace_bytes <= room:
                return
            self.plan = self.replan(chunk)


def on_host(indptr):
    return _run.index(indptr.detach().cpu())


def make_batch(op, qo_indptr, kv_indptr, last_page_len, kv_indices, heads, head_dims, page_size, split, dtypes, options,
               is_for_graph=False, renamed=None):
    """Plans the batch. heads: of q, of k; head_dims: of q and k, of v; split: (fixed_split_size, disable_split_kv), the
    size in pages. renamed: quern's names of arguments -> op's."""
    qo_indptr, kv_indptr = on_host(qo_indptr), on_host(kv_indptr)
    last_page_len = None if last_page_len is None else on_host(last_page_len)
    size, is_whole = split[0], flag(op, "disable_split_kv", split[1])
    if size is not None and size > 0 and is_whole:
        raise ValueError(f"{op}: fixed_split_size and disable_split_kv are both given; accepted: one of them")
    chunk = -1 if is_whole else size * max(page_size, 1) if size is not None and size > 0 else 0

    def of(chunk):
        return attention_plan(*heads, head_dims[1], qo_indptr=qo_indptr, kv_indptr=kv_indptr, kv_last_page_len=last_page_len,
                              page_size=page_size, kv_chunk=chunk, is_for_graph=is_for_graph)

    try:
        plan = of(chunk)
    except Exception as error:
        raise _run.in_words_of(error, op, "attention_plan", {"kv_chunk": "fixed_split_size", **(renamed or {})}) from None
    return Batch(qo_indptr, kv_indptr, last_page_len, page_size, plan, kv_indices, head_dims[0], dtypes, options, is_for_graph,
                 replan=None if chunk else of)


def pack_mask(batch, custom_mask, packed_custom_mask):
    """Returns a batch's mask as quern takes it: each request's bits begin at a byte."""
    if packed_custom_mask is not None or custom_mask is None:
        return packed_custom_mask
    lens = kv_lens(batch)
    bits = (batch.qo_indptr[1:] - batch.qo_indptr[:-1]).long() * lens
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), bits.cumsum(0)]).to(torch.int32)
    if custom_mask.numel() != int(indptr[-1]):
        raise ValueError(f"custom_mask has {custom_mask.numel()} entries, needs {int(indptr[-1])}: qo_len * kv_len of each request")
    return segment_packbits(custom_mask.reshape(-1), indptr.to(custom_mask.device), "little")[0]


def mask_bytes(batch):
    """Returns [batch + 1]: where each request's bytes of a packed mask begin."""
    lens = ((batch.qo_indptr[1:] - batch.qo_indptr[:-1]).long() * kv_lens(batch) + 7) // 8
    return torch.cat([torch.zeros(1, dtype=torch.int64), lens.cumsum(0)])


def kv_lens(batch):
    pages = (batch.kv_indptr[1:] - batch.kv_indptr[:-1]).long()
    if not batch.page_size:
        return pages
    return torch.where(pages > 0, (pages - 1) * batch.page_size + batch.last_page_len, 0)


def pack_single_mask(q, k_tokens, custom_mask, packed_custom_mask):
    bits = q.shape[0] * k_tokens
    if packed_custom_mask is None and custom_mask is not None:
        if custom_mask.numel() != bits:
            raise ValueError(f"custom_mask has {custom_mask.numel()} entries, needs {bits}: qo_len * kv_len")
        return packbits(custom_mask.reshape(-1), "little")
    return packed_custom_mask


def output_dtype(q):
    """Returns the dtype of results if none was given."""
    return q.dtype if q.dtype.itemsize > 1 else torch.bfloat16


# Arguments with other names in FlashInfer: quern's name -> FlashInfer's.
_RENAMED = {"is_causal": "causal", "workspace": "float_workspace_buffer"}


def attend(op, q, k, v, *, batch=None, out=None, lse=None, return_lse=False, workspace=None, dtype=None, renamed=None, **options):
    """Runs quern's attention on the current device, or PyTorch's operators; q [n, heads, dim], single calls with one
    request. dtype: (the caller's name for it, the result's dtype). renamed: names that replace those of _RENAMED."""
    refuse_gradients(op, ("q", "k", "v"), (q, k, v))
    said, told_dtype = dtype or ("o_data_type", batch.dtypes[2] if batch else None)
    renamed = {**_RENAMED, **(renamed or {})}
    if out is None:
        renamed |= {"out": said} if told_dtype else {}
        out = torch.empty(*q.shape[:-1], v.shape[-1], dtype=told_dtype or output_dtype(q), device=q.device)
    elif out.dtype != (told_dtype or output_dtype(q)):
        needed = f"{told_dtype}: {said}" if told_dtype else f"{output_dtype(q)}: {said} is None"
        raise ValueError(f"{op}: out has dtype {out.dtype}, needs {needed}")
    if flag(op, "return_lse", return_lse) and lse is None:
        lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    # PyTorch's operators read a batch's lengths when they are called, so a captured graph would repeat those of its first batch.
    by_pytorch = None if batch and batch.is_for_graph and not _run.is_disabled() else \
        functools.partial(_fallback_attention.attention, **options)
    try:
        is_ours = _run.compute(functools.partial(_attend, workspace, options), by_pytorch, op, (out, lse, q, k, v, batch))
    except Exception as error:
        raise _run.in_words_of(error, op, "attention", renamed) from None
    _run.log(op, [q], is_ours)
    return (out, lse) if return_lse else out


def _attend(workspace, options, out, lse, q, k, v, batch):
    if batch is None:  # one dense request
        parts = [None if t is None else t[None] for t in (q, k, v, out, lse)]
        attention(*parts[:3], out=parts[3], lse=parts[4], workspace=workspace, **options)
        return
    attention(q, k, v, plan=batch.plan, kv_indices=batch.kv_indices, out=out, lse=lse, workspace=workspace, **options)


def takes(function):
    """Gives a method of *arguments and **options function's signature, for help()."""
    def mark(method):
        method.__signature__ = inspect.signature(function)
        return method
    return mark


class Wrapper:
    """What the batch wrappers have in common. The workspace is the caller's and holds partial results, nothing else."""

    _names = {}  # quern's names of arguments -> those of plan()

    def __init__(self, op, float_workspace_buffer, kv_layout, use_cuda_graph, jit_args, backend="auto"):
        refuse(op, jit_args=jit_args)
        check_backend(op, backend)
        self._op, self._layout = op, "HND" if is_hnd(op, kv_layout) else "NHD"
        self._use_cuda_graph, self._batch, self._schedule = flag(op, "use_cuda_graph", use_cuda_graph), None, None
        self.reset_workspace_buffer(float_workspace_buffer, None)

    @property
    def is_cuda_graph_enabled(self):
        return self._use_cuda_graph

    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer):
        """Sets another buffer for partial results, and one for the schedule; without the latter one is made when
        needed."""
        self._workspace = float_workspace_buffer.reshape(-1).view(torch.uint8)
        self.device = float_workspace_buffer.device
        self._schedule = None if int_workspace_buffer is None else int_workspace_buffer.reshape(-1).view(torch.uint8)

    @property
    def has_heads_first(self):
        """Returns whether the layout is "HND"."""
        return self._layout == "HND"

    @property
    def workspace(self):
        """Returns the caller's buffer, as bytes."""
        return self._workspace

    def end_forward(self):
        """Does nothing; FlashInfer has this method."""

    def prewarm_paged_kv_stride_variant(self, variant="independent"):
        """Does nothing after plan(), as one kernel takes keys and values of any strides."""
        if variant != "independent":
            raise ValueError(f"{self._op}: variant is {variant!r}; accepted: 'independent'")
        self._planned_batch()

    def _keep_fixed(self, **buffers):
        """Keeps the caller's buffers, because a captured graph reads their memory again."""
        for name, buffer in buffers.items():
            if self._use_cuda_graph and not isinstance(buffer, torch.Tensor):
                raise ValueError(f"{self._op}: {name} is {buffer!r}; with use_cuda_graph it needs to be a tensor")
        if self._use_cuda_graph and self._schedule is None:
            self._schedule = torch.empty(8 << 20, dtype=torch.uint8, device=self.device)  # as large as FlashInfer's own
        self._fixed = buffers

    def _fill_fixed(self, *arrays):
        """With a graph, copies the index arrays into the buffers that _keep_fixed got, in order."""
        if self._use_cuda_graph:
            for (name, buffer), array in zip(self._fixed.items(), arrays, strict=True):
                self._fill(name, buffer, array)

    def _fill(self, name, buffer, values):
        """Copies an array to where a captured graph reads it."""
        if values.numel() > buffer.numel():
            raise ValueError(f"{self._op}: {name} has {buffer.numel()} entries, needs {values.numel()}")
        buffer[:values.numel()].copy_(values)

    def _check_batch_size(self, indptr, buffer):
        if self._use_cuda_graph and len(indptr) != len(buffer):
            raise ValueError(f"{self._op}: the batch has {len(indptr) - 1} requests, the buffers are for {len(buffer) - 1}")

    def _check_lens(self, batch, seq_lens, seq_lens_q=None, max_q=None, max_kv=None):
        """Raises unless arguments that repeat the requests' lengths agree with them."""
        own_q, own = (batch.qo_indptr[1:] - batch.qo_indptr[:-1]).long(), kv_lens(batch)
        for name, given, lens in (("seq_lens", seq_lens, own), ("seq_lens_q", seq_lens_q, own_q)):
            if given is not None and given.reshape(-1).tolist() != lens.tolist():
                raise ValueError(f"{self._op}: {name} is {given.tolist()}, the index arrays say {lens.tolist()}")
        for name, given, lens in (("max_token_per_sequence", max_q, own_q), ("max_sequence_kv", max_kv, own)):
            if given is not None and len(lens) and given < int(lens.max()):
                raise ValueError(f"{self._op}: {name} is {given}, the longest request has {int(lens.max())}")

    def _planned(self, batch):
        batch.fit(self._workspace.numel())
        if self._schedule is not None and self._schedule.numel() < batch.plan.host.size:
            raise ValueError(f"{self._op}: int_workspace_buffer has {self._schedule.numel()} bytes, needs {batch.plan.host.size}")
        if self._schedule is not None and self.device.type != "cpu":
            batch.plan.put_schedule(self._schedule)
        if batch.plan.workspace_bytes > self._workspace.numel():
            raise ValueError(f"{self._op}: float_workspace_buffer has {self._workspace.numel()} bytes, "
                             f"needs {batch.plan.workspace_bytes}")
        self._batch = batch

    def _planned_batch(self):
        if self._batch is None:
            raise RuntimeError(f"{self._op}: plan() comes before run()")
        return self._batch

    def _set_options(self, **options):
        """Replaces planned options of quern's attention."""
        self._planned_batch().options |= options

    def _check_planned(self, q, k):
        batch = self._planned_batch()
        if any(dtype not in (None, t.dtype) for t, dtype in zip((q, k), batch.dtypes, strict=False)):
            raise ValueError(f"{self._op}: q and k have dtypes {q.dtype}, {k.dtype}, planned were {batch.dtypes[0]}, "
                             f"{batch.dtypes[1]}")
        if q.shape[-1] != batch.head_dim_qk:
            raise ValueError(f"{self._op}: q has head_dim {q.shape[-1]}, planned was {batch.head_dim_qk}")
        planned = int(batch.qo_indptr[-1])
        if q.shape[0] != planned and not (self._use_cuda_graph and q.shape[0] > planned):
            raise ValueError(f"{self._op}: q has {q.shape[0]} rows, planned were {planned}")
        return batch

    def _attend(self, q, k, v, out, lse, return_lse, scale_values, **options):
        """Runs attention with options of this call alone, which replace the plan's where they are not None."""
        batch = self._check_planned(q, k)
        heads = k.shape[-3] if self.has_heads_first else k.shape[-2]
        told = {name: value for name, value in options.items() if value is not None}
        options = {**batch.options, "layout": self._layout, "custom_mask": batch.custom_mask, **told}
        for (name, value), count in zip(scale_values.items(), (q.shape[-2], heads, heads), strict=True):
            options |= scales(self._op, name, count, **{name: value})
        return attend(self._op, q, k, v, batch=batch, out=out, lse=lse, return_lse=return_lse, workspace=self._workspace,
                      renamed=self._names, **options)
