# SPDX-License-Identifier: Apache-2.0
"""quern.compat.aotriton: AOTriton's own kind of grid, reduced, its comparison with a fudge of 3, and its dropout bit by bit."""

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
from quern.compat import aotriton  # noqa: E402

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def plain(q, k, v, b=None, sm_scale=1.0, is_causal=False, keep=None, dropout_p=0.0):
    """Computes (out, natural lse) in the tensors' own dtype."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    x = q @ k.mT * sm_scale
    x = x if b is None else x + b
    if is_causal:
        x = x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    weights = x.softmax(-1)
    if keep is not None:
        weights = weights.masked_fill(~keep, 0) / (1 - dropout_p)
    return weights @ v, x.logsumexp(-1)


def check(got, lse, inputs, **options):
    """Checks |got - high| <= max(1e-5, fudge max|low - high|), with high in float64 and low in the native dtype:
    AOTriton's rule, CPU fudge 12."""
    fudge = 12
    high, high_lse = plain(*(t.double() for t in inputs), **options)
    low, _ = plain(*inputs, **options)
    limit = max(1e-5, fudge * float((low.double() - high).abs().max()))
    assert float((got.double() - high).abs().max()) <= limit
    torch.testing.assert_close(lse.double(), high_lse, rtol=1e-5, atol=1e-4)


def tensors(dtype, batch, heads, kv_heads, n, m, dim):
    torch.manual_seed(n + m + dim)
    return [torch.randn(batch, *shape, dtype=dtype) for shape in ((heads, n, dim), (kv_heads, m, dim), (kv_heads, m, dim))]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch, heads, kv_heads, n, m, dim", [
    (1, 2, 2, 4, 16, 16), (4, 2, 2, 33, 65, 64), (1, 16, 8, 143, 37, 48), (1, 10, 2, 17, 587, 72), (1, 2, 2, 8, 8, 203),
    (1, 1, 1, 16, 16, 512)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attn_fwd(dtype, batch, heads, kv_heads, n, m, dim, is_causal):
    inputs = tensors(dtype, batch, heads, kv_heads, n, m, dim)
    out, lse = torch.empty_like(inputs[0]), torch.empty(batch * heads, n)
    aotriton.attn_fwd(*inputs, None, dim**-0.5, lse, out, is_causal=is_causal)
    check(out, lse.view(batch, heads, n), inputs, sm_scale=dim**-0.5, is_causal=is_causal)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_and_storage_order(dtype):
    inputs = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(dtype, 2, 4, 4, 17, 33, 64)]
    bias = torch.randn(2, 4, 17, 33).to(dtype)
    out, lse = torch.empty_like(inputs[0]), torch.empty(8, 17)
    aotriton.attn_fwd(*inputs, bias, 0.125, lse, out)
    check(out, lse.view(2, 4, 17), inputs, b=bias, sm_scale=0.125)
    with pytest.raises(ValueError, match="mask and is_causal are both given"):
        aotriton.attn_fwd(*inputs, bias, 0.125, lse, out, is_causal=True)


@pytest.mark.parametrize("seed, offset", [(1, 0), (2**63 + 9, 2**33 + 5)])
def test_dropout(seed, offset):
    """Tests the mask from the words, from quern's kernel and from the attention itself."""
    words, uniform = torch.empty(2, 3, 5, 37, dtype=torch.int32), torch.empty(2, 3, 5, 37)
    aotriton.debug_fill_dropout_rng(words, seed, offset)
    aotriton.debug_fill_dropout_rng_tensor(uniform, seed, torch.tensor([offset]))
    torch.testing.assert_close(uniform.double(), words.double() * 2.0**-32 + 0.5, rtol=0, atol=1e-6)
    keep = words.long() > int((0.25 - 0.5) * 0xFFFFFFFF)
    mask = torch.empty(2, 3, 5, 37)
    aotriton.debug_simulate_encoded_softmax(mask, 0.25, seed, torch.tensor([offset - 3]), 3)
    assert torch.equal(mask, torch.where(keep, 0.5, -0.5))
    inputs = tensors(torch.float32, 2, 3, 3, 5, 37, 64)
    out, lse = torch.empty_like(inputs[0]), torch.empty(6, 5)
    seed_out, offset_out = torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    aotriton.attn_fwd(*inputs, None, 0.125, lse, out, 0.25, seed, torch.tensor([offset - 3]), 3, seed_out, offset_out)
    assert int(seed_out) % 2**64 == seed and int(offset_out) == offset
    check(out, lse.view(2, 3, 5), inputs, sm_scale=0.125, keep=keep, dropout_p=0.25)


def test_words_are_philox():
    """Tests the words of counter and key 0 against those that Philox's authors publish."""
    words = torch.empty(1, 1, 1, 4, dtype=torch.int32)
    aotriton.debug_fill_dropout_rng(words, 0, 0)
    assert [int(w) % 2**32 for w in words.flatten()] == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


@pytest.mark.parametrize("is_causal, dropout_p", [(False, 0.0), (True, 0.0), (False, 0.25)])
def test_compact_varlen(is_causal, dropout_p):
    n, m = [3, 0, 17, 5], [9, 4, 17, 1]
    cu_q, cu_k = (torch.tensor([0, *torch.tensor(lens).cumsum(0)], dtype=torch.int32) for lens in (n, m))
    q, k, v = tensors(torch.bfloat16, 1, 4, 2, sum(n), sum(m), 64)
    out, lse = torch.empty_like(q), torch.empty(4, sum(n))
    aotriton.attn_fwd_compact_varlen(q, k, v, None, cu_q, cu_k, 20, 24, 0.125, lse, out, dropout_p, 7, is_causal=is_causal)
    mask = torch.empty(4, 4, 20, 24)
    aotriton.debug_simulate_encoded_softmax(mask, 0.25, 7)
    for i in range(4):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        if n[i] == 0:
            continue
        keep = mask[i:i + 1, :, :n[i], :m[i]] > 0 if dropout_p else None
        check(out[:, :, rows], lse[None, :, rows], (q[:, :, rows], k[:, :, keys], v[:, :, keys]), sm_scale=0.125,
              is_causal=is_causal, keep=keep, dropout_p=dropout_p)
    with pytest.raises(ValueError, match="max_seqlen_q is 16, the longest sequence has 17"):
        aotriton.attn_fwd_compact_varlen(q, k, v, None, cu_q, cu_k, 16, 24, 0.125, lse, out)
    with pytest.raises(NotImplementedError, match="b is not supported"):
        aotriton.attn_fwd_compact_varlen(q, k, v, out, cu_q, cu_k, 20, 24, 0.125, lse, out)


def test_check_gpu(monkeypatch):
    for spec in ("cpu", "sim:gfx942", "sim:gfx1151", torch.device("cpu")):
        aotriton.check_gpu(spec)
    with pytest.raises((RuntimeError, AssertionError)):
        aotriton.check_gpu("cuda:77")

    def nothing(*arguments, **options):
        raise NotImplementedError("attention: no kernel for this on cpu")

    monkeypatch.setattr(aotriton, "attention", nothing)
    with pytest.raises(RuntimeError, match="hipErrorNoBinaryForGpu: attention: no kernel"):
        aotriton.check_gpu("cpu")


def test_errors():
    q, k, v = tensors(torch.float16, 1, 2, 2, 4, 4, 64)
    out = torch.full_like(q, 7)
    with pytest.raises(NotImplementedError, match="encoded_softmax"):
        aotriton.attn_fwd(q, k, v, None, 0.1, None, out, encoded_softmax=torch.empty(1, 2, 4, 4))
    with pytest.raises(ValueError, match="sm_scale is 0"):
        aotriton.attn_fwd(q, k, v, None, 0.0, None, out)
    with pytest.raises(NotImplementedError, match="r has dtype i64; accepted: f32, i32"):
        aotriton.debug_fill_dropout_rng(torch.empty(1, 1, 1, 4, dtype=torch.int64), 0, 0)
    assert (out == 7).all() and quern.last_kernel() is not None


# ---- gradients

def gradients(inputs, dout, **options):
    """Returns the gradients by the inputs, and by b, in their own dtype; b is an option."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    b = options.pop("b", None)
    b = None if b is None else b.detach().to(leaves[0].dtype).requires_grad_()
    plain(*leaves, b=b, **options)[0].backward(dout.to(leaves[0].dtype))
    return [t.grad for t in leaves] + ([] if b is None else [b.grad])


def check_gradients(got, inputs, dout, b=None, **options):
    """Checks gradients by AOTriton's rule, with a fudge of 12, as its own tests' on the CPU."""
    high = gradients([t.double() for t in inputs], dout, b=b, **options)
    low = gradients(inputs, dout, b=b, **options)
    for g, h, x in zip(got, high, low, strict=True):
        assert float((g.double() - h).abs().max()) <= max(1e-5, 12 * float((x.double() - h).abs().max()))


def forward(inputs, b=None, **options):
    q, _, v = inputs
    out, lse = torch.empty(*q.shape[:3], v.shape[3], dtype=q.dtype), torch.empty(q.shape[0] * q.shape[1], q.shape[2])
    aotriton.attn_fwd(*inputs, b, 0.2, lse, out, **options)
    return out, lse


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("batch, heads, kv_heads, n, m, dim", [(1, 2, 2, 4, 16, 16), (3, 4, 2, 33, 65, 64), (1, 2, 1, 17, 70, 203)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_attn_bwd(dtype, batch, heads, kv_heads, n, m, dim, is_causal):
    inputs = tensors(dtype, batch, heads, kv_heads, n, m, dim)
    out, lse = forward(inputs, is_causal=is_causal)
    dout, delta = torch.randn_like(out), torch.empty_like(lse)
    for call, scratch in ((aotriton.attn_bwd, [delta]), (aotriton.attn_bwd_fused, [])):
        got = [torch.empty_like(t) for t in inputs]
        call(*inputs, None, 0.2, out, dout, *got, None, lse, *scratch, is_causal=is_causal)
        check_gradients(got, inputs, dout, sm_scale=0.2, is_causal=is_causal)


@pytest.mark.parametrize("dtype", DTYPES)
def test_attn_bwd_of_a_bias(dtype):
    """Tests db, and tensors whose heads lie behind their tokens."""
    inputs = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(dtype, 2, 4, 4, 17, 33, 64)]
    b = torch.randn(2, 4, 17, 33).to(dtype)
    out, lse = forward(inputs, b)
    dout, got = torch.randn_like(out), [torch.empty_like(t) for t in (*inputs, b)]
    aotriton.attn_bwd(*inputs, b, 0.2, out, dout, *got, lse, None)
    check_gradients(got, inputs, dout, b=b, sm_scale=0.2)


def test_attn_bwd_drops_what_attn_fwd_dropped():
    inputs = tensors(torch.float32, 2, 4, 2, 17, 33, 64)
    numbers = {"dropout_p": 0.4, "philox_seed": torch.tensor(7), "philox_offset1": torch.tensor(2**40), "philox_offset2": 5}
    out, lse = forward(inputs, **numbers)
    keep = torch.empty(2, 4, 17, 33)
    aotriton.debug_simulate_encoded_softmax(keep, *numbers.values())
    dout, got = torch.randn_like(out), [torch.empty_like(t) for t in inputs]
    aotriton.attn_bwd(*inputs, None, 0.2, out, dout, *got, None, lse, None, **numbers)
    check_gradients(got, inputs, dout, sm_scale=0.2, keep=keep > 0, dropout_p=0.4)


@pytest.mark.parametrize("is_causal", [False, True])
def test_attn_bwd_compact_varlen(is_causal):
    """Tests that each sequence has the bits of its own dense call, and that other tokens are left alone."""
    begins_q, begins_k = torch.tensor([0, 5, 5, 23], dtype=torch.int32), torch.tensor([0, 9, 12, 40], dtype=torch.int32)
    inputs = tensors(torch.float32, 1, 4, 2, 25, 41, 32)
    out, lse = torch.zeros_like(inputs[0]), torch.zeros(4, 25)
    aotriton.attn_fwd_compact_varlen(*inputs, None, begins_q, begins_k, 20, 30, 0.2, lse, out, is_causal=is_causal)
    dout, got = torch.randn_like(out), [torch.full_like(t, 7) for t in inputs]
    aotriton.attn_bwd_compact_varlen(*inputs, begins_q, begins_k, 20, 30, None, 0.2, out, dout, *got, None, lse, None,
                                     is_causal=is_causal)
    for i in (0, 2):
        q, k = slice(begins_q[i], begins_q[i + 1]), slice(begins_k[i], begins_k[i + 1])
        parts = [inputs[0][:, :, q], inputs[1][:, :, k], inputs[2][:, :, k]]
        check_gradients([got[0][:, :, q], got[1][:, :, k], got[2][:, :, k]], parts, dout[:, :, q], sm_scale=0.2, is_causal=is_causal)
    assert (got[1][:, :, 9:12] == 0).all() and (got[0][:, :, 23:] == 7).all() and (got[2][:, :, 40:] == 7).all()


def test_attn_bwd_refuses():
    inputs = tensors(torch.float32, 1, 2, 2, 4, 8, 16)
    out, lse = forward(inputs)
    got = [torch.full_like(t, 7) for t in inputs]
    with pytest.raises(ValueError, match="attn_bwd: softmax_lse is None"):
        aotriton.attn_bwd(*inputs, None, 0.2, out, out, *got, None, None, None)
    with pytest.raises(ValueError, match="dmask is given"):
        aotriton.attn_bwd(*inputs, None, 0.2, out, out, *got, torch.empty(1, 2, 4, 8), lse, None)
    begins = torch.tensor([0, 4], dtype=torch.int32)
    with pytest.raises(NotImplementedError, match="attn_bwd_compact_varlen: db is not supported"):
        aotriton.attn_bwd_compact_varlen(*inputs, begins, 2 * begins, 4, 8, None, 0.2, out, out, *got, out, lse, None)
    with pytest.raises(ValueError, match="attn_bwd_compact_varlen: max_seqlen_k is 7, the longest sequence has 8"):
        aotriton.attn_bwd_compact_varlen(*inputs, begins, 2 * begins, 4, 7, None, 0.2, out, out, *got, None, lse, None)
    assert all((t == 7).all() for t in got)
