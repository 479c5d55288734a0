# SPDX-License-Identifier: Apache-2.0
"""The library's ops as Python functions `name(*arguments)`, arguments in the C header's order, nothing allocated.

They are made from the table in the native part (python/ffi/ops.def), so a new op there is a new function here. The public
functions of _norm.py, _gemm.py and the like call them. A tensor is any array that speaks DLPack. NumPy arrays that
cannot (ml_dtypes' types, read-only ones) are lent by address.
"""

from sys import modules

from numpy import ndarray

from . import _tensor
from ._native import ffi
from ._tensor import is_masked

# Once quern.torch is imported: the table of PyTorch custom ops (torch.ops.quern), and what says whether calls go through it:
# torch.compiler.is_compiling, and how many modes (make_fx's, FakeTensorMode) see every operator that is called.
torch_ops = None
is_compiling = None
count_modes = None
check_torch = None  # raises for PyTorch tensors that cannot be taken: (op, names, values)
check_torch_quickly = None  # for those of them that convert without an error
record = None  # computes a call that autograd records and returns the result; None if it need not: (op, inputs)


def recorded(name, *inputs):
    """Returns the result of a call that autograd records; None if nothing needs a gradient. inputs: the op's arguments without
    those that are written."""
    if torch_ops is None and not ("torch" in modules and any(map(_tensor.is_torch, inputs))):
        return None
    return record(name, *inputs)


def is_being_traced():
    """Returns whether PyTorch traces this call (torch.compile, make_fx) or only simulates it (FakeTensorMode)."""
    return torch_ops is not None and (is_compiling() or count_modes() > 0)


class Parameter:
    """One parameter: `x` tensor, `x!` written, `x?` or None, `x@` on the CPU, `eps:f` number, `rows:i` integer;
    more of a number, which the native part checks, may follow its kind."""

    def __init__(self, text):
        self.name = text.partition(":")[0].rstrip("!?@")
        self.kind = text.partition(":")[2][:1] or "t"
        self.is_written = "!" in text
        self.is_optional = "?" in text
        self.is_host = "@" in text


def lend(name, arguments):
    """Returns the op's arguments with NumPy's arrays replaced by tensors over their memory."""
    lent = []
    if len(arguments) != len(TABLE[name]):
        raise TypeError(f"{name}: found {len(arguments)} arguments, needs {len(TABLE[name])}")
    for parameter, value in zip(TABLE[name], arguments, strict=True):
        lent.append(_lend(name, parameter, value) if parameter.kind == "t" and _tensor.is_numpy(value) else value)
    return lent


def _lend(name, parameter, array):
    if parameter.is_written and not array.flags.writeable:
        raise ValueError(f"{name}: {parameter.name} is a read-only array, and would be written")
    try:
        return _tensor.lend(array)
    except (ValueError, NotImplementedError) as error:
        raise type(error)(f"{name}: {parameter.name} {error}") from None


def _make(name):
    function, names = ffi[name], TENSORS[name]
    count = len(names)

    def call(*arguments):
        # is_torch imports quern.torch, once there is a tensor of PyTorch's.
        if torch_ops is not None or ("torch" in modules and any(map(_tensor.is_torch, arguments[:count]))):
            if is_compiling() or count_modes():  # is_being_traced, without the time of a call
                return getattr(torch_ops, name)(*arguments)
            check_torch_quickly(name, names, arguments[:count])
        first = arguments[0]
        # DLPack would refuse an ml_dtypes' type with an exception, which costs microseconds, and would forget a mask.
        if (type(first) is ndarray and first.dtype.kind == "V") or ("numpy.ma" in modules and any(map(is_masked, arguments))):
            function(*lend(name, arguments))
            return
        try:
            function(*arguments)
        except BufferError:  # raised while arguments are converted, before the op
            function(*lend(name, arguments))
        except (RuntimeError, ValueError):
            if check_torch is not None:  # in whose words the tensor is named
                check_torch(name, names, arguments[:count])
            raise

    call.__name__ = name
    return call


TABLE = {}
TENSORS = {}  # the names of an op's parameters up to the last tensor; numbers stand behind
for _line in ffi.op_table().splitlines():
    _name, *_words = _line.split()
    TABLE[_name] = [Parameter(word) for word in _words]
    TENSORS[_name] = tuple(p.name for p in TABLE[_name] if p.kind == "t")
    globals()[_name] = _make(_name)
