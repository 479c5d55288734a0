# SPDX-License-Identifier: Apache-2.0
"""Calls of quern.compat.flashinfer's attention for MLA, prompts beside decodes, and blocks, and a line for each of their parameters."""

import torch
from flashinfer_calls import (
    CLASSES, DIM, HEADS, INDICES, INDPTR, KV_HEADS, LAST, LENGTHS, PAGE, PAGES, QO, QUERIES, decode_plan)
from flashinfer_tools import HALF, randn, workspace
from table_tools import Acts, Hint, Refused, Repeats, Written

from quern.compat.flashinfer.mla import MLAPlanMetadata

CKV, KPE = 64, 16
FP8 = torch.float8_e4m3fn
META = torch.empty(1 << 20, dtype=torch.uint8, device="meta")


def mla():
    plan = {"qo_indptr": QUERIES, "kv_indptr": INDPTR, "kv_indices": INDICES, "kv_len_arr": torch.tensor(LENGTHS), "num_heads": HEADS,
            "head_dim_ckv": CKV, "head_dim_kpe": KPE, "page_size": PAGE, "causal": False, "sm_scale": 0.1, "q_data_type": HALF,
            "kv_data_type": HALF}
    return {"__init__": {"float_workspace_buffer": workspace()}, "plan": plan,
            "run": {"q_nope": randn(QO[-1], HEADS, CKV), "q_pe": randn(QO[-1], HEADS, KPE), "ckv_cache": randn(6, PAGE, CKV),
                    "kpe_cache": randn(6, PAGE, KPE)}}


def pod():
    return {"__init__": {"float_workspace_buffer": workspace()}, "plan": decode_plan(),
            "run": {"q_p": randn(5, HEADS, DIM), "k_p": randn(9, KV_HEADS, DIM), "v_p": randn(9, KV_HEADS, DIM, seed=1),
                    "q_d": randn(2, HEADS, DIM), "paged_kv_cache_d": PAGES.cache}}


def batch_pod():
    arrays = {"qo_indptr": QUERIES, "kv_indptr": INDPTR, "kv_indices": INDICES, "last_page_len": LAST}
    plan = {name + "_p": x for name, x in arrays.items()} | {name + "_d": x for name, x in arrays.items()}
    return {"__init__": {"float_workspace_buffer": workspace()},
            "plan": {**plan, "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM, "page_size": PAGE},
            "run": {"q_p": randn(QO[-1], HEADS, DIM), "paged_kv_cache_p": PAGES.cache, "q_d": randn(QO[-1], HEADS, DIM, seed=1),
                    "paged_kv_cache_d": PAGES.cache}}


def blocks():
    return {"__init__": {"float_workspace_buffer": workspace()},
            "plan": {"indptr": torch.tensor([0, 2, 3], dtype=torch.int32), "indices": torch.tensor([0, 3, 2], dtype=torch.int32), "M": 6,
                     "N": 12, "R": 4, "C": 3, "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim": DIM},
            "run": {"q": randn(6, HEADS, DIM), "k": randn(12, KV_HEADS, DIM), "v": randn(12, KV_HEADS, DIM, seed=1)}}


def variable_blocks():
    chosen = torch.tensor([[[1, 0, 1, 0], [1, 1, 0, 1], [0, 1, 1, 0]], [[0, 1, 0, 1], [1, 1, 1, 1], [1, 0, 0, 1]]]).bool()
    return {"__init__": {"float_workspace_buffer": workspace()},
            "plan": {"block_mask_map": chosen, "block_row_sz": torch.tensor([[1, 2, 3], [3, 1, 2]]),
                     "block_col_sz": torch.tensor([[3, 4, 1, 4], [1, 6, 3, 2]]), "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS,
                     "head_dim": DIM},
            "run": {"q": randn(HEADS, 6, DIM), "k": randn(KV_HEADS, 12, DIM), "v": randn(KV_HEADS, 12, DIM, seed=1)}}


CLASSES |= {"BatchMLAPagedAttentionWrapper": mla, "PODWithPagedKVCacheWrapper": pod, "BatchPODWithPagedKVCacheWrapper": batch_pod,
            "BlockSparseAttentionWrapper": blocks, "VariableBlockSparseAttentionWrapper": variable_blocks}


# ---- what each parameter does

def more(t):
    return t + 1


def flipped(t):
    return t.flip(-1)


def doubled(cache):
    return 2 * cache.nan_to_num()


def of(owner, **lines):
    return {f"{owner}.{name}": line for name, line in lines.items()}


def attention_lines():
    return {**_mla_lines(), **_pod_lines(), **_batch_pod_lines(), **_block_lines()}


def _mla_lines():
    ints = {name: torch.zeros(n, dtype=torch.int32) for name, n in (("qo_indptr", 3), ("kv_indptr", 3), ("kv_indices", 8),
                                                                   ("kv_len_arr", 2))}
    flat = dict.fromkeys(ints)
    told = MLAPlanMetadata.csr(QUERIES, INDPTR, INDICES, torch.tensor(LENGTHS))
    of_fp8 = {"plan.kv_data_type": FP8, "ckv_cache": randn(6, PAGE, CKV).to(FP8), "kpe_cache": randn(6, PAGE, KPE).to(FP8)}
    table = torch.zeros(2, 3, dtype=torch.int32)
    return {
        **of("BatchMLAPagedAttentionWrapper.__init__", float_workspace_buffer=Acts(META),
             **{name: Written(len(buffer), dtype=torch.int32, use_cuda_graph=True, **ints) for name, buffer in ints.items()}),
        **of("BatchMLAPagedAttentionWrapper.reset_workspace_buffer", float_workspace_buffer=Acts(META)),
        **of("BatchMLAPagedAttentionWrapper.plan", num_heads=Acts(8), head_dim_ckv=Acts(32), head_dim_kpe=Acts(8), metadata=Acts(told),
             cum_seq_lens_q=Acts(QUERIES), block_tables=Acts(table), seq_lens=Acts(torch.tensor(LENGTHS)), max_q_len=Repeats(7, 6),
             query_layout=Acts("packed"), kv_cache_layout=Acts("packed"),
             lse_mode=Acts("basee", **flat, metadata=told, lse_mode="base2", **{"run.return_lse": True}),
             output_dtype=Acts(torch.float32), output_scale=Refused("per-tensor"), scale_mode=Refused("bmm-scalar", "bmm-tensor"),
             skip_softmax=Refused(True), use_sinks=Refused(True)),
        **of("BatchMLAPagedAttentionWrapper.run", q_pe=Acts(more), ckv_cache=Acts(more), kpe_cache=Acts(more),
             out=Written(QO[-1], HEADS, CKV), kv_len=Refused(torch.tensor(LENGTHS)), page_table=Refused(table),
             return_lse_base_on_e=Acts(True, return_lse=True), query=Acts(randn(QO[-1], HEADS, CKV + KPE)),
             kv_cache=Acts(randn(6, PAGE, CKV + KPE)), ckv_scale=Acts(None, **of_fp8, ckv_scale=1.0, kpe_scale=1.0),
             kpe_scale=Acts(None, **of_fp8, ckv_scale=1.0, kpe_scale=1.0), ckv_scale_arr=Refused(torch.ones(9)),
             sinks=Refused(torch.ones(HEADS)), bmm1_scale=Refused(1.0), bmm2_scale=Refused(1.0)),
    }


def _pod_lines():
    rotated = {"pos_encoding_mode_p": "ROPE_LLAMA"}
    return {
        **of("PODWithPagedKVCacheWrapper", float_workspace_buffer=Acts(META)),
        **of("PODWithPagedKVCacheWrapper.run", **dict.fromkeys(("q_p", "k_p", "v_p", "q_d"), Acts(more)), paged_kv_cache_d=Acts(doubled),
             custom_mask_p=Acts(torch.arange(45) % 2 == 0), packed_custom_mask_p=Acts(torch.full((6,), 0x55, dtype=torch.uint8)),
             causal_p=Acts(True), kv_layout_p=Acts("HND"), pos_encoding_mode_p=Acts("ALIBI"), sm_scale_p=Acts(0.3), window_left_p=Acts(1),
             rope_scale_p=Acts(2.0, **rotated), rope_theta_p=Acts(100.0, **rotated), return_lse_p=Refused(True), return_lse_d=Refused(True),
             custom_mask_d=Refused(torch.ones(27).bool()), packed_custom_mask_d=Refused(torch.ones(4, dtype=torch.uint8)),
             causal_d=Hint(False, True), kv_layout_d=Repeats("NHD", "HND"), pos_encoding_mode_d=Repeats("NONE", "ALIBI"),
             sm_scale_d=Repeats(None, 0.3), window_left_d=Repeats(-1, 4), rope_scale_d=Repeats(None, 2.0),
             rope_theta_d=Repeats(None, 100.0)),
    }


def _batch_pod_lines():
    arrays = [f"{name}_{side}" for name in ("qo_indptr", "kv_indptr", "kv_indices", "last_page_len") for side in "pd"]
    mask = torch.arange(5 * 20 + 7 * 7) % 2 == 0
    return {
        **of("BatchPODWithPagedKVCacheWrapper", float_workspace_buffer=Acts(META)),
        **of("BatchPODWithPagedKVCacheWrapper.plan", **dict.fromkeys(arrays, Acts(flipped))),
        **of("BatchPODWithPagedKVCacheWrapper.run", q_p=Acts(more), q_d=Acts(more), paged_kv_cache_p=Acts(doubled),
             paged_kv_cache_d=Acts(doubled), custom_mask_p=Acts(mask), packed_custom_mask_p=Acts(torch.full((20,), 0x55, dtype=torch.uint8)),
             causal_p=Acts(True)),
    }


def _block_lines():
    refused = {"block_mask": torch.ones(1), "kv_block_lens": torch.ones(1), "q2k_indices": torch.ones(1), "q2k_num": torch.ones(1),
               "kv_splits": 2, "use_clc": True, "q_scale": torch.ones(1), "k_scale": torch.ones(1), "v_scale": torch.ones(1)}
    return {
        **of("BlockSparseAttentionWrapper", float_workspace_buffer=Acts(META)),
        **of("BlockSparseAttentionWrapper.plan", M=Acts(7), N=Acts(15), R=Acts(2), C=Acts(2),
             mask=Acts((torch.arange(36) % 3 == 0).reshape(3, 4, 3)), packed_mask=Acts(torch.full((4,), 0x55, dtype=torch.uint8)),
             **{name: Refused(value) for name, value in refused.items()}),
        **of("BlockSparseAttentionWrapper.run", out=Written(6, HEADS, DIM), lse=Written(6, HEADS, dtype=torch.float32)),
        **of("VariableBlockSparseAttentionWrapper", float_workspace_buffer=Acts(META)),
        **of("VariableBlockSparseAttentionWrapper.plan", block_mask_map=Acts(torch.logical_not), block_row_sz=Acts(flipped),
             block_col_sz=Acts(flipped)),
        **of("VariableBlockSparseAttentionWrapper.run", out=Written(KV_HEADS * 6, HEADS // KV_HEADS, DIM),
             lse=Written(KV_HEADS * 6, HEADS // KV_HEADS, dtype=torch.float32)),
    }
