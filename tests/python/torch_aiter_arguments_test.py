# SPDX-License-Identifier: Apache-2.0
"""quern.compat.aiter's messages for bad input, what it refuses, what changes nothing, the modules that engines import, and its page."""

import importlib
import inspect
import os
import pathlib
import pkgutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from deep_gemm_tools import BF16, F8, ints, quantised, randn  # noqa: E402

import quern.compat  # noqa: E402
import quern.compat.aiter as aiter  # noqa: E402
import quern.compat.aiter.fused_moe as aiter_moe  # noqa: E402
from quern.compat.aiter.ops.shuffle import shuffle_weight  # noqa: E402
from quern.compat.aiter.ops.triton.fused_fp8_quant import fused_rms_fp8_group_quant  # noqa: E402
from quern.compat.aiter.ops.triton.gemm_a8w8_blockscale import gemm_a8w8_blockscale  # noqa: E402
from quern.compat.aiter.ops.triton.unified_attention import unified_attention  # noqa: E402
from quern.compat.aiter.tuned_gemm import tgemm  # noqa: E402

PAGE = (pathlib.Path(__file__).resolve().parents[2] / "docs/aiter.md").read_text()
X, W = randn(4, 256, dtype=BF16), randn(256, dtype=BF16)
A, B = quantised(4, 256), quantised(160, 256, gran=(128, 128))
Q, KV = randn(2, 4, 32, dtype=BF16), randn(3, 16, 2, 32, dtype=BF16)
ONE = torch.ones(1)


def add_norm(**changed):
    out, total = torch.empty(2, 4, 256, dtype=BF16)
    given = {"out": out, "input": X, "residual_in": X, "residual_out": total, "weight": W, "epsilon": 1e-6, **changed}
    aiter.rmsnorm2d_fwd_with_add(**given)
    return given["out"]


def norm_quant(**changed):
    given = {"out": torch.zeros(4, 256).to(F8), "input": X, "yscale": torch.empty(4, 1), "weight": W, "epsilon": 1e-6, **changed}
    aiter.rmsnorm2d_fwd_with_dynamicquant(**given)
    return given["out"].view(torch.uint8)


def token_quant(**changed):
    given = {"out": torch.zeros(4, 256).to(F8), "input": X, "scales": torch.empty(4, 1), **changed}
    aiter.dynamic_per_token_scaled_quant(**given)
    return given["out"].view(torch.uint8)


def blockscale(**changed):
    return aiter.gemm_a8w8_blockscale(**{"XQ": A[0], "WQ": B[0], "x_scale": A[1], "w_scale": B[1], **changed})


def triton_blockscale(**changed):
    return gemm_a8w8_blockscale(**{"x": A[0], "w": B[0], "x_scale": A[1], "w_scale": B[1], **changed})


def rows(**changed):
    return aiter.gemm_a8w8(**{"XQ": A[0], "WQ": B[0], "x_scale": torch.ones(4, 1), "w_scale": torch.ones(160, 1), **changed})


def preshuffled(**changed):
    return aiter.gemm_a8w8_bpreshuffle(**{"XQ": A[0], "WQ": shuffle_weight(B[0]), "x_scale": torch.ones(4, 1), "w_scale": torch.ones(160,
                                                                                                                                     1),
                                          **changed})


def dense(**changed):
    return aiter.flash_attn_func(**{"q": Q[None], "k": KV[0][None], "v": KV[1][None], **changed})


def ragged(**changed):
    return aiter.flash_attn_varlen_func(**{"q": Q, "k": KV[0], "v": KV[1], "cu_seqlens_q": ints(0, 2), "cu_seqlens_k": ints(0, 16),
                                           "max_seqlen_q": 2, "max_seqlen_k": 16, **changed})


def prefill(**changed):
    return aiter.mha_batch_prefill_func(**{"q": Q, "k": KV, "v": KV, "cu_seqlens_q": ints(0, 2), "kv_indptr": ints(0, 1),
                                           "kv_page_indices": ints(2), "max_seqlen_q": 2, "max_seqlen_k": 16, **changed})


def unified(**changed):
    given = {"q": Q, "k": KV, "v": KV, "out": torch.zeros_like(Q), "cu_seqlens_q": ints(0, 1, 2), "max_seqlen_q": 1, "seqused_k": ints(9,
                                                                                                                                       20),
             "max_seqlen_k": 20, "softmax_scale": 0.2, "causal": True, "window_size": (-1, -1), "block_table": ints(0, 0, 1, 2).view(2, 2),
             "softcap": 0.0, "q_descale": None, "k_descale": None, "v_descale": None, **changed}
    unified_attention(**given)
    return given["out"]


def paged(**changed):
    return aiter.paged_attention_v1(**{
        "out": torch.zeros_like(Q), "workspace_buffer": ONE, "query": Q, "key_cache": KV, "value_cache": KV, "scale": 0.2,
        "block_tables": ints(0, 0, 1, 2).view(2, 2), "cu_query_lens": None, "context_lens": ints(9, 20), "max_context_len": 20,
        "alibi_slopes": None, "kv_cache_dtype": "auto", "kv_cache_layout": "NHD", "logits_soft_cap": 0.0, "k_scale": ONE, "v_scale": ONE,
        **changed})


def rocm(**changed):
    k, v = KV.view(3, 16, 2, 4, 8).permute(0, 2, 3, 1, 4), KV.permute(0, 2, 3, 1)
    return aiter.paged_attention_rocm(**{
        "out": torch.zeros_like(Q), "exp_sums": ONE, "max_logits": ONE, "tmp_out": ONE, "query": Q, "key_cache": k, "value_cache": v,
        "num_kv_heads": 2, "scale": 0.2, "block_tables": ints(0, 0, 1, 2).view(2, 2), "context_lens": ints(9, 20), "block_size": 16,
        "max_context_len": 20, "alibi_slopes": None, "kv_cache_dtype": "auto", "k_scale": ONE, "v_scale": ONE, **changed})


def mla(**changed):
    given = {"q": randn(2, 16, 192, dtype=BF16), "kv_buffer": randn(20, 1, 1, 192, dtype=BF16), "o": torch.zeros(2, 16, 128, dtype=BF16),
             "qo_indptr": ints(0, 1, 2), "kv_indptr": ints(0, 9, 20), "kv_indices": torch.arange(20, dtype=torch.int32),
             "kv_last_page_lens": ints(1, 1), "max_seqlen_q": 1, **changed}
    return aiter.mla.mla_decode_fwd(**given)[0]


def rope(**changed):
    given = {"input": randn(4, 1, 2, 32), "cos": randn(9, 1, 1, 16), "sin": randn(9, 1, 1, 16), "positions": ints(1, 0, 8, 3).view(4, 1),
             "rotate_style": 0, "reuse_freqs_front_part": True, "nope_first": False, **changed}
    return aiter.rope_cached_positions_fwd(**given)


def write(**changed):
    k = torch.zeros(3, 2, 4, 16, 8, dtype=BF16)
    aiter.reshape_and_cache(**{"key": Q[:, :2], "value": Q[:, :2], "key_cache": k, "value_cache": torch.zeros(3, 2, 32, 16, dtype=BF16),
                               "slot_mapping": ints(5, 40), "kv_cache_dtype": "auto", **changed})
    return k


def fused(**changed):
    return fused_rms_fp8_group_quant(**{"inp1": X, "inp1_weight": W, "inp1_epsilon": 1e-6, **changed})[0][1]


def group_quant(**changed):
    return aiter.per_group_quant_hip(**{"x": X, "quant_dtype": F8, **changed})[1]


def shuffle(**changed):
    return shuffle_weight(**{"x": B[0], **changed})


def mm(**changed):
    return tgemm.mm(**{"inp": X, "weights": randn(8, 256, dtype=BF16), **changed})


def gating(**changed):
    given = {"topk_weights": torch.empty(4, 2), "topk_indices": torch.empty(4, 2, dtype=torch.int32), "gating_output": randn(4, 8),
             "score_func": "softmax", **changed}
    aiter.topk_gating(**given)
    return given["topk_indices"]


def moe(**changed):
    w1, w2 = shuffle_weight(randn(2, 64, 32, dtype=BF16)), shuffle_weight(randn(2, 32, 32, dtype=BF16))
    return aiter_moe.fused_moe(**{"hidden_states": X[:, :32], "w1": w1, "w2": w2, "topk_weight": torch.ones(4, 1),
                                  "topk_ids": ints(0, 1, -1, 0).view(4, 1), **changed})


WRONG = [
    (moe, {"topk_ids": ints(0, 2, 1, 0).view(4, 1)}, ValueError, "fused_moe: topk_ids"),
    (moe, {"w1": B[0]}, ValueError, "fused_moe: w1 has shape [160, 256], needs [any, any, any]"),
    (moe, {"quant_type": 4}, NotImplementedError, "fused_moe: w1 has dtype torch.bfloat16; accepted: torch.float8_e4m3fn, "),
    (gating, {"topk_indices": torch.empty(4, 3, dtype=torch.int32)}, ValueError, "topk_gating: topk_indices has shape [4, 3], needs "),
    (gating, {"gating_output": torch.full((4, 8), torch.nan)}, ValueError, "topk_gating: gating_output"),
    (gating, {"topk_weights": torch.empty(4, 2).half()}, NotImplementedError, "topk_gating: topk_weights has dtype f16"),
    (add_norm, {"input": 3}, TypeError, "rmsnorm2d_fwd_with_add: input is 3; accepted: a PyTorch tensor"),
    (add_norm, {"residual_in": X[:3]}, ValueError, "rmsnorm2d_fwd_with_add: residual_in has shape [3, 256], needs [4, 256], input's"),
    (add_norm, {"weight": W[1:]}, ValueError, "rmsnorm2d_fwd_with_add: weight has shape [255], needs [256]"),
    (add_norm, {"epsilon": -1.0}, ValueError, "rmsnorm2d_fwd_with_add: epsilon is -1"),
    (norm_quant, {"yscale": torch.empty(3)}, ValueError, "rmsnorm2d_fwd_with_dynamicquant: yscale has 3 entries, needs 4"),
    (norm_quant, {"out": torch.zeros(4, 256, dtype=torch.int8)}, NotImplementedError,
     "rmsnorm2d_fwd_with_dynamicquant: out has dtype torch.int8; accepted: torch.float8_e4m3fn, torch.float8_e4m3fnuz"),
    (token_quant, {"num_rows_factor": 0}, ValueError,
     "dynamic_per_token_scaled_quant: num_rows_factor is 0; accepted: an integer of 1 or above"),
    (token_quant, {"num_rows": 3}, ValueError, "dynamic_per_token_scaled_quant: num_rows is 3; accepted: None, a tensor of one"),
    (group_quant, {"x": X[:, :200]}, ValueError, "per_group_quant_hip: x has shape [4, 200], needs columns in groups of 128"),
    (group_quant, {"group_size": 48}, ValueError, "per_group_quant_hip: group_size is 48; accepted: 32, 64, 128"),
    (group_quant, {"quant_dtype": BF16}, NotImplementedError, "per_group_quant_hip: quant_dtype is torch.bfloat16; accepted: "),
    (blockscale, {"WQ": B[0][:, 1:]}, ValueError, "gemm_a8w8_blockscale: WQ has shape [160, 255], needs [any, 256]"),
    (blockscale, {"x_scale": A[1][:3]}, ValueError, "gemm_a8w8_blockscale: x_scale has shape [3, 2], needs [4, 2]"),
    (blockscale, {"XQ": X}, NotImplementedError, "gemm_a8w8_blockscale: XQ has dtype torch.bfloat16; accepted: torch.float8_e4m3fn, "),
    (blockscale, {"dtype": torch.int8}, NotImplementedError, "gemm_a8w8_blockscale: dtype is torch.int8; accepted: "),
    (rows, {"w_scale": ONE}, ValueError, "gemm_a8w8: w_scale has 1 entries, needs 160"),
    (rows, {"bias": ONE}, ValueError, "gemm_a8w8: bias has 1 entries, needs 160"),
    (preshuffled, {"WQ": shuffle_weight(B[0][:, :224].contiguous())}, ValueError,
     "gemm_a8w8_bpreshuffle: WQ has shape [160, 224], needs at least 256 columns"),
    (shuffle, {"x": B[0][:3]}, ValueError, "shuffle_weight: x has shape [3, 256], needs [.., multiple of 16, multiple of 32]"),
    (dense, {"q": Q}, ValueError, "flash_attn_func: q has shape [2, 4, 32], needs [any, any, any, any]"),
    (dense, {"window_size": 3}, ValueError, "flash_attn_func: window_size is 3; accepted: two or three integers, -1 for no bound"),
    (dense, {"causal": "yes"}, ValueError, "flash_attn_func: causal is 'yes'; accepted: True, False"),
    (ragged, {"cu_seqlens_k": ints(0, 17)}, ValueError, "flash_attn_varlen_func: "),
    (ragged, {"cu_seqlens_k": ints(16, 0)}, ValueError, "flash_attn_varlen_func: cu_seqlens_k"),
    (ragged, {"min_seqlen_q": 2}, ValueError, "flash_attn_varlen_func: min_seqlen_q is 2; accepted: an integer from 0 to 1"),
    (prefill, {"kv_page_indices": ints(3)}, ValueError, "mha_batch_prefill_func: kv_page_indices"),
    (unified, {"seqused_k": ints(9, 40)}, ValueError, "unified_attention: seqused_k has entries from 9 to 40; accepted: 0 to 32"),
    (paged, {"block_tables": ints(0, 0, 1, 3).view(2, 2)}, ValueError, "paged_attention_v1: block_tables"),
    (paged, {"kv_cache_layout": "DHN"}, ValueError, "paged_attention_v1: kv_cache_layout is 'DHN'; accepted: 'NHD', 'HND'"),
    (paged, {"key_cache": KV.view(torch.int8)}, NotImplementedError, "paged_attention_v1: key_cache has dtype torch.int8; accepted with "),
    (paged, {"kv_cache_dtype": "fp8"}, ValueError,
     "paged_attention_v1: key_cache has dtype torch.bfloat16; accepted with kv_cache_dtype 'fp8'"),
    (rocm, {"num_kv_heads": 3}, ValueError, "paged_attention_rocm: key_cache has shape [3, 2, 4, 16, 8], needs [any, 3, any, 16, any]"),
    (mla, {"kv_indices": torch.full((20,), 20, dtype=torch.int32)}, ValueError, "mla_decode_fwd: kv_indices"),
    (mla, {"page_size": 2}, ValueError, "mla_decode_fwd: page_size is 2; accepted: an integer from 1 to 1"),
    (rope, {"positions": ints(0, 1, 2, 9)}, ValueError, "rope_cached_positions_fwd: positions have entries from 0 to 9; accepted: 0 to 8"),
    (rope, {"positions": ints(0, 1)}, ValueError, "rope_cached_positions_fwd: positions has shape [2], needs [4, 1]"),
    (rope, {"rotate_style": 2}, ValueError, "rope_cached_positions_fwd: rotate_style is 2; accepted: an integer from 0 to 1"),
    (rope, {"input": randn(4, 1, 2, 16)}, ValueError, "rope_cached_positions_fwd: input has shape [4, 2, 16], needs at least 32 elements"),
    (write, {"slot_mapping": ints(5, 48)}, ValueError, "reshape_and_cache: slot_mapping has an entry of 48; accepted: below 48"),
    (write, {"key": Q[:, :2].half()}, ValueError, "reshape_and_cache: key has dtype torch.float16, needs the cache's, torch.bfloat16"),
    (mm, {"bias": ONE}, ValueError, "mm: bias has shape [1], needs [8]"),
]


@pytest.mark.parametrize("call, changed, error, message", WRONG)
def test_messages(call, changed, error, message):
    call()
    with pytest.raises(error) as caught:
        call(**changed)
    assert str(caught.value).startswith(message), str(caught.value)


SLOPES = torch.ones(4)
REFUSED = [
    (moe, {"quant_type": 2}), (moe, {"activation": 3}), (moe, {"doweight_stage1": True}), (moe, {"a1_scale": ONE}), (moe,
                                                                                                                     {"a2_scale": ONE}),
    (moe, {"num_local_tokens": ints(2)}), (moe, {"hidden_pad": 1}), (moe, {"intermediate_pad": 1}), (moe, {"beta": 1.0}),
    (moe, {"linear_beta": 1.0}), (moe, {"gate_mode": "interleave"}), (moe, {"shared_w1": ONE}), (moe, {"shared_w2": ONE}),
    (moe, {"shared_w1_scale": ONE}), (moe, {"shared_w2_scale": ONE}), (moe, {"shared_expert_id": 1}), (moe, {"stage2_scatter": 1}),
    (moe, {"w1_scale": ONE}), (moe, {"w2_scale": ONE}),
    (gating, {"num_shared_experts": 1}), (gating, {"score_func": "sqrtsoftplus"}),
    (add_norm, {"use_model_sensitive_rmsnorm": 1}), (norm_quant, {"use_model_sensitive_rmsnorm": 1}), (norm_quant, {"group_size": 64}),
    (token_quant, {"scale_ub": ONE}), (group_quant, {"scale": ONE}), (group_quant, {"scale_type": torch.uint8}),
    (fused, {"group_size": 64}), (fused, {"dtype_quant": torch.int8}), (shuffle, {"layout": (32, 16)}), (shuffle, {"use_int4": True}),
    (shuffle, {"is_guinterleave": True}), (shuffle, {"pad_k_to": 64}), (mm, {"scale_c": ONE}),
    (triton_blockscale, {"skip_reduce": True}), (dense, {"dropout_p": 0.1}), (dense, {"alibi_slopes": SLOPES}),
    (dense, {"return_attn_probs": True}), (dense, {"cu_seqlens_q": ints(0, 2)}), (dense, {"cu_seqlens_kv": ints(0, 2)}),
    (dense, {"bias": torch.zeros(2, 16), "causal": True}), (ragged, {"bias": torch.zeros(2, 16)}), (ragged, {"alibi_slopes": SLOPES}),
    (ragged, {"dropout_p": 0.1}), (ragged, {"cu_seqlens_q_padded": ints(0, 2)}), (ragged, {"cu_seqlens_k_padded": ints(0, 2)}),
    (prefill, {"alibi_slopes": SLOPES}), (prefill, {"block_table": ints(0)}), (prefill, {"seqlen_k": ints(0)}),
    (prefill, {"kv_block_descale": ONE}), (prefill, {"sink_size": 4}), (unified, {"causal": False}),
    (unified, {"alibi_slopes": SLOPES}), (unified, {"q_scales": ONE}), (unified, {"output_scale": ONE}), (unified, {"qq_bias": ONE}),
    (unified, {"shuffled_kv_cache": True}), (unified, {"skip_reduce": True}), (unified, {"k_descale": randn(2, 2)}),
    (paged, {"alibi_slopes": SLOPES}), (paged, {"fp8_out_scale": ONE}), (paged, {"kv_cache_dtype": "fp8_e5m2"}), (paged, {"mtp": 2}),
    (rocm, {"alibi_slopes": SLOPES}), (rocm, {"fp8_out_scale": ONE}), (rocm, {"mtp": 2}), (mla, {"logit_cap": 1.0}),
    (mla, {"return_logits": True}), (mla, {"g_kv_indptr": ints(0)}), (mla, {"cp_world_size": 2}), (mla, {"cp_rank": 1}),
    (rope, {"reuse_freqs_front_part": False}),
]


@pytest.mark.parametrize("call, changed", REFUSED)
def test_refused(call, changed):
    with pytest.raises(NotImplementedError, match=rf"^\w+: {next(iter(changed))} is .*; accepted"):
        call(**changed)
    assert call() is not None


def test_refused_first_keys():
    with pytest.raises(NotImplementedError, match=r"window_size\[2\] is 4, first keys that all queries see; accepted: 0"):
        dense(window_size=(-1, -1, 4))
    with pytest.raises(NotImplementedError, match="x_bias is a Tensor"):
        aiter.layernorm2d_fwd(X, W, W, 1e-5, W)
    with pytest.raises(NotImplementedError, match="K_QScale is a Tensor of 6, scales for each token; accepted: None, one number"):
        aiter.pa_fwd_asm(Q, KV, KV, ints(0), ints(1), 1, 1, torch.ones(6))


HINTS = [
    (moe, {"block_size_M": 64, "moe_sorting_dispatch_policy": 2, "splitk": 2}),
    (token_quant, {"num_rows": torch.tensor([1]), "num_rows_factor": 4}), (rows, {"splitK": 3}), (preshuffled, {"check": True}),
    (triton_blockscale, {"config": {}, "kernel_type": "compute_bound", "backend": "triton"}),
    (dense, {"deterministic": False, "how_v3_bf16_cvt": 2, "num_splits": 3}),
    (ragged, {"deterministic": True, "how_v3_bf16_cvt": 0, "max_seqlen_q": 99, "max_seqlen_k": 99, "min_seqlen_q": 1}),
    (prefill, {"deterministic": True, "max_seqlen_q": 99, "max_seqlen_k": 99}), (unified, {"max_seqlen_q": 99, "max_seqlen_k": 99}),
    (paged, {"workspace_buffer": None, "max_context_len": 0, "partition_size": 128}),
    (rocm, {"exp_sums": None, "max_logits": None, "tmp_out": None, "max_context_len": 0, "partition_size": 128}),
    (mla, {"num_kv_splits": 4, "num_kv_splits_indptr": ONE, "work_meta_data": ONE, "work_indptr": ONE, "work_info_set": ONE,
           "reduce_indptr": ONE, "reduce_final_map": ONE, "reduce_partial_map": ONE, "intra_batch_mode": True, "max_seqlen_q": 9}),
    (shuffle, {"gate_up": True}),
]


@pytest.mark.parametrize("call, changed", HINTS)
def test_hints(call, changed):
    want, got = call(), call(**changed)
    assert want.dtype == got.dtype and torch.equal(want.view(torch.uint8), got.view(torch.uint8))


def test_gradients():
    weight = W.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="^rms_norm: weight requires a gradient"):
        aiter.rms_norm(X, weight, 1e-6)
    with torch.no_grad():
        aiter.rms_norm(X, weight, 1e-6)


# ---- names

def modules():
    return [importlib.import_module(part.name) for part in pkgutil.walk_packages(aiter.__path__, aiter.__name__ + ".")]


def public():
    """(name, value) of every function and class that AITER has, here or in a module."""
    found = {}
    for module in modules():
        own = not module.__name__.rpartition(".")[2].startswith("_")
        for name, value in vars(module).items() if own else ():
            is_own = getattr(value, "__module__", None) == module.__name__ or getattr(value, "is_absent", False)
            if is_own and callable(value) and not name.startswith("_"):
                found[name] = value
    return found


INTERNAL = {"blockscale", "product", "quantised", "rotate", "scales_of", "shares_memory", "unshuffled", "route", "no_shared",
            "get_dtype_fp8", "TunedGemm"}


def test_page_names_everything():
    names = set(public()) | {"_fused_qk_rmsnorm", *aiter.__all__} - {"__version__", "mla"}
    assert len(names) > 100
    assert not sorted(n for n in names - INTERNAL if f"`{n}`" not in PAGE and f".{n}`" not in PAGE)


def test_absent_functions():
    absent = {name: value for name, value in public().items() if getattr(value, "is_absent", False)}
    assert len(absent) > 40
    for name, value in absent.items():
        with pytest.raises(NotImplementedError, match=rf"^{name}: .*; docs/aiter.md lists what is served$"):
            value(1, b=2)
    with pytest.raises(AttributeError, match="quern.compat.aiter has no topk_plain; docs/aiter.md lists"):
        aiter.topk_plain  # noqa: B018
    with pytest.raises(NotImplementedError, match="get_hip_quant: qType is .*; accepted: No, per_Tensor, per_Token, per_1x32, per_1x128"):
        aiter.get_hip_quant(5)


def test_parameters_are_named():
    """Engines ask inspect.signature of some functions which parameters there are."""
    for name, value in public().items():
        if name not in INTERNAL and inspect.isfunction(value) and not getattr(value, "is_absent", False):
            kinds = {p.kind for p in inspect.signature(value).parameters.values()}
            assert kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}, name
    assert {"q_scale", "kv_scale", "causal"} <= set(inspect.signature(aiter.mla.mla_decode_fwd).parameters)


ENGINES = """
import quern.compat
quern.compat.install("aiter")
import aiter, torch
from aiter import (ActivationType, QuantType, dtypes, gemm_a8w8_blockscale, gemm_a8w8_blockscale_bpreshuffle, gemm_a8w8_bpreshuffle,
                   gemm_a4w4, get_hip_quant, per_token_quant_hip, per_1x32_f4_quant_hip, dynamic_per_tensor_quant,
                   dynamic_per_token_scaled_quant, static_per_tensor_quant, layernorm2d_fwd, rmsnorm2d_fwd, rmsnorm2d_fwd_with_add,
                   silu_and_mul, biased_grouped_topk, topk_softmax, moe_sum, greedy_sample, flash_attn_varlen_func,
                   flash_attn_varlen_fp8_pertensor_func, mha_batch_prefill_func, paged_attention_ragged, get_mla_metadata_info_v1,
                   get_mla_metadata_v1, get_ps_metadata_info_v1, get_ps_metadata_v1, mla_prefill_ps_asm_fwd, mla_reduce_v1)
from aiter.mla import mla_decode_fwd, mla_prefill_fwd
from aiter.fused_moe import fused_moe, fused_topk
from aiter.tuned_gemm import tgemm
from aiter.rotary_embedding import get_rope
from aiter.jit.utils.chip_info import get_cu_num, get_gfx
from aiter.utility.fp4_utils import e8m0_shuffle
from aiter.ops.quant import per_group_quant_hip
from aiter.ops.shuffle import (shuffle_weight, shuffle_scale, moe_shuffle_weight, moe_shuffle_scale, shuffle_weight_a16w4,
                               shuffle_scale_a16w4)
from aiter.ops.rmsnorm import rmsnorm_quant, add_rmsnorm_quant
from aiter.ops.cache import indexer_k_quant_and_cache, cp_gather_indexer_k_quant_cache
from aiter.ops.topk import topk_gating
from aiter.ops.triton.gemm_a16w16 import gemm_a16w16
from aiter.ops.triton.gemm.basic.gemm_a16w16 import gemm_a16w16 as nested
from aiter.ops.triton.gemm_a8w8_blockscale import gemm_a8w8_blockscale
from aiter.ops.triton.gemm_afp4wfp4 import gemm_afp4wfp4
from aiter.ops.triton.gemm_afp4wfp4_pre_quant_atomic import gemm_afp4wfp4_pre_quant
from aiter.ops.triton.quant import dynamic_mxfp4_quant
from aiter.ops.triton.attention.unified_attention import unified_attention
from aiter.ops.triton.unified_attention import unified_attention as flat
from aiter.ops.triton.fused_kv_cache import fused_qk_rope_cat_and_cache_mla
from aiter.ops.triton.fused_qk_concat import fused_qk_rope_cat
from aiter.ops.triton.utils.types import e4m3_dtype
from aiter.ops.triton.rope.rope import rope_cached_thd_positions_offsets_2c_fwd_inplace
from aiter.ops.fused_qk_rmsnorm_group_quant import fused_qk_rmsnorm
from aiter.ops.flydsl.moe_common import GateMode
from aiter.dist.device_communicators.custom_all_reduce import CustomAllreduce
assert gemm_a16w16 is nested and flat is unified_attention and GateMode("interleave") is GateMode.INTERLEAVE
assert QuantType(4) is QuantType.per_1x128 and ActivationType(0) is ActivationType.Silu and int(ActivationType.No) == -1
import aiter.ops.sampling
print(get_gfx(), dtypes.fp8, e4m3_dtype, aiter.__name__,
      torch.ops.aiter.paged_attention_v1.default is not None and torch.ops.aiter.top_k_renorm_probs.default is not None)
"""


@pytest.mark.parametrize("arch, kind", [("gfx942", "torch.float8_e4m3fnuz"), ("gfx942;gfx950", "torch.float8_e4m3fn")])
def test_engines_imports(arch, kind):
    done = subprocess.run([sys.executable, "-c", ENGINES], capture_output=True, text=True, env={**os.environ, "GPU_ARCHS": arch})
    assert done.stdout.split() == [arch.split(";")[-1], kind, kind, "quern.compat.aiter", "True"], done.stderr
