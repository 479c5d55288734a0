# SPDX-License-Identifier: Apache-2.0
"""For each public function of quern.compat.deep_gemm a call that works, whose arguments can be changed one by one."""

import inspect

import torch
from deep_gemm_tools import BF16, F8, ints, quantised, rand, randn, turn
from table_tools import Function

import quern.compat.deep_gemm as deep_gemm

K, N, BLOCK = 300, 140, (128, 128)
UNTABLED = "bench", "bench_kineto"  # whose results are times; they have a test of their own


def nines(*shape, dtype=BF16):
    return torch.full(shape, 9.0, dtype=dtype)


def dense(layout, is_fp8, adds=True):
    a, b = (quantised(5, K), quantised(N, K, gran=BLOCK)) if is_fp8 else (randn(5, K, dtype=BF16), randn(N, K, dtype=BF16))
    return lambda: {"a": turn(a) if layout[0] == "t" else a, "b": turn(b) if layout[1] == "n" else b, "d": nines(5, N),
                    **({"c": nines(5, N)} if adds else {})}


def rows_and_stack(is_fp8, *m):
    return (quantised(*m, K), quantised(2, N, K, gran=BLOCK)) if is_fp8 else (randn(*m, K, dtype=BF16), randn(2, N, K, dtype=BF16))


def contiguous(layout, is_fp8):
    def make():
        a, b = rows_and_stack(is_fp8, 160)
        return {"a": a, "b": turn(b) if layout == "nn" else b, "d": nines(160, N), "grouped_layout": ints(100, 150),
                "use_psum_layout": True}

    return make


def masked(is_fp8):
    def make():
        a, b = rows_and_stack(is_fp8, 2, 4)
        return {"a": a, "b": b, "d": nines(2, 4, N), "masked_m": ints(1, 3), "expected_m": 2}

    return make


def k_grouped(is_fp8, flat=False):
    def make():
        a, b = (randn(384, mn, dtype=F8 if is_fp8 else BF16) for mn in (5, 7))
        scales = [rand(3, mn) + 0.5 for mn in (5, 7)]
        if flat:
            a, b, scales = a.flatten(), b.flatten(), [s.T for s in scales]
        sides = zip((a, b), scales, strict=True) if is_fp8 else (a, b)
        a, b = (tuple(side) if is_fp8 else side for side in sides)
        return {"a": a, "b": b, "d": nines(2, 5, 7), "ks_cpu": [128, 256], "grouped_layout": ints(128, 256), "c": nines(2, 5, 7)}

    return make


def first_release(grouping=None):
    names = {"a": "lhs", "b": "rhs", "d": "out", "masked_m": "masked_m", "expected_m": "expected_m"}
    calls = {None: dense("nt", True, False), "masked": masked(True)}

    def make():
        if grouping == "contiguous":
            a, b = rows_and_stack(True, 5)
            return {"lhs": a, "rhs": b, "out": nines(5, N), "m_indices": ints(1, 1, 1, 1, 1)}
        return {names[name]: value for name, value in calls[grouping]().items()}

    return make


def mqa(is_paired):
    q = randn(6, 4, 64).to(F8)
    return lambda: {"q": (q, None) if is_paired else q, "kv": (randn(70, 64).to(F8), rand(70) + 0.5), "weights": randn(6, 4),
                    "cu_seq_len_k_start": ints(0, 1, 5, 60, 0, 3), "cu_seq_len_k_end": ints(70, 3, 5, 70, 1, 40)}


def paged(is_paired):
    q, scale = randn(2, 1, 4, 64).to(F8), rand(3, 64) + 0.5
    cache = torch.cat([randn(3, 64 * 64).to(F8).view(torch.uint8), scale.view(torch.uint8)], 1).view(3, 64, 1, 68)
    return lambda: {"q": (q, None) if is_paired else q, "kv_cache": cache, "weights": randn(2, 4), "context_lens": ints(70, 90).view(2, 1),
                    "block_table": ints(2, 1, 0, 2).view(2, 2), "schedule_meta": torch.zeros(9, 2, dtype=torch.int32),
                    "max_context_len": 100, "clean_logits": True}


def gathered(operand):
    return lambda: {"a": randn(128, 5, dtype=BF16), "b": randn(128, 7, dtype=BF16), "d": nines(2, 5, 7),
                    "handle": (torch.arange(127, -1, -1, dtype=torch.int32), ints(0, 30), ints(30, 128)), "acc": False}


def legacy_rows(layout, is_fused):
    def make():
        a, b = rows_and_stack(False, 128)
        index = ints(*[1] * 128)
        rows = {"mappings": (index, torch.arange(127, -1, -1, dtype=torch.int32))} if is_fused else {"m_indices": index}
        return {"a": a, "b": turn(b) if layout == "nn" else b, "d": nines(128, N), **rows}

    return make


def cast(rows=4, columns=512):
    return lambda: {"x": randn(rows, columns), "use_ue8m0": False}


def setter(name, value=None):
    """Returns a call of set_<name> that gives what get_<name> says afterwards."""
    def call(**arguments):
        getattr(deep_gemm, f"set_{name}")(**arguments)
        return getattr(deep_gemm, f"get_{name}")() if hasattr(deep_gemm, f"get_{name}") else None

    parameter = "new_enable_pdl" if name == "pdl" else f"new_{name}" if name in ("num_sms", "tc_util") else "new_value"
    return call, lambda: {parameter: value}, ()


D = ("d",)
CALLS = {
    **{f"{kind}_gemm_{layout}": (dense(layout, kind == "fp8_fp4"), D)
       for kind in ("fp8_fp4", "bf16", "cublaslt") for layout in ("nt", "nn", "tn", "tt")},
    "fp8_gemm_nt_skip_head_mid": (lambda: {"a": quantised(5, K), "b": quantised(100, K), "d": nines(5, 114), "head_splits": (20, 7, 30),
                                           "recipe": (1, 1, 128)}, D),
    **{f"m_grouped_{kind}_gemm_{layout}_contiguous": (contiguous(layout, kind != "bf16"), D)
       for kind in ("fp8_fp4", "bf16") for layout in ("nt", "nn")},
    **{f"m_grouped_{kind}_gemm_nt_masked": (masked(kind != "bf16"), D) for kind in ("fp8_fp4", "bf16")},
    "gemm_fp8_fp8_bf16_nt": (first_release(), ("out",)),
    **{f"m_grouped_gemm_fp8_fp8_bf16_nt_{grouping}": (first_release(grouping), ("out",)) for grouping in ("contiguous", "masked")},
    "k_grouped_fp8_gemm_tn_contiguous": (k_grouped(True), D), "k_grouped_fp8_gemm_nt_contiguous": (k_grouped(True, True), D),
    "k_grouped_bf16_gemm_tn_contiguous": (k_grouped(False), D),
    "einsum": (lambda: {"expr": "bmk,bnk->mn", "a": randn(6, 5, 40, dtype=BF16), "b": randn(6, 7, 40, dtype=BF16), "d": nines(5, 7),
                        "c": nines(5, 7)}, D),
    "fp8_einsum": (lambda: {"expr": "bhr,hdr->bhd", "a": quantised(5, 3, K), "b": quantised(3, 140, K, gran=BLOCK),
                            "d": nines(5, 3, 140), "c": nines(5, 3, 140)}, D),
    "fp8_fp4_mqa_logits": (mqa(True), ()), "fp8_mqa_logits": (mqa(False), ()),
    "fp8_fp4_paged_mqa_logits": (paged(True), ()), "fp8_paged_mqa_logits": (paged(False), ()),
    "get_paged_mqa_logits_metadata": (lambda: {"context_lens": ints(70, 90).view(2, 1), "block_kv": 64, "num_sms": 8}, ()),
    "tf32_hc_prenorm_gemm": (lambda: {"a": randn(5, K, dtype=BF16), "b": randn(24, K), "d": nines(5, 24, dtype=torch.float32),
                                      "sqr_sum": nines(5, dtype=torch.float32)}, ("d", "sqr_sum")),
    **{f"{fused}m_grouped_bf16_gemm_{layout}_contiguous_tl": (legacy_rows(layout, fused), D)
       for fused in ("", "a_fused_") for layout in ("nt", "nn")},
    **{f"{operand}_fused_k_grouped_bf16_gemm_tn_contiguous_tl": (gathered(operand), D) for operand in "ab"},
    # layouts of scales, and casts
    "transform_sf_into_required_layout": (lambda: {"sf": rand(5, 2), "mn": 5, "k": 256, "recipe": (1, 128, 128),
                                                   "is_sfa": True}, ()),
    "get_tma_aligned_size": (lambda: {"x": 5, "element_size": 4}, ()),
    "get_mn_major_tma_aligned_tensor": (lambda: {"sf": rand(5, 2)}, ()),
    "get_col_major_tma_aligned_tensor": (lambda: {"x": rand(5, 2)}, ()),
    "get_mn_major_tma_aligned_packed_ue8m0_tensor": (lambda: {"sf": torch.ones(5, 4)}, ()),
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor": (
        lambda: {"sf": torch.ones(3, 2), "grouped_layout": ints(100, 300), "ks_cpu": None, "gran_k": 128, "k_alignment": 128,
                 "use_psum_layout": True}, ()),
    "get_theoretical_mk_alignment_for_contiguous_layout": (dict, ()),
    "per_token_cast_to_fp8": (cast(), ()), "per_channel_cast_to_fp8": (cast(128, 8), ()), "per_block_cast_to_fp8": (cast(), ()),
    "per_custom_dims_cast_to_fp8": (lambda: {"x": randn(4, 8), "dims": (0,), "use_ue8m0": False}, ()),
    "per_token_cast_to_fp4": (cast(), ()), "transpose_packed_fp4": (lambda: {"a": torch.arange(8, dtype=torch.int8).view(2, 4)}, ()),
    "cast_back_from_fp4": (lambda: {"packed": torch.arange(128, dtype=torch.int8).view(1, 128), "sf": rand(1, 4), "gran_k": 64}, ()),
    "ceil_to_ue8m0": (lambda: {"x": rand(3)}, ()), "pack_ue8m0_to_int": (lambda: {"x": torch.ones(2, 4)}, ()),
    "unpack_ue8m0_from_int": (lambda: {"packed_sf": ints(127, 128).view(1, 2)}, ()),
    "align": (lambda: {"x": 5, "y": 4}, ()), "ceil_div": (lambda: {"x": 5, "y": 4}, ()),
    "calc_diff": (lambda: {"x": torch.ones(3), "y": torch.ones(3) + 1}, ()),
}
SETTERS = {"set_num_sms": setter("num_sms", 1), "set_tc_util": setter("tc_util", 50), "set_pdl": setter("pdl", False),
           "set_mk_alignment_for_contiguous_layout": setter("mk_alignment_for_contiguous_layout", 128),
           "set_ignore_compile_dims": setter("ignore_compile_dims", False),
           "set_block_size_multiple_of": setter("block_size_multiple_of", 1)}


def is_absent(function):
    return not inspect.isfunction(function) or list(inspect.signature(function).parameters) == ["_arguments", "_options"]


def public_calls():
    """Returns (name, Function, parameters) of every public function that computes or sets, under its first name."""
    found = {}
    for module in (deep_gemm, deep_gemm.legacy):
        for name in getattr(module, "__all__", [n for n in vars(module) if n.endswith("_tl")]):
            function = getattr(module, name)
            if not is_absent(function) and inspect.signature(function).parameters and function.__name__ not in UNTABLED:
                found[function.__name__] = function
    calls = {name: (found[name], *CALLS[name]) if name in CALLS else SETTERS[name] for name in found}
    return [(name, Function(*calls[name]), list(inspect.signature(function).parameters)) for name, function in found.items()]
