# SPDX-License-Identifier: Apache-2.0
"""Modules that take the place of other libraries, and install(), which gives them the libraries' names."""

import importlib
import pkgutil
import sys
import types

# The distribution's name, and the version whose names the stand-in has.
LIBRARIES = {"aiter": ("amd_aiter", "0.1.20"), "deep_gemm": ("deep_gemm", "2.6.1"), "flashinfer": ("flashinfer_python", "0.7.2")}


def install(name: str) -> types.ModuleType:
    """Puts a stand-in under its library's name, for programs that import that: `import deep_gemm` then gives quern.compat.deep_gemm,
    and so for its modules. It lasts as long as the process, whether the library is installed or not; again it does nothing.

    name  "aiter", "deep_gemm" or "flashinfer"

    Returns the stand-in. Raises ValueError (another name), RuntimeError (the library is imported already), ImportError (no PyTorch).
    """
    if name not in LIBRARIES:
        raise ValueError(f"install: name is {name!r}; accepted: {', '.join(map(repr, LIBRARIES))}")
    path = f"{__name__}.{name}"
    module = importlib.import_module(path)
    found = sys.modules.get(name)
    if found is not None and found is not module:
        raise RuntimeError(f"install: {name} is imported already, from {getattr(found, '__file__', None)}; accepted: before its first "
                           "import")
    for part in pkgutil.walk_packages(module.__path__, path + "."):
        importlib.import_module(part.name)
    parts = [part for part in sys.modules if part == path or part.startswith(path + ".")]  # second names of modules among them
    sys.modules.update({part.removeprefix(f"{__name__}."): sys.modules[part] for part in parts})
    return module
