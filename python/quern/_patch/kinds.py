# SPDX-License-Identifier: Apache-2.0
"""The modules that quern knows: (whether a module looks like the kind, what replaces it or raises Unfit), in the order
of asking.

A module stands before its parts in the model, so it is asked first, and may be replaced together with its parts.
"""

from functools import partial

from . import Unfit, activations, attention, experts, flux, linear, mla, norms, processors, sd3, wan

_KINDS = [
    (norms.is_adaptive, norms.adaptive),
    (norms.is_rmsnorm, norms.rmsnorm),
    (norms.is_layernorm, norms.layernorm),
    (experts.is_router, experts.router),
    (experts.is_experts, experts.experts),
    (activations.is_gated_mlp, activations.gated_mlp),
    (activations.is_gated_projection, activations.gated_projection),
    (linear.is_gelu, linear.gelu),
    (linear.is_fp8_linear, linear.fp8_linear),
    (linear.is_fast_linear, linear.linear),
    (flux.is_block, flux.block),
    (flux.is_single_block, flux.single_block),
    (sd3.is_block, sd3.block),
    (wan.is_block, wan.block),
    (processors.has("FluxAttnProcessor"), flux.attention),
    (wan.is_rotated, wan.attention),
    (processors.is_other, processors.other),
    (mla.is_mla, mla.mla),
    (attention.is_rotary, attention.rotary),
]


def _alone(reason):
    def make(run, module):
        raise Unfit(reason)

    return make


# These are named in the report and left alone.
_KINDS += [
    (norms.is_other, _alone("quern has no norm over groups, batches or channels")),
    (activations.is_ungated, _alone("it stands by itself; quern has activations together with the product by a gate")),
    (attention.is_table, _alone("it makes the tables of cosines and sines; the rotation itself is in the attention")),
]


def of(run):
    every = [(linear.is_linear, linear.every_linear)] if run.linears == "all" else []
    return [(looks_like_it, partial(make, run)) for looks_like_it, make in every + _KINDS]
