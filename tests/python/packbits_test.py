# SPDX-License-Identifier: Apache-2.0
"""packbits and segment_packbits against NumPy's packbits, on the CPU and on simulated devices."""

import numpy as np
import pytest
import quern

ORDERS = ["big", "little"]


def values(count, dtype=bool):
    return (np.random.default_rng(count).integers(0, 2, count) * (1 if dtype is bool else 3)).astype(dtype)


@pytest.mark.parametrize("spec", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("order", ORDERS)
def test_packbits(order, spec):
    for count in (0, 1, 8, 9, 999):
        for dtype in (bool, np.uint8):
            x = values(count, dtype)
            got = quern.packbits(x if spec == "cpu" else quern.to(x, spec), order)
            np.testing.assert_array_equal(quern.numpy(got), np.packbits(x != 0, bitorder=order))


@pytest.mark.parametrize("spec", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("order", ORDERS)
def test_segments(order, spec):
    for lengths in ([], [0], [1, 0, 8, 9, 0], [13] * 40):
        indptr = np.cumsum([0, *lengths]).astype(np.int32)
        x = values(sum(lengths))
        there = (x, indptr) if spec == "cpu" else (quern.to(x, spec), quern.to(indptr, spec))
        out, begins = (quern.numpy(part) for part in quern.segment_packbits(*there, order))
        want = [np.packbits(part, bitorder=order) for part in np.split(x, indptr[1:-1])] if lengths else []
        np.testing.assert_array_equal(begins, np.cumsum([0] + [len(part) for part in want]))
        np.testing.assert_array_equal(out[:begins[-1]], np.concatenate([np.zeros(0, np.uint8), *want]))


@pytest.mark.parametrize("call, error, message", [
    (lambda x: quern.packbits(x, "middle"), ValueError, "packbits: order is 'middle'"),
    (lambda x: quern.packbits(x[::2]), ValueError, "packbits: x "),
    (lambda x: quern.packbits(x.astype(np.int32)), NotImplementedError, "packbits: x has dtype i32"),
    (lambda x: quern.packbits(x, out=np.zeros(3, np.uint8)), ValueError, r"packbits: out has shape \[3\], needs \[2\]"),
    (lambda x: quern.segment_packbits(x, np.array([0, 9], np.int64)), NotImplementedError, "segment_packbits: indptr"),
    (lambda x: quern.segment_packbits(x, np.array([0, 9], np.int32), out=np.zeros(1, np.uint8)), ValueError, "out has 1 bytes"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call(values(9))
