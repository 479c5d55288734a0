# SPDX-License-Identifier: Apache-2.0
"""quern gemm: its product against NumPy in float64, and the mistakes it names."""
import json

import ml_dtypes
import numpy as np
import pytest

from conftest import BUILD, dequantise, load, ok, raw_file, refused, save

NAME = "model.layers.0.self_attn.q_proj.weight"


def quantise_rows(x):
    """Quantises by the published rule in NumPy: groups of 1 x 128, eps 1e-4."""
    x = x.astype(np.float32)
    m, k = x.shape
    q, scale = np.empty((m, k), ml_dtypes.float8_e4m3fn), np.empty((m, -(-k // 128)), np.float32)
    for j in range(scale.shape[1]):
        part = x[:, 128 * j : 128 * (j + 1)]
        scale[:, j] = np.maximum(np.abs(part).max(1), np.float32(1e-4)) / np.float32(448)
        q[:, 128 * j : 128 * (j + 1)] = part * (np.float32(1) / scale[:, j])[:, None]
    wide = np.repeat(scale.astype(np.float64), 128, axis=1)[:, :k]
    return q.astype(np.float64) * wide


def diff(x, y):
    return 1 - 2 * (x * y).sum() / ((x * x).sum() + (y * y).sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("m", [1, 17])
def test_product(folder, model, tmp_path, rng, dtype, m):
    x = rng.standard_normal((m, 384)).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    ok("quantize", folder, tmp_path / "fp8")
    args = ["gemm", "--weights", tmp_path / "fp8", "--tensor", NAME, "--input", tmp_path / "x.npy", "--device", "cpu",
            "--runs", 1]
    report = json.loads(ok(*args, "--original", folder, "--out-dtype", "f32", "--output", tmp_path / "d.npy", "--json"))
    (result,) = report["results"]
    d = np.load(tmp_path / "d.npy")
    assert d.shape == (m, 256) and d.dtype == np.float32
    weights = load(tmp_path / "fp8" / "model.safetensors")
    a, b = quantise_rows(x), dequantise(weights[NAME], weights[f"{NAME}_scale_inv"])
    error = np.abs(d - a @ b.T) / (2 * 384 * 2.0**-24 * (np.abs(a) @ np.abs(b).T) + 2.0**-24 * np.abs(a @ b.T))
    assert error.max() <= 1
    assert result["error_over_tolerance"] == pytest.approx(error.max(), rel=1e-3)
    want = x.astype(np.float64) @ model[NAME].astype(np.float64).T
    assert result["diff_to_unquantised"] == pytest.approx(diff(d.astype(np.float64), want), rel=1e-6)
    assert result["diff_to_quantised"] < 1e-9 < result["diff_to_unquantised"] < 1e-3
    assert (result["m"], result["n"], result["k"]) == (m, 256, 384)
    assert result["kernel"].startswith("gemm.") and result["times"] == "measured" and result["time_ns"] > 0
    assert result["elements_compared"] == m * 256
    table = ok(*args)  # bf16 out, no original
    assert NAME in table and f"{m} x 256 x 384" in table and result["kernel"] in table


def test_unquantised_weights_are_quantised_first(folder, tmp_path):
    ok("quantize", folder, tmp_path / "fp8")
    common = ["--tensor", NAME, "--tensor", "model.layers.0.mlp.gate_proj.weight", "--random", 5, "--device", "cpu",
              "--json", "--runs", 1]
    direct = json.loads(ok("gemm", "--weights", folder, *common))["results"]
    stored = json.loads(ok("gemm", "--weights", tmp_path / "fp8", "--original", folder, *common))["results"]
    for a, b in zip(direct, stored, strict=True):
        a.pop("time_ns"), b.pop("time_ns")
        assert a == b


def test_fnuz_weights_give_the_same(folder, tmp_path):
    ok("quantize", folder, tmp_path / "fp8")
    ok("convert", tmp_path / "fp8", tmp_path / "fnuz", "--to", "e4m3fnuz")
    common = ["--tensor", NAME, "--random", 5, "--device", "cpu", "--original", folder, "--json", "--runs", 1]
    (fn,) = json.loads(ok("gemm", "--weights", tmp_path / "fp8", *common))["results"]
    (fnuz,) = json.loads(ok("gemm", "--weights", tmp_path / "fnuz", *common))["results"]
    assert fnuz["error_over_tolerance"] <= 1 and fnuz["diff_to_unquantised"] < 2 * fn["diff_to_unquantised"]


def test_nan_stays_in_its_row(folder, tmp_path, rng):
    x = rng.standard_normal((3, 384)).astype(np.float32)
    x[1, 7] = np.nan
    np.save(tmp_path / "x.npy", x)
    (result,) = json.loads(ok("gemm", "--weights", folder, "--tensor", NAME, "--input", tmp_path / "x.npy", "--device",
                              "cpu", "--output", tmp_path / "d.npy", "--json", "--runs", 1))["results"]
    assert (np.isnan(np.load(tmp_path / "d.npy")).all(axis=1) == [False, True, False]).all()
    assert result["error_over_tolerance"] <= 1 and result["diff_to_unquantised"] < 1e-3


def test_large_products_are_sampled(tmp_path):
    save(tmp_path / "w", {"x.weight": np.ones((1100, 1000), np.float32)})
    (result,) = json.loads(ok("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 1000, "--device",
                              "cpu", "--json", "--runs", 1))["results"]
    assert 12 * 1100 < result["elements_compared"] < 50 * 1100


@pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="the simulated GPU is not built")
def test_on_the_simulated_gpu(folder, tmp_path):
    """Tests that gfx942's own kernels give the same bits as the CPU to the last rounding."""
    ok("quantize", folder, tmp_path / "fp8")
    for rows in [3, 130]:
        cpu, sim = json.loads(ok("gemm", "--weights", tmp_path / "fp8", "--original", folder, "--tensor", NAME, "--random",
                                 rows, "--device", "cpu", "--device", "sim:gfx942", "--json", "--runs", 1))["results"]
        assert sim["device"] == "sim:gfx942" and sim["times"] != "measured"
        assert sim["kernel"].startswith("gemm.") and sim["kernel"] != cpu["kernel"]
        assert sim["error_over_tolerance"] <= 1
        assert sim["diff_to_unquantised"] == pytest.approx(cpu["diff_to_unquantised"], rel=1e-2)


def test_mistakes(folder, tmp_path, rng):
    source = folder / "model.safetensors"
    x = tmp_path / "x.npy"

    def gemm(*args, says):
        refused("gemm", "--weights", source, "--device", "cpu", "--tensor", NAME, "--input", x, *args, says=says,
                leaves=tmp_path / "d.npy")

    gemm(says=[str(x), "No such file"])
    np.save(x, rng.standard_normal((3, 383)).astype(np.float32))
    gemm("--output", tmp_path / "d.npy", says=[str(x), "383", NAME, "384"])  # K mismatch
    np.save(x, np.zeros((0, 384), np.float32))
    gemm(says=[str(x), "no rows"])
    np.save(x, np.zeros((3, 384)))
    gemm(says=[str(x), "<f8", "'<f4'"])
    np.save(x, np.zeros((3, 4, 5), np.float32))
    gemm(says=[str(x), "(3, 4, 5)", "two dimensions"])
    np.save(x, np.zeros((384, 3), np.float32).T)  # inner stride is not 1
    gemm(says=[str(x), "Fortran"])
    np.save(x, np.zeros((3, 384), np.float32))
    whole = x.read_bytes()
    for length in [0, 5, 9, 11, 60, len(whole) - 1]:
        x.write_bytes(whole[:length])
        gemm(says=[str(x)])
    x.write_bytes(whole)
    gemm("--tensor", "nonesuch", says=["nonesuch"])
    gemm("--tensor", "model.position_ids", says=["model.position_ids", "[7] I64", "accepted"])
    gemm("--original", tmp_path / "none", says=["none"])
    gemm("--device", "nonesuch:0", says=["nonesuch:0", "accepted"])
    gemm("--device", "cpu", "--output", tmp_path / "d.npy", says=["--output", "2 devices"])
    (tmp_path / "d").write_text("precious")
    gemm("--output", tmp_path / "d", says=["--force"])
    assert (tmp_path / "d").read_text() == "precious"


def test_wrong_scale(tmp_path, rng):
    q = rng.standard_normal((200, 384)).astype(ml_dtypes.float8_e4m3fn)
    for scale, found in [(np.ones((2, 2), np.float32), "[2, 2] F32"), (np.ones((2, 3), np.float64), "[2, 3] F64"),
                         (np.ones(6, np.float32), "[6] F32")]:
        save(tmp_path / "w", {"x.weight": q, "x.weight_scale_inv": scale})
        refused("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 2, "--device", "cpu",
                says=["x.weight_scale_inv", found, "[2, 3] F32"])
    save(tmp_path / "w", {"x.weight": q})
    refused("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 2, "--device", "cpu",
            says=["no x.weight_scale_inv"])
    raw_file(tmp_path / "w", {"x.weight": {"dtype": "F8_E5M2", "shape": [2, 2], "data_offsets": [0, 4]}}, bytes(4))
    refused("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 2, "--device", "cpu",
            says=["x.weight", "F8_E5M2", "F8_E4M3FNUZ"])  # the wrong FP8 kind
    save(tmp_path / "w", {"x.weight": np.zeros((0, 4), np.float32)})
    refused("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 2, "--device", "cpu",
            says=["x.weight", "[0, 4] F32", "at least 1 x 1"])
    save(tmp_path / "w", {"x.weight": q.astype(np.int64)})
    refused("gemm", "--weights", tmp_path / "w", "--tensor", "x.weight", "--random", 2, "--device", "cpu",
            says=["x.weight", "I64", "F8_E4M3"])
