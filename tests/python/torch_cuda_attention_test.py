# SPDX-License-Identifier: Apache-2.0
"""quern's attention on PyTorch's CUDA tensors: under PyTorch's function, in FlashInfer's wrappers, in graphs. Skipped where there
is no CUDA device."""

import math

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
from flashinfer_tools import Pages, close, expected  # noqa: E402
from flashinfer_tools import randn as randn_on_cpu  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

import quern  # noqa: E402
import quern.compat.aotriton as aotriton  # noqa: E402
import quern.compat.flashinfer as flashinfer  # noqa: E402
import quern.torch  # noqa: E402

HEADS, KV_HEADS, DIM, PAGE = 8, 2, 128, 16


def randn(*shape, **options):
    return randn_on_cpu(*shape, **options).cuda()


def pages_of(lengths, dtype=torch.float16):
    return Pages(lengths, PAGE, KV_HEADS, DIM, dtype)


def check(out, q, k, v, **options):
    """Checks one request's results against float64, and returns its base-2 lse."""
    want, lse = expected(q.cpu(), k.cpu(), v.cpu(), **options)
    close(out.cpu(), want)
    return lse


# ---- gradients

@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2)])
@pytest.mark.parametrize("dim", [64, 96, 128])
def test_gradients_of_ragged_requests(dtype, tolerance, dim):
    """Tests that a request's gradients have the bits that it has alone, also beside one of NaNs, and are right."""
    qo, kv = [0, 70, 70, 200, 329], [0, 200, 264, 393, 522]
    q, d_out = (randn(qo[-1], HEADS, dim, dtype=dtype, seed=i) for i in range(2))
    k, v = (randn(kv[-1], KV_HEADS, dim, dtype=dtype, seed=i) for i in range(2, 4))
    for x, begin in ((q, qo[-2]), (d_out, qo[-2]), (k, kv[-2]), (v, kv[-2])):
        x[begin:] = math.nan
    plan = quern.attention_plan(HEADS, KV_HEADS, dim, qo_indptr=qo, kv_indptr=kv)
    out, lse = quern.attention(q, k, v, plan=plan, is_causal=True, return_lse=True)
    given = quern.attention_backward(d_out, q, k, v, out, lse, plan=plan, is_causal=True)[:3]
    for i in range(len(qo) - 2):
        a, b = slice(qo[i], qo[i + 1]), slice(kv[i], kv[i + 1])
        got = given[0][a], given[1][b], given[2][b]
        if qo[i] == qo[i + 1]:
            assert not got[1].any() and not got[2].any()
            continue
        alone = quern.attention_backward(*(x[None] for x in (d_out[a], q[a], k[b], v[b], out[a], lse[a])), is_causal=True)
        assert all(torch.equal(x[0], y) for x, y in zip(alone[:3], got, strict=True))
        wanted = [x.transpose(0, 1).double().requires_grad_() for x in (q[a], k[b], v[b])]
        queries, keys = len(got[0]), len(got[1])
        hidden = torch.ones(queries, keys, device="cuda", dtype=torch.bool).triu(keys - queries + 1)
        scores = (wanted[0] @ wanted[1].repeat_interleave(HEADS // KV_HEADS, 0).mT / dim**0.5).masked_fill(hidden, -math.inf)
        weights = scores.softmax(-1).masked_fill(hidden, 0)  # of queries that see no key, too
        exact = weights @ wanted[2].repeat_interleave(HEADS // KV_HEADS, 0)
        for x, y in zip(torch.autograd.grad(exact, wanted, d_out[a].transpose(0, 1).double()), got, strict=True):
            close(y.transpose(0, 1), x, tolerance * float(x.abs().max()))


# ---- under PyTorch's function

@pytest.mark.parametrize("dtype, tolerance", [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2), (torch.float32, 1e-5)])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"mask": torch.bool}, {"mask": torch.float32}], ids=str)
@pytest.mark.parametrize("dim", [64, 72, 128])
def test_scaled_dot_product_attention(dtype, tolerance, options, dim):
    options = dict(options)
    q, k, v = randn(2, 4, 77, dim, dtype=dtype), randn(2, 4, 77, dim, dtype=dtype, seed=1), randn(2, 4, 77, dim, dtype=dtype, seed=2)
    kind = options.pop("mask", None)
    if kind is not None:
        mask = randn(77, 77, dtype=torch.float32)
        options["attn_mask"] = mask < 0.5 if kind == torch.bool else mask.to(dtype)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        exact = {name: x.double() if getattr(x, "is_floating_point", bool)() else x for name, x in options.items()}
        want = sdpa(q.double(), k.double(), v.double(), **exact)
    with quern.torch.enable(fallback="error", allow_slow=True) as registration:  # f32 is slow
        got = sdpa(q, k, v, **options)
    assert registration.calls.total() == 1 and all(".gpu" in kernel for kernel in registration.calls)
    close(got, want, tolerance)


def test_compiled_and_grouped():
    q, k, v = randn(1, 8, 65, 64), randn(1, 2, 65, 64), randn(1, 2, 65, 64, seed=1)

    def layer(q, k, v):
        return sdpa(q * 2, k, v, is_causal=True, enable_gqa=True) + 1
    torch._dynamo.reset()
    with torch.no_grad(), quern.torch.enable(fallback="error") as registration:
        want = layer(q, k, v)
        assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(q, k, v), want)
        assert registration.calls.total() == 2


def test_the_current_stream_and_a_graph():
    q, k, v = randn(1, 4, 33, 64), randn(1, 4, 33, 64, seed=1), randn(1, 4, 33, 64, seed=2)
    with quern.torch.enable(fallback="error"):
        sdpa(q, k, v)  # kernels are loaded before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = sdpa(q, k, v, is_causal=True)
        q.copy_(randn(1, 4, 33, 64, seed=5))
        graph.replay()
        assert torch.equal(out, sdpa(q, k, v, is_causal=True))


# ---- tiles that multiprocessors share

@pytest.mark.parametrize("batch, heads, kv_heads, queries, keys, dim, dtype", [
    (1, 24, 24, 4608, 4608, 128, torch.bfloat16), (1, 24, 8, 1100, 1501, 128, torch.float16), (2, 40, 40, 389, 641, 64, torch.bfloat16),
    (1, 140, 140, 192, 701, 96, torch.float16), (3, 45, 15, 150, 700, 128, torch.bfloat16)])
def test_a_workspace_changes_no_bit(batch, heads, kv_heads, queries, keys, dim, dtype):
    """Tests that states of rows pass from one workgroup to the next unchanged, run after run, and in a graph's replays."""
    q = randn(batch, queries, heads, dim, dtype=dtype)
    k, v = randn(batch, keys, kv_heads, dim, dtype=dtype, seed=1), randn(batch, keys, kv_heads, dim, dtype=dtype, seed=2)
    q[:, ::7] *= 30  # rows whose top rises again and again
    none = torch.empty(16, dtype=torch.uint8, device="cuda")
    want = quern.attention(q, k, v, workspace=none, return_lse=True)
    for _ in range(10):
        assert all(map(torch.equal, quern.attention(q, k, v, return_lse=True), want))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = quern.attention(q, k, v, return_lse=True)
    for _ in range(3):
        got[0].zero_()
        graph.replay()
        assert all(map(torch.equal, got, want))


# ---- FlashInfer's

@pytest.mark.parametrize("dtype", [torch.float16, torch.float8_e4m3fn])
def test_batch_decode(dtype):
    pages, q = pages_of([700, 1, 16, 0, 33], dtype), randn(5, HEADS, DIM)
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"))
    wrapper.plan(*pages.arrays(), HEADS, KV_HEADS, DIM, PAGE, kv_data_type=dtype)
    cache = pages.cache.cuda()
    out, lse = wrapper.run(q, cache, return_lse=True)
    for b in range(5):
        close(lse[b:b + 1].cpu(), check(out[b:b + 1], q[b:b + 1], pages.k[b], pages.v[b]))
    assert torch.equal(wrapper.run(q, cache), out)


def test_batch_prefill():
    pages, qo = pages_of([97, 40, 300]), [37, 1, 130]
    q, qo_indptr = randn(sum(qo), HEADS, DIM), torch.tensor([0, 37, 38, 168], dtype=torch.int32)
    wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(1 << 20, dtype=torch.uint8, device="cuda"))
    wrapper.plan(qo_indptr, *pages.arrays(), HEADS, KV_HEADS, DIM, PAGE, causal=True)
    out = wrapper.run(q, pages.cache.cuda())
    for b in range(3):
        rows = slice(qo_indptr[b], qo_indptr[b + 1])
        check(out[rows], q[rows], pages.k[b], pages.v[b], is_causal=True)


def test_a_captured_decode_follows_its_batch():
    """Tests a decode that is captured with requests of one key, as servers do, and replayed as they grow."""
    lengths = [[1, 1], [40, 33], [700, 5], [700, 513], [2, 1]]
    buffers = [torch.zeros(n, dtype=torch.int32, device="cuda") for n in (3, 128, 2)]
    cache = torch.empty_like(pages_of([1024, 1024]).cache, device="cuda")
    wrapper = flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper(torch.empty(4 << 20, dtype=torch.uint8, device="cuda"), *buffers)
    q, out, graph = randn(2, HEADS, DIM), torch.empty(2, HEADS, DIM, dtype=torch.float16, device="cuda"), torch.cuda.CUDAGraph()
    for i, batch in enumerate(lengths):
        pages = pages_of(batch)
        cache[:len(pages.cache)] = pages.cache
        wrapper.plan(*pages.arrays(), HEADS, KV_HEADS, DIM, PAGE)
        if i == 0:
            wrapper.run(q, cache, out=out)
            with torch.cuda.graph(graph):
                wrapper.run(q, cache, out=out)
        q.copy_(randn(2, HEADS, DIM, seed=i))
        graph.replay()
        for b in range(2):
            check(out[b:b + 1], q[b:b + 1], pages.k[b], pages.v[b])


# ---- AOTriton's

def test_aotriton():
    q, k, v = randn(2, 4, 50, 64), randn(2, 4, 70, 64, seed=1), randn(2, 4, 70, 64, seed=2)
    out, lse = torch.empty_like(q), torch.empty(8, 50, device="cuda")
    seed, offset = torch.tensor([3], device="cuda"), torch.tensor([5], device="cuda")
    aotriton.attn_fwd(q, k, v, None, 64 ** -0.5, lse, out)
    for b in range(2):
        want_lse = check(out[b].transpose(0, 1), *(t[b].transpose(0, 1) for t in (q, k, v)))
        close(lse.view(2, 4, 50)[b].T.cpu(), want_lse * math.log(2))
    aotriton.attn_fwd(q, k, v, None, 64 ** -0.5, None, out, dropout_p=0.5, philox_seed=seed, philox_offset1=offset)
    kept = torch.empty(2, 4, 50, 70, device="cuda")
    aotriton.debug_simulate_encoded_softmax(kept, 0.5, seed, offset)
    weights = (q.double() @ k.double().mT / 8).softmax(-1) * (kept > 0) * 2
    close(out, weights @ v.double(), 4e-3)
    aotriton.check_gpu()
