# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's products in groups of k, as gradients of weights need them: d[g] = c[g] + a_g^T b_g, one product a group."""

from __future__ import annotations

import itertools

import torch

from ..._env import is_set
from . import _check
from ._operands import Operand, multiply, operand
from ._settings import get_mk_alignment_for_contiguous_layout
from ._types import Pair, Recipe, Tensor

_validates = is_set("QUERN_VALIDATE")
_PSUM_ONLY = "accepted without use_psum_layout: a list of integers"


def _spans(op, ks_cpu, grouped_layout, by_ends, alignment, groups):
    """Returns (begin, k) of each group. grouped_layout is read, which waits for the device, only where ks_cpu does not say
    all."""
    _check.shape(op, "grouped_layout", grouped_layout, groups)
    _check.dtype(op, "grouped_layout", grouped_layout, (torch.int32,))
    _check.contiguous(op, grouped_layout=grouped_layout)
    if ks_cpu is not None and not isinstance(ks_cpu, (list, tuple)):
        raise TypeError(f"{op}: ks_cpu is {ks_cpu!r}; accepted: a list of integers, None")
    if not ks_cpu and not by_ends and groups:
        raise ValueError(f"{op}: ks_cpu is {ks_cpu}; {_PSUM_ONLY}")
    if ks_cpu and len(ks_cpu) != groups:
        raise ValueError(f"{op}: ks_cpu has {len(ks_cpu)} entries, needs {groups}, as d has groups")
    for k in ks_cpu or ():
        if _check.integer(op, "ks_cpu", k, 0) % alignment:
            raise ValueError(f"{op}: ks_cpu has {k}; accepted: multiples of {alignment}")
    if by_ends:
        return _spans_of_ends(op, ks_cpu, grouped_layout.tolist(), alignment)
    ks = list(ks_cpu or ())
    if (_validates or grouped_layout.device.type == "cpu") and grouped_layout.tolist() != ks:
        raise ValueError(f"{op}: grouped_layout is {grouped_layout.tolist()}, needs {ks}, as ks_cpu has them")
    return list(zip(itertools.accumulate(ks, initial=0), ks, strict=False))


def _spans_of_ends(op, ks_cpu, ends, alignment):
    spans, begin = [], 0
    for end in ends:
        if end < begin:
            raise ValueError(f"{op}: grouped_layout is {ends}; accepted: ends at or behind where each group begins")
        spans.append((begin, end - begin))
        begin = -(-end // alignment) * alignment
    whole = [-(-k // alignment) * alignment for _, k in spans]
    if ks_cpu and list(ks_cpu) != whole:
        raise ValueError(f"{op}: ks_cpu is {list(ks_cpu)}; accepted with use_psum_layout: {whole}, as grouped_layout has groups, None")
    return spans


def _check_results(op, c, d, m, n):
    _check.shape(op, "d", d, None, m, n)
    _check.shape(op, "c", c, *d.shape)
    _check.dtype(op, "d", d, _check.D_TYPES)
    _check.dtype(op, "c", c, (d.dtype,))
    _check.contiguous(op, d=d, c=c)


def _given(op, c):
    if c is None:
        raise ValueError(f"{op}: c is None; accepted: a tensor of d's shape and dtype, which may be d")
    return c


def _end(op, name, total, spans):
    """Checks that the groups lie within [.., total]."""
    last = max((begin + k for begin, k in spans), default=0)
    if last > total:
        raise ValueError(f"{op}: the groups end at {last} of k; accepted: the {total} that {name} has, or less")


def _recipe(op, recipe, grans):
    if not isinstance(recipe, (list, tuple)) or tuple(recipe) not in [(1, 1, gran) for gran in grans]:
        raise ValueError(f"{op}: recipe is {recipe!r}; accepted: {', '.join(str((1, 1, gran)) for gran in grans)}")
    return recipe[2]


def _scale_check(op, name, scale):
    if scale.dtype == torch.int32:
        raise NotImplementedError(f"{op}: {name} has dtype torch.int32, the packed form of SM100, whose words begin anew in each "
                                  "group; accepted: torch.float32")


def k_grouped_fp8_gemm_tn_contiguous(a: Pair, b: Pair, d: Tensor, ks_cpu: list[int] | None, grouped_layout: Tensor,
                                     c: Tensor | None = None, recipe: Recipe = (1, 1, 128), compiled_dims: str = "mn",
                                     use_psum_layout: bool = False) -> None:
    """Computes d[g] = c[g] + a_g^T b_g of FP8 matrices, whose rows are sorted by group.

    a               (e4m3fn or e4m3fnuz [sum of k, m], scales f32 [sum of ceil(k / gran_k), m]: each group begins a row of its own)
    b               (e4m3fn or e4m3fnuz [sum of k, n], scales f32 [sum of ceil(k / gran_k), n])
    d               bf16 or f32 [groups, m, n], contiguous, written
    ks_cpu          k of each group, multiples of get_mk_alignment_for_contiguous_layout(). With use_psum_layout k rounded up to
                    such a multiple, or None or []
    grouped_layout  i32 [groups]: the same numbers, compared with ks_cpu on the CPU, and on a GPU with QUERN_VALIDATE=1; with
                    use_psum_layout where each group ends, the next one beginning at the next multiple of the alignment, which is
                    read on the host and so waits for the device
    c               [groups, m, n] of d's dtype, contiguous, which may be d
    recipe          (1, 1, gran_k): a scale stands for 32 or 128 of k
    compiled_dims   a hint, which changes nothing

    Raises what fp8_fp4_gemm_nt raises.
    """
    op = "k_grouped_fp8_gemm_tn_contiguous"
    _check.hints(op, compiled_dims, use_psum_layout=use_psum_layout)
    gran_k = _recipe(op, recipe, (32, 128))
    (a, sfa), (b, sfb) = _check.pair(op, "a", a), _check.pair(op, "b", b)
    _check.tensors(op, {"d": d, "a[0]": a, "a[1]": sfa, "b[0]": b, "b[1]": sfb, "grouped_layout": grouped_layout, "c": _given(op, c)})
    _check.shape(op, "a[0]", a, None, None)
    _check.shape(op, "b[0]", b, a.shape[0], None)
    _check_results(op, c, d, a.shape[1], b.shape[1])
    spans = _spans(op, ks_cpu, grouped_layout, use_psum_layout, get_mk_alignment_for_contiguous_layout(), len(d))
    _end(op, "a[0]", len(a), spans)
    words = sum(-(-k // gran_k) for _, k in spans)
    sides = (("a", a, sfa), ("b", b, sfb))
    for name, x, scale in sides:
        _scale_check(op, f"{name}[1]", scale)
        _check.shape(op, f"{name}[1]", scale, words, x.shape[1])
    at = 0
    for g, (begin, k) in enumerate(spans):
        rows = slice(at, at := at + -(-k // gran_k))
        group = [operand(op, name, x[begin:begin + k].T, scale[rows].T, (1, gran_k), True) for name, x, scale in sides]
        multiply(op, d[g], *group, c[g])


def k_grouped_fp8_gemm_nt_contiguous(a: Pair, b: Pair, d: Tensor, ks_cpu: list[int] | None, grouped_layout: Tensor,
                                     c: Tensor | None = None, recipe: Recipe = (1, 1, 128), compiled_dims: str = "mn",
                                     use_psum_layout: bool = False) -> None:
    """Computes d[g] = c[g] + a_g b_g^T of FP8 matrices that lie one after another.

    a               (e4m3fn or e4m3fnuz [m * sum of k], each group [m, k]; scales f32 [m, sum of k / 128])
    b               (e4m3fn or e4m3fnuz [n * sum of k], each group [n, k]; scales f32 [n, sum of k / 128])
    ks_cpu          k of each group, multiples of 128
    grouped_layout  i32 [groups], the same numbers
    recipe          (1, 1, 128)
    use_psum_layout False
    d, c, compiled_dims  as in k_grouped_fp8_gemm_tn_contiguous

    Raises what fp8_fp4_gemm_nt raises.
    """
    op = "k_grouped_fp8_gemm_nt_contiguous"
    _check.hints(op, compiled_dims, use_psum_layout=use_psum_layout)
    _recipe(op, recipe, (128,))
    if use_psum_layout:
        raise NotImplementedError(f"{op}: use_psum_layout is True, which DeepGEMM has in k_grouped_fp8_gemm_tn_contiguous alone; "
                                  "accepted: False")
    (a, sfa), (b, sfb) = _check.pair(op, "a", a), _check.pair(op, "b", b)
    _check.tensors(op, {"d": d, "a[0]": a, "a[1]": sfa, "b[0]": b, "b[1]": sfb, "grouped_layout": grouped_layout, "c": _given(op, c)})
    _check_results(op, c, d, None, None)
    spans = _spans(op, ks_cpu, grouped_layout, False, 128, len(d))
    total = sum(k for _, k in spans)
    sides = (("a", a, sfa, d.shape[1]), ("b", b, sfb, d.shape[2]))
    for name, x, scale, mn in sides:
        _scale_check(op, f"{name}[1]", scale)
        _check.contiguous(op, **{f"{name}[0]": x})
        if x.numel() != mn * total:
            raise ValueError(f"{op}: {name}[0] has {x.numel()} elements, needs {mn} * {total}")
        _check.shape(op, f"{name}[1]", scale, mn, total // 128)
    for g, (begin, k) in enumerate(spans):
        columns = slice(begin // 128, (begin + k) // 128)
        group = [operand(op, name, x.view(-1)[mn * begin:mn * (begin + k)].view(mn, k), scale[:, columns], (1, 128))
                 for name, x, scale, mn in sides]
        multiply(op, d[g], *group, c[g])


def k_grouped_bf16_gemm_tn_contiguous(a: Tensor, b: Tensor, d: Tensor, ks_cpu: list[int] | None, grouped_layout: Tensor,
                                      c: Tensor | None = None, compiled_dims: str = "mn", use_psum_layout: bool = False) -> None:
    """Computes k_grouped_fp8_gemm_tn_contiguous of bf16 a [sum of k, m] and b [sum of k, n], which have no scales."""
    op = "k_grouped_bf16_gemm_tn_contiguous"
    _check.hints(op, compiled_dims, use_psum_layout=use_psum_layout)
    _check.tensors(op, {"d": d, "a": a, "b": b, "grouped_layout": grouped_layout, "c": _given(op, c)})
    _check.shape(op, "a", a, None, None)
    _check.shape(op, "b", b, a.shape[0], None)
    _check_results(op, c, d, a.shape[1], b.shape[1])
    for name, x in (("a", a), ("b", b)):
        _check.dtype(op, name, x, (torch.bfloat16,))
        _check.either_contiguous(op, name, x)
    spans = _spans(op, ks_cpu, grouped_layout, use_psum_layout, get_mk_alignment_for_contiguous_layout(), len(d))
    _end(op, "a", len(a), spans)
    for g, (begin, k) in enumerate(spans):
        multiply(op, d[g], Operand("a", a[begin:begin + k].T), Operand("b", b[begin:begin + k].T), c[g])
