# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's choice of the largest numbers of rows, by PyTorch's operators. Among equal ones at the boundary tie_break says which."""

import enum

import torch

from ..._public import flag, found
from .._check import integer, shape, tensors
from ._hints import check_backend, check_flags
from ._products import ALL, kind
from .tllm_enums import member


class TopKTieBreak(enum.IntEnum):
    """Which of equal numbers at the boundary are chosen: any, those in front, those behind."""

    NONE = 0
    SMALL = 1
    LARGE = 2

    def __str__(self):
        return self.name.lower()

    def __repr__(self):
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, specification):
        return format(str(self), specification)


def _chosen(x, k, tie_break):
    """Returns the places of the k largest of each row, the largest first."""
    if tie_break == TopKTieBreak.NONE:
        return x.topk(k, -1).indices
    if tie_break == TopKTieBreak.SMALL:
        return x.argsort(dim=-1, descending=True, stable=True)[..., :k]
    return x.shape[-1] - 1 - x.flip(-1).argsort(dim=-1, descending=True, stable=True)[..., :k]


def _check(op, input, k, tie_break, **flags):
    check_flags(op, **flags)
    tensors(op, {"input": input})
    shape(op, "input", input, None, None)
    kind(op, "input", input, ALL)
    return integer(op, "k", k, 1), member(op, "tie_break", TopKTieBreak, tie_break)


def top_k(input, k, sorted=False, deterministic=False, tie_break=TopKTieBreak.NONE, dsa_graph_safe=False):
    """Returns (values, places int64) [rows, k] of the k largest of input [rows, n], the largest first, sorted or not; all n in their own
    order if not sorted. deterministic and dsa_graph_safe change nothing."""
    op = "top_k"
    k, tie_break = _check(op, input, k, tie_break, sorted=sorted, deterministic=deterministic, dsa_graph_safe=dsa_graph_safe)
    if k > input.shape[1]:
        raise ValueError(f"{op}: k is {k}; accepted: 1 to {input.shape[1]}")
    if k == input.shape[1] and not sorted:
        return input.clone(), torch.arange(k, device=input.device).expand(len(input), k).contiguous()
    places = _chosen(input, k, tie_break)
    return input.gather(-1, places), places


def _window(op, input, lengths, k, tie_break, row_starts):
    """Returns (places int64 [rows, k] of the largest of each row's window, counted from its start, in no order if the window has fewer
    than k; whether each place is one)."""
    rows, n = input.shape
    for name, x in (("lengths", lengths), ("row_starts", row_starts)):
        if x is not None:
            tensors(op, {"input": input, name: x})
            shape(op, name, x, rows)
    starts = torch.zeros_like(lengths) if row_starts is None else row_starts
    at = torch.arange(n, device=input.device)
    lengths = lengths.long().clamp(min=0)[:, None]
    inside = (at >= starts[:, None]) & (at < starts[:, None] + lengths)
    masked = input.float().masked_fill(~inside, -torch.inf)
    places = _chosen(masked, min(k, n), tie_break) - starts[:, None].long()
    places = torch.nn.functional.pad(places, (0, max(k - n, 0)), value=-1)
    slots = torch.arange(k, device=input.device)
    places = torch.where(lengths <= k, slots, places)  # all of a short row are chosen, whatever their numbers
    return places, slots < lengths


def _result(op, name, out, sizes, device):
    if out is None:
        return torch.empty(sizes, dtype=torch.int32, device=device)
    tensors(op, {name: out})
    shape(op, name, out, *sizes)
    if out.dtype != torch.int32:
        raise ValueError(f"{op}: {name} has dtype {out.dtype}, needs torch.int32")
    return out


def top_k_page_table_transform(input, src_page_table, lengths, k, row_to_batch=None, deterministic=False, tie_break=TopKTieBreak.NONE,
                               dsa_graph_safe=False, row_starts=None, page_table_row_starts=None, *, page_size=1, out=None,
                               out_raw_indices=None):
    """Returns out i32 [rows, k]: where the k largest of each row's window of input [rows, n] lie in pages; -1 behind a short row's.

    src_page_table  [batch, pages]: an entry stands for page_size numbers; row_to_batch [rows]: each row's entries; None: its own
    lengths, row_starts  [rows]: each row's window is input[row, start:start + length]; None: it starts at 0
    page_table_row_starts  [rows]: where each row's entries start; None: row_starts, which page_size above 1 does not allow
    page_size       a power of two
    out_raw_indices i32 [rows, k]: written with the places in the window, -1 likewise
    """
    op = "top_k_page_table_transform"
    k, tie_break = _check(op, input, k, tie_break, deterministic=deterministic, dsa_graph_safe=dsa_graph_safe)
    if integer(op, "page_size", page_size, 1, 1 << 30) & (page_size - 1):
        raise ValueError(f"{op}: page_size is {page_size}; accepted: powers of two")
    if page_size > 1 and row_starts is not None and page_table_row_starts is None:
        raise ValueError(f"{op}: page_table_row_starts is None; needed with row_starts and page_size {page_size}")
    tensors(op, {"input": input, "src_page_table": src_page_table, "row_to_batch": row_to_batch,
                 "page_table_row_starts": page_table_row_starts}, ("row_to_batch", "page_table_row_starts"))
    shape(op, "src_page_table", src_page_table, None if row_to_batch is not None else len(input), None)
    for name, x in (("row_to_batch", row_to_batch), ("page_table_row_starts", page_table_row_starts)):
        if x is not None:
            shape(op, name, x, len(input))
    out = _result(op, "out", out, (len(input), k), input.device)
    places, are_real = _window(op, input, lengths, k, tie_break, row_starts)
    table = src_page_table if row_to_batch is None else src_page_table[row_to_batch.long()]
    first = row_starts if page_table_row_starts is None else page_table_row_starts
    entry = places // page_size + (0 if first is None else first[:, None].long())
    pages = table.long().gather(1, entry.clamp(0, max(table.shape[1] - 1, 0)))
    out.copy_(torch.where(are_real, pages * page_size + places % page_size, -1))
    if out_raw_indices is not None:
        _result(op, "out_raw_indices", out_raw_indices, (len(input), k), input.device).copy_(torch.where(are_real, places, -1))
    return out


def top_k_ragged_transform(input, offsets, lengths, k, deterministic=False, tie_break=TopKTieBreak.NONE, dsa_graph_safe=False,
                           row_starts=None):
    """Returns i32 [rows, k]: the places of the k largest of each row's window of input [rows, n], as top_k_page_table_transform has it,
    plus offsets [rows]; -1 behind a short row's."""
    op = "top_k_ragged_transform"
    k, tie_break = _check(op, input, k, tie_break, deterministic=deterministic, dsa_graph_safe=dsa_graph_safe)
    tensors(op, {"input": input, "offsets": offsets})
    shape(op, "offsets", offsets, len(input))
    places, are_real = _window(op, input, lengths, k, tie_break, row_starts)
    return torch.where(are_real, places + offsets[:, None].long(), -1).to(torch.int32)


_VARLEN = "radix", "gvr", "gvr_2", "radix_cutlass", "radix_filter", "auto"


def top_k_varlen(logits, seq_lens, top_k, pre_idx=None, compress_ratio=1, next_n=1, return_values=False, out_indices=None,
                 out_values=None, backend="auto", load_balance=True, workspace=None):
    """Returns (places i32 [rows, top_k], values of logits' dtype or None): the largest of the first
    (seq_lens[i] - next_n + t + 1) / compress_ratio numbers of row i * next_n + t of logits [rows, n]; places are -1 behind a short row's,
    values then 0. pre_idx, backend, load_balance and workspace change nothing."""
    op = "top_k_varlen"
    check_backend(op, backend, _VARLEN)
    check_flags(op, load_balance=load_balance)
    tensors(op, {"logits": logits, "seq_lens": seq_lens, "pre_idx": pre_idx}, ("pre_idx",))
    shape(op, "logits", logits, None, None)
    kind(op, "logits", logits, ALL)
    shape(op, "seq_lens", seq_lens, len(logits) // integer(op, "next_n", next_n, 1))
    if workspace is not None and not isinstance(workspace, dict):
        raise ValueError(f"{op}: workspace is {found(workspace)}; accepted: a dict, None")
    integer(op, "compress_ratio", compress_ratio, 1)
    draft = torch.arange(next_n, device=logits.device)
    lengths = (seq_lens.long()[:, None] - next_n + draft + 1).flatten().div(compress_ratio, rounding_mode="floor")
    k = integer(op, "top_k", top_k, 1)
    places, are_real = _window(op, logits, lengths.clamp(max=logits.shape[1]), k, TopKTieBreak.NONE, None)
    sizes = len(logits), k
    if out_indices is not None and out_indices.ndim == 1 and out_indices.numel() == sizes[0] * k:
        out_indices = out_indices.view(sizes)
    out = _result(op, "out_indices", out_indices, sizes, logits.device).copy_(torch.where(are_real, places, -1))
    if not flag(op, "return_values", return_values):
        if out_values is not None:
            raise ValueError(f"{op}: out_values is {found(out_values)}; accepted without return_values: None")
        return out, None
    values = torch.where(are_real, logits.gather(1, places.clamp(0, logits.shape[1] - 1)), 0)
    if out_values is None:
        return out, values
    tensors(op, {"out_values": out_values})
    shape(op, "out_values", out_values, *sizes)
    kind(op, "out_values", out_values, (logits.dtype,))
    return out, out_values.copy_(values)
