# SPDX-License-Identifier: Apache-2.0
"""diffusers' FLUX: one pass for head norms, rotation and the joining of text and image, one for gated residual and
LayerNorm, and one product with the gate and the residual behind a feed-forward layer."""

import torch

from ..torch._gradients import is_needed
from . import Replacement, Unfit, norms, trial
from .blocks import second_half
from .linear import multiply, want
from .processors import Processor


# ---- attention: by diffusers' own hook, the processor

class FluxProcessor(Processor):
    """A FluxAttnProcessor whose queries and keys quern norms, rotates and, with text, joins."""
    functions = {"_projections": "_get_qkv_projections", "_attend": "dispatch_attention_fn"}

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, image_rotary_emb=None):
        if image_rotary_emb is None:
            raise ValueError("patched FluxAttnProcessor: image_rotary_emb is None, needs (cos, sin)")
        projections = self._projections(attn, hidden_states, encoder_hidden_states)
        if attn.added_kv_proj_dim is None:
            projections = projections[:3]
        q, k, v, *text = (p.unflatten(-1, (-1, attn.head_dim)) for p in projections)
        q, k = self._join(attn, q, k, text[:2], image_rotary_emb)
        if text:
            v = torch.cat((text[2], v), dim=1)
        out = self._attend(q, k, v, attn_mask=attention_mask, backend=self._attention_backend,
                           parallel_config=self._parallel_config)
        return _project_out(attn, out.flatten(2, 3).to(q.dtype), encoder_hidden_states)

    def _join(self, attn, q, k, text, tables):
        """Returns queries and keys [batch, n, heads, d], normed and rotated; those of the text stand first."""
        start = text[0].shape[1] if text else 0
        image = q, k, attn.norm_q, attn.norm_k, [t[start:] for t in tables]
        sides = [(*text, attn.norm_added_q, attn.norm_added_k, [t[:start] for t in tables]), image] if text else [image]
        if is_needed(*(t for q, k, *both, _ in sides for t in (q, k, *(norm.weight for norm in both)))):
            return [torch.cat(parts, 1) for parts in zip(*(self._recorded(*side) for side in sides), strict=True)]
        q_all, k_all = (torch.empty((t.shape[0], start + t.shape[1], *t.shape[2:]), dtype=t.dtype, device=t.device)
                        for t in (q, k))
        self._rotate(q_all[:, start:], k_all[:, start:], *image)
        if text:
            self._rotate(q_all[:, :start], k_all[:, :start], *sides[0])
        return q_all, k_all

    def _recorded(self, q, k, q_norm, k_norm, tables):
        """Returns new queries and keys, normed and rotated, which autograd records if it needs them."""
        tables = [t.to(q.device) for t in tables]
        both = self._run.trained("qk_rmsnorm_rope", q, k, q_norm.weight, k_norm.weight, *tables, 0, q_norm.eps, 1)
        if both is None:
            both = torch.empty_like(q), torch.empty_like(k)
            self._rotate(*both, q, k, q_norm, k_norm, tables)
        return both

    def _rotate(self, q_out, k_out, q, k, q_norm, k_norm, tables):
        tables = [t.to(q.device) for t in tables]
        self._run("qk_rmsnorm_rope", q_out, k_out, q, k, q_norm.weight, k_norm.weight, *tables, 0, q_norm.eps, 1)


def _project_out(attn, out, encoder_hidden_states):
    if encoder_hidden_states is None:
        return out
    text, image = out.split_with_sizes([encoder_hidden_states.shape[1], out.shape[1] - encoder_hidden_states.shape[1]], dim=1)
    image = attn.to_out[1](attn.to_out[0](image.contiguous()))
    return image, attn.to_add_out(text.contiguous())


def _small_attention(module):
    d, heads = module.head_dim, 2
    names = ["to_q", "to_k", "to_v"]
    if module.added_kv_proj_dim is not None:
        names += ["add_q_proj", "add_k_proj", "add_v_proj"]
    parts = {name: trial.linear(8, heads * d) for name in names}
    if module.added_kv_proj_dim is not None:
        parts["to_add_out"] = trial.linear(heads * d, 8)
        parts["to_out"] = torch.nn.ModuleList([trial.linear(heads * d, 8), torch.nn.Identity()])
    for name, part in module._modules.items():
        if name.startswith("norm_"):
            parts[name] = trial.twin(part, {"weight": trial.weights(d)})
    twin = trial.twin(module, modules=parts)
    twin.fused_projections = False
    for parameter in parts["to_q"].parameters():
        parameter.data *= 1e-3  # so that the norm's eps counts
    return twin


def _eps_of_norms(module):
    """Returns the eps that all head norms share."""
    head_norms = [part for name, part in module._modules.items() if name.startswith("norm_")]
    if not all(norms.is_rmsnorm(norm) and getattr(norm, "weight", None) is not None for norm in head_norms):
        raise Unfit("its head norms are no RMSNorms with weights")
    every = {norms.eps_of(norm) for norm in head_norms}
    if len(every) > 1:
        raise Unfit("its head norms differ in eps")


def attention(run, module):
    _eps_of_norms(module)
    original, twin = module.processor, _small_attention(module)
    has_text, n = module.added_kv_proj_dim is not None, 5
    angles = trial.numbers(n + 2 * has_text, module.head_dim // 2).repeat_interleave(2, 1)
    arguments = {"hidden_states": trial.numbers(2, n, 8), "image_rotary_emb": (angles.cos(), angles.sin())}
    if has_text:
        arguments["encoder_hidden_states"] = trial.numbers(2, 2, 8)
    want = trial.run(trial.native(original), twin, **arguments)
    if not trial.agree(trial.run(FluxProcessor(run.plain, trial.native(original)), twin, **arguments), want):
        raise Unfit("it computes something else than quern's FluxAttnProcessor")
    module.set_processor(FluxProcessor(run, original))
    # The head norms stay as they are: the processor reads their weights.
    parts = {part: None for name, part in module._modules.items() if name.startswith("norm_")}
    return Replacement("qk_rmsnorm_rope", None, parts, lambda: module.set_processor(original), is_trained=True)


# ---- the block of two streams: the gated residual and the norm after it

def is_block(module):
    return type(module).__name__ == "FluxTransformerBlock"


def _block_function(run):
    def forward(self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None, joint_attention_kwargs=None):
        normed, *image = self.norm1(hidden_states, emb=temb)
        normed_text, *text = self.norm1_context(encoder_hidden_states, emb=temb)
        attended, attended_text, *by_adapter = self.attn(
            hidden_states=normed, encoder_hidden_states=normed_text, image_rotary_emb=image_rotary_emb,
            **(joint_attention_kwargs or {}))
        hidden_states = second_half(run, self.norm2, self.ff, hidden_states, attended, *image)
        for output in by_adapter:
            hidden_states = hidden_states + output
        encoder_hidden_states = second_half(run, self.norm2_context, self.ff_context, encoder_hidden_states, attended_text,
                                            *text)
        if encoder_hidden_states.dtype == torch.float16:
            encoder_hidden_states = encoder_hidden_states.clip(-65504, 65504)
        return encoder_hidden_states, hidden_states

    return forward


def block(run, module):
    """Replaces a block with its norms before the feed-forward layers; all other parts are looked at by themselves."""
    if not norms.is_bare_layernorm(module.norm2) or not norms.is_bare_layernorm(module.norm2_context):
        raise Unfit("its second norms have weights or are no LayerNorms")
    with torch.random.fork_rng(devices=[]):
        small = type(module)(dim=16, num_attention_heads=2, attention_head_dim=8).eval()
    for norm in (small.norm2, small.norm2_context):
        norm.eps = module.norm2.eps
    angles = trial.numbers(7, 4).repeat_interleave(2, 1)
    arguments = {"hidden_states": trial.rows(2, 5, 16), "encoder_hidden_states": trial.numbers(2, 2, 16),
                 "temb": trial.numbers(2, 16), "image_rotary_emb": (angles.cos(), angles.sin())}
    want = trial.run(type(module).forward, small, **arguments)
    if not trial.agree(trial.run(_block_function(run.plain), small, **arguments), want):
        raise Unfit("it computes something else than quern's FluxTransformerBlock")
    return Replacement("gated_residual_layernorm", _block_function(run), {module.norm2: None, module.norm2_context: None},
                       is_trained=True)


# ---- the block of one stream: attention and the feed-forward layer beside each other, joined by one product

def is_single_block(module):
    return type(module).__name__ == "FluxSingleTransformerBlock"


def _beside(run, block, attended, normed):
    """Returns [attended, GELU(proj_mlp(normed))], joined along columns."""
    if torch.compiler.is_compiling() or not run.takes(normed, block.proj_mlp):
        return torch.cat((attended, multiply(run, normed, block.proj_mlp, "gelu_tanh")), dim=2)
    width = attended.shape[2]
    both = torch.empty(*normed.shape[:2], width + block.proj_mlp.out_features, dtype=normed.dtype, device=normed.device)
    both[..., :width] = attended
    multiply(run, normed, block.proj_mlp, "gelu_tanh", out=both[..., width:])
    return both


def _single_function(run):
    def forward(self, hidden_states, encoder_hidden_states, temb, image_rotary_emb=None, joint_attention_kwargs=None):
        residual = torch.cat([encoder_hidden_states, hidden_states], dim=1)
        normed, gate = self.norm(residual, emb=temb)
        attended = self.attn(hidden_states=normed, image_rotary_emb=image_rotary_emb, **(joint_attention_kwargs or {}))
        out = multiply(run, _beside(run, self, attended, normed), self.proj_out, gate=gate, residual=residual)
        if out.dtype == torch.float16:
            out = out.clip(-65504, 65504)
        return out.split_with_sizes([encoder_hidden_states.shape[1], hidden_states.shape[1]], dim=1)

    return forward


def single_block(run, module):
    want(run, module)
    with torch.random.fork_rng(devices=[]):
        small = type(module)(dim=16, num_attention_heads=2, attention_head_dim=8).eval()
    small.act_mlp = module.act_mlp
    angles = trial.numbers(7, 4).repeat_interleave(2, 1)
    arguments = {"hidden_states": trial.rows(2, 5, 16), "encoder_hidden_states": trial.numbers(2, 2, 16),
                 "temb": trial.numbers(2, 16), "image_rotary_emb": (angles.cos(), angles.sin())}
    if not trial.agree(trial.run(_single_function(run.plain), small, **arguments),
                       trial.run(type(module).forward, small, **arguments)):
        raise Unfit("it computes something else than quern's FluxSingleTransformerBlock")
    return Replacement("gemm", _single_function(run), {module.act_mlp: None}, is_trained=True)
