# SPDX-License-Identifier: Apache-2.0
"""Attention over dense, ragged and paged keys and values, its plans, merging of partial results, dropout's mask and
random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy

from . import _ops, _tensor
from ._kvcache import is_hnd
from ._native import ffi
from ._public import flag, found, public
from ._tensor import choose_dtype, dims, empty_like
from ._types import A, Array, DType, Layout, LseBase, PosEncoding

_POS_ENCODINGS = {"none": 0, "rope_llama": 1, "alibi": 2}
LSE_BASES = {2: 0, "e": 1}


def choice(op, name, value, table):
    if value not in table:
        raise ValueError(f"{op}: {name} is {found(value)}; accepted: {', '.join(map(repr, table))}")
    return table[value]


# ---- plans

class AttentionPlan:
    """The schedule of a batch, which attention may take any number of times. Equal lengths give equal bytes.

    host             the bytes, a u8 array, which may be stored and sent
    workspace_bytes  the bytes that attention's workspace must have

    >>> plan = quern.attention_plan(8, 2, 128, qo_indptr=[0, 1], kv_indptr=[0, 20])
    >>> plan.host.dtype, plan.workspace_bytes
    (dtype('uint8'), 0)
    """

    host: numpy.ndarray[Any, Any]
    workspace_bytes: int

    def __init__(self, host: numpy.ndarray[Any, Any], workspace_bytes: int) -> None:
        self.host, self.workspace_bytes = host, workspace_bytes
        torch = _tensor.torch
        self._tensor = host if torch is None else torch.from_numpy(host)
        self._schedules = {}

    def host_for(self, x):
        """Returns the bytes as calls on tensors like x take them."""
        return self._tensor if _tensor.is_torch(x) else self.host

    def schedule(self, x):
        """Returns a copy on x's device, made once; None on the CPU, which reads the host's bytes."""
        device = _tensor.device_of(x)
        if device is None:
            return None
        key = _tensor.is_torch(x), device
        if key not in self._schedules:
            copy = empty_like(x, shape=self.host.shape, dtype="u8")
            if _tensor.is_torch(x):
                copy.copy_(_tensor.torch.from_numpy(self.host))
            else:
                ffi.copy(copy, self.host)
            self._schedules[key] = copy
        return self._schedules[key]

    def put_schedule(self, buffer: Any) -> None:
        """Copies the schedule to a PyTorch tensor of bytes. Calls on its device, and replayed graphs, read the schedule there.

        Raises ValueError if the buffer is too small, TypeError if it is no PyTorch tensor.
        """
        if not _tensor.is_torch(buffer):
            raise TypeError(f"put_schedule: buffer is {found(buffer)}; accepted: a PyTorch tensor of bytes")
        if buffer.numel() < self.host.size:
            raise ValueError(f"put_schedule: buffer has {buffer.numel()} bytes, needs {self.host.size}")
        place = buffer[:self.host.size]
        place.copy_(_tensor.torch.from_numpy(self.host))
        self._schedules[True, _tensor.device_of(buffer)] = place


def _host(name, x):
    """Returns an index array in host memory, as i32; None stays None."""
    if x is None:
        return None
    if _tensor.is_torch(x):
        x = x.detach().cpu().numpy()
    elif isinstance(x, _tensor.Tensor):
        x = _tensor.numpy_of(x)
    if fault := _tensor.fault_of(x):
        raise ValueError(f"attention_plan: {name} {fault}")
    try:
        array = numpy.asarray(x)
    except ValueError:  # of lists in lists of several lengths
        raise ValueError(f"attention_plan: {name} is {found(x)}, needs integers in a row") from None
    if isinstance(x, Sequence) and not x:
        array = array.astype(numpy.int32)  # of an empty list NumPy makes numbers with fractions
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"attention_plan: {name} has shape {list(array.shape)} of {array.dtype}, needs integers in a row")
    if array.size and not -2**31 <= array.min() <= array.max() < 2**31:
        raise ValueError(f"attention_plan: {name} has entries beyond 32 bits")
    return numpy.ascontiguousarray(array, numpy.int32)


def _batches(arrays, batches):
    """Returns the number of requests. All arrays must agree on it; an array has one entry for each request, or one more."""
    for name, (array, more) in arrays.items():
        if array is None:
            continue
        if batches is None:
            batches = len(array) - more
        if batches < 0:
            raise ValueError(f"attention_plan: batches is {batches}; accepted: 0 or above")
        if len(array) != batches + more:
            raise ValueError(f"attention_plan: {name} has {len(array)} entries, needs {batches + more} for {batches} batches")
    if batches is None:
        raise ValueError("attention_plan: batches is None; needed without qo_indptr, kv_indptr and kv_lens")
    return batches


@public()
def attention_plan(num_qo_heads: int, num_kv_heads: int, head_dim_vo: int, qo_indptr: Array | Sequence[int] | None = None,
                   kv_indptr: Array | Sequence[int] | None = None, kv_last_page_len: Array | Sequence[int] | None = None,
                   kv_lens: Array | Sequence[int] | None = None, batches: int | None = None, qo_len: int = 0,
                   kv_len: int = 0, page_size: int = 0, kv_chunk: int = 0, max_kv_splits: int = 0, q_tile: int = 0,
                   num_compute_units: int = 0, max_qo_len: int = 0, max_kv_len: int = 0,
                   is_for_graph: bool = False) -> AttentionPlan:
    """Makes the schedule of ragged, paged or padded attention from index arrays, which are read on the host.

    num_qo_heads       heads of q, a multiple of num_kv_heads
    num_kv_heads       heads of k and v
    head_dim_vo        head_dim of v
    qo_indptr          [batches + 1] where each request's queries begin, not falling; None: dense q, of qo_len queries each
    kv_indptr          [batches + 1] where each request's keys begin, with page_size its entries of kv_indices; None: dense k, v
    kv_last_page_len   [batches] keys in the last page, 1 to page_size; ignored for a request without pages
    kv_lens            [batches] of dense k and v, keys in use; None: kv_len each
    batches            how many requests; None: as the arrays say
    qo_len             queries of a request of dense q
    kv_len             keys of a request of dense k and v
    page_size          keys of a page; 0: not paged
    kv_chunk           keys that one workgroup sums up before chunks are merged; 0: by each request's own lengths, so that
                       its bits do not depend on the batch; -1: not split
    max_kv_splits      workgroups that share a request's chunks; 0: one each
    q_tile             rows of a workgroup: 16, 64, 128 or 256; 0: by lengths. It changes no bit
    num_compute_units  of the device, for q_tile; 0: unknown
    max_qo_len         that dropout counts by; 0: the longest
    max_kv_len         that dropout counts by; 0: the longest
    is_for_graph       a graph captured with this plan takes later plans of any lengths, put where this one's schedule was
                       (put_schedule), as long as the workspace of the captured call is large enough for them; q may have
                       more queries than the plan

    Returns an AttentionPlan. Raises ValueError (lengths, heads, arrays that fall or have another length), TypeError (no
    integers).

    >>> plan = quern.attention_plan(num_qo_heads=8, num_kv_heads=2, head_dim_vo=128, qo_indptr=[0, 1, 4], kv_indptr=[0, 2, 3],
    ...                             kv_last_page_len=[4, 9], page_size=16)
    >>> plan.workspace_bytes
    0
    """
    named = {"qo_indptr": (_host("qo_indptr", qo_indptr), 1), "kv_indptr": (_host("kv_indptr", kv_indptr), 1),
             "kv_last_page_len": (_host("kv_last_page_len", kv_last_page_len), 0), "kv_lens": (_host("kv_lens", kv_lens), 0)}
    batches = _batches(named, batches)
    arrays = [array for array, _ in named.values()]
    numbers = (batches, qo_len, kv_len, page_size, num_qo_heads, num_kv_heads, head_dim_vo, kv_chunk, max_kv_splits, q_tile,
               num_compute_units, max_qo_len, max_kv_len, flag("attention_plan", "is_for_graph", is_for_graph))
    sizes = numpy.zeros(2, numpy.int64)
    ffi.attention_plan(None, sizes, *arrays, *numbers)
    host = numpy.zeros(int(sizes[0]), numpy.uint8)
    ffi.attention_plan(host, sizes, *arrays, *numbers)
    return AttentionPlan(host, int(sizes[1]))


# ---- attention

_WORKSPACE = 8  # its place among the native op's arguments


def with_workspace(arguments):
    """Returns the native op's arguments, with a new workspace if dense tensors need one and none was given. The custom op
    uses it too."""
    _, _, q, k, v, _, plan, *_ = arguments
    if plan is not None or arguments[_WORKSPACE] is not None or not q.ndim == k.ndim == v.ndim == 4:
        return arguments
    try:
        needed = ffi.attention_workspace_bytes(*arguments)
    except BufferError:  # as where ops are called
        needed = ffi.attention_workspace_bytes(*_ops.lend("attention", arguments))
    if needed == 0:
        return arguments
    return [*arguments[:_WORKSPACE], empty_like(q, shape=(needed,), dtype="u8"), *arguments[_WORKSPACE + 1:]]


def new_output(op, q, shape, dtype, out):
    """Returns out, or a new array of this shape and dtype; without a dtype of q's, bf16 for FP8."""
    if out is None:
        name = choose_dtype(op, dtype, ("float32", "float16", "bfloat16")) if dtype is not None else None
        return empty_like(q, shape=shape(), dtype=name or ("bf16" if _tensor.item_size(q) == 1 else None))
    if dtype is not None and _tensor.dtype_name(dtype) != _tensor.dtype_name(out.dtype):
        raise ValueError(f"{op}: dtype is {_tensor.dtype_name(dtype)}, out has {_tensor.dtype_name(out.dtype)}; "
                         "accepted beside out: None")
    return out


def scheduled(plan, q, workspace):
    """Returns a plan's bytes, its copy on q's device and a workspace that is large enough, or the given one."""
    if workspace is None and plan.workspace_bytes > 0:
        workspace = empty_like(q, shape=(plan.workspace_bytes,), dtype="u8")
    return plan.host_for(q), plan.schedule(q), workspace


def _word(x):
    """Returns a 64-bit word as the signed number that the native op takes."""
    x &= 2**64 - 1
    return x - 2**64 if x >= 2**63 else x


def _window(op, name, value):
    if value < -1:
        raise ValueError(f"{op}: {name} is {value}; accepted: 0 or above, -1 for none")
    return value


def _check_scales(op, **scales):
    for name, value in scales.items():
        if not 0 < abs(value) < math.inf:  # C takes 0 for "not given"
            raise ValueError(f"{op}: {name} is {value}; accepted: any other finite number")


@overload
def attention(q: A, k: Array, v: Array, *, return_lse: Literal[False] = False, layout: Layout = ...,
              plan: AttentionPlan | None = ..., kv_indices: Array | None = ..., is_causal: bool = ..., is_top_left: bool = ...,
              window_left: int = ..., window_right: int = ..., custom_mask: Array | None = ..., mask: Array | None = ...,
              pos_encoding: PosEncoding = ..., rope_scale: float = ..., rope_theta: float = ..., sm_scale: float | None = ...,
              logits_soft_cap: float = ..., q_scale: float = ..., k_scale: float = ..., v_scale: float = ...,
              q_scales: Array | None = ..., k_scales: Array | None = ..., v_scales: Array | None = ...,
              sinks: Array | None = ..., dropout_p: float = ..., dropout_seed: int = ..., dropout_offset: int = ...,
              lse_base: LseBase = ..., dtype: DType | None = ..., out: A | None = ..., lse: Array | None = ...,
              workspace: Array | None = ...) -> A: ...


@overload
def attention(q: A, k: Array, v: Array, *, return_lse: bool, layout: Layout = ...,
              plan: AttentionPlan | None = ..., kv_indices: Array | None = ..., is_causal: bool = ..., is_top_left: bool = ...,
              window_left: int = ..., window_right: int = ..., custom_mask: Array | None = ..., mask: Array | None = ...,
              pos_encoding: PosEncoding = ..., rope_scale: float = ..., rope_theta: float = ..., sm_scale: float | None = ...,
              logits_soft_cap: float = ..., q_scale: float = ..., k_scale: float = ..., v_scale: float = ...,
              q_scales: Array | None = ..., k_scales: Array | None = ..., v_scales: Array | None = ...,
              sinks: Array | None = ..., dropout_p: float = ..., dropout_seed: int = ..., dropout_offset: int = ...,
              lse_base: LseBase = ..., dtype: DType | None = ..., out: A | None = ..., lse: Array | None = ...,
              workspace: Array | None = ...) -> tuple[A, Any]: ...


@public(o="out", is_hnd="layout")
def attention(q: Array, k: Array, v: Array, *, layout: Layout = "NHD", plan: AttentionPlan | None = None,
              kv_indices: Array | None = None, is_causal: bool = False, is_top_left: bool = False, window_left: int = -1,
              window_right: int = -1, custom_mask: Array | None = None, mask: Array | None = None,
              pos_encoding: PosEncoding = "none", rope_scale: float = 1.0, rope_theta: float = 1e4,
              sm_scale: float | None = None, logits_soft_cap: float = 0.0, q_scale: float = 1.0, k_scale: float = 1.0,
              v_scale: float = 1.0, q_scales: Array | None = None, k_scales: Array | None = None,
              v_scales: Array | None = None, sinks: Array | None = None, dropout_p: float = 0.0, dropout_seed: int = 0,
              dropout_offset: int = 0, lse_base: LseBase = 2, return_lse: bool = False, dtype: DType | None = None,
              out: Array | None = None, lse: Array | None = None, workspace: Array | None = None) -> Any:
    """Computes softmax(sm_scale q k^T) v, for each query over the keys that it sees: out, or (out, lse) with return_lse.

    q             dense [batch, n, heads, head_dim] of f32, f16, bf16 or FP8, with layout "HND" [batch, heads, n, head_dim], any
                  strides but the last; with a plan of ragged queries [tokens, heads, head_dim], as many as the plan has
    k, v          dense as q; ragged [tokens, heads, head_dim] ("HND": [heads, tokens, head_dim]); with kv_indices pages
                  [pages, page_size, heads, head_dim] ("HND": [pages, heads, page_size, head_dim]). q's heads are a multiple of
                  k's; v may have a head_dim of its own; both have one dtype
    layout        "NHD" or "HND"
    plan          an AttentionPlan, of ragged, paged or padded requests; needed by all but dense ones
    kv_indices    i32: the requests' pages, one after another; checked on the CPU, and on a GPU with QUERN_VALIDATE=1
    is_causal     query i sees keys up to i + kv_len - qo_len
    is_top_left   is_causal and windows count from i, not from i + kv_len - qo_len
    window_left   how many keys before i + kv_len - qo_len are seen; -1: all
    window_right  how many keys behind i + kv_len - qo_len are seen; -1: all
    custom_mask   u8, bits qo_len * kv_len of each request, lowest first, each request beginning at a byte; is_causal is
                  ignored beside it
    mask          only for dense q and k: booleans, true where a key is seen, or numbers that are added to scores; [queries,
                  keys] with heads and batch before these if wanted, each size 1 or full; not with is_causal or custom_mask
    pos_encoding  "none", "rope_llama" (q and k are rotated; head_dim is even), "alibi"
    rope_scale, rope_theta        of "rope_llama"; above 0
    sm_scale                      not 0; None: 1 / sqrt(head_dim)
    logits_soft_cap               c: scores become c tanh(score / c); 0: off
    q_scale, k_scale, v_scale     of FP8 arrays; not 0
    q_scales, k_scales, v_scales  f32 [heads], a further scale for each head
    sinks         f32 [q's heads]: e^sink joins each query's denominator
    dropout_p     from 0 to below 1: weights are dropped by attention_dropout_mask's rule, other weights are scaled by
                  1 / (1 - dropout_p)
    dropout_seed, dropout_offset  as in attention_dropout_mask
    lse_base      2 or "e": of lse
    return_lse    whether the result is (out, lse)
    dtype         of a new out: f32, f16 or bf16; None: q's, bf16 for FP8
    out           q's shape with v's head_dim; None: a new one
    lse           f32 as q without its last dimension, -infinity for a query that sees no key; written if it is given; None: a
                  new one if it is returned
    workspace     u8 of plan.workspace_bytes at least; None: made as needed

    A query that sees no key gives zeros. On a GPU a slow kernel takes rope_llama, q of f32, dropout with k of FP8, and a head_dim
    that is no multiple of 8 or above 256; QUERN_LOG=kernel prints that. Raises ValueError (shape, stride, overlap, numbers, words, masks
    that exclude each other, a plan for other arrays, indices), NotImplementedError (dtype, head_dim above 512, "alibi" with
    logits_soft_cap, device), TypeError (no array, no number); nothing is written then.

    >>> q = k = numpy.ones((1, 2, 1, 4), numpy.float32)
    >>> v = numpy.arange(8, dtype=numpy.float32).reshape(1, 2, 1, 4)
    >>> quern.attention(q, k, v, is_causal=True)[0, :, 0]
    array([[0., 1., 2., 3.],
           [2., 3., 4., 5.]], dtype=float32)
    """
    _check_scales("attention", sm_scale=1.0 if sm_scale is None else sm_scale, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale,
                  rope_scale=rope_scale, rope_theta=rope_theta)
    out = new_output("attention", q, lambda: dims("attention", "q", q, 3, 4)[:-1] + dims("attention", "v", v, 3, 4)[-1:], dtype,
                     out)
    return_lse = flag("attention", "return_lse", return_lse)
    if return_lse and lse is None:
        lse = empty_like(q, shape=tuple(q.shape[:-1]), dtype="f32")
    host = schedule = None
    if plan is not None:
        host, schedule, workspace = scheduled(plan, q, workspace)
    arguments = [out, lse, q, k, v, kv_indices, host, schedule, workspace, custom_mask, mask, q_scales, k_scales, v_scales,
                 sinks, is_hnd("attention", layout), flag("attention", "is_causal", is_causal),
                 flag("attention", "is_top_left", is_top_left),
                 _window("attention", "window_left", window_left), _window("attention", "window_right", window_right),
                 choice("attention", "pos_encoding", pos_encoding, _POS_ENCODINGS),
                 choice("attention", "lse_base", lse_base, LSE_BASES), _word(dropout_seed), _word(dropout_offset),
                 rope_scale, rope_theta, sm_scale or 0.0, logits_soft_cap, q_scale, k_scale, v_scale, dropout_p]
    if not _ops.is_being_traced():  # the custom op in the graph makes its own
        arguments = with_workspace(arguments)
    _ops.attention(*arguments)
    return (out, lse) if return_lse else out


# ---- merging

class AttentionGradients(NamedTuple):
    """What attention_backward returns: the gradients by q, k and v; by the mask and by sinks, None if they were not asked for."""

    dq: Any
    dk: Any
    dv: Any
    dmask: Any
    dsinks: Any


_BACKWARD_WORKSPACE = 5


def with_backward_workspace(arguments):
    """Returns attention_backward's native arguments with a new workspace. The custom op uses it too."""
    if arguments[_BACKWARD_WORKSPACE] is not None:
        return arguments
    try:
        needed = ffi.attention_backward_workspace_bytes(*arguments)
    except BufferError:  # as where ops are called
        needed = ffi.attention_backward_workspace_bytes(*_ops.lend("attention_backward", arguments))
    workspace = empty_like(arguments[0], shape=(needed,), dtype="u8")
    return [*arguments[:_BACKWARD_WORKSPACE], workspace, *arguments[_BACKWARD_WORKSPACE + 1:]]


@public(d_o="d_out", o="out", is_hnd="layout")
def attention_backward(d_out: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *, layout: Layout = "NHD",
                       plan: AttentionPlan | None = None, is_causal: bool = False, is_top_left: bool = False,
                       window_left: int = -1, window_right: int = -1, custom_mask: Array | None = None,
                       mask: Array | None = None, pos_encoding: PosEncoding = "none", sm_scale: float | None = None,
                       logits_soft_cap: float = 0.0, q_scale: float = 1.0, k_scale: float = 1.0, v_scale: float = 1.0,
                       q_scales: Array | None = None, k_scales: Array | None = None, v_scales: Array | None = None,
                       sinks: Array | None = None, dropout_p: float = 0.0, dropout_seed: int = 0, dropout_offset: int = 0,
                       lse_base: LseBase = 2, dq: Array | None = None, dk: Array | None = None, dv: Array | None = None,
                       dmask: Array | None = None, dsinks: Array | None = None, needs_dmask: bool = False,
                       needs_dsinks: bool = False, workspace: Array | None = None) -> AttentionGradients:
    """Computes the gradients of a loss by attention's inputs, from its gradient by attention's result: an AttentionGradients.

    d_out          the loss's gradient by out: out's shape and dtype
    q, k, v        of the call of attention, of f32, f16 or bf16; dense, or ragged with a plan
    out, lse       what that call returned, with return_lse
    layout, plan, is_causal, is_top_left, window_left, window_right, custom_mask, mask  as that call had them
    sm_scale, logits_soft_cap, q_scale, k_scale, v_scale, q_scales, k_scales, v_scales, sinks  likewise
    dropout_p, dropout_seed, dropout_offset, lse_base  likewise
    pos_encoding   "none" or "alibi"
    dq, dk, dv     of the shapes of q, k and v, of f32, f16 or bf16; None: new ones of their dtypes
    dmask          the gradient by a mask of numbers, of the mask's shape, summed where the mask has size 1
    dsinks         f32, of the shape of sinks
    needs_dmask, needs_dsinks  whether dmask and dsinks are made where none is given
    workspace      u8, as qn_attention_backward_workspace_bytes says; None: made as needed

    Results have equal bits on every run. On a GPU a slow kernel computes what none for matrix cores takes: f32, head dims above 128,
    the gradient of a mask that repeats queries or keys. Raises ValueError (shape, stride, overlap, numbers, words, dmask without a
    mask of numbers, dsinks without sinks), NotImplementedError (dtype, "rope_llama", a plan made with is_for_graph, device),
    TypeError (no array, no number); nothing is written then.

    >>> q = k = v = numpy.ones((1, 2, 1, 4), numpy.float32)
    >>> out, lse = quern.attention(q, k, v, return_lse=True)
    >>> quern.attention_backward(out, q, k, v, out, lse).dv[0, :, 0, 0].round(3)
    array([1., 1.], dtype=float32)
    """
    op = "attention_backward"
    _check_scales(op, sm_scale=1.0 if sm_scale is None else sm_scale, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
    if flag(op, "needs_dmask", needs_dmask) and dmask is None and mask is not None:
        dmask = empty_like(mask)
    if flag(op, "needs_dsinks", needs_dsinks) and dsinks is None and sinks is not None:
        dsinks = empty_like(sinks)
    gradients = AttentionGradients(*(empty_like(x) if d is None else d for d, x in ((dq, q), (dk, k), (dv, v))), dmask, dsinks)
    host, schedule = (None, None) if plan is None else (plan.host_for(q), plan.schedule(q))
    arguments = [*gradients, workspace, d_out, out, lse, q, k, v, None, host, schedule, None, custom_mask, mask, q_scales, k_scales,
                 v_scales, sinks, is_hnd(op, layout), flag(op, "is_causal", is_causal), flag(op, "is_top_left", is_top_left),
                 _window(op, "window_left", window_left), _window(op, "window_right", window_right),
                 choice(op, "pos_encoding", pos_encoding, _POS_ENCODINGS), choice(op, "lse_base", lse_base, LSE_BASES),
                 _word(dropout_seed), _word(dropout_offset), 1.0, 1e4, sm_scale or 0.0, logits_soft_cap, q_scale, k_scale, v_scale,
                 dropout_p]
    if not _ops.is_being_traced():  # the custom op in the graph makes its own
        arguments = with_backward_workspace(arguments)
    _ops.attention_backward(*arguments)
    return gradients


@public()
def merge_state(v_a: A, s_a: Array, v_b: Array, s_b: Array, lse_base: LseBase = 2, v: A | None = None,
                s: Array | None = None) -> tuple[A, Any]:
    """Merges attention over two sets of keys: (v, s). The weight of each result is base^lse.

    v_a       [n, heads, head_dim] of f32, f16 or bf16, the result over the first keys; n may be 0
    s_a       f32 [n, heads], its log-sum-exp
    v_b, s_b  the result over the other keys, and its log-sum-exp
    lse_base  2 or "e"
    v, s      shaped as v_a and s_a; they may be v_a and s_a, both together; None: new ones

    If both lse are -infinity, v is zeros and s -infinity. Raises ValueError (shape, stride, overlap, lse_base),
    NotImplementedError (dtype, device), TypeError (no array); nothing is written then.

    >>> v_a, s = numpy.ones((1, 1, 2), numpy.float32), numpy.zeros((1, 1), numpy.float32)
    >>> quern.merge_state(v_a, s, 3 * v_a, s)
    (array([[[2., 2.]]], dtype=float32), array([[1.]], dtype=float32))
    """
    v, s = (empty_like(v_a) if v is None else v), (empty_like(s_a) if s is None else s)
    _ops.merge_state(v, s, v_a, s_a, v_b, s_b, choice("merge_state", "lse_base", lse_base, LSE_BASES))
    return v, s


@public()
def merge_states(v_states: A, s_states: Array, lse_base: LseBase = 2, v: A | None = None,
                 s: Array | None = None) -> tuple[A, Any]:
    """Merges attention over any number of sets of keys, as merge_state merges two: (v, s).

    v_states  [n, states, heads, head_dim] of f32, f16 or bf16
    s_states  f32 [n, states, heads], their log-sum-exps
    lse_base  2 or "e"
    v         [n, heads, head_dim]; None: a new one
    s         f32 [n, heads]; None: a new one

    Raises what merge_state raises.

    >>> v_states = numpy.array([1, 3], numpy.float32).reshape(1, 2, 1, 1)
    >>> quern.merge_states(v_states, numpy.zeros((1, 2, 1), numpy.float32))
    (array([[[2.]]], dtype=float32), array([[1.]], dtype=float32))
    """
    first, _, *rest = dims("merge_states", "v_states", v_states, 4)
    dims("merge_states", "s_states", s_states, 3)
    shape = (first, *rest)
    v = empty_like(v_states, shape=shape) if v is None else v
    s = empty_like(s_states, shape=shape[:2]) if s is None else s
    _ops.merge_states(v, s, v_states, s_states, choice("merge_states", "lse_base", lse_base, LSE_BASES))
    return v, s


@public()
def attention_dropout_mask(r: A, dropout_p: float, seed: int = 0, offset: int = 0) -> A:
    """Writes into r 0.5 where attention's dropout keeps a weight, -0.5 where it drops it.

    r          [batch, heads, queries, keys] of f32, f16 or bf16, keys contiguous
    dropout_p  from 0 to below 1
    seed       64 bits
    offset     64 bits

    Element (b, h, m, n) has lane n % 4 of Philox4x32-10 with key seed and counter
    offset + ((b heads + h) queries + m) ceil(keys / 4) + n / 4; it is kept if that, as i32, is above
    i32((dropout_p - 0.5) 0xFFFFFFFF). Returns r. Raises ValueError (shape, stride, numbers), NotImplementedError (dtype, device),
    TypeError (no array, no number); nothing is written then.

    >>> quern.attention_dropout_mask(numpy.empty((1, 1, 1, 3), numpy.float32), 0.25, seed=1)
    array([[[[ 0.5,  0.5, -0.5]]]], dtype=float32)
    """
    _ops.attention_dropout_mask(r, dropout_p, _word(seed), _word(offset))
    return r


@public()
def attention_dropout_rng(r: A, seed: int = 0, offset: int = 0) -> A:
    """Writes into r the random numbers by which attention's dropout decides.

    r       [batch, heads, queries, keys], keys contiguous; i32: the words of Philox that attention_dropout_mask compares; f32:
            word * 2.32830658e-10 + 0.5, from 0 to 1
    seed    64 bits
    offset  64 bits

    Returns r. Raises what attention_dropout_mask raises.

    >>> quern.attention_dropout_rng(numpy.empty((1, 1, 1, 2), numpy.int32)).shape
    (1, 1, 1, 2)
    """
    _ops.attention_dropout_rng(r, _word(seed), _word(offset))
    return r
