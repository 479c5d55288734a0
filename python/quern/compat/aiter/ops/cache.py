# SPDX-License-Identifier: Apache-2.0
"""AITER's writes to caches: token t goes to slot slot_mapping[t] = block * size + place; a number below 0 leaves it out.

kv_cache_dtype  "auto"; "fp8", "fp8_e4m3": key / k_scale and value / v_scale are written as FP8
"""

from __future__ import annotations

import torch

from .... import _kvcache, _quantize
from ...._public import flag
from .. import _check
from .._absent import SPARSE, absent
from .._run import run

Tensor = torch.Tensor


def _slots(op, slots):
    _check.dtype(op, "slot_mapping", slots, (torch.int32, torch.int64))
    return slots if slots.dtype == torch.int32 else slots.clamp(-2**31, 2**31 - 1).to(torch.int32)


def _scales(op, word, like, **scales):
    return [None if word == "auto" else _check.scale(op, name, 1.0 if value is None else value, like) for name, value in scales.items()]


def reshape_and_cache_flash(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor,
                            kv_cache_dtype: str, k_scale: Tensor, v_scale: Tensor) -> None:
    """Writes key and value [n, heads, dim] to caches [blocks, size, heads, dim]."""
    op = "reshape_and_cache_flash"
    _check.tensors(op, {"key_cache": key_cache, "value_cache": value_cache, "key": key, "value": value, "slot_mapping": slot_mapping})
    caches = _check.fp8_values(op, kv_cache_dtype, key_cache=key_cache, value_cache=value_cache)
    run(op, _kvcache.reshape_and_cache, {"k_cache": "key_cache", "v_cache": "value_cache"}, *caches, key, value, _slots(op, slot_mapping),
        *_scales(op, kv_cache_dtype, key, k_scale=k_scale, v_scale=v_scale))


def _as_cached(op, name, x, scale, cache):
    """Returns x as it is written to the cache, as bytes if that is FP8."""
    if scale is not None:
        x = run(op, _quantize.quantize_static, {"x": name}, x.reshape(len(x), -1), scale, dtype=cache.dtype).view(x.shape)
    elif x.dtype != cache.dtype:
        raise ValueError(f"{op}: {name} has dtype {x.dtype}, needs the cache's, {cache.dtype}")
    return x.view(torch.uint8) if x.dtype.itemsize == 1 else x


def reshape_and_cache(key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slot_mapping: Tensor, kv_cache_dtype: str,
                      k_scale: Tensor | None = None, v_scale: Tensor | None = None, asm_layout: bool = False) -> None:
    """Writes key and value [n, heads, dim] to caches K [blocks, heads, dim / x, size, x] and V [blocks, heads, dim, size], with
    asm_layout [blocks, heads, size / x, dim, x]; x = 16 bytes of elements. By PyTorch's indexing."""
    op = "reshape_and_cache"
    _check.tensors(op, {"key_cache": key_cache, "value_cache": value_cache, "key": key, "value": value, "slot_mapping": slot_mapping})
    k_cache, v_cache = _check.fp8_values(op, kv_cache_dtype, key_cache=key_cache, value_cache=value_cache)
    _check.shape(op, "key", key, None, None, None)
    (n, heads, dim), x, size = key.shape, 16 // k_cache.element_size(), k_cache.shape[3] if k_cache.ndim == 5 else None
    _check.shape(op, "key_cache", k_cache, None, heads, dim // x, None, x)
    needs = (None, heads, size // x, dim, x) if flag(op, "asm_layout", asm_layout) else (None, heads, dim, size)
    _check.shape(op, "value_cache", v_cache, *needs)
    _check.shape(op, "value", value, n, heads, dim)
    _check.shape(op, "slot_mapping", slot_mapping, n)
    if slot_mapping.device.type == "cpu" and n and int(slot_mapping.max()) >= len(k_cache) * size:
        raise ValueError(f"{op}: slot_mapping has an entry of {int(slot_mapping.max())}; accepted: below {len(k_cache) * size}")
    k_scale, v_scale = _scales(op, kv_cache_dtype, key, k_scale=k_scale, v_scale=v_scale)
    used = _slots(op, slot_mapping) >= 0
    key, value = (_as_cached(op, name, t[used], s, k_cache) for name, t, s in (("key", key, k_scale), ("value", value, v_scale)))
    k_cache, v_cache = (c.view(torch.uint8) if c.dtype.itemsize == 1 else c for c in (k_cache, v_cache))
    block, place = slot_mapping[used].long() // size, slot_mapping[used].long() % size
    k_cache[block, :, :, place] = key.view(-1, heads, dim // x, x)
    if asm_layout:
        v_cache[block, :, place // x, :, place % x] = value
    else:
        v_cache[block, :, :, place] = value


def concat_and_cache_mla(kv_c: Tensor, k_pe: Tensor, kv_cache: Tensor, slot_mapping: Tensor, kv_cache_dtype: str,
                         scale: Tensor | None) -> None:
    """Writes kv_c [n, dim], and k_pe [n, rope_dim] behind it, to the cache [blocks, size, dim + rope_dim]."""
    op = "concat_and_cache_mla"
    _check.tensors(op, {"kv_cache": kv_cache, "kv_c": kv_c, "k_pe": k_pe, "slot_mapping": slot_mapping})
    (cache,) = _check.fp8_values(op, kv_cache_dtype, kv_cache=kv_cache)
    run(op, _kvcache.concat_and_cache_mla, {}, cache, kv_c, k_pe, _slots(op, slot_mapping), *_scales(op, kv_cache_dtype, kv_c, scale=scale))


indexer_k_quant_and_cache = absent("indexer_k_quant_and_cache", SPARSE)
cp_gather_indexer_k_quant_cache = absent("cp_gather_indexer_k_quant_cache", SPARSE)
_OWN_SCALES = "quern's caches have no scale for each token or block; set the cache's dtype to auto or fp8"
reshape_and_cache_with_pertoken_quant = absent("reshape_and_cache_with_pertoken_quant", _OWN_SCALES)
reshape_and_cache_with_block_quant = absent("reshape_and_cache_with_block_quant", _OWN_SCALES)
