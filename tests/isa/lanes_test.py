# SPDX-License-Identifier: Apache-2.0
"""What crosses lanes or takes parts of registers: DPP, SDWA, permutes, swizzles, lane reads, VOPD.
Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, chapters on DPP, SDWA and VOPD; LDS permute instructions.
"""
import numpy as np
import pytest

import gpu
import ieee
import values
from table import OLD, Op, Table

U, I, F = np.uint32, np.int32, np.float32
LANE = {64: np.arange(64), 32: np.arange(32)}


def some(kinds):
    return [values.random_bits(kind, 2**14, i) for i, kind in enumerate(kinds)]


def moved(lanes, source, writes=None, zero=False, operation=None):
    """Returns a formula that moves lanes: each wave's lane i takes from lane source[i]. A negative source means none:
    the lane keeps its old value, or takes 0. `writes` are the lanes that are written."""
    writes = np.ones(lanes, bool) if writes is None else writes

    def of(a, *more):
        x = a.reshape(-1, lanes)
        value = np.where(source < 0, U(0), x[:, np.maximum(source, 0)])
        if operation:
            value = operation(value, *(y.reshape(-1, lanes) for y in more))
        kept = ~writes | ((source < 0) & (not zero))
        return np.where(kept, U(OLD), value).ravel()
    return of


# ---- DPP
def in_row(lanes, function):
    """Returns a rule for the 16 lanes of a row. A lane outside the row does not exist."""
    i = LANE[lanes]
    target = function(i % 16)
    return np.where((target < 0) | (target > 15), -1, i // 16 * 16 + target)


def dpp_rules(lanes):
    """Returns texts and their source lanes, for all chips of a family."""
    i = LANE[lanes]
    yield "quad_perm:[1,2,3,0]", i // 4 * 4 + (i + 1) % 4
    for control in range(0, 256, 5): # each lane takes from each
        lanes_of = [control >> 2 * k & 3 for k in range(4)]
        yield f"quad_perm:[{','.join(map(str, lanes_of))}]", i // 4 * 4 + np.array(lanes_of)[i % 4]
    for n in range(1, 16):
        yield f"row_shl:{n}", in_row(lanes, lambda r, n=n: r + n)
        yield f"row_shr:{n}", in_row(lanes, lambda r, n=n: r - n)
        yield f"row_ror:{n}", in_row(lanes, lambda r, n=n: (r - n) % 16)
    yield "row_mirror", in_row(lanes, lambda r: 15 - r)
    yield "row_half_mirror", in_row(lanes, lambda r: r ^ 7)
    if lanes == 64:
        yield "wave_shl:1", np.where(i + 1 < 64, i + 1, -1)
        yield "wave_shr:1", i - 1
        yield "wave_rol:1", (i + 1) % 64
        yield "wave_ror:1", (i - 1) % 64
        yield "row_bcast:15", np.where(i >= 16, i // 16 * 16 - 1, -1)
        yield "row_bcast:31", np.where(i >= 32, 31, -1)
        for n in range(16):
            yield f"row_newbcast:{n}", i // 16 * 16 + n
    else:
        for n in range(16):
            yield f"row_share:{n}", i // 16 * 16 + n
            yield f"row_xmask:{n}", in_row(lanes, lambda r, n=n: r ^ n)


def dpp():
    for chips, lanes in ((gpu.CDNA, 64), (gpu.RDNA, 32)):
        i = LANE[lanes]
        for number, (text, source) in enumerate(dpp_rules(lanes)):
            suffix = "_dpp"
            for zero in (False, True):
                bound = " bound_ctrl:1" if zero else ""
                yield Op("v_mov_b32", "b32 b32", moved(lanes, source, zero=zero), data=some, on=chips,
                         tag=f"dpp{number}{'z' * zero}",
                         text=f"{{op}}{suffix} {{d}}, {{a}} {text} row_mask:0xf bank_mask:0xf{bound}")
            writes = (0xA >> (i // 16) & 1 & (0x6 >> (i // 4 % 4))).astype(bool)
            yield Op("v_xor_b32", "b32 b32 b32", moved(lanes, source, writes, operation=np.bitwise_xor), data=some, on=chips,
                     tag=f"dpp{number}.masks", text=f"{{op}}_dpp {{d}}, {{a}}, {{b}} {text} row_mask:0xa bank_mask:0x6")
    for number, order in enumerate(((7, 6, 5, 4, 3, 2, 1, 0), (0, 0, 7, 7, 3, 1, 2, 5))):
        i = LANE[32]
        yield Op("v_add_nc_u32", "u32 u32 u32", moved(32, i // 8 * 8 + np.array(order)[i % 8], operation=np.add), data=some,
                 on=gpu.RDNA, tag=f"dpp8.{number}", text=f"{{op}}_dpp {{d}}, {{a}}, {{b}} dpp8:{list(order)}")


# ---- SDWA
def part(x, select, extend):
    """Returns a byte or word of a register, zero or sign extended."""
    if select == "DWORD":
        return x
    bits, number = (8 if select.startswith("BYTE") else 16), int(select[-1])
    value = x >> U(bits * number) & U((1 << bits) - 1)
    return ((value << U(32 - bits)).view(I) >> I(32 - bits)).view(U) if extend else value


def placed(value, select, unused):
    """Puts a result in a part of the destination. The rest is 0, copies of the sign above, or its old value."""
    if select == "DWORD":
        return value
    bits, number = (8 if select.startswith("BYTE") else 16), int(select[-1])
    shift, mask = bits * number, (1 << bits) - 1
    field = (value & U(mask)) << U(shift)
    if unused == "UNUSED_PRESERVE":
        return field | U(OLD & ~(mask << shift) & 0xFFFFFFFF)
    if unused == "UNUSED_SEXT" and bits + shift < 32:
        above = U(0xFFFFFFFF << bits + shift & 0xFFFFFFFF)
        return np.where(value >> U(bits - 1) & U(1), field | above, field)
    return field


def sdwa():
    selects = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
    for number, to in enumerate(selects):
        for unused in ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"):
            first, second = selects[(number + 2) % 7], selects[(number + 5) % 7]
            for extend in (False, True):
                def of(a, b, to=to, unused=unused, first=first, second=second, extend=extend):
                    return placed(part(a, first, extend) + part(b, second, False), to, unused)
                a = "sext({a})" if extend else "{a}"
                yield Op("v_add_u32", "u32 u32 u32", of, data=some, on=gpu.CDNA,
                         tag=f"sdwa.{to}.{unused}{'.sext' * extend}",
                         text=f"{{op}}_sdwa {{d}}, {a}, {{b}} dst_sel:{to} dst_unused:{unused} src0_sel:{first} src1_sel:{second}")


# ---- permutes and swizzles
def chosen(lanes):
    def of(address, data):
        source = address.reshape(-1, lanes) // U(4) % U(lanes)
        return np.take_along_axis(data.reshape(-1, lanes), source.astype(np.int64), axis=1).ravel()
    return of


def pushed(lanes):
    def of(address, data):
        out = np.zeros((len(address) // lanes, lanes), U)
        np.put_along_axis(out, (address.reshape(-1, lanes) // U(4) % U(lanes)).astype(np.int64), data.reshape(-1, lanes), axis=1)
        return out.ravel()
    return of


def shuffles(kinds):
    """Returns addresses that are a permutation of each 32 lanes, with bits that must be ignored."""
    rng = values.generator(16)
    order = rng.permuted(np.tile(np.arange(32, dtype=np.uint64), (512, 1)), axis=1)
    order[1::2] += np.uint64(32)
    return [(order * np.uint64(4) + np.uint64(256)).ravel(), values.random_bits("u32", 16384, 1)]


def swizzled(lanes, source):
    return lambda a: a.reshape(-1, lanes)[:, source].ravel()


def permutes():
    for chips, lanes in ((gpu.CDNA, 64), (gpu.RDNA, 32)):
        i = LANE[lanes]
        done = "\ns_waitcnt lgkmcnt(0)"
        for chip in chips:
            end = "\ns_wait_dscnt 0x0" if chip == "gfx1201" else done
            yield Op("ds_bpermute_b32", "b32 u32 b32", chosen(lanes), text="{op} {d}, {a}, {b}" + end, on=(chip, ), data=some)
            yield Op("ds_permute_b32", "b32 u32 b32", pushed(lanes), text="{op} {d}, {a}, {b}" + end, on=(chip, ),
                     data=shuffles if lanes == 64 else lambda kinds: [x % np.uint64(128) if n == 0 else x
                                                                      for n, x in enumerate(shuffles(kinds))])
            for keep, put, flip in ((0x1F, 0, 1), (0x1C, 2, 0), (0x03, 0x10, 0x08), (0, 0x1F, 0x1F)):
                source = i // 32 * 32 + ((i % 32 & keep | put) ^ flip)
                yield Op("ds_swizzle_b32", "b32 b32", swizzled(lanes, source), on=(chip, ), data=some,
                         tag=f"{keep:x}.{put:x}.{flip:x}",
                         text=f"{{op}} {{d}}, {{a}} offset:{flip << 10 | put << 5 | keep:#x}" + end)
            yield Op("ds_swizzle_b32", "b32 b32", swizzled(lanes, i // 4 * 4 + np.array([2, 0, 3, 1])[i % 4]), on=(chip, ),
                     data=some, tag="quad", text=f"{{op}} {{d}}, {{a}} offset:{0x8000 | 2 | 0 << 2 | 3 << 4 | 1 << 6:#x}" + end)
        yield Op("v_readfirstlane_b32", "b32 b32", swizzled(lanes, 0 * i), on=chips, data=some,
                 text="v_readfirstlane_b32 s20, {a}\nv_mov_b32 {d}, s20")
        yield Op("v_readlane_b32", "b32 b32", swizzled(lanes, 0 * i + 21), on=chips, data=some,
                 text="s_mov_b32 s21, 21\nv_readlane_b32 s20, {a}, s21\nv_mov_b32 {d}, s20")
        yield Op("v_writelane_b32", "b32 b32", lambda a, i=i: np.where(np.resize(i, len(a)) == 9, U(77), U(OLD)), on=chips,
                 data=some, text="s_movk_i32 s20, 77\nv_writelane_b32 {d}, s20, 9")
        yield Op("v_mbcnt_lo_u32_b32", "u32 u32", mask_count(lanes, 0x35A7F00F, 0, lambda n: n), on=chips, data=some,
                 text="s_mov_b32 s20, 0x35a7f00f\n{op} {d}, s20, {a}")
        yield Op("v_mbcnt_hi_u32_b32", "u32 u32", mask_count(lanes, 0x35A7F00F, 32, lambda n: n), on=chips, data=some,
                 text="s_mov_b32 s20, 0x35a7f00f\n{op} {d}, s20, {a}")
    yield from rdna_permutes()


def mask_count(lanes, mask, first, of):
    """Returns a formula for the number of bits of a mask below the lane, added to a. Bit 0 of the mask stands for lane
    `first`."""
    below = np.array([bin(mask & (1 << max(of(n) - first, 0)) - 1 & 0xFFFFFFFF).count("1") for n in range(lanes)], U)
    return lambda a: a + np.resize(below, len(a))


def rdna_permutes():
    i = LANE[32]
    selects = [3, 1, 4, 15, 9, 2, 6, 5, 8, 7, 0, 12, 14, 10, 13, 11]
    low, high = (sum(s << 4 * n for n, s in enumerate(part)) for part in (selects[:8], selects[8:]))
    setup = f"s_mov_b32 s20, {low:#x}\ns_mov_b32 s21, {high:#x}\n"
    own = i // 16 * 16 + np.array(selects)[i % 16]
    yield Op("v_permlane16_b32", "b32 b32", swizzled(32, own), on=gpu.RDNA, data=some, text=setup + "{op} {d}, {a}, s20, s21")
    yield Op("v_permlanex16_b32", "b32 b32", swizzled(32, own ^ 16), on=gpu.RDNA, data=some,
             text=setup + "{op} {d}, {a}, s20, s21")
    for name, cross in (("v_permlane16_var_b32", 0), ("v_permlanex16_var_b32", 16)):
        def of(a, b, cross=cross):
            source = (i // 16 * 16 ^ cross) + b.reshape(-1, 32) % U(16)
            return np.take_along_axis(a.reshape(-1, 32), source.astype(np.int64), axis=1).ravel()
        yield Op(name, "b32 b32 u32", of, on=("gfx1201", ), data=some)
    swap = "v_mov_b32 {d}, {b}\n{op} {a}, {d}\nv_mov_b32 {d}, {a}"
    for distance in (16, 32):  # gfx950: the odd rows (upper half) of the first change places with the even ones of the second
        def of(a, b, distance=distance):
            x, y, n = a.reshape(-1, 64), b.reshape(-1, 64), LANE[64]
            upper = (n // distance % 2).astype(bool)
            return np.where(upper, y[:, n - distance * upper], x).ravel()
        yield Op(f"v_permlane{distance}_swap_b32", "b32 b32 b32", of, on=("gfx950", ), data=some, text=swap)


# ---- VOPD: two operations at once, which read their sources before either writes
DUAL = [("fmac_f32", lambda a, b, d: ieee.fma(a, b, d)), ("mul_f32", lambda a, b, d: a * b), ("add_f32", lambda a, b, d: a + b),
        ("sub_f32", lambda a, b, d: a - b), ("subrev_f32", lambda a, b, d: b - a)]
DUAL_INTEGERS = [("add_nc_u32", lambda a, b: a + b), ("and_b32", lambda a, b: a & b),
                 ("lshlrev_b32", lambda a, b: b << (a & U(31)))]


def bits(x):
    return np.ascontiguousarray(x).view(U)


def vopd():
    """Returns a dual instruction. v70 and v81 are a, v73 and v74 are b, because the two operations must read different
    banks."""
    setup = "v_mov_b32 v70, {a}\nv_mov_b32 v73, {b}\nv_mov_b32 v74, {b}\nv_mov_b32 v81, {a}\n"
    end = "\nv_mov_b32 {dr}, v70\nv_mov_b32 {dr1}, v81"
    for n, (name, f) in enumerate(DUAL):
        other, g = DUAL[(n + 1) % len(DUAL)]

        def of(a, b, f=f, g=g):
            return np.stack([f(a, b, a), g(a, b, a)], axis=1)
        yield Op("v_dual_" + name, "2xf f32 f32", of, on=gpu.RDNA, data=some, tag=other,
                 text=setup + f"v_dual_{name} v70, v70, v73 :: v_dual_{other} v81, v81, v74" + end)
    for name, f in DUAL_INTEGERS:
        def of(a, b, f=f):
            return np.stack([bits(a.view(F) * b.view(F)), f(a, b)], axis=1)
        yield Op("v_dual_mul_f32", "2xf u32 u32", of, on=gpu.RDNA, data=near_ones, tag=name,
                 text=setup + f"v_dual_mul_f32 v70, v70, v73 :: v_dual_{name} v81, v81, v74" + end)
    yield Op("v_dual_mov_b32", "2 u32 u32", lambda a, b: np.stack([b, a], axis=1), on=gpu.RDNA, data=some, tag="swap",
             text="v_mov_b32 v70, {a}\nv_mov_b32 v73, {b}\nv_dual_mov_b32 v70, v73 :: v_dual_mov_b32 v73, v70\n"
             "v_mov_b32 {dr}, v70\nv_mov_b32 {dr1}, v73")


def near_ones(kinds):
    rng = values.generator(17)
    return [rng.integers(0x3F000000, 0x40800000, 2**14, np.uint64) for _ in kinds]


TABLE = Table([*dpp(), *sdwa(), *permutes(), *vopd()])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_lanes(case):
    TABLE.run(case)
