# SPDX-License-Identifier: Apache-2.0
"""Every op of the library given one bad argument: the exception names the op and the argument, and nothing is written."""

import math
import os
import subprocess
import sys

import arguments
import numpy as np
import pytest
import quern
from tools import normal

TENSORS = [(name, i) for name in arguments.NAMES for i, parameter in enumerate(arguments.parameters(name))
           if parameter.kind == "t" and arguments.arguments(name)[i] is not None]
NUMBERS = [(name, i) for name in arguments.NAMES for i, parameter in enumerate(arguments.parameters(name))
           if parameter.kind != "t"]
ERRORS = (ValueError, NotImplementedError, TypeError)


def kinds(name):
    return [parameter.kind == "t" for parameter in arguments.parameters(name)]


@pytest.mark.parametrize("name", arguments.NAMES)
def test_tensors_stand_before_numbers(name):
    """Tests what callers of native ops count on, who know only the names of the tensors."""
    assert kinds(name) == sorted(kinds(name), reverse=True)


def strided(x):
    """Returns the array's values in every second element of a row."""
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def unaligned(x):
    """Returns the array's values one byte beyond where they may begin."""
    memory = np.zeros(x.nbytes + 1, np.uint8)
    memory[1:] = x.reshape(-1).view(np.uint8)
    return memory[1:].view(x.dtype).reshape(x.shape)


# The blame is the argument's alone: its name stands in the message.
OWN = {"dtype": lambda x: x.astype(np.int64 if x.dtype == np.int32 else np.float64), "unaligned": unaligned,
       "strided": strided, "nothing": lambda x: None, "text": lambda x: "text"}
# Two arguments do not go together: the message names one of them.
SHARED = {"longer": lambda x: np.concatenate([x, x[..., :1]], -1), "shorter": lambda x: x[..., :-1].copy(),
          "more dimensions": lambda x: x[None], "fewer dimensions": lambda x: x.reshape(-1) if x.ndim > 1 else x[0],
          "elsewhere": lambda x: quern.to(x, "sim:gfx942")}

# What an op accepts all the same: tensors of free length or strides, and those that may be left out.
FREE_LENGTH = {"expert_map", "logits", "probs", "kv_indices", "kv_indptr", "workspace", "group_layout", "ends", "r"}
FREE_STRIDES = {"scale", "scale_out", "out", "lse", "s", "s_a", "s_b", "s_states"}
ANYTHING = {"copy"}  # of any layout, from any device to any other


def is_accepted(name, parameter, kind, x):
    if name in ANYTHING:
        return kind not in ("nothing", "text", "more dimensions", "fewer dimensions", "longer", "shorter", "dtype")
    if kind == "nothing":
        return parameter.is_optional
    if kind == "strided":
        return x.shape[-1] == 1 or (x.dtype == np.float32 and parameter.name in FREE_STRIDES) or \
            ("scales" in name and parameter.name in FREE_STRIDES)
    if kind == "fewer dimensions":
        return name != "gemm_pack" and parameter.name in ("scale_a", "scale_b", "w1_scale", "w2_scale")
    if kind == "unaligned":
        return x.dtype.itemsize == 1
    if kind in ("longer", "shorter"):
        return parameter.name in FREE_LENGTH or (parameter.name, kind) == ("plan", "longer") or \
            "packbits" in name and parameter.name in ("x", "out") or \
            "scales" in name and parameter.name == "scale" or name == "gemm_pack" and parameter.name == "b"
    return kind == "elsewhere" and parameter.name == "r"


def bits(values):
    return [x.tobytes() if isinstance(x, np.ndarray) else x for x in values]


def check(name, values, named):
    """Checks that the op refuses these: the message begins with its name and has one of the words, and no array has
    changed."""
    before = bits(values)
    with pytest.raises(ERRORS) as raised:
        getattr(quern._ops, name)(*values)
    message = str(raised.value)
    assert message.startswith(name) and any(word in message for word in named), message
    assert bits(values) == before


@pytest.mark.parametrize("kind", [*OWN, *SHARED])
@pytest.mark.parametrize("name, i", TENSORS)
def test_tensor(name, i, kind):
    parameter, values = arguments.parameters(name)[i], arguments.arguments(name)
    if is_accepted(name, parameter, kind, values[i]):
        return
    values[i] = (OWN | SHARED)[kind](values[i])
    check(name, values, [parameter.name] if kind in OWN else [p.name for p in arguments.parameters(name)])


@pytest.mark.parametrize("name", ["attention", "mla_decode"])
@pytest.mark.parametrize("plan, fault", [
    (lambda plan, device: quern.to(plan, device), "on another device"),
    (lambda plan, device: np.repeat(plan, 2)[::2], "another kind of tensor"),
    (lambda plan, device: plan.view(np.int64), "another kind of tensor")])
def test_plans_lie_on_the_cpu(name, plan, fault):
    """Tests that a plan which the CPU cannot read is refused, where all other tensors lie on the device."""
    device = quern.device("sim:gfx942")
    values = [quern.to(x, device) if isinstance(x, np.ndarray) else x for x in arguments.arguments(name)]
    place = [p.name for p in arguments.parameters(name)].index("plan")
    values[place] = plan(arguments.mla_plan().host, device)
    with pytest.raises(ValueError, match=f"{name}: plan is {fault}; accepted: u8 in one row, on the CPU"):
        getattr(quern._ops, name)(*values)


# ---- overlap

def pairs(name):
    """Returns indices of arguments of one dtype, the first of which is written, which are made to overlap."""
    listed = arguments.parameters(name)
    values = arguments.arguments(name)
    for i, written in enumerate(listed):
        for j, other in enumerate(listed):
            if written.is_written and i != j and written.kind == other.kind == "t" and \
                    values[i] is not None and values[j] is not None and values[i].dtype == values[j].dtype and \
                    values[i].size > 1:
                yield i, j


@pytest.mark.parametrize("name", sorted(set(arguments.NAMES) - {"copy"}))
def test_overlap(name):
    """Tests an array that begins an element into another."""
    for i, j in pairs(name):
        values = arguments.arguments(name)
        a, b = values[i], values[j]
        memory = np.zeros(max(a.size, b.size + 1), a.dtype)
        memory[:a.size] = a.reshape(-1)
        values[i], values[j] = memory[:a.size].reshape(a.shape), memory[1:b.size + 1].reshape(b.shape)
        check(name, values, [arguments.parameters(name)[i].name, arguments.parameters(name)[j].name])


def test_read_only():
    for name, i in TENSORS:
        values = arguments.arguments(name)
        if arguments.parameters(name)[i].is_written:
            values[i].flags.writeable = False
            check(name, values, [arguments.parameters(name)[i].name])


# ---- numbers

# Any number of these means something: flags, seeds, what a kernel may ignore; attention's scales may be of any sign.
FREE = {"interleave", "round_scale", "allow_rounding", "by_ends", "is_hnd", "b_is_packed", "is_causal", "is_top_left",
        "zero_padding", "seed", "offset", "dropout_seed", "dropout_offset", "expected_m", "old_context_len", "window_left",
        "window_right", "block_rows", "block_cols", "presence", "frequency"}


@pytest.mark.parametrize("name, i", NUMBERS)
def test_number(name, i):
    parameter = arguments.parameters(name)[i]
    wrong = [None, "text"] + ([1.5] if parameter.kind == "i" else [math.nan])
    if parameter.name not in FREE and not name.startswith("attention"):
        wrong += [-1, -(1 << 40)] if parameter.kind == "i" else [-math.inf, -1.0]
    if parameter.kind == "i" and parameter.name in ("function", "order", "m_alignment", "lse_base", "pos_encoding"):
        wrong += [1 << 32]  # whose lower half is 0
    for value in wrong:
        values = arguments.arguments(name)
        values[i] = value
        check(name, values, [parameter.name, "scales", "scale"] if name.startswith("attention") else [parameter.name])


@pytest.mark.parametrize("name", ["rope_scale", "rope_theta", "low_freq_factor", "high_freq_factor", "old_context_len"])
def test_zero_is_not_the_default(name):
    q, positions = normal(1, (4, 2, 64)), np.arange(4, dtype=np.int32)
    with pytest.raises(ValueError, match=f"apply_llama31_rope_pos_ids: {name} is 0"):
        quern.apply_llama31_rope_pos_ids(q, None, positions, **{name: 0})


def test_too_many_and_too_few():
    values = arguments.arguments("rmsnorm")
    for wrong in (values[:-1], [*values, 1]):
        with pytest.raises(TypeError, match=rf"rmsnorm: found {len(wrong)} arguments, needs 4"):
            quern._ops.rmsnorm(*wrong)


# ---- values of indices and scales

VALIDATED = """
import numpy as np, arguments, quern
cases = [("apply_rope", "indptr", 1, 9), ("apply_rope", "indptr", 1, -1), ("apply_rope_with_cos_sin_cache", "positions", 2, 16),
         ("apply_rope_with_cos_sin_cache", "positions", 0, -1), ("rope_quantize_fp8", "pos_ids", 3, 16),
         ("append_paged_kv_cache", "kv_indices", 0, 3), ("append_paged_kv_cache", "kv_indices", 0, -1),
         ("append_paged_kv_cache", "batch_indices", 0, 2), ("append_paged_kv_cache", "positions", 0, 500),
         ("append_paged_kv_cache", "kv_indptr", 1, 9), ("append_paged_mla_kv_cache", "kv_indices", 1, 3),
         ("reshape_and_cache", "slot_mapping", 0, 15), ("get_batch_indices_positions", "append_indptr", 1, 9),
         ("rope_quantize_fp8_append_paged_kv_cache", "kv_indices", 0, 7), ("sample", "indices", 2, 2), ("sample", "top_ks", 1, 0),
         ("sample", "temperatures", 0, 0.0), ("sample", "top_ps", 2, 1.5), ("sample", "min_ps", 1, np.nan),
         ("softmax", "temperatures", 0, -1.0), ("top_p_renorm_probs", "top_ps", 1, 0.0), ("top_k_mask_logits", "top_ks", 2, -1),
         ("apply_penalties", "repetitions", 0, 0.0), ("apply_penalties", "presences", 1, np.inf),
         ("chain_speculative_sampling", "draft_ids", (1, 1), 8)]
for name in ("rmsnorm_quant", "fused_add_rmsnorm_quant", "layernorm_quant", "quantize_static", "act_and_mul_quant"):
    cases += [(name, "scale", 0, value) for value in (np.nan, np.inf, 0.0, -1.0)]
cases += [("moe_route", "logits", (2, 5), np.nan), ("moe_sort", "ids", (1, 1), 4), ("moe_sort", "ids", (3, 0), -2),
          ("moe_sort", "expert_map", 1, 3), ("moe_sum", "row_of_pair", (2, 1), 6), ("fused_moe", "ids", (0, 1), 4),
          ("fused_moe", "expert_map", 0, -2)]
cases += [("reshape_and_cache", "k_scale", 0, np.nan), ("reshape_and_cache", "v_scale", 0, np.inf)]
for spec in ("cpu", "sim:gfx942"):
    for name, parameter, place, value in cases:
        values = arguments.arguments(name)
        i = [p.name for p in arguments.parameters(name)].index(parameter)
        values[i][place] = value
        before = [x.tobytes() if isinstance(x, np.ndarray) else x for x in values]
        there = [quern.to(x, spec) if spec != "cpu" and isinstance(x, np.ndarray) else x for x in values]
        try:
            getattr(quern._ops, name)(*there)
            raise SystemExit(f"{name} took {parameter}[{place}] = {value}")
        except ValueError as error:
            assert str(error).startswith(name + ": ") and parameter in str(error), error
        after = [quern.numpy(x).tobytes() if isinstance(x, quern.Tensor) else x.tobytes() if isinstance(x, np.ndarray) else x
                 for x in there]
        assert after == before, name
    for name in arguments.NAMES:  # and what is right is taken
        if spec == "cpu":
            getattr(quern._ops, name)(*arguments.arguments(name))
print("done")
"""


def test_contents():
    environment = {**os.environ, "QUERN_VALIDATE": "1", "PYTHONPATH": f"{os.environ['PYTHONPATH']}:{os.path.dirname(__file__)}"}
    done = subprocess.run([sys.executable, "-c", VALIDATED], env=environment, capture_output=True, text=True)
    assert done.stdout == "done\n", done.stdout + done.stderr


# ---- nothing to do

def test_no_rows():
    none, zero = np.empty(0, np.int32), np.zeros(1, np.int32)
    x, weight, scale = np.empty((0, 64), np.float32), np.ones(64, np.float32), np.ones(1, np.float32)
    for got in (quern.rmsnorm(x, weight), quern.gemma_rmsnorm(x, weight), quern.layernorm(x), quern.act_and_mul(np.empty((0, 128), np.float32)),
                quern.rmsnorm_quant(x, weight, scale), quern.layernorm_quant(x, None, None, scale),
                quern.rmsnorm_dynamic_quant(x, weight)[0], quern.rmsnorm_dynamic_quant(x, weight, group=128)[0],
                quern.quantize_groups(x)[0], quern.quantize_fp8(x)[0], quern.quantize_static(x, scale),
                quern.silu_and_mul(np.empty((0, 128), np.float32)), quern.act_and_mul_dynamic_quant(np.empty((0, 128), np.float32))[0]):
        assert got.shape == (0, 64)
    quern.fused_add_rmsnorm(x, x.copy(), weight)
    q = np.empty((0, 2, 64), np.float32)
    table = np.zeros((4, 64), np.float32)
    for got in (quern.apply_rope_pos_ids(q, q, none), quern.apply_rope(q, q, zero, none), quern.apply_llama31_rope_pos_ids(q, q, none),
                quern.apply_rope_with_cos_sin_cache(q, q, table, none), quern.rope_quantize_fp8(q, q, table, none)):
        assert got[0].shape == got[1].shape == (0, 2, 64)
    cache = normal(1, (3, 4, 2, 64))
    before = cache.copy()
    quern.append_paged_kv_cache(cache, cache.copy(), q, q, none, none, none, zero)
    quern.reshape_and_cache(cache, cache.copy(), q, q, none)
    np.testing.assert_array_equal(cache, before)
    assert quern.get_batch_indices_positions(zero, none, 0)[0].shape == (0,)
    assert quern.packbits(np.empty(0, bool)).shape == (0,)
    assert quern.segment_packbits(np.empty(0, bool), zero)[1].tolist() == [0]


# ---- native functions that are no ops

@pytest.mark.parametrize("name, given, text", [
    ("attention_plan", [None] * 20, "attention_plan: sizes is None, needs a tensor"),
    ("attention_plan", [None, np.zeros(2, np.int64), None, None, None, None, 1, None], "attention_plan: qo_len is None, needs an integer"),
    ("attention_plan", [None, np.zeros(2, np.int64), 3], "attention_plan: qo_indptr is something else, needs a tensor"),
    ("attention_plan", [None, np.zeros(2, np.int64)], "attention_plan: found 2 arguments, needs 20"),
    ("attention_workspace_bytes", [None] * 32, "attention: o is None, needs a tensor"),
    ("attention_workspace_bytes", [], "attention: found 0 arguments, needs 32"),
    ("gemm_packed_empty", [None], "gemm_pack: b is None, needs a tensor"),
])
def test_native_functions_name_their_arguments(name, given, text):
    with pytest.raises(TypeError, match=text):
        getattr(quern._ops.ffi, name)(*given)
