# SPDX-License-Identifier: Apache-2.0
"""help(): every public function tells its parameters, what it raises and an example, which runs as it is written."""

import doctest
import inspect
import pydoc
import re
import typing

import numpy
import pytest
import quern

FUNCTIONS = {name: value for name in quern.__all__ if inspect.isfunction(value := getattr(quern, name))}
IN_OTHERS_HANDS = {"patch"}  # whose examples need PyTorch and a model: tests/clients runs those of the manual


def test_all_is_all():
    public = {name for name, value in vars(quern).items() if not name.startswith("_") and
              (inspect.isfunction(value) or inspect.isclass(value))}
    assert public | {"__version__"} == set(quern.__all__) and len(FUNCTIONS) > 55
    text = pydoc.plain(pydoc.render_doc(quern))
    assert all(re.search(rf"^    {name}\(", text, re.M) for name in FUNCTIONS)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - IN_OTHERS_HANDS))
def test_function(name):
    function = FUNCTIONS[name]
    text, parameters = inspect.getdoc(function), inspect.signature(function).parameters
    assert function.__name__ == name and set(typing.get_type_hints(function)) == {*parameters, "return"}
    head = text.partition(">>>")[0]
    for parameter in parameters:
        assert re.search(rf"^(\w+, )*{parameter}(, \w+)*  |, {parameter} i32", head, re.M), parameter
    assert "Raises " in head
    runs(text, name)


@pytest.mark.parametrize("kind", [quern, quern.AttentionPlan, quern.Device, quern.Tensor], ids=lambda kind: kind.__name__)
def test_class(kind):
    runs(inspect.getdoc(kind), kind.__name__)


def runs(text, name):
    """Checks that the examples give what they say."""
    case = doctest.DocTestParser().get_doctest(text, {"quern": quern, "numpy": numpy}, name, None, 0)
    said = []
    assert case.examples
    assert doctest.DocTestRunner(optionflags=doctest.FAIL_FAST).run(case, out=said.append).failed == 0, "".join(said)


def test_what_takes_indices_says_when_they_are_checked():
    indices = {"indptr", "kv_indptr", "append_indptr", "slot_mapping", "kv_indices", "positions", "pos_ids", "group_layout",
               "grouped_layout", "psum_layout", "ends", "seq_lens", "batch_indices"}
    host = {"attention_plan", "get_seq_lens", "apply_rope_pos_ids", "apply_llama31_rope_pos_ids"}  # read on the host; any number
    for name, function in FUNCTIONS.items():
        if indices & set(inspect.signature(function).parameters) and name not in host:
            assert "QUERN_VALIDATE=1" in function.__doc__, name
