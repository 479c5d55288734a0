# SPDX-License-Identifier: Apache-2.0
"""The programs that the manual shows in Python run as they stand there, each by itself."""

import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/python.md", "docs/flashinfer.md", "docs/deep_gemm.md"]
PROGRAMS = [(page, number, text) for page in PAGES
            for number, text in enumerate(re.findall(r"^```python\n(.*?)^```$", (TOP / page).read_text(), re.M | re.S))]


def test_there_are_programs():
    assert {page for page, _, _ in PROGRAMS} == set(PAGES) and len(PROGRAMS) >= 9


@pytest.mark.parametrize("page, number, text", PROGRAMS, ids=[f"{page}-{number}" for page, number, _ in PROGRAMS])
def test_program(page, number, text, tmp_path):
    done = subprocess.run([sys.executable, "-c", text], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
