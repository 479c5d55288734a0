# SPDX-License-Identifier: Apache-2.0
"""mypy --strict and pyright over users' programs: nothing wrong with types/right.py, and each wrong line of types/wrong.py found.
The stubs of what needs PyTorch name what is there, with its parameters and defaults."""

import ast
import importlib.util
import inspect
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import quern
import quern._patch

PROGRAMS = pathlib.Path(__file__).parent / "types"
PACKAGE = pathlib.Path(quern.__file__).parent


def wrong_lines(program):
    return {i for i, line in enumerate((PROGRAMS / program).read_text().splitlines(), 1) if line.endswith("# wrong")}


def mypy_lines(program, folder, *options):
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(folder), "--follow-imports", "silent",
               "--ignore-missing-imports", *options, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, env={"MYPYPATH": str(PACKAGE.parent), "PATH": ""})
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(rf"{program.name}:(\d+): error", done.stdout)}, done.stdout


def pyright_lines(program, folder):
    (folder / "pyrightconfig.json").write_text(json.dumps({
        "extraPaths": [str(PACKAGE.parent)], "typeCheckingMode": "standard", "reportMissingModuleSource": False}))
    shutil.copy(program, folder)  # pyright looks at files of its project alone
    done = subprocess.run([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(folder), "--outputjson"],
                          capture_output=True, text=True)
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == 1, done.stdout
    found = [d for d in told["generalDiagnostics"] if d["severity"] == "error"]
    return {d["range"]["start"]["line"] + 1 for d in found}, done.stdout


CHECKERS = [pytest.param(lines, marks=pytest.mark.skipif(not importlib.util.find_spec(name), reason=f"no {name}"), id=name)
            for name, lines in (("mypy", mypy_lines), ("pyright", pyright_lines))]


@pytest.mark.parametrize("lines", CHECKERS)
def test_right(lines, tmp_path):
    found, text = lines(PROGRAMS / "right.py", tmp_path)
    assert not found, text


@pytest.mark.parametrize("lines", CHECKERS)
def test_wrong(lines, tmp_path):
    found, text = lines(PROGRAMS / "wrong.py", tmp_path)
    wrong = wrong_lines("wrong.py")
    assert len(wrong) > 25 and found == wrong, (sorted(found ^ wrong), text)


@CHECKERS[0].marks[0]
def test_deep_gemm(tmp_path):
    """Without PyTorch's own types, which take mypy long to read: a tensor may be anything here."""
    found, text = mypy_lines(PROGRAMS / "deep_gemm.py", tmp_path, "--no-site-packages", "--allow-subclassing-any")
    wrong = wrong_lines("deep_gemm.py")
    assert len(wrong) > 3 and found == wrong, (sorted(found ^ wrong), text)


@pytest.mark.parametrize("stub, module", [("torch/__init__.pyi", "quern.torch"), ("_patch/__init__.pyi", "quern._patch")])
def test_stubs(stub, module):
    if module == "quern.torch":
        pytest.importorskip("torch")
    module = importlib.import_module(module)
    for node in ast.parse((PACKAGE / stub).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            real = inspect.signature(getattr(module, node.name)).parameters
            assert [a.arg for a in node.args.args] == list(real)
            assert [ast.literal_eval(d) for d in node.args.defaults] == [p.default for p in real.values() if p.default is not p.empty]
