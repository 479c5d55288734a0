# SPDX-License-Identifier: Apache-2.0
"""Modules that take the place of other libraries, and install(), which gives them the libraries' names."""

import importlib
import pkgutil
import sys
import types

_NAMES = "deep_gemm", "flashinfer"


def install(name: str) -> types.ModuleType:
    """Puts a stand-in under its library's name, for programs that import that: `import deep_gemm` then gives quern.compat.deep_gemm,
    and so for its modules. It lasts as long as the process, whether the library is installed or not; again it does nothing.

    name  "deep_gemm" or "flashinfer"

    Returns the stand-in. Raises ValueError (another name), RuntimeError (the library is imported already), ImportError (no PyTorch).
    """
    if name not in _NAMES:
        raise ValueError(f"install: name is {name!r}; accepted: {', '.join(map(repr, _NAMES))}")
    path = f"{__name__}.{name}"
    module = importlib.import_module(path)
    found = sys.modules.get(name)
    if found is not None and found is not module:
        raise RuntimeError(f"install: {name} is imported already, from {getattr(found, '__file__', None)}; accepted: before its first "
                           "import")
    parts = [part.name for part in pkgutil.walk_packages(module.__path__, path + ".")]
    modules = [importlib.import_module(part) for part in (path, *parts)]
    sys.modules.update({m.__name__.removeprefix(f"{__name__}."): m for m in modules})
    return module
