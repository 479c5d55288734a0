# SPDX-License-Identifier: Apache-2.0
"""examples/embed.c beside transformers: embeddings of sentences by small BERTs with random weights, on the CPU and on simulated GPUs."""

import json
import shutil
import subprocess

import pytest
import torch
from examples import BUILD, compiled, cut, edit, run
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel, BertTokenizer

WORDS = "the cat kitten sleeps naps train railway is late in window".split()
SENTENCES = ["The cat sleeps in the window.", "The train is late, late, late!", "A cat naps in the window.", "A railway is late, late!!!"]
KINDS = {  # dtype, what the configuration has beside the usual, the largest file, whether capitals are lowered
    "plain": (torch.float32, {}, "1GB", True),
    "blocks in part, shards": (torch.float32, {"hidden_size": 72, "num_attention_heads": 3, "intermediate_size": 200}, "200KB", True),
    "cased, bf16": (torch.bfloat16, {}, "1GB", False),
    "f16, wide heads": (torch.float16, {"num_attention_heads": 1, "num_hidden_layers": 1}, "1GB", True),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled("embed", tmp_path_factory.mktemp("embed"))


def make(kind, folder):
    """Saves a model, and one of FP8 beside it; returns it with its tokenizer."""
    dtype, options, size, is_lowered = KINDS[kind]
    torch.manual_seed(5)
    characters = [chr(c) for c in range(33, 127)] + list("ßđłŧøſĸ猫«—")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *characters, *("##" + c for c in characters if c.isalnum())]
    sizes = {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 150}
    config = BertConfig(**sizes | options, vocab_size=len(pieces), initializer_range=sizes["hidden_size"]**-0.5)
    model = BertModel(config).eval()
    for name, parameter in model.named_parameters():  # biases start as zeros and norms as ones, and a program could forget them
        if parameter.ndim == 1:
            torch.nn.init.uniform_(parameter, *((0.5, 1.5) if name.endswith("LayerNorm.weight") else (-0.3, 0.3)))
    model = model.to(dtype)
    model.save_pretrained(folder / "model", max_shard_size=size)
    tokenizer = BertTokenizer(vocab={piece: i for i, piece in enumerate(pieces)}, do_lower_case=is_lowered)
    tokenizer.save_pretrained(folder / "model")
    subprocess.run([BUILD / "quern", "quantize", folder / "model", folder / "fp8"], check=True, capture_output=True)
    return model, tokenizer


def embed(program, folder, devices, sentences=SENTENCES):
    return run(program, "--json", folder / "model", folder / "fp8", devices, *sentences)


def wanted(model, ids):
    with torch.no_grad():
        means = torch.stack([model(torch.tensor([one])).last_hidden_state[0].mean(0) for one in ids])
    return (means / means.norm(dim=1, keepdim=True)).double()


def cosines(embeddings):
    return embeddings @ embeddings.T


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings(kind, program, tmp_path):
    """Tests that the program's definition is as far from transformers' double as transformers' f32 is, but for the 29 bits between f32
    and double, and that all devices are as near to it as the program accepts; that is less than what makes sentences differ."""
    model, tokenizer = make(kind, tmp_path)
    done = embed(program, tmp_path, "cpu,sim:gfx942,sim:gfx1151")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["tokens"] == tokenizer(SENTENCES)["input_ids"]
    assert [one["name"] for one in report["runs"]] == ["unquantised", "cpu", "sim:gfx942", "sim:gfx1151"]
    got = [torch.tensor(one["embeddings"], dtype=torch.float64).view(len(SENTENCES), -1) for one in report["runs"]]
    rounded = wanted(model.float(), report["tokens"])
    exact = wanted(model.double(), report["tokens"])
    assert (got[0] - exact).abs().max() <= 4 * (rounded - exact).abs().max() * 2**-29
    alike = cosines(exact)
    for one in got[1:]:
        assert 0 < (cosines(one) - alike).abs().max() <= report["accepted"]
        assert 0 < (one - exact).norm(dim=1).max() <= report["accepted_distance"]
        assert (one.norm(dim=1) - 1).abs().max() < 2**-15  # f32 in two bf16
    alike.fill_diagonal_(0)
    assert alike.argmax(1).tolist() == [2, 3, 0, 1]
    assert report["accepted"] < alike.max() - alike.median()


@pytest.mark.parametrize("kind", ["plain", "cased, bf16"])
def test_tokens(kind, program, tmp_path):
    _, tokenizer = make(kind, tmp_path)
    sentences = ["", " \t\n", "catcat sleepsin", "Cat's  naps—«LATE» …", "x" * 100, "x" * 101, "déjà ÀÉÎÕÜ ñç ÿŸ", "猫cat猫", "ß Đđ Łł Ŧ Ø ſĸ",
                 "1+1=2 $5 100% [x] a_b `c` ~", "the¶cat§¡¿·", "a\u200bb\u00adc\x01d\x0be\u2028f\u3000g\xa0h"]
    sentences += ["".join(map(chr, range(first, first + 32))) for first in (0x20, 0x40, 0x60, 0xA0, 0xC0, 0xE0, *range(0x100, 0x180, 0x20))]
    sentences += ["".join("a" + chr(c) for c in range(0x2010, 0x205F) if c not in (0x2044, 0x2052))]
    done = embed(program, tmp_path, "cpu", sentences)
    assert done.stdout, done.stderr
    for sentence, got, want in zip(sentences, json.loads(done.stdout)["tokens"], tokenizer(sentences)["input_ids"], strict=True):
        assert got == want, repr(sentence)


def spoil(folder, name, change):
    weights = load_file(folder / "fp8/model.safetensors")
    weights[name] = change(weights[name]).contiguous()
    save_file(weights, folder / "fp8/model.safetensors")


@pytest.mark.parametrize("name, change", [
    ("encoder.layer.1.attention.self.value.weight_scale_inv", lambda scale: scale * 2),
    ("encoder.layer.0.intermediate.dense.weight", lambda weight: weight.view(torch.uint8).roll(1, 0).view(weight.dtype)),
    ("encoder.layer.2.output.dense.bias", lambda bias: -bias),
    ("encoder.layer.2.output.LayerNorm.weight", torch.ones_like),
    ("encoder.layer.2.output.LayerNorm.bias", torch.zeros_like),
    ("embeddings.token_type_embeddings.weight", lambda types: types.roll(1, 0)),
    ("encoder.layer.0.attention.self.query.weight_scale_inv", lambda scale: scale * float("nan")),
])
def test_faults_are_found(name, change, program, tmp_path):
    make("plain", tmp_path)
    spoil(tmp_path, name, change)
    done = run(program, tmp_path / "model", tmp_path / "fp8", "cpu", *SENTENCES)
    assert done.returncode == 1 and "embed: cpu: an embedding is off by" in done.stderr
    assert "nearest to" in done.stdout


@pytest.mark.parametrize("devices, sentences, words", [
    ("cpu", ["one"], "usage: embed [--json] MODEL MODEL-FP8"),
    ("cpu", ["a", "Привет"], "U+041F; accepted: Latin letters"),
    ("cpu", ["a", "b [SEP]"], "special token [SEP]"),
    ("cpu", ["a", "a " * 149], "sentence 2 has 151 tokens; accepted: up to 150"),
    ("nowhere", ["a", "b"], "nowhere"),
    (",".join(["cpu"] * 9), ["a", "b"], "more than 8 devices"),
])
def test_bad_arguments(devices, sentences, words, program, tmp_path):
    make("plain", tmp_path)
    done = embed(program, tmp_path, devices, sentences)
    assert done.returncode != 0 and words in done.stderr and not done.stdout


def unquantise(folder):
    shutil.rmtree(folder / "fp8")
    shutil.copytree(folder / "model", folder / "fp8")


@pytest.mark.parametrize("change, words", [
    (lambda folder: edit(folder / "model", '"bert"', '"roberta"'), "model_type is roberta; accepted: bert"),
    (lambda folder: edit(folder / "model", '"gelu"', '"relu"'), "hidden_act is relu; accepted: gelu"),
    (lambda folder: edit(folder / "model", '"num_attention_heads": 4', '"num_attention_heads": 5'), "no multiple"),
    (lambda folder: edit(folder / "model", '"num_hidden_layers": 3', '"num_hidden_layers": 4'), "no tensor encoder.layer.3."),
    (lambda folder: edit(folder / "model", '"WordPiece"', '"BPE"', "tokenizer.json"), "model is BPE; accepted: WordPiece"),
    (lambda folder: edit(folder / "model", '"strip_accents": null', '"strip_accents": false', "tokenizer.json"), "strip_accents"),
    (lambda folder: (folder / "model/tokenizer.json").unlink(), "tokenizer.json"),
    (unquantise, "is not FP8"),
    (lambda folder: cut(folder / "fp8", -50000), "are not where the header says"),
])
def test_bad_checkpoints(change, words, program, tmp_path):
    make("plain", tmp_path)
    change(tmp_path)
    done = embed(program, tmp_path, "cpu")
    assert done.returncode == 1 and words in done.stderr and not done.stdout
