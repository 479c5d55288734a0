# SPDX-License-Identifier: Apache-2.0
# Types of quern.torch's functions, for editors and checkers; tests/python/types_test.py holds them to the code.
from collections import Counter
from typing import Literal

from .._device import Device as _Device

calls: Counter[str]

class Registration:
    device: str | None
    fallback: str
    allow_slow: bool
    calls: Counter[str]
    fallbacks: Counter[str]
    def remove(self) -> None: ...
    def __enter__(self) -> Registration: ...
    def __exit__(self, *exception: object) -> None: ...

def enable(device: str | _Device | None = None, fallback: Literal["log", "error"] = "log",
           allow_slow: bool = False) -> Registration: ...
def disable() -> None: ...
def register_transformers(device: str | _Device | None = None, allow_slow: bool = False) -> None: ...
def register_diffusers(device: str | _Device | None = None, allow_slow: bool = False) -> None: ...
