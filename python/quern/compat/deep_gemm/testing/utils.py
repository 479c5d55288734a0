# SPDX-License-Identifier: Apache-2.0
"""What DeepGEMM's tests ask of the machine."""

import functools
import os
from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])


def get_arch_major() -> int:
    """Returns 9, Hopper's, on every device: the layouts and the functions here are those that DeepGEMM has on Hopper."""
    return 9


def test_filter(condition: Callable[[], bool]) -> Callable[[_F], _F]:
    """Decorates a test that runs only if condition() holds, and else prints that it did not."""
    def decorate(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            if condition():
                return function(*arguments, **options)
            print(f"{function.__name__}:\n > Filtered by {condition}\n")
            return None

        return call

    return decorate


def ignore_env(name: str, condition: Callable[[], bool]) -> Callable[[_F], _F]:
    """Decorates a function that runs without the environment's variable `name` if condition() holds."""
    def decorate(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            kept = os.environ.pop(name, None) if condition() else None
            try:
                return function(*arguments, **options)
            finally:
                if kept is not None:
                    os.environ[name] = kept

        return call

    return decorate
