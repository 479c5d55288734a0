# SPDX-License-Identifier: Apache-2.0
"""Where the stand-in's functions meet: quern's op or PyTorch's operators, and the log of which it was."""

import logging
import os

import torch

import quern.torch._ops

from ... import _ops
from ... import last_kernel as _last_kernel
from ..._env import is_set
from .. import _fallback

_logger = logging.getLogger("quern.compat.flashinfer")
_disabled = is_set("SGLANG_DISABLE_FLASHINFER")
_logs = is_set("SGLANG_LOG_KERNEL")
_last_logged = {}


def run(name, *arguments):
    """The op, by quern or PyTorch."""
    getattr(_fallback if _disabled else _ops, name)(*arguments)
    log(name, arguments)


def is_disabled():
    """Whether PyTorch's operators are to compute."""
    return _disabled


def log(name, arguments):
    """After an op ran: says so, if asked to."""
    if _logs and not torch.compiler.is_compiling():
        _log(name, arguments)


def _log(name, arguments):
    """One line when an op's kernel is another than before on that device; at warning, which logging shows unconfigured."""
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    line = (f"[PyTorch] Using PyTorch's operators for {name} on {device}" if _disabled else
            f"[quern] Using quern {_last_kernel()} kernel for {name} on {device}")
    if _last_logged.get((name, device)) != line:
        _last_logged[name, device] = line
        _logger.warning("%s", line)


if _disabled and _logs:
    _logger.warning("quern disabled via SGLANG_DISABLE_FLASHINFER=%s", os.environ["SGLANG_DISABLE_FLASHINFER"])
elif _logs:
    quern.torch._ops.observer = _log  # of the ops in compiled graphs, which do not come through run


def index(t):
    """FlashInfer takes int64 indices as well."""
    return t.to(torch.int32)
