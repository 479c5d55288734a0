# SPDX-License-Identifier: Apache-2.0
"""quern.compat.deep_gemm's products against f64, for every layout, recipe and grouping."""

import pytest

torch = pytest.importorskip("torch")
from deep_gemm_tools import BF16, F8Z, F32, close, ints, plain, quantised, rand, randn, turn  # noqa: E402

import quern  # noqa: E402
import quern.compat.deep_gemm as deep_gemm  # noqa: E402

M, N, K, GROUPS = 5, 200, 300, 3
BLOCK = 128, 128


@pytest.fixture(autouse=True)
def alignment():
    yield
    deep_gemm.set_mk_alignment_for_contiguous_layout(128)


# ---- dense

@pytest.mark.parametrize("layout", ["nt", "nn", "tn", "tt"])
@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("kind", ["fp8_fp4", "fp8", "bf16", "cublaslt"])
def test_dense(kind, dtype, layout):
    is_fp8 = kind.startswith("fp8")
    a, b = (quantised(M, K), quantised(N, K, gran=BLOCK, seed=1)) if is_fp8 else (randn(M, K, dtype=BF16), randn(N, K, dtype=BF16, seed=1))
    given = turn(a) if layout[0] == "t" else a, turn(b) if layout[1] == "n" else b
    function, c = getattr(deep_gemm, f"{kind}_gemm_{layout}"), randn(M, N, dtype=dtype, seed=2)
    a, b = plain(a), plain(b, BLOCK)
    d = torch.full((M, N + 3), torch.nan, dtype=dtype)[:, :N]
    function(*given, d)
    close(d, a, b)
    function(*given, d, c=c)
    close(d, a, b, c)
    before = c.clone()
    function(*given, c, c=c)
    close(c, a, b, before)


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("gran_a, gran_b", [((1, 128), (1, 128)), ((1, 32), (1, 32)), ((1, 128), (1, 32)), ((1, 32), BLOCK),
                                            (BLOCK, (128, 32)), (BLOCK, BLOCK)])
def test_recipes(gran_a, gran_b, dtype):
    a, b, c = quantised(M, K, gran=gran_a), quantised(N, K, gran=gran_b, seed=1), randn(M, N, dtype=dtype, seed=2)
    d = torch.full((M, N), torch.nan, dtype=dtype)
    deep_gemm.fp8_gemm_nt(a, b, d, recipe_a=gran_a, recipe_b=gran_b)
    close(d, plain(a, gran_a), plain(b, gran_b))
    deep_gemm.fp8_gemm_nt(a, b, d, c, recipe_a=gran_a, recipe_b=gran_b)
    close(d, plain(a, gran_a), plain(b, gran_b), c)
    before = d.clone()
    deep_gemm.fp8_gemm_nt(a, b, d, d, recipe_a=gran_a, recipe_b=gran_b)
    close(d, plain(a, gran_a), plain(b, gran_b), before)
    if gran_a[1] == gran_b[1]:
        again = torch.empty_like(d)
        deep_gemm.fp8_gemm_nt(a, b, again, before, recipe=(gran_a[0], gran_b[0], gran_a[1]))
        assert torch.equal(again, d)


def test_packed_scales():
    """Scales of UE8M0 give the bits that they give in f32, and (1, 1, 128) is a packed b's recipe."""
    k = 600
    a, b, block = (quantised(n, k, gran=g, powers=True) for n, g in ((M, (1, 128)), (N, (1, 128)), (N, BLOCK)))
    packed_a, packed_b = ((x, deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(s)) for x, s in (a, b))
    want, got = torch.empty(2, M, N, dtype=BF16)
    deep_gemm.fp8_gemm_nt(a, block, want)
    deep_gemm.fp8_gemm_nt(packed_a, block, got)
    assert torch.equal(want, got)
    deep_gemm.fp8_gemm_nt(a, b, want, recipe=(1, 1, 128))
    deep_gemm.fp8_gemm_nt(packed_a, packed_b, got)
    assert torch.equal(want, got)


def test_packed_scales_of_groups():
    """The same of grouped products."""
    a, b = quantised(GROUPS, 9, K, powers=True), quantised(GROUPS, N, K, seed=1, powers=True)
    packed_a, packed_b = ((x, deep_gemm.get_mn_major_tma_aligned_packed_ue8m0_tensor(s)) for x, s in (a, b))
    want, got = torch.full((2, GROUPS, 9, N), 7.0, dtype=BF16)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(a, b, want, ints(9, 0, 4), 5, recipe=(1, 1, 128))
    deep_gemm.m_grouped_fp8_gemm_nt_masked(packed_a, packed_b, got, ints(9, 0, 4), 5)
    assert torch.equal(want, got)
    close(got[2, :4], plain(a)[2, :4], plain(b, (1, 128))[2])
    rows, words = (torch.cat([x[0]] * 16)[:128] for x in packed_a)
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((rows, words), packed_b, d := torch.empty(128, N, dtype=BF16), ints(*[0] * 128))
    assert torch.equal(d[:9], got[0])


def test_fnuz_and_layouts_of_scales():
    a, b = quantised(M, K, dtype=F8Z), quantised(N, K, gran=BLOCK, seed=1, dtype=F8Z)
    d, again = torch.empty(2, M, N, dtype=BF16)
    deep_gemm.fp8_gemm_nt(a, b, d)
    close(d, plain(a), plain(b, BLOCK))
    scattered = torch.empty(2 * M, 2 * a[1].shape[1])[::2, ::2].copy_(a[1])
    for scale in (deep_gemm.get_mn_major_tma_aligned_tensor(a[1]), scattered):
        deep_gemm.fp8_gemm_nt((a[0], scale), (b[0], b[1].T.contiguous().T), again)
        assert torch.equal(again, d)


def test_cublaslt_of_fp8():
    a, b = quantised(M, K)[0], quantised(N, K)[0]
    d = torch.empty(M, N)
    deep_gemm.cublaslt_gemm_nt(a, b, d)
    close(d, a.double(), b.double())


@pytest.mark.parametrize("recipe", [None, (1, 1, 128)])
def test_empty(recipe):
    def call(m, n, k, c=None):
        d = torch.full((m, n), 5.0)
        deep_gemm.fp8_gemm_nt(quantised(m, k), quantised(n, k, gran=(1, 128) if recipe else BLOCK), d, c, recipe=recipe)
        return d

    assert call(0, N, K).shape == (0, N) and call(M, 0, K).shape == (M, 0)
    assert not call(M, N, 0).any()
    c = randn(M, N)
    assert torch.equal(call(M, N, 0, c), c)


def test_skip_head_mid():
    a, b = quantised(M, K), quantised(N, K, gran=BLOCK, seed=1)
    d, whole = torch.full((M, 4 * 57), 9.0), torch.empty(M, N)
    deep_gemm.fp8_gemm_nt(a, b, whole)
    deep_gemm.fp8_gemm_nt_skip_head_mid(a, b, d, (30, 7, 20))
    heads, whole = d.view(M, 4, 57), whole.view(M, 4, 50)
    assert torch.equal(heads[:, :, :30], whole[:, :, :30]) and torch.equal(heads[:, :, 37:], whole[:, :, 30:])
    assert (heads[:, :, 30:37] == 9).all()


# ---- groups of rows

def stack(is_fp8, k=K):
    """Returns b, and what it stands for."""
    b = quantised(GROUPS, N, k, gran=BLOCK, seed=3) if is_fp8 else randn(GROUPS, N, k, dtype=BF16, seed=3)
    return b, plain(b, BLOCK)


@pytest.mark.parametrize("is_fp8", [True, False])
@pytest.mark.parametrize("layout", ["nt", "nn"])
def test_index(layout, is_fp8):
    """Rows of no group take part in the group whose tile they end; a tile of such rows alone stays unwritten."""
    index = ints(*[2] * 100, *[-1] * 28, *[-1] * 128, *[0] * 130, *[-1] * 20)
    a = quantised(len(index), K) if is_fp8 else randn(len(index), K, dtype=BF16)
    b, wide = stack(is_fp8)
    d = torch.full((len(index), N), 9.0, dtype=BF16)
    getattr(deep_gemm, f"m_grouped_{'fp8' if is_fp8 else 'bf16'}_gemm_{layout}_contiguous")(a, turn(b) if layout == "nn" else b, d, index)
    close(d[:128], plain(a)[:128], wide[2])
    assert (d[128:256] == 9).all()
    close(d[256:386], plain(a)[256:386], wide[0])
    close(d[386:], plain(a)[386:], wide[0])


@pytest.mark.parametrize("is_fp8", [True, False])
@pytest.mark.parametrize("alignment", [32, 128])
def test_ends(alignment, is_fp8):
    deep_gemm.set_mk_alignment_for_contiguous_layout(alignment)
    starts = 0, alignment, alignment
    ends = 20, alignment, alignment + 40  # the second one has no rows
    a = quantised(alignment + 60, K) if is_fp8 else randn(alignment + 60, K, dtype=BF16)
    b, wide = stack(is_fp8)
    function = deep_gemm.m_grouped_fp8_gemm_nt_contiguous if is_fp8 else deep_gemm.m_grouped_bf16_gemm_nt_contiguous
    for zeros in (False, True):
        d = torch.full((len(plain(a)), N), 9.0, dtype=BF16)
        function(a, b, d, ints(*ends), use_psum_layout=True, ensure_zero_padding=zeros, expected_m_for_psum_layout=20)
        for group, (start, end) in enumerate(zip(starts, ends, strict=True)):
            close(d[start:end], plain(a)[start:end], wide[group])
        assert (d[20:alignment] == (0 if zeros else 9)).all()


@pytest.mark.parametrize("is_fp8", [True, False])
def test_masked(is_fp8):
    a = quantised(GROUPS, 9, K) if is_fp8 else randn(GROUPS, 9, K, dtype=BF16)
    b, wide = stack(is_fp8)
    d, count = torch.full((GROUPS, 9, N), 7.0, dtype=BF16), ints(9, 0, 4)
    (deep_gemm.fp8_m_grouped_gemm_nt_masked if is_fp8 else deep_gemm.bf16_m_grouped_gemm_nt_masked)(a, b, d, count, 5)
    for group, rows in enumerate(count.tolist()):
        close(d[group, :rows], plain(a)[group, :rows], wide[group])
        assert (d[group, rows:] == 7).all()


def test_first_release():
    """The first release's names give the same bits as today's."""
    a, b, (many, _) = quantised(M, K), quantised(N, K, gran=BLOCK), stack(True)
    one, two = torch.empty(2, M, N, dtype=BF16)
    deep_gemm.gemm_fp8_fp8_bf16_nt(a, b, out=one)
    deep_gemm.fp8_gemm_nt(a, b, two)
    assert torch.equal(one, two)
    deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous(a, many, out=one, m_indices=ints(*[1] * M))
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous(a, many, two, ints(*[1] * M))
    assert torch.equal(one, two)
    slabs, (one, two) = quantised(GROUPS, 4, K), torch.empty(2, GROUPS, 4, N, dtype=BF16)
    deep_gemm.m_grouped_gemm_fp8_fp8_bf16_nt_masked(slabs, many, out=one, masked_m=ints(4, 4, 4), expected_m=4)
    deep_gemm.m_grouped_fp8_gemm_nt_masked(slabs, many, two, ints(4, 4, 4), 4)
    assert torch.equal(one, two) and deep_gemm.cell_div(5, 4) == 2
    assert deep_gemm.get_col_major_tma_aligned_tensor(torch.ones(5, 2)).stride() == (1, 8)


# ---- groups of k

KS = 128, 0, 256


def wide_groups(values, scale, gran_k, starts, ks):
    """Returns each group [k, mn] of values [sum of k, mn], in f64; its scales lie one row after another."""
    groups, row = [], 0
    for start, k in zip(starts, ks, strict=True):
        rows = -(-k // gran_k)
        groups.append(values[start:start + k].double() * scale[row:row + rows].double().repeat_interleave(gran_k, 0)[:k])
        row += rows
    return groups


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_k_grouped_nt(dtype):
    sides, c = [], randn(3, 5, 7, dtype=dtype)
    for mn, seed in ((5, 1), (7, 2)):
        values, scale = randn(sum(KS), mn, seed=seed).to(torch.float8_e4m3fn), rand(3, mn) + 0.5
        flat = torch.cat([part.T.flatten() for part in values.split(KS)])
        sides.append(((flat, scale.T), wide_groups(values, scale, 128, (0, 128, 128), KS)))
    d = torch.empty_like(c)
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous(sides[0][0], sides[1][0], d, list(KS), ints(*KS), c)
    for g in range(3):
        close(d[g], sides[0][1][g].T, sides[1][1][g].T, c[g])


@pytest.mark.parametrize("ks_cpu", [[], None, [128, 0, 256]])
@pytest.mark.parametrize("gran_k", [32, 128])
def test_k_grouped_tn(gran_k, ks_cpu):
    by_ends = not ks_cpu
    ks, starts, ends = ((100, 0, 200), (0, 128, 128), (100, 128, 328)) if by_ends else (KS, (0, 128, 128), KS)
    total, scales = (328, sum(-(-k // gran_k) for k in ks)) if by_ends else (384, 384 // gran_k)
    sides, c = [], randn(3, 5, 7)
    for mn, seed in ((5, 1), (7, 2)):
        values, scale = randn(total, mn, seed=seed).to(torch.float8_e4m3fn), rand(scales, mn) + 0.5
        sides.append(((values, scale), wide_groups(values, scale, gran_k, starts, ks)))
    before = c.clone()
    deep_gemm.k_grouped_fp8_gemm_tn_contiguous(sides[0][0], sides[1][0], c, ks_cpu, ints(*ends), c, recipe=(1, 1, gran_k),
                                               use_psum_layout=by_ends)
    for g in range(3):
        close(c[g], sides[0][1][g].T, sides[1][1][g].T, before[g])


@pytest.mark.parametrize("by_ends", [False, True])
def test_k_grouped_bf16(by_ends):
    a, b, c = randn(384, 5, dtype=BF16), randn(384, 7, dtype=BF16, seed=1), randn(3, 5, 7)
    spans = ((0, 100), (128, 128), (128, 384)) if by_ends else ((0, 128), (128, 128), (128, 384))
    d = torch.empty_like(c)
    deep_gemm.k_grouped_bf16_gemm_tn_contiguous(a, b, d, None if by_ends else list(KS), ints(*([100, 128, 384] if by_ends else KS)),
                                                c, use_psum_layout=by_ends)
    for g, (start, end) in enumerate(spans):
        close(d[g], a[start:end].double().T, b[start:end].double().T, c[g])


def test_legacy():
    index, rows = ints(*[1] * 100, *[-1] * 28), torch.arange(127, -1, -1, dtype=torch.int32)
    a, (b, wide), d = randn(128, K, dtype=BF16), stack(False), torch.empty(128, N, dtype=BF16)
    for turned in (False, True):
        given, layout = (turn(b), "nn") if turned else (b, "nt")
        getattr(deep_gemm.legacy, f"m_grouped_bf16_gemm_{layout}_contiguous_tl")(a, given, d, index)
        close(d, a.double(), wide[1])
        getattr(deep_gemm.legacy, f"a_fused_m_grouped_bf16_gemm_{layout}_contiguous_tl")(a, given, d, (index, rows))
        close(d, a.double().flip(0), wide[1])
    left, right, handle = randn(128, 5, dtype=BF16), randn(128, 7, dtype=BF16), (rows, ints(0, 30), ints(30, 128))
    for gathered, x, y in (("a", left.flip(0), right), ("b", left, right.flip(0))):
        c = randn(2, 5, 7)
        for adds in (False, True):
            d = c.clone()
            getattr(deep_gemm.legacy, f"{gathered}_fused_k_grouped_bf16_gemm_tn_contiguous_tl")(left, right, d, handle, adds)
            for g, span in enumerate((slice(0, 30), slice(30, 128))):
                close(d[g], x[span].double().T, y[span].double().T, c[g] if adds else None)


# ---- sums, scores and the product before a norm

def test_einsum():
    a, b, c = randn(6, 5, 40, dtype=BF16), randn(6, 7, 40, dtype=BF16, seed=1), randn(5, 7)
    left, right = (x.double().transpose(0, 1).flatten(1) for x in (a, b))
    for d, added in ((torch.empty(5, 7), c), (torch.empty(5, 7, dtype=BF16), None)):
        deep_gemm.einsum("bmk,bnk->mn", a, b, d, c=added)
        close(d, left, right, added)
    x, y = randn(5, 3, 40, dtype=BF16), randn(3, 9, 50, dtype=BF16)[:, :, :40]
    d = torch.empty(5, 3, 9, dtype=BF16)
    deep_gemm.einsum("bhr,hdr->bhd", x, y, d)
    close(d.transpose(0, 1), x.double().transpose(0, 1), y.double())
    deep_gemm.einsum("bhd,hdr->bhr", x, y.mT, d, use_cublaslt=True)
    close(d.transpose(0, 1), x.double().transpose(0, 1), y.double())


@pytest.mark.parametrize("dtype, adds", [(BF16, False), (BF16, True), (F32, False), (F32, True)])
def test_fp8_einsum(dtype, adds):
    (x, sx), (y, sy), c = quantised(3, 5, K), quantised(3, 140, K, gran=BLOCK, seed=1), randn(5, 3, 140, dtype=dtype)
    outer, added = [t.transpose(0, 1) for t in (x, sx)], c if adds else None
    d = torch.empty_like(c)
    want = plain((x, sx)), plain((y, sy), BLOCK), c.transpose(0, 1) if adds else None
    deep_gemm.fp8_einsum("bhr,hdr->bhd", outer, (y, sy), d, added)
    close(d.transpose(0, 1), *want)
    deep_gemm.fp8_einsum("bhd,hdr->bhr", outer, (y.mT, sy.mT), d, added)
    close(d.transpose(0, 1), *want)
    y, sy = quantised(3, 7, K, seed=2)
    turned = [t.permute(2, 0, 1) for t in (x, sx)], [t.permute(2, 0, 1) for t in (y, sy)]
    c = randn(3, 5, 7, dtype=dtype) if adds else None
    d = torch.empty(3, 5, 7, dtype=dtype)
    deep_gemm.fp8_einsum("bhd,bhr->hdr", *turned, d, c, recipe=(1, 1, 128))
    close(d, plain((x, sx)), plain((y, sy)), c)


def test_einsum_is_one_call(monkeypatch):
    calls, gemm = [], quern._gemm.gemm
    monkeypatch.setattr(quern._gemm, "gemm", lambda *arguments, **options: (calls.append(1), gemm(*arguments, **options)))
    (x, sx), y = quantised(3, 5, K), quantised(3, 140, K, gran=BLOCK, seed=1)
    deep_gemm.fp8_einsum("bhr,hdr->bhd", (x.transpose(0, 1), sx.transpose(0, 1)), y, torch.empty(5, 3, 140))
    deep_gemm.einsum("bhr,hdr->bhd", x.to(BF16).transpose(0, 1), y[0].to(BF16), torch.empty(5, 3, 140, dtype=BF16))
    assert len(calls) == 2


def scores(q, keys, scale, weights):
    """Returns logits [queries, keys] in f64, and how large an error may be."""
    parts = torch.einsum("ihd,jd->ijh", q.double(), keys.double() * scale.double()[:, None]).relu()
    size = torch.einsum("ihd,jd->ijh", q.double().abs(), (keys.double() * scale.double()[:, None]).abs())
    weights = weights.double()[:, None]
    return (parts * weights).sum(-1), 2 * (q.shape[-1] + q.shape[1] + 4) * 2**-24 * (size * weights.abs()).sum(-1)


def agrees(got, want, tolerance):
    unit = {BF16: 2**-8, F32: 2**-24}[got.dtype]
    assert not ((got.double() - want).abs() > tolerance + unit * want.abs()).any() and not got.isnan().any()


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_mqa_logits(dtype):
    q, keys, scale = randn(6, 4, 64).to(torch.float8_e4m3fn), randn(70, 64).to(torch.float8_e4m3fn), rand(70)
    weights, start, end = randn(6, 4, seed=3), ints(0, 1, 5, 60, 0, 3), ints(70, 3, 5, 70, 1, 40)
    want, tolerance = scores(q, keys, scale, weights)
    at = torch.arange(70)
    seen = (at >= start[:, None]) & (at < end[:, None])
    got = deep_gemm.fp8_fp4_mqa_logits((q, None), (keys, scale), weights, start, end, logits_dtype=dtype)
    assert got.dtype == dtype and got.stride(0) * got.element_size() % 1024 == 0
    assert torch.equal(got == -torch.inf, ~seen)
    agrees(got[seen], want[seen], tolerance[seen])
    got = deep_gemm.fp8_fp4_mqa_logits((q, None), (keys, scale), weights, start, end, False, 70, dtype)
    for i in range(6):
        span = slice(int(start[i]), int(end[i]))
        agrees(got[i, :span.stop - span.start], want[i, span], tolerance[i, span])
    if dtype == F32:
        again = deep_gemm.fp8_mqa_logits(q, (keys, scale), weights, start, end, False, 70)
        assert torch.equal(again, got)


@pytest.mark.parametrize("size", [64, 32])
def test_paged_mqa_logits(size):
    q, weights = randn(2, 3, 4, 64).to(torch.float8_e4m3fn), randn(6, 4)
    keys, scale = randn(5, size, 64).to(torch.float8_e4m3fn), rand(5, size)
    cache = torch.cat([keys.view(torch.uint8).flatten(1), scale.view(torch.uint8).flatten(1)], 1).view(5, size, 1, 68)
    lengths, table = ints(*range(size + 1, size + 7)).view(2, 3), ints(3, 1, 999, 0, 4, -1).view(2, 3)
    schedule = deep_gemm.get_paged_mqa_logits_metadata(lengths, size, 8)
    assert schedule.shape == (9, 2)
    got = deep_gemm.fp8_paged_mqa_logits(q, cache, weights, lengths, table, schedule, 2 * size + 2, True)
    bf16 = deep_gemm.fp8_fp4_paged_mqa_logits((q, None), cache, weights, lengths, table, schedule, 2 * size + 2, logits_dtype=BF16)
    for i in range(2):
        pages = table[i, :2].long()
        want, tolerance = scores(q[i], keys[pages].flatten(0, 1), scale[pages].flatten(), weights[3 * i:3 * i + 3])
        for j in range(3):
            row, length = 3 * i + j, int(lengths[i, j])
            agrees(got[row, :length], want[j, :length], tolerance[j, :length])
            agrees(bf16[row, :length], want[j, :length], tolerance[j, :length])
            assert (got[row, length:] == -torch.inf).all()


@pytest.mark.parametrize("splits, k", [(None, K), (1, K), (3, K), (None, 8200), (2, 9000)])
def test_hc_prenorm(splits, k):
    a, b = randn(5, k, dtype=BF16), randn(24, k, seed=1)
    lead = () if splits is None else (splits,)
    d, squares = torch.empty(*lead, 5, 24), torch.empty(*lead, 5)
    deep_gemm.tf32_hc_prenorm_gemm(a, b, d, squares, splits)
    total, sums = (d, squares) if splits is None else (d.sum(0), squares.sum(0))
    tf32 = (b.view(torch.int32) + 0x1000 & ~0x1FFF).view(torch.float32)
    close(total, a.double(), tf32.double())
    want = a.double().square().sum(-1)
    assert ((sums - want).abs() <= k * 2**-24 * want).all()
