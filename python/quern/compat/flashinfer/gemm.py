# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's matrix products. b of mm_* and bmm_* is [.., k, n], in FlashInfer column-major; here either dimension may be the
contiguous one. A backend changes nothing.

MXFP8 and FP4 are multiplied out in bf16 first, exactly, so that they take the time and memory of bf16.
"""

import torch

from ... import _gemm, _quantize
from ..._public import flag, found
from .._check import integer, shape, tensors
from . import _run
from ._hints import check_backend, check_flags
from ._products import ALL, FP8, SIXTEEN, groups_of, kind, of_groups, one_number, product, result
from .quantization.fp4_quantization import wide
from .quantization.fp8_quantization import GROUP, dequantized
from .tllm_enums import SfLayout

_BF16 = "cudnn", "cutlass", "tgv", "cublaslt", "tinygemm", "cutile", "cute-dsl", "cake", "auto"
_FP8_BACKENDS = "cudnn", "cublas", "cutlass", "cute-dsl", "auto"
_MX = "cutlass", "cute-dsl", "cutedsl_low_latency", "trtllm", "cudnn", "b12x", "auto"


def _matrices(op, a, b, names=("a", "b"), lead=0):
    """Checks a [.., m, k] and b [.., k, n]."""
    tensors(op, dict(zip(names, (a, b), strict=True)))
    shape(op, names[0], a, *[None] * (lead + 2))
    shape(op, names[1], b, *a.shape[:lead], a.shape[-1], None)


# ---- bf16

def mm_bf16(a, b, bias=None, pdl=False, out=None, out_dtype=torch.bfloat16, backend="cudnn"):
    """Returns a [m, k] b [k, n] + bias [n], of bf16 or f16, in out or in a new tensor of bf16, f16 or f32."""
    op = "mm_bf16"
    check_backend(op, backend, _BF16)
    check_flags(op, pdl=pdl)
    _matrices(op, a, b)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, SIXTEEN)
    out = result(op, out, (len(a), b.shape[1]), out_dtype, a.device, ALL)
    return product(op, {}, a, b.T, out, bias=bias)


def bmm_bf16(A, B, out=None, out_dtype=torch.bfloat16, backend="cudnn"):
    """Returns A [batches, m, k] B [batches, k, n], of bf16 or f16."""
    op = "bmm_bf16"
    check_backend(op, backend, _BF16)
    _matrices(op, A, B, ("A", "B"), 1)
    for name, x in (("A", A), ("B", B)):
        kind(op, name, x, SIXTEEN)
    out = result(op, out, (*A.shape[:2], B.shape[2]), out_dtype, A.device, ALL)
    return product(op, {"a": "A", "b": "B"}, A, B.mT, out)


def tgv_gemm_sm100(a, b, bias, pdl=False, out=None, a_descale=None, b_descale=None):
    """Returns a [m, k] b [k, n] + bias [n], of a's dtype; of FP8, with a_descale and b_descale of one number each, in bf16."""
    op = "tgv_gemm_sm100"
    check_flags(op, pdl=pdl)
    _matrices(op, a, b)
    kind(op, "a", a, (*SIXTEEN, *FP8))
    if b.dtype != a.dtype:
        raise ValueError(f"{op}: b has dtype {b.dtype}, needs a's, {a.dtype}")
    is_fp8 = a.dtype in FP8
    for name, value in (("a_descale", a_descale), ("b_descale", b_descale)):
        if (value is not None) != is_fp8:
            raise ValueError(f"{op}: {name} is {found(value)}; accepted with a of {a.dtype}: {'a number' if is_fp8 else 'None'}")
    out = result(op, out, (len(a), b.shape[1]), torch.bfloat16 if is_fp8 else a.dtype, a.device, SIXTEEN, "a")
    return product(op, {"scale_a": "a_descale", "scale_b": "b_descale"}, a, b.T, out, bias=bias,
                   scale_a=one_number(op, "a_descale", a_descale, a.device), scale_b=one_number(op, "b_descale", b_descale, a.device))


# ---- FP8 with one scale

def bmm_fp8(A, B, A_scale, B_scale, dtype, out=None, backend="cublas"):
    """Returns A_scale A [batches, m, k] times B_scale B [batches, k, n], of FP8 with one scale each, in bf16 or f16."""
    op = "bmm_fp8"
    check_backend(op, backend, _FP8_BACKENDS)
    _matrices(op, A, B, ("A", "B"), 1)
    for name, x in (("A", A), ("B", B)):
        kind(op, name, x, FP8)
    out = result(op, out, (*A.shape[:2], B.shape[2]), dtype, A.device, SIXTEEN, "dtype")
    return product(op, {"a": "A", "b": "B", "scale_a": "A_scale", "scale_b": "B_scale"}, A, B.mT, out,
                   scale_a=one_number(op, "A_scale", A_scale, A.device), scale_b=one_number(op, "B_scale", B_scale, A.device))


def prepare_low_latency_gemm_weights(w, permutation_indices_cache):
    """Returns w [n, k] of FP8 as mm_fp8 takes it: a view [k / 128, n, 128] of it. permutation_indices_cache, a dict, stays as it is, as
    rows keep their order."""
    op = "prepare_low_latency_gemm_weights"
    tensors(op, {"w": w})
    shape(op, "w", w, None, None)
    kind(op, "w", w, FP8)
    if not isinstance(permutation_indices_cache, dict):
        raise ValueError(f"{op}: permutation_indices_cache is {found(permutation_indices_cache)}; accepted: a dict")
    if w.shape[1] % 128:
        raise ValueError(f"{op}: w has {w.shape[1]} columns; accepted: multiples of 128")
    return w.unflatten(1, (-1, 128)).transpose(0, 1)


def mm_fp8(a, b, alpha=None, out_dtype=torch.bfloat16, out=None, backend="trtllm_low_latency"):
    """Returns alpha times a [m, k] b^T of FP8, in bf16, f16 or f32. alpha is a number or a tensor of one.

    b  of prepare_low_latency_gemm_weights, [k / 128, n, 128]; with backend "cutedsl_low_latency" [n, k]
    """
    op = "mm_fp8"
    check_backend(op, backend, ("trtllm_low_latency", "cutedsl_low_latency"))
    tensors(op, {"a": a, "b": b})
    shape(op, "a", a, None, None)
    if backend == "trtllm_low_latency":
        shape(op, "b", b, a.shape[1] // 128, None, 128)
        b = b.transpose(0, 1).flatten(1)
    shape(op, "b", b, None, a.shape[1])
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    out = result(op, out, (len(a), len(b)), out_dtype, a.device, ALL)
    return product(op, {"scale_a": "alpha"}, a, b, out, scale_a=one_number(op, "alpha", alpha, a.device))


# ---- MXFP8

def mm_mxfp8(a, b, a_descale, b_descale, out=None, out_dtype=torch.bfloat16, use_8x4_sf_layout=False, backend="auto"):
    """Returns a [m, k] b [k, n] of FP8 with a power of two for each 32 of k, in bf16 or f16. a_descale and b_descale are those of
    mxfp8_quantize, in tiles of 128 x 4, with use_8x4_sf_layout a_descale's are of 8 x 4."""
    op = "mm_mxfp8"
    check_backend(op, backend, _MX)
    _matrices(op, a, b)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    layout = SfLayout.layout_8x4 if flag(op, "use_8x4_sf_layout", use_8x4_sf_layout) else SfLayout.layout_128x4
    out = result(op, out, (len(a), b.shape[1]), out_dtype, a.device, SIXTEEN)
    wide = (dequantized(op, "a_descale", a, a_descale, layout, torch.bfloat16),
            dequantized(op, "b_descale", b.T, b_descale, SfLayout.layout_128x4, torch.bfloat16))
    return product(op, {}, *wide, out)


def bmm_mxfp8(A, B, A_scale, B_scale, dtype, out=None, backend="auto"):
    """Returns A [batches, m, k] B [batches, k, n] of FP8 with a power of two for each 32 of k, in bf16 or f16. A_scale and B_scale are
    those of mxfp8_quantize for A and for B turned, in tiles of 128 x 4, or those of each batch one after another."""
    op = "bmm_mxfp8"
    check_backend(op, backend, ("cudnn", "cutlass", "auto"))
    _matrices(op, A, B, ("A", "B"), 1)
    for name, x in (("A", A), ("B", B)):
        kind(op, name, x, FP8)
    out = result(op, out, (*A.shape[:2], B.shape[2]), dtype, A.device, SIXTEEN, "dtype")
    wide = [_dequantized_batches(op, name, x, scale) for name, x, scale in (("A_scale", A, A_scale), ("B_scale", B.mT, B_scale))]
    return product(op, {"a": "A", "b": "B"}, *wide, out)


def _dequantized_batches(op, name, x, scale):
    batches, rows, columns = x.shape
    together = -(-batches * rows // 128) * 128 * (-(-columns // (4 * GROUP)) * 4)
    if scale.numel() == together:  # of all rows as one matrix
        return dequantized(op, name, x.reshape(-1, columns), scale, SfLayout.layout_128x4, torch.bfloat16).reshape(x.shape)
    return dequantized(op, name, x, scale, SfLayout.layout_128x4, torch.bfloat16, (batches,))


# ---- FP4

_FP4_BACKENDS = "cudnn", "trtllm", "cutlass", "cute-dsl", "cutedsl_low_latency", "b12x", "cake", "auto"


def mm_fp4(a, b, a_descale, b_descale, alpha=None, out_dtype=torch.bfloat16, out=None, block_size=16, use_8x4_sf_layout=False,
           backend="auto", use_nvfp4=True, enable_pdl=True):
    """Returns alpha, a number or a tensor of one, times a b, of e2m1 u8 [m, k / 2] and [k / 2, n], in bf16, f16 or f32. a_descale and
    b_descale are in tiles of 128 x 4, with use_8x4_sf_layout a_descale's are of 8 x 4: e4m3fn of 16 with use_nvfp4, else UE8M0 of 32,
    which block_size says too."""
    op = "mm_fp4"
    check_backend(op, backend, _FP4_BACKENDS)
    check_flags(op, enable_pdl=enable_pdl)
    _matrices(op, a, b)
    is_mx = not flag(op, "use_nvfp4", use_nvfp4)
    if block_size != (32 if is_mx else 16):
        raise ValueError(f"{op}: block_size is {found(block_size)}; accepted with use_nvfp4 {not is_mx}: {32 if is_mx else 16}")
    layout = SfLayout.layout_8x4 if flag(op, "use_8x4_sf_layout", use_8x4_sf_layout) else SfLayout.layout_128x4
    tensors(op, {"a": a, "a_descale": a_descale, "b_descale": b_descale})
    out = result(op, out, (len(a), b.shape[1]), out_dtype, a.device, ALL)
    operands = (wide(op, "a_descale", a, a_descale, layout, is_mx, torch.bfloat16),
                wide(op, "b_descale", b.T, b_descale, SfLayout.layout_128x4, is_mx, torch.bfloat16))
    return product(op, {}, *operands, out, scale_a=one_number(op, "alpha", alpha, a.device))


# ---- FP8 with scales of groups

def _granularity(op, given):
    if tuple(given) not in ((1, 128, 128), (128, 128, 128), (1, 1, 128)):
        raise NotImplementedError(f"{op}: scale_granularity_mnk is {tuple(given)}; accepted: (1, 128, 128), (128, 128, 128), (1, 1, 128)")
    return tuple(given)


def _scales(op, mode, granularity, a_scale, b_scale, m, n, k, lead=()):
    """Returns scales as quern takes them, [m, k / 128] and [.., n / 128, k / 128]."""
    if mode not in (None, "MN", "K"):
        raise ValueError(f"{op}: scale_major_mode is {found(mode)}; accepted: 'MN', 'K', None")
    tensors(op, {"a_scale": a_scale, "b_scale": b_scale})
    rows_a, rows_b = -(-m // granularity[0]), -(-n // granularity[1])
    blocks = -(-k // 128)
    turned_a, turned_b = mode == "MN", mode == "MN"
    if mode is None:  # as the backend "trtllm" has them
        turned_b = True
    if turned_a:
        a_scale = a_scale.mT
    if turned_b:
        b_scale = b_scale.mT
    shape(op, "a_scale", a_scale, rows_a, blocks, is_turned=turned_a)
    shape(op, "b_scale", b_scale, *lead, rows_b, blocks, is_turned=turned_b)
    if granularity[0] == 128:
        a_scale = a_scale.repeat_interleave(128, 0)[:m]
    return a_scale, b_scale.contiguous()


def _check_mma(op, mma_sm):
    integer(op, "mma_sm", mma_sm, 1, 2)


_SCALE_NAMES = {"scale_a": "a_scale", "scale_b": "b_scale"}


def gemm_fp8_nt_groupwise(a, b, a_scale, b_scale, scale_major_mode=None, mma_sm=1, scale_granularity_mnk=(1, 128, 128), out=None,
                          out_dtype=None, backend="cutlass"):
    """Returns a [m, k] b [n, k]^T of FP8, with f32 scales for groups of 1 x 128 of a and 128 x 128 of b, in bf16 or f16.

    a_scale, b_scale  [m, k / 128] and [n / 128, k / 128]; "MN": turned; None: b_scale alone is turned
    scale_granularity_mnk  (1, 128, 128); (128, 128, 128): a_scale has a row for 128 of a's; (1, 1, 128): b_scale has one for each of b's
    mma_sm, backend  change nothing
    """
    op = "gemm_fp8_nt_groupwise"
    check_backend(op, backend, ("cutlass", "trtllm", "cutile"))
    _check_mma(op, mma_sm)
    tensors(op, {"a": a, "b": b})
    shape(op, "a", a, None, None)
    shape(op, "b", b, None, a.shape[1])
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    (m, k), n = a.shape, len(b)
    scales = _scales(op, scale_major_mode, _granularity(op, scale_granularity_mnk), a_scale, b_scale, m, n, k)
    out = result(op, out, (m, n), out_dtype or (torch.bfloat16 if out is None else out.dtype), a.device, SIXTEEN)
    return product(op, _SCALE_NAMES, a, b, out, scale_a=scales[0], scale_b=scales[1])


def gemm_fp8_nt_blockscaled(a, b, a_scale, b_scale, scale_major_mode="MN", mma_sm=1, out=None, out_dtype=None):
    """Returns gemm_fp8_nt_groupwise with scales for 128 x 128 of a, too."""
    return gemm_fp8_nt_groupwise(a, b, a_scale, b_scale, scale_major_mode, mma_sm, (128, 128, 128), out, out_dtype)


def group_gemm_fp8_nt_groupwise(a, b, a_scale, b_scale, m_indptr, scale_granularity_mnk=(1, 128, 128), scale_major_mode="MN", mma_sm=1,
                                out=None, out_dtype=None, backend="trtllm", segment_alignment=1):
    """Returns gemm_fp8_nt_groupwise of groups: rows m_indptr[g] up to m_indptr[g + 1] of a [m, k] with b[g] [n, k], and b_scale[g].
    Groups may have any number of rows; segment_alignment, like mma_sm and backend, changes nothing."""
    op = "group_gemm_fp8_nt_groupwise"
    check_backend(op, backend, ("trtllm", "cutile"))
    _check_mma(op, mma_sm)
    integer(op, "segment_alignment", segment_alignment, 1)
    groups_of(op, a, b, m_indptr)
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    (m, k), (groups, n, _) = a.shape, b.shape
    if scale_major_mode is None:
        raise ValueError(f"{op}: scale_major_mode is None; accepted: 'MN', 'K'")
    scales = _scales(op, scale_major_mode, _granularity(op, scale_granularity_mnk), a_scale, b_scale, m, n, k, (groups,))
    out = result(op, out, (m, n), out_dtype or (torch.bfloat16 if out is None else out.dtype), a.device, SIXTEEN)
    return of_groups(op, _SCALE_NAMES, a, b, m_indptr, out, scale_a=scales[0], scale_b=scales[1])


def group_deepgemm_fp8_nt_groupwise(a, b, a_scale, b_scale, m_indices, scale_granularity_mnk=(1, 128, 128), out=None, out_dtype=None):
    """Returns gemm_fp8_nt_groupwise of groups: m_indices i32 [m] is each row's group, or -1, whose row is left as it is. A group's rows
    lie together and begin at a multiple of 128."""
    op = "group_deepgemm_fp8_nt_groupwise"
    tensors(op, {"a": a, "b": b, "m_indices": m_indices})
    shape(op, "a", a, None, None)
    shape(op, "b", b, None, None, a.shape[1])
    shape(op, "m_indices", m_indices, len(a))
    for name, x in (("a", a), ("b", b)):
        kind(op, name, x, FP8)
    (m, k), (groups, n, _) = a.shape, b.shape
    scales = _scales(op, "K", _granularity(op, scale_granularity_mnk), a_scale, b_scale, m, n, k, (groups,))
    out = result(op, out, (m, n), out_dtype or (torch.bfloat16 if out is None else out.dtype), a.device, SIXTEEN)
    _run.call(op, _gemm.gemm_grouped_contiguous, {"d": "out", "group_layout": "m_indices", **_SCALE_NAMES}, a, b, _run.index(m_indices),
              scale_a=scales[0], scale_b=scales[1], out=out)
    return out


def batch_deepgemm_fp8_nt_groupwise(a, b, a_scale, b_scale, masked_m, expected_m, scale_granularity_mnk=(1, 128, 128), out=None,
                                    out_dtype=None, backend="deepgemm"):
    """Returns a[g, :masked_m[g]] b[g]^T of a [groups, m, k] and b [groups, n, k] of FP8; other rows are left as they are. a_scale is
    [groups, m, k / 128], b_scale [groups, n / 128, k / 128], masked_m i32 [groups]. expected_m and backend change nothing."""
    op = "batch_deepgemm_fp8_nt_groupwise"
    check_backend(op, backend, ("deepgemm", "cake"))
    tensors(op, {"a": a, "b": b, "a_scale": a_scale, "b_scale": b_scale, "masked_m": masked_m})
    shape(op, "a", a, None, None, None)
    shape(op, "b", b, len(a), None, a.shape[2])
    if _granularity(op, scale_granularity_mnk) != (1, 128, 128):
        raise NotImplementedError(f"{op}: scale_granularity_mnk is {tuple(scale_granularity_mnk)}; accepted: (1, 128, 128)")
    shape(op, "a_scale", a_scale, *a.shape[:2], -(-a.shape[2] // 128))
    shape(op, "b_scale", b_scale, len(b), -(-b.shape[1] // 128), -(-b.shape[2] // 128))
    out = result(op, out, (*a.shape[:2], b.shape[1]), out_dtype or (torch.bfloat16 if out is None else out.dtype), a.device, SIXTEEN)
    _run.call(op, _gemm.gemm_grouped_masked, {"d": "out", "group_layout": "masked_m", **_SCALE_NAMES}, a, b, _run.index(masked_m),
              scale_a=a_scale, scale_b=b_scale.contiguous(), expected_m=integer(op, "expected_m", expected_m, 1), out=out)
    return out


def fp8_blockscale_gemm_sm90(input, weight, input_scale=None, weight_scale=None, out=None, out_dtype=None):
    """Returns input [m, k] weight [n, k]^T in bf16. Either of bf16 is quantised to e4m3fn on the way, input by 1 x 128, weight by
    128 x 128; of FP8 it has scales, weight_scale [n / 128, k / 128] or [n, k / 128]."""
    op = "fp8_blockscale_gemm_sm90"
    tensors(op, {"input": input, "weight": weight, "input_scale": input_scale, "weight_scale": weight_scale},
            ("input_scale", "weight_scale"))
    shape(op, "input", input, None, None)
    shape(op, "weight", weight, None, input.shape[1])
    out = result(op, out, (len(input), len(weight)), out_dtype or (torch.bfloat16 if out is None else out.dtype), input.device,
                 (torch.bfloat16,))
    operands = [_quantized(op, name, x, scale, block) for name, x, scale, block in (
        ("input", input, input_scale, (1, 128)), ("weight", weight, weight_scale, (128, 128)))]
    (a, scale_a), (b, scale_b) = operands
    names = {"a": "input", "b": "weight", "scale_a": "input_scale", "scale_b": "weight_scale"}
    return product(op, names, a, b, out, scale_a=scale_a, scale_b=scale_b.contiguous())


def _quantized(op, name, x, scale, block):
    if x.dtype in FP8:
        if scale is None:
            raise ValueError(f"{op}: {name}_scale is None; needed with {name} of {x.dtype}")
        return x, scale
    kind(op, name, x, (torch.bfloat16, *FP8))
    if scale is not None:
        raise ValueError(f"{op}: {name}_scale is {found(scale)}; accepted with {name} of {x.dtype}: None")
    return _run.call(op, _quantize.quantize_fp8, {"x": name}, x, block)


# ---- segments

class SegmentGEMMWrapper:
    """Products of segments of rows with a matrix for each. The workspaces, as backend, change nothing: quern needs none."""

    def __init__(self, float_workspace_buffer, backend="auto"):
        self._op = type(self).__name__
        check_backend(self._op, backend, ("auto", "sm80", "sm90"))
        self.reset_workspace_buffer(float_workspace_buffer, None)

    def reset_workspace_buffer(self, float_workspace_buffer, int_workspace_buffer):
        """Checks the buffers, which no product needs."""
        tensors(self._op, {"float_workspace_buffer": float_workspace_buffer, "int_workspace_buffer": int_workspace_buffer},
                ("int_workspace_buffer",))

    def run(self, x, weights, batch_size, weight_column_major, out=None, seg_lens=None, seg_indptr=None, weight_indices=None):
        """Returns [rows, d_out], of x's dtype, bf16 for FP8: each segment of x [rows, d_in] times its matrix.

        weights  [matrices, d_in, d_out]; with weight_column_major [matrices, d_out, d_in]
        seg_lens [batch_size], of any device, or seg_indptr [batch_size + 1], from 0 to rows; if both are given, seg_indptr counts
        weight_indices  [batch_size], each segment's matrix, which is copied; None: segment i has matrix i
        """
        op = self._op
        tensors(op, {"x": x, "weights": weights, "seg_indptr": seg_indptr, "weight_indices": weight_indices},
                ("seg_indptr", "weight_indices"))
        tensors(op, {"seg_lens": seg_lens}, ("seg_lens",))
        shape(op, "x", x, None, None)
        shape(op, "weights", weights, None, None, None)
        b = weights if flag(op, "weight_column_major", weight_column_major) else weights.mT
        kind(op, "x", x, (*SIXTEEN, *FP8))
        offsets = self._offsets(integer(op, "batch_size", batch_size, 0), seg_lens, seg_indptr, x.device)
        if weight_indices is not None:
            shape(op, "weight_indices", weight_indices, batch_size)
            b = (b.view(torch.uint8)[weight_indices.long()].view(b.dtype) if b.dtype in FP8 else b[weight_indices.long()])
        shape(op, "weights", b, batch_size, None, x.shape[1], is_turned=b is not weights)
        out = result(op, out, (len(x), b.shape[1]), (torch.bfloat16 if x.dtype in FP8 else x.dtype) if out is None else out.dtype,
                     x.device, SIXTEEN, "x")
        return of_groups(op, {"a": "x", "b": "weights", "offsets": "seg_indptr"}, x, b, offsets, out)

    forward = run

    def _offsets(self, batch_size, seg_lens, seg_indptr, device):
        if seg_indptr is not None:
            shape(self._op, "seg_indptr", seg_indptr, batch_size + 1)
            return seg_indptr
        if seg_lens is None:
            raise ValueError(f"{self._op}: seg_lens and seg_indptr are None; needed: one of them")
        shape(self._op, "seg_lens", seg_lens, batch_size)
        return torch.nn.functional.pad(seg_lens.to(device).long().cumsum(0), (1, 0))
