# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of models run on a machine without a GPU."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


@pytest.mark.parametrize("model, op", [("flux", "adaptive_layernorm"), ("llama-1", "rmsnorm")])
def test_on_the_cpu(model, op, tmp_path):
    command = [sys.executable, BENCH / "patch_models.py", "--device", "cpu", "--scale", "24", "--rounds", "1", "--models", model, "--json", "figures"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False,
                          env={**os.environ, "PATH": str(tmp_path)})  # no nvidia-smi there
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads((tmp_path / "figures").read_text())
    assert figures["scale"] == 24 and figures["rounds"] == 1 and figures["device"]
    result = figures["models"][model]
    assert result["ms"]["unpatched"] > 0 and result["ms"]["patched"] > 0
    assert any(call.startswith(f"{op}: ") and ".cpu" in call for call in result["calls"])
    assert result["error_patched"] <= 2 * result["error_unpatched"] + 2.0**-8


def test_step_on_the_cpu(tmp_path):
    command = [sys.executable, BENCH / "flux_step.py", "--device", "cpu", "--scale", "24", "--rounds", "1", "--blocks", "1,1",
               "--sides", "eager,bf16,fp8", "--json", tmp_path / "figures"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads((tmp_path / "figures").read_text())
    assert list(figures["ms"]) == ["eager", "bf16", "fp8"] and min(figures["ms"].values()) > 0
    assert 0 < figures["apart"]["bf16"] < 2.0**-6 and figures["apart"]["bf16"] < figures["apart"]["fp8"] < 0.1
