# SPDX-License-Identifier: Apache-2.0
"""SGLang's attention by quern: the backend that its registry makes for "quern", with its own pools, beside its torch_native."""

import types

import pytest
import quern
import torch
from aiter_tools import BF16, F16, UNIT, attend, attended
from deep_gemm_tools import F32, randn
from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention
from sglang.srt.model_executor.forward_batch_info import ForwardMode

HEADS, KV_HEADS, DIM = 8, 2, 64
# (queries, keys) of each request.
BATCHES = {"prompts": [(20, 20), (5, 37), (1, 1)], "decode": [(1, 16), (1, 70), (1, 1)]}


class Pool:
    """Keys and values by slot, as SGLang's MHATokenToKVPool has them, whose own needs a GPU."""

    def __init__(self, slots, dtype):
        self._buffers = [torch.full((slots, KV_HEADS, DIM), torch.nan, dtype=dtype) for _ in range(2)]

    def set_kv_buffer(self, layer, where, key, value):
        for buffer, new in zip(self._buffers, (key, value), strict=True):
            buffer[where.loc] = new

    def get_key_buffer(self, _):
        return self._buffers[0]

    def get_value_buffer(self, _):
        return self._buffers[1]


def step(lengths, mode, dtype=BF16, **options):
    """Runs a step by quern and by torch_native. Returns (results by request of both, q, k, v by request)."""
    slots = torch.randperm(256, generator=torch.Generator().manual_seed(1))
    table, begin = torch.zeros(8, 128, dtype=torch.int32), 0
    requests = torch.tensor([5, 2, 7][:len(lengths)])
    for request, (_, m) in zip(requests, lengths, strict=True):
        table[request, :m] = slots[begin:begin + m].int()
        begin += m
    queries, keys = (torch.tensor(column) for column in zip(*lengths, strict=True))
    new = torch.cat([table[r, m - n:m] for r, (n, m) in zip(requests, lengths, strict=True)]).long()
    batch = types.SimpleNamespace(
        forward_mode=mode, seq_lens=keys, seq_lens_cpu=keys, req_pool_indices=requests, out_cache_loc=new, encoder_lens=None,
        extend_seq_lens=queries, extend_seq_lens_cpu=queries.tolist(), extend_prefix_lens=keys - queries, encoder_out_cache_loc=None)
    layer = RadixAttention(HEADS, DIM, DIM**-0.5, KV_HEADS, 0, **options)
    full = [tuple(randn(m, KV_HEADS, DIM, dtype=dtype, seed=9 * i + j) for j in (0, 1)) for i, (_, m) in enumerate(lengths)]
    q = [randn(n, HEADS, DIM, dtype=dtype, seed=100 + i) for i, (n, _) in enumerate(lengths)]
    k, v = (torch.cat([full[i][j][m - n:] for i, (n, m) in enumerate(lengths)]) for j in (0, 1))
    results = []
    for backend_of in (ATTENTION_BACKENDS["quern"], TorchNativeAttnBackend):
        pool = Pool(256, dtype)
        for i, (n, m) in enumerate(lengths):  # earlier steps
            pool.set_kv_buffer(layer, types.SimpleNamespace(loc=table[requests[i], :m - n].long()), full[i][0][:m - n], full[i][1][:m - n])
        runner = types.SimpleNamespace(req_to_token_pool=types.SimpleNamespace(req_to_token=table), token_to_kv_pool=pool, device="cpu",
                                       use_mla_backend=False)
        backend = backend_of(runner)
        backend.init_forward_metadata(batch)
        out = backend.forward(torch.cat(q).flatten(1), k, v, layer, batch)
        assert out.shape == (int(queries.sum()), HEADS * DIM)
        results.append(out.view(-1, HEADS, DIM).split(queries.tolist()))
    return *results, q, full


@pytest.mark.parametrize("dtype", [BF16, F16, F32])
@pytest.mark.parametrize("name", list(BATCHES))
def test_steps(name, dtype):
    outputs, native, q, full = step(BATCHES[name], ForwardMode.DECODE if name == "decode" else ForwardMode.EXTEND, dtype)
    assert quern.last_kernel().split(".")[0] in ("attention", "merge_states")
    for out, theirs, queries, (k, v) in zip(outputs, native, q, full, strict=True):
        attended(out, None, attend(queries, k, v, causal=True), queries, v)
        bound = 2 * UNIT[dtype] * theirs.double().abs() + 8 * max(UNIT[dtype], 2**-20) * v.double().abs().max()
        assert bool(((out.double() - theirs.double()).abs() <= bound).all())


@pytest.mark.parametrize("name", list(BATCHES))
@pytest.mark.parametrize("options, exact", [({"sliding_window_size": 6}, {"left": 6}), ({"logit_cap": 5.0}, {"cap": 5.0})], ids=["window", "cap"])
def test_options(options, exact, name):
    outputs, _, q, full = step(BATCHES[name], ForwardMode.DECODE if name == "decode" else ForwardMode.EXTEND, **options)
    for out, queries, (k, v) in zip(outputs, q, full, strict=True):
        attended(out, None, attend(queries, k, v, causal=True, **exact), queries, v)


@pytest.mark.parametrize("options, message", [({"is_cross_attention": True}, "cross True"), ({"logit_cap": 1.0, "logit_capping_method": "x"}, "'x'")])
def test_what_is_refused(options, message):
    with pytest.raises(NotImplementedError, match=message):
        step(BATCHES["decode"], ForwardMode.DECODE, **options)


def test_models_with_mla_are_refused():
    with pytest.raises(NotImplementedError, match="the model has MLA"):
        ATTENTION_BACKENDS["quern"](types.SimpleNamespace(use_mla_backend=True, token_to_kv_pool=None))


def test_sglang_takes_its_name():
    from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES
    assert "quern" in ATTENTION_BACKEND_CHOICES
