# SPDX-License-Identifier: Apache-2.0
"""quern.compat.aiter's attention, its caches and MLA against f64."""

import pytest

torch = pytest.importorskip("torch")
from aiter_tools import F16, attend, attended  # noqa: E402
from deep_gemm_tools import BF16, F8, F8Z, F32, ints, randn  # noqa: E402

import quern.compat.aiter as aiter  # noqa: E402
from quern.compat.aiter.ops.triton.unified_attention import unified_attention  # noqa: E402

HEADS, KV, D, SIZE = 4, 2, 32, 8
LENS = 19, 0, 8, 33


def nans(*shape, dtype=BF16):
    return torch.full(shape, torch.nan).to(dtype)


def starts(lens):
    return ints(0, *torch.tensor(lens).cumsum(0).tolist())


# ---- dense and ragged

@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (3, 2)}, {"causal": True, "window": (5, -1), "sinks": True},
                                     {"scale": 0.3, "bias": True}])
def test_dense(options, dtype):
    q, k, v = randn(2, 7, HEADS, D, dtype=dtype), randn(2, 11, KV, D, dtype=dtype, seed=1), randn(2, 11, KV, D + 8, dtype=dtype, seed=2)
    sinks, bias = randn(HEADS) if options.get("sinks") else None, randn(7, 11, dtype=dtype) if options.get("bias") else None
    left, right = options.get("window", (-1, -1))
    out, lse = aiter.flash_attn_func(q, k, v, softmax_scale=options.get("scale"), causal=options.get("causal", False),
                                     window_size=(left, right, 0), bias=bias, return_lse=True, sink_ptr=sinks)
    assert lse.shape == (2, HEADS, 7) and lse.is_contiguous()
    for b in range(2):
        want = attend(q[b], k[b], v[b], options.get("scale"), options.get("causal", False), left, right, 0.0, sinks, bias)
        attended(out[b], lse[b].T, want, q, v)
    again = aiter.flash_attn_func(q, k, v, softmax_scale=options.get("scale"), causal=options.get("causal", False),
                                  window_size=(left, right), bias=bias, sink_ptr=sinks)
    assert torch.equal(again, out)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "cap": 2.0}, {"causal": True, "window": (5, 0), "sinks": True}])
@pytest.mark.parametrize("dims", [(D, D), (192, 128)])
def test_ragged(dims, options):
    q_lens, k_lens = (3, 0, 8, 5), LENS
    q, k, v = randn(18, HEADS, dims[0], dtype=BF16), randn(sum(LENS), KV, dims[0], dtype=BF16), randn(sum(LENS), KV, dims[1], dtype=BF16)
    cu_q, cu_k, sinks = starts(q_lens), starts(k_lens), randn(HEADS) if options.get("sinks") else None
    left, right = options.get("window", (-1, -1))
    given = nans(18, HEADS, dims[1])
    out, lse = aiter.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 8, 33, 1, logits_soft_cap=options.get("cap", 0.0),
                                            causal=options.get("causal", False), window_size=(left, right), return_lse=True, out=given,
                                            sink_ptr=sinks)
    assert out is given and lse.shape == (HEADS, 18)
    for i in range(4):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        if q_lens[i]:
            want = attend(q[rows], k[keys], v[keys], None, options.get("causal", False), left, right, options.get("cap", 0.0), sinks)
            attended(out[rows], lse[:, rows].T, want, q, v)
    assert out[16:].isnan().all()  # tokens behind the last sequence are left alone
    longer = aiter.flash_attn_varlen_func(q, k, v, cu_q, cu_k, 8, 33)
    assert not longer[16:].any()


class Pages:
    """Caches of pages for requests of LENS, in places that are not in order."""

    def __init__(self, dtype=BF16, size=SIZE, lens=LENS, dim=D):
        self.lens, self.size = lens, size
        counts = [-(-n // size) for n in lens]
        order = torch.randperm(sum(counts) + 2, generator=torch.Generator().manual_seed(3)).to(torch.int32)
        self.k, self.v = (randn(len(order), size, KV, dim, seed=s).to(dtype) for s in (4, 5))
        self.table = torch.zeros(len(lens), max(counts), dtype=torch.int32)
        for i, count in enumerate(counts):
            self.table[i, :count] = order[sum(counts[:i]):sum(counts[:i + 1])]
        self.indptr, self.indices = starts(counts), torch.cat([row[:n] for row, n in zip(self.table, counts, strict=True)])
        self.last = ints(*(n - max(c - 1, 0) * size for n, c in zip(lens, counts, strict=True)))

    def keys(self, i, scales=(1.0, 1.0)):
        chosen = [(x.float() if x.dtype.itemsize == 1 else x)[self.table[i].long()] for x in (self.k, self.v)]
        return [x.double().flatten(0, 1)[:self.lens[i]] * s for x, s in zip(chosen, scales, strict=True)]

    def x_layout(self, is_asm=False):
        """K [blocks, heads, dim / x, size, x] and V [blocks, heads, dim, size], or [blocks, heads, size / x, dim, x]."""
        x, (blocks, size, heads, dim) = 16 // self.k.element_size(), self.k.shape
        k = self.k.view(blocks, size, heads, dim // x, x).permute(0, 2, 3, 1, 4).contiguous()
        if is_asm:
            return k, self.v.view(blocks, size // x, x, heads, dim).permute(0, 3, 1, 4, 2).contiguous()
        return k, self.v.permute(0, 2, 3, 1).contiguous()


def test_ragged_over_pages():
    cache, q_lens = Pages(), (3, 0, 8, 5)
    q, cu_q = randn(16, HEADS, D, dtype=BF16), starts(q_lens)
    out = aiter.flash_attn_varlen_func(q, cache.k, cache.v, cu_q, starts(LENS), 8, 33, causal=True, block_table=cache.table)
    unified = nans(16, HEADS, D)
    unified_attention(q, cache.k, cache.v, unified, cu_q, 8, ints(*LENS), 33, D ** -0.5, True, (-1, -1), cache.table, 0.0, None, None, None)
    prefilled = aiter.mha_batch_prefill_func(q, cache.k, cache.v, cu_q, cache.indptr, cache.indices, 8, 33, causal=True,
                                             kv_last_page_lens=cache.last)
    own = aiter.mha_batch_prefill_func(q, *cache.x_layout(is_asm=True), cu_q, cache.indptr, cache.indices, 8, 33, causal=True,
                                       kv_last_page_lens=cache.last)
    for i in (0, 2, 3):
        rows = slice(cu_q[i], cu_q[i + 1])
        want = attend(q[rows], *cache.keys(i), causal=True)
        for got in (out, unified, prefilled, own):
            attended(got[rows], None, want, q, cache.v)


@pytest.mark.parametrize("dtype", [BF16, F8])
def test_unified(dtype):
    cache, q_lens = Pages(dtype), (3, 0, 1, 5)
    q, cu_q, sinks, out = randn(9, HEADS, D, dtype=BF16), starts(q_lens), randn(HEADS, dtype=BF16), nans(9, HEADS, D)
    scales = (torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])) if dtype == F8 else (None, None)
    descales = [s if s is None else s.expand(4, KV) for s in scales]
    unified_attention(q, cache.k, cache.v, out, cu_q, 5, ints(*LENS), 33, 0.2, True, (6, 0), cache.table, 3.0, None, *descales, sinks=sinks)
    for i in (0, 2, 3):
        rows = slice(cu_q[i], cu_q[i + 1])
        k, v = cache.keys(i, [1.0 if s is None else s[:, None].double() for s in scales])
        attended(out[rows], None, attend(q[rows], k, v, 0.2, True, 6, -1, 3.0, sinks), q, 3 * cache.v.double())


def test_prefill_of_pages_of_one():
    cache = Pages(size=1)
    q, cu_q = randn(16, HEADS, D, dtype=BF16), starts((3, 0, 8, 5))
    out, lse = aiter.mha_batch_prefill_func(q, cache.k.squeeze(1), cache.v.squeeze(1), cu_q, cache.indptr, cache.indices, 8, 33,
                                            causal=True,
                                            logits_soft_cap=2.0, window_size=(7, 0), return_lse=True)
    for i in (0, 2, 3):
        rows = slice(cu_q[i], cu_q[i + 1])
        attended(out[rows], lse[:, rows].T, attend(q[rows], *cache.keys(i), causal=True, left=7, cap=2.0), q, cache.v)


@pytest.mark.parametrize("kind", [F8, F8Z])
def test_fp8_per_tensor(kind):
    q, k, v = randn(16, HEADS, D).to(kind), randn(sum(LENS), KV, D).to(kind), randn(sum(LENS), KV, D, seed=1).to(kind)
    scales = torch.tensor([0.5]), torch.tensor([2.0]), torch.tensor([0.25])
    cu_q, cu_k = starts((3, 0, 8, 5)), starts(LENS)
    out = aiter.flash_attn_varlen_fp8_pertensor_func(q, k, v, *scales, cu_q, cu_k, 8, 33, causal=True)
    wide = [x.double() * s for x, s in zip((q, k, v), scales, strict=True)]
    dense = aiter.flash_attn_fp8_pertensor_func(q[None], k[None], v[None], *scales, causal=True)
    attended(dense[0], None, attend(*wide, causal=True), q, wide[2])
    for i in (0, 2, 3):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        attended(out[rows], None, attend(wide[0][rows], wide[1][keys], wide[2][keys], causal=True), q, wide[2])


# ---- decoding

@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("dtype, word", [(BF16, "auto"), (F8, "fp8"), (F8, "fp8_e4m3")])
@pytest.mark.parametrize("form", ["v1", "op", "ragged", "ragged op"])
def test_paged_decode(form, dtype, word, layout):
    cache, scales = Pages(dtype), (0.5, 3.0) if word != "auto" else (1.0, 1.0)
    q, out, space = randn(4, HEADS, D, dtype=BF16), nans(4, HEADS, D), torch.empty(0, dtype=torch.uint8)
    k, v = (x if layout == "NHD" else x.transpose(1, 2).contiguous() for x in (cache.k, cache.v))
    k, v = (x.view(torch.uint8) if word == "fp8" else x for x in (k, v))
    tensors = [torch.tensor([s]) for s in scales]
    functions = torch.ops.aiter if "op" in form else aiter
    if "ragged" in form:
        functions.paged_attention_ragged(out, space, q, k, v, 0.3, cache.indptr, cache.indices, cache.last, SIZE, 1, None, word, layout,
                                         2.0,
                                         *tensors, None, 256)
    else:
        functions.paged_attention_v1(out, space, q, k, v, 0.3, cache.table, None, ints(*LENS), 33, None, word, layout, 2.0, *tensors, None,
                                     256, 1, 6)
    for i in range(4):
        keys = cache.keys(i, scales)
        attended(out[i:i + 1], None, attend(q[i:i + 1], *keys, 0.3, True, -1 if "ragged" in form else 5, -1, 2.0), q,
                 cache.v.double() * scales[1])


@pytest.mark.parametrize("has_end", [True, False])
def test_paged_decode_of_several_queries(has_end):
    cache, q, cu_q = Pages(), randn(6, HEADS, D, dtype=BF16), ints(0, 2, 2, 4, 6)
    out, one = nans(6, HEADS, D), torch.ones(1)
    begins = cu_q if has_end else cu_q[:-1]  # as vLLM gives it
    aiter.paged_attention_v1(out, one, q, cache.k, cache.v, 0.3, cache.table, begins, ints(*LENS), 33, None, "auto", "NHD", 0.0, one, one,
                             mtp=2)
    for i in (0, 2, 3):
        rows = slice(cu_q[i], cu_q[i + 1])
        attended(out[rows], None, attend(q[rows], *cache.keys(i), 0.3, True), q, cache.v)


@pytest.mark.parametrize("dtype", [BF16, F8])
def test_own_layouts(dtype):
    cache = Pages(dtype, 16)
    scales = (0.5, 3.0) if dtype == F8 else (1.0, 1.0)
    tensors, word = [torch.tensor([s]) for s in scales], "fp8" if dtype == F8 else "auto"
    q, lens, space = randn(4, HEADS, D, dtype=BF16), ints(*LENS), torch.empty(0)
    out = nans(4, HEADS, D)
    k, v = cache.x_layout()
    results = [aiter.paged_attention_rocm(out, space, space, space, q, k, v, KV, D ** -0.5, cache.table, lens, 16, 33, None, word,
                                          *tensors)]
    for is_asm in (False, True):
        k, v = cache.x_layout(is_asm)
        results.append(aiter.pa_fwd_asm(q, k, v, cache.table, lens, cache.table.stride(0), 1, *tensors))
        results.append(aiter.paged_attention_common(q, k, v, space, space, space, cache.table, lens, cache.table.stride(0), D ** -0.5, 1,
                                                    33,
                                                    *tensors, kv_cache_dtype=word))
    assert results[0] is out
    for got in results:
        for i in range(4):
            attended(got[i:i + 1], None, attend(q[i:i + 1], *cache.keys(i, scales)), q, cache.v.double() * scales[1])


# ---- writes to caches

@pytest.mark.parametrize("word", ["auto", "fp8"])
@pytest.mark.parametrize("layout", ["flash", "x", "asm"])
def test_writes(layout, word):
    key, value, slots = randn(5, KV, D, dtype=BF16), randn(5, KV, D, dtype=BF16, seed=1), torch.tensor([17, -1, 3, 40, 0])
    kind, scales = (F8, (torch.tensor([0.5]), torch.tensor([2.0]))) if word == "fp8" else (BF16, (torch.ones(1), torch.ones(1)))
    cache = Pages(kind, 16)
    cache.k, cache.v = (x[:3].float().zero_().to(kind) for x in (cache.k, cache.v))
    if layout == "flash":
        aiter.reshape_and_cache_flash(key, value, cache.k, cache.v, slots, word, *scales)
        k, v = cache.k, cache.v
    else:
        k, v = cache.x_layout(layout == "asm")
        bytes_ = [x.view(torch.uint8) for x in (k, v)] if word == "fp8" else (k, v)
        aiter.reshape_and_cache(key, value, *bytes_, slots, word, *scales, asm_layout=layout == "asm")
        k = k.permute(0, 3, 1, 2, 4).reshape(3, 16, KV, D)
        v = v.permute(0, 2, 4, 1, 3).reshape(3, 16, KV, D) if layout == "asm" else v.permute(0, 3, 1, 2)
    for cached, new, scale in ((k, key, scales[0]), (v, value, scales[1])):
        flat, used = cached.float().reshape(48, KV, D), slots >= 0
        want = (new.float() / scale).to(kind).float()
        assert torch.equal(flat[slots[used]], want[used])
        flat[slots[used]] = 0
        assert not flat.any()


@pytest.mark.parametrize("word", ["auto", "fp8_e4m3"])
def test_writes_of_mla(word):
    kv_c, k_pe, slots = randn(3, 64, dtype=BF16), randn(3, 16, dtype=BF16), torch.tensor([5, -1, 2])
    cache = torch.zeros(2, 4, 80).to(F8 if word != "auto" else BF16)
    aiter.concat_and_cache_mla(kv_c, k_pe, cache, slots, word, torch.tensor([2.0]))
    want = (torch.cat([kv_c, k_pe], 1).float() / (1 if word == "auto" else 2)).to(cache.dtype).float()
    flat = cache.float().view(8, 80)
    assert torch.equal(flat[[5, 2]], want[[0, 2]]) and not flat[[0, 1, 3, 4, 6, 7]].any()


# ---- MLA

@pytest.mark.parametrize("size", [1, 8])
@pytest.mark.parametrize("dtype", [BF16, F8])
def test_mla(dtype, size):
    heads, dim, rope, q_lens = 16, 128, 64, (1, 0, 3, 2)
    counts = [-(-n // size) for n in LENS]
    pages = randn(sum(counts), size, 1, dim + rope).to(dtype)
    indices = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(1)).to(torch.int32)
    last = ints(*(n - max(c - 1, 0) * size for n, c in zip(LENS, counts, strict=True)))
    q, cu_q, indptr = randn(6, heads, dim + rope, dtype=BF16), starts(q_lens), starts(counts)
    scale, options = 0.5 if dtype == F8 else 1.0, {"kv_scale": torch.tensor([0.5])} if dtype == F8 else {}
    info = aiter.get_mla_metadata_info_v1(4, 3, heads, BF16, dtype)
    buffers = dict(zip(("work_meta_data", "work_indptr", "work_info_set", "reduce_indptr", "reduce_final_map", "reduce_partial_map"),
                       (torch.empty(shape, dtype=kind) for shape, kind in info), strict=True))
    for causal in (True, False):
        o = nans(6, heads, dim)
        got, lse = aiter.mla.mla_decode_fwd(q, pages, o, cu_q, indptr, indices, last, 3, size, sm_scale=0.1, causal=causal, return_lse=True,
                                            **options, **buffers)
        assert got.data_ptr() == o.data_ptr() and got.shape == (6, 1, heads, dim)
        for i in (0, 2, 3):
            rows = slice(cu_q[i], cu_q[i + 1])
            keys = pages.float()[indices[indptr[i]:indptr[i + 1]].long()].double().flatten(0, 1)[:LENS[i]] * scale
            attended(o[rows], lse[rows], attend(q[rows], keys, keys[..., :dim], 0.1, causal), q, keys)
        if causal and dtype == BF16:
            again = nans(6, heads, dim)
            out, lse_again = aiter.mla.mla_prefill_fwd(q, pages, again, cu_q, indptr, indices, last, 3, 0.1)
            assert out is again and torch.equal(again, o) and torch.equal(lse_again[:, 0, :, 0], lse)
    assert aiter.mla.mla_decode_fwd(q, pages, o, cu_q, indptr, indices, last, 3, size)[1] is None
    assert aiter.get_mla_metadata_v1(cu_q, indptr, last, heads, 1, True, *[buffers[n] for n in (
        "work_meta_data", "work_info_set", "work_indptr", "reduce_indptr", "reduce_final_map", "reduce_partial_map")]) is None
