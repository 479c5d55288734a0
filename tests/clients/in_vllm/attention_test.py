# SPDX-License-Identifier: Apache-2.0
"""vLLM's attention by quern: the backend that vLLM's registry gives for QUERN, with batches and caches as vLLM's worker makes them."""

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT, attend, attended
from deep_gemm_tools import F32, randn
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_cache_interface import FullAttentionSpec

SIZE, HEADS, KV_HEADS, DIM = 16, 8, 2, 64
# (queries, keys) of each request: a prompt, a chunk of one, decoding steps.
BATCHES = {"mixed": [(20, 20), (5, 37), (1, 33), (1, 1)], "decode": [(1, 16), (1, 70)], "prompt": [(33, 33)]}


class Layer(torch.nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self._k_scale = self._v_scale = torch.tensor(scale)
        self._k_scale_float = self._v_scale_float = scale


def batch_of(lengths, seed=0):
    """Returns vLLM's description of a batch whose requests' blocks lie in any order, and how many blocks there are."""
    queries, keys = (torch.tensor(column, dtype=torch.int32) for column in zip(*lengths, strict=True))
    counts = [-(-n // SIZE) for n in keys.tolist()]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(seed)).int()
    table, begin = torch.zeros(len(lengths), 8, dtype=torch.int32), 0
    for i, count in enumerate(counts):
        table[i, :count] = order[begin:begin + count]
        begin += count
    starts = torch.cat([torch.zeros(1, dtype=torch.int32), queries.cumsum(0).int()])
    slots = [table[i, p // SIZE].long() * SIZE + p % SIZE for i, (n, m) in enumerate(lengths) for p in range(m - n, m)]
    common = CommonAttentionMetadata(
        query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=keys, num_reqs=len(lengths), num_actual_tokens=int(starts[-1]),
        max_query_len=int(queries.max()), max_seq_len=int(keys.max()), block_table_tensor=table, slot_mapping=torch.stack(slots))
    return common, sum(counts)


def cache_of(blocks, dtype, is_nhd):
    """Returns a cache [blocks, heads, size, 2 dim] in memory of that order or, as NHD, of [blocks, size, heads, 2 dim]."""
    if is_nhd:
        return torch.full((blocks, SIZE, KV_HEADS, 2 * DIM), 0, dtype=dtype).transpose(1, 2)
    return torch.full((blocks, KV_HEADS, SIZE, 2 * DIM), 0, dtype=dtype)


def run(lengths, config, dtype=BF16, is_nhd=True, kv_cache_dtype="auto", scale=1.0, **options):
    """Runs a step as vLLM does. Returns (output by request, q, k, v by request in f64, of which caches may hold less)."""
    backend = AttentionBackendEnum["QUERN"].get_class()
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=KV_HEADS, head_size=DIM, dtype=dtype)
    impl = backend.get_impl_cls()(HEADS, DIM, DIM**-0.5, KV_HEADS, kv_cache_dtype=kv_cache_dtype, **options)
    common, blocks = batch_of(lengths)
    metadata = backend.get_builder_cls()(spec, ["layer"], config, torch.device("cpu")).build(0, common)
    cache, layer = cache_of(blocks, torch.uint8 if kv_cache_dtype != "auto" else dtype, is_nhd), Layer(scale)
    full = [tuple(randn(m, heads, DIM, dtype=dtype, seed=9 * i + j) for j, heads in enumerate((KV_HEADS, KV_HEADS)))
            for i, (_, m) in enumerate(lengths)]
    for i, (n, m) in enumerate(lengths):  # earlier steps
        for p in range(m - n):
            slot = common.block_table_tensor[i, p // SIZE].long() * SIZE + p % SIZE
            impl.do_kv_cache_update(layer, full[i][0][p:p + 1], full[i][1][p:p + 1], cache, slot.view(1))
    q = [randn(n, HEADS, DIM, dtype=dtype, seed=100 + i) for i, (n, _) in enumerate(lengths)]
    new = [torch.cat([full[i][j][m - n:] for i, (n, m) in enumerate(lengths)]) for j in (0, 1)]
    impl.do_kv_cache_update(layer, *new, cache, common.slot_mapping)
    query = torch.cat([*q, torch.full((3, HEADS, DIM), torch.nan, dtype=dtype)])  # rows that pad a batch
    output = torch.full_like(query, 7)
    impl.forward(layer, query, *new, cache, metadata, output)
    assert bool((output[-3:] == 7).all())
    return output[:-3].split([n for n, _ in lengths]), q, full


@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("is_nhd", [True, False])
@pytest.mark.parametrize("lengths", list(BATCHES.values()), ids=list(BATCHES))
def test_steps(lengths, is_nhd, dtype, config):
    outputs, q, full = run(lengths, config, dtype, is_nhd)
    assert quern.last_kernel().startswith(("attention.cpu", "merge"))
    for out, queries, (k, v) in zip(outputs, q, full, strict=True):
        attended(out, None, attend(queries, k, v, causal=True), queries, v)


OPTIONS = [
    ({"sliding_window": 7}, {"left": 6}),
    ({"logits_soft_cap": 5.0}, {"cap": 5.0}),
    ({"sinks": torch.linspace(-2, 2, HEADS)}, {"sinks": torch.linspace(-2, 2, HEADS)}),
]


@pytest.mark.parametrize("options, exact", OPTIONS, ids=[next(iter(row[0])) for row in OPTIONS])
def test_options(options, exact, config):
    outputs, q, full = run(BATCHES["mixed"], config, **options)
    for out, queries, (k, v) in zip(outputs, q, full, strict=True):
        attended(out, None, attend(queries, k, v, causal=True, **exact), queries, v)


@pytest.mark.parametrize("kv_cache_dtype, kind", [("fp8", torch.float8_e4m3fnuz), ("fp8_e5m2", torch.float8_e5m2)])
def test_fp8_cache(kv_cache_dtype, kind, config):
    outputs, q, full = run(BATCHES["mixed"], config, kv_cache_dtype=kv_cache_dtype, scale=0.5)
    for out, queries, pair in zip(outputs, q, full, strict=True):
        k, v = ((x.float() / 0.5).clamp(-torch.finfo(kind).max, torch.finfo(kind).max).to(kind).double() * 0.5 for x in pair)
        attended(out, None, attend(queries, k, v, causal=True), queries, v)


def test_plans_are_made_once_for_a_step(config, monkeypatch):
    made, plan = [], quern.attention_plan
    monkeypatch.setattr(quern, "attention_plan", lambda *a, **o: made.append(a) or plan(*a, **o))
    backend = AttentionBackendEnum["QUERN"].get_class()
    spec = FullAttentionSpec(block_size=SIZE, num_kv_heads=KV_HEADS, head_size=DIM, dtype=BF16)
    metadata = backend.get_builder_cls()(spec, ["layer"], config, torch.device("cpu")).build(0, batch_of(BATCHES["mixed"])[0])
    assert metadata.plan(HEADS, KV_HEADS, DIM) is metadata.plan(HEADS, KV_HEADS, DIM) and len(made) == 1


def test_vllm_selects_it_by_name(config):
    from vllm.config.attention import AttentionConfig
    from vllm.platforms import current_platform
    from vllm.v1.attention.selector import AttentionSelectorConfig
    chosen = AttentionConfig(backend="QUERN").backend
    selector = AttentionSelectorConfig(head_size=128, dtype=BF16, kv_cache_dtype="auto", block_size=16)
    assert current_platform.get_attn_backend_cls(chosen, selector).endswith("attention.QuernAttentionBackend")
    with pytest.raises(ValueError, match="head_size not supported"):
        current_platform.get_attn_backend_cls(chosen, selector._replace(head_size=1024))


@pytest.mark.parametrize("options, message", [({"alibi_slopes": [1.0]}, "alibi_slopes is given"), ({"attn_type": "encoder"}, "attn_type")])
def test_what_is_refused(options, message):
    impl = AttentionBackendEnum["QUERN"].get_class().get_impl_cls()
    with pytest.raises(NotImplementedError, match=message):
        impl(HEADS, DIM, 1.0, KV_HEADS, **options)


def test_the_tolerance_sees_a_window_off_by_one(config):
    outputs, q, full = run(BATCHES["mixed"], config, sliding_window=7)
    exact, _, _ = attend(q[0], *full[0], causal=True, left=5)
    assert float((outputs[0].double() - exact).abs().max()) > 10 * UNIT[BF16]


def test_table(told):
    assert "attention.gpu_decode" in next(line for line in told.splitlines() if line.startswith("  attention"))
