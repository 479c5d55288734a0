# SPDX-License-Identifier: Apache-2.0
"""Kernels that are far slower than PyTorch's own operators. They run only if asked for, and a log line tells of
them."""

import torch

from .. import last_kernel
from .._native import ffi

_allow = ffi.allow_slow_kernels


class Slow(NotImplementedError):
    """A call has only a slow kernel, which nobody asked for. Nothing was written."""


def run(allow_slow, function, *arguments, **options):
    """Runs the function with a choice of kernels for this thread: unless allow_slow, Slow is raised in place of a slow
    kernel."""
    before = _allow(allow_slow)
    try:
        return function(*arguments, **options)
    except NotImplementedError as error:
        if "which is slow and was not asked for" not in str(error):
            raise
        raise Slow(str(error)) from None
    finally:
        _allow(before)


_said = set()


def _is_news(op, kernel, x):
    """Returns whether no call of this shape, whatever its number of rows, was named before."""
    key = op, kernel, x.device, x.dtype, x.shape[1:]
    is_news = key not in _said
    _said.add(key)
    return is_news


def tell(logger, op, arguments, why, switch):
    """Says once for each shape that PyTorch computes an op, and why. switch names the option that asks for the slow
    kernel."""
    x = next(x for x in arguments if isinstance(x, torch.Tensor))
    if _is_news(op, None, x):
        logger.warning("%s of %s, %s: PyTorch's operators compute it: %s; %s takes it all the same", op, [*x.shape], x.dtype, why, switch)


def note(logger, op, arguments):
    """After an op ran: says once for each shape that its kernel was a slow one."""
    kernel = last_kernel()
    if ".gpu_any" not in kernel:
        return
    x = next(x for x in arguments if isinstance(x, torch.Tensor))
    if _is_news(op, kernel, x):
        logger.warning("%s of %s, %s on %s, takes %s, which is slow; QUERN_LOG=kernel says why", op, [*x.shape], x.dtype, x.device,
                       kernel)
