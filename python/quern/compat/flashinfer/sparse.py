# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's attention over chosen blocks of keys. A row of blocks is a request, whose keys are the blocks that it chose."""

import torch

from . import _run
from ._attention import Wrapper, dtype_of, make_batch, on_host, pack_mask, positions
from ._hints import check_flags, refuse



class _BlockSparse(Wrapper):
    """What the two wrappers have in common."""

    def __init__(self, float_workspace_buffer, backend="auto"):
        super().__init__(type(self).__name__, float_workspace_buffer, "NHD", False, None, backend)

    def _plan(self, offsets, heads, head_dim, page_size, dtypes, causal, told, use_fp16_qk_reduction, non_blocking):
        """offsets: of queries, of blocks, the blocks."""
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction)
        check_flags(self._op, non_blocking=non_blocking)
        qo_indptr, kv_indptr, kv_indices = offsets
        last = torch.where(kv_indptr[1:] > kv_indptr[:-1], page_size, 0)
        q_dtype = dtype_of(self._op, "q_data_type", dtypes[0])
        kinds = q_dtype, dtype_of(self._op, "kv_data_type", dtypes[1]) or q_dtype, dtype_of(self._op, "o_data_type", dtypes[2])
        options = {"is_causal": causal, "window_left": -1, **positions(self._op, *told)}
        batch = make_batch(self._op, qo_indptr, kv_indptr, last, kv_indices, heads, (head_dim, head_dim), page_size, (None, False), kinds,
                           options, renamed=self._names)
        batch.kv_indices = _run.index(kv_indices).to(self.device)
        return batch

    def _forward(self, mode, use_fp16_qk_reduction, logits_soft_cap, sm_scale, rope_scale, rope_theta):
        refuse(self._op, use_fp16_qk_reduction=use_fp16_qk_reduction)
        self._set_options(**positions(self._op, mode, logits_soft_cap, rope_scale, rope_theta, sm_scale))


class BlockSparseAttentionWrapper(_BlockSparse):
    """Blocks of R queries by C keys, the same for all heads. Call plan() once for a choice of blocks, and run() any number of times.
    backend ("auto", "fa2", "fa3"), non_blocking and enable_pdl change nothing."""

    _names = {"kv_indptr": "indptr", "kv_indices": "indices", "page_size": "C"}

    def plan(self, indptr, indices, M, N, R, C, num_qo_heads, num_kv_heads, head_dim, mask=None, packed_mask=None, causal=False,
             pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None, sm_scale=None, rope_scale=None,
             rope_theta=None, q_data_type="float16", kv_data_type=None, o_data_type="float16", non_blocking=True, block_mask=None,
             kv_block_lens=None, q2k_indices=None, q2k_num=None, kv_splits=None, use_clc=None, q_scale=None, k_scale=None, v_scale=None):
        """Takes a matrix of M queries by N keys in blocks of R by C: indptr [ceil(M / R) + 1] says where each row's blocks begin in
        indices [blocks], which names columns of blocks. mask [blocks, R, C] bool, or packed_mask, the bits of each row's queries by
        its chosen keys, hides keys in blocks. causal and positions count a row's chosen keys alone."""
        refuse(self._op, block_mask=block_mask, kv_block_lens=kv_block_lens, q2k_indices=q2k_indices, q2k_num=q2k_num,
               kv_splits=kv_splits, use_clc=use_clc, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale)
        self._check_blocks(M, N, R, C)
        kv_indptr = on_host(indptr)
        rows = -(-M // R)
        if len(kv_indptr) != rows + 1:
            raise ValueError(f"{self._op}: indptr has {len(kv_indptr)} entries, needs {rows + 1}: M is {M}, R is {R}")
        qo_indptr = (torch.arange(rows + 1) * R).clamp(max=M)
        told = pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta, sm_scale
        batch = self._plan((qo_indptr, kv_indptr, indices), (num_qo_heads, num_kv_heads), head_dim, C,
                           (q_data_type, kv_data_type, o_data_type), causal, told, use_fp16_qk_reduction, non_blocking)
        given = None if mask is None or packed_mask is not None else self._rows_of_mask(batch, mask, R, C)
        packed = pack_mask(batch, given, packed_mask)
        batch.custom_mask = None if packed is None else packed.to(self.device)
        self._blocks = N // C, C
        self._planned(batch)

    begin_forward = plan

    def _check_blocks(self, m, n, r, c):
        for name, value in (("R", r), ("C", c)):
            if value < 1:
                raise ValueError(f"{self._op}: {name} is {value}; accepted: 1 or above")
        if n % c:
            raise ValueError(f"{self._op}: N is {n}; accepted: multiples of C, {c}")

    def _rows_of_mask(self, batch, mask, r, c):
        """Returns the bits of mask [blocks, R, C] as each row's queries by its chosen keys, one row after another."""
        blocks = int(batch.kv_indptr[-1])
        if tuple(mask.shape) != (blocks, r, c):
            raise ValueError(f"{self._op}: mask has shape {list(mask.shape)}, needs [{blocks}, {r}, {c}]")
        ends = zip(batch.kv_indptr[:-1].tolist(), batch.kv_indptr[1:].tolist(), (batch.qo_indptr[1:] - batch.qo_indptr[:-1]).tolist(),
                   strict=True)
        return torch.cat([mask[begin:end, :n].transpose(0, 1).reshape(-1) for begin, end, n in ends] or [mask.reshape(-1)])

    def run(self, q, k, v, scale_q=None, scale_k=None, scale_v=None, out=None, lse=None, return_lse=False, enable_pdl=None):
        """Attends with q [M, heads, dim] over k and v [N, kv heads, dim]. Returns a tensor of q's shape; with return_lse also [M, heads],
        base 2. scale_q [heads], scale_k and scale_v [kv heads] are of FP8 tensors."""
        check_flags(self._op, enable_pdl=enable_pdl)
        self._planned_batch()
        blocks, c = self._blocks
        for name, x in (("k", k), ("v", v)):
            if len(x) != blocks * c:
                raise ValueError(f"{self._op}: {name} has {len(x)} rows, planned were {blocks * c}")
        pages = [x.unflatten(0, (blocks, c)) for x in (k, v)]
        return self._attend(q, *pages, out, lse, return_lse, {"q_scale": scale_q, "k_scale": scale_k, "v_scale": scale_v})

    def forward(self, q, k, v, scale_q=None, scale_k=None, scale_v=None, pos_encoding_mode="NONE", use_fp16_qk_reduction=False,
                logits_soft_cap=None, sm_scale=None, rope_scale=None, rope_theta=None):
        """Calls run() with options that replace the planned ones."""
        self._forward(pos_encoding_mode, use_fp16_qk_reduction, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v, scale_q, scale_k, scale_v)


class VariableBlockSparseAttentionWrapper(_BlockSparse):
    """Blocks of sizes of their own, which each head of keys chooses for itself. Call plan() once for a choice of blocks, and run() any
    number of times. backend ("auto", "fa2", "fa3"), non_blocking and enable_pdl change nothing."""

    def plan(self, block_mask_map, block_row_sz, block_col_sz, num_qo_heads, num_kv_heads, head_dim, causal=False,
             pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None, sm_scale=None, rope_scale=None,
             rope_theta=None, non_blocking=True, q_data_type="float16", kv_data_type=None):
        """Takes block_mask_map [kv heads, rows, columns] bool, block_row_sz [kv heads, rows] and block_col_sz [kv heads, columns], each
        head's sizes with one sum. causal and positions count a row's chosen keys alone."""
        chosen, row_sizes, column_sizes = block_mask_map.cpu().bool(), on_host(block_row_sz).long(), on_host(block_col_sz).long()
        self._check_sizes(chosen, row_sizes, column_sizes, num_qo_heads, num_kv_heads)
        qo_indptr = torch.cat([torch.zeros(1, dtype=torch.int64), row_sizes.flatten().cumsum(0)])
        told = pos_encoding_mode, logits_soft_cap, rope_scale, rope_theta, sm_scale
        batch = self._plan((qo_indptr, *_keys_of(chosen, column_sizes)), (num_qo_heads // num_kv_heads, 1), head_dim, 1,
                           (q_data_type, kv_data_type, None), causal, told, use_fp16_qk_reduction, non_blocking)
        self._heads = num_qo_heads, num_kv_heads
        self._planned(batch)

    def _check_sizes(self, chosen, row_sizes, column_sizes, num_qo_heads, num_kv_heads):
        heads, rows, columns = chosen.shape
        for name, given, needed in (("block_mask_map", heads, num_kv_heads), ("block_row_sz", tuple(row_sizes.shape), (heads, rows)),
                                    ("block_col_sz", tuple(column_sizes.shape), (heads, columns))):
            if given != needed:
                raise ValueError(f"{self._op}: {name} has {given} heads or blocks, needs {needed}")
        for name, sizes in (("block_row_sz", row_sizes), ("block_col_sz", column_sizes)):
            if (sizes < 0).any() or len(set(sizes.sum(1).tolist())) > 1:
                raise ValueError(f"{self._op}: {name} has sums {sizes.sum(1).tolist()}; accepted: one number of all heads, sizes of 0 or "
                                 "above")
        if num_qo_heads % num_kv_heads:
            raise ValueError(f"{self._op}: num_qo_heads is {num_qo_heads}; accepted: multiples of num_kv_heads, {num_kv_heads}")

    def run(self, q, k, v, out=None, lse=None, return_lse=False, enable_pdl=None):
        """Attends with q [heads, queries, dim] over k and v [kv heads, keys, dim]. Returns a tensor of q's shape; with return_lse also
        [heads, queries], base 2. out, if given, is [kv heads * queries, heads / kv heads, dim], and lse likewise, as in FlashInfer."""
        check_flags(self._op, enable_pdl=enable_pdl)
        self._planned_batch()
        heads, kv_heads = self._heads
        for name, x, needed in (("q", q, heads), ("k", k, kv_heads), ("v", v, kv_heads)):
            if x.ndim != 3 or len(x) != needed:
                raise ValueError(f"{self._op}: {name} has shape {list(x.shape)}, needs {needed} heads first")
        rows = q.unflatten(0, (kv_heads, -1)).transpose(1, 2).flatten(0, 1)
        pages = [x.flatten(0, 1)[:, None, None] for x in (k, v)]
        result = self._attend(rows, *pages, out, lse, return_lse, {"q_scale": None, "k_scale": None, "v_scale": None})
        turned = [x.unflatten(0, (kv_heads, -1)).transpose(1, 2).flatten(0, 1) for x in (result if return_lse else (result,))]
        return tuple(turned) if return_lse else turned[0]

    def forward(self, q, k, v, pos_encoding_mode="NONE", use_fp16_qk_reduction=False, logits_soft_cap=None, sm_scale=None,
                rope_scale=None, rope_theta=None):
        """Calls run() with options that replace the planned ones."""
        self._forward(pos_encoding_mode, use_fp16_qk_reduction, logits_soft_cap, sm_scale, rope_scale, rope_theta)
        return self.run(q, k, v)


def _keys_of(chosen, sizes):
    """Returns (offsets, keys) of the rows' chosen blocks; keys of all heads are numbered on."""
    counts = (chosen * sizes[:, None]).sum(-1).flatten()
    head, _, column = chosen.nonzero(as_tuple=True)
    begin = (sizes.flatten().cumsum(0) - sizes.flatten()).reshape(sizes.shape)[head, column]
    lengths = sizes[head, column]
    within = torch.arange(int(lengths.sum())) - torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
    return torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]), torch.repeat_interleave(begin, lengths) + within
