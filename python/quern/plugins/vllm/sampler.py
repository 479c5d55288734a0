# SPDX-License-Identifier: Apache-2.0
"""vLLM's sampling by top-k and top-p. TopKTopPSampler chooses its method when it is made, so the plugin puts quern's there after
vLLM has chosen."""

import functools

import torch
from vllm.config.model import PROCESSED_LOGPROBS_MODES
from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler

import quern

from . import _where

_NAME = TopKTopPSampler.__name__


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


def register(table):
    kernel = _where.probe().kernel(quern.sample, torch.zeros(1, 4096), top_k=50, top_p=0.9)
    TopKTopPSampler.__init__ = _made(TopKTopPSampler.__init__)
    table.serve(_NAME, kernel, "1 x 4096 of f32, top-k and top-p")
