# SPDX-License-Identifier: Apache-2.0
"""The table of plain linear layers: what its reader accepts, what the package has, and how bench/peer_linear.py makes it."""

import copy
import json
import pathlib
import sys

import pytest
from quern._patch import table

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROW = {"n": 8, "k": 16, "bias": False, "first_m": 1, "last_m": 4, "ratio": 1.5}
GOOD = {"command": "bench/peer_linear.py", "device": "cpu", "rows": [ROW, ROW | {"first_m": 6, "last_m": 6}, ROW | {"bias": True}]}


def test_read():
    assert table.read(json.dumps(GOOD)) == {("cpu", 8, 16, False): ((1, 4), (6, 6)), ("cpu", 8, 16, True): ((1, 4),)}
    assert table.read(json.dumps(GOOD | {"rows": []})) == {}


def changed(**names):
    return GOOD | {"rows": [ROW | names]}


@pytest.mark.parametrize("bad, message", [
    ([], "the table has list"), ({}, "accepted: command, device, rows"), (GOOD | {"version": 2}, "version"),
    (GOOD | {"device": None}, "device is None; accepted: str"), (GOOD | {"rows": {}}, "rows is {}; accepted: list"),
    (GOOD | {"rows": [1]}, "row 0 has int"), (changed(dtype="bf16"), "row 0 has .*dtype"), (GOOD | {"rows": [{"n": 8}]}, "row 0 has n;"),
    (changed(n="8"), "n is '8'; accepted: int"), (changed(n=True), "n is True; accepted: int"), (changed(k=16.0), "k is 16.0"),
    (changed(bias=0), "bias is 0; accepted: bool"), (changed(ratio=2), "ratio is 2; accepted: float"),
    (changed(ratio=1.0), "ratio is 1.0; accepted: above 1"), (changed(ratio=float("nan")), "ratio is nan"),
    (changed(n=0), "n 0"), (changed(first_m=0), "m 0 to 4"), (changed(first_m=5), "m 5 to 4"),
    (GOOD | {"rows": [ROW, ROW | {"first_m": 4, "last_m": 9}]}, "row 1: m 4 to 9 after"),
])
def test_bad_tables(bad, message):
    with pytest.raises(table.BadTable, match=message):
        table.read(json.dumps(bad))


def test_damaged_text():
    text = json.dumps(GOOD)
    for end in range(len(text)):
        with pytest.raises(table.BadTable):
            table.read(text[:end])


def test_the_package_has_what_was_measured():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import peer_linear
    finally:
        sys.path.pop(0)
    figures = json.loads((ROOT / "bench/results/h200_linear.json").read_text())
    made = peer_linear.table_of(copy.deepcopy(figures))
    assert made == json.loads(table.FILE.read_text()) and made["device"] == "NVIDIA H200"
    wins = {(r["n"], r["k"], r["bias"], r["m"]) for r in figures["rows"] if r["ratio"] >= peer_linear.LEAST_GAIN}
    found = {(n, k, bias, m) for (device, n, k, bias), ranges in table.shipped().items() for first, last in ranges
             for m in {r["m"] for r in figures["rows"]} if first <= m <= last}
    assert found == wins


def test_ranges_end_where_a_measured_size_loses():
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        import peer_linear
    finally:
        sys.path.pop(0)
    rows = [{"m": m, "ratio": ratio} for m, ratio in ((64, 1.3), (1, 1.02), (16, 1.1), (256, 1.019), (512, 1.05))]
    assert peer_linear.ranges(rows) == [(1, 64, 1.02), (512, 512, 1.05)]
