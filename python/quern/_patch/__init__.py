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
    """

    def __init__(self, kind, forward=None, others=None, undo=None):
        self.kind = kind
        self.forward = forward
        self.others = others or {}
        self.undo = undo


class Patch:
    """What patch() replaced in a model. As a context manager, a Patch takes everything back at the end of the block.

    replaced  [(path, kind)]
    left      [(path, class, reason)]: modules that look like an op of quern's and were left alone
    calls     {(op, kernel): how often it has run}; calls inside torch.compile's graphs are not counted
    device    where the ops run; None: where the tensors are
    """

    replaced: list
    left: list
    calls: collections.Counter
    device: object

    def __init__(self, model, run):
        self.device = run.device
        self.calls = run.calls
        self.replaced = []
        self.left = []
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
        reasons = collections.defaultdict(list)
        for path, name, reason in self.left:
            reasons[f"{name}: {reason}"].append(path)
        lines.append(f"{len(self.left)} left alone")
        lines += [f"  {len(paths):4} {text} ({paths[0]}{', …' if len(paths) > 1 else ''})"
                  for text, paths in sorted(reasons.items())]
        return "\n".join(lines)


def _install(patch, module, function):
    import types

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
        except Unfit as reason:
            patch.left.append((path, type(module).__name__, str(reason)))
            return ()
        if replacement.forward is not None:
            _install(patch, module, replacement.forward)
        for other, function in replacement.others.items():
            if function is not None:
                _install(patch, other, function)
        if replacement.undo is not None:
            patch._undo.append(replacement.undo)
        patch.replaced.append((path, replacement.kind))
        return replacement.others
    return ()


def patch(model, device=None, allow_slow=False, linears="fast"):
    """Makes quern compute a PyTorch model's norms, rotary embeddings, activations and linear layers with what follows
    them, in place. Returns a Patch.

    model   a torch.nn.Module for inference: transformers' decoders (Llama, Qwen3 and others built alike), diffusers'
            FluxTransformer2DModel, or any that has such modules; f32, f16 or bf16. Each module's replacement is compared with
            the module itself on small random numbers before it is taken
    device  None: the ops run where their tensors are. A spec or Device ("sim:gfx942", "cuda:0"): every op's
            tensors are copied there and results copied back, which is slow; a log line says so
    allow_slow  whether an op runs a slow kernel if the GPU has no other. If not, PyTorch's operators compute the op,
            and a log line says so, once for each shape
    linears  bf16 layers of diffusers' FLUX together with the GELU, or the gate and residual, that follow them. "fast": on
            GPUs where this is faster, which today are Hopper's, from 256 rows; "all": everywhere; "none": PyTorch
            computes them. transformers' FP8Linear is quern's unless this is "none"

    `print(quern.patch(model))` lists what was replaced and what was left alone. Nothing has gradients: a patched module
    that would need one raises RuntimeError. Raises TypeError (no module), ValueError (in training mode, patched
    already), and what device() raises.
    """
    import torch

    from . import kinds, linear
    from .run import Runner

    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"patch: model is {type(model).__name__}, needs a torch.nn.Module")
    if linears not in linear.CHOICES:
        raise ValueError(f"patch: linears is {linears!r}; accepted: 'fast', 'all', 'none'")
    if "_quern_patch" in model.__dict__:
        raise ValueError("patch: model is patched already; unpatch() it first")
    if model.training:
        raise ValueError("patch: model is in training mode and quern has no gradients; call model.eval() first")
    run = Runner(device, allow_slow, linears)
    result = Patch(model, run)
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
