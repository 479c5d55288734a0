# SPDX-License-Identifier: Apache-2.0
"""SGLang's compiled kernels by quern's functions, under their names: of the module sgl_kernel, and of sglang.jit_kernel.

A name that is not here has no quern function: it refuses when it is called.
"""

import sys
import types

import torch

import quern
from quern.compat.flashinfer import activation, concat_ops, norm, rope, sampling

from .cases import QuernHasNot


def _rotary_embedding(positions, query, key, head_size, cos_sin_cache, is_neox=True):
    positions = positions.flatten().to(torch.int32)
    q, k = (None if x is None else x.view(len(positions), -1, head_size) for x in (query, key))
    quern.apply_rope_with_cos_sin_cache(q, k, cos_sin_cache.float(), positions, not is_neox, q_out=q, k_out=k)


def _apply_rope_inplace(q, k, cos_sin_cache, positions, *, is_neox, rope_dim=0):
    quern.apply_rope_with_cos_sin_cache(q, k, cos_sin_cache, positions.to(torch.int32), not is_neox, q_out=q, k_out=k)


def _rmsnorm(input, weight, out=None, eps=1e-6):
    quern.rmsnorm(input, weight, eps, input if out is None else out)


def _qknorm(q, k, q_weight, k_weight, eps=1e-6, *, head_dim=0):
    for x, weight in ((q, q_weight), (k, k_weight)):
        quern.rmsnorm(x, weight, eps, x)


def _qknorm_across_heads(q, k, q_weight, k_weight, eps=1e-6):
    for x, weight in ((q, q_weight), (k, k_weight)):
        quern.rmsnorm(x, weight, eps, x)


def _per_tensor_quant_fp8(input, output_q, output_s, is_static):
    if is_static:
        quern.quantize_static(input, output_s, q=output_q)
    else:
        quern.quantize_tensor(input.flatten(0, -2), q=output_q.flatten(0, -2), scale=output_s)


def _per_token_quant_fp8(input, output_q, output_s):
    _, scale = quern.quantize_groups(input, 0, q=output_q)
    output_s.copy_(scale.view(output_s.shape))


def _flashinfer(function):
    return lambda input, *arguments, enable_pdl=None, **options: function(input, *arguments, **options)


KERNELS = {
    "sgl_kernel": {
        **{name: _flashinfer(getattr(norm, name)) for name in ("rmsnorm", "fused_add_rmsnorm", "gemma_rmsnorm", "gemma_fused_add_rmsnorm")},
        **{name: _flashinfer(getattr(activation, name)) for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul")},
        "top_k_renorm_prob": sampling.top_k_renorm_probs, "top_p_renorm_prob": sampling.top_p_renorm_probs,
        "top_k_renorm_probs": sampling.top_k_renorm_probs, "top_p_renorm_probs": sampling.top_p_renorm_probs,
        "top_k_top_p_sampling_from_probs": sampling.top_k_top_p_sampling_from_probs,
        "top_p_sampling_from_probs": sampling.top_p_sampling_from_probs, "min_p_sampling_from_probs": sampling.min_p_sampling_from_probs,
        "apply_rope_with_cos_sin_cache_inplace": rope.apply_rope_with_cos_sin_cache_inplace,
        "concat_mla_k": concat_ops.concat_mla_k, "sgl_per_tensor_quant_fp8": _per_tensor_quant_fp8, "sgl_per_token_quant_fp8": _per_token_quant_fp8,
    },
    "sglang.jit_kernel.norm": {"rmsnorm": _rmsnorm, "fused_add_rmsnorm": quern.fused_add_rmsnorm, "fused_inplace_qknorm": _qknorm,
                               "fused_inplace_qknorm_across_heads": _qknorm_across_heads},
    "sglang.jit_kernel.concat_mla": {"concat_mla_k": concat_ops.concat_mla_k},
    "sglang.jit_kernel.rope": {"rotary_embedding": _rotary_embedding, "apply_rope_inplace": _apply_rope_inplace},
    "sglang.jit_kernel.per_tensor_quant_fp8": {"per_tensor_quant_fp8": _per_tensor_quant_fp8},
    # Sizes of a test: all of the second, a GPU's, and the fewer of its continuous integration.
    "sglang.jit_kernel.utils": {"get_ci_test_range": lambda all_, few: few},
}


class _Module(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith(("__", "pytest", "setUp", "tearDown", "setup_", "teardown_")):  # which pytest looks for
            raise AttributeError(name)

        def refuses(*_, **__):
            raise QuernHasNot(f"{self.__name__}.{name}: quern has no such function")
        return refuses


def install():
    """Puts these modules under their names. What of SGLang is there already stays."""
    for name in ("sglang.jit_kernel", *KERNELS):
        module = _Module(name)
        vars(module).update(KERNELS.get(name, {}))
        sys.modules[name] = module
