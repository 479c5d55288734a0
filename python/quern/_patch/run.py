# SPDX-License-Identifier: Apache-2.0
"""How patched modules call ops: on the tensors' device or staged to another one; calls are counted and logged."""

import collections
import logging

import torch

import quern.torch  # noqa: F401  (torch.ops.quern)

from .. import _ops, _tensor
from .._env import is_set
from .._native import ffi
from ..compat import _fallback
from ..torch import _rows, _slow
from ..torch._tensors import refuse_gradients
from . import linear, trial

_logger = logging.getLogger("quern.patch")
_logs = is_set("SGLANG_LOG_KERNEL")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def new_workspace(plan, x):
    return torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=x.device) if plan.workspace_bytes else None


class Plain:
    """Runs ops on the tensors' device without counting them, for trials."""
    linears = "all"
    is_trial = True

    def __call__(self, name, *arguments):
        # Trials are of f32, which the experts' op does not take: they show what is multiplied and added, not the kernel.
        (getattr(trial, name) if name in ("gemm", "fused_moe") else getattr(_ops, name))(*arguments)

    @staticmethod
    def takes(x, layer):
        return linear.is_plain(x, layer)

    @staticmethod
    def trained(name, *inputs):
        """Trials record nothing."""
        return None

    @staticmethod
    def plan_tensors(plan, x):
        """Returns the schedule and the workspace that a call on x with this plan takes."""
        return plan.schedule(x), new_workspace(plan, x)


class Runner:
    """Runs ops for one patched model: run("rmsnorm", out, x, weight, eps)."""
    plain = Plain()
    is_trial = False

    def __init__(self, device, allow_slow, linears):
        self._allow_slow = allow_slow
        self.linears = linears
        self.device = None if device is None else _tensor.device(device)
        self.calls = collections.Counter()
        self._last = {}  # op -> kernel
        self._weights = {}  # id of a parameter -> (parameter, its address and version, its copy on the device)

    def takes(self, x, layer):
        """Returns whether quern computes layer(x) and what follows it."""
        return linear.takes(self.linears, x, layer)

    def announce(self):
        """Warns that tensors will be copied. The line is a warning because logging shows warnings without being set
        up."""
        if self.device is not None:
            _logger.warning("tensors are staged to %s for each op, and results back", self.device)

    def _is_traced(self, name, x):
        """Returns whether a compiler sees the call. Raises if it cannot be compiled."""
        is_traced = torch.compiler.is_compiling() or type(x) not in _PLAIN  # other types are a tracer's
        if is_traced and self.device is not None:
            raise RuntimeError(f"patch: {name} is staged to {self.device}, which torch.compile cannot do; patch without device")
        return is_traced

    def trained(self, name, *inputs):
        """Returns what an op computes of its inputs and numbers if autograd records it; None: it need not, or the op has no
        gradient, and refuses what needs one when it is called."""
        is_traced = self._is_traced(name, inputs[0])
        device = "" if is_traced or self._is_there(inputs[0]) else self.device.spec
        result = _rows.record(name, *inputs, device=device, allow_slow=self._allow_slow)
        if result is not None and not is_traced:
            self._count(name, _rows.last)
        return result

    def __call__(self, name, *arguments):
        refuse_gradients(name, _ops.TENSORS[name], arguments)
        if self._is_traced(name, arguments[0]):
            getattr(torch.ops.quern, name)(*arguments)
            return
        try:
            _slow.run(self._allow_slow, self._run, name, arguments)
        except _slow.Slow as why:
            if not hasattr(_fallback, name):
                raise _slow.Slow(f"{why}; patch(allow_slow=True) takes it") from None
            self.tell(name, arguments, why)
            getattr(_fallback, name)(*arguments)
            self._count(name, "PyTorch")
            return
        self._count(name, ffi.last_kernel())
        _slow.note(_logger, name, arguments)

    @staticmethod
    def tell(name, arguments, why):
        """Says once for each shape that PyTorch computes an op, and why."""
        _slow.tell(_logger, name, arguments, why, "patch(allow_slow=True)")

    def plan_tensors(self, plan, x):
        """Returns the schedule and the workspace that a call on x with this plan takes. The bytes of a plan are staged as
        they are."""
        schedule = plan.schedule(x) if self._is_there(x) else plan.host_for(x)
        return schedule, new_workspace(plan, x)

    def _run(self, name, arguments):
        if self._is_there(arguments[0]):
            getattr(_ops, name)(*arguments)
        else:
            self._run_staged(name, arguments)

    def note_pytorch(self, name):
        """Counts a call that PyTorch computes because it is the faster one."""
        if not torch.compiler.is_compiling():
            self.calls[name, "PyTorch"] += 1

    def _count(self, name, kernel):
        self.calls[name, kernel] += 1
        if self._last.get(name) != kernel:
            self._last[name] = kernel
            _logger.log(logging.WARNING if _logs else logging.INFO, "%s: %s", name, kernel)

    # ---- on another device than the tensors'

    def _is_there(self, x):
        return self.device is None or x.__dlpack_device__() == self.device.dlpack

    def _run_staged(self, name, arguments):
        parameters = _ops.TABLE[name]
        there = [self._stage(a) if isinstance(a, torch.Tensor) and not p.is_host else a
                 for p, a in zip(parameters, arguments, strict=True)]
        getattr(_ops, name)(*there)
        for parameter, here, copy in zip(parameters, arguments, there, strict=True):
            if parameter.is_written and here is not None:
                here.copy_(torch.from_dlpack(_tensor.to(copy, "cpu")))

    def _stage(self, x):
        """Returns a copy on the device; a parameter's copy is kept until the parameter changes."""
        if not isinstance(x, torch.nn.Parameter) or x.is_inference():  # inference tensors keep no count of changes
            return _tensor.to(x.detach().contiguous(), self.device)
        state = x.data_ptr(), x._version
        kept = self._weights.get(id(x))
        if kept is None or kept[0] is not x or kept[1] != state:
            kept = x, state, _tensor.to(x.detach().contiguous(), self.device)
            self._weights[id(x)] = kept
        return kept[2]
