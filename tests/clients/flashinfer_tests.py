#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs FlashInfer's own tests, unchanged, over quern.compat.flashinfer.

tests/clients/flashinfer_tests.py CHECKOUT                            the files of FILES below, of a checkout of FlashInfer, on the CPU
tests/clients/flashinfer_tests.py CHECKOUT utils/test_norm.py ...     some of its files
tests/clients/flashinfer_tests.py --most 40 CHECKOUT                  at most 40 cases of each test; 0: all, which takes hours
tests/clients/flashinfer_tests.py --seconds 60 CHECKOUT               a case that takes longer is left out; else 20
tests/clients/flashinfer_tests.py --within 600 CHECKOUT               no case begins so many seconds after the first; else no end
tests/clients/flashinfer_tests.py --gpu CHECKOUT                      on PyTorch's GPU

On the CPU, tensors for "cuda" are made there, by a mode of PyTorch's functions. Some of a test's cases are taken, as FlashInfer's grids are
for a GPU. What FlashInfer builds, or asks of a GPU, is answered by a module that has nothing (flashinfer.jit), or by "no" (is it an
SM90?), so that tests of other kernels skip themselves. Gradients are off. upstream/flashinfer.txt lists what cannot pass, and why;
upstream/cases.py says what is counted. The exit status is 1 if a case fails that is not listed.
"""

import contextlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import sys
import types

import pytest
import torch
import torch._dynamo  # here, as a case that gives up may not leave it half imported

import quern.compat
from upstream import cases, cpu

FILES = ("utils/test_norm.py", "norm/test_fused_rmsnorm_silu.py", "norm/test_fused_dit_layernorm.py", "norm/test_fused_qk_rmsnorm_rope.py",
         "utils/test_activation.py", "attention/test_rope.py", "attention/test_page.py", "attention/test_mla_page.py",
         "attention/test_single_prefill.py", "attention/test_batch_prefill_kernels.py", "attention/test_batch_decode_kernels.py",
         "attention/test_non_contiguous_decode.py", "attention/test_non_contiguous_prefill.py", "attention/test_decode_prefill_lse.py",
         "attention/test_deepseek_mla.py", "attention/test_shared_prefix_kernels.py", "attention/test_block_sparse.py",
         "attention/test_logits_cap.py", "attention/test_sliding_window.py", "attention/test_alibi.py", "attention/test_batch_attention.py",
         "utils/test_pod_kernels.py", "utils/test_sampling.py", "utils/test_topk.py", "utils/test_logits_processor.py",
         "utils/test_quantization.py", "utils/test_fp8_quantize.py", "utils/test_fp4_quantize.py", "utils/test_fp4_kv_quantization.py",
         "utils/test_concat_mla.py", "utils/test_tllm_enums.py", "gemm/test_bmm_bf16.py", "gemm/test_bmm_fp8.py", "gemm/test_group_gemm.py",
         "gemm/test_mm_bf16.py", "gemm/test_mm_mxfp8.py", "gemm/test_groupwise_scaled_gemm_fp8.py", "moe/test_trtllm_cutlass_fused_moe.py")


# ---- what FlashInfer has and the stand-in has not

class _Nothing(types.ModuleType):
    """A module whose every name is a function that does nothing, and is false."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_arguments, **_options):
    return None


# What builds and records kernels, or is a kernel of one GPU's.
_BUILDS = {"flashinfer.jit", "flashinfer.cutile", "flashinfer.cute_dsl", "flashinfer.trace", "flashinfer.gemm.kernels", "flashinfer.gemm.gemm_base",
           "flashinfer.gemm.gemm_mm_mxfp8_cute_dsl"}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what tests import for builds; all else that the stand-in has not is an error."""

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        builds = any(".".join(parts[:n]) in _BUILDS for n in (2, 3))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if builds else None

    def create_module(self, spec):
        return _Nothing(spec.name)

    def exec_module(self, module):
        pass


def _answer(capability):
    """Gives FlashInfer's modules the questions that tests ask of a GPU and of FlashInfer's builds. capability: of which GPU the answers are."""
    import flashinfer
    import flashinfer.gemm
    import flashinfer.quantization.fp4_quantization as fp4
    import flashinfer.tllm_enums
    import flashinfer.topk
    import flashinfer.utils as utils
    utils.__getattr__ = _Nothing("flashinfer.utils").__getattr__  # is it an SM100? No
    utils.device_support_pdl = utils.is_sm90a_supported = lambda *_: True  # here, neither PDL nor the backend "fa3" changes anything
    utils.GPUArchitectureError, utils.get_device_sm_count = type("GPUArchitectureError", (RuntimeError,), {}), lambda *_: 8
    flashinfer.topk.can_implement_filtered_topk = lambda *_: False
    flashinfer.tllm_enums.DEFAULT_SITU_BETA, flashinfer.tllm_enums.DEFAULT_SITU_LINEAR_BETA = 4.0, 25.0
    utils.has_flashinfer_jit_cache = lambda *_: True
    utils.get_compute_capability = lambda *_: capability
    flashinfer.gemm.is_cuda_tile_available = lambda *_: False
    for product in (flashinfer.mm_bf16, flashinfer.bmm_bf16, flashinfer.mm_mxfp8, flashinfer.mm_fp4):
        product.is_backend_supported = product.is_compute_capability_supported = lambda *_: True
    flashinfer.gemm.__path__, flashinfer.gemm.gemm_base = (), _Nothing("flashinfer.gemm.gemm_base")
    flashinfer.autotune = lambda *_, **__: contextlib.nullcontext()  # quern's choice of a kernel is its own
    fp4.NVFP4_QUANT_ENV_VARS = ()
    flashinfer.utils, flashinfer.jit = utils, _Nothing("flashinfer.jit")


class _Frees:
    """pytest's plug-in that gives a GPU's memory back after each case, for other processes on that GPU."""

    def pytest_runtest_teardown(self):
        torch.cuda.empty_cache()


def main():
    parser = cases.parser_of(__doc__, "FlashInfer")
    parser.add_argument("--gpu", action="store_true")
    options, more = parser.parse_known_intermixed_args()
    tests = options.checkout.resolve() / "tests"
    if not tests.is_dir():
        sys.exit(f"{options.checkout} is no checkout of FlashInfer: it has no folder tests")
    quern.compat.install("flashinfer")
    _answer(torch.cuda.get_device_capability() if options.gpu else (9, 0))
    sys.meta_path.append(_Finder())
    os.chdir(options.checkout)
    sys.path.insert(0, str(options.checkout.resolve()))
    paths = [str(tests / name) for name in options.files or FILES if (tests / name).is_file()]
    arguments = ["-q", "-p", "no:cacheprovider", "--noconftest", "-rs", "--tb=line", "--continue-on-collection-errors", *more, *paths]
    known = pathlib.Path(__file__).parent / "upstream" / "flashinfer.txt"
    plugins = [cases.plugin_of(options, known, "gpu" if options.gpu else "cpu"), *([_Frees()] if options.gpu else [])]
    with torch.no_grad(), contextlib.nullcontext() if options.gpu else cpu.on_cpu():
        sys.exit(pytest.main(arguments, plugins=plugins))


if __name__ == "__main__":
    main()
