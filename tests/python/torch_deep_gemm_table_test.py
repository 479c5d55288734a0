# SPDX-License-Identifier: Apache-2.0
"""quern.compat.deep_gemm: every parameter of every public function has a line below that says what it does, and the line is tried.
A parameter without a line fails."""

import pytest

torch = pytest.importorskip("torch")
from deep_gemm_calls import public_calls  # noqa: E402
from deep_gemm_tools import BF16, F8, ints  # noqa: E402
from table_tools import Acts, Hint, Refused, Repeats, Written, same  # noqa: E402

import quern.compat.deep_gemm as deep_gemm  # noqa: E402


@pytest.fixture(autouse=True)
def settings():
    yield
    deep_gemm.set_mk_alignment_for_contiguous_layout(128)
    deep_gemm.set_num_sms(0)
    deep_gemm.set_tc_util(0)
    deep_gemm.set_pdl(False)


class Opaque:
    """A tensor whose values change nothing here; others than it may be are refused."""

    def __init__(self, value, wrong):
        self.value, self.wrong = value, wrong

    def check(self, case, name):
        assert same(case.outcome(**{name: self.value}), case.outcome())
        with pytest.raises((ValueError, NotImplementedError), match=rf": {name} has "):
            case.run(**{name: self.wrong})


def other(x):
    """Returns something else of the same shape and dtype; of values with scales, other scales."""
    if isinstance(x, tuple):
        return (x[0], other(x[1])) if isinstance(x[1], torch.Tensor) else (other(x[0]), None)
    if x.dtype in (torch.float32, BF16):
        return 2 * x
    return x.view(torch.int8).flip(-1).view(x.dtype) if x.dtype in (torch.int8, F8) else x.flip(0)


LINES = {
    # how, not what
    "compiled_dims": Hint("nk", "mn", "mnk", ""), "disable_ue8m0_cast": Hint(True, False), "expected_m": Hint(1, 100),
    "expected_m_for_psum_layout": Hint(None, 1, 100), "set_ignore_compile_dims.new_value": Hint(True, False),
    "set_block_size_multiple_of.new_value": Hint(4, (2, 3)),
    "get_theoretical_mk_alignment_for_contiguous_layout.expected_m": Hint(None, 5, 300),
    "block_kv": Hint(32, 64), "schedule_meta": Opaque(torch.ones(9, 2, dtype=torch.int32), torch.ones(9, 2)),
    "get_paged_mqa_logits_metadata.context_lens": Opaque(ints(1, 2, 3).view(3, 1), ints(1)),
    "transform_sf_into_required_layout.psum_layout": Opaque(ints(3, 5), torch.ones(2)),
    # refused
    "k_grouped_fp8_gemm_nt_contiguous.use_psum_layout": Refused(True), "use_cublaslt": Refused(True), "indices": Refused(ints(0, 1)),
    # tensors
    **dict.fromkeys(("a", "b", "c", "lhs", "rhs", "q", "kv", "weights", "x", "sf", "kv_cache", "packed", "y"), Acts(other)),
    **dict.fromkeys(("d", "out", "sqr_sum"), Written()),
    **dict.fromkeys(("masked_m", "cu_seq_len_k_start", "cu_seq_len_k_end", "context_lens", "block_table"), Acts(other)),
    "grouped_layout": Acts(other), "m_indices": Acts(lambda t: 0 * t), "mappings": Acts(other),
    **{f"k_grouped_{name}.grouped_layout": Repeats(ints(128, 256), ints(256, 128)) for name in (
        "fp8_gemm_tn_contiguous", "fp8_gemm_nt_contiguous", "bf16_gemm_tn_contiguous")},
    **dict.fromkeys(("pack_ue8m0_to_int.x", "get_mn_major_tma_aligned_packed_ue8m0_tensor.sf",
                     "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor.sf"), Acts(lambda t: 4 * t)),
    "handle": Acts(lambda h: (h[0], h[1], h[2] - 1)), "psum_layout": Acts(ints(999)),
    "packed_sf": Acts(lambda t: t + 1),
    # numbers, words and truth values
    "recipe": Acts((1, 1, 32)), "recipe_a": Acts((1, 32)), "recipe_b": Acts((1, 32)), "head_splits": Acts((30, 7, 20)),
    "ks_cpu": Acts([256, 128]), "use_psum_layout": Acts(False), "ensure_zero_padding": Acts(False), "expr": Acts("bhd,hdr->bhr"),
    **{f"k_grouped_{name}.use_psum_layout": Acts(True) for name in ("fp8_gemm_tn_contiguous", "bf16_gemm_tn_contiguous")},
    "transform_sf_into_required_layout.recipe": Acts((128, 128, 128)),
    "clean_logits": Acts(False), "max_seqlen_k": Acts(3, clean_logits=False), "logits_dtype": Acts(BF16), "max_context_len": Acts(80),
    "num_sms": Acts(5), "num_splits": Acts(2), "acc": Acts(True), "new_num_sms": Acts(0), "new_tc_util": Acts(30),
    "new_enable_pdl": Acts(True), "new_value": Acts(64), "mn": Acts(6), "k": Acts(300), "num_groups": Acts(1), "is_sfa": Acts(False),
    "element_size": Acts(8), "k_alignment": Acts(256), "gran_k": Acts(32), "dims": Acts((1,)), "use_ue8m0": Acts(True),
    "get_tma_aligned_size.x": Acts(9), "align.x": Acts(9), "ceil_div.x": Acts(9), "align.y": Acts(7), "ceil_div.y": Acts(7),
    "get_k_grouped_mn_major_tma_aligned_packed_ue8m0_tensor.ks_cpu": Acts([128, 1024]),
    "cast_back_from_fp4.gran_k": Acts(128), "cast_back_from_fp4.use_packed_ue8m0": Repeats(False, True),
    "use_packed_ue8m0": Acts(True, use_ue8m0=True),
}
ALL = [(name, call, parameter) for name, call, parameters in public_calls() for parameter in parameters]


def line_of(name, parameter):
    return LINES.get(f"{name}.{parameter}", LINES.get(parameter))


def test_every_parameter_has_a_line():
    assert not [f"{name}.{parameter}" for name, _, parameter in ALL if line_of(name, parameter) is None]
    used = {id(line_of(name, parameter)) for name, _, parameter in ALL}
    assert not [key for key, line in LINES.items() if id(line) not in used]


@pytest.mark.parametrize("name, call, parameter", ALL, ids=[f"{name}.{parameter}" for name, _, parameter in ALL])
def test_line(name, call, parameter):
    line_of(name, parameter).check(call, parameter)
