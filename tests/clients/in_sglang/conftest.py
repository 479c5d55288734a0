# SPDX-License-Identifier: Apache-2.0
"""SGLang on a PyTorch that says it is ROCm's and sees an MI300X, with tensors of the CPU: no GPU is opened. SGLang's own Triton
kernels are interpreted."""

import contextlib
import io
import os
import types

import pytest

os.environ.update(QUERN_SGLANG="1", GPU_ARCHS="gfx942", TRITON_INTERPRET="1")
import torch  # noqa: E402

_GPU = types.SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4, multi_processor_count=304, warp_size=64,
                             total_memory=192 << 30, name="AMD Instinct MI300X")
torch.version.hip, torch.version.cuda = "7.0", None
torch.cuda.get_device_properties = lambda *_: _GPU
torch.cuda.get_device_capability = lambda *_: (9, 4)
torch.cuda.get_device_name = lambda *_: _GPU.name
torch.cuda.is_available = lambda: True
torch.cuda.device_count = lambda: 1
torch.cuda.current_device = lambda: 0
torch.set_grad_enabled(False)

import quern.compat  # noqa: E402

quern.compat.install("aiter")  # which SGLang imports on AMD's GPUs in any case


@pytest.fixture(scope="session", autouse=True)
def told():
    """Loads the plugins as SGLang does. Returns what quern printed of itself."""
    from sglang.multimodal_gen.runtime.platforms import plugins as diffusion
    from sglang.srt.plugins import load_plugins
    with contextlib.redirect_stderr(io.StringIO()) as text:
        load_plugins()
        diffusion.load_plugins()
        diffusion.apply_plugin_hooks()
    return text.getvalue()


@pytest.fixture(autouse=True)
def nothing_said():
    """Forgets what quern has said, as it says all of it once."""
    from quern.plugins import _calls
    _calls._told.clear()


@pytest.fixture(scope="module")
def one_gpu():
    """Makes SGLang's own configuration, of a server with one GPU, which samples by PyTorch as on AMD's."""
    from sglang.srt.runtime_context import get_context, get_parallel
    group = types.SimpleNamespace(device_group=None, world_size=1)
    names = ("tp_group", "moe_ep_group", "moe_tp_group")
    with get_context().override_server_args(sampling_backend="pytorch"), \
            get_parallel().override(**dict.fromkeys(names, group), tp_rank=0, moe_ep_rank=0, moe_tp_rank=0):
        yield get_parallel()
