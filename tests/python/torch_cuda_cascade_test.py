# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer over shared keys and of mixed batches on CUDA tensors: results, captured graphs, memory. Skipped where
there is no CUDA device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
from flashinfer_tools import HALF, Pages, close, expected, offsets, randn  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

LENGTHS = [[16, 9, 4, 30], [3, 1, 1, 1], [900, 8, 0, 70], [40, 300, 2, 5]]


def workspace(size=32 << 20):
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def on_cuda(arrays):
    return [array.cuda() for array in arrays]


def plan_levels(wrapper, pages):
    """Plans two levels: the first entry is everybody's prefix, with one query each."""
    levels = [on_cuda(pages.part(0, 1)), on_cuda(pages.part(1, 4))]
    wrapper.plan([offsets([3]).cuda(), offsets([1, 1, 1]).cuda()], *map(list, zip(*levels, strict=True)), 8, 2, 128, pages.page)


def check_levels(out, q, pages):
    for b in range(3):
        k, v = (torch.cat([store[0], store[b + 1]]) for store in (pages.k, pages.v))
        close(out[b:b + 1].cpu(), expected(q[b:b + 1].cpu(), k, v)[0])


def captured(run):
    """Captures a graph of run(), and returns it with what it writes."""
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = run()
    return graph, result


@pytest.mark.parametrize("page", [1, 5, 16])
def test_levels_and_shared_prefix(page):
    for lengths in LENGTHS:
        pages, q = Pages(lengths, page, dim=128), randn(3, 8, 128).cuda()
        cache = pages.cache.cuda()
        wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace())
        plan_levels(wrapper, pages)
        check_levels(wrapper.run(q, cache), q, pages)
        apart = flashinfer.BatchDecodeWithSharedPrefixPagedKVCacheWrapper(workspace())
        apart.begin_forward(*on_cuda(pages.part(1, 4)), 8, 2, 128, page)
        k, v = (store[0].half().cuda() for store in (pages.k, pages.v))
        check_levels(apart.forward(q, k, v, cache), q, pages)


def test_sinks_mixed_batches_and_segments():
    qo, kv = [1, 33, 0, 5], [70, 33, 9, 2]
    pages, q, starts = Pages(kv, 16, dim=128), randn(39, 8, 128).cuda(), offsets(qo)
    sink = torch.linspace(-1, 2, 8)
    sinks = flashinfer.BatchAttentionWithAttentionSinkWrapper(workspace(), q_data_type=HALF)
    sinks.plan(starts.cuda(), *on_cuda(pages.arrays()), 8, 2, 128, 16, causal=True)
    with_sinks = sinks.run(q, pages.cache.cuda(), sink.cuda()).cpu()
    mixed = flashinfer.BatchAttention()
    mixed.plan(starts.cuda(), *on_cuda(pages.arrays()[:2]), torch.tensor(kv).cuda(), 8, 2, 128, 128, 16, True, q_data_type=HALF,
               kv_data_type=HALF)
    out, lse = (x.cpu() for x in mixed.run(q, pages.cache.cuda()))
    k, v = (torch.cat(store).half().cuda() for store in (pages.k, pages.v))
    packed = flashinfer.fmha_varlen(q, k, v, starts.cuda(), offsets(kv).cuda(), causal=True)[0].cpu()
    for b in range(4):
        rows = slice(starts[b], starts[b + 1])
        want, want_lse = expected(q[rows].cpu(), pages.k[b], pages.v[b], is_causal=True)
        for got in (out, packed):
            close(got[rows], want)
        close(lse[rows], want_lse)
        close(with_sinks[rows], expected(q[rows].cpu(), pages.k[b], pages.v[b], is_causal=True, sinks=sink.numpy())[0])


def test_a_graph_of_levels_takes_later_plans():
    sizes = (2, 4)
    buffers = [[torch.zeros(n, dtype=torch.int32, device="cuda") for n in many]
               for many in (sizes, sizes, (128, 128), [n - 1 for n in sizes])]
    wrapper = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace(), "NHD", True, *buffers)
    batches = [Pages(lengths, 16, dim=128) for lengths in LENGTHS]
    q, cache = randn(3, 8, 128).cuda(), torch.zeros(128, *batches[0].cache.shape[1:], dtype=HALF, device="cuda")
    plan_levels(wrapper, batches[1])
    graph, out = captured(lambda: wrapper.run(q, cache))
    for pages in batches:
        cache[:len(pages.cache)] = pages.cache.cuda()
        plan_levels(wrapper, pages)
        graph.replay()
        check_levels(out, q, pages)


@pytest.mark.parametrize("spare", [0, 1])
def test_a_graph_of_mixed_batches_takes_later_plans(spare):
    """Tests it also with requests whose pages are not all in use."""
    wrapper, indices = flashinfer.BatchAttention(), torch.zeros(256, dtype=torch.int32, device="cuda")
    batches = [Pages(lengths, 16, dim=128) for lengths in LENGTHS]
    q, cache = randn(4, 8, 128).cuda(), torch.zeros(128, *batches[0].cache.shape[1:], dtype=HALF, device="cuda")

    def plan(pages):
        parts = [torch.cat([pages.part(b, b + 1)[1], torch.full((spare,), 127, dtype=torch.int32)]) for b in range(4)]
        used = torch.cat(parts)
        indices[:len(used)] = used.cuda()
        wrapper.plan(offsets([1] * 4).cuda(), offsets([len(part) for part in parts]).cuda(), indices,
                     torch.tensor(pages.lengths).cuda(), 8, 2, 128, 128, 16, q_data_type=HALF, kv_data_type=HALF)

    plan(batches[1])
    graph, (out, lse) = captured(lambda: wrapper.run(q, cache))
    for pages in batches:
        cache[:len(pages.cache)] = pages.cache.cuda()
        plan(pages)
        graph.replay()
        for b in range(4):
            want, want_lse = expected(q[b:b + 1].cpu(), pages.k[b], pages.v[b])
            close(out[b:b + 1].cpu(), want)
            close(lse[b:b + 1].cpu(), want_lse)


def test_memory_does_not_grow():
    wrapper, mixed = flashinfer.MultiLevelCascadeAttentionWrapper(2, workspace()), flashinfer.BatchAttention()
    batches = [Pages(lengths, 16, dim=128) for lengths in LENGTHS]
    caches, q = [pages.cache.cuda() for pages in batches], randn(3, 8, 128).cuda()

    def steps(count):
        for _ in range(count):
            for pages, cache in zip(batches, caches, strict=True):
                plan_levels(wrapper, pages)
                wrapper.run(q, cache)
                mixed.plan(offsets([1] * 3).cuda(), *on_cuda(pages.part(1, 4)[:2]), torch.tensor(pages.lengths[1:]).cuda(), 8, 2,
                           128, 128, 16, q_data_type=HALF, kv_data_type=HALF)
                mixed.run(q, cache)
        torch.cuda.synchronize()
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()

    settled = steps(3)
    assert steps(30) == settled


def test_lengths_of_segments_may_lie_on_the_host():
    x, w, lens = randn(10, 64).cuda(), randn(2, 32, 64).cuda(), torch.tensor([3, 7])
    wrapper = flashinfer.SegmentGEMMWrapper(workspace())
    assert torch.equal(wrapper.run(x, w, 2, True, seg_lens=lens), wrapper.run(x, w, 2, True, seg_lens=lens.cuda()))
