# SPDX-License-Identifier: Apache-2.0
"""SGLang's sampling from probabilities, by a hook around the step of its Sampler that draws."""

import torch
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
from sglang.srt.runtime_context import get_exec

import quern

from . import _where

_NAME = "Sampler"


def _filters(info, is_simple):
    """Returns quern's filters for a batch. SGLang's top-p counts among all tokens, but before min-p in FlashInfer's place."""
    if is_simple:
        return {}
    is_first = info.need_min_p_sampling and get_exec().kernel.sampling_backend == "flashinfer"
    min_p = {"min_p": info.min_ps.view(-1).float()} if info.need_min_p_sampling else {}
    return {"top_k": info.top_ks.view(-1).to(torch.int32), "top_p": info.top_ps.view(-1).float(), **min_p,
            "order": "top_k_first" if is_first else "joint"}


def _seeds(info, positions, device):
    """Returns a row's own seed and its token's place, or a seed for all of PyTorch's generator."""
    if info.sampling_seed is None:
        return {"seed": torch.randint(2**63 - 1, (1,), device=device)}
    return {"seed": info.sampling_seed.view(-1).to(torch.int64), "offset": positions.view(-1).to(torch.int64)}


def _drawn(original, self, probs, sampling_info, positions, simple_sampling_case):
    def theirs():
        return original(self, probs, sampling_info, positions, simple_sampling_case)

    if sampling_info.sampling_mask_batch_indices is not None:
        _where.calls.tell(_NAME, "what its filters keep is asked for as well")
        return theirs()
    return _where.calls(_NAME, lambda: (quern.sample_probs(probs, **_filters(sampling_info, simple_sampling_case),
                                                           **_seeds(sampling_info, positions, probs.device)), None), theirs)


def register(table):
    HookRegistry.register("sglang.srt.layers.sampler.Sampler._sample_from_probs", _drawn, HookType.AROUND)
    kernel = _where.probe().kernel(quern.sample_probs, torch.full((1, 4096), 2.0**-12), top_k=50, top_p=0.9, order="joint")
    table.serve(_NAME, kernel, "1 x 4096 of f32, top-k and top-p; the largest logit alone is PyTorch's")
