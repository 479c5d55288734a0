# SPDX-License-Identifier: Apache-2.0
"""How each family's kernels are launched: their grid and their block of arguments.

Every argument has a slot of 16 bytes: an address of 8 bytes, or a number of 4, little-endian, then zeros. `buffer(bytes,
fill)` gives the address of a buffer; what the numbers in it are does not change modelled time."""

import math
import re
import struct

from published import HEAD

SMALL, ZERO = 0x30, 0  # bytes that make small positive numbers of any type, and zeros
FMHA_SLOTS, FMHA_ROWS = 42, 256  # slots of its block; rows of Q of a workgroup


def pack(slots):
    def slot(value):
        raw = struct.pack("<f", value) if isinstance(value, float) else value.to_bytes(8, "little")
        return raw.ljust(16, b"\0")

    return b"".join(map(slot, slots))


def tile_of(row):
    m, n = re.search(r"_(\d+)x(\d+)(?:_|$)", row.code_object).groups()
    return int(m), int(n)


def fp8(row, buffer):
    m, n, k = row.shape
    scale_a, scale_b = buffer(4 * m * (k // 128), SMALL), buffer(4 * max(1, n // 128) * (k // 128), SMALL)
    return [buffer(2 * m * n, ZERO), buffer(m * k, SMALL), buffer(n * k, SMALL), scale_a, scale_b, buffer(4 * n, ZERO),
            m, n, k, k, k, 2 * n, row.parts, m, n // 128, k // 128]


def int8(row, buffer):
    m, n, k = row.shape
    stride = k + 128  # of A's rows, in AITER's tuner
    return [buffer(2 * m * n, ZERO), buffer(m * stride, SMALL), buffer(n * k, SMALL), buffer(4 * m, SMALL),
            buffer(4 * n, SMALL), buffer(4 * n, ZERO), m, n, k, stride, k, 2 * n, row.parts]


def bf16(row, buffer):
    m, n, k = row.shape
    stride = n * (2 if row.out == "bf16" else 4)
    semaphores = buffer(4096, ZERO) if row.parts > 1 else 0
    return [buffer(m * stride, ZERO), 0, buffer(2 * m * k, SMALL), buffer(2 * n * k, SMALL), 1.0, 0.0, stride, 0, stride,
            0, 2 * k, 0, 2 * k, 0, m, n, k, row.parts, int(row.out == "bf16"), 0, 0, semaphores]


def fmha(row, buffer):
    batch, heads, length = row.shape
    step = heads * HEAD * 2  # from row to row
    size = batch * length * step
    o, q, k, v = buffer(size, ZERO), *(buffer(size, SMALL) for _ in range(3))
    strides = [step, HEAD * 2, length * step]
    slots = [o, q, k, v, buffer(4 * batch * heads * length, ZERO), HEAD**-0.5, length, step, FMHA_ROWS * step, *strides[1:],
             1, *strides, 5, 1, length, HEAD, HEAD, heads, *strides, *strides, 0, 0, 4 * length]
    return slots + [0] * (FMHA_SLOTS - len(slots))


def grid_of(row):
    if row.family == "fmha":
        batch, heads, length = row.shape
        blocks = math.ceil(length / FMHA_ROWS)
        return math.ceil(blocks / 2) if row.is_causal else blocks, heads, batch
    (m, n, _), (tile_m, tile_n) = row.shape, tile_of(row)
    columns, rows = math.ceil(n / tile_n), math.ceil(m / tile_m)
    return (columns, rows, row.parts) if row.family == "bf16" else (columns * row.parts, rows, 1)


def threads_of(row):
    return 512 if row.family == "fmha" else 256


def block_of(row, buffer):
    return pack({"fp8": fp8, "int8": int8, "bf16": bf16, "fmha": fmha}[row.family](row, buffer))
