# SPDX-License-Identifier: Apache-2.0
"""tools/peer-api on a package made for it."""

import os
import pathlib
import subprocess
import sys

TOOL = pathlib.Path(os.environ["QUERN_SOURCE_DIR"]) / "tools/peer-api"


def run(folder):
    return subprocess.run([sys.executable, str(TOOL), str(folder)], capture_output=True, text=True)


def test_table(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "__init__.py").write_text(
        "raise SystemExit('it was imported')\nfrom .norm import rmsnorm as rmsnorm, gemma_rmsnorm, _hidden, CONSTANT\n"
        "from .sub import silu_and_mul, new_op\nfrom os import path\n")
    (tmp_path / "norm.py").write_text(
        "CONSTANT = 1\ndef rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None): ...\ndef _hidden(): ...\n"
        "def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None, bias=None): ...\ndef unlisted(): ...\n")
    (tmp_path / "sub/__init__.py").write_text("from .act import silu_and_mul\ndef new_op(x): ...\n")
    (tmp_path / "sub/act.py").write_text("def silu_and_mul(out, input): ...\n")
    assert run(tmp_path).stdout.splitlines()[2:] == [
        "| `gemma_rmsnorm` | changes | without bias |",
        "| `new_op` | lacks |  |",
        "| `rmsnorm` | has |  |",
        "| `silu_and_mul` | changes | more: enable_pdl |",
    ]


def test_no_package(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "needs the folder" in done.stderr
