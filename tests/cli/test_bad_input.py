# SPDX-License-Identifier: Apache-2.0
"""Malformed checkpoints: exit status 2, a message with file, tensor and fault, no output."""
import json
import struct

import numpy as np
import pytest

from conftest import raw_file, refused, save


def entry(dtype="F32", shape=(2, 2), offsets=(0, 16)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


# name: header, bytes of data, what the message says
HEADERS = {
    "truncated data": ({"x.weight": entry()}, 12, ["x.weight", "[0, 16]", "12 bytes"]),
    "oversized data": ({"x.weight": entry()}, 20, ["20 bytes", "16"]),
    "negative offset": ({"x.weight": entry(offsets=(-16, 0))}, 16, ["x.weight", "[-16, 0]"]),
    "reversed offsets": ({"x.weight": entry(offsets=(16, 0))}, 16, ["x.weight", "[16, 0]"]),
    "offsets beyond 63 bits": (b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,99999999999999999999]}}', 4,
                               ["JSON"]),
    "offsets and shape differ": ({"x.weight": entry(offsets=(0, 12))}, 12, ["x.weight", "12 bytes", "[2, 2] F32", "16"]),
    "three offsets": ({"x.weight": entry(offsets=(0, 8, 16))}, 16, ["x.weight", "data_offsets"]),
    "fractional offsets": ({"x.weight": entry(offsets=(0, 16.0))}, 16, ["x.weight", "data_offsets"]),
    "overlap": ({"a": entry(), "x.weight": entry(offsets=(8, 24))}, 24, ["x.weight", "overlaps", "a ends"]),
    "same place twice": ({"a": entry(), "x.weight": entry()}, 16, ["overlaps"]),
    "hole": ({"a": entry(), "x.weight": entry(offsets=(20, 36))}, 36, ["x.weight", "hole", "16"]),
    "hole at the start": ({"x.weight": entry(offsets=(4, 20))}, 20, ["x.weight", "hole"]),
    "unknown dtype": ({"x.weight": entry("F99")}, 16, ["x.weight", "F99", "BF16"]),
    "dtype no string": ({"x.weight": entry(7)}, 16, ["x.weight", "no string"]),
    "negative shape": ({"x.weight": entry(shape=(-2, -2))}, 16, ["x.weight", "shape[0]", "-2"]),
    "fractional shape": ({"x.weight": entry(shape=(2.5, 2))}, 16, ["x.weight", "shape[0]"]),
    "overflowing shape": ({"x.weight": entry(shape=(2**40, 2**40))}, 16, ["x.weight", "2^63"]),
    "overflowing bits": ({"x.weight": entry(shape=(2**31, 2**31))}, 16, ["x.weight"]),
    "17 dimensions": ({"x.weight": entry(shape=[1] * 17)}, 4, ["x.weight", "16"]),
    "half a byte": ({"x.weight": entry("F4", (3,), (0, 1))}, 1, ["x.weight", "F4"]),
    "entry no object": ({"x.weight": 3}, 0, ["x.weight"]),
    "entry with more": ({"x.weight": entry() | {"extra": 1}}, 16, ["x.weight"]),
    "metadata no strings": ({"__metadata__": {"a": 1}}, 0, ["__metadata__", "a"]),
    "duplicate name": (b'{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
                       b'"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0, ["duplicate", "x"]),
    "not JSON": (b"{nonsense", 0, ["JSON"]),
    "not an object": (b"[1, 2]", 0, ["object"]),
    "text after the object": (b"{} {}", 0, ["JSON"]),
    "empty weight": ({"x.weight": entry(shape=(0, 4), offsets=(0, 0))}, 0, ["x.weight", "[0, 4]", "at least one"]),
    "scale is there": ({"x.weight": entry(), "x.weight_scale_inv": entry(offsets=(16, 32))}, 32,
                       ["x.weight", "x.weight_scale_inv"]),
}


@pytest.mark.parametrize("name", HEADERS)
def test_header(tmp_path, name):
    header, size, says = HEADERS[name]
    path = tmp_path / "in.safetensors"
    raw_file(path, header, bytes(size))
    refused("quantize", path, tmp_path / "out", says=[str(path), *says], leaves=tmp_path / "out")


LENGTHS = {
    "empty": (b"", ["0 bytes"]),
    "seven bytes": (bytes(7), ["7 bytes"]),
    "no header": (struct.pack("<Q", 0), ["JSON"]),
    "truncated header": (struct.pack("<Q", 100) + b"{}", ["truncated", "100", "10"]),
    "oversized header": (struct.pack("<Q", 100_000_001) + b"{}", ["100000001", "100000000"]),
    "largest length": (b"\xff" * 8 + b"{}", ["18446744073709551615"]),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_length(tmp_path, name):
    content, says = LENGTHS[name]
    path = tmp_path / "in.safetensors"
    path.write_bytes(content)
    refused("quantize", path, tmp_path / "out", says=[str(path), *says], leaves=tmp_path / "out")


def test_every_truncation(tmp_path):
    """Tests that a good file cut off anywhere is refused."""
    path = tmp_path / "in.safetensors"
    save(path, {"x.weight": np.ones((2, 3), np.float32)})
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refused("quantize", path, tmp_path / "out", says=[str(path)], leaves=tmp_path / "out")


def test_names_cannot_steer_the_terminal(tmp_path):
    path = tmp_path / "in.safetensors"
    raw_file(path, {"x\x1b[2J\ny.weight": entry("F99")}, bytes(16))
    assert "\x1b" not in refused("quantize", path, tmp_path / "out", says=["x?[2J?y.weight", "F99"])


# ---- shards


def edit_index(folder, change):
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


def test_missing_shard(sharded, tmp_path):
    (sharded / "model-00002-of-00002.safetensors").unlink()
    refused("quantize", sharded, tmp_path / "out", says=["model-00002-of-00002.safetensors", "missing"],
            leaves=tmp_path / "out")


def test_absent_tensor(sharded, tmp_path):
    edit_index(sharded, lambda index: index["weight_map"].update(ghost="model-00001-of-00002.safetensors"))
    refused("quantize", sharded, tmp_path / "out", says=["ghost", "model-00001-of-00002.safetensors"],
            leaves=tmp_path / "out")


def test_tensor_that_the_index_lacks(sharded, tmp_path):
    edit_index(sharded, lambda index: index["weight_map"].pop("lm_head.weight"))
    refused("quantize", sharded, tmp_path / "out", says=["lm_head.weight", "nowhere"], leaves=tmp_path / "out")


def test_tensor_in_two_shards(sharded, tmp_path, model):
    file = sharded / "model-00001-of-00002.safetensors"
    save(file, {name: model[name] for name in [*list(model)[:5], "lm_head.weight"]})
    refused("quantize", sharded, tmp_path / "out", says=["lm_head.weight", "model-00002-of-00002.safetensors"],
            leaves=tmp_path / "out")


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", "a/b", "", "..", 7])
def test_shard_outside_the_folder(sharded, tmp_path, file):
    edit_index(sharded, lambda index: index["weight_map"].update({"lm_head.weight": file}))
    refused("quantize", sharded, tmp_path / "out", says=["lm_head.weight", "accepted: a file name"],
            leaves=tmp_path / "out")


@pytest.mark.parametrize("text, says", [("{", "JSON"), ("[]", "object"), ("{}", "weight_map"),
                                        ('{"weight_map": {}}', "weight_map"), ('{"weight_map": 1}', "weight_map")])
def test_broken_index(sharded, tmp_path, text, says):
    (sharded / "model.safetensors.index.json").write_text(text)
    refused("quantize", sharded, tmp_path / "out", says=["model.safetensors.index.json", says],
            leaves=tmp_path / "out")


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a": 1} x'])
def test_broken_config(folder, tmp_path, text):
    (folder / "config.json").write_text(text)
    refused("quantize", folder, tmp_path / "out", says=["config.json"], leaves=tmp_path / "out")


@pytest.mark.parametrize("text", ["{}", " {\n}\n", '{"a": "}"}', '{"a": {"quantization_config": 1}, "b": "\\"}"}',
                                  '{"a": [1, {"b": 2}], "c": 1e-12}'])
def test_config_keeps_what_it_had(folder, tmp_path, text):
    (folder / "config.json").write_text(text)
    from conftest import ok

    ok("quantize", folder, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config.pop("quantization_config")["quant_method"] == "fp8"
    assert config == json.loads(text)
