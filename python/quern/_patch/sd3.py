# SPDX-License-Identifier: Apache-2.0
"""diffusers' SD3: one pass for a gated residual and the LayerNorm after it, and one product with the gate and the residual behind
a feed-forward layer. Its attention calls PyTorch's function, under which quern.torch.enable() puts quern's."""

import torch

from . import Replacement, Unfit, norms, trial
from .blocks import second_half


def is_block(module):
    return type(module).__name__ == "JointTransformerBlock"


def _second_attention(block, x, attended, gate, normed, gate2, options):
    """Returns x + gate * attended, and what the second attention made of normed, with its gate."""
    return torch.addcmul(x, gate.unsqueeze(1), attended), block.attn2(hidden_states=normed, **options), gate2


def _block_function(run):
    def forward(self, hidden_states, encoder_hidden_states, temb, joint_attention_kwargs=None):
        if self._chunk_size is not None:
            raise NotImplementedError("patched JointTransformerBlock: its feed-forward layers are to be computed in chunks; "
                                      "accepted: the model after disable_forward_chunking()")
        x, options = hidden_states, joint_attention_kwargs or {}
        normed, gate, shift_mlp, scale_mlp, gate_mlp, *second = self.norm1(x, emb=temb)
        normed_text, *text = (self.norm1_context(encoder_hidden_states, temb),) if self.context_pre_only else \
            self.norm1_context(encoder_hidden_states, emb=temb)
        attended, attended_text = self.attn(hidden_states=normed, encoder_hidden_states=normed_text, **options)
        if second:
            x, attended, gate = _second_attention(self, x, attended, gate, *second, options)
        x = second_half(run, self.norm2, self.ff, x, attended, gate, shift_mlp, scale_mlp, gate_mlp)
        if self.context_pre_only:
            return None, x
        return second_half(run, self.norm2_context, self.ff_context, encoder_hidden_states, attended_text, *text), x

    return forward


def block(run, module):
    """Replaces a block with its norms before the feed-forward layers; all other parts are looked at by themselves."""
    inner = [norm for norm in (module.norm2, module.norm2_context) if norm is not None]
    if not all(map(norms.is_bare_layernorm, inner)):
        raise Unfit("its second norms have weights or are no LayerNorms")
    if len({norm.eps for norm in inner}) > 1:
        raise Unfit("its second norms differ in eps")
    with torch.random.fork_rng(devices=[]):
        small = type(module)(dim=16, num_attention_heads=2, attention_head_dim=8, context_pre_only=module.context_pre_only,
                             use_dual_attention=module.use_dual_attention).eval()
    for norm in (small.norm2, small.norm2_context):
        if norm is not None:
            norm.eps = module.norm2.eps
    arguments = {"hidden_states": trial.rows(2, 5, 16), "encoder_hidden_states": trial.numbers(2, 2, 16), "temb": trial.numbers(2, 16)}
    want = trial.run(type(module).forward, small, **arguments)
    if not trial.agree(trial.run(_block_function(run.plain), small, **arguments), want):
        raise Unfit("it computes something else than quern's JointTransformerBlock")
    return Replacement("gated_residual_layernorm", _block_function(run), dict.fromkeys(inner), is_trained=True)
