# SPDX-License-Identifier: Apache-2.0
"""quern doctor, and where drivers are looked for: each symptom of docs/troubleshooting.md is made, and named."""
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys

import pytest

from conftest import BUILD, COMPILER, QUERN, SANITIZER, SOURCE, run

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


def mounted(mounts, *command, **kwargs):
    """Runs a command where each key of `mounts`, a folder or a size of memory, lies at its value; skips where nobody may mount."""
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*unshare, "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    lines = [f"mount -t tmpfs -o size={what} none {where}" if isinstance(what, str) else f"mount --bind '{what}' {where}"
             for what, where in mounts.items()]
    return subprocess.run([*unshare, "sh", "-ec", "\n".join([*lines, 'exec "$@"']), "sh", *map(str, command)],
                          capture_output=True, text=True, timeout=60, **kwargs)


def findings(*args, env=None, mounts=None, **variables):
    """Runs quern doctor, where `mounts` are; gives the findings by their names."""
    env = {**(env or os.environ), **variables}
    done = mounted(mounts, QUERN, "doctor", "--json", *args, env=env) if mounts else run("doctor", "--json", *args, env=env)
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


def test_no_card(tmp_path):
    found = findings("--root", tmp_path)
    assert found["no-card"]["level"] == "note" and "quern devices" in found["no-card"]["remedy"]


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
    assert set(gpu) - set(cpu) == {"moe_few"}  # which has kernels for these GPUs alone
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


@pytest.mark.parametrize("variable, folder", [("ROCM_PATH", "rocm"), ("HIP_PATH", "rocm"), (None, "opt/rocm"), (None, "opt/rocm-7.10.0")])
def test_clang_of_rocm(tmp_path, variable, folder):
    old = "echo clang version 14.0.6"
    (tmp_path / "bin").mkdir()
    for name in ("clang-22", "clang-23", "clang-24", "clang-25", "clang"):
        program(tmp_path / "bin" / name, old)
    program(tmp_path / folder / "llvm/bin/clang", "echo AMD clang version 22.0.0git")
    (tmp_path / "opt").mkdir(exist_ok=True)
    variables = {variable: str(tmp_path / folder)} if variable else {}
    found = findings(PATH=f"{tmp_path}/bin:/usr/bin:/bin", mounts={tmp_path / "opt": "/opt"}, **variables)
    assert "22.0.0git" in found["clang"]["found"]


def program(path, line):
    """Makes a script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{line}\n")
    path.chmod(0o755)


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


# ---- this system, but for a card and what lies over its folders


def with_card(tmp_path, vendor="0x1002"):
    """Gives mounts that give this system a card."""
    return {system(tmp_path / "system", vendor, "amdgpu" if vendor == "0x1002" else "nvidia") / "sys": "/sys"}


def without_drivers():
    """Gives variables under which no driver's library is found; skips where the loader finds one."""
    if any(p["used"] for p in places("hip") + places("cuda")):
        pytest.skip("this system has a driver")
    return dict(ROCM_PATH="", HIP_PATH="")


@pytest.mark.parametrize("vendor, kind", [("0x1002", "hip"), ("0x10de", "cuda")])
def test_card_without_driver_library(tmp_path, vendor, kind):
    found = findings(mounts=with_card(tmp_path, vendor), **without_drivers())
    assert found["no-driver-library"]["subject"] == kind and found["no-driver-library"]["level"] == "trouble"
    assert "no driver: found no lib" in found["no-device"]["found"]


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library is not loaded twice")
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_driver_that_shows_no_device(rocm, variable):
    variables = {"ROCM_PATH": str(rocm), variable: "-1"}
    found = findings(mounts=with_card(rocm.parent), **variables)
    assert found["hidden-cards"]["subject"] == variable and found["no-device"]["level"] == "trouble"
    assert found["no-device"]["subject"] == "hip:0" and "device" in found["no-device"]["found"]
    done = run("check", "--device", "hip:0", "norm", env={**os.environ, **variables})
    assert (done.returncode, done.stdout) == (2, "") and "shows 0" in done.stderr and "did you mean" not in done.stderr
    del variables[variable]
    assert findings(mounts=with_card(rocm.parent / "again"), **variables)["device"]["subject"] == "hip:0"


@pytest.mark.parametrize("kind, name, says", [("hip", "libamdhip64.so.7", "ROCm 6 or later is needed"),
                                              ("cuda", "libcuda.so.1", "a driver of CUDA 12.0 or later is needed")])
def test_driver_that_is_too_old(tmp_path, kind, name, says):
    source = tmp_path / "old.c"
    source.write_text("int hipInit(unsigned flags) { return (int)flags; }\nint cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", tmp_path / name, source], check=True)
    variables = {f"QUERN_{kind.upper()}_LIBRARY": str(tmp_path / name)}
    done = run("check", "--device", f"{kind}:0", "norm", env={**os.environ, **variables})
    assert done.returncode == 2 and says in done.stderr and f"{name} has no {kind[:3] if kind == 'hip' else 'cu'}" in done.stderr
    found = findings(mounts=with_card(tmp_path, "0x1002" if kind == "hip" else "0x10de"), **variables)
    assert says in found["no-device"]["found"] and found["no-device"]["level"] == "trouble"


@pytest.mark.parametrize("vendor, line, says", [("0x1002", "cuda: Optional[str] = '13.0'", "built for CUDA, and the card is AMD's"),
                                                ("0x1002", "", "built for the CPU, and the card is AMD's"),
                                                ("0x10de", "hip: Optional[str] = '7.1.2'", "built for ROCm, and the card is NVIDIA's")])
def test_pytorch_for_another_card(tmp_path, vendor, line, says):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    (tmp_path / "torch/version.py").write_text(f"__version__ = '9.9.9'\n{line}\n")
    found = findings(mounts=with_card(tmp_path, vendor), PYTHONPATH=str(tmp_path))["wrong-pytorch"]
    assert found["level"] == "trouble" and says in found["found"] and "install PyTorch's wheel" in found["remedy"]


def test_shared_memory(tmp_path):
    small = findings(mounts={"64m": "/dev/shm"})["small-shared-memory"]
    assert small["found"].startswith("64") and "--shm-size" in small["remedy"]
    assert findings(mounts={"2g": "/dev/shm"})["shared-memory"]["level"] == "ok"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/null").touch()
    assert "mount a tmpfs" in findings(mounts={tmp_path / "dev": "/dev"})["no-shared-memory"]["remedy"]


@pytest.mark.parametrize("kib, name", [(64, "small-memlock"), (1 << 20, None)])
def test_locked_memory(tmp_path, kib, name):
    soft = min(kib << 10, resource.getrlimit(resource.RLIMIT_MEMLOCK)[1] % (1 << 63))
    if soft < kib << 10:
        pytest.skip("this system locks too little memory")
    done = mounted(with_card(tmp_path), "sh", "-c", f'ulimit -S -l {kib} && exec "$0" doctor --json', QUERN)
    ids = {f["id"]: f for f in json.loads(done.stdout)["findings"]}
    assert ("small-memlock" in ids) == bool(name)
    assert not name or "64 KiB" in ids[name]["found"] and "memlock=-1" in ids[name]["remedy"]


def test_devices_that_cannot_be_listed():
    found = findings(QUERN_NUM_THREADS="many")["no-devices"]
    assert found["level"] == "trouble" and "QUERN_NUM_THREADS" in found["found"]


def test_cache_of_somebody_else(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o555)
    for above in (tmp_path, *tmp_path.parents):
        if above.stat().st_mode & 0o5 != 0o5 and above.stat().st_uid == os.getuid():
            above.chmod(above.stat().st_mode | 0o5)
    as_nobody = dict(user="nobody", group="nogroup", extra_groups=[]) if os.getuid() == 0 else {}
    done = subprocess.run([QUERN, "doctor", "--json"], env={**os.environ, "QUERN_CACHE_DIR": str(folder)}, capture_output=True,
                          text=True, timeout=60, **as_nobody)
    found, = [f for f in json.loads(done.stdout)["findings"] if f["id"] == "cache-not-writable"]
    assert found["subject"] == str(folder) and "QUERN_CACHE_DIR" in found["remedy"]


# ---- where drivers are looked for


def places(kind="hip", mounts=None, **variables):
    command, env = ("devices", "--verbose", "--json"), {**os.environ, **variables}
    done = mounted(mounts, QUERN, *command, env=env) if mounts else run(*command, env=env)
    assert done.returncode == 0, done.stderr
    return [p for p in json.loads(done.stdout)["drivers"] if p["kind"] == kind]


def driver(folder):
    """Makes a driver's library, under the name by which ROCm's calls itself, that has the simulated GPU's functions."""
    folder.mkdir(parents=True)
    (folder / "empty.c").touch()
    subprocess.run([COMPILER, "-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.7", "-o", folder / "libamdhip64.so.7", folder / "empty.c",
                    "-Wl,--no-as-needed", SIMULATOR, f"-Wl,-rpath,{BUILD}"], check=True)


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library is not loaded twice")
def test_order_of_the_search(tmp_path):
    """Has a driver in each place, and takes them away, the first first."""
    name = "libamdhip64.so.7"
    folders = {place: tmp_path / folder for place, folder in [
        ("QUERN_HIP_LIBRARY", "chosen"), ("this process", "process"), ("ROCM_PATH", "a/lib"), ("HIP_PATH", "b/lib"),
        ("/opt/rocm", "opt/rocm/lib"), ("/opt/rocm-*", "opt/rocm-7.10.0/lib"), ("older", "opt/rocm-7.9.1/lib"),
        ("_rocm_sdk_*", "wheels/_rocm_sdk_core/lib"), ("the loader's path", "loader")]}
    for folder in folders.values():
        driver(folder)
    path = os.environ.get("LD_LIBRARY_PATH", "")
    variables = dict(QUERN_HIP_LIBRARY=f"{tmp_path}/chosen/{name}", LD_PRELOAD=name, LD_LIBRARY_PATH=f"{tmp_path}/process:{path}",
                     ROCM_PATH=f"{tmp_path}/a", HIP_PATH=f"{tmp_path}/b", QUERN_ROCM_WHEELS=f"{tmp_path}/wheels")
    for place, folder in folders.items():
        found = places(mounts={tmp_path / "opt": "/opt"}, **variables)
        used, = [p for p in found if p["used"]]
        assert used["where"] == (place if place != "older" else "/opt/rocm-*")
        if place.startswith(("/opt", "older")):
            assert used["path"] == f"/{folder.relative_to(tmp_path)}/{name}"
        elif place not in ("this process", "the loader's path"):
            assert used["path"] == f"{folder}/{name}"
        behind = found[found.index(used) + 1:]
        assert {p["found"] for p in behind} <= {"not looked at", "not there"}
        (folder / name).unlink()
        if place == "QUERN_HIP_LIBRARY":
            assert len(found) == 1
            del variables["QUERN_HIP_LIBRARY"]
        elif place == "this process":
            del variables["LD_PRELOAD"]
            variables["LD_LIBRARY_PATH"] = f"{tmp_path}/loader:{path}"


def test_order_of_the_search_for_cuda():
    assert [p["where"] for p in places("cuda")] == ["this process", "WSL", "the loader's path"]
    assert [(p["where"], p["found"]) for p in places("cuda", QUERN_CUDA_LIBRARY="/nonexistent/libcuda.so")] == [
        ("QUERN_CUDA_LIBRARY", "not there")]


@pytest.mark.skipif(bool(SANITIZER), reason="a sanitizer's library is not loaded twice")
@pytest.mark.parametrize("variable", ["HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"])
def test_hidden_devices_are_not_listed(rocm, variable):
    for value, is_listed in [("0", True), ("-1", False)]:
        env = {**os.environ, "ROCM_PATH": str(rocm), variable: value}
        assert any(d["spec"] == "hip:0" for d in json.loads(run("devices", "--json", env=env).stdout)["devices"]) == is_listed


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
    tests = pathlib.Path(__file__).read_text()
    for name in names:
        assert f"`{name}`" in page, name
        assert f'"{name}"' in tests, name
