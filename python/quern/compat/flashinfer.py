# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's functions over quern: `import quern.compat.flashinfer as flashinfer`, on PyTorch tensors of any device.

Names, parameters and results are FlashInfer's (0.7), as far as quern has the op. What differs: any hidden size and
dtype that quern takes, where FlashInfer restricts them; `enable_pdl` and `backend` are accepted and mean nothing here.

SGLANG_DISABLE_FLASHINFER=1  PyTorch's own operators compute everything
SGLANG_LOG_KERNEL=1          a log line, logger "quern.compat.flashinfer", names the kernel whenever an op's changes
Both are read when this module is imported.
"""

import logging
import os

import torch

import quern.torch  # noqa: F401  (torch.ops.quern, so that a first call may be a compiled one)

from .. import _ops
from .. import last_kernel as _last_kernel
from . import _fallback

_logger = logging.getLogger(__name__)
_disabled = os.environ.get("SGLANG_DISABLE_FLASHINFER", "") not in ("", "0")
_logs = os.environ.get("SGLANG_LOG_KERNEL", "") not in ("", "0")
_last_logged = {}


def _run(name, *arguments):
    """The op, by quern or PyTorch."""
    getattr(_fallback if _disabled else _ops, name)(*arguments)
    if _logs and not torch.compiler.is_compiling():
        _log(name, "torch" if _disabled else _last_kernel())


def _log(name, kernel):
    if _last_logged.get(name) != kernel:
        _last_logged[name] = kernel
        _logger.warning("%s: %s", name, kernel)  # a warning, as logging shows those without being set up


# ---- norms

def rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """input / sqrt(mean(input^2) + eps) * weight; input [n, h] or [n, heads, h]."""
    out = torch.empty_like(input) if out is None else out
    _run("rmsnorm", out, input, weight, eps)
    return out


def gemma_rmsnorm(input, weight, eps=1e-6, out=None, enable_pdl=None):
    """rmsnorm with 1 + weight for weight."""
    out = torch.empty_like(input) if out is None else out
    _run("gemma_rmsnorm", out, input, weight, eps)
    return out


def fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """In place: residual += input; input = rmsnorm(residual), of the sum before it was rounded."""
    _run("fused_add_rmsnorm", input, residual, weight, eps)


def gemma_fused_add_rmsnorm(input, residual, weight, eps=1e-6, enable_pdl=None):
    """fused_add_rmsnorm with 1 + weight for weight."""
    _run("gemma_fused_add_rmsnorm", input, residual, weight, eps)


def layernorm(input, gemma, beta, eps=1e-6):
    """LayerNorm with weight `gemma` and bias beta."""
    out = torch.empty_like(input)
    _run("layernorm", out, input, gemma, beta, eps)
    return out


def _scale_of(scale, x):
    """A number, or a tensor of one, as quern takes it: one f32 on x's device."""
    if isinstance(scale, torch.Tensor):
        return scale.reshape(-1).to(torch.float32)
    return torch.full((1,), scale, dtype=torch.float32, device=x.device)


def rmsnorm_quant(out, input, weight, scale, eps=1e-6, enable_pdl=None):
    """out = fp8(rmsnorm(input) / scale); scale a number or a tensor of one."""
    _run("rmsnorm_quant", out, input, weight, _scale_of(scale, input), eps)


def fused_add_rmsnorm_quant(out, input, residual, weight, scale, eps=1e-6, enable_pdl=None):
    """residual += input in place; out = fp8(rmsnorm(residual) / scale); input is left as it is."""
    _run("fused_add_rmsnorm_quant", out, input, residual, weight, _scale_of(scale, input), eps)


def layernorm_quant(out, input, gamma, beta, scale, eps=1e-6):
    """out = fp8(layernorm(input) / scale), the norm rounded to input's dtype first."""
    _run("layernorm_quant", out, input, gamma, beta, _scale_of(scale, input), eps)


# ---- gated activations

def _gated(name, input, out):
    if out is None:
        out = torch.empty((*input.shape[:-1], input.shape[-1] // 2), dtype=input.dtype, device=input.device)
    _run(name, out, input)
    return out


def silu_and_mul(input, out=None, enable_pdl=None):
    """silu(input[..., :h]) * input[..., h:]."""
    return _gated("silu_and_mul", input, out)


def gelu_and_mul(input, out=None, enable_pdl=None):
    """gelu(input[..., :h]) * input[..., h:]."""
    return _gated("gelu_and_mul", input, out)


def gelu_tanh_and_mul(input, out=None, enable_pdl=None):
    """gelu(input[..., :h]) * input[..., h:], by its tanh form."""
    return _gated("gelu_tanh_and_mul", input, out)


# ---- rotary embedding: q [n, q heads, head_dim], k [n, k heads, head_dim]

def _index(t):
    """FlashInfer takes int64 indices as well."""
    return t.to(torch.int32)


def apply_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Token t of segment b stands at offsets[b] + t - indptr[b]."""
    _run("apply_rope", q, k, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale, rope_theta)


def apply_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """apply_rope_inplace into new tensors: (q_rope, k_rope)."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_rope", q_rope, k_rope, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale,
         rope_theta)
    return q_rope, k_rope


def apply_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """Token t stands at pos_ids[t]."""
    _run("apply_rope_pos_ids", q, k, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta)


def apply_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=1, rope_theta=1e4):
    """apply_rope_pos_ids_inplace into new tensors: (q_rope, k_rope)."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_rope_pos_ids", q_rope, k_rope, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta)
    return q_rope, k_rope


def apply_llama31_rope_inplace(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_inplace with Llama 3.1's frequencies."""
    _run("apply_llama31_rope", q, k, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave, rope_scale,
         rope_theta, low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope(q, k, indptr, offsets, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope with Llama 3.1's frequencies."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_llama31_rope", q_rope, k_rope, q, k, _index(indptr), _index(offsets), rotary_dim or 0, interleave,
         rope_scale, rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return q_rope, k_rope


def apply_llama31_rope_pos_ids_inplace(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                                       low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_pos_ids_inplace with Llama 3.1's frequencies."""
    _run("apply_llama31_rope_pos_ids", q, k, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale, rope_theta,
         low_freq_factor, high_freq_factor, old_context_len)


def apply_llama31_rope_pos_ids(q, k, pos_ids, rotary_dim=None, interleave=False, rope_scale=8, rope_theta=5e5,
                               low_freq_factor=1, high_freq_factor=4, old_context_len=8192):
    """apply_rope_pos_ids with Llama 3.1's frequencies."""
    q_rope, k_rope = torch.empty_like(q), torch.empty_like(k)
    _run("apply_llama31_rope_pos_ids", q_rope, k_rope, q, k, _index(pos_ids), rotary_dim or 0, interleave, rope_scale,
         rope_theta, low_freq_factor, high_freq_factor, old_context_len)
    return q_rope, k_rope


def _heads(t, head_size):
    return t.view(t.shape[0], -1, head_size)


def apply_rope_with_cos_sin_cache_inplace(positions, query, key, head_size, cos_sin_cache, is_neox=True, backend="cuda"):
    """query [n, q heads * head_size], key likewise; cos_sin_cache [positions, rotary_dim] f32, cosines then sines."""
    if cos_sin_cache.dtype != torch.float32:
        raise ValueError("cos_sin_cache should be float32")
    q, k = _heads(query, head_size), _heads(key, head_size)
    _run("apply_rope_with_cos_sin_cache", q, k, q, k, cos_sin_cache, _index(positions), not is_neox)


def apply_rope_with_cos_sin_cache(positions, query, key, head_size, cos_sin_cache, is_neox=True, backend="cuda"):
    """apply_rope_with_cos_sin_cache_inplace into new tensors: (query_out, key_out)."""
    if cos_sin_cache.dtype != torch.float32:
        raise ValueError("cos_sin_cache should be float32")
    query_out, key_out = torch.empty_like(query), torch.empty_like(key)
    _run("apply_rope_with_cos_sin_cache", _heads(query_out, head_size), _heads(key_out, head_size),
         _heads(query, head_size), _heads(key, head_size), cos_sin_cache, _index(positions), not is_neox)
    return query_out, key_out


# ---- paged caches of keys and values

def get_seq_lens(kv_indptr, kv_last_page_len, page_size):
    """Each sequence's length, from its pages."""
    return (kv_indptr[1:] - kv_indptr[:-1] - 1).clamp(min=0) * page_size + kv_last_page_len


def get_batch_indices_positions(append_indptr, seq_lens, nnz):
    """For each of nnz new tokens its sequence and its place in it, int32: (batch_indices, positions)."""
    batch_indices = torch.empty(nnz, dtype=torch.int32, device=append_indptr.device)
    positions = torch.empty_like(batch_indices)
    _run("get_batch_indices_positions", batch_indices, positions, _index(append_indptr), _index(seq_lens))
    return batch_indices, positions


def append_paged_kv_cache(append_key, append_value, batch_indices, positions, paged_kv_cache, kv_indices, kv_indptr,
                          kv_last_page_len, kv_layout="NHD"):
    """New tokens [n, heads, head_dim] to their pages.

    paged_kv_cache  (k, v), each [pages, page_size, heads, head_dim] (NHD) or [pages, heads, page_size, head_dim] (HND),
                    or one tensor with a dimension of 2 after the first
    """
    if kv_layout not in ("NHD", "HND"):
        raise KeyError(f"kv_layout is {kv_layout!r}; accepted: 'NHD', 'HND'")
    k_cache, v_cache = paged_kv_cache if isinstance(paged_kv_cache, (tuple, list)) else paged_kv_cache.unbind(1)
    _run("append_paged_kv_cache", k_cache, v_cache, append_key, append_value, _index(batch_indices), _index(positions),
         _index(kv_indices), _index(kv_indptr), _index(kv_last_page_len), kv_layout == "HND")


def append_paged_mla_kv_cache(append_ckv, append_kpe, batch_indices, positions, ckv_cache, kpe_cache, kv_indices, kv_indptr,
                              kv_last_page_len):
    """MLA's new tokens, [n, dim] each, to caches [pages, page_size, dim]."""
    _run("append_paged_mla_kv_cache", ckv_cache, kpe_cache, append_ckv, append_kpe, _index(batch_indices),
         _index(positions), _index(kv_indices), _index(kv_indptr), _index(kv_last_page_len))
