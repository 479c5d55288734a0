# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's scores of sparse attention's indexer over pages: many heads of queries, one head of keys, as in DeepGEMM's place."""

import torch

from ..._public import flag, found
from .._check import integer, shape, tensors
from ..deep_gemm import attention as _indexer
from ._absent import absent
from ._products import FP8, kind

_STEP = 256  # columns of which out has a multiple
_FP4 = "quern has no keys of FP4; choose an indexer in FP8"


def padded_seq_len(max_seq_len):
    """Returns how many columns out needs for so many keys."""
    return -(-integer("padded_seq_len", "max_seq_len", max_seq_len, 0) // _STEP) * _STEP


def min_block_table_width(seq_len, block_size):
    """Returns how many pages so many keys need."""
    op = "min_block_table_width"
    return -(-integer(op, "seq_len", seq_len, 0) // integer(op, "block_size", block_size, 1))


def compute_paged_mqa_logits_schedule(seq_lens, device=None, *, next_n=1, variant="fp8", use_gpu_kernel=True, out=None):
    """Returns zeros i32 [2, 2], or out filled with zeros, on the device: quern needs no schedule. next_n, use_gpu_kernel and variant
    change nothing."""
    op = "compute_paged_mqa_logits_schedule"
    tensors(op, {"seq_lens": seq_lens})
    shape(op, "seq_lens", seq_lens, None)
    integer(op, "next_n", next_n, 1)
    flag(op, "use_gpu_kernel", use_gpu_kernel)
    if variant not in ("fp8", "fp4"):
        raise ValueError(f"{op}: variant is {found(variant)}; accepted: 'fp8', 'fp4'")
    if out is None:
        return torch.zeros(2, 2, dtype=torch.int32, device=_device(op, device) or seq_lens.device)
    _check_schedule(op, "out", out)
    return out.zero_()


def _device(op, device):
    try:
        return None if device is None else torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"{op}: device is {found(device)}; accepted: a torch.device, its name, None") from None


def _check_schedule(op, name, x):
    tensors(op, {name: x})
    shape(op, name, x, None, 2)
    if x.dtype != torch.int32:
        raise ValueError(f"{op}: {name} has dtype {x.dtype}, needs torch.int32")


def _check_paged(op, q, kv_fused, weights, block_tables, seq_lens, most):
    tensors(op, {"q": q, "kv_fused": kv_fused, "weights": weights, "block_tables": block_tables, "seq_lens": seq_lens})
    shape(op, "q", q, None, None, None, None)
    batch, next_n, heads, dim = q.shape
    kind(op, "q", q, FP8[:2])
    shape(op, "kv_fused", kv_fused, None, None, 1, dim + 4)
    kind(op, "kv_fused", kv_fused, (torch.uint8,))
    shape(op, "weights", weights, batch * next_n, heads)
    kind(op, "weights", weights, (torch.float32, torch.bfloat16))
    shape(op, "seq_lens", seq_lens, batch)
    width = -(-most // kv_fused.shape[1])
    if block_tables.ndim != 2 or len(block_tables) != batch or block_tables.shape[1] < width:
        raise ValueError(f"{op}: block_tables has shape {list(block_tables.shape)}, needs [{batch}, {width} or more]")
    for name, x in (("block_tables", block_tables), ("seq_lens", seq_lens)):
        if x.dtype != torch.int32:
            raise ValueError(f"{op}: {name} has dtype {x.dtype}, needs torch.int32")


def fp8_paged_mqa_logits(q, kv_fused, weights, block_tables, seq_lens, max_seq_len, *, output_dtype=torch.float32,
                         epi_dtype=torch.float32, acc_dtype=torch.float32, schedule_meta=None, out=None):
    """Returns logits [batch * next_n, max_seq_len]: the sum over heads of weights times max(0, q . key * the key's scale). Those behind
    the seq_lens[b] - next_n + t + 1 keys that query t sees are of no meaning.

    q              FP8 [batch, next_n, heads, dim]
    kv_fused       u8 [pages, page_size, 1, dim + 4]: in a page the values of all its keys, then their f32 scales
    weights        f32 or bf16 [batch * next_n, heads]
    block_tables   i32 [batch, at least max_seq_len / page_size]
    seq_lens       i32 [batch]
    output_dtype   f32, bf16 or f16
    out            [batch * next_n, padded_seq_len(max_seq_len) or more] of that dtype, of which the result is a part
    epi_dtype, acc_dtype, schedule_meta  change nothing: sums are f32
    """
    op = "fp8_paged_mqa_logits"
    most = integer(op, "max_seq_len", max_seq_len, 0)
    for name, value in (("epi_dtype", epi_dtype), ("acc_dtype", acc_dtype)):
        if value not in (torch.float32, torch.float16):
            raise ValueError(f"{op}: {name} is {found(value) if not isinstance(value, torch.dtype) else value}; accepted: torch.float32, "
                             "torch.float16")
    kind(op, "output_dtype", output_dtype, (torch.float32, torch.bfloat16, torch.float16))
    if schedule_meta is not None:
        _check_schedule(op, "schedule_meta", schedule_meta)
    _check_paged(op, q, kv_fused, weights, block_tables, seq_lens, most)
    batch, next_n = q.shape[:2]
    if out is not None:
        tensors(op, {"out": out})
        if out.ndim != 2 or len(out) != batch * next_n or out.shape[1] < padded_seq_len(most) or out.dtype != output_dtype:
            raise ValueError(f"{op}: out has shape {list(out.shape)} of {out.dtype}, needs [{batch * next_n}, {padded_seq_len(most)} or "
                             f"more] of {output_dtype}")
    lens = seq_lens[:, None] - next_n + 1 + torch.arange(next_n, dtype=torch.int32, device=seq_lens.device)
    logits = _indexer.fp8_paged_mqa_logits(q, kv_fused, weights, lens, block_tables, lens.new_zeros(2, 2), most)
    return logits.to(output_dtype) if out is None else out[:, :most].copy_(logits)


def precompile_paged_mqa_logits(device=None, variants=("fp8", "fp4"), output_dtypes=None, batch_sizes=None):
    """Checks its arguments. quern's kernels are compiled already, or by the first call."""
    op = "precompile_paged_mqa_logits"
    _device(op, device)
    for variant in variants:
        if variant not in ("fp8", "fp4"):
            raise ValueError(f"{op}: variants is {found(variants)}; accepted: 'fp8', 'fp4'")
    for dtype in output_dtypes or ():
        kind(op, "output_dtypes", dtype, (torch.float32, torch.bfloat16, torch.float16))
    for size in batch_sizes or ():
        integer(op, "batch_sizes", size, 1)


fp4_paged_mqa_logits = absent("fp4_paged_mqa_logits", _FP4)
