# SPDX-License-Identifier: Apache-2.0
"""GEMM and FP8 quantisation on NumPy arrays and on a simulated device, against NumPy in float64."""

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, normal

FP8 = np.dtype(ml_dtypes.float8_e4m3fn)


def dequantized(q, scale, block):
    wide = np.repeat(np.repeat(scale.astype(np.float64), block[0], 0), block[1], 1)
    return q.astype(np.float64) * wide[:q.shape[0], :q.shape[1]]


def assert_product(got, a, b, c=None):
    """Checks a product that was rounded once to got's type from an f32 sum of k products."""
    unit = 2.0**-8 if got.dtype == BF16 else 2.0**-24
    want = a @ b.T + (0 if c is None else c)
    terms = np.abs(a) @ np.abs(b).T + (0 if c is None else np.abs(c))
    assert (np.abs(got.astype(np.float64) - want) <= unit * np.abs(want) + 2 * (a.shape[1] + 2) * 2.0**-24 * terms).all()


@pytest.mark.parametrize("block, dtype", [((1, 128), "e4m3fn"), ((128, 128), "e4m3fnuz"), ((1, 128), "e5m2")])
def test_quantize(block, dtype):
    x = normal(1, (130, 200))
    q, scale = quern.quantize_fp8(x, block, dtype)
    assert scale.shape == (-(-130 // block[0]), 2) and q.shape == x.shape
    half_step = 2.0**-3 if dtype == "e5m2" else 2.0**-4
    largest = np.repeat(np.repeat(scale, block[0], 0), block[1], 1)[:130, :200]
    assert (np.abs(dequantized(q, scale, block) - x) <= np.abs(x) * half_step * (1 + 2.0**-20) + largest * 2.0**-9).all()
    back = quern.dequantize_fp8(q, scale, block)
    np.testing.assert_array_equal(back, dequantized(q, scale, block).astype(np.float32))


def test_convert():
    q, scale = quern.quantize_fp8(normal(2, (4, 256)))
    nuz, doubled = quern.convert_fp8(q, scale, "e4m3fnuz")
    assert nuz.dtype == ml_dtypes.float8_e4m3fnuz
    np.testing.assert_array_equal(dequantized(nuz, doubled, (1, 128)), dequantized(q, scale, (1, 128)))


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_gemm(dtype):
    a, b, c = normal(3, (33, 200), BF16), normal(4, (70, 200), BF16), normal(5, (33, 70))
    c = c.astype(BF16) if dtype == "bf16" else c
    wide = [t.astype(np.float64) for t in (a, b, c)]
    assert_product(quern.gemm(a, b, dtype=dtype), *wide[:2])
    assert_product(quern.gemm(a, b, c, dtype=dtype), *wide)
    assert_product(quern.gemm(a, np.ascontiguousarray(b.T).T, dtype=dtype), *wide[:2])


@pytest.mark.parametrize("packed", [False, True])
def test_gemm_fp8(packed):
    a, scale_a = quern.quantize_fp8(normal(6, (17, 256)))
    b, scale_b = quern.quantize_fp8(normal(7, (130, 256)), (128, 128))
    wide = dequantized(a, scale_a, (1, 128)), dequantized(b, scale_b, (128, 128))
    if packed:
        b, scale_b = quern.gemm_pack(b, scale_b)
        assert isinstance(b, np.ndarray)
    assert_product(quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, packed=packed, n=130), *wide)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
@pytest.mark.parametrize("shapes", [((1,), (1,)), ((9,), (70,)), ((9, 2), (70, 2)), ((9, 1), None), (None, None)], ids=str)
def test_scales(device, shapes):
    wide, given = [], []
    for i, (rows, shape) in enumerate(zip((9, 70), shapes, strict=True)):
        codes, scale = normal(25 + i, (rows, 200)).astype(FP8), np.abs(normal(27 + i, shape or (1,))) + 0.5
        full = np.repeat(scale.reshape(len(scale), -1), 200, 1) if scale.size in (1, rows) else np.repeat(scale, 128, 1)[:, :200]
        wide.append(codes.astype(np.float64) * (full if shape else 1))
        given.append((quern.to(codes, device), quern.to(scale, device) if shape else None))
    (a, scale_a), (b, scale_b) = given
    assert_product(quern.numpy(quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, dtype="f32")), *wide)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
@pytest.mark.parametrize("rows", [1, 512])
def test_scales_of_all_bits(device, rows):
    """A NaN all of whose bits are set, which rounding to bf16 would carry into a zero."""
    kind = "float8_e4m3fn" if device == "cpu" else "float8_e4m3fnuz"
    a, b = (np.ones((count, 256), getattr(ml_dtypes, kind)) for count in (512, 256))
    scale = np.ones(rows, np.float32)
    scale[0] = np.uint32(0x7FFFFFFF).view(np.float32)
    given = [quern.to(t, device) for t in (a, b, scale, np.ones(1 if rows == 1 else 256, np.float32))]
    d = quern.numpy(quern.gemm(*given[:2], scale_a=given[2], scale_b=given[3])).astype(np.float32)
    assert np.isnan(d[:1] if rows > 1 else d).all() and (rows == 1 or (d[1:] == 256).all())


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("words", [False, True])
def test_scales_of_powers_of_two(device, words):
    codes = [normal(25, (9, 700)).astype(FP8), normal(26, (70, 700)).astype(FP8)]
    exponents = [np.random.default_rng(i).integers(118, 132, (len(x), 6)).astype(np.uint8) for i, x in enumerate(codes)]
    exponents[0][1, 5] = 0
    wide = [x.astype(np.float64) * np.repeat(np.exp2(e - 127.0), 128, 1)[:, :700] for x, e in zip(codes, exponents, strict=True)]
    if words:
        scales = [np.pad(e, ((0, 0), (0, 2)), constant_values=255).view(np.int32) for e in exponents]
    else:
        scales = [e.view(ml_dtypes.float8_e8m0fnu) for e in exponents]
    a, b, scale_a, scale_b = (quern.to(x, device) for x in (*codes, *scales))
    assert_product(quern.numpy(quern.gemm(a, b, scale_a=scale_a, scale_b=scale_b, dtype="f32")), *wide)
    if device != "cpu":
        assert quern.last_kernel() == "gemm.any_mixed"


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
def test_batches(device):
    a, b, c = normal(50, (3, 9, 40), BF16), normal(51, (3, 70, 40), BF16), normal(52, (3, 9, 70))
    bias = normal(53, (1, 70))
    wide = [x.astype(np.float64) for x in (a, b, c)]
    a, b, c, bias = (quern.to(x, device) for x in (a, b, c, bias))
    for given, of_b in ((b, wide[1]), (b[1:2], wide[1][[1, 1, 1]])):
        got, added = quern.numpy(quern.gemm(a, given)), quern.numpy(quern.gemm(a, given, c, bias=bias, dtype="f32"))
        assert got.shape == added.shape == (3, 9, 70)
        for i in range(3):
            assert_product(got[i], wide[0][i], of_b[i])
            assert_product(added[i], wide[0][i], of_b[i], wide[2][i] + quern.numpy(bias))
    one = quern.gemm(a, b, bias=bias, activation="silu_and_mul", dtype="e4m3fn")
    many = [quern.gemm(a[i], b[i], bias=bias[0], activation="silu_and_mul", dtype="e4m3fn") for i in range(3)]
    for part in range(2):
        np.testing.assert_array_equal(quern.numpy(one[part]).view(np.uint8), [quern.numpy(x[part]).view(np.uint8) for x in many])


def test_packed_batches():
    (a, scale_a), (b, scale_b) = quern.quantize_fp8(normal(54, (18, 256))), quern.quantize_fp8(normal(55, (130, 256)), (128, 128))
    packed, packed_scale = quern.gemm_pack(b, scale_b)
    want = quern.gemm(a, packed, scale_a=scale_a, scale_b=packed_scale, packed=True, n=130)
    turned = [x.reshape(9, 2, -1).swapaxes(0, 1) for x in (a, scale_a)]  # whose rows take turns
    got = quern.gemm(turned[0], packed, scale_a=turned[1], scale_b=packed_scale[None], packed=True, n=130)
    np.testing.assert_array_equal(got.swapaxes(0, 1).reshape(18, 130).view(np.uint16), want.view(np.uint16))


TYPES = {name: np.dtype(getattr(ml_dtypes, name, name)) for name in (
    "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "int8")}


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx90a", "sim:gfx1151"])
@pytest.mark.parametrize("of_a", TYPES)
def test_types(device, of_a):
    for i, of_b in enumerate(TYPES.values()):
        a, b = (normal(40 + i, shape) * (20 if t == np.int8 else 1) for shape, t in (((9, 150), TYPES[of_a]), ((21, 150), of_b)))
        a, b, out = a.astype(TYPES[of_a]), b.astype(of_b), ("f32", "f16", "bf16")[i % 3]
        got = quern.numpy(quern.gemm(quern.to(a, device), quern.to(b, device), dtype=out)).astype(np.float64)
        a, b = a.astype(np.float64), b.astype(np.float64)
        unit, terms = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[out], np.abs(a) @ np.abs(b).T
        assert (np.abs(got - a @ b.T) <= unit * np.abs(a @ b.T) + (3 * 2.0**-16 + 6 * 154 * 2.0**-24) * terms).all()


def test_scales_of_groups():
    a, b, scale = normal(28, (128, 64), BF16), normal(29, (2, 8, 64), BF16), np.array([0.5, 3], np.float32)
    layout = np.ones(128, np.int32)
    d = quern.gemm_grouped_contiguous(a, b, layout, scale_b=scale)
    assert_product(d, a.astype(np.float64), b[1].astype(np.float64) * 3)


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("dtype", [BF16, np.dtype(np.float32)])
def test_epilogue(device, dtype):
    a, b, bias, gate = normal(20, (12, 40), BF16), normal(21, (70, 40), BF16), normal(22, (70,)), normal(23, (3, 70), BF16)
    residual = normal(24, (12, 70), dtype)
    product = a.astype(np.float64) @ b.T.astype(np.float64) + bias
    gates = np.repeat(gate.astype(np.float64), 4, 0)
    on = [quern.to(x, device) for x in (a, b)]
    vectors = {"bias": quern.to(bias, device), "gate": quern.to(gate, device)}
    given = quern.to(residual, device)
    unit = 2.0**-8 if dtype == BF16 else 2.0**-18
    for call, want in [
        ({"bias": vectors["bias"]}, product),
        ({"bias": vectors["bias"], "activation": "gelu_tanh"}, gelu_tanh(product)),
        (vectors | {"c": given}, residual.astype(np.float64) + gates * product),
        (vectors | {"c": given, "activation": "gelu_tanh", "out": given},
         residual.astype(np.float64) + gates * gelu_tanh(product)),
    ]:
        got = quern.numpy(quern.gemm(*on, dtype=dtype, **call)).astype(np.float64)
        assert (np.abs(got - want) <= unit * np.abs(want) + 1e-5 * (1 + np.abs(gates))).all()


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
def test_silu_and_mul(device):
    a, b, bias, residual = normal(25, (12, 40), BF16), normal(26, (70, 40), BF16), normal(27, (70,)), normal(28, (12, 35))
    x = a.astype(np.float64) @ b.T.astype(np.float64) + bias
    want = x[:, 0::2] / (1 + np.exp(-x[:, 0::2])) * x[:, 1::2] + residual
    got = quern.gemm(*(quern.to(t, device) for t in (a, b, residual)), bias=quern.to(bias, device), activation="silu_and_mul",
                     dtype="f32")
    assert got.shape == (12, 35)
    assert (np.abs(quern.numpy(got) - want) <= 2.0**-18 * (1 + np.abs(want)) * (1 + np.abs(x[:, 1::2]))).all()


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
@pytest.mark.parametrize("activation", [None, "silu_and_mul"])
def test_fp8_results(device, activation):
    a, scale_a = quern.quantize_fp8(normal(29, (9, 128)))
    b, scale_b = quern.quantize_fp8(normal(30, (280, 128)), (128, 128))
    on = [quern.to(t, device) for t in (a, b)]
    call = {"scale_a": quern.to(scale_a, device), "scale_b": quern.to(scale_b, device), "activation": activation}
    exact = quern.numpy(quern.gemm(*on, dtype="f32", **call))
    for dtype in ("e4m3fn", "e5m2"):
        q, scale = (quern.numpy(x) for x in quern.gemm(*on, dtype=dtype, **call))
        want, want_scale = quern.quantize_groups(exact, 128, dtype)
        np.testing.assert_array_equal(q.view(np.uint8), want.view(np.uint8))
        np.testing.assert_array_equal(scale, want_scale)
    one = np.array([0.1], np.float32)
    q = quern.numpy(quern.gemm(*on, dtype="e4m3fn", given_scale=quern.to(one, device), **call))
    np.testing.assert_array_equal(q.view(np.uint8), quern.quantize_static(exact, one).view(np.uint8))
    half = quern.numpy(quern.gemm(*on, dtype="f16", **call))
    np.testing.assert_array_equal(half, exact.astype(np.float16))


def test_experts():
    a, b, bias = normal(31, (2, 6, 64), BF16), normal(32, (2, 256, 64), BF16), normal(33, (2, 256))
    x = np.einsum("gmk,gnk->gmn", a.astype(np.float64), b.astype(np.float64)) + bias[:, None]
    want = x[..., 0::2] / (1 + np.exp(-x[..., 0::2])) * x[..., 1::2]
    q, scale = quern.gemm_grouped_masked(a, b, np.array([6, 6], np.int32), bias=bias, activation="silu_and_mul", dtype="e4m3fn")
    assert q.shape == (2, 6, 128) and scale.shape == (2, 6, 1)
    np.testing.assert_allclose(scale[..., 0], np.abs(want).max(-1) / 448, rtol=1e-5)
    assert (np.abs(q.astype(np.float64) * scale - want) <= np.abs(want) * 2.0**-4 + scale * 2.0**-9).all()
    rows = np.repeat(np.arange(2, dtype=np.int32), 128)
    out = quern.gemm_grouped_contiguous(np.resize(a[0], (256, 64)), b, rows, bias=bias, activation="gelu_tanh", dtype="f16")
    wide = np.resize(a[0], (256, 64)).astype(np.float64)
    for g in range(2):
        exact = gelu_tanh(wide @ b[g].T.astype(np.float64) + bias[g])[128 * g:][:128]
        assert (np.abs(out[128 * g:][:128] - exact) <= 2.0**-10 * np.abs(exact) + 1e-4).all()


def test_gemm_fp8_on_a_simulated_device():
    a, scale_a = quern.quantize_fp8(normal(8, (17, 256)))
    b, scale_b = quern.quantize_fp8(normal(9, (130, 256)), (128, 128))
    wide = dequantized(a, scale_a, (1, 128)), dequantized(b, scale_b, (128, 128))
    a, scale_a, b, scale_b = (quern.to(t, "sim:gfx942") for t in (a, scale_a, b, scale_b))
    packed, packed_scale = quern.gemm_pack(b, scale_b)
    for weights in [{"b": b, "scale_b": scale_b}, {"b": packed, "scale_b": packed_scale, "packed": True}]:
        d = quern.gemm(a, scale_a=scale_a, n=130, **weights)
        assert d.__dlpack_device__()[0] == 10 and quern.last_kernel().startswith("gemm.")
        assert_product(quern.numpy(d), *wide)


@pytest.mark.parametrize("by_ends", [False, True])
def test_grouped_contiguous(by_ends):
    a, b = normal(10, (256, 128), BF16), normal(11, (2, 64, 128), BF16)
    rows = {0: slice(0, 100), 1: slice(128, 256)}
    index = np.full(256, -1, np.int32)
    for group, which in rows.items():
        index[which] = group
    layout = np.array([100, 256], np.int32) if by_ends else index
    out = np.zeros((256, 64), BF16)
    got = quern.gemm_grouped_contiguous(a, b, layout, by_ends=by_ends, out=out)
    for group, which in rows.items():
        assert_product(got[which], a[which].astype(np.float64), b[group].astype(np.float64))
    assert (got[100:128] == 0).all()


def test_grouped_masked():
    a, b = normal(12, (2, 32, 128), BF16), normal(13, (2, 64, 128), BF16)
    out = np.full((2, 32, 64), 5, BF16)
    quern.gemm_grouped_masked(a, b, np.array([7, 0], np.int32), out=out)
    assert_product(out[0, :7], a[0, :7].astype(np.float64), b[0].astype(np.float64))
    assert (out[0, 7:] == 5).all() and (out[1] == 5).all()


@pytest.mark.parametrize("call, error, message", [
    (lambda a, b: quern.gemm(a, b[:, :100]), ValueError, "gemm: b"),
    (lambda a, b: quern.gemm(a, b, out=np.zeros((8, 64), np.int32)), NotImplementedError, "gemm: out"),
    (lambda a, b: quern.gemm(a, b.astype(np.uint8)), NotImplementedError, "gemm: b has dtype u8; accepted: f32, f16, bf16, e4m3fn"),
    (lambda a, b: quern.gemm(a, b, scale_b=np.ones((3, 2), np.float32)), ValueError,
     r"gemm: scale_b is \[3, 2\] f32 strides \[2, 1\]; needs \[1 or 64, 2\], any of these 1 or left out at the end"),
    (lambda a, b: quern.gemm(a, b, scale_a=np.ones((1, 1, 1), np.float32)), ValueError, "gemm: scale_a has 3 dimensions, needs 2"),
    (lambda a, b: quern.gemm(a, b, packed=True), ValueError, "gemm: n is None; needed with packed"),
    (lambda a, b: quern.gemm(a, b, activation="relu"), ValueError, "gemm: activation is 'relu'; accepted: None, 'gelu_tanh', 'silu_and_mul'"),
    (lambda a, b: quern.gemm(a, b, activation=["gelu_tanh"]), TypeError, "gemm: activation is a list of 1; accepted: 'gelu_tanh', 'silu_and_mul', None"),
    (lambda a, b: quern.gemm(a, b[:63], activation="silu_and_mul"), ValueError, "gemm: b has 63 rows; accepted with activation"),
    (lambda a, b: quern.gemm(a, b, bias=np.zeros(63, np.float32)), ValueError, r"gemm: bias has shape \[63\], needs \[64\]"),
    (lambda a, b: quern.gemm(a, b, gate=np.zeros((3, 64), np.float32)), ValueError, "gemm: gate has 3 rows; out's 8 rows are no multiple"),
    (lambda a, b: quern.gemm(a, b, given_scale=np.ones(1, np.float32)), ValueError, "gemm: given_scale is given; out is bf16, which takes no scales"),
    (lambda a, b: quern.gemm(a, b, eps=1e-9), ValueError, "gemm: eps is 1e-09; accepted: 0 without scale_out"),
    (lambda a, b: quern.gemm(a, b, dtype="e4m3fn", eps=0), ValueError, "gemm: eps is 0; accepted: None, 1e-30 or more"),
    (lambda a, b: quern.gemm(a, b, dtype="i8"), ValueError, "gemm: dtype is 'i8'; accepted: bf16, f16, f32, e4m3fn"),
    (lambda a, b: quern.quantize_fp8(a, (3, 5)), NotImplementedError, "quantize_fp8: block"),
    (lambda a, b: quern.quantize_fp8(a, (0, 128)), ValueError, "quantize_fp8: block"),
    (lambda a, b: quern.quantize_fp8(a, dtype="f32"), ValueError, "dtype is 'f32'"),
    (lambda a, b: quern.gemm_pack(a, b), NotImplementedError, "gemm_pack"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(normal(14, (8, 256), BF16), normal(15, (64, 256), BF16))
