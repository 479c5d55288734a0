# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding and gated activations on NumPy arrays against formulas in float64."""

import math

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, DTYPES, UNIT, normal


def rotate(x, angles, interleave):
    """Rotates x [n, heads, d] by angles [n, r / 2], by the definition, in float64."""
    y, half = x.astype(np.float64), angles.shape[1]
    first, second = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleave else (slice(0, half), slice(half, 2 * half))
    a, b = y[..., first].copy(), y[..., second].copy()
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    return y


def frequencies(rotary_dim, theta=1e4, scale=1.0):
    return theta ** (-2 * np.arange(rotary_dim // 2) / rotary_dim) / scale


def assert_rotated(got, x, angles, interleave=False):
    """Checks a rotation. Angles are within 2^-21, and the result is rounded once from f32."""
    want = rotate(x, angles, interleave)
    bound = UNIT[got.dtype] * np.abs(want) + (2.0**-20 + 2.0**-22) * 2 * np.abs(x.astype(np.float64)).max() + 2.0**-24
    assert (np.abs(got.astype(np.float64) - want) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleave, rotary_dim", [(False, 64), (True, 64), (False, 32), (True, 16)])
def test_by_position(dtype, interleave, rotary_dim):
    q, k = normal(1, (19, 4, 64), dtype), normal(2, (19, 2, 64), dtype)
    positions = np.arange(19, dtype=np.int32) * 7 + (1 << 20)
    angles = positions[:, None] * frequencies(rotary_dim)
    got = quern.apply_rope_pos_ids(q, k, positions, rotary_dim, interleave)
    assert_rotated(got[0], q, angles, interleave)
    assert_rotated(got[1], k, angles, interleave)
    indptr, offsets = np.array([0, 5, 5, 19], np.int32), np.array([3, 9, 100], np.int32)
    angles = np.concatenate([3 + np.arange(5), 100 + np.arange(14)])[:, None] * frequencies(rotary_dim)
    got = quern.apply_rope(q, k, indptr, offsets, rotary_dim, interleave)
    assert_rotated(got[1], k, angles, interleave)


def test_llama31_and_views():
    qkv = normal(3, (9, 8, 64))
    q, k = qkv[:, :4], qkv[:, 4:6]
    f = frequencies(64, 5e5)
    s = np.clip(f * 8192 / (2 * math.pi * 3) - 1 / 3, 0, 1)
    angles = np.arange(9)[:, None] * (s * f + (1 - s) * f / 8)
    before = qkv.copy()
    got = quern.apply_llama31_rope_pos_ids(q, k, np.arange(9, dtype=np.int32), q_out=q, k_out=k)
    assert got[0] is q and got[1] is k
    assert_rotated(q, before[:, :4], angles)
    assert_rotated(k, before[:, 4:6], angles)
    np.testing.assert_array_equal(qkv[:, 6:], before[:, 6:])
    segments = np.array([0, 9], np.int32), np.array([0], np.int32)
    assert_rotated(quern.apply_llama31_rope(before[:, :4], None, *segments)[0], before[:, :4], angles)


def test_by_cache_and_after_norm():
    q, positions = normal(4, (9, 4, 64), BF16), np.array([5, 0, 1, 7, 7, 2, 3, 4, 6], np.int32)
    table = np.arange(8)[:, None] * frequencies(32)
    cache = np.concatenate([np.cos(table), np.sin(table)], 1).astype(np.float32)
    got, none = quern.apply_rope_with_cos_sin_cache(q, None, cache, positions)
    assert none is None
    assert_rotated(got, q, table[positions])
    cos, sin = (np.ascontiguousarray(half) for half in np.split(cache[positions], 2, 1))
    np.testing.assert_array_equal(quern.qk_rmsnorm_rope(q, None, None, None, cos, sin, rotary_dim=32)[0], got)


def steps_apart(got, value):
    """Returns how far FP8 codes lie from float64 values rounded to them, in codes."""
    def order(a):
        codes = a.view(np.uint8).astype(np.int32)
        return np.where(codes & 0x80, -(codes & 0x7F), codes)
    limit = float(ml_dtypes.finfo(got.dtype).max)
    return np.abs(order(got) - order(np.clip(value, -limit, limit).astype(got.dtype))).max(initial=0)


def parts(heads_q, heads_k, rope, nope):
    """Returns q_rope, k_rope, q_nope, k_nope, cos_sin_cache, pos_ids, and the two rotated ones in float64. heads_k 0:
    MLA."""
    shape_k = (9, heads_k) if heads_k else (9,)
    q, k = normal(8, (9, heads_q, rope + nope), BF16), normal(9, (*shape_k, rope + nope), BF16)
    table, positions = np.arange(40)[:, None] * frequencies(rope), np.random.default_rng(1).integers(0, 40, 9)
    cache = np.concatenate([np.cos(table), np.sin(table)], 1).astype(np.float32)
    split = q[..., :rope], k[..., :rope], q[..., rope:], k[..., rope:]  # views: any strides
    turned = [rotate(x.reshape(9, -1, rope), table[positions], False).reshape(x.shape) for x in split[:2]]
    return (*split, cache, positions.astype(np.int32)), turned


@pytest.mark.parametrize("kind", ["e4m3fn", "e4m3fnuz", "e5m2"])
@pytest.mark.parametrize("heads_k", [2, 0])
def test_to_fp8(heads_k, kind):
    (q, k, q_nope, k_nope, cache, positions), turned = parts(4, heads_k, 32, 96)
    got = quern.rope_quantize_fp8(q, k, cache, positions, q_nope, k_nope, 0.5, 300.0, dtype=kind)
    assert [g.shape for g in got] == [q.shape, k.shape, q_nope.shape, k_nope.shape]
    wide = [turned[0] * 0.5, turned[1] * 300, q_nope.astype(np.float64) * 0.5, k_nope.astype(np.float64) * 300]
    assert max(steps_apart(a, b) for a, b in zip(got, wide, strict=True)) <= 1
    alone = quern.rope_quantize_fp8(q, k, cache, positions, quant_scale_q=0.5, dtype=kind)
    np.testing.assert_array_equal(alone[0].view(np.uint8), got[0].view(np.uint8))
    assert alone[2:] == (None, None)
    for name in ("quant_scale_q", "quant_scale_kv"):
        for bad in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match=f"rope_quantize_fp8: {name} is "):
                quern.rope_quantize_fp8(q, k, cache, positions, **{name: bad})


PAGES = {"batch_indices": np.array([0, 0, 1, 1, 1, 2, 2, -1, 2], np.int32),
         "positions": np.array([0, 1, 3, 4, 5, 0, 1, 9, 4], np.int32), "kv_indices": np.array([3, 0, 5, 1, 4], np.int32),
         "kv_indptr": np.array([0, 1, 3, 5], np.int32)}


def places(page_size=4):
    """Returns the tokens that have a place, their pages, and their places in these."""
    tokens = np.flatnonzero(PAGES["batch_indices"] >= 0)
    batch, position = PAGES["batch_indices"][tokens], PAGES["positions"][tokens]
    return tokens, PAGES["kv_indices"][PAGES["kv_indptr"][batch] + position // page_size], position % page_size


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_to_a_cache(layout):
    (q, k, q_nope, k_nope, cache, positions), _ = parts(4, 2, 32, 96)
    v = normal(10, (9, 2, 64), BF16)
    fp8 = quern.rope_quantize_fp8(q, k, cache, positions, q_nope, k_nope, 0.5, 2.0)
    shape = (6, 4, 2) if layout == "NHD" else (6, 2, 4)
    caches = [np.full((*shape, width), 7, ml_dtypes.float8_e4m3fn) for width in (128, 64)]
    got = quern.rope_quantize_fp8_append_paged_kv_cache(
        q, k, v, cache, positions, **PAGES, k_cache=caches[0], v_cache=caches[1], q_nope=q_nope, k_nope=k_nope,
        quant_scale_q=0.5, quant_scale_kv=2.0, layout=layout)
    for a, b in zip(got, (fp8[0], fp8[2]), strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
    tokens, page, place = places()
    new = [np.concatenate([fp8[1], fp8[3]], -1), (v.astype(np.float32) * 2).astype(ml_dtypes.float8_e4m3fn)]
    for written, rows in zip(caches, new, strict=True):
        want = np.full((6, 4, 2, rows.shape[-1]), 7, rows.dtype)
        want[page, place] = rows[tokens]
        np.testing.assert_array_equal(written.view(np.uint8), (want if layout == "NHD" else want.swapaxes(1, 2)).view(np.uint8))


def test_to_a_latent_cache():
    (q, k, q_nope, k_nope, cache, positions), _ = parts(4, 0, 64, 128)
    fp8 = quern.rope_quantize_fp8(q, k, cache, positions, q_nope, k_nope)
    ckv, kpe = (np.full((6, 4, width), 7, ml_dtypes.float8_e4m3fn) for width in (128, 64))
    quern.rope_quantize_fp8_append_paged_kv_cache(q, k, None, cache, positions, **PAGES, ckv_cache=ckv, kpe_cache=kpe,
                                                  q_nope=q_nope, k_nope=k_nope)
    tokens, page, place = places()
    for written, rows in ((ckv, fp8[3]), (kpe, fp8[1])):
        want = np.full(written.shape, 7, rows.dtype)
        want[page, place] = rows[tokens]
        np.testing.assert_array_equal(written.view(np.uint8), want.view(np.uint8))
    with pytest.raises(ValueError, match="k_cache and ckv_cache are None"):
        quern.rope_quantize_fp8_append_paged_kv_cache(q, k, None, cache, positions, **PAGES)


FUNCTIONS = {"silu": lambda x: x / (1 + np.exp(-x)), "gelu": lambda x: x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
             "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}


def gated(x, function, limit=np.inf):
    gate, up = np.split(x.astype(np.float64), 2, -1)
    return FUNCTIONS[function](np.minimum(gate, limit)) * np.clip(up, -limit, limit)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_activation(function, dtype):
    x = normal(5, (3, 7, 222), dtype)
    for got, want in [(getattr(quern, f"{function}_and_mul")(x), gated(x, function)),
                      (quern.act_and_mul(x, function, 0.5), gated(x, function, 0.5))]:
        assert got.dtype == dtype and got.shape == (3, 7, 111)
        tolerance = (UNIT[np.dtype(dtype)] + (64 + 2 * 36) * 2.0**-24) * np.abs(want) + 64 * 2.0**-24 + 2.0**-24
        assert (np.abs(got.astype(np.float64) - want) <= tolerance).all()


@pytest.mark.parametrize("group", [None, 128])
def test_activation_to_fp8(group):
    x = normal(6, (5, 512))
    want = gated(x, "silu")
    q, scale = quern.act_and_mul_dynamic_quant(x, group=group)
    assert q.dtype == ml_dtypes.float8_e4m3fn and scale.shape == ((5,) if group is None else (5, 2))
    wide = np.repeat(scale.reshape(5, -1), 256 if group is None else 128, axis=1)
    assert (np.abs(q.astype(np.float64) * wide - want) <= np.abs(want) * 2.0**-4 * 1.001 + wide * 2.0**-9).all()
    q = quern.act_and_mul_quant(x, np.array([0.125], np.float32))
    assert (np.abs(q.astype(np.float64) / 8 - want) <= np.abs(want) * 2.0**-4 * 1.001 + 2.0**-12).all()


@pytest.mark.parametrize("call, error, message", [
    (lambda q, i: quern.apply_rope_pos_ids(q, None, i.astype(np.int64)), Exception, "pos_ids"),
    (lambda q, i: quern.apply_rope_pos_ids(q, None, i, rotary_dim=7), ValueError, "rotary_dim"),
    (lambda q, i: quern.apply_rope_pos_ids(q, None, i[:3]), ValueError, "pos_ids"),
    (lambda q, i: quern.silu_and_mul(q[..., :7]), ValueError, "silu_and_mul: "),
    (lambda q, i: quern.act_and_mul(q, "relu"), ValueError, "function is 'relu'"),
    (lambda q, i: quern.act_and_mul(q, limit=-1.0), ValueError, "limit"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(7, (9, 4, 64)), np.arange(9, dtype=np.int32))
