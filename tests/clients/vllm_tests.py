#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs vLLM's own tests of ops, unchanged, over quern: its plugin, its stand-in for AITER, and its functions under the names of vLLM's
compiled ops.

build/engines/bin/python tests/clients/vllm_tests.py CHECKOUT                              the files of FILES below, of vLLM's sources
build/engines/bin/python tests/clients/vllm_tests.py CHECKOUT kernels/core/test_layernorm.py ...   some of its files
  --most 40      at most 40 cases of each test; 0: all, which takes hours; else 6
  --seconds 60   a case that takes longer is left out; else 20
  --within 600   no case begins so many seconds after the first; else there is no end

The engine's code is that of the installed vLLM, on the CPU, on a platform that says gfx942; tensors for "cuda" are made on the CPU.
upstream/vllm.txt lists what cannot pass, and why; upstream/cases.py says what is counted. The exit status is 1 if a case fails that is not
listed.
"""

import contextlib
import os
import pathlib
import sys
import types

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "in_vllm")]  # in_vllm has the library that tells vLLM of GPUs
os.environ.update(QUERN_VLLM="quiet", VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", VLLM_ROCM_USE_AITER="1", GPU_ARCHS="gfx942",
                  TRITON_INTERPRET="1",  # kernels of vLLM's that are Triton's, which tests compare with
                  TORCHDYNAMO_DISABLE="1")  # vLLM's own forms run as written: PyTorch's compiler would ask a GPU's driver

import pytest  # noqa: E402
import torch  # noqa: E402

import quern.compat  # noqa: E402
from upstream import cases, cpu  # noqa: E402

FILES = """
kernels/core/test_layernorm.py kernels/core/test_activation.py kernels/core/test_fused_quant_layernorm.py
kernels/core/test_fused_silu_mul_block_quant.py kernels/core/test_pos_encoding.py kernels/core/test_rotary_embedding.py
kernels/core/test_fused_qk_norm_rope.py kernels/core/test_fused_q_kv_rmsnorm.py kernels/core/test_mrope.py
kernels/core/test_rocm_aiter_ops.py kernels/core/test_apply_rotary_emb.py kernels/core/test_rotary_embedding_mla_cache_fused.py
kernels/core/test_batched_weight_rms_norm.py kernels/core/test_fused_rms_norm_gated.py kernels/core/test_opcheck.py
kernels/ir/test_activation.py kernels/ir/test_layernorm.py kernels/ir/test_ir_ops.py kernels/ir/test_aiter_norm_dispatch.py
kernels/attention/test_cache.py kernels/attention/test_attention.py kernels/attention/test_merge_attn_states.py
kernels/attention/test_mha_attn.py kernels/attention/test_rocm_aiter_fa.py kernels/attention/test_rocm_aiter_mla_decode.py
kernels/attention/test_rocm_aiter_mla_head_padding.py kernels/attention/test_rocm_aiter_mla_sink.py
kernels/attention/test_rocm_aiter_mla_causal_verify_mask.py kernels/attention/test_rocm_aiter_mla_decode_metadata.py
kernels/attention/test_rocm_aiter_mla_fp8_prefill.py kernels/attention/test_rocm_aiter_mla_fp8_support.py
kernels/attention/test_rocm_aiter_mla_op_registration.py kernels/attention/test_rocm_aiter_unified_attn.py
kernels/attention/test_deepgemm_attention.py kernels/attention/test_flashinfer.py
kernels/moe/test_moe.py kernels/moe/test_block_fp8.py kernels/moe/test_fused_topk.py kernels/moe/test_grouped_topk.py
kernels/moe/test_routing.py kernels/moe/test_moe_align_block_size.py kernels/moe/test_moe_permute_unpermute.py
kernels/moe/test_rocm_aiter_moe.py kernels/moe/test_rocm_aiter_topk.py kernels/moe/test_rocm_aiter_num_expert_group.py
kernels/moe/test_deepgemm.py kernels/moe/test_batched_deepgemm.py kernels/moe/test_batched_moe.py kernels/moe/test_count_expert_num_tokens.py
kernels/quantization/test_block_fp8.py kernels/quantization/test_fp8_quant.py kernels/quantization/test_fp8_quant_group.py
kernels/quantization/test_int8_quant.py kernels/quantization/test_per_token_group_quant.py
kernels/quantization/test_rocm_aiter_grouped_quant.py kernels/quantization/test_triton_scaled_mm.py
kernels/quantization/test_cutlass_scaled_mm.py kernels/quantization/test_quant_op_schema.py kernels/quantization/test_scaled_mm_kernel_selection.py
kernels/test_apply_repetition_penalties.py kernels/test_fused_quant_activation.py kernels/test_cache_kernels.py
v1/sample/test_sampler.py v1/sample/test_topk_topp_sampler.py v1/sample/test_rejection_sampler.py v1/sample/test_logprobs.py
v1/attention/test_rocm_aiter_mla_mtp_split.py
""".split()

_GPU = types.SimpleNamespace(gcnArchName="gfx942:sramecc+:xnack-", major=9, minor=4, multi_processor_count=304, warp_size=64,
                             total_memory=192 << 30, name="AMD Instinct MI300X")


class Fixtures:
    """Those of vLLM's fixtures that tests of ops take; the file that has them needs servers' libraries."""

    @pytest.fixture
    def default_vllm_config(self):
        from vllm.config import VllmConfig, set_current_vllm_config
        config = VllmConfig()
        with set_current_vllm_config(config):
            yield config

    @pytest.fixture
    def workspace_init(self):
        from vllm.v1.worker.workspace import init_workspace_manager, reset_workspace_manager
        init_workspace_manager(torch.device("cpu"))
        yield
        reset_workspace_manager()

    @pytest.fixture
    def kv_cache_factory(self):
        from vllm.utils.torch_utils import create_kv_caches_with_random
        return create_kv_caches_with_random

    @pytest.fixture
    def kv_cache_factory_flashinfer(self):
        from vllm.utils.torch_utils import create_kv_caches_with_random_flash
        return create_kv_caches_with_random_flash

    @pytest.fixture
    def dist_init(self, default_vllm_config, tmp_path):
        from vllm.distributed import parallel_state
        parallel_state.init_distributed_environment(1, 0, f"file://{tmp_path / 'store'}", 0, "gloo")
        parallel_state.initialize_model_parallel(1, 1)
        yield
        parallel_state.cleanup_dist_env_and_memory()

    @pytest.fixture(autouse=True)
    def device_reset(self):
        yield
        torch.set_default_device(None)


def _unused(name):
    """Stands for a name of a module that is not there."""
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def prepare(checkout):
    """Makes vLLM think that it runs on an MI300X, and quern compute for it."""
    quern.compat.install("aiter")
    from vllm.platforms import current_platform
    type(current_platform).dispatch_key = "CPU"  # for vLLM's ops, before vllm._aiter_ops defines them
    from upstream import vllm_ops  # noqa: F401
    from vllm.plugins import load_general_plugins
    load_general_plugins()
    if not getattr(sys.modules.get("quern.plugins.vllm"), "_is_done", False):  # vLLM only logs that it found none, or could not load it
        sys.exit("vLLM has not loaded quern's plug-in; needed: quern's entry points beside its package, as pip or "
                 "tests/clients/upstream/record.py writes them")
    sys.path.append(str(checkout))  # for its package tests; vllm is the installed one
    for name in {"anthropic", "httpx", "requests", "uvicorn", "watchfiles"} - set(sys.modules):  # of servers, which its tests.utils imports
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__getattr__ = _unused


def main():
    options, more = cases.parser_of(__doc__, "vLLM").parse_known_intermixed_args()
    tests = options.checkout.resolve() / "tests"
    if not (tests / "kernels").is_dir():
        sys.exit(f"{options.checkout} is no checkout of vLLM: it has no folder tests/kernels")
    with contextlib.ExitStack() as stack:
        stack.enter_context(cpu.on_cpu(_GPU))
        prepare(options.checkout.resolve())
        os.chdir(options.checkout)
        paths = [str(tests / name) for name in options.files or FILES if (tests / name).is_file()]
        arguments = ["-q", "-rs", "-p", "no:cacheprovider", "--noconftest", "--import-mode=importlib", "--tb=short", "--continue-on-collection-errors",
                     *more, *paths]
        plugins = [cases.plugin_of(options, HERE / "upstream" / "vllm.txt"), Fixtures()]
        sys.exit(pytest.main(arguments, plugins=plugins))


if __name__ == "__main__":
    main()
