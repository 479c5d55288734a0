# SPDX-License-Identifier: Apache-2.0
"""For each public function of quern a call that it accepts, by names, small, on NumPy arrays."""

import inspect

import arguments
import ml_dtypes
import numpy as np
import quern
from tools import normal

# The native op's names of arguments -> the public function's.
_GEMM = {"d": "out", "scale_d": "scale_out", "given_scale_d": "given_scale", "scale_d_eps": "eps"}
_RENAMED = {"attention": {"o": "out"}, "attention_backward": {"o": "out", "d_o": "d_out"}, "mla_decode": {"o": "out"}, "gemm": _GEMM, "gemm_grouped_contiguous": _GEMM,
            "gemm_grouped_masked": _GEMM, "convert_fp8": {"q_out": "out"}, "dequantize_fp8": {"x": "out"},
            "softmax": {"probs": "out"}}
_WORDS = {"function": ["silu", "gelu", "gelu_tanh", "swiglu"], "activation": [None, "gelu_tanh"], "order": ["big", "little"],
          "scoring": ["softmax", "sigmoid"], "lse_base": [2, "e"],
          "pos_encoding": ["none", "rope_llama", "alibi"]}


def _of_op(name):
    """Returns the op's own arguments, as the public function has them."""
    given = {}
    for parameter, value in zip(arguments.parameters(name), arguments.arguments(name), strict=True):
        given[_RENAMED.get(name, {}).get(parameter.name, parameter.name)] = value
    for word in _WORDS.keys() & given.keys():
        given[word] = _WORDS[word][given[word]]
    for flag in ("is_interleaved", "w_is_packed"):
        if flag in given:
            given[flag.removeprefix("is_").removeprefix("w_is_")] = bool(given.pop(flag))
    if "is_hnd" in given:
        given["layout"] = "HND" if given.pop("is_hnd") else "NHD"
    if "b_is_packed" in given:
        given["packed"] = bool(given.pop("b_is_packed"))
    if given.get("eps") == 0:
        given["eps"] = None  # for C, 0 says that it is not given
    if "block_cols" in given:
        given["block"] = given.pop("block_rows"), given.pop("block_cols")
    return given


def _scales(*shape):
    return np.full(shape, 0.5, np.float32)


def _i32(*values):
    return np.array(values, np.int32)


_OWN = {
    "device": lambda: {"spec": "cpu"}, "devices": dict, "last_kernel": dict,
    "empty": lambda: {"shape": (2, 3), "dtype": "f32", "device": "cpu"},
    "to": lambda: {"x": normal(1, (2, 3)), "device": "cpu"}, "numpy": lambda: {"x": normal(1, (2, 3))},
    "attention_plan": lambda: {"num_qo_heads": 4, "num_kv_heads": 2, "head_dim_vo": 32, "qo_indptr": [0, 1, 4],
                               "kv_indptr": _i32(0, 2, 3), "kv_last_page_len": [4, 9], "page_size": 16, "batches": 2},
    "get_tma_aligned_size": lambda: {"x": 5, "element_size": 4},
    "ceil_to_ue8m0": lambda: {"x": _scales(2, 4)}, "pack_ue8m0_to_int": lambda: {"x": _scales(2, 4)},
    "unpack_ue8m0_from_int": lambda: {"packed_sf": np.full((2, 1), 0x7F7F7F7F, np.int32)},
    "get_mn_major_tma_aligned_tensor": lambda: {"sf": _scales(5, 2)},
    "get_mn_major_tma_aligned_packed_ue8m0_tensor": lambda: {"sf": _scales(5, 4), "psum_layout": _i32(5), "mn": 5},
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor": lambda: {
        "sf": _scales(4, 2), "grouped_layout": _i32(512), "ks_cpu": [512], "gran_k": 128},
    "transform_sf_into_required_layout": lambda: {"sf": _scales(5, 4), "mn": 5, "k": 512, "recipe": (1, 128, 128), "is_sfa": True,
                                                  "packed": True, "psum_layout": _i32(5)},
    "gemm_pack": lambda: {"b": normal(1, (128, 128)).astype(ml_dtypes.float8_e4m3fn), "scale_b": _scales(1, 1)},
    "convert_fp8": lambda: _of_op("convert_fp8") | {"dtype": "e4m3fnuz"},
    "sample": lambda: _of_op("sample") | {"order": "joint", "return_valid": True},
    "sample_probs": lambda: _of_op("sample") | {"probs": _scales(2, 8), "order": "joint", "return_valid": True},
    "sample_greedy": lambda: _of_op("sample_greedy") | {"return_valid": True},
    "mla_decode": lambda: _of_op("mla_decode") | {"plan": arguments.mla_plan()},
    "moe_route": lambda: _of_op("moe_route") | {"top_k": 4},
    "get_batch_indices_positions": lambda: _of_op("get_batch_indices_positions") | {"nnz": 4},
}


def call(name):
    """Returns the arguments by name."""
    taken = inspect.signature(getattr(quern, name)).parameters
    return {k: v for k, v in (_OWN[name]() if name in _OWN else _of_op(name)).items() if k in taken}


NAMES = sorted(set(quern.__all__) & (set(_OWN) | set(arguments.NAMES)) - {"copy"})
