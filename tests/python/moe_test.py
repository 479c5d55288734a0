# SPDX-License-Identifier: Apache-2.0
"""Mixtures of experts on NumPy arrays, against plain formulas in float64."""

import math
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, assert_close, normal

E4M3 = ml_dtypes.float8_e4m3fn


def scores_of(logits, scoring):
    x = logits.astype(np.float64)
    if scoring == "sigmoid":
        return 1 / (1 + np.exp(-x))
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def routed(logits, top_k, bias, scoring, groups, topk_groups, renormalize, scaling):
    """Returns weights and ids as the serving engines define them."""
    scores = scores_of(logits, scoring)
    choice = scores if bias is None else scores + bias.astype(np.float64)
    tokens, experts = scores.shape
    split = np.sort(choice.reshape(tokens, groups, -1), -1)
    by_group = split[..., -1] if bias is None else split[..., -2:].sum(-1)
    best = np.argsort(-by_group, -1, kind="stable")[:, :topk_groups]
    is_taken = np.zeros((tokens, groups), bool)
    np.put_along_axis(is_taken, best, True, -1)
    choice = np.where(np.repeat(is_taken, experts // groups, -1), choice, -np.inf)
    ids = np.argsort(-choice, -1, kind="stable")[:, :top_k]
    weights = np.take_along_axis(scores, ids, -1)
    return weights / (weights.sum(-1, keepdims=True) if renormalize else 1) * scaling, ids


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
@pytest.mark.parametrize("dtype, with_bias, experts, top_k, groups, topk_groups", [
    (np.float32, True, 256, 8, 8, 4), (BF16, False, 160, 6, 8, 3), (np.float32, False, 60, 4, 1, 1), (np.float16, True, 33, 33, 1, 1)])
def test_route(device, scoring, dtype, with_bias, experts, top_k, groups, topk_groups):
    # 16 bits are few enough for ties, which go to the lower expert here and there.
    logits, bias = normal(1, (9, experts), dtype), normal(2, experts) * 0.1 if with_bias else None
    arrays = [quern.to(x, device) if x is not None else None for x in (logits, bias)]
    weights, ids = quern.moe_route(arrays[0], top_k, arrays[1], scoring, groups, topk_groups, True, 2.5)
    want = routed(logits, top_k, bias, scoring, groups, topk_groups, True, 2.5)
    np.testing.assert_array_equal(quern.numpy(ids), want[1])
    bound = (2 * (24 + np.ptp(logits.astype(np.float32)) + experts / 16) + top_k + 4) * 2.0**-24
    assert (np.abs(quern.numpy(weights) - want[0]) <= bound * want[0]).all()


def test_route_shared_experts():
    weights, ids = quern.moe_route(normal(1, (3, 8)), 2, shared_experts=2, shared_weight=0.5)
    assert (ids[:, 2:] == [8, 9]).all() and (weights[:, 2:] == 0.5).all() and (ids[:, :2] < 8).all()


def test_route_into_slices():
    both, ids = np.zeros((4, 12), np.float32), np.zeros((4, 9), np.int32)
    quern.moe_route(normal(1, (4, 16)), 3, weights=both[:, 2:5], ids=ids[:, 1:4])
    assert both[:, 2:5].all() and not both[:, :2].any() and not both[:, 5:].any() and not ids[:, 4:].any()


def sorted_rows(ids, experts, alignment):
    """Returns ends, row_of_pair, pair_of_row and expert_of_row, without rows to spare."""
    pairs = ids.reshape(-1)
    row_of_pair, pair_of_row, expert_of_row, ends = np.full(pairs.size, -1), [], [], []
    for e in range(experts):
        own = np.flatnonzero(pairs == e)
        row_of_pair[own] = len(pair_of_row) + np.arange(len(own))
        pair_of_row += list(own)
        ends.append(len(pair_of_row))
        pair_of_row += [pairs.size] * (-len(pair_of_row) % alignment)
        expert_of_row += [e] * len(own)
        expert_of_row += [-1] * (len(pair_of_row) - len(expert_of_row))
    return ends, row_of_pair.reshape(ids.shape), pair_of_row, expert_of_row


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("tokens, top_k, experts, alignment", [(50, 4, 12, 16), (3, 8, 64, 128), (200, 2, 5, 1)])
def test_sort_permute_and_sum(device, tokens, top_k, experts, alignment):
    random = np.random.default_rng(1)
    ids = random.integers(-1, experts, (tokens, top_k)).astype(np.int32)
    x, scale = normal(2, (tokens, 48), BF16), normal(3, (tokens, 3))
    weights, shared = normal(4, (tokens, top_k)), normal(5, (tokens, 48), BF16)
    ids_there, x_there, scale_there, weights_there, shared_there = (quern.to(t, device) for t in (ids, x, scale, weights, shared))
    ends, row_of_pair, pair_of_row, expert_of_row, expert_of_block, num_rows = quern.moe_sort(ids_there, experts, alignment)
    want = sorted_rows(ids, experts, alignment)
    used = len(want[2])
    for got, wanted in zip((ends, row_of_pair, pair_of_row, expert_of_row), want, strict=True):
        got = quern.numpy(got)
        np.testing.assert_array_equal(got[:used] if got.ndim == 1 else got, wanted)
    assert quern.numpy(num_rows) == used
    blocks = np.array(want[3]).reshape(-1, alignment)[:, 0]
    np.testing.assert_array_equal(quern.numpy(expert_of_block)[:len(blocks)], blocks)
    rows, scales = map(quern.numpy, quern.moe_permute(x_there, pair_of_row, top_k, scale_there))
    real = np.array(want[3]) >= 0
    tokens_of = np.array(want[2])[real] // top_k
    np.testing.assert_array_equal(rows[:used][real].view(np.uint16), x[tokens_of].view(np.uint16))
    np.testing.assert_array_equal(scales[:used][real], scale[tokens_of])
    made = np.where(np.isnan(rows.astype(np.float32)), 0, rows.astype(np.float32))  # padding holds anything
    made = np.ascontiguousarray(made.astype(BF16))
    out = quern.numpy(quern.moe_sum(quern.to(made, device), weights_there, row_of_pair, shared_there))
    parts = np.where(want[1][..., None] < 0, 0, weights[..., None].astype(np.float64) * made[want[1]].astype(np.float64))
    assert_close(out, shared.astype(np.float64) + parts.sum(1), top_k, np.abs(parts).sum(1) + np.abs(shared.astype(np.float64)))


def test_sum_of_three_dimensions():
    x, out = normal(1, (5, 4, 32)), np.empty((5, 32), np.float32)
    assert_close(quern.moe_sum(x.reshape(20, 32), out=out), x.astype(np.float64).sum(1), 4, np.abs(x).sum(1))


def halves_acted(function, gate, up, limit):
    """Returns what function makes of gate and up, and a bound of its slopes by them."""
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    if function == "swiglu":
        made = gate / (1 + np.exp(-1.702 * gate))
        return made * (up + 1), 1.2 * np.abs(up + 1), np.abs(made)
    phi = {"silu": lambda x: 1 / (1 + np.exp(-x)), "gelu": lambda x: np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2,
           "gelu_tanh": lambda x: 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))}[function](gate)
    return gate * phi * up, 1.2 * np.abs(up), np.abs(gate * phi)


def quantized(x, kind):
    """Returns x by 1 x 128 as codes in float64, scales and all."""
    q, scale = quern.quantize_groups(x, 128, kind)
    return q.astype(np.float64) * np.repeat(scale.astype(np.float64), 128, 1)[:, :x.shape[1]]


def weights_of(seed, shape, kind):
    """Returns random weights of a kind, their scales, and what they stand for."""
    w = (normal(seed, shape) / np.sqrt(shape[-1])).astype(np.float32)
    if kind == "bf16":
        return w.astype(BF16), None, w.astype(BF16).astype(np.float64)
    parts = [quern.quantize_fp8(x, block=(128, 128), dtype=kind) for x in w]
    q, scale = (np.stack([part[i] for part in parts]) for i in range(2))
    wide = np.repeat(np.repeat(scale, 128, 1), 128, 2)[:, :shape[1], :shape[2]]
    return q, scale, q.astype(np.float64) * wide


KIND_STEP = {"bf16": 2.0**-8, "e4m3fn": 2.0**-4, "e4m3fnuz": 2.0**-4}  # relative; half a step


def layer(x, w1, w2, weights, ids, function, bias1, bias2, addend, limit, interleaved, kind):
    """Returns the layer in float64, and how far it may be off: products in f32, roundings to bf16, h to its kind."""
    out, bound = addend.astype(np.float64), np.abs(addend.astype(np.float64)) * 2.0**-23
    taken = quantized(x, kind) if kind != "bf16" else x.astype(np.float64)
    f32, bf16 = 2.0**-24, 2.0**-8
    for t, j in np.ndindex(ids.shape):
        e = ids[t, j]
        if e < 0:
            continue
        product = w1[e] @ taken[t] + bias1[e]
        off = (2 * len(taken[t]) + 300) * f32 * (np.abs(w1[e]) @ np.abs(taken[t]) + np.abs(bias1[e])) + bf16 * np.abs(product)
        half = len(product) // 2
        (gate, up), (off_gate, off_up) = ((a[::2], a[1::2]) if interleaved else (a[:half], a[half:]) for a in (product, off))
        h, by_gate, by_up = halves_acted(function, gate, up, limit)
        # A slope bounds by the values nearby: 2 covers their change.
        off_h = 2 * (by_gate * off_gate + by_up * off_up) + 100 * f32 * np.abs(h) + off_gate * off_up
        amax = np.repeat([np.abs(part).max() for part in np.split(h, range(128, half, 128))], 128)[:half]
        off_h += KIND_STEP[kind] * (np.abs(h) + off_h) + (amax * 2.0**-16 if kind != "bf16" else 0)
        made = w2[e] @ h + bias2[e]
        off_made = np.abs(w2[e]) @ off_h + (2 * half + 300) * f32 * (np.abs(w2[e]) @ np.abs(h) + np.abs(bias2[e]))
        off_made += bf16 * (np.abs(made) + off_made)
        out = out + 0
        out[t] += weights[t, j] * made
        bound[t] += np.abs(weights[t, j]) * (off_made + 8 * f32 * np.abs(made))
    return out, bound + bf16 * (np.abs(out) + bound)


@pytest.mark.parametrize("device", ["cpu", "sim:gfx942", "sim:gfx1151"])
@pytest.mark.parametrize("function, interleaved, limit, kind, hidden, inner", [
    ("silu", False, 0, "bf16", 64, 48), ("silu", False, 0, "e4m3", 256, 128), ("silu", True, 0, "e4m3", 256, 128),
    ("swiglu", True, 7.0, "bf16", 96, 40), ("gelu", False, 0, "e4m3", 200, 72), ("gelu_tanh", True, 1.5, "bf16", 33, 17)])
def test_fused_moe(device, function, interleaved, limit, kind, hidden, inner):
    tokens, top_k, experts = 9, 3, 6
    kind = kind if kind == "bf16" else "e4m3fnuz" if device == "sim:gfx942" else "e4m3fn"
    x, addend = normal(1, (tokens, hidden), BF16), normal(2, (tokens, hidden), BF16)
    ids = np.random.default_rng(3).integers(-1, experts, (tokens, top_k)).astype(np.int32)
    ids[4] = -1  # a token without experts
    weights = np.abs(normal(4, (tokens, top_k)))
    w1, w1_scale, exact1 = weights_of(5, (experts, 2 * inner, hidden), kind)
    w2, w2_scale, exact2 = weights_of(6, (experts, hidden, inner), kind)
    bias1, bias2 = normal(7, (experts, 2 * inner)), normal(8, (experts, hidden))

    def there(a):
        return a if a is None else quern.to(a, device)

    got = quern.numpy(quern.fused_moe(*map(there, (x, w1, w2, weights, ids)), function, w1_scale=there(w1_scale),
                                      w2_scale=there(w2_scale), bias1=there(bias1), bias2=there(bias2), addend=there(addend),
                                      limit=limit, interleaved=interleaved)).astype(np.float64)
    want, bound = layer(x, exact1, exact2, weights, ids, function, bias1, bias2, addend, limit, interleaved, kind)
    worst = np.max(np.abs(got - want) / bound)
    assert worst <= 1, f"error is {worst:.2f} of the tolerance"
    np.testing.assert_array_equal(got[4], addend[4].astype(np.float64))


def test_fused_moe_is_its_parts():
    """The same bits by the parts: DeepSeek's layer with FP8 weights, experts of another device left out."""
    x, expert_map = normal(1, (20, 256), BF16), np.array([2, -1, 0, -1, 1, 3, -1, -1], np.int32)
    weights, ids = quern.moe_route(normal(2, (20, 8)), 3, scoring="sigmoid", renormalize=True)
    w1, s1, _ = weights_of(3, (4, 256, 256), "e4m3fn")
    w2, s2, _ = weights_of(4, (4, 256, 128), "e4m3fn")
    ends, row_of_pair, pair_of_row, expert_of_row, _, _ = quern.moe_sort(ids, 4, 1, expert_map)
    q, scale = quern.quantize_groups(x, 128, "e4m3fn")
    rows, scales = quern.moe_permute(q, pair_of_row, 3, scale)
    made = np.zeros((60, 256), BF16)
    quern.gemm_grouped_contiguous(rows, w1, ends, scale_a=scales, scale_b=s1, by_ends=True, m_alignment=1, out=made)
    h, h_scale = quern.moe_activate(made, expert_of_row=expert_of_row, dtype="e4m3fn")
    y = np.zeros((60, 256), BF16)
    quern.gemm_grouped_contiguous(h, w2, ends, scale_a=h_scale, scale_b=s2, by_ends=True, m_alignment=1, out=y)
    want = quern.moe_sum(y, weights, row_of_pair)
    got = quern.fused_moe(x, w1, w2, weights, ids, w1_scale=s1, w2_scale=s2, expert_map=expert_map)
    np.testing.assert_array_equal(got.view(np.uint16), want.view(np.uint16))
    given = quern.fused_moe(q, w1, w2, weights, ids, w1_scale=s1, w2_scale=s2, expert_map=expert_map, x_scale=scale)
    np.testing.assert_array_equal(given.view(np.uint16), want.view(np.uint16))


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
def test_fused_moe_of_packed_weights(device, interleaved):
    x, weights = normal(1, (5, 128), BF16), normal(2, (5, 2))
    ids = np.random.default_rng(3).integers(0, 3, (5, 2)).astype(np.int32)
    kind = "e4m3fnuz" if device != "cpu" else "e4m3fn"
    (w1, s1, _), (w2, s2, _) = weights_of(4, (3, 144, 128), kind), weights_of(5, (3, 128, 72), kind)
    x, w1, s1, w2, s2, weights, ids = (quern.to(a, device) for a in (x, w1, s1, w2, s2, weights, ids))
    want = quern.fused_moe(x, w1, w2, weights, ids, w1_scale=s1, w2_scale=s2, interleaved=interleaved)
    want = quern.numpy(want).astype(np.float64)
    (p1, ps1), (p2, ps2) = quern.gemm_pack(w1, s1), quern.gemm_pack(w2, s2)
    got = quern.fused_moe(x, p1, p2, weights, ids, w1_scale=ps1, w2_scale=ps2, packed=True, inner=72, interleaved=interleaved)
    np.testing.assert_allclose(quern.numpy(got).astype(np.float64), want, rtol=2.0**-7, atol=2.0**-7 * np.abs(want).max())


@pytest.mark.parametrize("form", ["packed=True, inner=128", "packed=False"])
def test_pairs_go_to_the_matrix_cores(form):
    """What AMD GPUs have for products with pairs' scales is slow: products and activation apart are not."""
    program = f"""if True:
        import quern
        new = lambda shape, dtype: quern.empty(shape, dtype, "sim:gfx942")
        w1, w2 = new((2, 256, 128), "e4m3fnuz"), new((2, 128, 128), "e4m3fnuz")
        quern.fused_moe(new((1, 128), "bf16"), w1, w2, new((1, 1), "f32"), new((1, 1), "i32"), w1_scale=new((2, 2, 1), "f32"),
                        w2_scale=new((2, 1, 1), "f32"), {form}, interleaved=True)
        """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "QUERN_LOG": "kernel"})
    chosen = [line.split(": ")[3].split(";")[0] for line in done.stderr.splitlines() if ": kernel: gemm on " in line]
    assert done.returncode == 0 and chosen and not any(c.startswith("gemm.any") for c in chosen), done.stderr


def test_shared_experts():
    """Shared experts as columns of the routing, and as a layer of their own whose result is added."""
    x, w1, w2 = normal(1, (6, 64), BF16), weights_of(2, (5, 64, 64), "bf16")[0], weights_of(3, (5, 64, 32), "bf16")[0]
    logits = normal(4, (6, 4))
    together = quern.fused_moe(x, w1, w2, *quern.moe_route(logits, 2, shared_experts=1, shared_weight=0.5))
    weights, ids = quern.moe_route(logits, 2)
    shared = quern.fused_moe(x, w1[4:], w2[4:], np.full((6, 1), 0.5, np.float32), np.zeros((6, 1), np.int32), dtype="f32")
    apart = quern.fused_moe(x, w1[:4], w2[:4], weights, ids, addend=shared, dtype="f32").astype(np.float64)
    bound = 2.0**-8 * np.abs(apart) + 2.0**-22 * (np.abs(apart) + np.abs(shared).max() + np.abs(apart).max())
    assert (np.abs(together.astype(np.float64) - apart) <= bound).all()


def test_tokens_bits_are_their_own():
    """A token alone, in a batch, and in a larger batch, and for any share of threads."""
    x, (w1, s1, _), (w2, s2, _) = normal(1, (70, 128), BF16), weights_of(2, (8, 256, 128), "e4m3fn"), weights_of(3, (8, 128, 128), "e4m3fn")
    weights, ids = quern.moe_route(normal(4, (70, 8)), 2)
    whole = quern.fused_moe(x, w1, w2, weights, ids, w1_scale=s1, w2_scale=s2)
    for part in (slice(7, 8), slice(3, 30)):
        got = quern.fused_moe(x[part], w1, w2, weights[part], ids[part], w1_scale=s1, w2_scale=s2)
        np.testing.assert_array_equal(got.view(np.uint16), whole[part].view(np.uint16))


@pytest.mark.parametrize("device, kind", [("sim:gfx942", "e4m3fnuz"), ("sim:gfx950", "e4m3fn")])
@pytest.mark.parametrize("hidden, inner, top_k, dtype", [(256, 128, 3, "bf16"), (1152, 384, 9, "f32")])
def test_few_tokens_have_the_bits_of_parts(device, kind, hidden, inner, top_k, dtype):
    """17 tokens go through the layer's parts, fewer through two launches: with zeros, large values, pairs of no expert."""
    experts, expert_map = 4, np.array([2, -1, 0, 1, 3], np.int32)
    x, addend, weights = normal(1, (17, hidden), BF16), normal(2, (17, hidden), np.float32), normal(3, (17, top_k))
    x[2, :200], x[3] = 0, x[3] * 1000
    ids = np.random.default_rng(4).integers(-1, 5, (17, top_k)).astype(np.int32)
    (w1, s1, _), (w2, s2, _) = weights_of(5, (experts, 2 * inner, hidden), kind), weights_of(6, (experts, hidden, inner), kind)
    (w1, s1), (w2, s2) = (quern.gemm_pack(quern.to(w, device), quern.to(s, device)) for w, s in ((w1, s1), (w2, s2)))
    addend = addend.astype(BF16 if dtype == "bf16" else np.float32)

    def run(part):
        there = [quern.to(a[part], device) for a in (x, weights, ids, addend)]
        out = quern.fused_moe(there[0], w1, w2, *there[1:3], w1_scale=s1, w2_scale=s2, packed=True, inner=inner, dtype=dtype,
                              expert_map=quern.to(expert_map, device), addend=there[3])
        return quern.numpy(out).view(np.uint8), quern.last_kernel()

    whole, kernel = run(slice(17))
    assert kernel == "moe_sum.gpu"
    for part in (slice(1), slice(2, 5), slice(1, 17)):
        got, kernel = run(part)
        assert kernel == "moe_few.gpu"
        np.testing.assert_array_equal(got, whole[part])


def test_indices_out_of_range_are_none_on_a_gpu():
    """Without QUERN_VALIDATE a GPU takes them for -1, and NaNs come last."""
    ids = np.array([[0, 5], [-7, 1], [2, 1 << 30]], np.int32)
    ends, row_of_pair, *_ = quern.moe_sort(quern.to(ids, "sim:gfx942"), 3, 1)
    assert quern.numpy(ends).tolist() == [1, 2, 3] and quern.numpy(row_of_pair).tolist() == [[0, -1], [-1, 1], [2, -1]]
    rows = quern.to(np.array([[0, 9], [-3, 1]], np.int32), "sim:gfx942")
    got = quern.numpy(quern.moe_sum(quern.to(np.ones((2, 8), np.float32), "sim:gfx942"), None, rows))
    assert (got == 1).all()
    logits = np.array([[np.nan, 1, np.nan, 3, 2]], np.float32)
    assert quern.numpy(quern.moe_route(quern.to(logits, "sim:gfx942"), 5, scoring="sigmoid")[1]).tolist() == [[3, 4, 1, 0, 2]]


def fused(given_x, **changed):
    ids = np.zeros((3, 1), np.int32)
    given = {"x": given_x.astype(BF16), "w1": np.ones((2, 6, 8), BF16), "w2": np.ones((2, 8, 3), BF16),
             "weights": np.ones((3, 1), np.float32), "ids": ids} | changed
    return quern.fused_moe(**given)


@pytest.mark.parametrize("call, kind, words", [
    (lambda x: quern.moe_route(x, 9), ValueError, "moe_route: weights have 9 columns"),
    (lambda x: quern.moe_route(x, 0), ValueError, "moe_route: top_k is 0; accepted: 1 or more"),
    (lambda x: quern.moe_route(x, 2, groups=3), ValueError, "moe_route: groups is 3; accepted: 1 to 64 that divide 8 experts"),
    (lambda x: quern.moe_route(x, 2, groups=0), ValueError, "moe_route: groups is 0; accepted: 1 or more"),
    (lambda x: quern.moe_route(x, 2, groups=2, topk_groups=3), ValueError, "moe_route: topk_groups is 3"),
    (lambda x: quern.moe_route(x, 2, scoring="relu"), ValueError, "moe_route: scoring is 'relu'; accepted: 'softmax', 'sigmoid'"),
    (lambda x: quern.moe_route(x, 2, scaling=0.0), ValueError, "moe_route: scaling is 0; accepted: above 0, finite"),
    (lambda x: quern.moe_route(x, 2, scaling=-1.0), ValueError, "moe_route: scaling is -1"),
    (lambda x: quern.moe_route(x, 2, shared_experts=-1), ValueError, "moe_route: shared_experts is -1; accepted: 0 or more"),
    (lambda x: quern.moe_route(x, 2, weights=np.zeros((3, 3), np.float32)), ValueError, "moe_route: weights has shape [3, 3]"),
    (lambda x: quern.moe_route(x.astype(np.int32), 2), NotImplementedError, "moe_route: logits has dtype i32"),
    (lambda x: quern.moe_route(x * np.nan, 2), ValueError, "moe_route: logits[0, 0] is NaN; accepted: numbers"),
    (lambda x: quern.moe_sort(x[:, 0].astype(np.int32), 8), ValueError, "moe_sort: ids has shape [3], needs 2 dimensions"),
    (lambda x: quern.moe_sort(x.astype(np.int32) + 9, 8), ValueError, "moe_sort: ids[0] is"),
    (lambda x: quern.moe_sort(x.astype(np.int32), 0), ValueError, "moe_sort: experts is 0; accepted: 1 to 2^31 - 1"),
    (lambda x: quern.moe_sort(x.astype(np.int32), 8, 0), ValueError, "moe_sort: alignment is 0"),
    (lambda x: quern.moe_sort(x.astype(np.int32), 8, pair_of_row=np.zeros(9, np.int32)), ValueError, "moe_sort: there are 9 rows"),
    (lambda x: quern.moe_permute(x, np.zeros(9, np.int32), 0), ValueError, "moe_permute: top_k is 0"),
    (lambda x: quern.moe_permute(x, np.zeros(9, np.int32), 2, scale_out=x), ValueError, "moe_permute: scale is None and scale_out"),
    (lambda x: quern.moe_sum(x), ValueError, "moe_sum: out is None; needed without weights, row_of_pair and addend"),
    (lambda x: quern.moe_sum(x, out=x[:2].copy()), ValueError, "moe_sum: x has 3 rows; accepted without row_of_pair: 2 tokens"),
    (lambda x: quern.moe_activate(x, "relu"), ValueError, "moe_activate: function is 'relu'; accepted: 'silu', 'gelu', 'gelu_tanh', 'sw"),
    (lambda x: quern.moe_activate(x, alpha=1.0), ValueError, "moe_activate: alpha is 1; accepted: above 0 and finite with"),
    (lambda x: quern.moe_activate(x, limit=-1.0), ValueError, "moe_activate: limit is -1"),
    (lambda x: quern.moe_activate(x[:, :7].copy()), ValueError, "moe_activate: x has rows of 7 elements, needs an even number"),
    (lambda x: quern.moe_activate(x, out=np.zeros((3, 4), E4M3)), ValueError, "moe_activate: scale is None; needed with out of e4m3fn"),
    (lambda x: fused(x, ids=np.full((3, 1), 2, np.int32)), ValueError, "fused_moe: ids[0] is 2; accepted: -1 to 1"),
    (lambda x: fused(x, w1=np.ones((2, 4, 8), BF16)), ValueError, "fused_moe: w1 has shape [2, 4, 8]"),
    (lambda x: fused(x, w2=np.ones((3, 8, 3), BF16)), ValueError, "fused_moe: w1 has 2 experts and w2 3"),
    (lambda x: fused(x, x=x), NotImplementedError, "fused_moe: x has dtype f32; accepted: f16, bf16"),
    (lambda x: fused(x, x=x.astype(E4M3)), ValueError, "fused_moe: x_scale is None; needed with x of FP8"),
    (lambda x: fused(x, workspace=np.zeros(99, np.uint8)), ValueError, "fused_moe: workspace has 99 bytes; accepted: at least"),
    (lambda x: fused(x, bias1=x), ValueError, "fused_moe: product of w1, w1_scale, bias1: bias has shape [3, 8]"),
    (lambda x: fused(x, inner=3), ValueError, "fused_moe: inner is 3; accepted: 0"),
    (lambda x: fused(x, weights=np.ones((3, 2), np.float32)), ValueError, "fused_moe: weights has shape [3, 2]"),
    (lambda x: quern.moe_route(7, 2), TypeError, "moe_route: logits is 7; accepted: an array"),
])
def test_refusals(call, kind, words):
    with pytest.raises(kind) as error:
        call(normal(1, (3, 8)))
    assert words in str(error.value)
