# SPDX-License-Identifier: Apache-2.0
"""quern in SGLang, by SGLang's own ways of extension: its fused ops' backend for plugins, an attention backend, and hooks."""

import importlib.metadata

from .._table import Table

_done = set()


def _register(kind, parts):
    """Registers what is in the modules and prints the table; a second call does nothing."""
    if kind in _done:
        return
    _done.add(kind)
    from . import _where

    table = Table(f"quern in SGLang {importlib.metadata.version('sglang')}{kind} on {_where.name()}", "QUERN_SGLANG")
    for part in parts():
        part.register(table)
    table.tell()


def register() -> None:
    """Registers quern's ops for language models. SGLang calls it in each of its processes."""
    def parts():
        from . import attention, linear, moe, ops, sampler
        return ops, linear, moe, attention, sampler

    _register("", parts)


def register_diffusion() -> None:
    """Registers quern's ops for diffusion. SGLang calls it in each of its processes."""
    def parts():
        from . import diffusion
        return (diffusion,)

    _register("'s diffusion", parts)
