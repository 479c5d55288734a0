# SPDX-License-Identifier: Apache-2.0
"""What public functions have in common: errors that name the function, its argument, what was found and what is accepted.

Nothing is checked before a call, as that would take time: what a call raised is explained by its arguments afterwards.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
import re
import types
import typing

import numpy

from ._types import Array, DType, DTypeName

_F = typing.TypeVar("_F", bound=typing.Callable[..., typing.Any])
_ARRAY = "an array (of NumPy, PyTorch, quern or anything with __dlpack__)"


def is_compiling() -> bool:
    """Returns whether torch.compile traces the call; quern.torch puts PyTorch's own function here."""
    return False


def public(**renamed: str) -> typing.Callable[[_F], _F]:
    """Makes a function's errors name it and its arguments. renamed: the native op's names of arguments -> the function's;
    `op`: the name of that op, or several in a row, and `name`: the function's, where these differ."""
    op, name = renamed.pop("op", None), renamed.pop("name", None)

    def decorate(function: _F) -> _F:
        function.__name__ = function.__qualname__ = name or function.__name__

        @functools.wraps(function)
        def call(*arguments, **options):
            try:
                return function(*arguments, **options)
            except Exception as error:
                if is_compiling():  # which cannot read what explains an error
                    raise
                raise _explained(function, op, renamed, arguments, options, error)

        return call  # type: ignore[return-value]

    return decorate


def _explained(function, op, renamed, arguments, options, error):
    """Returns the error to raise for this one."""
    name = function.__name__
    try:
        bound = inspect.signature(function).bind(*arguments, **options).arguments
    except TypeError:
        return error  # Python's own, of arguments that are missing or too many
    if fault := _misfit(function, bound):
        explained = TypeError(f"{name}: {fault}")
    elif fault := _fault(bound):
        explained = ValueError(f"{name}: {fault}")
    else:
        text = translated(str(error), name, op or name, renamed)
        if text == str(error):
            return error
        explained = type(error)(text)
    explained.__suppress_context__ = True
    return explained


def translated(text, name, op, renamed):
    """Returns the native op's message with the function's name and its arguments' names; other messages unchanged."""
    prefix, colon, text_behind = text.partition(": ")
    if not colon or prefix not in op.split():
        return text
    text = text_behind.replace(" is null", " is None")
    if renamed:  # a name, but not the x between numbers in "1 x 128"
        names = "|".join(map(re.escape, renamed))
        text = re.sub(rf"(?<![\w.])(?<!\d )(?:{names})\b(?! \d)", lambda match: renamed[match[0]], text)
    return f"{name}: {text}"


# ---- arguments of a wrong type

def found(value):
    """Returns a value as messages show it: 'text', 3, a list of 2, a Tensor."""
    if value is None or isinstance(value, (str, numbers.Number)):
        text = repr(value)
        return text if len(text) <= 40 else f"{text[:37]}..."
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def flag(op, name, value):
    """Returns a truth value, Python's or NumPy's, as the native ops take it. Raises ValueError for anything else."""
    if isinstance(value, (bool, numpy.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise ValueError(f"{op}: {name} is {found(value)}; accepted: True, False")


def _misfit(function, bound):
    """Returns what is wrong with the first argument that does not fit the function's annotations; None if all fit."""
    hints = typing.get_type_hints(function)
    for name, value in bound.items():
        if not any(_is_a(value, hint) for hint in _alternatives(hints[name])):
            accepted = ", ".join(dict.fromkeys(map(_describe, _alternatives(hints[name]))))
            return f"{name} is {found(value)}; accepted: {accepted}"
    return None


def _fault(bound):
    """Returns what DLPack does not describe of the first such argument."""
    from ._tensor import fault_of  # which imports this
    return next((f"{name} {fault}" for name, value in bound.items() if (fault := fault_of(value))), None)


def _alternatives(hint):
    """Returns the members of a union, or the type itself; for dtypes, which are many types, one."""
    if hint == DType or typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return [hint]
    members = typing.get_args(hint)
    if set(typing.get_args(DType)) <= set(members):
        return [DType, *(m for m in members if m not in typing.get_args(DType))]
    return list(members)


def _is_array_hint(hint):
    return hint is Array or isinstance(hint, typing.TypeVar) or hint is numpy.ndarray


def _is_a(value, hint):
    if _is_array_hint(hint):
        return hasattr(type(value), "__dlpack__")
    if hint == DType:
        return not isinstance(value, (numbers.Number, list, tuple, dict, type(None)))
    origin = typing.get_origin(hint)
    if origin is typing.Literal:  # of which word it is the function itself judges
        return type(value) in map(type, typing.get_args(hint))
    if origin in (tuple, collections.abc.Sequence):
        return isinstance(value, collections.abc.Sequence) and not isinstance(value, str) and \
            all(isinstance(item, (numbers.Integral, float)) for item in value)
    if hint is bool:
        return isinstance(value, (bool, numpy.bool_, int))
    if hint in (int, float):
        return isinstance(value, numbers.Integral if hint is int else numbers.Real)
    return hint is typing.Any or isinstance(value, hint)


def _describe(hint):
    if _is_array_hint(hint):
        return _ARRAY
    if hint == DType:
        return "a dtype of NumPy, ml_dtypes or PyTorch, " + ", ".join(map(repr, typing.get_args(DTypeName)))
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return ", ".join(map(repr, typing.get_args(hint)))
    if origin is tuple:
        return f"{len(typing.get_args(hint))} integers"
    if origin is collections.abc.Sequence:
        return "integers in a list or tuple"
    return {bool: "True, False", int: "an integer", float: "a number", str: "a string",
            type(None): "None"}.get(hint) or f"a {hint.__name__}"
