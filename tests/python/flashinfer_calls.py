# SPDX-License-Identifier: Apache-2.0
"""For each public function and method of quern.compat.flashinfer a call that works, whose arguments can be changed one by one."""

import dataclasses
import enum
import functools
import inspect

import torch
from flashinfer_tools import HALF, Pages, offsets, randn, workspace
from table_tools import Function, tensors

import quern.compat.flashinfer as flashinfer


class Method(Function):
    """A method of a class that is made, planned and run; the results are those of final, and the plan. Changed are its own
    arguments, and by "stage.name" those of others."""

    def __init__(self, maker, stages, method):
        self.maker, self.make, self.method = maker, stages, method
        self.final = "forward" if method == "forward" or not hasattr(maker, "run") else "run"

    def stages(self):
        stages = self.make()
        if self.final not in stages:
            stages["forward"] = stages["run"]
        if self.method == "reset_workspace_buffer":
            buffers = inspect.signature(self.maker.reset_workspace_buffer).parameters
            schedules = {"int_workspace_buffer": None} if "int_workspace_buffer" in buffers else {"int_workspace_buffers": [None] * 2}
            stages[self.method] = {"float_workspace_buffer": workspace(), **schedules}
        return stages

    def arguments(self, **changed):
        return {**self.stages().get(self.method, {}), **changed}

    def run(self, **changed):
        stages = self.stages()
        for name, value in changed.items():
            stage, _, own = name.rpartition(".")
            stages.setdefault(stage or self.method, {})[own] = value
        wrapper = self.maker(**stages["__init__"])
        for method in ("reset_workspace_buffer", "plan", "begin_forward", "prewarm_paged_kv_stride_variant"):
            if method in stages:
                getattr(wrapper, method)(**stages[method])
        results = tensors(getattr(wrapper, self.final)(**stages[self.final]))
        planned = getattr(wrapper, "_levels", [getattr(wrapper, "_wrapper", wrapper)])
        plans = [w._batch.plan.host for w in planned if hasattr(w, "_batch")]
        return results + [torch.from_numpy(host) for host in plans]


# ---- the calls

LENGTHS, QO, HEADS, KV_HEADS, DIM, PAGE = [20, 7], [0, 5, 12], 4, 2, 64, 8
PAGES = Pages(LENGTHS, PAGE)
INDPTR, INDICES, LAST = PAGES.arrays()
QUERIES = torch.tensor(QO, dtype=torch.int32)
KEYS = offsets(LENGTHS)


def rows(*shape, dtype=HALF):
    return lambda: randn(*shape, dtype=dtype)


def attention_inputs(n=5):
    return {"q": randn(n, HEADS, DIM) if n else randn(HEADS, DIM), "k": randn(9, KV_HEADS, DIM),
            "v": randn(9, KV_HEADS, DIM, seed=1)}


def segments():
    return {**ragged_run(), "qo_segment_offsets": QUERIES, "kv_segment_offsets": KEYS}


def ragged_run():
    return {"q": randn(QO[-1], HEADS, DIM), "k": torch.cat(PAGES.k).half(), "v": torch.cat(PAGES.v).half()}


def norm(**more):
    return lambda: {"input": randn(3, 64), "weight": randn(64), **{name: make() for name, make in more.items()}}


def layer(**more):
    return lambda: {"input": randn(3, 64), "gemma": randn(64, dtype=torch.float32),
                    "beta": randn(64, dtype=torch.float32, seed=1), **{name: make() for name, make in more.items()}}


def codes():
    return torch.zeros(3, 64).to(torch.float8_e4m3fn)


def rope(*places):
    known = {"indptr": torch.tensor([0, 2, 6], dtype=torch.int32), "offsets": torch.tensor([3, 1], dtype=torch.int32),
             "pos_ids": torch.arange(6, dtype=torch.int32)}
    return lambda: {"q": randn(6, 2, 64), "k": randn(6, 1, 64), **{name: known[name] for name in places}}


def rope_cache():
    return {"positions": torch.arange(6, dtype=torch.int32), "query": randn(6, 128), "key": randn(6, 64), "head_size": 64,
            "cos_sin_cache": randn(16, 64, dtype=torch.float32)}


def to_fp8(is_mla=False):
    heads = () if is_mla else (2,)
    return {"q_rope": randn(6, 2, 16), "k_rope": randn(6, *heads, 16), "q_nope": randn(6, 2, 8), "k_nope": randn(6, *heads, 8),
            "cos_sin_cache": randn(16, 16, dtype=torch.float32), "pos_ids": torch.arange(6, dtype=torch.int32)}


def places():
    return {"batch_indices": torch.tensor([0, 0, 0, 1, 1, 1], dtype=torch.int32),
            "positions": torch.tensor([0, 1, 2, 0, 1, 2], dtype=torch.int32),
            "kv_indices": torch.tensor([1, 0, 2], dtype=torch.int32), "kv_indptr": torch.tensor([0, 2, 3], dtype=torch.int32)}


def appended_fp8():
    cache = [torch.zeros(3, 2, 2, dim).to(torch.float8_e4m3fn) for dim in (24, 32)]
    at = places() | {"kv_indices": torch.tensor([1, 0, 2, 3], dtype=torch.int32), "kv_indptr": torch.tensor([0, 2, 4],
        dtype=torch.int32)}
    cache = [torch.zeros(4, 2, 2, dim).to(torch.float8_e4m3fn) for dim in (24, 32)]
    return {**to_fp8(), "v": randn(6, 2, 32), "paged_kv_cache": cache, "page_size": 2, **at}


def appended():
    return {"append_key": randn(6, 2, 64), "append_value": randn(6, 2, 64, seed=1), "paged_kv_cache": torch.zeros(3, 2, 4, 2,
        64).half(),
            "kv_last_page_len": torch.tensor([3, 3], dtype=torch.int32), **places()}


def appended_mla():
    return {"append_ckv": randn(6, 64), "append_kpe": randn(6, 16), "ckv_cache": torch.zeros(3, 4, 64).half(),
            "kpe_cache": torch.zeros(3, 4, 16).half(), "kv_last_page_len": torch.tensor([3, 3], dtype=torch.int32), **places()}


def states(*shape):
    return lambda: {"v": randn(3, *shape, 2, 64), "s": randn(3, *shape, 2, dtype=torch.float32)}


def two_states():
    return {"v_a": randn(3, 2, 64), "s_a": randn(3, 2, dtype=torch.float32), "v_b": randn(3, 2, 64, seed=1),
            "s_b": randn(3, 2, dtype=torch.float32, seed=1)}


def state_in_place():
    return {"v": randn(3, 2, 64), "s": randn(3, 2, dtype=torch.float32), "v_other": randn(3, 2, 64, seed=1),
            "s_other": randn(3, 2, dtype=torch.float32, seed=1)}


def new_tokens():
    return {"append_indptr": torch.tensor([0, 2, 5], dtype=torch.int32), "seq_lens": torch.tensor([4, 9], dtype=torch.int32),
            "nnz": 6}


def distribution(*shape, seed=3):
    return torch.softmax(2 * randn(*shape, dtype=torch.float32, seed=seed), -1)


def sampled(x="probs", **more):
    """Returns a call that draws 64 tokens from 4 rows of 40."""
    rows = {"probs": lambda: distribution(4, 40), "logits": lambda: randn(4, 40, dtype=torch.float32, seed=3)}[x]
    return lambda: {x: rows(), "indices": torch.arange(64) % 4, "seed": 3, "offset": 5, **more}


def drafted():
    return {"draft_probs": distribution(9, 3, 40), "draft_token_ids": torch.arange(27).reshape(9, 3) % 5,
            "target_probs": distribution(9, 4, 40, seed=4), "seed": 3, "offset": 5}


FUNCTIONS = {
    "softmax": (lambda: {"logits": randn(4, 40)}, ()), "sampling_from_logits": (sampled("logits"), ()),
    "sampling_from_probs": (sampled(), ()), "top_p_sampling_from_probs": (sampled(top_p=0.9), ()),
    "top_k_sampling_from_probs": (sampled(top_k=20), ()), "min_p_sampling_from_probs": (sampled(min_p=0.01), ()),
    "top_k_top_p_sampling_from_logits": (sampled("logits", top_k=20, top_p=0.9), ()),
    "top_k_top_p_sampling_from_probs": (sampled(top_k=20, top_p=0.9), ()),
    "top_p_renorm_probs": (lambda: {"probs": distribution(4, 40), "top_p": 0.9}, ()),
    "top_k_renorm_probs": (lambda: {"probs": distribution(4, 40), "top_k": 20}, ()),
    "top_k_mask_logits": (lambda: {"logits": randn(4, 40), "top_k": 20}, ()), "chain_speculative_sampling": (drafted, ()),
    **dict.fromkeys(("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"), (lambda: {"input": randn(3, 128)}, ())),
    **dict.fromkeys(("rmsnorm", "gemma_rmsnorm"), (norm(), ())),
    **dict.fromkeys(("fused_add_rmsnorm", "gemma_fused_add_rmsnorm"), (norm(residual=rows(3, 64)), ("input", "residual"))),
    "rmsnorm_quant": (norm(out=codes, scale=lambda: 0.5), ("out",)),
    "fused_add_rmsnorm_quant": (norm(out=codes, residual=rows(3, 64), scale=lambda: 0.5), ("out", "residual")),
    "layernorm": (layer(), ()), "layernorm_quant": (layer(out=codes, scale=lambda: 0.5), ("out",)),
    "packbits": (lambda: {"x": torch.arange(19) % 3 == 0}, ()),
    "segment_packbits": (lambda: {"x": torch.arange(19) % 3 == 0, "indptr": torch.tensor([0, 5, 19], dtype=torch.int32)}, ()),
    **dict.fromkeys(("apply_rope", "apply_llama31_rope"), (rope("indptr", "offsets"), ())),
    **dict.fromkeys(("apply_rope_inplace", "apply_llama31_rope_inplace"), (rope("indptr", "offsets"), ("q", "k"))),
    **dict.fromkeys(("apply_rope_pos_ids", "apply_llama31_rope_pos_ids"), (rope("pos_ids"), ())),
    **dict.fromkeys(("apply_rope_pos_ids_inplace", "apply_llama31_rope_pos_ids_inplace"), (rope("pos_ids"), ("q", "k"))),
    "apply_rope_with_cos_sin_cache": (rope_cache, ()), "apply_rope_with_cos_sin_cache_inplace": (rope_cache, ("query", "key")),
    "rope_quantize_fp8": (to_fp8, ()), "mla_rope_quantize_fp8": (functools.partial(to_fp8, True), ()),
    "rope_quantize_fp8_append_paged_kv_cache": (appended_fp8, ("paged_kv_cache",)),
    "append_paged_kv_cache": (appended, ("paged_kv_cache",)), "append_paged_mla_kv_cache": (appended_mla, ("ckv_cache",
        "kpe_cache")),
    "get_seq_lens": (lambda: {"kv_indptr": INDPTR, "kv_last_page_len": LAST, "page_size": PAGE}, ()),
    "get_batch_indices_positions": (new_tokens, ()),
    "merge_state": (two_states, ()), "merge_state_in_place": (state_in_place, ("v", "s")), "merge_states": (states(5), ()),
    "single_decode_with_kv_cache": (functools.partial(attention_inputs, 0), ()),
    "single_prefill_with_kv_cache": (attention_inputs, ()), "single_prefill_with_kv_cache_return_lse": (attention_inputs, ()),
    "fmha_varlen": (segments, ()),
    "fmha_varlen_plan": (lambda: {"module": None, "qo_segment_offsets": QUERIES, "kv_segment_offsets": KEYS,
                                  "num_qo_heads": HEADS,
                                  "causal": False}, ()),
    "fast_decode_plan": (lambda: decode_plan(), ()),
}


def segments_by_plan(**arguments):
    return flashinfer.fmha_varlen(**segments(), plan_info=flashinfer.fmha_varlen_plan(**arguments))


def decode_by_fast_plan(**arguments):
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace())
    flashinfer.fast_decode_plan(wrapper, **arguments)
    return wrapper.run(randn(2, HEADS, DIM), PAGES.cache), torch.from_numpy(wrapper._batch.plan.host)


CALLS = {"fmha_varlen_plan": segments_by_plan, "fast_decode_plan": decode_by_fast_plan}


def decode_plan():
    return {"indptr": INDPTR, "indices": INDICES, "last_page_len": LAST, "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS,
            "head_dim": DIM, "page_size": PAGE}


def paged_plan(**more):
    return {"qo_indptr": QUERIES, "paged_kv_indptr": INDPTR, "paged_kv_indices": INDICES, "paged_kv_last_page_len": LAST,
            "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim_qk": DIM, "page_size": PAGE, **more}


def decode(**init):
    return lambda: {"__init__": {"float_workspace_buffer": workspace(), **init}, "plan": decode_plan(),
                    "run": {"q": randn(2, HEADS, DIM), "paged_kv_cache": PAGES.cache}}


def decode_for_graphs():
    buffers = {name: torch.zeros(n, dtype=torch.int32) for name, n in
               (("indptr_buffer", 3), ("indices_buffer", 8), ("last_page_len_buffer", 2))}
    return {**decode()(), "__init__": {"workspace_buffer": workspace(), **buffers}}


def paged(run=None, **init):
    return lambda: {"__init__": {"float_workspace_buffer": workspace(), **init}, "plan": paged_plan(),
                    "run": {"q": randn(QO[-1], HEADS, DIM), "paged_kv_cache": PAGES.cache, **(run or {})}}


def ragged():
    return {"__init__": {"float_workspace_buffer": workspace()}, "run": ragged_run(),
            "plan": {"qo_indptr": QUERIES, "kv_indptr": KEYS, "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS,
                     "head_dim_qk": DIM}}


def mixed():
    return {"__init__": {"device": "cpu"}, "run": {"q": randn(QO[-1], HEADS, DIM), "kv_cache": PAGES.cache},
            "plan": {"qo_indptr": QUERIES, "kv_indptr": INDPTR, "kv_indices": INDICES, "kv_len_arr": torch.tensor(LENGTHS),
                     "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS, "head_dim_qk": DIM, "head_dim_vo": DIM, "page_size": PAGE,
                     "q_data_type": HALF, "kv_data_type": HALF}}


def levels():
    plan = {name + "_arr": [array] * 2 for name, array in (
        ("qo_indptr", QUERIES), ("paged_kv_indptr", INDPTR), ("paged_kv_indices", INDICES))}
    return {"__init__": {"num_levels": 2, "float_workspace_buffer": workspace()},
            "run": {"q": randn(QO[-1], HEADS, DIM), "paged_kv_cache": PAGES.cache},
            "plan": {**plan, "paged_kv_last_page_len": [LAST] * 2, "num_qo_heads": HEADS, "num_kv_heads": KV_HEADS,
                     "head_dim": DIM,
                     "page_size": PAGE}}


def shared(n, **plan):
    return lambda: {"__init__": {"float_workspace_buffer": workspace()}, "begin_forward": plan,
                    "forward": {"q": randn(n, HEADS, DIM), "k_shared": randn(9, KV_HEADS, DIM),
                                "v_shared": randn(9, KV_HEADS, DIM, seed=1), "unique_kv_cache": PAGES.cache}}


def shared_decode():
    arrays = "indptr", "indices", "last_page_len"
    return shared(2, **{("unique_kv_" + name if name in arrays else name): x for name, x in decode_plan().items()})()


def shared_prefill():
    plan = paged_plan()
    return shared(QO[-1], head_dim=plan.pop("head_dim_qk"), **plan)()


CLASSES = {
    "BatchDecodeWithPagedKVCacheWrapper": decode(), "CUDAGraphBatchDecodeWithPagedKVCacheWrapper": decode_for_graphs,
    "BatchPrefillWithPagedKVCacheWrapper": paged(), "BatchPrefillWithRaggedKVCacheWrapper": ragged,
    "BatchAttentionWithAttentionSinkWrapper": paged({"sink": torch.ones(HEADS)}, q_data_type=HALF, kv_data_type=HALF,
                                                    head_dim_qk=DIM, head_dim_vo=DIM),
    "BatchAttention": mixed, "MultiLevelCascadeAttentionWrapper": levels,
    "BatchDecodeWithSharedPrefixPagedKVCacheWrapper": shared_decode,
    "BatchPrefillWithSharedPrefixPagedKVCacheWrapper": shared_prefill,
}
SAME_AS = {"begin_forward": "plan", "workspace_size": "plan", "run_return_lse": "run", "forward_return_lse": "forward"}
ALIASES = {"nvfp4_block_scale_interleave"}  # other names of functions
MODULES = []  # whose public functions the package has without exporting all
# run() needs a sink, which forward() does not take: that is an error, as in FlashInfer.
NEVER = (flashinfer.BatchAttentionWithAttentionSinkWrapper, "forward")


def own_lines(maker, method):
    """Returns whether a method's parameters need lines: not if it takes what another takes."""
    other = SAME_AS.get(method)
    if method == "forward" and getattr(maker, method) is getattr(maker, "run", None):
        other = "run"
    if other is None or not hasattr(maker, other):
        return (maker, method) != NEVER
    taken = [inspect.signature(getattr(maker, name)).parameters for name in (method, other)]
    assert list(taken[0]) == list(taken[1]), f"{maker.__name__}.{method} takes other arguments than {other}"
    return False


def parameters_of(call):
    return [name for name in inspect.signature(call).parameters if name != "self"]


def is_number(thing):
    """Returns whether it is an enum or a record, whose tests are their own."""
    return inspect.isclass(thing) and (issubclass(thing, enum.Enum) or dataclasses.is_dataclass(thing))


def public_calls():
    """Returns (name, what it is tried by, its parameters) of all that the package exports, and its modules of MODULES."""
    unexported = {name: thing for module in MODULES for name, thing in vars(module).items()
                  if getattr(thing, "__module__", None) == module.__name__}
    for name, thing in {**unexported, **vars(flashinfer)}.items():
        if name.startswith("_") or name in ALIASES or inspect.ismodule(thing) or is_number(thing) or getattr(thing, "is_absent", False):
            continue
        if not inspect.isclass(thing):
            make, writes = FUNCTIONS.get(name, (None, ()))
            yield name, Function(CALLS.get(name, thing), make, writes), parameters_of(thing)
            continue
        methods = [m for m in dir(thing) if callable(getattr(thing, m)) and (m == "__init__" or not m.startswith("_"))]
        for method in methods:
            if own_lines(thing, method):
                yield f"{name}.{method}", Method(thing, CLASSES.get(name), method), parameters_of(getattr(thing, method))
