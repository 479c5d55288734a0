# SPDX-License-Identifier: Apache-2.0
"""SGLang's sampler by quern: tokens within what SGLang's own filters keep, as often as their probabilities say."""

import types

import pytest
import quern
import torch
from deep_gemm_tools import randn
from sglang.srt.layers import sampler

pytestmark = pytest.mark.usefixtures("one_gpu")
ROWS, VOCAB = 20000, 16
# top-k, top-p, min-p. In "both" it matters that top-p counts among all tokens, not among what top-k keeps.
FILTERS = {"none": (None, None, None), "top-k": (5, None, None), "top-p": (None, 0.7, None), "both": (3, 0.7, None),
           "min-p": (None, None, 0.3), "all": (8, 0.9, 0.2)}


def info_of(name, rows, temperature=1.0, seeds=None, masks=None):
    """Returns what SGLang's scheduler tells of a batch."""
    k, p, m = FILTERS[name]
    return types.SimpleNamespace(
        top_ks=torch.full((rows,), k or sampler.TOP_K_ALL, dtype=torch.int32), top_ps=torch.full((rows,), p or 1.0),
        min_ps=torch.full((rows,), m or 0.0), need_top_k_sampling=k is not None, need_top_p_sampling=p is not None,
        need_min_p_sampling=m is not None, temperatures=torch.full((rows, 1), temperature), sampling_seed=seeds, max_top_k=None,
        sampling_mask_batch_indices=masks, sampling_support_logprobs_capture_indices=None, is_all_greedy=False,
        has_custom_logit_processor=False, grammars=None)


def sampled(logits, info, positions=None):
    """Runs SGLang's whole sampler."""
    output = types.SimpleNamespace(next_token_logits=logits.clone())
    return sampler.Sampler()(output, info, False, [], [], torch.zeros(len(logits), dtype=torch.int64) if positions is None else positions)


def kept(logits, name):
    """Returns the probabilities that SGLang's own function draws from."""
    info = info_of(name, 1)
    _, weights, ids, _ = sampler.top_k_top_p_min_p_sampling_from_probs_torch(
        logits.softmax(-1), info.top_ks, info.top_ps, info.min_ps, info.need_min_p_sampling, None, None, return_filtered_probs=True)
    exact = torch.zeros(VOCAB, dtype=torch.float64)
    exact[ids[0].long()] = weights[0].double()
    return exact / exact.sum()


@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize("name", list(FILTERS))
def test_tokens_are_as_likely_as_sglangs(name, temperature):
    torch.manual_seed(5)
    logits = 2 * randn(1, VOCAB)
    tokens = sampled(logits.expand(ROWS, -1), info_of(name, ROWS, temperature))
    assert tokens.shape == (ROWS,) and quern.last_kernel().startswith("sampling.cpu")
    exact = kept(logits / temperature, name)
    counts = tokens.long().bincount(minlength=VOCAB).double()
    # Five standard deviations of a binomial count; tokens that are filtered out never come.
    assert bool(((counts - ROWS * exact).abs() <= 5 * (ROWS * exact * (1 - exact)).sqrt()).all())


@pytest.mark.parametrize("name", ["none", "both", "all"])
def test_a_requests_seed_and_place_decide_its_token(name):
    logits = randn(1, VOCAB).expand(64, -1)
    seeds, positions = torch.arange(64) // 8, torch.arange(64) % 8
    tokens = sampled(logits, info_of(name, 64, seeds=seeds), positions)
    order = torch.randperm(64, generator=torch.Generator().manual_seed(1))[:20]  # in another batch
    again = sampled(logits[:20], info_of(name, 20, seeds=seeds[order]), positions[order])
    assert torch.equal(again, tokens[order]) and len(tokens.unique()) > 2


def test_draws_follow_pytorchs_generator():
    logits, info = randn(1, VOCAB).expand(64, -1), info_of("both", 64)
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(sampled(logits, info))
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def test_what_filters_keep_is_sglangs(caplog):
    rows = torch.arange(4)
    logits, info = randn(4, VOCAB), info_of("both", 4, masks=rows)
    with caplog.at_level("WARNING"):
        probs = logits.softmax(-1)
        _, capture = sampler.Sampler()._sample_from_probs(probs, info, rows, False)
    assert capture.weights.shape == (4, VOCAB) and "what its filters keep" in caplog.text


def test_table(told):
    assert "quern, sampling.gpu" in next(line for line in told.splitlines() if line.startswith("  Sampler"))
