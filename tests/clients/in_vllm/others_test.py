# SPDX-License-Identifier: Apache-2.0
"""vLLM's calls of DeepGEMM and FlashInfer, with quern.compat.deep_gemm and quern.compat.flashinfer in their places."""

import pytest
import quern.compat
import torch
from aiter_tools import BF16
from deep_gemm_tools import close, ints, plain, quantised, randn
from engine_tools import like_native
from vllm.utils import deep_gemm as calls


@pytest.fixture(autouse=True, scope="module")
def stand_ins():
    for name in ("deep_gemm", "flashinfer"):
        quern.compat.install(name)
    calls._lazy_init()
    assert calls._import_deep_gemm() is quern.compat.deep_gemm


def test_product():
    a, b = quantised(5, 384), quantised(256, 384, gran=(128, 128), seed=1)
    out = torch.full((5, 256), torch.nan, dtype=BF16)
    calls.fp8_gemm_nt((a[0], calls.get_col_major_tma_aligned_tensor(a[1])), b, out, is_deep_gemm_e8m0_used=False)
    close(out, plain(a), plain(b, (128, 128)))


@pytest.mark.parametrize("psum", [False, True])
def test_grouped_product(psum):
    alignment = calls.get_mk_alignment_for_contiguous_layout()[0]
    a, b = quantised(2 * alignment, 256), quantised(2, 256, 256, gran=(128, 128), seed=1)
    layout = torch.cat([torch.zeros(alignment), torch.ones(alignment)]).int()
    if psum:  # where each expert's rows end
        layout = ints(alignment - 3, 2 * alignment)
    out = torch.full((2 * alignment, 256), torch.nan, dtype=BF16)
    calls.m_grouped_fp8_gemm_nt_contiguous(a, b, out, layout, **({"use_psum_layout": True} if psum else {}))
    exact_a, exact_b = plain(a), plain(b, (128, 128))
    close(out[:alignment - 3], exact_a[:alignment - 3], exact_b[0])
    close(out[alignment:], exact_a[alignment:], exact_b[1])


def test_masked_product():
    a, b, masked = quantised(2, 8, 256), quantised(2, 256, 256, gran=(128, 128), seed=1), ints(3, 8)
    out = torch.full((2, 8, 256), torch.nan, dtype=BF16)
    calls.fp8_m_grouped_gemm_nt_masked(a, b, out, masked, 8)
    for group in range(2):
        n = int(masked[group])
        close(out[group, :n], plain(a)[group, :n], plain(b, (128, 128))[group])


def test_every_call_finds_its_function():
    wanted = [name for name in vars(calls) if name.startswith("_") and name.endswith("_impl")]
    missing = {name for name in wanted if getattr(calls, name) is None}
    # DeepGEMM's of 2.8 and its kernels for other cards, which vLLM looks for and does without.
    assert missing <= {"_mega_mhc_impl", "_bf16_mega_gate_impl", "_cublaslt_gemm_nt_impl", "_fp8_fp4_sparse_mqa_logits_impl",
                       "_fp8_fp4_paged_sparse_mqa_logits_impl", "_get_sparse_mqa_logits_metadata_impl",
                       "_get_paged_sparse_mqa_logits_metadata_impl"} and len(wanted) > 10


@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding(neox):
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
    op = RotaryEmbedding(64, 64, 128, 1e4, neox, torch.float32)
    positions, q, k = torch.tensor([0, 3, 127]), randn(3, 256, dtype=BF16), randn(3, 128, dtype=BF16, seed=1)
    table = op.cos_sin_cache.clone()
    native = op.forward_native(positions, q.clone(), k.clone())
    torch.ops.vllm.flashinfer_rotary_embedding(positions, q, k, 64, table, neox)
    for got, want in zip((q, k), native, strict=True):
        like_native(got, want, 4, 4, 2 * float(want.abs().max()))
