# SPDX-License-Identifier: Apache-2.0
"""quern probe on the simulated chips: each probe must give back what the model was told, within 2 %, of the chip's own numbers
and of others."""
import json
import math
import os
import pathlib
import subprocess

import pytest

BUILD = pathlib.Path(os.environ["QUERN_BUILD_DIR"])
CHIPS = ["gfx942", "gfx950"]

# Numbers that are halved, not doubled: twice as much would be more than another part lets through.
HALVED = {"l1_queue_cycles", "l2_unit_bytes", "l2_read_bytes", "fabric_bytes", "hbm_mb_per_s"}


def quern(*args, **changes):
    env = {k: v for k, v in os.environ.items() if k != "QUERN_SIM"} | changes
    done = subprocess.run([BUILD / "quern", *map(str, args)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def probe(device, *args, **changes):
    report = json.loads(quern("probe", "--device", device, "--json", *args, **changes))
    assert report["device"]["times"] == "modelled"
    return {r["probe"]: r for r in report["results"]}


def expect(result):
    assert math.isclose(result["value"], result["model"], rel_tol=0.02), result


@pytest.fixture(scope="module", params=CHIPS)
def whole(request, tmp_path_factory):
    """A run of all probes, and the chip file that it wrote."""
    file = tmp_path_factory.mktemp("probe") / f"{request.param}.chip"
    return request.param, probe(f"sim:{request.param}", "--out", file), file


def entries_of(text):
    """The entries of a chip file, by name."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return {line[0]: line[1] for line in lines if line}


def test_every_probe(whole):
    """Tests that each probe gives what the model was told, or says why it cannot run, as few do."""
    _, results, _ = whole
    ran = [r for r in results.values() if not r["reason"]]
    assert len(ran) >= len(results) - 6 and len(ran) > 50
    for result in ran:
        expect(result)
    for result in set(results) - {r["probe"] for r in ran}:
        assert results[result]["reason"] == "the device has no such instruction"


def test_groups_of_lanes(whole):
    """Tests LDS's groups lane by lane (docs/simulator.md's sources)."""
    chip, results, _ = whole
    said = {name: results[name]["detail"] for name in ("lds_read_b64", "lds_read_b128", "lds_write_b128")}
    runs = " ".join(f"{i}-{i + 7}" for i in range(0, 64, 8))
    if chip == "gfx942":
        assert said == {"lds_read_b64": "0-15 16-31 32-47 48-63", "lds_write_b128": runs,
                        "lds_read_b128": "0-3,20-23 4-7,16-19 8-11,28-31 12-15,24-27 "
                                         "32-35,52-55 36-39,48-51 40-43,60-63 44-47,56-59"}
    else:
        assert said == {"lds_read_b64": "0-31 32-63", "lds_write_b128": runs,
                        "lds_read_b128": "0-3,12-15,20-27 4-11,16-19,28-31 32-35,44-47,52-59 36-43,48-51,60-63"}


def test_file(whole):
    """Tests that a run with the file takes its numbers for the model's."""
    chip, results, file = whole
    entries = entries_of(file.read_text())
    assert entries["base"] == chip and int(entries["compute_units"]) in (304, 256)
    given = {r["entry"]: r for r in results.values() if r["entry"]}
    assert set(given) <= set(entries)
    again = probe(f"sim:{chip}", "--only", "l2_latency,launch", QUERN_SIM=f"arch={chip};chip={file}")
    assert again["l2_latency"]["model"] == float(entries["l2_hit_cycles"])
    assert again["launch"]["model"] == float(entries["launch_ns"])


def entries_with_probes():
    listed = quern("probe", "--list").splitlines()
    at = listed[0].index("chip file")
    return [(line.split()[0], line[at:].split()[0]) for line in listed[1:] if line[at:].split()[0] != "-"]


@pytest.mark.parametrize("name, entry", entries_with_probes())
def test_other_number(name, entry, tmp_path, whole):
    """Tests that a probe follows the number that it gives, so that test_every_probe could fail."""
    chip, results, _ = whole
    own = round(results[name]["entry_value"])
    if chip != "gfx942":
        pytest.skip("one chip is enough")
    other = own // 2 if entry in HALVED else own * 2
    file = tmp_path / "other.chip"
    file.write_text(f"base {chip}\n{entry} {other}\n")
    result = probe(f"sim:{chip}", "--only", name, QUERN_SIM=f"arch={chip};chip={file}")[name]
    expect(result)
    assert math.isclose(result["entry_value"], other, rel_tol=0.02)
    assert not math.isclose(result["value"], results[name]["value"], rel_tol=0.3)


def test_a_card():
    """Tests the path that a card takes: quern's own hip:0, whatever library shows it."""
    results = probe("hip:0", "--only", "l1_latency,launch", "--runs", "3", QUERN_HIP_LIBRARY=str(BUILD / "libquernsim.so"),
                    QUERN_SIM="clock=sample")
    for result in results.values():
        expect(result)
