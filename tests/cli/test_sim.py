# SPDX-License-Identifier: Apache-2.0
"""quern sim: what the program that it runs gets."""
import json
import os

from conftest import QUERN, ok, run

PRINT = "echo $QUERN_SIM; echo $LD_LIBRARY_PATH"


def environment(*args, **changes):
    env = {k: v for k, v in os.environ.items() if k not in ("QUERN_SIM", "LD_LIBRARY_PATH")} | changes
    options, path = ok("sim", *args, "--", "sh", "-c", PRINT, env=env).splitlines()
    return options, path.split(":")


def test_environment():
    options, path = environment()
    assert options == "check=all" and len(path) == 1 and os.path.exists(path[0] + "/libamdhip64.so.7")
    options, path = environment("--arch=gfx942", "--devices=2", "--check", "bounds,barrier",
                                QUERN_SIM="threads=1", LD_LIBRARY_PATH="/a:/b")
    assert options == "check=all;threads=1;arch=gfx942;arch=gfx942;check=bounds,barrier" and path[1:] == ["/a", "/b"]
    printed = json.loads(ok("sim", "--env", "--devices", 3))
    assert printed["environment"]["QUERN_SIM"] == ";".join(["check=all"] + ["arch=gfx942"] * 3)
    assert printed["environment"]["LD_LIBRARY_PATH"].split(":")[0] == printed["folder"]


def test_reports():
    """Tests that the options for reports reach the library, which acts on them."""
    options, _ = environment("--json", "out.json", "--error-exitcode", 9, "--check=none", QUERN_SIM="faults=3")
    assert options == f"check=all;faults=3;check=none;report={os.getcwd()}/out.json;errorcode=9"
    assert environment("--json=/a/b")[0] == "check=all;report=/a/b"


def test_clock(tmp_path, monkeypatch):
    """Tests that the mode of the clock and the chip file reach the library, which acts on them."""
    chip = tmp_path / "half.chip"
    chip.write_text("base gfx942\ncompute_units 152\nnum_xccs 4\n")
    assert environment("--clock", "full", "--chip", chip)[0] == f"check=all;clock=full;chip={chip}"
    monkeypatch.chdir(tmp_path)
    assert environment("--chip", "half.chip")[0] == f"check=all;chip={chip}"
    bench = [QUERN, "bench", "gemm", "--device", "sim:gfx942", "--m", "16", "--n", "256", "--k", "512", "--json"]
    half, whole = (json.loads(ok("sim", "--check", "none", *options, "--", *bench))
                   for options in (["--clock", "full", "--chip", chip], []))
    assert half["device"]["compute_units"] == 152 and whole["device"]["compute_units"] == 304
    assert half["results"][0]["clock"]["workgroups_run"] > whole["results"][0]["clock"]["workgroups_run"] > 0
    done = run("sim", "--chip", tmp_path / "nonesuch", "--", "true")
    assert done.returncode == 2 and f"chip={tmp_path}/nonesuch: No such file" in done.stderr


def test_trace(tmp_path):
    assert environment("--trace", "*add*:3", "--trace-file", "/dev/null")[0] == "check=all;trace=*add*:3;trace_file=/dev/null"
    file = tmp_path / "trace"
    ok("sim", "--trace", "qk_quantize_rows_f16", "--trace-file", file, "--", QUERN, "check", "--device", "sim:gfx942",
       "--quick", "quantize")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("trace of launch 0: kernel qk_quantize_rows_f16, gfx942, device 0, ")
    assert lines[1].startswith("0:0 workgroup (0, 0, 0), wave 0, exec = 0x")
    assert lines[2].startswith("0:0 +0x0000: s_") and lines[-1].endswith(": s_endpgm")
    assert all(line.startswith("trace of launch ") or line.split(":")[1].startswith("0 ") for line in lines)


def test_no_program():
    for command in ("sim", "profile"):
        done = run(command, "--", "./nonesuch", "--flag")
        assert done.returncode == 127 and done.stderr == f"quern {command}: ./nonesuch: No such file or directory\n"
        done = run(command, "--", "/")
        assert done.returncode == 126 and done.stderr == f"quern {command}: /: Permission denied\n"


def test_program_is_itself():
    """Tests that the program keeps its exit status, arguments and input."""
    done = run("sim", "--", "sh", "-c", 'read line; echo "$line $1 $2"; exit 7', "sh", "--arch", "x y", input="in\n")
    assert done.returncode == 7 and done.stdout == "in --arch x y\n" and done.stderr == ""


def test_evidence():
    """Tests that the command says how the simulated GPU knows a kernel's instructions. Other devices need no
    evidence."""
    table = ok("check", "-v", "--device", "sim:gfx942", "--quick", "quantize")
    assert "quantize.gpu_rows: inferred: " in table and "v_div_scale_f32" in table
    assert "knows least" not in ok("check", "--device", "sim:gfx942", "--quick", "quantize")
    assert "knows least" not in ok("check", "--verbose", "--device", "cpu", "--quick", "quantize")
    report = json.loads(ok("check", "--verbose", "--json", "--device", "sim:gfx942", "--quick", "quantize"))
    known = {r["kernel"]: r.get("evidence", "") for r in report["results"] if r["ran"]}
    assert known["quantize.gpu_rows"].startswith("inferred: ")
