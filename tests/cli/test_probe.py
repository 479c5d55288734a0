# SPDX-License-Identifier: Apache-2.0
"""quern probe: names, files, and devices that it cannot measure. tests/probe_test.py has the values."""
import json
import os

import pytest
from conftest import BUILD, ok, refused

simulated = pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")
SHORT = ["probe", "--device", "sim:gfx942", "--only", "issue"]


def environment(**changes):
    return {k: v for k, v in os.environ.items() if k != "QUERN_SIM"} | changes


def test_list():
    table = ok("probe", "--list").splitlines()
    assert table[0].split()[:2] == ["probe", "unit"] and len(table) > 50
    assert len({line.split()[0] for line in table}) == len(table)
    assert len(ok("probe", "--list", "--only", "branch,issue,branch").splitlines()) == 3


def test_names():
    refused("probe", "--only", "isue", says=["--only", "'isue'", "accepted: issue", "did you mean issue?"])
    refused("probe", "--only", "issue,", says=["--only", "''"])
    refused("probe", "--runs", "0", says=["--runs", "from 1"])


def test_other_devices():
    refused("probe", "--device", "cpu", says=["cpu has no probes", "gfx942"])


@simulated
def test_other_chips():
    refused("probe", "--device", "sim:gfx90a", says=["sim:gfx90a has no probes"], env=environment())
    refused(*SHORT, says=["has no clock", "clock=off"], env=environment(QUERN_SIM="clock=off"))


@simulated
def test_file(tmp_path):
    """Tests that an old file stays without --force."""
    out = tmp_path / "my.chip"
    env = environment()
    refused(*SHORT, "--out", tmp_path / "nonesuch" / "my.chip", says=["cannot be created"], env=env)
    text = ok(*SHORT, "--out", out, env=env)
    first = out.read_text()
    assert "issue_cycles 4" in first and "base gfx942" in first and "issue" in text
    refused(*SHORT, "--out", out, says=["my.chip: exists already", "--force"], env=env)
    assert out.read_text() == first
    ok(*SHORT, "--out", out, "--force", env=env)
    assert out.read_text() == first and os.listdir(tmp_path) == ["my.chip"]


@simulated
def test_json():
    report = json.loads(ok(*SHORT, "--json", env=environment()))
    assert report["device"]["spec"] == "sim:gfx942"
    assert report["results"] == [{"probe": "issue", "unit": "cycles", "value": 4.0, "model": 4.0, "entry": "issue_cycles",
                                  "entry_value": 4.0, "detail": "", "reason": ""}]
