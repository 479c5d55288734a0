# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's choice of the largest, its scores of an indexer, decodes by tables of pages and small helpers, against
loops and definitions."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import HALF, LAYOUTS, Pages, close, expected, randn  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn


def ints(*values):
    return torch.tensor(values, dtype=torch.int32)


# ---- the largest

def largest(row, k, tie_break):
    """Returns the places of the k largest: among equal ones those in front (1) or behind (2)."""
    order = sorted(range(len(row)), key=lambda i: (-row[i], -i if tie_break == 2 else i))
    return order[:k]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
@pytest.mark.parametrize("n, k", [(1, 1), (50, 7), (50, 50)])
@pytest.mark.parametrize("tie_break", [0, 1, 2])
def test_top_k(dtype, n, k, tie_break):
    x = (2 * randn(5, n, dtype=torch.float32)).round().to(dtype)
    for sorted_ in (False, True):
        values, places = flashinfer.top_k(x, k, sorted=sorted_, tie_break=tie_break)
        assert places.dtype == torch.int64 and values.dtype == dtype
        assert torch.equal(values, x.gather(1, places))
        if k == n and not sorted_:
            assert torch.equal(places, torch.arange(n).expand(5, n))
        else:
            assert torch.equal(values, x.sort(1, descending=True).values[:, :k])
        for row, chosen in zip(x.tolist(), places.tolist(), strict=True):
            assert len(set(chosen)) == k
            if tie_break:
                assert sorted(chosen) == sorted(largest(row, k, tie_break))


def window(row, start, length, k):
    length = min(length, len(row) - start)
    return set(range(length)) if length <= k else set(largest(row[start:start + length], k, 1))


@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize("has_starts", [False, True])
def test_page_tables(k, page_size, has_starts):
    x, lengths = randn(4, 32, dtype=torch.float32), ints(20, 5, 0, 16)
    starts = ints(0, 8, 4, 16) if has_starts else None
    table = torch.randperm(96, generator=torch.Generator().manual_seed(1)).int().reshape(3, 32)
    rows, raw = ints(2, 0, 1, 2), torch.zeros(4, k, dtype=torch.int32)
    options = {"page_table_row_starts": None if starts is None else starts // page_size}
    out = flashinfer.top_k_page_table_transform(x, table, lengths, k, rows, row_starts=starts, page_size=page_size, out_raw_indices=raw, **options)
    ragged = flashinfer.top_k_ragged_transform(x, ints(100, 200, 300, 400), lengths, k, row_starts=starts)
    for i in range(4):
        start = int(starts[i]) if has_starts else 0
        want = window(x[i].tolist(), start, int(lengths[i]), k)
        got = [place for place in raw[i].tolist() if place >= 0]
        assert set(got) == want and len(got) == len(want) and raw[i, len(want):].eq(-1).all()
        for j, place in enumerate(raw[i].tolist()):
            page = int(table[rows[i], start // page_size + place // page_size])
            assert out[i, j] == (-1 if place < 0 else page * page_size + place % page_size)
        assert {p - 100 * (i + 1) for p in ragged[i].tolist() if p >= 0} == want


@pytest.mark.parametrize("next_n, ratio", [(1, 1), (2, 1), (2, 4)])
def test_top_k_varlen(next_n, ratio):
    logits, lens = randn(4, 30, dtype=BF16), ints(*[40, 21, 1, 7][:4 // next_n])
    places, values = flashinfer.top_k_varlen(logits, lens, 6, compress_ratio=ratio, next_n=next_n, return_values=True)
    for row in range(4):
        length = max(0, (int(lens[row // next_n]) - next_n + row % next_n + 1) // ratio)
        want = window(logits[row].tolist(), 0, length, 6)
        own = places[row][places[row] >= 0]
        assert set(own.tolist()) == want and len(own) == len(want)
        assert torch.equal(values[row, :len(want)], logits[row, own.long()]) and not values[row, len(want):].any()
    flat = torch.zeros(24, dtype=torch.int32)
    assert torch.equal(flashinfer.top_k_varlen(logits, lens, 6, compress_ratio=ratio, next_n=next_n, out_indices=flat)[0], places)
    assert torch.equal(flat.reshape(4, 6), places)


@pytest.mark.parametrize("call, message", [
    (lambda: flashinfer.top_k(torch.zeros(2, 3), 4), "top_k: k is 4; accepted: 1 to 3"),
    (lambda: flashinfer.top_k(torch.zeros(2, 3), 2, tie_break=3), "top_k: tie_break is 3; accepted: NONE"),
    (lambda: flashinfer.top_k_page_table_transform(torch.zeros(2, 3), ints(1, 2).reshape(2, 1), ints(1, 1), 2, page_size=3), "page_size is 3; accepted: powers"),
    (lambda: flashinfer.top_k_page_table_transform(torch.zeros(2, 3), ints(1, 2).reshape(2, 1), ints(1, 1), 2, page_size=2, row_starts=ints(0, 0)),
     "page_table_row_starts is None; needed"),
    (lambda: flashinfer.top_k_ragged_transform(torch.zeros(2, 3), ints(1), ints(1, 1), 2), r"offsets has shape \[1\], needs \[2\]"),
    (lambda: flashinfer.top_k_varlen(torch.zeros(4, 3), ints(1), 2, next_n=2), r"seq_lens has shape \[1\], needs \[2\]"),
])
def test_wrong_choices(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_tie_breaks_have_names():
    assert [*map(str, flashinfer.TopKTieBreak)] == ["none", "small", "large"] and f"{flashinfer.TopKTieBreak.SMALL}" == "small"


# ---- an indexer's scores

@pytest.mark.parametrize("next_n", [1, 3])
@pytest.mark.parametrize("page", [16, 64])
@pytest.mark.parametrize("output_dtype", [torch.float32, BF16])
def test_paged_scores(next_n, page, output_dtype):
    lens, heads, dim, most = [70, 5, 33], 8, 64, 80
    width = flashinfer.min_block_table_width(most, page)
    q, keys = randn(3, next_n, heads, dim, dtype=torch.float32).to(FP8), randn(3 * width, page, dim, dtype=torch.float32).to(FP8)
    scale = torch.rand(3 * width, page, generator=torch.Generator().manual_seed(1)) + 0.5
    cache = torch.cat([keys.view(torch.uint8).flatten(1), scale.view(torch.uint8).flatten(1)], 1).reshape(-1, page, 1, dim + 4)
    weights = randn(3 * next_n, heads, dtype=torch.float32)
    table = torch.randperm(3 * width, generator=torch.Generator().manual_seed(2)).int().reshape(3, width)
    schedule = flashinfer.compute_paged_mqa_logits_schedule(ints(*lens), next_n=next_n)
    out = torch.full((3 * next_n, flashinfer.padded_seq_len(most)), 9.0, dtype=output_dtype)
    for options in ({}, {"out": out, "schedule_meta": schedule}):
        logits = flashinfer.fp8_paged_mqa_logits(q, cache, weights, table, ints(*lens), most, output_dtype=output_dtype, **options)
        assert logits.shape == (3 * next_n, most) and logits.dtype == output_dtype
        for b in range(3):
            own, factor = keys[table[b].long()].double().flatten(0, 1)[:most], scale[table[b].long()].double().flatten()[:most]
            for t in range(next_n):
                seen = lens[b] - next_n + t + 1
                each = torch.relu(q[b, t].double() @ own.T * factor) * weights[b * next_n + t].double()[:, None]
                bound = (2 ** -8 if output_dtype == BF16 else 0) * each.sum(0).abs() + 1e-5 * each.abs().sum(0)
                assert ((logits[b * next_n + t].double() - each.sum(0)).abs() <= 1.01 * bound)[:seen].all()
    assert (out[:, most:] == 9).all()


def test_wrong_scores():
    q, cache = torch.zeros(2, 1, 4, 64).to(FP8), torch.zeros(6, 16, 1, 68, dtype=torch.uint8)
    call = {"q": q, "kv_fused": cache, "weights": torch.zeros(2, 4), "block_tables": torch.zeros(2, 3, dtype=torch.int32), "seq_lens": ints(4, 5),
            "max_seq_len": 48}
    for change, message in (({"max_seq_len": 49}, r"block_tables has shape \[2, 3\], needs \[2, 4 or more\]"), ({"seq_lens": torch.tensor([4, 5])},
                            "seq_lens has dtype torch.int64"), ({"out": torch.zeros(2, 255)}, r"out has shape \[2, 255\]"),
                            ({"weights": torch.zeros(2, 3)}, r"weights has shape \[2, 3\], needs \[2, 4\]")):
        with pytest.raises(ValueError, match=f"fp8_paged_mqa_logits: {message}"):
            flashinfer.fp8_paged_mqa_logits(**{**call, **change})
    with pytest.raises(NotImplementedError, match="fp4_paged_mqa_logits: quern has no keys of FP4; choose an indexer in FP8"):
        flashinfer.fp4_paged_mqa_logits(q)


# ---- decodes by tables of pages

def table_of(pages):
    """Returns a batch's pages as a table, with pages out of range behind each request's."""
    counts = pages.indptr.diff().tolist()
    table = torch.full((len(counts), max(counts) + 1), 1 << 20, dtype=torch.int32)
    for b, count in enumerate(counts):
        table[b, :count] = pages.indices[pages.indptr[b]:pages.indptr[b + 1]]
    return table


@pytest.mark.parametrize("q_len", [1, 3])
@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("window, sinks", [(-1, False), (4, False), (-1, True)])
def test_cudnn_decode(q_len, page, window, sinks):
    pages = Pages([37, 3, 16], page, layout="HND")
    q, sink = randn(3 * q_len, 4, 64), randn(4, dtype=torch.float32) if sinks else None
    out, lse = flashinfer.cudnn_batch_decode_with_kv_cache(
        q, *pages.cache.unbind(1), 0.2, torch.zeros(1, dtype=torch.uint8), max_sequence_kv=37, actual_seq_lens_kv=ints(37, 3, 16),
        block_tables=table_of(pages), return_lse=True, q_len_per_req=q_len, window_left=window, sinks=sink)
    for b in range(3):
        rows = slice(b * q_len, (b + 1) * q_len)
        want, want_lse = expected(q[rows], pages.k[b], pages.v[b], is_causal=True, sm_scale=0.2, window_left=window,
                                  sinks=None if sink is None else sink.numpy())
        close(out[rows], want)
        close(lse[rows], want_lse)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [0, 1, 5])
@pytest.mark.parametrize("is_fp8", [False, True])
def test_xqa(layout, window, is_fp8):
    pages = Pages([37, 1, 16], 16, layout=layout, dtype=FP8 if is_fp8 else HALF)
    q, output, nothing = randn(3, 1, 4, 64), torch.zeros(3, 1, 4, 64, dtype=HALF), torch.zeros(1, dtype=torch.uint8)
    sinks = randn(2, 2, dtype=torch.float32)
    assert flashinfer.xqa(q, *pages.cache.unbind(1), table_of(pages), torch.tensor([[37], [1], [16]]), output, nothing, nothing, 2, 16, sinks=sinks,
                          q_scale=0.5, kv_scale=torch.tensor(2.0), sliding_win_size=window, kv_layout=layout) is None
    for b in range(3):
        want = expected(q[b], pages.k[b], 2 * pages.v[b], window_left=window - 1, sinks=sinks.flatten().numpy(), is_causal=True)[0]
        close(output[b], want, 2e-3)


def test_sm110_decode():
    q, kv, lens = randn(3, 8, 64), randn(3, 2, 2, 20, 64), [20, 1, 7]
    out = flashinfer.sm110_gqa_decode(q, kv, ints(*lens), q_scale=0.5)
    for b, n in enumerate(lens):
        k, v = kv[b].transpose(1, 2)[:, :n]
        close(out[b:b + 1], expected(q[b:b + 1], k, v, sm_scale=0.5 / 8)[0])


def test_wrong_decodes():
    pages, nothing = Pages([37, 3], 16, layout="HND"), torch.zeros(1, dtype=torch.uint8)
    call = {"q": randn(2, 4, 64), "k_cache": pages.cache[:, 0], "v_cache": pages.cache[:, 1], "scale": 0.1, "workspace_buffer": nothing,
            "max_sequence_kv": 37, "actual_seq_lens_kv": ints(37, 3), "block_tables": table_of(pages)}
    for change, kind, message in (({"actual_seq_lens_kv": ints(37, 65)}, ValueError, "max_sequence_kv is 37, the longest request has 65"),
                                  ({"actual_seq_lens_kv": ints(37, 65), "max_sequence_kv": 65}, ValueError, r"seq_lens\[1\] is 65; accepted: 0 to 4 pages of 16"),
                                  ({"block_tables": None}, NotImplementedError, "block_tables is None; accepted: a tensor"),
                                  ({"q_len_per_req": 2}, ValueError, "q has 2 rows, needs 4: 2 of each request")):
        with pytest.raises(kind, match=f"cudnn_batch_decode_with_kv_cache: {message}"):
            flashinfer.cudnn_batch_decode_with_kv_cache(**{**call, **change})
    for name in ("xqa_mla", "prepare_sm110_gqa_decode", "launch_sm110_gqa_decode_prepared", "prepare_balanced_batch_decode_with_kv_cache"):
        with pytest.raises(NotImplementedError, match=f"{name}: .*docs/flashinfer.md lists what is served"):
            getattr(flashinfer, name)()


# ---- the rest

def test_helpers():
    assert [flashinfer.next_positive_power_of_2(x) for x in (-3, 0, 1, 2, 3, 1024, 1025, 2 ** 40 + 1)] == [1, 1, 1, 2, 4, 1024, 2048, 2 ** 41]
    assert [flashinfer.padded_seq_len(n) for n in (0, 1, 256, 257)] == [0, 256, 256, 512]
    assert [flashinfer.min_block_table_width(n, 64) for n in (0, 1, 64, 65)] == [0, 1, 1, 2]
    assert [kind for kind in flashinfer.ActivationType if flashinfer.is_gated_activation(kind)] == [3, 4, 5, 7, 8, 10]
    assert repr(flashinfer.RoutingMethodType.Llama4) == "RoutingMethodType.Llama4"


def test_cakes_sampling():
    probs = torch.softmax(randn(200, 50, dtype=torch.float32), -1)
    want = flashinfer.top_k_top_p_sampling_from_probs(probs, 7, 0.8, seed=3, offset=4)
    out = torch.zeros(200, dtype=torch.int32)
    got = flashinfer.cake_top_k_top_p_sampling_from_probs(probs, 7, 0.8, philox_seed=3, philox_offset=4, out=out, top_k_max=9)
    assert got is out and torch.equal(out, want)
