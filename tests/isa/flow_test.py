# SPDX-License-Identifier: Apache-2.0
"""Branches, EXEC masks, calls and scalar loads: small programs and what they compute.
Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, SOPP, SOP1, SMEM.
"""
import numpy as np
import pytest

import gpu
import values
from table import OLD, Op, Table

U = np.uint32
CDNA = {"exec": "exec", "vcc": "vcc", "b": "b64", "save": "s[20:21]", "and": "s_and_saveexec_b64", "xor": "s_xor_b64",
        "andn2": "s_andn2_b64", "saveand": "s_and_saveexec_b64", "other": "s[22:23]"}
RDNA = {"exec": "exec_lo", "vcc": "vcc_lo", "b": "b32", "save": "s20", "and": "s_and_saveexec_b32", "xor": "s_xor_b32",
        "andn2": "s_and_not1_b32", "saveand": "s_and_saveexec_b32", "other": "s22"}


def some(kinds):
    return [values.random_bits(kind, 2**13, i) for i, kind in enumerate(kinds)]


def small(kinds):
    return [values.generator(31, i).integers(1, 60, 2**12, np.uint64) for i, _ in enumerate(kinds)]


def divergent_steps(a):
    """Returns how many steps of n -> n / 2 or 3n + 1 lead to 1."""
    steps, x = np.zeros_like(a), a.copy()
    while (x != 1).any():
        moving = x != 1
        x = np.where(moving, np.where(x & U(1), U(3) * x + U(1), x >> U(1)), x)
        steps += moving.astype(U)
    return steps


LOOP = """v_mov_b32 {{d}}, 0
s_mov_{b} {save}, {exec}
v_cmp_ne_u32 {vcc}, 1, {{a}}
s_and_{b} {exec}, {exec}, {vcc}
s_cbranch_execz 2f
1:
v_and_b32 v70, 1, {{a}}
v_cmp_eq_u32 {vcc}, 1, v70
v_mad_u32_u24 v71, {{a}}, 3, 1
v_lshrrev_b32 v72, 1, {{a}}
v_cndmask_b32 {{a}}, v72, v71, {vcc}
v_add_co_u32 {{d}}, {vcc}, 1, {{d}}
v_cmp_ne_u32 {vcc}, 1, {{a}}
s_and_{b} {exec}, {exec}, {vcc}
s_cbranch_execnz 1b
2:
s_mov_{b} {exec}, {save}"""
# if (a < b) d = a - b else d = a ^ b, each side under its own mask
CHOICE = """v_cmp_lt_u32 {vcc}, {{a}}, {{b}}
{saveand} {save}, {vcc}
s_cbranch_execz 1f
v_sub_co_u32 {{d}}, {other}, {{a}}, {{b}}
1:
{xor} {exec}, {exec}, {save}
s_cbranch_execz 2f
v_xor_b32 {{d}}, {{a}}, {{b}}
2:
s_mov_{b} {exec}, {save}"""
CALL = """s_getpc_b64 s[40:41]
1:
s_add_u32 s40, s40, 3f-1b
s_addc_u32 s41, s41, 0
s_swappc_b64 s[42:43], s[40:41]
v_xor_b32 {{d}}, {{d}}, {{a}}
s_branch 4f
3:
v_mov_b32 {{d}}, 77
s_setpc_b64 s[42:43]
4:"""
BRANCHES = """v_mov_b32 {{d}}, 0
s_cmp_eq_u32 0, 1
s_cbranch_scc1 9f
v_or_b32 {{d}}, 1, {{d}}
s_cmp_eq_u32 1, 1
s_cbranch_scc0 9f
v_or_b32 {{d}}, 2, {{d}}
v_cmp_ne_u32 {vcc}, {{a}}, {{a}}
s_cbranch_vccnz 9f
v_or_b32 {{d}}, 4, {{d}}
v_cmp_eq_u32 {vcc}, {{a}}, {{a}}
s_cbranch_vccz 9f
v_or_b32 {{d}}, 8, {{d}}
s_cbranch_scc1 8f
v_or_b32 {{d}}, 16, {{d}}
8:
v_or_b32 {{d}}, 32, {{d}}
9:"""
# only the lanes of a mask write; reading lanes ignores it
MASKED = """s_mov_{b} {save}, {exec}
s_mov_b32 s24, 0x0f0f1234
s_mov_b32 s25, 0x80000001
s_mov_{b} {exec}, {mask}
v_mov_b32 {{d}}, {{a}}
v_readlane_b32 s26, {{a}}, 5
v_readfirstlane_b32 s27, {{a}}
v_add_co_u32 {{d}}, {vcc}, s26, {{d}}
v_xor_b32 {{d}}, s27, {{d}}
s_mov_{b} {exec}, {save}"""


def masked(lanes):
    mask = 0x0F0F1234 | 0x80000001 << 32
    active = np.array([mask >> i & 1 for i in range(lanes)], bool)

    def of(a):
        x = a.reshape(-1, lanes)
        return np.where(active, (x + x[:, 5:6]) ^ x[:, [int(np.argmax(active))]], U(OLD)).ravel()
    return of


def programs():
    for chips, names in ((gpu.CDNA, CDNA), (gpu.RDNA, RDNA)):
        lanes, mask = (64, "s[24:25]") if chips is gpu.CDNA else (32, "s24")

        def text(template, names=names, mask=mask):
            return template.format(mask=mask, **names).replace("{{", "{").replace("}}", "}")
        yield Op("loop", "u32 u32", divergent_steps, text=text(LOOP), on=chips, data=small)
        yield Op("choice", "u32 u32 u32", lambda a, b: np.where(a < b, a - b, a ^ b), text=text(CHOICE), on=chips, data=some)
        yield Op("call", "u32 u32", lambda a: a ^ U(77), text=text(CALL), on=chips, data=some)
        yield Op("branches", "u32 u32", lambda a: np.full_like(a, 1 | 2 | 4 | 8 | 32), text=text(BRANCHES), on=chips, data=some)
        yield Op("masked", "u32 u32", masked(lanes), text=text(MASKED), on=chips, data=some)


def scalar_loads():
    """Returns the first words of an array, the same in all lanes."""
    for words, names in ((1, "dword/b32"), (2, "dwordx2/b64"), (4, "dwordx4/b128"), (8, "dwordx8/b256"), (16, "dwordx16/b512")):
        first = 40
        register = f"s{first}" if words == 1 else f"s[{first}:{first + words - 1}]"
        for offset in (0, 64, 4092):
            def of(a, words=words, offset=offset):
                return np.full_like(a, np.bitwise_xor.reduce(a[offset // 4:offset // 4 + words] * U(1)))
            combine = "".join(f"v_xor_b32 {{d}}, s{first + i}, {{d}}\n" for i in range(words))
            for chips, wait in ((gpu.CHIPS[:4], "s_waitcnt lgkmcnt(0)"), (("gfx1201", ), "s_wait_kmcnt 0x0")):
                old, new = names.split("/")
                yield Op(f"s_load_{old}/s_load_{new}", "u32 u32", of, data=some, on=chips, tag=f"+{offset}",
                         text=f"{{op}} {register}, s[6:7], {offset:#x}\n{wait}\nv_mov_b32 {{d}}, 0\n{combine}")
                yield Op(f"s_load_{old}/s_load_{new}", "u32 u32", of, data=some, on=chips, tag=f"+{offset}.register",
                         text=f"s_movk_i32 s30, {offset}\n{{op}} {register}, s[6:7], s30" +
                         (" offset:0x0" if chips == ("gfx1201", ) else "") + f"\n{wait}\nv_mov_b32 {{d}}, 0\n{combine}")


TABLE = Table([*programs(), *scalar_loads()])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_flow(case):
    TABLE.run(case)
