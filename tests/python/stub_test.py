# SPDX-License-Identifier: Apache-2.0
"""The stub __init__.pyi has every public function of quern, with its parameters and defaults, and nothing else."""

import ast
import inspect
import pathlib

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
