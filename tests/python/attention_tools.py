# SPDX-License-Identifier: Apache-2.0
"""What tests of attention share: the definition in float64, and how far a kernel may be from it."""

import dataclasses

import numpy as np
from tools import UNIT


@dataclasses.dataclass
class Problem:
    """A problem whose roundings are tolerated."""

    q: np.ndarray
    k: np.ndarray
    v: np.ndarray


def alibi_slopes(heads):
    n = 2 ** int(np.log2(heads))
    return np.array([2.0 ** (-8 * (h + 1) / n) if h < n else 2.0 ** (-4 * (2 * (h + 1 - n) - 1) / n) for h in range(heads)])


def rotate(x, positions, theta=1e4, scale=1.0):
    """Computes the rotary embedding, pairs (d, d + D / 2), of x [n, heads, D]."""
    half = x.shape[-1] // 2
    angle = positions[:, None, None] * theta ** (-np.arange(half) / half) / scale
    first, second = x[..., :half], x[..., half:]
    return np.concatenate([first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle)], -1)


def visible(n, kv_len, is_causal=False, is_top_left=False, window_left=-1, window_right=-1):
    offset = np.arange(kv_len)[None] - (np.arange(n)[:, None] + (0 if is_top_left else kv_len - n))
    seen = offset <= 0 if is_causal else np.ones((n, kv_len), bool)
    if window_left >= 0:
        seen = seen & (offset >= -window_left)
    if window_right >= 0:
        seen = seen & (offset <= window_right)
    return seen


def scores(q, k, sm_scale=None, logits_soft_cap=0.0, pos_encoding="none", rope_scale=1.0, rope_theta=1e4):
    """Returns the scores [heads, n, kv_len] before masks."""
    n, kv_len = len(q), len(k)
    if pos_encoding == "rope_llama":
        q = rotate(q, kv_len - n + np.arange(n), rope_theta, rope_scale)
        k = rotate(k, np.arange(kv_len), rope_theta, rope_scale)
    x = np.einsum("nhd,mhd->hnm", q, k) * (q.shape[-1] ** -0.5 if sm_scale is None else sm_scale)
    if pos_encoding == "alibi":
        distance = np.arange(kv_len)[None] - (np.arange(n)[:, None] + kv_len - n)
        x = x + alibi_slopes(q.shape[1])[:, None, None] * distance
    return logits_soft_cap * np.tanh(x / logits_soft_cap) if logits_soft_cap else x


def definition(q, k, v, mask=None, sinks=None, v_scale=1.0, keep=None, dropout_p=0.0, is_causal=False, is_top_left=False,
               window_left=-1, window_right=-1, **options):
    """Computes one request, q [n, heads, D] and k, v [kv_len, kv heads, D]: (out, natural lse) in float64, without a
    key zeros and -inf."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    x = scores(q, k, **options)
    if mask is not None and mask.dtype != np.bool_:
        x = x + mask.astype(np.float64)
    elif mask is not None:
        x = np.where(mask, x, -np.inf)
    x = np.where(visible(len(q), len(k), is_causal, is_top_left, window_left, window_right), x, -np.inf)
    top = np.max(x, -1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(x - top)
    total = weights.sum(-1, keepdims=True)
    if sinks is not None:
        total = total + np.exp(sinks.astype(np.float64)[:, None, None] - top)
    if keep is not None:
        weights = np.where(keep, weights, 0) / (1 - dropout_p)
    with np.errstate(divide="ignore"):
        lse = (np.log(total) + top)[..., 0]
    share = weights / np.where(total == 0, 1, total)
    return v_scale * np.einsum("hnm,mhd->nhd", share, v), lse.T


def assert_attention(out, lse, want, problem, base=2.0):
    """Checks out [n, heads, D] or [batch, n, heads, D] against the definition's results, one for each request."""
    unit = max(UNIT[out.dtype], 2.0**-24)
    low = max(UNIT.get(problem.q.dtype, 0), 2.0**-20)  # weights may be rounded to q's kind
    largest = float(np.abs(problem.v.astype(np.float64)).max(initial=0))
    for got, (exact, _) in zip(out.astype(np.float64).reshape(len(want), *want[0][0].shape), want, strict=True):
        error = np.abs(got - exact)
        assert (error <= unit * np.abs(exact) + 4 * low * max(largest, 1)).all(), f"error {error.max()}"
    for got, (_, exact) in zip([] if lse is None else lse.reshape(len(want), *want[0][1].shape), want, strict=False):
        exact = exact / np.log(base)
        finite = np.isfinite(exact)
        np.testing.assert_array_equal(got[~finite], exact[~finite])
        np.testing.assert_allclose(got[finite], exact[finite], rtol=1e-5, atol=1e-4)


def philox(shape, seed, offset):
    """Returns dropout's words for [batch, heads, n, m], i32: Philox4x32-10 of doi:10.1145/2063384.2063405, four keys
    for each counter."""
    batch, heads, n, m = shape
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    counters = np.arange(batch * heads * n * -(-m // 4), dtype=np.uint64) + np.uint64(offset)
    c = [counters & low, counters >> half, np.zeros_like(counters), np.zeros_like(counters)]
    keys = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(b >> half) ^ c[1] ^ np.uint64(keys[0]), b & low, (a >> half) ^ c[3] ^ np.uint64(keys[1]), a & low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    words = np.stack(c).astype(np.uint32).T.reshape(batch, heads, n, -1)[..., :m]
    return np.ascontiguousarray(words).view(np.int32)
