# SPDX-License-Identifier: Apache-2.0
"""Layouts of FP8's scales, under DeepGEMM's names: MN-major with aligned columns, packed as UE8M0, powers of two."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from . import _ops
from ._public import flag, public
from ._tensor import dims, dtype_name, empty_like, empty_strided_like, strides_of
from ._types import A, Array


@public()
def transform_scales(scale: Array, out: A, ends: Array | None = None, block_rows: int = 1, m_alignment: int = 128,
                     round_scale: bool = False) -> A:
    """Lays scale out by out's dtype and strides: as f32, or as i32 words of UE8M0, with scale 4 i + j in byte j of word i.

    scale        f32 [.., ceil(mn / block_rows), sk], or words i32 [.., ceil(sk / 4)]
    out          f32 [mn, sk] or [groups, mn, sk], or words i32 [.., ceil(sk / 4)], written
    ends         i32 [n] on scale's device: where each group's rows end, the next one's beginning at the next multiple of
                 m_alignment; rows between are left alone. None: there are no groups. QUERN_VALIDATE=1 checks what it holds
    block_rows   rows of out for which a row of scale stands, 1 or above
    m_alignment  1 or above
    round_scale  f32 scales are rounded up to powers of two

    Returns out. Raises ValueError (shape, stride, overlap, numbers), NotImplementedError (dtype, device), TypeError (no array, no
    number); nothing is written then.

    >>> quern.transform_scales(numpy.array([[3, 4]], numpy.float32), numpy.empty((1, 2), numpy.float32), round_scale=True)
    array([[4., 4.]], dtype=float32)
    """
    _ops.transform_scales(out, scale, ends, block_rows, m_alignment, round_scale)
    return out


@public()
def pack_k_grouped_scales(scale: Array, group_layout: Array, gran_k: int, k_alignment: int = 128, by_ends: bool = False,
                          round_scale: bool = False, out: Array | None = None) -> Any:
    """Packs scales in groups along k as UE8M0: i32 [words, mn], each group begins a word of its own, with zeros behind the last.

    scale         f32 [sk, mn]
    group_layout  i32 [groups] on scale's device: k of each group; by_ends: where it ends, the next one beginning at the next
                  multiple of k_alignment. QUERN_VALIDATE=1 checks what it holds
    gran_k        k of a scale, 1 or above
    k_alignment   1 or above
    by_ends       what group_layout holds
    round_scale   scales are rounded up to powers of two
    out           i32 [words, mn]; None: a new one, of as many words as any groups can need

    Returns out, of scale's kind. Raises what transform_scales raises.

    >>> scale, group_layout = numpy.ones((4, 2), numpy.float32), numpy.array([512], numpy.int32)
    >>> [[hex(word) for word in row] for row in quern.pack_k_grouped_scales(scale, group_layout, 128).tolist()]
    [['0x7f7f7f7f', '0x7f7f7f7f']]
    """
    if out is None:
        rows, columns = dims("pack_k_grouped_scales", "scale", scale, 2)
        out = empty_like(scale, shape=((rows + 3 * group_layout.shape[0]) // 4, columns), dtype="int32")
    _ops.pack_k_grouped_scales(out, scale, group_layout, gran_k, k_alignment, by_ends, round_scale)
    return out


@public()
def get_tma_aligned_size(x: int, element_size: int) -> int:
    """Returns x rounded up to whole pieces of 16 bytes.

    x             elements, at least 0
    element_size  bytes of one: 1, 2, 4, 8 or 16

    Raises ValueError (another number), TypeError (no integer).

    >>> quern.get_tma_aligned_size(5, 4)
    8
    """
    if operator.index(x) < 0:
        raise ValueError(f"get_tma_aligned_size: x is {x}; accepted: 0 or above")
    if element_size not in (1, 2, 4, 8, 16):
        raise ValueError(f"get_tma_aligned_size: element_size is {element_size}; accepted: 1, 2, 4, 8, 16")
    step = 16 // element_size
    return -(-x // step) * step


@public(op="transform_scales", scale="x", out="x")
def ceil_to_ue8m0(x: A) -> A:
    """Rounds x up to powers of two, 2**-126 to 2**127.

    x  f32 [mn, sk] or [groups, mn, sk]

    Returns a new one. Raises what transform_scales raises.

    >>> quern.ceil_to_ue8m0(numpy.array([[3, 4]], numpy.float32))
    array([[4., 4.]], dtype=float32)
    """
    return transform_scales(x, empty_like(x), round_scale=True)


@public(op="transform_scales", scale="x", out="x")
def pack_ue8m0_to_int(x: Array) -> Any:
    """Packs powers of two as UE8M0: i32 [.., sk / 4], scale 4 i + j in byte j of word i.

    x  f32 [mn, sk] or [groups, mn, sk], sk a multiple of 4

    Returns a new one, of x's kind. Raises what transform_scales raises.

    >>> quern.pack_ue8m0_to_int(numpy.array([[1, 2, 4, 8]], numpy.float32)).view(numpy.uint8)
    array([[127, 128, 129, 130]], dtype=uint8)
    """
    if dims("pack_ue8m0_to_int", "x", x, 2, 3)[-1] % 4:
        raise ValueError(f"pack_ue8m0_to_int: x has {x.shape[-1]} columns, needs a multiple of 4")
    return transform_scales(x, empty_like(x, shape=(*x.shape[:-1], x.shape[-1] // 4), dtype="int32"))


@public(op="transform_scales", scale="packed_sf", out="packed_sf")
def unpack_ue8m0_from_int(packed_sf: Array) -> Any:
    """Computes the inverse of pack_ue8m0_to_int: f32 [.., 4 * words].

    packed_sf  i32 [mn, words] or [groups, mn, words]

    Returns a new one, of packed_sf's kind. Raises what transform_scales raises.

    >>> quern.unpack_ue8m0_from_int(quern.pack_ue8m0_to_int(numpy.array([[1, 2, 4, 8]], numpy.float32)))
    array([[1., 2., 4., 8.]], dtype=float32)
    """
    *lead, words = dims("unpack_ue8m0_from_int", "packed_sf", packed_sf, 2, 3)
    shape = (*lead, 4 * words)
    return transform_scales(packed_sf, empty_like(packed_sf, shape=shape, dtype="float32"))


@public(op="transform_scales", scale="sf", out="sf")
def get_mn_major_tma_aligned_tensor(sf: A) -> A:
    """Gives sf the strides (.., 1, aligned mn), which is MN-major with columns that begin at 16 bytes.

    sf  f32 [mn, sk] or [groups, mn, sk]

    Returns sf itself if it has them already, else a new one. Raises what transform_scales raises.

    >>> quern.get_mn_major_tma_aligned_tensor(numpy.ones((5, 2), numpy.float32)).strides  # in bytes, NumPy's way
    (4, 32)
    """
    strides = _mn_major(dims("get_mn_major_tma_aligned_tensor", "sf", sf, 2, 3))
    if dtype_name(sf.dtype) == "float32" and tuple(strides_of(sf))[-2:] == strides[-2:] and \
            (len(sf.shape) == 2 or strides_of(sf)[0] == strides[0]):
        return sf
    return transform_scales(sf, empty_strided_like(sf, sf.shape, strides))


@public(op="transform_scales", scale="sf", ends="psum_layout", out="sf")
def get_mn_major_tma_aligned_packed_ue8m0_tensor(sf: Array, psum_layout: Array | None = None, m_alignment: int = 128,
                                                 block_rows: int = 1, mn: int | None = None) -> Any:
    """Packs powers of two as UE8M0: i32 [.., mn, ceil(sk / 4)] of strides (.., 1, aligned mn).

    sf           f32 [rows, sk] or [groups, rows, sk]
    psum_layout  i32 [n] on sf's device: where each group's rows end, the next one's beginning at the next multiple of
                 m_alignment; rows between are left as they come. None: there are no groups. QUERN_VALIDATE=1 checks what it holds
    m_alignment  1 or above
    block_rows   rows for which a row of sf stands, 1 or above
    mn           how many there are in all; None: rows * block_rows

    Returns a new one, of sf's kind. Raises what transform_scales raises.

    >>> out = quern.get_mn_major_tma_aligned_packed_ue8m0_tensor(numpy.ones((5, 4), numpy.float32))
    >>> out.shape, hex(out[0, 0])
    ((5, 1), '0x7f7f7f7f')
    """
    op = "get_mn_major_tma_aligned_packed_ue8m0_tensor"
    for name, value, least in (("block_rows", block_rows, 1), ("m_alignment", m_alignment, 1), ("mn", mn, 0)):
        if value is not None and value < least:
            raise ValueError(f"{op}: {name} is {value}; accepted: {least} or above")
    *lead, rows, columns = dims(op, "sf", sf, 2, 3)
    shape = (*lead, rows * block_rows if mn is None else mn, -(-columns // 4))
    out = empty_strided_like(sf, shape, _mn_major(shape), "int32")
    return transform_scales(sf, out, psum_layout, block_rows, m_alignment)


@public(op="pack_k_grouped_scales", scale="sf", group_layout="grouped_layout", out="ks_cpu", by_ends="use_psum_layout")
def get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf: Array, grouped_layout: Array, ks_cpu: Sequence[int] | None,
                                                           gran_k: int, k_alignment: int = 128,
                                                           use_psum_layout: bool = False) -> Any:
    """Packs powers of two in groups along k as UE8M0: i32 [words, mn], each group at a word of its own.

    sf               f32 [sk, mn]
    grouped_layout   i32 [groups] on sf's device: k of each group; use_psum_layout: where it ends, the next one beginning at the
                     next multiple of k_alignment. QUERN_VALIDATE=1 checks what it holds
    ks_cpu           the same k's as a list, for the number of words; with use_psum_layout None or [] will do: as many words as
                     may be needed, zeros behind
    gran_k           k of a scale, 1 or above
    k_alignment      1 or above
    use_psum_layout  what grouped_layout holds

    Returns a new one, of sf's kind. Raises what transform_scales raises, and ValueError for a ks_cpu of another length.

    >>> sf, layout = numpy.ones((4, 2), numpy.float32), numpy.array([512], numpy.int32)
    >>> quern.get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor(sf, layout, [512], 128).shape
    (1, 2)
    """
    op = "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor"
    dims(op, "sf", sf, 2)
    (groups,) = dims(op, "grouped_layout", grouped_layout, 1)
    if gran_k < 1:
        raise ValueError(f"{op}: gran_k is {gran_k}; accepted: 1 or above")
    if any(k < 0 for k in ks_cpu or ()):
        raise ValueError(f"{op}: ks_cpu is {list(ks_cpu)}; accepted: numbers of 0 or above")
    if ks_cpu and len(ks_cpu) != groups:
        raise ValueError(f"{op}: ks_cpu has {len(ks_cpu)} entries, needs {groups}")
    if not ks_cpu and not use_psum_layout:
        raise ValueError(f"{op}: ks_cpu is {ks_cpu}; accepted without use_psum_layout: a list")
    words = sum(-(-k // (4 * gran_k)) for k in ks_cpu or ())
    out = empty_like(sf, shape=(words, sf.shape[1]), dtype="int32") if ks_cpu else None
    return pack_k_grouped_scales(sf, grouped_layout, gran_k, k_alignment, use_psum_layout, out=out)


@public(op="transform_scales get_mn_major_tma_aligned_packed_ue8m0_tensor get_mn_major_tma_aligned_tensor", scale="sf",
        ends="psum_layout", out="sf")
def transform_sf_into_required_layout(sf: A, mn: int, k: int, recipe: Sequence[int], num_groups: int | None = None,
                                      is_sfa: bool | None = None, disable_ue8m0_cast: bool = False,
                                      psum_layout: Array | None = None, packed: bool = False) -> A:
    """Lays sf out as a GEMM takes it.

    sf                  f32 or words [ceil(mn / gran_mn), ceil(k / gran_k)], perhaps [num_groups, ..]
    mn                  rows of the matrix, at least 0
    k                   its columns, at least 0
    recipe              (gran_m, gran_n, gran_k), or (gran_mn, gran_k): elements for which a scale stands
    num_groups          sf's first dimension; None: it has two
    is_sfa              of three numbers, whether gran_m or gran_n holds; None: with two
    disable_ue8m0_cast  f32 is not packed, which with packed is an error
    psum_layout         i32 [n] where each group's rows end, as in get_mn_major_tma_aligned_packed_ue8m0_tensor; with packed
                        alone. QUERN_VALIDATE=1 checks what it holds
    packed              False: f32, as quern.gemm takes it (DeepGEMM on SM90): MN-major and aligned for (1, 128), as it is for
                        (128, 128). True: UE8M0, one row of scales for each row (DeepGEMM on SM100); words are given back as
                        they are

    Returns sf itself or a new one, of sf's kind. Raises what transform_scales raises, and ValueError for a recipe or a dtype that
    does not go with the rest.

    >>> quern.transform_sf_into_required_layout(numpy.ones((5, 2), numpy.float32), 5, 256, (1, 128)).strides
    (4, 32)
    """
    op = "transform_sf_into_required_layout"
    for name, value in (("mn", mn), ("k", k), ("num_groups", num_groups)):
        if value is not None and value < 0:
            raise ValueError(f"{op}: {name} is {value}; accepted: 0 or above")
    is_sfa = None if is_sfa is None else flag(op, "is_sfa", is_sfa)
    packed, disable_ue8m0_cast = flag(op, "packed", packed), flag(op, "disable_ue8m0_cast", disable_ue8m0_cast)
    if psum_layout is not None and not packed:
        raise ValueError(f"{op}: psum_layout is given; accepted without packed: None")
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
    """Returns the strides of MN-major scales whose columns begin at 16 bytes."""
    aligned = get_tma_aligned_size(shape[-2], 4)
    return (shape[-1] * aligned, 1, aligned)[3 - len(shape):]


def _granularity(op, recipe, is_sfa):
    if min(recipe, default=0) < 1:
        raise ValueError(f"{op}: recipe is {tuple(recipe)}; accepted: numbers of 1 or above")
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
