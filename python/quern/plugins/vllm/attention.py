# SPDX-License-Identifier: Apache-2.0
"""An attention backend for vLLM's decoders: QUERN, which `--attention-backend QUERN` takes.

A step's plan is made once, on the host, and serves all its layers. The caches are vLLM's own, of any of its layouts.
"""

import dataclasses

import torch
from vllm.v1.attention.backend import AttentionBackend, AttentionImpl, AttentionMetadataBuilder, AttentionType, MultipleOf
from vllm.v1.attention.backends.registry import register_backend

import quern

from ..._env import is_set
from . import _where

_KINDS = {"fp8": None, "fp8_e4m3": None, "fp8_e5m2": torch.float8_e5m2}  # None: the platform's e4m3


class QuernAttentionBackend(AttentionBackend):
    supported_dtypes = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes = ["auto", "float16", "bfloat16", *_KINDS]
    forward_includes_kv_cache_update = False

    @staticmethod
    def get_name():
        return "QUERN"

    @staticmethod
    def get_impl_cls():
        return QuernAttention

    @staticmethod
    def get_builder_cls():
        return Builder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(1)]

    @classmethod
    def supports_head_size(cls, head_size):
        return 0 < head_size <= 512

    @classmethod
    def supports_sink(cls):
        return True

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_non_causal(cls):
        return True

    @classmethod
    def supports_batch_invariance(cls):
        return is_set("QUERN_BATCH_INVARIANT")

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls):
        return False  # plans are of the lengths that the host knows


@dataclasses.dataclass
class Metadata:
    """What the layers of one step share.

    tokens      how many of the query's rows count
    qo_indptr   i32 [requests + 1] on the host; kv_indptr likewise, of pages; last [requests]
    kv_indices  i32 on the device: the requests' pages, one after another
    """

    tokens: int
    qo_indptr: torch.Tensor
    kv_indptr: torch.Tensor
    last: torch.Tensor
    kv_indices: torch.Tensor
    page_size: int
    is_causal: bool
    plans: dict = dataclasses.field(default_factory=dict)

    def plan(self, *sizes):
        """Returns the plan for (heads of q, of k, head_dim of v)."""
        if sizes not in self.plans:
            self.plans[sizes] = quern.attention_plan(*sizes, qo_indptr=self.qo_indptr, kv_indptr=self.kv_indptr,
                                                     kv_last_page_len=self.last, page_size=self.page_size)
        return self.plans[sizes]


class Builder(AttentionMetadataBuilder):
    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if isinstance(common.causal, torch.Tensor):
            raise NotImplementedError("attention backend QUERN: causal is a tensor; accepted: True, False for all requests")
        size, requests = self.kv_cache_spec.block_size, common.num_reqs
        lens = common.seq_lens[:requests].cpu()  # exact ones, which are on the device alone
        counts = (lens + size - 1) // size
        kv_indptr = torch.zeros(requests + 1, dtype=torch.int32)
        kv_indptr[1:] = counts.cumsum(0)
        return Metadata(common.num_actual_tokens, common.query_start_loc_cpu[:requests + 1], kv_indptr,
                        (lens - (counts - 1) * size).clamp(min=1).to(torch.int32), _pages(common.block_table_tensor, counts), size,
                        common.causal)


def _pages(block_table, counts):
    """Returns the first counts[i] entries of each row i, one after another."""
    width = block_table.shape[1]
    begins = counts.cumsum(0) - counts
    places = torch.arange(int(counts.sum())) + torch.repeat_interleave(torch.arange(len(counts)) * width - begins, counts)
    return block_table.reshape(-1)[places.to(block_table.device)].to(torch.int32)


class QuernAttention(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None, sliding_window=None, kv_cache_dtype="auto",
                 logits_soft_cap=None, attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        if alibi_slopes is not None:
            raise NotImplementedError("attention backend QUERN: alibi_slopes is given; accepted: None")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"attention backend QUERN: attn_type is {attn_type}; accepted: {AttentionType.DECODER}")
        self.num_heads, self.num_kv_heads, self.head_size, self.scale = num_heads, num_kv_heads or num_heads, head_size, float(scale)
        self.kv_cache_dtype, self.kv_sharing_target_layer_name = kv_cache_dtype, kv_sharing_target_layer_name
        self.window_left = -1 if sliding_window is None else sliding_window - 1
        self.logits_soft_cap, self.sinks = logits_soft_cap or 0.0, None if sinks is None else sinks.data.float()

    def _caches(self, kv_cache):
        """Returns views of keys and values, [blocks, size, heads, dim], of vLLM's [blocks, heads, size, 2 dim]."""
        if self.kv_cache_dtype in _KINDS:
            kv_cache = kv_cache.view(_KINDS[self.kv_cache_dtype] or _where.kind())
        return kv_cache.transpose(1, 2).split(self.head_size, dim=-1)

    def do_kv_cache_update(self, layer, key, value, kv_cache, slot_mapping):
        scales = (layer._k_scale.view(1), layer._v_scale.view(1)) if self.kv_cache_dtype in _KINDS else (None, None)
        rows = len(slot_mapping)
        quern.reshape_and_cache(*self._caches(kv_cache), key[:rows], value[:rows], slot_mapping.to(torch.int32), *scales)

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output, output_scale=None, output_block_scale=None):
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("attention backend QUERN: output_scale is given, which makes the result FP8; accepted: None")
        if attn_metadata is None:  # vLLM measures memory
            return output.fill_(0)
        n, k, v = attn_metadata.tokens, *self._caches(kv_cache)
        scales = {"k_scale": layer._k_scale_float, "v_scale": layer._v_scale_float} if self.kv_cache_dtype in _KINDS else {}
        quern.attention(query[:n].view(n, -1, self.head_size), k, v, plan=attn_metadata.plan(self.num_heads, self.num_kv_heads, self.head_size),
                        kv_indices=attn_metadata.kv_indices, is_causal=attn_metadata.is_causal, window_left=self.window_left,
                        sm_scale=self.scale, logits_soft_cap=self.logits_soft_cap, sinks=self.sinks,
                        out=output[:n].view(n, -1, self.head_size), **scales)
        return output


def _kernel():
    """Returns the kernel of a decoding step."""
    plan = quern.attention_plan(8, 2, 128, qo_indptr=[0, 1], kv_indptr=[0, 1], kv_last_page_len=[16], page_size=16)
    q, pages = torch.zeros(1, 8, 128, dtype=torch.bfloat16), torch.zeros(1, 16, 2, 128, dtype=torch.bfloat16)
    return _where.probe().kernel(quern.attention, q, pages, pages, plan=plan, kv_indices=torch.zeros(1, dtype=torch.int32), is_causal=True)


def register(table):
    register_backend("QUERN", f"{__name__}.{QuernAttentionBackend.__name__}")
    table.serve("attention", _kernel(), "with --attention-backend QUERN; 1 query, 8 heads on 2 of 128, 16 keys of bf16")
    table.leave("MLA", "quern's goes through AITER's place: docs/engines.md")
