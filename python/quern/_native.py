# SPDX-License-Identifier: Apache-2.0
"""Loads the package's native part: quern_ffi.so, whose functions are libquern's ops behind the TVM-FFI C ABI."""

import builtins
import importlib
import importlib.machinery
import os
import sys
import threading
import types


class _Later(types.ModuleType):
    """Stands for a module that tvm_ffi imports and quern does not need. An access to it imports the module itself."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(self.__name__), name)


class _LibInfoLoader(importlib.machinery.SourceFileLoader):
    """Loads tvm_ffi.libinfo, which finds its library beside its own files where there is no metadata of packages."""

    metadata = _Later("importlib.metadata")

    def exec_module(self, module):
        module.__builtins__ = {**vars(builtins), "__import__": self._import}
        super().exec_module(module)

    def _import(self, name, *arguments):
        if name == self.metadata.__name__ and name not in sys.modules:
            return types.SimpleNamespace(metadata=self.metadata)
        return builtins.__import__(name, *arguments)


class _Finder:
    """Hides from one thread the modules that tvm_ffi would import there slowly. Other threads import as they always do.

    It stays in sys.meta_path, without a thread: threads may be walking that list, and would miss one where one is taken out.
    """

    def __init__(self):
        self.thread = threading.get_ident()

    def find_spec(self, name, path=None, target=None):
        if threading.get_ident() != self.thread:
            return None
        if name == "torch":
            raise ModuleNotFoundError("quern imports no PyTorch, and tvm_ffi does without", name=name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if name == "tvm_ffi.libinfo" else None
        if spec is not None:
            spec.loader = _LibInfoLoader(name, spec.origin)
        return spec


def _no_distribution(name):
    raise LookupError(name)


def _import_tvm_ffi():
    """Imports tvm_ffi without its slow imports: PyTorch, where it is installed, its C++ builder, and the packages'
    metadata, without which it finds its library beside its own files."""
    if "torch" in sys.modules or "tvm_ffi" in sys.modules:
        import tvm_ffi
        return tvm_ffi
    metadata, finder, builder = _LibInfoLoader.metadata, _Finder(), _Later("tvm_ffi.cpp")
    metadata.distribution, metadata.PackageNotFoundError = _no_distribution, LookupError
    sys.meta_path.insert(0, finder)
    sys.modules[builder.__name__] = builder
    try:
        import tvm_ffi
    finally:
        finder.thread = None
        if sys.modules.get(builder.__name__) is builder:
            del sys.modules[builder.__name__]
        del metadata.distribution, metadata.PackageNotFoundError
    return tvm_ffi


def find(name):
    """Returns the path of a file of the native part, which an editable install keeps apart from the Python files."""
    for folder in sys.modules[__package__].__path__:
        path = os.path.join(folder, "_native", name)
        if os.path.exists(path):
            return path
    raise ImportError(f"quern: no _native/{name} in {list(sys.modules[__package__].__path__)}: "
                      "the package was not installed by pip")


def _name_rocm_wheels():
    """Tells the library where the running Python has TheRock's wheels, if that is not beside quern, where it looks by itself."""
    spec = importlib.machinery.PathFinder.find_spec("_rocm_sdk_core")
    if spec is None or not spec.submodule_search_locations or "QUERN_ROCM_WHEELS" in os.environ:
        return
    folder = os.path.dirname(os.path.realpath(list(spec.submodule_search_locations)[0]))
    package = os.path.dirname(os.path.dirname(os.path.realpath(find("quern_ffi.so"))))
    if folder != os.path.dirname(package):
        os.environ["QUERN_ROCM_WHEELS"] = folder


_name_rocm_wheels()
tvm_ffi = _import_tvm_ffi()
for _kind in (NotImplementedError, OSError, LookupError):
    tvm_ffi.register_error(_kind.__name__, _kind)
ffi = tvm_ffi.load_module(find("quern_ffi.so"))
