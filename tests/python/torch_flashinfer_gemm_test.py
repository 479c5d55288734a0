# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's matrix products and its quantisation to MXFP8 against float64. A product of bf16 or FP8 is exact in f32;
its sum of k products, rounded once, is off by 2^-8 of bf16's result and by k 2^-24 of the sum of magnitudes."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import randn, workspace  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer import gemm  # noqa: E402
from quern.compat.flashinfer.quantization._layouts import swizzle, unswizzle  # noqa: E402
from quern.compat.flashinfer.tllm_enums import SfLayout  # noqa: E402

BF16, FP8, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2
SIZES = [(1, 1, 1), (5, 7, 96), (17, 129, 256), (128, 64, 129)]


def bf16(*shape, seed=0):
    return randn(*shape, dtype=BF16, seed=seed)


def fp8(*shape, seed=0, kind=FP8):
    return randn(*shape, dtype=torch.float32, seed=seed).to(kind)


def check(out, a, b, scale=1.0):
    """Checks out against a b^T of float64 operands [.., m, k] and [.., n, k]."""
    want, magnitude = scale * (a @ b.mT), abs(scale) * (a.abs() @ b.abs().mT)
    unit = {torch.float32: 2.0 ** -24, torch.float16: 2.0 ** -11, BF16: 2.0 ** -8}[out.dtype]
    bound = 1.01 * (unit * want.abs() + (a.shape[-1] + 3) * 2.0 ** -24 * magnitude) + 1e-30
    worst = ((out.double() - want).abs() - bound).max() if out.numel() else torch.tensor(0.0)
    assert worst <= 0, f"{worst} above the bound"


# ---- bf16 and FP8

@pytest.mark.parametrize("m, n, k", SIZES)
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
@pytest.mark.parametrize("out_dtype", [BF16, torch.float16, torch.float32])
def test_mm_bf16(m, n, k, dtype, out_dtype):
    a, b = bf16(m, k).to(dtype), bf16(n, k, seed=1).to(dtype)
    for turned in (b.T, b.T.contiguous()):
        check(flashinfer.mm_bf16(a, turned, out_dtype=out_dtype), a.double(), b.double())
    out = torch.empty(m, n, dtype=out_dtype)
    assert flashinfer.mm_bf16(a, b.T, bias=torch.full((n,), 3.0), out=out, out_dtype=out_dtype) is out
    one = torch.ones(m, 1, dtype=torch.float64), torch.full((n, 1), 3.0, dtype=torch.float64)
    check(out, torch.cat([a.double(), one[0]], 1), torch.cat([b.double(), one[1]], 1))


@pytest.mark.parametrize("m, n, k", SIZES)
def test_batches(m, n, k):
    a, b = bf16(3, m, k), bf16(3, n, k, seed=1)
    check(flashinfer.bmm_bf16(a, b.mT), a.double(), b.double())
    for kinds in ((FP8, FP8), (FP8, E5M2), (torch.float8_e4m3fnuz, torch.float8_e4m3fnuz)):
        a, b = fp8(3, m, k, kind=kinds[0]), fp8(3, n, k, seed=1, kind=kinds[1])
        for out_dtype in (BF16, torch.float16):
            check(flashinfer.bmm_fp8(a, b.mT, torch.tensor(0.5), torch.tensor([0.25]), out_dtype), a.double(), b.double(), 0.125)


@pytest.mark.parametrize("m, n, blocks", [(1, 1, 1), (5, 130, 3)])
def test_mm_fp8(m, n, blocks):
    a, b = fp8(m, 128 * blocks), fp8(n, 128 * blocks, seed=1)
    prepared = flashinfer.prepare_low_latency_gemm_weights(b, {})
    assert prepared.shape == (blocks, n, 128) and prepared.data_ptr() == b.data_ptr()
    for alpha in (None, 0.5, torch.tensor([2.0])):
        factor = 1.0 if alpha is None else float(alpha)
        for given in (prepared, prepared.view(torch.uint8).contiguous().view(FP8)):
            check(flashinfer.mm_fp8(a, given, alpha), a.double(), b.double(), factor)
        check(flashinfer.mm_fp8(a, b, alpha, backend="cutedsl_low_latency"), a.double(), b.double(), factor)


def test_tgv():
    a, b, bias = bf16(5, 96), bf16(7, 96, seed=1), bf16(7, seed=2)
    beside = torch.cat([a.double(), torch.ones(5, 1)], 1), torch.cat([b.double(), bias.double()[:, None]], 1)
    check(flashinfer.tgv_gemm_sm100(a, b.T, bias), *beside)
    a, b = fp8(5, 96), fp8(7, 96)
    out = flashinfer.tgv_gemm_sm100(a, b.T, torch.zeros(7, dtype=BF16), a_descale=0.5, b_descale=torch.tensor(3.0))
    check(out, a.double(), b.double(), 1.5)
    with pytest.raises(ValueError, match="a_descale is None; accepted with a of torch.float8_e4m3fn: a number"):
        flashinfer.tgv_gemm_sm100(a, b.T, torch.zeros(7, dtype=BF16))


@pytest.mark.parametrize("call, message", [
    (lambda: flashinfer.mm_bf16(bf16(2, 4), bf16(5, 4)), r"mm_bf16: b has shape \[5, 4\], needs \[4, any\]"),
    (lambda: flashinfer.mm_bf16(bf16(2, 4), bf16(4, 5), out=bf16(2, 4)), r"mm_bf16: out has shape \[2, 4\], needs \[2, 5\]"),
    (lambda: flashinfer.mm_bf16(bf16(2, 4), bf16(4, 5), out=bf16(2, 5).float()), "mm_bf16: out has dtype torch.float32, needs out_dtype's"),
    (lambda: flashinfer.bmm_fp8(fp8(1, 2, 4), fp8(2, 4, 5), 1.0, 1.0, BF16), r"bmm_fp8: B has shape \[2, 4, 5\], needs \[1, 4, any\]"),
    (lambda: flashinfer.bmm_fp8(fp8(1, 2, 4), fp8(1, 4, 5), torch.ones(2), 1.0, BF16), "bmm_fp8: A_scale has 2 entries, needs 1"),
    (lambda: flashinfer.mm_fp8(fp8(2, 128), fp8(5, 128)), "mm_fp8: b has shape"),
    (lambda: flashinfer.prepare_low_latency_gemm_weights(fp8(2, 130), {}), "w has 130 columns; accepted: multiples of 128"),
])
def test_wrong_operands(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_dtypes():
    with pytest.raises(NotImplementedError, match="mm_bf16: a has dtype torch.float32; accepted: torch.bfloat16, torch.float16"):
        flashinfer.mm_bf16(randn(2, 4, dtype=torch.float32), bf16(4, 5))
    with pytest.raises(NotImplementedError, match="bmm_fp8: dtype is torch.float32"):
        flashinfer.bmm_fp8(fp8(1, 2, 4), fp8(1, 4, 5), 1.0, 1.0, torch.float32)
    with pytest.raises(TypeError, match="mm_bf16: b is 3; accepted: a PyTorch tensor"):
        flashinfer.mm_bf16(bf16(2, 4), 3)


# ---- MXFP8

@pytest.mark.parametrize("layout", list(SfLayout))
@pytest.mark.parametrize("rows, columns", [(1, 1), (7, 3), (8, 4), (128, 4), (129, 9)])
def test_layouts(layout, rows, columns):
    """Tests where each scale lies, against loops over the layout's definition."""
    scale = torch.arange(rows * columns).reshape(rows, columns) + 1
    tiled = swizzle(layout, scale)
    across = -(-columns // 4)
    for r in range(rows):
        for c in range(columns):
            at = {0: ((r // 128 * across + c // 4) * 32 + r % 32) * 16 + r % 128 // 32 * 4 + c % 4,
                  1: ((r // 8 * across + c // 4) * 8 + r % 8) * 4 + c % 4, 2: r * columns + c}[layout]
            assert tiled[at] == scale[r, c]
    assert int((tiled != 0).sum()) == rows * columns
    assert torch.equal(unswizzle(layout, tiled, rows, columns), scale)
    stacked = torch.stack([scale, 2 * scale])
    assert torch.equal(unswizzle(layout, swizzle(layout, stacked), rows, columns), stacked)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, BF16])
@pytest.mark.parametrize("rows, columns", [(0, 32), (1, 32), (130, 96)])
@pytest.mark.parametrize("layout", list(SfLayout))
def test_mxfp8(dtype, rows, columns, layout):
    x = (randn(rows, columns, dtype=torch.float32) * torch.logspace(-6, 4, columns)).to(dtype)
    q, scale = flashinfer.mxfp8_quantize(x, sf_swizzle_layout=layout)
    top = x.double().unflatten(1, (-1, 32)).abs().amax(2)
    power = torch.exp2(torch.ceil(torch.log2(top.clamp(min=1e-30) / 448))).repeat_interleave(32, 1)
    want = (x.double() / power).to(torch.float32).to(FP8)
    assert torch.equal(q.view(torch.uint8), want.view(torch.uint8))
    back = flashinfer.mxfp8_dequantize_host(q, scale, sf_swizzle_layout=layout)
    assert torch.equal(back.double(), want.double() * power)
    if layout != SfLayout.layout_8x4:
        assert torch.equal(flashinfer.mxfp8_quantize(x, layout == SfLayout.layout_128x4)[1], scale)


def test_mxfp8_pads_columns():
    x = bf16(3, 2, 96)
    q, scale = flashinfer.mxfp8_quantize(x, False, alignment=128)
    assert q.shape == (3, 2, 128) and scale.numel() == 6 * 4 and not q[..., 96:].float().any()
    assert torch.equal(q[..., :96].float(), flashinfer.mxfp8_quantize(x)[0].float())


def test_grouped_mxfp8():
    x = bf16(2, 5, 160)
    q, scale = flashinfer.mxfp8_grouped_quantize(x, torch.tensor([5, 2], dtype=torch.int32))
    assert q.shape == (5, 256, 2) and scale.shape == (32, 4, 1, 4, 2, 2)
    for g in range(2):
        want, codes = flashinfer.mxfp8_quantize(x[g], False)
        assert torch.equal(q[:, :160, g].float(), want.float())
        codes = codes.reshape(5, 5)
        for r in range(5):
            for c in range(5):
                assert scale[r % 32, r // 32, 0, c % 4, c // 4, g] == codes[r, c]


def wide(x, by=None):
    q, scale = flashinfer.mxfp8_quantize(x)
    return q, scale, flashinfer.mxfp8_dequantize_host(q.reshape(-1, q.shape[-1]), scale).double().reshape(q.shape)


@pytest.mark.parametrize("m, n, k", [(1, 1, 32), (5, 130, 96), (128, 7, 160)])
def test_mx_products(m, n, k):
    (a, a_scale, a_wide), (b, b_scale, b_wide) = wide(bf16(m, k)), wide(bf16(n, k, seed=1))
    check(flashinfer.mm_mxfp8(a, b.T, a_scale, b_scale), a_wide, b_wide)
    eight = flashinfer.mxfp8_quantize(bf16(m, k), sf_swizzle_layout=SfLayout.layout_8x4)[1]
    check(flashinfer.mm_mxfp8(a, b.T, eight, b_scale, use_8x4_sf_layout=True), a_wide, b_wide)
    (a, a_scale, a_wide), (b, b_scale, b_wide) = wide(bf16(3, m, k)), wide(bf16(3, n, k, seed=1))
    check(flashinfer.bmm_mxfp8(a, b.mT, a_scale, b_scale, BF16), a_wide, b_wide)
    apart = [torch.stack([flashinfer.mxfp8_quantize(x)[1] for x in parts]) for parts in (bf16(3, m, k), bf16(3, n, k, seed=1))]
    check(flashinfer.bmm_mxfp8(a, b.mT, *apart, torch.float16), a_wide, b_wide)


# ---- groups

@pytest.mark.parametrize("rows", [[0, 0, 0], [1, 0, 4], [128, 3, 0]])
def test_grouped(rows):
    ends = torch.tensor([0, *rows]).cumsum(0)
    a, b = bf16(int(ends[-1]), 96), bf16(3, 7, 96, seed=1)
    q, w = a.to(FP8), b.to(FP8)
    (xq, x_scale, x_wide), (wq, w_scale, w_wide) = wide(a), wide(bf16(3, 128, 96, seed=2))
    for index in (torch.int32, torch.int64):
        plain = flashinfer.grouped_mm_bf16(a, b, ends.to(index))
        scaled = flashinfer.grouped_mm_fp8(q, w, ends.to(index), alpha=0.5, out_dtype=torch.float16)
        mx = flashinfer.grouped_mm_mxfp8(xq, wq, x_scale, w_scale, ends.to(index))
        for g in range(3):
            part = slice(int(ends[g]), int(ends[g + 1]))
            check(plain[part], a[part].double(), b[g].double())
            check(scaled[part], q[part].double(), w[g].double(), 0.5)
            check(mx[part], x_wide[part], w_wide[g])


def test_wrong_groups():
    a, b = bf16(5, 96), bf16(3, 7, 96)
    for m_indptr, message in ((torch.tensor([0, 2, 5]), r"m_indptr has shape \[3\], needs \[4\]"), (torch.zeros(4), "m_indptr has dtype"),
                              (torch.tensor([0, 4, 2, 5]), "m_indptr"), (torch.tensor([0, 4, 5, 6]), "m_indptr")):
        with pytest.raises(ValueError, match=f"grouped_mm_bf16: {message}"):
            flashinfer.grouped_mm_bf16(a, b, m_indptr)


@pytest.mark.parametrize("major", [True, False])
@pytest.mark.parametrize("indices", [None, [2, 0, 2, 1]])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_segments(major, indices, dtype):
    lens, weights = torch.tensor([1, 0, 3, 4]), bf16(4, 20, 33).to(dtype)
    x = bf16(8, 33 if major else 20).to(dtype)
    wrapper, ends = flashinfer.SegmentGEMMWrapper(workspace()), [0, 1, 1, 4, 8]
    chosen = None if indices is None else torch.tensor(indices)
    out = wrapper.run(x, weights, 4, major, seg_lens=lens, weight_indices=chosen)
    assert torch.equal(out, wrapper.forward(x, weights, 4, major, seg_indptr=torch.tensor(ends), weight_indices=chosen))
    for i in range(4):
        w = weights[i if indices is None else indices[i]]
        check(out[ends[i]:ends[i + 1]], x[ends[i]:ends[i + 1]].double(), (w if major else w.T).double())


def test_wrong_segments():
    wrapper, x, w = flashinfer.SegmentGEMMWrapper(workspace()), bf16(8, 33), bf16(4, 20, 33)
    for options, message in (({}, "seg_lens and seg_indptr are None; needed: one of them"),
                             ({"seg_lens": torch.tensor([1, 2])}, r"seg_lens has shape \[2\], needs \[4\]"),
                             ({"seg_indptr": torch.tensor([0, 1, 2, 3, 9])}, "seg_indptr")):
        with pytest.raises(ValueError, match=f"SegmentGEMMWrapper: {message}"):
            wrapper.run(x, w, 4, True, **options)
    with pytest.raises(ValueError, match=r"weights has shape \[4, 20, 33\], needs \[3, any, 33\]"):
        wrapper.run(x, w, 3, True, seg_lens=torch.tensor([1, 2, 5]))


# ---- scales of groups

def blocks(scale, rows, row_block, k):
    return scale.double().repeat_interleave(row_block, -2)[..., :rows, :].repeat_interleave(128, -1)[..., :k]


@pytest.mark.parametrize("m, n, k", [(1, 1, 128), (5, 130, 256), (130, 128, 384)])
@pytest.mark.parametrize("granularity", [(1, 128, 128), (128, 128, 128), (1, 1, 128)])
@pytest.mark.parametrize("mode", ["K", "MN", None])
def test_groupwise(m, n, k, granularity, mode):
    a, b = fp8(m, k), fp8(n, k, seed=1)
    a_scale, b_scale = (torch.rand(-(-rows // size), k // 128) + 0.5 for rows, size in ((m, granularity[0]), (n, granularity[1])))
    given = a_scale.T if mode == "MN" else a_scale, b_scale if mode == "K" else b_scale.T
    out = gemm.gemm_fp8_nt_groupwise(a, b, *given, mode, scale_granularity_mnk=granularity)
    check(out, a.double() * blocks(a_scale, m, granularity[0], k), b.double() * blocks(b_scale, n, granularity[1], k))
    if granularity == (128, 128, 128):
        assert torch.equal(gemm.gemm_fp8_nt_blockscaled(a, b, *given, mode), out)


def test_groupwise_of_groups():
    a, b, a_scale, b_scale = fp8(256, 256), fp8(2, 130, 256, seed=1), torch.rand(256, 2) + 0.5, torch.rand(2, 2, 2) + 0.5
    a_wide, b_wide = a.double() * blocks(a_scale, 256, 1, 256), b.double() * blocks(b_scale, 130, 128, 256)
    results = [gemm.group_gemm_fp8_nt_groupwise(a, b, a_scale.T, b_scale.mT, torch.tensor([0, 128, 256])),
               gemm.group_gemm_fp8_nt_groupwise(a, b, a_scale, b_scale, torch.tensor([0, 128, 256]), scale_major_mode="K"),
               gemm.group_deepgemm_fp8_nt_groupwise(a, b, a_scale, b_scale, torch.arange(256).int() // 128)]
    for out in results:
        for g, part in enumerate((slice(0, 128), slice(128, 256))):
            check(out[part], a_wide[part], b_wide[g])
    out = torch.full((2, 128, 130), 9.0, dtype=BF16)
    apart = a.reshape(2, 128, 256), b, a_scale.reshape(2, 128, 2), b_scale
    gemm.batch_deepgemm_fp8_nt_groupwise(*apart, torch.tensor([128, 3]).int(), 7, out=out)
    check(out[0], a_wide[:128], b_wide[0])
    check(out[1, :3], a_wide[128:131], b_wide[1])
    assert (out[1, 3:] == 9).all()


def test_blockscale_sm90():
    a, b = bf16(5, 256), bf16(130, 256, seed=1)
    out = gemm.fp8_blockscale_gemm_sm90(a, b)
    error = (out.double() - a.double() @ b.double().T).norm() / (a.double() @ b.double().T).norm()
    assert error < 2 ** -4  # each operand is off by up to half a step of e4m3, 2^-4
    q, scale = fp8(130, 256), torch.rand(2, 2) + 0.5
    mixed = gemm.fp8_blockscale_gemm_sm90(a, q, weight_scale=scale)
    want = a.double() @ (q.double() * blocks(scale, 130, 128, 256)).T
    assert (mixed.double() - want).norm() / want.norm() < 2 ** -4
    with pytest.raises(ValueError, match="weight_scale is None; needed with weight of torch.float8_e4m3fn"):
        gemm.fp8_blockscale_gemm_sm90(a, q)


def test_wrong_scales():
    a, b = fp8(5, 256), fp8(130, 256)
    for scales, message in (((torch.ones(5, 3), torch.ones(2, 2)), r"a_scale has shape \[5, 3\], needs \[5, 2\]"),
                            ((torch.ones(5, 2), torch.ones(1, 2)), r"b_scale has shape \[1, 2\], needs \[2, 2\]")):
        with pytest.raises(ValueError, match=message):
            gemm.gemm_fp8_nt_groupwise(a, b, *scales, "K")
    with pytest.raises(NotImplementedError, match=r"scale_granularity_mnk is \(1, 64, 128\)"):
        gemm.gemm_fp8_nt_groupwise(a, b, torch.ones(5, 2), torch.ones(3, 2), "K", scale_granularity_mnk=(1, 64, 128))
