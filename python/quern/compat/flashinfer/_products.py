# SPDX-License-Identifier: Apache-2.0
"""What FlashInfer's matrix products share: checks, results, and quern's product under their names."""

import torch

from ... import _gemm
from ..._public import found
from .._check import integer, shape, tensors
from . import _run
from ._hints import check_backend

SIXTEEN = torch.bfloat16, torch.float16
ALL = *SIXTEEN, torch.float32
FP8 = torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz


def kind(op, name, x, accepted):
    """Checks a tensor's dtype, or a dtype."""
    has = x.dtype if isinstance(x, torch.Tensor) else x
    if has not in accepted:
        told = f"{name} has dtype {has}" if isinstance(x, torch.Tensor) else f"{name} is {has}"
        raise NotImplementedError(f"{op}: {told}; accepted: {', '.join(map(str, accepted))}")


def result(op, out, sizes, dtype, device, accepted, said="out_dtype"):
    """Returns out, or a new tensor. An out of another dtype than the caller says is an error."""
    if out is None:
        kind(op, said, dtype, accepted)
        return torch.empty(sizes, dtype=dtype, device=device)
    tensors(op, {"out": out})
    shape(op, "out", out, *sizes)
    if dtype is not None and out.dtype != dtype:
        raise ValueError(f"{op}: out has dtype {out.dtype}, needs {said}'s, {dtype}")
    kind(op, "out", out, accepted)
    return out


def one_number(op, name, value, device):
    """Returns f32 [1] of a number or of a tensor of one; None stays None."""
    if value is None:
        return None
    if not isinstance(value, torch.Tensor):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{op}: {name} is {found(value)}; accepted: a number, a tensor of one")
        return torch.full((1,), value, dtype=torch.float32, device=device)
    if value.numel() != 1:
        raise ValueError(f"{op}: {name} has {value.numel()} entries, needs 1")
    return value.reshape(1).to(device=device, dtype=torch.float32)


def product(op, names, a, b, out, **options):
    """Writes a b^T to out by quern's gemm."""
    _run.call(op, _gemm.gemm, {"d": "out", **names}, a, b, out=out, **options)
    return out


def of_groups(op, names, a, b, offsets, out, **options):
    """Writes the rows of each group of a times its matrix of b [groups, n, k], transposed, to out. offsets [groups + 1]: where groups
    begin, from 0 on and without gaps."""
    _run.call(op, _gemm.gemm_grouped_contiguous, {"d": "out", "group_layout": names.get("offsets", "m_indptr"), **names}, a, b,
              _run.index(offsets)[1:].contiguous(), by_ends=True, m_alignment=1, out=out, **options)
    return out


def groups_of(op, a, b, m_indptr):
    """Checks the operands of a grouped product."""
    tensors(op, {"a": a, "b": b, "m_indptr": m_indptr})
    shape(op, "a", a, None, None)
    shape(op, "b", b, None, None, a.shape[1])
    shape(op, "m_indptr", m_indptr, len(b) + 1)
    if m_indptr.dtype not in (torch.int32, torch.int64):
        raise ValueError(f"{op}: m_indptr has dtype {m_indptr.dtype}, needs torch.int32")


def hints(op, backend, own, tactic=-1):
    """Checks arguments that say how FlashInfer computes."""
    check_backend(op, backend, own)
    integer(op, "tactic", tactic, -1)
