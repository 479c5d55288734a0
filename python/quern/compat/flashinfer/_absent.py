# SPDX-License-Identifier: Apache-2.0
"""Names of FlashInfer that are here only to say why they are not served, and what to switch off in the engine."""

from collections.abc import Callable
from typing import Any, NoReturn


def absent(name: str, why: str) -> Callable[..., NoReturn]:
    """Returns a function that raises NotImplementedError with the reason, whatever it gets."""
    def call(*_arguments: Any, **_options: Any) -> NoReturn:
        raise NotImplementedError(f"{name}: {why}; docs/flashinfer.md lists what is served")

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Raises NotImplementedError: {why}."
    call.is_absent = True  # type: ignore[attr-defined]
    return call
