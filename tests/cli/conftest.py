# SPDX-License-Identifier: Apache-2.0
"""What the command's tests share: running it, and making checkpoints."""
import json
import os
import pathlib
import re
import struct
import subprocess

import ml_dtypes
import numpy as np
import pytest

BUILD = pathlib.Path(os.environ["QUERN_BUILD_DIR"])
SOURCE = pathlib.Path(os.environ["QUERN_SOURCE_DIR"])
QUERN = BUILD / "quern"
CACHE = (BUILD / "CMakeCache.txt").read_text()
SANITIZER = re.search("^QUERN_SANITIZE:STRING=(.*)$", CACHE, re.MULTILINE)[1]
COMPILER = re.search("^CMAKE_C_COMPILER:[A-Z]*=(.*)$", CACHE, re.MULTILINE)[1]

DTYPES = {
    np.dtype(np.float64): "F64",
    np.dtype(np.float32): "F32",
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "BF16",
    np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3",
    np.dtype(ml_dtypes.float8_e4m3fnuz): "F8_E4M3FNUZ",
    np.dtype(np.int64): "I64",
    np.dtype(np.uint8): "U8",
}


def run(*args, **kwargs):
    """Runs quern; gives the finished process."""
    return subprocess.run([QUERN, *map(str, args)], capture_output=True, text=True, timeout=600, **kwargs)


def ok(*args, **kwargs):
    """Runs quern, which has to succeed; gives what it printed."""
    done = run(*args, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*args, says=(), leaves=None, **kwargs):
    """Runs quern, which has to refuse: exit status 2, one line that holds each of `says`, nothing at `leaves`,
    no temporary file beside it."""
    done = run(*args, **kwargs)
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    for text in says:
        assert text in done.stderr, done.stderr
    assert done.stdout == "" and done.stderr.count("\n") == 1
    if leaves is not None:
        assert not os.path.lexists(leaves)
        assert not list(pathlib.Path(leaves).parent.glob("*.quern-*"))
    return done.stderr


def raw_file(path, header, data=b""):
    """Writes a safetensors file from a header (a dict, or bytes as they are) and data, right or wrong."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def save(path, tensors, metadata=None):
    """Writes a safetensors file of NumPy and ml_dtypes arrays, by a writer of its own, apart from the one under
    test."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, array in tensors.items():
        end = len(data) + array.nbytes
        header[name] = {"dtype": DTYPES[array.dtype], "shape": list(array.shape), "data_offsets": [len(data), end]}
        data += np.ascontiguousarray(array).tobytes()
    raw_file(path, header, data)


def big_file(path, rows, cols=4096):
    """Writes a weight of zeros, which takes no room on the disk."""
    size = rows * cols * 4
    raw_file(path, {"x.weight": {"dtype": "F32", "shape": [rows, cols], "data_offsets": [0, size]}})
    os.truncate(path, os.path.getsize(path) + size)


def load(path):
    """Returns a safetensors file, read by the format's own library, as arrays of the dtypes that ml_dtypes has."""
    import safetensors

    types = {name: dtype for dtype, name in DTYPES.items()}
    content = safetensors.deserialize(pathlib.Path(path).read_bytes())
    return {name: np.frombuffer(t["data"], dtype=types[t["dtype"]]).reshape(t["shape"]) for name, t in content}


def header_of(path):
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length])


def dequantise(q, scale):
    """Returns q times the scale of its block of 128 x 128, in float64."""
    rows, cols = q.shape
    wide = np.repeat(np.repeat(scale.astype(np.float64), 128, axis=0)[:rows], 128, axis=1)[:, :cols]
    return q.astype(np.float64) * wide


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


@pytest.fixture
def model(rng):
    """Makes a little model with each kind of name that the rule knows."""

    def normal(*shape, dtype=np.float32):
        return rng.standard_normal(shape).astype(dtype)

    return {
        "model.embed_tokens.weight": normal(300, 96),
        "model.layers.0.self_attn.q_proj.weight": normal(256, 384),
        "model.layers.0.self_attn.q_proj.bias": normal(256),
        "model.layers.0.mlp.gate.weight": normal(8, 96),
        "model.layers.0.mlp.gate_proj.weight": normal(130, 129, dtype=ml_dtypes.bfloat16),
        "model.layers.0.mlp.up_proj.weight": normal(127, 200, dtype=np.float16),
        "model.layers.0.mlp.down_proj.weight": normal(1, 1, dtype=np.float64),
        "model.layers.0.input_layernorm.weight": normal(96),
        "model.layers.0.q_norm.weight": normal(4, 96),
        "model.layers.0.router.weight": normal(8, 96),
        "model.position_ids": np.arange(7, dtype=np.int64),
        "lm_head.weight": normal(300, 96),
    }


LINEAR = ["self_attn.q_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


@pytest.fixture
def folder(tmp_path, model):
    """Writes the model as a folder with a config, a tokenizer in a subfolder, and one safetensors file."""
    path = tmp_path / "model"
    (path / "sub").mkdir(parents=True)
    save(path / "model.safetensors", model, {"format": "pt"})
    (path / "config.json").write_text('{\n  "layer_norm_eps": 1e-12,\n  "model_type": "tiny"\n}\n')
    (path / "sub" / "tokenizer.json").write_text("{}")
    return path


@pytest.fixture
def sharded(tmp_path, model):
    """Writes the model in two shards with an index."""
    path = tmp_path / "sharded"
    path.mkdir()
    names, weight_map = list(model), {}
    for i, part in enumerate((names[:5], names[5:])):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        save(path / file, {name: model[name] for name in part}, {"format": "pt"})
        weight_map.update(dict.fromkeys(part, file))
    total = sum(array.nbytes for array in model.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text("{}")
    return path
