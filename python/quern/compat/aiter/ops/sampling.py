# SPDX-License-Identifier: Apache-2.0
"""AITER's sampling from probabilities [rows, vocabulary], also in torch.ops.aiter.

maybe_..._arr  a number for each row of probs, or None: the one number that follows counts for all
indices        i32 [tokens], the row of each token; None: a token for each row
deterministic  changes nothing: the same random numbers always give the same tokens

Random numbers follow PyTorch's generator of the device, as with AITER; the tokens are other ones.
"""

from __future__ import annotations

import torch

from ...flashinfer import sampling as _sampling
from ..._words import in_words_of
from .. import _check

Tensor = torch.Tensor


def _call(op, function, probs, name, vector, value, *arguments, **options):
    """Calls one of FlashInfer's functions, in AITER's words."""
    given = value if vector is None else vector
    _check.tensors(op, {"probs": probs, f"maybe_{name}_arr": vector, "indices": options.get("indices")},
                   none=(f"maybe_{name}_arr", "indices"))
    _check.shape(op, "probs", probs, None, None)
    if vector is not None:
        rows = len(probs)
        _check.shape(op, f"maybe_{name}_arr", vector, rows)
    try:
        return function(probs, *arguments, given, **options)
    except (ValueError, NotImplementedError) as error:
        names = {name: f"{name}_val" if vector is None else f"maybe_{name}_arr"}
        raise type(error)(in_words_of(str(error), op, function.__name__, names)) from None


def top_k_renorm_probs(probs: Tensor, maybe_top_k_arr: Tensor | None, top_k_val: int) -> Tensor:
    """Returns f32 probabilities: those of each row's top_k largest, divided by their sum, and 0."""
    return _call("top_k_renorm_probs", _sampling.top_k_renorm_probs, probs, "top_k", maybe_top_k_arr, top_k_val)


def top_p_sampling_from_probs(probs: Tensor, indices: Tensor | None, maybe_top_p_arr: Tensor | None, top_p_val: float,
                              deterministic: bool = False) -> Tensor:
    """Returns i32 [tokens]: of the largest that sum up to top_p."""
    return _call("top_p_sampling_from_probs", _sampling.top_p_sampling_from_probs, probs, "top_p", maybe_top_p_arr, top_p_val,
                 indices=indices, deterministic=deterministic)


def top_k_top_p_sampling_from_probs(probs: Tensor, indices: Tensor | None, maybe_top_k_arr: Tensor | None, top_k_val: int,
                                    maybe_top_p_arr: Tensor | None, top_p_val: float, deterministic: bool = False) -> Tensor:
    """Returns i32 [tokens]: of those that are among the top_k largest, and among the largest that sum up to top_p of probs' own sum."""
    op = "top_k_top_p_sampling_from_probs"
    _check.tensors(op, {"probs": probs, "maybe_top_k_arr": maybe_top_k_arr}, none=("maybe_top_k_arr",))
    if maybe_top_k_arr is not None:
        _check.shape(op, "maybe_top_k_arr", maybe_top_k_arr, len(probs))
    top_k = top_k_val if maybe_top_k_arr is None else maybe_top_k_arr
    return _call(op, _sampling.top_k_top_p_sampling_from_probs, probs, "top_p", maybe_top_p_arr, top_p_val, top_k, indices=indices,
                 filter_apply_order="joint", deterministic=deterministic)


# Engines call these through torch.ops.aiter.
_library = torch.library.Library("aiter", "FRAGMENT")
_library.define("top_k_renorm_probs(Tensor probs, Tensor? maybe_top_k_arr, SymInt top_k_val) -> Tensor")
_library.define("top_p_sampling_from_probs(Tensor probs, Tensor? indices, Tensor? maybe_top_p_arr, float top_p_val, "
                "bool deterministic=False) -> Tensor")
_library.define("top_k_top_p_sampling_from_probs(Tensor probs, Tensor? indices, Tensor? maybe_top_k_arr, SymInt top_k_val, "
                "Tensor? maybe_top_p_arr, float top_p_val, bool deterministic=False) -> Tensor")
for _function in (top_k_renorm_probs, top_p_sampling_from_probs, top_k_top_p_sampling_from_probs):
    _library.impl(_function.__name__, _function, "CompositeExplicitAutograd")
