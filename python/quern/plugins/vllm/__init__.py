# SPDX-License-Identifier: Apache-2.0
"""quern in vLLM, by vLLM's own ways of extension: custom ops by name, a linear kernel, an attention backend, layers of experts
and the sampler."""

import importlib.metadata

from .._table import Table

_is_done = False


def register() -> None:
    """Registers quern's ops and prints the table of them. vLLM calls it in each of its processes; a second call does nothing."""
    global _is_done
    if _is_done:
        return
    _is_done = True
    from . import _where, attention, linear, moe, ops, sampler

    table = Table(f"quern in vLLM {importlib.metadata.version('vllm')} on {_where.name()}", "QUERN_VLLM")
    why = _where.refused()
    if why:
        table.leave("everything", why)
    else:
        for part in (ops, linear, moe, attention, sampler):
            part.register(table)
    table.tell()
