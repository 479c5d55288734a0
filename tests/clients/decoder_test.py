# SPDX-License-Identifier: Apache-2.0
"""transformers' Llama and Qwen3 with their norms, rotary embedding and SwiGLU by quern."""

import copy

import pytest
import quern
import torch
from models import DECODERS, DTYPES, assert_as_good, decoder, put, run, tokens

# What one pass of a model of n layers calls.
CALLS = {"llama": lambda n: {"rmsnorm": 2 * n + 1, "qk_rmsnorm_rope": n, "silu_and_mul": n},
         "qwen3": lambda n: {"rmsnorm": 2 * n + 1, "qk_rmsnorm_rope": n, "silu_and_mul": n}}
ROPE = {"llama": "rope", "qwen3": "qk_rmsnorm_rope"}


def calls_of(patch):
    calls = {}
    for (op, _), count in patch.calls.items():
        calls[op] = calls.get(op, 0) + count
    return calls


def check(name, dtype, device=None, hidden=256, layers=4, inputs=None, where="cpu"):
    model, inputs = decoder(name, dtype, hidden, layers).to(where), put(inputs or tokens(), where)
    exact, plain = run(copy.deepcopy(model).double(), inputs), run(model, inputs)
    with quern.patch(model, device) as patch:
        assert patch.counts == {"rmsnorm": 2 * layers + 1, ROPE[name]: layers, "silu_and_mul": layers}
        assert [(path, kind) for path, kind, _ in patch.left] == \
            [("model.rotary_emb", f"{model.config.model_type.capitalize()}RotaryEmbedding")]
        patched = run(model, inputs)
        assert calls_of(patch) == CALLS[name](layers)
        kernels = {kernel for _, kernel in patch.calls}
    assert_as_good(patched, plain, exact, dtype)
    return kernels


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers(name, dtype):
    assert all(".cpu" in kernel for kernel in check(name, dtype))


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("device", ["sim:gfx942", "sim:gfx1151"])
def test_layers_on_a_simulated_gpu(name, device):
    kernels = check(name, torch.bfloat16, device, hidden=64, layers=1, inputs=tokens(1, 5))
    assert all(".gpu" in kernel for kernel in kernels)


@pytest.mark.parametrize("name", DECODERS)
def test_positions_of_each_sequence(name):
    """Tests tables that differ from batch to batch, and not by a shift alone, which attention does not see."""
    inputs = tokens()
    check(name, torch.bfloat16, inputs={**inputs, "position_ids": torch.arange(33) * torch.tensor([[1], [5]])})


@pytest.mark.parametrize("name", DECODERS)
def test_greedy_tokens(name):
    """Tests that 64 tokens are the same as unpatched, or differ first where two logits are closer than the models'
    errors."""
    model, start = decoder(name, torch.bfloat16), tokens(1, 9)

    def generate(model):
        with torch.inference_mode():
            result = model.generate(**start, max_new_tokens=64, min_new_tokens=64, do_sample=False, output_logits=True,
                                    return_dict_in_generate=True)
        return result.sequences[0, 9:], torch.stack(result.logits)[:, 0].double()

    want, want_logits = generate(model)
    with quern.patch(model) as patch:
        got, got_logits = generate(model)
        assert calls_of(patch)["silu_and_mul"] == 64 * 4
    assert len(want) == len(got) == 64
    different = (want != got).nonzero()
    if len(different):
        first = int(different[0])
        tolerance = 2 * (want_logits[first] - got_logits[first]).abs().max()
        best = want_logits[first].topk(2).values
        assert best[0] - best[1] <= tolerance and first > 0
        assert (want_logits[first] - got_logits[first]).norm() < 0.1 * want_logits[first].norm()
    assert len(want.unique()) > 8  # not one token again and again


class Recorder:
    """A torch.compile backend that lists the ops of the graph and runs it unchanged."""

    def __init__(self):
        self.calls, self.graphs = {}, 0

    def __call__(self, graph, example_inputs):
        self.graphs += 1
        for node in graph.graph.nodes:
            if getattr(node.target, "namespace", None) == "quern" or str(node.target).startswith("quern."):
                op = str(node.target).split(".")[1]
                self.calls[op] = self.calls.get(op, 0) + 1
        return graph.forward


def compiled(model, inputs, recorder):
    torch._dynamo.reset()
    with torch.inference_mode():
        return torch.compile(model, fullgraph=True, backend=recorder)(**inputs).logits


@pytest.mark.parametrize("name", DECODERS)
def test_compiled_is_one_graph(name):
    model, inputs, recorder = decoder(name, torch.bfloat16, layers=2), tokens(), Recorder()
    with quern.patch(model, compiled="all"):
        with torch.inference_mode():
            want = model(**inputs).logits
        got = compiled(model, inputs, recorder)
        assert recorder.graphs == 1 and recorder.calls == CALLS[name](2)
    torch.testing.assert_close(got, want, rtol=2.0**-7, atol=2.0**-7)


@pytest.mark.parametrize("name", DECODERS)
def test_compiled_is_the_model_s_own(name):
    """Tests that torch.compile gets the operators that it joins, those of head norms too, and eager calls get quern's."""
    model, inputs, recorder = decoder(name, torch.bfloat16, layers=2), tokens(), Recorder()
    want = compiled(model, inputs, recorder)
    with quern.patch(model) as patch:
        assert torch.equal(compiled(model, inputs, recorder), want)
        assert recorder.graphs == 2 and recorder.calls == {} and not patch.calls
        run(model, inputs)
        assert calls_of(patch) == CALLS[name](2)
