# SPDX-License-Identifier: Apache-2.0
"""Calls for which a GPU has a slow kernel alone: PyTorch's unless asked for, and never without a word."""

import concurrent.futures

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402
from torch_tools import arguments_of, written  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat import _fallback  # noqa: E402
from quern.compat.flashinfer import _run  # noqa: E402
from quern.torch import _slow  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

SIM = "sim:gfx942"


def inputs(dtype=torch.float32, n=5, dim=64):
    """Returns inputs as models make them: [batch, heads, n, dim] of [batch, n, heads, dim]."""
    torch.manual_seed(1)
    return [torch.randn(1, n, 2, dim).to(dtype).transpose(1, 2) for _ in range(3)]


def said(caplog, logger):
    return [record.getMessage() for record in caplog.records if record.name == logger]


@pytest.mark.parametrize("dtype, dim, options, text", [
    (torch.float32, 64, {}, "torch.float32 with head_dim 64: attention: on sim:gfx942 (gfx942) this takes attention.gpu_any_128"),
    (torch.bfloat16, 264, {}, "head_dim 264"), (torch.float32, 64, {"dropout_p": 0.25}, "head_dim 64, dropout_p 0.25")])
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
    assert registration.calls == {"attention.gpu_any_128" if dim <= 128 else "attention.gpu_any_512": 1}


def test_what_is_not_slow():
    for device, dtype in ((SIM, torch.bfloat16), ("cpu", torch.float32)):
        with quern.torch.enable(device, fallback="error") as registration:
            sdpa(*inputs(dtype))
        assert registration.calls.total() == 1


def test_kept_out_of_graphs():
    """Tests that what PyTorch computes in the op's place has the strides that the graph counts on."""
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
        with pytest.raises(NotImplementedError, match="which is slow.*; allow_slow=True"):  # PyTorch's function has no sinks
            torch.ops.quern.scaled_dot_product_attention(*arguments, sinks)
        torch.ops.quern.scaled_dot_product_attention(*arguments, sinks, allow_slow=True)
    assert quern.last_kernel() == "attention.gpu_any_128"


def test_strides_of_the_call_itself():
    """Tests that a view whose rows lie at odd places takes the slow kernel, though its shape and dtype have a fast
    one."""
    wide = torch.randn(1, 5, 2, 72).to(torch.bfloat16)
    aligned, odd = quern.to(wide, SIM)[..., :64], quern.to(wide, SIM)[..., 1:65]
    _slow.run(False, quern.attention, aligned, aligned, aligned)
    assert quern.last_kernel() == "attention.gpu_decode_bf16"
    with pytest.raises(_slow.Slow, match="takes attention.gpu_any_128, which is slow and was not asked for; not attention.gpu_decode_bf16 and [0-9]+ more: "):
        _slow.run(False, quern.attention, odd, odd, odd)
    quern.attention(odd, odd, odd)  # as before, for who calls quern's own functions
    assert quern.last_kernel() == "attention.gpu_any_128"
    _slow.run(True, quern.attention, odd, odd, odd)


def test_other_threads_choose_for_themselves():
    x, weight = quern.to(torch.randn(2, 63), SIM), quern.to(torch.randn(63), SIM)

    def inside():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(quern.rmsnorm, x, weight).result()
        quern.rmsnorm(x, weight)

    with pytest.raises(_slow.Slow, match="takes norm.gpu_any"):
        _slow.run(False, inside)


@pytest.mark.parametrize("allow_slow", [False, True])
def test_a_patched_model(allow_slow, caplog):
    norm = torch.nn.Sequential(torch.nn.RMSNorm(63, eps=1e-6)).eval()
    torch.nn.init.uniform_(norm[0].weight)
    inputs = [torch.randn(rows, 63) for rows in (2, 3)]
    with torch.no_grad():
        want = [norm(x) for x in inputs]
        with quern.patch(norm, SIM, allow_slow=allow_slow) as patch:
            got = [norm(x) for x in inputs]
    torch.testing.assert_close(got, want)
    assert patch.calls == {("rmsnorm", "norm.gpu_any" if allow_slow else "PyTorch"): 2}
    line, = (line for line in said(caplog, "quern.patch") if "takes norm.gpu_any, which is slow" in line)
    assert ("patch(allow_slow=True) takes it all the same" in line) != allow_slow


def staged(name):
    """Returns the op as it runs on a simulated GPU, for PyTorch's tensors."""
    op = getattr(quern._ops, name)

    def call(*arguments):
        there = [quern.to(x, SIM) if isinstance(x, torch.Tensor) else x for x in arguments]
        op(*there)
        for parameter, here, copy in zip(quern._ops.TABLE[name], arguments, there, strict=True):
            if parameter.is_written and here is not None:
                here.copy_(torch.from_numpy(quern.numpy(copy)))

    return call


@pytest.mark.parametrize("allows_slow", [False, True])
def test_the_stand_in(allows_slow, caplog, monkeypatch):
    monkeypatch.setattr(_run._ops, "rmsnorm", staged("rmsnorm"))
    monkeypatch.setattr(_run, "_allows_slow", allows_slow)
    dim = 61 if allows_slow else 59
    weight = torch.rand(dim)
    for rows in (2, 3):
        x = torch.randn(rows, dim)
        torch.testing.assert_close(flashinfer.rmsnorm(x, weight), torch.nn.functional.rms_norm(x, (dim,), weight, 1e-6))
    line, = (line for line in said(caplog, "quern.compat.flashinfer") if "takes norm.gpu_any, which is slow" in line)
    assert ("QUERN_ALLOW_SLOW=1 takes it all the same" in line) != allows_slow


@pytest.mark.parametrize("name", ["layernorm", "adaptive_layernorm", "gated_residual_layernorm", "qk_rmsnorm_rope"])
def test_what_pytorch_computes_in_an_op_s_place(name):
    ours, theirs = arguments_of(name), arguments_of(name)
    getattr(quern._ops, name)(*ours)
    getattr(_fallback, name)(*theirs)
    for got, want in zip(written(name, theirs), written(name, ours), strict=True):
        torch.testing.assert_close(got.float(), want.float(), rtol=1e-2, atol=1e-2)
