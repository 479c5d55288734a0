# SPDX-License-Identifier: Apache-2.0
"""quern convert: values before and after, by ml_dtypes; what is exact, and what is refused."""
import json

import ml_dtypes
import numpy as np
import pytest

from conftest import dequantise, header_of, load, ok, raw_file, refused, save

FN, FNUZ = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz


def codes(*shape, dtype, seed=1, without=()):
    """Returns random codes of a dtype, with every one of the 256 among them if there is room."""
    rng = np.random.default_rng(seed)
    accepted = np.setdiff1d(np.arange(256, dtype=np.uint8), np.array(without, np.uint8))
    values = np.resize(accepted, shape)
    return rng.permuted(values).reshape(shape).view(dtype)


def scales(*shape):
    return np.exp2(np.random.default_rng(2).integers(-8, 8, shape)).astype(np.float32) * np.float32(1.5)


def checkpoint(path, q, scale):
    save(path, {"x.weight": q, "x.weight_scale_inv": scale, "x.bias": np.ones(3, np.float32)})


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (129, 257), (300, 130)])
def test_to_fnuz_is_exact(tmp_path, shape):
    q, scale = codes(*shape, dtype=FN), scales(-(-shape[0] // 128), -(-shape[1] // 128))
    checkpoint(tmp_path / "in", q, scale)
    ok("convert", tmp_path / "in", tmp_path / "out", "--to", "e4m3fnuz")
    after = load(tmp_path / "out")
    assert after["x.weight"].dtype == FNUZ
    np.testing.assert_array_equal(after["x.weight_scale_inv"], 2 * scale)
    np.testing.assert_array_equal(dequantise(after["x.weight"], after["x.weight_scale_inv"]), dequantise(q, scale))
    before, bits = q.view(np.uint8), after["x.weight"].view(np.uint8)
    assert (bits[before == 0x80] == 0).all()  # negative zero
    assert (bits[(before & 0x7F) == 0x7F] == 0x80).all()  # NaN
    assert after["x.bias"].tobytes() == np.ones(3, np.float32).tobytes()
    assert json.loads(header_of(tmp_path / "out")["__metadata__"]["quantization_config"])["fmt"] == "e4m3fnuz"


def test_many_chunks(tmp_path):
    """Tests a tensor of more than the 32 MiB that are worked on at a time."""
    q, scale = codes(8400, 4100, dtype=FN, without=[0x80, 0x7F, 0xFF]), scales(66, 33)
    checkpoint(tmp_path / "in", q, scale)
    ok("convert", tmp_path / "in", tmp_path / "out", "--to", "e4m3fnuz")
    after = load(tmp_path / "out")
    np.testing.assert_array_equal(after["x.weight"].view(np.uint8), q.view(np.uint8))
    np.testing.assert_array_equal(after["x.weight_scale_inv"], 2 * scale)


@pytest.mark.parametrize("without", [[0x7F, 0xFF], list(range(1, 16, 2)) + list(range(0x81, 0x90, 2))])
def test_back_is_exact_where_a_scale_allows_it(tmp_path, without):
    """Tests that the scale can be halved without the largest codes, and kept without odd codes below 2^-6, whose fn
    form would be half a step."""
    q, scale = codes(200, 140, dtype=FNUZ, without=without), scales(2, 2)
    checkpoint(tmp_path / "in", q, scale)
    report = json.loads(ok("convert", tmp_path / "in", tmp_path / "out", "--to", "e4m3fn", "--json"))
    assert report["inexact_blocks"] == 0 and report["max_rel_error"] == 0
    after = load(tmp_path / "out")
    assert after["x.weight"].dtype == FN
    np.testing.assert_array_equal(dequantise(after["x.weight"], after["x.weight_scale_inv"]), dequantise(q, scale))


def test_inexact_blocks(tmp_path):
    q, scale = np.zeros((300, 300), np.uint8), scales(3, 3)
    for row, col in [(0, 0), (130, 257), (299, 5)]:  # three blocks with the largest code and an odd subnormal
        q[row, col], q[row, col + 1] = 0x7F, 0x01
    checkpoint(tmp_path / "in", q.view(FNUZ), scale)
    out = tmp_path / "out"
    refused("convert", tmp_path / "in", out, "--to", "e4m3fn", says=["3 blocks", "--allow-rounding"], leaves=out)
    report = json.loads(ok("convert", tmp_path / "in", out, "--to", "e4m3fn", "--allow-rounding", "--json"))
    assert report["inexact_blocks"] == 3
    after = load(out)
    got, want = dequantise(after["x.weight"], after["x.weight_scale_inv"]), dequantise(q.view(FNUZ), scale)
    rel = np.max(np.abs(got - want)[want != 0] / np.abs(want[want != 0]))
    assert rel == pytest.approx(report["max_rel_error"], rel=1e-6) and rel > 0


def test_scale_in_another_shard(tmp_path):
    """Tests a weight whose scale is in another file: both come out as if they were together, and an inexact block is
    counted once."""
    q, scale = codes(300, 200, dtype=FNUZ, without=[0x7F, 0xFF]), scales(3, 2)
    source = tmp_path / "in"
    source.mkdir()
    save(source / "a.safetensors", {"x.weight": q})
    save(source / "b.safetensors", {"x.weight_scale_inv": scale})
    index = {"weight_map": {"x.weight": "a.safetensors", "x.weight_scale_inv": "b.safetensors"}}
    (source / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {"quantization_config": {"fmt": "e4m3fnuz", "quant_method": "fp8"}, "eps": 1e-5}
    (source / "config.json").write_text(json.dumps(config))
    ok("convert", source, tmp_path / "out", "--to", "e4m3fn")
    after = load(tmp_path / "out" / "a.safetensors") | load(tmp_path / "out" / "b.safetensors")
    np.testing.assert_array_equal(dequantise(after["x.weight"], after["x.weight_scale_inv"]), dequantise(q, scale))
    config["quantization_config"]["fmt"] = "e4m3"
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == config
    q = q.view(np.uint8).copy()
    q[0, :2] = 0x7F, 0x01
    save(source / "a.safetensors", {"x.weight": q.view(FNUZ)})
    refused("convert", source, tmp_path / "no", "--to", "e4m3fn", says=["1 blocks"], leaves=tmp_path / "no")


def test_there_and_back(tmp_path, folder):
    """Tests that a quantised checkpoint survives the round trip, save that negative zero becomes zero."""
    ok("quantize", folder, tmp_path / "fp8")
    ok("convert", tmp_path / "fp8", tmp_path / "fnuz", "--to", "e4m3fnuz")
    ok("convert", tmp_path / "fnuz", tmp_path / "back", "--to", "e4m3fn")
    before, after = load(tmp_path / "fp8" / "model.safetensors"), load(tmp_path / "back" / "model.safetensors")
    assert set(before) == set(after)
    for name, was in before.items():
        bits = was.view(np.uint8).copy() if was.dtype == FN else was
        if was.dtype == FN:
            bits[bits == 0x80] = 0
        assert bits.tobytes() == after[name].tobytes(), name
    assert (tmp_path / "back" / "config.json").read_text() == (tmp_path / "fp8" / "config.json").read_text()


def test_mistakes(tmp_path):
    out = tmp_path / "out"
    refused("convert", "a", "b", says=["--to", "e4m3fnuz"])
    refused("convert", "a", "b", "--to", "e5m2", says=["--to", "e5m2", "e4m3fnuz|e4m3fn"])
    checkpoint(tmp_path / "in", codes(9, 9, dtype=FN), scales(1, 1))
    refused("convert", tmp_path / "in", out, "--to", "e4m3fn", says=["F8_E4M3FNUZ", "nothing to convert"], leaves=out)
    checkpoint(tmp_path / "in", codes(300, 300, dtype=FN), scales(3, 2))
    refused("convert", tmp_path / "in", out, "--to", "e4m3fnuz", says=["x.weight_scale_inv", "[3, 2]", "[3, 3]"],
            leaves=out)
    checkpoint(tmp_path / "in", codes(9, 9, dtype=FN), scales(1, 1).astype(np.float64))
    refused("convert", tmp_path / "in", out, "--to", "e4m3fnuz", says=["x.weight_scale_inv", "F64", "F32"], leaves=out)
    save(tmp_path / "in", {"x.weight": codes(9, 9, dtype=FN)})
    refused("convert", tmp_path / "in", out, "--to", "e4m3fnuz", says=["no x.weight_scale_inv"], leaves=out)
    save(tmp_path / "in", {"x.weight": codes(9, dtype=FN), "x.weight_scale_inv": scales(1, 1)})
    refused("convert", tmp_path / "in", out, "--to", "e4m3fnuz", says=["x.weight", "two dimensions"], leaves=out)
    raw_file(tmp_path / "in", {})
    refused("convert", tmp_path / "in", out, "--to", "e4m3fnuz", says=["nothing to convert"], leaves=out)


def test_wide_weight(tmp_path):
    """Tests a weight so wide that a row of blocks is dealt with in parts."""
    rng = np.random.default_rng(7)
    q = rng.integers(0, 256, (130, 262_144 + 200), dtype=np.uint8)
    scale = rng.random((2, 2050), dtype=np.float32) + np.float32(0.5)
    save(tmp_path / "in", {"x.weight": q.view(ml_dtypes.float8_e4m3fn), "x.weight_scale_inv": scale})
    ok("convert", tmp_path / "in", tmp_path / "out", "--to", "e4m3fnuz")
    after = load(tmp_path / "out")
    wanted = np.where(q == 0x80, 0, np.where(q & 0x7F == 0x7F, 0x80, q))
    np.testing.assert_array_equal(after["x.weight"].view(np.uint8), wanted)
    np.testing.assert_array_equal(after["x.weight_scale_inv"], 2 * scale)
