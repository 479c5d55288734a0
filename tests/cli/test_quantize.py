# SPDX-License-Identifier: Apache-2.0
"""quern quantize: what it writes, read back by the safetensors package and dequantised with ml_dtypes."""
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import time

import ml_dtypes
import numpy as np
import pytest

from conftest import LINEAR, QUERN, SANITIZER, big_file, dequantise, header_of, load, ok, refused, run, save

E4M3_STEP = 2.0**-4  # relative: half a unit in the last of three mantissa bits


def expected(weight):
    """Returns q and scale of a matrix by the published rule in NumPy, by blocks of 128 x 128."""
    w = weight.astype(np.float32)
    rows, cols = w.shape
    q = np.empty(w.shape, ml_dtypes.float8_e4m3fn)
    scale = np.empty((-(-rows // 128), -(-cols // 128)), np.float32)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            block = np.s_[128 * i : 128 * (i + 1), 128 * j : 128 * (j + 1)]
            amax = max(np.abs(w[block]).max(), np.float32(1e-10))
            scale[i, j] = amax / np.float32(448)
            scaled = w[block] * (np.float32(1) / scale[i, j])
            q[block] = np.clip(scaled, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    return q, scale


def check_tensors(before, after):
    quantised = {f"model.layers.0.{name}.weight" for name in LINEAR}
    assert set(after) == set(before) | {f"{name}_scale_inv" for name in quantised}
    for name, was in before.items():
        if name not in quantised:
            assert after[name].dtype == was.dtype and after[name].tobytes() == was.tobytes(), name
            continue
        q, scale = expected(was)
        assert after[name].dtype == ml_dtypes.float8_e4m3fn
        np.testing.assert_array_equal(after[f"{name}_scale_inv"], scale)
        np.testing.assert_array_equal(after[name].view(np.uint8), q.view(np.uint8))
        amax = np.repeat(np.repeat(scale, 128, 0), 128, 1)[: was.shape[0], : was.shape[1]] * 448.0
        error = np.abs(dequantise(after[name], after[f"{name}_scale_inv"]) - was.astype(np.float64))
        assert (error <= E4M3_STEP * np.abs(was.astype(np.float64)) + amax * 2.0**-18 * 1.01).all()


def test_folder(folder, model, tmp_path):
    out = tmp_path / "out"
    ok("quantize", folder, out)
    check_tensors(model, load(out / "model.safetensors"))
    assert header_of(out / "model.safetensors")["__metadata__"] == {"format": "pt"}
    assert (out / "sub" / "tokenizer.json").read_text() == "{}"
    text = (out / "config.json").read_text()
    assert '"layer_norm_eps": 1e-12' in text  # every other byte of the config is kept
    config = json.loads(text)["quantization_config"]
    kept = config.pop("modules_to_not_convert")
    assert config == {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    assert sorted(kept) == sorted(
        ["model.embed_tokens", "model.layers.0.mlp.gate", "model.layers.0.input_layernorm",
         "model.layers.0.q_norm", "model.layers.0.router", "lm_head"]
    )


def test_lone_file(folder, model, tmp_path):
    out = tmp_path / "out.safetensors"
    ok("quantize", folder / "model.safetensors", out)
    check_tensors(model, load(out))
    metadata = header_of(out)["__metadata__"]
    assert metadata["format"] == "pt" and json.loads(metadata["quantization_config"])["quant_method"] == "fp8"
    assert list(tmp_path.glob("*.quern-*")) == []


def test_shards(sharded, model, tmp_path):
    out = tmp_path / "out"
    report = json.loads(ok("quantize", sharded, out, "--json"))
    shapes = {entry["name"]: entry["shape"] for entry in report["quantized"]}
    assert shapes == {f"model.layers.0.{name}.weight": list(model[f"model.layers.0.{name}.weight"].shape) for name in LINEAR}
    index = json.loads((out / "model.safetensors.index.json").read_text())
    merged = {}
    for file in sorted(set(index["weight_map"].values())):
        part = load(out / file)
        assert all(index["weight_map"][name] == file for name in part)
        merged.update(part)
    assert set(merged) == set(index["weight_map"])
    check_tensors(model, merged)
    assert index["metadata"]["total_size"] == sum(array.nbytes for array in merged.values())
    assert report["bytes_out"] == index["metadata"]["total_size"]


def test_every_tensor_is_aligned(folder, tmp_path):
    out = tmp_path / "out.safetensors"
    ok("quantize", folder / "model.safetensors", out)
    header = header_of(out)
    size = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1}
    for name, entry in header.items():
        if name != "__metadata__":
            assert entry["data_offsets"][0] % size[entry["dtype"]] == 0


def test_misaligned_input(tmp_path, rng):
    weight = rng.standard_normal((130, 140)).astype(np.float32)
    save(tmp_path / "in", {"a": np.zeros(3, np.uint8), "x.weight": weight})
    ok("quantize", tmp_path / "in", tmp_path / "out")
    after = load(tmp_path / "out")
    q, scale = expected(weight)
    np.testing.assert_array_equal(after["x.weight"].view(np.uint8), q.view(np.uint8))
    np.testing.assert_array_equal(after["x.weight_scale_inv"], scale)


def test_many_chunks(tmp_path, rng):
    """Tests a tensor of more than the 32 MiB that are worked on at a time, whose last part is no whole block."""
    weight = rng.standard_normal((8400, 1100), dtype=np.float32)
    save(tmp_path / "in", {"x.weight": weight})
    ok("quantize", tmp_path / "in", tmp_path / "out")
    after = load(tmp_path / "out")
    q, scale = expected(weight)
    np.testing.assert_array_equal(after["x.weight_scale_inv"], scale)
    np.testing.assert_array_equal(after["x.weight"].view(np.uint8), q.view(np.uint8))


def names(out):
    return {name for name, array in load(out).items() if array.dtype == ml_dtypes.float8_e4m3fn}


def test_include_and_exclude(folder, tmp_path):
    source = folder / "model.safetensors"
    ok("quantize", source, tmp_path / "a", "--include", "lm_head", "--exclude=*.up_proj.weight")
    assert names(tmp_path / "a") == {
        "lm_head.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.down_proj.weight"}
    ok("quantize", source, tmp_path / "b", "--include", "router", "--exclude", "mlp", "--exclude", "router")
    assert names(tmp_path / "b") == {"model.layers.0.self_attn.q_proj.weight"}
    refused("quantize", source, tmp_path / "c", "--include", "nonesuch", says=["--include", "nonesuch"],
            leaves=tmp_path / "c")
    refused("quantize", source, tmp_path / "c", "--exclude", "weight", says=["nothing to quantise", str(source)],
            leaves=tmp_path / "c")


def test_existing_output(folder, tmp_path):
    source, out = folder / "model.safetensors", tmp_path / "out"
    out.write_text("precious")
    refused("quantize", source, out, says=[str(out), "--force"])
    assert out.read_text() == "precious"
    ok("quantize", source, out, "--force")
    assert load(out)
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("precious")
    refused("quantize", folder, home, says=[str(home), "--force"])
    refused("quantize", folder, home, "--force", says=[str(home), "thesis.txt", "quern did not write"])
    assert (home / "thesis.txt").read_text() == "precious"
    assert list(tmp_path.glob("*.quern-*")) == []


def test_output_apart_from_input(folder, tmp_path):
    before = sorted(folder.rglob("*"))
    for out in (folder, folder / "out", folder / "sub" / "out", f"{folder}/"):
        refused("quantize", folder, out, "--force", says=["lies in it"])
    source = folder / "model.safetensors"
    refused("quantize", source, source, "--force", says=["place of its own"])
    inside = folder / "sub" / "in"  # --force would replace the folder, and the input with it
    shutil.copytree(folder, tmp_path / "copy")
    shutil.move(tmp_path / "copy", inside)
    before = sorted(folder.rglob("*"))
    for source in (inside, inside / "model.safetensors"):
        refused("quantize", source, folder, "--force", says=[f"holds {source}", "place of its own"])
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
def test_nonfinite(tmp_path, value, dtype):
    weight = np.ones((300, 130), dtype)
    weight[257, 129] = value
    save(tmp_path / "in", {"x.weight": weight})
    out = tmp_path / "out"
    refused("quantize", tmp_path / "in", out, says=["x.weight", "[257, 129]", "--allow-nonfinite"], leaves=out)
    ok("quantize", tmp_path / "in", out, "--allow-nonfinite")
    q = load(out)["x.weight"].astype(np.float32)
    assert np.isnan(q[257, 129]) and np.isnan(q).sum() == 1


def test_nonfinite_that_is_only_copied(tmp_path):
    save(tmp_path / "in", {"x.weight": np.ones((2, 2), np.float32), "b": np.array([np.nan], np.float32)})
    ok("quantize", tmp_path / "in", tmp_path / "out")


def test_quantised_already(folder, tmp_path):
    ok("quantize", folder, tmp_path / "once")
    refused("quantize", tmp_path / "once", tmp_path / "twice", says=["quantised already"], leaves=tmp_path / "twice")
    save(tmp_path / "in", {"x.weight": np.ones((2, 2), ml_dtypes.float8_e4m3fn)})
    refused("quantize", tmp_path / "in", tmp_path / "out", says=["x.weight", "F8_E4M3", "accepted"],
            leaves=tmp_path / "out")


def rss_anon(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return 0  # it has ended


def peak_of(*args):
    """Returns the most anonymous memory that a run of quern had."""
    process = subprocess.Popen([QUERN, *map(str, args)], stdout=subprocess.DEVNULL)
    peak = samples = 0
    while process.poll() is None:
        try:
            peak, samples = max(peak, rss_anon(process.pid)), samples + 1
        except FileNotFoundError:
            break
        time.sleep(0.001)
    assert process.wait() == 0 and samples > 20
    return peak


@pytest.mark.skipif(SANITIZER == "thread", reason="ThreadSanitizer's own memory counts as the command's")
@pytest.mark.parametrize("shape", [(32768, 4096), (128, 1 << 21)])
def test_memory_is_bounded(tmp_path, shape):
    """Tests that a tensor of 512 MiB or 1 GiB, of many rows or very long ones, is streamed: the run takes less
    anonymous memory than docs/checkpoints.md allows."""
    big_file(tmp_path / "in", *shape)
    peaks = (peak_of("quantize", tmp_path / "in", tmp_path / "out"),
             peak_of("convert", tmp_path / "out", tmp_path / "fnuz", "--to", "e4m3fnuz"))
    assert 1 << 20 < min(peaks) and max(peaks) < 256 << 20, peaks


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("is_folder", [False, True])
def test_interrupted(tmp_path, number, is_folder):
    source, out = tmp_path / "in", tmp_path / "dir" / "out"
    out.parent.mkdir()
    if is_folder:
        source.mkdir()
    big_file(source / "model.safetensors" if is_folder else source, 32768)
    process = subprocess.Popen([QUERN, "quantize", source, out], stderr=subprocess.PIPE, text=True)
    while not any(out.parent.iterdir()):
        assert process.poll() is None
    process.send_signal(number)
    message = process.communicate()[1]
    assert process.returncode == 2 and number.name in message, message
    assert list(out.parent.iterdir()) == []


@pytest.fixture
def small_disk(tmp_path):
    """Makes a file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs to mount a tmpfs: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_full_disk(small_disk, folder, tmp_path):
    big_file(tmp_path / "big", 1024)
    refused("quantize", tmp_path / "big", small_disk / "out", says=["out", "No space left"], leaves=small_disk / "out")
    (folder / "large").write_bytes(bytes(2 << 20))  # the copy of another file fails
    refused("quantize", folder, small_disk / "out", says=["large", "No space left"], leaves=small_disk / "out")
    assert list(small_disk.iterdir()) == []


def test_file_size_limit(folder, tmp_path):
    """Tests a limit on file sizes, which acts like a full disk where one may not mount one."""
    out = tmp_path / "dir" / "out"
    out.parent.mkdir()
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    refused("quantize", folder, out, says=["model.safetensors", "File too large"], leaves=out, preexec_fn=limit)
    assert list(out.parent.iterdir()) == []


def test_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    refused("quantize", tmp_path / "pipe", tmp_path / "out", says=[str(tmp_path / "pipe"), "regular file"])


def test_standard_output_full(folder, tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([QUERN, "devices"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "standard output" in done.stderr


def test_read_only_place(folder):
    refused("quantize", folder / "model.safetensors", "/proc/out", says=["/proc/out", "cannot be created"])
    refused("quantize", folder / "model.safetensors", "/nonexistent/out", says=["/nonexistent/out"])


def test_missing_input(tmp_path):
    refused("quantize", tmp_path / "none", tmp_path / "out", says=[str(tmp_path / "none"), "No such file"])
    (tmp_path / "empty").mkdir()
    refused("quantize", tmp_path / "empty", tmp_path / "out",
            says=[str(tmp_path / "empty"), "model.safetensors.index.json", "model.safetensors"])
    done = run("quantize", "/dev/null", tmp_path / "out")
    assert done.returncode == 2 and "regular file" in done.stderr


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_wide_weight(tmp_path, rng, dtype):
    """Tests a weight so wide that a row of blocks is dealt with in parts. In the second file it is misaligned, too."""
    weight = rng.standard_normal((130, 140_000)).astype(dtype)
    save(tmp_path / "in", {"x.weight": weight})
    save(tmp_path / "odd", {"a": np.zeros(3, np.uint8), "x.weight": weight})
    q, scale = expected(weight)
    for name in ("in", "odd"):
        ok("quantize", tmp_path / name, tmp_path / "out", "--force")
        after = load(tmp_path / "out")
        np.testing.assert_array_equal(after["x.weight"].view(np.uint8), q.view(np.uint8))
        np.testing.assert_array_equal(after["x.weight_scale_inv"], scale)
    weight[129, 139_999] = np.nan
    save(tmp_path / "in", {"x.weight": weight})
    refused("quantize", tmp_path / "in", tmp_path / "new", says=["[129, 139999]"], leaves=tmp_path / "new")
