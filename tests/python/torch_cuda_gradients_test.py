# SPDX-License-Identifier: Apache-2.0
"""Gradients of norms and gated activations on PyTorch's CUDA tensors, of sizes that reach each GPU kernel. Skipped where there is no
CUDA device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import torch_row_gradients_test as rows  # noqa: E402

import quern.torch  # noqa: E402

NAMES = [name for name in rows.CALLS if "rope" not in name]
OPS = {"norm_backward.gpu_kept", "norm_backward.gpu_any", "activation_backward.gpu_tile", "activation_backward.gpu_any"}


def inputs_of(name, dtype, h):
    """Makes the inputs of a call with h columns, on the device."""
    return [x.detach().cuda().requires_grad_() for x in rows.tensors(*rows.shapes_of(name, h), dtype=dtype)]


@pytest.mark.parametrize("dtype", rows.DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, dtype):
    """Tests gradients against PyTorch's in double precision: rows of whole runs, and others; and that a second call gives the same
    bits."""
    _, ours, theirs = rows.CALLS[name]
    for h in (1024, 111):
        inputs = inputs_of(name, dtype, h)
        wide = [x.detach().double().requires_grad_() for x in inputs]
        got, again, want = rows.results(ours, inputs), rows.results(ours, inputs), rows.as_list(theirs(*wide))
        rows.loss_of(want, dtype).backward()
        rows.assert_close(got, [*want, *(x.grad for x in wide)], dtype)
        assert all(map(torch.equal, got, again))


def test_every_kernel_ran():
    """Tests that the calls above reach the kernels that they are for."""
    before = quern.torch.calls.copy()
    for h in (1024, 111):
        for name in ("gated_residual_layernorm", "silu_and_mul"):
            rows.results(rows.CALLS[name][1], inputs_of(name, torch.bfloat16, h))
    assert OPS <= set(quern.torch.calls - before)
