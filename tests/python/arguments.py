# SPDX-License-Identifier: Apache-2.0
"""For each op of the library arguments that it accepts, small, as NumPy arrays and numbers in the C header's order."""

import ml_dtypes
import numpy as np
import quern
from quern import _ops
from tools import BF16, normal

FP8 = ml_dtypes.float8_e4m3fn
_HALF = 64  # of a row of 128


def _bf16(*shape, seed=1):
    return normal(seed, shape, BF16)


def _f32(*shape, seed=2):
    return normal(seed, shape)


def _scale(*shape):
    return np.full(shape or (1,), 0.5, np.float32)


def _fp8(*shape, seed=3):
    return normal(seed, shape).astype(FP8)


def _i32(*values):
    return np.array(values, np.int32)


def _heads(op_specific, *options):
    """Returns q_out, k_out, q, k, then the op's own arguments, for 4 tokens with 2 and 1 heads of 64."""
    return [_bf16(4, 2, 64), _bf16(4, 1, 64), _bf16(4, 2, 64, seed=4), _bf16(4, 1, 64, seed=5), *op_specific, *options]


def _packed():
    b, scale = _fp8(128, 128), _scale(1, 1)
    packed, packed_scale = quern.gemm_pack(b, scale)
    return [packed, packed_scale, b, scale]


def _states(*shape):
    """Returns partial results and their log-sum-exp."""
    return _bf16(*shape, 32, seed=10), _f32(*shape, seed=11)


def mla_plan():
    """Returns a plan of mla_decode's arguments: queries 1 and 2, on 3 and 2 keys."""
    return quern.attention_plan(4, 1, 32, qo_indptr=[0, 1, 3], kv_indptr=[0, 2, 3], kv_last_page_len=[1, 2], page_size=2)


_ROPE, _LLAMA = (0, 0, 1.0, 1e4), (0, 0, 8.0, 5e5, 1.0, 4.0, 8192)
_PAGES = lambda: [_i32(0, 0, 1, 1), _i32(0, 1, 0, 3), _i32(2, 0, 1), _i32(0, 1, 3)]  # noqa: E731
_NEW = lambda *width: [_bf16(4, *width, seed=6), _bf16(4, *width, seed=7)]  # noqa: E731
_CACHES = lambda *shape: [_bf16(*shape, seed=8), _bf16(*shape, seed=9)]  # noqa: E731
_TABLE = lambda: [_f32(16, 32), _i32(0, 3, 15, 1)]  # noqa: E731  cosines and sines, positions
_TO_FP8 = lambda: [_bf16(4, 2, 32), _bf16(4, 1, 32, seed=4)]  # noqa: E731  parts of q and k

_MAKERS = {
    "copy": lambda: [_bf16(4, 128), _bf16(4, 128, seed=4)],
    "rmsnorm": lambda: [_bf16(4, 128), _bf16(4, 128, seed=4), _bf16(128), 1e-6],
    "fused_add_rmsnorm": lambda: [_bf16(4, 128), _bf16(4, 128, seed=4), _bf16(128), 1e-6],
    "layernorm": lambda: [_bf16(4, 128), _bf16(4, 128, seed=4), _bf16(128), _bf16(128), 1e-6],
    "rmsnorm_quant": lambda: [_fp8(4, 128), _bf16(4, 128), _bf16(128), _scale(), 1e-6],
    "fused_add_rmsnorm_quant": lambda: [_fp8(4, 128), _bf16(4, 128), _bf16(4, 128, seed=4), _bf16(128), _scale(), 1e-6],
    "layernorm_quant": lambda: [_fp8(4, 128), _bf16(4, 128), _bf16(128), _bf16(128), _scale(), 1e-6],
    "rmsnorm_dynamic_quant": lambda: [_fp8(4, 128), _f32(4), _bf16(4, 128), _bf16(4, 128, seed=4), _bf16(128), 1e-6, 1e-10],
    "adaptive_layernorm_dynamic_quant": lambda: [_fp8(1, 4, 128), _f32(1, 4), _bf16(1, 4, 128), _bf16(1, 128), _bf16(1, 128), 1e-6, 1e-10],
    "adaptive_layernorm": lambda: [_bf16(1, 4, 128), _bf16(1, 4, 128, seed=4), _bf16(1, 128), _bf16(1, 128), 1e-6],
    "gated_residual_layernorm": lambda: [_bf16(1, 4, 128), _bf16(1, 4, 128, seed=4), _bf16(1, 4, 128, seed=5),
                                         _bf16(1, 128), _bf16(1, 128), _bf16(1, 128), 1e-6],
    "norm_backward": lambda: [_bf16(4, 128), _bf16(128), None, _bf16(4, 128), _bf16(128), np.zeros(2 * 4 * 4 * 128, np.uint8),
                              _bf16(4, 128, seed=4), _bf16(4, 128, seed=5), _bf16(128), _bf16(4, 128, seed=6), _bf16(128, seed=7),
                              _bf16(4, 128, seed=8), 1e-6, 0, 0],
    "activation_backward": lambda: [_bf16(4, 256), _bf16(4, 128, seed=4), _bf16(4, 256, seed=5), 0, 0.0],
    "quantize_fp8": lambda: [_fp8(4, 128), _f32(4, 1), _bf16(4, 128), 1, 128, 1e-4],
    "dequantize_fp8": lambda: [_bf16(4, 128), _fp8(4, 128), _scale(4, 1), 1, 128],
    "quantize_groups": lambda: [_fp8(4, 128), _f32(4, 2), _bf16(4, 128), 64, 0, 1e-10],
    "quantize_static": lambda: [_fp8(4, 128), _bf16(4, 128), _scale()],
    "quantize_tensor": lambda: [_fp8(4, 128), _f32(1), _bf16(4, 128),
                                np.zeros(quern._ops.ffi.quantize_tensor_workspace(), np.uint8), 1e-10],
    "packbits": lambda: [np.zeros(2, np.uint8), _f32(15) > 0, 0],
    "segment_packbits": lambda: [np.zeros(4, np.uint8), _i32(0, 0, 0), _f32(15) > 0, _i32(0, 9, 15), 0],
    "transform_scales": lambda: [_f32(4, 2).astype(np.int32), _scale(4, 8), _i32(3, 4), 1, 0, 0],
    "pack_k_grouped_scales": lambda: [_f32(3, 4).astype(np.int32), _scale(8, 4), _i32(512, 512), 128, 128, 0, 0],
    "convert_fp8": lambda: [np.zeros((4, 128), ml_dtypes.float8_e4m3fnuz), _f32(4, 1), _fp8(4, 128), _scale(4, 1), 0],
    "gemm": lambda: [_bf16(4, 16), _fp8(4, 128), _fp8(16, 128), None, _scale(4, 1), _scale(1, 1), _f32(16), _bf16(2, 16), None,
                     None, 1, 0.0, 0],
    "gemm_grouped_contiguous": lambda: [_bf16(128, 16), _fp8(128, 128), _fp8(2, 16, 128), _scale(128, 1), _scale(2, 1, 1),
                                        np.zeros(128, np.int32), _f32(2, 16), None, None, 0, 0, 0, 1, 0.0, 0],
    "gemm_grouped_masked": lambda: [_bf16(2, 4, 16), _fp8(2, 4, 128), _fp8(2, 16, 128), _scale(2, 4, 1), _scale(2, 1, 1),
                                    _i32(4, 1), _f32(2, 16), None, None, 2, 1, 0.0, 0],
    "gemm_pack": _packed,
    "silu_and_mul": lambda: [_bf16(4, _HALF), _bf16(4, 128)],
    "act_and_mul": lambda: [_bf16(4, _HALF), _bf16(4, 128), 1, 2.0],
    "act_and_mul_quant": lambda: [_fp8(4, _HALF), _bf16(4, 128), _scale(), 1, 2.0],
    "act_and_mul_dynamic_quant": lambda: [_fp8(4, _HALF), _f32(4), _bf16(4, 128), 0, 0.0, 1e-10],
    "apply_rope": lambda: _heads([_i32(0, 1, 4), _i32(7, 0)], *_ROPE),
    "apply_rope_pos_ids": lambda: _heads([_i32(0, 5, 2, 9)], *_ROPE),
    "apply_llama31_rope": lambda: _heads([_i32(0, 1, 4), _i32(7, 0)], *_LLAMA),
    "apply_llama31_rope_pos_ids": lambda: _heads([_i32(0, 5, 2, 9)], *_LLAMA),
    "apply_rope_with_cos_sin_cache": lambda: _heads(_TABLE(), 0),
    "qk_rmsnorm_rope": lambda: _heads([_bf16(64), _bf16(64), _f32(4, 32), _f32(4, 32)], 64, 1e-6, 0),
    "rope_quantize_fp8": lambda: [_fp8(4, 2, 32), _fp8(4, 1, 32), _fp8(4, 2, 32), _fp8(4, 1, 32), *_TO_FP8(), *_TO_FP8(),
                                  *_TABLE(), 0.5, 2.0, 0],
    "rope_quantize_fp8_append_paged_kv_cache": lambda: [
        _fp8(4, 2, 32), _fp8(4, 2, 32), _fp8(3, 5, 1, 64), _fp8(3, 5, 1, 32), None, None, *_TO_FP8(), *_TO_FP8(),
        _bf16(4, 1, 32, seed=6), *_TABLE(), *_PAGES(), 0.5, 2.0, 0, 0],
    "append_paged_kv_cache": lambda: [*_CACHES(3, 5, 2, 16), *_NEW(2, 16), *_PAGES(), _i32(2, 4), 0],
    "append_paged_mla_kv_cache": lambda: [*_CACHES(3, 5, 16), *_NEW(16), *_PAGES(), _i32(2, 4)],
    "reshape_and_cache": lambda: [_fp8(3, 5, 2, 16), _fp8(3, 5, 2, 16, seed=4), *_NEW(2, 16), _i32(0, 14, -1, 7), _scale(),
                                  _scale(), 0],
    "concat_and_cache_mla": lambda: [_bf16(3, 2, 40, seed=8), _bf16(4, 32), _bf16(4, 8, seed=6), _i32(3, -1, 0, 5), None],
    "quantize_and_cache_mla": lambda: [_fp8(3, 2, 256), _f32(3, 2, 2), _bf16(3, 2, 8, seed=8), _bf16(4, 256), _bf16(4, 8, seed=6),
                                       _i32(3, -1, 0, 5)],
    "gather_paged_mla_kv_cache": lambda: [_bf16(4, 16, seed=8), _fp8(3, 5, 16), _scale(), None, None, *_PAGES(), _i32(2, 4)],
    "get_seq_lens": lambda: [_i32(0, 0, 0), _i32(0, 2, 2, 3), _i32(3, 0, 4), 4],
    "moe_route": lambda: [_f32(4, 5), _i32(*range(20)).reshape(4, 5), _bf16(4, 16), _f32(16), 1, 4, 2, 1, 2.5, 1, 0.5],
    "moe_sort": lambda: [_i32(9, 9, 9), _i32(*range(8)).reshape(4, 2), _i32(*range(20)), _i32(*range(20)), _i32(*range(5)), _i32(9),
                         _i32(0, 2, 1, -1, 2, 3, 0, 0).reshape(4, 2), _i32(0, 1, 2, -1), 3, 4],
    "moe_permute": lambda: [_bf16(6, 16), _f32(6, 2), _bf16(4, 16), _f32(4, 2), _i32(0, 7, 3, 8, 2, 1), 2],
    "moe_activate": lambda: [_fp8(4, 64), _f32(4, 1), _bf16(4, 128), _i32(0, -1, 1, 2), 3, 7.0, 1.5, 1, 1e-10],
    "fused_moe": lambda: [_bf16(4, 64), np.zeros(1 << 15, np.uint8), _fp8(4, 64), _scale(4, 1), _fp8(3, 96, 64), _fp8(3, 64, 48),
                          _scale(3, 1, 1), _scale(3, 1, 1), _f32(3, 96), _f32(3, 64), _f32(4, 2),
                          _i32(0, 2, 1, -1, 2, 3, 0, 0).reshape(4, 2), _i32(0, 1, 2, -1), _bf16(4, 64, seed=4), 3, 7.0, 1.5, 1, 0, 0],
    "moe_sum": lambda: [_bf16(4, 16), _bf16(6, 16), _f32(4, 2), _i32(0, 5, 3, -1, 2, 1, 0, 4).reshape(4, 2), _bf16(4, 16)],
    "attention": lambda: [_bf16(2, 3, 4, 32), _f32(2, 3, 4), _bf16(2, 3, 4, 32, seed=4), _bf16(2, 5, 2, 32, seed=5),
                          _bf16(2, 5, 2, 32, seed=6), None, None, None, None, None, None, None, None, None, _f32(4), 0, 1, 0,
                          3, -1, 0, 0, 7, 0, 1.0, 1e4, 0.25, 30.0, 1.0, 1.0, 1.0, 0.25],
    "attention_backward": lambda: [_bf16(2, 3, 4, 32), _bf16(2, 5, 2, 32), _bf16(2, 5, 2, 32), None, _f32(4),
                                   np.zeros(1 << 19, np.uint8), _bf16(2, 3, 4, 32, seed=4), _bf16(2, 3, 4, 32, seed=5),
                                   _f32(2, 3, 4, seed=6), _bf16(2, 3, 4, 32, seed=7), _bf16(2, 5, 2, 32, seed=8),
                                   _bf16(2, 5, 2, 32, seed=9), None, None, None, None, None, None, None, None, None, _f32(4), 0, 1, 0,
                                   3, -1, 0, 0, 7, 0, 1.0, 1e4, 0.25, 30.0, 1.0, 1.0, 1.0, 0.25],
    "mla_decode": lambda: [_bf16(3, 4, 32), _f32(3, 4), _bf16(3, 4, 32, seed=4), _bf16(3, 4, 8, seed=5), _bf16(3, 2, 32, seed=6),
                           _bf16(3, 2, 8, seed=7), None, _i32(2, 0, 1), mla_plan().host, None, None, _f32(4), _scale(), 1, 1, 0.25, 1.0,
                           2.0],
    "merge_state": lambda: [_bf16(3, 2, 32), _f32(3, 2), *_states(3, 2), *_states(3, 2), 0],
    "merge_states": lambda: [_bf16(3, 2, 32), _f32(3, 2), *_states(3, 4, 2), 1],
    "softmax": lambda: [_f32(3, 8), _bf16(3, 8), _scale(3), 0.5],
    "sample": lambda: [_i32(0, 0, 0), np.zeros(3, bool), _bf16(2, 8), None, _i32(0, 1, 1), _scale(3), _i32(5, 1, 9), _scale(3),
                       _scale(3), np.arange(3), np.arange(1), 0.5, 3, 0.5, 0.25, 0, 1, 2],
    "sample_greedy": lambda: [_i32(0, 0, 0), np.zeros(3, bool), _bf16(3, 8)],
    "top_k_renorm_probs": lambda: [_bf16(3, 8), abs(_bf16(3, 8)) / 4, _i32(1, 2, 9), 3],
    "top_p_renorm_probs": lambda: [_bf16(3, 8), abs(_bf16(3, 8)) / 4, _scale(3), 0.5],
    "top_k_mask_logits": lambda: [_bf16(3, 8), _bf16(3, 8, seed=4), _i32(1, 2, 9), 3],
    "apply_penalties": lambda: [_bf16(3, 8), _bf16(3, 8, seed=4), np.ones((3, 8), np.int32), np.ones((3, 8), bool), _scale(3), _scale(3),
                                _scale(3), 1.5, 0.5, 0.25],
    "chain_speculative_sampling": lambda: [np.zeros((3, 3), np.int32), _i32(0, 0, 0), _i32(0, 0, 0), _scale(3, 2, 8),
                                           np.ones((3, 2), np.int32), _scale(3, 3, 8), np.arange(3), np.arange(1), 1, 2],
    "attention_dropout_mask": lambda: [_f32(2, 2, 3, 7), 0.25, 7, 2],
    "attention_dropout_rng": lambda: [_f32(2, 2, 3, 7), 7, 2],
    "get_batch_indices_positions": lambda: [_i32(9, 9, 9, 9), _i32(9, 9, 9, 9), _i32(0, 1, 4), _i32(3, 4)],
}
for _name, _same in {"gemma_rmsnorm": "rmsnorm", "gemma_fused_add_rmsnorm": "fused_add_rmsnorm",
                     "gelu_and_mul": "silu_and_mul", "gelu_tanh_and_mul": "silu_and_mul"}.items():
    _MAKERS[_name] = _MAKERS[_same]

NAMES = sorted(_MAKERS)


def parameters(name):
    """Returns the op's parameters (name, kind, is_written, is_optional), as python/ffi/ops.def has them."""
    return _ops.TABLE[name]


def arguments(name):
    """Returns new arguments, in the order of parameters(name)."""
    return _MAKERS[name]()
