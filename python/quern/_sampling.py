# SPDX-License-Identifier: Apache-2.0
"""Sampling of tokens, filters of probabilities and logits, penalties, speculative sampling: the same bits on every device."""

from __future__ import annotations

import numbers
from typing import Any

from . import _ops
from ._public import flag, found, public
from ._tensor import empty_like
from ._types import A, Array, FilterOrder

_ORDERS = ("top_k_first", "joint")
_VECTORS = {"temperatures": "temperature", "top_ks": "top_k", "top_ps": "top_p", "min_ps": "min_p", "seeds": "seed", "offsets": "offset"}


def _split(value, default):
    """Returns (vector, number): an array is the vector, and anything else the number."""
    return (value, default) if hasattr(type(value), "__dlpack__") else (None, value)


def _given(op, name, value, accepted):
    """Raises ValueError for a number 0, which C takes for "not given"."""
    if isinstance(value, numbers.Real) and value == 0:
        raise ValueError(f"{op}: {name} is {found(value)}; accepted: {accepted}")
    return value


def _batch(op, name, x, indices):
    """Returns how many tokens there are: one for each index, or for each row of x."""
    for argument, array, ndim in ((name, x, 2), ("indices", indices, 1)):
        if array is not None and len(array.shape) != ndim:
            raise ValueError(f"{op}: {argument} has {len(array.shape)} dimensions, needs {ndim}")
    return x.shape[0] if indices is None else indices.shape[0]


def _order(op, order):
    if order not in _ORDERS:
        raise ValueError(f"{op}: order is {found(order)}; accepted: 'top_k_first', 'joint'")
    return _ORDERS.index(order)


@public(probs="out", temperatures="temperature")
def softmax(logits: Array, temperature: float | Array = 1.0, out: Array | None = None) -> Any:
    """Computes the probabilities of logits, softmax(logits / temperature), in f32.

    logits       [rows, vocab] of f32, f16 or bf16, the last dimension contiguous; vocab from 1 to 2^22
    temperature  2^-100 to 2^100, or f32 [rows]
    out          f32 [rows, vocab]; None: a new one

    A row that holds a NaN becomes NaNs, a row of minus infinities zeros. Vectors of numbers are checked on the CPU, and on a GPU
    with QUERN_VALIDATE=1. Returns out, of logits' kind. Raises ValueError (shape, stride, overlap, temperature),
    NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> quern.softmax(numpy.array([[0, 1, 2]], numpy.float32), temperature=0.5).round(3)
    array([[0.016, 0.117, 0.867]], dtype=float32)
    """
    vector, number = _split(temperature, 1.0)
    out = empty_like(logits, dtype="float32") if out is None else out
    _ops.softmax(out, logits, vector, number)
    return out


def _sample(op, name, x, is_logits, temperature, top_k, top_p, min_p, order, indices, seed, offset, out, return_valid):
    temperatures, temperature = _split(_given(op, "temperature", temperature, "2^-100 to 2^100"), 1.0) if is_logits else (None, 0.0)
    top_ks, top_k = _split(0 if top_k is None else _given(op, "top_k", top_k, "1 or more, None"), 0)
    top_ps, top_p = _split(0.0 if top_p is None else _given(op, "top_p", top_p, "above 0, up to 1, None"), 0.0)
    min_ps, min_p = _split(min_p, 0.0)
    (seeds, seed), (offsets, offset) = _split(seed, 0), _split(offset, 0)
    joint, return_valid = _order(op, order), flag(op, "return_valid", return_valid)
    batch = _batch(op, name, x, indices)
    out = empty_like(x, shape=(batch,), dtype="int32") if out is None else out
    valid = empty_like(x, shape=(batch,), dtype="bool") if return_valid else None
    _ops.sample(out, valid, x if is_logits else None, None if is_logits else x, indices, temperatures, top_ks, top_ps, min_ps, seeds,
                offsets, temperature, top_k, top_p, min_p, joint, seed, offset)
    return (out, valid) if return_valid else out


@public(**_VECTORS)
def sample(logits: Array, temperature: float | Array = 1.0, top_k: int | Array | None = None, top_p: float | Array | None = None,
           min_p: float | Array = 0.0, order: FilterOrder = "top_k_first", indices: Array | None = None, seed: int | Array = 0,
           offset: int | Array = 0, out: Array | None = None, return_valid: bool = False) -> Any:
    """Samples a token for each row of logits.

    The same arguments give the same tokens on every device and in every batch: a row draws 64 bits of Philox 4x32-10 at counter
    `offset` of the key `seed`, and of the subsequence that is its index; 0 if each row has a seed of its own.

    logits        [rows, vocab] of f32, f16 or bf16, the last dimension contiguous; vocab from 1 to 2^22
    temperature   2^-100 to 2^100, or f32 [batch]
    top_k         keeps the k largest, and what equals the last of them: 1 or more, or i32 [batch]; None: all
    top_p         keeps those above which there is less than top_p of the mass: above 0, up to 1, or f32 [batch]; None: all
    min_p         keeps those of at least min_p times the largest probability: 0 to 1, or f32 [batch]
    order         "top_k_first": top_p counts among what top_k keeps; "joint": among all. min_p acts last
    indices       i32 [batch]: each token's row; None: batch is rows
    seed, offset  64 bits, or i64 [1] or [batch]
    out           i32 [batch]; None: a new one
    return_valid  True: returns (out, valid), bool [batch]: False for a row that holds a NaN or nothing to choose from, whose token is 0

    The values of vectors are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns out. Raises ValueError (shape,
    overlap, a number out of range), NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> logits = numpy.array([[1, 2, 3, 4], [4, 3, 2, 1]], numpy.float32)
    >>> quern.sample(logits, temperature=0.8, top_k=2, seed=5), quern.sample(logits, top_p=0.1)
    (array([2, 0], dtype=int32), array([3, 0], dtype=int32))
    """
    return _sample("sample", "logits", logits, True, temperature, top_k, top_p, min_p, order, indices, seed, offset, out, return_valid)


@public(op="sample", name="sample_probs", **_VECTORS)
def sample_probs(probs: Array, top_k: int | Array | None = None, top_p: float | Array | None = None, min_p: float | Array = 0.0,
                 order: FilterOrder = "top_k_first", indices: Array | None = None, seed: int | Array = 0, offset: int | Array = 0,
                 out: Array | None = None, return_valid: bool = False) -> Any:
    """Samples a token for each row of probabilities, as sample does of logits.

    probs         [rows, vocab] of f32, f16 or bf16, each from 0 to below 2; a row's sum need not be 1
    top_k         1 or more, or i32 [batch]; None: all
    top_p         above 0, up to 1, or f32 [batch]; None: all
    min_p         0 to 1, or f32 [batch]
    order         "top_k_first" or "joint"
    indices       i32 [batch]: each token's row; None: batch is rows
    seed, offset  64 bits, or i64 [1] or [batch]
    out           i32 [batch]; None: a new one
    return_valid  True: returns (out, valid); False for a row with a probability out of range, or of zeros, whose token is 0

    The values of vectors are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns out. Raises what sample raises.

    >>> quern.sample_probs(numpy.array([[0, 0, 1, 0], [0, 0, 0, 0]], numpy.float32), return_valid=True)
    (array([2, 0], dtype=int32), array([ True, False]))
    """
    return _sample("sample_probs", "probs", probs, False, None, top_k, top_p, min_p, order, indices, seed, offset, out, return_valid)


@public()
def sample_greedy(logits: Array, out: Array | None = None, return_valid: bool = False) -> Any:
    """Finds the first of the largest logits of each row.

    logits        [rows, vocab] of f32, f16 or bf16, the last dimension contiguous; vocab from 1 to 2^22
    out           i32 [rows]; None: a new one
    return_valid  True: returns (out, valid), bool [rows]: False for a row that holds a NaN or no finite logit, whose token is 0

    Returns out. Raises ValueError (shape, overlap), NotImplementedError (dtype, device), TypeError (no array); nothing is written
    then.

    >>> quern.sample_greedy(numpy.array([[1, 3, 3], [5, 2, 0]], numpy.float32))
    array([1, 0], dtype=int32)
    """
    return_valid = flag("sample_greedy", "return_valid", return_valid)
    batch = _batch("sample_greedy", "logits", logits, None)
    out = empty_like(logits, shape=(batch,), dtype="int32") if out is None else out
    valid = empty_like(logits, shape=(batch,), dtype="bool") if return_valid else None
    _ops.sample_greedy(out, valid, logits)
    return (out, valid) if return_valid else out


@public(top_ks="top_k")
def top_k_renorm_probs(probs: A, top_k: int | Array, out: A | None = None) -> A:
    """Keeps each row's top_k largest probabilities, zeroes the others, and divides by the sum of the kept ones.

    probs  [rows, vocab] of f32, f16 or bf16, each from 0 to below 2; the last dimension contiguous
    top_k  1 or more, or i32 [rows]; vocab or more: the row stays as it is. What equals the last kept one is kept
    out    [rows, vocab] of probs' dtype; None: a new one

    A row with a NaN or a probability out of range becomes NaNs, a row of zeros stays. A vector is checked on the CPU, and on a GPU
    with QUERN_VALIDATE=1. Returns out. Raises ValueError (shape, stride, overlap, top_k), NotImplementedError (dtype, device),
    TypeError (no array, no number); nothing is written then.

    >>> quern.top_k_renorm_probs(numpy.array([[0.25, 0.25, 0.5, 0]], numpy.float32), 1)
    array([[0., 0., 1., 0.]], dtype=float32)
    """
    vector, number = _split(top_k, 1)
    out = empty_like(probs) if out is None else out
    _ops.top_k_renorm_probs(out, probs, vector, number)
    return out


@public(top_ps="top_p")
def top_p_renorm_probs(probs: A, top_p: float | Array, out: A | None = None) -> A:
    """Keeps each row's largest probabilities up to a mass of top_p, zeroes the others, and divides by the sum of the kept ones.

    probs  [rows, vocab] of f32, f16 or bf16, each from 0 to below 2; the last dimension contiguous
    top_p  above 0, up to 1, or f32 [rows]; 1: the row stays as it is. What equals the last kept one is kept
    out    [rows, vocab] of probs' dtype; None: a new one

    A row with a NaN or a probability out of range becomes NaNs, a row of zeros stays. A vector is checked on the CPU, and on a GPU
    with QUERN_VALIDATE=1. Returns out. Raises what top_k_renorm_probs raises.

    >>> quern.top_p_renorm_probs(numpy.array([[0.25, 0.25, 0.5, 0]], numpy.float32), 0.6)
    array([[0.25, 0.25, 0.5 , 0.  ]], dtype=float32)
    """
    vector, number = _split(top_p, 1.0)
    out = empty_like(probs) if out is None else out
    _ops.top_p_renorm_probs(out, probs, vector, number)
    return out


@public(top_ks="top_k")
def top_k_mask_logits(logits: A, top_k: int | Array, out: A | None = None) -> A:
    """Keeps each row's top_k largest logits; the others become minus infinity.

    logits  [rows, vocab] of f32, f16 or bf16, the last dimension contiguous
    top_k   1 or more, or i32 [rows]; vocab or more: the row stays as it is. What equals the last kept one is kept
    out     [rows, vocab] of logits' dtype; None: a new one

    A row with a NaN becomes NaNs. A vector is checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns out. Raises what
    top_k_renorm_probs raises.

    >>> quern.top_k_mask_logits(numpy.array([[1, 2, 3, 0]], numpy.float32), 2)
    array([[-inf,   2.,   3., -inf]], dtype=float32)
    """
    vector, number = _split(top_k, 1)
    out = empty_like(logits) if out is None else out
    _ops.top_k_mask_logits(out, logits, vector, number)
    return out


@public(repetitions="repetition", presences="presence", frequencies="frequency")
def apply_penalties(logits: A, counts: Array | None = None, in_prompt: Array | None = None, repetition: float | Array = 1.0,
                    presence: float | Array = 0.0, frequency: float | Array = 0.0, out: A | None = None) -> A:
    """Applies penalties to the logits of tokens that were sent or stand in the prompt.

    A logit above 0 of such a token is divided by repetition, another one multiplied by it; then frequency * counts is subtracted,
    and presence, if the token was sent.

    logits      [rows, vocab] of f32, f16 or bf16, the last dimension contiguous
    counts      i32 [rows, vocab], how often each token was sent; None: never
    in_prompt   bool or u8 [rows, vocab]; None: no token
    repetition  above 0, or f32 [rows]
    presence    finite, or f32 [rows]
    frequency   finite, or f32 [rows]
    out         [rows, vocab] of logits' dtype, perhaps logits itself; None: a new one

    Vectors of numbers are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns out. Raises ValueError (shape, stride,
    overlap, a number out of range), NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> logits, counts = numpy.array([[2, -2, 1]], numpy.float32), numpy.array([[1, 2, 0]], numpy.int32)
    >>> quern.apply_penalties(logits, counts, repetition=2.0, presence=0.5, frequency=0.25)
    array([[ 0.25, -5.  ,  1.  ]], dtype=float32)
    """
    repetitions, repetition = _split(repetition, 1.0)
    presences, presence = _split(presence, 0.0)
    frequencies, frequency = _split(frequency, 0.0)
    out = empty_like(logits) if out is None else out
    _ops.apply_penalties(out, logits, counts, in_prompt, repetitions, presences, frequencies, repetition, presence, frequency)
    return out


@public(seeds="seed", offsets="offset")
def chain_speculative_sampling(draft_probs: Array, draft_ids: Array, target_probs: Array, accepted: Array | None = None,
                               sent: Array | None = None, seed: int | Array = 0, offset: int | Array = 0,
                               out: Array | None = None) -> Any:
    """Checks chains of n drafted tokens against the target's probabilities, and samples the token behind the accepted ones.

    Draft i is accepted with probability target / draft. Drafts up to the first that is not accepted are sent; then a token that is
    drawn from what the target has more than the draft there, or, if all were accepted, from the target; then -1.

    draft_probs   f32 [batch, n, vocab], contiguous, as all of these are
    draft_ids     i32 [batch, n]
    target_probs  f32 [batch, n + 1, vocab]
    accepted      i32 [batch], to which the number of drafts is added that would be accepted one by one; None: not counted
    sent          i32 [batch], to which the number of drafts is added that were sent; None: not counted
    seed, offset  64 bits, or i64 [1] or [batch]; draft i draws at offset + i, the last token at offset + n
    out           i32 [batch, n + 1]; None: a new one

    draft_ids are checked on the CPU, and on a GPU with QUERN_VALIDATE=1. Returns out. Raises ValueError (shape, stride, overlap,
    ids), NotImplementedError (dtype, device), TypeError (no array, no number); nothing is written then.

    >>> probs, ids = numpy.array([[[0, 1, 0], [0, 0, 1]]], numpy.float32), numpy.array([[1]], numpy.int32)
    >>> quern.chain_speculative_sampling(probs[:, :1].copy(), ids, probs)
    array([[1, 2]], dtype=int32)
    """
    op = "chain_speculative_sampling"
    seeds, seed = _split(seed, 0)
    offsets, offset = _split(offset, 0)
    if out is None:
        if len(draft_ids.shape) != 2:
            raise ValueError(f"{op}: draft_ids has {len(draft_ids.shape)} dimensions, needs 2")
        out = empty_like(draft_ids, shape=(draft_ids.shape[0], draft_ids.shape[1] + 1), dtype="int32")
    _ops.chain_speculative_sampling(out, accepted, sent, draft_probs, draft_ids, target_probs, seeds, offsets, seed, offset)
    return out
