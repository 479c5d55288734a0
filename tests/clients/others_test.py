# SPDX-License-Identifier: Apache-2.0
"""Models that quern.patch was not written for: what of them computes the same is replaced, and the rest is named."""

import copy

import pytest
import quern
import torch
import transformers
from decoder_test import calls_of
from models import assert_as_good, run, spread_norms, tokens

SIZES = {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 512,
         "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1, "initializer_range": 0.09}
GROUPED = {**SIZES, "num_key_value_heads": 2}

# Name, options, kinds replaced, classes left alone beside the tables of angles.
OTHERS = [
    ("Gemma2", {**GROUPED, "head_dim": 32}, {"gemma_rmsnorm": 9, "gelu_tanh_and_mul": 2, "rope": 2}, set()),
    ("Phi3", GROUPED, {"rmsnorm": 5, "silu_and_mul": 2, "rope": 2}, set()),
    ("GPTNeoX", SIZES, {"layernorm": 5, "rope": 2}, {"GELUActivation"}),  # a quarter of each head is rotated
    ("Glm4", {**GROUPED, "head_dim": 32}, {"rmsnorm": 9, "silu_and_mul": 2}, {"Glm4Attention"}),  # pairs, not halves
    ("Cohere", GROUPED, {"silu_and_mul": 2}, {"CohereAttention", "CohereLayerNorm"}),
]


@pytest.mark.parametrize("name, options, kinds, left", OTHERS, ids=[row[0] for row in OTHERS])
def test_other_decoders(name, options, kinds, left):
    torch.manual_seed(9)
    model = spread_norms(getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**options)))
    exact, plain = run(copy.deepcopy(model).double(), tokens()), run(model, tokens())
    with quern.patch(model) as patch:
        assert patch.counts == kinds
        assert {kind for _, kind, _ in patch.left if "RotaryEmbedding" not in kind} == left
        patched = run(model, tokens())
        assert calls_of(patch) == {"qk_rmsnorm_rope" if kind == "rope" else kind: n for kind, n in kinds.items()}
    assert_as_good(patched, plain, exact, torch.float32)
