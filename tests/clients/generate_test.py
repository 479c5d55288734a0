# SPDX-License-Identifier: Apache-2.0
"""examples/generate.c beside transformers: greedy tokens of small Llamas with random weights, on the CPU and on simulated GPUs."""

import pytest
import torch
from examples import compiled, cut, edit, run
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS, END = 24, 998
LLAMA31 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 16}
KINDS = {  # dtype, what the configuration has beside the usual, the largest file
    "plain": (torch.float32, {}, "1GB"),
    "groups, shards": (torch.float32, {"num_key_value_heads": 2}, "400KB"),
    "llama 3.1": (torch.float32, {"rope_parameters": LLAMA31, "num_key_value_heads": 1}, "400KB"),
    "tied, other heads": (torch.float32, {"tie_word_embeddings": True, "head_dim": 64}, "1GB"),
    "bf16": (torch.bfloat16, {}, "1GB"),
    "f16": (torch.float16, {}, "1GB"),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled("generate", tmp_path_factory.mktemp("generate"))


def make(kind, folder):
    """Saves a model; returns it with a prompt."""
    dtype, options, size = KINDS[kind]
    torch.manual_seed(sorted(KINDS).index(kind))
    sizes = {"hidden_size": 128, "intermediate_size": 320, "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 999}
    config = LlamaConfig(**sizes, eos_token_id=END, initializer_range=0.2, **options)
    model = LlamaForCausalLM(config).to(dtype).eval()
    model.save_pretrained(folder, max_shard_size=size)
    return model, torch.randint(0, END, (1, 11))


def logits_of(model, ids):
    with torch.no_grad():
        return model(ids).logits[0, 10:-1].double()


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("kind", KINDS)
def test_greedy_tokens(kind, device, program, tmp_path):
    """Tests for equal tokens in f32. With 16 bits a token may be another one of those that rounding leaves equal: each has at
    most four times the error less than the largest logit which transformers' own 16 bits make in that step."""
    model, prompt = make(kind, tmp_path)
    done = run(program, tmp_path, device, TOKENS, *prompt[0].tolist())
    assert done.returncode == 0, done.stderr
    got = torch.tensor([[int(word) for word in done.stdout.split()]])
    if KINDS[kind][0] == torch.float32:
        want = model.generate(prompt, max_new_tokens=TOKENS, do_sample=False, pad_token_id=0)
        assert got.tolist()[0] == want[0, 11:].tolist()
        return
    ids = torch.cat([prompt, got], 1)
    rounded, exact = logits_of(model, ids), logits_of(model.float(), ids)
    error = (rounded - exact).abs().amax(1)
    chosen = exact.gather(1, got.T)[:, 0]
    assert got.shape[1] == TOKENS or got[0, -1] == END
    assert (exact.amax(1) - chosen <= 4 * error).all()


def test_ends_at_the_end_of_the_text(program, tmp_path):
    model, prompt = make("plain", tmp_path)
    first = run(program, tmp_path, "cpu", TOKENS, *prompt[0].tolist()).stdout.split()
    for ends in (int(first[4]), [3, int(first[4])]):
        model.config.eos_token_id = ends
        model.config.save_pretrained(tmp_path)
        assert run(program, tmp_path, "cpu", TOKENS, *prompt[0].tolist()).stdout.split() == first[:5]


@pytest.mark.parametrize("arguments, words", [
    (["cpu", 0, 1], "COUNT is 0; accepted: 1 to"),
    (["cpu", 4, 999], "ID is 999; accepted: 0 to 998"),
    (["cpu", 4, "x"], "ID is x"),
    (["cpu", 4], "usage: generate FOLDER DEVICE COUNT ID..."),
    (["nowhere", 4, 1], "nowhere"),
])
def test_bad_arguments(arguments, words, program, tmp_path):
    make("plain", tmp_path)
    done = run(program, tmp_path, *arguments)
    assert done.returncode != 0 and words in done.stderr and not done.stdout


@pytest.mark.parametrize("change, words", [
    (lambda folder: (folder / "config.json").unlink(), "config.json"),
    (lambda folder: edit(folder, "llama", "gpt2"), "model_type is gpt2; accepted: llama"),
    (lambda folder: edit(folder, "silu", "gelu"), "hidden_act is gelu; accepted: silu"),
    (lambda folder: edit(folder, '"intermediate_size": 320', '"intermediate_size": 321'), "does not have the shape"),
    (lambda folder: edit(folder, '"num_hidden_layers": 3', '"num_hidden_layers": 4'), "no tensor model.layers.3."),
    (lambda folder: cut(folder, -1), "are not where the header says"),
    (lambda folder: cut(folder, 100), "its header does not fit"),
    (lambda folder: cut(folder, 5), "its header does not fit"),
])
def test_bad_checkpoints(change, words, program, tmp_path):
    make("plain", tmp_path)
    change(tmp_path)
    done = run(program, tmp_path, "cpu", 4, 1, 2, 3)
    assert done.returncode == 1 and words in done.stderr and not done.stdout
