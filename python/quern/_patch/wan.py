# SPDX-License-Identifier: Apache-2.0
"""diffusers' Wan: rotation of queries and keys, one pass for a gated residual and the LayerNorm after it, and one product with the
gate and the residual behind the feed-forward layer."""

import torch

from . import Replacement, Unfit, norms, trial
from .blocks import fed_forward, halfway
from .processors import Processor, has

# ---- attention: by diffusers' own hook, the processor


def is_rotated(module):
    """Returns whether a module is Wan's self-attention. Nothing is rotated in its attention to the text, and norms are modules."""
    return has("WanAttnProcessor")(module) and not module.is_cross_attention


def _rotated(run, x, tables):
    """Returns x [batch, n, heads, d] with pairs of neighbours rotated; tables [1, n, 1, d] have each angle twice."""
    cos, sin = (t[0, :, 0].contiguous() for t in tables)
    recorded = run.trained("qk_rmsnorm_rope", x, None, None, None, cos, sin, 0, 0.0, 1)
    if recorded is not None:
        return recorded[0]
    out = torch.empty_like(x)
    run("qk_rmsnorm_rope", out, None, x, None, None, None, cos, sin, 0, 0.0, 1)
    return out


class WanProcessor(Processor):
    """A WanAttnProcessor of self-attention whose queries and keys quern rotates."""
    functions = {"_projections": "_get_qkv_projections", "_attend": "dispatch_attention_fn"}

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        if encoder_hidden_states is not None or attn.add_k_proj is not None or rotary_emb is None:
            raise ValueError("patched WanAttnProcessor: of self-attention; accepted: no encoder_hidden_states and no added projections, "
                             "and rotary_emb (cos, sin)")
        q, k, v = self._projections(attn, hidden_states, None)
        q, k, v = (x.unflatten(2, (attn.heads, -1)) for x in (attn.norm_q(q), attn.norm_k(k), v))
        q, k = (_rotated(self._run, x, rotary_emb) for x in (q, k))
        out = self._attend(q, k, v, attn_mask=attention_mask, dropout_p=0.0, is_causal=False, backend=self._attention_backend,
                           parallel_config=self._parallel_config)
        return attn.to_out[1](attn.to_out[0](out.flatten(2, 3).type_as(q)))


def _small_attention(module):
    parts = {name: trial.linear(8, 16) for name in ("to_q", "to_k", "to_v")}
    parts["to_out"] = torch.nn.ModuleList([trial.linear(16, 8), torch.nn.Identity()])
    for name in ("norm_q", "norm_k"):
        parts[name] = torch.nn.RMSNorm(16, eps=1e-6)
    twin = trial.twin(module, modules=parts)
    twin.__dict__.update(heads=2, fused_projections=False)
    return twin


def attention(run, module):
    original, twin = module.processor, _small_attention(module)
    angles = trial.numbers(1, 5, 1, 4).repeat_interleave(2, -1)
    arguments = {"hidden_states": trial.numbers(2, 5, 8), "rotary_emb": (angles.cos(), angles.sin())}
    want = trial.run(trial.native(original), twin, **arguments)
    if not trial.agree(trial.run(WanProcessor(run.plain, trial.native(original)), twin, **arguments), want):
        raise Unfit("it computes something else than quern's WanAttnProcessor")
    module.set_processor(WanProcessor(run, original))
    return Replacement("rope", undo=lambda: module.set_processor(original), is_trained=True)


# ---- the block

def is_block(module):
    return type(module).__name__ == "WanTransformerBlock"


def _modulation(block, temb):
    """Returns six tensors [n, h] in f32; n is a number of batches or, if each token has its own, of tokens."""
    table = block.scale_shift_table.float()
    parts = (table + temb.float() if temb.ndim == 3 else table.unsqueeze(0) + temb.float()).unbind(-2)
    return [part.reshape(-1, part.shape[-1]) for part in parts]


def _affine(norm, n):
    """Returns (scale, shift) [n, h] that stand for the norm's weights."""
    return (norm.weight.float() - 1).expand(n, -1), norm.bias.float().expand(n, -1)


def _block_function(run):
    def forward(self, hidden_states, encoder_hidden_states, temb, rotary_emb):
        shift, scale, gate, shift_ff, scale_ff, gate_ff = _modulation(self, temb)
        shape = hidden_states.shape
        x = hidden_states.reshape(len(scale), -1, shape[-1])  # what shares a row of the modulation stands together
        normed = norms.modulate(run, x, scale, shift, self.norm1.eps)
        attended = self.attn1(normed.view(shape), None, None, rotary_emb).view(x.shape)
        if isinstance(self.norm2, torch.nn.LayerNorm):
            x, normed = halfway(run, self.norm2, x, attended, gate, *_affine(self.norm2, len(scale)))
        else:
            x = normed = (x.float() + attended * gate.unsqueeze(1)).type_as(x)
        attended = self.attn2(normed.view(shape), encoder_hidden_states, None, None).view(x.shape)
        x, normed = halfway(run, self.norm3, x, attended, torch.ones_like(gate), scale_ff, shift_ff)
        return fed_forward(run, self.ffn, x.view(shape), normed.view(shape), gate_ff)

    return forward


def _small_block(module):
    has_norm = isinstance(module.norm2, torch.nn.LayerNorm)
    with torch.random.fork_rng(devices=[]):
        small = type(module)(dim=16, ffn_dim=24, num_heads=2, cross_attn_norm=has_norm).eval()
    for name in ("norm1", "norm2", "norm3")[:: 1 if has_norm else 2]:
        getattr(small, name).eps = getattr(module, name).eps
    small.scale_shift_table.data = trial.numbers(1, 6, 16)
    if has_norm:
        small.norm2.weight, small.norm2.bias = trial.weights(16), trial.weights(16)
    return small


def block(run, module):
    """Replaces a block with its norms; all other parts are looked at by themselves."""
    if not norms.is_bare_layernorm(module.norm1) or not norms.is_bare_layernorm(module.norm3):
        raise Unfit("its first or third norm has weights or is no LayerNorm")
    if isinstance(module.norm2, torch.nn.LayerNorm) and (module.norm2.weight is None or module.norm2.bias is None):
        raise Unfit("its second norm lacks a weight or a bias")
    small, angles = _small_block(module), trial.numbers(1, 5, 1, 4).repeat_interleave(2, -1)
    for shape in ((2, 6, 16), (2, 5, 6, 16)):
        arguments = {"hidden_states": trial.rows(2, 5, 16), "encoder_hidden_states": trial.numbers(2, 3, 16),
                     "temb": trial.numbers(*shape), "rotary_emb": (angles.cos(), angles.sin())}
        want = trial.run(type(module).forward, small, **arguments)
        if not trial.agree(trial.run(_block_function(run.plain), small, **arguments), want):
            raise Unfit("it computes something else than quern's WanTransformerBlock")
    return Replacement("gated_residual_layernorm", _block_function(run),
                       {norm: None for norm in (module.norm1, module.norm2, module.norm3) if isinstance(norm, torch.nn.LayerNorm)},
                       is_trained=True)
