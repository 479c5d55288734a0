# SPDX-License-Identifier: Apache-2.0
"""SGLang's linear layers of FP8 with blocks of 128 x 128, by quern: made, loaded and called as its models do."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT
from deep_gemm_tools import plain, quantised, randn
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.quantization import fp8_utils
from sglang.srt.layers.quantization.fp8 import Fp8Config
from sglang.srt.model_executor.model_runner_components.weight_updater import _unsupported_derived_weight_cache_error

N, K = 256, 384
F8Z = torch.float8_e4m3fnuz  # gfx942's


def config_of(block=(128, 128), **options):
    return Fp8Config(is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=list(block), **options)


def layer_of(prefix="mlp.down_proj", dtype=BF16, bias=False):
    """Returns a layer as SGLang loads it from a checkpoint of e4m3fn, and what its weight stands for."""
    layer = ReplicatedLinear(K, N, bias=bias, params_dtype=dtype, quant_config=config_of(), prefix=prefix)
    weight, scale = quantised(N, K, gran=(128, 128))
    layer.weight.data, layer.weight_scale_inv.data = weight.clone(), scale.clone()
    if bias:
        layer.bias.data = randn(N, dtype=dtype, seed=3)
    layer.quant_method.process_weights_after_loading(layer)
    return layer, plain((weight, scale), (128, 128))


def check_product(got, x, weight, bias):
    """Checks a product of x, quantised to e4m3fnuz by 1 x 128, within the f32 sum's bound. Returns the sum of sizes."""
    a = plain(quern.quantize_groups(x.view(-1, K), 128, F8Z))
    want = a @ weight.T + (0 if bias is None else bias.double())
    size = a.abs() @ weight.abs().T
    bound = UNIT[got.dtype] * want.abs() + 2 * (K + 2) * 2**-24 * (size + want.abs()) + 2.0**-133
    assert bool(((got.view(-1, N).double() - want).abs() <= bound).all())
    return size


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("rows", [(1,), (5,), (2, 3)])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("prefix", ["mlp.down_proj", "self_attn.kv_b_proj"])
def test_block_linear(prefix, bias, rows, dtype):
    layer, weight = layer_of(prefix, dtype, bias)
    assert hasattr(layer.weight, "quern_rows") != prefix.endswith("kv_b_proj")  # the others are packed
    x = randn(*rows, K, dtype=dtype)
    got, _ = layer(x)
    assert got.shape == (*rows, N) and got.dtype == dtype and quern.last_kernel().startswith("gemm.cpu")
    check_product(got, x, weight, layer.bias)


def test_like_sglangs_own():
    layer, weight = layer_of("self_attn.kv_b_proj")
    x = randn(5, K, dtype=BF16)
    native = fp8_utils.triton_w8a8_block_fp8_linear(x, layer.weight.data, [128, 128], layer.weight_scale_inv.data)
    got, _ = layer(x)
    size = check_product(got, x, weight, None)
    # Either rounds x to FP8 once, SGLang's to a largest value of 224 and quern's to 240: half a step of 2^-3 each.
    assert bool(((got.double() - native.double()).abs() <= 2 * 2**-4 * 1.1 * size + 2 * UNIT[BF16] * native.double().abs()).all())


def test_an_input_that_is_quantised_already():
    layer, weight = layer_of()
    x = randn(5, K, dtype=BF16)
    got, _ = layer(quern.quantize_groups(x, 128, F8Z))
    assert got.dtype == BF16
    check_product(got, x, weight, None)


def test_the_weight_that_mla_takes_apart_is_in_rows():
    layer, weight = layer_of("model.layers.0.self_attn.kv_b_proj")
    read = fp8_utils.block_quant_dequant(layer.weight.data, layer.weight_scale_inv.data, [128, 128], torch.float32)
    assert torch.allclose(read.double(), weight, rtol=2**-22, atol=0)


def test_packed_weights_cannot_be_updated():
    assert "quern has packed" in _unsupported_derived_weight_cache_error(layer_of()[0])
    assert not hasattr(layer_of("self_attn.kv_b_proj")[0], "_derived_weight_cache_error")


@pytest.mark.parametrize("options, why", [({"block": (64, 128)}, "blocks of [64, 128]"), ({"scale_fmt": "ue8m0"}, "powers of two")])
def test_other_blocks_are_sglangs(options, why, caplog):
    method = config_of(**options).get_quant_method(torch.nn.Module.__new__(ReplicatedLinear), "mlp.down_proj")
    chosen = method.w8a8_block_fp8_linear
    assert getattr(chosen, "func", chosen) is fp8_utils.triton_w8a8_block_fp8_linear and why in caplog.text


def test_a_product_that_was_asked_for_is_taken(monkeypatch, caplog):
    monkeypatch.setattr(fp8_utils, "FP8_GEMM_RUNNER_BACKEND", fp8_utils.Fp8GemmRunnerBackend.TRITON)
    assert fp8_utils.dispatch_w8a8_block_fp8_linear([128, 128]) is fp8_utils.triton_w8a8_block_fp8_linear
    assert "--fp8-gemm-backend triton" in caplog.text


def test_blocks_that_are_known_at_the_call_alone(caplog):
    chosen = fp8_utils.dispatch_w8a8_block_fp8_linear()  # of compressed-tensors' layers
    x, (weight, scale) = randn(3, K, dtype=BF16), quantised(N, K, gran=(128, 64), dtype=F8Z)
    native = fp8_utils.triton_w8a8_block_fp8_linear(x, weight, [128, 64], scale)
    assert torch.equal(chosen(x, weight, [128, 64], scale), native) and "blocks of [128, 64]" in caplog.text


def test_table(told):
    row = next(line for line in told.splitlines() if line.startswith("  FP8 block linear"))
    assert "quern, gemm.fp8_rows_16x32" in row and "packed" in row
