# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's multi-head latent attention, and its joining of keys, against a definition in float64."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import HALF, close, expected, offsets, randn, workspace  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer.concat_ops import concat_mla_k  # noqa: E402
from quern.compat.flashinfer.mla import MLAPlanMetadata  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
LENGTHS = [37, 0, 5, 16]


class Batch:
    """Requests whose caches lie in shuffled pages, each with a page more than it needs; unused places are NaN."""

    def __init__(self, queries, page, dims=(512, 64), lengths=LENGTHS, dtype=HALF):
        counts = [-(-n // page) + 1 for n in lengths]
        self.queries, self.page, self.dims, self.dtype = queries, page, dims, dtype
        self.qo, self.indptr = offsets(queries), offsets(counts)
        self.indices = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(5)).int()
        self.lens = torch.tensor(lengths, dtype=torch.int32)
        self.table = torch.full((len(lengths), max(counts)), 1 << 20, dtype=torch.int32)
        self.cache, self.keys = torch.full((sum(counts), page, sum(dims)), torch.nan).to(dtype), []
        for b, (count, n) in enumerate(zip(counts, lengths, strict=True)):
            pages = self.indices[self.indptr[b]:self.indptr[b + 1]]
            self.table[b, :count] = pages
            keys = randn(n, sum(dims), dtype=torch.float32, seed=b).to(dtype)
            for i in range(n):
                self.cache[pages[i // page], i % page] = keys[i]
            self.keys.append(keys.float())

    def csr(self):
        return self.qo, self.indptr, self.indices, self.lens

    def plan(self, wrapper, heads, causal, metadata=None, **options):
        flat = () if metadata is not None else self.csr()
        wrapper.plan(*flat, num_heads=heads, head_dim_ckv=self.dims[0], head_dim_kpe=self.dims[1], page_size=self.page, causal=causal,
                     sm_scale=192 ** -0.5, q_data_type=HALF, kv_data_type=self.dtype, metadata=metadata, **options)

    def want(self, q, causal, scale=1.0):
        parts = [expected(q[self.qo[b]:self.qo[b + 1]], scale * keys[:, None], scale * keys[:, None, :self.dims[0]], is_causal=causal,
                          sm_scale=192 ** -0.5) for b, keys in enumerate(self.keys)]
        return [torch.cat(part) for part in zip(*parts, strict=True)]


def test_offsets_behind_the_last_request():
    batch, q = Batch([1, 1, 1, 1], 16), randn(4, 4, 576)
    results = []
    for surplus in ((), (7, 1 << 30)):
        batch.indptr = torch.cat((batch.indptr, torch.tensor(surplus, dtype=torch.int32)))
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace(1 << 24))
        batch.plan(wrapper, 4, False)
        results.append(wrapper.run(query=q, kv_cache=batch.cache))
    assert torch.equal(*results)


def test_two_scales_are_refused():
    batch = Batch([1, 1, 1, 1], 16, dtype=torch.float8_e4m3fn)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace(1 << 24))
    batch.plan(wrapper, 4, False)
    with pytest.raises(NotImplementedError, match="kpe_scale is 0.5, ckv_scale 2.0; accepted: one number for both"):
        wrapper.run(query=randn(4, 4, 576), kv_cache=batch.cache, ckv_scale=2.0, kpe_scale=0.5)


@pytest.mark.parametrize("queries", [[1, 1, 1, 1], [3, 2, 0, 16]])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 16])
def test_definition(queries, page, causal, heads):
    batch = Batch(queries, page)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace(1 << 24))
    batch.plan(wrapper, heads, causal)
    q = randn(sum(queries), heads, 576)
    out, lse = wrapper.run(q[..., :512], q[..., 512:], batch.cache[..., :512], batch.cache[..., 512:], return_lse=True)
    want, want_lse = batch.want(q, causal)
    close(out, want)
    close(lse, want_lse)
    given, given_lse = torch.full_like(out, 9), torch.full_like(lse, 9)
    assert wrapper.run(query=q, kv_cache=batch.cache, out=given, lse=given_lse) is given
    assert torch.equal(given, out) and torch.equal(given_lse, lse)
    _, lse = wrapper.run(query=q, kv_cache=batch.cache, return_lse=True, return_lse_base_on_e=True)
    close(lse, want_lse * torch.log(torch.tensor(2.0)).double())


def test_metadata_of_all_kinds_is_the_same():
    batch, results = Batch([3, 2, 1, 4], 8, (64, 16)), []
    dense = {"cum_seq_lens_q": batch.qo, "block_tables": batch.table, "seq_lens": batch.lens}
    q = randn(10, 4, 80)
    for metadata in (None, MLAPlanMetadata.csr(*batch.csr()), MLAPlanMetadata.dense(**dense, max_q_len=4),
                     MLAPlanMetadata.dual(*batch.csr(), **dense)):
        wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace())
        batch.plan(wrapper, 4, True, metadata)
        results.append(wrapper.run(query=q, kv_cache=batch.cache))
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace())
    wrapper.plan(**dense, num_heads=4, head_dim_ckv=64, head_dim_kpe=16, page_size=8, causal=True, sm_scale=192 ** -0.5, q_data_type=HALF,
                 kv_data_type=HALF)
    results.append(wrapper.run(query=q, kv_cache=batch.cache))
    assert all(torch.equal(result, results[0]) for result in results)


def test_fp8_cache():
    batch = Batch([1, 2, 1, 3], 8, dtype=FP8)
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace(1 << 22))
    batch.plan(wrapper, 16, True)
    q = randn(7, 16, 576)
    out = wrapper.run(query=q, kv_cache=(batch.cache[..., :512], batch.cache[..., 512:]), ckv_scale=0.5, kpe_scale=0.5)
    close(out, batch.want(q, True, 0.5)[0])


def test_buffers_for_graphs():
    """Tests that a second plan fills the caller's buffers, and that run() reads them."""
    batch = Batch([1, 1, 1, 1], 8, (64, 16))
    buffers = {"qo_indptr": torch.zeros(5, dtype=torch.int32), "kv_indptr": torch.zeros(5, dtype=torch.int32),
               "kv_indices": torch.full((32,), -1, dtype=torch.int32), "kv_len_arr": torch.zeros(4, dtype=torch.int32)}
    wrapper = flashinfer.BatchMLAPagedAttentionWrapper(workspace(), use_cuda_graph=True, **buffers)
    for lengths in (LENGTHS, [9, 8, 7, 1]):
        batch = Batch([1, 1, 1, 1], 8, (64, 16), lengths)
        batch.plan(wrapper, 4, False)
        assert buffers["kv_len_arr"].tolist() == lengths
        q = randn(4, 4, 80)
        close(wrapper.run(query=q, kv_cache=batch.cache), batch.want(q, False)[0])
    with pytest.raises(ValueError, match="the batch has 3 requests, the buffers are for 4"):
        Batch([1, 1, 1], 8, (64, 16), [1, 2, 3]).plan(wrapper, 4, False)


@pytest.mark.parametrize("change, message", [
    ({"kv_len_arr": torch.tensor([37, 0, 5, 99])}, r"kv_len_arr\[3\] is 99; accepted: 0 to 3 pages of 8"),
    ({"kv_indptr": torch.tensor([0, 1])}, "kv_indptr has 2 entries, kv_len_arr 4"),
    ({"kv_indices": None}, "kv_indices is None; needed beside qo_indptr"),
    ({"causal": 3}, "causal is 3; accepted: True, False"),
    ({"query_layout": "both"}, "query_layout is 'both'; accepted: None, 'packed', 'split'"),
    ({"lse_mode": 2}, "lse_mode is 2; accepted: 'none', 'base2', 'basee'"),
])
def test_wrong_plans(change, message):
    batch = Batch([1, 1, 1, 1], 8, (64, 16))
    plan = dict(zip(("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr"), batch.csr(), strict=True)) | {
        "num_heads": 4, "head_dim_ckv": 64, "head_dim_kpe": 16, "page_size": 8, "causal": False, "sm_scale": 0.1, "q_data_type": HALF,
        "kv_data_type": HALF}
    with pytest.raises(ValueError, match=f"BatchMLAPagedAttentionWrapper: {message}"):
        flashinfer.BatchMLAPagedAttentionWrapper(workspace()).plan(**{**plan, **change})


def test_wrong_runs():
    batch, wrapper = Batch([1, 1, 1, 1], 8, (64, 16)), flashinfer.BatchMLAPagedAttentionWrapper(workspace())
    q = randn(4, 4, 80)
    with pytest.raises(RuntimeError, match=r"plan\(\) comes before run\(\)"):
        wrapper.run(query=q, kv_cache=batch.cache)
    batch.plan(wrapper, 4, False, MLAPlanMetadata.csr(*batch.csr()), query_layout="packed")
    for call, message in (({"query": (q[..., :64], q[..., 64:])}, "query is split, planned was 'packed'"),
                          ({"query": q[..., :70]}, "q_pe has 6 elements, planned were 16"),
                          ({"query": q, "return_lse": True}, "lse_mode was planned for None"),
                          ({"query": q, "out": torch.empty(4, 4, 64)}, "out has dtype torch.float32, needs torch.float16"),
                          ({"query": q, "ckv_scale": 2.0}, "kpe_scale is None, ckv_scale 2.0; accepted: one number for both")):
        with pytest.raises(ValueError, match=message):
            wrapper.run(**call, kv_cache=batch.cache)
    other = MLAPlanMetadata.dual(*batch.csr(), cum_seq_lens_q=batch.qo, block_tables=batch.table.flip(0), seq_lens=batch.lens)
    with pytest.raises(ValueError, match="say other requests"):
        batch.plan(wrapper, 4, False, other)


PYTORCHS = """
import torch, torch_flashinfer_mla_test as t
batch, wrapper = t.Batch([3, 2, 0, 16], 8, (64, 16)), t.flashinfer.BatchMLAPagedAttentionWrapper(t.workspace())
batch.plan(wrapper, 4, True)
q = t.randn(21, 4, 80)
out, lse = wrapper.run(query=q, kv_cache=batch.cache.nan_to_num(), return_lse=True)
want, want_lse = batch.want(q, True)
t.close(out, want); t.close(lse, want_lse)
"""


def test_by_pytorchs_operators():
    done = subprocess.run([sys.executable, "-c", PYTORCHS], capture_output=True, text=True, cwd=os.path.dirname(__file__),
                          env={**os.environ, "SGLANG_DISABLE_FLASHINFER": "1", "SGLANG_LOG_KERNEL": "1"})
    assert done.returncode == 0, done.stderr
    assert "Using PyTorch's operators for BatchMLAPagedAttentionWrapper" in done.stderr


@pytest.mark.parametrize("dtype", [BF16, HALF, FP8])
@pytest.mark.parametrize("tokens", [0, 1, 7])
def test_concat_mla_k(dtype, tokens):
    nope, rope = (randn(tokens, n, dim, dtype=torch.float32).to(dtype) for n, dim in ((6, 128), (1, 64)))
    k = torch.zeros(tokens, 6, 192).to(dtype)
    concat_mla_k(k, nope, rope)
    want = torch.cat([nope.float(), rope.float().expand(-1, 6, -1)], -1)
    assert torch.equal(k.float(), want)


def test_wrong_concat_mla_k():
    k, nope, rope = torch.zeros(3, 2, 24), torch.zeros(3, 2, 16), torch.zeros(3, 1, 8)
    for change, message in (({"k_rope": rope.half()}, "k_rope has dtype torch.float16"), ({"k": k[..., 1:]}, "k has 23 elements, needs 24"),
                            ({"k_rope": rope.expand(3, 2, 8)}, r"k_rope has shape \[3, 2, 8\], needs \[3, 1, any\]"),
                            ({"backend": "fast"}, "backend is 'fast'; accepted: 'default'")):
        with pytest.raises(ValueError, match=f"concat_mla_k: {message}"):
            concat_mla_k(**{"k": k, "k_nope": nope, "k_rope": rope, **change})
