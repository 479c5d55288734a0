# SPDX-License-Identifier: Apache-2.0
"""Arguments that say how FlashInfer computes, not what: they change nothing here, and a wrong one is an error. And such as nothing here
acts on."""

from ..._public import flag, found

_OWN = "auto", "fa2", "fa3"  # FlashInfer's own kernels, whose results quern's kernels give
_OTHERS = "cudnn", "cutlass", "trtllm-gen", "fmha_v2", "cute-dsl", "cute-dsl-prims", "cutile", "prims-ts"


def check_backend(op, backend, own=_OWN):
    """Accepts the words for FlashInfer's own kernels; refuses those for other libraries' kernels, which are not
    here."""
    if backend in own:
        return
    accepted = ", ".join(map(repr, own))
    if backend in _OTHERS:
        raise NotImplementedError(f"{op}: backend is {backend!r}, another library's kernels; accepted: {accepted}")
    raise ValueError(f"{op}: backend is {found(backend)}; accepted: {accepted}")


def check_flags(op, **flags):
    """Checks that flags are truth values; None is the default."""
    for name, value in flags.items():
        if value is not None:
            flag(op, name, value)


def refuse(op, **arguments):
    """Raises for arguments that nothing here acts on, so that no result ignores them."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise NotImplementedError(f"{op}: {name} is not supported; found {found(value)}, accepted: None")
