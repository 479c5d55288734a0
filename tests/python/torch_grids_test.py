# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's own test grids and tolerances: quern's ops against PyTorch operators written from the definitions.

On the CPU through quern.compat.flashinfer with all sizes (of the longest, those that differ in something else than length);
reduced on simulated devices, by the ops themselves. Rows with strides are columns of a tensor twice as wide.
"""

import pytest

torch = pytest.importorskip("torch")
import quern  # noqa: E402
from torch_tools import as_torch  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat import _fallback as plain  # noqa: E402

SIMULATED = ["sim:gfx942", "sim:gfx1151"]
ROWS, HIDDEN = [1, 19, 99, 989], [111, 500, 1024, 3072, 3584, 4096, 8192, 16384]
HALF, BF16 = torch.float16, torch.bfloat16
TOLERANCE = {HALF: 1e-3, BF16: 1.6e-2}


@pytest.fixture(autouse=True)
def one_thread():
    """Gives PyTorch one thread, because its threads would spin against quern's."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def close(got, want, tolerance):
    torch.testing.assert_close(got.float(), want.float(), rtol=tolerance, atol=tolerance)


def rows_of(rows, hidden, dtype=HALF, contiguous=True, seed=1):
    torch.manual_seed(seed)
    wide = torch.randn(rows, hidden if contiguous else 2 * hidden).to(dtype)
    return wide[:, :hidden]


def on(spec, name, *values):
    """Runs an op on a simulated device, and returns its arguments after that, back on the CPU."""
    there = [quern.to(x, spec) if isinstance(x, torch.Tensor) else x for x in values]
    getattr(quern._ops, name)(*there)
    assert ".gpu" in quern.last_kernel()
    return [as_torch(quern.numpy(x)) if isinstance(x, quern.Tensor) else x for x in there]


# ---- norms

@pytest.mark.parametrize("dtype", [HALF, BF16])
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("gemma", ["", "gemma_"])
def test_rmsnorm(hidden, contiguous, gemma, dtype):
    for rows in ROWS if dtype is HALF else ROWS[:3]:
        x, weight = rows_of(rows, hidden, dtype, contiguous), torch.randn(hidden).to(dtype)
        residual, want = rows_of(rows, hidden, dtype, contiguous, 2), torch.empty(rows, hidden, dtype=dtype)
        getattr(plain, gemma + "rmsnorm")(want, x, weight, 1e-6)
        close(getattr(flashinfer, gemma + "rmsnorm")(x, weight), want, TOLERANCE[dtype])
        want, want_residual = x.clone(), residual.clone()
        getattr(plain, gemma + "fused_add_rmsnorm")(want, want_residual, weight, 1e-6)
        getattr(flashinfer, gemma + "fused_add_rmsnorm")(x, residual, weight)
        close(x, want, TOLERANCE[dtype])
        close(residual, want_residual, TOLERANCE[dtype])


def differing(got, want):
    """Returns the part of elements that are off by more than a tenth."""
    return (~torch.isclose(got.float(), want.float(), rtol=0.1, atol=0.1)).float().mean()


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2])
@pytest.mark.parametrize("hidden", HIDDEN)
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0])
def test_quantized_norms(hidden, scale, kind):
    for rows, contiguous in [(1, True), (19, False), (99, True)]:
        x, residual = rows_of(rows, hidden, HALF, contiguous), rows_of(rows, hidden, HALF, contiguous, 2)
        weight, got, want = torch.randn(hidden).to(HALF), *(torch.empty(2, rows, hidden, dtype=kind))
        scale_tensor = torch.tensor([scale])
        flashinfer.rmsnorm_quant(got, x, weight, scale)
        plain.rmsnorm_quant(want, x, weight, scale_tensor, 1e-6)
        close(got, want, 1)
        assert differing(got, want) < 0.01
        want_residual = residual.clone()
        plain.fused_add_rmsnorm_quant(want, x, want_residual, weight, scale_tensor, 1e-6)
        flashinfer.fused_add_rmsnorm_quant(got, x, residual, weight, scale_tensor)
        close(got, want, 1)
        close(residual, want_residual, 1e-3)
        gamma, beta, x = torch.randn(hidden), torch.randn(hidden), x.bfloat16()
        flashinfer.layernorm_quant(got, x, gamma, beta, scale)
        plain.layernorm_quant(want, x, gamma, beta, scale_tensor, 1e-6)
        assert differing(got, want) < 0.01


@pytest.mark.parametrize("hidden", HIDDEN)
def test_layernorm(hidden):
    for rows in ROWS:
        x, gamma, beta = rows_of(rows, hidden, BF16), torch.randn(hidden), torch.randn(hidden)
        want = torch.empty_like(x)
        plain.layernorm(want, x, gamma, beta, 1e-6)
        close(flashinfer.layernorm(x, gamma, beta), want, 1e-2)


@pytest.mark.parametrize("spec", SIMULATED)
@pytest.mark.parametrize("name", ["rmsnorm", "gemma_rmsnorm", "fused_add_rmsnorm", "gemma_fused_add_rmsnorm", "layernorm",
                                  "rmsnorm_quant", "fused_add_rmsnorm_quant", "layernorm_quant"])
def test_norms_on_a_simulated_device(spec, name):
    for rows, hidden in [(1, 111), (19, 500), (5, 1024), (2, 4096)]:
        dtype = BF16 if "layer" in name else HALF
        x, residual = rows_of(rows, hidden, dtype), rows_of(rows, hidden, dtype, seed=2)
        weight = torch.randn(hidden).to(dtype)
        first = [torch.zeros(rows, hidden, dtype=torch.float8_e4m3fn)] if "quant" in name else \
            [] if "add" in name else [torch.zeros_like(x)]
        values = [*first, x, *([residual] if "add" in name else []), weight, *([weight] if "layer" in name else []),
                  *([torch.tensor([0.5])] if "quant" in name else []), 1e-6]
        got = on(spec, name, *values)
        getattr(plain, name)(*values)
        for a, b in zip(got[:2 if "add" in name else 1], values, strict=False):
            if "quant" in name and a.dtype == torch.float8_e4m3fn:
                assert differing(a, b) < 0.01
            else:
                close(a, b, 1e-2 if "layer" in name else 1e-3)


# ---- gated activations

@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
@pytest.mark.parametrize("hidden", [128, 256, 512, 2048, 4096, 11008, 16384])
def test_activation(name, hidden):
    lengths = [1, 2, 4, 8, 16, 32, 64, 128, 512]
    for batch in [1, 2, 4, 8, 16]:
        for length in lengths if hidden == 128 else [n for n in lengths if batch * n * hidden <= 1 << 20]:
            torch.manual_seed(3)
            x, want = torch.randn(batch, length, 2 * hidden).to(HALF), torch.empty(batch, length, hidden, dtype=HALF)
            getattr(plain, name)(want, x)
            close(getattr(flashinfer, name)(x), want, 1e-3)


@pytest.mark.parametrize("spec", SIMULATED)
@pytest.mark.parametrize("name", ["silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_activation_on_a_simulated_device(spec, name):
    for shape in [(1, 1, 128), (2, 4, 111), (1, 2, 2048)]:
        torch.manual_seed(3)
        x, want = torch.randn(*shape[:2], 2 * shape[2]).to(HALF), torch.empty(shape, dtype=HALF)
        getattr(plain, name)(want, x)
        close(on(spec, name, torch.zeros_like(want), x)[0], want, 1e-3)


# ---- rotary embedding

def segments(batch, length, offset):
    """Returns indptr, offsets, and the positions that follow from them."""
    indptr = torch.arange(0, batch * length + 1, length, dtype=torch.int32)
    return indptr, torch.full((batch,), offset, dtype=torch.int32), \
        (torch.arange(length, dtype=torch.int32).repeat(batch) + offset)


def options_of(family):
    return (8.0, 5e5, 1.0, 4.0, 8192) if "llama" in family else (1.0, 1e4)


# The whole grid with few tokens; with many, one of each head_dim; the most tokens once, with one head.
LENGTHS = [(batch, length) for batch in [1, 19, 99, 989] for length in [1, 4, 19, 204]]
SHORT = [(b, n) for b, n in LENGTHS if b * n <= 100]
LONG = [((b, n), (16, 8) if b * n < 20000 else (1, 1)) for b, n in LENGTHS if b * n > 100]


def check_rope(family, batch, length, offset, heads, head_dim, partial, interleave):
    torch.manual_seed(4)
    rotary_dim, tokens = int(head_dim * partial), batch * length
    qkv = torch.randn(tokens, heads[0] + 2 * heads[1], head_dim).to(HALF)
    q, k = qkv[:, :heads[0]], qkv[:, heads[0]:sum(heads)]  # views of a packed tensor
    indptr, offsets, positions = segments(batch, length, offset)
    want = torch.empty_like(q), torch.empty_like(k)
    getattr(plain, family)(*want, q, k, indptr, offsets, rotary_dim, interleave, *options_of(family))
    got = getattr(flashinfer, family)(q, k, indptr, offsets, rotary_dim, interleave)
    by_ids = getattr(flashinfer, family + "_pos_ids")(q, k, positions.long(), rotary_dim, interleave)
    for a, b, c in zip(got, by_ids, want, strict=True):
        close(a, c, 1e-3)
        assert torch.equal(a, b)


@pytest.mark.parametrize("family", ["apply_rope", "apply_llama31_rope"])
@pytest.mark.parametrize("offset", [0, 15, 99])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
@pytest.mark.parametrize("partial", [0.25, 0.5, 0.75, 1.0])
def test_rope(family, offset, head_dim, partial):
    for batch, length in SHORT:
        for interleave in (False, True):
            check_rope(family, batch, length, offset, (16, 8), head_dim, partial, interleave)


@pytest.mark.parametrize("lengths, heads", LONG)
def test_rope_of_many_tokens(lengths, heads):
    check_rope("apply_rope", *lengths, 15, (2, 1) if lengths[0] * lengths[1] > 2000 else heads, 64, 0.5, False)


CACHES = [(64, 64, 32, 8000, 32, 32, 1, 1), (256, 128, 4096, 10000, 2, 512, 4, 2), (64, 32, 2048, 8432, 2, 199, 4, 1),
          (256, 128, 4096, 9231, 3, 231, 4, 2)]


def cache_of(rotary_dim, length, base):
    angles = torch.arange(length).double()[:, None] * base ** (-torch.arange(0, rotary_dim, 2).double() / rotary_dim)
    return torch.cat([angles.cos(), angles.sin()], -1).float()


@pytest.mark.parametrize("head_size, rotary_dim, length, base, batch, tokens, q_heads, k_heads", CACHES)
@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_rope_by_cache(head_size, rotary_dim, length, base, batch, tokens, q_heads, k_heads, is_neox, index):
    torch.manual_seed(5)
    cache, positions = cache_of(rotary_dim, length, base), (torch.arange(tokens) % length).repeat(batch)
    query, key = (torch.randn(batch * tokens, heads * head_size).to(BF16) for heads in (q_heads, k_heads))
    want = [torch.empty_like(x).view(len(x), -1, head_size) for x in (query, key)]
    plain.apply_rope_with_cos_sin_cache(*want, *(x.view(len(x), -1, head_size) for x in (query, key)), cache, positions,
                                        not is_neox)
    got = flashinfer.apply_rope_with_cos_sin_cache(positions.to(index), query, key, head_size, cache, is_neox)
    for a, b in zip(got, want, strict=True):
        close(a, b.view_as(a), 1e-2)
    flashinfer.apply_rope_with_cos_sin_cache_inplace(positions.to(index), query, key, head_size, cache, is_neox)
    assert torch.equal(query, got[0]) and torch.equal(key, got[1])


@pytest.mark.parametrize("spec", SIMULATED)
@pytest.mark.parametrize("family", ["apply_rope", "apply_llama31_rope"])
@pytest.mark.parametrize("head_dim, partial, interleave", [(64, 1.0, False), (128, 0.5, True), (256, 0.25, False)])
def test_rope_on_a_simulated_device(spec, family, head_dim, partial, interleave):
    torch.manual_seed(4)
    indptr, offsets, positions = segments(2, 4, 15)
    q, k = torch.randn(8, 4, head_dim).to(HALF), torch.randn(8, 2, head_dim).to(HALF)
    rotary_dim = int(head_dim * partial)
    want = torch.empty_like(q), torch.empty_like(k)
    tail = rotary_dim, interleave, *options_of(family)
    getattr(plain, family)(*want, q, k, indptr, offsets, *tail)
    zeros = torch.zeros_like(q), torch.zeros_like(k)
    for got in (on(spec, family, *zeros, q, k, indptr, offsets, *tail),
                on(spec, family + "_pos_ids", *zeros, q, k, positions, *tail)):
        close(got[0], want[0], 1e-3)
        close(got[1], want[1], 1e-3)


# ---- rotary embedding to FP8, and to a cache

def parts(tokens, q_heads, k_heads, rope, nope, dtype):
    """Returns q_rope, k_rope, q_nope, k_nope, v. k_heads 0: MLA's, without v."""
    torch.manual_seed(6)
    k_shape = (tokens, k_heads) if k_heads else (tokens,)
    q, k = torch.randn(tokens, q_heads, rope + nope).to(dtype), torch.randn(*k_shape, rope + nope).to(dtype)
    v = torch.randn(tokens, k_heads, rope + nope).to(dtype) if k_heads else None
    return q[..., :rope], k[..., :rope], q[..., rope:], k[..., rope:], v


def close_fp8(got, want):
    torch.testing.assert_close(got.float(), want.float(), rtol=2e-1, atol=1e-2)


SHAPES = [("mla", 16, 0, 64, 512), ("gqa", 32, 8, 64, 64), ("mha", 8, 8, 128, 0)]


@pytest.mark.parametrize("tokens", [1, 19, 128, 199, 899])
@pytest.mark.parametrize("name, q_heads, k_heads, rope, nope", SHAPES)
@pytest.mark.parametrize("dtype, kind", [(HALF, torch.float8_e4m3fn), (BF16, torch.float8_e4m3fn), (BF16, torch.float8_e5m2)])
def test_rope_quantize(tokens, name, q_heads, k_heads, rope, nope, dtype, kind):
    q, k, q_nope, k_nope, _ = parts(tokens, q_heads, k_heads, rope, nope, dtype)
    cache, positions = cache_of(rope, 4096, 1e4), torch.randint(4096, (tokens,))
    function = flashinfer.mla_rope_quantize_fp8 if name == "mla" else flashinfer.rope_quantize_fp8
    got = function(q, k, q_nope, k_nope, cache, positions, False, kind, 0.5, 2.0)
    want = [torch.empty(x.shape, dtype=kind) for x in (q, k, q_nope, k_nope)]
    plain.rope_quantize_fp8(*want, q, k, q_nope, k_nope, cache, positions, 0.5, 2.0, True)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == kind and a.shape == b.shape
        close_fp8(a, b)


def pages_of(lengths, page_size):
    """Returns batch_indices, positions, kv_indices (shuffled), kv_indptr, kv_last_page_len of sequences that are new as
    a whole."""
    lengths = torch.tensor(lengths)
    pages = -(-lengths // page_size)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    kv_indptr = torch.cat([torch.zeros(1, dtype=torch.int64), pages.cumsum(0)]).int()
    torch.manual_seed(7)
    kv_indices = torch.randperm(int(pages.sum()) + 3)[:int(pages.sum())].int()
    batch, positions = flashinfer.get_batch_indices_positions(indptr, lengths, int(lengths.sum()))
    return batch, positions, kv_indices, kv_indptr, ((lengths - 1) % page_size + 1).int()


@pytest.mark.parametrize("name, q_heads, k_heads, rope, nope", SHAPES)
@pytest.mark.parametrize("page_size", [16, 32])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_rope_quantize_append(name, q_heads, k_heads, rope, nope, page_size, layout):
    batch, positions, kv_indices, kv_indptr, _ = pages_of([45, 1, 16, 33], page_size)
    q, k, q_nope, k_nope, v = parts(len(batch), q_heads, k_heads, rope, nope, BF16)
    cache, kind = cache_of(rope, 64, 1e4), torch.float8_e4m3fn
    pages = int(kv_indices.max()) + 1
    if name == "mla":
        shapes = (pages, page_size, nope), (pages, page_size, rope)
    else:
        inner = (page_size, k_heads) if layout == "NHD" else (k_heads, page_size)
        shapes = ((pages, *inner, rope + nope),) * 2
    caches = [torch.randn(shape).to(kind) for shape in shapes]
    want_caches, want = [c.clone() for c in caches], [torch.empty(x.shape, dtype=kind) for x in (q, q_nope)]
    given = (q_nope, k_nope) if nope else (None, None)
    got = flashinfer.rope_quantize_fp8_append_paged_kv_cache(
        q, k, *given, v, cache, positions, tuple(caches), kv_indices, kv_indptr, batch, positions, page_size=page_size,
        kv_layout=layout, quant_scale_q=0.5, quant_scale_kv=2.0)
    places = (None, None, *want_caches) if name == "mla" else (*want_caches, None, None)
    plain.rope_quantize_fp8_append_paged_kv_cache(*want, *places, q, k, q_nope, k_nope, v, cache, positions, batch, positions,
                                                  kv_indices, kv_indptr, 0.5, 2.0, False, layout == "HND")
    for a, b in zip((*got, *caches), (*want, *want_caches), strict=True):
        close_fp8(a, b)
    untouched = torch.ones(shapes[0][:2], dtype=torch.bool) if name == "mla" or layout == "NHD" else None
    if untouched is not None:  # the pages' other places keep their bits
        page = kv_indices[kv_indptr[batch.long()].long() + positions // page_size].long()
        untouched[page, (positions % page_size).long()] = False
        for a, b in zip(caches, want_caches, strict=True):
            assert torch.equal(a[untouched].view(torch.uint8), b[untouched].view(torch.uint8))


@pytest.mark.parametrize("spec", SIMULATED)
def test_rope_quantize_on_a_simulated_device(spec):
    q, k, q_nope, k_nope, _ = parts(5, 4, 2, 64, 64, BF16)
    inputs = [x.contiguous() for x in (q, k, q_nope, k_nope)]
    want = [torch.zeros(x.shape, dtype=torch.float8_e4m3fn) for x in inputs]
    tail = cache_of(64, 32, 1e4), torch.arange(5, dtype=torch.int32), 0.5, 2.0, 0
    got = on(spec, "rope_quantize_fp8", *want, *inputs, *tail)
    plain.rope_quantize_fp8(*want, *inputs, *tail)
    for a, b in zip(got, want, strict=False):
        close_fp8(a, b)


# ---- paged caches

@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("page_size", [1, 5, 16, 1024])
@pytest.mark.parametrize("dtype", [HALF, BF16, torch.float8_e4m3fn])
def test_append(layout, page_size, dtype):
    batch, positions, kv_indices, kv_indptr, last = pages_of([45, 8, 25, 22], page_size)
    assert flashinfer.get_seq_lens(kv_indptr, last, page_size).tolist() == [45, 8, 25, 22]
    inner = (page_size, 4) if layout == "NHD" else (4, page_size)
    cache = torch.randn(int(kv_indices.max()) + 1, 2, *inner, 64).to(dtype)
    key, value, want = torch.randn(100, 4, 64).to(dtype), torch.randn(100, 4, 64).to(dtype), cache.clone()
    flashinfer.append_paged_kv_cache(key, value, batch, positions, cache, kv_indices, kv_indptr, last, layout)
    bits = torch.int16 if dtype.itemsize == 2 else torch.uint8
    plain.append_paged_kv_cache(*want.view(bits).unbind(1), key.view(bits), value.view(bits), batch, positions, kv_indices,
                                kv_indptr, last, layout == "HND")
    assert torch.equal(cache.view(bits), want.view(bits))


@pytest.mark.parametrize("spec", SIMULATED)
@pytest.mark.parametrize("is_hnd", [False, True])
def test_append_on_a_simulated_device(spec, is_hnd):
    batch, positions, kv_indices, kv_indptr, last = pages_of([9, 1, 6], 5)
    shape = (int(kv_indices.max()) + 1, *((2, 5) if is_hnd else (5, 2)), 64)
    values = [torch.randn(shape).to(HALF), torch.randn(shape).to(HALF), torch.randn(16, 2, 64).to(HALF),
              torch.randn(16, 2, 64).to(HALF), batch, positions, kv_indices, kv_indptr, last, is_hnd]
    got = on(spec, "append_paged_kv_cache", *values)
    plain.append_paged_kv_cache(*values)
    assert torch.equal(got[0], values[0]) and torch.equal(got[1], values[1])
    indptr = torch.tensor([0, 9, 10, 16], dtype=torch.int32)
    found = on(spec, "get_batch_indices_positions", torch.zeros_like(batch), torch.zeros_like(batch), indptr,
               torch.tensor([9, 1, 6], dtype=torch.int32))
    assert torch.equal(found[0], batch) and torch.equal(found[1], positions)


# ---- bits

@pytest.mark.parametrize("count", [0, 1, 10, 99, 128, 999, 5000, 131072, 999999])
@pytest.mark.parametrize("order", ["big", "little"])
def test_packbits(count, order):
    torch.manual_seed(8)
    x, want = torch.rand(count) < 0.5, torch.empty(-(-count // 8), dtype=torch.uint8)
    plain.packbits(want, x, order == "little")
    assert torch.equal(flashinfer.packbits(x, order), want)


@pytest.mark.parametrize("batch", [0, 1, 10, 99, 128, 777, 999])
@pytest.mark.parametrize("order", ["big", "little"])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_segment_packbits(batch, order, index):
    torch.manual_seed(9)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), (torch.arange(batch) % 64).cumsum(0)])
    x = torch.rand(int(indptr[-1])) < 0.5
    want, want_indptr = torch.empty(len(x) // 8 + batch, dtype=torch.uint8), torch.empty_like(indptr, dtype=torch.int32)
    plain.segment_packbits(want, want_indptr, x, indptr, order == "little")
    got, got_indptr = flashinfer.segment_packbits(x, indptr.to(index), order)
    assert torch.equal(got_indptr, want_indptr) and torch.equal(got, want[:int(want_indptr[-1])])


# ---- nothing to do

def test_no_rows():
    x, weight, none = torch.empty(0, 64), torch.ones(64), torch.empty(0, dtype=torch.int32)
    assert flashinfer.rmsnorm(x, weight).shape == (0, 64) and flashinfer.silu_and_mul(x).shape == (0, 32)
    flashinfer.fused_add_rmsnorm(x, x.clone(), weight)
    q = x.view(0, 2, 32)
    assert flashinfer.apply_rope_pos_ids(q, q, none)[0].shape == (0, 2, 32)
    zero = torch.zeros(1, dtype=torch.int32)
    assert flashinfer.apply_rope(q, q, zero, none)[1].shape == (0, 2, 32)
    cache = torch.randn(3, 2, 4, 2, 32)
    before = cache.clone()
    flashinfer.append_paged_kv_cache(q, q, none, none, cache, none, zero, none)
    assert torch.equal(cache, before)
