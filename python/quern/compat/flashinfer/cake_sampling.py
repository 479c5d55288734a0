# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's sampling under Cake's name."""

import torch

from ._hints import check_flags, refuse
from ._products import kind, result
from .sampling import top_k_top_p_sampling_from_probs as _sample


def top_k_top_p_sampling_from_probs(probs, top_k, top_p, *, top_k_max=None, generator=None, philox_seed=None, philox_offset=None, out=None,
                                    renorm_out=None, workspace=None, enable_pdl=True):
    """Returns sampling.top_k_top_p_sampling_from_probs of seed philox_seed and offset philox_offset, i32 [rows], in out if it is given.
    top_k_max is at least top_k and changes nothing, as does enable_pdl; renorm_out and workspace are None."""
    op = "cake_top_k_top_p_sampling_from_probs"
    refuse(op, renorm_out=renorm_out, workspace=workspace)
    check_flags(op, enable_pdl=enable_pdl)
    if top_k_max is not None and int(torch.as_tensor(top_k).max()) > top_k_max:
        raise ValueError(f"{op}: top_k_max is {top_k_max}, top_k is above it")
    kind(op, "probs", probs, (torch.float32,))
    tokens = _sample(probs, top_k, top_p, generator=generator, seed=philox_seed, offset=philox_offset)
    if out is None:
        return tokens
    return result(op, out, tokens.shape, torch.int32, probs.device, (torch.int32,), "tokens").copy_(tokens)
