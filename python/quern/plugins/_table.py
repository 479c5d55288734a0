# SPDX-License-Identifier: Apache-2.0
"""The one table that a plugin prints at start: what quern computes of an engine's ops, by which kernel, and what it leaves."""

import functools
import os
import sys

_QUIET = "quiet"


@functools.cache
def _is_quiet(switch):
    """Returns whether the switch was on "quiet" when this process first looked."""
    return os.environ.get(switch, "").lower() == _QUIET


class Table:
    """Rows (op, kernel or None, text): the kernel and what it was asked with, or why the engine's own op stays."""

    def __init__(self, title, switch):
        self.title = title
        self.rows = []
        self._switch = switch

    def serve(self, op, kernel, text):
        self.rows.append((op, kernel, text))

    def leave(self, op, why):
        self.rows.append((op, None, why))

    def __str__(self):
        lines = [(op, f"quern, {kernel}" if kernel else "the engine's own", text) for op, kernel, text in self.rows]
        widths = [max((len(line[column]) for line in lines), default=0) for column in (0, 1)]
        return "\n".join([self.title, *(f"  {op:<{widths[0]}}  {by:<{widths[1]}}  {text}".rstrip() for op, by, text in lines)])

    def tell(self):
        """Prints the table: processes that this one starts find the switch on "quiet"."""
        if not _is_quiet(self._switch):
            print(self, file=sys.stderr, flush=True)
            os.environ[self._switch] = _QUIET
