# SPDX-License-Identifier: Apache-2.0
"""Runs quern's products under the stand-in's names."""

import logging

import torch

from ... import _gemm
from ...torch import _slow
from .._words import in_words_of

_logger = logging.getLogger("quern.compat.deep_gemm")


def run(op, name, names, *arguments, **options):
    """Runs quern's function `name` for the function `op`. names: op's names of the other's arguments."""
    try:
        getattr(_gemm, name)(*arguments, **options)
    except Exception as error:
        if torch.compiler.is_compiling():
            raise
        raise type(error)(in_words_of(str(error), op, name, names)) from None
    if not torch.compiler.is_compiling():
        _slow.note(_logger, op, arguments)
