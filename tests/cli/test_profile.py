# SPDX-License-Identifier: Apache-2.0
"""quern profile: what it tells of a program's kernels, and of its end. The counters themselves are tested in sim/look."""
import json
import os
import pathlib
import re
import sys
import tempfile
import xml.etree.ElementTree

import pytest

from conftest import BUILD, QUERN, SANITIZER, ok, refused, run

pytestmark = pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")


def check(device="sim:gfx942"):
    return [QUERN, "check", "--device", device, "--quick", "quantize"]


def profile(path, *args, **kwargs):
    text = ok("profile", "--json", path, "--force", *args, **kwargs)
    return json.loads(path.read_text()), text


def totals(kernels, name):
    return sum(k["counters"].get(name, 0) for k in kernels)


def test_json_and_table(tmp_path):
    written, text = profile(tmp_path / "p.json", "--", *check())
    assert written["exit_status"] == 0 and written["signal"] is None
    assert written["program"] == [str(a) for a in check()]
    assert "quantize.gpu_rows" in text  # the program's own output
    kernels = written["kernels"]
    names = {k["name"] for k in kernels}
    assert len(names) == len(kernels) and all(name.startswith("qk_quantize_") for name in names)
    assert names >= {f"qk_quantize_{kind}_{t}" for kind in ("rows", "blocks") for t in ("f32", "f16", "bf16")}
    for k in kernels:
        c, derived = k["counters"], k["derived"]
        waves = -(-k["block"][0] * k["block"][1] * k["block"][2] // k["wave_size"])
        assert k["arch"] == "gfx942" and k["wave_size"] == 64 and k["failed_launches"] == 0
        assert c["SQ_WAVES"] == waves * k["workgroups"] == c["SQ_INSTS_SENDMSG"]  # every wave ends once
        classes = ("VALU", "SALU", "SMEM", "VMEM", "LDS", "BRANCH", "SENDMSG", "VSKIPPED")
        assert c["SQ_INSTS"] == (sum(c["SQ_INSTS_" + name] for name in classes) + c["insts_wait"] + c["insts_barrier"]
                                 + c["insts_internal"] + c["insts_cache"])
        assert c["SQ_INSTS_VMEM"] == c["SQ_INSTS_VMEM_RD"] + c["SQ_INSTS_VMEM_WR"]
        assert c["memory_line_bytes"] == 128 * c["TCP_TOTAL_CACHE_ACCESSES"]
        for what in ("load", "store"):
            assert 0 < c[f"launch_{what}_bytes"] <= c[f"group_{what}_bytes"] <= c["memory_line_bytes"] + 64 * c["scalar_lines"]
        assert derived["VALUUtilization"] == pytest.approx(100 * c["valu_active_lanes"] / c["valu_lanes"])
        assert derived["coalescing_percent"] == pytest.approx(100 * c["memory_touched_bytes"] / c["memory_line_bytes"])
        assert derived["occupancy_percent"] == 100 * k["occupancy"]["waves"] / 32
        assert k["occupancy"]["workgroups"] == min(k["occupancy"]["workgroups_by"].values())
        assert k["occupancy"]["workgroups_by"][k["occupancy"]["limit"]] == k["occupancy"]["workgroups"]
        assert re.search(rf"^{k['name']} \(gfx942, device 0\)$", text, re.M)
        assert re.search(rf"SQ_INSTS_VALU +{c['SQ_INSTS_VALU']}\b", text)


def test_kernels_by_name(tmp_path):
    chosen, _ = profile(tmp_path / "p.json", "--kernel", "*rows_f?6", "--", *check())
    assert {k["name"] for k in chosen["kernels"]} == {"qk_quantize_rows_f16"}
    done = run("profile", "--kernel", "nonesuch", "--", *check())
    assert done.returncode == 0 and "no kernel matches 'nonesuch'; there were: qk_quantize_" in done.stderr


def test_picture(tmp_path):
    ok("profile", "--svg", tmp_path / "p.svg", "--kernel", "*rows_f16", "--", *check())
    drawing = xml.etree.ElementTree.parse(tmp_path / "p.svg").getroot()
    text = " ".join(t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text"))
    assert all(word in text for word in ("qk_quantize_rows_f16", "vector", "lines, launches", "the limit"))
    width = float(drawing.get("width"))
    bars = list(drawing.iter("{http://www.w3.org/2000/svg}rect"))[1:]
    assert all(float(r.get("x")) >= 0 and float(r.get("x")) + float(r.get("width")) <= width for r in bars)
    refused("profile", "--svg", tmp_path / "p.svg", "--", "true", says=["p.svg", "exists"])


def test_processes_and_devices(tmp_path):
    """Tests that the counts of several processes are added up, that devices stay apart, and that chips have their own
    names."""
    once, _ = profile(tmp_path / "p.json", "--", *check())
    program = " ".join(map(str, check()))
    twice, _ = profile(tmp_path / "p.json", "--", "sh", "-c", f"{program} & {program}; wait")
    assert len(twice["kernels"]) == len(once["kernels"])
    for name in ("SQ_WAVES", "SQ_INSTS", "memory_load_bytes"):
        assert totals(twice["kernels"], name) == 2 * totals(once["kernels"], name)
    second, _ = profile(tmp_path / "p.json", "--devices", 2, "--", *check("sim:gfx942:2"))
    assert {k["device"] for k in second["kernels"]} == {0} or len(second["kernels"]) >= len(once["kernels"])
    rdna, _ = profile(tmp_path / "p.json", "--", *check("sim:gfx1201"))
    assert all(k["wave_size"] == 32 and k["counters"]["SQ_WAVE32_INSTS"] == k["counters"]["insts"]
               and "SQ_INSTS_TEX_LOAD" in k["counters"] and "SQ_INSTS" not in k["counters"] for k in rdna["kernels"])


def test_ends(tmp_path):
    """Tests that the profile tells however the program ends, and that nothing is left behind."""
    path = tmp_path / "p.json"
    before = set(pathlib.Path(tempfile.gettempdir()).glob("quern-profile-*"))
    whole, _ = profile(path, "--", *check())
    path.unlink()
    done = run("profile", "--json", path, "--", "sh", "-c", f"{' '.join(map(str, check()))} > /dev/null; kill -9 $$")
    assert done.returncode == 137 and "sh was killed by signal 9 (Killed)" in done.stderr
    written = json.loads(path.read_text())
    assert written["signal"] == 9 and written["exit_status"] is None
    assert [k["name"] for k in written["kernels"]] == [k["name"] for k in whole["kernels"]]
    done = run("profile", "--", "sh", "-c", "exit 7")
    assert done.returncode == 7 and "did not use the simulated GPU: it made no HIP call" in done.stderr
    assert set(pathlib.Path(tempfile.gettempdir()).glob("quern-profile-*")) == before


def test_modelled_time(tmp_path):
    """Tests that modelled time is shown as the simulator's own file has it, with the shares of the SIMDs' cycles in
    order, and that nothing speaks of time unless it is asked for."""
    only = ["--kernel", "*rows_bf16", "--svg", tmp_path / "p.svg"]
    written, text = profile(tmp_path / "p.json", "--clock", "on", *only, "--", *check())
    run(*check()[1:], env=os.environ | {"QUERN_SIM": f"clock=on;profile={tmp_path}/own.json"})
    (own,) = (k for k in json.loads((tmp_path / "own.json").read_text())["kernels"] if k["name"].endswith("rows_bf16"))
    (kernel,) = written["kernels"]
    clock = kernel["clock"]
    assert clock == own["clock"] and clock["ns"] >= clock["unlimited_ns"] > 2000 * kernel["launches"]
    (line,) = re.findall("^  modelled +(.*) a launch, (.*) without the power limit; at (.*) MHz, (.*) W; (.*) of (.*) work", text, re.M)
    assert line[0] == f"{clock['ns'] // kernel['launches'] / 1000:.2f} us" and line[2:4] == (str(clock["mhz"]), str(clock["watts"]))
    assert line[4:] == (str(clock["workgroups_run"]), str(kernel["workgroups"]))
    (line,) = re.findall("^  SIMD cycles +(.*)$", text, re.M)
    found = [part.rsplit(" ", 2)[:2] for part in line.split(", ")]
    cycles, all_cycles = clock["simd_cycles"], sum(clock["simd_cycles"].values())
    assert found[0][0] == max(cycles, key=cycles.get) and [int(p) for _, p in found] == sorted((int(p) for _, p in found), reverse=True)
    assert all(int(percent) == pytest.approx(100 * cycles[name] / all_cycles, abs=0.51) for name, percent in found)
    m = clock["memory"]
    assert f"L1 {100 * m['l1_hits'] / m['l1_lines']:.1f} %, L2 {100 * m['l2_hits'] / m['l2_lines']:.1f} %" in text
    assert f"memory-side {100 * m['mall_hits'] / m['fabric_lines']:.1f} %, from memory {m['hbm_lines'] / 8:.1f} KiB" in text
    cost = {i["offset"]: sum(i["simd_cycles"].values()) for i in clock["instructions"]}
    assert list(cost) == sorted(cost) and {i["text"].split()[0] for i in clock["instructions"]} >= {"s_endpgm", "s_waitcnt"}
    dearest = max(clock["instructions"], key=lambda i: cost[i["offset"]])
    busy = all_cycles - cycles["idle"]
    assert 0.97 * busy < sum(cost.values()) <= busy
    place, share = dearest["offset"] - kernel["entry"], 100 * cost[dearest["offset"]] / busy
    most = max(dearest["simd_cycles"], key=dearest["simd_cycles"].get)
    assert re.search(rf"^  dearest +{share:.1f} %  {most} +\+0x{place:04x} {re.escape(dearest['text'])}$", text, re.M)
    assert f"{clock['wave_cycles'] / all_cycles:.2f} a SIMD on average, room for 6" in text
    assert "lines" not in clock and "source lines  none: the code has no line table" in text
    assert f"modelled: {clock['ns']} ns" in (tmp_path / "p.svg").read_text()
    plain, text = profile(tmp_path / "p.json", *only[:2], "--svg", tmp_path / "q.svg", "--", *check())
    assert "clock" not in plain["kernels"][0] and "  modelled  " not in text + (tmp_path / "q.svg").read_text()


def test_modelled_time_of_processes(tmp_path):
    """Tests that modelled time of several processes is added up, and that a chip without a model is refused by name."""
    only = ["--clock", "on", "--kernel", "qk_quantize_rows_f16"]
    once, _ = profile(tmp_path / "p.json", *only, "--", *check())
    program = " ".join(map(str, check()))
    twice, _ = profile(tmp_path / "p.json", *only, "--", "sh", "-c", f"{program}; {program}; true")
    (a,), (b,) = ([k["clock"] for k in w["kernels"]] for w in (once, twice))
    assert b["ns"] == 2 * a["ns"] and b["simd_cycles"] == {name: 2 * n for name, n in a["simd_cycles"].items()}
    both = [inst | {"simd_cycles": {n: 2 * c for n, c in inst["simd_cycles"].items()}, "issues": 2 * inst["issues"]}
            for inst in a["instructions"]]
    assert b["instructions"] == both and both
    assert b["memory"]["hbm_lines"] == 2 * a["memory"]["hbm_lines"] and (b["mhz"], b["watts"]) == (a["mhz"], a["watts"])
    done = run("profile", "--clock", "full", "--", *check("sim:gfx12-generic"))
    assert done.returncode != 0 and "no time is modelled for gfx12-generic" in done.stderr


@pytest.mark.skipif(SANITIZER != "", reason="plain Python cannot load a sanitizer's build")
def test_no_kernel():
    """Tests a program that makes HIP calls but launches nothing."""
    count = "import ctypes; ctypes.CDLL('libamdhip64.so').hipGetDeviceCount(ctypes.byref(ctypes.c_int()))"
    done = run("profile", "--", sys.executable, "-c", count)
    assert done.returncode == 0 and "launched no kernel" in done.stderr


def test_page(tmp_path):
    """Tests that the dearest kernel comes first. tests/page_test.py looks at the page of a kernel in a browser."""
    kernels, _ = profile(tmp_path / "p.json", "--clock", "on", "--html", tmp_path / "p.html", "--", *check())
    page = (tmp_path / "p.html").read_text()
    names = re.findall("<h2>(.*)</h2>", page)
    ns = {k["name"]: k["clock"]["ns"] for k in kernels["kernels"]}
    assert names == sorted(ns, key=ns.get, reverse=True) == re.findall('<tr><td><a class=code href="#kernel-.*">(.*)</a>', page)
    assert page.count("<details") == len(names) > page.count("<details class=\"card code-card\" open") == 3


def test_page_without_clock(tmp_path):
    """Tests the page of a chip without a model, and of a program that launches nothing."""
    kernels, _ = profile(tmp_path / "p.json", "--html", tmp_path / "p.html", "--", *check("sim:gfx1201"))
    page = (tmp_path / "p.html").read_text()
    sections = page.split("<section class=kernel ")[1:]
    assert len(sections) == len(kernels["kernels"]) > 1
    for k, section in zip(kernels["kernels"], sections):
        assert f"<h2>{k['name']}</h2>" in section and f"href=\"#{section[3:section.index('>')]}\"" in page
        assert "No time is modelled" in section and "<svg" not in section and "nan" not in section
        assert f"{k['counters']['insts']} of waves that ran" in section and f"{k['vgprs']} VGPRs" in section
    refused("profile", "--html", tmp_path / "p.html", "--", "true", says=["p.html", "exists"])
    ok("profile", "--html", tmp_path / "none.html", "--", "true")
    assert "No kernel ran." in (tmp_path / "none.html").read_text()


def test_streams(tmp_path):
    """Tests that a profile tells when launches of two streams ran, in its file, as text and on its page, and that those of
    other processes are told apart."""
    busy = f"./shown_test busy > {tmp_path}/times"
    program = ["sh", "-c", busy]
    written, text = profile(tmp_path / "p.json", "--clock", "sample", "--html", tmp_path / "p.html", "--", *program, cwd=BUILD)
    (kernel,) = written["kernels"]
    clock, spans = kernel["clock"], kernel["clock"]["timestamps"]
    took = sum(s["end_ns"] - s["start_ns"] for s in spans)
    assert sorted((s["stream"], s["end_ns"]) for s in spans) == list(zip((1, 2), map(int, (tmp_path / "times").read_text().split())))
    assert clock["elapsed_launches"] == 2 == len(spans) and clock["elapsed_ns"] == took > clock["ns"]
    assert clock["shared_ns"] == sum(s["shared_ns"] for s in spans) > took / 2
    assert f"{100 * clock['shared_ns'] / took:.1f} % of it beside other launches" in text
    page = (tmp_path / "p.html").read_text()
    drawn = re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" .*data-stream="(.*?)" data-start="(.*?)" data-end="(.*?)"', page)
    assert sorted(tuple(map(int, d[3:])) for d in drawn) == sorted((s["stream"], s["start_ns"], s["end_ns"]) for s in spans)
    assert len({d[1] for d in drawn}) == 2
    first, last = min(s["start_ns"] for s in spans), max(s["end_ns"] for s in spans)
    for x, _, width, _, start, end in drawn:
        assert float(width) / 910 == pytest.approx((int(end) - int(start)) / (last - first), abs=1e-4)
        assert (float(x) - 90) / 910 == pytest.approx((int(start) - first) / (last - first), abs=1e-4)
    twice, _ = profile(tmp_path / "p.json", "--clock", "sample", "--", "sh", "-c", f"{busy}; {busy}", cwd=BUILD)
    (kernel,) = twice["kernels"]
    assert sorted(s.get("process", 0) for s in kernel["clock"]["timestamps"]) == [0, 0, 1, 1]
    assert kernel["clock"]["elapsed_ns"] == 2 * took
