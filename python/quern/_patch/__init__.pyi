# SPDX-License-Identifier: Apache-2.0
# Types of quern.patch, for editors and checkers; tests/python/types_test.py holds them to the code.
from collections import Counter
from typing import Any, Literal

from .._device import Device as _Device

class Patch:
    replaced: list[tuple[str, str]]
    left: list[tuple[str, str, str]]
    notes: list[tuple[str, str]]
    calls: Counter[tuple[str, str]]
    device: _Device | None
    @property
    def counts(self) -> dict[str, int]: ...
    def unpatch(self) -> None: ...
    def __enter__(self) -> Patch: ...
    def __exit__(self, *exception: object) -> None: ...

def patch(model: Any, device: str | _Device | None = None, allow_slow: bool = False,
          linears: Literal["fast", "all", "none"] = "fast", compiled: Literal["fast", "all"] = "fast") -> Patch: ...
