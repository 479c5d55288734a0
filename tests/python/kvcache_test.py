# SPDX-License-Identifier: Apache-2.0
"""Paged caches and quantisation along rows, on NumPy arrays, against plain loops and formulas."""

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, normal

PAGE = 4
INDPTR = np.array([0, 3, 3, 8], np.int32)  # new tokens of three sequences
SEQ_LENS = np.array([5, 4, 7], np.int32)
KV_INDPTR, KV_INDICES = np.array([0, 2, 3, 5], np.int32), np.array([6, 1, 4, 0, 3], np.int32)
PLACES = [(0, 2), (0, 3), (0, 4), (2, 2), (2, 3), (2, 4), (2, 5), (2, 6)]  # (sequence, position) of each token


def appended(cache, new, is_hnd=False):
    want = cache.copy()
    for token, (batch, position) in enumerate(PLACES):
        page = KV_INDICES[KV_INDPTR[batch] + position // PAGE]
        (want[page].swapaxes(0, 1) if is_hnd else want[page])[position % PAGE] = new[token]
    return want


@pytest.mark.parametrize("dtype", [np.float16, BF16, ml_dtypes.float8_e4m3fn])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_append(layout, dtype):
    batch, positions = quern.get_batch_indices_positions(INDPTR, SEQ_LENS, 9)
    assert list(zip(batch, positions, strict=True)) == [*PLACES, (-1, 0)]
    shape = (7, PAGE, 2, 16) if layout == "NHD" else (7, 2, PAGE, 16)
    k_cache, v_cache = normal(1, shape).astype(dtype), normal(2, shape).astype(dtype)
    k, v = normal(3, (9, 2, 16)).astype(dtype), normal(4, (9, 2, 16)).astype(dtype)
    want = appended(k_cache, k, layout == "HND"), appended(v_cache, v, layout == "HND")
    quern.append_paged_kv_cache(k_cache, v_cache, k, v, batch, positions, KV_INDICES, KV_INDPTR, layout=layout)
    np.testing.assert_array_equal(k_cache, want[0])
    np.testing.assert_array_equal(v_cache, want[1])


def test_append_mla():
    batch, positions = quern.get_batch_indices_positions(INDPTR, SEQ_LENS, 8)
    ckv_cache, kpe_cache, ckv, kpe = (normal(i, shape) for i, shape in
                                      enumerate([(7, PAGE, 32), (7, PAGE, 8), (8, 32), (8, 8)]))
    want = appended(ckv_cache, ckv), appended(kpe_cache, kpe)
    quern.append_paged_mla_kv_cache(ckv_cache, kpe_cache, ckv, kpe, batch, positions, KV_INDICES, KV_INDPTR)
    np.testing.assert_array_equal(ckv_cache, want[0])
    np.testing.assert_array_equal(kpe_cache, want[1])


def test_concatenated():
    cache, kv_c, k_pe = np.zeros((3, PAGE, 40), np.float16), normal(1, (3, 32), np.float16), normal(2, (3, 8), np.float16)
    quern.concat_and_cache_mla(cache, kv_c, k_pe, np.array([5, -1, 11], np.int32))
    want = np.zeros_like(cache).reshape(12, 40)
    want[[5, 11]] = np.concatenate([kv_c, k_pe], 1)[[0, 2]]
    np.testing.assert_array_equal(cache.reshape(12, 40), want)


def test_seq_lens():
    got = quern.get_seq_lens(np.array([0, 2, 2, 5], np.int32), np.array([3, 0, 4], np.int32), 4)
    np.testing.assert_array_equal(got, [7, 0, 12])


def test_slots():
    cache = np.zeros((3, PAGE, 2, 16), ml_dtypes.float8_e4m3fn)
    v_cache = cache.copy()
    x, scale = normal(5, (3, 2, 16)), np.array([0.5], np.float32)
    quern.reshape_and_cache(cache, v_cache, x, x, np.array([5, -1, 11], np.int32), scale, scale)
    want = (x * 2).astype(ml_dtypes.float8_e4m3fn)
    np.testing.assert_array_equal(cache.reshape(12, 2, 16)[[5, 11]], want[[0, 2]])
    assert (np.delete(cache.reshape(12, 2, 16).astype(float), [5, 11], 0) == 0).all()


@pytest.mark.parametrize("dtype", ["e4m3fn", "e5m2", "i8"])
@pytest.mark.parametrize("group", [0, 64, 128])
def test_quantize_rows(dtype, group):
    x = normal(6, (5, 200))
    q, scale = quern.quantize_groups(x, group, dtype)
    wide = np.repeat(scale, group or 200, 1)[:, :200].astype(np.float64)
    half = {"e4m3fn": 2.0**-4, "e5m2": 2.0**-3, "i8": 0}[dtype]
    assert (np.abs(q.astype(np.float64) * wide - x) <= (np.abs(x) * half + wide * 0.5) * (1 + 2.0**-20)).all()
    largest = {"e4m3fn": 448, "e5m2": 57344, "i8": 127}[dtype]
    np.testing.assert_allclose(np.abs(q.astype(np.float64)).max(), largest)
    rounded = quern.quantize_groups(x, group, dtype, round_scale=True)[1]
    assert (np.frexp(rounded)[0] == 0.5).all() and (rounded >= scale).all() and (rounded < 2 * scale).all()
    packed = quern.quantize_groups(x, group, dtype, packed=True)[1]
    exponents = packed.view(np.uint8).reshape(5, -1)[:, :scale.shape[1]].astype(int) - 127
    np.testing.assert_array_equal(np.ldexp(1.0, exponents), rounded)


def test_quantize_with_one_scale():
    x = normal(7, (5, 200), BF16)
    q, scale = quern.quantize_tensor(x)
    assert scale.shape == (1,)
    np.testing.assert_allclose(scale[0], np.abs(x.astype(np.float64)).max() / 448, rtol=2.0**-23)
    np.testing.assert_array_equal(quern.quantize_static(x, scale), q)


@pytest.mark.parametrize("call, message", [
    (lambda c, x: quern.append_paged_kv_cache(c, c.copy(), x, x, INDPTR, INDPTR, KV_INDICES, KV_INDPTR, layout="XYZ"),
     "layout is 'XYZ'"),
    (lambda c, x: quern.append_paged_kv_cache(c, c.copy(), x, x, INDPTR, INDPTR, KV_INDICES, KV_INDPTR), "batch_indices"),
    (lambda c, x: quern.reshape_and_cache(c, c.copy(), x, x[:2], INDPTR[:3]), "value"),
    (lambda c, x: quern.quantize_groups(x[0], -1), "group is -1"),
])
def test_errors_write_nothing(call, message):
    cache = np.full((7, PAGE, 2, 16), 3, np.float32)
    with pytest.raises(ValueError, match=message):
        call(cache, normal(8, (3, 2, 16)))
    assert (cache == 3).all()
