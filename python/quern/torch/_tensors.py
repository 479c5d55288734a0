# SPDX-License-Identifier: Apache-2.0
"""Which PyTorch tensors quern takes: those whose memory holds what they mean, and that need no gradient."""

import functools
import operator

import torch

_Tensor, _is_grad_enabled = torch.Tensor, torch.is_grad_enabled  # each call looks them up


def _bits(*names):
    """What of a tensor's dispatch keys tells these kinds from plain tensors."""
    one = {name: torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name)).raw_repr() for name in ("CPU", *names)}
    return functools.reduce(operator.or_, one.values()) & ~one["CPU"]


# Of all tensors that are not plain, so that one look at a tensor's keys is enough where it is.
_FAULTY = _bits("Negative", "Conjugate", "ZeroTensor", "FuncTorchBatched", "FuncTorchGradWrapper", "Python", "Meta", "SparseCPU",
                "SparseCsrCPU", "NestedTensorCPU", "QuantizedCPU", "MkldnnCPU")
_TRANSFORMED = _bits("FuncTorchBatched", "FuncTorchGradWrapper")


def fault_of(x):
    """What of a PyTorch tensor its memory does not hold, with what would do; None: nothing."""
    keys = torch._C._dispatch_keys(x).raw_repr()
    if not keys & _FAULTY:
        return None
    if keys & _TRANSFORMED:
        return "is a tensor inside torch.func.vmap or grad; accepted: plain tensors, outside of it"
    if x.is_nested:
        return "is a nested tensor; accepted: plain tensors, such as those of x.unbind()"
    if x.layout != torch.strided:
        return f"has layout {x.layout}; accepted: torch.strided, such as x.to_dense()"
    if x.is_quantized:
        return f"has dtype {x.dtype}; accepted: one without a scale of its own, such as that of x.dequantize()"
    if x.is_meta and type(x) is torch.Tensor:
        return "is on meta, where tensors have no data; accepted: tensors of a device, or FakeTensorMode for shapes alone"
    if x.is_neg() or x.is_conj():
        kind, fix = ("negated", "resolve_neg") if x.is_neg() else ("conjugated", "resolve_conj")
        return f"is a {kind} view, whose memory holds other numbers; accepted: x.{fix}()"
    return f"is a {type(x).__name__} without memory of its own; accepted: plain tensors"


def refuse_gradients(op, names, values):
    """Raises if a value needs a gradient, by its name: the one rule for all that quern computes."""
    if not torch.is_grad_enabled():
        return
    for name, x in zip(names, values, strict=False):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            raise RuntimeError(f"{op}: {name} requires a gradient, and quern computes none; accepted: {name}.detach(), or the "
                               "call under torch.no_grad() or torch.inference_mode()")


def check(op, names, values):
    """Raises if a value is a PyTorch tensor that quern does not take."""
    refuse_gradients(op, names, values)
    for name, x in reversed(list(zip(names, values, strict=False))):  # results, made like the inputs, stand before these
        fault = fault_of(x) if isinstance(x, torch.Tensor) else None
        if fault is not None:
            raise ValueError(f"{op}: {name} {fault}")


def check_quickly(op, names, values):
    """The same for what would pass in silence; all else, which takes a microsecond to see, fails when it is converted."""
    grads = _is_grad_enabled()
    for x in values:
        if isinstance(x, _Tensor) and (x.is_neg() or (grads and x.requires_grad)):
            check(op, names, values)
