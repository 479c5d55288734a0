#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs FlashInfer's own tests, unchanged, over quern.compat.flashinfer.

tests/clients/flashinfer_tests.py CHECKOUT                            the files of FILES below, of a checkout of FlashInfer, on the CPU
tests/clients/flashinfer_tests.py CHECKOUT utils/test_norm.py ...     some of its files
tests/clients/flashinfer_tests.py --most 40 CHECKOUT                  at most 40 cases of each test; 0: all, which takes hours
tests/clients/flashinfer_tests.py --seconds 60 CHECKOUT               a case that takes longer is left out; else 20
tests/clients/flashinfer_tests.py --gpu CHECKOUT                      on PyTorch's GPU

On the CPU, tensors for "cuda" are made there, by a mode of PyTorch's functions. Cases are taken evenly from a test's, as FlashInfer's grids
are for a GPU. What FlashInfer builds, or asks of a GPU, is answered by a module that has nothing (flashinfer.jit), or by "no" (is it an
SM90?), so that tests of other kernels skip themselves. SKIPPED says what else is left out, and why. Gradients are off. These are no
failures, and counted apart: refused, the stand-in raises NotImplementedError; taken, it takes what FlashInfer's test wants refused, such
as another hidden size; worded, it raises the right error in its own words. The exit status is 1 if a test failed.
"""

import argparse
import collections
import contextlib
import importlib.abc
import importlib.machinery
import os
import pathlib
import signal
import sys
import types

import pytest
import torch
import torch._dynamo  # here, as a case that gives up may not leave it half imported

import quern.compat

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

# Part of a test's name -> why it is left out.
_LARGE = "has tensors of over 2^31 elements"
SKIPPED = {"int64_stride": _LARGE, "contiguous_overflow": _LARGE, "compilation_without_fp8": "tests FlashInfer's build",
           "test_layernorm_quant": "compares by flashinfer.trace, which the stand-in has not",
           "test_batch_mla_varlen": "gives kv_indptr more entries than there are requests, which is an error here",
           "concat_mla_k_dtype_mismatch": "wants RuntimeError; wrong dtypes are ValueError here",
           "cuda_graph": "captures a CUDA graph"}


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


_BUILDS = {"flashinfer.jit", "flashinfer.cutile", "flashinfer.cute_dsl", "flashinfer.trace"}  # what builds, and records, kernels


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds what tests import for builds; all else that the stand-in has not is an error."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ".".join(name.split(".")[:2]) in _BUILDS else None

    def create_module(self, spec):
        return _Nothing(spec.name)

    def exec_module(self, module):
        pass


def _answer():
    """Gives flashinfer.utils the questions that tests ask of a GPU and of FlashInfer's builds."""
    import flashinfer
    import flashinfer.tllm_enums
    import flashinfer.topk
    import flashinfer.utils as utils
    utils.__getattr__ = _Nothing("flashinfer.utils").__getattr__  # is it an SM100? No
    utils.device_support_pdl = utils.is_sm90a_supported = lambda *_: True  # here, neither PDL nor the backend "fa3" changes anything
    utils.GPUArchitectureError, utils.get_device_sm_count = type("GPUArchitectureError", (RuntimeError,), {}), lambda *_: 8
    flashinfer.topk.can_implement_filtered_topk = lambda *_: False
    flashinfer.tllm_enums.DEFAULT_SITU_BETA, flashinfer.tllm_enums.DEFAULT_SITU_LINEAR_BETA = 4.0, 25.0
    utils.has_flashinfer_jit_cache = lambda *_: True
    utils.get_compute_capability = lambda *_: (8, 0)
    flashinfer.utils, flashinfer.jit = utils, _Nothing("flashinfer.jit")


# ---- the CPU in a GPU's place

class _OnCpu(torch.overrides.TorchFunctionMode):
    """Makes tensors for "cuda" on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        args, kwargs = [_moved(x) for x in args], {name: _moved(x) for name, x in (kwargs or {}).items()}
        if function is torch.Tensor.cuda:
            return args[0]
        if function is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args[1] = "cpu"
        if type(kwargs.get("device")) is int:
            kwargs["device"] = "cpu"
        return function(*args, **kwargs)


def _moved(x):
    if isinstance(x, str) and x.startswith("cuda") or isinstance(x, torch.device) and x.type == "cuda":
        return torch.device("cpu")
    return x


class _Generator(torch.Generator):
    def __new__(cls, device="cpu"):
        return super().__new__(cls, device="cpu")


@contextlib.contextmanager
def _on_cpu():
    properties = types.SimpleNamespace(multi_processor_count=8, total_memory=1 << 34, major=8, minor=0, name="CPU")
    answers = {"is_available": True, "synchronize": None, "empty_cache": None, "manual_seed": None, "manual_seed_all": None, "set_device": None,
               "current_device": 0, "device_count": 1, "get_device_capability": (8, 0), "get_device_properties": properties,
               "mem_get_info": (1 << 34, 1 << 34), "is_current_stream_capturing": False}
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_, value=value, **__: value)
    torch.Generator = _Generator
    with _OnCpu():
        yield


# ---- which cases, and what became of them

def _kind(excinfo):
    """Returns what a failure is that is none: the stand-in refuses by name, takes what FlashInfer does not, or says an error otherwise."""
    text = str(excinfo.value)
    if excinfo.errisinstance(NotImplementedError):
        return "refused"
    return "taken" if "DID NOT RAISE" in text else "worded" if "Regex pattern did not match" in text else None


class _Plugin:
    def __init__(self, most, seconds):
        self.most, self.seconds, self.counts = most, seconds, collections.defaultdict(collections.Counter)

    def pytest_collection_modifyitems(self, items):
        by_test = collections.defaultdict(list)
        for item in items:
            by_test[item.location[0], getattr(item, "originalname", item.name)].append(item)
        chosen = set()
        for cases in by_test.values():
            step = max(len(cases) / self.most, 1) if self.most else 1
            chosen |= {cases[int(i * step)].nodeid for i in range(int(len(cases) / step))}
        items[:] = [item for item in items if item.nodeid in chosen]
        for item in items:
            for part, why in SKIPPED.items():
                if part in item.nodeid:
                    item.add_marker(pytest.mark.skip(reason=why))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        signal.signal(signal.SIGALRM, self._give_up)
        signal.alarm(self.seconds)
        yield
        signal.alarm(0)

    def _give_up(self, *_):
        pytest.skip(f"takes more than {self.seconds} s")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = (yield).get_result()
        kind = _kind(call.excinfo) if call.excinfo else None
        if kind:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"{kind}: {call.excinfo.value}"[:300])
        if report.when == "call" or report.outcome != "passed":
            self.counts[item.location[0]][kind or report.outcome] += 1

    def pytest_terminal_summary(self, terminalreporter):
        for path, count in self.counts.items():
            terminalreporter.write_line(f"{path}: " + ", ".join(f"{n} {what}" for what, n in sorted(count.items())))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=pathlib.Path)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--most", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--gpu", action="store_true")
    options, more = parser.parse_known_args()
    tests = options.checkout.resolve() / "tests"
    if not tests.is_dir():
        sys.exit(f"{options.checkout} is no checkout of FlashInfer: it has no folder tests")
    quern.compat.install("flashinfer")
    _answer()
    sys.meta_path.append(_Finder())
    os.chdir(options.checkout)
    sys.path.insert(0, str(options.checkout.resolve()))
    paths = [str(tests / name) for name in options.files or FILES if (tests / name).is_file()]
    arguments = ["-q", "-p", "no:cacheprovider", "--noconftest", "-rs", "--tb=line", *more, *paths]
    with torch.no_grad(), contextlib.nullcontext() if options.gpu else _on_cpu():
        sys.exit(pytest.main(arguments, plugins=[_Plugin(options.most, options.seconds)]))


if __name__ == "__main__":
    main()
