# SPDX-License-Identifier: Apache-2.0
"""AITER's sampling without probabilities."""

import torch

from .. import _check


def greedy_sample(out: torch.Tensor, input: torch.Tensor) -> None:
    """Writes the largest logit's number of each row of input [batch, vocabulary] to out i32 [batch], by PyTorch."""
    _check.tensors("greedy_sample", {"out": out, "input": input})
    _check.shape("greedy_sample", "input", input, None, None)
    _check.shape("greedy_sample", "out", out, input.shape[0])
    out.copy_(input.argmax(-1))
