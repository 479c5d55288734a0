# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's attention, argument by argument: each that FlashInfer's calls take acts, says what the index arrays
say already, changes nothing by design, or is refused."""

import functools
import inspect
import math

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import HALF, Pages, close, expected, randn, workspace  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

LENGTHS = [33, 7]
SIZES = 4, 2, 64, 8  # query heads, kv heads, head_dim, page size
DECODE_RUN = "q paged_kv_cache q_scale k_scale v_scale out lse return_lse enable_pdl window_left sinks q_len_per_req"
PREFILL_PLAN = ("num_qo_heads num_kv_heads head_dim_qk head_dim_vo custom_mask packed_custom_mask causal pos_encoding_mode "
                "use_fp16_qk_reduction sm_scale window_left logits_soft_cap rope_scale rope_theta q_data_type kv_data_type "
                "o_data_type non_blocking prefix_len_ptr token_pos_in_items_ptr token_pos_in_items_len max_item_len_ptr seq_lens "
                "seq_lens_q max_token_per_sequence max_sequence_kv fixed_split_size disable_split_kv")
DECODE_PLAN = ("indptr indices last_page_len num_qo_heads num_kv_heads head_dim page_size pos_encoding_mode window_left "
               "logits_soft_cap q_data_type kv_data_type data_type sm_scale rope_scale rope_theta non_blocking fixed_split_size "
               "disable_split_kv")
# What plan() of a wrapper takes is what _batch_of() takes: plan() hands it on.
TAKEN = [
    (flashinfer.single_decode_with_kv_cache, "q k v kv_layout pos_encoding_mode use_tensor_cores q_scale k_scale v_scale window_left "
     "logits_soft_cap sm_scale rope_scale rope_theta return_lse"),
    (flashinfer.single_prefill_with_kv_cache, "q k v scale_q scale_k scale_v o_dtype custom_mask packed_custom_mask causal kv_layout "
     "pos_encoding_mode use_fp16_qk_reduction sm_scale window_left logits_soft_cap rope_scale rope_theta backend return_lse"),
    (flashinfer.BatchDecodeWithPagedKVCacheWrapper, "float_workspace_buffer kv_layout use_cuda_graph use_tensor_cores "
     "paged_kv_indptr_buffer paged_kv_indices_buffer paged_kv_last_page_len_buffer backend jit_args"),
    (flashinfer.BatchDecodeWithPagedKVCacheWrapper._batch_of, DECODE_PLAN + " o_data_type block_tables seq_lens q_len_per_req"),
    (flashinfer.BatchDecodeWithPagedKVCacheWrapper.run, DECODE_RUN),
    (flashinfer.fast_decode_plan, DECODE_PLAN + " global_override_indptr_cpu"),
    (flashinfer.CUDAGraphBatchDecodeWithPagedKVCacheWrapper, "workspace_buffer indptr_buffer indices_buffer last_page_len_buffer "
     "kv_layout use_tensor_cores"),
    (flashinfer.BatchPrefillWithPagedKVCacheWrapper, "float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf "
     "paged_kv_indptr_buf paged_kv_indices_buf paged_kv_last_page_len_buf custom_mask_buf mask_indptr_buf backend jit_args"),
    (flashinfer.BatchPrefillWithPagedKVCacheWrapper._batch_of, PREFILL_PLAN + " qo_indptr paged_kv_indptr paged_kv_indices "
     "paged_kv_last_page_len page_size block_tables"),
    (flashinfer.BatchPrefillWithPagedKVCacheWrapper.run, DECODE_RUN.removesuffix(" q_len_per_req")),
    (flashinfer.BatchPrefillWithRaggedKVCacheWrapper, "float_workspace_buffer kv_layout use_cuda_graph qo_indptr_buf kv_indptr_buf "
     "custom_mask_buf mask_indptr_buf backend jit_args"),
    (flashinfer.BatchPrefillWithRaggedKVCacheWrapper.plan, PREFILL_PLAN + " qo_indptr kv_indptr v_indptr o_indptr"),
    (flashinfer.BatchPrefillWithRaggedKVCacheWrapper.run, "q k v q_scale k_scale v_scale o_scale out lse return_lse enable_pdl"),
    (flashinfer.merge_state, "v_a s_a v_b s_b"), (flashinfer.merge_state_in_place, "v s v_other s_other mask"),
    (flashinfer.merge_states, "v s"),
]


@pytest.mark.parametrize("call, names", TAKEN, ids=lambda x: getattr(x, "__qualname__", ""))
def test_names(call, names):
    taken = set(inspect.signature(call).parameters)
    assert set(names.split()) <= taken, set(names.split()) - taken


class Decode:
    """A planned batch of decode, and its expected results."""

    def __init__(self, q_len=1, **pages):
        self.pages, self.q_len = Pages(LENGTHS, SIZES[3], **pages), q_len
        self.q = randn(2 * q_len, 4, 64)
        self.wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())

    def plan(self, *arguments, **options):
        self.wrapper.plan(*self.pages.arrays(), *SIZES, *arguments, **options)
        return self

    def agrees(self, mode="NONE", factor=1.0, run=None, **options):
        out, lse = self.wrapper.run(self.q, self.pages.cache, return_lse=True, **(run or {}))
        for b in range(2):
            rows = slice(b * self.q_len, (b + 1) * self.q_len)
            want, want_lse = expected(self.q[rows], self.pages.k[b], self.pages.v[b], mode, is_causal=True, **options)
            close(out[rows], factor * want)
            close(lse[rows], want_lse)
        return out


# ---- decode

@pytest.mark.parametrize("options", [
    {"sm_scale": 0.3}, {"logits_soft_cap": 8.0}, {"window_left": 5}, {"sm_scale": 0.2, "logits_soft_cap": 5.0, "window_left": 9},
    {"mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 1e5}, {"mode": "ROPE_LLAMA", "logits_soft_cap": 8.0}, {"mode": "ALIBI"},
], ids=lambda o: "-".join(o))
def test_decode_plan_and_fast_decode_plan(options):
    """Tests both plans. fast_decode_plan gets the indptr that it is told to read."""
    named = {("pos_encoding_mode" if name == "mode" else name): value for name, value in options.items()}
    batch = Decode().plan(**named)
    out = batch.agrees(**options)
    fast = Decode()
    wrong = torch.zeros(3, dtype=torch.int32)
    flashinfer.fast_decode_plan(fast.wrapper, wrong, *fast.pages.arrays()[1:], *SIZES, **named,
                                global_override_indptr_cpu=fast.pages.indptr)
    assert torch.equal(fast.agrees(**options), out)
    flashinfer.fast_decode_plan(fast.wrapper, *fast.pages.arrays(), *SIZES, **named, fixed_split_size=1, non_blocking=False)
    fast.agrees(**options)
    flashinfer.fast_decode_plan(fast.wrapper, *fast.pages.arrays(), *SIZES, **named, disable_split_kv=True)
    fast.agrees(**options)


def test_dtypes_of_decode():
    batch = Decode(dtype=torch.bfloat16)
    batch.q = batch.q.bfloat16()
    batch.plan(data_type="bfloat16", q_data_type=None)
    out = batch.wrapper.run(batch.q, batch.pages.cache)
    assert out.dtype == torch.bfloat16
    for b in range(2):
        close(out[b:b + 1], expected(batch.q[b:b + 1], batch.pages.k[b], batch.pages.v[b])[0], 1e-2)
    batch.plan(q_data_type=torch.bfloat16, data_type=HALF, kv_data_type="bfloat16")  # each rules where it speaks
    assert torch.equal(batch.wrapper.run(batch.q, batch.pages.cache), out)
    batch.plan(q_data_type=torch.bfloat16, kv_data_type="bfloat16", o_data_type=HALF)
    assert batch.wrapper.run(batch.q, batch.pages.cache).dtype == HALF
    flashinfer.fast_decode_plan(batch.wrapper, *batch.pages.arrays(), *SIZES, q_data_type="bfloat16", kv_data_type=torch.bfloat16)
    assert torch.equal(batch.wrapper.run(batch.q, batch.pages.cache), out)


def test_arguments_of_decode_run():
    batch = Decode().plan()
    plain = batch.agrees()
    batch.agrees(run={"q_scale": 2.0, "k_scale": torch.tensor(0.5)})  # together 1
    batch.agrees(factor=3.0, run={"v_scale": 3.0, "enable_pdl": True})
    batch.agrees(run={"window_left": 4}, window_left=4)
    sinks = torch.randn(4, generator=torch.Generator().manual_seed(1))
    batch.agrees(run={"sinks": sinks}, sinks=sinks.numpy())
    out, lse = torch.full_like(plain, torch.nan), torch.full((2, 4), torch.nan)
    got = batch.wrapper.run_return_lse(batch.q, batch.pages.cache, out=out, lse=lse)
    assert got[0] is out and got[1] is lse and torch.equal(out, plain)
    assert torch.equal(batch.plan(seq_lens=torch.tensor(LENGTHS)).agrees(), plain)
    assert torch.equal(batch.plan(non_blocking=False).agrees(), plain)


@pytest.mark.parametrize("q_len", [1, 3])
def test_q_len_per_req(q_len):
    batch = Decode(q_len).plan(q_len_per_req=q_len)
    batch.agrees(run={"q_len_per_req": q_len})
    flashinfer.fast_decode_plan(batch.wrapper, *batch.pages.arrays(), *SIZES, q_len_per_req=q_len)
    batch.agrees()
    with pytest.raises(ValueError, match="q_len_per_req is 5, planned was another"):
        batch.agrees(run={"q_len_per_req": 5})


def test_what_changes_nothing_and_int64_indices():
    batch = Decode().plan()
    want = batch.agrees()
    tensor_cores = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), use_tensor_cores=True, backend="fa2")
    assert tensor_cores.use_tensor_cores
    tensor_cores.plan(*(t.long() for t in batch.pages.arrays()), *SIZES)
    assert torch.equal(tensor_cores.run(batch.q, batch.pages.cache), want)
    q, k, v = batch.q[0], batch.pages.k[0].half(), batch.pages.v[0].half()
    one = flashinfer.single_decode_with_kv_cache(q, k, v, use_tensor_cores=True)
    assert torch.equal(one, flashinfer.single_decode_with_kv_cache(q, k, v))
    scaled = flashinfer.single_decode_with_kv_cache(q, k, v, q_scale=2.0, k_scale=0.25, v_scale=4.0, sm_scale=0.1, window_left=6)
    close(scaled, 4 * expected(q[None], k, v, sm_scale=0.05, window_left=6)[0][0])


def test_fast_decode_plan_in_the_place_of_plan():
    """Tests fast_decode_plan in the place of plan, where serving engines put it."""
    batch = Decode()
    batch.wrapper.plan = functools.partial(flashinfer.fast_decode_plan, batch.wrapper)
    batch.plan(sm_scale=0.3).agrees(sm_scale=0.3)


def test_an_lse_that_is_given_is_written():
    decode, prefill = Decode().plan(), Prefill().plan()
    for run, q in ((lambda **given: decode.wrapper.run(decode.q, decode.pages.cache, **given), decode.q),
                   (lambda **given: prefill.paged.run(prefill.q, prefill.pages.cache, **given), prefill.q),
                   (lambda **given: prefill.ragged.run(prefill.q, prefill.k, prefill.v, **given), prefill.q)):
        out, want = run(return_lse=True)
        lse = torch.full_like(want, torch.nan)
        assert torch.equal(run(lse=lse), out) and torch.equal(lse, want)
    lse = torch.full((4, QO[-1]), torch.nan)
    prefill.paged.run(prefill.q, prefill.pages.cache, lse=lse, lse_layout="HN")
    assert torch.equal(lse.T, want)


def test_the_caller_s_buffers_get_the_index_arrays():
    decode, prefill = Decode(), Prefill()
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (3, 16, 2)]
    flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "NHD", True, False, *buffers).plan(*decode.pages.arrays(), *SIZES)
    for buffer, array in zip(buffers, decode.pages.arrays(), strict=True):
        assert torch.equal(buffer[:len(array)], array)
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (3, 3, 16, 2)]
    arrays = prefill.indptr, *prefill.pages.arrays()
    flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", True, *buffers).plan(*arrays, *SIZES)
    for buffer, array in zip(buffers, arrays, strict=True):
        assert torch.equal(buffer[:len(array)], array)
    buffers = [torch.zeros(3, dtype=torch.int32) for _ in range(2)]
    ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace(), "NHD", True, *buffers)
    ragged.plan(prefill.indptr, prefill.kv_indptr, *SIZES[:3])
    assert torch.equal(buffers[0], prefill.indptr) and torch.equal(buffers[1], prefill.kv_indptr)


BAD_SCALES = [0, 0.0, math.nan, math.inf, torch.tensor(0.0), torch.tensor([math.nan]), torch.tensor([1.0, 0.0])]


@pytest.mark.parametrize("scale", BAD_SCALES, ids=str)
@pytest.mark.parametrize("name", ["k_scale", "v_scale"])
def test_scales_of_nothing(name, scale):
    decode, prefill = Decode().plan(), Prefill().plan()
    k, v = decode.pages.k[0].half(), decode.pages.v[0].half()
    for op, call in (("BatchDecodeWithPagedKVCacheWrapper", lambda **s: decode.wrapper.run(decode.q, decode.pages.cache, **s)),
                     ("BatchPrefillWithPagedKVCacheWrapper", lambda **s: prefill.paged.run(prefill.q, prefill.pages.cache, **s)),
                     ("BatchPrefillWithRaggedKVCacheWrapper", lambda **s: prefill.ragged.run(prefill.q, prefill.k, prefill.v, **s)),
                     ("single_decode_with_kv_cache", lambda **s: flashinfer.single_decode_with_kv_cache(decode.q[0], k, v, **s)),
                     ("single_prefill_with_kv_cache", lambda **s: flashinfer.single_prefill_with_kv_cache(decode.q, k, v, **s))):
        with pytest.raises(ValueError, match=rf"^{op}: {name}"):
            call(**{name: scale})


def test_words():
    pages = Pages([5], 4)
    for call in (lambda: flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), "XYZ"),
                 lambda: flashinfer.single_decode_with_kv_cache(randn(4, 64), pages.k[0], pages.v[0], "XYZ")):
        with pytest.raises(KeyError) as raised:  # as FlashInfer's
            call()
        assert str(raised.value).endswith("kv_layout is 'XYZ'; accepted: 'NHD', 'HND'") and isinstance(raised.value, ValueError)


# ---- prefill

QO = [0, 5, 12]


class Prefill:
    """The same batch planned over pages and over ragged keys."""

    def __init__(self):
        self.pages, self.q = Pages(LENGTHS, SIZES[3]), randn(QO[-1], 4, 64)
        self.indptr = torch.tensor(QO, dtype=torch.int32)
        self.kv_indptr = torch.tensor([0, LENGTHS[0], sum(LENGTHS)], dtype=torch.int32)
        self.k, self.v = torch.cat(self.pages.k).half(), torch.cat(self.pages.v).half()
        self.paged = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
        self.ragged = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(workspace())

    def plan(self, **options):
        self.paged.plan(self.indptr, *self.pages.arrays(), *SIZES, **options)
        if "fixed_split_size" in options:  # counts pages, and keys where there are none
            options["fixed_split_size"] *= SIZES[3]
        self.ragged.plan(self.indptr, self.kv_indptr, *SIZES[:3], **options)
        return self

    def agrees(self, mode="NONE", run=None, **options):
        out, lse = self.paged.run(self.q, self.pages.cache, return_lse=True, **(run or {}))
        if not run:
            same = self.ragged.run(self.q, self.k, self.v, return_lse=True)
            assert torch.equal(same[0], out) and torch.equal(same[1], lse)
        for b in range(2):
            rows = slice(QO[b], QO[b + 1])
            want, want_lse = expected(self.q[rows], self.pages.k[b], self.pages.v[b], mode, **options)
            close(out[rows], want)
            close(lse[rows], want_lse)
        return out


@pytest.mark.parametrize("options", [
    {"is_causal": True, "sm_scale": 0.3}, {"logits_soft_cap": 8.0}, {"is_causal": True, "window_left": 5}, {"mode": "ALIBI"},
    {"mode": "ROPE_LLAMA", "rope_scale": 2.0, "rope_theta": 1e5}, {"mode": "ROPE_LLAMA", "logits_soft_cap": 8.0, "is_causal": True},
], ids=lambda o: "-".join(o))
def test_prefill_plans(options):
    renamed = {"mode": "pos_encoding_mode", "is_causal": "causal"}
    named = {renamed.get(name, name): value for name, value in options.items()}
    batch = Prefill().plan(**named)
    batch.agrees(**options)
    batch.plan(**named, fixed_split_size=1).agrees(**options)
    batch.plan(**named, disable_split_kv=True, non_blocking=False).agrees(**options)


def test_lengths_said_twice():
    batch = Prefill()
    told = {"seq_lens": torch.tensor(LENGTHS), "seq_lens_q": torch.tensor([5, 7]), "max_token_per_sequence": 7, "max_sequence_kv": 33}
    batch.plan(**told).agrees()
    for name, wrong in (("seq_lens", torch.tensor([33, 8])), ("seq_lens_q", torch.tensor([5, 6])), ("max_token_per_sequence", 6),
                        ("max_sequence_kv", 32)):
        with pytest.raises(ValueError, match=name):
            batch.paged.plan(batch.indptr, *batch.pages.arrays(), *SIZES, **{**told, name: wrong})
        with pytest.raises(ValueError, match=name):
            batch.ragged.plan(batch.indptr, batch.kv_indptr, *SIZES[:3], **{**told, name: wrong})
    batch.ragged.plan(batch.indptr, batch.kv_indptr, *SIZES[:3], v_indptr=batch.kv_indptr.clone(), o_indptr=batch.indptr.long())
    assert torch.equal(batch.ragged.run(batch.q, batch.k, batch.v), batch.agrees())
    for name, other in (("v_indptr", batch.kv_indptr * 2), ("o_indptr", batch.indptr * 2)):
        with pytest.raises(NotImplementedError, match=name):
            batch.ragged.plan(batch.indptr, batch.kv_indptr, *SIZES[:3], **{name: other})


def test_arguments_of_prefill_run():
    batch = Prefill().plan()
    plain = batch.agrees()
    batch.agrees(run={"q_scale": 4.0, "k_scale": 0.25, "enable_pdl": False})
    batch.agrees(run={"window_left": 3}, window_left=3)
    sinks = torch.randn(4, generator=torch.Generator().manual_seed(1))
    batch.agrees(run={"sinks": sinks}, sinks=sinks.numpy())
    close(batch.ragged.run(batch.q, batch.k, batch.v, v_scale=torch.tensor([2.0, 2.0]), o_scale=1), 2 * plain.double(), 2e-3)
    out, lse = torch.full_like(plain, torch.nan), torch.full((QO[-1], 4), torch.nan)
    got = batch.ragged.run_return_lse(batch.q, batch.k, batch.v, out=out, lse=lse)
    assert got[0] is out and got[1] is lse and torch.equal(out, plain)
    batch.plan(o_data_type=torch.float32)
    assert batch.paged.run(batch.q, batch.pages.cache).dtype == torch.float32
    close(batch.ragged.forward(batch.q, batch.k, batch.v, causal=True, window_left=2),
          batch.plan(causal=True, window_left=2).agrees(is_causal=True, window_left=2))


def test_masks_of_prefill():
    """Tests the plain mask and the packed one, in a graph's buffers as well. causal is ignored beside them."""
    batch = Prefill()
    masks = [torch.rand(QO[b + 1] - QO[b], n, generator=torch.Generator().manual_seed(b)) < 0.6 for b, n in enumerate(LENGTHS)]
    flat = torch.cat([m.reshape(-1) for m in masks])
    out = batch.plan(custom_mask=flat, causal=True).paged.run(batch.q, batch.pages.cache)
    for b in range(2):
        rows = slice(QO[b], QO[b + 1])
        close(out[rows], expected(batch.q[rows], batch.pages.k[b], batch.pages.v[b], mask=masks[b].numpy())[0])
    bits = torch.tensor([0, masks[0].numel(), flat.numel()], dtype=torch.int32)
    packed, _ = flashinfer.segment_packbits(flat, bits, "little")
    assert torch.equal(batch.plan(packed_custom_mask=packed).paged.run(batch.q, batch.pages.cache), out)
    assert torch.equal(batch.ragged.run(batch.q, batch.k, batch.v), out)
    buffers = [torch.zeros(n, dtype=torch.int32) for n in (3, 3, 16, 2)]
    mask_indptr = torch.zeros(3, dtype=torch.int32)
    graph = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace(), "NHD", True, *buffers, torch.zeros(64, dtype=torch.uint8),
                                                           mask_indptr)
    graph.plan(batch.indptr, *batch.pages.arrays(), *SIZES, custom_mask=flat)
    assert torch.equal(graph.run(batch.q, batch.pages.cache), out)
    assert mask_indptr.tolist() == [0, 21, 28]  # bytes
    wide = torch.cat([batch.q, randn(2, 4, 64)])  # with a graph, rows behind the last request are nobody's
    result = torch.full_like(wide, 7.0)
    graph.run(wide, batch.pages.cache, out=result)
    assert torch.equal(result[:len(out)], out) and (result[len(out):] == 7).all()
    with pytest.raises(ValueError, match="custom_mask has"):
        batch.plan(custom_mask=flat[:-1])


def test_workspace_size_of_prefill():
    pages, wrapper = Pages([700], 16), flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace())
    arguments = torch.tensor([0, 3], dtype=torch.int32), *pages.arrays(), 8, 2, 64, 16
    floats, schedule = wrapper.workspace_size(*arguments)
    assert floats > 0 and schedule > 0
    wrapper.reset_workspace_buffer(workspace(floats), None)
    wrapper.plan(*arguments)
    wrapper.reset_workspace_buffer(workspace(floats - 1), None)
    with pytest.raises(ValueError, match=f"has {floats - 1} bytes, needs {floats}"):
        wrapper.plan(*arguments, fixed_split_size=16)
    assert wrapper.workspace_size(*arguments, disable_split_kv=True)[0] == 0


@pytest.mark.parametrize("name", ["prefix_len_ptr", "token_pos_in_items_ptr", "max_item_len_ptr"])
def test_items_are_refused(name):
    batch = Prefill()
    with pytest.raises(NotImplementedError, match=name):
        batch.plan(**{name: torch.zeros(2, dtype=torch.int32)})
    with pytest.raises(NotImplementedError, match="token_pos_in_items_len"):
        batch.plan(token_pos_in_items_len=3)
    with pytest.raises(NotImplementedError, match="jit_args"):
        flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace(), jit_args=["x"])
    with pytest.raises(NotImplementedError, match="o_scale"):
        batch.ragged.plan(batch.indptr, batch.kv_indptr, *SIZES[:3])
        batch.ragged.run(batch.q, batch.k, batch.v, o_scale=2.0)


# ---- merging

@pytest.mark.parametrize("dtype, tolerance", [(HALF, 1e-3), (torch.bfloat16, 1e-2), (torch.float32, 1e-3)])
@pytest.mark.parametrize("n", [1, 12, 128])
@pytest.mark.parametrize("states", [1, 2, 7])
def test_merging(dtype, tolerance, n, states):
    """Tests weights 2^(s - max), in double. Some states are empty."""
    v, s = randn(n, states, 4, 64, dtype=dtype), 8 * randn(n, states, 4, dtype=torch.float32)
    s[::3, 0] = -torch.inf
    merged, lse = flashinfer.merge_states(v, s)
    top = s.double().max(1, keepdim=True).values
    weights = torch.where(top.isinf(), 0.0, torch.exp2(s.double() - top.clamp_min(-1e300)))
    total = weights.sum(1)
    want = (weights[..., None] * v.double()).sum(1) / total.clamp_min(1e-300)[..., None]
    close(merged, want, tolerance)
    close(lse, top[:, 0] + total.log2())
    if states == 2:
        pair = flashinfer.merge_state(v[:, 0], s[:, 0], v[:, 1], s[:, 1])
        assert torch.equal(pair[0], merged) and torch.equal(pair[1], lse)
        mask = torch.arange(n) % 2 == 0
        for chosen in (None, mask, mask.int()):
            got, got_s = v[:, 0].clone(), s[:, 0].clone()
            flashinfer.merge_state_in_place(got, got_s, v[:, 1], s[:, 1], chosen)
            kept = torch.ones(n, dtype=torch.bool) if chosen is None else mask
            assert torch.equal(got[kept], merged[kept]) and torch.equal(got_s[kept], lse[kept])
            assert torch.equal(got[~kept], v[:, 0][~kept]) and torch.equal(got_s[~kept], s[:, 0][~kept])


# ---- messages speak of FlashInfer's names

def _prefill(**options):
    flashinfer.single_prefill_with_kv_cache(randn(4, 4, 64), randn(9, 2, 64), randn(9, 2, 64), **options)


@pytest.mark.parametrize("call, text", [
    (lambda: _prefill(o_dtype=torch.float64), "single_prefill_with_kv_cache: o_dtype has dtype f64; accepted: "),
    (lambda: _prefill(o_dtype="float99"), "single_prefill_with_kv_cache: o_dtype is 'float99'; accepted: a torch.dtype, or the name"),
    (lambda: _prefill(causal="yes"), "single_prefill_with_kv_cache: causal is 'yes'; accepted: True, False"),
    (lambda: _prefill(scale_k=0.0), "single_prefill_with_kv_cache: scale_k is 0.0; accepted: "),
    (lambda: _prefill(scale_q="big"), "single_prefill_with_kv_cache: scale_q is 'big'; accepted: a number, a tensor"),
    (lambda: Prefill().plan(o_data_type=torch.float64).agrees(), "BatchPrefillWithPagedKVCacheWrapper: o_data_type has dtype f64"),
    (lambda: Prefill().plan(o_data_type=HALF).paged.run(Prefill().q, Prefill().pages.cache, out=torch.zeros(12, 4, 64)),
     "BatchPrefillWithPagedKVCacheWrapper: out has dtype torch.float32, needs torch.float16: o_data_type"),
    (lambda: Decode().wrapper.plan(*Decode().pages.arrays(), 4, 2, 0, 8), "BatchDecodeWithPagedKVCacheWrapper: head_dim is 0"),
    (lambda: flashinfer.rmsnorm(randn(3, 64), randn(63)), "rmsnorm: weight has shape [63], needs [64]"),
    (lambda: flashinfer.silu_and_mul(randn(3, 63)), "silu_and_mul: input has rows of 63 elements"),
    (lambda: flashinfer.apply_rope_inplace(randn(4, 2, 64), randn(4, 1, 64), torch.tensor([0, 4]), torch.tensor([0]), rotary_dim=0),
     "apply_rope_inplace: rotary_dim is 0; accepted: None, even numbers from 2 to head_dim, 64"),
    (lambda: flashinfer.apply_rope_with_cos_sin_cache(torch.arange(4), randn(4, 256), randn(4, 128), 60, torch.zeros(9, 64)),
     "apply_rope_with_cos_sin_cache: head_size is 60; accepted: what divides the rows of query, 256"),
])
def test_messages(call, text):
    with pytest.raises((ValueError, TypeError, NotImplementedError)) as raised:
        call()
    assert str(raised.value).startswith(text), str(raised.value)
