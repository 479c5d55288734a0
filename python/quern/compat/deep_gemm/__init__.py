# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's functions over quern: `import quern.compat.deep_gemm as deep_gemm`, on PyTorch tensors of any device.

Names, modules, parameters and results are DeepGEMM's (2.6) as it has them on Hopper, and those of its first release, as far
as quern has the op or products of quern make it up; docs/deep_gemm.md lists them. FP4 and what DeepGEMM has on SM100 alone raise
NotImplementedError. These differ: shapes are any that quern takes; scales are f32 or packed as UE8M0 on any device;
`compiled_dims`, `disable_ue8m0_cast`, `expected_m` and the settings (`set_num_sms`, `set_tc_util`, `set_pdl`,
`set_block_size_multiple_of`, `set_ignore_compile_dims`), which say how DeepGEMM computes, change nothing. No gradients are
computed: a tensor that needs one is a RuntimeError.
"""

from . import legacy, mega, testing, utils
from ._settings import (get_num_sms, get_pdl, get_tc_util, set_block_size_multiple_of, set_ignore_compile_dims, set_num_sms, set_pdl,
                        set_tc_util)
from .attention import (fp8_fp4_mqa_logits, fp8_fp4_paged_mqa_logits, fp8_mqa_logits, fp8_paged_mqa_logits,
                        get_paged_mqa_logits_metadata)
from .einsum import einsum, fp8_einsum
from .gemm import (bf16_gemm_nn, bf16_gemm_nt, bf16_gemm_tn, bf16_gemm_tt, cublaslt_gemm_nn, cublaslt_gemm_nt, cublaslt_gemm_tn,
                   cublaslt_gemm_tt, fp8_fp4_gemm_nn, fp8_fp4_gemm_nt, fp8_fp4_gemm_tn, fp8_fp4_gemm_tt, fp8_gemm_nn, fp8_gemm_nt,
                   fp8_gemm_nt_skip_head_mid, fp8_gemm_tn, fp8_gemm_tt, gemm_fp8_fp8_bf16_nt)
from .grouped import (bf16_m_grouped_gemm_nt_masked, fp8_m_grouped_gemm_nt_masked, m_grouped_bf16_gemm_nn_contiguous,
                      m_grouped_bf16_gemm_nt_contiguous, m_grouped_bf16_gemm_nt_masked, m_grouped_fp8_fp4_gemm_nn_contiguous,
                      m_grouped_fp8_fp4_gemm_nt_contiguous, m_grouped_fp8_fp4_gemm_nt_masked, m_grouped_fp8_gemm_nn_contiguous,
                      m_grouped_fp8_gemm_nt_contiguous, m_grouped_fp8_gemm_nt_masked,
                      m_grouped_gemm_fp8_fp8_bf16_nt_contiguous, m_grouped_gemm_fp8_fp8_bf16_nt_masked)
from .hyperconnection import tf32_hc_prenorm_gemm
from .k_grouped import k_grouped_bf16_gemm_tn_contiguous, k_grouped_fp8_gemm_nt_contiguous, k_grouped_fp8_gemm_tn_contiguous
from .mega import SymmBuffer, bf16_mega_moe, fp8_fp4_mega_moe, get_symm_buffer_for_mega_moe, transform_weights_for_mega_moe
from .testing import bench, bench_kineto, calc_diff
from .utils import (align, cast_back_from_fp4, ceil_div, ceil_to_ue8m0, get_k_alignment_for_contiguous_layout,
                    get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor, get_m_alignment_for_contiguous_layout,
                    get_mk_alignment_for_contiguous_layout, get_mn_major_tma_aligned_packed_ue8m0_tensor,
                    get_mn_major_tma_aligned_tensor, get_theoretical_mk_alignment_for_contiguous_layout, get_tma_aligned_size,
                    init_dist, pack_ue8m0_to_int, per_block_cast_to_fp8, per_channel_cast_to_fp8, per_custom_dims_cast_to_fp8,
                    per_token_cast_to_fp4, per_token_cast_to_fp8, set_mk_alignment_for_contiguous_layout, transpose_packed_fp4,
                    uneven_all_gather, unpack_ue8m0_from_int)
from .utils.layout import get_col_major_tma_aligned_tensor, transform_sf_into_required_layout
from .utils.math import cell_div

__version__ = "2.6.1"

__all__ = [
    "SymmBuffer", "__version__", "align", "bench", "bench_kineto", "bf16_gemm_nn", "bf16_gemm_nt", "bf16_gemm_tn", "bf16_gemm_tt",
    "bf16_m_grouped_gemm_nt_masked", "bf16_mega_moe", "calc_diff", "cast_back_from_fp4", "ceil_div", "ceil_to_ue8m0", "cell_div",
    "cublaslt_gemm_nn", "cublaslt_gemm_nt", "cublaslt_gemm_tn", "cublaslt_gemm_tt", "einsum", "fp8_einsum", "fp8_fp4_gemm_nn",
    "fp8_fp4_gemm_nt", "fp8_fp4_gemm_tn", "fp8_fp4_gemm_tt", "fp8_fp4_mega_moe", "fp8_fp4_mqa_logits", "fp8_fp4_paged_mqa_logits",
    "fp8_gemm_nn", "fp8_gemm_nt", "fp8_gemm_nt_skip_head_mid", "fp8_gemm_tn", "fp8_gemm_tt", "fp8_m_grouped_gemm_nt_masked",
    "fp8_mqa_logits", "fp8_paged_mqa_logits", "gemm_fp8_fp8_bf16_nt", "get_col_major_tma_aligned_tensor",
    "get_k_alignment_for_contiguous_layout", "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_m_alignment_for_contiguous_layout", "get_mk_alignment_for_contiguous_layout",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor", "get_mn_major_tma_aligned_tensor", "get_num_sms",
    "get_paged_mqa_logits_metadata", "get_pdl", "get_symm_buffer_for_mega_moe", "get_tc_util",
    "get_theoretical_mk_alignment_for_contiguous_layout", "get_tma_aligned_size", "init_dist",
    "k_grouped_bf16_gemm_tn_contiguous", "k_grouped_fp8_gemm_nt_contiguous", "k_grouped_fp8_gemm_tn_contiguous", "legacy",
    "m_grouped_bf16_gemm_nn_contiguous", "m_grouped_bf16_gemm_nt_contiguous", "m_grouped_bf16_gemm_nt_masked",
    "m_grouped_fp8_fp4_gemm_nn_contiguous", "m_grouped_fp8_fp4_gemm_nt_contiguous", "m_grouped_fp8_fp4_gemm_nt_masked",
    "m_grouped_fp8_gemm_nn_contiguous", "m_grouped_fp8_gemm_nt_contiguous", "m_grouped_fp8_gemm_nt_masked",
    "m_grouped_gemm_fp8_fp8_bf16_nt_contiguous", "m_grouped_gemm_fp8_fp8_bf16_nt_masked", "mega", "pack_ue8m0_to_int",
    "per_block_cast_to_fp8", "per_channel_cast_to_fp8", "per_custom_dims_cast_to_fp8", "per_token_cast_to_fp4",
    "per_token_cast_to_fp8", "set_block_size_multiple_of", "set_ignore_compile_dims", "set_mk_alignment_for_contiguous_layout",
    "set_num_sms", "set_pdl", "set_tc_util", "testing", "tf32_hc_prenorm_gemm", "transform_sf_into_required_layout",
    "transform_weights_for_mega_moe", "transpose_packed_fp4", "uneven_all_gather", "unpack_ue8m0_from_int", "utils",
]


def __getattr__(name: str) -> object:
    """Raises for a name of DeepGEMM's that is not here, and says where the list of names is."""
    raise AttributeError(f"quern.compat.deep_gemm has no {name}; docs/deep_gemm.md lists what it has of DeepGEMM 2.6")
