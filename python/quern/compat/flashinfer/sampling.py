# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's sampling from probabilities and logits [rows, vocab].

The same seed and offset give the same tokens on every device, other ones than FlashInfer's. Without them a CUDA generator's own
give them, and go on as with FlashInfer; another generator draws a seed. Numbers for rows may be tensors: with `indices`, top_k and
top_p have an entry for each row of the input, min_p, seed and offset one for each token.
"""

import torch

from ..._public import found
from ._hints import check_flags as _check_flags
from ._run import index as _index
from ._run import run as _run

_NAMES = {"top_ks": "top_k", "top_ps": "top_p", "min_ps": "min_p", "temperatures": "temperature", "seeds": "seed", "offsets": "offset"}


def _floats(x):
    """Returns x in a dtype that quern takes: others become f32, as all do in FlashInfer."""
    return x if x.dtype in (torch.float32, torch.float16, torch.bfloat16) else x.float()


def _split(op, name, value, accepted, indices=None):
    """Returns (a vector of f32, or of i32 for top_k; None) and a number, 0 if there is a vector. quern takes 0 for "not given"."""
    if isinstance(value, torch.Tensor):
        value = value if indices is None or value.ndim != 1 else value[indices.long()]
        return (_index(value.long() if value.is_floating_point() else value) if name == "top_k" else value.float()), 0
    if not isinstance(value, (int, float)) or (value == 0 and not accepted.startswith("0")):
        raise ValueError(f"{op}: {name} is {found(value)}; accepted: {accepted}")
    return None, value


def _of_generator(op, generator, device, increment):
    """Returns a seed and an offset, and moves a CUDA generator on by `increment`, in fours."""
    if generator is not None and not isinstance(generator, torch.Generator):
        raise ValueError(f"{op}: generator is {found(generator)}; accepted: a torch.Generator, None")
    if device.type != "cuda":
        return int(torch.randint(2**63 - 1, (), generator=generator, device="cpu")), 0
    generator = generator or torch.cuda.default_generators[device.index or 0]
    seed, offset = generator.get_state().view(torch.int64).tolist()
    offset += (increment + 3) // 4 * 4
    generator.set_state(torch.tensor([seed, offset], dtype=torch.int64, device="cpu").view(torch.uint8))
    return seed, offset


def _random(op, seed, offset, generator, device, increment):
    """Returns (seeds, offsets, seed, offset), as quern's functions take them."""
    if (seed is None) != (offset is None):
        raise ValueError(f"{op}: {'offset' if seed is None else 'seed'} is given alone; accepted: seed and offset, neither")
    if seed is None:
        return None, None, *_of_generator(op, generator, device, increment)
    if isinstance(seed, torch.Tensor) != isinstance(offset, torch.Tensor):
        raise ValueError(f"{op}: seed and offset must both be tensors or both be scalars; accepted: two of a kind")
    if isinstance(seed, torch.Tensor):
        return *(x.view(torch.int64) if x.dtype == torch.uint64 else x for x in (seed, offset)), 0, 0
    for name, value in (("seed", seed), ("offset", offset)):
        if not isinstance(value, int):
            raise ValueError(f"{op}: {name} is {found(value)}; accepted: an integer, a tensor, None")
    return None, None, *((x + 2**63) % 2**64 - 2**63 for x in (seed, offset))


def _refuse_nan(op, name, x, check_nan):
    if check_nan and torch.any(torch.isnan(x)):
        raise ValueError(f"{op}: Input {name} contains NaN.")


def _sample(op, name, x, indices, deterministic, generator, check_nan, seed, offset, return_valid=False, top_k=None, top_p=None,
            min_p=None, joint=False, draws=1):
    _check_flags(op, deterministic=deterministic, check_nan=check_nan, return_valid=return_valid)
    _refuse_nan(op, name, x, check_nan)
    top_ks, top_k = (None, 0) if top_k is None else _split(op, "top_k", top_k, "1 or more", indices)
    top_ps, top_p = (None, 0.0) if top_p is None else _split(op, "top_p", top_p, "above 0, up to 1", indices)
    min_ps, min_p = (None, 0.0) if min_p is None else _split(op, "min_p", min_p, "0 to 1")
    batch = len(x) if indices is None else len(indices)
    seeds, offsets, seed, offset = _random(op, seed, offset, generator, x.device, batch * draws)
    out = torch.empty(batch, dtype=torch.int32, device=x.device)
    valid = torch.empty(batch, dtype=torch.bool, device=x.device) if return_valid else None
    given = _floats(x)
    _run("sample", out, valid, given if name == "logits" else None, given if name == "probs" else None,
         None if indices is None else _index(indices), None, top_ks, top_ps, min_ps, seeds, offsets, float(name == "logits"), top_k, top_p,
         min_p, joint, seed, offset, op=op, **_NAMES)
    out = out if indices is None else out.to(indices.dtype)
    return (out, valid) if return_valid else out


def softmax(logits, temperature=None, enable_pdl=None):
    """Returns softmax(logits / temperature), f32. temperature: a number or a tensor [rows]; None: 1."""
    _check_flags("softmax", enable_pdl=enable_pdl)
    temperatures, temperature = _split("softmax", "temperature", 1.0 if temperature is None else temperature, "2^-100 to 2^100")
    out = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    _run("softmax", out, _floats(logits), temperatures, temperature or 1.0, **_NAMES)
    return out


def sampling_from_logits(logits, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None):
    """Returns a token for each row of logits, or for each entry of indices, which names its row; of indices' dtype, or int32."""
    return _sample("sampling_from_logits", "logits", logits, indices, deterministic, generator, check_nan, seed, offset,
                   draws=logits.shape[-1])


def sampling_from_probs(probs, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
                        return_valid=False):
    """Returns a token for each row of probs, as sampling_from_logits does; with return_valid also whether the row has any mass."""
    return _sample("sampling_from_probs", "probs", probs, indices, deterministic, generator, check_nan, seed, offset, return_valid)


def top_p_sampling_from_probs(probs, top_p, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
                              return_valid=False):
    """Samples among the probabilities above which there is less than top_p of the mass."""
    return _sample("top_p_sampling_from_probs", "probs", probs, indices, deterministic, generator, check_nan, seed, offset,
                   return_valid, top_p=top_p, draws=32)


def top_k_sampling_from_probs(probs, top_k, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
                              return_valid=False):
    """Samples among the top_k largest probabilities."""
    return _sample("top_k_sampling_from_probs", "probs", probs, indices, deterministic, generator, check_nan, seed, offset,
                   return_valid, top_k=top_k, draws=32)


def min_p_sampling_from_probs(probs, min_p, indices=None, deterministic=True, generator=None, check_nan=False, seed=None, offset=None,
                              return_valid=False):
    """Samples among the probabilities of at least min_p times the largest."""
    return _sample("min_p_sampling_from_probs", "probs", probs, indices, deterministic, generator, check_nan, seed, offset,
                   return_valid, min_p=min_p)


def _is_joint(op, order):
    if order not in ("top_k_first", "joint"):
        raise ValueError(f"{op}: Invalid filter_apply_order: {order}; filter_apply_order is {found(order)}; "
                         "accepted: 'top_k_first', 'joint'")
    return order == "joint"


def top_k_top_p_sampling_from_logits(logits, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True,
                                     generator=None, check_nan=False, seed=None, offset=None):
    """Samples among the logits that top_k and top_p keep; top_p counts among what top_k keeps ("top_k_first") or all ("joint")."""
    op = "top_k_top_p_sampling_from_logits"
    return _sample(op, "logits", logits, indices, deterministic, generator, check_nan, seed, offset, top_k=top_k, top_p=top_p,
                   joint=_is_joint(op, filter_apply_order), draws=32)


def top_k_top_p_sampling_from_probs(probs, top_k, top_p, indices=None, filter_apply_order="top_k_first", deterministic=True,
                                    generator=None, check_nan=False, seed=None, offset=None, return_valid=False):
    """Samples among the probabilities that top_k and top_p keep, as top_k_top_p_sampling_from_logits does."""
    op = "top_k_top_p_sampling_from_probs"
    return _sample(op, "probs", probs, indices, deterministic, generator, check_nan, seed, offset, return_valid, top_k=top_k,
                   top_p=top_p, joint=_is_joint(op, filter_apply_order), draws=32)


def top_p_renorm_probs(probs, top_p, is_deterministic=False):
    """Returns, in f32, the probabilities that top_p keeps, divided by their sum, and zeros for the others."""
    _check_flags("top_p_renorm_probs", is_deterministic=is_deterministic)
    top_ps, top_p = _split("top_p_renorm_probs", "top_p", top_p, "above 0, up to 1")
    probs = probs.float()
    out = torch.empty(probs.shape, dtype=probs.dtype, device=probs.device)
    _run("top_p_renorm_probs", out, probs, top_ps, top_p or 1.0, **_NAMES)
    return out


def top_k_renorm_probs(probs, top_k, is_deterministic=False):
    """Returns, in probs' dtype, the top_k largest probabilities, divided by their sum, and zeros for the others."""
    _check_flags("top_k_renorm_probs", is_deterministic=is_deterministic)
    top_ks, top_k = _split("top_k_renorm_probs", "top_k", top_k, "1 or more")
    out = torch.empty(probs.shape, dtype=probs.dtype, device=probs.device)
    _run("top_k_renorm_probs", out, probs, top_ks, top_k or 1, **_NAMES)
    return out


top_p_renorm_prob, top_k_renorm_prob = top_p_renorm_probs, top_k_renorm_probs


def top_k_mask_logits(logits, top_k):
    """Returns the top_k largest logits, and minus infinity for the others."""
    top_ks, top_k = _split("top_k_mask_logits", "top_k", top_k, "1 or more")
    out = torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)
    _run("top_k_mask_logits", out, logits, top_ks, top_k or 1, **_NAMES)
    return out


def chain_speculative_sampling(draft_probs, draft_token_ids, target_probs, maybe_output_accepted_token_num=None,
                               maybe_output_emitted_draft_token_num=None, deterministic=True, generator=None, seed=None, offset=None):
    """Checks drafted tokens [batch, n] against the target's probabilities [batch, n + 1, vocab]. Returns (tokens, accepted, emitted):
    tokens int32 [batch, n + 1], -1 behind the last; the counts are added to the tensors that are given for them."""
    op = "chain_speculative_sampling"
    _check_flags(op, deterministic=deterministic)
    batch, n = draft_token_ids.shape
    out = torch.empty((batch, n + 1), dtype=torch.int32, device=draft_probs.device)
    seeds, offsets, seed, offset = _random(op, seed, offset, generator, draft_probs.device, batch * (n + 1))
    counts = [torch.zeros(batch, dtype=torch.int32, device=draft_probs.device) for _ in range(2)]
    _run(op, out, *counts, draft_probs.float().contiguous(), _index(draft_token_ids).contiguous(), target_probs.float().contiguous(),
         seeds, offsets, seed, offset, draft_ids="draft_token_ids", **_NAMES)
    given = maybe_output_accepted_token_num, maybe_output_emitted_draft_token_num
    return out, *(count if total is None else total.add_(count) for total, count in zip(given, counts, strict=True))
