# SPDX-License-Identifier: Apache-2.0
"""Calls of quern.compat.flashinfer's matrix products and its quantisation to MXFP8, and a line for each of their parameters."""

import torch
from flashinfer_calls import CLASSES, FUNCTIONS, MODULES
from flashinfer_tools import randn, workspace
from table_tools import Acts, Hint, Refused, Repeats, Unused, Written

import quern.compat.flashinfer as flashinfer
from quern.compat.flashinfer import concat_ops, gemm

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
M, N, K, BATCHES, GROUPS = 5, 7, 256, 3, 3


def bf16(*shape):
    return randn(*shape, dtype=BF16)


def fp8(*shape):
    return randn(*shape, dtype=torch.float32).to(FP8)


def scales(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) + 0.5


def mx(*shape):
    return flashinfer.mxfp8_quantize(bf16(*shape))


def offsets():
    return torch.tensor([0, 2, 2, M], dtype=torch.int32)


def mm_mxfp8():
    (a, a_descale), (b, b_descale) = mx(M, K), mx(N, K)
    return {"a": a, "b": b.T, "a_descale": a_descale, "b_descale": b_descale}


def bmm_mxfp8():
    (a, a_scale), (b, b_scale) = mx(BATCHES, M, K), mx(BATCHES, N, K)
    return {"A": a, "B": b.mT, "A_scale": a_scale, "B_scale": b_scale, "dtype": BF16}


def grouped_mxfp8():
    (a, a_descale), (b, b_descale) = mx(M, K), mx(GROUPS, 128, K)
    return {"a": a, "b": b, "a_descale": a_descale, "b_descale": b_descale.reshape(GROUPS, -1), "m_indptr": offsets()}


def grouped(kind):
    return lambda: {"a": kind(M, K), "b": kind(GROUPS, N, K), "m_indptr": offsets()}


def groupwise():
    return {"a": fp8(M, K), "b": fp8(N, K), "a_scale": scales(M, 2), "b_scale": scales(1, 2), "scale_major_mode": "K"}


def blockscaled():
    return {"a": fp8(M, K), "b": fp8(N, K), "a_scale": scales(1, 2), "b_scale": scales(1, 2), "scale_major_mode": "K"}


def group_groupwise():
    return {"a": fp8(M, K), "b": fp8(GROUPS, N, K), "a_scale": scales(M, 2), "b_scale": scales(GROUPS, 1, 2), "m_indptr": offsets(),
            "scale_major_mode": "K"}


def deepgemm():
    return {"a": fp8(256, K), "b": fp8(2, N, K), "a_scale": scales(256, 2), "b_scale": scales(2, 1, 2),
            "m_indices": (torch.arange(256) // 128).int()}


def masked():
    return {"a": fp8(2, M, K), "b": fp8(2, N, K), "a_scale": scales(2, M, 2), "b_scale": scales(2, 1, 2),
            "masked_m": torch.tensor([5, 3], dtype=torch.int32), "expected_m": 4, "out": torch.zeros(2, M, N, dtype=BF16)}


def segments():
    return {"__init__": {"float_workspace_buffer": workspace()},
            "run": {"x": bf16(M, 64), "weights": bf16(3, 64, 64), "batch_size": 3, "weight_column_major": True,
                    "seg_lens": torch.tensor([2, 0, 3])}}


FUNCTIONS |= {
    "mm_bf16": (lambda: {"a": bf16(M, K), "b": bf16(N, K).T}, ()), "bmm_bf16": (lambda: {"A": bf16(BATCHES, M, K),
                                                                                        "B": bf16(BATCHES, N, K).mT}, ()),
    "tgv_gemm_sm100": (lambda: {"a": bf16(M, K), "b": bf16(N, K).T, "bias": bf16(N)}, ()),
    "bmm_fp8": (lambda: {"A": fp8(BATCHES, M, K), "B": fp8(BATCHES, N, K).mT, "A_scale": 0.5, "B_scale": torch.tensor(2.0),
                         "dtype": BF16}, ()),
    "prepare_low_latency_gemm_weights": (lambda: {"w": fp8(N, K), "permutation_indices_cache": {}}, ()),
    "mm_fp8": (lambda: {"a": fp8(M, K), "b": gemm.prepare_low_latency_gemm_weights(fp8(N, K), {})}, ()),
    "mm_mxfp8": (mm_mxfp8, ()), "bmm_mxfp8": (bmm_mxfp8, ()), "grouped_mm_bf16": (grouped(bf16), ()),
    "grouped_mm_fp8": (grouped(fp8), ()), "grouped_mm_mxfp8": (grouped_mxfp8, ()),
    "gemm_fp8_nt_groupwise": (groupwise, ()), "gemm_fp8_nt_blockscaled": (blockscaled, ()),
    "group_gemm_fp8_nt_groupwise": (group_groupwise, ()), "group_deepgemm_fp8_nt_groupwise": (deepgemm, ()),
    "batch_deepgemm_fp8_nt_groupwise": (masked, ("out",)),
    "fp8_blockscale_gemm_sm90": (lambda: {"input": bf16(M, K), "weight": bf16(N, K)}, ()),
    "mxfp8_quantize": (lambda: {"input": bf16(M, 96)}, ()),
    "mxfp8_dequantize_host": (lambda: dict(zip(("input", "scale_tensor"), mx(M, 96), strict=True)), ()),
    "mxfp8_grouped_quantize": (lambda: {"a": bf16(2, M, 96), "mask": torch.tensor([5, 3], dtype=torch.int32)}, ()),
    "is_gated_activation": (lambda: {"activation_type": 3}, ()),
    "concat_mla_k": (lambda: {"k": torch.zeros(3, 2, 24), "k_nope": torch.ones(3, 2, 16), "k_rope": torch.ones(3, 1, 8)}, ("k",)),
}
CLASSES["SegmentGEMMWrapper"] = segments
MODULES += [concat_ops, gemm]


# ---- what each parameter does

def of(owner, **lines):
    return {f"{owner}.{name}": line for name, line in lines.items()}


def flipped(t):
    return t.flip(-1)


def other_bytes(t):
    return t.view(torch.uint8).flip(-1).contiguous().view(t.dtype)


def doubled(t):
    return 2 * t


def product_lines():
    bf16_backends = Hint("auto", "cudnn", "cutlass", "tgv", "cublaslt", "tinygemm", "cutile", "cute-dsl", "cake")
    a_b, given = {"a": Acts(flipped), "b": Acts(flipped)}, {"out": Written(M, N, dtype=BF16)}
    codes = {"a": Acts(other_bytes), "b": Acts(other_bytes)}
    said = {"out_dtype": Acts(torch.float16)}
    two = {"A": Acts(flipped), "B": Acts(flipped), "out": Written(BATCHES, M, N, dtype=BF16)}
    two_codes = {**two, "A": Acts(other_bytes), "B": Acts(other_bytes), "dtype": Acts(torch.float16)}
    turned = {"a_scale": Acts(flipped), "b_scale": Acts(flipped), "scale_major_mode": Acts("MN"), "mma_sm": Hint(1, 2)}
    lines = {
        "mm_bf16": {**a_b, **given, **said, "bias": Acts(torch.ones(N)), "pdl": Hint(False, True), "backend": bf16_backends},
        "bmm_bf16": {**two, **said, "backend": bf16_backends},
        "tgv_gemm_sm100": {**a_b, **given, "bias": Acts(flipped), "pdl": Hint(False, True), "a_descale": Acts(2.0), "b_descale": Acts(2.0)},
        "bmm_fp8": {**two_codes, "A_scale": Acts(1.5), "B_scale": Acts(1.5),
                    "backend": Hint("cudnn", "cublas", "cutlass", "cute-dsl", "auto")},
        "prepare_low_latency_gemm_weights": {"w": Acts(other_bytes), "permutation_indices_cache": Unused({1: 2})},
        "mm_fp8": {"a": codes["a"], "b": Acts(lambda t: t.flip(0)), **given, **said, "alpha": Acts(0.5),
                   "backend": Repeats("trtllm_low_latency", "no such word")},
        "mm_mxfp8": {**codes, **given, **said, "a_descale": Acts(flipped), "b_descale": Acts(flipped), "use_8x4_sf_layout": Acts(True),
                     "backend": Hint("cutlass", "cute-dsl", "cutedsl_low_latency", "trtllm", "cudnn", "b12x", "auto")},
        "bmm_mxfp8": {**two_codes, "A_scale": Acts(flipped), "B_scale": Acts(flipped), "backend": Hint("cudnn", "cutlass", "auto")},
        "grouped_mm_bf16": {**a_b, **given, **said, "backend": Hint("cudnn", "cake")},
        "grouped_mm_fp8": {**codes, **given, **said, "alpha": Acts(0.5), "backend": Hint("cudnn")},
        "grouped_mm_mxfp8": {**codes, **said, "out": Written(M, 128, dtype=BF16), "a_descale": Acts(flipped), "b_descale": Acts(flipped),
                             "backend": Hint("cudnn")},
        "gemm_fp8_nt_groupwise": {**codes, **given, **said, **turned, "scale_granularity_mnk": Acts((128, 128, 128)),
                                  "backend": Hint("cutlass", "trtllm", "cutile")},
        "gemm_fp8_nt_blockscaled": {**codes, **given, **said, **turned},
        "group_gemm_fp8_nt_groupwise": {**codes, **given, **said, **turned, "scale_granularity_mnk": Acts((1, 1, 128)),
                                        "segment_alignment": Hint(1, 128), "backend": Hint("trtllm", "cutile")},
        "group_deepgemm_fp8_nt_groupwise": {**codes, **said, "out": Written(256, N, dtype=BF16), "a_scale": Acts(flipped),
                                            "b_scale": Acts(flipped), "m_indices": Acts(lambda t: t.flip(0)),
                                            "scale_granularity_mnk": Acts((1, 1, 128))},
        "batch_deepgemm_fp8_nt_groupwise": {**codes, "out": Written(), "out_dtype": Acts(torch.float16), "a_scale": Acts(flipped),
                                            "b_scale": Acts(flipped), "masked_m": Acts(flipped), "expected_m": Hint(1, 64),
                                            "scale_granularity_mnk": Refused((1, 1, 128)), "backend": Hint("deepgemm", "cake")},
        "fp8_blockscale_gemm_sm90": {"input": Acts(flipped), "weight": Acts(flipped), **given, "input_scale": Acts(scales(M, 2)),
                                     "weight_scale": Acts(scales(1, 2)),
                                     "out_dtype": Acts(torch.float32, out=torch.zeros(M, N, dtype=BF16))},
        "mxfp8_quantize": {"input": Acts(flipped), "is_sf_swizzled_layout": Acts(False), "alignment": Acts(64),
                           "backend": Hint("cuda", "cute-dsl"), "sf_swizzle_layout": Acts(1)},
        "mxfp8_dequantize_host": {"input": Acts(other_bytes), "scale_tensor": Acts(flipped), "is_sf_swizzled_layout": Acts(False),
                                  "sf_swizzle_layout": Acts(2)},
        "mxfp8_grouped_quantize": {"a": Acts(flipped), "mask": Unused(torch.tensor([1, 1], dtype=torch.int32)),
                                   "backend": Hint("cutile", "cake")},
        "is_gated_activation": {"activation_type": Acts(0)},
        "concat_mla_k": {"k": Written(), "k_nope": Acts(doubled), "k_rope": Acts(doubled), "backend": Hint("default")},
    }
    flat = {f"{call}.{name}": line for call, named in lines.items() for name, line in named.items()}
    return {**flat, "m_indptr": Acts(lambda t: (t[-1] - t).flip(0)), "tactic": Hint(-1, 3), **_segment_lines()}


def _segment_lines():
    bytes_ = torch.zeros(9, dtype=torch.uint8)
    return {
        **of("SegmentGEMMWrapper", float_workspace_buffer=Unused(bytes_), int_workspace_buffer=Unused(None, bytes_),
             backend=Hint("auto", "sm80", "sm90")),
        **of("SegmentGEMMWrapper.run", x=Acts(flipped), weights=Acts(flipped), batch_size=Acts(2), weight_column_major=Acts(False),
             out=Written(M, 64, dtype=BF16), seg_lens=Acts(lambda t: t.flip(0)), seg_indptr=Acts(torch.tensor([0, 1, 1, M])),
             weight_indices=Acts(torch.tensor([1, 2, 0]))),
    }
