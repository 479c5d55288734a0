# SPDX-License-Identifier: Apache-2.0
"""Which chip it is."""

import os

import torch


def _properties():
    return torch.cuda.get_device_properties(torch.cuda.current_device()) if torch.cuda.is_available() else None


def get_gfx() -> str:
    """Returns the chip's name, such as "gfx942": the last one that the variable GPU_ARCHS names, else that of PyTorch's current AMD
    GPU, else "cpu"."""
    named = os.environ.get("GPU_ARCHS", "native").strip()
    if named and named.lower() != "native":
        return named.split(";")[-1]
    properties = _properties()
    return str(getattr(properties, "gcnArchName", "cpu")).split(":")[0] if torch.version.hip else "cpu"


def get_gfx_runtime() -> str:
    """Returns get_gfx()."""
    return get_gfx()


def get_cu_num() -> int:
    """Returns the number of compute units: the variable CU_NUM, else that of PyTorch's current GPU, else the processors."""
    named = int(os.environ.get("CU_NUM", "0"))
    properties = _properties()
    return named or (properties.multi_processor_count if properties else os.cpu_count() or 1)
