# SPDX-License-Identifier: Apache-2.0
"""Importing quern beside threads that import PyTorch and what else tvm_ffi would import."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

# The other thread begins when tvm_ffi's import has begun, and is done before that is.
_PROGRAM = """
import sys, threading
sys.setswitchinterval(1e-5)
errors = []

def meanwhile():
    while "tvm_ffi" not in sys.modules:
        pass
    try:
        {}
    except BaseException as error:
        errors.append(error)

thread = threading.Thread(target=meanwhile)
thread.start()
import quern, numpy
quern.rmsnorm(numpy.ones((2, 8), numpy.float32), numpy.ones(8, numpy.float32))
thread.join()
if errors:
    raise errors[0]
"""


@pytest.mark.parametrize("statement", ["import torch; torch.ones(1)",
                                       "import importlib.metadata; importlib.metadata.version('numpy')"])
def test_another_thread_imports(statement):
    subprocess.run([sys.executable, "-c", _PROGRAM.format(statement)], check=True)


def test_pytorch_is_not_imported():
    code = "import sys, quern; assert 'torch' not in sys.modules and 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, quern, tvm_ffi, torch; assert tvm_ffi.libinfo.im.version('numpy') and torch.ones(1) == 1"
    subprocess.run([sys.executable, "-c", code], check=True)
