# SPDX-License-Identifier: Apache-2.0
"""quern bench of modelled time; and where its results find no room, or where it is stopped: nothing is left in their
place."""
import json
import os
import resource
import signal
import subprocess
import time

import pytest
from conftest import BUILD, QUERN, ok, refused

SHORT = ["bench", "attention", "--device", "cpu", "--seq", "16", "--runs", "1"]


def test_standard_output_full():
    for form in ([], ["--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([QUERN, *SHORT, *form], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 2 and "standard output" in done.stderr, done.stderr


def test_picture(tmp_path):
    """Tests that no picture is left if it does not fit, and that an old one stays without --force, and if the new one
    does not fit."""
    out = tmp_path / "attention.svg"
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    refused(*SHORT, "--svg", out, says=["attention.svg", "File too large"], leaves=out, preexec_fn=limit)
    ok(*SHORT, "--svg", out)
    first = out.read_bytes()
    assert first.startswith(b"<svg") and first.endswith(b"</svg>\n")
    refused(*SHORT, "--svg", out, says=["attention.svg"])
    refused(*SHORT, "--svg", out, "--force", says=["attention.svg", "File too large"], preexec_fn=limit)
    assert out.read_bytes() == first and os.listdir(tmp_path) == ["attention.svg"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_stopped(tmp_path, number):
    process = subprocess.Popen([QUERN, "bench", "attention", "--device", "cpu", "--runs", "1000", "--svg", tmp_path / "out.svg"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(0.3)
    process.send_signal(number)
    assert process.communicate()[0] == b""
    assert process.returncode != 0 and os.listdir(tmp_path) == []


# ---- modelled time

simulated = pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")
GEMM = ["bench", "gemm", "--device", "sim:gfx942", "--m", "16", "--n", "256", "--k", "512"]


def environment(**changes):
    return {k: v for k, v in os.environ.items() if k != "QUERN_SIM"} | changes


def modelled(*args, **changes):
    report = json.loads(ok(*args, "--json", env=environment(**changes)))
    assert report["device"]["times"] == "modelled" and report["runs"] == 1
    for r in report["results"]:
        assert r["times"] == "modelled" and r["limit"] in ("memory", "arithmetic") and r["copy_median_ns"] == 0
        limit_ns = max(r["bytes"] / report["limits"]["read_gb_per_s"],
                       r["flops"] / (report["limits"]["gflop_per_s"] if r["op"] == "gemm" else 1e9))
        assert r["share_of_limit"] == pytest.approx(limit_ns / r["median_ns"])
        spent = r["clock"]["simd_cycles"]
        assert r["clock"]["ns"] == r["median_ns"] > 2000 and sum(spent.values()) > 0
    return report["results"]


@simulated
def test_modelled():
    """Tests that times are the clock's to the nanosecond, again and again, and that every workgroup runs if asked to."""
    (first,) = modelled(*GEMM)
    (small,) = modelled(*GEMM[:-6], "--m", 1, "--n", 128, "--k", 128)  # as a float, 7989.99.. ns
    assert first["median_ns"] == first["clock"]["ns"] and small["median_ns"] == small["clock"]["ns"]
    assert modelled(*GEMM, QUERN_SIM="threads=1") == modelled(*GEMM, "--clock", "on") == [first]
    (full,) = modelled(*GEMM, "--clock", "full")
    assert full["clock"]["workgroups_run"] > first["clock"]["workgroups_run"] > 0
    assert modelled(*GEMM, QUERN_SIM="clock=full") == [full]
    (norm,) = modelled("bench", "rmsnorm", "--device", "sim:gfx942", "--rows", 8, "--dim", 512)
    assert norm["limit"] == "memory" and norm["flops"] == 0


@simulated
def test_modelled_table(tmp_path):
    table = ok(*GEMM[:6], "--n", 2048, "--k", 4096, "--svg", tmp_path / "p.svg", env=environment())
    title, heads, row = table.splitlines()
    assert title.startswith("sim:gfx942: ") and "modelled times" in title and "measured" not in table
    assert " modelled " in heads and "median" not in heads and heads.endswith("SIMD cycles")
    assert row.count(" %, ") == 2 and row.endswith(" %") and "idle" in row
    assert "modelled times" in (tmp_path / "p.svg").read_text()
    measured = ok("bench", "rmsnorm", "--device", "cpu", "--rows", 2, "--dim", 8, "--runs", 1)
    assert "modelled" not in measured and "SIMD" not in measured
    report = json.loads(ok("bench", "rmsnorm", "--device", "cpu", "--rows", 2, "--dim", 8, "--runs", 1, "--json"))
    assert [(r["times"], r["clock"]) for r in report["results"]] == [("measured", None)]


@simulated
def test_modelled_is_refused():
    refused(*GEMM[:3], "sim:gfx12-generic", says=["sim:gfx12-generic has no clock", "generic chips"], env=environment())
    refused(*GEMM, says=["sim:gfx942 has no clock", "clock=off"], env=environment(QUERN_SIM="clock=off"))
    (r,) = modelled(*GEMM, "--clock", "on", QUERN_SIM="clock=off")  # the option comes last
    assert r["kernel"].startswith("gemm.")
