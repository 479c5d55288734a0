# SPDX-License-Identifier: Apache-2.0
"""quern.compat.flashinfer's attention over chosen blocks, and of prompts beside decodes, against a definition in float64."""

import pytest

torch = pytest.importorskip("torch")
from flashinfer_tools import HALF, LAYOUTS, Pages, close, expected, offsets, randn, turned, workspace  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402

BF16 = torch.bfloat16


def chosen_blocks(rows, columns, seed=0):
    chosen = torch.rand(rows, columns, generator=torch.Generator().manual_seed(seed)) < 0.4
    chosen[rows // 2] = False  # a row that chose nothing
    return chosen


def offsets_of(chosen):
    return offsets(chosen.sum(1).tolist()), chosen.nonzero()[:, 1].int()


# ---- blocks of one size

@pytest.mark.parametrize("r, c", [(1, 1), (4, 3), (16, 8), (7, 16)])
@pytest.mark.parametrize("m, blocks", [(1, 1), (30, 5), (64, 16)])
@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (8, 2)])
@pytest.mark.parametrize("has_mask", [False, True])
def test_blocks(r, c, m, blocks, heads, kv_heads, has_mask):
    n = blocks * c
    chosen = chosen_blocks(-(-m // r), blocks)
    indptr, indices = offsets_of(chosen)
    seen = chosen.repeat_interleave(r, 0)[:m].repeat_interleave(c, 1)
    mask = torch.rand(int(indptr[-1]), r, c, generator=torch.Generator().manual_seed(1)) < 0.7 if has_mask else None
    for i, (row, column) in enumerate(chosen.nonzero().tolist() if has_mask else ()):
        part = seen[row * r:(row + 1) * r, column * c:(column + 1) * c]
        part &= mask[i, :len(part)]
    wrapper = flashinfer.BlockSparseAttentionWrapper(workspace())
    wrapper.plan(indptr, indices, m, n, r, c, heads, kv_heads, 64, mask=mask)
    q, k, v = randn(m, heads, 64), randn(n, kv_heads, 64), randn(n, kv_heads, 64, seed=1)
    out, lse = wrapper.run(q, k, v, return_lse=True)
    want, want_lse = expected(q, k, v, mask=seen.numpy())
    close(out, want)
    close(lse, want_lse)
    assert not out[~seen.any(1)].any()


def test_blocks_take_what_was_planned():
    chosen = chosen_blocks(8, 4)
    indptr, indices = offsets_of(chosen)
    seen = chosen.repeat_interleave(2, 0).repeat_interleave(8, 1).numpy()
    wrapper = flashinfer.BlockSparseAttentionWrapper(workspace())
    wrapper.plan(indptr, indices, 16, 32, 2, 8, 4, 2, 64, sm_scale=0.3, logits_soft_cap=2.0, q_data_type=BF16, o_data_type="float32")
    q, k, v = (randn(n, heads, 64, dtype=BF16, seed=seed) for n, heads, seed in ((16, 4, 0), (32, 2, 1), (32, 2, 2)))
    out = wrapper.run(q, k, v)
    assert out.dtype == torch.float32
    off = 2.0**-9 * float(v.abs().max())  # processors that multiply bf16 round weights to it
    close(out, expected(q.float(), k.float(), v.float(), mask=seen, sm_scale=0.3, logits_soft_cap=2.0)[0], off)
    out = wrapper.forward(q, k, v, sm_scale=0.1)
    close(out, expected(q.float(), k.float(), v.float(), mask=seen, sm_scale=0.1)[0], off)


def test_packed_mask_of_blocks():
    indptr, indices = offsets_of(torch.tensor([[True, False], [True, True]]))
    mask = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(1)) < 0.5
    rows = torch.cat([mask[0].flatten(), mask[1:].transpose(0, 1).flatten()])
    packed = flashinfer.segment_packbits(rows, torch.tensor([0, 20, 60], dtype=torch.int32), "little")[0]
    q, k, v, results = randn(8, 2, 64), randn(10, 2, 64), randn(10, 2, 64, seed=1), []
    for given in ({"mask": mask}, {"packed_mask": packed}, {"packed_mask": packed, "mask": ~mask}):
        wrapper = flashinfer.BlockSparseAttentionWrapper(workspace())
        wrapper.plan(indptr, indices, 8, 10, 4, 5, 2, 2, 64, **given)
        results.append(wrapper.run(q, k, v))
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("change, message", [
    ({"N": 31}, "N is 31; accepted: multiples of C, 8"), ({"R": 0}, "R is 0; accepted: 1 or above"),
    ({"M": 20}, "indptr has 9 entries, needs 11"), ({"mask": torch.ones(1, 2, 8)}, "mask has shape"),
    ({"backend": None}, ""), ({"indices": torch.full((32,), 4)}, "indices"),
])
def test_wrong_blocks(change, message):
    if "backend" in change:
        with pytest.raises(NotImplementedError, match="backend is 'cutlass'"):
            flashinfer.BlockSparseAttentionWrapper(workspace(), backend="cutlass")
        return
    plan = dict(zip(("indptr", "indices"), offsets_of(torch.ones(8, 4).bool()), strict=True)) | {
        "M": 16, "N": 32, "R": 2, "C": 8, "num_qo_heads": 4, "num_kv_heads": 2, "head_dim": 64}
    wrapper = flashinfer.BlockSparseAttentionWrapper(workspace())
    with pytest.raises(ValueError, match=f"BlockSparseAttentionWrapper: {message}"):
        wrapper.plan(**{**plan, **change})
        wrapper.run(randn(16, 4, 64), randn(32, 2, 64), randn(32, 2, 64))


# ---- blocks of any sizes

def sizes(heads, count, total, seed):
    """Returns sizes [heads, count] that add up to total, some of them 0."""
    cuts = torch.randint(0, total + 1, (heads, count - 1), generator=torch.Generator().manual_seed(seed)).sort(1).values
    ends = torch.cat([torch.zeros(heads, 1), cuts, torch.full((heads, 1), total)], 1).long()
    return ends.diff(dim=1)


@pytest.mark.parametrize("heads, kv_heads", [(1, 1), (8, 2)])
@pytest.mark.parametrize("queries, keys", [(1, 1), (37, 64)])
@pytest.mark.parametrize("rows, columns", [(1, 1), (5, 7)])
def test_variable_blocks(heads, kv_heads, queries, keys, rows, columns):
    chosen = torch.stack([chosen_blocks(rows, columns, seed) if rows > 1 else torch.ones(1, columns).bool() for seed in range(kv_heads)])
    row_sizes, column_sizes = sizes(kv_heads, rows, queries, 1), sizes(kv_heads, columns, keys, 2)
    wrapper = flashinfer.VariableBlockSparseAttentionWrapper(workspace())
    wrapper.plan(chosen, row_sizes, column_sizes, heads, kv_heads, 64)
    q, k, v = randn(heads, queries, 64), randn(kv_heads, keys, 64), randn(kv_heads, keys, 64, seed=1)
    out, lse = wrapper.run(q, k, v, return_lse=True)
    for h in range(heads):
        own = h // (heads // kv_heads)
        seen = chosen[own].repeat_interleave(row_sizes[own], 0).repeat_interleave(column_sizes[own], 1)
        want, want_lse = expected(q[h][:, None], k[own][:, None], v[own][:, None], mask=seen.numpy())
        close(out[h], want[:, 0])
        close(lse[h], want_lse[:, 0])


def test_wrong_variable_blocks():
    chosen, two = torch.ones(2, 3, 4).bool(), torch.full((2, 3), 2)
    for arguments, message in (((chosen, two[:1], torch.full((2, 4), 3)), "block_row_sz has"), ((chosen, two, two), "block_col_sz has"),
                               ((chosen[:1], two[:1], torch.full((1, 4), 3)), "block_mask_map has 1 heads or blocks, needs 2"),
                               ((chosen, torch.tensor([[2, 2, 2], [2, 2, 1]]), torch.full((2, 4), 3)), r"block_row_sz has sums \[6, 5\]")):
        with pytest.raises(ValueError, match=message):
            flashinfer.VariableBlockSparseAttentionWrapper(workspace()).plan(*arguments, 4, 2, 64)


# ---- prompts beside decodes

@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("prompt, keys", [(1, 1), (37, 54), (54, 54)])
def test_pod(layout, causal, prompt, keys):
    pages = Pages([37, 5, 16], 8, layout=layout)
    wrapper = flashinfer.PODWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(*pages.arrays(), 4, 2, 64, 8)
    q, k, v, decodes = randn(prompt, 4, 64), randn(keys, 2, 64), randn(keys, 2, 64, seed=1), randn(3, 4, 64, seed=2)
    out_p, out_d = wrapper.run(q, turned(k, layout), turned(v, layout), decodes, pages.cache, causal_p=causal, kv_layout_p=layout)
    close(out_p, expected(q, k, v, is_causal=causal)[0])
    for b in range(3):
        close(out_d[b:b + 1], expected(decodes[b:b + 1], pages.k[b], pages.v[b])[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mask", ["none", "causal", "own"])
def test_batch_pod(layout, mask):
    prompts, decodes = Pages([20, 7], 8, layout=layout), Pages([37, 0, 16], 8, layout=layout)
    qo = [5, 7]
    wrapper = flashinfer.BatchPODWithPagedKVCacheWrapper(workspace(), layout)
    wrapper.plan(offsets(qo), *prompts.arrays(), offsets([1, 1, 1]), *decodes.arrays(), 4, 2, 64, 8)
    q, d = randn(12, 4, 64), randn(3, 4, 64, seed=1)
    own = [torch.rand(n, length, generator=torch.Generator().manual_seed(n)) < 0.5 for n, length in zip(qo, prompts.lengths, strict=True)]
    given = torch.cat([part.flatten() for part in own]) if mask == "own" else None
    (out_p, out_d), (lse_p, lse_d) = wrapper.run(q, prompts.cache, d, decodes.cache, custom_mask_p=given, causal_p=mask == "causal",
                                                 return_lse=True)
    for b, (begin, end) in enumerate(((0, 5), (5, 12))):
        want, lse = expected(q[begin:end], prompts.k[b], prompts.v[b], is_causal=mask == "causal",
                             mask=own[b].numpy() if mask == "own" else None)
        close(out_p[begin:end], want)
        close(lse_p[begin:end], lse)
    for b in range(3):
        want, lse = expected(d[b:b + 1], decodes.k[b], decodes.v[b])
        close(out_d[b:b + 1], want)
        close(lse_d[b:b + 1], lse)
    again = wrapper.run(q, prompts.cache, d, decodes.cache)[0]  # a mask is of one run
    close(again[:5], expected(q[:5], prompts.k[0], prompts.v[0])[0])


def test_pod_needs_a_plan():
    with pytest.raises(RuntimeError, match=r"PODWithPagedKVCacheWrapper: plan\(\) comes before run\(\)"):
        flashinfer.PODWithPagedKVCacheWrapper(workspace()).run(*[torch.zeros(1, 1, 64, dtype=HALF)] * 5)
