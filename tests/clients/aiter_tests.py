#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs AITER's own tests of ops, unchanged, over quern.compat.aiter.

build/engines/bin/python tests/clients/aiter_tests.py CHECKOUT                        the files of CASES and FILES below, on the CPU
build/engines/bin/python tests/clients/aiter_tests.py CHECKOUT test_rmsnorm2d.py ...  some of its files
  --most 40      at most 40 cases of each test of pytest's; 0: all; else 6
  --seconds 60   a case that takes longer is left out; else 20
  --within 600   no case begins so many seconds after the first; else there is no end
  --chip gfx950  for which GPU AITER's dtypes are: gfx942 has e4m3fnuz, gfx950 e4m3fn; else gfx942

Most of AITER's tests are scripts that compare a grid of sizes for a GPU. CASES has arguments for each: sizes for a CPU. A case is one run of the
script in this process, or of one of its functions, where the whole script also needs what the stand-in has not. AITER's checkAllclose says only in its log that too many elements differ; here that fails the case. Each function
under test is called once and not timed. What tests compare with is theirs, or a function of AITER's in PyTorch, which REFERENCES names and
which is read from the checkout. A name that AITER has and the stand-in has not refuses when it is called. upstream/aiter.txt lists what
cannot pass, and why; upstream/cases.py says what is counted.
"""

import __future__
import argparse
import ast
import builtins
import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pathlib
import runpy
import shlex
import sys
import types

import pytest
import torch

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
import quern.compat  # noqa: E402
from upstream import cases, cpu  # noqa: E402

_KINDS = torch.bfloat16, torch.float16
# Scripts: the arguments of each case, or a function and its arguments.
CASES = {
    "test_rmsnorm2d.py": ["-m 4 -n 4096", *(("test_rmsnorm2d", {"dtype": d, "m": m, "n": 4096}) for d in _KINDS for m in (1, 17))],
    "test_rmsnorm2dFusedAddQuant.py": [f"--mode {mode} -m 17 -n 1024 -d {d}" for mode in range(1, 9) for d in ("bf16", "fp16")],
    "test_layernorm2d.py": ["-d bf16 -m 4 -n 4096", "-d bf16 -m 17 -n 1024"],
    "test_activation.py": ["-d bf16 -m 32 -n 1024", "-d fp16 -m 1 -n 4096",
                           *(("test_silu_and_mul", {"m": 17, "n": 1024, "dtype": d, "limit": limit}) for d in _KINDS for limit in (0.0, 7.0)),
                           *(("test_scaled_silu_and_mul", {"m": 17, "n": 1024, "dtype": d}) for d in _KINDS)],
    "test_quant.py": [f"-q {q} -d {d} -m 17 -n 1024" for q in ("fp8_tensor", "fp8_token", "fp8_1x128", "i8_token") for d in ("bf16", "fp16")],
    "test_gemm_a8w8_blockscale.py": ["-d bf16 -m 33 -nk 1536,640 --ck_preshuffle False"],
    "test_gemm_a16w16.py": ["-d bf16 -mnk 17,512,256"],
    "test_moe_topk_gating.py": [f"--num-experts {e} --num-tokens 17 --topk 6 -d {d} --score-func {f}" for e in (64, 256)
                                for d in ("bf16", "fp32") for f in ("softmax", "sigmoid")],
    "test_moeTopkSoftmax.py": [
        "-d bf16 -e 64 -t 17 -k 6", ("test_topk_softmax", {"dtype": torch.bfloat16, "token": 17, "E": 64, "topk": 6}),
        *((f, {"token": 17, "expert": 256, "group": 8, "topk": 8, "topk_group": 4, "need_renorm": True, "dtype": d, "scale_factor": 2.5})
          for f in ("test_biased_grouped_topk", "test_grouped_topk") for d in _KINDS),
        ("test_topk_softmax_shared_experts",
         {"dtype": torch.bfloat16, "token": 17, "num_routing_experts": 64, "num_shared_experts": 2, "topk": 6})],
    "test_moe_sorting.py": ["-m 17 -e 32 -t 5"],
    "test_moe_blockscale.py": ["-d bf16 -m 17 -dim 512 -idim 256 -e 8 -k 2"],
    "test_moe_2stage.py": ["-d bf16 -dim 512,256 -t 17 -e 8 -k 2 -q 0"],
    "test_sample.py": ["-d bf16 -n 1024 -m 17", ("test_greedy_sample", {"M": 17, "N": 1024}), ("test_random_sample", {"M": 17, "N": 1024}),
                       ("test_mixed_sample", {"M": 17, "N": 1024})],
    "test_kvcache.py": ["-t bf16tobf16 -b 3 -c 64", "-t bf16tobf16_slot_i32 -b 3 -c 64"],
    "test_concat_cache_mla.py": ["-k 512 -qr 64 -blk 64 -d bf16 -kvd auto -t 128", *(
        ("test_concat_and_cache_mla", {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_tokens": 42, "block_size": 16, "num_blocks": 8,
                                       "dtype": d, "device": "cuda", "kv_cache_dtype": kind}) for d in _KINDS for kind in ("auto", "fp8"))],
    "test_mla.py": ["-d bf16 -kvd bf16 -c 21 -b 1 -n 16,1 -splits 1"],
    "test_rope.py": ["-d bf16 -t false -b 2 -s 33 -hs 4 -hd 64"],
}
# Files that pytest collects.
FILES = """test_mha.py test_mha_varlen.py test_mha_fp8.py test_mha_varlen_fp8.py test_batch_prefill.py test_pa_v1.py test_pa_ragged.py
test_sampling.py test_mla_decode_gate.py test_gemm_a8w8_bpreshuffle_pad_k.py test_fused_qk_rmsnorm_per_token_quant.py""".split()

# AITER's functions in PyTorch that tests compare with: module -> its file, names.
REFERENCES = {
    "aiter": ("aiter/ops/quant.py", ("get_dtype_max", "pertoken_quant", "per_tensor_quant", "per_block_quant_wrapper", "get_torch_quant")),
    "aiter.ops.quant": ("aiter/ops/quant.py", ("get_dtype_max", "pertoken_quant", "per_tensor_quant")),
    "aiter.fused_moe": ("aiter/fused_moe.py", ("torch_moe", "torch_moe_stage1", "torch_moe_stage2", "torch_moe_act")),
    "aiter.utility.dtypes": ("aiter/utility/dtypes.py", ("str2bool", "str2tuple", "str2Dtype", "str2ActivationType")),
    "aiter.ops.topk": ("aiter/ops/topk.py", ("biased_grouped_topk_torch", "grouped_topk_torch")),
}
_ALSO = {"biased_grouped_topk_torch": "aiter.ops.topk", "grouped_topk_torch": "aiter.ops.topk"}  # names that aiter has of its modules
# Functions of AITER's Triton kernels that tests compare with, or ask for a kernel beside quern's: PyTorch's.
STEADS = {
    "aiter.ops.triton.topk": {"topk": torch.topk},
    "aiter.ops.triton.softmax": {"softmax": lambda x: torch.softmax(x, -1)},
    "aiter.ops.flydsl.utils": {"is_flydsl_available": lambda: False},
    "aiter": {"get_triton_quant": lambda kind: sys.modules["aiter"].get_torch_quant(kind)},
}


# ---- what AITER has and the stand-in has not

def _absent(module, name):
    def refuses(*_, **__):
        raise cases.QuernHasNot(f"{module}.{name}: quern's stand-in has it not")
    refuses.__name__ = name
    return refuses


class _Absent(types.ModuleType):
    """A module that the stand-in has not: each name refuses when it is called."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _absent(self.__name__, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds AITER's modules that the stand-in has not: those for tests alone in the checkout, all others without content."""

    OF_CHECKOUT = ("aiter.test_common", "aiter.test_mha_common", "aiter.bert_padding")

    def __init__(self, checkout):
        self.checkout = checkout

    def find_spec(self, name, path=None, target=None):
        if name in self.OF_CHECKOUT:
            return importlib.util.spec_from_file_location(name, self.checkout / (name.replace(".", "/") + ".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("aiter.") else None

    def create_module(self, spec):
        return _Absent(spec.name)

    def exec_module(self, module):
        pass


def _reference(checkout, file, names):
    """Returns those functions of the checkout's file, by name, without running the rest of it."""
    import aiter
    body = [node for node in ast.parse((checkout / file).read_text()).body
            if isinstance(node, (ast.FunctionDef, ast.Assign)) and (getattr(node, "name", None) in names)]
    scope = {"torch": torch, "F": torch.nn.functional, "functools": functools, "Tensor": torch.Tensor, "dtypes": aiter.dtypes,
             "QuantType": aiter.QuantType, "ActivationType": aiter.ActivationType, "get_gfx": lambda: os.environ["GPU_ARCHS"],
             "d_dtypes": aiter.dtypes.d_dtypes, "argparse": argparse}
    used = {node.id for tree in body for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for name in used - set(scope) - set(names) - set(dir(builtins)):
        scope[name] = _absent(file, name)
    code = compile(ast.Module(body, []), str(checkout / file), "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True)
    exec(code, scope)
    return scope


def _complete(checkout):
    """Gives the stand-in's modules what tests compare with, and names that refuse."""
    import aiter
    found = {module: _reference(checkout, *of) for module, of in REFERENCES.items()}
    for module, (_, names) in REFERENCES.items():
        for name in names:
            if name in found[module] and not hasattr(sys.modules[module], name):
                setattr(sys.modules[module], name, found[module][name])
    for name, module in _ALSO.items():
        setattr(aiter, name, found[module][name])
    for module, names in STEADS.items():
        vars(importlib.import_module(module)).update(names)
    aiter.get_gfx = lambda: os.environ["GPU_ARCHS"]
    for name, module in list(sys.modules.items()):
        if name == "aiter" or name.startswith("aiter."):
            module.__getattr__ = functools.partial(_name_of, name)


def _name_of(module, name):
    if name.startswith("__"):
        raise AttributeError(name)
    return _absent(module, name)


def _logger():
    import logging
    logger = logging.getLogger("aiter")
    logger.setLevel(logging.WARNING)
    return logger


def _once(function=None, **_):
    """Stands for perftest: calls the function once, and says that it took 1 us."""
    if function is None or not callable(function):
        return _once
    return functools.wraps(function)(lambda *args, **options: (function(*args, **options), 1.0))


_TIMING = ("num_iters", "num_warmup", "testGraph", "num_rotate_args", "needTrace", "use_cuda_event")


def _run_once(function, *args, **options):
    return function(*args, **{name: x for name, x in options.items() if name not in _TIMING}), 1.0


def _strict():
    """Makes AITER's comparison fail where it only says so in its log."""
    import aiter.test_common as common
    theirs = common.checkAllclose

    @functools.wraps(theirs)
    def check(a, b, rtol=1e-2, atol=1e-2, tol_err_ratio=0.05, msg="", **options):
        part = theirs(a, b, rtol=rtol, atol=atol, tol_err_ratio=tol_err_ratio, msg=msg, **options)
        assert a.shape == b.shape and part <= tol_err_ratio, f"{msg}: {part:.2%} of the elements differ, up to {(a.double() - b.double()).abs().max()}"
        return part

    common.checkAllclose, common.run_perftest = check, _run_once
    common.perftest = lambda *_, **__: _once


# ---- scripts as cases

class Script(pytest.File):
    def collect(self):
        for arguments in CASES[self.path.name]:
            name = arguments if isinstance(arguments, str) else f"{arguments[0]} {' '.join(f'{k}={x}' for k, x in arguments[1].items())}"
            yield Run.from_parent(self, name=f"[{name}]", arguments=arguments)


def _definitions(path):
    """Returns what a script defines before it reads its command line."""
    body = ast.parse(path.read_text()).body
    end = next((n for n, node in enumerate(body) if "ArgumentParser" in ast.dump(node)), len(body))
    scope = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(ast.Module(body[:end], []), str(path), "exec", dont_inherit=True), scope)
    return scope


class Run(pytest.Item):
    """One run of a script with some arguments, or of a function in it."""

    def __init__(self, *, arguments, **options):
        super().__init__(**options)
        self.arguments = arguments

    def runtest(self):
        torch.manual_seed(0)
        before, is_script = sys.argv, isinstance(self.arguments, str)
        sys.argv = [str(self.path), *(shlex.split(self.arguments) if is_script else ())]
        try:
            if is_script:
                runpy.run_path(str(self.path), run_name="__main__")
            else:
                _definitions(self.path)[self.arguments[0]](**self.arguments[1])
        except SystemExit as end:
            assert not end.code, f"the script ended with {end.code}"
        finally:
            sys.argv = before
            torch.set_default_device(None)

    def reportinfo(self):
        return self.path, None, self.name


class Scripts:
    """pytest's plug-in that takes AITER's scripts for what they are."""

    def pytest_collect_file(self, file_path, parent):
        return Script.from_parent(parent, path=file_path) if file_path.name in CASES else None

    def pytest_pycollect_makemodule(self, module_path, parent):
        return Nothing.from_parent(parent, path=module_path) if module_path.name in CASES else None


class Nothing(pytest.Module):
    def collect(self):
        return []


def prepare(checkout, chip):
    os.environ["GPU_ARCHS"] = chip
    aiter = quern.compat.install("aiter")
    aiter.logger = _logger()
    sys.meta_path.append(_Finder(checkout))
    _complete(checkout)
    _strict()


def main():
    parser = cases.parser_of(__doc__, "AITER")
    parser.add_argument("--chip", choices=("gfx942", "gfx950"), default="gfx942")
    options, more = parser.parse_known_intermixed_args()
    checkout = options.checkout.resolve()
    tests = checkout / "op_tests"
    if not tests.is_dir():
        sys.exit(f"{options.checkout} is no checkout of AITER: it has no folder op_tests")
    properties = types.SimpleNamespace(gcnArchName=f"{options.chip}:sramecc+:xnack-", major=9, minor=4, multi_processor_count=304, warp_size=64,
                                       total_memory=1 << 34, name="AMD Instinct MI300X")
    with torch.no_grad(), contextlib.ExitStack() as stack:
        stack.enter_context(cpu.on_cpu(properties))
        prepare(checkout, options.chip)
        os.chdir(tests)
        paths = [str(tests / name) for name in options.files or [*CASES, *FILES] if (tests / name).is_file()]
        arguments = ["-q", "-rs", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "--tb=short",
                     "--continue-on-collection-errors", *more, *paths]
        plugins = [cases.plugin_of(options, HERE / "upstream" / "aiter.txt"), Scripts()]
        sys.exit(pytest.main(arguments, plugins=plugins))


if __name__ == "__main__":
    main()
