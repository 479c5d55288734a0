# SPDX-License-Identifier: Apache-2.0
"""Puts messages of quern's functions into a stand-in's words."""

import re

from .._public import translated


def in_words_of(text, op, name, names):
    """Returns a message with op's name and its names of arguments; "a" may be an article, too."""
    text = translated(text, op, name, {old: new for old, new in names.items() if len(old) > 1})
    letters = {old: new for old, new in names.items() if len(old) == 1}
    return re.sub(r"(?<![\w.\[])\b([a-z])\b(?= (?:is|has|and|begins|overlaps|needs|without|itself)\b|[,;]|$)",
                  lambda match: letters.get(match[0], match[0]), text)
