# SPDX-License-Identifier: Apache-2.0
"""Loads the package's native part: quern_ffi.so, whose functions are libquern's ops behind the TVM-FFI C ABI."""

import importlib
import os
import sys
import types


class _Later(types.ModuleType):
    """Stands for a module that tvm_ffi imports and quern does not need; who uses it gets the module itself."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


def _no_distribution(name):
    raise LookupError(name)


def _import_tvm_ffi():
    """Imports tvm_ffi without what takes it long: PyTorch, where it is installed, its C++ builder, and the packages'
    metadata, without which it finds its library beside its own files."""
    if "torch" in sys.modules or "tvm_ffi" in sys.modules:
        import tvm_ffi
        return tvm_ffi
    names = [name for name in ("importlib.metadata", "tvm_ffi.cpp") if name not in sys.modules]
    hidden = {name: _Later(name) for name in names}
    if metadata := hidden.get("importlib.metadata"):
        metadata.distribution, metadata.PackageNotFoundError = _no_distribution, LookupError
    hidden["torch"] = None  # `import torch` now raises ImportError, which tvm_ffi expects
    sys.modules.update(hidden)
    try:
        import tvm_ffi
    finally:
        for name, module in hidden.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
    if metadata:
        del metadata.distribution, metadata.PackageNotFoundError
    return tvm_ffi


def find(name):
    """The path of a file of the native part. In an editable install it lies apart from the Python files."""
    for folder in sys.modules[__package__].__path__:
        path = os.path.join(folder, "_native", name)
        if os.path.exists(path):
            return path
    raise ImportError(f"quern: no _native/{name} in {list(sys.modules[__package__].__path__)}: "
                      "the package was not installed by pip")


tvm_ffi = _import_tvm_ffi()
for _kind in (NotImplementedError, OSError, LookupError):
    tvm_ffi.register_error(_kind.__name__, _kind)
ffi = tvm_ffi.load_module(find("quern_ffi.so"))
