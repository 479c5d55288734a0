# SPDX-License-Identifier: Apache-2.0
"""How an engine's ops call quern's: a call that quern does not take is the engine's own, and a log line says so."""

import logging

import torch

import quern.torch  # noqa: F401  (torch.ops.quern)

from .. import last_kernel
from .._env import is_set
from ..torch import _slow

_ALLOWS_SLOW = is_set("QUERN_ALLOW_SLOW")
_told = set()


@torch.compiler.assume_constant_result  # which torch.compile therefore calls as it traces, and leaves out of its graph
def _tell(name, op, why):
    if (name, op, why) not in _told:
        _told.add((name, op, why))
        logging.getLogger(name).warning("%s: the engine's own: %s", op, why)
    return True


class Calls:
    """Runs one engine's calls."""

    def __init__(self, engine):
        self._name = f"quern.plugins.{engine}"
        self._logger = logging.getLogger(self._name)
        self._last = {}  # op -> kernel

    def __call__(self, op, ours, theirs):
        """Returns ours(), or theirs() where quern has no kernel for the call, or only a slow one that nobody asked for."""
        if torch.compiler.is_compiling():
            return ours()
        try:
            result = _slow.run(_ALLOWS_SLOW, ours)
        except NotImplementedError as why:  # nothing was written
            hint = "; QUERN_ALLOW_SLOW=1 takes it all the same" if isinstance(why, _slow.Slow) else ""
            self.tell(op, f"{why}{hint}")
            return theirs()
        kernel = last_kernel()
        if self._last.get(op) != kernel:
            self._last[op] = kernel
            self._logger.log(logging.WARNING if ".gpu_any" in kernel else logging.INFO, "%s: %s", op, kernel)
        return result

    def tell(self, op, why):
        """Says once that the engine computes an op itself, and why."""
        _tell(self._name, op, why)
