# SPDX-License-Identifier: Apache-2.0
"""DeepSeek-V3's attention as engines run it: prompts with keys and values expanded, prompts in chunks whose partial results are
merged, and new tokens on the compressed cache, in the cache layouts of vLLM, SGLang with AITER, and FlashInfer, of bf16 and FP8."""

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import BF16, normal

RANK, NOPE, ROPE, V = 512, 128, 64, 128
SCALE = (NOPE + ROPE) ** -0.5
CONTEXT, NEW = [37, 0, 20], [5, 3, 1]  # tokens in the cache before, and tokens of this step
# Layout -> tokens of a page, and whether compressed and rotated keys are two tensors.
LAYOUTS = {"vllm": (16, False), "sglang and aiter": (1, False), "flashinfer": (64, True)}
FP8 = {"cpu": ml_dtypes.float8_e4m3fn, "sim:gfx942": ml_dtypes.float8_e4m3fnuz, "sim:gfx1151": ml_dtypes.float8_e4m3fn}
# Each way rounds four times to bf16, by up to 2^-8 of a value: what is expanded or absorbed, weights, what attention gives, and the
# result. Such errors add up as independent ones.
TOLERANCE = 4**0.5 * 2.0**-8


def indptr_of(lengths):
    return np.cumsum([0, *lengths]).astype(np.int32)


class Layer:
    """A layer's weights, queries and compressed keys, a cache, and its device."""

    def __init__(self, device, layout, dtype, heads=4):
        self.heads, self.dtype, self.there = heads, dtype, lambda x: quern.to(np.ascontiguousarray(x), device)
        self.lengths = [a + b for a, b in zip(CONTEXT, NEW, strict=True)]
        self.w_k, self.w_v = ((normal(i, (heads, d, RANK)) / 16).astype(BF16) for i, d in ((1, NOPE), (2, V)))
        self.q = normal(3, (sum(NEW), heads, NOPE + ROPE)).astype(BF16)
        self.latents = normal(4, (sum(self.lengths), RANK + ROPE)).astype(BF16)
        self.scale = np.float32([0.025]) if np.dtype(dtype).itemsize == 1 else None
        self._make_cache(*LAYOUTS[layout])

    def _make_cache(self, page, is_split):
        self.page = page
        pages = [-(-n // page) for n in self.lengths]
        self.kv_indptr = indptr_of(pages)
        self.kv_indices = np.random.default_rng(5).permutation(sum(pages)).astype(np.int32)
        widths = (RANK, ROPE) if is_split else (RANK + ROPE,)
        self.cache = [self.there(np.zeros((sum(pages), page, width), self.dtype)) for width in widths]

    def parts(self):
        """Returns the caches of compressed and of rotated keys."""
        if len(self.cache) == 2:
            return self.cache
        return self.cache[0][:, :, :RANK], self.cache[0][:, :, RANK:]

    def places(self, indptr, ends):
        """Returns batch_indices and positions of the last tokens, indptr[b + 1] - indptr[b], of sequences that end at ends[b]."""
        return quern.get_batch_indices_positions(self.there(indptr), self.there(np.int32(ends)), int(indptr[-1]))

    def write(self):
        """Appends all tokens to the cache, by slots where it is one tensor, else by batches and positions."""
        batch, positions = (quern.numpy(x) for x in self.places(indptr_of(self.lengths), self.lengths))
        c, kpe = self.there(self.latents[:, :RANK]), self.there(self.latents[:, RANK:])
        if len(self.cache) == 1:
            slots = self.kv_indices[self.kv_indptr[batch] + positions // self.page] * self.page + positions % self.page
            quern.concat_and_cache_mla(self.cache[0], c, kpe, self.there(slots), self.scale if self.scale is None else self.there(self.scale))
            return
        c, kpe = ((self.there((quern.numpy(x).astype(np.float32) / self.scale).astype(self.dtype)) for x in (c, kpe))
                  if self.scale is not None else (c, kpe))
        quern.append_paged_mla_kv_cache(*self.cache, c, kpe, *map(self.there, (batch, positions, self.kv_indices, self.kv_indptr)))

    def stored(self):
        """Returns in float64 what the cache's rows stand for."""
        if self.scale is None:
            return self.latents.astype(np.float64)
        codes = (self.latents.astype(np.float32) * np.float32(1 / self.scale)).astype(self.dtype)
        return codes.astype(np.float64) * np.float64(self.scale)

    def exact(self):
        """Computes the definition in float64, for the new tokens."""
        rows, begin, results = self.stored(), indptr_of(self.lengths), []
        for b, (old, new) in enumerate(zip(CONTEXT, NEW, strict=True)):
            c, kpe = np.split(rows[begin[b]:begin[b + 1]], [RANK], 1)
            k = np.einsum("jc,hdc->hjd", c, self.w_k.astype(np.float64))
            q = self.q[indptr_of(NEW)[b]:indptr_of(NEW)[b + 1]].astype(np.float64)
            x = SCALE * (np.einsum("ihd,hjd->hij", q[..., :NOPE], k) + np.einsum("ihd,jd->hij", q[..., NOPE:], kpe))
            x = np.where(np.arange(old + new) <= old + np.arange(new)[:, None], x, -np.inf)
            p = np.exp(x - x.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            results.append(np.einsum("hij,jc,hdc->ihd", p, c, self.w_v.astype(np.float64)))
        return np.concatenate(results)

    # ---- new tokens on the compressed cache

    def absorbed(self):
        """Computes attention with the up-projections absorbed."""
        q_nope, q_pe = (self.there(x) for x in np.split(self.q, [NOPE], -1))
        tokens = self.q.shape[0]
        q = self._by_heads(q_nope, self.w_k.swapaxes(1, 2), (tokens, self.heads, RANK))
        last = [(n - 1) % self.page + 1 for n in self.lengths]
        plan = quern.attention_plan(self.heads, 1, RANK, qo_indptr=indptr_of(NEW), kv_indptr=self.kv_indptr, kv_last_page_len=last,
                                    page_size=self.page)
        scales = None if self.scale is None else self.there(self.scale)
        out = quern.mla_decode(q, q_pe, *self.parts(), plan=plan, kv_indices=self.there(self.kv_indices), sm_scale=SCALE,
                               is_causal=True, kv_scales=scales)
        return quern.numpy(self._by_heads(out, self.w_v, (tokens, self.heads, V)))

    def _by_heads(self, a, b, shape):
        """Returns a b^T of each head: [tokens, heads, n]."""
        a = self.there(quern.numpy(a).swapaxes(0, 1))
        return self.there(quern.numpy(quern.gemm(a, self.there(b))).swapaxes(0, 1).reshape(shape))

    # ---- prompts with keys and values expanded

    def expanded(self, rows):
        """Returns keys and values of each head of compressed keys [n, 576]."""
        rows = quern.numpy(rows)
        c = self.there(rows[:, :RANK])
        k, v = (quern.numpy(quern.gemm(c, self.there(w.reshape(-1, RANK)))).reshape(len(rows), self.heads, -1)
                for w in (self.w_k, self.w_v))
        kpe = np.broadcast_to(rows[:, None, RANK:], (len(rows), self.heads, ROPE))
        return self.there(np.concatenate([k, kpe], -1)), self.there(v)

    def attend(self, rows, kv_lengths, is_causal):
        """Returns (out, lse) of all new tokens on expanded keys and values."""
        plan = quern.attention_plan(self.heads, self.heads, V, qo_indptr=indptr_of(NEW), kv_indptr=indptr_of(kv_lengths))
        return quern.attention(self.there(self.q), *self.expanded(rows), plan=plan, is_causal=is_causal, sm_scale=SCALE, return_lse=True)

    def gathered(self, begins, ends):
        """Returns the cached rows of tokens begins[b] to ends[b] - 1 of each sequence in bf16, and their numbers."""
        lengths = [end - begin for begin, end in zip(begins, ends, strict=True)]
        batch, positions = self.places(indptr_of(lengths), ends)
        scale = None if self.scale is None else self.there(self.scale)
        rows = [quern.numpy(quern.gather_paged_mla_kv_cache(
            cache, scale=scale, batch_indices=batch, positions=positions, kv_indices=self.there(self.kv_indices),
            kv_indptr=self.there(self.kv_indptr))) for cache in self.cache]
        return self.there(np.concatenate(rows, -1)), lengths

    def chunked(self, size):
        """Computes attention to the new tokens, and to the cache in chunks of so many tokens of each sequence, and merges."""
        out, lse = self.attend(*self.gathered(CONTEXT, self.lengths), is_causal=True)
        for first in range(0, max(CONTEXT), size):
            begins = [min(first, n) for n in CONTEXT]
            part, part_lse = self.attend(*self.gathered(begins, [min(first + size, n) for n in CONTEXT]), is_causal=False)
            out, lse = quern.merge_state(out, lse, part, part_lse)
        return quern.numpy(out)


def error(got, want):
    return np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)


def made(device, layout, kind):
    try:
        quern.device(device)
    except LookupError:
        pytest.skip(f"no {device}")
    layer = Layer(device, layout, BF16 if kind == "bf16" else FP8[device])
    layer.write()
    return layer


@pytest.mark.parametrize("device", FP8)
@pytest.mark.parametrize("kind", ["bf16", "fp8"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_way_is_the_layer(layout, kind, device):
    layer = made(device, layout, kind)
    want = layer.exact()
    ways = {"absorbed": layer.absorbed(), "chunks of 16": layer.chunked(16), "chunks of 64": layer.chunked(64)}
    for way, got in ways.items():
        assert error(got, want) <= TOLERANCE, f"{way}: {error(got, want):.2e}"


def test_a_prompt_without_a_cache():
    """Tests that a whole prompt, expanded, is what its chunks were merged to."""
    layer = made("cpu", "vllm", "bf16")
    begin, lengths = indptr_of(layer.lengths), layer.lengths
    q = normal(6, (sum(lengths), layer.heads, NOPE + ROPE)).astype(BF16)
    new = np.concatenate([np.arange(begin[b + 1] - NEW[b], begin[b + 1]) for b in range(3)])
    q[new] = layer.q
    plan = quern.attention_plan(layer.heads, layer.heads, V, qo_indptr=begin, kv_indptr=begin)
    out = quern.attention(q, *(quern.numpy(x) for x in layer.expanded(layer.there(layer.latents))), plan=plan, is_causal=True, sm_scale=SCALE)
    assert error(out[new], layer.exact()) <= TOLERANCE


def test_what_is_gathered_is_what_was_written():
    layer = made("cpu", "vllm", "fp8")
    rows, lengths = layer.gathered([0, 0, 0], layer.lengths)
    assert lengths == layer.lengths
    np.testing.assert_array_equal(quern.numpy(rows), layer.stored().astype(np.float32).astype(BF16))
    slots = np.array([3, -1, 0], np.int32)
    codes = quern.gather_paged_mla_kv_cache(quern.numpy(layer.cache[0]), slots, out=np.full((3, RANK + ROPE), 1, layer.dtype))
    want = quern.numpy(layer.cache[0]).reshape(-1, RANK + ROPE)[[3, 3, 0]]
    want[1] = 1
    np.testing.assert_array_equal(codes, want)


@pytest.mark.parametrize(("change", "kind", "text"), [
    ({"slot_mapping": None}, ValueError, "slot_mapping and batch_indices are None"),
    ({"slot_mapping": np.array([6], np.int32)}, ValueError, r"slot_mapping\[0\] is 6"),
    ({"dtype": "f16", "out": np.zeros((1, 8), np.float32)}, ValueError, "dtype is 'f16'; accepted beside out: None"),
    ({"dtype": "i8"}, ValueError, "dtype is 'i8'; accepted: f32, f16, bf16"),
    ({"dtype": "f16"}, NotImplementedError, "out has dtype f16; accepted: f32"),
    ({"scale": np.float32([1])}, NotImplementedError, "cache has dtype f32; accepted with scale: FP8"),
    ({"kv_indptr": np.zeros(2, np.int32)}, ValueError, "kv_indptr is given beside slot_mapping"),
])
def test_refusals(change, kind, text):
    good = {"cache": np.zeros((3, 2, 8), np.float32), "slot_mapping": np.array([5], np.int32)}
    quern.gather_paged_mla_kv_cache(**good)
    with pytest.raises(kind, match="gather_paged_mla_kv_cache: .*" + text):
        quern.gather_paged_mla_kv_cache(**{**good, **change})
