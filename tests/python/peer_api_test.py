# SPDX-License-Identifier: Apache-2.0
"""tools/peer-api on a package made for it."""

import ast
import importlib.machinery
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

TOP = pathlib.Path(os.environ["QUERN_SOURCE_DIR"])
TOOL = TOP / "tools/peer-api"


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


def test_refusals(tmp_path):
    (tmp_path / "version.py").write_text('__version__ = "9.8.7"\n')
    (tmp_path / "__init__.py").write_text("from .xqa import xqa, xqa_mla, other\nfrom .kda import KDAPrefillPlanCache\n")
    (tmp_path / "xqa.py").write_text("def xqa(): ...\ndef xqa_mla(): ...\ndef other(): ...\n")
    (tmp_path / "kda.py").write_text("class KDAPrefillPlanCache: ...\n")
    lines = run(tmp_path).stdout.splitlines()
    assert lines[0] == "FlashInfer 9.8.7: 3 public functions, of which the stand-in has 1 and refuses 1 by name."
    assert "1 public classes, of which the stand-in has 0 and refuses 1 by name." in lines
    for line in ("| module | refuses by name |", "| `xqa` | `xqa_mla` |", "| `xqa` | `other` |", "| `kda` | `KDAPrefillPlanCache` |"):
        assert line in lines


def tool():
    """Returns the tool as a module."""
    loader = importlib.machinery.SourceFileLoader("peer_api", str(TOOL))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("peer_api", loader))
    loader.exec_module(module)
    return module


def names_of(page, kind):
    """Returns the names that the page has under what the stand-in has, refuses and lacks, of functions or classes, and its two counts."""
    part = page[page.index(f" public {kind}, of which"):]
    told = re.match(r" public \w+, of which the stand-in has (\d+) and refuses (\d+) by name", part)
    part = part[:part.find(" public classes, of which", 10)] if kind == "functions" else part
    has = re.findall(r"^\| `(\w+)` \| `[\w.]+` \| (?:has|changes) \|", part, re.MULTILINE)
    others = {verb: re.findall(r"`(\w+)`(?=,| \|)", re.sub(r"^\| `[\w.]+` \|", "|", rows, flags=re.MULTILINE))
              for verb, rows in re.findall(r"\| module \| (refuses by name|lacks) \|\n\| --- \| --- \|\n((?:\|.*\n?)+)", part)}
    return has, others.get("refuses by name", []), others.get("lacks", []), [int(n) for n in told.groups()]


@pytest.mark.parametrize("kind, node", [("functions", ast.FunctionDef), ("classes", ast.ClassDef)])
def test_page(kind, node):
    """Tests that docs/flashinfer.md's table says of each name what is there."""
    peer_api = tool()
    ours, no = peer_api.public(peer_api.STAND_IN), peer_api.refused(peer_api.STAND_IN)
    has, refused, lacks, counts = names_of((TOP / "docs/flashinfer.md").read_text(), kind)
    assert counts == [len(has), len(refused)]
    assert sorted(has) == sorted(name for name, (*_, found) in ours.items() if isinstance(found, node))
    assert set(refused) <= no and not set(lacks) & (no | set(ours))


def test_page_names_all_refusals():
    peer_api, page = tool(), (TOP / "docs/flashinfer.md").read_text()
    assert set(names_of(page, "functions")[1] + names_of(page, "classes")[1]) == peer_api.refused(peer_api.STAND_IN)


def test_no_package(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2 and "needs the folder" in done.stderr
