# SPDX-License-Identifier: Apache-2.0
"""Rotary embedding in transformers' attention, together with the RMSNorm of each head of queries and keys if there is
one.

transformers rotates by a function of the modeling file, apply_rotary_pos_emb, which the attention's forward calls by
its global name. A patched attention's forward is the old forward's code with other globals, in which the name means
quern's function. The modeling file and other models of it stay as they are.
"""

import types

import torch

from . import Replacement, Unfit, norms, trial

_ROTARY = "apply_rotary_pos_emb"


def is_rotary(module):
    """Returns whether the module's forward, or the one that a decorator wraps, uses the name apply_rotary_pos_emb."""
    code = getattr(type(module).forward, "__code__", None)
    wrapped = getattr(getattr(type(module).forward, "__wrapped__", None), "__code__", None)
    return any(c is not None and _ROTARY in c.co_names for c in (code, wrapped))


def is_table(module):
    name = type(module).__name__
    return "RotaryEmbedding" in name or name in ("FluxPosEmbed", "WanRotaryPosEmbed")


def rotate(run, q, k, cos, sin, weights=(None, None), eps=0.0, repeats=1):
    """Returns q, k [batch, n, heads, d], normed if there are weights, and rotated by cos, sin [batch or 1, n, width], of
    repeats * width elements of each head: tables with each angle twice have one repeat, those with each once two."""
    per_batch = cos.shape[0] > 1
    tables = [(t.flatten(0, 1) if per_batch else t[0]).contiguous() for t in (cos, sin)]  # a GPU's product may have turned them
    q_in, k_in = (t.flatten(0, 1) if per_batch else t for t in (q, k))
    rest = *weights, *tables, repeats * cos.shape[-1], eps, 0
    q_out, k_out = run.trained("qk_rmsnorm_rope", q_in, k_in, *rest) or (torch.empty_like(q_in), None)
    if k_out is None:
        k_out = torch.empty_like(k_in)
        run("qk_rmsnorm_rope", q_out, k_out, q_in, k_in, *rest)
    return q_out.view(q.shape) if per_batch else q_out, k_out.view(k.shape) if per_batch else k_out


def _rotary_function(run, weights_of, eps, repeats):
    """Makes the function that takes apply_rotary_pos_emb's place."""
    def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
        by_head = unsqueeze_dim == 1  # [batch, heads, n, d], mostly a view of [batch, n, heads, d]
        if by_head:
            q, k = q.transpose(1, 2), k.transpose(1, 2)
        q, k = rotate(run, q, k, cos, sin, weights_of(), eps, repeats)
        return (q.transpose(1, 2), k.transpose(1, 2)) if by_head else (q, k)

    return apply_rotary_pos_emb


def _with_rotary(forward, rotary):
    """Returns a copy of forward for which apply_rotary_pos_emb means rotary."""
    names = {**forward.__globals__, _ROTARY: rotary}
    names.pop("__name__", None)  # or torch.compile would look names up in the module of that name
    function = types.FunctionType(forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__)
    function.__kwdefaults__ = forward.__kwdefaults__
    return function


def _make(run, forward, module, eps, repeats):
    """Makes forward for this one module. With an eps, queries and keys are normed in the pass that rotates them."""
    def weights_of():
        return (None, None) if eps is None else (module.q_norm.weight, module.k_norm.weight)

    rotated = _with_rotary(forward, _rotary_function(run, weights_of, eps or 0.0, repeats))

    def rotated_forward(self, *arguments, **named):
        if self is not module:
            raise RuntimeError("patch: this is a copy of a patched module; copy the model first and patch the copy")
        return rotated(self, *arguments, **named)

    return rotated_forward


def _as_it_is(self, x):
    """The forward of a head norm whose work the rotation does: returns x."""
    return x


# ---- trials

def _tables(n, d, repeats=1):
    """Returns tables of the angles of d elements, each angle twice or, with two repeats, once."""
    angles = trial.numbers(1, n, d // 2).repeat(1, 1, 2 // repeats)
    return angles.cos(), angles.sin()


def _repeats_of(run, function):
    """Tries the function with tables of whole heads, and with tables of parts of heads if it takes these. Returns how often a
    table's width is the rotation's."""
    q, k = trial.numbers(2, 3, 5, 16), trial.numbers(2, 1, 5, 16)
    repeats, reason = 0, None
    for d, guess in ((16, 1), (16, 2), (8, 1)):
        if repeats not in (0, guess) or (d < 16 and not repeats):
            continue
        cos, sin = _tables(5, d, guess)
        try:
            want = trial.run(function, q, k, cos, sin)
        except Unfit as error:
            reason = reason or error
            continue
        repeats = repeats or guess
        ours = _rotary_function(run.plain, lambda: (None, None), 0.0, repeats)
        if not trial.agree(trial.run(ours, q, k, cos, sin), want):
            raise Unfit(f"its {_ROTARY} is another rotation than of the halves of a head")
    if not repeats:
        raise reason
    return repeats


def _small_parts(module):
    d, groups = module.head_dim, module.num_key_value_groups
    parts = {"q_proj": trial.linear(8, groups * d), "k_proj": trial.linear(8, d), "v_proj": trial.linear(8, d),
             "o_proj": trial.linear(groups * d, 8)}
    for name in ("q_norm", "k_norm"):
        parts[name] = trial.twin(module._modules[name], {"weight": trial.weights(d)})
    for parameter in parts["q_proj"].parameters():
        parameter.data *= 1e-3  # so that the norm's eps counts
    return parts


def _head_norm_eps(run, module, repeats):
    """Returns the eps of q_norm and k_norm if they norm each head right before the rotation, else None."""
    q_norm, k_norm = module._modules.get("q_norm"), module._modules.get("k_norm")
    if q_norm is None or k_norm is None or not norms.is_rmsnorm(q_norm) or not norms.is_rmsnorm(k_norm):
        return None
    try:
        eps = norms.eps_of(q_norm)
        if eps != norms.eps_of(k_norm) or q_norm.weight.shape != (module.head_dim,):
            return None
        parts = _small_parts(module)
        twin = trial.twin(module, modules=parts)
        twin.config = trial.eager(module.config)
        joined = trial.twin(twin, modules=dict(parts))
        arguments = {"hidden_states": trial.numbers(2, 5, 8), "position_embeddings": _tables(5, module.head_dim, repeats),
                     "attention_mask": None}
        want = trial.run(type(module).forward, twin, **arguments)[0]
        for name in ("q_norm", "k_norm"):
            joined._modules[name] = trial.twin(parts[name])
            joined._modules[name].forward = types.MethodType(_as_it_is, joined._modules[name])
        got = trial.run(_make(run.plain, type(module).forward, joined, eps, repeats), joined, **arguments)[0]
        return eps if trial.agree(got, want) else None
    except (Unfit, AttributeError):
        return None


def rotary(run, module):
    """Replaces an attention together with its head norms if that can be, else without them; the norms are then replaced
    by themselves."""
    forward = type(module).forward
    if hasattr(forward, "__wrapped__") or _ROTARY not in forward.__globals__:
        raise Unfit(f"its forward does not call {_ROTARY} itself")
    others = [name for name in forward.__code__.co_names if name.startswith("apply_rotary") and name != _ROTARY]
    if others:
        raise Unfit(f"its forward rotates by {others[0]} as well")
    repeats = _repeats_of(run, forward.__globals__[_ROTARY])
    eps = _head_norm_eps(run, module, repeats)
    if eps is None:
        return Replacement("rope", _make(run, forward, module, None, repeats), is_trained=True)
    return Replacement("qk_rmsnorm_rope", _make(run, forward, module, eps, repeats),
                       {module.q_norm: _as_it_is, module.k_norm: _as_it_is}, is_trained=True)
