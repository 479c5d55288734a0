# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's norms with what comes before or behind them."""

import functools

import torch

from ... import _norm, _quantize, _rope
from ..._public import flag, found
from .._check import contiguous, integer, shape, tensors
from . import _run
from ._hints import check_flags, refuse
from ._products import SIXTEEN, kind, one_number, result


def fused_add_rmsnorm_fp8_block_quant(out, block_scale, normed_out, input, residual, weight, eps=1e-6, enable_pdl=None):
    """Computes residual += input, normed_out = rmsnorm(residual) * weight, and out, block_scale: normed_out as FP8 by 1 x 128.

    out          FP8 [n, h]
    block_scale  f32 [ceil(h / 128), n rounded up to a multiple of 4]: turned, of which the first n columns are written
    normed_out, input, residual  [n, h] of one dtype; input is left as it is
    """
    op = "fused_add_rmsnorm_fp8_block_quant"
    check_flags(op, enable_pdl=enable_pdl)
    tensors(op, {"out": out, "block_scale": block_scale, "normed_out": normed_out, "input": input, "residual": residual, "weight": weight})
    shape(op, "input", input, None, None)
    n, h = input.shape
    for name, x in (("normed_out", normed_out), ("residual", residual), ("out", out)):
        shape(op, name, x, n, h)
    shape(op, "block_scale", block_scale, -(-h // 128), -(-n // 4) * 4)
    kind(op, "normed_out", normed_out, (input.dtype,))
    normed_out.copy_(input)
    _run.call(op, _norm.fused_add_rmsnorm, {"x": "input"}, normed_out, residual, weight, eps)
    _run.call(op, _quantize.quantize_groups, {"x": "normed_out", "q": "out", "scale": "block_scale"}, normed_out, 128, q=out,
              scale=block_scale.T[:n])


def fused_rmsnorm_silu(input, weight, eps=1e-6, out=None, block_scale=None):
    """Returns y / (1 + exp(-y)) of y = rmsnorm(input [n, h]) * weight, rounded once, saturating for FP8; out of input's dtype or e4m3fn."""
    op = "fused_rmsnorm_silu"
    refuse(op, block_scale=block_scale)
    tensors(op, {"input": input, "weight": weight})
    shape(op, "input", input, None, None)
    out = torch.empty_like(input) if out is None else out
    out = result(op, out, input.shape, None, input.device, (input.dtype, torch.float8_e4m3fn))
    y = _run.call(op, _norm.rmsnorm, {"x": "input"}, input.float(), weight.float(), eps)
    y = torch.nn.functional.silu(y)
    limit = torch.finfo(out.dtype).max
    out.copy_(y.clamp_(-limit, limit) if out.dtype.itemsize == 1 else y)
    return out


# ---- diffusion: x [batch, n, h]; gate, scale and shift are too, with strides of their own, and have biases [h]

def _rows(op, name, x, like, bias, bias_name):
    """Returns a modulation [batch, n, h] plus its bias as [rows, h]."""
    tensors(op, {name: x, bias_name: bias}, (bias_name,))
    shape(op, name, x, *like.shape)
    rows = x.reshape(-1, like.shape[2])
    if bias is None:
        return rows
    if bias.numel() != like.shape[2]:
        raise ValueError(f"{op}: {bias_name} has shape {list(bias.shape)}, needs [{like.shape[2]}]")
    return rows.float() + bias.reshape(-1).float()


def _check_dit(op, input, residual, residual_out, norm_out, use_nvfp4, use_mxfp8, global_scaling_factor, sf_out):
    refuse(op, use_nvfp4=use_nvfp4, use_mxfp8=use_mxfp8, global_scaling_factor=global_scaling_factor, sf_out=sf_out)
    tensors(op, {"input": input, "residual": residual}, ("residual",))
    shape(op, "input", input, None, None, None)
    kind(op, "input", input, (*SIXTEEN, torch.float32))
    if residual is not None:
        shape(op, "residual", residual, *input.shape)
        kind(op, "residual", residual, (input.dtype,))
    outputs = [result(op, out, input.shape, input.dtype, input.device, (input.dtype,), "input") for out in (residual_out, norm_out)]
    contiguous(op, residual_out=outputs[0], norm_out=outputs[1])
    return outputs


def _gated(op, input, residual, gate, scale, shift, outputs, epsilon):
    """Writes residual + gate * input and its norm to outputs; all are [rows, h] but input and outputs, [batch, n, h]."""
    residual_out, norm_out = outputs
    residual_out.copy_(residual)
    if any(x.dtype == torch.float32 for x in (gate, scale, shift)):
        gate, scale, shift = gate.float(), scale.float(), shift.float()
    one_row = [x.reshape(-1, 1, input.shape[2]) for x in (input, residual_out, norm_out)]
    _run.call(op, _norm.gated_residual_layernorm, {"x": "input", "eps": "epsilon"}, one_row[0], one_row[1], gate, scale, shift, epsilon,
              out=one_row[2])
    return residual_out, norm_out


def _times(op, rows, factor):
    number = one_number(op, "input_global_scaling_factor", factor, rows.device)
    return rows if number is None else rows.float() * number


def fused_dit_gate_residual_layernorm_scale_shift(input, residual, gate, scale, shift, *, gate_bias=None, scale_bias=None, shift_bias=None,
                                                  epsilon=1e-6, use_nvfp4=False, use_mxfp8=False, global_scaling_factor=None,
                                                  input_global_scaling_factor=None, residual_out=None, norm_out=None, sf_out=None):
    """Returns (t = residual + input * (gate + gate_bias), layernorm(t) * (1 + scale + scale_bias) + shift + shift_bias), [batch, n, h].
    input_global_scaling_factor, a number or a tensor of one, multiplies input."""
    op = "fused_dit_gate_residual_layernorm_scale_shift"
    outputs = _check_dit(op, input, residual, residual_out, norm_out, use_nvfp4, use_mxfp8, global_scaling_factor, sf_out)
    gate = _times(op, _rows(op, "gate", gate, input, gate_bias, "gate_bias"), input_global_scaling_factor)
    return _gated(op, input, residual, gate, _rows(op, "scale", scale, input, scale_bias, "scale_bias"),
                  _rows(op, "shift", shift, input, shift_bias, "shift_bias"), outputs, epsilon)


def fused_dit_gate_residual_layernorm_gamma_beta(input, residual, gate, gamma, beta, *, gate_bias=None, epsilon=1e-6, use_nvfp4=False,
                                                 use_mxfp8=False, global_scaling_factor=None, input_global_scaling_factor=None,
                                                 residual_out=None, norm_out=None, sf_out=None):
    """Returns (t = residual + input * (gate + gate_bias), layernorm(t) * gamma + beta), [batch, n, h]; gamma and beta are f32 [h]."""
    op = "fused_dit_gate_residual_layernorm_gamma_beta"
    outputs = _check_dit(op, input, residual, residual_out, norm_out, use_nvfp4, use_mxfp8, global_scaling_factor, sf_out)
    gate = _times(op, _rows(op, "gate", gate, input, gate_bias, "gate_bias"), input_global_scaling_factor)
    tensors(op, {"gamma": gamma, "beta": beta})
    for name, x in (("gamma", gamma), ("beta", beta)):
        shape(op, name, x, input.shape[2])
        kind(op, name, x, (torch.float32,))
    return _gated(op, input, residual, gate, (gamma - 1).expand(gate.shape), beta.expand(gate.shape), outputs, epsilon)


def fused_dit_residual_layernorm_scale_shift(input, scale, shift, *, residual=None, scale_bias=None, shift_bias=None, epsilon=1e-6,
                                             use_nvfp4=False, use_mxfp8=False, global_scaling_factor=None,
                                             input_global_scaling_factor=None, residual_out=None, norm_out=None, sf_out=None):
    """Returns (t = residual + input, layernorm(t) * (1 + scale + scale_bias) + shift + shift_bias), [batch, n, h]; residual None: 0."""
    op = "fused_dit_residual_layernorm_scale_shift"
    outputs = _check_dit(op, input, residual, residual_out, norm_out, use_nvfp4, use_mxfp8, global_scaling_factor, sf_out)
    scale, shift = _rows(op, "scale", scale, input, scale_bias, "scale_bias"), _rows(op, "shift", shift, input, shift_bias, "shift_bias")
    gate = _times(op, torch.ones(1, input.shape[2], dtype=torch.float32, device=input.device), input_global_scaling_factor)
    residual = torch.zeros_like(input) if residual is None else residual
    return _gated(op, input, residual, gate.expand(scale.shape), scale, shift, outputs, epsilon)


# ---- video: norms over all heads, rotation by frame, height and width

@functools.lru_cache(8)
def _tables(sizes, channels, base, device):
    """Returns (cos, sin), f32 [frames * heights * widths, head_dim / 2]."""
    places = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in sizes), indexing="ij")
    angles = [place.reshape(-1, 1) * base ** (-torch.arange(0, count, 2, dtype=torch.float64) / count)
              for place, count in zip(places, channels, strict=True)]
    angles = torch.cat(angles, -1)
    return angles.cos().float().to(device), angles.sin().float().to(device)


def _check_video(op, qkv, sizes, channels, heads, head_dim, base):
    tensors(op, {"qkv": qkv})
    for name, value in sizes.items():
        integer(op, name, value, 1)
    for name, value in channels.items():
        if integer(op, name, value, 0) % 2:
            raise ValueError(f"{op}: {name} is {value}; accepted: even numbers")
    if sum(channels.values()) != head_dim:
        raise ValueError(f"{op}: num_frame_channels, num_height_channels and num_width_channels add up to {sum(channels.values())}, "
                         f"head_dim is {head_dim}")
    if not base > 0:
        raise ValueError(f"{op}: base is {found(base)}; accepted: above 0")
    tokens, width = sizes["ppf"] * sizes["pph"] * sizes["ppw"], sum(heads) * head_dim
    if qkv.ndim not in (2, 3) or qkv.shape[-1] != width or (qkv.shape[-2] % tokens if qkv.ndim == 2 else qkv.shape[1] != tokens):
        raise ValueError(f"{op}: qkv has shape {list(qkv.shape)}, needs [batch, {tokens}, {width}], or that many tokens in a row")
    kind(op, "qkv", qkv, (*SIXTEEN, torch.float32))
    return tokens


def fused_qk_rmsnorm_rope(qkv, q_weight, k_weight, *, ppf, pph, ppw, num_frame_channels, num_height_channels, num_width_channels,
                          num_heads_q, num_heads_k, num_heads_v, head_dim, eps=1e-6, base=10000.0, interleave=True, factor=1.0, low=0.0,
                          high=0.0, attention_factor=1.0, is_qk_norm=True, output_fp8=False, output_quant_scale=1.0, v_quant_scale=1.0,
                          q_out=None, k_out=None, v_out=None):
    """Returns (q, k, v), [.., tokens, heads, head_dim] of qkv [.., tokens, all heads * head_dim]: q and k normalised over all heads by
    RMSNorm, then rotated by their place among ppf frames of pph by ppw, which turn num_frame_channels, num_height_channels and
    num_width_channels of head_dim; v as it is.

    q_weight, k_weight  [heads * head_dim]; is_qk_norm False: no norm
    output_fp8          results are e4m3fn, multiplied by output_quant_scale and v_quant_scale first, saturating
    factor, attention_factor 1, low, high 0: YaRN is missing. Norms are f32, and rounded with the rotation
    """
    op = "fused_qk_rmsnorm_rope"
    for name, value, only in (("factor", factor, 1), ("attention_factor", attention_factor, 1), ("low", low, 0), ("high", high, 0)):
        if value != only:
            raise NotImplementedError(f"{op}: {name} is {found(value)}; accepted: {only}")
    heads = num_heads_q, num_heads_k, num_heads_v
    sizes = {"ppf": ppf, "pph": pph, "ppw": ppw}
    channels = {"num_frame_channels": num_frame_channels, "num_height_channels": num_height_channels,
                "num_width_channels": num_width_channels}
    tokens = _check_video(op, qkv, sizes, channels, heads, head_dim, base)
    normed = flag(op, "is_qk_norm", is_qk_norm)
    parts = qkv.float().reshape(-1, tokens, qkv.shape[-1]).split([n * head_dim for n in heads], -1)
    turned = [_normed(op, name, x, weight, eps, normed) for name, x, weight in (("q_weight", parts[0], q_weight),
                                                                               ("k_weight", parts[1], k_weight))]
    turned = [x.unflatten(-1, (-1, head_dim)) for x in turned]
    cos, sin = _tables(tuple(sizes.values()), tuple(channels.values()), base, qkv.device)
    turned = _run.call(op, _rope.qk_rmsnorm_rope, {}, *turned, None, None, cos, sin, interleave=flag(op, "interleave", interleave))
    scales = output_quant_scale, output_quant_scale, v_quant_scale
    outs = zip(("q_out", "k_out", "v_out"), (*turned, parts[2].unflatten(-1, (-1, head_dim))), (q_out, k_out, v_out), scales, strict=True)
    return tuple(_written(op, name, x, out, scale, qkv, flag(op, "output_fp8", output_fp8)) for name, x, out, scale in outs)


def _normed(op, name, x, weight, eps, is_normed):
    tensors(op, {name: weight})
    shape(op, name, weight, x.shape[-1])
    return _run.call(op, _norm.rmsnorm, {"weight": name}, x.flatten(0, 1), weight.float(), eps).reshape(x.shape) if is_normed else x


def _written(op, name, x, out, scale, qkv, is_fp8):
    dtype = torch.float8_e4m3fn if is_fp8 else qkv.dtype
    x = x.reshape(*qkv.shape[:-1], *x.shape[-2:])
    if scale != 1 and not is_fp8:
        raise ValueError(f"{op}: the scale of {name} is {scale}; accepted without output_fp8: 1")
    if out is None:
        out = torch.empty(x.shape, dtype=dtype, device=x.device)
    tensors(op, {name: out})
    shape(op, name, out, *x.shape)
    kind(op, name, out, (dtype,))
    limit = torch.finfo(dtype).max
    return out.copy_((x * scale).clamp(-limit, limit) if is_fp8 else x)
