# SPDX-License-Identifier: Apache-2.0
"""quern.attention and its plans on NumPy arrays, against a plain definition in float64."""

import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import quern
from attention_tools import Problem, assert_attention, definition, philox
from tools import BF16, normal


def dense(dtype=np.float32, batch=2, n=5, heads=4, kv_len=37, kv_heads=2, dim=64, dim_vo=None):
    return (normal(1, (batch, n, heads, dim), dtype), normal(2, (batch, kv_len, kv_heads, dim), dtype),
            normal(3, (batch, kv_len, kv_heads, dim_vo or dim), dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, BF16])
@pytest.mark.parametrize("options", [
    {}, {"is_causal": True}, {"is_causal": True, "is_top_left": True}, {"window_left": 7}, {"window_left": 0, "window_right": 2},
    {"sm_scale": 0.3}, {"logits_soft_cap": 0.5}, {"pos_encoding": "alibi"}, {"sinks": normal(4, 4)}, {"v_scale": 2.0},
], ids=lambda o: "-".join(o) or "plain")
def test_dense(options, dtype):
    q, k, v = dense(dtype, dim=80 if options else 64)
    out, lse = quern.attention(q, k, v, return_lse=True, **options)
    assert_attention(out, lse, [definition(q[b], k[b], v[b], **options) for b in range(2)], Problem(q, k, v))


def test_layouts_strides_and_head_dims_of_their_own():
    q, k, v = dense(BF16, dim=96, dim_vo=64)
    want, want_lse = quern.attention(q, k, v, return_lse=True)
    turn = lambda x: np.ascontiguousarray(x.swapaxes(1, 2))  # noqa: E731
    out, lse = quern.attention(turn(q), turn(k), turn(v), layout="HND", return_lse=True)
    np.testing.assert_array_equal(out.swapaxes(1, 2), want)
    np.testing.assert_array_equal(lse.swapaxes(1, 2), want_lse)
    views = quern.attention(turn(q).swapaxes(1, 2), turn(k).swapaxes(1, 2), v)
    np.testing.assert_array_equal(views, want)


@pytest.mark.parametrize("shape", [(5, 37), (1, 37), (4, 5, 37), (2, 1, 5, 37), (2, 4, 5, 37), (1, 1, 1, 37)])
@pytest.mark.parametrize("kind", [np.bool_, np.float32, np.float16])
def test_masks(shape, kind):
    q, k, v = dense()
    hidden = np.random.default_rng(5).random(shape) < 0.3
    mask = ~hidden if kind == np.bool_ else np.where(hidden, -np.inf, normal(6, shape)).astype(kind)
    out, lse = quern.attention(q, k, v, mask=mask, return_lse=True)
    whole = np.broadcast_to(mask, (2, 4, 5, 37))
    assert_attention(out, lse, [definition(q[b], k[b], v[b], mask=whole[b]) for b in range(2)], Problem(q, k, v))


def test_split_keys_of_one_long_request_need_a_workspace():
    q, k, v = dense(n=1, kv_len=700, batch=1)
    out, lse = quern.attention(q, k, v, return_lse=True)
    assert_attention(out, lse, [definition(q[0], k[0], v[0])], Problem(q, k, v))
    with pytest.raises(ValueError, match=r"attention: workspace has 16 bytes, needs \d+"):
        quern.attention(q, k, v, workspace=np.zeros(16, np.uint8))


QO, KV = [0, 3, 3, 20, 21], [0, 40, 45, 51, 51]


def test_ragged():
    q, k, v = normal(1, (21, 4, 64)), normal(2, (51, 2, 64)), normal(3, (51, 2, 64))
    plan = quern.attention_plan(4, 2, 64, qo_indptr=QO, kv_indptr=KV)
    out, lse = quern.attention(q, k, v, plan=plan, is_causal=True, return_lse=True)
    for b in range(4):
        rows, keys = slice(QO[b], QO[b + 1]), slice(KV[b], KV[b + 1])
        want = definition(q[rows], k[keys], v[keys], is_causal=True)
        assert_attention(out[rows], lse[rows], [want], Problem(q[rows], k[keys], v[keys]))
    assert (out[20] == 0).all() and (lse[20] == -np.inf).all()  # a query without keys


def paged(layout, page, lengths, kv_heads=2, dim=64):
    """Returns caches with NaN in unused places, their pages shuffled and one page unused."""
    pages = [-(-length // page) for length in lengths]
    order = np.random.default_rng(9).permutation(sum(pages) + 1)[:sum(pages)].astype(np.int32)
    k, v = [normal(i, (sum(lengths), kv_heads, dim)) for i in (2, 3)]
    caches = []
    for x in (k, v):
        cache = np.full((sum(pages) + 1, page, kv_heads, dim), np.nan, np.float32)
        at, start = 0, 0
        for length, count in zip(lengths, pages, strict=True):
            for j in range(length):
                cache[order[at + j // page], j % page] = x[start + j]
            at, start = at + count, start + length
        caches.append(cache if layout == "NHD" else np.ascontiguousarray(cache.swapaxes(1, 2)))
    indptr = np.concatenate([[0], np.cumsum(pages)]).astype(np.int32)
    last = np.array([(length - 1) % page + 1 if length else 0 for length in lengths], np.int32)
    return (k, v), caches, order, indptr, last


@pytest.mark.parametrize("page", [1, 5, 16])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_pages_equal_ragged(page, layout):
    lengths = [33, 0, 16, 7]
    (k, v), (k_cache, v_cache), indices, indptr, last = paged(layout, page, lengths)
    q, qo = normal(1, (9, 4, 64)), [0, 2, 3, 8, 9]
    ragged = quern.attention_plan(4, 2, 64, qo_indptr=qo, kv_indptr=np.cumsum([0, *lengths]))
    want = quern.attention(q, k, v, plan=ragged, is_causal=True, return_lse=True)
    plan = quern.attention_plan(4, 2, 64, qo_indptr=qo, kv_indptr=indptr, kv_last_page_len=last, page_size=page)
    got = quern.attention(q, k_cache, v_cache, plan=plan, kv_indices=indices, layout=layout, is_causal=True, return_lse=True)
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[1], want[1])


def test_fp8_cache_with_scales_of_its_heads():
    q, k, v = dense(BF16)
    k8, v8 = (x.astype(np.float32).astype(ml_dtypes.float8_e4m3fn) for x in (k, v))
    k_scales, v_scales = np.float32([0.5, 2]), np.float32([3, 0.25])
    out, lse = quern.attention(q, k8, v8, k_scales=k_scales, v_scales=v_scales, return_lse=True)
    k, v = k8.astype(np.float32) * k_scales[:, None], v8.astype(np.float32) * v_scales[:, None]
    assert_attention(out, lse, [definition(q[b], k[b], v[b]) for b in range(2)], Problem(q, k, v))


def test_custom_mask():
    q, k, v = normal(1, (21, 4, 64)), normal(2, (51, 2, 64)), normal(3, (51, 2, 64))
    bits = [np.random.default_rng(b).random((QO[b + 1] - QO[b], KV[b + 1] - KV[b])) < 0.5 for b in range(4)]
    packed = np.concatenate([np.packbits(x.reshape(-1), bitorder="little") for x in bits])
    plan = quern.attention_plan(4, 2, 64, qo_indptr=QO, kv_indptr=KV)
    out, lse = quern.attention(q, k, v, plan=plan, custom_mask=packed, is_causal=True, return_lse=True)
    for b in range(4):
        rows, keys = slice(QO[b], QO[b + 1]), slice(KV[b], KV[b + 1])
        want = definition(q[rows], k[keys], v[keys], mask=bits[b])
        assert_attention(out[rows], lse[rows], [want], Problem(q[rows], k[keys], v[keys]))


def test_dropout_is_the_mask():
    q, k, v = dense()
    r = quern.attention_dropout_mask(np.zeros((2, 4, 5, 37), np.float32), 0.25, 2**63 + 5, 11)
    assert 0.6 < (r > 0).mean() < 0.9
    out = quern.attention(q, k, v, dropout_p=0.25, dropout_seed=2**63 + 5, dropout_offset=11)
    want = [definition(q[b], k[b], v[b], keep=r[b] > 0, dropout_p=0.25) for b in range(2)]
    assert_attention(out, None, want, Problem(q, k, v))


@pytest.mark.parametrize("spec", ["cpu", "sim:gfx942", "sim:gfx1151"])
def test_dropout_decides_by_its_numbers(spec):
    """Tests that on every device the mask is what the words say, and that the words are those of NumPy's 64-bit
    arithmetic."""
    seed, offset = 2**63 + 5, 2**33 + 11
    words, uniform, mask = (quern.to(np.zeros((2, 3, 5, 37), dtype), spec) for dtype in (np.int32, np.float32, np.float32))
    quern.attention_dropout_rng(words, seed, offset)
    quern.attention_dropout_rng(uniform, seed, offset)
    quern.attention_dropout_mask(mask, 0.25, seed, offset)
    words, uniform, mask = (x if isinstance(x, np.ndarray) else quern.numpy(x) for x in (words, uniform, mask))
    np.testing.assert_array_equal(words, philox(words.shape, seed, offset))
    np.testing.assert_array_equal(uniform, words.astype(np.float32) * np.float32(2.32830658e-10) + np.float32(0.5))
    np.testing.assert_array_equal(mask, np.where(words > int((0.25 - 0.5) * 0xFFFFFFFF), np.float32(0.5), np.float32(-0.5)))


@pytest.mark.parametrize("base", [2, "e"])
def test_merging_halves_gives_the_whole(base):
    q, k, v = dense()
    want, want_lse = quern.attention(q, k, v, return_lse=True, lse_base=base)
    halves = [quern.attention(q, k[:, s], v[:, s], return_lse=True, lse_base=base) for s in (slice(0, 9), slice(9, 37))]
    (v_a, s_a), (v_b, s_b) = [(o.reshape(10, 4, 64), lse.reshape(10, 4)) for o, lse in halves]
    got, lse = quern.merge_state(v_a, s_a, v_b, s_b, lse_base=base)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lse.reshape(want_lse.shape), want_lse, rtol=1e-5, atol=1e-6)
    many, s = quern.merge_states(np.stack([v_a, v_b], 1), np.stack([s_a, s_b], 1), lse_base=base)
    np.testing.assert_array_equal(many, got)
    np.testing.assert_array_equal(s, lse)
    assert quern.merge_state(v_a, s_a, v_b, s_b, lse_base=base, v=v_a, s=s_a)[0] is v_a
    np.testing.assert_array_equal(v_a, got)


def test_plan_is_pure_and_may_be_stored():
    arguments = {"qo_indptr": QO, "kv_indptr": np.array(KV, np.int64)}
    one, two = (quern.attention_plan(4, 2, 64, **arguments) for _ in range(2))
    assert one.host.tobytes() == two.host.tobytes() and one.workspace_bytes == 0
    stored = quern.AttentionPlan(np.frombuffer(one.host.tobytes(), np.uint8).copy(), 0)
    q, k, v = normal(1, (21, 4, 64)), normal(2, (51, 2, 64)), normal(3, (51, 2, 64))
    np.testing.assert_array_equal(quern.attention(q, k, v, plan=stored), quern.attention(q, k, v, plan=one))


@pytest.mark.parametrize("change, error, text", [
    ({"k": dense(kv_heads=3)[1], "v": dense(kv_heads=3)[2]}, ValueError, "num_qo_heads 4 is no multiple of num_kv_heads 3"),
    ({"mask": np.ones((5, 36), bool)}, ValueError, r"mask is \[5, 36\] bool strides .* needs to be 1 or 37"),
    ({"mask": np.ones((5, 37), np.int32)}, NotImplementedError, "mask has dtype"),
    ({"mask": np.ones((5, 37), bool), "is_causal": True}, ValueError, "mask and is_causal are both given"),
    ({"custom_mask": np.zeros(3, np.uint8)}, ValueError, "custom_mask has 3 bytes, needs 48"),
    ({"custom_mask": np.zeros(48, np.int32)}, NotImplementedError, "custom_mask has dtype i32; accepted: u8"),
    ({"q": dense(dim=520)[0], "k": dense(dim=520)[1]}, NotImplementedError, r"head_dim 520; accepted: 1 to 512 \(fast: multiples of 8"),
    ({"logits_soft_cap": 1.0, "pos_encoding": "alibi"}, NotImplementedError, "logits_soft_cap"),
    ({"layout": "DNH"}, ValueError, "layout is 'DNH'; accepted: 'NHD', 'HND'"),
    ({"pos_encoding": "rope"}, ValueError, "pos_encoding is 'rope'; accepted: 'none', 'rope_llama', 'alibi'"),
    ({"lse_base": 10}, ValueError, "lse_base is 10; accepted: 2, 'e'"),
    ({"window_left": -2}, ValueError, "window_left is -2"),
    ({"sm_scale": 0}, ValueError, "sm_scale is 0"),
    ({"dropout_p": 1.0}, ValueError, "dropout_p is 1"),
])
def test_errors(change, error, text):
    q, k, v = dense()
    out = np.full_like(q, 7)
    with pytest.raises(error, match=text):
        quern.attention(**{"q": q, "k": k, "v": v, "out": out, **change})
    assert (out == 7).all()


@pytest.mark.parametrize("change, text", [
    ({"kv_last_page_len": [0, 1]}, r"kv_last_page_len\[0\] is 0"), ({"kv_last_page_len": [5, 5]}, r"kv_last_page_len\[0\] is 5"),
    ({"kv_last_page_len": [4]}, "kv_last_page_len has 1 entries, needs 2"), ({"qo_indptr": [0, 2, 1]}, r"qo_indptr\[2\] is 1"),
    ({"qo_indptr": [0.0, 1.0, 2.0]}, "needs integers"), ({"num_qo_heads": 3}, "num_qo_heads 3 is no multiple"),
    ({"qo_indptr": np.array([0, 1, 2**31])}, "beyond 32 bits"),
])
def test_errors_of_plans(change, text):
    good = {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim_vo": 64, "qo_indptr": [0, 1, 2], "kv_indptr": [0, 2, 4],
            "kv_last_page_len": [4, 1], "page_size": 4}
    quern.attention_plan(**good)
    with pytest.raises(ValueError, match="attention_plan: .*" + text):
        quern.attention_plan(**{**good, **change})


@pytest.mark.parametrize("place", [0, 4, 8, 16, 40, 60, 80, 96, 132, 140, 156, -17, -9])
def test_damaged_plans(place):
    """Tests a plan that was stored and came back with a word changed, or shorter."""
    plan = quern.attention_plan(4, 2, 64, qo_indptr=QO, kv_indptr=KV)
    q, k, v = normal(1, (21, 4, 64)), normal(2, (51, 2, 64)), normal(3, (51, 2, 64))
    out = np.full_like(q, 7)
    damaged = plan.host.copy()
    damaged[place + 3 if place >= 0 else place] ^= 0x40  # a word's highest byte
    for host in (damaged, plan.host[:-4].copy(), plan.host[:40].copy()):
        with pytest.raises(ValueError, match="attention: "):
            quern.attention(q, k, v, plan=quern.AttentionPlan(host, plan.workspace_bytes), out=out)
    assert (out == 7).all()


OUTSIDE = """
import sys
import numpy as np, quern
from tools import normal
plan = quern.attention_plan(4, 2, 64, qo_indptr=[0, 1, 2], kv_indptr=[0, 2, 4], kv_last_page_len=[4, 1], page_size=4)
arrays = normal(1, (2, 4, 64)), normal(2, (6, 4, 2, 64)), normal(3, (6, 4, 2, 64))
for device in sys.argv[1:]:
    q, k, v, out = (quern.to(x, device) if device != "cpu" else x for x in (*arrays, np.full((2, 4, 64), 7, np.float32)))
    for page in (6, -1, 2**31 - 1, 3):
        indices = np.array([5, 0, page, 2], np.int32)
        try:
            quern.attention(q, k, v, plan=plan, kv_indices=quern.to(indices, device) if device != "cpu" else indices, out=out)
            assert page == 3
        except ValueError as error:
            assert str(error) == f"attention: kv_indices[2] is {page}; accepted: 0 to 5", error
            assert (np.asarray(quern.numpy(out) if device != "cpu" else out) == 7).all()
print("done")
"""


@pytest.mark.parametrize("devices, validate", [(["cpu"], "0"), (["cpu", "sim:gfx942"], "1")])
def test_pages_outside_the_pool(devices, validate):
    environment = {**os.environ, "QUERN_VALIDATE": validate,
                   "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{os.path.dirname(__file__)}"}
    done = subprocess.run([sys.executable, "-c", OUTSIDE, *devices], env=environment, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stdout + done.stderr
