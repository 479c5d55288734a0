# SPDX-License-Identifier: Apache-2.0
"""DeepSeek's attention over compressed keys (MLA) in transformers. A new token's query goes into the compressed space, where
quern.mla_decode reads the cache as it is. Prompts, and batches with a mask, are expanded to keys and values of each head,
for the attention that the model has chosen."""

import functools
import types

import torch

from .. import _attention
from ..torch import _slow
from . import Replacement, Unfit, trial
from .attention import rotate
from .linear import HALVES

_PARTS = ("kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "o_proj")


def is_mla(module):
    return all(name in module._modules for name in _PARTS)


# ---- products by heads

def _product(run, a, b):
    """Returns a b^T of each head, for a [tokens, heads, k], b [heads, n, k]: [tokens, heads, n]."""
    out = torch.empty(*a.shape[:2], b.shape[1], dtype=a.dtype, device=a.device)
    if run.linears == "all" and a.dtype in HALVES:
        heads = (out.transpose(0, 1), a.transpose(0, 1), b)
        run("gemm", *heads, None, None, None, None, None, None, None, 0, 0.0, False)
        return out
    return torch.einsum("thk,hnk->thn", a, b)


class Expansion:
    """The up-projections of keys and values by heads; those of FP8 are kept in 16 bits until the weight changes."""

    def __init__(self, run):
        self._run, self._kept = run, (None, None, None)

    def of(self, module, dtype):
        """Returns (keys' [heads, head_dim, rank], values' [heads, head_dim, rank])."""
        weight = module.kv_b_proj.weight
        if weight.dtype == torch.float8_e4m3fn:
            weight = self._dequantized(module.kv_b_proj, weight, dtype)
        by_heads = weight.view(-1, module.qk_nope_head_dim + module.v_head_dim, module.kv_lora_rank)
        return by_heads.split([module.qk_nope_head_dim, module.v_head_dim], 1)

    def _dequantized(self, layer, weight, dtype):
        state = weight.data_ptr(), None if weight.is_inference() else weight._version, dtype
        if self._kept[0] is not weight or self._kept[1] != state or weight.is_inference():
            wide = torch.empty_like(weight, dtype=dtype)
            self._run("dequantize_fp8", wide, weight, layer.weight_scale_inv, 128, 128)
            self._kept = weight, state, wide
        return self._kept[2]


# ---- a new token of each request

@functools.lru_cache(maxsize=8)
def _plan(batch, length, heads, rank):
    """Makes the plan of a query for each request; a request's cache is a page. The layers of a step share it."""
    every = range(batch + 1)
    return _attention.attention_plan(heads, 1, rank, qo_indptr=list(every), kv_indptr=list(every), kv_last_page_len=[length] * batch,
                                     page_size=length)


def _absorbed(run, module, expansion, q_nope, q_pe, latents, k_pe):
    """Returns the heads' results [batch, heads, v_head_dim] of q_nope, q_pe [batch, heads, any] on latents, k_pe [batch, n, any]."""
    keys, values = expansion.of(module, q_nope.dtype)
    q = _product(run, q_nope, keys.transpose(1, 2))
    batch, heads, rank = q.shape
    plan = _plan(batch, latents.shape[1], heads, rank)
    schedule, workspace = run.plan_tensors(plan, q)
    out, pages = torch.empty_like(q), torch.arange(batch, dtype=torch.int32, device=q.device)
    run("mla_decode", out, None, q, q_pe, latents, k_pe, None, pages, plan.host_for(q), schedule, workspace, None, None, False, 0,
        module.scaling, 1.0, 1.0)
    return _product(run, out, values)


def _takes(run, q, attention_mask, options):
    return (q.shape[1] == 1 and q.shape[0] > 0 and attention_mask is None and not torch.compiler.is_compiling()
            and not options.get("output_attentions"))


# ---- the layer

def _halves(x):
    """Returns x with the pairs of its last dimension apart: first elements, then second ones."""
    return x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)


def _queries(module, hidden_states):
    if module.q_lora_rank is None:
        q = module.q_proj(hidden_states)
    else:
        q = module.q_b_proj(module.q_a_layernorm(module.q_a_proj(hidden_states)))
    return q.unflatten(-1, (-1, module.qk_head_dim))


def _expanded(run, module, names, q, latents, k_pe, attention_mask, options):
    """Computes attention as the model does, with keys and values of each head."""
    keys, values = module.expand_kv(latents, k_pe)
    attend = names["ALL_ATTENTION_FUNCTIONS"].get_interface(module.config._attn_implementation, names["eager_attention_forward"])
    return attend(module, q.transpose(1, 2), keys, values, attention_mask, dropout=0.0, scaling=module.scaling, **options)


def _forward(run, names):
    expansion = Expansion(run)

    def forward(self, hidden_states, position_embeddings, attention_mask, past_key_values=None, **options):
        q = _queries(self, hidden_states)
        q_nope, q_pe = q.split([self.qk_nope_head_dim, self.qk_rope_head_dim], -1)
        latents, k_pe = self.kv_a_proj_with_mqa(hidden_states).split([self.kv_lora_rank, self.qk_rope_head_dim], -1)
        latents, k_pe = self.kv_a_layernorm(latents), k_pe[:, :, None]
        if self.config.rope_interleave:
            q_pe, k_pe = _halves(q_pe), _halves(k_pe)
        q_pe, k_pe = rotate(run, q_pe, k_pe, *position_embeddings)
        latents, k_pe = latents[:, None], k_pe.transpose(1, 2)
        if past_key_values is not None:
            latents, k_pe = past_key_values.update(latents, k_pe, self.layer_idx)
        if _takes(run, q, attention_mask, options):
            try:
                out = _absorbed(run, self, expansion, q_nope[:, 0], q_pe[:, 0], latents[:, 0], k_pe[:, 0])
                return self.o_proj(out.flatten(1)[:, None]), None
            except _slow.Slow as why:
                run.tell("mla_decode", (q,), why)
        out, weights = _expanded(run, self, names, torch.cat((q_nope, q_pe), -1), latents, k_pe, attention_mask, options)
        return self.o_proj(out.flatten(2).contiguous()), weights

    return forward


# ---- the trial

class _Cache:
    """A cache of one layer."""

    def __init__(self):
        self._kept = ()

    def update(self, *new):
        *new, _ = new
        self._kept = [torch.cat(pair, -2) for pair in zip(self._kept, new, strict=True)] if self._kept else new
        return self._kept


_SIZES = {"num_heads": 2, "num_key_value_groups": 1, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "qk_head_dim": 12, "v_head_dim": 6,
          "kv_lora_rank": 10, "layer_idx": 0}


def _small(module):
    d = _SIZES
    parts = {"kv_a_proj_with_mqa": trial.linear(8, 14), "kv_b_proj": trial.linear(10, 28), "o_proj": trial.linear(12, 8)}
    parts["kv_b_proj"].bias = None
    rank = None if module.q_lora_rank is None else 6
    if rank is None:
        parts["q_proj"] = trial.linear(8, 24)
    else:
        parts.update(q_a_proj=trial.linear(8, rank), q_b_proj=trial.linear(rank, 24),
                     q_a_layernorm=trial.twin(module.q_a_layernorm, {"weight": trial.weights(rank)}))
    parts["kv_a_layernorm"] = trial.twin(module.kv_a_layernorm, {"weight": trial.weights(d["kv_lora_rank"])})
    twin = trial.twin(module, modules=parts)
    twin.__dict__.update(d, q_lora_rank=rank, config=types.SimpleNamespace(
        _attn_implementation="eager", rope_interleave=module.config.rope_interleave))
    return twin


def _results(forward, module, inputs):
    """Returns what a prompt, and then one more token, give."""
    cache, results = _Cache(), []
    for x, tables in inputs:
        results.append(trial.run(forward, module, hidden_states=x, position_embeddings=tables, attention_mask=None,
                                 past_key_values=cache)[0])
    return tuple(results)


def _inputs(n):
    angles = trial.numbers(1, n, 2).repeat(1, 1, 2)
    return trial.numbers(2, n, 8), (angles.cos(), angles.sin())


def mla(run, module):
    """Replaces an attention; its norms and projections are looked at by themselves."""
    names = type(module).forward.__globals__
    if "ALL_ATTENTION_FUNCTIONS" not in names or not hasattr(module, "expand_kv") or not hasattr(module.config, "rope_interleave"):
        raise Unfit("of attentions over compressed keys quern knows those of which the cache is compressed, as DeepseekV3Attention's")
    twin, inputs = _small(module), [_inputs(5), _inputs(1)]
    want = _results(type(module).forward, twin, inputs)
    if not trial.agree(_results(_forward(run.plain, names), twin, inputs), want):
        raise Unfit("it computes something else than quern's MLA")
    return Replacement("mla", _forward(run, names))
