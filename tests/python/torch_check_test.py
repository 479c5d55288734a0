# SPDX-License-Identifier: Apache-2.0
"""python -m quern.torch: what it runs, what it says, and that each known trouble is found and no other."""

import dataclasses
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
from quern.torch._facts import Facts, _cards, arch_of, troubles  # noqa: E402

STRIX = Facts(torch="2.9", hip="7.1", is_available=True, arch="gfx1151", built_for=["gfx1151", "gfx942"], has_flash=True,
              cards=["gfx1151"])
GATE = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"


def run(*arguments, **environment):
    command = [sys.executable, "-m", "quern.torch", *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_on_a_simulated_strix_halo():
    done = run("--device", "sim:gfx1151", "--json", HIP_LAUNCH_BLOCKING="0")
    report = json.loads(done.stdout)
    assert len(report["problems"]) >= 6 and done.stderr == ""
    for result in report["problems"]:
        assert result["quern"]["ok"] and result["quern"]["kernel"].startswith("attention.") and not result["quern"]["why"]
        assert result["quern"]["kernel"] != "attention.cpu" and result["pytorch"]["MATH"]["ok"]
        for run_ in (*result["pytorch"].values(),):
            assert run_["ok"] != bool(run_["why"])  # either right or explained
        assert not result["probes"]["flash"]["can"] and "cuda device" in result["probes"]["flash"]["why"][0]
    reasons = [why for result in report["problems"] for why in result["quern"]["not"]]
    assert reasons and all(why.startswith("not attention.") and ": " in why for why in reasons)
    kernels = {row["op"]: row for row in report["doctor"]["kernels"]}
    assert kernels["attention"]["device"] == "sim:gfx1151" and kernels["attention"]["tuned"]
    assert done.returncode == (1 if report["troubles"] or report["doctor"]["troubles"] else 0)


def test_text_names_kernels_switches_and_fixes():
    done = run("--device", "cpu", AMD_SERIALIZE_KERNEL="3", QUERN_DISABLE="attention.cpu_none")
    assert done.returncode != 0  # QUERN_DISABLE names no kernel: quern cannot run
    done = run("--device", "cpu", AMD_SERIALIZE_KERNEL="3")
    assert done.returncode == 1 and "AMD_SERIALIZE_KERNEL=3" in done.stdout
    doctor, _, rest = done.stdout.partition(" to mend\n")
    assert "AMD_SERIALIZE_KERNEL: \"3\": every launch waits" in doctor and rest.startswith("\nPython 3.")
    assert f"PyTorch: {torch.__version__}, for " in doctor  # of this Python, whatever PATH has
    assert "fix: unset AMD_SERIALIZE_KERNEL" in done.stdout and "OK, attention.cpu" in done.stdout


def test_wrong_options():
    assert run("--device", "sim:gfx1").returncode == 2 and run("--fast").returncode == 2


@pytest.mark.parametrize("body, what", [
    ("raise ImportError('libamdhip64.so.7: cannot open shared object file: No such file or directory')",
     "libamdhip64.so.7 is not found"), ("raise ImportError(\"No module named 'torch'\")", "PyTorch is not installed"),
    ("raise RuntimeError('broken')", "PyTorch does not load: RuntimeError: broken")])
def test_without_pytorch(tmp_path, body, what):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").write_text(body)
    done = run(PYTHONPATH=f"{tmp_path}:{os.environ['PYTHONPATH']}")
    assert done.returncode == 1 and what in done.stdout and "fix: " in done.stdout, done.stderr


@pytest.mark.parametrize("change, refusals, what", [
    ({"hip": None}, [], "the wrong wheel: this PyTorch is for the CPU alone, the card is gfx1151"),
    ({"hip": None, "cuda": "12.8"}, [], "the wrong wheel: this PyTorch is for CUDA 12.8"),
    ({"built_for": ["gfx942"]}, [], "the wrong wheel for the card: gfx1151 is not among gfx942"),
    ({"is_available": False, "can_open_driver": False}, [], "/dev/kfd cannot be opened"),
    ({"is_available": False, "switches": {"HIP_VISIBLE_DEVICES": "-1"}}, [], "PyTorch sees no GPU"),
    ({"is_available": False, "cards": []}, [], "kernel driver has no AMD GPU"),
    ({"has_flash": False}, [], "built without flash attention"),
    ({"switches": {"AMD_SERIALIZE_KERNEL": "3"}}, [], "serialisation was left on, AMD_SERIALIZE_KERNEL=3"),
    ({"switches": {"HIP_LAUNCH_BLOCKING": "1"}}, [], "serialisation was left on, HIP_LAUNCH_BLOCKING=1"),
    ({"switches": {GATE: "1"}, "late": [GATE]}, [], f"{GATE} was set by the program itself"),
    ({}, ["Flash attention on Current AMD GPU is still experimental. Enable it with …"], "experimental gate"),
    ({"switches": {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}}, [], "makes the card pass for another"),
    ({"switches": {"TORCH_ROCM_FA_PREFER_CK": "1"}}, [], "no attention for gfx1151"),
    ({"quern_error": "no libamdhip64.so"}, [], "quern cannot use the card: no libamdhip64.so"),
], ids=lambda x: x[:40] if isinstance(x, str) else "")
def test_each_trouble_is_found_alone(change, refusals, what):
    found = troubles(dataclasses.replace(STRIX, **change), refusals)
    assert len(found) == 1 and what in found[0].what and found[0].fix


def test_no_trouble():
    assert not troubles(STRIX, ["Expected query, key and value to all have the same dtype"])
    off = {"AMD_SERIALIZE_KERNEL": "0", "HIP_LAUNCH_BLOCKING": "", GATE: "1"}
    assert not troubles(dataclasses.replace(STRIX, switches=off), ["still experimental"])


def test_cards(tmp_path):
    assert [arch_of(v) for v in (110501, 90402, 90010, 120001, 0)] == ["gfx1151", "gfx942", "gfx90a", "gfx1201", None]
    for i, version in enumerate((0, 110501)):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "properties").write_text(f"cpu_cores_count 16\ngfx_target_version {version}\n")
    assert _cards(tmp_path) == ["gfx1151"]
