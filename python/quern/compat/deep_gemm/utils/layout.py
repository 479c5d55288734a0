# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's layouts of scales, and the alignment of groups."""

import torch

from .... import _scales
from ...._scales import get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor as _pack_k_grouped
from ...._public import translated
from ...._scales import get_tma_aligned_size
from .. import _check
from .._settings import (get_k_alignment_for_contiguous_layout, get_m_alignment_for_contiguous_layout,
                         get_mk_alignment_for_contiguous_layout, get_theoretical_mk_alignment_for_contiguous_layout,
                         set_mk_alignment_for_contiguous_layout)

__all__ = [
    "get_col_major_tma_aligned_tensor", "get_k_alignment_for_contiguous_layout",
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor",
    "get_m_alignment_for_contiguous_layout", "get_mk_alignment_for_contiguous_layout",
    "get_mn_major_tma_aligned_packed_ue8m0_tensor", "get_mn_major_tma_aligned_tensor",
    "get_theoretical_mk_alignment_for_contiguous_layout", "get_tma_aligned_size", "set_mk_alignment_for_contiguous_layout",
    "transform_sf_into_required_layout",
]


def get_mn_major_tma_aligned_tensor(sf: torch.Tensor) -> torch.Tensor:
    """Gives sf, f32 [mn, sk] or [groups, mn, sk], the strides (.., 1, aligned mn): columns begin at 16 bytes. Returns sf itself if it
    has them already."""
    _check.tensors("get_mn_major_tma_aligned_tensor", {"sf": sf})
    return _scales.get_mn_major_tma_aligned_tensor(sf)


def get_col_major_tma_aligned_tensor(x: torch.Tensor) -> torch.Tensor:
    """Computes get_mn_major_tma_aligned_tensor under its name of DeepGEMM's first release."""
    op = "get_col_major_tma_aligned_tensor"
    _check.tensors(op, {"x": x})
    try:
        return _scales.get_mn_major_tma_aligned_tensor(x)
    except (ValueError, NotImplementedError) as error:
        raise type(error)(translated(str(error), op, "get_mn_major_tma_aligned_tensor", {"sf": "x"})) from None


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: torch.Tensor, psum_layout: "torch.Tensor | None" = None) -> torch.Tensor:
    """Packs powers of two f32 [mn, sk] or [groups, mn, sk] as UE8M0: i32 [.., mn, ceil(sk / 4)] of strides (.., 1, aligned mn).

    psum_layout  i32 [groups]: where each group's rows end, the next one's beginning at the next multiple of
                 get_mk_alignment_for_contiguous_layout(); rows between are left as they come
    """
    _check.tensors("get_mn_major_tma_aligned_packed_ue8m0_tensor", {"sf": sf, "psum_layout": psum_layout}, none=("psum_layout",))
    return _scales.get_mn_major_tma_aligned_packed_ue8m0_tensor(sf, psum_layout, get_mk_alignment_for_contiguous_layout())


def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf: torch.Tensor, grouped_layout: torch.Tensor,
                                                           ks_cpu: "list[int] | None", gran_k: int, k_alignment: int,
                                                           use_psum_layout: bool = False) -> torch.Tensor:
    """Packs powers of two in groups along k as UE8M0: i32 [words, mn], each group at a word of its own.

    sf              f32 [sk, mn]
    grouped_layout  i32 [groups]: k of each group; use_psum_layout: where it ends, the next one beginning at the next multiple of
                    k_alignment
    ks_cpu          the same k's as a list, for the number of words; with use_psum_layout None or [] will do
    """
    _check.tensors("get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor", {"sf": sf, "grouped_layout": grouped_layout})
    return _pack_k_grouped(sf, grouped_layout, ks_cpu, gran_k, k_alignment, use_psum_layout)


def transform_sf_into_required_layout(sf: torch.Tensor, mn: int, k: int, recipe: "tuple[int, ...]",
                                      num_groups: "int | None" = None, is_sfa: "bool | None" = None,
                                      disable_ue8m0_cast: bool = False,
                                      psum_layout: "torch.Tensor | None" = None) -> torch.Tensor:
    """Lays sf, f32, out as DeepGEMM's products on Hopper take it, and those here: MN-major and aligned for (1, 128), as it is for
    (128, 128).

    sf           f32 [ceil(mn / gran_mn), ceil(k / gran_k)], perhaps [num_groups, ..]
    recipe       (gran_m, gran_n, gran_k) with is_sfa, or (gran_mn, gran_k)
    psum_layout  i32: a hint which rows may be left out, which changes nothing
    disable_ue8m0_cast  True or False: f32 stays f32
    """
    op = "transform_sf_into_required_layout"
    _check.tensors(op, {"sf": sf, "psum_layout": psum_layout}, none=("psum_layout",))
    _check.hints(op, disable_ue8m0_cast=disable_ue8m0_cast)
    if psum_layout is not None:
        _check.dtype(op, "psum_layout", psum_layout, (torch.int32,))
    return _scales.transform_sf_into_required_layout(sf, mn, k, recipe, num_groups, is_sfa, disable_ue8m0_cast)
