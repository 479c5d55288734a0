# SPDX-License-Identifier: Apache-2.0
"""Gradients of norms, gated activations and rotations, against PyTorch's own in double precision, and what refuses gradients."""

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
import quern.torch  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

H, HEAD, THETA = 40, 16, 1e4
DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


# ---- the same by PyTorch's operators

def rms(x, weight, shift=0):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * (weight + shift)


def gated(function):
    def call(x):
        gate, up = x.chunk(2, -1)
        return function(gate) * up

    return call


def limited(x):
    gate, up = x.chunk(2, -1)
    return functional.silu(gate.clamp(max=0.7)) * up.clamp(-0.7, 0.7)


def turn(x, angles, interleave=False):
    """Rotates [n, heads, d] by angles [n, w / 2]; what lies behind w is copied."""
    turned, rest = x[..., :2 * angles.shape[1]], x[..., 2 * angles.shape[1]:]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleave else turned.chunk(2, -1)
    halves = a * cos - b * sin, b * cos + a * sin
    return torch.cat((torch.stack(halves, -1).flatten(-2) if interleave else torch.cat(halves, -1), rest), -1)


def angles(positions, width=HEAD, scale=1.0, theta=THETA):
    frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width) / scale
    return positions.double()[:, None] * frequencies


POSITIONS = torch.tensor([3, 0, 7, 100, 5], dtype=torch.int32)
INDPTR, OFFSETS = torch.tensor([0, 2, 5], dtype=torch.int32), torch.tensor([4, 9], dtype=torch.int32)
SEGMENTED = torch.tensor([4, 5, 9, 10, 11])
CACHE = torch.cat((angles(torch.arange(101)).cos(), angles(torch.arange(101)).sin()), -1).float()
TABLES = [angles(POSITIONS).repeat(1, 2).cos().float(), angles(POSITIONS).repeat(1, 2).sin().float()]
QK = ((5, 4, HEAD), (5, 2, HEAD))


def both(angles, interleave=False):
    return lambda q, k: (turn(q, angles, interleave), turn(k, angles, interleave))


def modulated(x, scale, shift):
    return functional.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale[:, None]) + shift[:, None]


def gated_residual(x, residual, gate, scale, shift):
    total = residual + gate[:, None] * x
    return modulated(total, scale, shift), total.abs()  # whose gradient does not feel that total is rounded


def gated_residual_here(x, residual, gate, scale, shift):
    """Returns the call's result, and of what it made of residual, in place, the absolute value."""
    total = residual * 1
    return quern.gated_residual_layernorm(x, total, gate, scale, shift), total.abs()


ROWS, BATCHED = (2, 5, H), (2, H)

# name -> (shapes of what has gradients, quern's call, PyTorch's)
CALLS = {
    "rmsnorm": (((6, H), (H,)), quern.rmsnorm, rms),
    "rmsnorm of heads": (((6, 3, H), (H,)), quern.rmsnorm, rms),
    "gemma_rmsnorm": (((6, H), (H,)), quern.gemma_rmsnorm, lambda x, weight: rms(x, weight, 1)),
    "layernorm": (((6, H), (H,), (H,)), quern.layernorm, lambda x, w, b: functional.layer_norm(x, w.shape, w, b, 1e-6)),
    "layernorm alone": (((6, H),), quern.layernorm, lambda x: functional.layer_norm(x, x.shape[-1:], eps=1e-6)),
    "layernorm with beta": (((6, H), (H,)), lambda x, b: quern.layernorm(x, None, b), lambda x, b: functional.layer_norm(x, b.shape, None, b, 1e-6)),
    "adaptive_layernorm": ((ROWS, BATCHED, BATCHED), quern.adaptive_layernorm, modulated),
    "adaptive_layernorm of one row": ((ROWS, (1, H), (1, H)), lambda x, *rows: quern.adaptive_layernorm(x, *(r.expand(2, -1) for r in rows)),
                                      modulated),
    "gated_residual_layernorm": ((ROWS, ROWS, BATCHED, BATCHED, BATCHED), gated_residual_here, gated_residual),
    "silu_and_mul": (((3, 4, 2 * H),), quern.silu_and_mul, gated(functional.silu)),
    "gelu_and_mul": (((5, 2 * H),), quern.gelu_and_mul, gated(functional.gelu)),
    "gelu_tanh_and_mul": (((2 * H,),), quern.gelu_tanh_and_mul, gated(lambda x: functional.gelu(x, approximate="tanh"))),
    "act_and_mul": (((5, 2 * H),), lambda x: quern.act_and_mul(x, "silu", 0.7), limited),
    "apply_rope_pos_ids": (QK, lambda q, k: quern.apply_rope_pos_ids(q, k, POSITIONS), both(angles(POSITIONS))),
    "apply_rope_pos_ids of q": (QK[:1], lambda q: quern.apply_rope_pos_ids(q, None, POSITIONS)[0], lambda q: turn(q, angles(POSITIONS))),
    "apply_rope_pos_ids in part": (QK, lambda q, k: quern.apply_rope_pos_ids(q, k, POSITIONS, 8, True, 2.0, 500.0),
                                   both(angles(POSITIONS, 8, 2.0, 500.0), True)),
    "apply_llama31_rope_pos_ids": (QK, lambda q, k: quern.apply_llama31_rope_pos_ids(q, k, POSITIONS, rope_scale=1.0),
                                   both(angles(POSITIONS, theta=5e5))),
    "apply_rope": (QK, lambda q, k: quern.apply_rope(q, k, INDPTR, OFFSETS), both(angles(SEGMENTED))),
    "apply_llama31_rope": (QK, lambda q, k: quern.apply_llama31_rope(q, k, INDPTR, OFFSETS, rope_scale=1.0), both(angles(SEGMENTED, theta=5e5))),
    "apply_rope_with_cos_sin_cache": (QK, lambda q, k: quern.apply_rope_with_cos_sin_cache(q, k, CACHE, POSITIONS), both(angles(POSITIONS))),
    "qk_rmsnorm_rope": ((*QK, (HEAD,), (HEAD,)), lambda q, k, wq, wk: quern.qk_rmsnorm_rope(q, k, wq, wk, *TABLES),
                        lambda q, k, wq, wk: both(angles(POSITIONS))(rms(q, wq), rms(k, wk))),
}


def shapes_of(name, h):
    """Returns the shapes of a call of norms or activations, with h columns in place of H."""
    return [tuple(h * size // H if size in (H, 2 * H) else size for size in shape) for shape in CALLS[name][0]]


def as_list(out):
    return list(out) if isinstance(out, tuple) else [out]


def loss_of(outputs, dtype=torch.float32):
    """Returns a loss whose gradients by the outputs are numbers of the dtype."""
    return sum((out * torch.linspace(-1, 2, out.numel(), dtype=dtype, device=out.device).to(out.dtype).view(out.shape)).sum() for out in outputs)


def results(call, inputs):
    """Returns the outputs of a call and the gradients by its inputs."""
    for x in inputs:
        x.grad = None
    outputs = as_list(call(*inputs))
    loss_of(outputs, inputs[0].dtype).backward()
    return [*(out.detach() for out in outputs), *(x.grad for x in inputs)]


def assert_close(got, want, dtype):
    step = torch.finfo(dtype).eps
    for g, w in zip(got, want, strict=True):
        # Inputs and d_out are exact. Each sum has at most 200 terms of order 1; norms of heads are rounded twice.
        assert g.dtype == dtype
        torch.testing.assert_close(g.double(), w.double(), rtol=4 * step, atol=4 * step + 200 * 2.0**-22)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CALLS)
def test_gradients(name, dtype):
    shapes, ours, theirs = CALLS[name]
    inputs = tensors(*shapes, dtype=dtype)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    got = results(ours, inputs)
    outputs = as_list(theirs(*wide))
    loss_of(outputs, dtype).backward()
    assert_close(got, [*outputs, *(x.grad for x in wide)], dtype)


@pytest.mark.parametrize("is_gemma", [False, True])
def test_fused_add(is_gemma):
    """Tests that both tensors are replaced in place, with one gradient for both."""
    x, residual, weight = tensors((6, H), (6, H), (H,))
    wide = [t.detach().double().requires_grad_() for t in (x, residual, weight)]
    a, b = x * 1, residual * 1
    (quern.gemma_fused_add_rmsnorm if is_gemma else quern.fused_add_rmsnorm)(a, b, weight)
    loss_of([a, b.sin()]).backward()
    total = wide[0] + wide[1]
    loss_of([rms(total, wide[2], int(is_gemma)), total.sin()]).backward()
    assert_close([a.detach(), x.grad, residual.grad, weight.grad], [rms(total, wide[2], int(is_gemma)), *(t.grad for t in wide)],
                 torch.float32)
    with pytest.raises(RuntimeError, match="leaf"):
        quern.fused_add_rmsnorm(x, residual, weight)


def test_weights_of_f32():
    x, = tensors((6, H), dtype=torch.bfloat16)
    weight, = tensors((H,))
    quern.rmsnorm(x, weight).float().sum().backward()
    assert x.grad.dtype == torch.bfloat16 and weight.grad.dtype == torch.float32


def test_only_what_needs_it():
    x, weight = tensors((6, H), (H,))
    quern.rmsnorm(x.detach(), weight).sum().backward()
    assert x.grad is None and weight.grad is not None
    weight.grad = None
    quern.rmsnorm(x, weight.detach()).sum().backward()
    assert x.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not quern.rmsnorm(x, weight).requires_grad


@pytest.mark.parametrize("i", range(5))
def test_only_one_of_a_gate_needs_it(i):
    """Tests that each gradient alone has the bits that it has among all."""
    shapes, call, _ = CALLS["gated_residual_layernorm"]
    inputs = tensors(*shapes)
    want = results(call, inputs)[2 + i]
    alone = [x.detach().requires_grad_(k == i) for k, x in enumerate(inputs)]
    loss_of(call(*alone)).backward()
    assert torch.equal(alone[i].grad, want) and all(x.grad is None for k, x in enumerate(alone) if k != i)


def test_modulation_of_f32():
    x, = tensors(ROWS, dtype=torch.bfloat16)
    scale, shift = tensors(BATCHED, BATCHED)
    quern.adaptive_layernorm(x, scale, shift).float().sum().backward()
    assert x.grad.dtype == torch.bfloat16 and scale.grad.dtype == shift.grad.dtype == torch.float32


def test_no_rows():
    x, weight = tensors((0, H), (H,))
    quern.rmsnorm(x, weight).sum().backward()
    assert x.grad.shape == (0, H) and (weight.grad == 0).all()


@pytest.mark.parametrize("name", ["rmsnorm", "layernorm", "adaptive_layernorm", "gated_residual_layernorm", "gelu_and_mul",
                                  "apply_rope_pos_ids", "qk_rmsnorm_rope"])
def test_checkpoint_and_compile(name):
    """Tests that both give the bits of the plain call."""
    shapes, call, _ = CALLS[name]
    inputs = tensors(*shapes)
    plain = results(call, inputs)
    for other in (lambda *x: checkpoint(call, *x, use_reentrant=False), torch.compile(call, backend="aot_eager", fullgraph=True)):
        assert all(map(torch.equal, results(other, inputs), plain))


@pytest.mark.parametrize("name", ["rmsnorm", "adaptive_layernorm", "gated_residual_layernorm", "silu_and_mul"])
def test_second_gradient_is_refused(name):
    inputs = tensors(*CALLS[name][0])
    first, = torch.autograd.grad(loss_of(as_list(CALLS[name][1](*inputs))), inputs[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="gradient of its gradient"):
        first.sum().backward()


def test_rotations_have_second_gradients():
    """Tests that a gradient is a rotation in turn, which autograd records."""
    q, = tensors((5, 4, HEAD))
    first, = torch.autograd.grad(quern.apply_rope_pos_ids(q, None, POSITIONS)[0].square().sum(), q, create_graph=True)
    second, = torch.autograd.grad(first.square().sum() / 4, q)
    torch.testing.assert_close(second, 2 * q.detach())  # the gradient of |2 q|^2 / 4


def refused(call, name):
    with pytest.raises(RuntimeError, match=rf"{name} requires a gradient, and quern computes none of this call; accepted: {name}.detach\(\)"):
        call()


def test_what_has_none_refuses():
    """Tests that all refuse with one message: an op without gradients, a given out, and a table's gradient."""
    x, weight = tensors((6, H), (H,))
    q, cache = tensors((5, 4, HEAD), (101, HEAD))
    refused(lambda: quern.rmsnorm_dynamic_quant(x, weight), "x")
    refused(lambda: quern.rmsnorm(x, weight, out=torch.empty(6, H)), "x")
    refused(lambda: quern.softmax(x), "logits")
    refused(lambda: quern.apply_rope_with_cos_sin_cache(q, None, cache, POSITIONS), "cos_sin_cache")
    refused(lambda: torch.ops.quern.rmsnorm(torch.empty(6, H), x, weight, 1e-6), "x")


def test_calls_are_counted():
    before = quern.torch.calls.copy()
    x, weight = tensors((6, H), (H,))
    quern.silu_and_mul(quern.rmsnorm(x, weight)).sum().backward()
    families = {kernel.partition(".")[0] for kernel in quern.torch.calls - before}
    assert families == {"norm", "norm_backward", "activation", "activation_backward"}
