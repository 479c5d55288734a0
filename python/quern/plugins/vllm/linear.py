# SPDX-License-Identifier: Apache-2.0
"""vLLM's quantisation to FP8 and its linear layers of FP8 with block scales (DeepSeek-V3's)."""

import torch
from vllm.model_executor.kernels import linear as kernels
from vllm.model_executor.kernels.linear.scaled_mm.BlockScaledMMLinearKernel import Fp8BlockScaledMMLinearKernel
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import current_platform

import quern

from .. import _fp8
from . import _where
from .ops import register_class

# Layers whose weight vLLM reads itself after loading: MLA makes W_UK and W_UV of it.
_READ_BY_VLLM = ("kv_b_proj",)


# ---- quantisation

def _padded(self, x):
    """Returns (all rows, with as many as vLLM wants, and x's own among them)."""
    rows = max(self.num_token_padding or 0, len(x))
    out = torch.empty(rows, x.shape[1], dtype=current_platform.fp8_dtype(), device=x.device)
    out[len(x):].zero_()
    return out, out[:len(x)]


def _scales(self, rows, groups, device):
    """Returns f32 [rows, groups] in the layout that vLLM wants."""
    if not self.column_major_scales:
        return torch.empty(rows, groups, dtype=torch.float32, device=device)
    aligned = -(-rows // 4) * 4 if self.tma_aligned_scales else rows
    return torch.empty(groups, aligned, dtype=torch.float32, device=device).T[:rows]


def _refusal(self, scale, scale_ub):
    if self.static and not self.group_shape.is_per_tensor():
        return "given scales of rows or groups"
    if self.is_group_quant and self.use_ue8m0 and self.use_deep_gemm_supported:
        return "DeepGEMM's packed scales"
    return "a bound on its scales" if scale_ub is not None else None


def _quantize(self, theirs, x, scale=None, scale_ub=None, use_triton=False):
    why = _refusal(self, scale, scale_ub)
    if why:
        _where.calls.tell("QuantFP8", f"quern's plugin does not serve {why}")
        return theirs()
    rows = x.reshape(-1, x.shape[-1])
    out, q = _padded(self, rows)
    if self.static:
        quern.quantize_static(rows, scale.reshape(1), q=q)
    elif self.group_shape.is_per_tensor():
        _, scale = quern.quantize_tensor(rows, q=q)
    else:
        group = self.group_size if self.is_group_quant else 0
        scale = _scales(self, len(rows), -(-rows.shape[1] // group) if group else 1, x.device)
        quern.quantize_groups(rows, group, round_scale=self.is_group_quant and self.use_ue8m0, q=q, scale=scale)
        scale = scale.view(*x.shape[:-1], -1) if x.ndim != 2 else scale
    return (out.view(x.shape) if len(out) == len(rows) else out), scale


# ---- the product

class QuernFp8BlockScaledMMKernel(Fp8BlockScaledMMLinearKernel):
    """FP8 by 1 x 128 times FP8 by 128 x 128. Weights are packed at load time, where quern's kernels read them so."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, config):
        can, why = super().can_implement(config)
        shapes = config.activation_quant_key.scale.group_shape, config.weight_quant_key.scale.group_shape
        if can and shapes != (GroupShape(1, 128), GroupShape(128, 128)):
            return False, f"has blocks of {shapes}; accepted: (1, 128) and (128, 128)"
        return can, why

    def process_weights_after_loading(self, layer):
        super().process_weights_after_loading(layer)
        params = self._get_layer_params(layer)
        self._n = len(params.weight)
        is_read = getattr(layer, "prefix", "").endswith(_READ_BY_VLLM) or getattr(layer, "is_bmm", False)
        self._is_packed = packs() and not is_read
        if self._is_packed:
            weight, scale = quern.gemm_pack(params.weight.data, params.block_scale.data.float())
            replace_parameter(layer, params.WEIGHT, weight)
            replace_parameter(layer, params.block_scale_attr, scale)

    def apply_weights(self, layer, x, bias=None, **_):
        params = self._get_layer_params(layer)
        rows = x.view(-1, x.shape[-1])
        q, scale = self.quant_fp8(rows, None, None)
        bias = bias if bias is None or bias.dtype == torch.bfloat16 else bias.float()
        out = quern.gemm(q, params.weight.data, scale_a=scale, scale_b=params.block_scale.data, bias=bias, packed=self._is_packed,
                         n=self._n, out=torch.empty(len(rows), self._n, dtype=self.config.out_dtype, device=x.device))
        return out.view(*x.shape[:-1], self._n)

    def apply_block_scaled_mm(self, A, B, As, Bs):
        return quern.gemm(A, B, scale_a=As, scale_b=Bs, packed=self._is_packed, n=self._n,
                          out=torch.empty(len(A), self._n, dtype=self.config.out_dtype, device=A.device))


def packs():
    """Returns whether quern's fast kernels here take packed weights."""
    return _fp8.packs(_where.probe(), _where.kind())


def register(table):
    register_class(table, QuantFP8, "QuantFP8", _where.probe().kernel(quern.quantize_groups, torch.ones(1, 4096, dtype=torch.bfloat16)),
                   "1 x 4096 of bf16, by 1 x 128", _quantize)
    kernels.register_linear_kernel(QuernFp8BlockScaledMMKernel, current_platform._enum, "fp8_block")
    possible = kernels._POSSIBLE_FP8_BLOCK_KERNELS[current_platform._enum]
    possible.insert(0, possible.pop())  # vLLM puts new ones last, and takes the first that it can
    _fp8.register_linear(table, _where.probe(), _where.kind())
    table.leave("other linear", "FP8 by rows or tensors, int8 and bf16: quern was not measured to be faster")
