# SPDX-License-Identifier: Apache-2.0
"""What tables of parameters are made of: a call, and lines that say what a parameter of the call does, and try it."""

import pytest
import torch


def bits(t):
    return t.detach().clone(memory_format=torch.contiguous_format).view(torch.uint8) if t.ndim else t.clone()


def same(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    return len(a) == len(b) and all(x.dtype == y.dtype and x.shape == y.shape and torch.equal(bits(x), bits(y))
                                    for x, y in zip(a, b, strict=True))


def tensors(x):
    if isinstance(x, torch.Tensor):
        return [x]
    if isinstance(x, (tuple, list)):
        return [t for part in x for t in tensors(part)]
    return [] if x is None else [torch.tensor(x)]


class Function:
    """A function and the arguments of one call; which of them it writes counts among the results."""

    def __init__(self, function, make, writes=()):
        self.function, self.arguments_of, self.writes = function, make, writes

    def arguments(self, **changed):
        return {**self.arguments_of(), **changed}

    def run(self, **changed):
        arguments = self.arguments(**changed)
        result = tensors(self.function(**arguments))
        return result + [t for name in self.writes if name not in changed for t in tensors(arguments[name])]

    def outcome(self, **changed):
        """Returns the results, or the message of a ValueError."""
        try:
            return self.run(**changed)
        except ValueError as error:
            return str(error)


# ---- what a line says

class Acts:
    """value instead of the call's own gives other results, or a ValueError that names what no longer fits. beside: what else
    is passed, both times."""

    def __init__(self, value, **beside):
        self.value, self.beside = value, beside

    def check(self, case, name):
        value = self.value(case.arguments()[name]) if callable(self.value) else self.value
        before, after = (case.outcome(**{**self.beside, **more}) for more in ({}, {name: value}))
        assert not isinstance(before, str), before
        assert isinstance(after, str) or not same(before, after), f"{name} = {value!r} changes nothing"


class Written:
    """A tensor, or tensors, that the call writes: of the shape, else the one that the call has."""

    def __init__(self, *shape, dtype=torch.float16, count=0, **beside):
        self.shape, self.dtype, self.count, self.beside = shape, dtype, count, beside

    def check(self, case, name):
        one = [torch.full(self.shape, 9.0).to(self.dtype) for _ in range(max(self.count, 1))]
        given = case.arguments()[name] if not self.shape else one if self.count else one[0]
        before = [bits(t) for t in tensors(given)]
        case.run(**{**self.beside, name: given})
        assert not any(torch.equal(bits(t), b) for t, b in zip(tensors(given), before, strict=True)), f"{name} is not written"


class Refused:
    """The library gives these values a meaning that nothing here has."""

    def __init__(self, *values):
        self.values = values

    def check(self, case, name):
        for value in self.values:
            with pytest.raises(NotImplementedError, match=rf": {name} is "):
                case.run(**{name: value})


class Hint:
    """How fast, not what: the values change no bit, a wrong one is an error."""

    def __init__(self, *values, refused=()):
        self.values, self.refused = values, refused

    def check(self, case, name):
        want = case.outcome()
        for value in self.values:
            assert same(case.outcome(**{name: value}), want), f"{name} = {value!r} changes a result"
        for wrong in ("no such word", 3.5):
            with pytest.raises(ValueError, match=rf": {name} is {wrong!r}; accepted: "):
                case.run(**{name: wrong})
        Refused(*self.refused).check(case, name)


class Repeats:
    """Says what other arguments say: the same, or it is an error."""

    def __init__(self, right, wrong, **beside):
        self.right, self.wrong, self.beside = right, wrong, beside

    def check(self, case, name):
        assert same(case.outcome(**self.beside, **{name: self.right}), case.outcome(**self.beside))
        with pytest.raises((ValueError, NotImplementedError), match=name):
            case.run(**self.beside, **{name: self.wrong})


class Unused:
    """The values change no bit, as nothing here needs them; a wrong one is an error that names it."""

    def __init__(self, *values, wrong=3.5):
        self.values, self.wrong = values, wrong

    def check(self, case, name):
        want = case.outcome()
        for value in self.values:
            assert same(case.outcome(**{name: value}), want), f"{name} = {value!r} changes a result"
        with pytest.raises((ValueError, TypeError, NotImplementedError), match=rf": {name}\b"):
            case.run(**{name: self.wrong})
