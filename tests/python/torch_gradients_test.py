# SPDX-License-Identifier: Apache-2.0
"""Gradients of scaled_dot_product_attention under quern.torch.enable(), against PyTorch's own in double precision."""

import pytest

torch = pytest.importorskip("torch")

import quern  # noqa: E402
import quern.torch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

attention = torch.nn.functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def enabled():
    with quern.torch.enable(fallback="error") as registration:
        yield registration


def tensors(*shapes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, generator=generator).to(dtype).requires_grad_() for shape in shapes]


def in_double(inputs, **options):
    """Returns the result and gradients that PyTorch's operators give in double precision."""
    quern.torch.disable()
    wide = [x.detach().double().requires_grad_() for x in inputs]
    options = {name: x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for name, x in options.items()}
    out = attention(*wide, **options)
    out.sin().sum().backward()
    quern.torch.enable(fallback="error")
    return [out, *(x.grad for x in wide)]


def assert_close(got, want, dtype):
    for g, w in zip(got, want, strict=True):
        # o is rounded to the dtype before and after sin, gradients once more; sums in f32 have 64 terms of order 1
        step, of_sums = torch.finfo(dtype).eps, torch.finfo(torch.float32).eps
        torch.testing.assert_close(g.double(), w, rtol=4 * step, atol=16 * step + 64 * of_sums)


SHAPES = {"plain": ((2, 3, 9, 32), (2, 3, 12, 32), (2, 3, 12, 32)), "one": ((7, 16), (5, 16), (5, 16)),
          "three": ((4, 7, 16), (4, 5, 16), (4, 5, 8)), "five": ((2, 2, 3, 7, 16), (2, 2, 3, 5, 16), (2, 2, 3, 5, 16)),
          "broadcast": ((2, 3, 9, 32), (1, 3, 12, 32), (2, 1, 12, 32))}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("is_causal", [False, True])
def test_shapes(enabled, shapes, dtype, is_causal):
    inputs = tensors(*shapes, dtype=dtype)
    out = attention(*inputs, is_causal=is_causal)
    out.sin().sum().backward()
    assert {kernel.split(".")[0] for kernel in enabled.calls} == {"attention", "attention_backward"}
    assert_close([out, *(x.grad for x in inputs)], in_double(inputs, is_causal=is_causal), dtype)


def test_groups(enabled):
    inputs = tensors((2, 6, 9, 32), (2, 2, 9, 32), (2, 2, 9, 32))
    out = attention(*inputs, enable_gqa=True, scale=0.3)
    out.sin().sum().backward()
    assert_close([out, *(x.grad for x in inputs)], in_double(inputs, enable_gqa=True, scale=0.3), torch.float32)


@pytest.mark.parametrize("shape", [(2, 3, 9, 12), (1, 3, 9, 12), (2, 1, 1, 12), (9, 12), (9, 1)])
def test_mask_of_numbers(shape):
    """Tests the mask's own gradient, which is summed where the mask is repeated."""
    inputs = tensors((2, 3, 9, 32), (2, 3, 12, 32), (2, 3, 12, 32))
    mask, = tensors(shape)
    attention(*inputs, attn_mask=mask).sin().sum().backward()
    quern.torch.disable()
    wide, wide_mask = [x.detach().double().requires_grad_() for x in inputs], mask.detach().double().requires_grad_()
    attention(*wide, attn_mask=wide_mask).sin().sum().backward()
    assert_close([mask.grad, *(x.grad for x in inputs)], [wide_mask.grad, *(x.grad for x in wide)], torch.float32)


def test_mask_of_booleans():
    inputs = tensors((2, 3, 9, 32), (2, 3, 12, 32), (2, 3, 12, 32))
    mask = torch.rand(9, 12) > 0.3
    mask[:, 0] = True
    attention(*inputs, attn_mask=mask).sin().sum().backward()
    assert_close([x.grad for x in inputs], in_double(inputs, attn_mask=mask)[1:], torch.float32)


def test_dropout_uses_the_same_weights():
    """Tests that the gradient by v is that of the weights which the result shows: both are linear in v."""
    q, k, v = tensors((1, 2, 9, 16), (1, 2, 12, 16), (1, 2, 12, 12))
    torch.manual_seed(5)
    weights = attention(q, k, torch.eye(12).expand(1, 2, 12, 12), dropout_p=0.4)
    torch.manual_seed(5)
    out = attention(q, k, v, dropout_p=0.4)
    d_out = torch.randn_like(out)
    out.backward(d_out)
    assert (weights == 0).any()
    torch.testing.assert_close(v.grad, weights.detach().transpose(-1, -2) @ d_out)


def test_only_what_needs_it():
    q, k, v = tensors((1, 2, 9, 16), (1, 2, 12, 16), (1, 2, 12, 16))
    attention(q.detach(), k, v.detach()).sum().backward()
    assert q.grad is None and v.grad is None and k.grad is not None


def test_checkpoint_and_compile():
    """Tests that both give the bits of the plain call, with dropout."""
    q, k, v = tensors((1, 2, 9, 16), (1, 2, 12, 16), (1, 2, 12, 16))
    results = []
    for call in (attention, lambda *x, **o: checkpoint(attention, *x, use_reentrant=False, **o),
                 torch.compile(attention, backend="aot_eager")):
        torch.manual_seed(3)
        for x in (q, k, v):
            x.grad = None
        call(q, k, v, dropout_p=0.3).sin().sum().backward()
        results.append([x.grad for x in (q, k, v)])
    for other in results[1:]:
        assert all(map(torch.equal, other, results[0]))


def test_second_gradient_is_refused():
    q, k, v = tensors((1, 2, 9, 16), (1, 2, 12, 16), (1, 2, 12, 16))
    first, = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="gradient of its gradient"):
        first.sum().backward()


def test_simulated_gpu():
    """Tests that a slow kernel must be asked for, and gives what the CPU gives."""
    inputs = tensors((1, 2, 9, 16), (1, 2, 12, 16), (1, 2, 12, 16))
    quern.torch.disable()
    with quern.torch.enable("sim:gfx942", fallback="error"), pytest.raises(NotImplementedError, match="allow_slow"):
        attention(*inputs)
    with quern.torch.enable("sim:gfx942", fallback="error", allow_slow=True) as there:
        attention(*inputs, is_causal=True).sin().sum().backward()
    assert "attention_backward.gpu_any" in there.calls
    assert_close([x.grad for x in inputs], in_double(inputs, is_causal=True)[1:], torch.float32)


@pytest.mark.parametrize(("chip", "dtype"), [("gfx942", torch.bfloat16), ("gfx942", torch.float16), ("gfx1151", torch.bfloat16),
                                             ("gfx90a", torch.bfloat16)])
def test_matrix_cores(chip, dtype):
    """Tests that calls with a fast kernel need not be asked for."""
    inputs = tensors((1, 4, 40, 72), (1, 2, 40, 72), (1, 2, 40, 72), dtype=dtype)
    quern.torch.disable()
    with quern.torch.enable(f"sim:{chip}", fallback="error") as there:
        out = attention(*inputs, is_causal=True, enable_gqa=True)
        out.sin().sum().backward()
    assert f"attention_backward.gpu_tile_128_{'f16' if dtype == torch.float16 else 'bf16'}" in there.calls
    assert_close([out, *(x.grad for x in inputs)], in_double(inputs, is_causal=True, enable_gqa=True), dtype)


def test_mask_on_matrix_cores():
    """Tests that the gradient of a mask with all queries and keys need not be asked for, and is summed over batches and heads."""
    inputs = tensors((2, 2, 9, 64), (2, 2, 12, 64), (2, 2, 12, 64), dtype=torch.bfloat16)
    mask, = tensors((9, 12), dtype=torch.bfloat16)
    quern.torch.disable()
    with quern.torch.enable("sim:gfx942", fallback="error") as there:
        attention(*inputs, attn_mask=mask).sin().sum().backward()
    assert "attention_backward.gpu_tile_64_bf16" in there.calls
    wide, wide_mask = [x.detach().double().requires_grad_() for x in inputs], mask.detach().double().requires_grad_()
    attention(*wide, attn_mask=wide_mask).sin().sum().backward()
    assert_close([mask.grad, *(x.grad for x in inputs)], [wide_mask.grad, *(x.grad for x in wide)], torch.bfloat16)


@pytest.mark.parametrize("chip", ["gfx942", "gfx1151"])
def test_dropout_on_matrix_cores(chip):
    """Tests that both passes drop the same weights, and keep about as many as they should."""
    q, k, v = tensors((1, 2, 40, 64), (1, 2, 64, 64), (1, 2, 64, 64), dtype=torch.float16)
    quern.torch.disable()
    with quern.torch.enable(f"sim:{chip}", fallback="error") as there:
        torch.manual_seed(5)
        weights = attention(q, k, torch.eye(64, dtype=torch.float16).expand(1, 2, 64, 64), dropout_p=0.25).detach().double()
        torch.manual_seed(5)
        out = attention(q, k, v, dropout_p=0.25)
        d_out = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).half()
        out.backward(d_out)
    assert there.calls == {"attention.gpu_tile_64_f16": 2, "attention_backward.gpu_tile_64_f16": 1}
    # each pass rounds a weight, and its result, to f16; the least weight that f16 holds is 2^-24
    turned, steps = weights.transpose(-1, -2), 4 * 2.0**-11
    bound = steps * turned @ d_out.double().abs() + 2.0**-24 * d_out.double().abs().sum(-2, keepdim=True) + 2.0**-24
    assert ((v.grad.double() - turned @ d_out.double()).abs() <= bound).all()
    assert 0.2 < (weights == 0).double().mean() < 0.3  # of 5120: 8 standard deviations to either side


@pytest.mark.parametrize("case", ["f16 on gfx90a", "gradient of a mask of keys", "gradient of a mask of queries", "head_dim 136"])
def test_no_matrix_cores(case):
    """Tests that calls without a fast kernel are left to PyTorch before anything runs."""
    dim = 136 if case == "head_dim 136" else 64
    inputs = tensors((1, 2, 9, dim), (1, 2, 9, dim), (1, 2, 9, dim), dtype=torch.float16)
    shapes = {"gradient of a mask of keys": (1, 9), "gradient of a mask of queries": (2, 9, 1)}
    mask = torch.zeros(shapes[case], dtype=torch.float16, requires_grad=True) if case in shapes else None
    quern.torch.disable()
    chip = "gfx90a" if case == "f16 on gfx90a" else "gfx942"
    with quern.torch.enable(f"sim:{chip}", fallback="error"), pytest.raises(NotImplementedError, match="allow_slow"):
        attention(*inputs, attn_mask=mask)
