# SPDX-License-Identifier: Apache-2.0
"""What quern does to files, and others to its: inputs that shrink, outputs in the way, what killed runs leave."""
import fcntl
import json
import os
import pathlib
import resource
import signal
import subprocess
import time

import numpy as np
import pytest

from conftest import COMPILER, QUERN, SANITIZER, SOURCE, big_file, load, ok, refused, run, save


def start(*args, **kwargs):
    return subprocess.Popen([QUERN, *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **kwargs)


def wait_until(process, condition):
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def has_mapped(process, path):
    return str(path) in pathlib.Path(f"/proc/{process.pid}/maps").read_text()


# ---- inputs


@pytest.mark.parametrize("is_folder", [False, True])
@pytest.mark.parametrize("left", [0, 4096, -100, 100])
def test_input_changes_size(tmp_path, is_folder, left):
    """Tests an input that shrinks to nothing, to its first page or by less than a page (no reader notices), or
    grows."""
    source, out = tmp_path / "in", tmp_path / "dir" / "out"
    out.parent.mkdir()
    if is_folder:
        source.mkdir()
    file = source / "model.safetensors" if is_folder else source
    big_file(file, 32768)
    process = start("quantize", source, out)
    wait_until(process, lambda: any(out.parent.iterdir()))
    size = os.path.getsize(file)
    os.truncate(file, left if left in (0, 4096) else size + left)
    message = process.communicate()[1]
    assert process.returncode == 2 and str(file) in message and f"had {size} bytes" in message or "cut short" in message, message
    assert message.count("\n") == 1 and list(out.parent.iterdir()) == []


def test_input_is_written_to(tmp_path):
    big_file(tmp_path / "in", 32768)
    process = start("quantize", tmp_path / "in", tmp_path / "out")
    wait_until(process, lambda: has_mapped(process, tmp_path / "in"))
    with open(tmp_path / "in", "r+b") as file:
        file.seek(1 << 20)
        file.write(b"x")
    message = process.communicate()[1]
    assert process.returncode == 2 and "was written to" in message and str(tmp_path / "in") in message
    assert os.listdir(tmp_path) == ["in"]


def test_input_is_replaced(tmp_path):
    """Tests that an input under which another file is put is read to its end."""
    big_file(tmp_path / "in", 8192)
    big_file(tmp_path / "new", 128)
    process = start("quantize", tmp_path / "in", tmp_path / "out")
    wait_until(process, lambda: has_mapped(process, tmp_path / "in"))
    os.rename(tmp_path / "new", tmp_path / "in")
    assert process.communicate()[1] == "" and process.returncode == 0
    assert load(tmp_path / "out")["x.weight"].shape == (8192, 4096)


def test_gemm_input_is_cut(tmp_path):
    big_file(tmp_path / "in", 16384)
    process = start("gemm", "--weights", tmp_path / "in", "--tensor", "x.weight", "--random", "1", "--device", "cpu")
    wait_until(process, lambda: has_mapped(process, tmp_path / "in"))
    os.truncate(tmp_path / "in", 8192)
    message = process.communicate()[1]
    assert process.returncode == 2 and str(tmp_path / "in") in message and ("cut short" in message or "changed" in message)


# ---- folders in the way


def test_force_replaces_only_its_own(folder, tmp_path):
    out = tmp_path / "out"
    ok("quantize", folder, out)
    listed = json.loads((out / "quern-files.json").read_text())["files"]
    assert sorted(listed) == ["config.json", "model.safetensors", "sub/tokenizer.json"]
    ok("quantize", folder, out, "--force")
    for name in ("thesis.txt", "sub/notes", "sub/deep/er"):
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_text("precious")
        refused("quantize", folder, out, "--force", says=[str(out), name, "quern did not write"])
        assert (out / name).read_text() == "precious" and load(out / "model.safetensors")
        (out / name).unlink()
    ok("quantize", folder, out, "--force")
    assert sorted(p.name for p in out.iterdir()) == ["config.json", "model.safetensors", "quern-files.json", "sub"]


def test_force_replaces_no_foreign_checkpoint(folder, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text("{}")
    save(other / "model.safetensors", {"x.weight": np.ones((2, 2), np.float32)})
    before = sorted((p, p.read_bytes()) for p in other.iterdir())
    refused("quantize", folder, other, "--force", says=[str(other), "quern did not write"])
    for text in ("", "no JSON", "[]", '{"files": 3}', '{"files": ["config.json", 3]}'):
        (other / "quern-files.json").write_text(text)
        refused("quantize", folder, other, "--force", says=[str(other), "quern did not write"])
    (other / "quern-files.json").unlink()
    assert sorted((p, p.read_bytes()) for p in other.iterdir()) == before
    (tmp_path / "file").write_text("precious")
    refused("quantize", folder, tmp_path / "file", "--force", says=["is no folder"])


def test_force_replaces_what_was_emptied(folder, tmp_path):
    (tmp_path / "out").mkdir()
    ok("quantize", folder, tmp_path / "out", "--force")
    assert load(tmp_path / "out" / "model.safetensors")


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """Returns a function that gives the environment in which UNREADABLE cannot be read, or UNOPENABLE cannot be
    opened."""
    if SANITIZER:
        pytest.skip("the sanitizer wants to be loaded first")
    library = tmp_path_factory.mktemp("shim") / "failing_folder.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, SOURCE / "tests/cli/failing_folder.c"], check=True)
    return lambda how, what: os.environ | {"LD_PRELOAD": str(library), how: str(what)}


def test_folder_that_cannot_be_opened(folder, tmp_path, failing):
    """Tests that the folder in the making is removed."""
    out = tmp_path / "out"
    refused("quantize", folder, out, says=[str(out), "Too many open files"], leaves=out, env=failing("UNOPENABLE", ".quern-"))


def test_folder_that_cannot_be_read(folder, tmp_path, failing):
    """Tests that a folder of unknown content is neither replaced by --force nor copied in part."""
    out = tmp_path / "out"
    refused("quantize", folder, out, says=[str(folder), "cannot be read", "Input/output"], leaves=out, env=failing("UNREADABLE", folder))
    ok("quantize", folder, out)
    (out / "notes.txt").write_text("the user's")
    refused("quantize", folder, out, "--force", says=[str(out), "cannot be read"], env=failing("UNREADABLE", out))
    assert (out / "notes.txt").read_text() == "the user's"


def test_list_is_of_this_run(folder, tmp_path):
    """Tests that the input's own list is not among the result's files."""
    ok("quantize", folder, tmp_path / "fp8")
    ok("convert", tmp_path / "fp8", tmp_path / "fnuz", "--to", "e4m3fnuz")
    listed = json.loads((tmp_path / "fnuz" / "quern-files.json").read_text())["files"]
    assert sorted(listed) == ["config.json", "model.safetensors", "sub/tokenizer.json"]
    ok("convert", tmp_path / "fp8", tmp_path / "fnuz", "--to", "e4m3fnuz", "--force")


# ---- what is left


def begin_and_kill(source, out):
    process = start("quantize", source, out)
    wait_until(process, lambda: any(".quern-" in p.name for p in out.parent.iterdir()))
    process.kill()
    process.communicate()
    return [p for p in out.parent.iterdir() if ".quern-" in p.name]


def is_held(path):
    """Returns whether a living run has locked it. A run that is stopped before that may lose it, and makes another when
    it goes on."""
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.mark.parametrize("is_folder", [False, True])
def test_killed_run(tmp_path, is_folder):
    """Tests that the next run for the same place removes what a killed run left, and says so, but nothing of a living
    run."""
    source, out = tmp_path / "in", tmp_path / "dir" / "out"
    out.parent.mkdir()
    if is_folder:
        source.mkdir()
    big_file(source / "model.safetensors" if is_folder else source, 32768)
    (left,) = begin_and_kill(source, out)
    others = [out.parent / name for name in ("out.quern-short", "out.quern-toolong1", "other.quern-AbCdEf", "out.quern-ab.def")]
    for path in others:
        path.write_text("precious")
    alive = start("quantize", source, out)
    wait_until(alive, lambda: any(is_held(p) for p in out.parent.iterdir() if ".quern-" in p.name and p not in (left, *others)))
    small = tmp_path / "small"
    if is_folder:
        small.mkdir()
    save(small / "model.safetensors" if is_folder else small, {"x.weight": np.ones((2, 2), np.float32)})
    alive.send_signal(signal.SIGSTOP)
    try:
        done = run("quantize", small, out)
        assert done.returncode == 0 and not left.exists()
        assert len([p for p in out.parent.iterdir() if ".quern-" in p.name]) == 1 + len(others)
    finally:
        alive.send_signal(signal.SIGCONT)
    message = alive.communicate()[1]
    assert alive.returncode == 2 and "exists already" in message
    assert f"removed {left}, which a killed run had left" in done.stderr + message
    assert sorted(out.parent.iterdir()) == sorted([out, *others])


@pytest.mark.skipif(SANITIZER != "", reason="a sanitizer needs more address space than the limit")
@pytest.mark.parametrize("is_folder", [False, True])
def test_memory_limit(tmp_path, is_folder):
    """Tests memory for the command and the mapped input, 32 MiB, but not for a chunk of the weight: nothing is left of the output."""
    source, out = tmp_path / "in", tmp_path / "dir" / "out"
    out.parent.mkdir()
    if is_folder:
        source.mkdir()
    big_file(source / "model.safetensors" if is_folder else source, 1024, 8192)
    limit = lambda mib: lambda: resource.setrlimit(resource.RLIMIT_AS, (mib << 20, mib << 20))
    least = next(mib for mib in range(8, 200)
                 if not subprocess.run([QUERN, "--version"], capture_output=True, preexec_fn=limit(mib)).returncode)
    refused("quantize", source, out, says=["out of memory"], leaves=out, preexec_fn=limit(least + 36),
            env={**os.environ, "QUERN_NUM_THREADS": "1"})
    assert list(out.parent.iterdir()) == []


def test_names_that_are_no_utf8(tmp_path):
    save(tmp_path / "in", {"x.weight": np.ones((2, 2), np.float32)})
    out = os.fsencode(tmp_path) + b"/o\xffut"
    done = subprocess.run([QUERN, "quantize", tmp_path / "in", out, "--json"], capture_output=True)
    assert done.returncode == 0 and json.loads(done.stdout)["out"] == f"{tmp_path}/o\ufffdut"
    assert os.path.exists(out)
