# SPDX-License-Identifier: Apache-2.0
"""Runs quern's products under the stand-in's names."""

import logging
import re

import torch

from ... import _gemm
from ..._public import translated
from ...torch import _slow

_logger = logging.getLogger("quern.compat.deep_gemm")


def run(op, name, names, *arguments, **options):
    """Runs quern's function `name` for the function `op`. names: op's names of the other's arguments."""
    try:
        getattr(_gemm, name)(*arguments, **options)
    except Exception as error:
        if torch.compiler.is_compiling():
            raise
        raise type(error)(_in_words_of(str(error), op, name, names)) from None
    if not torch.compiler.is_compiling():
        _slow.note(_logger, op, arguments)


def _in_words_of(text, op, name, names):
    """Returns a message with op's name and its names of arguments; "a" may be an article, too."""
    text = translated(text, op, name, {old: new for old, new in names.items() if len(old) > 1})
    letters = {old: new for old, new in names.items() if len(old) == 1}
    return re.sub(r"(?<![\w.\[])\b([a-z])\b(?= (?:is|has|and|begins|overlaps|needs|without|itself)\b|[,;]|$)",
                  lambda match: letters.get(match[0], match[0]), text)
