# SPDX-License-Identifier: Apache-2.0
"""Memory that runs out, in every subcommand: each n-th allocation fails, and the command either does what it should all
the same or says what is the matter and leaves nothing. QUERN_EVERY_ALLOCATION=1 tries all of them, not a sample."""
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from conftest import COMPILER, QUERN, SANITIZER, SOURCE, save

pytestmark = pytest.mark.skipif(SANITIZER != "", reason="the sanitizer has replaced malloc already")

SAMPLE = 24  # how many of a command's allocations fail, one a run
LOADER = (127, "cannot allocate memory for thread-local data: ABORT")  # glibc's own end of a process without memory
WEIGHT = "layer.weight"


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "scarce_memory.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, SOURCE / "tests/cli/scarce_memory.c"], check=True)
    return library


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """Makes a folder of two shards, a lone file, the quantised folder, a cache with a damaged entry, and tables with
    and without a refused line."""
    top = tmp_path_factory.mktemp("inputs")
    weights = {name: np.linspace(-1, 1, 130 * 129, dtype=np.float32).reshape(130, 129) for name in ("a.weight", WEIGHT)}
    (top / "folder" / "sub").mkdir(parents=True)
    for i, (name, weight) in enumerate(weights.items()):
        save(top / "folder" / f"{i}.safetensors", {name: weight, f"norm{i}": np.ones(3, np.float32)}, {"format": "pt"})
    weight_map = {"a.weight": "0.safetensors", "norm0": "0.safetensors", WEIGHT: "1.safetensors", "norm1": "1.safetensors"}
    (top / "folder" / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    (top / "folder" / "config.json").write_text('{"a": 1}\n')
    (top / "folder" / "sub" / "tokenizer.json").write_text("{}")
    save(top / "lone", weights, {"format": "pt"})
    subprocess.run([QUERN, "quantize", top / "folder", top / "fp8"], check=True, stdout=subprocess.DEVNULL)
    (top / "cache").mkdir(mode=0o700)
    (top / "cache" / "x.gfx942.0.image").write_bytes(b"no entry")
    (top / "model.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 96,
                                                "num_attention_heads": 2, "num_key_value_heads": 1}))
    (top / "table").write_text("quern tune 1\nnorm sm_90 -> norm.gpu_any # slow\ngem gfx942 -> gemm.any\n")
    (top / "sound").write_text("quern tune 1\nquantize_rows gfx942 -> quantize_rows.gpu_any # by hand\n")
    return top


COMMANDS = {
    "quantize a folder": "quantize {in}/folder {out}/folder --json",
    "quantize a file": "quantize {in}/lone {out}/file",
    "convert": "convert --to e4m3fnuz {in}/fp8 {out}/folder --json",
    "gemm": "gemm --weights {in}/fp8 --tensor layer.weight --random 3 --device cpu --runs 1 --output {out}/d.npy",
    "gemm --json": "gemm --weights {in}/lone --tensor layer.weight --random 3 --device sim:gfx942 --runs 1 --json",
    "check": "check --device cpu --quick --report {out}/report.json packbits",
    "check --json": "check --device sim:gfx942 --quick --json packbits merge_states",
    "bench": "bench rmsnorm --device cpu --rows 2 --dim 8 --runs 1 --svg {out}/bench.svg --json",
    "devices": "devices",
    "devices --json": "devices --json",
    "cache list": "cache list",
    "cache verify": "cache verify",
    "cache list --json": "cache list --json",
    "cache path": "cache path --json",
    "cache fill": "cache fill --device sim:gfx942 --op packbits --json",
    "tune": "tune gemm attention --device cpu --model {in}/model.json --tokens 1,2 --seq 4 --dry-run --json",
    "tune list": "tune list {in}/table",
    "tune verify": "tune verify {in}/table",
    "tune list --json": "tune list {in}/table --json",
    "profile": "profile --json {out}/p.json --svg {out}/p.svg -- {quern} check --device sim:gfx942 --quick packbits merge_states",
    "profile --clock": "profile --clock on --html {out}/p.html --timeline {out}/waves -- {quern} check --device sim:gfx942 --quick packbits",
    "probe": "probe --device sim:gfx942 --only issue,l1_latency --out {out}/chip --json",
    "probe launches": "probe --device sim:gfx942 --only launch",
    "sim": "sim --env --arch gfx1151",
    "sim PROGRAM": "sim -- {quern} cache path",
    "help": "help --json",
}
LONG = {"check --json", "gemm --json", "profile", "profile --clock", "bench", "check"}  # a tenth of a second a run and more


def run(text, shim, inputs, out, **variables):
    shutil.rmtree(out, ignore_errors=True)
    (out / "tmp").mkdir(parents=True)
    arguments = text.format_map({"in": inputs, "out": out, "quern": QUERN}).split()
    known = {"QUERN_NUM_THREADS": "1", "QUERN_CACHE_DIR": str(inputs / "cache"), "QUERN_TUNE": str(inputs / "sound"),
             "TMPDIR": str(out / "tmp"), "TZ": "UTC0"}
    return subprocess.run([QUERN, *arguments], capture_output=True, text=True, timeout=600,
                          env={**os.environ, **known, "LD_PRELOAD": str(shim), **variables})


def stable(text):
    """Returns the output without what differs from run to run: times, dates, figures of speed."""
    text = re.sub(r"\d[\d.]* (ns|us|ms|s|GB/s|TFLOP/s|GFLOP/s)\b|\d{4}-\d\d-\d\d[T ][\d:]+Z?", "T", text)
    text = re.sub(r'"(\w*_ns|copy\w*|share\w*|peak\w*|\w*bytes_per\w*|\w*_s|\w+_rate|flops|read\w*)": [\d.e+-]+', r'"\1": T', text)
    return re.sub(r"[ -]+", " ", text)


def written(out):
    """Returns all files under out, with the text of those that have some."""
    files = {}
    for path in sorted(p for p in out.rglob("*") if p.is_file()):
        data = path.read_bytes()
        files[str(path.relative_to(out))] = data if b"\0" in data or path.suffix == ".svg" else stable(data.decode())
    return files


def same_files(name, found, wanted):
    """Returns whether the files are the same. A picture of times has another length each time, and has to be whole."""
    if found.keys() != wanted.keys():
        return False
    return all(text.endswith(b"</svg>\n") and text.count(b"<rect") == wanted[file].count(b"<rect") if file == "bench.svg"
               else text == wanted[file] for file, text in found.items())


def left_of(name, out):
    """Returns what a failed command has left. A check that ended early still reports, and says so."""
    files = written(out)
    if name == "check" and "ended early" in files.get("report.json", ""):
        return {}
    if name == "check" and '"error": "' in files.get("report.json", ""):
        del files["report.json"]
    return files


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("mode", ["once", "on"])
def test_each_allocation(name, mode, shim, inputs, tmp_path):
    count, out = tmp_path / "count", tmp_path / "out"
    usual = run(COMMANDS[name], shim, inputs, out, SCARCE_COUNT=str(count))
    wanted, total = written(out), int(count.read_text())
    assert usual.returncode in (0, 1 if name.endswith(" verify") else 0), usual.stderr
    sample = SAMPLE // 4 if name in LONG else SAMPLE
    last = 24 if name == "profile" else 2  # pictures are written last, by streams
    numbers = range(total) if os.environ.get("QUERN_EVERY_ALLOCATION") else sorted({n * total // sample for n in range(sample)} | set(range(total - last, total)))
    wrong, outcomes = [], {}
    for n in numbers:
        done = run(COMMANDS[name], shim, inputs, out, SCARCE_AT=str(n), **({"SCARCE_ON": "1"} if mode == "on" else {}))
        if done.returncode == usual.returncode and stable(done.stdout) == stable(usual.stdout):
            fault = None if same_files(name, written(out), wanted) else "other files"
        elif name.startswith("check") and done.returncode == 0 and "out of memory" in done.stdout:
            fault = None  # problems that may need more than there is are left out, and say why
        elif done.returncode not in (1, 2) and not (done.returncode == LOADER[0] and LOADER[1] in done.stderr):
            fault = f"exit status {done.returncode}"
        elif "memory" not in done.stderr:
            fault = "no word of memory"
        else:
            fault = f"left {sorted(left_of(name, out))}" if left_of(name, out) else None
        if fault:
            wrong.append(f"allocation {n} of {total}: {fault}: {done.returncode}: {done.stderr.strip()[-300:]}")
        outcomes[done.returncode] = outcomes.get(done.returncode, 0) + 1
    print(f"{name}, {mode}: {total} allocations, exit statuses {outcomes}")
    assert not wrong, f"{len(wrong)} of {len(numbers)}:\n" + "\n".join(wrong[:12])
