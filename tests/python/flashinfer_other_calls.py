# SPDX-License-Identifier: Apache-2.0
"""Calls of quern.compat.flashinfer's fused norms, choices of the largest, scores of an indexer and decodes by tables of pages, and a line
for each of their parameters."""

import torch
from flashinfer_calls import DIM, FUNCTIONS, HEADS, KV_HEADS, LENGTHS, distribution
from flashinfer_tools import randn
from table_tools import Acts, Hint, Refused, Repeats, Unused, Written

BF16, FP8, F32 = torch.bfloat16, torch.float8_e4m3fn, torch.float32
ROWS, WIDE = 3, 256


def f32(*shape, seed=0):
    return randn(*shape, dtype=F32, seed=seed)


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


def block_quant():
    return {"out": torch.zeros(ROWS, WIDE).to(FP8), "block_scale": torch.zeros(2, 4), "normed_out": torch.zeros(ROWS, WIDE, dtype=BF16),
            "input": randn(ROWS, WIDE, dtype=BF16), "residual": randn(ROWS, WIDE, dtype=BF16, seed=1), "weight": randn(WIDE, dtype=BF16)}


def dit(*names, **more):
    return lambda: {name: randn(2, ROWS, 64, dtype=BF16, seed=i) for i, name in enumerate(names)} | {k: make() for k, make in more.items()}


def video():
    return {"qkv": randn(2, 6, 6 * 32, dtype=BF16), "q_weight": randn(64, dtype=BF16), "k_weight": randn(64, dtype=BF16, seed=1), "ppf": 1,
            "pph": 2, "ppw": 3, "num_frame_channels": 12, "num_height_channels": 10, "num_width_channels": 10, "num_heads_q": 2,
            "num_heads_k": 2, "num_heads_v": 2, "head_dim": 32}


def page_table():
    return {"input": f32(4, 30), "src_page_table": torch.randperm(120, generator=torch.Generator().manual_seed(1)).int().reshape(4, 30),
            "lengths": ints(30, 8, 3, 0), "k": 5}


def scores():
    cache = torch.randint(0, 100, (6, 16, 1, 68), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    cache.flatten(1)[:, 16 * 64:] = torch.ones(6, 16).view(torch.uint8)
    return {"q": f32(2, 2, 4, 64).to(FP8), "kv_fused": cache, "weights": f32(4, 4), "block_tables": ints(0, 1, 2, 3, 4, 5).reshape(2, 3),
            "seq_lens": ints(40, 20), "max_seq_len": 40}


def cudnn():
    return {"q": randn(2, HEADS, DIM), "k_cache": randn(6, KV_HEADS, 8, DIM), "v_cache": randn(6, KV_HEADS, 8, DIM, seed=1), "scale": 0.1,
            "workspace_buffer": torch.zeros(9, dtype=torch.uint8), "max_sequence_kv": 20, "actual_seq_lens_kv": torch.tensor(LENGTHS),
            "block_tables": ints(0, 2, 4, 5, 3, 1).reshape(2, 3)}


def xqa():
    return {"q": randn(2, 1, HEADS, DIM), "k_cache": randn(6, 8, KV_HEADS, DIM), "v_cache": randn(6, 8, KV_HEADS, DIM, seed=1),
            "page_table": ints(0, 2, 4, 5, 3, 1).reshape(2, 3), "seq_lens": torch.tensor(LENGTHS)[:, None], "output": torch.zeros(2, 1, HEADS, DIM).half(),
            "workspace_buffer": torch.zeros(9, dtype=torch.uint8), "semaphores": torch.zeros(9, dtype=torch.uint8),
            "num_kv_heads": KV_HEADS, "page_size": 8}


FUNCTIONS |= {
    "fused_add_rmsnorm_fp8_block_quant": (block_quant, ("out", "block_scale", "normed_out", "residual")),
    "fused_rmsnorm_silu": (lambda: {"input": randn(ROWS, 64, dtype=BF16), "weight": randn(64, dtype=BF16)}, ()),
    "fused_dit_gate_residual_layernorm_scale_shift": (dit("input", "residual", "gate", "scale", "shift"), ()),
    "fused_dit_gate_residual_layernorm_gamma_beta": (dit("input", "residual", "gate", gamma=lambda: f32(64), beta=lambda: f32(64, seed=1)), ()),
    "fused_dit_residual_layernorm_scale_shift": (dit("input", "scale", "shift"), ()),
    "fused_qk_rmsnorm_rope": (video, ()),
    "top_k": (lambda: {"input": (4 * f32(4, 30)).round(), "k": 5}, ()), "top_k_page_table_transform": (page_table, ()),
    "top_k_ragged_transform": (lambda: {"input": f32(4, 30), "offsets": ints(0, 30, 60, 90), "lengths": ints(30, 8, 3, 0), "k": 5}, ()),
    "top_k_varlen": (lambda: {"logits": f32(4, 30), "seq_lens": ints(30, 8), "top_k": 5, "next_n": 2}, ()),
    "fp8_paged_mqa_logits": (scores, ()), "compute_paged_mqa_logits_schedule": (lambda: {"seq_lens": ints(40, 20)}, ()),
    "precompile_paged_mqa_logits": (dict, ()), "min_block_table_width": (lambda: {"seq_len": 40, "block_size": 16}, ()),
    "padded_seq_len": (lambda: {"max_seq_len": 40}, ()), "next_positive_power_of_2": (lambda: {"x": 5}, ()),
    "cake_top_k_top_p_sampling_from_probs": (lambda: {"probs": distribution(64, 40), "top_k": 20, "top_p": 0.9, "philox_seed": 3,
                                                      "philox_offset": 5}, ()),
    "cudnn_batch_decode_with_kv_cache": (cudnn, ()), "xqa": (xqa, ("output",)),
    "sm110_gqa_decode": (lambda: {"q": randn(2, HEADS, DIM), "kv": randn(2, 2, KV_HEADS, 30, DIM), "sequence_lengths": ints(*LENGTHS)}, ()),
}


# ---- what each parameter does

def of(owner, **lines):
    return {f"{owner}.{name}": line for name, line in lines.items()}


def doubled(t):
    return 2 * t


def more(t):
    return t + 1


def flipped(t):
    return t.flip(0)


def other_lines():
    return {**_norm_lines(), **_video_lines(), **_top_k_lines(), **_score_lines(), **_decode_lines()}


def _norm_lines():
    refused = {"use_nvfp4": Refused(True), "use_mxfp8": Refused(True), "global_scaling_factor": Refused(torch.ones(1)),
               "sf_out": Refused(torch.ones(1))}
    results = dict.fromkeys(("residual_out", "norm_out"), Written(2, ROWS, 64, dtype=BF16))
    biases = dict.fromkeys(("gate_bias", "scale_bias", "shift_bias"), Acts(torch.full((64,), 0.5)))
    tensors = dict.fromkeys(("input", "residual", "gate", "scale", "shift"), Acts(flipped))
    numbers = {"epsilon": Acts(1.0), "input_global_scaling_factor": Acts(2.0)}
    every = {**refused, **results, **biases, **tensors, **numbers}
    takes = {"fused_dit_gate_residual_layernorm_scale_shift": set(),
             "fused_dit_gate_residual_layernorm_gamma_beta": {"scale", "shift", "scale_bias", "shift_bias"},
             "fused_dit_residual_layernorm_scale_shift": {"gate", "gate_bias", "residual"}}
    lines = {f"{call}.{name}": line for call, without in takes.items() for name, line in every.items() if name not in without}
    lines["fused_dit_gate_residual_layernorm_gamma_beta.gamma"] = Acts(flipped)
    return {**lines, "fused_dit_residual_layernorm_scale_shift.residual": Acts(torch.ones(2, ROWS, 64, dtype=BF16)),
            **of("fused_add_rmsnorm_fp8_block_quant", block_scale=Written(2, 4, dtype=F32), normed_out=Written(ROWS, WIDE, dtype=BF16),
                 out=Written(ROWS, WIDE, dtype=FP8)),
            **of("fused_rmsnorm_silu", out=Written(ROWS, 64, dtype=FP8), block_scale=Refused(torch.ones(1)))}


def _video_lines():
    sizes = {"ppf": Acts(2), "pph": Acts(1), "ppw": Acts(2), "num_frame_channels": Acts(10), "num_height_channels": Acts(12),
             "num_width_channels": Acts(12), "num_heads_q": Acts(1), "num_heads_k": Acts(1), "num_heads_v": Acts(1), "head_dim": Acts(16)}
    fp8 = {"output_fp8": True}
    return of("fused_qk_rmsnorm_rope", **sizes, qkv=Acts(flipped), q_weight=Acts(doubled), k_weight=Acts(doubled), base=Acts(100.0),
              interleave=Acts(False), factor=Refused(2.0), low=Refused(1.0), high=Refused(1.0), attention_factor=Refused(2.0),
              is_qk_norm=Acts(False), output_fp8=Acts(True), output_quant_scale=Acts(2.0, **fp8), v_quant_scale=Acts(2.0, **fp8),
              **dict.fromkeys(("q_out", "k_out", "v_out"), Written(2, 6, 2, 32, dtype=BF16)))


def _top_k_lines():
    hints = {"deterministic": Hint(True, False), "dsa_graph_safe": Hint(True, False)}
    window = {"input": Acts(lambda t: t.flip(1)), "lengths": Acts(flipped), "k": Acts(4), "row_starts": Acts(ints(1, 2, 3, 4)),
              "tie_break": Acts(2, input=torch.zeros(4, 30))}
    return {
        **of("top_k", **hints, input=Acts(flipped), k=Acts(4), sorted=Hint(True, False), tie_break=Acts(2)),
        **of("top_k_page_table_transform", **hints, **window, src_page_table=Acts(flipped), row_to_batch=Acts(ints(3, 2, 1, 0)),
             page_table_row_starts=Acts(ints(0, 1, 2, 3), row_starts=ints(1, 2, 3, 4)), page_size=Acts(2), out=Written(4, 5, dtype=torch.int32),
             out_raw_indices=Written(4, 5, dtype=torch.int32)),
        **of("top_k_ragged_transform", **hints, **window, offsets=Acts(flipped)),
        **of("top_k_varlen", logits=Acts(lambda t: t.flip(1)), seq_lens=Acts(flipped), top_k=Acts(4), pre_idx=Unused(ints(0, 1)), compress_ratio=Acts(4),
             next_n=Acts(1), return_values=Acts(True), out_indices=Written(4, 5, dtype=torch.int32),
             out_values=Written(4, 5, dtype=F32, return_values=True),
             backend=Hint("radix", "gvr", "gvr_2", "radix_cutlass", "radix_filter", "auto"), load_balance=Hint(True, False),
             workspace=Unused({})),
        **of("cake_top_k_top_p_sampling_from_probs", philox_seed=Acts(4), philox_offset=Acts(6), top_k_max=Repeats(20, 19),
             out=Written(64, dtype=torch.int32), renorm_out=Refused(torch.ones(1)), workspace=Refused((1, 2, 3)),
             generator=Acts(torch.Generator().manual_seed(7), philox_seed=None, philox_offset=None)),
    }


def _score_lines():
    kinds = Unused(torch.float16, wrong=torch.int8)
    return {
        **of("fp8_paged_mqa_logits", q=Acts(flipped), kv_fused=Acts(flipped), weights=Acts(doubled), block_tables=Acts(flipped),
             seq_lens=Acts(lambda t: t[:1]), max_seq_len=Acts(39), output_dtype=Acts(BF16), epi_dtype=kinds, acc_dtype=kinds,
             schedule_meta=Unused(ints(0, 0, 0, 0).reshape(2, 2)), out=Written(4, 256, dtype=F32)),
        **of("compute_paged_mqa_logits_schedule", seq_lens=Acts(lambda t: t[None]), device=Unused("cpu", wrong="nowhere"), next_n=Hint(1, 3),
             variant=Hint("fp8", "fp4"), use_gpu_kernel=Hint(True, False), out=Written(2, 2, dtype=torch.int32)),
        **of("precompile_paged_mqa_logits", device=Unused("cpu", wrong="nowhere"), variants=Unused(("fp8",), wrong=("fp2",)),
             output_dtypes=Unused((BF16,), wrong=(1,)), batch_sizes=Unused((1, 2), wrong=(0,))),
        **of("min_block_table_width", seq_len=Acts(50), block_size=Acts(8)), "padded_seq_len.max_seq_len": Acts(300),
        "next_positive_power_of_2.x": Acts(9),
    }


def _decode_lines():
    table = Acts(lambda t: t.flip(1))
    caches = {"k_cache": Acts(flipped), "v_cache": Acts(flipped)}
    nothing = Unused(torch.zeros(1, dtype=torch.uint8))
    offsets = dict.fromkeys((f"batch_offsets_{x}" for x in "qokv"), Refused(ints(0, 1)))
    return {
        **of("cudnn_batch_decode_with_kv_cache", **caches, **offsets, scale=Acts(0.3), workspace_buffer=nothing, max_sequence_kv=Repeats(30, 19),
             actual_seq_lens_kv=Acts(flipped), block_tables=table, is_cuda_graph_compatible=Refused(True), out=Written(2, HEADS, DIM),
             lse=Written(2, HEADS, dtype=F32), q_len_per_req=Acts(2), window_left=Acts(1)),
        **of("sm110_gqa_decode", kv=Acts(flipped), sequence_lengths=Acts(flipped), out=Written(2, HEADS, DIM)),
        **of("xqa", **caches, page_table=table, seq_lens=Acts(flipped), output=Written(2, 1, HEADS, DIM), workspace_buffer=nothing,
             semaphores=nothing, num_kv_heads=Acts(1), page_size=Acts(4), sinks=Acts(torch.ones(KV_HEADS, HEADS // KV_HEADS)),
             kv_scale=Acts(2.0), sliding_win_size=Acts(3), sm_count=Hint(None, 8), rcp_out_scale=Refused(2.0), q_seq_len=Refused(2),
             mask=Refused(torch.ones(1)), q_cu_seq_lens=Refused(ints(0, 1)), k_sf_cache=Refused(torch.ones(1)),
             v_sf_cache=Refused(torch.ones(1))),
    }
