# SPDX-License-Identifier: Apache-2.0
"""The CPU in a GPU's place: tensors that a test makes for "cuda" are made on the CPU, and PyTorch answers as if it saw one GPU."""

import contextlib
import types

import torch

_SETS, _GENERATOR = [torch.set_default_device], torch.Generator


class OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors for "cuda" on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args, kwargs = [moved(x) for x in args], {name: moved(x) for name, x in (kwargs or {}).items()}
        if function in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args[1] = "cpu"
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*args, **kwargs)


def moved(x):
    """Returns the CPU for any form of "cuda", and all else as it is."""
    if isinstance(x, str) and x.startswith("cuda") or isinstance(x, torch.device) and x.type == "cuda":
        return torch.device("cpu")
    return x


class _IsGenerator(type):
    def __instancecheck__(cls, x):
        return isinstance(x, _GENERATOR)


class _Generator(metaclass=_IsGenerator):
    """torch.Generator for the CPU, whatever the device; what it makes is one of PyTorch's own."""

    def __new__(cls, device="cpu"):
        return _GENERATOR("cpu")


class _Event:
    """A CUDA event: what it would mark has happened already."""

    def __init__(self, *_, **__):
        pass

    record = wait = synchronize = lambda self, *_: None

    def elapsed_time(self, _):
        return 1.0


def _answer(module, answers):
    for name, value in answers.items():
        setattr(module, name, lambda *_, value=value, **__: value)


@contextlib.contextmanager
def on_cpu(properties=None):
    """Makes "cuda" mean the CPU while it lasts; what PyTorch answers of GPUs stays. properties: those of the one GPU that PyTorch sees."""
    of_none = types.SimpleNamespace(multi_processor_count=8, total_memory=1 << 34, major=8, minor=0, name="CPU")
    properties = properties or of_none
    _answer(torch.cuda, {
        "is_available": True, "synchronize": None, "empty_cache": None, "manual_seed": None, "manual_seed_all": None, "set_device": None,
        "current_device": 0, "device_count": 1, "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties, "get_device_name": properties.name, "mem_get_info": (1 << 34, 1 << 34),
        "is_current_stream_capturing": False, "memory_allocated": 0, "max_memory_allocated": 0, "reset_peak_memory_stats": None})
    torch.cuda.get_rng_state, torch.cuda.set_rng_state = lambda *_: torch.get_rng_state(), lambda state, *_: torch.set_rng_state(state)
    torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all = lambda: [], lambda _: None
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_: torch.Stream(device="cpu")
    torch.cuda.device = torch.cuda.stream = lambda *_: contextlib.nullcontext()
    # No accelerator: torch.compile would ask it for a stream, which no GPU gives here.
    _answer(torch.accelerator, {"device_count": 1, "is_available": False, "synchronize": None, "empty_cache": None,
                                "current_device_index": 0, "set_device_index": None})
    torch.cuda.Event = torch.Event = _Event
    torch.Generator = _Generator
    torch.cpu.get_rng_state, torch.cpu.set_rng_state = torch.get_rng_state, torch.set_rng_state
    torch.set_default_device = lambda device: _SETS[0](moved(device))
    with OnCpu():
        yield
