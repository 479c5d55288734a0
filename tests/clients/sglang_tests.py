#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs SGLang's own tests of ops, unchanged, over quern: its plugin, and its functions under the names of SGLang's compiled kernels.

build/engines/bin/python tests/clients/sglang_tests.py CHECKOUT                      the files of FILES below, of SGLang's sources
build/engines/bin/python tests/clients/sglang_tests.py CHECKOUT test_layernorm.py ...   some of its files
  --most 40      at most 40 cases of each test; 0: all; else 6
  --seconds 60   a case that takes longer is left out; else 60, as one case of SGLang's may be a grid
  --within 600   no case begins so many seconds after the first; else there is no end

CHECKOUT is the folder that has SGLang's package sglang: python/ of a checkout, or an unpacked source package. The engine's code is that of
the installed SGLang, on the CPU, where PyTorch says that it sees an MI300X. upstream/sglang.txt lists what cannot pass, and why;
upstream/cases.py says what is counted. The exit status is 1 if a case fails that is not listed.
"""

import contextlib
import importlib.util
import os
import pathlib
import sys
import types
import unittest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE)]
os.environ.update(QUERN_SGLANG="quiet", GPU_ARCHS="gfx942", TRITON_INTERPRET="1")

import pytest  # noqa: E402
import torch  # noqa: E402

import quern.compat  # noqa: E402
from upstream import cases, cpu  # noqa: E402

FILES = """test/test_layernorm.py test/test_activation.py test/test_custom_ops.py test/test_block_fp8.py
jit_kernel/tests/test_rmsnorm.py jit_kernel/tests/test_fused_add_rmsnorm.py jit_kernel/tests/test_qknorm.py
jit_kernel/tests/test_qknorm_across_heads.py jit_kernel/tests/test_rope.py jit_kernel/tests/test_pos_enc.py
jit_kernel/tests/test_per_tensor_quant_fp8.py jit_kernel/tests/test_per_token_group_quant_8bit.py jit_kernel/tests/test_renorm.py
jit_kernel/tests/test_concat_mla.py""".split()

_GPU = types.SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4, multi_processor_count=304, warp_size=64,
                             total_memory=192 << 30, name="AMD Instinct MI300X")


def _stand_in(name, **content):
    """Puts a module of SGLang's that is for servers' tests, or for its continuous integration, in the place of its own."""
    module = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module


def prepare():
    """Makes SGLang think that it runs on an MI300X, and quern compute for it."""
    torch.version.hip, torch.version.cuda = "7.0", None
    quern.compat.install("aiter")
    quern.compat.install("flashinfer")
    from upstream import sglang_kernels
    sglang_kernels.install()  # before SGLang looks for them
    import sglang.srt.plugins
    sglang.srt.plugins.load_plugins()
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    if "quern" not in ATTENTION_BACKENDS:  # what quern's plug-in registers last; SGLang only logs that it found none, or could not load it
        sys.exit("SGLang has not loaded quern's plug-in: found no attention backend quern; needed: quern's entry points beside its package, as "
                 "pip or tests/clients/upstream/record.py writes them")
    _stand_in("sglang.test.test_utils", CustomTestCase=unittest.TestCase)
    if importlib.util.find_spec("sglang.test.ci.ci_register") is None:
        nothing = {f"register_{kind}_ci": lambda **_: None for kind in ("cuda", "amd", "cpu")}
        _stand_in("sglang.test.ci.ci_register", **nothing)


def main():
    options, more = cases.parser_of(__doc__, "SGLang", seconds=60).parse_known_intermixed_args()
    tests = options.checkout.resolve() / "sglang"
    if not tests.is_dir():
        sys.exit(f"{options.checkout} has no folder sglang; needed: python/ of a checkout, or an unpacked source package")
    with torch.no_grad(), contextlib.ExitStack() as stack:
        stack.enter_context(cpu.on_cpu(_GPU))
        prepare()
        os.chdir(tests)
        paths = [str(tests / name) for name in options.files or FILES if (tests / name).is_file()]
        arguments = ["-q", "-rs", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "--tb=short",
                     "--continue-on-collection-errors", *more, *paths]
        plugins = [cases.plugin_of(options, HERE / "upstream" / "sglang.txt")]
        sys.exit(pytest.main(arguments, plugins=plugins))


if __name__ == "__main__":
    main()
