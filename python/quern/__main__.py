# SPDX-License-Identifier: Apache-2.0
"""The quern command: `python -m quern`, and what pip installs as `quern`."""

import os
import sys

from ._native import find


def main():
    path = find("bin/quern")
    os.execv(path, ["quern", *sys.argv[1:]])


if __name__ == "__main__":
    main()
