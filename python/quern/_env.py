# SPDX-License-Identifier: Apache-2.0
"""Switches of the environment that the package itself reads; the library's own are in runtime/env.c."""

import os


def is_set(name):
    """Whether a switch is on: anything but nothing, 0, false, off and no."""
    return os.environ.get(name, "").lower() not in ("", "0", "false", "off", "no")
