# SPDX-License-Identifier: Apache-2.0
"""The command line: help, mistakes, JSON, and that completion and manual say what --help says."""
import json
import os
import pathlib
import pty
import re
import resource
import subprocess
import sys
import time
import xml.etree.ElementTree

import pytest

from conftest import BUILD, QUERN, SANITIZER, SOURCE, ok, refused, run

COMMANDS = {c["name"]: c for c in json.loads(ok("help", "--json"))["commands"]}


def test_help():
    assert ok("--help") == ok("help") == ok("-h")
    assert all(name in ok("--help") for name in COMMANDS)
    assert ok("--version").startswith("quern 0.")
    done = run()
    assert done.returncode == 2 and done.stdout == "" and done.stderr == ok("--help")


@pytest.mark.parametrize("command", COMMANDS)
def test_command_help(command):
    text = ok(command, "--help")
    assert text == ok("help", command) == ok(command, "-h")
    assert text.startswith(f"Usage: quern {command} ")
    for option in COMMANDS[command]["options"]:
        assert option["name"] in text and option["help"] in text
    assert "--json" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("command", COMMANDS)
def test_unknown_option(command):
    message = refused(command, "--nonesuch=3", says=["--nonesuch ", "accepted: --help"])
    assert all(option["name"] in message for option in COMMANDS[command]["options"])


@pytest.mark.parametrize("args, says", [
    (["nonesuch"], ["nonesuch", "quantize"]),
    (["--nonesuch"], ["--nonesuch", "--version"]),
    (["help", "nonesuch"], ["nonesuch"]),
    (["devices", "extra"], ["extra"]),
    (["devices", "--json=yes"], ["--json", "no value", "yes"]),
    (["quantize"], ["IN OUT"]),
    (["quantize", "a"], ["IN OUT"]),
    (["quantize", "a", "b", "c"], ["'c'"]),
    (["quantize", "a", "b", "--include"], ["--include", "PATTERN"]),
    (["quantize", "a", "b", "--include="], ["--include", "PATTERN"]),
    (["check", "--device", "nonesuch"], ["nonesuch", "accepted: cpu"]),
    (["check", "--device", "cpu:1"], ["cpu:1", "accepted"]),
    (["check", "--device", "sim:gfx1"], ["gfx1", "gfx942"]),
    (["check", "--seed", "1x"], ["--seed", "1x", "from 0"]),
    (["check", "--seed", "-1"], ["--seed", "-1"]),
    (["check", "--seed", "99999999999999999999"], ["--seed"]),
    (["check", "nonesuch"], ["nonesuch", "gemm"]),
    (["check", "--report", "nonesuch/r.json"], ["nonesuch/r.json", "cannot be created"]),
    (["bench", "--svg", "nonesuch/p.svg"], ["nonesuch/p.svg", "cannot be created"]),
    (["check", "--device", "cpu", "--device", "hip:0"], ["--device", "twice"]),
    (["check", "--json", "--json"], ["--json", "twice"]),
    (["convert", "a", "b", "--to=e4m3fn", "--to", "e4m3fn"], ["--to", "twice"]),
    (["gemm"], ["--weights"]),
    (["gemm", "--weights", "x"], ["--tensor"]),
    (["gemm", "--weights", "x", "--tensor", "t"], ["--input", "neither"]),
    (["gemm", "--weights", "x", "--tensor", "t", "--input", "x", "--random", "3"], ["both"]),
    (["gemm", "--out-dtype", "f64"], ["--out-dtype", "f64", "bf16|f32"]),
    (["bench", "nonesuch"], ["nonesuch", "quantize, gemm"]),
    (["bench", "--m", "1,x"], ["--m", "1,x", "as 1,16"]),
    (["bench", "--m", "0"], ["--m", "0"]),
    (["bench", "--seq", "1,,2"], ["--seq", "1,,2"]),
    (["bench", "--runs", "0"], ["--runs", "0", "from 1"]),
    (["bench", "--clock", "off"], ["--clock", "off", "sample|on|xcd|full"]),
    (["bench", "--clock", "on", "--device", "cpu"], ["--clock", "device cpu", "a simulated device"]),
    (["bench", "--clock", "on", "--peer", "torch"], ["--clock", "--peer"]),
    (["bench", "--peer", "numpy"], ["--peer", "numpy", "torch"]),
    (["bench", "--peer", "torch", "--device", "hip:0"], ["--peer", "hip:0", "cpu"]),
    (["bench", "--peer", "torch", "quantize"], ["--peer", "quantize", "gemm, attention"]),
    (["bench", "--peer", "torch", "attention", "gemm"], ["--peer", "gemm, attention"]),
    (["bench", "--peer", "torch", "--svg", "plot.svg"], ["--svg", "gemm"]),
    (["bench", "--peer", "torch", "attention", "--svg", "/nonesuch/p.svg"], ["/nonesuch/p.svg", "cannot be created"]),
    (["bench", "--peer", "torch", "attention", "--device", "nonesuch"], ["nonesuch", "accepted: cpu"]),
    (["bench", "--peer", "torch", "--python", "nonesuch"], ["--python", "nonesuch"]),
    (["bench", "--peer", "torch", "--python", "false"], ["peers.py", "status 1"]),
    (["bench", "--peer", "torch", "attention", "--device", "cpu", "--python", "false"], ["peer_attention.py", "status 1"]),
    (["bench", "--peer", "torch", "attention", "--device", "cpu", "--svg", "plot.svg", "--python", "true"],
     ["--peer", "no figures"]),
    (["sim"], ["PROGRAM"]),
    (["sim", "--arch", "gfx1", "true"], ["gfx1", "gfx942"]),
    (["sim", "--devices", "17", "true"], ["--devices", "17", "16"]),
    (["sim", "--check", "nonesuch", "true"], ["nonesuch", "bounds"]),
    (["sim", "--mfma", "nonesuch", "true"], ["--mfma", "nonesuch", "exact", "fast"]),
    (["sim", "--clock", "off", "true"], ["--clock", "off", "sample|on|xcd|full"]),
    (["sim", "--trace", ":3", "true"], ["trace=:3", "KERNEL"]),
    (["sim", "--trace", "k:x", "true"], ["trace=k:x", "a wave's number"]),
    (["sim", "--trace", "k", "--trace-file", "/nonesuch/t", "true"], ["trace_file=/nonesuch/t", "cannot be written"]),
    (["profile"], ["PROGRAM"]),
    (["profile", "--clock", "x", "true"], ["--clock", "x", "sample|on|xcd|full"]),
    (["profile", "--arch", "gfx1", "true"], ["gfx1", "gfx942"]),
    (["profile", "--devices", "17", "true"], ["--devices", "17", "16"]),
    (["profile", "--json", "/nonesuch/p.json", "true"], ["/nonesuch/p.json", "cannot be created"]),
    (["profile", "--svg", "/nonesuch/p.svg", "true"], ["/nonesuch/p.svg", "cannot be created"]),
    (["profile", "--html", "/nonesuch/p.html", "true"], ["/nonesuch/p.html", "cannot be created"]),
    (["cache"], ["path|list|verify|fill|clear"]),
    (["cache", "nonesuch"], ["nonesuch", "path, list, verify, fill, clear"]),
    (["cache", "list", "--device", "cpu"], ["--device goes with fill alone"]),
    (["cache", "clear", "--op", "gemm"], ["--op goes with fill alone"]),
    (["cache", "fill", "--device", "cpu"], ["cpu has no kernels to compile"]),
    (["cache", "fill", "--device", "sim:gfx942", "--op", "nonesuch"], ["no op is named 'nonesuch'"]),
    (["tune"], ["no problems are given"]),
    (["tune", "nonesuch"], ["nonesuch", "path, list, verify, gemm"]),
    (["tune", "path", "x"], ["path takes no FILE", "x"]),
    (["tune", "list", "/nonesuch"], ["/nonesuch: No such file"]),
    (["tune", "list", "a", "b"], ["'b'"]),
])
def test_mistakes(args, says):
    refused(*args, says=says)


def test_devices():
    devices = json.loads(ok("devices", "--json"))["devices"]
    cpu = next(d for d in devices if d["spec"] == "cpu")
    assert cpu["times"] == "measured" and cpu["memory_bytes"] > 0 and cpu["compute_units"] > 0
    table = ok("devices").splitlines()
    assert len(table) == 1 + len(devices)
    assert [line.split()[0] for line in table[1:]] == [d["spec"] for d in devices]


def test_check(tmp_path):
    report = tmp_path / "report.json"
    printed = json.loads(ok("check", "--device", "cpu", "--quick", "--json", "--report", report))
    written = json.loads(report.read_text())
    assert written["results"] == printed["results"] and written["device"] == printed["device"]
    assert {"host", "versions", "date", "seed", "summary"} <= set(written)
    assert written["host"]["cpu"] and written["device"]["spec"] == "cpu"
    ran = [r for r in written["results"] if r["ran"]]
    assert len(ran) == written["summary"]["ran"] > 0 and written["summary"]["failed"] == 0
    assert {r["op"] for r in ran} >= {"gemm", "quantize"}
    assert all(r["passed"] and r["error_over_tolerance"] <= 1 and r["time_ns"] >= 0 for r in ran)
    assert all(r["reason"] for r in written["results"] if not r["ran"])
    refused("check", "--device", "cpu", "--report", report, says=[str(report), "--force"])
    table = ok("check", "--device", "cpu", "--quick", "gemm")
    assert "gemm." in table and "quantize." not in table


def test_bench(tmp_path):
    plot = tmp_path / "plot.svg"
    report = json.loads(ok("bench", "quantize", "gemm", "--device", "cpu", "--runs", 3, "--m", "1,3", "--n", 256,
                           "--k", 300, "--json", "--svg", plot))
    assert [r["op"] for r in report["results"]] == ["quantize", "quantize", "gemm", "gemm"]
    for r in report["results"]:
        assert 0 < r["fastest_ns"] <= r["median_ns"] and r["share_of_limit"] > 0
        assert r["gb_per_s"] == pytest.approx(r["bytes"] / r["median_ns"], rel=1e-6)
        assert r["kernel"].startswith(r["op"])
    gemm = report["results"][3]
    assert gemm["flops"] == 2 * 3 * 256 * 300
    assert report["limits"]["gflop_per_s"] > 0 and report["limits"]["read_gb_per_s"] > 0
    drawing = xml.etree.ElementTree.parse(plot).getroot()
    assert len(drawing.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 4
    refused("bench", "--device", "cpu", "--svg", plot, says=[str(plot), "--force"])
    table = ok("bench", "gemm", "--device", "cpu", "--runs", 1, "--m", 2, "--n", 64, "--k", 64)
    assert "m=2 n=64 k=64" in table and "quantize" not in table
    refused("bench", "nonesuch", says=["nonesuch", "quantize", "norm", "rmsnorm"])


def test_bench_rows():
    report = json.loads(ok("bench", "norm", "activation", "--device", "cpu", "--runs", 3, "--rows", 7, "--dim", 300,
                           "--json"))
    results = {r["op"]: r for r in report["results"]}
    assert len(results) == len(report["results"]) and {"rmsnorm", "layernorm", "silu_and_mul"} <= set(results)
    elements = 7 * 300  # bf16: two bytes; each tensor counts as often as it must be moved
    assert results["rmsnorm"]["bytes"] == 4 * elements + 2 * 300
    assert results["fused_add_rmsnorm"]["bytes"] == 8 * elements + 2 * 300
    assert results["rmsnorm_group_quant"]["bytes"] == 3 * elements + 2 * 300 + 4 * 7 * 3
    assert results["silu_and_mul"]["bytes"] == 6 * elements
    for r in results.values():
        assert r["copy_median_ns"] > 0 and r["limit"] == "copy" and "7 x 300" in r["problem"]
    one = json.loads(ok("bench", "layernorm", "--device", "cpu", "--runs", 1, "--rows", 1, "--dim", 1, "--json"))
    assert [r["op"] for r in one["results"]] == ["layernorm"]
    rope = json.loads(ok("bench", "rope", "--device", "cpu", "--runs", 1, "--rows", 5, "--dim", 1024, "--json"))
    assert rope["results"][0]["bytes"] == 4 * 5 * (8 + 2) * 128 + 4 * 5  # in place: read and written


SVG = "{http://www.w3.org/2000/svg}"


def lines_of(plot):
    """Returns the names of a drawing's lines, and how many points each has."""
    drawing = xml.etree.ElementTree.parse(plot).getroot()
    points = [[tuple(map(float, point.split(","))) for point in line.get("points").split()]
              for line in drawing.findall(f"{SVG}polyline")]
    assert all(line == sorted(line) for line in points)  # drawn from left to right
    return [len(line) for line in points], {text.text for text in drawing.findall(f"{SVG}text")}


def test_bench_mla():
    results = json.loads(ok("bench", "mla", "--device", "cpu", "--runs", 1, "--json"))["results"]
    assert [r["kernel"].partition(".")[0] for r in results] == ["mla", "mla"]
    cache, rows = 8 * 4096 * 576, 8 * 16 * (576 + 512) * 2  # elements; bytes of q and o
    assert [r["bytes"] for r in results] == [2 * cache + rows, cache + rows]


def test_bench_attention_over_lengths(tmp_path):
    """Tests that several lengths give lines, and one length bars. A decode has no length."""
    plot = tmp_path / "plot.svg"
    report = json.loads(ok("bench", "attention", "--device", "cpu", "--runs", 1, "--seq", "16,1,8", "--svg", plot, "--json"))
    assert [r["op"] for r in report["results"]] == ["attention"] * 7
    points, texts = lines_of(plot)
    assert points == [3, 2, 3, 2]  # quern and the limit, whole and causal
    assert {"1", "8", "16", "quern", "limit", "decode", "GFLOP/s"} <= texts
    ok("bench", "attention", "--device", "cpu", "--runs", 1, "--seq", 8, "--svg", plot, "--force")
    assert lines_of(plot)[0] == [] and "GFLOP/s" in ok("bench", "attention", "--device", "cpu", "--runs", 1, "--seq", 8)


PEER = """#!{python}
import json, pathlib, sys
argv = sys.argv[1:]
pathlib.Path("{seen}").write_text(json.dumps(argv))
backends = {{"flash": {{"gflops": 80, "gb_s": 8}}, "cudnn": {{"refused": "no"}}, "math": {{"gflops": 1, "gb_s": 1}}}}
rows = [{{"kind": kind, "seq": seq, "quern_gflops": 100 + seq, "quern_gb_s": 9.5, "backends": backends}}
        for seq in (64, 16, 32) for kind in ("prompt", "causal")] + [
       {{"kind": "decode", "seq": 4096, "quern_gflops": 3, "quern_gb_s": 12.5, "backends": backends}}]
for i, word in enumerate(argv):
    if word == "--json" and argv[i + 1] != "-":
        pathlib.Path(argv[i + 1]).write_text(json.dumps({{"rows": rows}}))
print("the table" if "-" not in argv else "the JSON")
"""


def test_bench_attention_beside_a_peer(tmp_path):
    """Tests the script's arguments, and the picture of its figures. A Python of ours stands in its place."""
    python, seen, plot = tmp_path / "python", tmp_path / "seen", tmp_path / "plot.svg"
    python.write_text(PEER.format(python=sys.executable, seen=seen))
    python.chmod(0o755)
    command = ["bench", "attention", "--peer", "torch", "--device", "cpu", "--python", python, "--seq", "64,16,32", "--runs", 4]
    env = os.environ | {"QUERN_NUM_THREADS": "1"}
    assert ok(*command, "--svg", plot, env=env) == "the table\n"
    script, *told = json.loads(seen.read_text())
    assert pathlib.Path(script).name == "peer_attention.py" and pathlib.Path(script).exists()
    options = dict(zip(told[::2], told[1::2]))
    assert {k: options[k] for k in ("--device", "--threads", "--seq", "--runs")} == {
        "--device": "cpu", "--threads": "1", "--seq": "64,16,32", "--runs": "4"}
    assert pathlib.Path(options["--library"]).name.startswith("libquern.so")
    points, texts = lines_of(plot)
    assert points == [3, 3, 3, 2] * 2 and {"quern", "flash", "math", "limit", "12.5 GB/s", "8.0 GB/s"} <= texts
    assert "cudnn" not in texts
    assert ok(*command, "--json", env=env) == "the JSON\n"
    assert json.loads(seen.read_text())[-4:] == ["--threads", "1", "--seq", "64,16,32"]
    refused(*command, "--svg", plot, says=[str(plot), "--force"])


def test_peer_attention(tmp_path):
    """Tests the script itself, if there is PyTorch: every backend has figures or a reason."""
    python = os.environ.get("TORCH_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no PyTorch; TORCH_PYTHON may name one that has")
    if SANITIZER:
        pytest.skip("plain Python cannot load a sanitizer's build")
    figures = tmp_path / "figures.json"
    done = subprocess.run([python, SOURCE / "bench/peer_attention.py", "--library", BUILD / "libquern.so", "--seq", "9",
                           "--threads", "1", "--runs", "1", "--most", "0", "--backends", "cudnn,flash", "--json", figures],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads(figures.read_text())["rows"]
    assert [row["kind"] for row in rows] == ["prompt", "causal", "decode"] and len(done.stdout.splitlines()) == 2 + len(rows)
    for row in rows:
        assert row["kernel"].startswith("attention.") and row["largest_difference"] < 0.05 and row["ratio"] > 0
        assert row["backends"]["cudnn"]["refused"] and row["torch_backend"] == "flash"
        assert row["quern_gflops"] == pytest.approx(row["flops"] / row["quern_ms"] / 1e6)
    assert rows[0]["flops"] == 4 * 24 * 128 * 9 * 9 and rows[1]["flops"] == 4 * 24 * 128 * 9 * 10 / 2
    assert rows[2]["cache_bytes"] == 2 * 8 * 8 * 4096 * 128 * 2


def test_bench_leaves_out_what_the_device_cannot_run():
    """Tests that quantize and gemm, if nobody asked for them, are said to be left out, and are errors if asked for."""
    env = os.environ | {"QUERN_DISABLE": "gemm.cpu_avx512bf16,gemm.cpu_avx512vbmi,gemm.cpu_avx512,gemm.cpu_avx2,gemm.cpu,"
                                         "quantize.cpu_avx512,quantize.cpu_avx2,quantize.cpu"}
    options = ["--device", "cpu", "--runs", 1, "--rows", 3, "--dim", 64, "--seq", 9]
    report = json.loads(ok("bench", *options, "--json", env=env))
    assert [left["op"] for left in report["left_out"]] == ["quantize", "gemm"]
    assert all("QUERN_DISABLE names it" in left["why"] for left in report["left_out"])
    measured = {r["op"] for r in report["results"]}
    assert "rmsnorm" in measured and not measured & {"quantize", "gemm"}
    assert ok("bench", *options, env=env).count("left out: ") == 2
    refused("bench", "gemm", *options, says=["gemm: no kernel"], env=env)
    refused("bench", "norm", "gemm", *options, says=["gemm: no kernel"], env=env)


def test_cache(tmp_path):
    env = os.environ | {"QUERN_CACHE_DIR": str(tmp_path / "cache")}
    assert ok("cache", "path", env=env).strip() == str(tmp_path / "cache")
    assert json.loads(ok("cache", "path", "--json", env=env)) == {"path": str(tmp_path / "cache")}
    assert json.loads(ok("cache", "list", "--json", env=env)) == {"entries": [], "damaged": 0}
    assert ok("cache", "verify", env=env) == "0 entries, 0 damaged\n"
    assert json.loads(ok("cache", "clear", "--json", env=env)) == {"removed": 0}


def test_cache_fill(tmp_path):
    env = os.environ | {"QUERN_CACHE_DIR": str(tmp_path / "cache"), "QUERN_LOG": "jit"}
    filled = json.loads(ok("cache", "fill", "--device", "sim:gfx942", "--op", "packbits", "--json", env=env))
    assert filled["device"] == "sim:gfx942" and filled["ready"] == len(filled["kernels"]) > 0 and filled["failed"] == 0
    assert {k["op"] for k in filled["kernels"]} == {"packbits"} and all(k["error"] is None for k in filled["kernels"])
    lines = ok("cache", "fill", "--device", "sim:gfx942", "--op", "packbits", env=env).splitlines()
    assert lines[-1] == f"{filled['ready']} kernels of sim:gfx942 are ready"
    assert [line.split()[0] for line in lines[:-1]] == [k["kernel"] for k in filled["kernels"]]


def test_cache_with_a_damaged_entry(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    (folder / "gemm.gfx942.0123456789abcdef.image").write_bytes(b"no image")
    (folder / "notes.txt").write_text("not the cache's")
    env = os.environ | {"QUERN_CACHE_DIR": str(folder)}
    listed = json.loads(ok("cache", "list", "--json", env=env))
    (entry,) = listed["entries"]
    assert entry["bytes"] == 8 and not entry["sound"] and entry["problem"] and listed["damaged"] == 1
    assert entry["name"] in ok("cache", "list", env=env) and entry["problem"] in ok("cache", "list", env=env)
    done = run("cache", "verify", env=env)
    assert done.returncode == 1 and "1 of 1" in done.stderr
    assert ok("cache", "clear", env=env) == "1 entries removed\n"
    assert [file.name for file in folder.iterdir() if file.name[0] != "."] == ["notes.txt"]
    folder.chmod(0o777)
    refused("cache", "list", env=env, says=[str(folder), "others can write"])


def test_tune(tmp_path):
    table = tmp_path / "table"
    table.write_text("quern tune 1\n# measured\ngemm gfx942 n=64 m=1..8 -> gemm.any_fp8 # 9 µs\nnorm sm_90 -> norm.gpu_any\n")
    env = {name: value for name, value in os.environ.items() if name != "QUERN_TUNE"}
    own = json.loads(ok("tune", "list", "--json", env=env))
    assert own["path"] == "shipped.tune" and own["lines"] and own["refused"] == 0
    refused("tune", "list", env=env | {"QUERN_TUNE": "none"}, says=["QUERN_TUNE is none"])
    refused("tune", "path", env=env, says=["QUERN_TUNE is not set"])
    used = env | {"QUERN_TUNE": str(table)}
    assert ok("tune", "path", env=used) == f"{table}\n"
    assert json.loads(ok("tune", "path", "--json", env=used)) == {"path": str(table)}
    listed = json.loads(ok("tune", "list", "--json", env=used))
    assert listed == json.loads(ok("tune", "list", str(table), "--json", env=env))
    assert listed["path"] == str(table) and listed["refused"] == 0
    assert listed["lines"][0] == {"line": 3, "op": "gemm", "device": "gfx942", "problem": "n=64 m=1..8",
                                  "kernel": "gemm.any_fp8", "comment": "9 µs", "fault": None}
    first, *rest = ok("tune", "list", env=used).splitlines()
    assert first.split() == ["line", "op", "device", "problem", "kernel", "comment"] and len(rest) == 2
    assert rest[0].split() == ["3", "gemm", "gfx942", "n=64", "m=1..8", "gemm.any_fp8", "9", "µs"]
    assert ok("tune", "verify", env=used) == "2 lines, 0 refused\n"


def test_tune_with_refused_lines(tmp_path):
    table = tmp_path / "table"
    table.write_bytes(b"quern tune 1\ngem gfx942 -> gemm.any\nnorm sm_90 -> norm.gpu_any\nnorm sm_90 \xff -> norm.gpu_any\n")
    listed = json.loads(ok("tune", "list", table, "--json"))
    assert listed["refused"] == 2
    assert [(e["line"], bool(e["fault"])) for e in listed["lines"]] == [(2, True), (3, False), (4, True)]
    assert 'refused: the op is "gem"' in ok("tune", "list", table)
    done = run("tune", "verify", table)
    assert done.returncode == 1 and done.stdout == "3 lines, 2 refused\n"
    assert f'2 of 3 lines are refused; {table}:2: the op is "gem"' in done.stderr
    # A command that opens a device goes by the table, and so refuses it.
    refused("check", "--device", "cpu", "packbits", env=os.environ | {"QUERN_TUNE": str(table)},
            says=["environment: QUERN_TUNE", f"{table}:2: the op is", "accepted: quantize"])


def test_options_end():
    """Tests that everything behind -- is an argument."""
    refused("quantize", "--", "--json", "--out", says=["--json: cannot open"])


def test_few_threads_are_told():
    """Tests less room than the stacks of 64 threads take: the work is done, and one warning says by how many."""
    if SANITIZER:
        pytest.skip("a sanitizer's own memory is beyond any such limit")
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
    done = run("check", "--quick", "--device", "cpu", "quantize", preexec_fn=limit, env=os.environ | {"QUERN_NUM_THREADS": "64"})
    assert done.returncode == 0, done.stderr
    (threads,) = re.findall(r"^quern: warning: the CPU worked with (\d+) threads in place of 64: ", done.stderr, re.M)
    assert 1 < int(threads) < 64
    assert "warning" not in run("check", "--quick", "--device", "cpu", "quantize").stderr


# ---- completion and manual


def words_accepted(command):
    """Returns the words that may follow a command: its refusal of another one lists them."""
    done = run(command, "no-such-word")
    assert done.returncode == 2
    return re.search(r"accepted: ([^)]*)\)", done.stderr)[1].split(", ")


def test_bash_completion():
    """Tests that bash completes for each command what its help lists."""
    script = SOURCE / "cli" / "completion" / "quern.bash"

    def complete(*words):
        program = (f'. "{script}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _quern; '
                   'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", program, "bash", *words], capture_output=True, text=True, check=True,
                              env=os.environ | {"PATH": f"{QUERN.parent}:{os.environ['PATH']}"})
        return set(done.stdout.split())

    assert complete("quern", "") == set(COMMANDS) | {"--help", "--version"}
    for name, command in COMMANDS.items():
        assert complete("quern", name, "--") == {o["name"] for o in command["options"]} | {"--help"}, name
        for option in command["options"]:
            if "|" in (option["value"] or ""):
                assert complete("quern", name, option["name"], "") == set(option["value"].split("|"))
    for name in ("check", "bench", "cache", "tune"):
        assert complete("quern", name, "") == set(words_accepted(name)), name
    assert complete("quern", "help", "") == set(COMMANDS)
    assert "cpu" in complete("quern", "check", "--device", "")
    assert complete("quern", "check", "--device", "=", "cp") == {"cpu"}  # as bash splits --device=cp
    assert complete("quern", "convert", "--to", "=") == {"e4m3fn", "e4m3fnuz"}
    if (BUILD / "libquernsim.so").exists():
        assert "gfx942" in complete("quern", "check", "--device", "sim", ":", "gfx9")
        assert "gfx942" in complete("quern", "check", "--device", "sim", ":")


@pytest.mark.parametrize("command, label", [("check", "op"), ("bench", "op"), ("cache", "action"), ("tune", "op")])
def test_zsh_completes_the_words_accepted(command, label):
    text = (SOURCE / "cli/completion/_quern").read_text()
    section = text[text.index(f"\n    {command})\n"):]
    (words,) = re.findall(rf":{label}:\((.*)\)'\n", section[:section.index(";;\n")])
    assert sorted(words.split()) == sorted(words_accepted(command))


@pytest.mark.parametrize("file", ["cli/completion/_quern", "docs/quern.1"])
def test_texts_are_complete(file):
    """Tests that zsh's completion and the manual name every command and every option of it, and no other."""
    text = (SOURCE / file).read_text().replace("\\-", "-")
    for name, command in COMMANDS.items():
        start = text.index(f"\n.SS {name}\n" if file.endswith(".1") else f"\n    {name})\n")
        end = text.find("\n.S", start + 1) if file.endswith(".1") else text.index(";;\n", start)
        section = text[start:end if end > 0 else None]
        found = {word for word in section.replace("'", " ").replace("[", " ").replace("=", " ").replace("*", " ")
                 .split() if word.startswith("--") and len(word) > 2}
        wanted = {o["name"] for o in command["options"]} | {"--help"}
        assert found == wanted, (name, found ^ wanted)


def variables_read():
    """Returns every environment variable that the library, the simulator, the command and the Python package read."""
    sources = [*SOURCE.glob("runtime/**/*.c"), *SOURCE.glob("cli/**/*.c"), *SOURCE.glob("sim/**/*.c"), *SOURCE.glob("ops/**/*.c")]
    text = "".join(s.read_text() for s in sources if not s.name.endswith("_test.c"))
    native = set(re.findall(r'(?:getenv|text_of|flag_of|count_of|log_topics_of)\("(\w+)"', text))
    text = "".join(s.read_text() for s in SOURCE.glob("python/quern/**/*.py"))
    return native, set(re.findall(r'"((?:QUERN|SGLANG|AMD|HIP|CUDA|TORCH_ROCM|HSA|ROCR)_[A-Z_]+)"', text))


def test_environment_is_documented():
    """Tests that docs/env.md has every variable that is read, and the manual those of the command, and that neither has
    another one."""
    native, python = variables_read()
    assert {"QUERN_DEVICE", "QUERN_VALIDATE", "QUERN_SIM", "TMPDIR"} <= native and "SGLANG_LOG_KERNEL" in python
    page = (SOURCE / "docs/env.md").read_text().split("Those of the tests and scripts")[0]
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    listed = set(re.findall(r"`([A-Z_]+)`", rows))
    assert native | python <= listed and {name for name in listed if name.startswith("QUERN_")} <= native | python
    manual = (SOURCE / "docs/quern.1").read_text()
    section = manual[manual.index("\n.SH ENVIRONMENT"):manual.index("\n.SH EXAMPLES")]
    tags = re.findall(r"\n\.TP\n\.BR? (.+)", section)
    assert {name for tag in tags for name in re.findall(r"[A-Z_]{4,}", tag)} == native


def test_manual_is_well_formed():
    done = subprocess.run(["man", "--warnings", "-l", SOURCE / "docs" / "quern.1"], capture_output=True, text=True,
                          env=os.environ | {"MANPAGER": "cat", "MANWIDTH": "80"}) if pathlib.Path("/usr/bin/man").exists() \
        else pytest.skip("man is not installed")
    assert done.returncode == 0 and done.stderr == "", done.stderr


# ---- progress


def open_terminal():
    try:
        return pty.openpty()
    except OSError as error:
        pytest.skip(f"this system has no terminals to open: {error}")


def test_progress_bar_is_for_terminals(folder, tmp_path):
    """Tests that there are no control characters where no one sees them, and none for quick work on a terminal."""
    done = run("quantize", folder, tmp_path / "out")
    assert done.stderr == ""
    leader, follower = open_terminal()
    subprocess.run([QUERN, "quantize", folder, tmp_path / "again"], stderr=follower, stdout=subprocess.DEVNULL, check=True)
    os.set_blocking(leader, False)
    with pytest.raises(BlockingIOError):
        os.read(leader, 100)


def test_progress_bar_after_two_seconds():
    leader, follower = open_terminal()
    start = time.monotonic()
    process = subprocess.Popen([QUERN, "bench", "gemm", "--device", "cpu", "--runs", "100000", "--m", "1", "--n", "512",
                                "--k", "4096"], stderr=follower, stdout=subprocess.DEVNULL)
    first = os.read(leader, 200).decode()
    waited = time.monotonic() - start
    process.kill()
    process.wait()
    assert waited >= 2 and first.startswith("\rmeasuring [") and "%" in first and "left" in first


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["chekc"], "check"),
        (["quantise", "a", "b"], "quantize"),
        (["--versoin"], "--version"),
        (["help", "bnech"], "bench"),
        (["check", "--devise", "cpu"], "--device"),
        (["check", "--device", "cpux"], "cpu"),
        (["check", "--device", "cpu", "quantise"], "quantize"),
        (["bench", "atention"], "attention"),
        (["cache", "lst"], "list"),
        (["tune", "verfy"], "verify"),
        (["gemm", "--out-dtype", "bf61"], "bf16"),
        (["convert", "--to", "e4m3fnu", "a", "b"], "e4m3fnuz"),
    ],
)
def test_mistyped_words(args, meant):
    assert refused(*args, says=[f"; did you mean {meant}?"]).endswith(f"; did you mean {meant}?\n")


def test_mistyped_chip():
    if (BUILD / "libquernsim.so").exists():
        refused("check", "--device", "sim:gfx924", says=["; did you mean sim:gfx942?"])


@pytest.mark.parametrize("args", [["zzz"], ["check", "--zzzzzz"], ["check", "--device", "cpu", "zzzzzz"], ["x" * 3000]])
def test_words_that_mean_nothing(args):
    assert "did you mean" not in refused(*args)
