# SPDX-License-Identifier: Apache-2.0
"""Routers and experts of transformers, and attention over compressed keys (MLA), by themselves: which are quern's, which are left
alone, and calls that whole models rarely make."""

import logging

import pytest
import quern
import torch
import transformers
from decoder_test import calls_of
from models import error, tokens
from whole import by_quern
from whole_decoders import decoder, in_fp8

SMALL = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64,
         "vocab_size": 64, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "initializer_range": 0.09, "num_experts_per_tok": 2}
GROUPED = {"n_routed_experts": 8, "moe_intermediate_size": 64, "n_group": 4, "topk_group": 2, "first_k_dense_replace": 0,
           "n_shared_experts": 1}

# Name, options; each has a router and experts of its own rule.
MIXTURES = [
    ("Mixtral", {"num_local_experts": 4}),
    ("Qwen3Moe", {"num_experts": 8, "moe_intermediate_size": 64, "norm_topk_prob": True}),
    ("Qwen3Moe", {"num_experts": 8, "moe_intermediate_size": 64, "norm_topk_prob": False}),
    ("Olmoe", {"num_experts": 8, "hidden_act": "gelu_pytorch_tanh"}),
    ("Glm4Moe", {**GROUPED, "head_dim": 32, "routed_scaling_factor": 1.5}),
    ("DeepseekV3", {**GROUPED, "norm_topk_prob": False}),
    ("GptOss", {"num_local_experts": 4}),
]


def listed(*modules):
    return torch.nn.ModuleList(modules).eval()


def mixture(name, options, dtype):
    """Returns a model's router and experts."""
    torch.manual_seed(7)
    config = getattr(transformers, name + "Config")(**{**SMALL, **options})
    config._experts_implementation = "eager"
    model = getattr(transformers, name + "ForCausalLM")(config).eval()
    for path, x in [*model.named_parameters(), *model.named_buffers()]:
        if path.endswith("bias"):
            torch.nn.init.normal_(x.data, std=0.3)
    parts = [[m for m in model.modules() if type(m).__name__.endswith(end)] for end in ("Router", "Experts")]
    return listed(parts[0][0], parts[1][0]).to(dtype).requires_grad_(False)


def dense(result):
    """Returns the weights of a router's result at their experts' columns."""
    logits, weights, ids = result
    return torch.zeros(logits.shape, dtype=torch.float64).scatter(1, ids, weights.double())


@pytest.mark.parametrize("name, options", MIXTURES)
def test_routers(name, options):
    """Tests routers of f32, whose experts no rounding changes: PyTorch multiplies, and quern chooses and weighs."""
    pair, x = mixture(name, options, torch.float32), 3 * torch.randn(50, 128)
    want = pair[0](x)
    with quern.patch(pair) as patch:
        got = pair[0](x)
        assert patch.counts == {"moe_route": 1} and calls_of(patch) == {"moe_route": 1}
        assert "its weights are torch.float32; quern takes bf16 and f16" in patch.left[0][2]
    assert got[2].dtype == torch.int64
    torch.testing.assert_close(got[0], want[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dense(got), dense(want), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name, options", MIXTURES)
def test_experts(name, options, dtype):
    """Tests tokens of all experts, of one, and none, by the numbers of a router."""
    pair, x = mixture(name, options, dtype), torch.randn(30, 128).to(dtype)
    experts = pair[1]
    ids, weights = torch.rand(30, experts.num_experts).topk(2).indices, torch.rand(30, 2)
    ids[:10] = torch.tensor([[1, 2]])
    plain = experts(x, ids, weights.to(dtype))
    exact = mixture(name, options, torch.float64)[1](x.double(), ids, weights.double())
    with quern.patch(pair, linears="all") as patch:
        assert patch.counts == {"moe_route": 1, "fused_moe": 1}
        got = experts(x, ids, weights)
        assert calls_of(patch) == {"fused_moe": 1} and got.dtype == dtype
        assert torch.equal(experts(x[:10], ids[:10], weights[:10]), got[:10])
        assert experts(x[:0], ids[:0], weights[:0]).shape == (0, 128)
        with pytest.raises(NotImplementedError, match="its input is torch.float32; accepted: bf16, f16"):
            experts(x.float(), ids, weights)
    assert error(got.double(), exact) <= 2 * error(plain.double(), exact) + torch.finfo(dtype).eps / 2


def test_experts_that_are_elsewhere():
    """Tests expert-parallel models, in which the number behind the last stands for experts of other devices."""
    experts, x = mixture(*MIXTURES[0], torch.bfloat16)[1], torch.randn(6, 128).bfloat16()
    ids, weights = torch.tensor([[0, 4], [4, 4], [3, 1]] * 2), torch.rand(6, 2)
    want = experts(x, ids, weights)
    experts._is_expert_parallel = True
    with quern.patch(listed(experts), linears="all"):
        got = experts(x, ids, weights)
    assert not got[1].any()
    torch.testing.assert_close(got, want, rtol=2.0**-6, atol=2.0**-6)


# ---- what is left alone

class ScaledRouter(torch.nn.Module):
    """A router whose weights are no scores."""

    def __init__(self):
        super().__init__()
        self.weight, self.top_k = torch.nn.Parameter(torch.randn(4, 128)), 2

    def forward(self, x):
        logits = x @ self.weight.T
        best = logits.topk(2)
        return logits, best.values, best.indices


def left(module, **options):
    with quern.patch(listed(module), **options) as patch:
        assert not patch.replaced
        return patch.left[0][2]


def test_left_alone():
    assert "chooses or weighs experts in another way than moe_route" in left(ScaledRouter())
    experts = mixture(*MIXTURES[0], torch.bfloat16)[1]
    assert "quern was not measured to be faster; linears='all' takes quern's" in left(experts)
    assert "linears is 'none'" in left(experts, linears="none")
    experts.act_fn = torch.nn.ReLU()
    assert "its activation is none of silu, gelu and gelu's tanh form" in left(experts, linears="all")
    experts.forward = lambda x, ids, weights: x
    assert "something else has replaced its forward" in left(experts, linears="all")


def fp8_experts():
    return in_fp8(decoder("DeepseekV3", 256)).model.layers[1].mlp.experts


def test_fp8_experts_of_other_kinds():
    with quern.patch(listed(fp8_experts())) as patch:  # quern's unless linears is "none"
        assert patch.counts == {"fused_moe": 1}
    assert "linears is 'none'" in left(fp8_experts(), linears="none")
    experts = fp8_experts()
    experts.block_size = (64, 128)
    assert "its blocks are (64, 128), its scheme 'dynamic'; quern takes 128 x 128 and 'dynamic'" in left(experts)
    experts = fp8_experts()
    experts.down_proj_scale_inv = torch.nn.Parameter(torch.ones(16, 2, 2), False)
    assert "the scales of its down_proj are (16, 2, 2) of torch.float32; quern takes (16, 2, 1) of f32" in left(experts)


# ---- attention over compressed keys

def mla_calls(model, inputs, **options):
    with by_quern(model, None) as whole, torch.inference_mode():
        result = model.generate(**inputs, max_new_tokens=3, do_sample=False, output_logits=True, return_dict_in_generate=True)
        return calls_of(whole.patch).get("mla_decode", 0), result


def test_a_batch_decodes_from_compressed_keys():
    model, inputs = decoder("DeepseekV3", 128), tokens(3, 7)
    count, together = mla_calls(model, inputs)
    assert count == 2 * 2  # two layers, two tokens behind the prompt's
    for row in range(3):
        _, alone = mla_calls(model, {"input_ids": inputs["input_ids"][row:row + 1]})
        assert error(torch.stack(together.logits)[0, row], torch.stack(alone.logits)[0, 0]) < 2.0**-6


def test_padding_is_expanded():
    """Tests that a batch with a mask, which the op has not, gets the same as by the model's own code. In f32: roundings to bf16
    would send a token to another expert."""
    model, mask = decoder("DeepseekV3", 128, torch.float32), torch.ones(2, 7, dtype=torch.int64)
    mask[1, :3] = 0
    inputs = tokens(2, 7) | {"attention_mask": mask}
    with torch.inference_mode():
        want = model.generate(**inputs, max_new_tokens=3, do_sample=False, output_logits=True, return_dict_in_generate=True)
    count, got = mla_calls(model, inputs)
    assert count == 0
    assert error(torch.stack(got.logits)[0], torch.stack(want.logits)[0]) < 2.0**-16


def test_halves_are_rotated_where_pairs_are_not():
    model = decoder("DeepseekV3", 128)
    model.config.rope_interleave = False
    with torch.inference_mode():
        want = model(**tokens(1, 9)).logits
        model.config.rope_interleave = True
        other = model(**tokens(1, 9)).logits
        model.config.rope_interleave = False
        with by_quern(model, None):
            got = model(**tokens(1, 9)).logits
    assert error(got, want) < 2.0**-5 < error(other, want)


def test_a_slow_kernel_is_told_and_not_taken(caplog):
    """Tests f32, for which a GPU has the slow kernel alone: keys are expanded in its place, unless it is asked for."""
    model, inputs = decoder("DeepseekV3", 128, torch.float32), tokens(1, 3)
    for allow_slow, count in ((False, 0), (True, 2)):
        caplog.clear()
        with quern.patch(model, "sim:gfx942", allow_slow=allow_slow) as patch, caplog.at_level(logging.WARNING, "quern.patch"):
            model.generate(**inputs, max_new_tokens=2, do_sample=False)
            assert patch.calls["mla_decode", "mla.gpu_any"] == count
        told = [r.getMessage() for r in caplog.records if "mla" in r.getMessage()]
        assert len(told) == 1 and ("patch(allow_slow=True) takes it all the same" in told[0]) == (not allow_slow)


def test_changed_fp8_weights_are_expanded_anew():
    model = in_fp8(decoder("DeepseekV3", 256))
    attention = model.model.layers[0].self_attn
    x, tables = torch.randn(1, 1, 256).bfloat16(), (torch.ones(1, 1, 64).bfloat16(), torch.zeros(1, 1, 64).bfloat16())
    with quern.patch(attention, linears="all") as patch, torch.no_grad():
        first, _ = attention(x, tables, None)
        attention(x, tables, None)
        assert calls_of(patch)["dequantize_fp8"] == 1
        attention.kv_b_proj.weight.copy_(-attention.kv_b_proj.weight.float())
        second, _ = attention(x, tables, None)
        assert calls_of(patch)["dequantize_fp8"] == 2 and torch.equal(second, -first)


def test_other_attentions_over_compressed_keys_are_named():
    options = {"q_lora_rank": 64, "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32}
    model = transformers.MiniCPM3ForCausalLM(transformers.MiniCPM3Config(**{**SMALL, **options, "num_key_value_heads": 4})).eval()
    with quern.patch(model) as patch:
        assert "mla" not in patch.counts
        assert [why for _, name, why in patch.left if name == "MiniCPM3Attention"] == [
            "of attentions over compressed keys quern knows those of which the cache is compressed, as DeepseekV3Attention's"]
