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
    (tmp_path / "version.py").write_text('__version__ = "9.8.7"\n')
    (tmp_path / "__init__.py").write_text(
        "raise SystemExit('it was imported')\nfrom .norm import rmsnorm as rmsnorm, gemma_rmsnorm, _hidden, CONSTANT\n"
        "from .sub import silu_and_mul, new_op\nfrom os import path\n")
    (tmp_path / "norm.py").write_text(
        "CONSTANT = 1\ndef rmsnorm(input, weight, eps=1e-06, out=None, enable_pdl=None): ...\ndef _hidden(): ...\n"
        "def gemma_rmsnorm(weight, input, eps=1e-5, out=None, enable_pdl=None, *, bias=None): ...\ndef unlisted(): ...\n"
        "def layernorm(input, gemma, beta, eps=1e-6): ...\n")
    (tmp_path / "sub/__init__.py").write_text("from .act import silu_and_mul\ndef new_op(x): ...\n")
    (tmp_path / "sub/act.py").write_text("def silu_and_mul(input, out): ...\n")
    lines = run(tmp_path).stdout.splitlines()
    assert lines[0] == "FlashInfer 9.8.7: 5 public functions, of which the stand-in has 4."
    assert [line for line in lines if line.startswith("| `")] == [
        "| `gemma_rmsnorm` | `norm` | changes | without `bias`; other order; `eps` is 1e-06, not 1e-05 |",
        "| `layernorm` | `norm` | has |  |",  # defined there, not imported by the package
        "| `rmsnorm` | `norm` | has |  |",
        "| `silu_and_mul` | `sub` | changes | also `enable_pdl`; `out` is None, not 'no default'; in module `activation` |",
        "| `sub` | `new_op` |",
    ]
    assert "`packbits` is in the stand-in alone." in lines


def test_classes(tmp_path):
    """Tests classes with methods of their own, inherited ones, ones by another name, and in a file that passes a class
    on."""
    (tmp_path / "attention").mkdir()
    (tmp_path / "_build_meta.py").write_text('__version__ = "9.8.7"\n')
    (tmp_path / "__init__.py").write_text(
        "from .attention import BatchAttention, BatchAttentionWithAttentionSinkWrapper\nfrom .mla import BatchMLAWrapper\n")
    (tmp_path / "attention/__init__.py").write_text("from ._core import *\n")
    (tmp_path / "attention/_core.py").write_text(
        "from ..prefill import Base\nclass BatchAttention:\n    def __init__(self, kv_layout='NHD', device='cuda'): ...\n"
        "    def plan(self, *others, **more): ...\n    def run(self, q, cache, new=None): ...\n    def _hidden(self): ...\n"
        "class BatchAttentionWithAttentionSinkWrapper(Base): ...\n")
    (tmp_path / "prefill.py").write_text(
        "class Base:\n    def plan(self, qo_indptr, paged_kv_indptr): ...\n    begin_forward = plan\n    def gone(self): ...\n"
        "    def end_forward(self): ...\n")
    (tmp_path / "mla.py").write_text("class BatchMLAWrapper: ...\n")
    lines = run(tmp_path).stdout.splitlines()
    assert "3 public classes, of which the stand-in has 2." in lines
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    assert "`run()` without `cache`, without `new`, also `kv_cache`" in rows["BatchAttention"]
    assert "plan()" not in rows["BatchAttention"] and "_hidden" not in rows["BatchAttention"]
    sinks = rows["BatchAttentionWithAttentionSinkWrapper"]
    assert "without `gone()`" in sinks and "end_forward" not in sinks
    assert "`plan()` also `paged_kv_indices`, also `paged_kv_last_page_len`" in sinks and "`begin_forward()` also" in sinks
    assert "| `mla` | `BatchMLAWrapper` |" in lines


def test_no_package(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "needs the folder" in done.stderr
