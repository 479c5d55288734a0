# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's sampling: what is kept, how often tokens come, edges, seeds and generators; by quern, and once more by
PyTorch's operators."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer import sampling  # noqa: E402

IS_PYTORCH = bool(os.environ.get("SGLANG_DISABLE_FLASHINFER"))
by_quern = pytest.mark.skipif(IS_PYTORCH, reason="quern's promise")
SEED = {"seed": 11, "offset": 3}


def distribution(rows, vocab, seed=0):
    return torch.softmax(3 * torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)), -1)


def kept(probs, top_k=None, top_p=None, min_p=0.0):
    """Returns which elements are kept; those that equal the last one are."""
    order = probs.double().sort(-1, descending=True).values
    mask = probs >= min_p * probs.max(-1, keepdim=True).values
    if top_k is not None:
        mask &= probs >= order[:, min(top_k, probs.shape[1]) - 1, None]
    if top_p is not None:
        before = order.cumsum(-1) - order
        count = (before < top_p * order.sum(-1, keepdim=True)).sum(-1, keepdim=True)
        mask &= probs >= order.gather(1, count - 1)
    return mask


def draws(call, probs, count=4000, **options):
    """Returns tokens of row 0."""
    return call(probs, indices=torch.zeros(count, dtype=torch.int64), **SEED, **options)


@pytest.mark.parametrize("vocab", [111, 1000 if IS_PYTORCH else 32000])
@pytest.mark.parametrize("name, filters", [
    ("sampling_from_probs", {}), ("top_p_sampling_from_probs", {"top_p": 0.3}), ("top_k_sampling_from_probs", {"top_k": 10}),
    ("min_p_sampling_from_probs", {"min_p": 0.1}), ("top_k_top_p_sampling_from_probs", {"top_k": 20, "top_p": 0.8})])
def test_tokens(name, filters, vocab):
    """Tests that a token comes as often as it weighs among the kept ones, to six standard deviations and six."""
    probs, count = distribution(1, vocab), 4000
    tokens = draws(getattr(flashinfer, name), probs, count, **filters)
    assert tokens.dtype == torch.int64 and tokens.shape == (count,)
    mask = kept(probs, filters.get("top_k"), None, filters.get("min_p", 0.0))
    mask &= kept(torch.where(mask, probs, 0.0), top_p=filters.get("top_p"))
    p = torch.where(mask, probs, 0.0)[0].double()
    p /= p.sum()
    counts = torch.bincount(tokens, minlength=vocab)
    assert torch.all((counts - p * count).abs() <= 6 * (p * (1 - p) * count).sqrt() + 6 * (p > 0))


def test_logits_give_what_probabilities_give():
    logits = 3 * torch.randn(50, 500, generator=torch.Generator().manual_seed(1))
    probs = flashinfer.softmax(logits)
    torch.testing.assert_close(probs, torch.softmax(logits, -1), rtol=1e-5, atol=1e-9)
    for of_logits, of_probs in ((flashinfer.sampling_from_logits(logits, **SEED), flashinfer.sampling_from_probs(probs, **SEED)),
                                (flashinfer.top_k_top_p_sampling_from_logits(logits, 40, 0.7, **SEED),
                                 flashinfer.top_k_top_p_sampling_from_probs(probs, 40, 0.7, **SEED))):
        assert (of_logits == of_probs).sum() >= 49  # a draw may lie between the roundings
    temperature = torch.linspace(0.5, 2, 50, dtype=torch.float64)
    torch.testing.assert_close(flashinfer.softmax(logits, temperature), torch.softmax(logits / temperature.float()[:, None], -1),
                               rtol=2e-5, atol=1e-9)


def test_orders():
    probs = torch.tensor([[0.3, 0.4, 0.2, 0.1]])
    first = draws(flashinfer.top_k_top_p_sampling_from_probs, probs, top_k=2, top_p=0.5)
    joint = draws(flashinfer.top_k_top_p_sampling_from_probs, probs, top_k=2, top_p=0.5, filter_apply_order="joint")
    assert set(first.tolist()) == {1} and set(joint.tolist()) == {0, 1}
    with pytest.raises(ValueError, match="Invalid filter_apply_order: top_p_first"):
        flashinfer.top_k_top_p_sampling_from_probs(probs, 2, 0.5, filter_apply_order="top_p_first")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_renorm_and_mask(dtype):
    probs = distribution(7, 999).to(dtype)
    k, p = torch.arange(1, 8) * 100, torch.linspace(0.1, 1, 7)
    for top_k in (17, 5000, k):
        got = flashinfer.top_k_renorm_probs(probs, top_k)
        each = [kept(row[None], int(n)) for row, n in zip(probs, k if top_k is k else [top_k] * 7, strict=True)]
        want = torch.where(torch.cat(each), probs.double(), 0.0)
        torch.testing.assert_close(got.double(), want / want.sum(-1, keepdim=True), rtol=0.01, atol=1e-7)
        assert got.dtype == dtype and torch.equal(got != 0, want != 0)
    for top_p in (0.9, p):
        got = flashinfer.top_p_renorm_probs(probs, top_p)
        assert got.dtype == torch.float32
        torch.testing.assert_close(got.sum(-1)[:6], torch.ones(6), rtol=1e-3, atol=0)
    logits = torch.randn(7, 999, generator=torch.Generator().manual_seed(2)).to(dtype)
    assert torch.equal(flashinfer.top_k_mask_logits(logits, 33), logits.masked_fill(~kept(logits.double() + 99, 33), -torch.inf))


def test_edges():
    """Tests the published edges: one-hot, ties, everything kept, zeros."""
    one_hot = torch.nn.functional.one_hot(torch.arange(9), 9).float()
    assert flashinfer.top_p_sampling_from_probs(one_hot, 0.5, **SEED).tolist() == list(range(9))
    flat = torch.full((1, 8), 0.125)
    assert torch.equal(flashinfer.top_k_renorm_probs(flat, 3), flat)
    assert torch.equal(sampling.top_p_renorm_prob(flat, 1.0), flat)
    tokens, valid = flashinfer.sampling_from_probs(torch.cat([torch.zeros(1, 8), flat]), return_valid=True, **SEED)
    assert tokens[0] == 0 and valid.tolist() == [False, True] and tokens.dtype == torch.int32
    for call in (lambda x: flashinfer.sampling_from_probs(x, check_nan=True),
                 lambda x: flashinfer.top_k_sampling_from_probs(x, 3, check_nan=True)):
        with pytest.raises(ValueError, match="Input probs contains NaN"):
            call(torch.full((2, 8), torch.nan))
    assert flashinfer.sampling_from_logits(torch.zeros(0, 8)).shape == (0,)


def test_vectors_beside_indices():
    """Tests that top_k and top_p have an entry for each row, min_p one for each token."""
    probs, indices = torch.tensor([[0.4, 0.35, 0.25], [0.5, 0.3, 0.2]]), torch.tensor([0, 1, 1, 0] * 100, dtype=torch.int32)
    tokens = flashinfer.top_k_sampling_from_probs(probs, torch.tensor([3, 1]), indices, **SEED)
    assert tokens.dtype == torch.int32 and set(tokens[indices == 1].tolist()) == {0} and set(tokens[indices == 0].tolist()) == {0, 1, 2}
    tokens = flashinfer.min_p_sampling_from_probs(probs, torch.where(torch.arange(400) < 200, 1.0, 0.0), indices, **SEED)
    assert set(tokens[:200].tolist()) == {0} and set(tokens[200:].tolist()) == {0, 1, 2}


def test_seeds():
    probs = distribution(40, 500)
    again = flashinfer.sampling_from_probs(probs, **SEED)
    assert torch.equal(again, flashinfer.sampling_from_probs(probs, seed=torch.tensor([11]), offset=torch.tensor([3])))
    by_row = {"seed": torch.arange(40), "offset": torch.zeros(40, dtype=torch.int64)}
    together = flashinfer.sampling_from_probs(probs, **by_row)
    assert together[7] == flashinfer.sampling_from_probs(probs[7:8], seed=7, offset=0)[0]
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    first, second = (flashinfer.sampling_from_probs(probs, generator=generators[0]) for _ in range(2))
    assert torch.equal(first, flashinfer.sampling_from_probs(probs, generator=generators[1])) and not torch.equal(first, second)
    torch.set_default_device("meta")  # which is not where the seed is drawn
    try:
        third = flashinfer.sampling_from_probs(probs, generator=generators[1])
    finally:
        torch.set_default_device(None)
    assert torch.equal(third, second)
    for wrong, text in (({"seed": 3}, "offset"), ({"seed": torch.tensor([3]), "offset": 4}, "must both be tensors or both be scalars")):
        with pytest.raises(ValueError, match=text):
            flashinfer.sampling_from_probs(probs, **wrong)


def test_chain():
    same = torch.tensor([[[0.2, 0.3, 0.5], [0.2, 0.3, 0.5], [0, 1, 0]]])
    zero = torch.tensor([[[0.5, 0, 0.5], [0.2, 0.3, 0.5], [0, 1, 0]]])
    ids, emitted = torch.tensor([[1, 0]]), torch.tensor([20])
    for offset in range(20):
        tokens, accepted, sent = flashinfer.chain_speculative_sampling(same[:, :2], ids, same, None, emitted, seed=5, offset=offset)
        assert tokens.tolist() == [[1, 0, 1]] and accepted.tolist() == [2] and sent is emitted
        tokens, accepted, sent = flashinfer.chain_speculative_sampling(same[:, :2], ids, zero, seed=5, offset=offset)
        assert tokens.tolist() == [[0, -1, -1]] and accepted.tolist() == [1] and sent.tolist() == [0]
    assert emitted.item() == 60


def test_refusals():
    probs = distribution(2, 8)
    for call, text in ((lambda: flashinfer.top_k_sampling_from_probs(probs, 0), "top_k_sampling_from_probs: top_k is 0; accepted: 1 or more"),
                       (lambda: flashinfer.top_p_renorm_probs(probs, 0.0), "top_p_renorm_probs: top_p is 0.0; accepted: above 0"),
                       (lambda: flashinfer.softmax(probs, 0), "softmax: temperature is 0")):
        with pytest.raises(ValueError, match=text):
            call()


@by_quern
def test_what_quern_checks():
    probs = distribution(2, 8)
    for call, text in ((lambda: flashinfer.top_p_sampling_from_probs(probs, 1.5), "top_p_sampling_from_probs: top_p is 1.5"),
                       (lambda: flashinfer.top_p_sampling_from_probs(probs, torch.tensor([0.5, 0])), r"top_p\[1\] is 0"),
                       (lambda: flashinfer.sampling_from_probs(probs, torch.tensor([2])), r"sampling_from_probs: indices\[0\] is 2")):
        with pytest.raises(ValueError, match=text):
            call()


@by_quern
def test_compiled():
    logits = torch.randn(4, 300)

    def sample(x):
        return flashinfer.top_k_top_p_sampling_from_logits(x * 2, 20, 0.9, **SEED)

    assert torch.equal(torch.compile(sample, fullgraph=True, backend="aot_eager")(logits), sample(logits))


@by_quern
def test_pytorch_computes_the_same_when_disabled():
    """Runs this file once more under SGLANG_DISABLE_FLASHINFER, without the promises that only quern makes."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__],
                          env={**os.environ, "SGLANG_DISABLE_FLASHINFER": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout
