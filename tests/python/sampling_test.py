# SPDX-License-Identifier: Apache-2.0
"""Sampling against NumPy in float64, and the same tokens on the CPU and on simulated GPUs."""

import numpy as np
import pytest
import quern
from tools import BF16, DTYPES, normal

SPECS = ["sim:gfx942", "sim:gfx1151"]
ROWS, VOCAB = 5, 3001


def probabilities(seed, dtype=np.float32):
    x = np.exp(3 * normal(seed, (ROWS, VOCAB)).astype(np.float64))
    return (x / x.sum(-1, keepdims=True)).astype(dtype)


def kept(x, top_k=None, top_p=None):
    """Returns which of each row are kept: all that equal the last one are."""
    x = np.asarray(x, np.float64)
    mask = np.ones(x.shape, bool)
    for row, keeps in zip(x, mask, strict=True):
        order = np.sort(row)[::-1]
        if top_k is not None:
            keeps &= row >= order[min(top_k, len(row)) - 1]
        if top_p is not None:
            below = np.cumsum(order) - order  # the mass before each
            keeps &= row >= order[below < top_p * order.sum()][-1]
    return mask


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_renorm(dtype):
    probs = probabilities(1, dtype)
    for got, mask in ((quern.top_k_renorm_probs(probs, 50), kept(probs, top_k=50)),
                      (quern.top_p_renorm_probs(probs, 0.7), kept(probs, top_p=0.7))):
        want = np.where(mask, probs.astype(np.float64), 0)
        want /= want.sum(-1, keepdims=True)
        unit = {2: 2.0**-8 if dtype == BF16 else 2.0**-11, 4: 2.0**-24}[dtype.itemsize]
        np.testing.assert_array_equal(got != 0, mask)
        # Two roundings of f32, one to dtype, and 2^-40 that a weight may lose, of thousands.
        assert np.all(np.abs(got.astype(np.float64) - want) <= want * (unit + 3 * 2.0**-24 + VOCAB * 2.0**-40) + 2.0**-25)


def test_softmax_and_mask():
    logits = 4 * normal(2, (ROWS, VOCAB))
    scaled = logits.astype(np.float64) / 0.5
    want = np.exp(scaled - scaled.max(-1, keepdims=True))
    want /= want.sum(-1, keepdims=True)
    # The argument of exp is rounded twice, and is up to its own size off by 2^-24 each time.
    bound = 2.0**-22 + 4 * 2.0**-24 * (scaled.max(-1, keepdims=True) - scaled) + VOCAB * 2.0**-40
    for temperature in (0.5, np.full(ROWS, 0.5, np.float32)):
        assert np.all(np.abs(quern.softmax(logits, temperature) - want) <= want * bound + 2.0**-100)
    got = quern.top_k_mask_logits(logits, 17)
    np.testing.assert_array_equal(got, np.where(kept(logits, top_k=17), logits, -np.inf))
    np.testing.assert_array_equal(quern.sample_greedy(logits), logits.argmax(-1))


@pytest.mark.parametrize("order", ["top_k_first", "joint"])
def test_tokens_are_kept_ones(order):
    probs, indices = probabilities(3), (np.arange(4000) % ROWS).astype(np.int32)
    tokens = quern.sample_probs(probs, top_k=30, top_p=0.6, min_p=0.05, order=order, indices=indices, seed=11)
    by_k = kept(probs, top_k=30)
    by_p = kept(probs if order == "joint" else np.where(by_k, probs, 0), top_p=0.6)
    mask = by_k & by_p & (probs >= np.float32(0.05) * probs.max(-1, keepdims=True))
    assert mask[indices, tokens].all()
    for row in range(ROWS):  # as often as they weigh, to six standard deviations
        drawn = tokens[indices == row]
        p = np.where(mask[row], probs[row].astype(np.float64), 0)
        p /= p.sum()
        counts = np.bincount(drawn, minlength=VOCAB)
        assert np.all(np.abs(counts - p * len(drawn)) <= 6 * np.sqrt(p * (1 - p) * len(drawn)) + 1e-9)


def calls(there):
    """Returns what every function gives for arrays that `there` puts on a device."""
    logits, probs = there(3 * normal(4, (ROWS, VOCAB), BF16)), there(probabilities(5))
    temperature, top_k = there(np.linspace(0.3, 2, ROWS, dtype=np.float32)), there(np.arange(1, ROWS + 1, dtype=np.int32) * 9)
    top_p, seed = there(np.linspace(0.1, 1, ROWS, dtype=np.float32)), there(np.arange(ROWS))
    counts, chain = there(np.arange(ROWS * VOCAB, dtype=np.int32).reshape(ROWS, VOCAB) % 3), there(probabilities(6)[None])
    return [
        quern.softmax(logits, temperature), *quern.sample(logits, 0.8, seed=3, return_valid=True), quern.sample(logits, temperature, top_k, top_p, seed=seed),
        quern.sample_probs(probs, top_p=top_p, min_p=0.01, seed=seed, offset=7), quern.sample_probs(probs, 40, 0.5, order="joint"),
        quern.sample_greedy(logits), quern.top_k_renorm_probs(probs, top_k), quern.top_p_renorm_probs(probs, top_p),
        quern.top_k_mask_logits(logits, top_k), quern.apply_penalties(logits, counts, None, 1.3, 0.2, 0.1),
        quern.chain_speculative_sampling(chain[:, :4] if isinstance(chain, quern.Tensor) else chain[:, :4].copy(),
                                         there(np.array([[5, 9, 1, 0]], np.int32)), chain, seed=2)]


@pytest.mark.parametrize("spec", SPECS)
def test_devices_agree(spec):
    for got, want in zip(calls(lambda x: quern.to(x, spec)), calls(lambda x: x), strict=True):
        assert quern.numpy(got).tobytes() == want.tobytes()


def test_a_row_does_not_depend_on_its_batch():
    logits, seed = normal(7, (40, VOCAB)), np.arange(40)
    together = quern.sample(logits, top_p=0.9, seed=seed)
    for row in (0, 1, 17, 39):
        assert quern.sample(logits[row:row + 1], top_p=0.9, seed=row)[0] == together[row]
    assert len(set(quern.sample(np.zeros((40, VOCAB), np.float32), seed=1))) > 30  # rows draw different numbers


def test_degenerate_rows():
    logits = np.array([[0, np.nan], [-np.inf, -np.inf], [1, np.inf]], np.float32)
    tokens, valid = quern.sample(logits, return_valid=True)
    assert tokens.tolist() == [0, 0, 1] and valid.tolist() == [False, False, True]
    tokens, valid = quern.sample_probs(np.array([[0, 0], [-1, 1], [3, 0], [0, 1]], np.float32), return_valid=True)
    assert tokens.tolist() == [0, 0, 0, 1] and valid.tolist() == [False, False, False, True]
    assert quern.sample(np.zeros((0, 5), np.float32)).shape == (0,)


@pytest.mark.parametrize("call, message", [
    (lambda x: quern.sample(x, top_k=0), "sample: top_k is 0; accepted: 1 or more, None"),
    (lambda x: quern.sample(x, top_p=0.0), "sample: top_p is 0.0; accepted: above 0, up to 1, None"),
    (lambda x: quern.sample(x, top_p=1.25), "sample: top_p is 1.25; accepted: above 0, up to 1"),
    (lambda x: quern.sample(x, temperature=0), "sample: temperature is 0; accepted: 2^-100 to 2^100"),
    (lambda x: quern.sample_probs(x, min_p=2.0), "sample_probs: min_p is 2; accepted: 0 to 1"),
    (lambda x: quern.sample_probs(x, order="both"), "sample_probs: order is 'both'; accepted: 'top_k_first', 'joint'"),
    (lambda x: quern.sample_probs(x, top_k=np.array([1, 0], np.int32)), "sample_probs: top_k[1] is 0; accepted: 1 to"),
    (lambda x: quern.softmax(x, np.array([1, np.nan], np.float32)), "softmax: temperature[1] is nan"),
    (lambda x: quern.sample(x[0]), "sample: logits has 1 dimensions, needs 2")])
def test_refusals(call, message):
    with pytest.raises(ValueError) as raised:
        call(np.ones((2, 4), np.float32))
    assert str(raised.value).startswith(message)
