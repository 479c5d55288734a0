# SPDX-License-Identifier: Apache-2.0
"""Which PyTorch tensors quern takes: tensors that need no gradient and whose memory holds what they mean."""

import functools
import operator

import torch

_Tensor, _is_grad_enabled = torch.Tensor, torch.is_grad_enabled  # looked up here once, as each call needs them


def _bits(*names):
    """Returns the bits of a tensor's dispatch keys that tell these kinds from plain tensors."""
    one = {name: torch._C.DispatchKeySet(torch._C._parse_dispatch_key(name)).raw_repr() for name in ("CPU", *names)}
    return functools.reduce(operator.or_, one.values()) & ~one["CPU"]


# The bits of all kinds that are not plain, so that one look at a plain tensor's keys is enough.
_FAULTY = _bits("Negative", "Conjugate", "ZeroTensor", "FuncTorchBatched", "FuncTorchGradWrapper", "Python", "Meta", "SparseCPU",
                "SparseCsrCPU", "NestedTensorCPU", "QuantizedCPU", "MkldnnCPU")
_TRANSFORMED = _bits("FuncTorchBatched", "FuncTorchGradWrapper")


def is_transformed(x):
    """Returns whether a tensor is one inside torch.func.vmap or grad, which a compiler's never is."""
    return not torch.compiler.is_compiling() and bool(torch._C._dispatch_keys(x).raw_repr() & _TRANSFORMED)


def fault_of(x):
    """Returns what a PyTorch tensor means that its memory does not hold, with what would be accepted; None: nothing."""
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
    """Raises, with the value's name, if a value needs a gradient. This is the only such rule in quern."""
    if not torch.is_grad_enabled():
        return
    for name, x in zip(names, values, strict=False):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            raise RuntimeError(f"{op}: {name} requires a gradient, and quern computes none of this call; accepted: {name}.detach(), or the "
                               "call under torch.no_grad() or torch.inference_mode()")


def check(op, names, values):
    """Raises if a value is a PyTorch tensor that quern does not take."""
    refuse_gradients(op, names, values)
    for name, x in reversed(list(zip(names, values, strict=False))):  # results, which are made like the inputs, come
                                                                      # before the inputs
        fault = fault_of(x) if isinstance(x, torch.Tensor) else None
        if fault is not None:
            raise ValueError(f"{op}: {name} {fault}")


def check_quickly(op, names, values):
    """Checks as check() does, but only for tensors that would pass silently. All other faulty tensors, which take a
    microsecond to find, fail when they are converted."""
    grads = _is_grad_enabled()
    for x in values:
        if isinstance(x, _Tensor) and (x.is_neg() or (grads and x.requires_grad)):
            check(op, names, values)
