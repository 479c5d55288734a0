# SPDX-License-Identifier: Apache-2.0
"""quern profile --timeline: modelled waves as a trace. sim/clock/timeline_test.c tests its limits."""
import collections
import json
import os

import pytest

from conftest import BUILD, QUERN, ok, refused, run

pytestmark = pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")

CHECK = [QUERN, "check", "--device", "sim:gfx942", "--quick", "quantize"]
FIRST = 2.0  # microseconds of a launch before its first wave may start


def timeline(path, *program, mode="on", **kwargs):
    """Gives the trace's events, and the kernels of the profile."""
    ok("profile", "--clock", mode, "--timeline", path, "--json", f"{path}.json", "--force", "--", *program, **kwargs)
    return json.loads(path.read_text()), json.loads((path.parent / f"{path.name}.json").read_text())["kernels"]


def is_launch(event):
    return event["ph"] == "X" and "grid" in event.get("args", {})


def is_wave(event):
    return event["ph"] == "X" and "wave" in event.get("args", {})


def is_wait(event):
    return event["ph"] == "X" and event["name"].startswith("wait_")


def end(event):
    return round(event["ts"] + event["dur"], 4)


@pytest.mark.parametrize("mode", ["on", "full"])
def test_waves(tmp_path, mode):
    """Tests that every wave that ran at modelled time is there once, in a launch of its kernel; that a place of a SIMD has
    one wave at a time; and that launches end with the profile's times."""
    events, kernels = timeline(tmp_path / "t.json", *CHECK, mode=mode)
    launches, waves, waits = (list(filter(of, events)) for of in (is_launch, is_wave, is_wait))
    ns, count = collections.Counter(), collections.Counter()
    for event in launches:
        ns[event["name"]] += round(1000 * event["dur"])
        count[event["name"]] += event["args"]["workgroups_run"]
    expected = collections.Counter()
    for k in kernels:
        expected[k["name"]] += k["clock"]["workgroups_run"] * -(-k["block"][0] // 64)
    assert ns == {k["name"]: k["clock"]["ns"] for k in kernels} and sum(k["launches"] for k in kernels) == len(launches)
    assert collections.Counter(w["name"] for w in waves) == expected
    for before, after in zip(launches, launches[1:]):  # one after the other
        assert after["ts"] == end(before)
    places = collections.defaultdict(list)
    for wave in waves:
        (launch,) = [l for l in launches if l["ts"] + FIRST <= wave["ts"] and end(wave) <= end(l)]
        assert launch["name"] == wave["name"]
        assert all(0 <= i < n for i, n in zip(wave["args"]["workgroup"], launch["args"]["grid"]))
        places[wave["pid"], wave["tid"]].append(wave)
    for of_place in places.values():
        of_place.sort(key=lambda w: w["ts"])
        assert all(end(a) <= b["ts"] for a, b in zip(of_place, of_place[1:]))
    for wait in waits:
        assert any(w["ts"] <= wait["ts"] and end(wait) <= end(w) for w in places[wait["pid"], wait["tid"]])
    assert {w["name"] for w in waits} >= {"wait_vmem", "wait_lds", "wait_fetch"}
    named = {(e["pid"], e.get("tid")) for e in events if e["ph"] == "M" and e["name"] in ("thread_name", "process_name")}
    assert set(places) <= named and {(pid, None) for pid, _ in places} <= named
    assert any("modelled" in e["args"]["name"] for e in events if e["name"] == "process_name")
    counters = [e for e in events if e["ph"] == "C"]
    assert max(e["args"].get("GB/s", 0) for e in counters) > 0 and max(e["args"].get("waves", 0) for e in counters) > 1


def test_host_threads(tmp_path):
    """Tests that the trace does not depend on the host's threads."""
    texts = []
    for threads in (1, 3):
        timeline(tmp_path / "t.json", *CHECK, env=os.environ | {"QUERN_SIM": f"threads={threads}"})
        texts.append((tmp_path / "t.json").read_bytes())
    assert texts[0] == texts[1]


def test_processes(tmp_path):
    """Tests that each of a program's processes has processes of its own in the trace, also one that was killed."""
    alone, _ = timeline(tmp_path / "t.json", *CHECK)
    program = " ".join(map(str, CHECK))
    both, _ = timeline(tmp_path / "t.json", "sh", "-c", f"{program}; {program}; true")
    assert len(both) == 2 * len(alone) and len({e["pid"] for e in both}) == 2 * len({e["pid"] for e in alone})
    fork = f"{program} & sleep 0.2; kill -9 $!; wait; true"
    killed, _ = timeline(tmp_path / "t.json", "sh", "-c", fork)
    assert len(killed) < len(alone)


def test_refused(tmp_path):
    path = tmp_path / "t.json"
    refused("profile", "--timeline", path, "--", "true", says=["--timeline", "t.json", "needs --clock"], leaves=path)
    refused("profile", "--timeline", path, "--", "true", says=["needs --clock"], env=os.environ | {"QUERN_SIM": "clock=on;clock=off"})
    refused("sim", "--timeline", path, "--", "true", says=["timeline=", "no time is modelled", "clock=on"], leaves=path)
    path.write_text("mine")
    refused("profile", "--clock", "on", "--timeline", path, "--", "true", says=["t.json", "exists"])
    assert path.read_text() == "mine"


def test_full_disk(tmp_path):
    """Tests that a file that cannot be written is told of once, and that the program goes on."""
    done = run(*CHECK[1:], env=os.environ | {"QUERN_SIM": "clock=on;timeline=/dev/full"})
    assert done.returncode == 0
    assert done.stderr.count("quernsim: timeline=/dev/full: cannot be written") == 1 == done.stderr.count("\n")
