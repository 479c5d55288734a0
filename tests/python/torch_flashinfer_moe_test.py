# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's layers of experts against loops in float64.

What lies between an expert's products is rounded to bf16, each time by up to 2^-8 of it, three times, so that results are off by less
than 2^-7 of their norm; where it is rounded to e4m3, by up to 2^-4 of it, by less than 2^-4."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import randn  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat.flashinfer._experts import shuffled_rows  # noqa: E402

BF16, FP8 = torch.bfloat16, torch.float8_e4m3fn
silu = torch.nn.functional.silu


class Layer:
    """A layer, ups before gates, with a routing."""

    def __init__(self, tokens=7, experts=6, hidden=128, inner=128, top_k=2, dtype=BF16):
        self.x = randn(tokens, hidden, dtype=torch.float32).to(dtype)
        self.w1 = (randn(experts, 2 * inner, hidden, dtype=torch.float32) / 8).to(dtype)
        self.w2 = (randn(experts, hidden, inner, dtype=torch.float32, seed=1) / 8).to(dtype)
        self.logits = randn(tokens, experts, dtype=torch.float32, seed=2)
        self.weights, self.ids = self.logits.softmax(-1).topk(top_k)
        self.numbers = {"num_experts": experts, "top_k": top_k, "n_group": None, "topk_group": None, "intermediate_size": inner,
                        "local_expert_offset": 0, "local_num_experts": experts}

    def want(self, act=lambda up, gate: silu(gate) * up, x=None, w1=None, w2=None, weights=None, ids=None, experts=None, bias1=None,
             bias2=None, between=lambda h: h):
        x, w1, w2, weights, ids = (own if given is None else given for own, given in (
            (self.x, x), (self.w1, w1), (self.w2, w2), (self.weights, weights), (self.ids, ids)))
        out = torch.zeros(len(x), w2.shape[1], dtype=torch.float64)
        for t in range(len(x)):
            for j, e in enumerate(ids[t].tolist()):
                if experts is None or e in experts:
                    h = w1[e].double() @ x[t].double() + (0 if bias1 is None else bias1[e].double())
                    y = w2[e].double() @ between(act(*h.chunk(2))) + (0 if bias2 is None else bias2[e].double())
                    out[t] += weights[t, j].double() * y
        return out

    def cutlass(self, **options):
        given = {"input": self.x, "token_selected_experts": self.ids.int(), "token_final_scales": self.weights, "fc1_expert_weights": self.w1,
                 "fc2_expert_weights": self.w2, "output_dtype": BF16, "quant_scales": None, **options}
        (out,) = flashinfer.cutlass_fused_moe(**given)
        return out


def check(out, want, most=2 ** -7):
    assert out.shape == want.shape
    if want.numel():
        assert (out.double() - want).norm() <= most * want.norm() + 1e-30


@pytest.mark.parametrize("tokens", [0, 1, 33])
@pytest.mark.parametrize("experts, top_k", [(1, 1), (6, 2), (16, 4)])
@pytest.mark.parametrize("hidden, inner", [(64, 32), (128, 96)])
def test_cutlass(tokens, experts, top_k, hidden, inner):
    layer = Layer(tokens, experts, hidden, inner, top_k)
    check(layer.cutlass(), layer.want())
    out = torch.full((tokens, hidden), 9.0, dtype=torch.float16)
    layer.cutlass(output=out, output_dtype=torch.float16)
    check(out, layer.want())
    check(layer.cutlass(token_final_scales=None), layer.want(weights=torch.ones(tokens, top_k)))


@pytest.mark.parametrize("kind, function", [(3, silu), (4, torch.nn.functional.gelu),
                                            (8, lambda gate: torch.nn.functional.gelu(gate, approximate="tanh"))])
def test_activations(kind, function):
    layer = Layer()
    check(layer.cutlass(activation_type=kind), layer.want(lambda up, gate: function(gate) * up))


def test_gpt_oss():
    """Tests swiglu with a limit, alpha and beta, and biases."""
    layer, one = Layer(), torch.ones(6)
    bias1, bias2 = randn(6, 256, dtype=torch.float32), randn(6, 128, dtype=torch.float32)

    def act(up, gate):
        gate, up = gate.clamp(max=0.75), up.clamp(-0.75, 0.75)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)

    out = layer.cutlass(swiglu_alpha=1.702 * one, swiglu_beta=one, swiglu_limit=0.75 * one, fc1_expert_biases=bias1.to(BF16),
                        fc2_expert_biases=bias2.to(BF16))
    check(out, layer.want(act, bias1=bias1.to(BF16), bias2=bias2.to(BF16)))


def test_experts_of_several_devices():
    layer = Layer()
    parts = [layer.cutlass(fc1_expert_weights=layer.w1[3 * rank:3 * rank + 3], fc2_expert_weights=layer.w2[3 * rank:3 * rank + 3], ep_size=2,
                           ep_rank=rank) for rank in range(2)]
    for rank, part in enumerate(parts):
        check(part, layer.want(experts=range(3 * rank, 3 * rank + 3)))
    check(parts[0].float() + parts[1].float(), layer.want())


def interleaved(w1):
    """Returns ups before gates as 32 ups, 32 gates, and so on."""
    return w1.unflatten(1, (2, -1, 32)).transpose(1, 2).flatten(1, 3)


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_cute_dsl(dtype):
    layer = Layer(dtype=dtype)
    arguments = layer.x, layer.ids.int(), layer.weights, interleaved(layer.w1), layer.w2
    out = flashinfer.cute_dsl_fused_moe_bf16(*arguments, 6, 2)
    check(out, layer.want())
    wrapper = flashinfer.CuteDslBf16MoEWrapper(6, 2, 128, 128, output_dtype=dtype)
    given = torch.zeros_like(out)
    assert wrapper.run(*arguments, moe_output=given) is given and torch.equal(given, out)
    part = flashinfer.cute_dsl_fused_moe_bf16(*arguments[:3], arguments[3][2:5], layer.w2[2:5], 6, 2, 3, 2)
    check(part, layer.want(experts=(2, 3, 4)))


# ---- FP8

def by_blocks(w):
    """Returns (FP8, f32 scales) for blocks of 128 x 128, and what they stand for."""
    tiles = w.double().unflatten(2, (-1, 128)).unflatten(1, (-1, 128)).transpose(2, 3)
    scale = (tiles.abs().amax((3, 4)) / 448).float()
    wide = scale.repeat_interleave(128, 1).repeat_interleave(128, 2)
    q = (w.float() / wide).to(FP8)
    return q, scale, q.double() * wide


def by_rows(x):
    scale = (x.double().unflatten(1, (-1, 128)).abs().amax(2) / 448).float()
    q = (x.float() / scale.repeat_interleave(128, 1)).to(FP8)
    return q, scale, q.double() * scale.repeat_interleave(128, 1)


def test_cutlass_of_fp8():
    layer = Layer(hidden=256)
    (w1, scale1, wide1), (w2, scale2, wide2) = by_blocks(layer.w1), by_blocks(layer.w2)
    x = by_rows(layer.x)[2]
    out = layer.cutlass(fc1_expert_weights=w1, fc2_expert_weights=w2, quant_scales=[scale1, scale2], use_deepseek_fp8_block_scale=True)
    check(out, layer.want(x=x, w1=wide1, w2=wide2), 2 ** -4)

    scales = [torch.rand(6) + 0.5 for _ in range(2)]
    x, w1, w2 = (t.to(FP8) for t in (layer.x, layer.w1, layer.w2))
    quant = [scales[0], torch.tensor(4.0), scales[1], torch.tensor(1.0)]
    out = layer.cutlass(input=x, fc1_expert_weights=w1, fc2_expert_weights=w2, quant_scales=quant)
    wide1, wide2 = (w.double() * s[:, None, None] for w, s in zip((w1, w2), scales, strict=True))
    check(out, layer.want(x=x, w1=wide1, w2=wide2, between=lambda h: (4 * h).float().to(FP8).double()), 2 ** -5)


def halves_alternate(w):
    return flashinfer.reorder_rows_for_gated_act_gemm(w.view(torch.uint8) if w.dtype == FP8 else w).view(w.dtype)


def shuffled(w, tile, alternates):
    """Returns weights of experts as FlashInfer shuffles them."""
    w = torch.stack([halves_alternate(one) for one in w.view(torch.uint8)]).view(w.dtype) if alternates else w
    rows = shuffled_rows(w.shape[1], tile)
    return w.view(torch.uint8)[:, rows].view(w.dtype)


@pytest.mark.parametrize("tile, block", [(128, 32), (256, 32), (64, 16)])
def test_shuffled_rows(tile, block):
    """Tests the order of TensorRT-LLM's shuffled weights: in a block row i lies at block / 8 columns of 8."""
    rows = shuffled_rows(2 * block, tile)
    step = block // 8
    for old in range(2 * block):
        new = old // block * block + old % block // step + 8 * (old % step)
        assert rows[new] == old


def test_reorder_rows():
    x = torch.arange(6)[:, None] * torch.ones(1, 2)
    assert flashinfer.reorder_rows_for_gated_act_gemm(x)[:, 0].tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(ValueError, match="an even number of rows"):
        flashinfer.reorder_rows_for_gated_act_gemm(x[:5])


def in_blocks(w):
    return w.unflatten(2, (-1, 128 // w.dtype.itemsize)).transpose(1, 2).contiguous()


def test_trtllm_bf16():
    layer = Layer()
    renormalised = layer.weights / layer.weights.sum(1, keepdim=True)
    want = layer.want(weights=renormalised)
    ordered = shuffled(layer.w1, 128, True), shuffled(layer.w2, 128, False)
    packed = (layer.ids.int() << 16) | (renormalised.to(BF16).view(torch.int16).int() & 0xFFFF)
    for options, weights in (({"use_shuffled_weight": False, "weight_layout": 0}, (layer.w1, layer.w2)),
                             ({"weight_layout": 0}, ordered), ({}, tuple(map(in_blocks, ordered)))):
        replay = torch.full((9, 2), -1, dtype=torch.int16)
        out = flashinfer.trtllm_bf16_moe(layer.logits, None, layer.x, *weights, **layer.numbers, routing_method_type=1,
                                         routing_replay_out=replay, **options)
        check(out, want)
        assert torch.equal(replay[:7].long(), layer.ids) and (replay[7:] == -1).all()
        for routed in (packed, (layer.ids.int(), renormalised)):
            check(flashinfer.trtllm_bf16_routed_moe(routed, layer.x, *weights, **layer.numbers, **options), want)


@pytest.mark.parametrize("method", range(11))
def test_routing(method):
    """Tests the experts and weights of each method, with 8 experts in 4 groups."""
    layer, bias = Layer(experts=8, top_k=2), torch.arange(8) / 16
    options = {"n_group": 4, "topk_group": 2, "routed_scaling_factor": 2.5} if method == 2 else {}
    top_k = 1 if method == 3 else 2
    softmax, sigmoid = layer.logits.double().softmax(-1), torch.sigmoid(layer.logits.double())
    chosen_by = softmax if method in (0, 1, 4) else sigmoid + (bias if method in (2, 7) else 0)
    if method == 2:
        groups = chosen_by.unflatten(1, (4, 2)).sum(2).topk(2).indices
        mask = torch.zeros(7, 4).scatter_(1, groups, 1).bool().repeat_interleave(2, 1)
        chosen_by = chosen_by.masked_fill(~mask, -torch.inf)
    ids = chosen_by.topk(top_k).indices
    weights = (softmax if method in (0, 1, 4) else sigmoid).gather(1, ids)
    if method in (1, 2, 4, 6, 7):
        weights = weights / weights.sum(1, keepdim=True)
    call = lambda: flashinfer.trtllm_bf16_moe(  # noqa: E731
        layer.logits, bias if method in (2, 7) else None, layer.x, layer.w1, layer.w2, **{**layer.numbers, **options, "top_k": top_k},
        routing_method_type=method, use_shuffled_weight=False, weight_layout=0)
    if method in (5, 10):
        with pytest.raises(NotImplementedError, match="trtllm_bf16_moe: routing_method_type is RoutingMethodType"):
            call()
        return
    check(call(), layer.want(weights=weights * (2.5 if method == 2 else 1), ids=ids))


def test_trtllm_of_fp8_blocks():
    layer = Layer(hidden=256)
    (x, x_scale, x_wide), (w1, scale1, wide1), (w2, scale2, wide2) = by_rows(layer.x), by_blocks(layer.w1), by_blocks(layer.w2)
    renormalised = layer.weights / layer.weights.sum(1, keepdim=True)
    want = layer.want(x=x_wide, w1=wide1, w2=wide2, weights=renormalised)
    for options, weights in (({}, (w1, w2)), ({"use_shuffled_weight": True}, (shuffled(w1, 64, False), shuffled(w2, 64, False))),
                             ({"weight_layout": 2}, (in_blocks(w1.view(torch.uint8)).view(FP8), in_blocks(w2.view(torch.uint8)).view(FP8)))):
        arguments = {"hidden_states": x, "hidden_states_scale": x_scale.T.contiguous(), "gemm1_weights": weights[0],
                     "gemm1_weights_scale": scale1, "gemm2_weights": weights[1], "gemm2_weights_scale": scale2, **layer.numbers,
                     "routed_scaling_factor": None, "routing_method_type": 1, **options}
        check(flashinfer.trtllm_fp8_block_scale_moe(layer.logits, None, **arguments), want, 2 ** -4)
        check(flashinfer.trtllm_fp8_block_scale_routed_moe((layer.ids.int(), renormalised), None, **arguments), want, 2 ** -4)


def test_trtllm_of_fp8_tensors():
    layer = Layer()
    x, w1, w2 = (t.to(FP8) for t in (layer.x, layer.w1, layer.w2))
    gates, ups, last = (torch.rand(6, generator=torch.Generator().manual_seed(i)) + 0.5 for i in range(3))
    wide1 = w1.double() * torch.cat([ups[:, None].expand(6, 128), gates[:, None].expand(6, 128)], 1)[..., None]
    renormalised = layer.weights / layer.weights.sum(1, keepdim=True)
    want = layer.want(x=x, w1=wide1, w2=w2.double() * last[:, None, None], weights=renormalised,
                      between=lambda h: h.float().to(FP8).double())
    arguments = {"hidden_states": x, "gemm1_weights": shuffled(w1, 128, True), "output1_scales_scalar": ups, "output1_scales_gate_scalar": gates,
                 "gemm2_weights": shuffled(w2, 128, False), "output2_scales_scalar": last, **layer.numbers, "routed_scaling_factor": None,
                 "use_routing_scales_on_input": False, "routing_method_type": 1}
    check(flashinfer.trtllm_fp8_per_tensor_scale_moe(layer.logits, None, **arguments), want, 2 ** -5)
    check(flashinfer.trtllm_fp8_per_tensor_scale_routed_moe((layer.ids.int(), renormalised), None, **arguments), want, 2 ** -5)


# ---- refused

@pytest.mark.parametrize("name", ["trtllm_fp4_block_scale_moe", "trtllm_fp4_block_scale_routed_moe", "cute_dsl_fused_moe",
                                  "cute_dsl_fused_moe_nvfp4", "cute_dsl_fused_moe_mxfp8_mxfp4", "b12x_fused_moe", "CuteDslMoEWrapper",
                                  "CuteDslMxfp8Mxfp4MoEWrapper", "B12xMoEWrapper", "cudnn_frost_grouped_gemm1_swiglu"])
def test_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=rf"{name}: .*(choose a model in bf16 or FP8|call cutlass_fused_moe).*docs/flashinfer.md"):
        getattr(flashinfer, name)(1, x=2)


def test_wrong_layers():
    layer = Layer()
    for options, kind, message in (
            ({"quant_scales": [torch.ones(6)] * 4}, ValueError, "quant_scales is a list of 4; accepted with weights of torch.bfloat16: None"),
            ({"token_final_scales": layer.weights[:, :1]}, ValueError, r"token_final_scales has shape \[7, 1\], needs \[7, 2\]"),
            ({"fc2_expert_weights": layer.w2[:5]}, ValueError, r"fc2_expert_weights has shape \[5, 128, 128\], needs \[6, 128, 128\]"),
            ({"swiglu_limit": torch.arange(6.0)}, NotImplementedError, "swiglu_limit has different numbers; accepted: one for all experts"),
            ({"activation_type": 6}, NotImplementedError, "activation_type is ActivationType.Relu2"),
            ({"activation_type": 77}, ValueError, "activation_type is 77; accepted: Gelu"),
            ({"tp_size": 2, "fc2_expert_biases": torch.ones(6, 128)}, NotImplementedError, "fc2_expert_biases is a Tensor with tp_size 2"),
            ({"ep_rank": 1}, ValueError, "ep_rank is 1; accepted: an integer from 0 to 0")):
        with pytest.raises(kind, match=f"cutlass_fused_moe: {message}"):
            layer.cutlass(**options)
