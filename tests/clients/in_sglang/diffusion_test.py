# SPDX-License-Identifier: Apache-2.0
"""SGLang's diffusion by quern: its norms and its rotation of queries and keys, against its own forms and f64."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, layer, near, rms
from deep_gemm_tools import F32, randn
from engine_tools import like_native
from sglang.multimodal_gen.runtime.layers import layernorm
from sglang.multimodal_gen.runtime.layers.rotary_embedding import utils

H, EPS = 128, 1e-6
DTYPES = [BF16, F16, F32]


def ran(family):
    return quern.last_kernel().startswith(f"{family}.cpu")


def weighted(module):
    for parameter in module.parameters():
        parameter.data = randn(*parameter.shape)
    return module


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, H), (2, 7, H), (2, 7, 3, H)])
def test_rms_norm(shape, dtype):
    norm, x = weighted(layernorm.RMSNorm(H, EPS)), randn(*shape, dtype=dtype)
    got = norm(x)
    assert ran("norm")
    near(got, rms(x, norm.weight, EPS), H)
    like_native(got, norm.forward_native(x), 1, H)


def test_rms_norm_with_residual_leaves_its_inputs():
    norm, x, residual = weighted(layernorm.RMSNorm(H, EPS)), randn(5, H, dtype=BF16), randn(5, H, dtype=BF16, seed=1)
    kept, total = (x.clone(), residual.clone()), x.double() + residual.double()
    got, added = norm(x, residual)
    assert torch.equal(x, kept[0]) and torch.equal(residual, kept[1]) and ran("norm")
    near(got, rms(total, norm.weight, EPS), H, float(total.abs().max()))
    near(added, total, 1)


def test_rms_norm_that_rounds_before_the_weight_is_sglangs(caplog):
    norm, x = weighted(layernorm.RMSNorm(H, EPS, cast_x_before_out_mul=True)), randn(5, H, dtype=BF16)
    assert torch.equal(norm(x), norm.forward_native(x)) and "the engine's own" in caplog.text


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(affine, dtype):
    norm, x = weighted(layernorm.LayerNorm(H, EPS, elementwise_affine=affine)), randn(2, 7, H, dtype=dtype)
    got = norm(x)
    assert ran("norm")
    weight, bias = (norm.weight, norm.bias) if affine else (torch.ones(H), torch.zeros(H))
    near(got, layer(x, weight, bias, EPS), H, float(x.abs().max()) * 4)
    size = 4 * float(x.abs().max()) * float(weight.abs().max())
    with torch.compiler.set_stance("force_eager"):  # SGLang's own form is compiled when it is called
        native = norm.forward_native(x)
    like_native(got, native, 4, H, size=size * (dtype != F32), spread=size)


@pytest.mark.parametrize("dtype", [BF16, F32])
@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("rope_dim", [64, 32])
def test_rotation(rope_dim, given, neox, dtype):
    angles = torch.randn(40, rope_dim // 2, generator=torch.Generator().manual_seed(2))
    table = torch.cat([angles.cos(), angles.sin()], -1)
    q, k = randn(2, 7, 3, 64, dtype=dtype), randn(2, 7, 3, 64, dtype=dtype, seed=1)
    positions = torch.randint(40, (14,), generator=torch.Generator().manual_seed(3)) if given else None
    got = utils.apply_flashinfer_rope_qk_inplace(q, k, table, is_neox=neox, positions=positions)
    assert ran("rope")
    own = utils.apply_flashinfer_rope_qk_inplace.__wrapped__
    for ours, theirs in zip(got, own(q, k, table, is_neox=neox, positions=positions), strict=True):
        like_native(ours, theirs, 4, 4, 2 * float(theirs.abs().max()))  # SGLang's rounds cosines, products and sums


def test_rotation_says_what_is_wrong():
    with pytest.raises(ValueError, match="Expected q/k to be 4D"):
        utils.apply_flashinfer_rope_qk_inplace(randn(7, 3, 64), randn(7, 3, 64), randn(40, 64))


def test_importers_have_it():
    from sglang.multimodal_gen.runtime.layers import rotary_embedding
    assert rotary_embedding.apply_flashinfer_rope_qk_inplace is utils.apply_flashinfer_rope_qk_inplace
