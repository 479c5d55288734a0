# SPDX-License-Identifier: Apache-2.0
"""SGLang's calls of DeepGEMM and FlashInfer, with quern.compat.deep_gemm and quern.compat.flashinfer in their places. SGLang looks for
the two on NVIDIA's GPUs alone, so that they are put into its modules here, as its imports would."""

import contextlib
import types

import pytest
import quern.compat
import torch
from aiter_tools import BF16
from deep_gemm_tools import close, ints, plain, quantised, randn
from sglang.srt.layers import sampler
from sglang.srt.layers.deep_gemm_wrapper import compile_utils, entrypoint

pytestmark = pytest.mark.usefixtures("one_gpu")


@pytest.fixture(autouse=True)
def stand_ins(monkeypatch):
    for name in ("deep_gemm", "flashinfer"):
        quern.compat.install(name)
    monkeypatch.setattr(entrypoint, "deep_gemm", quern.compat.deep_gemm, raising=False)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self, *_: self)
    # SGLang compiles DeepGEMM's kernels for many sizes before their first call, by CUDA's streams.
    monkeypatch.setattr(compile_utils, "deep_gemm_execution_hook", lambda *_: contextlib.nullcontext())


def test_product():
    a, b = quantised(5, 384), quantised(256, 384, gran=(128, 128), seed=1)
    out = torch.full((5, 256), torch.nan, dtype=BF16)
    entrypoint.gemm_nt_f8f8bf16(a, b, out)
    close(out, plain(a), plain(b, (128, 128)))


def test_grouped_product():
    alignment = entrypoint.get_contiguous_layout_alignment(8, 2)
    assert alignment > 0
    a, b = quantised(256, 256), quantised(2, 256, 256, gran=(128, 128), seed=1)
    indices = torch.cat([torch.zeros(128), torch.ones(128)]).int()
    indices[120:128] = -1
    out = torch.full((256, 256), torch.nan, dtype=BF16)
    entrypoint.grouped_gemm_nt_f8f8bf16_contig(a, b, out, indices)
    close(out[:120], plain(a)[:120], plain(b, (128, 128))[0])
    close(out[128:], plain(a)[128:], plain(b, (128, 128))[1])


def test_masked_products():
    a, b, masked = quantised(2, 8, 256), quantised(2, 256, 256, gran=(128, 128), seed=1), ints(3, 8)
    of16 = randn(2, 8, 256, dtype=BF16), randn(2, 256, 256, dtype=BF16, seed=1)
    for call, left, right, exact in (
            (entrypoint.grouped_gemm_nt_f8f8bf16_masked, a, b, (plain(a), plain(b, (128, 128)))),
            (entrypoint.grouped_gemm_nt_bf16_masked, *of16, [x.double() for x in of16])):
        out = torch.full((2, 8, 256), torch.nan, dtype=BF16)
        call(left, right, out, masked, 8)
        for group, n in enumerate(masked.tolist()):
            close(out[group, :n], exact[0][group, :n], exact[1][group])


@pytest.mark.parametrize("min_p", [0.0, 0.3])
def test_sampler_by_flashinfer(min_p, monkeypatch):
    from flashinfer import sampling
    for name in ("min_p_sampling_from_probs", "top_k_top_p_sampling_from_probs"):
        monkeypatch.setattr(sampler, name, getattr(sampling, name), raising=False)
    for name in ("top_k_renorm_prob", "top_p_renorm_prob"):  # sgl_kernel's
        monkeypatch.setattr(sampler, name, getattr(sampling, f"{name}s"), raising=False)
    monkeypatch.setattr(sampler, "get_exec", lambda: types.SimpleNamespace(kernel=types.SimpleNamespace(sampling_backend="flashinfer")))
    rows, probs = 4000, (2 * randn(1, 16)).softmax(-1)
    info = types.SimpleNamespace(top_ks=torch.full((rows,), 6, dtype=torch.int32), top_ps=torch.full((rows,), 0.8),
                                 min_ps=torch.full((rows,), min_p), need_min_p_sampling=min_p > 0, sampling_seed=None,
                                 sampling_mask_batch_indices=None)
    own = sampler.Sampler._sample_from_probs.__wrapped__  # without the plugin's hook
    tokens, _ = own(types.SimpleNamespace(), probs.expand(rows, -1).contiguous(), info, None, False)
    ordered, order = probs[0].double().sort(descending=True)
    mass = ordered.cumsum(0) - ordered
    if min_p:  # top-p of what top-k kept
        mass = mass / ordered[:6].sum()
    kept = (torch.arange(16) < 6) & (mass < 0.8) & (ordered >= min_p * ordered[0])
    exact = torch.zeros(16, dtype=torch.float64)
    exact[order] = torch.where(kept, ordered, 0) / ordered[kept].sum()
    counts = tokens.long().bincount(minlength=16).double()
    assert bool(((counts - rows * exact).abs() <= 5 * (rows * exact * (1 - exact)).sqrt()).all())
