# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's attention over shared keys, of mixed batches and of packed segments: FlashInfer's grids, reduced, and
its tolerances, against a definition in float64."""

import gc
import os
import subprocess
import sys
import tracemalloc

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
import quern  # noqa: E402
from attention_tools import visible  # noqa: E402
from flashinfer_tools import HALF, LAYOUTS, Pages, close, expected, offsets, randn, turned, workspace  # noqa: E402
from torch_tools import as_torch  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

BF16 = torch.bfloat16


# ---- keys in levels

def over_levels(q, pages, parts, causal):
    """Computes one request's result over the keys of several entries of the batch, of which only the last is causal."""
    k, v = (torch.cat([store[part] for part in parts]) for store in (pages.k, pages.v))
    own = pages.lengths[parts[-1]]
    seen = np.ones((len(q), len(k)), bool)
    seen[:, len(k) - own:] = visible(len(q), own, is_causal=causal)
    return expected(q, k, v, mask=seen)[0]


def cascade(pages, levels, qo_arrays, heads, dim, layout="NHD", **options):
    """Returns a planned wrapper. levels: for each its first request in the batch, and the one after its last."""
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(len(levels), workspace(), layout)
    kv_heads = pages.k[0].shape[1]
    arrays = zip(*(pages.part(*level) for level in levels), strict=True)
    wrapper.plan([offsets(lens) for lens in qo_arrays], *map(list, arrays), heads, kv_heads, dim, pages.page, **options)
    return wrapper


def stages(stage, own):
    """Returns how many queries each request has at a stage."""
    return [1] * len(own) if stage == "decode" else [max(n, 1) if b != 1 else 0 for b, n in enumerate(own)]


@pytest.mark.parametrize("stage, causal", [("decode", False), ("decode", True), ("append", False), ("append", True)])
@pytest.mark.parametrize("own", [[37, 17, 1], [5, 0, 12, 16]])
@pytest.mark.parametrize("shared", [0, 13, 128])
@pytest.mark.parametrize("page", [1, 5, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shared_prefix(stage, causal, own, shared, page, layout):
    """Tests a shared prefix in two levels, and by the wrappers of a prefix that lies apart."""
    pages = Pages([shared, *own], page, dim=128, layout=layout, as_one=layout == "NHD")
    qo = stages(stage, own)
    q, starts = randn(sum(qo), 8, 128), offsets(qo)
    wrapper = cascade(pages, [(0, 1), (1, len(own) + 1)], [[len(q)], qo], 8, 128, layout, causal=causal)
    out = wrapper.run(q, pages.cache)
    for b in range(len(own)):
        rows = slice(starts[b], starts[b + 1])
        close(out[rows], over_levels(q[rows], pages, [0, b + 1], causal))
    k, v = (turned(store[0].half(), layout) for store in (pages.k, pages.v))
    if stage == "append":
        apart = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(workspace(), layout)
        apart.begin_forward(starts, *pages.part(1, len(own) + 1), 8, 2, 128, page)
        close(apart.forward(q, k, v, pages.cache, causal=causal), out)
    elif not causal:
        apart = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(workspace(), layout)
        apart.begin_forward(*pages.part(1, len(own) + 1), 8, 2, 128, page)
        close(apart.forward(q, k, v, pages.cache), out)


@pytest.mark.parametrize("dtype, tolerance", [(HALF, 1e-3), (BF16, 1e-2)])
@pytest.mark.parametrize("options", [{}, {"logits_soft_cap": 8.0}, {"sm_scale": 0.3}], ids=lambda o: next(iter(o), "plain"))
@pytest.mark.parametrize("heads, kv_heads", [(4, 4), (8, 2), (7, 1)])
def test_three_levels(dtype, tolerance, options, heads, kv_heads):
    """Tests a prefix of all, one of two groups, one of them empty, and each request's own, one of them empty."""
    pages = Pages([20, 9, 0, 6, 0, 3, 11], 4, kv_heads, dtype=dtype)
    qo = [2, 1, 4, 3]
    q, starts = randn(10, heads, 64, dtype=dtype), offsets(qo)
    wrapper = cascade(pages, [(0, 1), (1, 3), (3, 7)], [[10], [3, 7], qo], heads, 64, causal=True, q_data_type=dtype, **options)
    out = wrapper.run(q, pages.cache)
    assert torch.equal(wrapper.forward(q, pages.cache), out) and out.dtype == dtype
    cap, scale = options.get("logits_soft_cap", 0.0), options.get("sm_scale")
    for b in range(4):
        rows, parts = slice(starts[b], starts[b + 1]), [0, 1 + b // 2, 3 + b]
        k, v = (torch.cat([store[part] for part in parts]) for store in (pages.k, pages.v))
        own = pages.lengths[parts[-1]]
        seen = np.ones((qo[b], len(k)), bool)
        seen[:, len(k) - own:] = visible(qo[b], own, is_causal=True)
        close(out[rows], expected(q[rows], k, v, mask=seen, logits_soft_cap=cap, sm_scale=scale)[0], tolerance)


def test_one_level_takes_positions_and_windows():
    pages, q = Pages([33, 7], 8), randn(9, 4, 64)
    for options in ({"pos_encoding_mode": "ROPE_LLAMA"}, {"pos_encoding_mode": "ALIBI"}, {"window_left": 3}):
        wrapper = cascade(pages, [(0, 2)], [[5, 4]], 4, 64, causal=True, **options)
        alone = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
        alone.plan(offsets([5, 4]), *pages.arrays(), 4, 2, 64, 8, causal=True, **options)
        assert torch.equal(wrapper.run(q, pages.cache), alone.run(q, pages.cache))


def test_nothing_to_see_and_nobody_to_see_it():
    pages = Pages([0, 0, 0], 4)
    wrapper = cascade(pages, [(0, 1), (1, 3)], [[2], [1, 1]], 4, 64)
    assert (wrapper.run(randn(2, 4, 64), pages.cache) == 0).all()
    wrapper = cascade(pages, [(0, 1), (1, 3)], [[0], [0, 0]], 4, 64)
    assert wrapper.run(randn(0, 4, 64), pages.cache).shape == (0, 4, 64)


def test_an_fp8_cache_in_levels():
    pages, q = Pages([12, 9, 4], 4, dtype=torch.float8_e4m3fn), randn(2, 4, 64)
    wrapper = cascade(pages, [(0, 1), (1, 3)], [[2], [1, 1]], 4, 64, kv_data_type=torch.float8_e4m3fn)
    out = wrapper.run(q, pages.cache)
    for b in range(2):
        close(out[b:b + 1], over_levels(q[b:b + 1], pages, [0, b + 1], False), 2e-3)


def test_fixed_buffers_of_levels():
    """Tests buffers as a captured graph needs them: planned again and again, for the same numbers of requests."""
    sizes, wrapper = (2, 4), None
    buffers = ([torch.empty(n, dtype=torch.int32) for n in sizes], [torch.empty(n, dtype=torch.int32) for n in sizes],
               [torch.empty(32, dtype=torch.int32) for _ in sizes], [torch.empty(n - 1, dtype=torch.int32) for n in sizes])
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD", True, *buffers)
    assert wrapper.is_cuda_graph_enabled
    for lengths in ([16, 9, 4, 30], [3, 1, 1, 1], [40, 8, 0, 7]):
        pages, q = Pages(lengths, 8), randn(3, 4, 64)
        levels = [pages.part(0, 1), pages.part(1, 4)]
        wrapper.plan([offsets([3]), offsets([1, 1, 1])], *map(list, zip(*levels, strict=True)), 4, 2, 64, 8)
        for buffer, (_, indices, _) in zip(buffers[2], levels, strict=True):
            assert torch.equal(buffer[:len(indices)], indices)
        out = wrapper.run(q, pages.cache)
        for b in range(3):
            close(out[b:b + 1], over_levels(q[b:b + 1], pages, [0, b + 1], False))
    with pytest.raises(ValueError, match="qo_indptr_buf_arr has None, needs one for each of 2 levels"):
        flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD", True)


# ---- mixed batches

PAIRS = [[(146, 146)], [(67, 67)], [(54, 1)] * 5, [(99, 17)] * 2, [(100, 1)] * 4 + [(500, 3)] * 2, [(2, 35), (1, 133)],
         [(0, 0), (5, 0), (0, 3), (9, 9)]]


@pytest.mark.parametrize("pairs", PAIRS, ids=str)
@pytest.mark.parametrize("page, layout", [(1, "NHD"), (5, "HND"), (16, "NHD")])
@pytest.mark.parametrize("heads, kv_heads, dim", [(1, 1, 64), (7, 1, 64), (8, 4, 128)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype, options", [(BF16, {}), (HALF, {"logits_soft_cap": 50.0, "v_scale": 2.0})], ids=str)
def test_batch_attention(pairs, page, layout, heads, kv_heads, dim, causal, dtype, options):
    kv_lens, qo_lens = map(list, zip(*pairs, strict=True))
    pages, starts = Pages(kv_lens, page, kv_heads, dim, dtype, layout), offsets(qo_lens)
    q = randn(sum(qo_lens), heads, dim, dtype=dtype)
    cap = options.get("logits_soft_cap", 0.0)
    wrapper = flashinfer.BatchAttention(layout, "cpu")
    wrapper.plan(starts, pages.indptr, pages.indices, torch.tensor(kv_lens), heads, kv_heads, dim, dim, page, causal,
                 logits_soft_cap=cap, q_data_type=dtype, kv_data_type=dtype)
    out, lse = wrapper.run(q, pages.cache, **options)
    for b in range(len(pairs)):
        rows = slice(starts[b], starts[b + 1])
        want, want_lse = expected(q[rows], pages.k[b], pages.v[b], is_causal=causal, logits_soft_cap=cap,
                                  v_scale=options.get("v_scale", 1.0))
        close(out[rows], want, 1e-2)
        close(lse[rows], want_lse, 1e-2)


def test_batch_attention_with_pages_to_spare_and_outputs():
    """Tests that kv_len_arr says how many of a request's pages are in use, and that results may be written to a given
    place."""
    pages, q = Pages([9, 4, 17], 4), randn(6, 4, 64)
    spare = [torch.cat([pages.part(b, b + 1)[1], torch.tensor([99] * b, dtype=torch.int32)]) for b in range(3)]
    wrapper = flashinfer.BatchAttention(device="cpu")
    wrapper.plan(offsets([1, 3, 2]), offsets([len(x) for x in spare]), torch.cat(spare), torch.tensor([9, 4, 17]), 4, 2, 64, 64, 4,
                 True, q_data_type=HALF, kv_data_type=HALF)
    out, lse = torch.empty(6, 4, 64).half(), torch.empty(6, 4)
    got = wrapper.run(q, pages.cache, out, lse, k_scale=torch.tensor(0.5), v_scale=torch.tensor([3.0]))
    assert got[0] is out and got[1] is lse
    alone = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
    alone.plan(offsets([1, 3, 2]), *pages.arrays(), 4, 2, 64, 4, causal=True)
    same, same_lse = alone.run(q, pages.cache, k_scale=0.5, v_scale=3.0, return_lse=True)
    close(out, same)
    close(lse, same_lse)


@pytest.mark.parametrize("change, error, text", [
    ({"kv_len_arr": torch.tensor([10, 5])}, ValueError, r"kv_len_arr\[0\] is 10; accepted: 0 to 2 pages of 4"),
    ({"kv_len_arr": torch.tensor([8, -1])}, ValueError, r"kv_len_arr\[1\] is -1"),
    ({"kv_len_arr": torch.tensor([8])}, ValueError, "kv_indptr has 3 entries, kv_len_arr 1"),
    ({"use_profiler": True}, NotImplementedError, "use_profiler is not supported; found True, accepted: None"),
    ({"num_qo_heads": 5}, ValueError, "num_qo_heads 5"),
])
def test_errors_of_batch_attention_plan(change, error, text):
    pages, wrapper = Pages([8, 5], 4), flashinfer.BatchAttention(device="cpu")
    arguments = {"qo_indptr": offsets([1, 1]), "kv_indptr": pages.indptr, "kv_indices": pages.indices,
                 "kv_len_arr": torch.tensor([8, 5]), "num_qo_heads": 4, "num_kv_heads": 2, "head_dim_qk": 64, "head_dim_vo": 64,
                 "page_size": 4}
    with pytest.raises(error, match=text):
        wrapper.plan(**{**arguments, **change})
    with pytest.raises(RuntimeError, match=r"plan\(\) comes before run"):
        wrapper.run(randn(2, 4, 64), pages.cache)


@pytest.mark.parametrize("change, error, text", [
    ({"logits_soft_cap": 5.0}, ValueError, "logits_soft_cap is 5.0, but none was planned"),
    ({"profiler_buffer": torch.zeros(1)}, NotImplementedError, "profiler_buffer is not supported; found a Tensor"),
    ({"kv_cache_sf": torch.zeros(1)}, NotImplementedError, "kv_cache_sf"), ({"k_scale": torch.ones(3)}, ValueError, "k_scale has 3"),
    ({"q": randn(2, 4, 32)}, ValueError, "q has head_dim 32, planned was 64"),
    ({"q": randn(2, 4, 64).bfloat16()}, ValueError, "planned were torch.float16"),
])
def test_errors_of_batch_attention_run(change, error, text):
    pages, wrapper = Pages([8, 5], 4), flashinfer.BatchAttention(device="cpu")
    wrapper.plan(offsets([1, 1]), pages.indptr, pages.indices, torch.tensor([8, 5]), 4, 2, 64, 64, 4, q_data_type=HALF,
                 kv_data_type=HALF)
    with pytest.raises(error, match=text):
        wrapper.run(**{"q": randn(2, 4, 64), "kv_cache": pages.cache, **change})


# ---- sinks

@pytest.mark.parametrize("dtype, tolerance", [(HALF, 1e-3), (BF16, 1e-2)])
@pytest.mark.parametrize("qo, lengths", [([1] * 3, [16, 1, 33]), ([16, 4], [16, 20]), ([0, 5], [7, 3])])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("window_left", [-1, 13])
@pytest.mark.parametrize("causal", [False, True])
def test_sinks(dtype, tolerance, qo, lengths, page, window_left, causal):
    pages, starts = Pages(lengths, page, dtype=dtype), offsets(qo)
    q, sink = randn(sum(qo), 8, 64, dtype=dtype), torch.linspace(-2, 5, 8)
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), q_data_type=dtype, kv_data_type=dtype,
                                                                head_dim_qk=64, head_dim_vo=64, window_left=window_left)
    wrapper.plan(starts, *pages.arrays(), 8, 2, 64, page, causal=causal, window_left=window_left, q_data_type=dtype,
                 kv_data_type=dtype)
    out, lse = wrapper.run(q, pages.cache, sink, 0.2, return_lse=True)
    for b in range(len(lengths)):
        rows = slice(starts[b], starts[b + 1])
        want, want_lse = expected(q[rows], pages.k[b], pages.v[b], is_causal=causal, window_left=window_left, sm_scale=0.2,
                                  sinks=sink.numpy())
        close(out[rows], want, tolerance)
        close(lse[rows], want_lse)
    same, same_lse = wrapper.run_return_lse(q, pages.cache, sinks=sink, sm_scale=0.2)
    assert torch.equal(same, out) and torch.equal(same_lse, lse)


def test_what_the_sink_wrapper_was_made_for():
    """Tests that the constructor's word holds if plan() says nothing."""
    pages, q, sink = Pages([20, 9], 4, dtype=BF16), randn(5, 4, 64, dtype=BF16), torch.zeros(4)
    wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), window_left=3, pos_encoding_mode="ROPE_LLAMA")
    wrapper.plan(offsets([3, 2]), *pages.arrays(), 4, 2, 64, 4, causal=True)  # bf16, as the constructor's default
    out = wrapper.run(q, pages.cache, sink)
    close(out[3:], expected(q[3:], pages.k[1], pages.v[1], "ROPE_LLAMA", is_causal=True, window_left=3,
                            sinks=np.zeros(4))[0], 1e-2)
    wrapper.plan(offsets([3, 2]), *pages.arrays(), 4, 2, 64, 4, causal=True, window_left=-1)
    close(wrapper.run(q, pages.cache, sink)[3:], expected(q[3:], pages.k[1], pages.v[1], "ROPE_LLAMA", is_causal=True,
                                                          sinks=np.zeros(4))[0], 1e-2)
    for said, planned, text in (({"q_data_type": HALF}, {"q_data_type": BF16}, "q_data_type is torch.bfloat16 in plan"),
                                ({"head_dim_qk": 256}, {}, "head_dim_qk is 64 in plan.*the constructor said 256"),
                                ({"pos_encoding_mode": "ALIBI"}, {"pos_encoding_mode": "NONE"}, "pos_encoding_mode is NONE")):
        wrapper = flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), **said)
        with pytest.raises(ValueError, match=text):
            wrapper.plan(offsets([3, 2]), *pages.arrays(), 4, 2, 64, 4, **planned)
    for sinks, text in (((None,), "found neither"), ((sink, None, sink), "found both")):
        with pytest.raises(ValueError, match=text):
            wrapper.run(q, pages.cache, *sinks[:2], sinks=sinks[2] if len(sinks) > 2 else None)
    with pytest.raises(NotImplementedError, match="use_fp16_qk_reduction"):
        flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), use_fp16_qk_reduction=True)


# ---- packed segments

@pytest.mark.parametrize("qo, kv", [([17], [17]), ([1, 17, 0, 40], [17, 33, 5, 77]), ([10] * 3, [50, 0, 1]), ([0], [0])])
@pytest.mark.parametrize("kv_heads", [2, 8])
@pytest.mark.parametrize("dim_qk, dim_vo", [(192, 128), (128, 128), (64, 64)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype, tolerance", [(HALF, 1e-3), (BF16, 1e-2)])
def test_fmha_varlen(qo, kv, kv_heads, dim_qk, dim_vo, causal, dtype, tolerance):
    q = randn(sum(qo), 8, dim_qk, dtype=dtype)
    packed = randn(sum(kv), kv_heads, dim_qk + dim_vo, dtype=dtype)
    k, v = packed[..., :dim_qk], packed[..., dim_qk:]  # strided, as one projection's output has them
    starts, kv_starts = offsets(qo), offsets(kv)
    out, lse = flashinfer.fmha_varlen(q, k, v, starts, kv_starts, causal=causal, return_lse=True)
    for b in range(len(qo)):
        rows, keys = slice(starts[b], starts[b + 1]), slice(kv_starts[b], kv_starts[b + 1])
        want, want_lse = expected(q[rows], k[keys], v[keys], is_causal=causal)
        close(out[rows], want, tolerance)
        close(lse[rows], want_lse)


def test_fmha_varlen_planned_once_with_places_and_scales():
    q, k, v = (randn(n, h, 64).to(torch.float8_e4m3fn) for n, h in ((9, 4), (33, 2), (33, 2)))
    starts, kv_starts = offsets([2, 7]), offsets([20, 13])
    plan = flashinfer.fmha_varlen_plan(None, starts, kv_starts, 4, True)
    out, lse = torch.empty(9, 4, 64, dtype=BF16), torch.empty(9, 4)
    got = flashinfer.fmha_varlen(q, k, v, starts, kv_starts, plan, 7, out, lse, True, 0.1, 2.0, 0.5, 3.0)
    assert got[0] is out and got[1] is lse
    want, want_lse = expected(q.float()[2:] * 2, k.float()[20:] / 2, v.float()[20:] * 3, is_causal=True, sm_scale=0.1)
    close(out[2:], want, 1e-2)
    close(lse[2:], want_lse)
    again, nothing = flashinfer.fmha_varlen(q, k, v, starts, kv_starts, plan, causal=True, sm_scale=0.1, q_scale=2.0, k_scale=0.5,
                                            v_scale=3.0)
    assert nothing is None and torch.equal(again, out)


@pytest.mark.parametrize("change, error, text", [
    ({"plan_info": []}, TypeError, "plan_info is a list"), ({"o_scale": 2.0}, NotImplementedError, "o_scale is not supported; found 2.0"),
    ({"max_qo_len": 6}, ValueError, "max_qo_len is 6, the longest request has 7 queries"),
    ({"plan_info": flashinfer.fmha_varlen_plan(None, offsets([2, 7]), offsets([20, 13]), 4, True)}, ValueError,
     "q has 4 heads and causal is False, plan_info is for 4 and True"),
    ({"k": randn(32, 2, 64)}, ValueError, "all but head_dim need"), ({"q_scale": 0.0}, ValueError, "q_scale is 0"),
    ({"out": torch.empty(9, 4, 64)}, ValueError, "out has dtype"),
    ({"kv_segment_offsets": offsets([20])}, ValueError, "kv_segment_offsets has 2 entries"),
])
def test_errors_of_fmha_varlen(change, error, text):
    arguments = {"q": randn(9, 4, 64), "k": randn(33, 2, 64), "v": randn(33, 2, 64), "qo_segment_offsets": offsets([2, 7]),
                 "kv_segment_offsets": offsets([20, 13])}
    with pytest.raises(error, match=text):
        flashinfer.fmha_varlen(**{**arguments, **change})


# ---- errors of levels

@pytest.mark.parametrize("change, error, text", [
    ({"window_left": 5}, NotImplementedError, "window_left is 5; accepted of several levels.*: -1"),
    ({"pos_encoding_mode": "ALIBI"}, NotImplementedError, "pos_encoding_mode is 'ALIBI'; accepted of several levels.*: 'NONE'"),
    ({"use_fp16_qk_reduction": True}, NotImplementedError, "use_fp16_qk_reduction"),
    ({"qo_indptr_arr": [offsets([2])]}, ValueError, "qo_indptr_arr has 1 entries, needs one for each of 2 levels"),
    ({"qo_indptr_arr": [offsets([3]), offsets([1, 1])]}, ValueError, r"qo_indptr_arr ends with \[3, 2\]"),
    ({"num_kv_heads": 3}, ValueError, "no multiple of num_kv_heads 3"),
    ({"paged_kv_last_page_len": [torch.tensor([4]), torch.tensor([1, 5])]}, ValueError, r"kv_last_page_len\[1\] is 5"),
])
def test_errors_of_levels(change, error, text):
    """Tests that a plan that fails at its last level leaves no plan of the others behind."""
    pages = Pages([8, 5, 2], 4)
    wrapper = cascade(pages, [(0, 1), (1, 3)], [[2], [1, 1]], 4, 64)
    levels = zip(pages.part(0, 1), pages.part(1, 3), strict=True)
    names = ("paged_kv_indptr_arr", "paged_kv_indices_arr", "paged_kv_last_page_len")
    arguments = {"qo_indptr_arr": [offsets([2]), offsets([1, 1])], **dict(zip(names, map(list, levels), strict=True)),
                 "num_qo_heads": 4, "num_kv_heads": 2, "head_dim": 64, "page_size": 4}
    with pytest.raises(error, match=text):
        wrapper.plan(**{**arguments, **change})
    with pytest.raises(RuntimeError, match=r"plan\(\) comes before run"):
        wrapper.run(randn(2, 4, 64), pages.cache)


def test_errors_of_shared_prefix():
    pages, q = Pages([5, 2], 4), randn(3, 4, 64)
    k, v = randn(8, 2, 64), randn(8, 2, 64)
    wrapper = flashinfer.BatchPrefillWithSharedPrefixPagedKVCacheWrapper(workspace())
    with pytest.raises(RuntimeError, match=r"plan\(\) comes before run"):
        wrapper.forward(q, k, v, pages.cache)
    wrapper.begin_forward(offsets([1, 2]), *pages.arrays(), 4, 2, 64, 4)
    for options, error, text in (({"rope_theta": 1e5}, NotImplementedError, "rope_theta is not supported; found 100000.0"),
                                 ({"use_fp16_qk_reduction": True}, NotImplementedError, "use_fp16_qk_reduction"),
                                 ({"k_shared": k[:, :1]}, ValueError, "k_shared is"), ({"q": q[:2]}, ValueError, "q has 2 rows"),
                                 ({"k_shared": k.bfloat16()}, NotImplementedError, "PagedKVCacheWrapper: k_shared has dtype bf16")):
        with pytest.raises(error, match=text):
            wrapper.forward(**{"q": q, "k_shared": k, "v_shared": v, "unique_kv_cache": pages.cache, **options})
    for variant, error in (("other", ValueError), ("independent", None)):
        with pytest.raises(error) if error else open(os.devnull):
            wrapper.prewarm_paged_kv_stride_variant(variant)
    with pytest.raises(ValueError, match="num_levels is 0"):
        flashinfer.MultiLevelCascadeAttentionWrapper(0, workspace())


# ---- as serving engines call them: planned for each step, run for each layer

def serve(wrapper, batches, layers, run):
    """Plans and runs every batch, with the same workspace each time."""
    for pages, plan in batches:
        plan(wrapper, pages)
        for _ in range(layers):
            run(wrapper, pages)


def live_tensors():
    return sum(issubclass(type(x), torch.Tensor) for x in gc.get_objects())


def plan_decode(wrapper, pages):
    wrapper.plan(*pages.arrays(), 8, 2, 64, 16)


def plan_levels(wrapper, pages):
    levels = [pages.part(0, 1), pages.part(1, 4)]
    wrapper.plan([offsets([3]), offsets([1, 1, 1])], *map(list, zip(*levels, strict=True)), 8, 2, 64, 16)


def plan_mixed(wrapper, pages):
    wrapper.plan(offsets([1] * 4), pages.indptr, pages.indices, torch.tensor(pages.lengths), 8, 2, 64, 64, 16, q_data_type=HALF,
                 kv_data_type=HALF)


SERVING = {
    "decode": (lambda w: flashinfer.BatchDecodeWithPagedKVCacheWrapper(w), plan_decode, 4),
    "levels": (lambda w: flashinfer.MultiLevelCascadeAttentionWrapper(2, w), plan_levels, 3),
    "mixed": (lambda w: flashinfer.BatchAttention(device="cpu"), plan_mixed, 4),
}


@pytest.mark.parametrize("kind", SERVING)
def test_planned_many_times_without_growing(kind):
    """Tests that neither tensors nor Python's memory, NumPy's included, grow with the number of plans and runs."""
    make, plan, queries = SERVING[kind]
    wrapper, q = make(workspace()), randn(queries, 8, 64)
    batches = [(Pages(lengths, 16), plan) for lengths in ([700, 40, 3, 17], [100, 900, 50, 0], [16, 16, 16, 16])]

    def held(count):
        """Returns the blocks and bytes of Python's memory after that many turns."""
        for _ in range(count):
            serve(wrapper, batches, 1, lambda w, pages: w.run(q, pages.cache))
        gc.collect()
        return np.array([sys.getallocatedblocks(), tracemalloc.get_traced_memory()[0]])

    held(60)  # until Python's lists of free objects are full
    before = live_tensors()
    tracemalloc.start()
    counts = [held(20) for _ in range(6)]
    tracemalloc.stop()
    # PyTorch goes on to take blocks of its own, now 40 in 60 plans and now none; a leak shows every time.
    blocks, size = np.diff(counts, axis=0).min(axis=0)
    assert live_tensors() == before
    assert blocks < 60 // 2, f"{blocks} more blocks in each 60 plans and runs"
    assert size < 60 * 100, f"{size} more bytes in each 60 plans and runs"


def allocated(call):
    """Returns the bytes that PyTorch gives out during the call."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    return sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())


@pytest.mark.parametrize("kind", SERVING)
def test_a_run_allocates_its_results_alone(kind):
    make, plan, queries = SERVING[kind]
    wrapper, q, pages = make(workspace()), randn(queries, 8, 64), Pages([700, 40, 3, 17], 16)
    plan(wrapper, pages)
    out, lse = torch.empty_like(q), torch.empty(queries, 8)
    wrapper.run(q, pages.cache)
    result = allocated(lambda: wrapper.run(q, pages.cache))
    both = 2 * out.numel() + 4 * lse.numel()
    if kind == "levels":  # a result and its lse for each level, and what they merge into
        assert result == 3 * both
    else:
        assert result == (both if kind == "mixed" else 2 * out.numel())
        assert allocated(lambda: wrapper.run(q, pages.cache, out=out, lse=lse)) == 0


# ---- on the simulated GPU

def on_simulator(op):
    """Returns the native op as it runs on the simulator: tensors are taken there and back, and the plan's schedule
    beside the plan."""
    names, native = [parameter.name for parameter in quern._ops.TABLE[op]], getattr(quern._ops, op)

    def call(*arguments):
        values = dict(zip(names, arguments, strict=True))
        there = {name: quern.to(value.contiguous(), "sim:gfx942") for name, value in values.items()
                 if isinstance(value, torch.Tensor) and name != "plan"}
        if values.get("plan") is not None:
            there["schedule"] = quern.to(values["plan"], "sim:gfx942")
        native(*(there.get(name, value) for name, value in values.items()))
        assert ".gpu" in quern.last_kernel()
        for parameter in quern._ops.TABLE[op]:
            if parameter.is_written and values[parameter.name] is not None:
                values[parameter.name].copy_(as_torch(quern.numpy(there[parameter.name])))
    return call


@pytest.fixture
def simulator(monkeypatch):
    """Makes the wrappers' calls run on the simulator, where PyTorch has no tensors."""
    if os.environ.get("SGLANG_DISABLE_FLASHINFER"):
        pytest.skip("PyTorch computes")
    for op in ("attention", "merge_states"):
        monkeypatch.setattr(quern._ops, op, on_simulator(op))


@pytest.mark.usefixtures("simulator")
def test_on_the_simulated_gpu():
    pages, qo = Pages([24, 9, 0, 17], 5), [1, 2, 3]
    q, starts = randn(6, 4, 64), offsets(qo)
    out = cascade(pages, [(0, 1), (1, 4)], [[6], qo], 4, 64, causal=True).run(q, pages.cache)
    mixed = flashinfer.BatchAttention(device="cpu")
    mixed.plan(starts, *pages.part(1, 4)[:2], torch.tensor([9, 0, 17]), 4, 2, 64, 64, 5, True, q_data_type=HALF, kv_data_type=HALF)
    own, own_lse = mixed.run(q, pages.cache)
    sinks, sink = flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), q_data_type=HALF), torch.linspace(-1, 2, 4)
    sinks.plan(starts, *pages.part(1, 4), 4, 2, 64, 5, causal=True)
    with_sinks = sinks.run(q, pages.cache, sink)
    k, v = (torch.cat(store[1:]).half() for store in (pages.k, pages.v))
    packed, _ = flashinfer.fmha_varlen(q, k, v, starts, offsets([9, 0, 17]), causal=True)
    for b in range(3):
        rows = slice(starts[b], starts[b + 1])
        close(out[rows], over_levels(q[rows], pages, [0, b + 1], True), 2e-3)
        want, want_lse = expected(q[rows], pages.k[b + 1], pages.v[b + 1], is_causal=True)
        close(own[rows], want)
        close(own_lse[rows], want_lse)
        close(packed[rows], want)
        close(with_sinks[rows], expected(q[rows], pages.k[b + 1], pages.v[b + 1], is_causal=True, sinks=sink.numpy())[0])


# ---- by PyTorch

def test_pytorch_computes_the_same_when_disabled():
    """Runs this file once more under SGLANG_DISABLE_FLASHINFER, with fewer sizes, without the promises that only quern
    makes."""
    if os.environ.get("SGLANG_DISABLE_FLASHINFER"):
        pytest.skip("this is it")
    chosen = ("(shared_prefix and NHD-5-13) or (three_levels and plain) or (batch_attention and 500) or nothing or "
              "(sinks and qo2) or (fmha_varlen and 192)")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k",
                           f"({chosen}) and not (errors or disabled)"], capture_output=True, text=True,
                          env={**os.environ, "SGLANG_DISABLE_FLASHINFER": "1"}, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
