# SPDX-License-Identifier: Apache-2.0
"""Memory: loads and stores of every width through LDS, global, flat and buffer addresses, buffer ranges, atomics on LDS and
memory. Source: "CDNA3", "RDNA3.5" and "RDNA4" ISA, DS, FLAT and MUBUF.
"""
import ml_dtypes
import numpy as np
import pytest

import gpu
import values
from table import OLD, Op, Table

U, I, L, S, F, D, H = np.uint32, np.int32, np.uint64, np.int64, np.float32, np.float64, np.float16
LDS = {"lds": 16 * 1024}
PLACE = "v_lshlrev_b32 v90, 5, v0\n"  # of a lane in LDS: 32 bytes
ROW = "v_mul_u32_u24 v91, {size}, v1\n"  # of a lane in an array


def some(kinds):
    rng = values.generator(23)
    return [rng.integers(0, 2**32, (2**14, int(kind)), np.uint64) if kind.isdigit() else
            np.concatenate([special[:2**14], values.random_bits(kind, 2**15 - min(2**14, len(special)), i)])
            for i, (kind, special) in enumerate(zip(kinds, values.tuples(["u32" if k.isdigit() else k for k in kinds], 48)))]


# ---- loads: what comes from the four words of a
def bytes_at(a, offset, count):
    return np.ascontiguousarray(a.view(np.uint8).reshape(len(a), -1)[:, offset:offset + count])


def narrow(kind, offset, half=None):
    """Returns a formula for one number of a type, extended to 32 bits or put into one half of the destination."""
    size = np.dtype(kind).itemsize

    def of(a):
        value = bytes_at(a, offset, size).view(kind)[:, 0]
        if half is None:
            return value.astype(I if np.dtype(kind).kind == "i" else U).view(U)
        low = value.astype(np.int16 if np.dtype(kind).kind == "i" else np.uint16).view(np.uint16).astype(U)
        return low | U(OLD & 0xFFFF0000) if half == 0 else low << U(16) | U(OLD & 0xFFFF)
    return of


def whole(words, offset):
    return lambda a: bytes_at(a, offset, 4 * words).view(U)


LOADS = [("ubyte/u8", "1", narrow(np.uint8, 5), 5), ("sbyte/i8", "1", narrow(np.int8, 7), 7),
         ("ushort/u16", "1", narrow(np.uint16, 6), 6), ("sshort/i16", "1", narrow(np.int16, 2), 2),
         ("ubyte_d16/d16_u8", "1", narrow(np.uint8, 3, 0), 3), ("ubyte_d16_hi/d16_hi_u8", "1", narrow(np.uint8, 9, 1), 9),
         ("sbyte_d16/d16_i8", "1", narrow(np.int8, 3, 0), 3), ("sbyte_d16_hi/d16_hi_i8", "1", narrow(np.int8, 9, 1), 9),
         ("short_d16/d16_b16", "1", narrow(np.uint16, 4, 0), 4), ("short_d16_hi/d16_hi_b16", "1", narrow(np.uint16, 10, 1), 10),
         ("dword/b32", "1", whole(1, 4), 4), ("dwordx2/b64", "2", whole(2, 4), 4), ("dwordx3/b96", "3", whole(3, 4), 4),
         ("dwordx4/b128", "4", whole(4, 0), 0)]
FLAT_9 = "v_mov_b32 v93, s7\nv_add_co_u32 v92, vcc, s6, v91\nv_addc_co_u32 v93, vcc, 0, v93, vcc\n"
FLAT_RDNA = "v_mov_b32 v93, s7\nv_add_co_u32 v92, vcc_lo, s6, v91\nv_add_co_ci_u32 v93, vcc_lo, 0, v93, vcc_lo\n"
DESCRIPTOR = {"9": 0x00027000, "1": 0x31016000}


def descriptor(chip, limit="-1"):
    """Returns code that puts a descriptor of raw bytes from the source on into s[20:23]."""
    flags = DESCRIPTOR["9" if chip in gpu.CDNA else "1"]
    return f"s_mov_b32 s20, s6\ns_and_b32 s21, s7, 0xffff\ns_mov_b32 s22, {limit}\ns_mov_b32 s23, {flags:#x}\n"


def both(prefix, names):
    return "/".join(prefix + part for part in names.split("/"))


def loads():
    row = ROW.format(size=16)
    for names, words, formula, offset in LOADS:
        tag = f"+{offset}"
        yield Op(both("global_load_", names), f"{words} 4", formula, data=some, tag=tag,
                 text=row + f"{{op}} {{d}}, v91, s[6:7] offset:{offset}\n{{wait_vm}}")
        for chips, address in ((gpu.CDNA, FLAT_9), (gpu.RDNA, FLAT_RDNA)):
            yield Op(both("flat_load_", names), f"{words} 4", formula, data=some, on=chips, tag=tag,
                     text=row + address + f"{{op}} {{d}}, v[92:93] offset:{offset}\n{{wait_vm}}\n{{wait_ds}}")
        for chip in gpu.CHIPS:
            zero = "null" if chip == "gfx1201" else "0"
            yield Op(both("buffer_load_", names), f"{words} 4", formula, data=some, on=(chip, ), tag=tag,
                     text=row + descriptor(chip) + f"{{op}} {{d}}, v91, s[20:23], {zero} offen offset:{offset}\n{{wait_vm}}")
    for chip in gpu.CHIPS:
        zero = "null" if chip == "gfx1201" else "0"

        def in_range(a):
            return np.where(np.arange(len(a)) * 16 + 4 + 4 <= 65536 + 8, a[:, 1], U(0))
        yield Op("buffer_load_dword/buffer_load_b32", "1 4", in_range, data=some, on=(chip, ), tag="range",
                 text=row + descriptor(chip, "0x10008") + f"{{op}} {{d}}, v91, s[20:23], {zero} offen offset:4\n{{wait_vm}}")


LDS_LOADS = [("u8/u8", "1", narrow(np.uint8, 5), "offset:5"), ("i8/i8", "1", narrow(np.int8, 7), "offset:7"),
             ("u16/u16", "1", narrow(np.uint16, 6), "offset:6"), ("i16/i16", "1", narrow(np.int16, 2), "offset:2"),
             ("u8_d16/u8_d16", "1", narrow(np.uint8, 3, 0), "offset:3"),
             ("u8_d16_hi/u8_d16_hi", "1", narrow(np.uint8, 3, 1), "offset:3"),
             ("i8_d16/i8_d16", "1", narrow(np.int8, 3, 0), "offset:3"),
             ("i8_d16_hi/i8_d16_hi", "1", narrow(np.int8, 3, 1), "offset:3"),
             ("u16_d16/u16_d16", "1", narrow(np.uint16, 4, 0), "offset:4"),
             ("u16_d16_hi/u16_d16_hi", "1", narrow(np.uint16, 4, 1), "offset:4"),
             ("b32/b32", "1", whole(1, 8), "offset:8"), ("b64/b64", "2", whole(2, 8), "offset:8"),
             ("b96/b96", "3", whole(3, 0), ""), ("b128/b128", "4", whole(4, 0), ""),
             ("2_b32/2addr_b32", "2", lambda a: a[:, [3, 1]], "offset0:3 offset1:1"),
             ("2_b64/2addr_b64", "4", lambda a: a[:, [2, 3, 0, 1]], "offset0:1 offset1:0")]


def lds():
    write = PLACE + "ds_write_b128 v90, {a}\n{wait_ds}\n"
    for names, words, formula, offset in LDS_LOADS:
        old, new = names.split("/")
        prefix = "ds_read" if old[0] == "2" else "ds_read_"
        yield Op(f"{prefix}{old}/ds_load_{new}", f"{words} 4", formula, data=some, text=write +
                 f"{{op}} {{d}}, v90 {offset}\n{{wait_ds}}", **LDS)
    read = "\n{wait_ds}\nds_read_b128 {d}, v90\n{wait_ds}"
    clear = PLACE + "ds_write_b128 v90, {b}\n{wait_ds}\n"
    for names, count, shift, offset in (("b8/b8", 1, 0, 6), ("b16/b16", 2, 0, 10), ("b8_d16_hi/b8_d16_hi", 1, 16, 3),
                                        ("b16_d16_hi/b16_d16_hi", 2, 16, 12), ("b32/b32", 4, 0, 4), ("b64/b64", 8, 0, 8),
                                        ("b96/b96", 12, 0, 0)):
        def of(a, b, count=count, shift=shift, offset=offset):
            out = np.ascontiguousarray(b).view(np.uint8).reshape(len(b), 16).copy()
            source = a if count > 4 else a >> U(shift)
            out[:, offset:offset + count] = np.ascontiguousarray(source).view(np.uint8).reshape(len(a), -1)[:, :count]
            return out.view(U)
        old, new = names.split("/")
        yield Op(f"ds_write_{old}/ds_store_{new}", f"4 {max(count // 4, 1)} 4", of, data=some,
                 text=clear + f"{{op}} v90, {{a}} offset:{offset}" + read, **LDS)
    yield Op("ds_write2_b32/ds_store_2addr_b32", "4 1 1 4", lambda a, b, c: np.stack(
        [b[:, 0], c[:, 1], a[:, 0], c[:, 3]], axis=1), data=some,
             text=PLACE + "ds_write_b128 v90, {c}\n{wait_ds}\n{op} v90, {a}, {b} offset0:2 offset1:0" + read, **LDS)


def stores():
    for names, count, shift, offset in (("byte/b8", 1, 0, 2), ("short/b16", 2, 0, 1), ("byte_d16_hi/d16_hi_b8", 1, 16, 3),
                                        ("short_d16_hi/d16_hi_b16", 2, 16, 0), ("dword/b32", 4, 0, 0)):
        def of(a, b, count=count, shift=shift, offset=offset):
            out = np.ascontiguousarray(b).view(np.uint8).reshape(len(b), 4).copy()
            out[:, offset:offset + count] = (a >> U(shift)).view(np.uint8).reshape(len(a), 4)[:, :count]
            return out.view(U)[:, 0]
        yield Op(both("global_store_", names), "1 u32 u32", of, data=some, text=ROW.format(size=4) +
                 "global_store_dword v91, {b}, s[4:5]\n{wait_store}\n"
                 f"{{op}} v91, {{a}}, s[4:5] offset:{offset}\n{{wait_store}}\nglobal_load_dword {{d}}, v91, s[4:5]\n{{wait_vm}}")
        before = ROW.format(size=4) + "global_store_dword v91, {b}, s[4:5]\n{wait_store}\n"
        after = "\n{wait_store}\n{wait_ds}\nglobal_load_dword {d}, v91, s[4:5]\n{wait_vm}"
        for chips, address in ((gpu.CDNA, FLAT_9), (gpu.RDNA, FLAT_RDNA)):
            to_result = address.replace("s6", "s4").replace("s7", "s5")
            yield Op(both("flat_store_", names), "1 u32 u32", of, data=some, on=chips,
                     text=before + to_result + f"{{op}} v[92:93], {{a}} offset:{offset}" + after)
        for chip in gpu.CHIPS:
            zero = "null" if chip == "gfx1201" else "0"
            to_result = descriptor(chip).replace("s6", "s4").replace("s7", "s5")
            yield Op(both("buffer_store_", names), "1 u32 u32", of, data=some, on=(chip, ),
                     text=before + to_result + f"{{op}} {{a}}, v91, s[20:23], {zero} offen offset:{offset}" + after)


# ---- atomics: (memory before, data, what it is compared with) to memory after
def wrapped_up(old, data):
    return np.where(old >= data, old.dtype.type(0), old + old.dtype.type(1))


def wrapped_down(old, data):
    return np.where((old == 0) | (old > data), data, old - old.dtype.type(1))


INTEGERS = {"add": ("u", np.add), "sub": ("u", np.subtract), "rsub": ("u", lambda x, y: y - x), "inc": ("u", wrapped_up),
            "dec": ("u", wrapped_down), "min_i": ("i", np.minimum), "max_i": ("i", np.maximum), "min_u": ("u", np.minimum),
            "max_u": ("u", np.maximum), "and_b": ("u", np.bitwise_and), "or_b": ("u", np.bitwise_or), "xor_b": ("u", np.bitwise_xor)}
MEMORY_NAMES = {"add": "add", "sub": "sub", "inc": "inc", "dec": "dec", "min_i": "smin", "max_i": "smax", "min_u": "umin",
                "max_u": "umax", "and_b": "and", "or_b": "or", "xor_b": "xor"}


def returned(operation):
    """Returns a formula whose registers are memory's old and new value."""
    def of(old, *data):
        new = operation(old, *data).astype(old.dtype)
        return np.concatenate([np.ascontiguousarray(x).view(U).reshape(len(x), -1) for x in (old, new)], axis=1)
    return of


def pairs(kind):
    """Returns a formula for sums of the halves of registers, each rounded once."""
    def of(x, y):
        parts = [np.ascontiguousarray(z).view(kind).astype(F) for z in (x, y)]
        return (parts[0] + parts[1]).astype(kind).view(U)
    return of


def registers(first, bits):
    """Returns the text of the first or second result of an atomic."""
    one = ("{dr}", "{dr1}") if bits == 32 else ("{pair0}", "{pair1}")
    return one[first]


def lds_atomics():
    def op(names, kind, operation, operands="{b}", sources=2):
        bits = int(kind[1:])
        width = bits // 32
        text = (PLACE + f"ds_write_b{bits} v90, {{a}}\n{{wait_ds}}\n{{op}} {registers(0, bits)}, v90, {operands}\n{{wait_ds}}\n"
                f"ds_read_b{bits} {registers(1, bits)}, v90\n{{wait_ds}}")
        return Op(names, f"{2 * width if kind[0] != 'f' else f'2x' + 'fd'[width - 1]} " + " ".join([kind] * sources),
                  returned(operation), data=some, text=text, **LDS)
    for name, (letter, operation) in INTEGERS.items():
        for bits in (32, 64):
            base, suffix = (name.split("_") + [letter])[:2]
            yield op(f"ds_{base}_rtn_{suffix}{bits}", f"{letter}{bits}", operation)
    for bits in (32, 64):
        yield op(f"ds_wrxchg_rtn_b{bits}/ds_storexchg_rtn_b{bits}", f"u{bits}", lambda x, y: y)
        yield op(f"ds_cmpst_rtn_b{bits}/-", f"u{bits}", lambda x, y, z: np.where(x == y, z, x), "{b}, {c}", 3)
        yield op(f"-/ds_cmpstore_rtn_b{bits}", f"u{bits}", lambda x, y, z: np.where(x == z, y, x), "{b}, {c}", 3)


def memory_atomics():
    for name, short in MEMORY_NAMES.items():
        letter, operation = INTEGERS[name]
        for bits in (32, 64):
            base, suffix = (name.split("_") + ["b" if name.endswith("_b") else letter])[:2]
            yield from memory_atomic(f"{short}{'_x2' * (bits == 64)}/{base}_{suffix}{bits}", f"{letter}{bits}", operation)
    for bits in (32, 64):
        yield from memory_atomic(f"swap{'_x2' * (bits == 64)}/swap_b{bits}", f"u{bits}", lambda x, y: y)
    yield from memory_atomic("add_f32/add_f32", "f32", lambda x, y: x + y)
    yield from memory_atomic("add_f64/-", "f64", lambda x, y: x + y, gpu.CDNA)
    yield from memory_atomic("pk_add_f16/pk_add_f16", "u32", pairs(H), (*gpu.CDNA, "gfx1201"), "4xh")
    yield from memory_atomic("pk_add_bf16/pk_add_bf16", "u32", pairs(ml_dtypes.bfloat16), ("gfx942", "gfx950", "gfx1201"), "4xb")


def memory_atomic(names, kind, operation, on=gpu.CHIPS, listed=None):
    bits = int(kind[1:])
    wide = "x2" if bits == 64 else ""
    for chips, flag in ((("gfx90a", "gfx1151"), "glc"), (("gfx942", "gfx950"), "sc0"), (("gfx1201", ), "th:TH_ATOMIC_RETURN")):
        result = listed or (f"{bits // 16}" if kind[0] != "f" else "2xf" if bits == 32 else "2xd")
        yield Op(both("global_atomic_", names), f"{result} {kind} {kind}", returned(operation), data=some,
                 on=tuple(chip for chip in chips if chip in on),
                 text=ROW.format(size=bits // 4) + f"global_store_dword{wide} v91, {{a}}, s[4:5]\n{{wait_store}}\n"
                 f"{{op}} {registers(0, bits)}, v91, {{b}}, s[4:5] {flag}\n{{wait_vm}}\n"
                 f"global_load_dword{wide} {registers(1, bits)}, v91, s[4:5]\n{{wait_vm}}")


# ---- float sums, and one counter for all lanes
def floats():
    def text(read, write):
        return PLACE + f"{write} v90, {{a}}\n{{wait_ds}}\n{{op}} v90, {{b}}\n{{wait_ds}}\n{read} {{d}}, v90\n{{wait_ds}}"
    single = text("ds_read_b32", "ds_write_b32")
    yield Op("ds_add_f32", "f32 f32 f32", lambda a, b: a + b, data=some, text=single, **LDS)
    yield Op("ds_min_f32/ds_min_f32/-", "f32 f32 f32", lambda a, b: np.where(b < a, b, a), data=numbers, text=single, **LDS)
    yield Op("ds_max_f32/ds_max_f32/-", "f32 f32 f32", lambda a, b: np.where(b > a, b, a), data=numbers, text=single, **LDS)
    for kind, letter in ((H, "h"), (ml_dtypes.bfloat16, "b")):
        name = {"h": "f16", "b": "bf16"}[letter]
        yield Op(f"ds_pk_add_{name}", f"2x{letter} u32 u32", pairs(kind), data=some, text=single,
                 on=("gfx942", "gfx950", "gfx1201"), **LDS)
    yield Op("ds_min_f64/-", "f64 f64 f64", lambda a, b: np.where(b < a, b, a), data=wide_numbers,
             text=text("ds_read_b64", "ds_write_b64"), **LDS)
    yield Op("ds_max_f64/-", "f64 f64 f64", lambda a, b: np.where(b > a, b, a), data=wide_numbers,
             text=text("ds_read_b64", "ds_write_b64"), **LDS)
    yield Op("ds_add_f64/-", "f64 f64 f64", lambda a, b: a + b, data=some, text=text("ds_read_b64", "ds_write_b64"), **LDS)
    yield Op("ds_add_u32", "u32 u32", lambda a: np.repeat(a.reshape(-1, 256).sum(axis=1, dtype=U), 256), data=some, tag="one-address",
             text="v_mov_b32 v90, 0\nds_write_b32 v90, v90\n{wait_ds}\ns_barrier\nds_add_u32 v90, {a}\n{wait_ds}\ns_barrier\n"
             "ds_read_b32 {d}, v90\n{wait_ds}", on=gpu.CHIPS[:4], **LDS)


def numbers(kinds):
    """Returns numbers without NaNs, whose order in memory minima is not defined."""
    return [np.where(x & np.uint64(0x7FFFFFFF) > np.uint64(0x7F800000), np.uint64(0x3F800000), x) for x in some(kinds)]


def wide_numbers(kinds):
    """Returns doubles, without NaNs and zeros of both signs."""
    rng = values.generator(44)
    return [(rng.standard_normal(2**14) * 2.0**rng.integers(-300, 300, 2**14)).view(L) for _ in kinds]


TABLE = Table([*loads(), *lds(), *stores(), *lds_atomics(), *memory_atomics(), *floats()])


@pytest.mark.parametrize("case", TABLE.cases(), ids=TABLE.ids())
def test_memory(case):
    TABLE.run(case)
