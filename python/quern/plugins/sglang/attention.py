# SPDX-License-Identifier: Apache-2.0
"""An attention backend for SGLang's decoders: quern, which `--attention-backend quern` takes. A batch's plan is made once, on the
host, and serves all its layers."""

import torch
from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES, add_attention_backend_choices
from sglang.srt.layers.attention.attention_registry import register_attention_backend
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc

import quern

from . import _where


class QuernAttnBackend(AttentionBackend):
    def __init__(self, model_runner):
        super().__init__()
        self._tokens_of_requests = model_runner.req_to_token_pool
        self._pool = model_runner.token_to_kv_pool
        self._batch = None

    def init_forward_metadata(self, forward_batch):
        """Reads the batch's lengths, and lists the slots of each request's keys."""
        lens = (forward_batch.seq_lens if forward_batch.seq_lens_cpu is None else forward_batch.seq_lens_cpu).cpu().long()
        if forward_batch.forward_mode.is_decode():
            queries = torch.ones_like(lens)
        else:
            queries = torch.as_tensor(forward_batch.extend_seq_lens_cpu or forward_batch.extend_seq_lens.cpu()).long()
        indptr, begins = (torch.cat([torch.zeros(1, dtype=torch.int64), n.cumsum(0)]).int() for n in (queries, lens))
        table = self._tokens_of_requests.req_to_token
        width, requests = table.shape[1], forward_batch.req_pool_indices.cpu().long()
        places = torch.arange(int(lens.sum())) + torch.repeat_interleave(requests * width - begins[:-1], lens)
        slots = table.reshape(-1)[places.to(table.device)].to(torch.int32)
        self._batch, self._plans = (indptr, begins, slots), {}

    def _plan(self, *sizes):
        if sizes not in self._plans:
            indptr, begins, _ = self._batch
            self._plans[sizes] = quern.attention_plan(*sizes, qo_indptr=indptr, kv_indptr=begins, page_size=1,
                                                      kv_last_page_len=torch.ones(len(indptr) - 1, dtype=torch.int32))
        return self._plans[sizes]

    def forward_extend(self, q, k, v, layer, forward_batch, save_kv_cache=True, **options):
        _check(layer, options)
        if save_kv_cache and k is not None:
            self._pool.set_kv_buffer(layer, KVWriteLoc(forward_batch.out_cache_loc, None), k, v)
        keys, values = (buffer.unsqueeze(1) for buffer in (self._pool.get_key_buffer(layer.layer_id), self._pool.get_value_buffer(layer.layer_id)))
        queries = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        plan = self._plan(layer.tp_q_head_num, layer.tp_k_head_num, layer.v_head_dim)
        scales = {"k_scale": layer.k_scale_float or 1.0, "v_scale": layer.v_scale_float or 1.0} if keys.itemsize == 1 else {}
        out = quern.attention(queries, keys, values, plan=plan, kv_indices=self._batch[2], is_causal=True,
                              window_left=layer.sliding_window_size, sm_scale=layer.scaling, logits_soft_cap=layer.logit_cap, **scales)
        return out.view(len(queries), -1)

    forward_decode = forward_extend

    def support_triton(self):
        return False


def _check(layer, options):
    """Refuses what quern's attention would compute otherwise."""
    found = [name for name, value in options.items() if value is not None]
    if found:
        raise NotImplementedError(f"attention backend quern: {found[0]} is given; accepted: None")
    if layer.is_cross_attention or layer.attn_type != AttentionType.DECODER:
        raise NotImplementedError(f"attention backend quern: the layer is {layer.attn_type}, cross {layer.is_cross_attention}; "
                                  f"accepted: {AttentionType.DECODER}, False")
    if layer.logit_cap and layer.logit_capping_method != "tanh":
        raise NotImplementedError(f"attention backend quern: logit_capping_method is {layer.logit_capping_method!r}; accepted: 'tanh'")


def make(runner):
    """Makes the backend of a model runner."""
    from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
    if getattr(runner, "use_mla_backend", False):
        raise NotImplementedError("attention backend quern: the model has MLA; accepted: models without")
    if isinstance(runner.token_to_kv_pool, SWAKVPool):
        raise NotImplementedError("attention backend quern: windows have a cache of their own; accepted: --disable-hybrid-swa-memory")
    return QuernAttnBackend(runner)


def _kernel():
    """Returns the kernel of a decoding step."""
    plan = quern.attention_plan(8, 2, 128, qo_indptr=[0, 1], kv_indptr=[0, 16], kv_last_page_len=[1], page_size=1)
    q, pages = torch.zeros(1, 8, 128, dtype=torch.bfloat16), torch.zeros(16, 1, 2, 128, dtype=torch.bfloat16)
    return _where.probe().kernel(quern.attention, q, pages, pages, plan=plan, kv_indices=torch.arange(16, dtype=torch.int32), is_causal=True)


def register(table):
    register_attention_backend("quern")(make)
    if "quern" not in ATTENTION_BACKEND_CHOICES:
        add_attention_backend_choices(["quern"])
    table.serve("attention", _kernel(), "with --attention-backend quern; 1 query, 8 heads on 2 of 128, 16 keys of bf16")
