# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's settings, one set a process. They say how DeepGEMM computes: but for the alignment of groups they are checked and
kept, and change nothing here."""

import os

import torch

from ..._public import flag, found
from ._check import integer

_num_sms = _tc_util = 0
_pdl = _ignore_compile_dims = False
_block_multiples = 1, 1
_alignment = 128


def _all_sms():
    """Returns the compute units of PyTorch's current GPU; without a GPU, the processors."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
    return os.cpu_count() or 1


def set_num_sms(new_num_sms: int) -> None:
    """Says how many of a GPU's multiprocessors kernels are to use, 0 for all. It changes nothing here but get_num_sms."""
    global _num_sms
    _num_sms = integer("set_num_sms", "new_num_sms", new_num_sms, 0, _all_sms())


def get_num_sms() -> int:
    """Returns what set_num_sms said, else the multiprocessors of PyTorch's current GPU, or the processors without a GPU."""
    return _num_sms or _all_sms()


def set_tc_util(new_tc_util: int) -> None:
    """Says how busy matrix cores may be, in percent, 0 for all. It changes nothing here but get_tc_util."""
    global _tc_util
    _tc_util = integer("set_tc_util", "new_tc_util", new_tc_util, 0, 100)


def get_tc_util() -> int:
    """Returns what set_tc_util said, 100 for 0."""
    return _tc_util or 100


def set_pdl(new_enable_pdl: bool) -> None:
    """Says whether kernels start before those ahead of them end. It changes nothing here but get_pdl."""
    global _pdl
    _pdl = flag("set_pdl", "new_enable_pdl", new_enable_pdl)


def get_pdl() -> bool:
    """Returns what set_pdl said."""
    return _pdl


def set_ignore_compile_dims(new_value: bool) -> None:
    """Says whether compiled_dims is ignored, which it always is here."""
    global _ignore_compile_dims
    _ignore_compile_dims = flag("set_ignore_compile_dims", "new_value", new_value)


def set_block_size_multiple_of(new_value: "int | tuple[int, int]") -> None:
    """Says what tiles' heights and widths are multiples of. It changes nothing here."""
    global _block_multiples
    op, both = "set_block_size_multiple_of", new_value
    if isinstance(new_value, int):
        both = new_value, new_value
    if not isinstance(both, (tuple, list)) or len(both) != 2:
        raise ValueError(f"{op}: new_value is {found(new_value)}; accepted: an integer, or two")
    _block_multiples = tuple(integer(op, "new_value", value, 1) for value in both)


def set_mk_alignment_for_contiguous_layout(new_value: int) -> None:
    """Sets the number of rows, or of k, at whose multiples a group begins in contiguous layouts."""
    global _alignment
    _alignment = integer("set_mk_alignment_for_contiguous_layout", "new_value", new_value, 1)


def get_mk_alignment_for_contiguous_layout() -> int:
    """Returns the number of rows, or of k, at whose multiples a group begins in contiguous layouts: 128, unless it was set."""
    return _alignment


def get_theoretical_mk_alignment_for_contiguous_layout(expected_m: "int | None" = None) -> int:
    """Returns the best alignment, 128 as on Hopper, whatever number of rows a group likely has."""
    if expected_m is not None:
        integer("get_theoretical_mk_alignment_for_contiguous_layout", "expected_m", expected_m, 0)
    return 128


get_m_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
get_k_alignment_for_contiguous_layout = get_mk_alignment_for_contiguous_layout
