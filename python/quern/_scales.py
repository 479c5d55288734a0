# SPDX-License-Identifier: Apache-2.0
"""Layouts of FP8's scales, under DeepGEMM's names: MN-major with aligned columns, packed as UE8M0, powers of two.

Raises ValueError (shape, stride, recipe), NotImplementedError (dtype); nothing is written then.
"""

from . import _ops
from ._tensor import dtype_name, empty_like, empty_strided_like, strides_of


def transform_scales(scale, out, ends=None, block_rows=1, m_alignment=128, round_scale=False):
    """Lays scale out as out's dtype and strides say, and gives out; each f32, or i32: UE8M0, scale 4 i + j in byte j of word i.

    out          [mn, sk] or [groups, mn, sk]; words [.., ceil(sk / 4)]
    scale        [.., ceil(mn / block_rows), sk], or words
    ends         i32 [n] on scale's device or None: where each group's rows end, the next one's beginning at the next multiple of
                 m_alignment; rows between are left alone
    round_scale  f32 scales are rounded up to powers of two
    """
    _ops.transform_scales(out, scale, ends, block_rows, m_alignment, round_scale)
    return out


def pack_k_grouped_scales(scale, group_layout, gran_k, k_alignment=128, by_ends=False, round_scale=False, out=None):
    """f32 [sk, mn], in groups along k, to UE8M0: i32 [words, mn], each group at a word of its own, zeros behind the last.

    group_layout  i32 [groups] on scale's device: k of each group; by_ends: where it ends, the next one beginning at the next
                  multiple of k_alignment
    gran_k        k of a scale
    out           None: as many words as any groups can need
    """
    if out is None:
        rows, columns = scale.shape
        out = empty_like(scale, shape=((rows + 3 * group_layout.shape[0]) // 4, columns), dtype="int32")
    _ops.pack_k_grouped_scales(out, scale, group_layout, gran_k, k_alignment, by_ends, round_scale)
    return out


def get_tma_aligned_size(x, element_size):
    """x rounded up to whole pieces of 16 bytes of elements of that size."""
    step = 16 // element_size
    return -(-x // step) * step


def ceil_to_ue8m0(x):
    """f32 x [mn, sk] or [groups, mn, sk] up to powers of two, 2**-126 to 2**127."""
    return transform_scales(x, empty_like(x), round_scale=True)


def pack_ue8m0_to_int(x):
    """Powers of two, f32 [.., sk], to UE8M0: i32 [.., sk / 4], scale 4 i + j in byte j of word i."""
    if x.shape[-1] % 4:
        raise ValueError(f"pack_ue8m0_to_int: x has {x.shape[-1]} columns, needs a multiple of 4")
    return transform_scales(x, empty_like(x, shape=(*x.shape[:-1], x.shape[-1] // 4), dtype="int32"))


def unpack_ue8m0_from_int(packed_sf):
    """The inverse: i32 [.., words] to f32 [.., 4 * words]."""
    shape = (*packed_sf.shape[:-1], 4 * packed_sf.shape[-1])
    return transform_scales(packed_sf, empty_like(packed_sf, shape=shape, dtype="float32"))


def get_mn_major_tma_aligned_tensor(sf):
    """sf, f32 [mn, sk] or [groups, mn, sk], as strides (.., 1, aligned mn); sf itself if it is so already."""
    strides = _mn_major(sf.shape)
    if dtype_name(sf.dtype) == "float32" and tuple(strides_of(sf))[-2:] == strides[-2:] and \
            (len(sf.shape) == 2 or strides_of(sf)[0] == strides[0]):
        return sf
    return transform_scales(sf, empty_strided_like(sf, sf.shape, strides))


def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf, psum_layout=None, m_alignment=128, block_rows=1, mn=None):
    """Powers of two, f32 [mn, sk] or [groups, mn, sk], to UE8M0: i32 [.., ceil(sk / 4)] of strides (.., 1, aligned mn).

    psum_layout  i32 [n] on sf's device or None: where each group's rows end, the next one's beginning at the next multiple of
                 m_alignment; rows between are left as they come
    block_rows   rows for which a row of sf stands; mn is how many there are in all
    """
    *lead, rows, columns = sf.shape
    shape = (*lead, rows * block_rows if mn is None else mn, -(-columns // 4))
    out = empty_strided_like(sf, shape, _mn_major(shape), "int32")
    return transform_scales(sf, out, psum_layout, block_rows, m_alignment)


def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, grouped_layout, ks_cpu, gran_k, k_alignment=128,
                                                           use_psum_layout=False):
    """Powers of two, f32 [sk, mn], in groups along k, to UE8M0: i32 [words, mn], each group at a word of its own.

    grouped_layout   i32 [groups] on sf's device: k of each group; use_psum_layout: where it ends, the next one beginning at the
                     next multiple of k_alignment
    ks_cpu           the same k's as a list, for the number of words; with use_psum_layout None or [] will do: as many words as
                     may be needed, zeros behind
    gran_k           k of a scale
    """
    op = "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor"
    groups = grouped_layout.shape[0]
    if ks_cpu and len(ks_cpu) != groups:
        raise ValueError(f"{op}: ks_cpu has {len(ks_cpu)} entries, needs {groups}")
    if not ks_cpu and not use_psum_layout:
        raise ValueError(f"{op}: ks_cpu is {ks_cpu}; accepted without use_psum_layout: a list")
    words = sum(-(-k // (4 * gran_k)) for k in ks_cpu or ())
    out = empty_like(sf, shape=(words, sf.shape[1]), dtype="int32") if ks_cpu else None
    return pack_k_grouped_scales(sf, grouped_layout, gran_k, k_alignment, use_psum_layout, out=out)


def transform_sf_into_required_layout(sf, mn, k, recipe, num_groups=None, is_sfa=None, disable_ue8m0_cast=False,
                                      psum_layout=None, packed=False):
    """sf [ceil(mn / gran_mn), ceil(k / gran_k)], perhaps [num_groups, ..], as a GEMM takes it.

    recipe  (gran_m, gran_n, gran_k), of which is_sfa says whether gran_m or gran_n holds; or (gran_mn, gran_k)
    packed  false: f32, as quern.gemm takes it (DeepGEMM on SM90): MN-major and aligned for (1, 128), as it is for (128, 128).
            true: UE8M0, one row of scales for each row (DeepGEMM on SM100); words are given back as they are
    """
    op = "transform_sf_into_required_layout"
    gran_mn, gran_k = _granularity(op, recipe, is_sfa)
    is_f32 = dtype_name(sf.dtype) == "float32"
    want = (*([] if num_groups is None else [num_groups]), -(-mn // gran_mn), -(-k // (gran_k if is_f32 else 4 * gran_k)))
    if tuple(sf.shape) != want:
        raise ValueError(f"{op}: sf has shape {tuple(sf.shape)}, needs {want}")
    if is_f32 and not packed and gran_k == 128 and gran_mn in (1, 128):
        return get_mn_major_tma_aligned_tensor(sf) if gran_mn == 1 else sf
    if is_f32 and packed and gran_k in (32, 128) and not disable_ue8m0_cast:
        return get_mn_major_tma_aligned_packed_ue8m0_tensor(sf, psum_layout, block_rows=gran_mn, mn=mn)
    if not is_f32 and packed and gran_k in (32, 128) and gran_mn == 1:
        return _check_packed(op, sf, mn)
    raise ValueError(f"{op}: {dtype_name(sf.dtype)} scales for {gran_mn} x {gran_k} elements with packed={packed}, "
                     f"disable_ue8m0_cast={disable_ue8m0_cast}; accepted: float32 for 1 x 128 and 128 x 128; with packed, "
                     "float32 for any x 32 or 128 unless disable_ue8m0_cast, int32 for 1 x 32 or 128")


def _mn_major(shape):
    """Strides of MN-major scales whose columns begin at 16 bytes."""
    if len(shape) not in (2, 3):
        raise ValueError(f"sf has shape {tuple(shape)}, needs 2 or 3 dimensions")
    aligned = get_tma_aligned_size(shape[-2], 4)
    return (shape[-1] * aligned, 1, aligned)[3 - len(shape):]


def _granularity(op, recipe, is_sfa):
    if len(recipe) == 3 and is_sfa is not None:
        return recipe[0 if is_sfa else 1], recipe[2]
    if len(recipe) == 2 and is_sfa is None:
        return tuple(recipe)
    raise ValueError(f"{op}: recipe is {tuple(recipe)} with is_sfa={is_sfa}; accepted: three numbers with is_sfa, or two without")


def _check_packed(op, sf, mn):
    strides = strides_of(sf)
    if (strides[-2] == 1 or mn == 1) and strides[-1] >= get_tma_aligned_size(mn, 4) and strides[-1] % 4 == 0:
        return sf
    raise ValueError(f"{op}: sf has strides {tuple(strides)}, needs 1 along mn and a multiple of 4 along k, "
                     f"{get_tma_aligned_size(mn, 4)} or more")
