# SPDX-License-Identifier: Apache-2.0
"""vLLM on a platform that says gfx942, with tensors of the CPU: no GPU is opened, and nothing of vLLM is compiled."""

import os

import pytest

os.environ.update(QUERN_VLLM="1", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", VLLM_ROCM_USE_AITER="1", GPU_ARCHS="gfx942")
import quern.compat  # noqa: E402
import torch  # noqa: E402

quern.compat.install("aiter")  # before vLLM looks for it
from vllm.platforms import current_platform  # noqa: E402

type(current_platform).dispatch_key = "CPU"  # for vLLM's ops, before vllm._aiter_ops defines them
torch.set_grad_enabled(False)

# Classes of vLLM look their compiled ops up when they are made. Nothing here may call these: they have no kernel.
_compiled = torch.library.Library("_C", "FRAGMENT")
for _name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
    _compiled.define(f"{_name}(Tensor(a!) out, Tensor x) -> ()")
_compiled.define("silu_and_mul_with_clamp(Tensor(a!) out, Tensor x, float limit, float alpha, float beta) -> ()")


@pytest.fixture(scope="session", autouse=True)
def told():
    """Loads the plugins as vLLM does. Returns what quern printed of itself."""
    import contextlib
    import io

    from vllm.plugins import load_general_plugins
    with contextlib.redirect_stderr(io.StringIO()) as text:
        load_general_plugins()
    return text.getvalue()


@pytest.fixture(autouse=True)
def config():
    """Makes vLLM's configuration the current one; custom ops run, as without torch.compile."""
    from vllm.config import CompilationConfig, VllmConfig, set_current_vllm_config
    made = VllmConfig(compilation_config=CompilationConfig(custom_ops=["all"]))
    with set_current_vllm_config(made):
        yield made


@pytest.fixture(autouse=True)
def nothing_said():
    """Forgets what quern has said, as it says all of it once."""
    from quern.plugins import _calls
    _calls._told.clear()
