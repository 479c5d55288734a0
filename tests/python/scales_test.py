# SPDX-License-Identifier: Apache-2.0
"""Layouts of scales against NumPy's, bit for bit, at DeepGEMM's test sizes on the CPU and small ones on simulated GPUs."""

import numpy as np
import pytest
import quern

DEVICES = ["cpu", "sim:gfx942", "sim:gfx1151"]
SIZES = [("cpu", mn, k, groups) for mn in (4096, 4097, 8192) for k in (128, 7168, 7296) for groups in (1, 2, 4)] + \
    [(device, *size) for device in DEVICES[1:] for size in [(64, 128, 1), (67, 896, 2), (130, 1152, 4)]]


def on(device, x):
    try:
        return x if device == "cpu" else quern.to(x, device)
    except LookupError as error:
        pytest.skip(str(error))


def back(x):
    return x if isinstance(x, np.ndarray) else quern.numpy(x)


def scales(seed, shape):
    """Returns random powers of two, with exponents within 1 and 254."""
    return np.ldexp(np.float32(1), np.random.default_rng(seed).integers(-126, 128, shape)).astype(np.float32)


def packed(sf):
    """Packs [.., mn, sk] to UE8M0 words, by values: e = log2 + 127."""
    exponents = np.zeros((*sf.shape[:-1], -(-sf.shape[-1] // 4) * 4), np.uint8)
    exponents[..., :sf.shape[-1]] = np.frexp(sf)[1] + 126
    return exponents.reshape(*sf.shape[:-1], -1, 4).view("<i4")[..., 0]


def aligned(mn):
    return mn + -mn % 4


def fetched(device, result, shape):
    """Fetches a device's MN-major result. Only a contiguous array can be fetched, so it is taken apart here."""
    assert tuple(result.shape) == shape
    wanted = ((shape[-1] * aligned(shape[-2]),) if len(shape) == 3 else ()) + (1, aligned(shape[-2]))
    if device == "cpu":
        assert tuple(stride // 4 for stride in result.strides)[-2:] == wanted[-2:]
        return result
    assert tuple(result.strides) == wanted
    return quern.numpy(quern.transform_scales(result, quern.empty(shape, str(result.dtype), device)))


@pytest.mark.parametrize("device, mn, k, groups", SIZES)
@pytest.mark.parametrize("is_mn_major", [False, True])
def test_layouts(device, mn, k, groups, is_mn_major):
    shape = (mn, -(-k // 128)) if groups == 1 else (groups, mn, -(-k // 128))
    host = scales(mn + k, shape)
    sf = np.ascontiguousarray(host.swapaxes(-1, -2)).swapaxes(-1, -2) if is_mn_major and device == "cpu" else host
    sf = on(device, sf)
    words = quern.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf)
    np.testing.assert_array_equal(fetched(device, words, (*shape[:-1], -(-shape[-1] // 4))), packed(host))
    columns = quern.get_mn_major_tma_aligned_tensor(sf)
    np.testing.assert_array_equal(fetched(device, columns, shape), host)
    assert quern.get_mn_major_tma_aligned_tensor(columns) is columns


@pytest.mark.parametrize("device", DEVICES)
def test_powers_of_two(device):
    bits = np.array([[0, 1, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x00800000]], np.uint32)
    want = np.array([[1, 1, 127, 128, 254, 254, 254, 1]])
    up = back(quern.ceil_to_ue8m0(on(device, bits.view(np.float32))))
    np.testing.assert_array_equal(up.view(np.uint32), want << 23)
    words = quern.pack_ue8m0_to_int(on(device, up))
    np.testing.assert_array_equal(back(words).view(np.uint8), want)
    np.testing.assert_array_equal(back(quern.unpack_ue8m0_from_int(words)), up)
    random = np.random.default_rng(1).integers(0, 0x7F800000, (33, 20), np.uint32).view(np.float32)
    mantissa, exponent = np.frexp(random.astype(np.float64))
    want = np.ldexp(1.0, np.maximum(exponent - (mantissa == 0.5), -126))
    np.testing.assert_array_equal(back(quern.ceil_to_ue8m0(on(device, random))), np.minimum(want, 2.0**127))


@pytest.mark.parametrize("device", DEVICES)
def test_rows_between_groups_are_left_alone(device):
    sf, ends = scales(3, (700, 9)), np.array([100, 128, 400, 513], np.int32)
    rows = np.r_[0:100, 128:128, 128:400, 512:513]
    result = quern.get_mn_major_tma_aligned_packed_ue8m0_tensor(on(device, sf), on(device, ends))
    np.testing.assert_array_equal(fetched(device, result, (700, 3))[rows], packed(sf)[rows])
    if device == "cpu":
        out = np.full((700, 3), 7, np.int32)
        quern.transform_scales(sf, out, ends)
        assert (np.delete(out, rows, 0) == 7).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("gran_k", [32, 128])
def test_k_groups(device, gran_k):
    ks, mn = [512, 0, 128, 896, 384], 68
    parts = [scales(i, (k // gran_k, mn)) for i, k in enumerate(ks)]
    want = np.concatenate([packed(part.T).T for part in parts])
    sf = on(device, np.concatenate(parts))
    call = quern.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor
    np.testing.assert_array_equal(back(call(sf, on(device, np.array(ks, np.int32)), ks, gran_k, 128)), want)
    ends = on(device, np.cumsum(ks).astype(np.int32))
    np.testing.assert_array_equal(back(call(sf, ends, ks, gran_k, 128, use_psum_layout=True)), want)
    bound = back(call(sf, ends, None, gran_k, 128, use_psum_layout=True))
    np.testing.assert_array_equal(bound[:len(want)], want)
    assert (bound[len(want):] == 0).all()


def test_k_groups_that_end_anywhere():
    ks, gran_k = [100, 33, 0, 513], 32
    begins = np.concatenate([[0], np.cumsum([-(-k // 256) * 256 for k in ks])[:-1]])
    parts = [scales(i, (-(-k // gran_k), 12)) for i, k in enumerate(ks)]
    want = np.concatenate([packed(part.T).T for part in parts])
    got = quern.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(
        np.concatenate(parts), (begins + ks).astype(np.int32), ks, gran_k, 256, use_psum_layout=True)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("mn, k, groups", [(4096, 7168, None), (4097, 7296, 2), (129, 128, None)])
def test_required_layout(mn, k, groups):
    lead, columns = () if groups is None else (groups,), -(-k // 128)
    transform = quern.transform_sf_into_required_layout
    blocks = scales(5, (*lead, -(-mn // 128), columns))
    assert transform(blocks, mn, k, (1, 128, 128), groups, False) is blocks
    got = transform(blocks, mn, k, (1, 128, 128), groups, False, packed=True)
    np.testing.assert_array_equal(got, packed(np.repeat(blocks, 128, -2)[..., :mn, :]))
    assert got.strides[-2:] == (4, 4 * aligned(mn))
    rows = scales(6, (*lead, mn, columns))
    got = transform(rows, mn, k, (1, 128), groups)
    np.testing.assert_array_equal(got, rows)
    assert got.strides[-2:] == (4, 4 * aligned(mn))
    words = transform(rows, mn, k, (1, 1, 128), groups, True, packed=True)
    np.testing.assert_array_equal(words, packed(rows))
    assert transform(words, mn, k, (1, 1, 128), groups, True, packed=True) is words


def test_sizes():
    assert [quern.get_tma_aligned_size(*pair) for pair in [(4097, 4), (4096, 4), (1, 2), (17, 1)]] == [4100, 4096, 8, 32]


F32 = np.ones((8, 4), np.float32)


@pytest.mark.parametrize("call, kind, message", [
    (lambda: quern.get_mn_major_tma_aligned_tensor(F32[0]), ValueError, r"sf has shape \[4\]"),
    (lambda: quern.get_mn_major_tma_aligned_tensor(F32.astype(np.float16)), NotImplementedError, "dtype f16"),
    (lambda: quern.pack_ue8m0_to_int(F32[:, :3]), ValueError, "x has 3 columns"),
    (lambda: quern.get_mn_major_tma_aligned_packed_ue8m0_tensor(F32, np.array([8])), NotImplementedError, "dtype i64"),
    (lambda: quern.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(F32, np.array([512], np.int32), [512, 512], 128),
     ValueError, "ks_cpu has 2 entries, needs 1"),
    (lambda: quern.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(F32, np.array([512], np.int32), None, 128),
     ValueError, "ks_cpu is None"),
    (lambda: quern.transform_sf_into_required_layout(F32, 8, 512, (1, 128)), None, ""),
    (lambda: quern.transform_sf_into_required_layout(F32, 8, 513, (1, 128)), ValueError, r"needs \(8, 5\)"),
    (lambda: quern.transform_sf_into_required_layout(F32, 8, 512, (1, 128), is_sfa=True), ValueError, "recipe is"),
    (lambda: quern.transform_sf_into_required_layout(F32, 8, 128, (1, 32)), ValueError, "1 x 32"),
    (lambda: quern.transform_sf_into_required_layout(F32.view(np.int32), 8, 2048, (1, 128), packed=True), ValueError,
     "sf has strides"),
])
def test_errors(call, kind, message):
    if kind is None:
        call()
        return
    with pytest.raises(kind, match=message):
        call()
