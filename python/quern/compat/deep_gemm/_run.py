# SPDX-License-Identifier: Apache-2.0
"""Runs quern's ops under the stand-in's names."""

import logging

import torch

from ... import _ops
from ..._public import translated
from ...torch import _slow

_logger = logging.getLogger("quern.compat.deep_gemm")


def run(op, name, *arguments, **renamed):
    """Runs quern's op `name` for the function `op`. renamed: the function's names of the op's arguments, where they differ."""
    try:
        getattr(_ops, name)(*arguments)
    except Exception as error:
        if torch.compiler.is_compiling():
            raise
        raise type(error)(translated(str(error), op, name, renamed)) from None
    if not torch.compiler.is_compiling():
        _slow.note(_logger, op, arguments)
