# SPDX-License-Identifier: Apache-2.0
"""Whole models: norms, rotations, products, experts and attention all by quern, and how their results are judged."""

import contextlib
import copy

import quern
import quern.torch
import torch
from models import error, run

DEVICES = [None, "sim:gfx942", "sim:gfx1151"]
# PyTorch's operators that compute what quern has ops for; those for copies, sums of residuals and tables of angles are not among them.
COMPUTE = {f"aten::{name}" for name in (
    "mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "_grouped_mm", "softmax", "_softmax", "rsqrt", "pow", "mean",
    "native_layer_norm", "layer_norm", "rms_norm", "silu", "gelu", "sigmoid", "tanh", "topk", "index_add_", "one_hot",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math")}


class Whole:
    """What ran: patch is a quern.Patch, attention() counts attention's kernels."""

    def __init__(self, patch, before):
        self.patch, self._before = patch, before

    def attention(self):
        return quern.torch.calls - self._before

    def kernels(self):
        return {kernel for _, kernel in self.patch.calls} | set(self.attention())


@contextlib.contextmanager
def _attention(model, device):
    """Puts quern's attention into a model, and under PyTorch's function for models that call that; what quern would leave to PyTorch
    raises."""
    if hasattr(model, "set_attn_implementation"):
        before, choose = model.config._attn_implementation, model.set_attn_implementation
        quern.torch.register_transformers(device)
    else:
        before, choose = "native", model.set_attention_backend
        quern.torch.register_diffusers(device)
    choose("quern")
    try:
        with quern.torch.enable(device, fallback="error"):
            yield
    finally:
        choose(before)


@contextlib.contextmanager
def by_quern(model, device):
    """Has quern compute all of the model that it can; checks that nothing went back to PyTorch and all ran on the device, or where
    the model's tensors are."""
    before = quern.torch.calls.copy()
    with _attention(model, device), quern.patch(model, device, linears="all") as patch:
        whole = Whole(patch, before)
        yield whole
        assert not [op for op, kernel in patch.calls if kernel == "PyTorch"]
        assert {".cpu" in kernel for kernel in whole.kernels()} == {device is None and next(model.parameters()).is_cpu}


def computed_by_pytorch(function):
    """Returns which of PyTorch's operators of COMPUTE ran while function did."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, torch.inference_mode():
        function()
    return {event.key for event in profile.key_averages()} & COMPUTE


# ---- tokens

@contextlib.contextmanager
def choices_of(model):
    """Lists, for each router, the experts that its tokens go to: {path: [ids of a call, …]}."""
    seen = {}

    def keep(path):
        return lambda module, arguments, output: seen.setdefault(path, []).append(output[2].reshape(-1, output[2].shape[-1]))

    hooks = [m.register_forward_hook(keep(path)) for path, m in model.named_modules() if type(m).__name__.endswith("Router")]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


class Steps:
    """What a model makes of the last positions of a text: logits in double, and the experts of each router."""

    def __init__(self, logits, choices):
        self.logits = logits.double().cpu()
        self.choices = [torch.cat(ids)[-len(logits):].sort(-1).values.cpu() for _, ids in sorted(choices.items())]


def generated(model, start, count):
    """Lets the model go on from start, a token at a time and past any that would end the text. Returns the tokens and the Steps
    that led to them."""
    model.generation_config.eos_token_id = None
    with torch.inference_mode(), choices_of(model) as choices:
        result = model.generate(**start, max_new_tokens=count, do_sample=False, output_logits=True,
                                return_dict_in_generate=True)
    return result.sequences, Steps(torch.stack(result.logits)[:, 0], choices)


def read(model, sequences, count):
    """Returns the Steps of a model that reads the same tokens, in one pass."""
    with torch.inference_mode(), choices_of(model) as choices:
        logits = model(sequences[:, :-1]).logits[0, -count:]
    return Steps(logits, choices)


def alike(steps, exact):
    """Returns for which steps all routers chose what the exact model's did. Where two experts are as good as equal to a router,
    a rounding decides, and what follows is another text's."""
    same = torch.ones(len(steps.logits), dtype=torch.bool)
    for ours, theirs in zip(steps.choices, exact.choices, strict=True):
        same &= (ours == theirs).all(-1)
    return same


def assert_greedy(sequences, steps, plain, exact, dtype):
    """Checks that the logits of each step are about as near to the exact ones as the unpatched model's are, and that each token is
    the exact model's, or one whose logit is as near to the best as those errors are large."""
    tokens, count = sequences[0].cpu(), len(steps.logits)
    of_tokens = lambda logits: logits.gather(1, tokens[-count:, None])[:, 0]  # noqa: E731
    assert torch.equal(of_tokens(steps.logits), steps.logits.max(-1).values) and len(tokens[-count:].unique()) > count // 8
    unit, same = torch.finfo(dtype).eps / 2, alike(steps, exact)
    usual = alike(plain, exact)
    assert same.sum() >= count // 2 and usual.sum() >= count // 2
    limit = 2 * error(plain.logits[usual], exact.logits[usual]) + unit
    assert error(steps.logits[same], exact.logits[same]) <= limit
    widest = 2 * (plain.logits - exact.logits)[usual].abs().max() + unit * exact.logits.abs().max()
    best, chosen = exact.logits.max(-1).values, of_tokens(exact.logits)
    assert bool((best - chosen <= 2 * widest)[same].all())
    assert int((best == chosen).sum()) >= count // 2


def assert_whole_text(model, start, device, dtype, exact, plain, count=64):
    """Checks count greedy tokens of a model that is all quern's. Returns the Whole, for its counts."""
    with by_quern(model, device) as whole:
        sequences, steps = generated(model, start, count)
    assert_greedy(sequences, steps, read(plain, sequences, count), read(exact, sequences, count), dtype)
    return whole


# ---- layers

def _layers(model, inputs):
    """Returns {layer's path: its first result, of one text}, and the experts of each router as Steps has them."""
    with choices_of(model) as choices:
        results = {path: values[0].flatten(0, -2) for path, values in run(model, inputs).items()}
    return results, Steps(results[""], choices)


def assert_layers(model, inputs, device, dtype, exact, plain):
    """Checks that at each layer a model that is all quern's is about as near to the exact one as the unpatched one is, of tokens for
    which all routers choose alike."""
    want, sure = _layers(exact, inputs)
    usual, by_plain = _layers(plain, inputs)
    with by_quern(model, device):
        got, steps = _layers(model, inputs)
    same = alike(steps, sure) & alike(by_plain, sure)
    assert got.keys() == usual.keys() == want.keys() and len(want) >= 7 and same.sum() >= len(same) // 2
    for path in want:
        ours, theirs = (error(x[path][same], want[path][same]) for x in (got, usual))
        limit = 2 * theirs + torch.finfo(dtype).eps / 2
        assert ours <= limit, f"{path}: error {ours:.2e}, limit {limit:.2e}"
