# SPDX-License-Identifier: Apache-2.0
"""Switches of the environment that the package itself reads; the library's own are in runtime/env.c."""

import os


def is_set(name):
    """Returns whether a switch is on: it is set to anything but 0, false, off, no or the empty string."""
    return os.environ.get(name, "").lower() not in ("", "0", "false", "off", "no")
