# SPDX-License-Identifier: Apache-2.0
"""Attention over dense, ragged and paged keys and values, its plans, merging of partial results, dropout's mask and
random numbers.

Raises ValueError (shape, stride, scalars, masks that exclude each other, a plan for other tensors), NotImplementedError
(dtype, head_dim, pos_encoding "alibi" with logits_soft_cap); nothing is written then.
"""

import numpy

from . import _ops, _tensor
from ._kvcache import is_hnd
from ._native import ffi
from ._tensor import empty_like

_POS_ENCODINGS = {"none": 0, "rope_llama": 1, "alibi": 2}
_LSE_BASES = {2: 0, "e": 1}


def _choice(op, name, value, table):
    if value not in table:
        raise ValueError(f"{op}: {name} is {value!r}; accepted: {', '.join(map(repr, table))}")
    return table[value]


# ---- plans

class AttentionPlan:
    """The schedule of a batch, which attention takes as often as one likes. Pure: the same lengths give the same bytes.

    host             the bytes, a u8 array, which may be stored and sent
    workspace_bytes  what attention's workspace must have
    """

    host: numpy.ndarray
    workspace_bytes: int

    def __init__(self, host, workspace_bytes):
        self.host, self.workspace_bytes = host, workspace_bytes
        torch = _tensor.torch
        self._tensor = host if torch is None else torch.from_numpy(host)
        self._schedules = {}

    def host_for(self, x):
        """The bytes as a call on tensors like x takes them."""
        return self._tensor if _tensor.is_torch(x) else self.host

    def schedule(self, x):
        """A copy on x's device, made once; None on the CPU, which reads the bytes themselves."""
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

    def put_schedule(self, buffer):
        """Copies the schedule to a PyTorch tensor of bytes, which calls on its device read: a captured graph does so again."""
        if buffer.numel() < self.host.size:
            raise ValueError(f"put_schedule: buffer has {buffer.numel()} bytes, needs {self.host.size}")
        place = buffer[:self.host.size]
        place.copy_(_tensor.torch.from_numpy(self.host))
        self._schedules[True, _tensor.device_of(buffer)] = place


def _host(name, x, count):
    """An index array of count numbers in host memory, as i32; None stays None."""
    if x is None:
        return None
    if _tensor.is_torch(x):
        x = x.detach().cpu().numpy()
    elif isinstance(x, _tensor.Tensor):
        x = _tensor.numpy_of(x)
    array = numpy.asarray(x)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"attention_plan: {name} has shape {list(array.shape)} of {array.dtype}, needs integers in a row")
    if count is not None and array.size != count:
        raise ValueError(f"attention_plan: {name} has {array.size} entries, needs {count}")
    if array.size and not -2**31 <= array.min() <= array.max() < 2**31:
        raise ValueError(f"attention_plan: {name} has entries beyond 32 bits")
    return numpy.ascontiguousarray(array, numpy.int32)


def _batches(qo_indptr, kv_indptr, kv_lens, batches):
    for array, extra in ((qo_indptr, 1), (kv_indptr, 1), (kv_lens, 0)):
        if batches is None and array is not None:
            batches = len(array) - extra
    if batches is None or batches < 0:
        raise ValueError("attention_plan: batches is missing; needed without qo_indptr, kv_indptr and kv_lens")
    return batches


def attention_plan(num_qo_heads, num_kv_heads, head_dim_vo, qo_indptr=None, kv_indptr=None, kv_last_page_len=None,
                   kv_lens=None, batches=None, qo_len=0, kv_len=0, page_size=0, kv_chunk=0, max_kv_splits=0, q_tile=0,
                   num_compute_units=0, max_qo_len=0, max_kv_len=0, is_for_graph=False):
    """The schedule of ragged, paged or padded attention, from index arrays, which are read on the host: an AttentionPlan.

    qo_indptr         [batches + 1] where each request's queries begin; None: dense q, of qo_len queries each
    kv_indptr         [batches + 1] where its keys begin, with page_size its places in kv_indices; None: dense k and v
    kv_last_page_len  [batches] keys in the last page, 1 to page_size; ignored where a request has no pages
    kv_lens           [batches] of dense k and v, keys in use; None: kv_len each
    kv_chunk          keys that one workgroup sums up before chunks are merged; 0: by each request's own lengths, so that
                      its bits do not depend on the batch; -1: not split
    max_kv_splits     workgroups that share a request's chunks; 0: one each
    q_tile, num_compute_units  how rows are cut; they change no bit
    max_qo_len, max_kv_len     that dropout counts by; 0: the longest
    is_for_graph      a graph captured with this plan takes later plans of any lengths, put where this one's schedule was
                      (put_schedule), as long as the workspace of the captured call is large enough for them
    """
    batches = _batches(qo_indptr, kv_indptr, kv_lens, batches)
    arrays = (_host("qo_indptr", qo_indptr, batches + 1), _host("kv_indptr", kv_indptr, batches + 1),
              _host("kv_last_page_len", kv_last_page_len, batches), _host("kv_lens", kv_lens, batches))
    numbers = (batches, qo_len, kv_len, page_size, num_qo_heads, num_kv_heads, head_dim_vo, kv_chunk, max_kv_splits, q_tile,
               num_compute_units, max_qo_len, max_kv_len, int(is_for_graph))
    sizes = numpy.zeros(2, numpy.int64)
    ffi.attention_plan(None, sizes, *arrays, *numbers)
    host = numpy.zeros(int(sizes[0]), numpy.uint8)
    ffi.attention_plan(host, sizes, *arrays, *numbers)
    return AttentionPlan(host, int(sizes[1]))


# ---- attention

_WORKSPACE = 8  # its place among the native op's arguments


def with_workspace(arguments):
    """The native op's arguments with the workspace that dense tensors need, if there is none. For the custom op as well."""
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


def _output_dtype(q, dtype):
    return "bf16" if dtype is None and _tensor.item_size(q) == 1 else dtype


def _word(x):
    """A 64-bit word as the signed number that the native op takes."""
    x &= 2**64 - 1
    return x - 2**64 if x >= 2**63 else x


def _window(name, value):
    if value < -1:
        raise ValueError(f"attention: {name} is {value}; accepted: 0 or above, -1 for none")
    return value


def attention(q, k, v, *, layout="NHD", plan=None, kv_indices=None, is_causal=False, is_top_left=False, window_left=-1,
              window_right=-1, custom_mask=None, mask=None, pos_encoding="none", rope_scale=1.0, rope_theta=1e4,
              sm_scale=None, logits_soft_cap=0.0, q_scale=1.0, k_scale=1.0, v_scale=1.0, q_scales=None, k_scales=None,
              v_scales=None, sinks=None, dropout_p=0.0, dropout_seed=0, dropout_offset=0, lse_base=2, return_lse=False,
              dtype=None, out=None, lse=None, workspace=None):
    """softmax(sm_scale q k^T) v, each query over the keys that it sees: out, or (out, lse) with return_lse.

    q, k, v     dense [batch, n, heads, head_dim], with layout "HND" [batch, heads, n, head_dim], any strides; with a plan
                ragged [tokens, heads, head_dim] ("HND": k and v [heads, tokens, head_dim]); with kv_indices, k and v are
                pages [pages, page_size, heads, head_dim] ("HND": [pages, heads, page_size, head_dim]). q's heads are a
                multiple of k's; v may have a head_dim of its own
    plan        an AttentionPlan, of ragged, paged or padded requests
    kv_indices  i32: the requests' pages, one after another
    is_causal   query i sees keys up to i + kv_len - qo_len; is_top_left: up to i
    window_left, window_right   keys before and after that place which are seen; -1: all
    custom_mask  u8, bits qo_len * kv_len of each request, lowest first, each request beginning at a byte; is_causal is
                 ignored beside it
    mask        of dense q and k: boolean, true where a key is seen, or numbers that are added; [(batch,) (heads,) queries,
                keys], each of them 1 or whole; not beside is_causal or custom_mask
    pos_encoding  "none", "rope_llama" (q and k are turned by rope_scale and rope_theta; an even head_dim), "alibi"
    sm_scale    None: 1 / sqrt(head_dim). logits_soft_cap c: scores become c tanh(score / c); 0: off
    q_scale, k_scale, v_scale     of FP8 tensors; q_scales, k_scales, v_scales: the same for each head, f32
    sinks       f32 [q's heads]: e^sink joins each query's denominator
    dropout_p   weights are dropped by attention_dropout_mask's rule, the others scaled by 1 / (1 - dropout_p)
    lse_base    2 or "e": of lse, f32 as q without its last dimension; -infinity for a query that sees no key
    dtype       of a new out; None: q's, bf16 for FP8
    workspace   u8 of plan.workspace_bytes; None: made as needed

    On a GPU a slow kernel takes dropout, rope_llama, q of f32, and a head_dim that is no multiple of 8 or above 256; with
    QUERN_LOG=kernel it says so.
    """
    if sm_scale is not None and sm_scale == 0:
        raise ValueError("attention: sm_scale is 0; accepted: any other number, None for 1 / sqrt(head_dim)")
    if out is None:
        out = empty_like(q, shape=(*q.shape[:-1], v.shape[-1]), dtype=_output_dtype(q, dtype))
    if return_lse and lse is None:
        lse = empty_like(q, shape=tuple(q.shape[:-1]), dtype="f32")
    host = schedule = None
    if plan is not None:
        host, schedule = plan.host_for(q), plan.schedule(q)
        if workspace is None and plan.workspace_bytes > 0:
            workspace = empty_like(q, shape=(plan.workspace_bytes,), dtype="u8")
    arguments = [out, lse, q, k, v, kv_indices, host, schedule, workspace, custom_mask, mask, q_scales, k_scales, v_scales,
                 sinks, is_hnd("attention", layout), bool(is_causal), bool(is_top_left),
                 _window("window_left", window_left), _window("window_right", window_right),
                 _choice("attention", "pos_encoding", pos_encoding, _POS_ENCODINGS),
                 _choice("attention", "lse_base", lse_base, _LSE_BASES), _word(dropout_seed), _word(dropout_offset),
                 rope_scale, rope_theta, sm_scale or 0.0, logits_soft_cap, q_scale, k_scale, v_scale, dropout_p]
    if not _ops.is_being_traced():  # the custom op in the graph makes its own
        arguments = with_workspace(arguments)
    _ops.attention(*arguments)
    return (out, lse) if return_lse else out


# ---- merging

def merge_state(v_a, s_a, v_b, s_b, lse_base=2, v=None, s=None):
    """Merges attention over two sets of keys: (v, s), v [n, heads, head_dim] and s [n, heads] f32, the lse.

    v and s may be v_a and s_a, together. Both lse -infinity: zeros and -infinity.
    """
    v, s = (empty_like(v_a) if v is None else v), (empty_like(s_a) if s is None else s)
    _ops.merge_state(v, s, v_a, s_a, v_b, s_b, _choice("merge_state", "lse_base", lse_base, _LSE_BASES))
    return v, s


def merge_states(v_states, s_states, lse_base=2, v=None, s=None):
    """Merges states, v_states [n, states, heads, head_dim] and s_states [n, states, heads]: (v, s)."""
    shape = (v_states.shape[0], *v_states.shape[2:])
    v = empty_like(v_states, shape=shape) if v is None else v
    s = empty_like(s_states, shape=shape[:2]) if s is None else s
    _ops.merge_states(v, s, v_states, s_states, _choice("merge_states", "lse_base", lse_base, _LSE_BASES))
    return v, s


def attention_dropout_mask(r, dropout_p, seed=0, offset=0):
    """Writes into r [batch, heads, queries, keys] 0.5 where dropout keeps a weight, -0.5 where it drops it; gives r.

    Element (b, h, m, n) has lane n % 4 of Philox4x32-10 with key seed and counter
    offset + ((b heads + h) queries + m) ceil(keys / 4) + n / 4; it is kept if that, as i32, is above
    i32((dropout_p - 0.5) 0xFFFFFFFF).
    """
    _ops.attention_dropout_mask(r, dropout_p, _word(seed), _word(offset))
    return r


def attention_dropout_rng(r, seed=0, offset=0):
    """Writes into r [batch, heads, queries, keys] the random numbers by which dropout decides; gives r.

    i32: the words of Philox that attention_dropout_mask compares; f32: word * 2.32830658e-10 + 0.5, from 0 to 1.
    """
    _ops.attention_dropout_rng(r, _word(seed), _word(offset))
    return r
