# SPDX-License-Identifier: Apache-2.0
"""AOTriton's flash attention, the v2 set of calls, over quern: on PyTorch tensors of any device.

Names and parameters are AOTriton's (0.9). These differ: tensors are PyTorch's, or None where AOTriton takes an empty
view; calls are queued on PyTorch's current stream; an error is an exception, not a code; head sizes are 1 to 512; a
query that sees no key has a log-sum-exp of minus infinity. Log-sum-exps are natural ones. is_causal counts from the top
left.
"""

import logging

import numpy
import torch

import quern.torch  # noqa: F401  (torch.ops.quern)

from .. import _tensor
from .._attention import attention, attention_backward, attention_dropout_mask, attention_dropout_rng, attention_plan
from ..torch import _slow

_logger = logging.getLogger("quern.compat.aotriton")


def _number(x):
    """Returns a number, or the number in a tensor of one, which is read on the host and so waits for the device; None
    is 0."""
    return 0 if x is None else int(x)


def _is_there(t):
    return t is not None and t.numel() > 0


def _dropout(dropout_p, philox_seed, philox_offset1, philox_offset2, seed_out, offset_out):
    """Returns quern's options, and writes the seed and offset that are used to seed_out and offset_out."""
    if not dropout_p:
        return {}
    seed, offset = _number(philox_seed), _number(philox_offset1) + philox_offset2
    for out, value in ((seed_out, seed), (offset_out, offset)):
        if _is_there(out):
            out.fill_(value - 2**64 if value >= 2**63 and out.dtype == torch.int64 else value)
    return {"dropout_p": dropout_p, "dropout_seed": seed, "dropout_offset": offset}


def _refuse_encoded(op, encoded_softmax):
    if _is_there(encoded_softmax):
        raise NotImplementedError(f"{op}: encoded_softmax is not supported; debug_simulate_encoded_softmax tells what is dropped")


def attn_fwd(q, k, v, b, sm_scale, softmax_lse, Out, dropout_p=0.0, philox_seed=None, philox_offset1=None, philox_offset2=0,
             seed_out=None, offset_out=None, encoded_softmax=None, is_causal=False, atomic_for_causal=None, stream=None,
             ext=None):
    """Out = softmax(sm_scale q k^T + b) v.

    q, Out       [batch, heads, n, head_dim], any strides with the last 1; k, v [batch, kv heads, m, head_dim]
    b            added: [batch, heads, n, m], each dimension 1 or whole; None. Not with is_causal
    softmax_lse  [batch * heads, n] f32, or None
    philox_seed, philox_offset1   numbers or tensors of one, read on the host; the offset is their sum with philox_offset2
    atomic_for_causal, stream, ext   change nothing; they are for AOTriton's scratch memory and scheduling
    """
    op = "attn_fwd"
    _refuse_encoded(op, encoded_softmax)
    lse = softmax_lse.view(q.shape[:-1]) if _is_there(softmax_lse) else None
    attention(q, k, v, layout="HND", mask=b if _is_there(b) else None, sm_scale=sm_scale, is_causal=is_causal, is_top_left=True,
              out=Out, lse=lse, lse_base="e",
              **_dropout(dropout_p, philox_seed, philox_offset1, philox_offset2, seed_out, offset_out))
    _slow.note(_logger, op, [q])


def _plan(op, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, b, **tensors):
    """Returns the plan of sequences that lie one after another; checks what is given of them."""
    if _is_there(b):
        raise NotImplementedError(f"{op}: b is not supported; accepted: None")
    for name, t in tensors.items():
        if t.ndim != 4 or t.shape[0] != 1:
            raise ValueError(f"{op}: {name} has shape {list(t.shape)}, needs [1, heads, tokens, head_dim]")
    for name, most, indptr in (("max_seqlen_q", max_seqlen_q, cu_seqlens_q), ("max_seqlen_k", max_seqlen_k, cu_seqlens_k)):
        longest = int(indptr.diff().max()) if indptr.numel() > 1 else 0
        if most < longest:
            raise ValueError(f"{op}: {name} is {most}, the longest sequence has {longest}")
    return attention_plan(tensors["q"].shape[1], tensors["k"].shape[1], tensors["v"].shape[3], qo_indptr=cu_seqlens_q,
                          kv_indptr=cu_seqlens_k, max_qo_len=max_seqlen_q, max_kv_len=max_seqlen_k)


def attn_fwd_compact_varlen(q, k, v, b, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, sm_scale, softmax_lse, Out,
                            dropout_p=0.0, philox_seed=None, philox_offset1=None, philox_offset2=0, seed_out=None,
                            offset_out=None, encoded_softmax=None, is_causal=False, atomic_for_causal=None, stream=None,
                            ext=None):
    """Computes attn_fwd of sequences that lie one after another: q, Out [1, heads, tokens, head_dim], k, v [1, kv
    heads, tokens, head_dim].

    cu_seqlens_q, cu_seqlens_k  [sequences + 1] i32, where each sequence begins; read on the host max_seqlen_q,
    max_seqlen_k  at least the longest sequence; dropout counts by them
    softmax_lse                 [heads, tokens] f32, or None; b must be None
    """
    op = "attn_fwd_compact_varlen"
    _refuse_encoded(op, encoded_softmax)
    plan = _plan(op, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, b, q=q, k=k, v=v, Out=Out)
    q, k, v, out = (t[0].transpose(0, 1) for t in (q, k, v, Out))
    lse = softmax_lse.transpose(0, 1) if _is_there(softmax_lse) else None
    tokens = int(cu_seqlens_q[-1])  # tokens behind the last sequence are left alone
    attention(q[:tokens], k, v, plan=plan, sm_scale=sm_scale, is_causal=is_causal, is_top_left=True, out=out[:tokens],
              lse=None if lse is None else lse[:tokens], lse_base="e",
              **_dropout(dropout_p, philox_seed, philox_offset1, philox_offset2, seed_out, offset_out))
    _slow.note(_logger, op, [q])


# ---- gradients

def attn_bwd(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse, delta, dropout_p=0.0, philox_seed=None,
             philox_offset1=None, philox_offset2=0, is_causal=False, stream=None, extargs=None):
    """Writes the gradients of a loss by q, k, v and b to dq, dk, dv and db, from its gradient by out, dout.

    q, k, v, b, sm_scale, out, softmax_lse, dropout_p, philox_seed, philox_offset1, philox_offset2, is_causal  of the call of attn_fwd,
                 after it; b and db may be None; softmax_lse is needed, and db only with b
    dout, dq, dk, dv, db  shaped as out, q, k, v, b; gradients of f32, f16 or bf16
    delta, stream, extargs   change nothing; they are for AOTriton's scratch memory and scheduling
    """
    op = "attn_bwd"
    _need_lse(op, softmax_lse)
    attention_backward(dout, q, k, v, out, softmax_lse.view(q.shape[:-1]), layout="HND", mask=b if _is_there(b) else None,
                       sm_scale=sm_scale, is_causal=is_causal, is_top_left=True, lse_base="e", dq=dq, dk=dk, dv=dv,
                       dmask=db if _is_there(db) else None,
                       **_dropout(dropout_p, philox_seed, philox_offset1, philox_offset2, None, None))
    _slow.note(_logger, op, [q])


def attn_bwd_fused(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse, dropout_p=0.0, philox_seed=None, philox_offset1=None,
                   philox_offset2=0, is_causal=False, stream=None, extargs=None):
    """Computes attn_bwd, without AOTriton's delta."""
    attn_bwd(q, k, v, b, sm_scale, out, dout, dq, dk, dv, db, softmax_lse, None, dropout_p, philox_seed, philox_offset1, philox_offset2,
             is_causal)


def attn_bwd_compact_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, b, sm_scale, out, dout, dq, dk, dv, db,
                            softmax_lse, delta, dropout_p=0.0, philox_seed=None, philox_offset1=None, philox_offset2=0,
                            is_causal=False, stream=None, extargs=None):
    """Computes attn_bwd of sequences that lie one after another, as attn_fwd_compact_varlen has them.

    b and db must be None; softmax_lse is [heads, tokens] f32. Gradients of tokens of no sequence are left alone.
    """
    op = "attn_bwd_compact_varlen"
    _need_lse(op, softmax_lse)
    if _is_there(db):
        raise NotImplementedError(f"{op}: db is not supported; accepted: None")
    plan = _plan(op, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, b, q=q, k=k, v=v, out=out, dout=dout, dq=dq, dk=dk, dv=dv)
    q, k, v, out, dout, dq, dk, dv = (t[0].transpose(0, 1) for t in (q, k, v, out, dout, dq, dk, dv))
    tokens = int(cu_seqlens_q[-1])
    attention_backward(dout[:tokens], q[:tokens], k, v, out[:tokens], softmax_lse.transpose(0, 1)[:tokens], plan=plan, sm_scale=sm_scale,
                       is_causal=is_causal, is_top_left=True, lse_base="e", dq=dq[:tokens], dk=dk, dv=dv,
                       **_dropout(dropout_p, philox_seed, philox_offset1, philox_offset2, None, None))
    _slow.note(_logger, op, [q])


def _need_lse(op, softmax_lse):
    if not _is_there(softmax_lse):
        raise ValueError(f"{op}: softmax_lse is None; it needs what the forward pass wrote")


def check_gpu(stream=None):
    """Raises RuntimeError if there is no attention kernel for the device: PyTorch's current GPU, or that of a torch.cuda.Stream, a
    torch.device or a name such as "sim:gfx1151"."""
    spec = getattr(stream, "device", stream)
    spec = "cuda:0" if spec is None else str(spec)
    if spec.startswith(("sim:", "cpu")):
        x = _tensor.to(numpy.zeros((1, 1, 1, 64), numpy.float16), spec)
    else:
        x = torch.zeros(1, 1, 1, 64, dtype=torch.float16, device=spec)
    try:
        attention(x, x, x)
    except NotImplementedError as error:
        raise RuntimeError(f"hipErrorNoBinaryForGpu: {error}") from error


# ---- dropout

def debug_simulate_encoded_softmax(r, dropout_p, philox_seed, philox_offset1=None, philox_offset2=0, stream=None):
    """Writes 0.5 into r [batch, heads, n, m] where a weight is kept, -0.5 where it is dropped."""
    attention_dropout_mask(r, dropout_p, _number(philox_seed), _number(philox_offset1) + philox_offset2)


def debug_fill_dropout_rng(r, philox_seed, philox_offset, stream=None):
    """Writes dropout's random numbers into r [batch, heads, n, m]: i32 as they are, f32 as word 2.32830658e-10 + 0.5."""
    attention_dropout_rng(r, _number(philox_seed), _number(philox_offset))


debug_fill_dropout_rng_tensor = debug_fill_dropout_rng  # AOTriton's takes the numbers as tensors of one, which
                                                        # debug_fill_dropout_rng here takes too
