# SPDX-License-Identifier: Apache-2.0
"""quern's GEMM on the CPU against NumPy in float64 and ml_dtypes, which share no code with it.

Each result is held to two measures: element by element, to what f32 sums and one rounding may be off; and to
DeepGEMM's 1 - 2<x,y>/(<x,x>+<y,y>) < 1e-3 against the product before quantisation (1e-5 for bf16). Of large
products only whole rows and columns are computed: the first, the last, those at tile edges, and random ones.
"""
import ctypes
import os
import pathlib

import ml_dtypes
import numpy as np
import pytest

FN, FNUZ, BF16 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e4m3fnuz), np.dtype(ml_dtypes.bfloat16)
LARGEST = {FN: 448.0, FNUZ: 240.0}
CODES = {np.dtype(np.float32): (2, 32), np.dtype(np.int32): (0, 32), BF16: (4, 16), FN: (10, 8), FNUZ: (11, 8)}
INDEX, ENDS = 1, 2


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class GemmArgs(ctypes.Structure):
    TENSORS = ("d", "a", "b", "c", "scale_a", "scale_b", "group_layout")
    _fields_ = [("struct_size", ctypes.c_size_t)] + [(name, ctypes.POINTER(DLTensor)) for name in TENSORS] + [
        ("expected_m", ctypes.c_int64), ("b_is_packed", ctypes.c_int32), ("m_alignment", ctypes.c_int32),
        ("zero_padding", ctypes.c_int32)]


def dl(array):
    if array is None:
        return None
    code, bits = CODES[array.dtype]
    shape = (ctypes.c_int64 * array.ndim)(*array.shape)
    strides = (ctypes.c_int64 * array.ndim)(*(s // array.itemsize for s in array.strides))
    return ctypes.pointer(DLTensor(array.ctypes.data, 1, 0, array.ndim, code, bits, 1, shape, strides, 0))


class Library:
    def __init__(self):
        path = pathlib.Path(os.environ.get("QUERN_BUILD_DIR", "build/release")) / "libquern.so"
        self.lib = ctypes.CDLL(str(path))
        self.lib.qn_last_error.restype = ctypes.c_char_p
        self.device, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("qn_device_open", ctypes.byref(self.device), b"cpu")
        self.call("qn_stream_create", ctypes.byref(self.stream), self.device)

    def call(self, name, *args):
        assert getattr(self.lib, name)(*args) == 0, self.lib.qn_last_error().decode()

    def pack(self, b, scale_b):
        shape, dtype = (ctypes.c_int64 * 3)(), (ctypes.c_uint8 * 4)()
        self.call("qn_gemm_packed_shape", self.device, dl(b), shape, dtype)
        room = np.zeros(shape[0] * shape[1] * shape[2] + 64, np.uint8)
        room = room[-room.ctypes.data % 64:][:shape[0] * shape[1] * shape[2]]
        packed, packed_scale = room.view(b.dtype).reshape(tuple(shape)), np.empty_like(scale_b)
        self.call("qn_gemm_pack", self.stream, dl(packed), dl(packed_scale), dl(b), dl(scale_b))
        return packed, packed_scale

    def gemm(self, name, *more, packed=False, **given):
        if packed:
            given["b"], given["scale_b"] = self.pack(given["b"], given["scale_b"])
        tensors = [dl(given.get(key)) for key in GemmArgs.TENSORS]
        args = GemmArgs(ctypes.sizeof(GemmArgs), *tensors, given.get("expected_m", 0), int(packed),
                        given.get("m_alignment", 0), given.get("zero_padding", 0))
        self.call(name, self.stream, ctypes.byref(args), *more)


@pytest.fixture(scope="module")
def quern():
    return Library()


def blocks(size):
    return -(-size // 128)


def quantize(x, rows, dtype):
    """Returns codes, and scales of blocks of rows x 128."""
    m, k = x.shape
    padded = np.zeros((-(-m // rows) * rows, blocks(k) * 128), np.float32)
    padded[:m, :k] = x
    tiles = padded.reshape(padded.shape[0] // rows, rows, -1, 128)
    scale = np.maximum(np.abs(tiles).max(axis=(1, 3)), 1e-4).astype(np.float32) / np.float32(LARGEST[dtype])
    codes = (tiles / scale[:, None, :, None]).reshape(padded.shape)[:m, :k].astype(dtype)
    return np.ascontiguousarray(codes), scale


def restore(codes, scale, rows):
    """Returns the numbers that codes and scales stand for."""
    spread = np.repeat(np.repeat(scale.astype(np.float64), rows, 0), 128, 1)
    return codes.astype(np.float64) * spread[:codes.shape[0], :codes.shape[1]]


def measure(x, y):
    return 1 - 2 * (x * y).sum() / ((x * x).sum() + (y * y).sum())


def chosen(size, rng):
    """Returns indices to check: all of a small dimension, else the ends, the edges of tiles, and a few more."""
    if size <= 160:
        return np.arange(size)
    edges = [0, size - 1, *(i for t in (64, 256) for i in (t - 1, t, (size - 1) // t * t))]
    return np.unique([i for i in edges if i < size] + list(rng.integers(0, size, 4)))


def compare(got, a, b, limit, exact=None, rng=None):
    """Compares got [m, n] with a [m, k] b [n, k]^T by rows and by columns. `exact` is (a, b) before quantisation."""
    rng = rng or np.random.default_rng(0)
    rounding = 2.0 ** -8 if got.dtype == BF16 else 2.0 ** -24
    rows, columns = chosen(a.shape[0], rng), chosen(b.shape[0], rng)
    seen, raw = [], []  # a measure of relative error needs many elements to be steady: all that were computed
    for i, j in ((rows, slice(None)), (slice(None), columns)):
        want, sizes = a[i] @ b[j].T, np.abs(a[i]) @ np.abs(b[j]).T
        have = got[i][:, j].astype(np.float64)
        bound = rounding * np.abs(want) + 2 * (a.shape[1] + 4) * 2.0 ** -24 * sizes + 1e-37
        error = np.abs(have - want) / bound
        assert not (~(error <= 1)).any(), f"worst error {error.max()} of the tolerance"
        seen.append(have.ravel())
        raw.append((want if exact is None else exact[0][i] @ exact[1][j].T).ravel())
    assert measure(np.concatenate(seen), np.concatenate(raw)) < limit


def normal(rng, *shape):
    return rng.standard_normal(shape, np.float32).astype(BF16).astype(np.float32)


SHAPES = [(1, 129, 129), (64, 96, 256), (1, 4096, 7168), (128, 2112, 7168), (16, 7168, 2048), (4096, 576, 1536)]


FORMS = [((1, 1), (1, 1)), ((1,), (1,)), (("m",), ("n",)), (("m", 1), ("n", 1)), (("m", "kb"), ("n", "kb")), (("m", 1), ("nb", "kb")),
         ((1, "kb"), ("nb",)), (None, ("n",)), (("m", "kb"), None), (None, None)]


@pytest.mark.parametrize("forms", FORMS, ids=str)
@pytest.mark.parametrize("dtype", [FN, BF16], ids=str)
def test_scales(quern, dtype, forms):
    sizes = {"m": 37, "n": 300, "k": 400, "nb": 3, "kb": 4}
    rng = np.random.default_rng(41)
    given, wide = {}, []
    for name, mn, form in zip("ab", "mn", forms, strict=True):
        x = normal(rng, sizes[mn], 400).astype(dtype)
        scale = np.float32(2) ** rng.integers(-3, 3, [sizes.get(s, s) for s in form or (1,)]) * np.float32(1.1)
        given |= {name: x, f"scale_{name}": scale.astype(np.float32) if form else None}
        full = given[f"scale_{name}"].reshape(*scale.shape, *[1] * (2 - scale.ndim)) if form else np.ones((1, 1))
        full = np.repeat(full, 128, 0)[:sizes[mn]] if form and form[0] == "nb" else full
        full = np.repeat(full, 128, 1)[:, :400] if full.shape[1] > 1 else full
        wide.append(x.astype(np.float64) * full)
    d = np.full((37, 300), np.nan, np.float32)
    quern.gemm("qn_gemm", d=d, **given)
    compare(d, *wide, 1e-5)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("types", [(FN, FN), (FNUZ, FN)], ids=["fn", "fnuz-fn"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))
def test_fp8(quern, shape, types, packed):
    m, n, k = shape
    if types[0] is not FN and n > 1000:
        pytest.skip("the encoding does not depend on the size")
    rng = np.random.default_rng(m + n + k)
    x, w = normal(rng, m, k), normal(rng, n, k)
    (a, scale_a), (b, scale_b) = quantize(x, 1, types[0]), quantize(w, 128, types[1])
    d = np.full((m, n), np.nan, BF16)
    quern.gemm("qn_gemm", d=d, a=a, b=b, scale_a=scale_a, scale_b=scale_b, packed=packed)
    compare(d, restore(a, scale_a, 1), restore(b, scale_b, 128), 1e-3, (x.astype(float), w.astype(float)), rng)


@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("dtype", [FN, BF16], ids=["e4m3fn", "bf16"])
def test_layouts(quern, dtype, layout):
    m, n, k = 70, 150, 300
    rng = np.random.default_rng(3)
    x, w, c = normal(rng, m, k), normal(rng, n, k), 32 * normal(rng, m, n)
    scales = {}
    if dtype is FN:
        (a, scales["scale_a"]), (b, scales["scale_b"]) = quantize(x, 1, FN), quantize(w, 128, FN)
        want_a, want_b = restore(a, scales["scale_a"], 1), restore(b, scales["scale_b"], 128)
    else:
        a, b = x.astype(BF16), w.astype(BF16)
        want_a, want_b = x.astype(float), w.astype(float)
    a = np.ascontiguousarray(a.T).T if layout[0] == "t" else a
    b = b if layout[1] == "t" else np.ascontiguousarray(b.T).T
    d = np.full((m, n), np.nan, np.float32)
    quern.gemm("qn_gemm", d=d, a=a, b=b, c=c, **scales)
    # c as one more element of k: the same sum.
    want_a, want_b = np.hstack([want_a, np.eye(m)]), np.hstack([want_b, c.T.astype(float)])
    compare(d, want_a, want_b, 1e-5)


@pytest.mark.parametrize("shape", [(1, 300, 200), (130, 260, 129), (128, 1024, 2048)])
def test_bf16(quern, shape):
    m, n, k = shape
    rng = np.random.default_rng(k)
    x, w = normal(rng, m, k), normal(rng, n, k)
    d = np.full((m, n), np.nan, BF16)
    quern.gemm("qn_gemm", d=d, a=x.astype(BF16), b=w.astype(BF16))
    compare(d, x.astype(float), w.astype(float), 1e-5)


def stack(rng, groups, n, k):
    weights = normal(rng, groups, n, k)
    pairs = [quantize(w, 128, FN) for w in weights]
    return weights, np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", [INDEX, ENDS])
def test_grouped_contiguous(quern, form, packed):
    sizes, n, k = [0, 1, 127, 128, 129, 300, 0], 200, 384
    rng = np.random.default_rng(form)
    starts = np.cumsum([0] + [blocks(s) * 128 for s in sizes])
    m = int(starts[-1]) + 128
    x, (w, b, scale_b) = normal(rng, m, k), stack(rng, len(sizes), n, k)
    a, scale_a = quantize(x, 1, FN)
    index = np.full(m, -1, np.int32)
    for group, (start, size) in enumerate(zip(starts, sizes)):
        index[start:start + size] = group
    ends = (starts[:-1] + sizes).astype(np.int32)
    d = np.full((m, n), 77, BF16)
    quern.gemm("qn_gemm_grouped_contiguous", form, d=d, a=a, b=b, scale_a=scale_a, scale_b=scale_b, packed=packed,
               group_layout=index if form == INDEX else ends, zero_padding=int(form == ENDS))
    a = restore(a, scale_a, 1)
    for group, (start, size) in enumerate(zip(starts, sizes)):
        part = slice(start, start + size)
        if size:
            compare(d[part], a[part], restore(b[group], scale_b[group], 128), 1e-3,
                    (x[part].astype(float), w[group].astype(float)))
        padding = d[start + size:start + blocks(size) * 128].astype(float)
        assert (padding == (0 if form == ENDS else 77)).all()
    assert (d[starts[-1]:].astype(float) == 77).all()


@pytest.mark.parametrize("expected_m", [1, 100, 10 ** 9])
def test_masked(quern, expected_m):
    counts, rows, n, k = np.array([0, 1, 40, 129, 150], np.int32), 150, 200, 384
    rng = np.random.default_rng(9)
    x, (w, b, scale_b) = normal(rng, len(counts), rows, k), stack(rng, len(counts), n, k)
    pairs = [quantize(slab, 1, FN) for slab in x]
    a, scale_a = np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
    d = np.full((len(counts), rows, n), 77, BF16)
    quern.gemm("qn_gemm_grouped_masked", d=d, a=a, b=b, scale_a=scale_a, scale_b=scale_b, group_layout=counts,
               expected_m=expected_m)
    for group, count in enumerate(counts):
        if count:
            compare(d[group, :count], restore(a[group], scale_a[group], 1)[:count],
                    restore(b[group], scale_b[group], 128), 1e-3)
        assert (d[group, count:].astype(float) == 77).all()
