# SPDX-License-Identifier: Apache-2.0
"""SGLang's linear layers of FP8 with blocks of 128 x 128, by hooks around the functions that choose their product and that load
their weights."""

import functools

import torch
from sglang.srt.layers.quantization import fp8_utils
from sglang.srt.plugins.hook_registry import HookRegistry, HookType

import quern

from .. import _fp8
from . import _where

_NAME = "FP8 block linear"
_QUANTIZATION = "sglang.srt.layers.quantization."
# Layers whose weight SGLang reads itself after loading: MLA makes W_UK and W_UV of it.
_READ_BY_SGLANG = ("kv_b_proj",)


def _product(theirs, input, weight, block_size, weight_scale, input_scale=None, bias=None, **more):
    """Computes what SGLang's functions of this form do, called theirs for a weight that is not packed."""
    rows = input.reshape(-1, input.shape[-1])
    n = getattr(weight, "quern_rows", None)

    def ours():
        if list(block_size) != [128, 128]:
            raise NotImplementedError(f"its weights have blocks of {list(block_size)}, and quern's of [128, 128]")
        q, scale = quern.quantize_groups(rows, 128, weight.dtype) if input_scale is None else (rows, input_scale)
        columns, dtype = len(weight) if n is None else n, input.dtype if input_scale is None else torch.bfloat16
        out = quern.gemm(q, weight.data, scale_a=scale, scale_b=weight_scale.data, packed=n is not None, n=n,
                         bias=bias if bias is None or bias.dtype == torch.bfloat16 else bias.float(),
                         out=torch.empty(len(rows), columns, dtype=dtype, device=input.device))
        return out.view(*input.shape[:-1], columns)

    if n is not None:
        return ours()  # no other kernel reads these
    return _where.calls(_NAME, ours, lambda: theirs(input=input, weight=weight, block_size=block_size, weight_scale=weight_scale,
                                                    input_scale=input_scale, bias=bias, **more))


def _chosen(dispatch, weight_block_size=None, act_scale_ue8m0=False):
    theirs = dispatch(weight_block_size, act_scale_ue8m0)
    backend = fp8_utils.get_fp8_gemm_runner_backend()
    why = (f"SGLang was told which product to take, --fp8-gemm-backend {backend.value}" if not backend.is_auto()
           else "SGLANG_USE_AITER=1 is set" if theirs is fp8_utils.aiter_w8a8_block_fp8_linear
           else "its scales of activations are powers of two" if act_scale_ue8m0
           else f"its weights have blocks of {weight_block_size}, and quern's of [128, 128]" if weight_block_size not in (None, [128, 128])
           else None)
    if why:
        _where.calls.tell(_NAME, why)
        return theirs
    return functools.partial(_product, theirs)


def _named(method, _config, _layer, prefix):
    """Tells a layer's method what the layer is called: most of SGLang's layers do not know."""
    if method is not None:
        method.quern_prefix = prefix


def _loaded(load, self, layer):
    """Packs a layer's weight as it is loaded, where quern's kernels read it so."""
    load(self, layer)
    is_ours = getattr(self.w8a8_block_fp8_linear, "func", None) is _product and self.weight_block_size == [128, 128]
    is_read = getattr(self, "quern_prefix", "").endswith(_READ_BY_SGLANG) or getattr(layer, "keep_plain_weight_layout", False)
    if is_ours and not is_read and _fp8.packs(_where.probe(), layer.weight.dtype):
        pack(layer, "weight", "weight_scale_inv")


def pack(layer, weight, scale):
    """Packs a layer's weight and its scales in the place of the ones it has, which then cannot be loaded again."""
    weight, scale = getattr(layer, weight), getattr(layer, scale)
    rows = weight.shape[-2]
    weight.data, scale.data = quern.gemm_pack(weight.data, scale.data.float())
    weight.quern_rows = rows
    layer._derived_weight_cache_error = "quern has packed the weights as they were loaded. Restart without QUERN_SGLANG to update them."


def register(table):
    if fp8_utils._use_aiter:
        table.leave(_NAME, "SGLANG_USE_AITER=1 gives it to AITER")
        return
    for target, hook, kind in (("fp8_utils.dispatch_w8a8_block_fp8_linear", _chosen, HookType.AROUND),
                               ("fp8.Fp8Config.get_quant_method", _named, HookType.AFTER),
                               ("fp8.Fp8LinearMethod.process_weights_after_loading_block_quant", _loaded, HookType.AROUND)):
        HookRegistry.register(_QUANTIZATION + target, hook, kind)
    _fp8.register_linear(table, _where.probe(), fp8_utils.fp8_dtype)
    table.leave("other linear", "FP8 by rows or tensors, int8 and bf16: quern was not measured to be faster")
