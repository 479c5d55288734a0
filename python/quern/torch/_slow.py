# SPDX-License-Identifier: Apache-2.0
"""Kernels that are far slower than PyTorch's own: which calls would get one, and a line about those that got one."""

import functools

import torch

from .. import _tensor, last_kernel
from .._attention import attention


def is_slow(kernel):
    """Whether a kernel is that of GPUs for whatever no other takes: without matrix cores, or an element at a time."""
    return kernel.endswith(".gpu_any")


@functools.cache
def attention_kernel(place, dtype, head_dim, head_dim_vo, has_dropout):
    """The kernel that the library has for such a problem, by its choice for the smallest one. place: a torch.device, or the
    Device that tensors are copied to."""
    here = place if isinstance(place, torch.device) else "cpu"
    q, k, v = (torch.zeros(1, 1, 1, dim, dtype=dtype, device=here) for dim in (head_dim, head_dim, head_dim_vo))
    if not isinstance(place, torch.device):
        q, k, v = (_tensor.to(t, place) for t in (q, k, v))
    attention(q, k, v, dropout_p=0.5 if has_dropout else 0.0)
    return last_kernel()


def reason(place, dtype, head_dim, head_dim_vo, dropout_p):
    """Why a call's kernel would be slow, as a text; None: it is not. The CPU has no such kernel."""
    if isinstance(place, torch.device) and place.type == "cpu":
        return None
    kernel = attention_kernel(place, dtype, head_dim, head_dim_vo, dropout_p > 0)
    if not is_slow(kernel):
        return None
    dropout = f", dropout_p {dropout_p:g}" if dropout_p else ""
    dims = head_dim if head_dim == head_dim_vo else f"{head_dim} and {head_dim_vo}"
    return f"{dtype} with head_dim {dims}{dropout} on {place} takes {kernel}, which is slow; allow_slow=True takes it all the same"


_said = set()


def note(logger, op, arguments):
    """After an op ran: says once for each shape, but for how many rows there are, that its kernel was a slow one."""
    kernel = last_kernel()
    if not is_slow(kernel):
        return
    x = next(x for x in arguments if isinstance(x, torch.Tensor))
    key = op, kernel, x.device, x.dtype, x.shape[1:]
    if key not in _said:
        _said.add(key)
        logger.warning("%s of %s, %s on %s, takes %s, which is slow; QUERN_LOG=kernel says why", op, [*x.shape], x.dtype, x.device,
                       kernel)
