# SPDX-License-Identifier: Apache-2.0
"""The stub __init__.pyi has every public function of quern, with its parameters and defaults, and nothing else; the package
has every op of the C headers."""

import ast
import inspect
import os
import pathlib
import re

import pytest
import quern

STUB = ast.parse(pathlib.Path(quern.__file__).with_suffix(".pyi").read_text())
STUBBED = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
PUBLIC = {name: value for name, value in vars(quern).items() if not name.startswith("_") and inspect.isfunction(value)}


def test_names():
    assert STUBBED.keys() == PUBLIC.keys()
    classes = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}
    for name, node in classes.items():
        members = [m.name if isinstance(m, ast.FunctionDef) else m.target.id for m in node.body]
        known = {*dir(getattr(quern, name)), *getattr(getattr(quern, name), "__annotations__", {})}
        assert set(members) <= known


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_parameters(name):
    arguments = STUBBED[name].args
    positional, keyword = arguments.args, arguments.kwonlyargs
    defaults = [inspect.Parameter.empty] * (len(positional) - len(arguments.defaults)) + \
        [ast.literal_eval(default) for default in arguments.defaults] + \
        [inspect.Parameter.empty if default is None else ast.literal_eval(default) for default in arguments.kw_defaults]
    names = [argument.arg for argument in positional + keyword]
    real = inspect.signature(PUBLIC[name]).parameters.values()
    assert list(zip(names, defaults, strict=True)) == [(p.name, p.default) for p in real]
    assert [p.name for p in real if p.kind is p.KEYWORD_ONLY] == [argument.arg for argument in keyword]
    assert PUBLIC[name].__doc__


def test_every_op_of_the_headers_is_here():
    headers = pathlib.Path(os.environ["QUERN_SOURCE_DIR"]) / "include/quern"
    text = "".join(path.read_text() for path in headers.glob("*.h"))
    ops = set(re.findall(r"QN_API qn_status qn_(\w+)\(\s*qn_stream \*stream\b", text)) - {"stream_sync"}
    assert len(ops) > 40 and ops == set(quern._ops.TABLE)
    assert ops - {"copy"} <= set(PUBLIC) and callable(quern.to)  # qn_copy is what `to` calls
