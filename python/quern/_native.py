# SPDX-License-Identifier: Apache-2.0
"""Loads the package's native part: quern_ffi.so, whose functions are libquern's ops behind the TVM-FFI C ABI."""

import os
import sys


def _import_tvm_ffi():
    """tvm_ffi imports PyTorch where it is installed, which takes seconds; quern does so only for who uses it."""
    hide = "torch" not in sys.modules
    if hide:
        sys.modules["torch"] = None  # `import torch` now raises ImportError, which tvm_ffi expects
    try:
        import tvm_ffi
    finally:
        if hide:
            del sys.modules["torch"]
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
