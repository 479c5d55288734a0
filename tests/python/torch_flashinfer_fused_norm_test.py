# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's norms with what comes before or behind them, against their definitions in float64. A result of bf16 is off
by up to 2^-8 of it, and by what f32's sums lose, far less."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import randn  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
SIZES = [(0, 64), (1, 1), (3, 111), (19, 3072)]


def bf16(*shape, seed=0):
    return randn(*shape, dtype=BF16, seed=seed)


def close(out, want, unit=2 ** -8):
    assert out.shape == want.shape
    torch.testing.assert_close(out.double(), want, rtol=1.01 * unit, atol=1e-5)


def rms(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def layer(x, eps=1e-6):
    x = x - x.mean(-1, keepdim=True)
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


# ---- language models

@pytest.mark.parametrize("n, h", [(0, 128), (1, 128), (7, 384), (19, 3072)])
@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_block_quant(n, h, dtype):
    x, residual, weight = bf16(n, h).to(dtype), bf16(n, h, seed=1).to(dtype), bf16(h, seed=2).to(dtype)
    total, kept = x.double() + residual.double(), x.clone()
    out, scale = torch.zeros(n, h).to(FP8), torch.full((h // 128, -(-n // 4) * 4), 9.0)
    normed = torch.zeros_like(x)
    flashinfer.fused_add_rmsnorm_fp8_block_quant(out, scale, normed, x, residual, weight)
    assert torch.equal(x, kept)
    unit = 2 ** -8 if dtype == BF16 else 2 ** -11
    close(residual, total, unit)
    close(normed, rms(total, weight.double()), unit)
    top = normed.double().unflatten(1, (-1, 128)).abs().amax(2)
    torch.testing.assert_close(scale[:, :n].T.double(), top / 448, rtol=2 ** -22, atol=1e-12)
    wide = scale[:, :n].T.repeat_interleave(128, 1)
    step = torch.maximum(normed.double().abs() * 2 ** -4, wide.double() * 2 ** -10)  # half a step of e4m3
    assert ((out.double() * wide - normed.double()).abs() <= 1.001 * step).all()
    assert (scale[:, n:] == 9).all()


@pytest.mark.parametrize("n, h", SIZES)
@pytest.mark.parametrize("dtype", [BF16, torch.float16, torch.float32])
def test_rmsnorm_silu(n, h, dtype):
    x, weight = bf16(n, h).to(dtype), (3 * bf16(h, seed=1)).to(dtype)
    y = rms(x.double(), weight.double())
    want = y * torch.sigmoid(y)
    out = flashinfer.fused_rmsnorm_silu(x, weight)
    assert out.dtype == dtype
    close(out, want, {BF16: 2 ** -8, torch.float16: 2 ** -11, torch.float32: 2 ** -20}[dtype])
    out = torch.zeros(n, h).to(FP8)
    assert flashinfer.fused_rmsnorm_silu(100 * x, 400 * weight, out=out) is out
    wide = rms((100 * x).double(), (400 * weight).double())
    want = (wide * torch.sigmoid(wide)).clamp(-448, 448)
    assert ((out.double() - want).abs() <= 1.01 * torch.maximum(want.abs() * 2 ** -4, torch.tensor(2.0 ** -10)) + 1e-5).all()


def test_wrong_language_norms():
    with pytest.raises(ValueError, match=r"block_scale has shape \[1, 3\], needs \[1, 4\]"):
        flashinfer.fused_add_rmsnorm_fp8_block_quant(torch.zeros(3, 128).to(FP8), torch.zeros(1, 3), bf16(3, 128), bf16(3, 128), bf16(3, 128),
                                                     bf16(128))
    with pytest.raises(NotImplementedError, match="fused_rmsnorm_silu: out has dtype torch.float64"):
        flashinfer.fused_rmsnorm_silu(bf16(3, 64), bf16(64), out=torch.zeros(3, 64, dtype=torch.float64))
    with pytest.raises(ValueError, match="fused_rmsnorm_silu: weight"):
        flashinfer.fused_rmsnorm_silu(bf16(3, 64), bf16(63))


# ---- diffusion

def parts_of(batch, n, h):
    """Returns six modulations whose rows lie apart, as those of one projection."""
    return bf16(batch, n, 6 * h, seed=3).chunk(6, dim=2)


@pytest.mark.parametrize("batch, n, h", [(1, 0, 64), (1, 1, 8), (2, 5, 111), (2, 3, 3072)])
@pytest.mark.parametrize("has_biases", [False, True])
@pytest.mark.parametrize("factor", [None, 0.5])
def test_dit(batch, n, h, has_biases, factor):
    x, residual = bf16(batch, n, h), bf16(batch, n, h, seed=1)
    gate, scale, shift, *_ = parts_of(batch, n, h)
    biases = {name: randn(h, dtype=torch.float32, seed=i) for i, name in enumerate(("gate_bias", "scale_bias", "shift_bias"))} if has_biases else {}
    given = {"input_global_scaling_factor": torch.tensor([factor])} if factor else {}
    added = [t.double() + (biases[name].double() if has_biases else 0) for t, name in ((gate, "gate_bias"), (scale, "scale_bias"),
                                                                                      (shift, "shift_bias"))]
    t = residual.double() + x.double() * (factor or 1) * added[0]
    outs = torch.zeros_like(x), torch.zeros_like(x)
    got = flashinfer.fused_dit_gate_residual_layernorm_scale_shift(x, residual, gate, scale, shift, residual_out=outs[0], norm_out=outs[1], **biases,
                                                                   **given)
    assert got[0] is outs[0] and got[1] is outs[1]
    check_dit(got, t, layer(t), 1 + added[1], added[2])

    gamma, beta = randn(h, dtype=torch.float32, seed=5), randn(h, dtype=torch.float32, seed=6)
    gate_bias = {"gate_bias": biases["gate_bias"][None]} if has_biases else {}
    got = flashinfer.fused_dit_gate_residual_layernorm_gamma_beta(x, residual, gate, gamma, beta, **gate_bias, **given)
    check_dit(got, t, layer(t), gamma.double(), beta.double())

    biases.pop("gate_bias", None)
    for before in (None, residual):
        t = x.double() * (factor or 1) + (0 if before is None else before.double())
        got = flashinfer.fused_dit_residual_layernorm_scale_shift(x, scale, shift, residual=before, **biases, **given)
        check_dit(got, t, layer(t), 1 + added[1], added[2])


def check_dit(got, t, norm, factor, shift):
    close(got[0], t)
    want = norm * factor + shift
    bound = 1.01 * 2 ** -8 * want.abs() + 2 ** -18 * (norm.abs() * factor.abs() + shift.abs()) + 1e-5  # the two may cancel
    assert ((got[1].double() - want).abs() <= bound).all()


def test_wrong_dit():
    x = bf16(2, 3, 64)
    with pytest.raises(ValueError, match=r"scale has shape \[2, 1, 64\], needs \[2, 3, 64\]"):
        flashinfer.fused_dit_residual_layernorm_scale_shift(x, x[:, :1], x)
    with pytest.raises(ValueError, match=r"gate_bias has shape \[63\], needs \[64\]"):
        flashinfer.fused_dit_gate_residual_layernorm_gamma_beta(x, x, x, torch.ones(64), torch.ones(64), gate_bias=torch.ones(63))
    with pytest.raises(NotImplementedError, match="use_nvfp4 is"):
        flashinfer.fused_dit_residual_layernorm_scale_shift(x, x, x, use_nvfp4=True)


# ---- video

def rotated(x, sizes, channels, base, interleave):
    """Rotates x [batch, tokens, heads, dim] pair by pair."""
    out, half = x.clone(), x.shape[3] // 2
    frequencies = [(axis, base ** (-2 * i / count)) for axis, count in enumerate(channels) for i in range(count // 2)]
    for token in range(x.shape[1]):
        place = token // (sizes[1] * sizes[2]), token // sizes[2] % sizes[1], token % sizes[2]
        for d, (axis, frequency) in enumerate(frequencies):
            first, second = (2 * d, 2 * d + 1) if interleave else (d, d + half)
            angle = torch.tensor(place[axis] * frequency, dtype=torch.float64)
            a, b = x[:, token, :, first], x[:, token, :, second]
            out[:, token, :, first], out[:, token, :, second] = a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()
    return out


@pytest.mark.parametrize("sizes", [(1, 1, 1), (2, 3, 4)])
@pytest.mark.parametrize("channels", [(12, 10, 10), (24, 20, 20)])
@pytest.mark.parametrize("interleave", [True, False])
@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("is_qk_norm", [True, False])
def test_video(sizes, channels, interleave, is_flat, is_qk_norm):
    heads, dim, tokens = (4, 2, 3), sum(channels), sizes[0] * sizes[1] * sizes[2]
    qkv = bf16(2, tokens, sum(heads) * dim)
    weights = bf16(heads[0] * dim, seed=1), bf16(heads[1] * dim, seed=2)
    options = dict(zip(("ppf", "pph", "ppw", "num_frame_channels", "num_height_channels", "num_width_channels", "num_heads_q", "num_heads_k",
                        "num_heads_v"), (*sizes, *channels, *heads), strict=True))
    given = qkv.flatten(0, 1) if is_flat else qkv
    got = flashinfer.fused_qk_rmsnorm_rope(given, *weights, head_dim=dim, interleave=interleave, is_qk_norm=is_qk_norm, base=500.0, **options)
    parts = qkv.double().split([n * dim for n in heads], -1)
    wants = [rms(x, w.double()) if is_qk_norm else x for x, w in zip(parts, weights, strict=False)]
    wants = [rotated(x.unflatten(2, (-1, dim)), sizes, channels, 500.0, interleave) for x in wants] + [parts[2].unflatten(2, (-1, dim))]
    for out, want in zip(got, wants, strict=True):
        assert out.shape == (want.flatten(0, 1) if is_flat else want).shape
        close(out.reshape(want.shape), want)
    got = flashinfer.fused_qk_rmsnorm_rope(given, *weights, head_dim=dim, interleave=interleave, is_qk_norm=is_qk_norm, base=500.0, **options,
                                           output_fp8=True, output_quant_scale=300.0, v_quant_scale=0.5)
    for out, want, scale in zip(got, wants, (300.0, 300.0, 0.5), strict=True):
        want = (scale * want).clamp(-448, 448)
        assert out.dtype == FP8
        assert ((out.double().reshape(want.shape) - want).abs() <= 1.01 * torch.maximum(want.abs() * 2 ** -4, torch.tensor(2.0 ** -10)) + 1e-3).all()


def test_wrong_video():
    call = {"qkv": bf16(6, 192), "q_weight": bf16(64), "k_weight": bf16(64), "ppf": 1, "pph": 2, "ppw": 3, "num_frame_channels": 12,
            "num_height_channels": 10, "num_width_channels": 10, "num_heads_q": 2, "num_heads_k": 2, "num_heads_v": 2, "head_dim": 32}
    for change, message in (({"num_width_channels": 8}, "add up to 30, head_dim is 32"), ({"num_width_channels": 9}, "num_width_channels is 9; accepted: even"),
                            ({"qkv": bf16(5, 192)}, r"qkv has shape \[5, 192\]"), ({"q_weight": bf16(32)}, r"q_weight has shape \[32\], needs \[64\]"),
                            ({"output_quant_scale": 2.0}, "accepted without output_fp8: 1"), ({"base": 0.0}, "base is 0.0; accepted: above 0")):
        with pytest.raises(ValueError, match=f"fused_qk_rmsnorm_rope: .*{message}"):
            flashinfer.fused_qk_rmsnorm_rope(**{**call, **change})
