# SPDX-License-Identifier: Apache-2.0
"""quern's norms on NumPy arrays against formulas in float64."""

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, DTYPES, assert_close, layer_reference, normal, rms_reference

SIZES = [(1, 111), (19, 500), (99, 1024), (3, 3072), (0, 64), (1, 1)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SIZES)
def test_rmsnorm(shape, dtype):
    x, weight = normal(1, shape, dtype), normal(2, shape[-1:], dtype)
    got = quern.rmsnorm(x, weight)
    assert type(got) is np.ndarray and got.dtype == dtype and got.shape == x.shape
    assert_close(got, rms_reference(x, weight), shape[-1])
    assert_close(quern.gemma_rmsnorm(x, weight, eps=1e-3), rms_reference(x, 1 + weight.astype(np.float64), 1e-3), shape[-1])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_with_strides_and_heads(dtype):
    whole, weight = normal(3, (7, 4, 300), dtype), normal(4, (128,), dtype)
    x = whole[:, 1:3, 17:145]
    out = np.full((7, 2, 200), 9, dtype)[:, :, 50:178]
    assert quern.rmsnorm(x, weight, out=out) is out
    assert_close(out, rms_reference(x, weight), 128)
    assert (out.base[:, :, :50] == 9).all() and (out.base[:, :, 178:] == 9).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place(dtype):
    x, weight = normal(5, (9, 96), dtype), normal(6, (96,), dtype)
    want = rms_reference(x, weight)
    assert quern.rmsnorm(x, weight, out=x) is x
    assert_close(x, want, 96)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name, shift", [("fused_add_rmsnorm", 0), ("gemma_fused_add_rmsnorm", 1)])
def test_fused_add(name, shift, dtype):
    x, residual, weight = (normal(seed, (19, 500), dtype) for seed in (7, 8, 9))
    weight = weight[0].copy()
    total = x.astype(np.float32) + residual.astype(np.float32)
    assert getattr(quern, name)(x, residual, weight) is None
    np.testing.assert_array_equal(residual, total.astype(dtype))
    assert_close(x, rms_reference(total, shift + weight.astype(np.float64)), 500)


@pytest.mark.parametrize("dtype", DTYPES)
def test_layernorm(dtype):
    x, gamma, beta = normal(10, (19, 500), dtype), normal(11, (500,)), normal(12, (500,))
    spread = np.abs(x.astype(np.float64)).max() * np.abs(gamma).max() * 4 + np.abs(beta).max()
    assert_close(quern.layernorm(x, gamma, beta), layer_reference(x, gamma, beta), 500, spread)
    assert_close(quern.layernorm(x), layer_reference(x, 1.0, 0.0), 500, spread)


def test_modulated():
    x, residual = normal(13, (2, 5, 96)), normal(14, (2, 5, 96))
    gate, scale, shift = (normal(seed, (2, 96)) for seed in (15, 16, 17))
    spread = 64 * np.abs(scale).max()
    want = layer_reference(x, 1 + scale[:, None].astype(np.float64), shift[:, None])
    assert_close(quern.adaptive_layernorm(x, scale, shift), want, 96, spread)
    total = residual.astype(np.float64) + gate[:, None].astype(np.float64) * x
    got = quern.gated_residual_layernorm(x, residual, gate, scale, shift)
    assert_close(got, layer_reference(total, 1 + scale[:, None].astype(np.float64), shift[:, None]), 96, spread)
    assert_close(residual, total, 1, np.abs(total).max())


def steps_apart(got, want):
    """Returns how many representable FP8 values lie between two that are finite and of one dtype."""
    def order(a):
        bits = a.view(np.uint8).astype(np.int32)
        return np.where(bits & 0x80, -(bits & 0x7F), bits)
    return np.abs(order(got) - order(want)).max(initial=0)


@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"])
def test_static_quant(kind):
    fp8 = getattr(ml_dtypes, kind)
    x, residual, weight = normal(18, (19, 500), BF16), normal(19, (19, 500), BF16), normal(20, (500,), BF16)
    scale = np.array([0.25], np.float32)
    got = quern.rmsnorm_quant(x, weight, scale, dtype=kind)
    assert got.dtype == fp8
    assert steps_apart(got, (rms_reference(x, weight) / 0.25).astype(np.float32).astype(fp8)) <= 1
    total = x.astype(np.float32) + residual.astype(np.float32)
    before = x.copy()
    got = quern.fused_add_rmsnorm_quant(x, residual, weight, scale, dtype=fp8)
    assert steps_apart(got, (rms_reference(total, weight) / 0.25).astype(np.float32).astype(fp8)) <= 1
    np.testing.assert_array_equal(residual, total.astype(BF16))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("group", [None, 128])
def test_dynamic_quant(group):
    x, weight = normal(21, (19, 300)), normal(22, (300,))
    q, scale = quern.rmsnorm_dynamic_quant(x, weight, group=group)
    assert q.dtype == ml_dtypes.float8_e4m3fn and scale.shape == ((19,) if group is None else (19, 3))
    want = rms_reference(x, weight)
    wide = np.repeat(scale.reshape(19, -1), 300 if group is None else 128, axis=1)[:, :300]
    blocks = [slice(0, 300)] if group is None else [slice(0, 128), slice(128, 256), slice(256, 300)]
    for i, block in enumerate(blocks):
        np.testing.assert_allclose(scale.reshape(19, -1)[:, i], np.abs(want[:, block]).max(1) / 448, rtol=300 * 2.0**-23)
    half_step = np.maximum(np.abs(want) * 2.0**-4, wide * 2.0**-10)
    assert (np.abs(q.astype(np.float64) * wide - want) <= half_step * (1 + 300 * 2.0**-20)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", [None, 128])
def test_modulated_dynamic_quant(group, dtype):
    """Tests codes and scales, these also where the scales of a group's rows lie side by side."""
    x, scale, shift = normal(25, (2, 5, 300), dtype), normal(26, (2, 300), dtype), normal(27, (2, 300), dtype)
    q, found = quern.adaptive_layernorm_dynamic_quant(x, scale, shift, group=group)
    assert q.dtype == ml_dtypes.float8_e4m3fn and found.shape == ((2, 5) if group is None else (2, 5, 3))
    want = layer_reference(x, 1 + scale[:, None].astype(np.float64), shift[:, None].astype(np.float64))
    wide = np.repeat(found.reshape(2, 5, -1), 300 if group is None else 128, axis=2)[..., :300]
    half_step = np.maximum(np.abs(want) * 2.0**-4, wide * 2.0**-10)
    assert (np.abs(q.astype(np.float64) * wide - want) <= half_step * (1 + 2.0**-10)).all()
    turned = np.zeros(found.T.shape, np.float32).T
    again, _ = quern.adaptive_layernorm_dynamic_quant(x, scale, shift, group=group, scale_out=turned)
    np.testing.assert_array_equal(turned, found)
    np.testing.assert_array_equal(again.view(np.uint8), q.view(np.uint8))


def test_read_only_input_is_read():
    x, weight = normal(23, (4, 64)), normal(24, (64,))
    x.flags.writeable = False
    assert_close(quern.rmsnorm(x, weight), rms_reference(x, weight), 64)
    with pytest.raises(ValueError, match="rmsnorm: out is a read-only array"):
        quern.rmsnorm(weight[None], weight, out=x)


@pytest.mark.parametrize("name, wrong, error, message", [
    ("weight", np.ones(63, np.float32), ValueError, r"weight has shape \[63\], needs \[64\]"),
    ("weight", np.ones(64, np.int32), NotImplementedError, "weight has dtype i32"),
    ("weight", None, TypeError, "weight is None; accepted: an array"),
    ("weight", "text", TypeError, "weight is 'text'; accepted: an array"),
    ("x", np.ones((4, 64)), NotImplementedError, "x has dtype f64"),
    ("x", np.ones((4, 128), np.float32)[:, ::2], ValueError, "x "),
    ("x", np.ones(64, np.float32), ValueError, "x has 1 dimensions"),
    ("eps", float("nan"), ValueError, "eps"),
    ("eps", -1.0, ValueError, "eps"),
    ("eps", "1", TypeError, "eps is '1'; accepted: a number"),
])
def test_errors_name_the_argument_and_write_nothing(name, wrong, error, message):
    arguments = {"x": normal(25, (4, 64)), "weight": normal(26, (64,)), "eps": 1e-6, "out": np.full((4, 64), 7, np.float32)}
    arguments[name] = wrong
    with pytest.raises(error, match=f"rmsnorm: {message}"):
        quern.rmsnorm(**arguments)
    assert (arguments["out"] == 7).all()
