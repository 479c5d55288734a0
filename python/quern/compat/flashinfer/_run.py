# SPDX-License-Identifier: Apache-2.0
"""Runs the stand-in's functions by quern's op or PyTorch's operators, and logs which it was."""

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
from .. import _fallback, _words

_logger = logging.getLogger("quern.compat.flashinfer")
_disabled = is_set("SGLANG_DISABLE_FLASHINFER")
_logs = is_set("SGLANG_LOG_KERNEL")
_validates = is_set("QUERN_VALIDATE")
_SWITCH = "QUERN_ALLOW_SLOW"
_allows_slow = is_set(_SWITCH)
_last_logged = {}


class UnknownWord(KeyError, ValueError):
    """An unknown word for a layout or a mode. FlashInfer raises KeyError for it, all else here ValueError."""

    __str__ = Exception.__str__  # KeyError's own puts the message into quotes


def run(name, *arguments, op=None, **renamed):
    """Runs the op, by quern or PyTorch. op, renamed: the caller's names of the op and its arguments, where they
    differ."""
    refuse_gradients(name, _ops.TENSORS[name], arguments)
    try:
        is_ours = compute(getattr(_ops, name), getattr(_fallback, name, None), op or name, arguments)
    except Exception as error:
        raise in_words_of(error, op or name, name, renamed) from None
    log(name, arguments, is_ours)


def compute(by_quern, by_pytorch, op, arguments):
    """Calls one of the two functions with the arguments: PyTorch's if it is asked for or if quern's kernel would be
    slow. by_pytorch None: there is none. Returns whether quern's ran."""
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


def call(op, function, names, *arguments, **options):
    """Runs one of quern's functions for op and returns its result. names: op's names of the function's arguments. There is no form
    by PyTorch's operators."""
    if _disabled:
        raise NotImplementedError(f"{op}: PyTorch's operators do not compute it here; accepted without SGLANG_DISABLE_FLASHINFER")
    try:
        result = function(*arguments, **options)
    except Exception as error:
        if torch.compiler.is_compiling():
            raise
        raise type(error)(_words.in_words_of(str(error), op, function.__name__, names)) from None
    log(op, [x for x in (*arguments, *options.values()) if isinstance(x, torch.Tensor)], True)
    return result


def in_words_of(error, op, names, renamed):
    """Returns an error of quern's functions of these names as an error of op, whose arguments have other names."""
    if torch.compiler.is_compiling():
        return error
    text = translated(str(error), op, names, renamed)
    return error if text == str(error) else type(error)(text)


def is_disabled():
    """Returns whether PyTorch's operators are to compute."""
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
    """Logs one line when an op's kernel is another than before on a device. The line is a warning, which logging shows
    without being set up."""
    device = next(x.device for x in arguments if isinstance(x, torch.Tensor))
    line = (f"[PyTorch] Using PyTorch's operators for {name} on {device}" if not is_ours else
            f"[quern] Using quern {_last_kernel()} kernel for {name} on {device}")
    if _last_logged.get((name, device)) != line:
        _last_logged[name, device] = line
        _logger.warning("%s", line)


if _disabled and _logs:
    _logger.warning("quern disabled via SGLANG_DISABLE_FLASHINFER=%s", os.environ["SGLANG_DISABLE_FLASHINFER"])
elif _logs:
    quern.torch._ops.observer = _log  # tells of ops in compiled graphs, which run() does not see


def check_scales(op, name, scale, may_be_negative):
    """Checks that scales in a tensor [n] are neither 0 nor NaN nor infinite. A GPU's are read only with QUERN_VALIDATE,
    as reading waits for the device."""
    if torch.compiler.is_compiling() or (scale.device.type != "cpu" and not _validates):
        return
    for i, value in enumerate(scale.tolist()):
        if not math.isfinite(value) or value == 0 or (value < 0 and not may_be_negative):
            accepted = "any other finite number" if may_be_negative else "above 0, finite"
            raise ValueError(f"{op}: {name}[{i}] is {value}; accepted: {accepted}")


def index(t):
    """Returns as int32 the int32 or int64 indices that FlashInfer takes. An index that 32 bits cannot hold stays out of
    range, and is refused as such."""
    return t if t.dtype == torch.int32 else t.clamp(-2**31, 2**31 - 1).to(torch.int32)
