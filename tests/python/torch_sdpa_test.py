# SPDX-License-Identifier: Apache-2.0
"""quern under PyTorch's scaled_dot_product_attention: its semantics against a definition in float64, eager and compiled."""

import logging

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
import quern.torch  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture
def enabled():
    with quern.torch.enable("cpu", fallback="error") as registration:
        yield registration


def tensors(dtype=torch.float32, batch=(2,), heads=4, kv_heads=4, n=5, kv_len=11, dim=64, dim_vo=64):
    torch.manual_seed(1)
    return [torch.randn(*batch, *shape).to(dtype) for shape in ((heads, n, dim), (kv_heads, kv_len, dim),
                                                              (kv_heads, kv_len, dim_vo))]


def definition(query, key, value, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    query, key, value = query.double(), key.double(), value.double()
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    x = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        x = x.masked_fill(~torch.ones(x.shape[-2:], dtype=torch.bool).tril(), -torch.inf)
    if attn_mask is not None:
        x = x.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else x + attn_mask.double()
    return x.softmax(-1).nan_to_num(0) @ value


def assert_close(got, want, query, key, value, scale=None):
    """Checks a result within one rounding of it, of the weights to the inputs' kind, and of each score's f32 sum, which
    add as in a walk."""
    unit, dim = torch.finfo(got.dtype).eps / 2, query.shape[-1]
    reach = float(query.abs().max() * key.abs().max()) * dim * (dim ** -0.5 if scale is None else scale)
    weights = 4 * unit + 2 * dim ** 0.5 * 2.0**-24 * reach
    assert got.shape == want.shape
    assert ((got.double() - want).abs() <= unit * want.abs() + weights * max(float(value.abs().max()), 1)).all()


def check(enabled, *inputs, **options):
    got = sdpa(*inputs, **options)
    assert enabled.calls.total() == 1 and not enabled.fallbacks
    assert got.dtype == inputs[0].dtype
    assert_close(got, definition(*inputs, **options), *inputs, options.get("scale"))
    return got


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
def test_plain(enabled, options, dtype):
    check(enabled, *tensors(dtype), **options)


@pytest.mark.parametrize("n, kv_len", [(5, 11), (11, 5)])
def test_causal_is_from_the_top_left(enabled, n, kv_len):
    check(enabled, *tensors(n=n, kv_len=kv_len), is_causal=True)


@pytest.mark.parametrize("shape", [(5, 11), (1, 1, 5, 11), (2, 1, 1, 11), (2, 4, 5, 11), (4, 5, 11), (5, 1), (11,)])
@pytest.mark.parametrize("kind", [torch.bool, torch.float32, torch.float64, torch.bfloat16])
def test_masks_are_broadcast_and_cast(enabled, shape, kind):
    hidden = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.3
    mask = ~hidden if kind == torch.bool else torch.randn(shape).masked_fill(hidden, -torch.inf).to(kind)
    check(enabled, *tensors(torch.float16), attn_mask=mask)


def test_a_mask_of_another_dtype_keeps_its_digits(enabled):
    check(enabled, *tensors(), attn_mask=torch.randn(5, 11, dtype=torch.float64) * 3)


def test_rows_without_keys_are_zero(enabled):
    mask = torch.ones(5, 11, dtype=torch.bool)
    mask[3] = False
    got = check(enabled, *tensors(torch.bfloat16), attn_mask=mask)
    assert (got[:, :, 3] == 0).all() and not got.isnan().any()
    assert (sdpa(*tensors(kv_len=0)) == 0).all()


@pytest.mark.parametrize("options", [
    {"batch": ()}, {"batch": (2, 3)}, {"heads": 8, "kv_heads": 2, "enable_gqa": True}, {"dim": 72}, {"dim_vo": 32},
    {"n": 1, "kv_len": 300}, {"n": 0}], ids=str)
def test_shapes(enabled, options):
    options, gqa = dict(options), {"enable_gqa": options.get("enable_gqa", False)}
    options.pop("enable_gqa", None)
    inputs = tensors(torch.bfloat16, **options)
    if options.get("n") == 0:
        assert sdpa(*inputs).shape == (2, 4, 0, 64)
    else:
        check(enabled, *inputs, **gqa)


def test_broadcast_keys_and_masks_of_many_dimensions(enabled):
    query, key, value = tensors(batch=(2, 3))
    mask = torch.rand(3, 1, 5, 11) < 0.7
    check(enabled, query, key[:1, :, :1], value[:, 1:2], attn_mask=mask)


def test_strides(enabled):
    query, key, value = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(torch.bfloat16))
    got = check(enabled, query, key, value.mT.contiguous().mT)
    assert got.stride() == query.stride()  # the heads of one token together, as they came


def test_dropout_is_seeded_and_right_on_average(enabled):
    query, key, value = tensors(kv_len=64)
    torch.manual_seed(3)
    one, two = (sdpa(query, key, value, dropout_p=0.5) for _ in range(2))
    torch.manual_seed(3)
    assert torch.equal(sdpa(query, key, value, dropout_p=0.5), one) and not torch.equal(one, two)
    ones = torch.ones_like(value)
    mean = torch.stack([sdpa(query, key, ones, dropout_p=0.25) for _ in range(64)]).mean()
    assert abs(mean - 1) < 0.02


@pytest.mark.parametrize("inputs, options, text", [
    (tensors(torch.float64), {}, "dtypes are torch.float64"), (tensors(dim=513), {}, "query has head_dim 513"),
    (tensors(), {"scale": 0.0}, "scale is 0"), (tensors(), {"dropout_p": 1.0}, "dropout_p is 1.0"),
], ids=lambda x: x if isinstance(x, str) else "")
def test_what_goes_to_pytorch_says_why(inputs, options, text, caplog):
    want = sdpa(*inputs, **options) if "dropout_p" not in options else None
    with quern.torch.enable("cpu") as registration, caplog.at_level(logging.WARNING, "quern.torch"):
        got = sdpa(*inputs, **options)
        sdpa(*inputs, **options)
    assert want is None or torch.equal(got, want)
    assert [count for why, count in registration.fallbacks.items() if text in why] == [2]
    assert len(caplog.records) == 1 and text in caplog.text
    with quern.torch.enable("cpu", fallback="error"), pytest.raises(NotImplementedError, match=text):
        sdpa(*inputs, **options)


def test_gradients_of_what_goes_to_pytorch_are_its_own():
    inputs = [t.requires_grad_() for t in tensors(torch.float64)]
    sdpa(*inputs).sum().backward()
    want = [t.grad.clone() for t in inputs]
    for t in inputs:
        t.grad = None
    with quern.torch.enable("cpu"):
        sdpa(*inputs).sum().backward()
    for t, grad in zip(inputs, want, strict=True):
        assert torch.equal(t.grad, grad)


def test_no_gradient_is_needed_where_none_is_recorded(enabled):
    inputs = [t.requires_grad_() for t in tensors()]
    with torch.no_grad():
        assert not sdpa(*inputs).requires_grad
    with torch.inference_mode():
        sdpa(*inputs)
    assert enabled.calls.total() == 2


@pytest.mark.parametrize("options", [{"attn_mask": torch.ones(5, 11, dtype=torch.bool), "is_causal": True},
                                     {"attn_mask": torch.ones(5, 10)}, {"attn_mask": torch.ones(5, 11, dtype=torch.int32)}])
def test_errors_are_pytorchs_own(options):
    with quern.torch.enable("cpu"), pytest.raises((RuntimeError, ValueError)):
        sdpa(*tensors(), **options)


def test_sdpa_kernel_rules():
    inputs = tensors(torch.bfloat16)
    with sdpa_kernel(SDPBackend.MATH):
        want = sdpa(*inputs)
    with quern.torch.enable("cpu") as registration:
        with sdpa_kernel(SDPBackend.MATH):
            assert torch.equal(sdpa(*inputs), want)
        assert not registration.calls and registration.fallbacks == {"FLASH_ATTENTION is switched off": 1}
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            sdpa(*inputs)
        assert registration.calls.total() == 1


def layer(x, mask):
    q, k, v = (part.unflatten(-1, (4, 32)).transpose(1, 2) for part in x.chunk(3, -1))
    return sdpa(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2) * 2


@pytest.mark.parametrize("has_mask", [False, True])
def test_compiled(enabled, has_mask):
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for n in (7, 12):
            x = torch.randn(2, n, 384, dtype=torch.bfloat16)
            mask = torch.rand(n, n) < 0.8 if has_mask else None
            assert torch.equal(compiled(x, mask), layer(x, mask))
    assert enabled.calls.total() == 4


def test_compiled_with_gradients():
    torch._dynamo.reset()
    x = torch.randn(2, 7, 384, requires_grad=True)
    with quern.torch.enable("cpu") as registration:
        torch.compile(layer, fullgraph=True, backend="aot_eager")(x, None).sum().backward()
    got, x.grad = x.grad, None
    layer(x, None).sum().backward()
    torch.testing.assert_close(got, x.grad)
    assert {kernel.split(".")[0] for kernel in registration.calls} == {"attention", "attention_backward"}
    assert not registration.fallbacks


def test_opcheck():
    query, key, value = tensors(kv_heads=2, heads=4)
    torch.library.opcheck(torch.ops.quern.scaled_dot_product_attention.default,
                          (query, key, value, None, 0.0, True, None, True, ""))
    mask = torch.zeros(5, 11, requires_grad=True)
    for t in (query, key, value):
        t.requires_grad_()
    torch.library.opcheck(torch.ops.quern.attention_forward.default,
                          (query, key, value, mask, None, 0.0, False, None, -1, 0.0, "", False))


def test_on_and_off():
    inputs = tensors()
    plain = sdpa(*inputs)
    assert not hasattr(torch.nn.attention, "list_flash_attention_impls") or \
        "quern" in torch.nn.attention.list_flash_attention_impls()
    quern.torch.disable()  # nothing to undo
    registration = quern.torch.enable()
    sdpa(*inputs)
    assert quern.torch.enable("cpu") is not registration  # takes its place
    quern.torch.disable()
    assert torch.equal(sdpa(*inputs), plain) and registration.calls.total() == 1
    for wrong in ("tpu", "sim:gfx1"):
        with pytest.raises(ValueError, match=f"device.*{wrong}"):
            quern.torch.enable(wrong)
    with pytest.raises(ValueError, match="fallback is 'warn'"):
        quern.torch.enable(fallback="warn")


@pytest.mark.skipif(not hasattr(torch.nn.attention, "activate_flash_attention_impl"), reason="this PyTorch has no registration")
def test_pytorchs_own_registration():
    torch.nn.attention.activate_flash_attention_impl("quern")
    assert torch.nn.attention.current_flash_attention_impl() == "quern"
    sdpa(*tensors())
    assert quern.last_kernel().startswith("attention.")
    torch.nn.attention.restore_flash_attention_impl()
    quern.torch.disable()
    assert torch.nn.attention.current_flash_attention_impl() is None


@pytest.mark.parametrize("arch", ["gfx942", "gfx1151"])
@pytest.mark.parametrize("options", [{"is_causal": True}, {"attn_mask": torch.rand(2, 1, 3, 7) < 0.6}], ids=["causal", "mask"])
def test_staged_to_a_simulated_gpu(arch, options):
    inputs = [t.transpose(1, 2).contiguous().transpose(1, 2) for t in tensors(torch.bfloat16, n=3, kv_len=7, heads=2,
                                                                             kv_heads=2)]
    with quern.torch.enable(f"sim:{arch}", fallback="error") as registration:
        got = sdpa(*inputs, **options)
    assert registration.calls.total() == 1 and not any(kernel.endswith(".cpu") for kernel in registration.calls)
    assert_close(got, definition(*inputs, **options), *inputs)
