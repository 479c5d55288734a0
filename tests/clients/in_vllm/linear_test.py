# SPDX-License-Identifier: Apache-2.0
"""vLLM's quantisation and its linear layers of FP8 with block scales, by quern: made, loaded and called as vLLM does."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT, dequantised
from deep_gemm_tools import F8, F32, plain, quantised, randn
from vllm.model_executor.kernels.linear import init_fp8_linear_kernel
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import (GroupShape, create_fp8_quant_key, get_and_maybe_dequant_weights,
                                                                       kFp8Dynamic128Sym, kFp8Static128BlockSym)

F8Z = torch.float8_e4m3fnuz  # gfx942's


@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("shape, group", [(GroupShape(1, 128), 128), (GroupShape.PER_TOKEN, 256), (GroupShape.PER_TENSOR, 0)])
def test_dynamic_quantisation(shape, group, dtype):
    op, x = QuantFP8(static=False, group_shape=shape), randn(5, 256, dtype=dtype)
    q, scale = op(x)
    assert type(op).__name__ == "QuernQuantFP8" and quern.last_kernel().startswith("quantize") and q.dtype == F8Z
    if group:
        dequantised(q, scale, x.double(), group, 0)
    else:
        dequantised(q.view(1, -1), scale.view(1, 1), x.double().view(1, -1), 5 * 256, 0)
    native, native_scale = op.forward_native(x)  # vLLM's largest value is 224, quern's 240
    assert native.shape == q.shape and native_scale.shape == scale.shape
    assert torch.allclose(native_scale * 224, scale * 240, rtol=2**-20)


@pytest.mark.parametrize("turned", [False, True])
def test_scales_of_columns(turned):
    op = QuantFP8(static=False, group_shape=GroupShape(1, 128), column_major_scales=turned)
    x = randn(5, 256, dtype=BF16)
    q, scale = op(x)
    assert scale.stride() == ((1, 5) if turned else (2, 1))
    dequantised(q, scale, x.double(), 128, 0)


def test_static_quantisation_with_padding():
    op, x, scale = QuantFP8(static=True, group_shape=GroupShape.PER_TENSOR, num_token_padding=8), randn(5, 256, dtype=BF16), torch.tensor([0.02])
    q, same = op(x, scale)
    native, _ = op.forward_native(x, scale)
    assert q.shape == (8, 256) and torch.equal(same, scale) and not q[5:].float().any()
    assert bool(((q.double() - native.double()).abs() <= 2 * UNIT[F8] * native.double().abs() + 2**-10).all())


def test_bounded_scales_are_vllms(caplog):
    op = QuantFP8(static=False, group_shape=GroupShape.PER_TOKEN)
    with pytest.raises(Exception, match="scaled_fp8_quant"):  # vLLM's own, which is not compiled here
        op(randn(5, 256, dtype=BF16), None, torch.ones(1))
    assert "a bound on its scales" in caplog.text


# ---- the layer

N, K = 256, 384


def layer_of(kernel_of, dtype, prefix="mlp.down_proj", bias=False):
    """Returns a layer as vLLM loads it from a checkpoint of e4m3fn, and what its weight stands for."""
    weight, scale = quantised(N, K, gran=(128, 128))
    exact = plain((weight.clone(), scale.clone()), (128, 128))  # vLLM turns e4m3fn into e4m3fnuz in place
    layer = torch.nn.Module()
    layer.prefix, layer.weight_block_size = prefix, [128, 128]
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    layer.weight_scale_inv = torch.nn.Parameter(scale, requires_grad=False)
    layer.input_scale = None
    layer.kernel = kernel_of(weight_quant_key=kFp8Static128BlockSym, activation_quant_key=kFp8Dynamic128Sym, weight_shape=(N, K),
                             input_dtype=dtype, out_dtype=dtype)
    layer.kernel.process_weights_after_loading(layer)
    return layer, exact


def check_product(got, x, weight, bias=None):
    """Checks a product of x, quantised to e4m3fnuz by 1 x 128, within the f32 sum's bound."""
    q, scale = quern.quantize_groups(x.view(-1, K), 128, F8Z)
    a = plain((q, scale))
    want = a @ weight.T + (0 if bias is None else bias.double())
    size = a.abs() @ weight.abs().T
    bound = UNIT[got.dtype] * want.abs() + 2 * (K + 2) * 2**-24 * (size + want.abs()) + 2.0**-133
    assert bool(((got.view(-1, N).double() - want).abs() <= bound).all())


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("rows", [(1,), (5,), (2, 3)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("prefix", ["mlp.down_proj", "self_attn.kv_b_proj"])
def test_block_linear(prefix, bias, rows, dtype):
    layer, weight = layer_of(init_fp8_linear_kernel, dtype, prefix)
    assert type(layer.kernel).__name__ == "QuernFp8BlockScaledMMKernel"
    assert (layer.weight.shape == (N, K)) == prefix.endswith("kv_b_proj")  # the others are packed
    x, bias = randn(*rows, K, dtype=dtype), randn(N, dtype=dtype) if bias else None
    got = layer.kernel.apply_weights(layer, x, bias)
    assert got.shape == (*rows, N) and got.dtype == dtype and quern.last_kernel().startswith("gemm.cpu")
    check_product(got, x, weight, bias)


def test_vllm_reads_the_weight_that_mla_takes_apart():
    from vllm.model_executor.layers.quantization.fp8 import Fp8LinearMethod
    layer, weight = layer_of(init_fp8_linear_kernel, BF16, "self_attn.kv_b_proj")
    layer.quant_method = Fp8LinearMethod.__new__(Fp8LinearMethod)
    layer.quant_method.use_marlin = layer.quant_method.use_deep_gemm = False
    layer.quant_method.block_quant = True
    assert torch.allclose(get_and_maybe_dequant_weights(layer).double(), weight, rtol=2**-22, atol=0)


def test_another_block_is_vllms():
    from quern.plugins.vllm.linear import QuernFp8BlockScaledMMKernel
    key = create_fp8_quant_key(static=False, group_shape=GroupShape(1, 64))
    config = type("Config", (), {"activation_quant_key": key, "weight_quant_key": kFp8Static128BlockSym})
    can, why = QuernFp8BlockScaledMMKernel.can_implement(config)
    assert not can and "accepted: (1, 128) and (128, 128)" in why


def test_a_disabled_kernel_is_not_taken(monkeypatch):
    from vllm import envs
    monkeypatch.setattr(envs, "VLLM_DISABLED_KERNELS", ["QuernFp8BlockScaledMMKernel"], raising=False)
    layer, _ = layer_of(init_fp8_linear_kernel, BF16)
    assert not type(layer.kernel).__name__.startswith("Quern")


def test_table(told):
    row = next(line for line in told.splitlines() if line.startswith("  FP8 block linear"))
    assert "quern, gemm.fp8_rows_16x32" in row and "packed" in row
