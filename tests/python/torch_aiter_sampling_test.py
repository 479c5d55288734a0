# SPDX-License-Identifier: Apache-2.0
"""quern.compat.aiter's sampling: what is kept, how often tokens come, and which rows; also what AITER's own tests found elsewhere."""

import pytest

torch = pytest.importorskip("torch")
from deep_gemm_tools import BF16, randn  # noqa: E402

from quern.compat.aiter.ops import sampling, topk  # noqa: E402
from quern.compat.aiter.ops.triton.rope import rope as thd  # noqa: E402

PROBS = torch.tensor([[0.4, 0.3, 0.2, 0.1], [0.05, 0.05, 0.1, 0.8]])


@pytest.mark.parametrize("k", [1, 3, torch.tensor([2, 1], dtype=torch.int32)])
def test_top_k_renorm_probs(k):
    got = torch.ops.aiter.top_k_renorm_probs(PROBS, *((k, 0) if isinstance(k, torch.Tensor) else (None, k)))
    for row, probs, count in zip(got, PROBS, k.tolist() if isinstance(k, torch.Tensor) else [k, k], strict=True):
        want = torch.where(probs >= probs.sort().values[-count], probs, 0.0)
        torch.testing.assert_close(row, want / want.sum(), rtol=1e-6, atol=0)


def frequencies(tokens):
    return torch.bincount(tokens, minlength=4) / len(tokens)


@pytest.mark.parametrize("call, weights", [
    (lambda rows: torch.ops.aiter.top_p_sampling_from_probs(PROBS, rows, None, 0.6), [4, 3, 0, 0]),
    (lambda rows: torch.ops.aiter.top_p_sampling_from_probs(PROBS, rows, torch.tensor([0.85, 0.5]), 0.0, deterministic=True), [4, 3, 2, 0]),
    # top_p counts of all probabilities: 0.6 of what the three largest are would keep two of them as well, 0.75 only two, not three.
    (lambda rows: torch.ops.aiter.top_k_top_p_sampling_from_probs(PROBS, rows, None, 3, None, 0.75), [4, 3, 2, 0]),
    (lambda rows: torch.ops.aiter.top_k_top_p_sampling_from_probs(PROBS, rows, torch.tensor([2, 1]), 0, None, 0.95), [4, 3, 0, 0])])
def test_tokens(call, weights):
    torch.manual_seed(5)
    count = 4000
    rows = torch.zeros(count, dtype=torch.int32)
    rows[-1] = 1
    tokens = call(rows)
    assert tokens.dtype == torch.int32 and int(tokens[-1]) == 3
    p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    got = frequencies(tokens[:-1])
    assert torch.all((got - p).abs() <= 6 * (p * (1 - p) / count).sqrt())
    assert not torch.equal(tokens, call(rows))  # the generator went on


def test_a_token_for_each_row():
    assert sampling.top_p_sampling_from_probs(PROBS, None, None, 1e-3).tolist() == [0, 3]


@pytest.mark.parametrize("arguments, message", [
    ((PROBS, None, None, 0.0), "top_p_sampling_from_probs: top_p_val is 0.0; accepted: above 0"),
    ((PROBS, None, torch.ones(3), 0.0), "top_p_sampling_from_probs: maybe_top_p_arr has shape"),
    ((PROBS[0], None, None, 0.5), "top_p_sampling_from_probs: probs has shape")])
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        sampling.top_p_sampling_from_probs(*arguments)


def test_no_tensor():
    with pytest.raises(TypeError, match="top_k_renorm_probs: probs"):
        sampling.top_k_renorm_probs([0.5, 0.5], None, 1)


def test_rotary_tables_as_wide_as_a_head():
    cos, sin, positions, offsets = randn(9, 32, dtype=BF16), randn(9, 32, dtype=BF16, seed=1), torch.tensor([0, 3, 5]), torch.tensor([1, 2, 3])
    x, y = randn(3, 4, 64, dtype=BF16), randn(3, 2, 64, dtype=BF16, seed=2)
    want = thd.rope_cached_thd_positions_offsets_2c_fwd_inplace(x.clone(), y.clone(), cos, sin, positions, offsets, 0, True, False)
    cos, sin = torch.cat((cos, randn(9, 32, dtype=BF16, seed=3)), -1), torch.cat((sin, randn(9, 32, dtype=BF16, seed=4)), -1)
    got = thd.rope_cached_thd_positions_offsets_2c_fwd_inplace(x, y, cos, sin, positions, offsets, 0, True, False)
    assert all(map(torch.equal, got, want)) and not torch.equal(want[0], randn(3, 4, 64, dtype=BF16))


def test_no_bias_is_an_empty_one():
    got = []
    for bias in (None, torch.empty(0)):
        got.append((torch.zeros(5, 3), torch.zeros(5, 3, dtype=torch.int32)))
        topk.topk_gating(*got[-1], randn(5, 16), bias, score_func="softmax")
    assert all(map(torch.equal, *got)) and torch.allclose(got[0][0].sum(-1), torch.ones(5))
    with pytest.raises(ValueError, match="correction_bias has 2 dimensions"):
        topk.topk_gating(*got[0], randn(5, 16), torch.empty(0, 16), score_func="softmax")
