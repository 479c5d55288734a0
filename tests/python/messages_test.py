# SPDX-License-Identifier: Apache-2.0
"""Every argument of every public function made wrong: the message names the function and the argument, says what was found
and what is accepted."""

import inspect
import re

import calls
import numpy as np
import pytest
import quern
from tools import BF16, normal

FUNCTIONS = {name: getattr(quern, name) for name in calls.NAMES}
ARGUMENTS = [(name, parameter) for name, function in FUNCTIONS.items() for parameter in inspect.signature(function).parameters]
ERRORS = ValueError, TypeError, NotImplementedError, LookupError
# What may be said of a value that is found: all but these, which say nothing.
SILENT = re.compile(r"something else|\bnull\b|dtype \?|is \?|has no (len|attribute)|object is not|unhashable|not supported between")

VALUES = {"None": None, "3": 3, "text": "text", "list": [1, 2], "object": object(), "1.5": 1.5, "-1": -1, "nan": float("nan"),
          "dict": {}}
# Arrays that DLPack does not describe, or that no function takes.
ARRAYS = {"complex": lambda x: x.astype(np.complex64), "object": lambda x: x.astype(object),
          "structured": lambda x: np.zeros(x.shape, [("a", "f4")]), "text": lambda x: np.full(x.shape, "a"),
          "masked": lambda x: np.ma.array(x.astype(np.float32), mask=False),
          "other byte order": lambda x: x.astype(np.dtype(np.float32).newbyteorder())}
# These say what a new array is: they are looked at where one is made.
OF_NEW = {"dtype": ("out", "q", "q_rope_out", "k_rope_out", "scale_out"), "n": ("out",), "packed": ("scale", "q", "out"),
          "nnz": (), "group": ("out", "scale")}


def arguments_for(name, parameter):
    given = calls.call(name)
    return {k: v for k, v in given.items() if k not in OF_NEW.get(parameter, ())
            or inspect.signature(FUNCTIONS[name]).parameters[k].default is inspect.Parameter.empty}


def is_accepted(name, parameter, value):
    """Returns whether the annotation accepts a value. Which numbers an op accepts is for bad_input_test."""
    text = inspect.signature(FUNCTIONS[name]).parameters[parameter].annotation
    if value is None:
        return "None" in text
    if isinstance(value, bool) or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        if "float" in text or "int" in text.replace("Sequence[int]", ""):
            return isinstance(value, int) or "float" in text
    return (parameter == "shape" and isinstance(value, (list, dict)) or isinstance(value, list) and "Sequence[int]" in text
            or name == "attention_plan" and isinstance(value, list) and "Array" in text)


def refused(name, parameter, given, others=()):
    with pytest.raises(ERRORS) as raised:
        FUNCTIONS[name](**given)
    text = str(raised.value)
    assert text.startswith(f"{name}: ") and not SILENT.search(text), text
    assert any(re.search(rf"(?<![\w.]){word}\b", text[len(name) + 2:]) for word in (parameter, *others)), text
    assert re.search(r"accepted|needs?\b|needed|no such|at least|both given|are packed", text), text


OF_ARRAYS = [(name, parameter) for name, parameter in ARGUMENTS if isinstance(calls.call(name).get(parameter), np.ndarray)]


@pytest.mark.parametrize("name, parameter", ARGUMENTS)
def test_values(name, parameter):
    for kind, value in VALUES.items():
        if not is_accepted(name, parameter, value):
            others = ["v"] if (name, parameter, kind) == ("rope_quantize_fp8_append_paged_kv_cache", "v", "None") else ()
            refused(name, parameter, arguments_for(name, parameter) | {parameter: value}, others)


@pytest.mark.parametrize("name, parameter", OF_ARRAYS)
def test_arrays(name, parameter):
    for kind, made_wrong in ARRAYS.items():
        if name != "attention_plan" or kind != "other byte order":
            given = calls.call(name)
            copied = name in ("to", "numpy") and kind == "complex"
            refused(name, parameter, given | {parameter: made_wrong(given[parameter])}, ["x"] if copied else ())


@pytest.mark.parametrize("name, parameter", OF_ARRAYS)
def test_rank(name, parameter):
    """Tests an array without dimensions: the message names an argument that it does not fit, or this one."""
    given = calls.call(name)
    if name not in ("to", "numpy") and parameter != "workspace":
        refused(name, parameter, given | {parameter: given[parameter].reshape(-1)[:1].reshape(())}, list(given))


def test_what_is_wrong_with_an_array_is_said_of_the_caller_s():
    x, weight = normal(1, (2, 8)), np.ones(8, np.float32)
    for wrong, text in ((x.astype(">f4"), r"x has dtype >f4, of the other byte order; accepted: this machine's, such as x.astype\('float32'\)"),
                        (np.ma.array(x, mask=x > 0), r"x is a masked array; accepted: one without a mask, such as x.filled\(0\)"),
                        (x.astype(object), "x has dtype object; accepted: numbers"),
                        (np.zeros((2, 8), [("a", "f4")]), r"x has the structured dtype .*; accepted: one field of it, such as x\['a'\]"),
                        (x.tolist(), r"x is a list of 2; accepted: an array")):
        with pytest.raises((ValueError, TypeError), match="^rmsnorm: " + text):
            quern.rmsnorm(wrong, weight)
    out = np.empty_like(x)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="^rmsnorm: out is a read-only array, and would be written"):
        quern.rmsnorm(x, weight, out=out)


def test_names_are_python_s():
    q, half = normal(1, (1, 2, 2, 32)), normal(2, (2, 64), BF16)
    for call, text in ((lambda: quern.attention(q, q, q, out=q), "^attention: out overlaps q"),
                       (lambda: quern.attention(q[0], q, q), "^attention: plan is None"),
                       (lambda: quern.gemm(half, half, out=np.zeros((2, 2), np.int32)), "^gemm: out has dtype i32"),
                       (lambda: quern.quantize_fp8(q[0, 0], block=3), "^quantize_fp8: block is 3; accepted: 2 integers"),
                       (lambda: quern.rmsnorm(q[0], q[0, 0, 0], "a"), "^rmsnorm: eps is 'a'; accepted: a number"),
                       (lambda: quern.ceil_to_ue8m0(q), "^ceil_to_ue8m0: x has"),
                       (lambda: quern.to(q, "tpu"), "^to: device is \"tpu\": no such kind")):
        with pytest.raises(ERRORS, match=text):
            call()
