# SPDX-License-Identifier: Apache-2.0
"""Calls for which a GPU has a slow kernel alone: PyTorch's unless asked for, and never without a word."""

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402
from quern.compat.flashinfer import _run  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

SIM = "sim:gfx942"


def inputs(dtype=torch.float32, n=5, dim=64):
    """As models make them: [batch, heads, n, dim] of [batch, n, heads, dim]."""
    torch.manual_seed(1)
    return [torch.randn(1, n, 2, dim).to(dtype).transpose(1, 2) for _ in range(3)]


def said(caplog, logger):
    return [record.getMessage() for record in caplog.records if record.name == logger]


@pytest.mark.parametrize("dtype, dim, options, text", [
    (torch.float32, 64, {}, "torch.float32 with head_dim 64 on sim:gfx942 takes attention.gpu_any"),
    (torch.bfloat16, 264, {}, "head_dim 264"), (torch.bfloat16, 64, {"dropout_p": 0.25}, "head_dim 64, dropout_p 0.25")])
def test_kept_out(dtype, dim, options, text, caplog):
    with quern.torch.enable(SIM) as registration:
        for n in (3, 5):
            tensors = inputs(dtype, n, dim)
            torch.manual_seed(2)
            got = sdpa(*tensors, **options)
    torch.manual_seed(2)
    assert not registration.calls and registration.fallbacks.total() == 2
    line, = (line for line in said(caplog, "quern.torch") if "which is slow" in line)
    assert text in line and "allow_slow=True" in line
    torch.testing.assert_close(got, sdpa(*tensors, **options))  # with dropout, too: no number was drawn
    with quern.torch.enable(SIM, fallback="error"), pytest.raises(NotImplementedError, match="which is slow"):
        sdpa(*tensors, **options)
    with quern.torch.enable(SIM, fallback="error", allow_slow=True) as registration:
        sdpa(*tensors, **options)
    assert registration.calls == {"attention.gpu_any": 1}


def test_what_is_not_slow():
    for device, dtype in ((SIM, torch.bfloat16), ("cpu", torch.float32)):
        with quern.torch.enable(device, fallback="error") as registration:
            sdpa(*inputs(dtype))
        assert registration.calls.total() == 1


def test_kept_out_of_graphs():
    """What PyTorch computes in the op's place has the strides that the graph counts on."""
    tensors = inputs()

    def attend(q, k, v):
        return sdpa(q, k, v).transpose(1, 2).reshape(1, -1, 128) * 2

    with torch.no_grad(), quern.torch.enable(SIM) as registration:
        torch._dynamo.reset()
        got = torch.compile(attend, fullgraph=True, backend="aot_eager")(*tensors)
        assert not registration.calls and registration.fallbacks.total() == 1
    torch.testing.assert_close(got, attend(*tensors))


def test_by_name():
    sinks = torch.zeros(2)
    arguments = (*inputs(), None, 0.0, False, None, False, SIM)
    with torch.no_grad():
        torch.testing.assert_close(torch.ops.quern.scaled_dot_product_attention(*arguments), sdpa(*inputs()))
        with pytest.raises(NotImplementedError, match="which is slow; allow_slow=True"):  # PyTorch's function has no sinks
            torch.ops.quern.scaled_dot_product_attention(*arguments, sinks)
        torch.ops.quern.scaled_dot_product_attention(*arguments, sinks, allow_slow=True)
    assert quern.last_kernel() == "attention.gpu_any"


def test_a_patched_model_says_so_once_a_shape(caplog):
    norm = torch.nn.Sequential(torch.nn.RMSNorm(63, eps=1e-6)).eval()
    with quern.patch(norm, SIM) as patch, torch.no_grad():
        for rows in (2, 3):
            norm(torch.randn(rows, 63))
        assert patch.calls == {("rmsnorm", "norm.gpu_any"): 2}
    assert len([line for line in said(caplog, "quern.patch") if "takes norm.gpu_any, which is slow" in line]) == 1


def test_the_stand_in_says_so_once_a_shape(caplog):
    for n in (2, 3):
        q = torch.randn(1, n, 2, 40)
        quern.attention(*[quern.to(q, SIM)] * 3)
        _run.log("single_prefill_with_kv_cache", [q[0]])
    assert len([line for line in said(caplog, "quern.compat.flashinfer") if "takes attention.gpu_any, which is slow" in line]) == 1
