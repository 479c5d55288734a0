# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's quantisation to FP4 and its products of FP4, against loops over the definition of the formats."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import randn  # noqa: E402
from torch_flashinfer_gemm_test import check  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer.quantization._layouts import of_bytes  # noqa: E402
from quern.compat.flashinfer.quantization.fp4_quantization import packed, unpacked  # noqa: E402
from quern.compat.flashinfer.tllm_enums import SfLayout  # noqa: E402

BF16, FP8, U8 = torch.bfloat16, torch.float8_e4m3fn, torch.uint8
VALUES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def nearest(x):
    """Returns the code of the value nearest to x; of two the even one."""
    code = min(range(8), key=lambda i: (abs(VALUES[i] - abs(x)), i % 2))
    return code + 8 * (torch.tensor(x).signbit().item())


def codes_of(bytes_):
    return torch.stack([bytes_ & 15, bytes_ >> 4], -1).flatten(-2)


def test_codes():
    edges = [0.0, -0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, 7.0, 1e6]
    x = torch.tensor([[*edges, *(-e for e in edges), *(e * (1 + 2 ** -20) for e in edges), *(e * (1 - 2 ** -20) for e in edges)]])
    got = codes_of(packed(x))[0].tolist()
    assert got == [nearest(v) for v in x[0].tolist()]
    assert unpacked(packed(x)).tolist()[0] == [(1 - 2 * (c >> 3)) * VALUES[c & 7] for c in got]


def nvfp4(x, factor):
    """Returns codes, scales as f32 and what they stand for, without factor."""
    x = x.double()
    codes, scales, wide = torch.zeros(x.shape, dtype=torch.long), torch.zeros(len(x), x.shape[1] // 16), torch.zeros(x.shape, dtype=torch.float64)
    for r in range(len(x)):
        for b in range(x.shape[1] // 16):
            part = x[r, 16 * b:16 * b + 16]
            top = part.abs().max().float() * torch.tensor(1 / 6)  # f32, as all of FlashInfer's arithmetic is
            scale = min(torch.tensor(factor) * top, torch.tensor(448.0)).to(FP8).float()
            scales[r, b] = scale
            for i in range(16):
                codes[r, 16 * b + i] = nearest(float(part[i].float() * (torch.tensor(factor) / scale))) if scale else 0
                c = int(codes[r, 16 * b + i])
                wide[r, 16 * b + i] = (1 - 2 * (c >> 3)) * VALUES[c & 7] * scale.double()
    return codes, scales, wide


def mxfp4(x):
    x = x.double()
    scale = torch.exp2(torch.ceil(torch.log2(x.unflatten(1, (-1, 32)).abs().amax(2) / 6)))
    wide = scale.repeat_interleave(32, 1)
    codes = torch.tensor([[nearest(v) for v in row] for row in (x / wide).tolist()])
    signs = 1 - 2 * (codes >> 3)
    return codes, scale, signs * torch.tensor(VALUES, dtype=torch.float64)[codes & 7] * wide


@pytest.mark.parametrize("rows, columns", [(1, 16), (9, 48), (130, 64)])
@pytest.mark.parametrize("layout", list(SfLayout))
@pytest.mark.parametrize("factor", [1.0, 37.5])
def test_nvfp4(rows, columns, layout, factor):
    x = (4 * randn(rows, columns, dtype=torch.float32)).to(BF16)
    x[0, :16] = 0
    codes, scales, wide = nvfp4(x, factor)
    options = {"is_sf_swizzled_layout": layout != 2, "is_sf_8x4_layout": layout == 1}
    for got, scale in (flashinfer.fp4_quantize(x, torch.tensor([factor]), **options), flashinfer.nvfp4_quantize(x, factor, sfLayout=layout),
                       flashinfer.fp4_quantize(x, torch.tensor([1 / factor]), is_global_scale_inversed=True, **options) if factor == 1 else
                       flashinfer.nvfp4_quantize(x, torch.tensor(factor), layout)):
        assert torch.equal(codes_of(got).long(), codes)
        assert torch.equal(of_bytes("", "", scale, layout, rows, columns // 16).contiguous().view(FP8).float(), scales)
        back = flashinfer.e2m1_and_ufp8sf_scale_to_float(got, scale, torch.tensor([0.5]), **options)
        assert torch.equal(back.double(), 0.5 * wide)
    stack, scale = flashinfer.nvfp4_batched_quantize(torch.stack([x, 2 * x]), factor)
    assert torch.equal(codes_of(stack[0]).long(), codes) and len(scale) == 2
    assert torch.equal(of_bytes("", "", scale, SfLayout.layout_128x4, rows, columns // 16, (2,))[0].contiguous().view(FP8).float(), scales)


@pytest.mark.parametrize("rows, columns", [(1, 32), (9, 96)])
@pytest.mark.parametrize("layout", list(SfLayout))
def test_mxfp4(rows, columns, layout):
    x = (randn(rows, columns, dtype=torch.float32) * torch.logspace(-3, 3, columns)).to(BF16)
    x[0, :32] = 6.0  # a power of two itself
    codes, scale, wide = mxfp4(x)
    got, bytes_ = flashinfer.mxfp4_quantize(x, sfLayout=layout)
    assert torch.equal(codes_of(got).long(), codes)
    assert torch.equal(of_bytes("", "", bytes_, layout, rows, columns // 32).double(), torch.log2(scale) + 127)
    assert torch.equal(flashinfer.mxfp4_dequantize(got, bytes_, layout).double(), wide)
    same = flashinfer.fp4_quantize(x, sf_vec_size=32, sf_use_ue8m0=True, is_sf_swizzled_layout=layout != 2, is_sf_8x4_layout=layout == 1)
    assert torch.equal(same[0], got) and torch.equal(same[1], bytes_)
    if layout == SfLayout.layout_linear:
        assert torch.equal(flashinfer.mxfp4_dequantize_host(got, bytes_).double(), wide)


def test_silu_and_mul():
    x = randn(5, 64, dtype=BF16)
    got = flashinfer.silu_and_mul_nvfp4_quantize(x, torch.tensor([2.0]), is_sf_swizzled_layout=False)
    want = flashinfer.fp4_quantize(flashinfer.silu_and_mul(x), torch.tensor([2.0]), is_sf_swizzled_layout=False)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])


# ---- caches

@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_kv(dtype):
    x = (8 * randn(7, 64, dtype=torch.float32)).to(dtype)
    codes, scales = flashinfer.nvfp4_kv_quantize(x, torch.tensor([2.0]))
    want = nvfp4(x, 0.5)
    assert torch.equal(codes_of(codes).long(), want[0]) and torch.equal(scales.view(FP8).float(), want[1])
    back = flashinfer.nvfp4_kv_dequantize(codes, scales, torch.tensor([2.0]), dtype)
    assert torch.equal(back, (2 * want[2]).to(dtype))


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("as_one", [False, True])
def test_paged_kv(layout, as_one):
    table, lens = torch.tensor([[3, 0, 5], [1, 99, 99]], dtype=torch.int32), torch.tensor([10, 3], dtype=torch.int32)
    parts = [flashinfer.nvfp4_kv_quantize(randn(6 * 4 * 2, 64, dtype=BF16, seed=i), torch.ones(1)) for i in range(2)]
    wide = [flashinfer.nvfp4_kv_dequantize(*part, torch.ones(1), torch.float32).reshape(6, 4, 2, 64) for part in parts]
    stores = [[t.reshape(6, 4, 2, -1) for t in side] for side in zip(*parts, strict=True)]
    stores = [[t.transpose(1, 2).contiguous() if layout == "HND" else t for t in store] for store in stores]
    stores = [torch.stack(store, 1) if as_one else tuple(store) for store in stores]
    outs = [torch.full((2, 12, 2, 64), 9.0, dtype=BF16) for _ in range(2)]
    flashinfer.nvfp4_kv_dequantize_paged(*stores, table, lens, torch.tensor(2.0), torch.tensor(0.5), *outs, kv_layout=layout)
    for out, values, factor in zip(outs, wide, (2.0, 0.5), strict=True):
        for b in range(2):
            for t in range(12):
                want = (factor * values[table[b, t // 4], t % 4]).to(BF16) if t < lens[b] else torch.full((2, 64), 9.0, dtype=BF16)
                assert torch.equal(out[b, t], want)


# ---- rows

def test_shuffles():
    x = torch.arange(64)[:, None] * torch.ones(1, 4)
    assert flashinfer.shuffle_matrix_a(x, 64)[:16, 0].tolist() == [0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15]
    assert flashinfer.shuffle_matrix_a(x, 128)[:16, 0].tolist() == [*range(0, 32, 4), *range(1, 32, 4)]
    scale = torch.arange(256, dtype=U8).reshape(64, 4)
    want = flashinfer.block_scale_interleave(flashinfer.shuffle_matrix_a(scale, 128))
    assert torch.equal(flashinfer.shuffle_matrix_sf_a(scale, 128), want) and want.shape == (512,)
    codes, scales = flashinfer.nvfp4_quantize(randn(64, 64, dtype=BF16), 1.0, SfLayout.layout_linear)
    got = flashinfer.nvfp4_quantize(randn(64, 64, dtype=BF16), 1.0, do_shuffle=True)
    assert torch.equal(got[0], flashinfer.shuffle_matrix_a(codes, 128))
    assert torch.equal(got[1].flatten(), flashinfer.shuffle_matrix_sf_a(scales, 128))
    stack = torch.arange(2 * 5 * 3, dtype=U8).reshape(2, 5, 3)
    assert torch.equal(flashinfer.block_scale_interleave(stack), torch.cat([flashinfer.block_scale_interleave(x) for x in stack]))
    assert flashinfer.nvfp4_block_scale_interleave is flashinfer.block_scale_interleave


# ---- settings

def test_global_scale():
    x = torch.tensor([[1.0, -3.0]])
    small = flashinfer.NVFP44Over6Config(256, "mse")
    assert small.err_mode is flashinfer.NVFP44Over6ErrMode.MSE and small.err_mode_name == "MSE"
    for options, want in (({}, 448 * 6 / 3), ({"nvfp4_4over6_config": small}, 256 * 6 / 3), ({"global_scale": 2.5}, 2.5)):
        assert flashinfer.make_nvfp4_global_scale(x, False, **options).tolist() == [want]
    assert flashinfer.make_nvfp4_global_scale(x, True).item() == torch.tensor(1 / 2688).item()
    assert flashinfer.make_nvfp4_global_scale(0 * x, False).item() == torch.finfo(torch.float32).max
    assert flashinfer.resolve_nvfp4_4over6() is None and flashinfer.resolve_nvfp4_4over6(small) is small
    for wrong in ({"e4m3_max": 300}, {"err_mode": "L1"}, {"err_use_fast_math": 3}):
        with pytest.raises(ValueError, match=f"NVFP44Over6Config: {next(iter(wrong))} is"):
            flashinfer.NVFP44Over6Config(**wrong)


# ---- products

@pytest.mark.parametrize("m, n, k", [(1, 1, 32), (5, 130, 96)])
@pytest.mark.parametrize("is_mx", [False, True])
@pytest.mark.parametrize("out_dtype", [BF16, torch.float32])
def test_mm_fp4(m, n, k, is_mx, out_dtype):
    x, w = randn(m, k, dtype=BF16), randn(n, k, dtype=BF16, seed=1)

    def quantize(t, layout=SfLayout.layout_128x4):
        codes, scale = flashinfer.mxfp4_quantize(t, sfLayout=layout) if is_mx else flashinfer.nvfp4_quantize(t, 40.0, layout)
        return codes, scale, (mxfp4(t) if is_mx else nvfp4(t, 40.0))[2]

    (b, b_scale, b_wide) = quantize(w)
    options = {"use_nvfp4": False, "block_size": 32} if is_mx else {}
    for layout in (SfLayout.layout_128x4, SfLayout.layout_8x4):
        a, a_scale, a_wide = quantize(x, layout)
        out = flashinfer.mm_fp4(a, b.T, a_scale, b_scale, torch.tensor(0.25), out_dtype, use_8x4_sf_layout=layout == 1, **options)
        check(out, a_wide, b_wide, 0.25)


@pytest.mark.parametrize("is_mx", [False, True])
def test_grouped_mm_fp4(is_mx):
    ends = torch.tensor([0, 2, 2, 7])
    x, w = randn(7, 64, dtype=BF16), randn(3, 128, 64, dtype=BF16, seed=1)
    quantize = (lambda t: flashinfer.mxfp4_quantize(t)) if is_mx else (lambda t: flashinfer.nvfp4_quantize(t, 40.0))
    (a, a_scale), parts = quantize(x), [quantize(one) for one in w]
    b, b_scale = torch.stack([p[0] for p in parts]), torch.stack([p[1] for p in parts])
    out = flashinfer.grouped_mm_fp4(a, b, a_scale, b_scale, ends, 0.5, block_size=32 if is_mx else 16)
    define = mxfp4 if is_mx else lambda t: nvfp4(t, 40.0)
    for g in range(3):
        part = slice(int(ends[g]), int(ends[g + 1]))
        if part.start < part.stop:
            check(out[part], define(x[part])[2], define(w[g])[2], 0.5)


@pytest.mark.parametrize("call, kind, message", [
    (lambda: flashinfer.fp4_quantize(randn(2, 24)), ValueError, "fp4_quantize: input has 24 columns; accepted: multiples of 16"),
    (lambda: flashinfer.fp4_quantize(randn(2, 32), is_sf_8x4_layout=True, is_sf_swizzled_layout=False), ValueError, "is_sf_8x4_layout is True"),
    (lambda: flashinfer.nvfp4_quantize(randn(33, 32), 1.0, do_shuffle=True), ValueError, "accepted: a multiple of 32 rows"),
    (lambda: flashinfer.nvfp4_quantize(randn(2, 32), torch.ones(2)), ValueError, "a_global_sf has 2 entries, needs 1"),
    (lambda: flashinfer.mxfp4_dequantize(torch.zeros(2, 16, dtype=U8), torch.zeros(3, dtype=U8)), ValueError, "mxfp4_dequantize: a_sf has shape"),
    (lambda: flashinfer.nvfp4_quantize(randn(2, 32), 1.0, nvfp4_4over6=flashinfer.NVFP44Over6Config()), NotImplementedError, "nvfp4_4over6 is a NVFP44Over6Config"),
    (lambda: flashinfer.scaled_fp4_grouped_quantize(), NotImplementedError, "scaled_fp4_grouped_quantize: .*VLLM_USE_FLASHINFER_MOE_FP4=0"),
    (lambda: flashinfer.nvfp4_quantize_paged_kv_cache(), NotImplementedError, "choose a cache of bf16 or FP8"),
])
def test_wrong_calls(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
