# SPDX-License-Identifier: Apache-2.0
"""Sampling by PyTorch's own operators, in double precision. It draws quern's random words; a token differs where the draw lies
within the roundings of two tokens' border."""

import torch

_MASK = 0xFFFFFFFF


def _words(rows, device, seeds, offsets, seed, offset, step=0):
    """Returns the words that rows draw, as qn_sample says: Philox 4x32-10, in 64-bit integers that wrap around."""
    row = torch.arange(rows, device=device)
    counter = (torch.full_like(row, offset) if offsets is None else offsets.expand(rows)) + step
    key = torch.full_like(row, seed) if seeds is None else seeds.expand(rows)
    row = torch.zeros_like(row) if seeds is not None and (seeds.numel() > 1 or rows == 1) else row
    c = [counter & _MASK, counter >> 32 & _MASK, row & _MASK, row >> 32 & _MASK]
    k = [key & _MASK, key >> 32 & _MASK]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32 & _MASK) ^ c[1] ^ k[0], b & _MASK, (a >> 32 & _MASK) ^ c[3] ^ k[1], a & _MASK]
        k = [k[0] + 0x9E3779B9 & _MASK, k[1] + 0xBB67AE85 & _MASK]
    return c


def _column(vector, number):
    return number if vector is None else vector.double()[:, None]


def _kept_by_k(x, top_ks, top_k):
    if top_ks is None and top_k >= x.shape[1]:
        return torch.ones_like(x, dtype=torch.bool)
    order = x.sort(-1, descending=True).values
    k = torch.full((len(x),), top_k, device=x.device) if top_ks is None else top_ks.long()
    return x >= order.gather(1, k.clamp(max=x.shape[1])[:, None] - 1)


def _kept_by_p(x, mass, top_ps, top_p):
    """Returns the elements above which there is less than top_p of the mass."""
    if top_ps is None and top_p >= 1:
        return torch.ones_like(x, dtype=torch.bool)
    order, places = x.sort(-1, descending=True)
    sums = mass.gather(1, places).cumsum(-1)
    before = sums - mass.gather(1, places)
    p = torch.as_tensor(_column(top_ps, top_p), device=x.device, dtype=torch.float64).expand(len(x), 1)
    count = ((before < p * sums[:, -1:]) | (p >= 1)).sum(-1, keepdim=True)
    return x >= order.gather(1, count.clamp(min=1) - 1)


def _is_spoilt(x, is_logits):
    return x.isnan().any(-1) if is_logits else ~((x >= 0) & (x < 2)).all(-1)


def _softmax(logits, temperatures, temperature):
    weight = torch.softmax(logits.double() / _column(temperatures, temperature), -1)
    return torch.where((logits == -torch.inf).all(-1, keepdim=True), 0.0, weight)


def _draw(mass, words):
    """Returns each row's token, and whether it has any."""
    sums = mass.cumsum(-1)
    at = (words[1].double() / 2.0**32 + words[0].double() / 2.0**64)[:, None] * sums[:, -1:]
    token = torch.searchsorted(sums, at, right=True)[:, 0].clamp(max=mass.shape[1] - 1)
    valid = sums[:, -1] > 0
    return torch.where(valid, token, 0), valid


def softmax(out, logits, temperatures, temperature):
    out.copy_(_softmax(logits, temperatures, temperature))


def sample(out, valid, logits, probs, indices, temperatures, top_ks, top_ps, min_ps, seeds, offsets, temperature, top_k, top_p, min_p,
           joint, seed, offset):
    x = (logits if probs is None else probs).double()
    x = x if indices is None else x[indices.long()]
    spoilt = _is_spoilt(x, probs is None)
    mass = x.clone() if probs is not None else _softmax(x, temperatures, temperature)
    mass[spoilt] = 0
    by_k = _kept_by_k(x, top_ks, top_k or x.shape[1])
    by_p = _kept_by_p(x, mass if joint else torch.where(by_k, mass, 0.0), top_ps, top_p or 1.0)
    enough = mass >= _column(min_ps, min_p) * mass.max(-1, keepdim=True).values
    token, is_there = _draw(torch.where(by_k & by_p & enough, mass, 0.0), _words(len(x), x.device, seeds, offsets, seed, offset))
    out.copy_(token)
    if valid is not None:
        valid.copy_(is_there)


def _renorm(out, probs, keeps, identity):
    x = torch.where(keeps, probs.double(), 0.0)
    sums = x.sum(-1, keepdim=True)
    x = torch.where(identity, probs.double(), torch.where(sums > 0, x / sums, 0.0))
    out.copy_(torch.where(_is_spoilt(probs, False)[:, None], torch.nan, x))


def top_k_renorm_probs(out, probs, top_ks, top_k):
    identity = torch.as_tensor(_column(top_ks, top_k), device=probs.device) >= probs.shape[1]
    _renorm(out, probs, _kept_by_k(probs.double(), top_ks, top_k), identity)


def top_p_renorm_probs(out, probs, top_ps, top_p):
    identity = torch.as_tensor(_column(top_ps, top_p), device=probs.device) >= 1
    _renorm(out, probs, _kept_by_p(probs.double(), probs.double(), top_ps, top_p), identity)


def top_k_mask_logits(out, logits, top_ks, top_k):
    masked = logits.masked_fill(~_kept_by_k(logits.double(), top_ks, top_k), -torch.inf)
    out.copy_(torch.where(_is_spoilt(logits, True)[:, None], torch.nan, masked))


def chain_speculative_sampling(out, accepted, sent, draft_probs, draft_ids, target_probs, seeds, offsets, seed, offset):
    batch, n = draft_ids.shape
    rows = torch.arange(batch, device=out.device)
    goes_on, count = torch.ones(batch, dtype=torch.bool, device=out.device), torch.zeros_like(rows)
    out.fill_(-1)
    for i in range(n):
        token = draft_ids[:, i].long()
        p, q = draft_probs[rows, i, token].double(), target_probs[rows, i, token].double()
        u = (_words(batch, out.device, seeds, offsets, seed, offset, i)[0] >> 8).double() / 2**24
        accepts = u * p < q
        accepted.add_(accepts)
        goes_on = goes_on & accepts
        out[:, i] = torch.where(goes_on, token, out[:, i].long()).to(out.dtype)
        count += goes_on
    sent.add_(count)
    target = target_probs[rows, count].double()
    draft = torch.cat([draft_probs, torch.zeros_like(target_probs[:, :1])], 1)[rows, count].double()
    more = (target - draft).clamp(min=0)
    more = torch.where(more.sum(-1, keepdim=True) > 0, more, target)
    out[rows, count] = _draw(more, _words(batch, out.device, seeds, offsets, seed, offset, n))[0].to(out.dtype)
