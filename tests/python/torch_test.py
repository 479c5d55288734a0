# SPDX-License-Identifier: Apache-2.0
"""quern on PyTorch's CPU tensors, eager and compiled. Skipped where PyTorch is not installed."""

import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
import arguments  # noqa: E402
import quern  # noqa: E402
from torch_tools import arguments_of, opcheck  # noqa: E402

from tools import assert_close, rms_reference  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(dtype=torch.bfloat16, shape=(19, 500)):
    torch.manual_seed(1)
    return torch.randn(shape).to(dtype), torch.randn(shape).to(dtype), torch.randn(shape[-1]).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm(dtype):
    x, _, weight = tensors(dtype)
    got = quern.rmsnorm(x, weight)
    assert isinstance(got, torch.Tensor) and got.dtype == dtype
    numpy_dtype = quern.numpy(x).dtype
    assert_close(got.float().numpy().astype(numpy_dtype), rms_reference(quern.numpy(x), quern.numpy(weight)), 500)
    strided = torch.zeros(19, 1000, dtype=dtype)[:, 200:700]
    assert quern.rmsnorm(x, weight, out=strided) is strided and torch.equal(strided, got)


def test_fp8_result():
    x, _, weight = tensors()
    q = quern.rmsnorm_quant(x, weight, torch.tensor([0.5]))
    assert q.dtype == torch.float8_e4m3fn
    q, scale = quern.quantize_fp8(x, dtype=torch.float8_e5m2)
    assert q.dtype == torch.float8_e5m2 and scale.dtype == torch.float32
    assert quern.dequantize_fp8(q, scale, dtype=torch.bfloat16).dtype == torch.bfloat16


@pytest.mark.parametrize("name", arguments.NAMES)
def test_opcheck(name):
    opcheck(name, arguments_of(name))


def layer(x, residual, weight):
    y = quern.rmsnorm(x * 2, weight)
    quern.fused_add_rmsnorm(y, residual, weight)
    q, scale = quern.rmsnorm_dynamic_quant(y, weight)
    return quern.gemm(y, y), q, scale


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_is_one_graph_with_the_same_bits(backend):
    if backend == "inductor" and not (shutil.which("g++") or shutil.which("clang++")):
        pytest.skip("inductor needs a C++ compiler")
    x, residual, weight = tensors()
    copy = residual.clone()
    want = layer(x, residual, weight)
    got = torch.compile(layer, fullgraph=True, backend=backend)(x, copy, weight)
    for a, b in zip((*got, copy), (*want, residual), strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))


def test_sizes_may_vary_in_one_graph():
    compiled = torch.compile(quern.rmsnorm, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 8, 17):
        x, _, weight = tensors(shape=(rows, 64))
        assert torch.equal(compiled(x, weight), quern.rmsnorm(x, weight))


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_traces_have_the_op(mode):
    from torch.fx.experimental.proxy_tensor import make_fx
    x, _, weight = tensors()
    graph = make_fx(lambda x, weight: quern.rmsnorm(x, weight), tracing_mode=mode)(x, weight)
    assert "torch.ops.quern.rmsnorm.default" in graph.code and torch.equal(graph(x, weight), quern.rmsnorm(x, weight))


def test_fake_tensors():
    from torch._subclasses import FakeTensorMode
    with FakeTensorMode():
        assert quern.rmsnorm(torch.empty(3, 64), torch.empty(64)).shape == (3, 64)


def test_pytorch_imported_after_quern():
    code = ("import quern, torch; x = torch.randn(4, 64); y = quern.rmsnorm(x, torch.ones(64)); "
            "assert torch.allclose(y, torch.nn.functional.rms_norm(x, (64,), eps=1e-6)); "
            "z = torch.compile(quern.rmsnorm, fullgraph=True, backend='aot_eager')(x, torch.ones(64)); "
            "assert torch.equal(y, z)")
    subprocess.run([sys.executable, "-c", code], check=True)


def test_errors():
    x, _, weight = tensors()
    out = torch.full_like(x, 7)
    with pytest.raises(ValueError, match=r"rmsnorm: weight has shape \[3\], needs \[500\]"):
        quern.rmsnorm(x, weight[:3], out=out)
    with pytest.raises(TypeError, match="rmsnorm: weight is None"):
        quern.rmsnorm(x, None, out=out)
    assert (out == 7).all()


def attention(q, k, v):
    return quern.attention(q * 2, k, v, layout="HND", is_causal=True, return_lse=True)


@pytest.mark.parametrize("kv_len", [9, 300])  # 300 keys of 4 queries are split, which takes a workspace
def test_attention_compiles_whole(kv_len):
    q, k, v = (torch.randn(2, heads, n, 64, dtype=torch.bfloat16) for heads, n in ((4, 4), (2, kv_len), (2, kv_len)))
    want = attention(q, k, v)
    got = torch.compile(attention, fullgraph=True, backend="aot_eager")(q, k, v)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
    exact = torch.nn.functional.scaled_dot_product_attention(
        q.double() * 2, k.double(), v.double(), enable_gqa=True,
        attn_mask=torch.ones(4, kv_len, dtype=torch.bool).tril(kv_len - 4))
    assert (want[0] - exact).abs().max() < 4 * 2.0**-8 * v.abs().max()


def test_planned_attention_compiles_whole():
    q, k, v = torch.randn(5, 4, 64), torch.randn(700, 2, 64), torch.randn(700, 2, 64)
    plan = quern.attention_plan(4, 2, 64, qo_indptr=torch.tensor([0, 1, 5]), kv_indptr=[0, 600, 700])
    assert plan.workspace_bytes > 0
    run = lambda q, k, v: quern.attention(q, k, v, plan=plan) + 1  # noqa: E731
    assert torch.equal(torch.compile(run, fullgraph=True, backend="aot_eager")(q, k, v), run(q, k, v))
