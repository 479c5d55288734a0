# SPDX-License-Identifier: Apache-2.0
"""quern's ops as PyTorch custom ops. Each op writes into its arguments and returns nothing, so its fake has nothing to
do; quern's own functions allocate the results. These ops have no gradients; _gradients.py and _rows.py make others that have.
"""

import torch

from .. import _ops, _public, _tensor
from .._attention import with_backward_workspace, with_workspace
from .._norm import with_workspace as with_norm_workspace
from .._native import ffi
from ._tensors import check, check_quickly, refuse_gradients

_PREPARE = {"attention": with_workspace, "attention_backward": with_backward_workspace,
            "norm_backward": with_norm_workspace}  # prepares arguments that are no longer symbols
_TYPES = {"t": "Tensor", "f": "float", "i": "int"}
# Called with an op's name and arguments after the op ran as a custom op, for example in a compiled graph. None: not
# called.
observer = None
library = torch.library.Library("quern", "DEF")


def _schema(name, parameters):
    """Returns an op's schema: rmsnorm(Tensor(a!) out, Tensor x, Tensor weight, float eps) -> ()"""
    texts = []
    for i, parameter in enumerate(parameters):
        kind = _TYPES[parameter.kind]
        alias = f"({chr(ord('a') + i)}!)" if parameter.is_written else ""
        texts.append(f"{kind}{alias}{'?' if parameter.is_optional else ''} {parameter.name}")
    return f"{name}({', '.join(texts)}) -> ()"


def _register_op(name, parameters):
    function = ffi[name]
    prepare = _PREPARE.get(name)

    names = _ops.TENSORS[name]

    def call(*arguments):
        try:
            function(*(prepare(arguments) if prepare else arguments))
        except (RuntimeError, ValueError):
            check(name, names, arguments[:len(names)])
            raise
        if observer is not None:
            observer(name, arguments)

    library.define(_schema(name, parameters))
    library.impl(name, call, "CompositeExplicitAutograd")
    refuse_when_recorded(name, names)
    torch.library.register_fake(f"quern::{name}", lambda *arguments: None, lib=library)


def refuse_when_recorded(name, names):
    """Makes a custom op refuse tensors that need a gradient, also when a graph is made of the op."""
    def below(*arguments, **options):
        refuse_gradients(name, names, arguments)
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops.quern, name).default(*arguments, **options)

    library.impl(name, below, "Autograd")


def register():
    """Makes torch.ops.quern, once, and tells the package of PyTorch."""
    for name, parameters in _ops.TABLE.items():
        _register_op(name, parameters)
    _tensor.torch = torch
    _ops.torch_ops = torch.ops.quern
    _ops.is_compiling = _public.is_compiling = torch.compiler.is_compiling
    _ops.count_modes = torch._C._len_torch_dispatch_stack
    _ops.check_torch_quickly = check_quickly
    _ops.check_torch = _tensor.check_torch = check
