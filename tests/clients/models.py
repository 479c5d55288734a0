# SPDX-License-Identifier: Apache-2.0
"""The clients' models, small and with random weights, and how two runs of a model are compared."""

import torch
from diffusers import FluxTransformer2DModel, SD3Transformer2DModel
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

DECODERS = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen3": (Qwen3Config, Qwen3ForCausalLM)}
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def spread_norms(model):
    """Gives norms random weights. They start as ones, and an op that forgot them would pass."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1 and "norm" in name and name.endswith("weight"):
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model.eval()


def decoder(name, dtype, hidden=256, layers=4):
    """Makes a decoder. Its logits spread like a trained model's, so that layers and not only embeddings show in
    them."""
    config, model = DECODERS[name]
    torch.manual_seed(7)
    return spread_norms(model(config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64, num_key_value_heads=hidden // 128 or 1,
        head_dim=64, intermediate_size=2 * hidden, vocab_size=512, initializer_range=hidden**-0.5, pad_token_id=0,
        tie_word_embeddings=False))).to(dtype)


def tokens(batch=2, n=33):
    return {"input_ids": torch.randint(1, 512, (batch, n), generator=torch.Generator().manual_seed(3))}


def flux(dtype, hidden=256, layers=2, single_layers=2):
    torch.manual_seed(8)
    model = FluxTransformer2DModel(
        in_channels=16, num_layers=layers, num_single_layers=single_layers, attention_head_dim=64,
        num_attention_heads=hidden // 64, joint_attention_dim=48, pooled_projection_dim=32, axes_dims_rope=(16, 24, 24))
    return spread_norms(model).to(dtype)


def sd3(dtype):
    torch.manual_seed(9)
    return spread_norms(SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=64, num_attention_heads=2,
        joint_attention_dim=48, caption_projection_dim=128, pooled_projection_dim=32, out_channels=4, pos_embed_max_size=8,
        qk_norm="rms_norm")).to(dtype)


def scene(dtype, batch=2, side=6, text=8):
    """Makes a picture of side * side patches, and a text."""
    generator = torch.Generator().manual_seed(4)
    ids = torch.zeros(side * side, 3)
    ids[:, 1:] = torch.cartesian_prod(torch.arange(side), torch.arange(side))
    return {"hidden_states": torch.randn(batch, side * side, 16, generator=generator).to(dtype),
            "encoder_hidden_states": torch.randn(batch, text, 48, generator=generator).to(dtype),
            "pooled_projections": torch.randn(batch, 32, generator=generator).to(dtype),
            "timestep": torch.full((batch,), 0.5, dtype=dtype), "img_ids": ids, "txt_ids": torch.zeros(text, 3)}


def put(inputs, where):
    return {name: x.to(where) for name, x in inputs.items()}


def in_double(inputs):
    return {name: x.double() if x.is_floating_point() and "ids" not in name else x for name, x in inputs.items()}


def _tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    return [t for t in (output.values() if isinstance(output, dict) else output) if isinstance(t, torch.Tensor)]


def layers_of(model):
    """Returns the blocks, and those modules in them whose result a patched model has as well."""
    kinds = ("DecoderLayer", "Attention", "MLP", "Experts", "TransformerBlock", "FeedForward", "AdaLayerNorm")
    return [(path, m) for path, m in model.named_modules() if any(kind in type(m).__name__ for kind in kinds)]


def run(model, inputs):
    """Returns {layer's path: its results, in double}, with the whole model's as ""."""
    seen = {}

    def keep(path):
        return lambda module, arguments, output: seen.update({path: [t.double() for t in _tensors(output)]})

    hooks = [layer.register_forward_hook(keep(path)) for path, layer in layers_of(model)]
    try:
        with torch.inference_mode():
            output = model(**inputs)
        seen[""] = [_tensors(output)[0].double()]
    finally:
        for hook in hooks:
            hook.remove()
    return seen


def error(got, want):
    """Returns the root of the mean square error relative to that of the values."""
    return float((got - want).norm() / want.norm())


def assert_as_good(patched, plain, exact, dtype):
    """At each layer the patched model is about as far from the exact one as the unpatched one is.

    Both make roundings of the dtype, the patched one fewer, and different ones: hence twice, and one rounding's width for
    where the unpatched one happens to make none.
    """
    assert patched.keys() == plain.keys() == exact.keys() and len(exact) >= 4
    unit = torch.finfo(dtype).eps / 2
    for path, results in exact.items():
        for ours, theirs, want in zip(patched[path], plain[path], results, strict=True):
            limit = 2 * error(theirs, want) + unit
            assert error(ours, want) <= limit, f"{path}: error {error(ours, want):.2e}, limit {limit:.2e}"
