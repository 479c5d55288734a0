# SPDX-License-Identifier: Apache-2.0
"""quern.compat.aiter's norms, activations, quantisation, products and rotary embeddings against f64."""

import pytest

torch = pytest.importorskip("torch")
from aiter_tools import F16, TINY, UNIT, dequantised, layer, near, rms  # noqa: E402
from deep_gemm_tools import BF16, F8, F8Z, F32, close, plain, quantised, randn  # noqa: E402

import quern  # noqa: E402
import quern.compat.aiter as aiter  # noqa: E402
from quern.compat.aiter.fused_moe import fused_moe, fused_topk  # noqa: E402
from quern.compat.aiter.ops.fused_qk_norm_rope_cache_quant import _fused_qk_rmsnorm  # noqa: E402
from quern.compat.aiter.ops.shuffle import moe_shuffle_weight, shuffle_scale, shuffle_weight  # noqa: E402
from quern.compat.aiter.ops.triton.activation import act_mul_and_fp8_group_quant  # noqa: E402
from quern.compat.aiter.ops.triton.fused_add_rmsnorm_pad import fused_add_rmsnorm_pad  # noqa: E402
from quern.compat.aiter.ops.triton.fused_fp8_quant import fused_rms_fp8_group_quant  # noqa: E402
from quern.compat.aiter.ops.triton.gemm_a8w8_blockscale import gemm_a8w8_blockscale, gemm_a8w8_blockscale_preshuffle  # noqa: E402
from quern.compat.aiter.ops.triton.gemm_a16w16 import gemm_a16w16  # noqa: E402
from quern.compat.aiter.ops.triton.rope import rope as thd  # noqa: E402
from quern.compat.aiter.tuned_gemm import tgemm  # noqa: E402

H, EPS, BLOCK = 200, 1e-5, (128, 128)


def nans(*shape, dtype=BF16):
    return torch.full(shape, torch.nan).to(dtype)


def total_of(x, y):
    return x.double() + y.double()


# ---- norms

@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("shape", [(5, H), (3, 2, H), (2, 3, 2, H), (H,)])
def test_rms_norm(shape, dtype):
    x, weight = randn(*shape, dtype=dtype), randn(H, dtype=dtype)
    for function in (aiter.rms_norm, aiter.rmsnorm2d_fwd):
        near(function(x, weight, EPS), rms(x, weight, EPS), H)
    for gemma in (False, True):
        out = nans(*shape, dtype=dtype)
        aiter.rmsnorm(out, x, weight, EPS, gemma)
        near(out, rms(x, weight, EPS, gemma), H)


def test_rms_norm_of_strided_rows():
    x, weight = randn(5, 3 * H, dtype=BF16)[:, H:2 * H], randn(H, dtype=BF16)
    near(aiter.rms_norm(x, weight, EPS), rms(x, weight, EPS), H)


@pytest.mark.parametrize("function", [aiter.rmsnorm2d_fwd_with_add, aiter.add_rmsnorm])
@pytest.mark.parametrize("gemma", [False, True])
@pytest.mark.parametrize("alias", ["none", "same", "crossed", "input"])
def test_add_rms_norm(alias, gemma, function):
    x, residual, weight = randn(5, H, dtype=BF16), randn(5, H, dtype=BF16, seed=1), randn(H, dtype=BF16)
    want, total = rms(total_of(x, residual), weight, EPS, gemma), total_of(x, residual)
    out, residual_out = {"none": (nans(5, H), nans(5, H)), "same": (x, residual), "crossed": (residual, x), "input": (nans(5, H), x)}[alias]
    assert function(out, x, residual, residual_out, weight, EPS, gemma_norm=gemma) is None
    near(out, want, H, float(total.abs().max()))
    near(residual_out, total, 1)


@pytest.mark.parametrize("group", [0, 128])
@pytest.mark.parametrize("kind", [F8, F8Z])
@pytest.mark.parametrize("adds", [False, True])
def test_rms_norm_to_fp8(adds, kind, group):
    x, residual, weight = randn(5, H, dtype=BF16), randn(5, H, dtype=BF16, seed=1), randn(H, dtype=BF16)
    total = total_of(x, residual) if adds else x.double()
    columns = -(-H // 128) if group else 1
    for gemma, long in ((False, True), (False, False), (True, False)):
        for turned in (False, True) if group else (False,):
            out, scale, residual_out = torch.zeros(5, H).to(kind), torch.full((5, columns), torch.nan), nans(5, H)
            if long:
                function = aiter.rmsnorm2d_fwd_with_add_dynamicquant if adds else aiter.rmsnorm2d_fwd_with_dynamicquant
                options = {"group_size": group, "shuffle_scale": turned}
            else:
                function = aiter.add_rmsnorm_quant if adds else aiter.rmsnorm_quant
                options = {"group_size": group, "shuffle_scale": turned, "gemma_norm": gemma}
            function(out, x, *((residual, residual_out) if adds else ()), scale, weight, EPS, **options)
            scale = scale.view(columns, 5).T if turned else scale
            dequantised(out, scale, rms(total, weight, EPS, gemma), group or H, H)
            if adds:
                near(residual_out, total, 1)


@pytest.mark.parametrize("dtype", [BF16, F32])
def test_layer_norm(dtype):
    x, residual = randn(5, H, dtype=dtype), randn(5, H, dtype=dtype, seed=1)
    weight, bias = randn(H, dtype=dtype), randn(H, dtype=dtype, seed=2)
    spread = float(weight.double().abs().max() * 4 + bias.double().abs().max())
    for function in (aiter.layernorm2d_fwd, aiter.layer_norm):
        near(function(x, weight, bias, EPS), layer(x, weight, bias, EPS), H, spread)
    near(aiter.layer_norm(x), layer(x, torch.ones(H), torch.zeros(H), 1e-5), H, 4)
    out, residual_out = nans(5, H, dtype=dtype), nans(5, H, dtype=dtype)
    aiter.layernorm2d_fwd_with_add(out, x, residual, residual_out, weight, bias, EPS)
    near(out, layer(total_of(x, residual), weight, bias, EPS), H, 2 * spread)
    near(residual_out, total_of(x, residual), 1, 4)


def test_fused_norms():
    x, other, residual = randn(5, H, dtype=BF16), randn(5, 96, dtype=BF16), randn(5, H, dtype=BF16, seed=1)
    weight, second = randn(H, dtype=BF16), randn(96, dtype=BF16)
    q, k = _fused_qk_rmsnorm(None, x, weight, EPS, nans(5, 96), other, second, 1e-3)
    near(q, rms(x, weight, EPS), H)
    near(k, rms(other, second, 1e-3), 96)
    out, total = fused_add_rmsnorm_pad(x, weight, EPS, residual, 128)
    near(out[:, :H], rms(total_of(x, residual), weight, EPS), H, 8)
    assert out.shape == (5, 256) and not out[:, H:].any()
    near(total, total_of(x, residual), 1)
    near(fused_add_rmsnorm_pad(x, weight, EPS), rms(x, weight, EPS), H)


@pytest.mark.parametrize("adds", [False, True])
def test_fused_rms_fp8_group_quant(adds):
    x, other, residual = randn(5, H, dtype=BF16), randn(5, 96, dtype=BF16), randn(5, H, dtype=BF16, seed=1)
    weight, second = randn(H, dtype=BF16), randn(96, dtype=BF16)
    total = total_of(x, residual) if adds else x.double()
    for turned, strided in ((False, False), (True, False), (True, True)):
        (q, scale), norm, two, summed = fused_rms_fp8_group_quant(x, weight, EPS, other, second, 1e-3, 128, F8Z, residual if adds else None,
                                                                  adds, turned, strided)
        assert q.dtype == F8Z and (not strided or scale.stride() == (1, 5))
        scale = scale.view(2, 5).T if turned and not strided else scale
        dequantised(q, scale, rms(total, weight, EPS), 128, H)
        near(two, rms(other, second, 1e-3), 96)
        assert (norm is None) == (summed is None) == (not adds)
    if adds:
        near(summed, total, 1)
        near(norm, rms(summed, weight, EPS), H)


# ---- activations

def activated(x, name, limit=0.0):
    gate, up = x.double().chunk(2, -1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    functions = {"silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
                 "gelu_tanh": lambda g: torch.nn.functional.gelu(g, approximate="tanh")}
    return functions[name](gate) * up


def test_activations():
    x = 3 * randn(5, 2 * H, dtype=BF16)
    for name in ("silu", "gelu", "gelu_tanh"):
        out = nans(5, H)
        getattr(aiter, f"{name}_and_mul")(out, x)
        near(out, activated(x, name), 16, float(x.double().abs().max()) * 2)
    out = nans(5, H)
    aiter.silu_and_mul(out, x, 1.5)
    near(out, activated(x, "silu", 1.5), 16)


@pytest.mark.parametrize("kind", [F8, F8Z])
def test_activations_to_fp8(kind):
    x = randn(5, 2 * H, dtype=BF16)
    for group, turned, limit in ((0, False, 0.0), (128, False, 1.0), (128, True, 0.0)):
        out, scale = torch.zeros(5, H).to(kind), torch.empty(5, 2 if group else 1)
        aiter.silu_and_mul_quant(out, x, scale, group, limit, turned)
        dequantised(out, scale.view(2, 5).T if turned else scale, activated(x, "silu", limit), group or H, 16)
    out, given = torch.zeros(5, H).to(kind), torch.tensor([0.25])
    aiter.scaled_silu_and_mul(out, x, given)
    near(out, activated(x, "silu") / 0.25, 16)
    for name in ("silu", "gelu", "gelu_tanh"):
        q, scale = act_mul_and_fp8_group_quant(x, name, 128, kind)
        assert q.dtype == kind
        dequantised(q, scale, activated(x, name), 128, 64)


# ---- quantisation

@pytest.mark.parametrize("kind", [F8, F8Z, torch.int8])
def test_quantisation(kind):
    x = randn(6, 256, dtype=BF16)
    q, scale = aiter.get_hip_quant(aiter.QuantType.per_1x128)(x, quant_dtype=kind)
    dequantised(q, scale, x.double(), 128, 4)
    turned, turned_scale = aiter.per_group_quant_hip(x, quant_dtype=kind, transpose_scale=True)
    assert turned_scale.shape == (6, 2) and torch.equal(turned_scale.view(2, 6).T, scale)
    assert torch.equal(turned.view(torch.uint8), q.view(torch.uint8))
    dequantised(*aiter.per_group_quant_hip(x, None, kind, 64), x.double(), 64, 4)
    q, scale = aiter.get_hip_quant(2)(x.view(2, 3, 256), quant_dtype=kind)
    assert q.shape == (2, 3, 256) and scale.shape == (2, 3, 1)
    dequantised(q.view(6, 256), scale.view(6, 1), x.double(), 256, 4)
    q, scale = aiter.get_hip_quant(aiter.QuantType.per_Tensor)(x, quant_dtype=kind)
    dequantised(q.view(1, -1), scale.view(1, 1), x.double().view(1, -1), x.numel(), 4)
    again, same = aiter.per_tensor_quant_hip(x, scale, kind)
    assert torch.equal(again.view(torch.uint8), q.view(torch.uint8)) and torch.equal(same, scale)
    assert aiter.get_hip_quant(0)(x) == (x, None)


@pytest.mark.parametrize("kind", [F8, torch.int8])
def test_quantisation_into_given_tensors(kind):
    x, out = randn(6, 256, dtype=BF16), torch.zeros(6, 256).to(kind)
    scale = torch.empty(1)
    aiter.dynamic_per_tensor_quant(out, x, scale)
    dequantised(out.view(1, -1), scale.view(1, 1), x.double().view(1, -1), x.numel(), 4)
    before = out.clone()
    aiter.static_per_tensor_quant(out, x, 2 * scale)
    dequantised(before.view(1, -1), scale.view(1, 1), x.double().view(1, -1), x.numel(), 4)
    assert bool(((out.double() * 2 * scale - x.double()).abs() <= 2 * scale * (0.5 if kind == torch.int8 else 2**-4 * 448)).all())
    rows = torch.empty(6, 1)
    aiter.dynamic_per_token_scaled_quant(out, x, rows, num_rows=torch.tensor([3]), num_rows_factor=2)
    dequantised(out, rows, x.double(), 256, 4)
    groups = torch.empty(6, 2)
    aiter.dynamic_per_token_scaled_quant(out, x.view(-1, 128), groups, shuffle_scale=True)
    dequantised(out, groups.view(2, 6).T, x.double(), 128, 4)


# ---- products

@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("kind", [F8, F8Z])
def test_block_scales(kind, dtype):
    a, b = quantised(5, 300, dtype=kind), quantised(140, 300, gran=BLOCK, seed=1, dtype=kind)
    want = plain(a), plain(b, BLOCK)
    if dtype != F16:
        close(aiter.gemm_a8w8_blockscale(a[0], b[0], a[1], b[1], dtype), *want)
        y = nans(5, 140, dtype=dtype)
        assert gemm_a8w8_blockscale(a[0], b[0], a[1], b[1], dtype, y) is y
        close(y, *want)
    else:
        got = aiter.gemm_a8w8_blockscale(a[0], b[0], a[1], b[1], dtype)
        near(got, want[0] @ want[1].T, 300, want[0].abs() @ want[1].abs().T)


def test_shuffled_block_scales():
    a, b = quantised(5, 320), quantised(144, 320, gran=BLOCK, seed=1)
    shuffled, want = shuffle_weight(b[0]), aiter.gemm_a8w8_blockscale(a[0], b[0], a[1], b[1])
    close(want, plain(a), plain(b, BLOCK))
    turned = a[1].T.contiguous().view(5, 3)  # bytes as [groups, m] behind [m, groups]
    out = nans(5, 144)
    assert aiter.gemm_a8w8_blockscale_bpreshuffle(a[0], shuffled, turned, b[1], out=out) is out
    results = [out, aiter.gemm_a8w8_blockscale(a[0], shuffled, a[1], b[1], isBpreshuffled=True),
               aiter.gemm_a8w8_blockscale_bpreshuffle(a[0], shuffled, a[1].T.contiguous().T, b[1]),
               gemm_a8w8_blockscale_preshuffle(a[0], shuffled.view(9, -1), turned, b[1]),
               gemm_a8w8_blockscale_preshuffle(a[0], shuffled.view(9, -1), a[1], b[1], is_x_scale_tranposed=False)]
    assert all(torch.equal(result, want) for result in results)


@pytest.mark.parametrize("kind", [F8, F8Z, torch.int8])
@pytest.mark.parametrize("has_bias", [False, True])
def test_scales_of_rows(has_bias, kind):
    make = (lambda n, k, seed: torch.randint(-127, 128, (n, k), generator=torch.Generator().manual_seed(seed)).to(torch.int8)) \
        if kind == torch.int8 else (lambda n, k, seed: randn(n, k, seed=seed).to(kind))
    x, w, xs, ws = make(5, 320, 1), make(144, 320, 2), randn(5, 1).abs() + 0.5, randn(144, 1, seed=3).abs() + 0.5
    bias = randn(144, dtype=BF16) if has_bias else None
    a, b = x.double() * xs.double(), w.double() * ws.double()
    added = bias.double().expand(5, 144) if has_bias else None
    for function in (aiter.gemm_a8w8, aiter.gemm_a8w8_CK):
        for scales in (ws, ws.T):
            close(function(x, w, xs, scales, bias, BF16, 2), a, b, added)
    padded = torch.cat([w.view(torch.uint8), torch.zeros(144, 64, dtype=torch.uint8)], 1).view(kind)
    for weight in (w, padded):
        close(aiter.gemm_a8w8_bpreshuffle(x, shuffle_weight(weight), xs, ws, bias), a, b, added)
    assert aiter.get_CKGEMM_config(1, 2, 3) is aiter.get_GEMM_config_with_quant_type(1, 2, 3, kind) is None


@pytest.mark.parametrize("dtype", [F8, BF16])
def test_order_of_weights(dtype):
    x = randn(2, 32, 64).to(dtype)
    got, p = shuffle_weight(x), 16 // x.element_size()
    want = x.view(torch.uint8 if dtype == F8 else dtype).view(-1, 2, 16, 2, 32 // p, p).permute(0, 1, 3, 4, 2, 5).contiguous()
    assert got.is_shuffled and got.shape == x.shape and torch.equal(got.view(want.dtype).flatten(), want.flatten())
    assert torch.equal(moe_shuffle_weight(x, 2).view(torch.uint8), got.view(torch.uint8))
    assert shuffle_scale(None) is None and shuffle_scale(got_scale := torch.ones(2, 3)) is got_scale


def test_plain_products():
    x, w, bias = randn(2, 3, 64, dtype=BF16), randn(48, 64, dtype=BF16, seed=1), randn(48, dtype=BF16)
    added = bias.double().expand(6, 48)
    close(tgemm.mm(x, w, bias).view(6, 48), x.double().view(6, 64), w.double(), added)
    got = tgemm.mm(x, w, otype=F32)
    assert got.dtype == F32
    close(got.view(6, 48), x.double().view(6, 64), w.double())
    a, b = randn(6, 64).to(F8), randn(48, 64).to(F8)
    got = tgemm.mm(a, b, scale_a=torch.tensor([0.5]), scale_b=torch.tensor(0.25))
    close(got, 0.5 * a.double(), 0.25 * b.double())
    y = nans(6, 48)
    assert gemm_a16w16(x.view(6, 64), w, bias, y=y) is y
    close(y, x.double().view(6, 64), w.double(), added)


# ---- rotary embeddings

def turned(x, cos, sin, style, last):
    """x [tokens, heads, dim], cos and sin [tokens, r / 2]"""
    x, (cos, sin) = x.double().clone(), (t.double()[:, None] for t in (cos, sin))
    part = x[..., -2 * cos.shape[-1]:] if last else x[..., :2 * cos.shape[-1]]
    one, two = (part[..., ::2], part[..., 1::2]) if style else part.chunk(2, -1)
    a, b = one * cos - two * sin, two * cos + one * sin
    one.copy_(a)
    two.copy_(b)
    return x


def rounded_near(got, want):
    error = (got.double() - want).abs()
    assert bool((error <= UNIT[got.dtype] * want.abs() + 2**-20 * 8 + TINY[got.dtype]).all()), error.max()


@pytest.mark.parametrize("style", [0, 1])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", [BF16, F32])
def test_rope(dtype, last, style):
    s, b, r = 4, 3, 32
    x, y = randn(s, b, 5, 48, dtype=dtype), randn(s, b, 2, 48, dtype=dtype, seed=1)
    cos, sin = randn(20, 1, 1, r // 2).cos().to(dtype), randn(20, 1, 1, r // 2).sin().to(dtype)
    positions, offsets = torch.randint(0, 10, (s, b)), torch.randint(0, 10, (s, b))
    options = style, True, last

    def check(got, given, rows):
        table = [t.view(20, -1)[rows.flatten()] for t in (cos, sin)]
        rounded_near(got.reshape(s * b, -1, 48), turned(given.reshape(s * b, -1, 48), *table, style, last))

    counted = torch.arange(s)[:, None].expand(s, b)
    for transposed in (False, True):
        got = aiter.rope_cached_2c_fwd(x, y, cos, sin, *options, transposed)
        assert got[0].stride() == (x.transpose(0, 1).contiguous().transpose(0, 1) if transposed else x).stride()
        check(got[0], x, counted)
        check(got[1], y, counted)
        check(aiter.rope_cached_fwd(x, cos, sin, *options, transposed), x, counted)
        check(aiter.rope_cached_positions_fwd(x, cos, sin, positions, *options, transposed), x, positions)
        got = aiter.rope_cached_positions_2c_fwd(x, y, cos, sin, positions, *options, transposed)
        check(got[0], x, positions)
        check(got[1], y, positions)
    for name, where in (("positions", (positions,)), ("positions_offsets", (positions, offsets))):
        one, (two, three) = x.clone(), (x.clone(), y.clone())
        getattr(aiter, f"rope_cached_{name}_fwd_inplace")(one, cos, sin, *where, *options)
        getattr(aiter, f"rope_cached_{name}_2c_fwd_inplace")(two, three, cos, sin, *where, *options)
        check(one, x, sum(where))
        check(two, x, sum(where))
        check(three, y, sum(where))
        one, two = x.clone().view(s * b, 5, 48), y.clone().view(s * b, 2, 48)
        flat = [t.flatten() for t in where]
        getattr(thd, f"rope_cached_thd_{name}_2c_fwd_inplace")(one, two, cos, sin, *flat, *options)
        check(one, x, sum(where))
        check(two, y, sum(where))


# ---- routing

def routed(logits, k, softmax, bias=None, groups=1, chosen=1, renorm=False, scale=1.0):
    """Returns (weights f64, ids)."""
    scores = logits.double().softmax(-1) if softmax else logits.double().sigmoid()
    by = (scores if bias is None else scores + bias.double()).view(len(scores), groups, -1)
    of_groups = by.amax(-1) if bias is None else by.topk(2, -1)[0].sum(-1)
    hidden = torch.ones_like(of_groups, dtype=torch.bool).scatter_(1, of_groups.topk(chosen, -1)[1], False)
    ids = by.masked_fill(hidden[..., None], -torch.inf).flatten(1).topk(k, -1)[1]
    weights = scores.gather(1, ids)
    return weights / (weights.sum(-1, keepdim=True) if renorm else 1) * scale, ids


@pytest.mark.parametrize("renorm", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_routing(dtype, renorm):
    # Logits of a token are all different, and so far apart that no rounding of a score makes two equal.
    order = torch.stack([torch.randperm(32, generator=torch.Generator().manual_seed(t)) for t in range(9)])
    logits, bias = (order.float() / 8 - 2).to(dtype), torch.randn(32, generator=torch.Generator().manual_seed(1)) / 4

    def check(call, *want):
        wide, wide_ids = torch.full((9, 6), torch.nan), torch.full((9, 6), -7, dtype=torch.int32)
        weights, ids = wide[:, 1:5], wide_ids[:, 1:5]
        call(weights, ids)
        exact, exact_ids = routed(logits, 4, *want)
        assert torch.equal(ids.long(), exact_ids) and wide[:, [0, 5]].isnan().all() and (wide_ids[:, [0, 5]] == -7).all()
        assert bool(((weights.double() - exact).abs() <= 2 * (32 + 8) * 2**-24 * exact).all())

    pairs = torch.zeros(9, 4, dtype=torch.int32)
    check(lambda w, i: aiter.topk_softmax(w, i, pairs, logits, renorm), True, None, 1, 1, renorm)
    assert pairs[2].tolist() == [2, 11, 20, 29]
    check(lambda w, i: aiter.topk_gating(w, i, logits, None, renorm, 2.5, "softmax"), True, None, 1, 1, renorm, 2.5)
    check(lambda w, i: aiter.topk_gating(w, i, logits, bias, renorm, 2.5, "sigmoid"), False, bias, 1, 1, renorm, 2.5)
    check(lambda w, i: aiter.biased_grouped_topk(logits, bias, w, i, 8, 3, renorm, 2.5), False, bias, 8, 3, renorm, 2.5)
    check(lambda w, i: aiter.grouped_topk(logits, w, i, 8, 3, renorm), True, None, 8, 3, renorm)
    check(lambda w, i: aiter.grouped_topk(logits, w, i, 8, 3, renorm, False, 0.5), False, None, 8, 3, renorm, 0.5)
    check(lambda w, i: fused_topk(logits, logits, 4, renorm, i, w), True, None, 1, 1, renorm)
    weights, ids = fused_topk(logits, logits, 4, renorm)
    assert weights.dtype == F32 and ids.dtype == torch.int32 and torch.equal(ids.long(), routed(logits, 4, True)[1])
    if not renorm:
        check(lambda w, i: aiter.topk_sigmoid(w, i, logits), False)


def experts(x, w1, w2, weights, ids, name, unit, biases, limit):
    """Returns the layer in f64, and a bound on its error: gates, ups, what is made of them and each expert's result are rounded to bf16;
    x and the second product's operand to unit, which is 0 for bf16 or an FP8 kind's."""
    total, bound = torch.zeros(len(x), w2.shape[1], dtype=torch.float64), torch.zeros(len(x), w2.shape[1], dtype=torch.float64)
    u, acc = 2.0**-8, 2.0**-22 * (x.shape[1] + w2.shape[2])

    def quantised_error(t):
        groups = torch.nn.functional.pad(t.abs(), (0, -t.shape[1] % 128)).view(len(t), -1, 128)
        most = groups.amax(-1).repeat_interleave(128, 1)[:, :t.shape[1]]
        return unit * (t.abs() + 2.0**-6 * most)

    for e in range(len(w1)):
        share = (weights.double() * (ids == e)).sum(1, keepdim=True)
        both = x @ w1[e].T + (0 if biases is None else biases[0][e].double())
        error = quantised_error(x) @ w1[e].abs().T + (u + acc) * both.abs() + acc * (x.abs() @ w1[e].abs().T)
        (gate, up), (gate_error, up_error) = both.chunk(2, -1), error.chunk(2, -1)
        if name == "swiglu":
            gate, up = gate.clamp(max=limit), up.clamp(-limit, limit) + 1
            made = gate * torch.sigmoid(1.702 * gate)
        else:
            made = torch.nn.functional.silu(gate) if name == "silu" else torch.nn.functional.gelu(gate)
        inner = made * up
        inner_error = 1.13 * gate_error * (up.abs() + up_error) + made.abs() * up_error + u * inner.abs()
        inner_error = inner_error + quantised_error(inner.abs() + inner_error)
        y = inner @ w2[e].T + (0 if biases is None else biases[1][e].double())
        total += share * y
        bound += share.abs() * (inner_error @ w2[e].abs().T + 2 * (u + acc) * (y.abs() + inner.abs() @ w2[e].abs().T * 2**-8))
    return total, bound + u * total.abs() + 1e-9


@pytest.mark.parametrize("kind", [BF16, F8, F8Z])
@pytest.mark.parametrize("name, has_bias, is_masked", [("silu", False, False), ("gelu", False, True), ("swiglu", True, False)])
def test_experts(name, has_bias, is_masked, kind):
    count, hidden, inner = 4, 256, 128
    x = randn(7, hidden, dtype=BF16) * (8 if name == "swiglu" else 0.25)  # beyond its limit
    orders = [torch.randperm(6 if is_masked else count, generator=torch.Generator().manual_seed(t)) for t in range(7)]
    ids = torch.stack(orders)[:, :2].to(torch.int32)
    weights, biases = torch.rand(7, 2), (randn(count, 2 * inner), randn(count, hidden)) if has_bias else None
    if kind == BF16:
        w1, w2 = (randn(count, 2 * inner, hidden) / 16).to(BF16), (randn(count, hidden, inner) / 12).to(BF16)
        wide, options = (w1.double(), w2.double()), {}
    else:
        w1, s1 = quantised(count, 2 * inner, hidden, gran=BLOCK, dtype=kind)
        w2, s2 = quantised(count, hidden, inner, gran=BLOCK, dtype=kind)
        s1, s2 = s1 / 16, s2 / 12
        wide = plain((w1, s1), BLOCK), plain((w2, s2), BLOCK)
        options = {"quant_type": aiter.QuantType.per_128x128, "w1_scale": s1, "w2_scale": s2.flatten(1)}
    mask = torch.tensor([1, 0, 1, 1, 0, 1, 0], dtype=torch.int32) if is_masked else None
    local = torch.tensor([0, -1, 1, 2, -1, 3])[ids.long()] if is_masked else ids
    got = fused_moe(x, shuffle_weight(w1), shuffle_weight(w2), weights, ids, mask, aiter.ActivationType[name.capitalize()],
                    bias1=biases and biases[0], bias2=biases and biases[1], swiglu_limit=0.0, block_size_M=64, splitk=1,
                    moe_sorting_dispatch_policy=2, **options)
    want, bound = experts(x.double(), *wide, weights, local, name, 0.0 if kind == BF16 else 2.0**-4, biases, 7.0)
    error = (got.double() - want).abs()
    assert got.dtype == BF16 and bool((error <= bound).all()), float((error / bound).max())
    # FP8's bound, of errors that all add up, is a wide one: so the bits must be those of quern's own function as well, which has tests.
    named = {"w1_scale": s1, "w2_scale": s2} if options else {}
    same = quern.fused_moe(x, w1, w2, weights, local.to(torch.int32), name, limit=7.0 if name == "swiglu" else 0.0,
                           bias1=biases and biases[0], bias2=biases and biases[1], **named)
    assert torch.equal(got, same)
    other, _ = experts(x.double(), wide[0].flip(0), wide[1], weights, local, name, 0.0, biases, 7.0)
    assert kind != BF16 or not bool(((got.double() - other).abs() <= bound).all())


def test_rest():
    logits, out = randn(4, 100), torch.zeros(4, dtype=torch.int32)
    aiter.greedy_sample(out, logits)
    assert torch.equal(out.long(), logits.argmax(-1))
    x, total = randn(4, 3, 50, dtype=BF16), nans(4, 50)
    aiter.moe_sum(x, total)
    near(total, x.double().sum(1), 3, 8)
