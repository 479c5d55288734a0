# SPDX-License-Identifier: Apache-2.0
"""vLLM's samplers by quern: tokens within what vLLM's own filters keep, as often as their probabilities say."""

import types

import pytest
import quern
import torch
from deep_gemm_tools import randn
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p_pytorch
from vllm.v1.worker.gpu.sample import sampler as v2

ROWS, VOCAB = 20000, 16
FILTERS = {"none": (None, None), "top-k": (5, None), "top-p": (None, 0.7), "both": (6, 0.8)}


def filters_of(name, rows=ROWS):
    k, p = FILTERS[name]
    return (None if k is None else torch.full((rows,), k, dtype=torch.int32)), (None if p is None else torch.full((rows,), p))


def check(tokens, logits, name):
    k, p = filters_of(name, 1)
    kept = apply_top_k_top_p_pytorch(logits.clone(), k, p) if name != "none" else logits
    exact = kept.double().softmax(-1)[0]
    counts = tokens.bincount(minlength=VOCAB).double()
    # Five standard deviations of a binomial count; tokens that are filtered out never come.
    assert bool(((counts - ROWS * exact).abs() <= 5 * (ROWS * exact * (1 - exact)).sqrt()).all())


@pytest.mark.parametrize("name", list(FILTERS))
def test_tokens_are_as_likely_as_vllms(name):
    torch.manual_seed(5)
    logits = (2 * randn(1, VOCAB)).expand(ROWS, -1).contiguous()
    k, p = filters_of(name)
    tokens, none = TopKTopPSampler()(logits, {}, k, p)
    assert none is None and tokens.dtype == torch.int64 and quern.last_kernel().startswith("sampling.cpu")
    check(tokens, logits[:1], name)


def test_a_rows_generator_decides_its_tokens():
    logits, k, p = randn(3, VOCAB), *filters_of("both", 3)
    def draw(seed):
        return TopKTopPSampler()(logits, {1: torch.Generator().manual_seed(seed)}, k, p)[0]
    draws = {int(draw(seed)[1]) for seed in range(40)}
    assert len(draws) > 1 and all(int(draw(3)[1]) == int(draw(3)[1]) for _ in range(5))


@pytest.mark.parametrize("options, why", [({"logprobs_mode": "processed_logits"}, "filtered logits"), ({"use_fp64_gumbel": True}, "in f64")])
def test_what_stays_vllms(options, why, caplog):
    sampler = TopKTopPSampler(**options)
    assert sampler.forward.__name__ in ("forward_native", "forward_hip") and why in caplog.text


# ---- model runner V2

STATES = ("SamplingStates", "PenaltiesState", "LogitBiasState", "BadWordsState", "LogprobTokenIdsState", "ThinkingBudgetState")


@pytest.fixture
def made(monkeypatch):
    """Returns a function that makes vLLM's sampler with quern's plugin. What it keeps of requests is in memory that a GPU shares: here
    there are no greedy requests and no seeds."""
    for name in STATES:
        monkeypatch.setattr(v2, name, lambda *_: types.SimpleNamespace(any_greedy=lambda _: False, any_explicit_seed=lambda _: False))
    monkeypatch.setattr(v2.LogitsProcRequestState, "from_request_state", lambda _: None)
    monkeypatch.setattr(v2.Sampler, "apply_sampling_params", lambda _, logits, *__, **___: logits)
    config = types.SimpleNamespace(reasoning_config=None)
    return lambda **options: v2.Sampler(config, ROWS, VOCAB, torch.device("cpu"), None, **options)


@pytest.mark.parametrize("name", ["top-k", "top-p", "both"])
def test_tokens_of_model_runner_v2(name, made):
    torch.manual_seed(5)
    logits, sampler = (2 * randn(1, VOCAB)).expand(ROWS, -1).contiguous(), made()
    sampler.sampling_states.get_top_k_top_p = lambda *_: (*filters_of(name), False)
    tokens, same = sampler.sample(logits, torch.arange(ROWS), *[None] * 6)
    assert same is logits and tokens.dtype == torch.int64 and quern.last_kernel().startswith("sampling.cpu")
    check(tokens, logits[:1], name)


def test_what_quern_has_not_is_drawn_by_vllms_functions(caplog):
    logits = (2 * randn(1, VOCAB)).double().expand(ROWS, -1).contiguous()
    check(v2.flashinfer_sample(logits.clone(), *filters_of("both")), logits[:1].float(), "both")  # vLLM filters in place
    assert "Sampler-V2: the engine's own: " in caplog.text


@pytest.mark.parametrize("options, why", [({"return_sampling_mask": True}, "its filters keep"), ({"use_fp64_gumbel": True}, "in f64")])
def test_what_stays_model_runner_v2s(options, why, made, caplog):
    assert not made(**options).use_flashinfer and why in caplog.text
