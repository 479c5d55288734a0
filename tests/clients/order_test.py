# SPDX-License-Identifier: Apache-2.0
"""What one client compiled in a process does not decide what runs in the next: those that compile, in both orders."""

import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("files", [("flux_test.py", "attention_test.py"), ("attention_test.py", "flux_test.py")],
                         ids=lambda files: files[0])
def test_both_orders(files):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "compiled", *files], cwd=HERE,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
