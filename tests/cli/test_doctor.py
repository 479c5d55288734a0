# SPDX-License-Identifier: Apache-2.0
"""quern doctor, and where drivers are looked for: each symptom of docs/troubleshooting.md is made, and named."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, QUERN, SANITIZER, SOURCE, run

SIMULATOR = BUILD / "libquernsim.so.0"


def system(root, vendor="0x1002", driver="amdgpu", kfd=True, mode=0o666):
    """Makes a folder that looks like a system with one card."""
    card = root / "sys/bus/pci/devices/0000:03:00.0"
    card.mkdir(parents=True)
    (card / "class").write_text("0x120000\n")
    (card / "vendor").write_text(vendor + "\n")
    (card / "device").write_text("0x74a1\n")
    if driver:
        (card / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")
    node = root / "sys/class/kfd/kfd/topology/nodes/1"
    node.mkdir(parents=True)
    (node / "properties").write_text("cpu_cores_count 0\ngfx_target_version 90402\n")
    (root / "dev/dri").mkdir(parents=True)
    nodes = [root / "dev/dri/renderD128"] + ([root / "dev/kfd"] if kfd else [])
    for path in nodes:
        path.touch()
        path.chmod(mode)
    return root


def findings(*args, env=None, **variables):
    """Runs quern doctor; gives the exit status and the findings by their names."""
    done = run("doctor", "--json", *args, env={**(env or os.environ), **variables})
    assert done.stderr == "", done.stderr
    report = json.loads(done.stdout)
    assert report["troubles"] == sum(f["level"] == "trouble" for f in report["findings"])
    assert all(f["remedy"] or f["level"] == "ok" for f in report["findings"])
    assert done.returncode == (1 if report["troubles"] else 0)
    return {f["id"]: f for f in report["findings"]}


def test_card_in_order(tmp_path):
    found = findings("--root", system(tmp_path))
    assert found["card"]["found"] == "AMD card 74a1, driver amdgpu"
    assert found["architecture"]["found"] == "gfx942"
    assert found["node"]["level"] == "ok"


@pytest.mark.parametrize("changes, name, says, remedy", [
    (dict(driver=None), "no-kernel-driver", "no driver", "modprobe amdgpu"),
    (dict(driver="vfio-pci"), "no-kernel-driver", "vfio-pci", "modprobe amdgpu"),
    (dict(vendor="0x10de", driver="nouveau"), "no-kernel-driver", "nouveau", "modprobe nvidia"),
    (dict(kfd=False), "no-kfd", "not there", "--device /dev/kfd"),
])
def test_cards_in_trouble(tmp_path, changes, name, says, remedy):
    finding = findings("--root", system(tmp_path, **changes))[name]
    assert finding["level"] == "trouble" and says in finding["found"] and remedy in finding["remedy"]


def test_nodes_without_permission(tmp_path):
    root = system(tmp_path / "system", mode=0)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o5 != 0o5 and folder.stat().st_uid == os.getuid():
            folder.chmod(folder.stat().st_mode | 0o5)
    as_nobody = dict(user="nobody", group="nogroup", extra_groups=[]) if os.getuid() == 0 else {}
    done = subprocess.run([QUERN, "doctor", "--json", "--root", root], capture_output=True, text=True, timeout=60, **as_nobody)
    named = [f for f in json.loads(done.stdout)["findings"] if f["id"] == "no-permission"]
    assert {f["subject"] for f in named} == {"/dev/kfd", "/dev/dri/renderD128"} and done.returncode == 1
    assert all("usermod -aG" in f["remedy"] for f in named)


@pytest.mark.parametrize("name, value, level, finding", [
    ("HSA_OVERRIDE_GFX_VERSION", "11.0.0", "trouble", "environment"),
    ("AMD_SERIALIZE_KERNEL", "3", "note", "environment"),
    ("HIP_LAUNCH_BLOCKING", "1", "note", "environment"),
    ("PYTORCH_ROCM_ARCH", "gfx942", "note", "environment"),
    ("HIP_VISIBLE_DEVICES", "", "trouble", "hidden-cards"),
    ("ROCR_VISIBLE_DEVICES", "-1", "trouble", "hidden-cards"),
    ("HIP_VISIBLE_DEVICES", "0", "note", "visible-cards"),
])
def test_switches(tmp_path, name, value, level, finding):
    found = findings("--root", system(tmp_path), **{name: value})[finding]
    assert (found["subject"], found["level"]) == (name, level) and f"unset {name}" in found["remedy"]


def test_harmless_switches_are_not_named(tmp_path):
    assert "environment" not in findings("--root", system(tmp_path), AMD_SERIALIZE_KERNEL="0", HIP_LAUNCH_BLOCKING="0")


def test_this_system():
    found = findings()
    assert {"devices", "clang", "kernels"} <= set(found) and found["devices"]["level"] == "ok"
    assert run("doctor").stdout.endswith(" to mend\n")


def kernels(device, **variables):
    report = json.loads(run("doctor", "--json", "--device", device, env={**os.environ, **variables}).stdout)
    finding, = [f for f in report["findings"] if f["id"] == "kernels"]
    assert finding["subject"].startswith(device + ", ") and all(row["device"] == device for row in report["kernels"])
    return finding["found"], {row["op"]: row for row in report["kernels"]}


def listed(device, op):
    """The kernels of an op that quern check runs on a device, those that it cannot run for want of an instruction left out."""
    report = json.loads(run("check", "--quick", "--json", "--device", device, op).stdout)
    return {r["kernel"].partition(".")[2] for r in report["results"] if r["ran"]}


def test_kernels_of_devices():
    cpu, gpu = kernels("cpu")[1], kernels("sim:gfx942")[1]
    assert set(cpu) == set(gpu)
    for device, rows in (("cpu", cpu), ("sim:gfx942", gpu)):
        has = {*rows["norm"]["tuned"], *rows["norm"]["general"]}
        ran = listed(device, "norm")
        assert ran and ran <= has and not ran & set(rows["norm"]["missing"])
    assert cpu["norm"]["general"] == ["cpu"] and gpu["norm"]["general"] == ["gpu_any"]
    assert "fp8_decode" in gpu["gemm"]["tuned"] and "any" in gpu["gemm"]["general"] and "fp8_wgmma_128x128" in gpu["gemm"]["missing"]
    assert "fp8_decode" in kernels("sim:gfx1151")[1]["gemm"]["missing"]


def test_kernels_without_tuned_ones():
    names = ",".join("mla." + name for name in kernels("sim:gfx942")[1]["mla"]["tuned"])
    found, rows = kernels("sim:gfx942", QUERN_DISABLE=names)
    assert "general ones alone: mla" in found and rows["mla"]["tuned"] == []
    found, rows = kernels("sim:gfx942", QUERN_DISABLE=names + ",mla." + ",mla.".join(rows["mla"]["general"]))
    assert "none: mla" in found and set(names.split(",")) <= {"mla." + name for name in rows["mla"]["missing"]}


def test_kernels_by_name():
    text = run("doctor", "--verbose", "--device", "sim:gfx942").stdout
    assert re.search(r"^sim:gfx942 +norm +gpu_any +gpu_rms_rows ", text, re.MULTILINE) and text.endswith(" to mend\n")
    assert "gpu_rms_rows" not in run("doctor", "--device", "sim:gfx942").stdout


def test_wrong_device():
    done = run("doctor", "--device", "sim:gfx9")
    assert done.returncode == 2 and "sim:gfx9" in done.stderr and "accepted: cpu" in done.stderr
    done = run("doctor", "--device", "cpu", "--root", "/")
    assert done.returncode == 2 and "--root" in done.stderr


def test_no_clang(tmp_path):
    (tmp_path / "python3").symlink_to(sys.executable)
    found = findings(PATH=str(tmp_path), QUERN_CLANG="/nonexistent/clang")
    assert found["no-clang"]["level"] == "note"


def test_cache_that_cannot_be_written(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir()
    assert findings(QUERN_CACHE_DIR=str(folder))["cache"]["subject"] == str(folder)
    found = findings(env={k: v for k, v in os.environ.items() if k not in ("HOME", "QUERN_CACHE_DIR", "XDG_CACHE_HOME")})
    assert "QUERN_CACHE_DIR" in found["no-cache"]["remedy"]


def test_pytorch_is_told_without_import(tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemError('imported')\n")
    for line, says in [("hip: Optional[str] = '7.1.2'", "9.9.9, for ROCm"), ("cuda: Optional[str] = '13.0'", "9.9.9, for CUDA"),
                       ("", "9.9.9, for the CPU")]:
        (package / "version.py").write_text(f"__version__ = '9.9.9'\n{line}\n")
        assert findings(PYTHONPATH=str(tmp_path))["pytorch"]["found"] == says


# ---- where drivers are looked for


def places(**variables):
    done = run("devices", "--verbose", "--json", env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    return [p for p in json.loads(done.stdout)["drivers"] if p["kind"] == "hip"]


@pytest.fixture
def rocm(tmp_path):
    """Makes ROCm's folder, in which the simulated GPU stands for the driver."""
    (tmp_path / "rocm/lib").mkdir(parents=True)
    shutil.copy(SIMULATOR, tmp_path / "rocm/lib/libamdhip64.so.7")
    return tmp_path / "rocm"


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library is not loaded twice")
@pytest.mark.parametrize("variable", ["ROCM_PATH", "HIP_PATH"])
def test_rocm_is_found_by_variable(rocm, variable):
    found = places(**{variable: str(rocm)})
    used, = [p for p in found if p["used"]]
    assert (used["where"], used["path"]) == (variable, f"{rocm}/lib/libamdhip64.so.7")
    assert all(p["found"] == "not looked at" or p["found"] == "not there" for p in found[found.index(used) + 1:])
    devices = json.loads(run("devices", "--json", env={**os.environ, variable: str(rocm)}).stdout)["devices"]
    assert any(d["spec"] == "hip:0" for d in devices)


def test_half_an_installation_is_not_passed_over(rocm, tmp_path):
    (rocm / "lib/libamdhip64.so.7").write_bytes(b"\x7fELF half of it")
    other = tmp_path / "other/lib"
    other.mkdir(parents=True)
    shutil.copy(SIMULATOR, other / "libamdhip64.so.7")
    variables = dict(ROCM_PATH=str(rocm), HIP_PATH=str(tmp_path / "other"))
    done = run("check", "--device", "hip:0", "norm", env={**os.environ, **variables})
    assert done.returncode == 2 and "ROCM_PATH" in done.stderr and "libamdhip64.so.7" in done.stderr
    assert not any(p["used"] for p in places(**variables))
    assert findings(**variables)["broken-driver-library"]["level"] == "note" # without a card here


def test_variable_for_one_library_comes_first(rocm):
    found = places(ROCM_PATH=str(rocm), QUERN_HIP_LIBRARY="/nonexistent/libamdhip64.so")
    assert [(p["where"], p["found"]) for p in found] == [("QUERN_HIP_LIBRARY", "not there")]


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library is not loaded twice")
def test_rocm_wheel_beside_our_own(tmp_path):
    site = tmp_path / "site-packages"
    for folder in ("quern/_native/bin", "quern/_native/lib", "_rocm_sdk_core/lib"):
        (site / folder).mkdir(parents=True)
    shutil.copy(BUILD / "libquern.so.0", site / "quern/_native/lib/libquern.so.0")
    shutil.copy(SIMULATOR, site / "_rocm_sdk_core/lib/libamdhip64.so.7")
    shutil.copy(QUERN, site / "quern/_native/bin/quern")
    done = subprocess.run([site / "quern/_native/bin/quern", "devices", "--verbose", "--json"], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "LD_LIBRARY_PATH": str(site / "quern/_native/lib")})
    used, = [p for p in json.loads(done.stdout)["drivers"] if p["used"]]
    assert used["where"] == "_rocm_sdk_*" and os.path.samefile(used["path"], site / "_rocm_sdk_core/lib/libamdhip64.so.7")


# ---- docs/troubleshooting.md


def test_page_has_every_finding_that_needs_mending():
    page = (SOURCE / "docs/troubleshooting.md").read_text()
    code = "".join(path.read_text() for path in (SOURCE / "cli/doctor").glob("*.c"))
    names = set(re.findall(r'DOCTOR_(?:TROUBLE|NOTE)\b,\s*(?:hides_all \? )?"([a-z-]+)"', code)) | {"environment", "hidden-cards"}
    assert len(names) > 12
    for name in names:
        assert f"`{name}`" in page, name
