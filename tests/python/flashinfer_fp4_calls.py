# SPDX-License-Identifier: Apache-2.0
"""Calls of quern.compat.flashinfer's quantisation to FP4 and its products of FP4, and a line for each of their parameters."""

import torch
from flashinfer_calls import FUNCTIONS
from flashinfer_tools import randn
from table_tools import Acts, Hint, Refused, Unused, Written

import quern.compat.flashinfer as flashinfer

BF16, FP8, U8 = torch.bfloat16, torch.float8_e4m3fn, torch.uint8
M, N, K, GROUPS = 5, 7, 64, 3
SEARCH = flashinfer.NVFP44Over6Config()


def bf16(*shape):
    return randn(*shape, dtype=BF16)


def mm_fp4():
    (a, a_descale), (b, b_descale) = (flashinfer.nvfp4_quantize(bf16(n, K), 1.0) for n in (M, N))
    return {"a": a, "b": b.T, "a_descale": a_descale, "b_descale": b_descale}


def grouped():
    a, a_descale = flashinfer.nvfp4_quantize(bf16(M, K), 1.0)
    b, b_descale = flashinfer.nvfp4_batched_quantize(bf16(GROUPS, N, K), 1.0)
    return {"a": a, "b": b, "a_descale": a_descale, "b_descale": b_descale, "m_indptr": torch.tensor([0, 2, 2, M], dtype=torch.int32)}


def back(quantize, *names):
    return lambda: dict(zip(names, quantize(bf16(M, K)), strict=True))


def caches():
    codes, scales = zip(*(flashinfer.nvfp4_kv_quantize(bf16(6 * 4 * 2, 64), 1.0) for _ in range(2)), strict=True)
    return {"paged_kv_cache": [t.reshape(6, 4, 2, 32) for t in codes], "kv_cache_sf": [t.reshape(6, 4, 2, 4) for t in scales],
            "block_tables": torch.tensor([[0, 3, 2], [5, 1, 4]], dtype=torch.int32), "seq_lens": torch.tensor([9, 4], dtype=torch.int32),
            "k_scale": torch.ones(1), "v_scale": torch.ones(1), "output_k": torch.zeros(2, 10, 2, 64, dtype=BF16),
            "output_v": torch.zeros(2, 10, 2, 64, dtype=BF16)}


FUNCTIONS |= {
    "fp4_quantize": (lambda: {"input": bf16(M, K)}, ()), "nvfp4_quantize": (lambda: {"a": bf16(32, K), "a_global_sf": torch.ones(1)}, ()),
    "nvfp4_batched_quantize": (lambda: {"a": bf16(2, M, K), "a_global_sf": torch.ones(1)}, ()),
    "silu_and_mul_nvfp4_quantize": (lambda: {"input": bf16(M, 2 * K), "global_scale": torch.ones(1)}, ()),
    "mxfp4_quantize": (lambda: {"a": bf16(M, K)}, ()),
    "e2m1_and_ufp8sf_scale_to_float": (back(flashinfer.fp4_quantize, "e2m1_tensor", "ufp8_scale_tensor"), ()),
    "mxfp4_dequantize": (back(flashinfer.mxfp4_quantize, "a_fp4", "a_sf"), ()),
    "mxfp4_dequantize_host": (back(lambda x: flashinfer.mxfp4_quantize(x, sfLayout=2), "weight", "scale"), ()),
    "nvfp4_kv_quantize": (lambda: {"input": bf16(M, K), "global_scale": torch.ones(1)}, ()),
    "nvfp4_kv_dequantize": (lambda: {**back(lambda x: flashinfer.nvfp4_kv_quantize(x, 1.0), "fp4_data", "block_scales")(),
                                     "global_scale": torch.ones(1)}, ()),
    "nvfp4_kv_dequantize_paged": (caches, ("output_k", "output_v")),
    "block_scale_interleave": (lambda: {"unswizzled_sf": torch.arange(20, dtype=U8).reshape(5, 4)}, ()),
    "shuffle_matrix_a": (lambda: {"input_tensor": torch.arange(64.0).reshape(32, 2), "epilogue_tile_m": 128}, ()),
    "shuffle_matrix_sf_a": (lambda: {"input_tensor": torch.arange(64, dtype=U8).reshape(32, 2), "epilogue_tile_m": 128}, ()),
    "make_nvfp4_global_scale": (lambda: {"input_tensor": bf16(M, K), "per_token_activation": False}, ()),
    "resolve_nvfp4_4over6": (dict, ()), "mm_fp4": (mm_fp4, ()), "grouped_mm_fp4": (grouped, ()),
}


# ---- what each parameter does

def of(owner, **lines):
    return {f"{owner}.{name}": line for name, line in lines.items()}


def flipped(t):
    return t.flip(0)


def doubled(t):
    return 2 * t


def fp4_lines():
    search = {"nvfp4_4over6": Refused(SEARCH)}
    backend = {"backend": Hint("cuda", "cute-dsl")}
    layout = {"is_sf_swizzled_layout": Acts(False), "is_sf_8x4_layout": Acts(True)}
    return {
        **of("fp4_quantize", **search, **backend, **layout, input=Acts(flipped), global_scale=Acts(torch.tensor([3.0])), sf_vec_size=Acts(32),
             sf_use_ue8m0=Acts(True), is_global_scale_inversed=Acts(True, global_scale=3.0)),
        **of("nvfp4_quantize", **search, **backend, a=Acts(flipped), a_global_sf=Acts(torch.tensor([3.0])), sfLayout=Acts(2), do_shuffle=Acts(True),
             sf_vec_size=Refused(32), per_token_activation=Refused(True), expanded_idx_to_permuted_idx=Refused(torch.ones(1)),
             out_scale=Refused(torch.ones(1))),
        **of("nvfp4_batched_quantize", **search, a=Acts(flipped), a_global_sf=Acts(torch.tensor([3.0])), sf_vec_size=Refused(32)),
        **of("silu_and_mul_nvfp4_quantize", **search, **layout, input=Acts(flipped), global_scale=Acts(torch.tensor([3.0])),
             sf_vec_size=Refused(32)),
        **of("mxfp4_quantize", **backend, a=Acts(flipped), sfLayout=Acts(2)),
        **of("e2m1_and_ufp8sf_scale_to_float", e2m1_tensor=Acts(flipped), ufp8_scale_tensor=Acts(flipped), global_scale_tensor=Acts(2.0),
             sf_vec_size=Refused(32), ufp8_type=Unused(1, wrong=2), is_sf_swizzled_layout=Acts(False), is_sf_8x4_layout=Acts(True)),
        **of("mxfp4_dequantize", a_fp4=Acts(flipped), a_sf=Acts(flipped), sfLayout=Acts(2)),
        **of("mxfp4_dequantize_host", weight=Acts(flipped), scale=Acts(lambda t: t + 1), group_size=Refused(16)),
        **of("nvfp4_kv_quantize", input=Acts(flipped), global_scale=Acts(torch.tensor([3.0]))),
        **of("nvfp4_kv_dequantize", fp4_data=Acts(flipped), block_scales=Acts(flipped), global_scale=Acts(doubled),
             output_dtype=Acts(torch.float16)),
        **_cache_lines(), **_row_lines(), **_product_lines(),
    }


def _cache_lines():
    def turned(caches):
        return [t.flip(0) for t in caches]

    written = Written(2, 10, 2, 64, dtype=BF16)
    return of("nvfp4_kv_dequantize_paged", paged_kv_cache=Acts(turned), kv_cache_sf=Acts(turned), block_tables=Acts(flipped), seq_lens=Acts(flipped),
              k_scale=Acts(doubled), v_scale=Acts(doubled), output_k=written, output_v=written)


def _row_lines():
    return {
        "block_scale_interleave.unswizzled_sf": Acts(flipped),
        **of("shuffle_matrix_a", input_tensor=Acts(flipped), epilogue_tile_m=Acts(64)),
        **of("shuffle_matrix_sf_a", input_tensor=Acts(flipped), epilogue_tile_m=Acts(64), num_elts_per_sf=Unused(16, 32, wrong=8)),
        **of("make_nvfp4_global_scale", input_tensor=Acts(doubled), per_token_activation=Acts(True), global_scale=Acts(3.0),
             nvfp4_4over6_config=Acts(flashinfer.NVFP44Over6Config(256))),
        "resolve_nvfp4_4over6.setting": Unused(None),
    }


def _product_lines():
    said = {"out_dtype": Acts(torch.float16), "out": Written(M, N, dtype=BF16), "alpha": Acts(0.5), "block_size": Acts(32)}
    operands = dict.fromkeys(("a", "b", "a_descale", "b_descale"), Acts(flipped))
    return {
        **of("mm_fp4", **said, **operands, use_8x4_sf_layout=Acts(True), use_nvfp4=Acts(False),
             backend=Hint("cudnn", "trtllm", "cutlass", "cute-dsl", "cutedsl_low_latency", "b12x", "cake", "auto")),
        **of("grouped_mm_fp4", **said, **operands, backend=Hint("cudnn")),
    }
