# SPDX-License-Identifier: Apache-2.0
"""What tests with PyTorch share: NumPy's arrays as tensors, an op's arguments on a device, results bit by bit."""

import arguments
import numpy as np
import torch

_BY_BITS = {"bfloat16": np.uint16, "float8_e4m3fn": np.uint8, "float8_e4m3fnuz": np.uint8, "float8_e5m2": np.uint8,
            "float8_e5m2fnuz": np.uint8}


def as_torch(x, device="cpu"):
    """Returns a copy of an array, also of ml_dtypes' types, on a device. Anything else is returned unchanged."""
    if not isinstance(x, np.ndarray):
        return x
    bits = _BY_BITS.get(x.dtype.name)
    if bits is None:
        return torch.from_numpy(x.copy()).to(device)
    return torch.from_numpy(x.view(bits).copy()).view(getattr(torch, x.dtype.name)).to(device)


def arguments_of(name, device="cpu"):
    """Returns arguments.arguments(name) as tensors: on the device, but for what the CPU reads, of which a GPU gets a copy."""
    listed, values = arguments.parameters(name), arguments.arguments(name)
    given = {p.name: as_torch(x, "cpu" if p.is_host else device) for p, x in zip(listed, values, strict=True)}
    if device != "cpu" and given.get("plan") is not None:
        given["schedule"] = given["plan"].to(device)
    return list(given.values())


def written(name, values):
    """Returns those of an op's arguments that it writes."""
    pairs = zip(arguments.parameters(name), values, strict=True)
    return [value for parameter, value in pairs if parameter.is_written and value is not None]


def results(name, values):
    """Returns those of an op's arguments that it writes for the caller: a workspace's contents are nobody's business."""
    pairs = zip(arguments.parameters(name), values, strict=True)
    return [value for parameter, value in pairs if parameter.is_written and value is not None and parameter.name != "workspace"]


def bits(tensor):
    return tensor.detach().cpu().contiguous().view(torch.uint8)


def opcheck(name, values):
    """Runs PyTorch's own checks of a custom op."""
    checks = ["test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    has_fp8 = any(isinstance(x, torch.Tensor) and x.dtype.itemsize == 1 and x.is_floating_point() for x in values)
    if not has_fp8:  # this one does arithmetic on the arguments, which PyTorch cannot on its FP8 tensors
        checks.append("test_schema")
    results = torch.library.opcheck(getattr(torch.ops.quern, name).default, tuple(values), test_utils=checks)
    assert set(results.values()) == {"SUCCESS"}, results
