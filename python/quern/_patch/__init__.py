# SPDX-License-Identifier: Apache-2.0
"""quern.patch: a model's norms, rotary embeddings, activations and some linear layers by quern. PyTorch is imported when
it is called."""

import collections


class Unfit(Exception):
    """Why a module that looks like one of quern's ops is left alone."""


class Replacement:
    """What replaces one module.

    kind     what the report calls it
    forward  function of (self, ...), or None where undo() alone takes it back
    others   {submodule: function of (self, ...)}: replaced with the module, and not looked at by themselves
    undo     None, or a function that takes back all other changes
    note     None, or what the report says of it
    is_trained  whether autograd can record what it computes
    """

    def __init__(self, kind, forward=None, others=None, undo=None, note=None, is_trained=False):
        self.kind = kind
        self.is_trained = is_trained
        self.forward = forward
        self.others = others or {}
        self.undo = undo
        self.note = note


class Patch:
    """What patch() replaced in a model. As a context manager, a Patch takes everything back at the end of the block.

    replaced  [(path, kind)]
    left      [(path, class, reason)]: modules that look like an op of quern's and were left alone
    notes     [(path, text)]: when replaced modules are PyTorch's all the same
    calls     {(op, kernel): how often it has run}; calls inside torch.compile's graphs are not counted
    device    where the ops run; None: where the tensors are
    """

    replaced: list
    left: list
    notes: list
    calls: collections.Counter
    device: object

    def __init__(self, model, run, compiled):
        self._compiled = compiled
        self._is_training = model.training
        self.device = run.device
        self.calls = run.calls
        self.replaced = []
        self.left = []
        self.notes = []
        self._model = model
        self._undo = []

    @property
    def counts(self):
        """Returns {kind: how many modules}."""
        return dict(collections.Counter(kind for _, kind in self.replaced))

    def unpatch(self):
        """Gives the model back its own functions. A second call does nothing."""
        while self._undo:
            self._undo.pop()()
        self._model.__dict__.pop("_quern_patch", None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.unpatch()

    def __str__(self):
        lines = [f"{len(self.replaced)} modules replaced"]
        lines += [f"  {count:4} {kind}" for kind, count in sorted(self.counts.items())]
        lines += _by_text(self.notes)
        lines.append(f"{len(self.left)} left alone")
        lines += _by_text((path, f"{name}: {reason}") for path, name, reason in self.left)
        return "\n".join(lines)


def _by_text(pairs):
    """Returns a line for each text: how many modules it is of, and the first one."""
    paths_of = collections.defaultdict(list)
    for path, text in pairs:
        paths_of[text].append(path)
    return [f"  {len(paths):4} {text} ({paths[0]}{', …' if len(paths) > 1 else ''})" for text, paths in sorted(paths_of.items())]


COMPILED = ("fast", "all")
# What torch.compile's own kernels do together with what stands before and after.
_JOINED = ("rmsnorm", "gemma_rmsnorm", "layernorm", "rope", "qk_rmsnorm_rope", "mla", "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul",
           "linear")


def _but_compiled(function, original):
    """Returns a forward that is the model's own in torch.compile's graphs, and else quern's."""
    import torch

    def forward(self, *arguments, **named):
        return (original if torch.compiler.is_compiling() else function)(self, *arguments, **named)

    forward.is_quern_linear = getattr(function, "is_quern_linear", False)
    return forward


def _install(patch, module, kind, function):
    import types

    if kind in _JOINED and patch._compiled == "fast" and patch.device is None:
        function = _but_compiled(function, type(module).forward)
    # The function is set on the instance, so that other models of the class keep theirs.
    module.forward = types.MethodType(function, module)
    patch._undo.append(lambda: module.__dict__.pop("forward", None))


def _replace(patch, path, module, kinds):
    """Replaces module by the first kind that it looks like. Returns the submodules that are replaced with it."""
    for looks_like_it, make in kinds:
        if not looks_like_it(module):
            continue
        try:
            if "forward" in module.__dict__:
                raise Unfit("something else has replaced its forward")
            replacement = make(module)
            if patch._is_training and not replacement.is_trained:
                if replacement.undo is not None:
                    replacement.undo()
                raise Unfit("quern computes no gradients of it, and the model is in training mode")
        except Unfit as reason:
            patch.left.append((path, type(module).__name__, str(reason)))
            return ()
        if replacement.forward is not None:
            _install(patch, module, replacement.kind, replacement.forward)
        for other, function in replacement.others.items():
            if function is not None:
                _install(patch, other, replacement.kind, function)
        if replacement.undo is not None:
            patch._undo.append(replacement.undo)
        patch.replaced.append((path, replacement.kind))
        if replacement.note is not None:
            patch.notes.append((path, replacement.note))
        return replacement.others
    return ()


def patch(model, device=None, allow_slow=False, linears="fast", compiled="fast"):
    """Makes quern compute a PyTorch model's norms, rotary embeddings, activations and linear layers with what follows
    them, in place. Returns a Patch.

    model   a torch.nn.Module: transformers' decoders (Llama, Qwen3, Gemma 2, gpt-oss, DeepSeek-V3 and others built
            alike), diffusers' transformers (FLUX, SD3, Wan), or any that has such modules; f32, f16 or bf16. Each module's replacement is compared with
            the module itself on small random numbers before it is taken
    device  None: the ops run where their tensors are. A spec or Device ("sim:gfx942", "cuda:0"): every op's
            tensors are copied there and results copied back, which is slow; a log line says so
    allow_slow  whether an op runs a slow kernel if the GPU has no other. If not, PyTorch's operators compute the op,
            and a log line says so, once for each shape
    linears  which products are quern's. "fast": bf16 layers of diffusers' blocks together with the GELU, or the gate and
            residual, that follow them, on GPUs where this is faster, which today are Hopper's, from 256 rows; a bf16
            torch.nn.Linear with as many rows as quern was measured to be faster with, by 2 % or more, on this GPU; and
            transformers' FP8Linear and FP8Experts. "all": every torch.nn.Linear, router and expert of bf16 and f16, on
            every device. "none": PyTorch computes them
    compiled  what stays quern's in torch.compile's graphs. "fast": all but RMSNorm, LayerNorm, rotary embeddings of decoders,
            MLA, gated activations and torch.nn.Linear, which are the model's own there, as torch.compile joins them with what stands around
            them; "all": everything

    `print(quern.patch(model))` lists what was replaced and what was left alone. Norms, with modulation and gates too, attention, rotary
    embeddings and gated activations have gradients, so that a patched decoder or diffusers' transformer trains; products that need a gradient
    are PyTorch's. MLA, routers, experts and FP8Linear have none: of a model in training mode they are not replaced, and else raise
    RuntimeError where a gradient would be needed. Raises TypeError (no module), ValueError (patched already), and what
    device() raises.
    """
    import torch

    from . import kinds, linear
    from .run import Runner

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch: model is {type(model).__name__}, needs a torch.nn.Module")
    if linears not in linear.CHOICES:
        raise ValueError(f"patch: linears is {linears!r}; accepted: 'fast', 'all', 'none'")
    if compiled not in COMPILED:
        raise ValueError(f"patch: compiled is {compiled!r}; accepted: 'fast', 'all'")
    if "_quern_patch" in model.__dict__:
        raise ValueError("patch: model is patched already; unpatch() it first")
    run = Runner(device, allow_slow, linears)
    result = Patch(model, run, compiled)
    done = set()
    try:
        for path, module in list(model.named_modules()):
            if module not in done:
                done.update(_replace(result, path, module, kinds.of(run)))
    except BaseException:
        result.unpatch()
        raise
    model.__dict__["_quern_patch"] = result
    run.announce()
    return result
