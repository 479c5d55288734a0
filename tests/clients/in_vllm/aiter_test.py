# SPDX-License-Identifier: Apache-2.0
"""vLLM's code for AMD GPUs, which calls AITER, with quern.compat.aiter in AITER's place."""

import pytest
import quern
import torch
import vllm.kernels  # noqa: F401  (vLLM's forms of norms)
from aiter_tools import BF16, F16, UNIT, attend, attended, dequantised, near, rms
from attention_test import BATCHES, DIM, HEADS, KV_HEADS, SIZE, Layer, batch_of
from deep_gemm_tools import F32, close, plain, quantised, randn
from engine_tools import like_native
from vllm import ir
from vllm._aiter_ops import rocm_aiter_ops
from vllm.model_executor.kernels.linear.scaled_mm.aiter import AiterFp8BlockScaledMMKernel
from vllm.model_executor.layers.fused_moe import config as moe_config
from vllm.model_executor.layers.fused_moe.experts import rocm_aiter_moe
from vllm.model_executor.layers.fused_moe.router.grouped_topk_router import grouped_topk
from vllm.v1.attention.backends import rocm_aiter_fa

H, EPS, F8Z = 200, 1e-5, torch.float8_e4m3fnuz


@pytest.fixture(autouse=True)
def aiter_is_on():
    rocm_aiter_ops.refresh_env_variables()
    assert rocm_aiter_ops.is_enabled() and rocm_aiter_ops.is_linear_enabled() and rocm_aiter_ops.is_fused_moe_enabled()


# ---- norms

@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("shape", [(5, H), (3, 2, H)])
def test_rms_norm(shape, dtype):
    x, weight, form = randn(*shape, dtype=dtype), randn(H, dtype=dtype), ir.ops.rms_norm.impls["aiter"]
    assert form.supported and form.supports_args(x, weight, EPS)
    got = form.impl_fn(x, weight, EPS)
    near(got, rms(x, weight, EPS), H)
    like_native(got, ir.ops.rms_norm.impls["native"].impl_fn(x, weight, EPS), 2, H)


def test_add_and_rms_norm():
    x, residual, weight = randn(5, H, dtype=BF16), randn(5, H, dtype=BF16, seed=1), randn(H, dtype=BF16)
    got, added = ir.ops.fused_add_rms_norm.impls["aiter"].impl_fn(x.clone(), residual.clone(), weight, EPS)
    total = x.double() + residual.double()
    near(got, rms(total, weight, EPS), H, float(total.abs().max()))
    near(added, total, 1)
    native = ir.ops.fused_add_rms_norm.impls["native"].impl_fn(x, residual, weight, EPS)
    like_native(got, native[0], 2, H, float(total.abs().max()) * 2**-12)
    like_native(added, native[1], 1)


# ---- quantisation and products

def test_quantisation():
    x = randn(5, 256, dtype=BF16)
    for (q, scale), group in ((rocm_aiter_ops.group_fp8_quant(x, 128), 128), (rocm_aiter_ops.per_token_quant(x, F8Z), 256)):
        dequantised(q, scale, x.double(), group, 0)
    q, scale = rocm_aiter_ops.per_tensor_quant(x, F8Z)
    dequantised(q.view(1, -1), scale.view(1, 1), x.double().view(1, -1), 5 * 256, 0)
    q, same = rocm_aiter_ops.per_tensor_quant(x, F8Z, scale)
    dequantised(q.view(1, -1), same.view(1, 1), x.double().view(1, -1), 5 * 256, 0)


def test_block_scaled_product():
    (a, scale_a), (b, scale_b) = quantised(5, 384, dtype=F8Z), quantised(200, 384, gran=(128, 128), seed=1, dtype=F8Z)
    kernel = AiterFp8BlockScaledMMKernel.__new__(AiterFp8BlockScaledMMKernel)
    kernel.use_bpreshuffle = kernel.use_triton = False
    kernel.weight_group_shape, kernel.config = (128, 128), type("Config", (), {"out_dtype": BF16})
    assert kernel.is_supported()[0]
    close(kernel.apply_block_scaled_mm(a, b, scale_a, scale_b), plain((a, scale_a)), plain((b, scale_b), (128, 128)))


# ---- experts

@pytest.mark.parametrize("biased", [True, False])
def test_routing(biased):
    logits, bias = randn(7, 32), randn(32) * 0.1 if biased else None
    weights, ids = rocm_aiter_moe.rocm_aiter_grouped_topk(torch.empty(7, 8), logits, 4, True, 4, 2, "sigmoid", 2.5, bias)
    native = getattr(grouped_topk, "__wrapped__", grouped_topk)
    want, want_ids = native(torch.empty(7, 8), logits, 4, True, 4, 2, "sigmoid", 2.5, bias)
    order, want_order = ids.argsort(-1), want_ids.argsort(-1)
    assert torch.equal(ids.gather(1, order), want_ids.gather(1, want_order))
    want = want.gather(1, want_order).double() * (1 if biased else 1)
    assert bool(((weights.gather(1, order).double() - want).abs() <= 2 * 40 * 2**-24 * want).all())


def test_softmax_routing():
    logits = randn(7, 32)
    weights, ids, pairs = torch.empty(7, 4), torch.empty(7, 4, dtype=torch.int32), torch.empty(7, 4, dtype=torch.int32)
    rocm_aiter_ops.topk_softmax(weights, ids, pairs, logits, True)
    exact, places = logits.double().softmax(-1).topk(4, -1)
    exact = exact / exact.sum(-1, keepdim=True)
    assert torch.equal(ids.long(), places) and bool(((weights.double() - exact).abs() <= 2 * 40 * 2**-24 * exact).all())


def test_experts():
    experts, hidden, inner, top_k = 4, 256, 128, 2
    pairs = [quantised(*shape, gran=(128, 128), dtype=F8Z) for shape in ((experts, 2 * inner, hidden), (experts, hidden, inner))]
    (w1, s1), (w2, s2) = ((w, s / 16) for w, s in pairs)
    x, weights = randn(6, hidden, dtype=BF16), torch.rand(6, top_k, generator=torch.Generator().manual_seed(1))
    ids = torch.stack([torch.randperm(experts, generator=torch.Generator().manual_seed(t))[:top_k] for t in range(6)]).int()
    config = moe_config.FusedMoEConfig(
        num_experts=experts, experts_per_token=top_k, hidden_dim=hidden, intermediate_size=inner, num_local_experts=experts,
        num_logical_experts=experts, activation=rocm_aiter_moe.MoEActivation.SILU, device="cpu",
        routing_method=moe_config.RoutingMethodType.DeepSeekV3, in_dtype=BF16, intermediate_size_per_partition=inner,
        moe_parallel_config=moe_config.FusedMoEParallelConfig.make_no_parallel())
    shuffled = rocm_aiter_ops.shuffle_weights(w1, w2)
    got = rocm_aiter_moe.rocm_aiter_fused_experts(
        x, *shuffled, weights, ids, config, quant_config=moe_config.fp8_w8a8_moe_quant_config(s1, s2, block_shape=[128, 128]),
        output_dtype=BF16)
    alone = quern.fused_moe(x, w1, w2, weights, ids, w1_scale=s1, w2_scale=s2)
    assert not torch.equal(shuffled[0].view(torch.uint8), w1.view(torch.uint8)) and torch.equal(got, alone)


# ---- attention

def fa_step(lengths, kind, config, dtype=BF16, **options):
    """Runs vLLM's ROCM_AITER_FA on a batch of one kind. Returns (output by request, q, k, v by request)."""
    impl = rocm_aiter_fa.AiterFlashAttentionImpl(HEADS, DIM, DIM**-0.5, KV_HEADS, None, options.get("sliding_window"), "auto", None,
                                                 sinks=options.get("sinks"))
    common, blocks = batch_of(lengths)
    cache = torch.zeros(blocks, KV_HEADS, SIZE, 2 * DIM, dtype=dtype).transpose(1, 2).contiguous().transpose(1, 2)
    pages = cache.transpose(1, 2)
    full = [tuple(randn(m, KV_HEADS, DIM, dtype=dtype, seed=9 * i + j) for j in (0, 1)) for i, (_, m) in enumerate(lengths)]
    for i, (_, m) in enumerate(lengths):
        for p in range(m):
            block = common.block_table_tensor[i, p // SIZE]
            pages[block, p % SIZE] = torch.cat([full[i][0][p], full[i][1][p]], -1)
    q = [randn(n, HEADS, DIM, dtype=dtype, seed=100 + i) for i, (n, _) in enumerate(lengths)]
    new = [torch.cat([full[i][j][m - n:] for i, (n, m) in enumerate(lengths)]) for j in (0, 1)]
    is_decode = kind == "decode"
    metadata = rocm_aiter_fa.AiterFlashAttentionMetadata(
        num_actual_tokens=common.num_actual_tokens, query_start_loc=common.query_start_loc, max_seq_len=common.max_seq_len,
        seq_lens=common.seq_lens, slot_mapping=common.slot_mapping, block_table=common.block_table_tensor, causal=True,
        num_decodes=len(lengths) if is_decode else 0, num_decode_tokens=common.num_actual_tokens if is_decode else 0,
        num_prefills=0 if is_decode else len(lengths), num_extends=0, num_extend_tokens=0,
        decode_metadata=rocm_aiter_fa.AiterFlashAttentionDecodeMetadata(common.max_query_len) if is_decode else None,
        prefill_metadata=None if is_decode else rocm_aiter_fa.AiterFlashAttentionPrefillMetadata(
            common.max_query_len, common.max_seq_len, common.query_start_loc),
        extend_metadata=None, k_scale=None, v_scale=None)
    query, layer = torch.cat(q), Layer()
    output = torch.full_like(query, torch.nan)
    impl.forward(layer, query, *new, cache, metadata, output)
    return output.split([n for n, _ in lengths]), q, full


FA = [("prompt", [(20, 20), (5, 5), (1, 1)], {}, {}), ("decode", BATCHES["decode"], {}, {}),
      ("decode", [(3, 40), (3, 16)], {}, {}), ("decode", BATCHES["decode"], {"sliding_window": 7}, {"left": 6}),
      ("prompt", [(20, 20), (5, 5)], {"sliding_window": 7}, {"left": 6}),
      ("decode", BATCHES["decode"], {"sinks": torch.linspace(-2, 2, HEADS)}, {"sinks": torch.linspace(-2, 2, HEADS)})]


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("kind, lengths, options, exact", FA, ids=["prompts", "decode", "drafts", "decode-window", "window", "sinks"])
def test_flash_attention(kind, lengths, options, exact, dtype, config):
    outputs, q, full = fa_step(lengths, kind, config, dtype, **options)
    for out, queries, (k, v) in zip(outputs, q, full, strict=True):
        attended(out, None, attend(queries, k, v, causal=True, **exact), queries, v)


@pytest.mark.parametrize("max_q", [1, 2])
def test_mla_decode(max_q):
    heads, rank, rope, lens = 16, 512, 64, [5, 40, 1] if max_q == 1 else [5, 40]
    slots = torch.randperm(64, generator=torch.Generator().manual_seed(2)).int()
    cache, scale = randn(64, rank + rope, dtype=BF16), 192**-0.5
    q = randn(len(lens) * max_q, heads, rank + rope, dtype=BF16, seed=3)
    indptr = torch.tensor([0, *lens]).cumsum(0).int()
    qo = (torch.arange(len(lens) + 1) * max_q).int()
    out = torch.full((len(q), heads, rank), torch.nan, dtype=BF16)
    rocm_aiter_ops.mla_decode_fwd(q, cache, out, scale, qo, max_q, indptr, slots[:int(indptr[-1])],
                                  torch.ones(len(lens), dtype=torch.int32))
    for i in range(len(lens)):
        keys = cache[slots[indptr[i]:indptr[i + 1]].long()]
        queries = q[qo[i]:qo[i + 1]]
        attended(out[qo[i]:qo[i + 1]], None, attend(queries, keys[:, None], keys[:, None, :rank], scale, causal=True), queries,
                 keys[:, None, :rank])


# ---- the rest

@pytest.mark.parametrize("neox", [True, False])
def test_rotary_embedding(neox):
    from vllm.model_executor.layers.rotary_embedding import RotaryEmbedding
    op = RotaryEmbedding(64, 64, 128, 1e4, neox, BF16)
    positions, q, k = torch.tensor([0, 3, 127]), randn(3, 256, dtype=BF16), randn(3, 128, dtype=BF16, seed=1)
    native = op.forward_native(positions, q.clone(), k.clone())
    rocm_aiter_ops.get_triton_rotary_embedding_op()(positions, q, k, 64, op.cos_sin_cache, neox)
    for got, want in zip((q, k), native, strict=True):
        like_native(got, want, 3, 4, 2 * float(want.abs().max()))


def test_vllms_own_sampler_by_aiters_functions():
    from vllm.v1.sample.ops.topk_topp_sampler import TopKTopPSampler
    made = TopKTopPSampler.__init__
    sampler = TopKTopPSampler.__new__(TopKTopPSampler)
    made.__wrapped__(sampler)
    assert sampler.forward.__name__ == "forward_hip"
    ones = torch.full((3,), 1, dtype=torch.int32)
    for k, p in ((ones, None), (ones, torch.full((3,), 0.9)), (None, torch.full((3,), 1e-3))):  # three functions of AITER's
        tokens, _ = sampler.forward(randn(3, 16), {}, k, p)
        assert torch.equal(tokens.long(), randn(3, 16).argmax(-1))
