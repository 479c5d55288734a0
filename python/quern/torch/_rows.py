# SPDX-License-Identifier: Apache-2.0
"""Row ops for training: norms, gated activations and rotations as custom ops that return what they compute, with what autograd
must know of them.

torch.compile and activation checkpointing see these ops as they see PyTorch's own. The gradient of a rotation is the rotation by
the opposite angle, which is recorded in turn; norms and activations have no second gradients, and refuse them.
"""

import logging

import torch

from .. import _ops, _tensor
from .. import last_kernel as _last_kernel
from .._activation import activation_backward
from .._norm import norm_backward
from . import _slow
from ._gradients import contiguous_rows, is_needed
from ._ops import library
from ._tensors import is_transformed, refuse_gradients

_logger = logging.getLogger("quern.torch")
last = ""  # the kernel that computed the last forward pass; "PyTorch" for PyTorch's operators
_ACTIVATIONS = ("silu", "gelu", "gelu_tanh")


def note(kernel):
    """Is told of each kernel that computed a call; _sdpa.py puts its count here."""


def _compute(device, allow_slow, name, tensors, *numbers):
    """Runs an op where the tensors are, or on the device if one is named. Where only a slow kernel would, and none was asked for,
    PyTorch's operators compute it, and a log line says so. tensors: all of the op's, in its order."""
    global last
    from ..compat import _fallback
    place = _tensor.device(device) if device else None
    there = tensors if place is None else [None if t is None else _tensor.to(t.contiguous(), place) for t in tensors]
    try:
        _slow.run(allow_slow or not hasattr(_fallback, name), getattr(_ops, name), *there, *numbers)
    except _slow.Slow as why:
        _slow.tell(_logger, name, tensors, why, "patch(allow_slow=True)")
        getattr(_fallback, name)(*tensors, *numbers)
        last = "PyTorch"
        return
    last = _last_kernel()
    note(last)
    if place is not None:
        for parameter, here, copy in zip(_ops.TABLE[name], tensors, there, strict=False):
            if parameter.is_written and here is not None:
                here.copy_(torch.from_dlpack(_tensor.to(copy, "cpu")))


def _there(device, *tensors):
    """Returns the tensors as quern takes them, on the device if one is named."""
    if not device:
        return [None if t is None else contiguous_rows(t) for t in tensors]
    place = _tensor.device(device)
    return [None if t is None else _tensor.to(t.contiguous(), place) for t in tensors]


def _back(device, *results):
    """Returns results as PyTorch's tensors."""
    note(_last_kernel())
    return [None if x is None else torch.from_dlpack(_tensor.to(x, "cpu")) if device else x for x in results]


def _define(schema, function, fake, gradient, keep):
    """Makes a custom op of a function that returns new tensors; gradient and keep are autograd's."""
    library.define(schema)
    name = schema.partition("(")[0]
    library.impl(name, function, "CompositeExplicitAutograd")
    torch.library.register_fake(f"quern::{name}", fake, lib=library)
    torch.library.register_autograd(f"quern::{name}", gradient, setup_context=keep, lib=library)


def _refuse_second(name):
    def refuse(ctx, *_):
        raise NotImplementedError(f"{name}: a gradient of its gradient is asked for; quern computes first ones; accepted: "
                                  "PyTorch's own operators for such calls")

    return refuse


def _keep_nothing(ctx, inputs, output):
    pass


# ---- norms

def _norm(x, weight, beta, eps, subtracts_mean, adds_one, device, allow_slow):
    out = torch.empty_like(x)
    name = "layernorm" if subtracts_mean else "gemma_rmsnorm" if adds_one else "rmsnorm"
    _compute(device, allow_slow, name, [out, x, weight, beta] if subtracts_mean else [out, x, weight], eps)
    return out


def _added_norm(x, residual, weight, eps, adds_one, device, allow_slow):
    out, total = x.clone(memory_format=torch.contiguous_format), residual.clone(memory_format=torch.contiguous_format)
    _compute(device, allow_slow, "gemma_fused_add_rmsnorm" if adds_one else "fused_add_rmsnorm", [out, total, weight], eps)
    return out, total


def _modulated_norm(x, scale, shift, eps, device, allow_slow):
    out = torch.empty_like(x)
    _compute(device, allow_slow, "adaptive_layernorm", [out, x, scale, shift], eps)
    return out


def _like_norm_of_sum(x, residual, *_):
    return tuple(torch.empty_like(t, memory_format=torch.contiguous_format) for t in (x, residual))


def _gated_norm(x, residual, gate, scale, shift, eps, device, allow_slow):
    out, total = torch.empty_like(x, memory_format=torch.contiguous_format), residual.clone(memory_format=torch.contiguous_format)
    _compute(device, allow_slow, "gated_residual_layernorm", [out, x, total, gate, scale, shift], eps)
    return out, total


def _new(like):
    """Returns a new gradient by weights: contiguous, however these are repeated."""
    return like.new_empty(like.shape)


def _fake_norm_gradients(d_out, x, weight, beta, d_sum, gate, gated, eps, subtracts_mean, adds_one, needs_weight, needs_beta, device):
    """Returns new gradients by x, weight, beta, gated and gate; those that are not needed are empty."""
    nothing = x.new_empty(0)
    row = weight if gate is None else gate
    return [torch.empty_like(x, memory_format=torch.contiguous_format), _new(weight) if needs_weight else nothing,
            _new(beta) if needs_beta else nothing,
            nothing if gate is None else torch.empty_like(x, memory_format=torch.contiguous_format),
            nothing if gated is None else _new(row)]


def _norm_gradients(*arguments):
    d_out, x, weight, beta, d_sum, gate, gated, eps, subtracts_mean, adds_one, needs_weight, _, device = arguments
    like = _fake_norm_gradients(*arguments)
    names = "dx", "dweight", "dbeta", "d_gated", "dgate"
    given = {name: _there(device, to)[0] for name, to in zip(names, like, strict=True) if to.numel() or name == "dx"}
    d, there, w, s, gate, gated = _there(device, d_out, x, weight, d_sum, gate, gated)
    results = _back(device, *norm_backward(d, there, w, eps, subtracts_mean=subtracts_mean, adds_one=adds_one, d_sum=s, gate=gate,
                                           gated=gated, **given))
    return [to if result is None else result for to, result in zip(like, results, strict=True)]


def _keep_norm(ctx, inputs, output):
    x, weight, beta, ctx.eps, ctx.subtracts_mean, ctx.adds_one, ctx.device, _ = inputs
    ctx.save_for_backward(x, weight, beta)


def _gradients_of_norm(ctx, d_out):
    x, weight, beta = ctx.saved_tensors
    _, needs_weight, needs_beta = ctx.needs_input_grad[:3]
    dx, dweight, dbeta, *_ = torch.ops.quern.norm_gradients(d_out, x, weight, beta, None, None, None, ctx.eps, ctx.subtracts_mean,
                                                            ctx.adds_one, needs_weight, needs_beta, ctx.device)
    return dx, dweight if needs_weight else None, dbeta if needs_beta else None, *(None,) * 5


def _keep_added_norm(ctx, inputs, output):
    _, _, weight, ctx.eps, ctx.adds_one, ctx.device, _ = inputs
    ctx.save_for_backward(output[1], weight)


def _gradients_of_added_norm(ctx, d_out, d_total):
    total, weight = ctx.saved_tensors
    needs_weight = ctx.needs_input_grad[2]
    dx, dweight, *_ = torch.ops.quern.norm_gradients(d_out, total, weight, None, d_total, None, None, ctx.eps, False, ctx.adds_one,
                                                     needs_weight, False, ctx.device)
    return dx, dx, dweight if needs_weight else None, *(None,) * 4


def _keep_modulated_norm(ctx, inputs, output):
    x, scale, shift, ctx.eps, ctx.device, _ = inputs
    ctx.save_for_backward(x, scale, shift)


def _gradients_of_modulated_norm(ctx, d_out):
    x, scale, shift = ctx.saved_tensors
    _, needs_scale, needs_shift = ctx.needs_input_grad[:3]
    dx, dscale, dshift, *_ = torch.ops.quern.norm_gradients(d_out, x, scale, shift, None, None, None, ctx.eps, True, True, needs_scale,
                                                            needs_shift, ctx.device)
    return dx, dscale if needs_scale else None, dshift if needs_shift else None, None, None, None


def _keep_gated_norm(ctx, inputs, output):
    x, _, gate, scale, shift, ctx.eps, ctx.device, _ = inputs
    ctx.save_for_backward(x, gate, scale, shift, output[1])


def _gradients_of_gated_norm(ctx, d_out, d_total):
    x, gate, scale, shift, total = ctx.saved_tensors
    needs_x, _, needs_gate, needs_scale, needs_shift = ctx.needs_input_grad[:5]
    d_residual, dscale, dshift, dx, dgate = torch.ops.quern.norm_gradients(
        d_out, total, scale, shift, d_total, gate if needs_x else None, x if needs_gate else None, ctx.eps, True, True, needs_scale,
        needs_shift, ctx.device)
    return (dx if needs_x else None, d_residual, dgate if needs_gate else None, dscale if needs_scale else None,
            dshift if needs_shift else None, None, None, None)


_define("norm_rows(Tensor x, Tensor? weight, Tensor? beta, float eps, bool subtracts_mean, bool adds_one, str device, bool allow_slow) "
        "-> Tensor", _norm, lambda x, *_: torch.empty_like(x), _gradients_of_norm, _keep_norm)
_define("added_norm_rows(Tensor x, Tensor residual, Tensor weight, float eps, bool adds_one, str device, bool allow_slow) "
        "-> (Tensor, Tensor)", _added_norm, _like_norm_of_sum, _gradients_of_added_norm, _keep_added_norm)
_define("modulated_norm_rows(Tensor x, Tensor scale, Tensor shift, float eps, str device, bool allow_slow) -> Tensor", _modulated_norm,
        lambda x, *_: torch.empty_like(x), _gradients_of_modulated_norm, _keep_modulated_norm)
_define("gated_norm_rows(Tensor x, Tensor residual, Tensor gate, Tensor scale, Tensor shift, float eps, str device, bool allow_slow) "
        "-> (Tensor, Tensor)", _gated_norm, _like_norm_of_sum, _gradients_of_gated_norm, _keep_gated_norm)
_define("norm_gradients(Tensor d_out, Tensor x, Tensor? weight, Tensor? beta, Tensor? d_sum, Tensor? gate, Tensor? gated, "
        "float eps, bool subtracts_mean, bool adds_one, bool needs_weight, bool needs_beta, str device) -> Tensor[]", _norm_gradients, _fake_norm_gradients,
        _refuse_second("norm"), _keep_nothing)


# ---- gated activations

def _activation(x, function, limit, device, allow_slow):
    out = x.new_empty(*x.shape[:-1], x.shape[-1] // 2)
    if limit:
        _compute(device, allow_slow, "act_and_mul", [out, x], function, limit)
    else:
        _compute(device, allow_slow, f"{_ACTIVATIONS[function]}_and_mul", [out, x])
    return out


def _activation_gradient(d_out, x, function, limit, device):
    d, there = _there(device, d_out, x)
    return _back(device, activation_backward(d, there, _ACTIVATIONS[function], limit))[0]


def _keep_activation(ctx, inputs, output):
    x, ctx.function, ctx.limit, ctx.device, _ = inputs
    ctx.save_for_backward(x)


def _gradient_of_activation(ctx, d_out):
    dx = torch.ops.quern.activation_gradient(d_out, *ctx.saved_tensors, ctx.function, ctx.limit, ctx.device)
    return dx, *(None,) * 4


_define("activation_rows(Tensor x, int function, float limit, str device, bool allow_slow) -> Tensor", _activation,
        lambda x, *_: x.new_empty(*x.shape[:-1], x.shape[-1] // 2), _gradient_of_activation, _keep_activation)
_define("activation_gradient(Tensor d_out, Tensor x, int function, float limit, str device) -> Tensor", _activation_gradient,
        lambda d_out, x, *_: torch.empty_like(x), _refuse_second("activation"), _keep_nothing)


# ---- rotations: k may be None, and the second result then is empty

def _like_both(q, k, *_):
    return torch.empty_like(q), q.new_empty(0) if k is None else torch.empty_like(k)


def _rotate(op, device, allow_slow, q, k, *rest, numbers):
    q, k = _there("", q, k)
    q_out, k_out = _like_both(q, k)
    _compute(device, allow_slow, op, [q_out, None if k is None else k_out, q, k, *rest], *numbers)
    return q_out, k_out


def _by_tables(q, k, cos, sin, rotary_dim, interleave, device, allow_slow):
    return _rotate("qk_rmsnorm_rope", device, allow_slow, q, k, None, None, cos, sin, numbers=(rotary_dim, 0.0, int(interleave)))


def _by_positions(q, k, pos_ids, rotary_dim, interleave, scale, theta, llama31, device, allow_slow):
    op = "apply_llama31_rope_pos_ids" if llama31 else "apply_rope_pos_ids"
    numbers = (*llama31[:2], int(llama31[2])) if llama31 else ()
    return _rotate(op, device, allow_slow, q, k, pos_ids, numbers=(rotary_dim, int(interleave), scale, theta, *numbers))


def _by_cache(q, k, cache, positions, interleave, device, allow_slow):
    return _rotate("apply_rope_with_cos_sin_cache", device, allow_slow, q, k, cache, positions, numbers=(int(interleave),))


def _keeper(count):
    """Returns what keeps the `count` tensors behind q and k, all other arguments, and whether there is k."""
    def keep(ctx, inputs, output):
        ctx.has_k, ctx.rest = inputs[1] is not None, inputs[2 + count:]
        ctx.save_for_backward(*inputs[2:2 + count])

    return keep


def _rotation_back(name, turned):
    """Returns the gradient of a rotation: the same op with tensors that turn the other way."""
    def gradient(ctx, dq, dk):
        tables = ctx.saved_tensors  # checkpoints give them once
        dq, dk = getattr(torch.ops.quern, name)(dq, dk if ctx.has_k else None, *turned(*tables), *ctx.rest)
        return dq, dk if ctx.has_k else None, *(None,) * (len(tables) + len(ctx.rest))

    return gradient


def _turned_cache(cache, positions):
    cos, sin = cache.chunk(2, -1)
    return torch.cat((cos, -sin), -1), positions


_define("rotated_by_tables(Tensor q, Tensor? k, Tensor cos, Tensor sin, int rotary_dim, bool interleave, str device, bool allow_slow) "
        "-> (Tensor, Tensor)", _by_tables, _like_both, _rotation_back("rotated_by_tables", lambda cos, sin: (cos, -sin)), _keeper(2))
_define("rotated_by_positions(Tensor q, Tensor? k, Tensor pos_ids, int rotary_dim, bool interleave, float scale, float theta, "
        "float[] llama31, str device, bool allow_slow) -> (Tensor, Tensor)", _by_positions, _like_both,
        _rotation_back("rotated_by_positions", lambda pos_ids: (-pos_ids,)), _keeper(1))
_define("rotated_by_cache(Tensor q, Tensor? k, Tensor cache, Tensor positions, bool interleave, str device, bool allow_slow) "
        "-> (Tensor, Tensor)", _by_cache, _like_both, _rotation_back("rotated_by_cache", _turned_cache), _keeper(2))


# ---- what public functions and patched modules call

_quern = torch.ops.quern


def _positions(indptr, offsets, n):
    """Returns each token's position from those of its segment."""
    tokens = torch.arange(n, dtype=torch.int32, device=indptr.device)
    segment = torch.searchsorted(indptr, tokens, right=True) - 1
    return offsets[segment] + tokens - indptr[segment]


def _pair(q_and_k, k):
    return q_and_k if k is not None else (q_and_k[0], None)


def _rope(where, q, k, indptr, offsets, rotary_dim, interleave, scale, theta, *llama31):
    return _rope_positions(where, q, k, _positions(indptr, offsets, q.shape[0]), rotary_dim, interleave, scale, theta, *llama31)


def _rope_positions(where, q, k, pos_ids, rotary_dim, interleave, scale, theta, *llama31):
    return _pair(_quern.rotated_by_positions(q, k, pos_ids, rotary_dim, bool(interleave), scale, theta, [float(x) for x in llama31],
                                             *where), k)


def _normed_rope(where, q, k, q_weight, k_weight, cos, sin, rotary_dim, eps, interleave):
    """Norms heads, which rounds them to their dtype, and rotates them."""
    def normed(x, weight):
        if x is None or weight is None:
            return x
        return _quern.norm_rows(x if x.ndim <= 3 else x.flatten(0, -3), weight, None, eps, False, False, *where).view(x.shape)

    q, k = normed(q, q_weight), normed(k, k_weight)
    return _pair(_quern.rotated_by_tables(q, k, cos, sin, rotary_dim, bool(interleave), *where), k)


def _rms(adds_one):
    return lambda where, x, weight, eps: _quern.norm_rows(x, weight, None, eps, False, adds_one, *where)


def _added_rms(adds_one):
    return lambda where, x, residual, weight, eps: _quern.added_norm_rows(x, residual, weight, eps, adds_one, *where)


def _modulated(where, x, scale, shift, eps):
    return _quern.modulated_norm_rows(x, scale, shift, eps, *where)


def _gated_residual(where, x, residual, gate, scale, shift, eps):
    return _quern.gated_norm_rows(x, residual, gate, scale, shift, eps, *where)


def _gated(function):
    return lambda where, x: _quern.activation_rows(x, function, 0.0, *where)


# op -> the function that records it: ((device, allow_slow), the op's inputs and numbers)
_RECORDED = {
    "rmsnorm": _rms(False), "gemma_rmsnorm": _rms(True),
    "fused_add_rmsnorm": _added_rms(False), "gemma_fused_add_rmsnorm": _added_rms(True),
    "layernorm": lambda where, x, gamma, beta, eps: _quern.norm_rows(x, gamma, beta, eps, True, False, *where),
    "adaptive_layernorm": _modulated, "gated_residual_layernorm": _gated_residual,
    "silu_and_mul": _gated(0), "gelu_and_mul": _gated(1), "gelu_tanh_and_mul": _gated(2),
    "act_and_mul": lambda where, x, function, limit: _quern.activation_rows(x, function, limit, *where),
    "apply_rope": _rope, "apply_llama31_rope": _rope,
    "apply_rope_pos_ids": _rope_positions, "apply_llama31_rope_pos_ids": _rope_positions,
    "apply_rope_with_cos_sin_cache":
        lambda where, q, k, cache, positions, interleave: _pair(_quern.rotated_by_cache(q, k, cache, positions, bool(interleave), *where), k),
    "qk_rmsnorm_rope": _normed_rope,
}
# Tables, by which there is no gradient: where they stand.
_TABLES = {"apply_rope_with_cos_sin_cache": {"cos_sin_cache": 2}, "qk_rmsnorm_rope": {"cos": 4, "sin": 5}}


def record(name, *inputs, device="", allow_slow=True):
    """Computes an op whose result autograd records, and returns the result; None if autograd will ask for no gradient, or if the op
    has none. inputs: the op's arguments without those that are written."""
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    if name not in _RECORDED or not is_needed(*tensors) or any(map(is_transformed, tensors)):
        return None
    tables = _TABLES.get(name, {})
    refuse_gradients(name, tables, [inputs[i] for i in tables.values()])
    return _RECORDED[name]((device, allow_slow), *inputs)


_ops.record = record
