# SPDX-License-Identifier: Apache-2.0
"""PyTorch tensors that quern does not take: those that need a gradient, and those whose memory does not hold what they mean."""

import os
import subprocess
import sys

import arguments
import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
from quern.compat import aotriton, flashinfer  # noqa: E402
from torch_tools import arguments_of, written  # noqa: E402

X, WEIGHT = torch.randn(4, 64), torch.ones(64)


def wanting(x):
    return x.clone().requires_grad_()


# ---- gradients

def test_an_op_and_its_argument_are_named():
    with pytest.raises(RuntimeError, match=r"rmsnorm_dynamic_quant: weight requires a gradient.*weight\.detach\(\).*torch\.no_grad\(\)"):
        quern.rmsnorm_dynamic_quant(X, wanting(WEIGHT))
    with pytest.raises(RuntimeError, match="to: x requires a gradient"):
        quern.to(wanting(X), "sim:gfx942")


def last_of_floats(name):
    """Returns the place of an op's last argument that may need a gradient, or None if all are integers."""
    return next((i for i, x in reversed(list(enumerate(arguments_of(name))))
                 if isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype.itemsize > 1), None)


@pytest.mark.parametrize("name", [name for name in arguments.NAMES if last_of_floats(name) is not None])
def test_every_op_refuses(name):
    """Tests that every op refuses such a tensor, eager and as a custom op, and writes nothing."""
    names, at = quern._ops.TENSORS[name], last_of_floats(name)
    values = arguments_of(name)
    values[at].requires_grad_()
    before = [x.detach().clone() for x in written(name, values)]
    for call in (getattr(quern._ops, name), getattr(torch.ops.quern, name)):
        with pytest.raises(RuntimeError, match=f"^{name}: {names[at]} requires a gradient"):
            call(*values)
    assert all(torch.equal(x.view(torch.uint8), y.view(torch.uint8))
               for x, y in zip(before, [x.detach() for x in written(name, values)], strict=True))
    with torch.no_grad():
        getattr(quern._ops, name)(*values)


def test_nothing_is_refused_where_nothing_is_recorded():
    want = quern.rmsnorm(X, WEIGHT)
    for context in (torch.no_grad(), torch.inference_mode()):
        with context:
            assert torch.equal(quern.rmsnorm(wanting(X), wanting(WEIGHT)), want)
    assert torch.equal(quern.rmsnorm(wanting(X).detach(), WEIGHT), want)


def test_compiled():
    """Tests that a graph that would need a gradient is not made, and that the same function without one is."""
    def call(x, weight):
        return quern.gemm(x, weight[None])

    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="gemm: b requires a gradient"):
        compiled(X, wanting(WEIGHT))
    with torch.no_grad():
        assert torch.equal(compiled(X, wanting(WEIGHT)), call(X, WEIGHT))


def test_the_stand_ins():
    q, k = torch.randn(3, 4, 64), torch.randn(9, 2, 64)
    with pytest.raises(RuntimeError, match="rmsnorm: weight requires a gradient"):
        flashinfer.rmsnorm(X, wanting(WEIGHT))
    with pytest.raises(RuntimeError, match="single_prefill_with_kv_cache: k requires a gradient"):
        flashinfer.single_prefill_with_kv_cache(q, wanting(k), k)
    x = torch.randn(1, 2, 5, 64)
    with pytest.raises(RuntimeError, match="attention: v requires a gradient"):
        aotriton.attn_fwd(x, x, wanting(x), None, 0.125, None, torch.empty_like(x))


def test_pytorchs_operators_in_the_stand_in_refuse_too():
    code = ("import torch, quern.compat.flashinfer as f\n"
            "x, k = torch.randn(4, 64, requires_grad=True), torch.randn(4, 2, 64, requires_grad=True)\n"
            "for call in (lambda: f.rmsnorm(x, torch.ones(64)), lambda: f.single_prefill_with_kv_cache(k, k, k)):\n"
            "    try: call()\n"
            "    except RuntimeError as error: assert 'requires a gradient' in str(error)\n"
            "    else: raise SystemExit('nothing was refused')\n")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "SGLANG_DISABLE_FLASHINFER": "1"})


def test_attention_by_name():
    query = torch.randn(1, 2, 5, 64)
    with pytest.raises(RuntimeError, match="scaled_dot_product_attention: key requires a gradient"):
        torch.ops.quern.scaled_dot_product_attention(query, wanting(query), query, None, 0.0, False, None, False, "")


# ---- what the memory does not hold

def fake():
    with torch._subclasses.FakeTensorMode():
        return torch.empty(4, 64)


FAULTY = {
    "a negated view": lambda: torch._neg_view(X),
    "a conjugated view": lambda: torch.randn(4, 64, dtype=torch.complex64).conj(),
    "layout torch.sparse_coo": X.to_sparse,
    "layout torch._mkldnn": X.to_mkldnn,
    "is on meta": lambda: X.to("meta"),
    "dtype torch.quint8": lambda: torch.quantize_per_tensor(X, 1.0, 0, torch.quint8),
    "a nested tensor": lambda: torch.nested.nested_tensor([X]),
    "a FakeTensor without memory": fake,
}


@pytest.mark.parametrize("text", FAULTY)
def test_what_is_wrong_is_said(text):
    out = torch.full_like(X, 7)
    with pytest.raises(ValueError, match=rf"^rmsnorm: x .*{text}.*; accepted: "):
        quern.rmsnorm(FAULTY[text](), WEIGHT, out=out)
    assert (out == 7).all()
    with pytest.raises(ValueError, match=rf"^to: x .*{text}"):
        quern.to(FAULTY[text](), "cpu")


def test_resolved_views_are_taken():
    view = torch._neg_view(X)
    assert torch.equal(quern.rmsnorm(view.resolve_neg(), WEIGHT), quern.rmsnorm(-X, WEIGHT))


def test_transforms_of_functions():
    with pytest.raises(ValueError, match=r"rmsnorm: x is a tensor inside torch\.func\.vmap"):
        torch.func.vmap(quern.rmsnorm, (0, None))(X[None], WEIGHT)
    with pytest.raises(RuntimeError, match="rmsnorm: x requires a gradient"):
        torch.func.grad(lambda x: quern.rmsnorm(x, WEIGHT).sum())(X)


def test_imported_after_quern():
    """Tests that the first PyTorch tensor that a function meets is checked like any other."""
    code = ("import quern, torch\n"
            "x = torch.randn(4, 64)\n"
            "try: quern.rmsnorm(torch._neg_view(x), torch.ones(64), out=torch.empty(4, 64))\n"
            "except ValueError as error: assert 'rmsnorm: x is a negated view' in str(error)\n"
            "else: raise SystemExit('nothing was refused')\n")
    subprocess.run([sys.executable, "-c", code], check=True)
