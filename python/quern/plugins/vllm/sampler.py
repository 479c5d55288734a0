# SPDX-License-Identifier: Apache-2.0
"""vLLM's sampling by top-k and top-p, of both model runners. V1's TopKTopPSampler chooses its method when it is made, so the plugin puts
quern's there after vLLM has chosen. V2's Sampler calls a function that filters and draws at once, FlashInfer's, for batches without greedy
requests and seeds of requests, if it says that there is one: the plugin's stands in that function's place."""

import functools

import torch
from vllm.config.model import PROCESSED_LOGPROBS_MODES
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler, apply_top_k_top_p, random_sample

import quern

from . import _where

_NAME, _NAME_V2 = TopKTopPSampler.__name__, "Sampler-V2"


def _seeds(rows, generators, device):
    """Returns a seed for each row: of the row's own generator, or of PyTorch's."""
    most = 2**63 - 1
    seeds = torch.randint(most, (rows,), device=device)
    for i, generator in generators.items():
        seeds[i:i + 1] = torch.randint(most, (1,), device=generator.device, generator=generator)
    return seeds


def _sampled(theirs):
    def forward(logits, generators, k, p):
        def ours():
            return quern.sample(logits, top_k=k, top_p=p, seed=_seeds(len(logits), generators, logits.device)).long(), None
        return _where.calls(_NAME, ours, lambda: theirs(logits, generators, k, p))

    return forward


def _made(init):
    @functools.wraps(init)
    def wrapped(self, *arguments, **options):
        init(self, *arguments, **options)
        why = "logprobs_mode asks for filtered logits" if self.logprobs_mode in PROCESSED_LOGPROBS_MODES else \
            "it draws in f64" if self.use_fp64_gumbel else None
        if why:
            _where.calls.tell(_NAME, why)
        else:
            self.forward = _sampled(self.forward)

    return wrapped


# ---- model runner V2

def _filtered_and_drawn(logits, k, p):
    """Returns tokens by vLLM's own functions."""
    return random_sample(apply_top_k_top_p(logits, k, p).softmax(-1, dtype=torch.float32), {})


def _drawn_at_once(logits, k, p):
    def ours():
        return quern.sample(logits, top_k=k, top_p=p, seed=_seeds(len(logits), {}, logits.device)).long()
    return _where.calls(_NAME_V2, ours, lambda: _filtered_and_drawn(logits, k, p))


def _made_v2(init):
    @functools.wraps(init)
    def wrapped(self, *arguments, **options):
        init(self, *arguments, **options)
        why = "it returns which tokens its filters keep" if self.return_sampling_mask else "it draws in f64" if self.use_fp64_gumbel else None
        if why:
            _where.calls.tell(_NAME_V2, why)
        self.use_flashinfer = not why

    return wrapped


def _register_v2(table, kernel):
    try:
        from vllm.v1.worker.gpu.sample import sampler
    except ImportError as error:
        table.leave(_NAME_V2, f"this vLLM has it not: {error}")
        return
    sampler.Sampler.__init__ = _made_v2(sampler.Sampler.__init__)
    sampler.flashinfer_sample = _drawn_at_once
    table.serve(_NAME_V2, kernel, "the same, of batches without greedy requests and seeds")


def register(table):
    kernel = _where.probe().kernel(quern.sample, torch.zeros(1, 4096), top_k=50, top_p=0.9)
    TopKTopPSampler.__init__ = _made(TopKTopPSampler.__init__)
    table.serve(_NAME, kernel, "1 x 4096 of f32, top-k and top-p")
    _register_v2(table, kernel)
