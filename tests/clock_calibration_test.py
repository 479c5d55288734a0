# SPDX-License-Identifier: Apache-2.0
"""Tests the arithmetic of sim/clock/calibration: rooflines, blocks of arguments, grids, and what the report sums up. What
it does with code objects needs a clone of AITER, which no test has."""

import dataclasses
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "sim/clock/calibration"))

import calibrate
import kernels
import published
import report
import roofline

ROWS = published.read()
FP8 = published.Row("fp8", "MI308X", (160, 256, 7168), 8, "bf16", "fp8gemm_bf16_blockscale_BpreShuffle_32x128", 8.0, "", "fit")
BF16 = published.Row("bf16", "MI308X", (100, 192, 4096), 5, "f32", "bf16gemm_fp32bf16_tn_64x64_splitk_clean", 8.0, "", "fit")
FMHA = published.Row("fmha", "MI300X", (2, 16, 1024), 1, "bf16", "fwd_hd128_bf16_causal_rtna", 8.0, "", "kept")


def addresses():
    """Returns a function that gives each buffer an address, and the list of their sizes."""
    sizes = []

    def buffer(size, _):
        sizes.append(size)
        return 0x7F0000000000 + 4096 * len(sizes)

    return buffer, sizes


def test_slots():
    block = kernels.pack([0x7F0123456789, 1.5, 7])
    assert block == bytes.fromhex("8967452301 7f0000" + "00" * 8 + "0000c03f" + "00" * 12 + "07" + "00" * 15)


@pytest.mark.parametrize("row, count, sizes", [
    (FP8, 16, [4 * 160 * 56, 4 * 2 * 56, 2 * 160 * 256, 160 * 7168, 256 * 7168, 4 * 256]),
    (dataclasses.replace(FP8, family="int8"), 13, [2 * 160 * 256, 160 * 7296, 256 * 7168, 4 * 160, 4 * 256, 4 * 256]),
    (BF16, 22, [4096, 4 * 100 * 192, 2 * 100 * 4096, 2 * 192 * 4096]),
    (FMHA, 42, [2 * 2 * 1024 * 16 * 128] * 4 + [4 * 2 * 16 * 1024]),
])
def test_blocks(row, count, sizes):
    buffer, found = addresses()
    assert len(kernels.block_of(row, buffer)) == 16 * count
    assert found == sizes


@pytest.mark.parametrize("row, grid", [
    (FP8, (2 * 8, 5, 1)), (BF16, (3, 2, 5)), (FMHA, (2, 16, 2)),
    (dataclasses.replace(FMHA, code_object="fwd_hd128_bf16_rtne", shape=(2, 24, 8193)), (33, 24, 2)),
])
def test_grids(row, grid):
    assert kernels.grid_of(row) == grid


def test_work():
    assert FP8.operations == 2 * 160 * 256 * 7168
    assert FP8.bytes == (160 + 256) * 7168 + 4 * 56 * (160 + 2) + 2 * 160 * 256
    assert BF16.bytes == 2 * (100 + 192) * 4096 + 4 * 100 * 192
    assert FMHA.operations == 2 * 2 * 16 * 1024**2 * 128
    assert FMHA.bytes == 4 * 2 * 16 * 1024 * 128 * 2


def test_roofline_finds_its_parameters():
    truth = roofline.Roofline(0.4, 0.5, 6.0)
    rows = [dataclasses.replace(r, us=truth.us(r)) for r in ROWS if r.family == "fp8"]
    found = roofline.fit(rows)
    assert max(roofline.error(found.us(r), r.us) for r in rows) < 0.01
    assert found.compute == pytest.approx(0.4, rel=0.02) and found.launch_us == pytest.approx(6.0, rel=0.02)


def test_roofline_minds_no_outlier():
    truth = roofline.Roofline(0.4, 0.5, 6.0)
    rows = [dataclasses.replace(r, us=truth.us(r)) for r in ROWS if r.family == "fp8"]
    rows[3] = dataclasses.replace(rows[3], us=20 * rows[3].us)
    found = roofline.fit(rows)
    assert sorted(roofline.error(found.us(r), r.us) for r in rows)[-2] < 0.02


def test_summary():
    assert report.summary([0.1 * i for i in range(1, 11)]) == ["0.55", "0.90"]
    assert report.summary([]) == ["-", "-"]


def test_page():
    options = type("options", (), {"clock": "on", "gflop": 60})
    times = {i: r.us * math.exp(0.2) for i, r in enumerate(ROWS) if r.family != "fmha"}
    page = report.page(ROWS, times, options)
    assert len(times) > 100 and f"| all |  |  | {len(times)} | 0.20 | 0.20 |" in page
    assert page.count("+0.20 |") == len(times) + report.WORST


def test_pairs():
    other = dataclasses.replace(FP8, gpu="MI355X", us=7.0)
    near, apart = dataclasses.replace(FP8, parts=4, us=8.3), dataclasses.replace(FP8, shape=(160, 256, 7296), us=1.0)
    assert report.pairs([FP8, other, near, apart, BF16]) == [(FP8, other), (other, near)]
    found = report.pair_table({FP8: 5.0, other: 4.0, near: 3.0, apart: 9.0})
    assert found.startswith("1 of 2 pairs") and found.count("| yes |") == 1 and "| 0.84 | 1.33 | no |" in found


def test_rows():
    assert len({r.name for r in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.split in ("fit", "kept") and row.chip_file.exists(), row.name
        assert row.family == "fmha" or kernels.tile_of(row)[0] in range(16, 257), row.name


def test_a_time_belongs_to_its_library_and_chip(tmp_path):
    library, chip = tmp_path / "library", tmp_path / "chip"
    states = set()
    for contents in [(b"a", b"bc", "on"), (b"ab", b"c", "on"), (b"a", b"bd", "on"), (b"a", b"bc", "full")]:
        library.write_bytes(contents[0])
        chip.write_bytes(contents[1])
        states.add(calibrate.state_of(library, chip, contents[2]))
    assert len(states) == 4


def test_times_are_kept(tmp_path):
    path = tmp_path / "new/times.csv"
    assert calibrate.read_times(path) == {}
    calibrate.add_time(path, ["one", "s", "1.500", "0.1"])
    calibrate.add_time(path, ["two", "s", "2.500", "0.1"])
    assert calibrate.read_times(path) == {("one", "s"): 1.5, ("two", "s"): 2.5}
