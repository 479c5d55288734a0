# SPDX-License-Identifier: Apache-2.0
"""quern.mla_decode on NumPy arrays, against a plain definition in float64, and against attention without the absorption."""

import ml_dtypes
import numpy as np
import pytest
import quern
from attention_tools import Problem, assert_attention, definition
from tools import BF16, normal

QO, LENGTHS = [0, 1, 4, 4, 8], [37, 20, 5, 0]  # the third request has no queries, the fourth no keys
DIM, ROPE, HEADS = 512, 64, 16


def make(page, dtype, dtype_kv, dim=DIM, rope=ROPE, heads=HEADS):
    """Returns q of 576 elements a head, a cache of 576 a token with NaN in unused places, the requests' rows of it, and indices."""
    pages = [-(-length // page) for length in LENGTHS]
    order = np.random.default_rng(9).permutation(sum(pages) + 1)[:sum(pages)].astype(np.int32)
    q = normal(1, (QO[-1], heads, dim + rope)).astype(dtype)
    rows = [normal(2 + b, (length, dim + rope)).astype(dtype_kv) for b, length in enumerate(LENGTHS)]
    cache = np.full((sum(pages) + 1, page, dim + rope), np.nan).astype(dtype_kv)
    indptr = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
    for b, keys in enumerate(rows):
        for j, key in enumerate(keys):
            cache[order[indptr[b] + j // page], j % page] = key
    last = [(length - 1) % page + 1 if length else 0 for length in LENGTHS]
    plan = quern.attention_plan(heads, 1, dim, qo_indptr=QO, kv_indptr=indptr, kv_last_page_len=last, page_size=page)
    return q, cache, rows, {"plan": plan, "kv_indices": order}


def check(out, lse, q, rows, dim=DIM, kv_scale=1.0, **options):
    for b, keys in enumerate(rows):
        queries, keys = q[QO[b]:QO[b + 1]], keys.astype(np.float64)[:, None] * kv_scale
        if len(queries):
            got = out[QO[b]:QO[b + 1]], lse[QO[b]:QO[b + 1]]
            assert_attention(*got, [definition(queries, keys, keys[..., :dim], **options)], Problem(queries, keys, keys[..., :dim]))


@pytest.mark.parametrize("page", [1, 16, 64])
@pytest.mark.parametrize(("dtype", "dtype_kv"), [(np.float32, np.float32), (np.float16, np.float16), (BF16, BF16),
                                                 (BF16, ml_dtypes.float8_e4m3fn)], ids=["f32", "f16", "bf16", "fp8"])
def test_pages(page, dtype, dtype_kv):
    q, cache, rows, places = make(page, dtype, dtype_kv)
    kv_scale = 1.5 if cache.itemsize == 1 else 1.0
    for is_causal in (False, True):
        out, lse = quern.mla_decode(q[..., :DIM], q[..., DIM:], cache[..., :DIM], cache[..., DIM:], **places, sm_scale=192**-0.5,
                                    is_causal=is_causal, kv_scale=kv_scale, return_lse=True)
        assert out.dtype == q.dtype
        check(out, lse, q, rows, kv_scale=kv_scale, sm_scale=192**-0.5, is_causal=is_causal)


def test_two_tensors_equal_views_of_one():
    q, cache, _, places = make(16, BF16, BF16)
    parts = q[..., :DIM], q[..., DIM:], cache[..., :DIM], cache[..., DIM:]
    want = quern.mla_decode(*parts, **places, sm_scale=0.1, is_causal=True)
    np.testing.assert_array_equal(quern.mla_decode(*map(np.ascontiguousarray, parts), **places, sm_scale=0.1, is_causal=True), want)


def test_what_concat_and_cache_mla_wrote():
    _, _, rows, places = make(16, BF16, BF16)
    q, scale = normal(1, (QO[-1], HEADS, DIM + ROPE)).astype(BF16), np.float32([0.02])
    cache = np.zeros((8, 16, DIM + ROPE), ml_dtypes.float8_e4m3fn)
    indptr = np.cumsum([0, *(-(-length // 16) for length in LENGTHS)])
    for b, keys in enumerate(rows):
        slots = np.array([places["kv_indices"][indptr[b] + j // 16] * 16 + j % 16 for j in range(len(keys))], np.int32)
        quern.concat_and_cache_mla(cache, keys[:, :DIM], keys[:, DIM:], slots, scale)
    out, lse = quern.mla_decode(q[..., :DIM], q[..., DIM:], cache[..., :DIM], cache[..., DIM:], **places, sm_scale=0.05,
                                kv_scales=scale, lse_base="e", return_lse=True)
    stored = [(keys.astype(np.float32) * np.float32(1 / scale[0])).astype(cache.dtype).astype(np.float64) * scale[0] for keys in rows]
    for b, keys in enumerate(stored):
        if QO[b] < QO[b + 1]:
            queries, keys = q[QO[b]:QO[b + 1]], keys[:, None]
            want = definition(queries, keys, keys[..., :DIM], sm_scale=0.05)
            assert_attention(out[QO[b]:QO[b + 1]], lse[QO[b]:QO[b + 1]], [want], Problem(queries, keys, keys[..., :DIM]), np.e)


def ds_mla(pages, page, kind=ml_dtypes.float8_e4m3fn, rope_dtype=BF16):
    """Returns an empty cache as vLLM's fp8_ds_mla lies in memory: views of codes, scales and rotated keys."""
    memory = np.zeros((pages, page, DIM + 4 * DIM // 128 + 2 * ROPE), np.uint8)
    rope = DIM + 4 * DIM // 128
    return memory, (memory[..., :DIM].view(kind), memory[..., DIM:rope].view(np.float32), memory[..., rope:].view(rope_dtype))


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
@pytest.mark.parametrize(("kind", "dtype"), [(ml_dtypes.float8_e4m3fn, BF16), (ml_dtypes.float8_e4m3fnuz, np.float16)])
def test_what_quantize_and_cache_mla_wrote(kind, dtype, device):
    q, _, rows, places = make(16, dtype, dtype)
    memory, cache = ds_mla(8, 16, kind, dtype)
    assert memory.shape[-1] == 656
    indptr = np.cumsum([0, *(-(-length // 16) for length in LENGTHS)])

    def there(x):
        return x if device == "cpu" else quern.to(np.ascontiguousarray(x), device)

    parts = [there(x) for x in cache]  # on the CPU views of one memory
    for b, keys in enumerate(rows):
        slots = np.array([places["kv_indices"][indptr[b] + j // 16] * 16 + j % 16 for j in range(len(keys))], np.int32)
        keys = keys.copy()
        keys[:, :128] = (7 * keys[:, :128].astype(np.float32)).astype(dtype)  # groups of far different sizes
        new = keys[:, :DIM].copy(), keys[:, DIM:].copy()
        quern.quantize_and_cache_mla(*parts, *map(there, new), there(slots))
        codes, scales = quern.quantize_groups(new[0], 128, kind)
        stored, of_groups, rope = (quern.numpy(x).reshape(-1, x.shape[-1])[slots] for x in parts)
        assert np.array_equal(stored.view(np.uint8), codes.view(np.uint8)) and np.array_equal(of_groups, scales)
        assert np.array_equal(rope.view(np.uint8), new[1].view(np.uint8))
        exact = codes.astype(np.float64) * np.repeat(scales.astype(np.float64), 128, 1)
        got = quern.numpy(quern.gather_paged_mla_kv_cache(parts[0], there(slots), scales=parts[1], dtype="f32"))
        assert np.array_equal(got, exact.astype(np.float32))
        rows[b] = np.concatenate([exact, new[1].astype(np.float64)], 1)
    given = {**places, "kv_indices": there(places["kv_indices"])}
    out, lse = quern.mla_decode(there(q[..., :DIM]), there(q[..., DIM:]), parts[0], parts[2], ckv_scales=parts[1], **given,
                                sm_scale=0.05, is_causal=True, return_lse=True)
    assert quern.last_kernel().startswith("mla.cpu" if device == "cpu" else "mla.gpu_groups")
    check(quern.numpy(out), quern.numpy(lse), q, rows, sm_scale=0.05, is_causal=True)


def test_scales_of_groups_are_refused_where_they_do_not_fit():
    q, _, _, places = make(16, BF16, BF16)
    _, (ckv, scales, kpe) = ds_mla(8, 16)
    good = {"q_nope": q[..., :DIM], "q_pe": q[..., DIM:], "ckv": ckv, "kpe": kpe, "ckv_scales": scales, **places, "sm_scale": 0.1}
    for change, kind, text in [({"ckv_scales": scales[..., :3]}, ValueError, "ckv_scales has shape"),
                               ({"ckv_scales": None}, NotImplementedError, "both need the same"),
                               ({"kpe": ckv[..., :ROPE]}, NotImplementedError, "accepted with ckv_scales: f32, f16, bf16"),
                               ({"ckv": np.zeros(ckv.shape, BF16)}, NotImplementedError, "accepted with ckv_scales: FP8")]:
        with pytest.raises(kind, match=text):
            quern.mla_decode(**{**good, **change})


def test_chunks_are_merged():
    q, cache, rows, places = make(16, np.float32, np.float32, 32, 8, 3)
    indptr = np.cumsum([0, *(-(-length // 16) for length in LENGTHS)])
    places["plan"] = quern.attention_plan(3, 1, 32, qo_indptr=QO, kv_indptr=indptr, kv_last_page_len=[5, 4, 5, 0], page_size=16,
                                          kv_chunk=7)
    assert places["plan"].workspace_bytes > 0
    out, lse = quern.mla_decode(q[..., :32], q[..., 32:], cache[..., :32], cache[..., 32:], **places, sm_scale=0.3, is_causal=True,
                                return_lse=True)
    check(out, lse, q, rows, 32, sm_scale=0.3, is_causal=True)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
def test_the_absorbed_form_equals_attention_with_head_dims_192_and_128(device):
    try:
        quern.device(device)
    except LookupError:
        pytest.skip(f"no {device}")
    n, kv_len, heads, latent, scale = 3, 21, 2, 64, 192**-0.5
    q, c, kpe = normal(1, (n, heads, 192)), normal(2, (kv_len, latent)), normal(3, (kv_len, 64))
    up_k, up_v = normal(4, (heads, 128, latent)) / 8, normal(5, (heads, latent, 128)) / 8
    k = np.concatenate([np.einsum("jc,hdc->jhd", c, up_k), np.repeat(kpe[:, None], heads, 1)], -1)
    v = np.einsum("jc,hcd->jhd", c, up_v)
    there = lambda x: quern.to(np.ascontiguousarray(x), device)  # noqa: E731
    want = quern.numpy(quern.attention(*(there(x[None]) for x in (q, k, v)), is_causal=True, sm_scale=scale))[0]
    plan = quern.attention_plan(heads, 1, latent, qo_indptr=[0, n], kv_indptr=[0, kv_len], kv_last_page_len=[1], page_size=1)
    absorbed = np.einsum("nhd,hdc->nhc", q[..., :128], up_k)
    out = quern.numpy(quern.mla_decode(there(absorbed), there(q[..., 128:]), there(c[:, None]), there(kpe[:, None]), plan=plan,
                                       kv_indices=there(np.arange(kv_len, dtype=np.int32)), sm_scale=scale, is_causal=True))
    np.testing.assert_allclose(np.einsum("nhc,hcd->nhd", out, up_v), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("change", "kind", "text"), [
    ({"q_pe": np.zeros((8, HEADS, 65), BF16)}, NotImplementedError, "q_pe has a last dimension of 65; accepted: 1 to 64"),
    ({"ckv": np.zeros((3, 16, 32), BF16)}, ValueError, "all but the last dimension need to be the same"),
    ({"sm_scale": 0}, ValueError, "sm_scale is 0; accepted: above 0, finite"),
    ({"kv_scale": np.nan}, ValueError, "kv_scale is nan"),
    ({"lse_base": 10}, ValueError, "lse_base is 10; accepted: 2, 'e'"),
    ({"out": np.zeros((8, HEADS, 8), BF16)}, ValueError, r"out has shape \[8, 16, 8\], needs \[8, 16, 512\]"),
    ({"kv_indices": np.full(7, 99, np.int32)}, ValueError, r"kv_indices\[0\] is 99; accepted: 0 to"),
    ({"plan": None}, TypeError, "plan is None; accepted: a AttentionPlan"),
])
def test_refusals(change, kind, text):
    q, cache, _, places = make(16, BF16, BF16)
    good = {"q_nope": q[..., :DIM], "q_pe": q[..., DIM:], "ckv": cache[..., :DIM], "kpe": cache[..., DIM:], "sm_scale": 0.1, **places}
    quern.mla_decode(**good)
    with pytest.raises(kind, match="mla_decode: .*" + text):
        quern.mla_decode(**{**good, **change})
