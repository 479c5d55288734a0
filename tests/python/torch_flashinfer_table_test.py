# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer: every parameter of every public function and method has a line below that says what it does, and the
line is tried. A parameter without a line fails."""

import functools

import pytest

torch = pytest.importorskip("torch")
from flashinfer_calls import (  # noqa: E402
    DIM, FUNCTIONS, HEADS, INDICES, INDPTR, KEYS, LAST, LENGTHS, QO, QUERIES, public_calls)
from flashinfer_attention_calls import attention_lines  # noqa: E402
from flashinfer_expert_calls import expert_lines  # noqa: E402
from flashinfer_fp4_calls import fp4_lines  # noqa: E402
from flashinfer_other_calls import other_lines  # noqa: E402
from flashinfer_product_calls import product_lines  # noqa: E402
from flashinfer_tools import HALF, randn, workspace  # noqa: E402
from table_tools import Acts, Hint, Refused, Repeats, Written  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402


# ---- what each parameter does

def more(t):
    return t + 1


def fewer(t):
    return t[:-1]


def other_cache(cache):
    return [2 * t for t in cache] if isinstance(cache, list) else 2 * cache.nan_to_num()


def halves(t):
    return t / 2


ROPE = {"pos_encoding_mode": "ROPE_LLAMA"}
MASK = torch.arange(5 * 20 + 7 * 7) % 2 == 0  # queries * keys of both requests
PACKED = flashinfer.segment_packbits(MASK, torch.tensor([0, 100, 149], dtype=torch.int32), "little")[0]
INTS = functools.partial(torch.zeros, dtype=torch.int32)
BUFFERS = {"use_cuda_graph": True, "paged_kv_indptr_buffer": INTS(3), "paged_kv_indices_buffer": INTS(8),
           "paged_kv_last_page_len_buffer": INTS(2)}
PREFILL_BUFFERS = {"use_cuda_graph": True, "qo_indptr_buf": INTS(3), "paged_kv_indptr_buf": INTS(3),
                   "paged_kv_indices_buf": INTS(8), "paged_kv_last_page_len_buf": INTS(2)}
RAGGED_BUFFERS = {"use_cuda_graph": True, "qo_indptr_buf": INTS(3), "kv_indptr_buf": INTS(3)}
MASK_BUFFERS = {"custom_mask_buf": torch.zeros(64, dtype=torch.uint8), "mask_indptr_buf": INTS(3), "plan.custom_mask": MASK}
LEVEL_BUFFERS = {"use_cuda_graph": True, **{name: [INTS(n), INTS(n)] for name, n in (
    ("qo_indptr_buf_arr", 3), ("paged_kv_indptr_buf_arr", 3), ("paged_kv_indices_buf_arr", 8),
    ("paged_kv_last_page_len_buf_arr", 2))}}
SPLIT = {"plan.fixed_split_size": 1}
ONE_LEVEL = {"__init__.num_levels": 1, "qo_indptr_arr": [QUERIES], "paged_kv_indptr_arr": [INDPTR],
             "paged_kv_indices_arr": [INDICES], "paged_kv_last_page_len": [LAST]}
NOTHING = torch.empty(1, dtype=torch.uint8)
ELSEWHERE = torch.empty(1 << 20, dtype=torch.uint8, device="meta")


def written(*shape, dtype=torch.int32, **beside):
    return Written(*shape, dtype=dtype, **beside)


NO_SEED = {"seed": None, "offset": None}
SPOILT = torch.full((4, 40), torch.nan)

LINES = {
    # sampling
    "deterministic": Hint(True, False), "is_deterministic": Hint(True, False),
    **dict.fromkeys(("logits", "probs", "draft_probs", "target_probs"), Acts(lambda t: t.flip(-1))), "draft_token_ids": Acts(more),
    "temperature": Acts(0.5), "top_k": Acts(2), "top_p": Acts(0.2), "min_p": Acts(0.9), "filter_apply_order": Acts("joint"),
    "seed": Acts(4), "offset": Acts(6), "return_valid": Acts(True),
    "generator": Acts(torch.Generator().manual_seed(7), **NO_SEED),
    "sampling_from_logits.check_nan": Acts(True, logits=SPOILT), "top_k_top_p_sampling_from_logits.check_nan": Acts(True, logits=SPOILT),
    "check_nan": Acts(True, probs=SPOILT),
    **{f"{name}.indices": Acts(lambda t: t.flip(0)) for name in FUNCTIONS if "sampling_from" in name and "cake" not in name},
    "maybe_output_accepted_token_num": Acts(torch.ones(9, dtype=torch.int64)),
    "maybe_output_emitted_draft_token_num": Acts(torch.ones(9, dtype=torch.int64)),
    # how, not what
    "enable_pdl": Hint(None, True, False), "non_blocking": Hint(True, False), "use_tensor_cores": Hint(True, False),
    "backend": Hint("auto", "fa2", "fa3", refused=("cudnn", "cutlass", "trtllm-gen", "cute-dsl", "cutile")),
    "rope_quantize_fp8.backend": Hint("cuda", refused=("cutile",)),
    "variant": Repeats("independent", "shared"),
    # refused
    "use_fp16_qk_reduction": Refused(True), "kv_cache_sf": Refused(torch.ones(1)), "jit_args": Refused(["uri"]),
    "jit_kwargs": Refused({"a": 1}), "block_tables": Refused(INTS(2, 2)), "prefix_len_ptr": Refused(INTS(2)),
    "token_pos_in_items_ptr": Refused(INTS(2)), "token_pos_in_items_len": Refused(3), "max_item_len_ptr": Refused(INTS(2)),
    "skip_softmax_threshold_scale_factor": Refused(0.5), "use_fp16_softmax": Refused(True), "uses_spcompress": Refused(True),
    "o_scale": Refused(2.0), "use_profiler": Refused(True), "profiler_buffer": Refused(torch.ones(1)),
    "module": Refused(object()),
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper.forward.rope_scale": Refused(2.0),
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper.forward.rope_theta": Refused(1e5),
    # what other arguments say already
    "seq_lens": Repeats(torch.tensor(LENGTHS), torch.tensor([20, 8])),
    "seq_lens_q": Repeats(torch.tensor([5, 7]), torch.tensor([5, 6])),
    "max_token_per_sequence": Repeats(7, 6), "max_sequence_kv": Repeats(20, 19), "max_qo_len": Repeats(7, 6),
    "v_indptr": Repeats(KEYS, KEYS * 2), "o_indptr": Repeats(QUERIES, QUERIES * 2), "run.q_len_per_req": Repeats(1, 2),
    # tensors
    **dict.fromkeys(("q", "k", "v", "input", "residual", "weight", "gemma", "beta", "query", "key", "q_rope", "k_rope",
                     "q_nope", "k_nope", "v_a", "s_a", "v_b", "s_b", "s", "v_other", "s_other", "append_value", "append_ckv",
                     "append_kpe", "append_key",
                     "k_shared", "v_shared", "positions", "offsets", "pos_ids"), Acts(more)),
    "x": Acts(torch.logical_not), "cos_sin_cache": Acts(halves), "mask": Acts(torch.tensor([True, False, True])),
    **dict.fromkeys(("paged_kv_cache", "kv_cache", "unique_kv_cache"), Acts(other_cache)),
    **dict.fromkeys(("append_paged_kv_cache.paged_kv_cache", "rope_quantize_fp8_append_paged_kv_cache.paged_kv_cache",
                     "ckv_cache", "kpe_cache"), Written()),
    # results that are given
    "out": Written(QO[-1], HEADS, DIM), "lse": Written(QO[-1], HEADS, dtype=torch.float32),
    "BatchDecodeWithPagedKVCacheWrapper.run.out": Written(2, HEADS, DIM),
    "BatchDecodeWithPagedKVCacheWrapper.run.lse": Written(2, HEADS, dtype=torch.float32),
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper.run.out": Written(2, HEADS, DIM),
    "CUDAGraphBatchDecodeWithPagedKVCacheWrapper.run.lse": Written(2, HEADS, dtype=torch.float32),
    **dict.fromkeys((f"{name}.out" for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul", "rmsnorm",
                                                "gemma_rmsnorm")), Written(3, 64)),
    **dict.fromkeys((f"{name}_quant.out" for name in ("rmsnorm", "fused_add_rmsnorm", "layernorm")),
                    Written(3, 64, dtype=torch.float8_e4m3fn)),
    **{f"{call}{name}": Written(*shape, dtype=torch.float8_e4m3fn) for call, name, *shape in (
        ("", "q_rope_out", 6, 2, 16), ("", "k_rope_out", 6, 2, 16), ("", "q_nope_out", 6, 2, 8), ("", "k_nope_out", 6, 2, 8),
        ("mla_rope_quantize_fp8.", "k_rope_out", 6, 16), ("mla_rope_quantize_fp8.", "k_nope_out", 6, 8))},
    "get_batch_indices_positions.batch_indices": written(6), "get_batch_indices_positions.positions": written(6),
    # index arrays and sizes
    **dict.fromkeys(("indptr", "indices", "last_page_len", "qo_indptr", "paged_kv_indptr", "paged_kv_indices",
                     "paged_kv_last_page_len", "kv_indptr", "kv_indices", "kv_len_arr", "unique_kv_indptr",
                     "unique_kv_indices", "unique_kv_last_page_len", "qo_segment_offsets", "kv_segment_offsets", "append_indptr"), Acts(lambda t: t.flip(0))),
    **dict.fromkeys(("qo_indptr_arr", "paged_kv_indptr_arr", "paged_kv_indices_arr",
                     "MultiLevelCascadeAttentionWrapper.plan.paged_kv_last_page_len"),
                    Acts(lambda arrays: [arrays[0], arrays[1].flip(0)])),
    "get_batch_indices_positions.seq_lens": Acts(more), "batch_indices": Acts(lambda t: t.flip(0)), "nnz": Acts(5),
    "kv_last_page_len": Repeats(torch.tensor([3, 3]), torch.tensor([3])), "get_seq_lens.kv_last_page_len": Acts(more),
    "num_qo_heads": Acts(8), "num_kv_heads": Acts(1), "head_dim": Acts(32), "head_dim_qk": Acts(32), "head_dim_vo": Acts(32),
    "page_size": Acts(4), "head_size": Acts(32), "num_levels": Acts(3), "q_len_per_req": Acts(2),
    # numbers and words
    "sm_scale": Acts(0.3), "window_left": Acts(1), "window_right": Acts(-1, q_len_per_req=2, **{"run.q": randn(4, HEADS, DIM)}),
    "logits_soft_cap": Acts(2.0), "BatchAttention.run.logits_soft_cap": Acts(2.0, **{"plan.logits_soft_cap": 1.0}),
    "pos_encoding_mode": Acts("ALIBI"), "rope_scale": Acts(2.0, **ROPE), "rope_theta": Acts(100.0, **ROPE),
    **{f"{name}.{number}": Acts(100.0) for name in FUNCTIONS if name.startswith("apply_") and "cache" not in name
       for number in ("rope_scale", "rope_theta")},
    **{f"MultiLevelCascadeAttentionWrapper.plan.{name}": Acts(value, **more, **ONE_LEVEL) for name, value, more in (
        ("window_left", 1, {}), ("pos_encoding_mode", "ALIBI", {}), ("rope_scale", 2.0, ROPE), ("rope_theta", 100.0, ROPE))},
    "causal": Acts(True),
    "custom_mask": Acts(MASK), "packed_custom_mask": Acts(PACKED),
    **{f"{call}.custom_mask": Acts(torch.arange(45) % 2 == 0) for call in (
        "single_prefill_with_kv_cache", "single_prefill_with_kv_cache_return_lse")},
    **{f"{call}.packed_custom_mask": Acts(torch.full((6,), 0x55, dtype=torch.uint8)) for call in (
        "single_prefill_with_kv_cache", "single_prefill_with_kv_cache_return_lse")},
    **dict.fromkeys(("q_scale", "k_scale", "v_scale", "scale_q", "scale_k", "scale_v", "quant_scale_q", "quant_scale_kv",
                     "scale"),
                    Acts(2.0)),
    "return_lse": Acts(True), "single_prefill_with_kv_cache_return_lse.return_lse": Acts(False),
    "lse_base": Acts("ln", return_lse=True), "lse_layout": Acts("HN", return_lse=True),
    "sinks": Acts(torch.ones(HEADS)), "sink": Acts(more),
    "BatchAttentionWithAttentionSinkWrapper.run.sinks": Acts(torch.zeros(HEADS)),
    "kv_layout": Acts("HND"), "bitorder": Acts("little"), "eps": Acts(1.0), "rotary_dim": Acts(32), "interleave": Acts(True),
    "is_neox": Acts(False), "low_freq_factor": Acts(2), "high_freq_factor": Acts(8), "old_context_len": Acts(1),
    "quantize_dtype": Acts(torch.float8_e5m2),
    "BatchAttentionWithAttentionSinkWrapper.__init__.kv_data_type": Acts("float32"), "o_dtype": Acts(torch.float32),
    "o_data_type": Acts("float32"),
    "q_data_type": Acts(torch.bfloat16), "kv_data_type": Acts(torch.bfloat16), "data_type": Acts("bfloat16"),
    "plan_info": Acts(flashinfer.fmha_varlen_plan(None, QUERIES, KEYS, 2, False)),
    "global_override_indptr_cpu": Acts(INDPTR.flip(0)), "device": Acts("meta"),
    # how requests are split
    "fixed_split_size": Acts(1), "disable_split_kv": Acts(True, fixed_split_size=1),
    # buffers
    **dict.fromkeys(("float_workspace_buffer", "workspace_buffer"), Acts(NOTHING, **SPLIT)),
    **{f"{call}.float_workspace_buffer": Acts(ELSEWHERE) for call in (
        "BatchAttention.reset_workspace_buffer", "MultiLevelCascadeAttentionWrapper",
        "MultiLevelCascadeAttentionWrapper.reset_workspace_buffer",
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper",
        "BatchDecodeWithSharedPrefixPagedKVCacheWrapper.reset_workspace_buffer",
        "BatchPrefillWithSharedPrefixPagedKVCacheWrapper",
        "BatchPrefillWithSharedPrefixPagedKVCacheWrapper.reset_workspace_buffer")},
    "int_workspace_buffer": Acts(NOTHING), "int_workspace_buffers": Acts([NOTHING] * 2), "use_cuda_graph": Acts(True),
    **{name: written(len(buffer), **BUFFERS) for name, buffer in BUFFERS.items() if name != "use_cuda_graph"},
    **{name: written(len(buffer), **PREFILL_BUFFERS) for name, buffer in PREFILL_BUFFERS.items() if name != "use_cuda_graph"},
    **{name: written(len(buffer[0]), count=2, **LEVEL_BUFFERS)
       for name, buffer in LEVEL_BUFFERS.items() if name != "use_cuda_graph"},
    "indptr_buffer": written(3), "indices_buffer": written(8), "last_page_len_buffer": written(2),
    "custom_mask_buf": written(64, dtype=torch.uint8, **PREFILL_BUFFERS, **MASK_BUFFERS),
    "mask_indptr_buf": written(3, **PREFILL_BUFFERS, **MASK_BUFFERS),
    **{f"BatchPrefillWithRaggedKVCacheWrapper.{name}": written(n, dtype=dtype, **RAGGED_BUFFERS, **MASK_BUFFERS)
       for name, n, dtype in (("qo_indptr_buf", 3, torch.int32), ("kv_indptr_buf", 3, torch.int32),
                              ("custom_mask_buf", 64, torch.uint8), ("mask_indptr_buf", 3, torch.int32))},
    **attention_lines(), **product_lines(), **expert_lines(), **other_lines(), **fp4_lines(),
}


def line_of(call, parameter):
    owner, _, method = call.rpartition(".")
    keys = f"{call}.{parameter}", f"{owner}.{parameter}", f"{method}.{parameter}", parameter
    return next((LINES[key] for key in keys if key in LINES), None)


ALL = [(f"{name}.{parameter}", call, parameter) for name, call, parameters in public_calls() for parameter in parameters]


def test_every_parameter_has_a_line():
    missing = [name for name, call, parameter in ALL if line_of(name.rpartition(".")[0], parameter) is None]
    assert not missing, missing
    used = {id(line_of(name.rpartition(".")[0], parameter)) for name, _, parameter in ALL}
    assert not [key for key, line in LINES.items() if id(line) not in used]


@pytest.mark.parametrize("name, call, parameter", ALL, ids=[name for name, *_ in ALL])
def test_line(name, call, parameter):
    line_of(name.rpartition(".")[0], parameter).check(call, parameter)
