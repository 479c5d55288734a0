# SPDX-License-Identifier: Apache-2.0
"""Runs quern's functions under AITER's names."""

import logging

import torch

import quern.torch  # noqa: F401  (torch.ops.quern)

from ...torch import _slow
from .._words import in_words_of

_logger = logging.getLogger("quern.compat.aiter")


def run(op, function, names, *arguments, **options):
    """Runs quern's function for op and returns its result. names: op's names of the other's arguments."""
    try:
        result = function(*arguments, **options)
    except Exception as error:
        if torch.compiler.is_compiling():
            raise
        raise type(error)(in_words_of(str(error), op, function.__name__, names)) from None
    if not torch.compiler.is_compiling():
        _slow.note(_logger, op, arguments)
    return result
