# SPDX-License-Identifier: Apache-2.0
"""Names of AITER that are here only to say why they are not served, and what to switch off in the engine."""

from collections.abc import Callable
from typing import Any, NoReturn


def absent(name: str, why: str) -> Callable[..., NoReturn]:
    """Returns a function that raises NotImplementedError with the reason, whatever it gets."""
    def call(*_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: {why}; docs/aiter.md lists what is served")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Raises NotImplementedError: {why}."
    call.is_absent = True  # type: ignore[attr-defined]
    return call


FP4 = "quern has no FP4; choose a model in bf16 or FP8"
MOE = ("it is a part of AITER's layer of experts, which quern has as a whole: call fused_moe, or set VLLM_ROCM_USE_AITER_MOE=0 or "
       "SGLANG_USE_AITER=0")
SMOOTH = "quern has no scale for each channel of a quantised norm; choose a model without SmoothQuant"
SPARSE = "quern has no cache of an indexer's keys; choose a model without sparse attention"
PERSISTENT = "quern has no attention in given pieces of work; set SGLANG_AITER_MLA_PERSIST=0"
MANY_GPUS = "quern runs on one GPU; set VLLM_ROCM_USE_AITER_CUSTOM_AR=0, or SGLANG_USE_AITER_AR=0"
