# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's attention: FlashInfer's grids, reduced, and its tolerances, against a definition in float64."""

import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import numpy as np  # noqa: E402
from flashinfer_tools import HALF, LAYOUTS, MODES, Pages, close, expected, randn, turned, workspace  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402


@pytest.mark.parametrize("kv_len", [1, 54, 97])
@pytest.mark.parametrize("heads, kv_heads, dim", [(4, 4, 64), (8, 4, 128), (4, 1, 256)])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_single_decode(kv_len, heads, kv_heads, dim, layout, mode):
    q, k, v = randn(heads, dim), randn(kv_len, kv_heads, dim), randn(kv_len, kv_heads, dim, seed=1)
    out, lse = flashinfer.single_decode_with_kv_cache(q, turned(k, layout), turned(v, layout), layout, mode, return_lse=True)
    want, want_lse = expected(q[None], k, v, mode)
    close(out, want[0])
    close(lse, want_lse[0])
    assert torch.equal(flashinfer.single_decode_with_kv_cache(q, turned(k, layout), turned(v, layout), layout, mode), out)


@pytest.mark.parametrize("n, kv_len", [(1, 54), (37, 37), (17, 97), (63, 12)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"logits_soft_cap": 8.0}, {"window_left": 13}, {"sm_scale": 0.2},
                                     {"pos_encoding_mode": "ROPE_LLAMA", "rope_theta": 1e5, "rope_scale": 2.0}],
                         ids=lambda o: next(iter(o), "plain"))
def test_single_prefill(n, kv_len, causal, layout, options):
    q, k, v = randn(n, 8, 64), randn(kv_len, 2, 64), randn(kv_len, 2, 64, seed=1)
    out, lse = flashinfer.single_prefill_with_kv_cache_return_lse(q, turned(k, layout), turned(v, layout), causal=causal,
                                                                  kv_layout=layout, **options)
    options = dict(options)
    want, want_lse = expected(q, k, v, options.pop("pos_encoding_mode", "NONE"), is_causal=causal, **options)
    close(out, want)
    close(lse, want_lse)


def test_single_prefill_of_each_dtype_and_masks():
    q, k, v = (randn(n, h, 128, dtype=torch.bfloat16) for n, h in ((9, 4), (33, 4), (33, 4)))
    close(flashinfer.single_prefill_with_kv_cache(q, k, v, o_dtype=torch.float32), expected(q, k, v)[0], 1e-2)
    mask = torch.rand(9, 33, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[4] = False
    got, lse = flashinfer.single_prefill_with_kv_cache(q, k, v, custom_mask=mask, causal=True, return_lse=True)
    close(got, expected(q, k, v, mask=mask.numpy())[0], 1e-2)
    assert (got[4] == 0).all() and (lse[4] == -torch.inf).all()
    packed = flashinfer.packbits(mask.reshape(-1), "little")
    assert torch.equal(flashinfer.single_prefill_with_kv_cache(q, k, v, packed_custom_mask=packed), got)


def test_fp8_with_scales_of_heads():
    q, k, v = (randn(n, h, 64).to(torch.float8_e4m3fn) for n, h in ((9, 4), (33, 2), (33, 2)))
    scale_q, scale_k, scale_v = torch.rand(4) + 0.5, torch.rand(2) + 0.5, torch.rand(2) + 0.5
    got = flashinfer.single_prefill_with_kv_cache(q, k, v, scale_q, scale_k, scale_v, o_dtype=torch.bfloat16, k_scale=0.5)
    want = expected(q.float() * scale_q[:, None], k.float() * scale_k[:, None] / 2, v.float() * scale_v[:, None])[0]
    close(got, want, 1e-2)
    k_scale = torch.tensor([0.5, 0.25])  # both kinds of scale at once, two tensors and two numbers
    got = flashinfer.single_prefill_with_kv_cache(q, k, v, None, scale_k, 3.0, o_dtype=torch.bfloat16, k_scale=k_scale, v_scale=0.5)
    close(got, expected(q.float(), k.float() * (scale_k * k_scale)[:, None], v.float() * 1.5)[0], 1e-2)


# ---- batches

@pytest.mark.parametrize("lengths", [[54], [97, 1, 16, 0, 33]])
@pytest.mark.parametrize("page", [1, 5, 16, 1024])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("options", [{}, {"logits_soft_cap": 8.0}, {"pos_encoding_mode": "ROPE_LLAMA"}, {"window_left": 3}],
                         ids=lambda o: next(iter(o), "plain"))
def test_batch_decode(lengths, page, layout, options):
    pages = Pages(lengths, page, layout=layout, as_one=layout == "NHD")
    q = randn(len(lengths), 8, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(*pages.arrays(), 8, 2, 64, page, **options)
    out, lse = wrapper.run(q, pages.cache, return_lse=True)
    options = dict(options)
    mode = options.pop("pos_encoding_mode", "NONE")
    for b in range(len(lengths)):
        want, want_lse = expected(q[b:b + 1], pages.k[b], pages.v[b], mode, **options)
        close(out[b:b + 1], want)
        close(lse[b:b + 1], want_lse)
    assert torch.equal(wrapper.run(q, pages.cache), out)  # repeatable after one plan


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_batch_decode_of_an_fp8_cache(dtype):
    pages = Pages([33, 7], 8, dtype=dtype)
    q = randn(2, 4, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*pages.arrays(), 4, 2, 64, 8, q_data_type=HALF, kv_data_type=dtype)
    out = wrapper.run(q, pages.cache, q_scale=2.0, k_scale=0.25, v_scale=torch.tensor(3.0))
    for b in range(2):
        close(out[b:b + 1], 3 * expected(q[b:b + 1], pages.k[b] / 2, pages.v[b])[0], 2e-3)


@pytest.mark.parametrize("qo, lengths", [([0, 37], [54]), ([0, 1, 18, 18, 21], [33, 17, 5, 2])])
@pytest.mark.parametrize("page", [1, 5])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
def test_batch_prefill(qo, lengths, page, layout, causal):
    pages, q, qo_indptr = Pages(lengths, page, layout=layout), randn(qo[-1], 4, 64), torch.tensor(qo, dtype=torch.int32)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(qo_indptr, *pages.arrays(), 4, 2, 64, page, causal=causal)
    out, lse = wrapper.run_return_lse(q, pages.cache)
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), layout)
    ragged.plan(qo_indptr, torch.tensor([0, *np.cumsum(lengths)]), 4, 2, 64, causal=causal)
    k, v = (turned(torch.cat(x).half(), layout) for x in (pages.k, pages.v))
    same, same_lse = ragged.run(q, k, v, return_lse=True)
    assert torch.equal(same, out) and torch.equal(same_lse, lse)
    for b in range(len(lengths)):
        rows = slice(qo[b], qo[b + 1])
        want, want_lse = expected(q[rows], pages.k[b], pages.v[b], is_causal=causal)
        close(out[rows], want)
        close(lse[rows], want_lse)


def test_batch_prefill_with_masks_sinks_and_dims_of_their_own():
    qo, lengths = [0, 3, 10], [9, 12]
    q, pages = randn(10, 4, 64), Pages(lengths, 4)
    masks = [torch.rand(qo[b + 1] - qo[b], lengths[b], generator=torch.Generator().manual_seed(b)) < 0.6 for b in range(2)]
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
    sinks = torch.randn(4)
    wrapper.plan(torch.tensor(qo), *pages.arrays(), 4, 2, 64, 4, custom_mask=torch.cat([m.reshape(-1) for m in masks]))
    out = wrapper.run(q, pages.cache, sinks=sinks)
    for b in range(2):
        rows = slice(qo[b], qo[b + 1])
        close(out[rows], expected(q[rows], pages.k[b], pages.v[b], mask=masks[b].numpy(), sinks=sinks.numpy())[0])
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace())
    q, k, v = randn(10, 4, 192, dtype=torch.bfloat16), randn(21, 4, 192, dtype=torch.bfloat16), randn(21, 4, 128, dtype=torch.bfloat16)
    ragged.plan(torch.tensor(qo), torch.tensor([0, 9, 21]), 4, 4, 192, 128, causal=True, q_data_type=torch.bfloat16)
    out = ragged.run(q, k, v)
    close(out[3:], expected(q[3:], k[9:], v[9:], is_causal=True)[0], 1e-2)


def test_options_of_run_and_forward():
    pages, q = Pages([33], 8), randn(1, 4, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*pages.arrays(), 4, 2, 64, 8, o_data_type=torch.float32)
    close(wrapper.run(q, pages.cache, window_left=5), expected(q, pages.k[0], pages.v[0], window_left=5)[0])
    close(wrapper.forward(q, pages.cache, "ALIBI"), expected(q, pages.k[0], pages.v[0], "ALIBI")[0])
    out, lse = torch.empty(1, 4, 64), torch.empty(1, 4)
    assert wrapper.forward_return_lse(q, pages.cache)[0].dtype == torch.float32
    got = wrapper.run(q, pages.cache, out=out, lse=lse, return_lse=True)
    assert got[0] is out and got[1] is lse
    close(out, expected(q, pages.k[0], pages.v[0])[0])


def test_several_queries_a_request_in_decode():
    pages, q = Pages([33, 7], 8), randn(6, 4, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*pages.arrays(), 4, 2, 64, 8, q_len_per_req=3)
    out = wrapper.run(q, pages.cache, q_len_per_req=3)
    for b in range(2):
        close(out[3 * b:3 * b + 3], expected(q[3 * b:3 * b + 3], pages.k[b], pages.v[b], is_causal=True)[0])


@pytest.mark.parametrize("window_right, options", [(0, {"is_causal": True}), (1, {"window_right": 1}), (-1, {})])
def test_several_queries_and_keys_after_them(window_right, options):
    pages, q = Pages([33, 7], 8), randn(6, 4, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*pages.arrays(), 4, 2, 64, 8, q_len_per_req=3, window_right=window_right)
    out = wrapper.run(q, pages.cache)
    for b in range(2):
        close(out[3 * b:3 * b + 3], expected(q[3 * b:3 * b + 3], pages.k[b], pages.v[b], **options)[0])


@pytest.mark.parametrize("base, unit", [("log2", 1), ("ln", np.log(2))])
def test_batch_prefill_with_an_lse_of_other_bases_and_layouts(base, unit):
    pages, q = Pages([33, 7], 8), randn(5, 4, 64)
    wrapper, ragged = (kind(workspace()) for kind in (flashinfer.BatchPrefillWithPagedKVCacheWrapper,
                                                      flashinfer.BatchPrefillWithRaggedKVCacheWrapper))
    wrapper.plan(torch.tensor([0, 2, 5]), *pages.arrays(), 4, 2, 64, 8)
    ragged.plan(torch.tensor([0, 2, 5]), torch.tensor([0, 33, 40]), 4, 2, 64)
    k, v = (torch.cat(x).half() for x in (pages.k, pages.v))
    want, want_lse = expected(q[2:], pages.k[1], pages.v[1])
    for result in (wrapper.run(q, pages.cache, return_lse=True, lse_base=base), ragged.run_return_lse(q, k, v, lse_base=base)):
        close(result[1][2:], want_lse * unit)
    place = torch.empty(4, 5)
    for out, lse in (wrapper.run_return_lse(q, pages.cache, lse_base=base, lse_layout="HN", lse=place),
                     ragged.run(q, k, v, return_lse=True, lse_base=base, lse_layout="HN")):
        close(out[2:], want)
        close(lse[:, 2:], want_lse.T * unit)
        assert lse.shape == (4, 5) and lse.is_contiguous()
    assert wrapper.run_return_lse(q, pages.cache, lse_layout="HN", lse=place)[1] is place
    for option in ({"lse_base": "e"}, {"lse_layout": "HNM"}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} is '.*; accepted: '"):
            wrapper.run(q, pages.cache, **option)


# ---- fixed cases of every backend

def test_no_queries_no_keys_and_more_queries_than_keys():
    """E9."""
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
    pages, q = Pages([0, 5, 2], 4), randn(5, 4, 64)
    wrapper.plan(torch.tensor([0, 1, 1, 5]), *pages.arrays(), 4, 2, 64, 4, causal=True)
    out, lse = wrapper.run(q, pages.cache, return_lse=True)
    hidden = [0, 1, 2]  # no keys at all; the first two of four queries on two keys
    assert (out[hidden] == 0).all() and (lse[hidden] == -torch.inf).all()
    close(out[3:], expected(q[1:], pages.k[2], pages.v[2], is_causal=True)[0][2:])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_least_score_wins(sign):
    """Tests one visible key of score -524288 before scaling."""
    q, k, v = torch.full((1, 64), 64.0).half(), torch.full((3, 1, 64), sign * 128.0).half(), randn(3, 1, 64)
    mask = torch.tensor([[False, True, False]])
    out, lse = flashinfer.single_prefill_with_kv_cache(q[None], k, v, custom_mask=mask, return_lse=True)
    assert torch.equal(out[0], v[1]) and lse.isfinite().all()


def test_pages_shared_and_repeated():
    """E11."""
    pages, q = Pages([8, 8], 4), randn(2, 4, 64)
    shared = torch.tensor([pages.indices[0], pages.indices[0], pages.indices[1], pages.indices[0]], dtype=torch.int32)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(pages.indptr, shared, pages.last, 4, 2, 64, 4)
    out = wrapper.run(q, pages.cache)
    k, v = ([t[:4], t[4:]] for t in (pages.k[0], pages.v[0]))
    for b, order in enumerate([(0, 0), (1, 0)]):
        close(out[b:b + 1], expected(q[b:b + 1], torch.cat([k[i] for i in order]), torch.cat([v[i] for i in order]))[0])


def test_windows_caps_and_slopes():
    """E12."""
    q, k, v = (randn(9, 12, 64, seed=i) for i in range(3))
    run = flashinfer.single_prefill_with_kv_cache
    assert torch.equal(run(q, k, v, window_left=0, causal=True), v)
    assert torch.equal(run(q, k, v, window_left=100, causal=True), run(q, k, v, causal=True))
    close(run(q, k, v, logits_soft_cap=1e-3), v.double().mean(0).expand(9, -1, -1), 2e-3)
    close(run(q, k, v, pos_encoding_mode="ALIBI"), expected(q, k, v, "ALIBI")[0])


def test_merging():
    """Tests merging, and halves against the whole."""
    v, nothing, s = randn(3, 2, 64), torch.zeros(3, 2, 64).half(), torch.randn(3, 2)
    empty = torch.full((3, 2), -torch.inf)
    merged, lse = flashinfer.merge_state(nothing, empty, nothing, empty)
    assert (merged == 0).all() and (lse == -torch.inf).all()
    merged, lse = flashinfer.merge_state(v, s, nothing, empty)
    assert torch.equal(merged, v) and torch.equal(lse, s)
    other = randn(3, 2, 64, seed=1)
    merged, lse = flashinfer.merge_state(v, s, other, s)
    close(merged, (v.double() + other.double()) / 2)
    close(lse, s + 1)
    many = flashinfer.merge_states(torch.stack([v, other, nothing], 1), torch.stack([s, s, empty], 1))
    assert torch.equal(many[0], merged) and torch.equal(many[1], lse)
    mask = torch.tensor([True, False, True])
    in_place, in_place_s = v.clone(), s.clone()
    flashinfer.merge_state_in_place(in_place, in_place_s, other, s, mask)
    assert torch.equal(in_place[mask], merged[mask]) and torch.equal(in_place[1], v[1]) and torch.equal(in_place_s[1], s[1])
    flashinfer.merge_state_in_place(v, s, other, s.clone())
    assert torch.equal(v, merged) and torch.equal(s, lse)


@pytest.mark.parametrize("split", [None, 1, 2, 7, "off"])
def test_splits_repeat_and_agree(split):
    """E14."""
    pages, q = Pages([700, 40], 16), randn(2, 8, 64)
    options = {"disable_split_kv": True} if split == "off" else {"fixed_split_size": split}
    runs = []
    for _ in range(2):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
        wrapper.plan(*pages.arrays(), 8, 2, 64, 16, **options)
        runs.append(wrapper.run(q, pages.cache))
    assert torch.equal(*runs)
    alone = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    alone.plan(pages.indptr[:2], pages.indices, pages.last[:1], 8, 2, 64, 16, **options)
    assert torch.equal(alone.run(q[:1], pages.cache), runs[0][:1])  # whatever else is in the batch
    for b in range(2):
        close(runs[0][b:b + 1], expected(q[b:b + 1], pages.k[b], pages.v[b])[0])


# ---- graphs, errors, the environment

def test_fixed_buffers():
    big, small = Pages([40, 33], 8), Pages([5, 16], 8)
    buffers = torch.empty(3, dtype=torch.int32), torch.empty(64, dtype=torch.int32), torch.empty(2, dtype=torch.int32)
    wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(workspace(), *buffers)
    assert wrapper.is_cuda_graph_enabled
    q = randn(2, 4, 64)
    for pages in (big, small, big):
        wrapper.plan(*pages.arrays(), 4, 2, 64, 8)
        assert torch.equal(buffers[1][:len(pages.indices)], pages.indices)
        out = wrapper.run(q, pages.cache)
        for b in range(2):
            close(out[b:b + 1], expected(q[b:b + 1], pages.k[b], pages.v[b])[0])
    with pytest.raises(ValueError, match="the batch has 1 requests, the buffers are for 2"):
        wrapper.plan(big.indptr[:2], big.indices, big.last[:1], 4, 2, 64, 8)
    with pytest.raises(ValueError, match="paged_kv_indptr_buffer is None"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), use_cuda_graph=True)


def test_workspace_size_is_what_plan_needs():
    pages = Pages([700], 16)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    floats, _ = wrapper.workspace_size(*pages.arrays(), 8, 2, 64, 16)
    assert floats > 0
    wrapper.reset_workspace_buffer(workspace(floats), None)
    wrapper.plan(*pages.arrays(), 8, 2, 64, 16)
    wrapper.run(randn(1, 8, 64), pages.cache)
    wrapper.reset_workspace_buffer(workspace(floats - 1), None)
    with pytest.raises(ValueError, match=f"float_workspace_buffer has {floats - 1} bytes, needs {floats}"):
        wrapper.plan(*pages.arrays(), 8, 2, 64, 16, fixed_split_size=16)


@pytest.mark.parametrize("part", [0.6, 0.1, 0])
def test_small_workspaces_hold_longer_chunks(part):
    pages, q = Pages([9000, 1, 3000], 16), randn(3, 8, 64)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    room = max(int(part * wrapper.workspace_size(*pages.arrays(), 8, 2, 64, 16)[0]), 1)
    wrapper.reset_workspace_buffer(workspace(room), None)
    wrapper.plan(*pages.arrays(), 8, 2, 64, 16)
    assert (part > 0) <= wrapper._batch.plan.workspace_bytes <= room
    out = wrapper.run(q, pages.cache)
    for b in range(3):
        close(out[b:b + 1], expected(q[b:b + 1], pages.k[b], pages.v[b])[0])


@pytest.mark.parametrize("change, error, text", [
    ({"num_qo_heads": 5}, ValueError, "num_qo_heads 5 is no multiple of num_kv_heads 2"),
    ({"last_page_len": torch.tensor([0, 1])}, ValueError, r"last_page_len\[0\] is 0"),
    ({"pos_encoding_mode": "ROPE"}, KeyError, "pos_encoding_mode is 'ROPE'"),
    ({"block_tables": torch.zeros(1)}, NotImplementedError, "block_tables is not supported"),
    ({"seq_lens": torch.tensor([9, 8])}, ValueError, "seq_lens is"),
    ({"fixed_split_size": 2, "disable_split_kv": True}, ValueError, "both given"),
])
def test_errors_of_plan(change, error, text):
    pages = Pages([9, 5], 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    arguments = {"indptr": pages.indptr, "indices": pages.indices, "last_page_len": pages.last, "num_qo_heads": 4,
                 "num_kv_heads": 2, "head_dim": 64, "page_size": 4}
    with pytest.raises(error, match=text):
        wrapper.plan(**{**arguments, **change})
    with pytest.raises(RuntimeError, match=r"plan\(\) comes before run"):
        wrapper.run(randn(2, 4, 64), pages.cache)


@pytest.mark.parametrize("change, error, text", [
    ({"q": randn(2, 4, 64).bfloat16()}, ValueError, "q and k have dtypes torch.bfloat16"),
    ({"q": randn(2, 8, 64)}, ValueError, "plan is for 4 and 2 heads"), ({"q": randn(1, 4, 64)}, ValueError, "q has 1 rows"),
    ({"q": randn(3, 4, 64)}, ValueError, "q has 3 rows, planned were 2"),
    ({"kv_cache_sf": 1}, NotImplementedError, "kv_cache_sf"), ({"k_scale": 0}, ValueError, "k_scale is 0"),
    ({"v_scale": torch.ones(3)}, ValueError, "v_scale has 3 entries"), ({"sinks": torch.ones(3)}, ValueError, "sinks has shape"),
    ({"out": torch.zeros(2, 4, 64)}, ValueError, "out has dtype torch.float32"),
])
def test_errors_of_run(change, error, text):
    pages = Pages([9, 5], 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    wrapper.plan(*pages.arrays(), 4, 2, 64, 4)
    with pytest.raises(error, match=text):
        wrapper.run(**{"q": randn(2, 4, 64), "paged_kv_cache": pages.cache, **change})


@pytest.mark.parametrize("dtype, page", [(torch.int32, -1), (torch.int32, 1 << 30), (torch.int64, 1 << 32), (torch.int64, -1 - (1 << 32))])
def test_pages_outside_the_cache(dtype, page):
    """Tests pages outside the cache on the CPU without QUERN_VALIDATE. No bits of int64 are lost that would make one a
    page."""
    pages, out = Pages([9, 5], 4), torch.full((2, 4, 64), 7, dtype=HALF)
    indices = pages.indices.to(dtype)
    indices[3] = page
    decode = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    decode.plan(pages.indptr, indices, pages.last, 4, 2, 64, 4)
    prefill = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
    prefill.plan(torch.tensor([0, 1, 2]), pages.indptr, indices, pages.last, 4, 2, 64, 4)
    mixed = flashinfer.BatchAttention(device="cpu")
    mixed.plan(torch.tensor([0, 1, 2]), pages.indptr, indices, torch.tensor([9, 5]), 4, 2, 64, 64, 4, q_data_type=HALF,
               kv_data_type=HALF)
    for run in (decode.run, prefill.run, mixed.run):
        with pytest.raises(ValueError, match=r"indices\[3\] is -?\d+; accepted: 0 to "):
            run(randn(2, 4, 64), pages.cache, out=out)
    assert (out == 7).all()


def test_indptr_beyond_32_bits():
    pages = Pages([9, 5], 4)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    with pytest.raises(ValueError, match=r"indptr\[0\] is -2147483648; accepted: 0 or more"):
        wrapper.plan(pages.indptr.long() - (1 << 32), pages.indices, pages.last, 4, 2, 64, 4)


def test_errors_of_single_calls():
    q, k, v = randn(3, 4, 64), randn(5, 2, 64), randn(5, 2, 64)
    run = flashinfer.single_prefill_with_kv_cache
    for options, error, text in (
            ({"custom_mask": torch.ones(14, dtype=torch.bool)}, ValueError, "custom_mask has 14 entries, needs 15"),
            ({"packed_custom_mask": torch.zeros(1, dtype=torch.uint8)}, ValueError, "custom_mask has 1 bytes, needs 2"),
            ({"use_fp16_qk_reduction": True}, NotImplementedError, "use_fp16_qk_reduction"),
            ({"kv_layout": "HDN"}, KeyError, "kv_layout"), ({"o_dtype": torch.float8_e5m2}, NotImplementedError, "o_dtype has dtype e5m2"),
            ({"logits_soft_cap": 1.0, "pos_encoding_mode": "ALIBI"}, NotImplementedError, "logits_soft_cap")):
        with pytest.raises(error, match=text):
            run(q, k, v, **options)
    with pytest.raises(NotImplementedError, match="head_dim 520; accepted: 1 to 512"):
        run(randn(3, 4, 520), randn(5, 2, 520), randn(5, 2, 520))


def test_pytorch_computes_the_same_when_disabled():
    """Runs this file once more under SGLANG_DISABLE_FLASHINFER, without the promises that only quern makes."""
    if os.environ.get("SGLANG_DISABLE_FLASHINFER"):
        pytest.skip("this is it")
    chosen = "single or batch_decode or batch_prefill or options or several or no_queries or windows or merging"
    left_out = "errors or fixed or workspace or disabled"
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k",
                           f"({chosen}) and not ({left_out})"], capture_output=True, text=True,
                          env={**os.environ, "SGLANG_DISABLE_FLASHINFER": "1"}, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
