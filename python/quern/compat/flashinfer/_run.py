# SPDX-License-Identifier: Apache-2.0
"""Where the stand-in's functions meet: quern's op or PyTorch's operators, and the log of which it was."""

import logging
import math
import os

import torch

import quern.torch._ops

from ... import _ops
from ... import last_kernel as _last_kernel
from ..._env import is_set
from ..._public import translated
from ...torch import _slow
from ...torch._tensors import refuse_gradients
from .. import _fallback

_logger = logging.getLogger("quern.compat.flashinfer")
_disabled = is_set("SGLANG_DISABLE_FLASHINFER")
_logs = is_set("SGLANG_LOG_KERNEL")
_validates = is_set("QUERN_VALIDATE")
_SWITCH = "QUERN_ALLOW_SLOW"
_allows_slow = is_set(_SWITCH)
_last_logged = {}


class UnknownWord(KeyError, ValueError):
    """Of a layout or a mode: KeyError is what FlashInfer raises, ValueError what the rest does."""

    __str__ = Exception.__str__  # KeyError's puts the message into quotes


def run(name, *arguments, op=None, **renamed):
    """The op, by quern or PyTorch. op, renamed: what the caller knows it and its arguments by, where that is another name."""
    refuse_gradients(name, _ops.TENSORS[name], arguments)
    try:
        is_ours = compute(getattr(_ops, name), getattr(_fallback, name, None), op or name, arguments)
    except Exception as error:
        raise in_words_of(error, op or name, name, renamed) from None
    log(name, arguments, is_ours)


def compute(by_quern, by_pytorch, op, arguments):
    """One of the two functions of the arguments: PyTorch's where it is asked for, and where quern's kernel would be a slow one.
    by_pytorch None: there is no such. Gives whether it was quern's."""
    if _disabled:
        by_pytorch(*arguments)
        return False
    if _ops.is_being_traced():
        by_quern(*arguments)
        return True
    try:
        _slow.run(_allows_slow or by_pytorch is None, by_quern, *arguments)
        return True
    except _slow.Slow as why:
        _slow.tell(_logger, op, arguments, why, _SWITCH + "=1")
        by_pytorch(*arguments)
        return False


def in_words_of(error, op, names, renamed):
    """The error of quern's functions of these names, as one of op, whose arguments have other names."""
    if torch.compiler.is_compiling():
        return error
    text = translated(str(error), op, names, renamed)
    return error if text == str(error) else type(error)(text)


def is_disabled():
    """Whether PyTorch's operators are to compute."""
    return _disabled


def log(name, arguments, is_ours):
    """After an op ran: says so if its kernel was slow, or if asked to."""
    if torch.compiler.is_compiling():
        return
    if is_ours:
        _slow.note(_logger, name, arguments)
    if _logs:
        _log(name, arguments, is_ours)


def _log(name, arguments, is_ours=True):
    """One line when an op's kernel is another than before on that device; at warning, which logging shows unconfigured."""
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    line = (f"[PyTorch] Using PyTorch's operators for {name} on {device}" if not is_ours else
            f"[quern] Using quern {_last_kernel()} kernel for {name} on {device}")
    if _last_logged.get((name, device)) != line:
        _last_logged[name, device] = line
        _logger.warning("%s", line)


if _disabled and _logs:
    _logger.warning("quern disabled via SGLANG_DISABLE_FLASHINFER=%s", os.environ["SGLANG_DISABLE_FLASHINFER"])
elif _logs:
    quern.torch._ops.observer = _log  # of the ops in compiled graphs, which do not come through run


def check_scales(op, name, scale, may_be_negative):
    """Scales in a tensor [n]: neither 0 nor NaN nor infinite. Read on the CPU; on a GPU, where that waits for the device, with
    QUERN_VALIDATE alone."""
    if torch.compiler.is_compiling() or (scale.device.type != "cpu" and not _validates):
        return
    for i, value in enumerate(scale.tolist()):
        if not math.isfinite(value) or value == 0 or (value < 0 and not may_be_negative):
            accepted = "any other finite number" if may_be_negative else "above 0, finite"
            raise ValueError(f"{op}: {name}[{i}] is {value}; accepted: {accepted}")


def index(t):
    """int32 of the int32 or int64 indices that FlashInfer takes. What 32 bits cannot hold stays out of range, and is refused as such."""
    return t if t.dtype == torch.int32 else t.clamp(-2**31, 2**31 - 1).to(torch.int32)
