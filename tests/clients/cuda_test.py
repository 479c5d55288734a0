# SPDX-License-Identifier: Apache-2.0
"""The models on a CUDA device: on PyTorch's stream, in CUDA graphs, and staged there from the CPU. Skipped without one."""

import copy

import pytest
import quern
import torch

if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import decoder_test  # noqa: E402
import denoise_test  # noqa: E402
import flux_test  # noqa: E402
import linear_test  # noqa: E402
import whole_test  # noqa: E402
from models import DECODERS, DTYPES, decoder, error, flux, in_double, put, scene, tokens  # noqa: E402
from whole import assert_layers, assert_whole_text, by_quern  # noqa: E402


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_decoders(name, dtype):
    kernels = decoder_test.check(name, dtype, where="cuda")
    assert all(".gpu" in kernel for kernel in kernels)


@pytest.mark.parametrize("dtype", DTYPES)
def test_flux(dtype):
    assert all(".gpu" in kernel for kernel in flux_test.check(dtype, where="cuda"))


@pytest.mark.parametrize("name", whole_test.NAMES)
def test_whole_decoders(name):
    """Tests each layer and 64 greedy tokens, all by quern."""
    model, exact, plain = (m.cuda() for m in whole_test.made(name, None))
    assert_layers(model, put(tokens(1, 21), "cuda"), None, torch.bfloat16, exact, plain)
    assert_whole_text(model, put(tokens(1, 5), "cuda"), None, torch.bfloat16, exact, plain)


@pytest.mark.parametrize("name", denoise_test.MODELS)
def test_whole_pictures(name):
    """Tests four denoising steps, all by quern."""
    model, inputs = denoise_test.MODELS[name](None)
    model, inputs = model.cuda(), put(inputs, "cuda")
    exact, plain = flux_test.denoise(copy.deepcopy(model).double(), in_double(inputs)), flux_test.denoise(model, inputs)
    with by_quern(model, None):
        patched = flux_test.denoise(model, inputs)
    assert error(patched, exact) <= 2 * error(plain, exact) + 2.0**-9


@pytest.mark.skipif(torch.cuda.get_device_capability() != (9, 0), reason="other cards' products are PyTorch's")
def test_products_on_hopper():
    model = flux(torch.bfloat16, layers=1, single_layers=1).cuda()
    calls = linear_test.compare(model, put(scene(torch.bfloat16, side=16, text=256), "cuda"), linears="fast")
    assert sum(calls.values()) == linear_test.PRODUCTS and all("wgmma" in kernel for kernel in calls)


@pytest.mark.skipif(torch.cuda.get_device_name() != "NVIDIA H200", reason="the table of linear layers is of an H200")
@pytest.mark.parametrize("m, is_ours", [(64, True), (512, False)])
def test_linear_layers_on_an_h200(m, is_ours):
    model = torch.nn.Sequential(torch.nn.Linear(64, 3072, dtype=torch.bfloat16, device="cuda")).eval().requires_grad_(False)
    x = torch.randn(m, 64, dtype=torch.bfloat16, device="cuda")
    exact, plain = model[0].double()(x.double()), model.bfloat16()(x)
    with quern.patch(model) as patch:
        got = model(x).double()
        assert [op for op, _ in patch.calls] == ["gemm"] and all(("wgmma" in kernel) == is_ours for _, kernel in patch.calls)
    assert error(got, exact) <= 2 * error(plain.double(), exact)


def test_staged_from_the_cpu():
    assert all(".gpu" in kernel for kernel in decoder_test.check("qwen3", torch.bfloat16, "cuda:0", layers=1))
    assert all(".gpu" in kernel for kernel in flux_test.check(torch.bfloat16, "cuda:0", layers=1, single_layers=1))


@pytest.mark.parametrize("name", DECODERS)
def test_streams_and_graphs(name):
    """Tests that the bits are the same on another stream, behind work that has to end first, and replayed from a CUDA
    graph."""
    model, ids = decoder(name, torch.bfloat16).cuda(), tokens()["input_ids"].cuda()
    with quern.patch(model), torch.inference_mode():
        want = model(ids, use_cache=False).logits
        stream, late = torch.cuda.Stream(), torch.zeros_like(ids)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            late.copy_(ids)
            got = model(late, use_cache=False).logits
        stream.synchronize()
        assert torch.equal(got, want)
        graph, still = torch.cuda.CUDAGraph(), tokens(n=33)["input_ids"].cuda().zero_()
        with torch.cuda.graph(graph):
            again = model(still, use_cache=False).logits
        still.copy_(ids)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(again, want)
