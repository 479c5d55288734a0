# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts: which experts a token goes to, the rows of experts, and the way back from them.

A pair is a token and one of its experts: pair t * top_k + j is token t and expert ids[t, j]."""

from __future__ import annotations

from typing import Any

from . import _ops
from ._attention import choice, new_output
from ._public import flag, found, public
from ._tensor import dims, empty_like, fp8_name
from ._types import A, Array, DType, MoeFunction, MoeScoring

_SCORINGS = {"softmax": 0, "sigmoid": 1}
_FUNCTIONS = {"silu": 0, "gelu": 1, "gelu_tanh": 2, "swiglu": 3}


@public()
def moe_route(logits: Array, top_k: int, bias: Array | None = None, scoring: MoeScoring = "softmax", groups: int = 1,
              topk_groups: int | None = None, renormalize: bool = False, scaling: float = 1.0, shared_experts: int = 0,
              shared_weight: float = 1.0, weights: Array | None = None, ids: Array | None = None) -> tuple[Any, Any]:
    """Chooses top_k experts for each token, the best first: (weights, ids). Every device gets the same bits.

    An expert is chosen by its score, softmax or 1 / (1 + exp(-logit)), plus bias; of equal ones the lower comes first. Its weight
    is its score without bias, with renormalize divided by the sum of the token's chosen scores, times scaling. With groups, which
    are of neighbours, experts are those of the topk_groups best groups. A group's score is the sum of its two best, with bias; if
    there is no bias, its best.

    logits          [tokens, experts] of f32, f16 or bf16, the last dimension contiguous; no tokens are no error, a NaN is
    top_k           from 1 to the experts of topk_groups groups
    bias            [experts] of f32, f16 or bf16, contiguous; None: none
    scoring         "softmax" or "sigmoid"
    groups          1 to 64, divides experts
    topk_groups     1 to groups; None: all
    renormalize     True or False
    scaling         above 0, finite
    shared_experts  experts that every token goes to: columns behind top_k, with ids experts, experts + 1, ...
    shared_weight   their weight: above 0, finite
    weights         f32 [tokens, top_k + shared_experts], the last dimension contiguous; None: a new one
    ids             i32, as weights; None: a new one

    Raises ValueError (shape, stride, overlap, numbers, NaN), NotImplementedError (dtype, device, over 2048 experts on a GPU),
    TypeError (no array, no number); nothing is written then. NaNs are looked for on the CPU, and on a GPU with QUERN_VALIDATE=1.

    >>> weights, ids = quern.moe_route(numpy.array([[0, 3, 1, 2]], numpy.float32), 2, renormalize=True)
    >>> weights.round(3), ids
    (array([[0.731, 0.269]], dtype=float32), array([[1, 3]], dtype=int32))
    """
    op = "moe_route"
    number = choice(op, "scoring", scoring, _SCORINGS)
    renormalize = flag(op, "renormalize", renormalize)
    if topk_groups == 0 or groups == 0:  # for C, 0 says that it is not given
        raise ValueError(f"{op}: {'groups' if groups == 0 else 'topk_groups'} is 0; accepted: 1 or more")
    if weights is None or ids is None:
        shape = _columns(op, logits, top_k, shared_experts)
        weights = empty_like(logits, shape=shape, dtype="float32") if weights is None else weights
        ids = empty_like(logits, shape=shape, dtype="int32") if ids is None else ids
    if weights.shape[-1:] != (top_k + shared_experts,):
        raise ValueError(f"{op}: weights has shape {list(weights.shape)}; accepted: {top_k + shared_experts} columns, "
                         "of top_k and shared_experts")
    _ops.moe_route(weights, ids, logits, bias, number, groups, groups if topk_groups is None else topk_groups, renormalize,
                   scaling, shared_experts, shared_weight)
    return weights, ids


def _columns(op, logits, top_k, shared_experts):
    """Returns the shape of new weights and ids."""
    tokens, _ = dims(op, "logits", logits, 2)
    for name, value, least in (("top_k", top_k, 1), ("shared_experts", shared_experts, 0)):
        if value < least:
            raise ValueError(f"{op}: {name} is {found(value)}; accepted: {least} or more")
    return tokens, top_k + shared_experts


@public()
def moe_sort(ids: Array, experts: int, alignment: int = 128, expert_map: Array | None = None, ends: Array | None = None,
             row_of_pair: Array | None = None, pair_of_row: Array | None = None, expert_of_row: Array | None = None,
             expert_of_block: Array | None = None, num_rows: Array | None = None) -> tuple[Any, Any, Any, Any, Any, Any]:
    """Gives each pair a row, experts in order, pairs of an expert in theirs. Returns all outputs, in the order of arguments.

    ids              i32 [tokens, top_k], the last dimension contiguous: experts, or -1, which gets no row
    experts          this device's: 1 or more
    alignment        1 to 2^20: an expert's rows begin at a multiple of it
    expert_map       i32 [any]: this device's number of each expert, or -1: it is elsewhere; None: ids are this device's numbers
    ends             i32 [experts]: where each expert's rows end; group_layout of gemm_grouped_contiguous by ends
    row_of_pair      i32 [tokens, top_k]: -1: none
    pair_of_row      i32 [rows]: tokens * top_k: padding. vLLM's sorted_token_ids
    expert_of_row    i32 [rows]: -1: padding. DeepGEMM's m_indices
    expert_of_block  i32 [rows / alignment]: the expert of each alignment rows; -1: none
    num_rows         i32 [1]: rows of all experts, with their padding

    Outputs that are None are new ones, with rows enough for any ids. Raises ValueError (shape, stride, overlap, numbers, too few
    rows, indices), NotImplementedError (dtype, device, over 2048 experts on a GPU), TypeError (no array, no number); nothing is
    written then. Indices are looked at on the CPU, and on a GPU with QUERN_VALIDATE=1; else a GPU takes an index out of range for
    -1.

    >>> outputs = quern.moe_sort(numpy.array([[2, 0], [2, -1]], numpy.int32), 3, alignment=2)
    >>> [x.tolist() for x in outputs[:3]]
    [[1, 2, 4], [[2, 0], [3, -1]], [1, 4, 0, 2, 4, 4]]
    """
    op = "moe_sort"
    tokens, top_k = dims(op, "ids", ids, 2)
    pairs, most = tokens * top_k, max(alignment, 1)
    rows = (pairs + min(pairs, max(experts, 0)) * (most - 1)) // most * most  # as many as there can be with padding
    for given in (pair_of_row, expert_of_row):
        rows = given.shape[0] if given is not None and len(given.shape) == 1 else rows
    if expert_of_block is not None and pair_of_row is None and expert_of_row is None and len(expert_of_block.shape) == 1:
        rows = expert_of_block.shape[0] * alignment
    shapes = (max(experts, 0),), ids.shape, (rows,), (rows,), (rows // most,), (1,)
    given = ends, row_of_pair, pair_of_row, expert_of_row, expert_of_block, num_rows
    outputs = [empty_like(ids, shape=shape, dtype="int32") if x is None else x for x, shape in zip(given, shapes, strict=True)]
    _ops.moe_sort(*outputs, ids, expert_map, experts, alignment)
    return tuple(outputs)  # type: ignore[return-value]


@public()
def moe_permute(x: A, pair_of_row: Array, top_k: int, scale: Array | None = None, out: A | None = None,
                scale_out: Array | None = None) -> Any:
    """Copies each pair's token to the pair's row: out[r] = x[pair_of_row[r] // top_k]. Rows of padding are left as they are.

    x            [tokens, n] of f32, f16, bf16, i8 or an FP8 kind, the last dimension contiguous
    pair_of_row  i32 [rows], of moe_sort. A number that is no pair's, as QUERN_VALIDATE=1 leaves it too, is padding
    top_k        1 or more
    scale        f32 [tokens, groups], any strides: x's scales, which are copied along; None: none
    out          [rows, n] of x's dtype; None: a new one
    scale_out    f32 [rows, groups], any strides; None: a new one if there is scale

    Returns out, or with scale (out, scale_out). Raises ValueError (shape, stride, overlap, top_k, one scale without the other),
    NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> quern.moe_permute(numpy.array([[1, 2], [3, 4]], numpy.float32), numpy.array([2, 0, 1], numpy.int32), 2)
    array([[3., 4.],
           [1., 2.],
           [1., 2.]], dtype=float32)
    """
    rows = pair_of_row.shape[0] if len(pair_of_row.shape) == 1 else 0
    out = empty_like(x, shape=(rows, *x.shape[1:])) if out is None else out
    if scale is not None and scale_out is None:
        scale_out = empty_like(scale, shape=(rows, *scale.shape[1:]))
    _ops.moe_permute(out, scale_out, x, scale, pair_of_row, top_k)
    return out if scale is None else (out, scale_out)


@public(is_interleaved="interleaved")
def moe_activate(x: A, function: MoeFunction = "silu", limit: float = 0.0, alpha: float = 0.0, interleaved: bool = False,
                 expert_of_row: Array | None = None, scale_eps: float = 1e-10, dtype: DType | None = None, out: Array | None = None,
                 scale: Array | None = None) -> Any:
    """Acts on the halves of rows of experts, gate = min(gate, limit) and up within -limit and limit, in f32, rounded once.

    x              [rows, 2 h] of f32, f16 or bf16, the last dimension contiguous
    function       "silu", "gelu" or "gelu_tanh": f(gate) * up; "swiglu": gate / (1 + exp(-alpha gate)) * (up + 1), gpt-oss's
    limit          above 0; 0 or infinity: none. gpt-oss has 7
    alpha          of "swiglu", above 0 and finite; 0 means 1.702. Of others 0
    interleaved    True: gate and up alternate in x; False: they are its halves
    expert_of_row  i32 [rows], of moe_sort: rows below 0 are left as they are. None: all count
    scale_eps      smallest amax of scale: 1e-30 or more, finite
    dtype          of a new out: an FP8 kind; None: x's dtype
    out            [rows, h] of x's dtype or an FP8 kind; None: a new one
    scale          f32 [rows, ceil(h / 128)], any strides, with out of FP8; None: a new one for a dtype of FP8

    Returns out, or (out, scale) for FP8. Raises ValueError (shape, stride, overlap, numbers, an FP8 out without scale),
    NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then. The numbers in expert_of_row
    need no check by QUERN_VALIDATE=1.

    >>> quern.moe_activate(numpy.array([[0, 9, 5, 2]], numpy.float32), "swiglu", limit=7.0).round(3)
    array([[ 0., 21.]], dtype=float32)
    """
    op = "moe_activate"
    number, is_interleaved = choice(op, "function", function, _FUNCTIONS), flag(op, "interleaved", interleaved)
    rows, columns = dims(op, "x", x, 2)
    name = None if dtype is None else fp8_name(op, dtype)
    if out is None:
        out = empty_like(x, shape=(rows, columns // 2), dtype=name)
    elif name is not None:
        raise ValueError(f"{op}: dtype is {name}; accepted beside out: None")
    if scale is None and name is not None:
        scale = empty_like(x, shape=(rows, -(-(columns // 2) // 128)), dtype="float32")
    _ops.moe_activate(out, scale, x, expert_of_row, number, limit, alpha, is_interleaved, scale_eps)
    return out if scale is None else (out, scale)


@public()
def moe_sum(x: A, weights: Array | None = None, row_of_pair: Array | None = None, addend: Array | None = None,
            dtype: DType | None = None, out: Array | None = None) -> Any:
    """Adds up what a token's experts made of it, in the order of its pairs: addend[t] + sum over j of weights[t, j] * x[row],
    where row is row_of_pair[t, j]. Computed in f32, rounded once.

    x            [rows, n] of f32, f16 or bf16, the last dimension contiguous
    weights      f32 [tokens, top_k], the last dimension contiguous; None: 1
    row_of_pair  i32 [tokens, top_k], of moe_sort; -1 does not count. None: pair p has row p
    addend       [tokens, n] of out's dtype: what shared experts made of the token; may be out. None: 0
    dtype        of a new out: f32, f16 or bf16; None: x's
    out          [tokens, n]; None: a new one, of as many tokens as weights, row_of_pair or addend

    Returns out. Raises ValueError (shape, stride, overlap, indices; an out that nothing tells the tokens of), NotImplementedError
    (dtype, device), TypeError (no array); nothing is written then. Indices are looked at on the CPU, and on a GPU with
    QUERN_VALIDATE=1; else a GPU takes an index out of range for -1.

    >>> x = numpy.array([[1, 2], [10, 20], [100, 200]], numpy.float32)
    >>> quern.moe_sum(x, numpy.array([[0.5, 2]], numpy.float32), numpy.array([[2, 0]], numpy.int32))
    array([[ 52., 104.]], dtype=float32)
    """
    def shape():
        tokens = next((t.shape[0] for t in (row_of_pair, weights, addend) if t is not None and t.shape), None)
        if tokens is None:
            raise ValueError("moe_sum: out is None; needed without weights, row_of_pair and addend")
        return tokens, *x.shape[1:]

    out = new_output("moe_sum", x, shape, dtype, out)
    _ops.moe_sum(out, x, weights, row_of_pair, addend)
    return out


@public(op="fused_moe", is_interleaved="interleaved", w_is_packed="packed")
def fused_moe(x: A, w1: Array, w2: Array, weights: Array, ids: Array, function: MoeFunction = "silu", *, w1_scale: Array | None = None,
              w2_scale: Array | None = None, bias1: Array | None = None, bias2: Array | None = None, x_scale: Array | None = None,
              expert_map: Array | None = None, addend: Array | None = None, limit: float = 0.0, alpha: float = 0.0,
              interleaved: bool = False, packed: bool = False, inner: int = 0, dtype: DType | None = None, out: Array | None = None,
              workspace: Array | None = None) -> Any:
    """Computes a layer of experts: out[t] = addend[t] + sum over j of weights[t, j] * expert ids[t, j] of x[t].

    An expert computes function(x @ w1.T + bias1) @ w2.T + bias2, where function acts on gate and up, as moe_activate says.

    x            [tokens, hidden] of bf16, f16 or FP8, the last dimension contiguous. With w1 of FP8, x of 16 bits is quantised to
                 w1's kind by 1 x 128
    w1           [experts, 2 inner, hidden] of any type that gemm takes: gates, then ups
    w2           [experts, hidden, inner] likewise. If it is of FP8, what function makes is quantised to its kind by 1 x 128
    weights      f32 [tokens, top_k], the last dimension contiguous
    ids          i32 [tokens, top_k], likewise: experts, or -1, which does not count
    function     "silu", "gelu", "gelu_tanh" or "swiglu"
    w1_scale     as scale_b of gemm_grouped_contiguous: f32 [experts, ceil(2 inner / 128), ceil(hidden / 128)], [experts], ...
    w2_scale     likewise
    bias1        [experts, 2 inner] of bf16 or f32, in the order of w1's rows; None: none
    bias2        [experts, hidden] likewise
    x_scale      f32 [tokens, ceil(hidden / 128)] or [tokens, 1], with x of FP8; None: x is not of FP8
    expert_map   i32 [any]: this device's number of each expert, or -1: it is elsewhere; None: ids are w1's experts
    addend       [tokens, hidden] of out's dtype: what shared experts made of the tokens; may be out. None: 0
    limit        above 0; 0 or infinity: none
    alpha        of "swiglu", above 0 and finite; 0 means 1.702. Of others 0
    interleaved  True: rows of w1 are gate, up, gate, up, ...
    packed       True: weights and scales come from gemm_pack
    inner        packed weights: the inner size, without padding; else 0
    dtype        of a new out: f32, f16 or bf16; None: x's, bf16 for FP8
    out          [tokens, hidden]; None: a new one
    workspace    u8 [any], large enough; overwritten. None: a new one

    Returns out. Raises ValueError (shape, stride, overlap, numbers, indices, a workspace too small), NotImplementedError (dtype,
    device, over 2048 experts on a GPU), TypeError (no array, no number); nothing is written then. Indices are looked at on the CPU,
    and on a GPU with QUERN_VALIDATE=1; else a GPU takes an index out of range for -1.

    >>> x, w1, w2 = (numpy.ones(shape, numpy.float16) for shape in ((1, 8), (2, 4, 8), (2, 8, 2)))
    >>> quern.fused_moe(x, w1, w2, numpy.ones((1, 1), numpy.float32), numpy.array([[1]], numpy.int32))[0, :2]
    array([127.94, 127.94], dtype=float16)
    """
    op = "fused_moe"
    number, is_interleaved = choice(op, "function", function, _FUNCTIONS), flag(op, "interleaved", interleaved)
    is_packed = flag(op, "packed", packed)
    (tokens, hidden), (experts, _, _), (_, _, of_w2) = dims(op, "x", x, 2), dims(op, "w1", w1, 3), dims(op, "w2", w2, 3)
    out = new_output(op, x, lambda: (tokens, hidden), dtype, out)
    if workspace is None:
        pairs, columns = tokens * dims(op, "ids", ids, 2)[1], inner if is_packed else of_w2
        workspace = empty_like(x, shape=(_workspace(tokens, pairs, hidden, max(columns, 0), experts),), dtype="uint8")
    _ops.fused_moe(out, workspace, x, x_scale, w1, w2, w1_scale, w2_scale, bias1, bias2, weights, ids, expert_map, addend, number,
                   limit, alpha, is_interleaved, is_packed, inner)
    return out


def _workspace(tokens, pairs, hidden, inner, experts):
    """Returns the bytes that qn_fused_moe_workspace tells."""
    of_hidden, of_inner = -(-hidden // 128), -(-inner // 128)
    pair = 12 + 4 * hidden + 4 * of_hidden + 6 * inner + 4 * of_inner
    return 4 * experts + tokens * (hidden + 4 * of_hidden) + pairs * pair + 16 * (2 * of_hidden + of_inner) + 13 * 256
