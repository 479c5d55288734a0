# SPDX-License-Identifier: Apache-2.0
"""vLLM's sampler by quern: tokens within what vLLM's own filters keep, as often as their probabilities say."""

import pytest
import quern
import torch
from deep_gemm_tools import randn
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p_pytorch

ROWS, VOCAB = 20000, 16
FILTERS = {"none": (None, None), "top-k": (5, None), "top-p": (None, 0.7), "both": (6, 0.8)}


def filters_of(name, rows=ROWS):
    k, p = FILTERS[name]
    return (None if k is None else torch.full((rows,), k, dtype=torch.int32)), (None if p is None else torch.full((rows,), p))


@pytest.mark.parametrize("name", list(FILTERS))
def test_tokens_are_as_likely_as_vllms(name):
    torch.manual_seed(5)
    logits = (2 * randn(1, VOCAB)).expand(ROWS, -1).contiguous()
    k, p = filters_of(name)
    tokens, none = TopKTopPSampler()(logits, {}, k, p)
    assert none is None and tokens.dtype == torch.int64 and quern.last_kernel().startswith("sampling.cpu")
    k, p = filters_of(name, 1)
    kept = apply_top_k_top_p_pytorch(logits[:1].clone(), k, p) if name != "none" else logits[:1]
    exact = kept.double().softmax(-1)[0]
    counts = tokens.bincount(minlength=VOCAB).double()
    # Five standard deviations of a binomial count; tokens that are filtered out never come.
    assert bool(((counts - ROWS * exact).abs() <= 5 * (ROWS * exact * (1 - exact)).sqrt()).all())


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
