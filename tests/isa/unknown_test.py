# SPDX-License-Identifier: Apache-2.0
"""Instructions outside the simulator's set, reached by a kernel that HIP launches: never a guess, always the error and a
report of the instruction, its bytes and its address, on every chip.
"""
import re

import pytest

import gpu

# text or words, what the report calls it, words
UNKNOWN = {
    "gfx90a": [("s_rfe_b64 s[20:21]", "s_rfe_b64", 1), ("v_screen_partition_4se_b32 v2, v3", "v_screen_partition_4se_b32", 1)],
    "gfx942": [("s_rfe_b64 s[20:21]", "s_rfe_b64", 1), ("v_screen_partition_4se_b32 v2, v3", "v_screen_partition_4se_b32", 1)],
    "gfx950": [("s_rfe_b64 s[20:21]", "s_rfe_b64", 1), ("v_screen_partition_4se_b32 v2, v3", "v_screen_partition_4se_b32", 1)],
    "gfx1151": [("s_rfe_b64 s[20:21]", "s_rfe_b64", 1), ("s_cbranch_cdbgsys 1f\n1:", "s_cbranch_cdbgsys", 1),
                ("ds_bvh_stack_rtn_b32 v1, v0, v3, v[4:7]", "ds_bvh_stack_rtn_b32", 2)],
    "gfx1201": [("s_rfe_b64 s[20:21]", "s_rfe_b64", 1), ("s_alloc_vgpr 64", "s_alloc_vgpr", 1),
                ("global_atomic_ordered_add_b64 v[2:3], v0, v[4:5], s[4:5] th:TH_ATOMIC_RETURN", "global_atomic_ordered_add_b64",
                 3)],
}
CASES = [(chip, *case) for chip in gpu.CHIPS for case in UNKNOWN[chip] + [(".long 0xc7ffffff, 0xffffffff", "no {chip} instruction", 2)]]


def bytes_in(report):
    """Returns the words that a report shows, of eight digits each."""
    return [int(word, 16) for word in re.findall(r"\b[0-9a-f]{8}\b", report)]


@pytest.mark.parametrize("case", CASES, ids=[f"{chip}-{name.split()[0]}" for chip, _, name, _ in CASES])
def test_unknown(case, capfd):
    chip, text, name, words = case
    kernel = gpu.Kernel("unknown", f"s_nop 0\n{text}", arguments=1)
    image = gpu.assemble(chip, [kernel])
    with pytest.raises(RuntimeError, match="unspecified launch failure"):
        gpu.Module(chip, [kernel]).launch("unknown", [])
    report = capfd.readouterr().err
    assert "quernsim: kernel unknown: " in report
    assert name.format(chip=chip) in report
    place = re.search(r"at unknown\+0x4\b.*pc 0x([0-9a-f]+)", report, re.DOTALL)
    assert place and f"at 0x{place[1]}" in report.splitlines()[0]
    shown = bytes_in(report.splitlines()[0])
    assert len(shown) == words and b"".join(word.to_bytes(4, "little") for word in shown) in image
