# SPDX-License-Identifier: Apache-2.0
"""The decoders of whole_test.py, small and with random weights, and FP8 for them."""

import copy

import torch
import transformers
from models import spread_norms
from transformers import FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

_COMMON = {"num_hidden_layers": 2, "vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 1, "tie_word_embeddings": False}


def _llama(hidden):
    return {"hidden_size": hidden, "intermediate_size": 2 * hidden, "num_attention_heads": hidden // 64,
            "num_key_value_heads": hidden // 128, "head_dim": 64, "initializer_range": hidden**-0.5}


# Gemma 2's scores go beyond the soft cap, and texts beyond gpt-oss's and Gemma 2's windows.
CONFIGS = {
    "Llama": _llama,
    "Qwen3": _llama,
    "Gemma2": lambda hidden: {**_llama(hidden), "sliding_window": 16, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16,
                              "final_logit_softcapping": 30.0},
    "GptOss": lambda hidden: {**_llama(hidden), "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": hidden,
                              "sliding_window": 16},
    "DeepseekV3": lambda hidden: {
        **_llama(hidden), "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 128, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 1,
        "moe_intermediate_size": 128, "n_routed_experts": 16, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 4,
        "n_shared_experts": 1, "routed_scaling_factor": 2.5},
}


def decoder(name, hidden, dtype=torch.bfloat16):
    """Makes a decoder of two layers. Weights that start as zeros, such as biases and sinks, are random as well, and queries are
    large, so that attention prefers some keys to others."""
    torch.manual_seed(7)
    config = getattr(transformers, name + "Config")(**_COMMON, **CONFIGS[name](hidden))
    config._attn_implementation = "eager" if name in ("Gemma2", "GptOss") else "sdpa"  # PyTorch's function has no soft cap, no sinks
    config._experts_implementation = "eager"
    model = spread_norms(getattr(transformers, name + "ForCausalLM")(config))
    for path, x in [*model.named_parameters(), *model.named_buffers()]:
        if path.endswith(("bias", "sinks")):
            torch.nn.init.normal_(x.data, std=0.2)
        if path.endswith(("q_norm.weight" if name == "Qwen3" else "q_proj.weight", "q_b_proj.weight")):
            x.data *= 2
    return model.to(dtype)


# ---- FP8: transformers' own modules, whose weights are quantised here as DeepSeek-V3's checkpoints are

def _quantized(weight):
    """Returns weight [..., n, k] as e4m3fn and the scales of its blocks of 128 x 128."""
    n, k = weight.shape[-2:]
    rows, columns = -(-n // 128), -(-k // 128)
    padded = torch.nn.functional.pad(weight.float(), (0, 128 * columns - k, 0, 128 * rows - n))
    blocks = padded.unflatten(-1, (columns, 128)).unflatten(-3, (rows, 128))
    scale = (blocks.abs().amax((-3, -1)) / 448).clamp(min=1e-12)
    return (weight.float() / _spread(scale, n, k)).to(torch.float8_e4m3fn), scale


def _spread(scale, n, k):
    return scale.repeat_interleave(128, -2)[..., :n, :].repeat_interleave(128, -1)[..., :k]


def in_fp8(model):
    """Returns the model with FP8 weights in all layers and experts but the routers and the last one."""
    result = replace_with_fp8_linear(copy.deepcopy(model), ["lm_head", "gate"], FineGrainedFP8Config(weight_block_size=(128, 128)))
    kept = dict(model.named_parameters())
    for path, module in result.named_modules():
        for name in [name for name, x in module._parameters.items() if x is not None and x.dtype == torch.float8_e4m3fn]:
            q, scale = _quantized(kept[f"{path}.{name}"])
            setattr(module, name, torch.nn.Parameter(q, False))
            setattr(module, name + "_scale_inv", torch.nn.Parameter(scale, False))
    return result.eval()


def _product(dtype):
    def product(x, weight, weight_scale_inv, *_, **__):
        """Is transformers' FP8 product by its definition: x by groups of 128 in FP8, all else in dtype, or f32 for 16 bits."""
        wide = torch.promote_types(dtype, torch.float32)
        groups = torch.nn.functional.pad(x, (0, -x.shape[-1] % 128)).unflatten(-1, (-1, 128)).float()
        scale = (groups.abs().amax(-1, keepdim=True) / 448).clamp(min=1e-12)
        q = ((groups / scale).to(torch.float8_e4m3fn).to(wide) * scale).flatten(-2)[..., :x.shape[-1]]
        return (q @ (weight.to(wide) * _spread(weight_scale_inv, *weight.shape).to(wide)).T).to(x.dtype)

    return product


def by_definition(model, dtype):
    """Returns a copy of an FP8 model that computes in dtype what FP8Linear and FP8Experts are defined to."""
    result = copy.deepcopy(model)
    product = _product(dtype)
    for module in result.modules():
        fp8 = {name: x for name, x in module._parameters.items() if x is not None and x.dtype == torch.float8_e4m3fn}
        if type(module).__name__ == "FP8Linear":
            module.forward = lambda x, m=module: product(x, m.weight, m.weight_scale_inv)
        elif fp8:
            module.linear = product
    for module in result.modules():
        for name, x in [*module._parameters.items(), *module._buffers.items()]:
            if x is not None and x.is_floating_point() and x.dtype != torch.float8_e4m3fn and "scale_inv" not in name:
                x.data = x.data.to(dtype)
    return result
