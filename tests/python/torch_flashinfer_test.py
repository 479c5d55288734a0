# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer: results in place and in given tensors, exceptions, compilation, the environment. FlashInfer's own
grids are in torch_grids_test.py."""

import os
import re
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
from torch_tools import arguments_of, written  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

from quern.compat import _fallback as plain  # noqa: E402

HALF = torch.float16


def close(got, want, rtol=1e-3, atol=1e-3):
    torch.testing.assert_close(got.float(), want.float(), rtol=rtol, atol=atol)


@pytest.mark.parametrize("rows", [1, 19])
@pytest.mark.parametrize("hidden", [111, 500])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("gemma", ["", "gemma_"])
def test_norm(rows, hidden, contiguous, gemma):
    torch.manual_seed(1)
    x = torch.randn(rows, hidden * 2).to(HALF)[:, :hidden]
    x = x.contiguous() if contiguous else x
    weight, out = torch.randn(hidden).to(HALF), torch.empty(rows, hidden, dtype=HALF)
    getattr(plain, gemma + "rmsnorm")(out, x, weight, 1e-6)
    got = getattr(flashinfer, gemma + "rmsnorm")(x, weight)
    close(got, out)
    assert getattr(flashinfer, gemma + "rmsnorm")(x, weight, out=x) is x and torch.equal(x, got)
    residual = torch.randn(rows, hidden).to(HALF)
    x2, residual2 = x.clone(), residual.clone()
    getattr(plain, gemma + "fused_add_rmsnorm")(x2, residual2, weight, 1e-6)
    assert getattr(flashinfer, gemma + "fused_add_rmsnorm")(x, residual, weight) is None
    close(x, x2)
    close(residual, residual2)


@pytest.mark.parametrize("scale", [0.01, 1.0, torch.tensor(10.0)])
def test_quantized_norms(scale):
    torch.manual_seed(2)
    x, residual, weight = torch.randn(19, 500).to(HALF), torch.randn(19, 500).to(HALF), torch.randn(500).to(HALF)
    got, want = (torch.empty(19, 500, dtype=torch.float8_e4m3fn) for _ in range(2))
    flashinfer.rmsnorm_quant(got, x, weight, scale)
    plain.rmsnorm_quant(want, x, weight, scale, 1e-6)
    close(got, want, 0.126, 2.0**-9)  # one step of FP8
    before, residual2 = x.clone(), residual.clone()
    flashinfer.fused_add_rmsnorm_quant(got, x, residual, weight, scale)
    plain.fused_add_rmsnorm_quant(want, x, residual2, weight, scale, 1e-6)
    close(got, want, 0.126, 2.0**-9)
    assert torch.equal(x, before) and torch.equal(residual, residual2)
    x, gamma, beta = x.bfloat16(), torch.randn(500), torch.randn(500)
    flashinfer.layernorm_quant(got, x, gamma, beta, scale)
    plain.layernorm_quant(want, x, gamma, beta, scale, 1e-6)
    assert (got.view(torch.uint8) != want.view(torch.uint8)).float().mean() < 0.01
    out = torch.empty_like(x)
    plain.layernorm(out, x, gamma, beta, 1e-6)
    close(flashinfer.layernorm(x, gamma, beta), out, 1e-2, 1e-2)


@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
@pytest.mark.parametrize("hidden", [128, 111])
@pytest.mark.parametrize("shape", [(1,), (4, 16)])
def test_activation(name, hidden, shape):
    torch.manual_seed(3)
    x, out = torch.randn(*shape, 2 * hidden).to(HALF), torch.empty(*shape, hidden, dtype=HALF)
    getattr(plain, name)(out, x)
    close(getattr(flashinfer, name)(x), out)
    given = torch.empty_like(out)
    assert getattr(flashinfer, name)(x, out=given) is given
    close(given, out)


@pytest.mark.parametrize("family", ["apply_rope", "apply_llama31_rope"])
@pytest.mark.parametrize("offset", [0, 99])
@pytest.mark.parametrize("head_dim, partial", [(64, 1.0), (256, 0.25)])
@pytest.mark.parametrize("interleave", [False, True])
def test_rope(family, offset, head_dim, partial, interleave):
    torch.manual_seed(4)
    batch, length, rotary_dim = 3, 19, int(head_dim * partial)
    qkv = torch.randn(batch * length, 16, head_dim).to(HALF)
    q, k = qkv[:, :8], qkv[:, 8:12]  # views of a packed tensor
    indptr = torch.arange(0, batch * length + 1, length)
    offsets = torch.full((batch,), offset)
    positions = torch.arange(length).repeat(batch) + offset
    context = (1, 4, 8192) if "llama" in family else ()
    scale, theta = (8, 5e5) if "llama" in family else (1, 1e4)
    want = torch.empty_like(q), torch.empty_like(k)
    getattr(plain, family)(*want, q, k, indptr, offsets, rotary_dim, interleave, scale, theta, *context)
    for dtype in (torch.int32, torch.int64):
        got = getattr(flashinfer, family)(q, k, indptr.to(dtype), offsets.to(dtype), rotary_dim, interleave)
        by_ids = getattr(flashinfer, family + "_pos_ids")(q, k, positions.to(dtype), rotary_dim, interleave)
        for a, b, c in zip(got, by_ids, want, strict=True):
            close(a, c)
            assert torch.equal(a, b)
    copy = qkv.clone()
    getattr(flashinfer, family + "_pos_ids_inplace")(copy[:, :8], copy[:, 8:12], positions, rotary_dim, interleave)
    assert torch.equal(copy[:, :8], got[0]) and torch.equal(copy[:, 8:12], got[1])
    assert torch.equal(copy[:, 12:], qkv[:, 12:])
    getattr(flashinfer, family + "_inplace")(q, k, indptr, offsets, rotary_dim, interleave)
    assert torch.equal(q, got[0]) and torch.equal(k, got[1])


@pytest.mark.parametrize("is_neox", [True, False])
def test_rope_by_cache(is_neox):
    torch.manual_seed(5)
    cache = torch.randn(64, 32)
    query, key, positions = torch.randn(19, 8 * 64).to(HALF), torch.randn(19, 2 * 64).to(HALF), torch.randint(64, (19,))
    want = torch.empty(19, 8, 64, dtype=HALF), torch.empty(19, 2, 64, dtype=HALF)
    plain.apply_rope_with_cos_sin_cache(*want, query.view(19, 8, 64), key.view(19, 2, 64), cache, positions, not is_neox)
    got = flashinfer.apply_rope_with_cos_sin_cache(positions, query, key, 64, cache, is_neox)
    close(got[0], want[0].view(19, -1), 1e-2, 1e-2)
    flashinfer.apply_rope_with_cos_sin_cache_inplace(positions, query, key, 64, cache, is_neox)
    assert torch.equal(query, got[0]) and torch.equal(key, got[1])
    with pytest.raises(ValueError, match="cos_sin_cache should be float32"):
        flashinfer.apply_rope_with_cos_sin_cache(positions, query, key, 64, cache.half(), is_neox)


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [5])
def test_append(layout, page_size):
    torch.manual_seed(7)
    lengths, seq_lens = torch.tensor([45, 8, 25, 22]), torch.tensor([45, 20, 31, 22])
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    pages = -(-seq_lens // page_size)
    kv_indptr = torch.cat([torch.zeros(1, dtype=torch.int64), pages.cumsum(0)])
    kv_indices, last = torch.randperm(128)[:int(pages.sum())], (seq_lens - 1) % page_size + 1
    assert torch.equal(flashinfer.get_seq_lens(kv_indptr, last, page_size), seq_lens)
    batch, positions = flashinfer.get_batch_indices_positions(indptr, seq_lens, 100)
    want = torch.empty_like(batch), torch.empty_like(batch)
    plain.get_batch_indices_positions(*want, indptr, seq_lens)
    assert torch.equal(batch, want[0]) and torch.equal(positions, want[1])
    key, value = torch.randn(100, 4, 64).to(HALF), torch.randn(100, 4, 64).to(HALF)
    cache = torch.randn(128, 2, *((page_size, 4) if layout == "NHD" else (4, page_size)), 64).to(HALF)
    expected = cache.clone()
    arguments = key, value, batch, positions
    plain.append_paged_kv_cache(*expected.unbind(1), *arguments, kv_indices, kv_indptr, last, layout == "HND")
    both = cache.clone()
    flashinfer.append_paged_kv_cache(*arguments, cache, kv_indices, kv_indptr, last, layout)
    assert torch.equal(cache, expected) and not torch.equal(cache, both)
    flashinfer.append_paged_kv_cache(*arguments, both.unbind(1), kv_indices, kv_indptr, last, layout)
    assert torch.equal(both, expected)


def test_append_mla():
    ckv, kpe, cache, kpe_cache = torch.randn(3, 512), torch.randn(3, 64), torch.zeros(4, 2, 512), torch.zeros(4, 2, 64)
    ids = torch.tensor([0, 0, 0]), torch.arange(3), torch.tensor([3, 1]), torch.tensor([0, 2]), torch.tensor([1])
    flashinfer.append_paged_mla_kv_cache(ckv, kpe, *ids[:2], cache, kpe_cache, *ids[2:])
    assert torch.equal(cache[[3, 3, 1], [0, 1, 0]], ckv) and torch.equal(kpe_cache[[3, 3, 1], [0, 1, 0]], kpe)
    assert (cache[[0, 2]] == 0).all() and (cache[1, 1] == 0).all()


def test_compile():
    def layer(x, residual, weight, positions):
        flashinfer.fused_add_rmsnorm(x, residual, weight)
        q = flashinfer.apply_rope_pos_ids(x.view(19, 4, 32), x.view(19, 4, 32), positions)[0]
        return flashinfer.silu_and_mul(q), residual

    torch.manual_seed(6)
    x, residual, weight = torch.randn(19, 128), torch.randn(19, 128), torch.randn(128)
    arguments = weight, torch.arange(19)
    got = torch.compile(layer, fullgraph=True, backend="aot_eager")(x.clone(), residual.clone(), *arguments)
    for a, b in zip(got, layer(x.clone(), residual.clone(), *arguments), strict=True):
        assert torch.equal(a, b)


def run_with(code, **environment):
    """Returns what a new process prints and logs."""
    return subprocess.run([sys.executable, "-c", "import torch, quern, quern.compat.flashinfer as f\n" + code],
                          env={**os.environ, **environment}, capture_output=True, text=True, check=True)


NORM = "x = torch.randn(4, 64)\nfor _ in range(3): f.rmsnorm(x, torch.ones(64))\n"


def test_log_names_the_kernel_once():
    done = run_with(NORM + "f.silu_and_mul(x)\nprint(quern.last_kernel())", SGLANG_LOG_KERNEL="1")
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"\[quern\] Using quern norm\.\w+ kernel for rmsnorm on cpu", lines[0])
    assert lines[1] == f"[quern] Using quern {done.stdout.strip()} kernel for silu_and_mul on cpu"


def test_log_of_a_compiled_graph():
    code = "torch.compile(f.rmsnorm, fullgraph=True, backend='aot_eager')(torch.randn(4, 64), torch.ones(64))"
    assert "Using quern norm." in run_with(code, SGLANG_LOG_KERNEL="1").stderr


@pytest.mark.parametrize("value", ["1", "true"])
def test_disabled(value):
    """Tests that PyTorch computes, that quern's ops are not run, and that the log says both."""
    code = NORM + "print(quern.last_kernel() == '', torch.allclose(f.rmsnorm(x, torch.ones(64)), " \
        "torch.nn.functional.rms_norm(x, (64,), eps=1e-6)))"
    done = run_with(code, SGLANG_DISABLE_FLASHINFER=value, SGLANG_LOG_KERNEL="1")
    assert done.stdout.split() == ["True", "True"]
    assert done.stderr.splitlines() == [f"quern disabled via SGLANG_DISABLE_FLASHINFER={value}",
                                        "[PyTorch] Using PyTorch's operators for rmsnorm on cpu"]


@pytest.mark.parametrize("environment", [{}, {"SGLANG_DISABLE_FLASHINFER": "0", "SGLANG_LOG_KERNEL": "0"}])
def test_neither(environment):
    done = run_with(NORM + "print(quern.last_kernel())", **environment)
    assert done.stdout.startswith("norm.") and done.stderr == ""


def test_disabled_computes_every_op():
    """Tests each function of the stand-in with the same arguments, by quern and by PyTorch."""
    names = [name for name in vars(plain) if name in quern._ops.TABLE]
    assert len(names) > 20
    for name in names:
        ours, theirs = arguments_of(name), arguments_of(name)
        getattr(quern._ops, name)(*ours)
        getattr(plain, name)(*theirs)
        for a, b in zip(written(name, ours), written(name, theirs), strict=True):
            close(a, b, 0.126, 2.0**-8)


def test_missing_name():
    """Tests that a name that FlashInfer has and the stand-in has not says where the list is."""
    with pytest.raises(AttributeError, match="no trtllm_ragged_attention_deepseek; docs/flashinfer.md"):
        quern.compat.flashinfer.trtllm_ragged_attention_deepseek  # noqa: B018
    assert not hasattr(quern.compat.flashinfer, "trtllm_batch_decode_with_kv_cache_mla")
