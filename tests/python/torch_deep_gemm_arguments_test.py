# SPDX-License-Identifier: Apache-2.0
"""quern.compat.deep_gemm's messages for bad input, settings, utilities, and what it refuses; install(); the runner of DeepGEMM's own
tests."""

import pathlib
import subprocess
import sys
import types

import pytest

torch = pytest.importorskip("torch")
from deep_gemm_calls import K, N, is_absent, public_calls  # noqa: E402
from deep_gemm_tools import BF16, F8, ints, quantised, rand, randn  # noqa: E402

import quern.compat  # noqa: E402
import quern.compat.deep_gemm as deep_gemm  # noqa: E402

TOP = pathlib.Path(__file__).resolve().parents[2]
CALLS = {name: call for name, call, _ in public_calls()}
FP4 = torch.zeros(5, K // 2, dtype=torch.int8)


@pytest.fixture(autouse=True)
def settings():
    yield
    deep_gemm.set_mk_alignment_for_contiguous_layout(128)
    deep_gemm.set_num_sms(0)


# ---- messages

A, B = quantised(5, K), quantised(N, K, gran=(128, 128))
OVERLAPPING = torch.zeros(N, N, dtype=BF16)
WRONG = [
    ("fp8_fp4_gemm_nt", {"a": A[0]}, TypeError, "a is a Tensor; accepted: (values, scales), two PyTorch tensors"),
    ("fp8_fp4_gemm_nt", {"a": (A[0], 3)}, TypeError, "a[1] is 3; accepted: a PyTorch tensor"),
    ("fp8_fp4_gemm_nt", {"c": 1.0}, TypeError, "c is 1.0; accepted: a PyTorch tensor, None"),
    ("fp8_fp4_gemm_nt", {"b": (B[0][:, 1:], B[1])}, ValueError, "b[0] has shape [140, 299], needs [any, 300]"),
    ("fp8_fp4_gemm_nn", {"b": (B[0].T[1:], B[1])}, ValueError, "b[0] has shape [299, 140], needs [300, any]"),
    ("fp8_fp4_gemm_nn", {"b": (B[0].T, B[1])}, ValueError, "b[1] has shape [2, 3], needs [3, 2]"),
    ("fp8_fp4_gemm_nt", {"a": (A[0], A[1][:, 1:])}, ValueError, "a[1] has shape [5, 2], needs [5, 3]"),
    ("fp8_fp4_gemm_nt", {"a": (A[0], A[1].double())}, NotImplementedError, "a[1] has dtype torch.float64; accepted: torch.float32, torch.int32"),
    ("fp8_fp4_gemm_nt", {"a": (FP4, A[1])}, ValueError, "b[0] has shape [140, 300], needs [any, 150]"),
    ("fp8_fp4_gemm_nt", {"d": torch.empty(5, N, dtype=torch.half)}, NotImplementedError,
     "d has dtype torch.float16; accepted: torch.bfloat16, torch.float32"),
    ("fp8_fp4_gemm_nt", {"d": torch.empty(N, 5, dtype=BF16).T}, ValueError, "d has strides [1, 5], needs contiguous rows"),
    ("fp8_fp4_gemm_nt", {"d": torch.empty(5, N)}, NotImplementedError, "c has dtype torch.bfloat16; accepted: torch.float32"),
    ("fp8_fp4_gemm_nt", {"c": torch.empty(4, N, dtype=BF16)}, ValueError, "c has shape [4, 140], needs [5, 140]"),
    ("fp8_fp4_gemm_nt", {"recipe": (1, 64, 128)}, ValueError,
     "recipe is (1, 64, 128); accepted: (gran_m, gran_n, gran_k), each of 1, 128, gran_k of 32, 128"),
    ("fp8_fp4_gemm_nt", {"recipe": 128}, ValueError, "recipe is 128; accepted: (gran_m, gran_n, gran_k), each of 1, 128, gran_k of 32, 128"),
    ("fp8_fp4_gemm_nt", {"recipe": (1, 128, 128), "recipe_a": (1, 128), "recipe_b": (128, 128)}, ValueError,
     "recipe is (1, 128, 128), recipe_a (1, 128) and recipe_b (128, 128); accepted: recipe alone, recipe_a with recipe_b, or none of them"),
    ("fp8_fp4_gemm_nt", {"a": (torch.empty(5, 2 * K)[:, ::2].to(F8).repeat(1, 2)[:, ::2], A[1])}, ValueError,
     "a[0] has strides [600, 2], needs contiguous rows or columns"),
    ("bf16_gemm_nt", {"a": torch.empty(5, K)}, NotImplementedError, "a has dtype torch.float32; accepted: torch.bfloat16"),
    ("cublaslt_gemm_nt", {"b": B[0]}, NotImplementedError, "b has dtype torch.float8_e4m3fn; accepted: torch.bfloat16"),
    ("gemm_fp8_fp8_bf16_nt", {"rhs": (B[0], B[1][:1])}, ValueError, "rhs[1] has shape [1, 3], needs [2, 3]"),
    ("gemm_fp8_fp8_bf16_nt", {"out": torch.empty(5, N)}, NotImplementedError, "out has dtype torch.float32; accepted: torch.bfloat16"),
    ("fp8_gemm_nt_skip_head_mid", {"head_splits": (30, 7, 30)}, ValueError,
     "head_splits is (30, 7, 30); accepted: a left + right that divides n, 100"),
    ("m_grouped_fp8_fp4_gemm_nt_contiguous", {"grouped_layout": ints(100, 150, 160)}, ValueError, "grouped_layout has shape [3], needs [2]"),
    ("m_grouped_fp8_fp4_gemm_nt_contiguous", {"use_psum_layout": False, "grouped_layout": ints(*[5] * 160)}, ValueError,
     "grouped_layout[0] is 5"),
    ("m_grouped_fp8_fp4_gemm_nt_contiguous", {"use_psum_layout": False, "grouped_layout": ints(*[0] * 160),
                                              "expected_m_for_psum_layout": 3}, ValueError,
     "expected_m_for_psum_layout is 3; accepted without use_psum_layout: None"),
    ("m_grouped_fp8_fp4_gemm_nt_contiguous", {"use_psum_layout": False, "grouped_layout": ints(*[0] * 100, *[1] * 60)}, ValueError,
     "grouped_layout[100] is 1, grouped_layout[0] 0; a group needs to start at a multiple of 128"),
    ("bf16_gemm_nt", {"d": OVERLAPPING[:5], "a": torch.empty(5, N, dtype=BF16), "b": OVERLAPPING}, ValueError, "d overlaps b"),
    ("gemm_fp8_fp8_bf16_nt", {"lhs": (OVERLAPPING.view(F8)[:5], A[1]), "rhs": (B[0][:, :280], B[1]), "out": OVERLAPPING[:5]}, ValueError,
     "out overlaps lhs[0]"),
    ("m_grouped_fp8_fp4_gemm_nt_masked", {"expected_m": 0}, ValueError, "expected_m is 0; accepted: an integer of 1 or above"),
    ("m_grouped_fp8_fp4_gemm_nt_masked", {"masked_m": torch.tensor([1, 3])}, NotImplementedError,
     "masked_m has dtype torch.int64; accepted: torch.int32"),
    ("m_grouped_bf16_gemm_nt_masked", {"d": torch.empty(4, N, dtype=BF16)}, ValueError, "d has shape [4, 140], needs [2, 4, 140]"),
    ("fp8_gemm_nt_skip_head_mid", {"a": (A[0][0], A[1])}, ValueError, "a[0] has shape [300], needs [any, any]"),
    ("k_grouped_fp8_gemm_nt_contiguous", {"c": None}, ValueError, "c is None; accepted: a tensor of d's shape and dtype, which may be d"),
    ("k_grouped_fp8_gemm_nt_contiguous", {"ks_cpu": [100, 284]}, ValueError, "ks_cpu has 100; accepted: multiples of 128"),
    ("k_grouped_fp8_gemm_tn_contiguous", {"ks_cpu": None}, ValueError, "ks_cpu is None; accepted without use_psum_layout: a list of integers"),
    ("k_grouped_fp8_gemm_tn_contiguous", {"recipe": (1, 128, 128)}, ValueError, "recipe is (1, 128, 128); accepted: (1, 1, 32), (1, 1, 128)"),
    ("k_grouped_fp8_gemm_tn_contiguous", {"ks_cpu": [256, 256], "grouped_layout": ints(256, 256)}, ValueError,
     "the groups end at 512 of k; accepted: the 384 that a[0] has, or less"),
    ("k_grouped_bf16_gemm_tn_contiguous", {"use_psum_layout": True}, ValueError,
     "ks_cpu is [128, 256]; accepted with use_psum_layout: [128, 128], as grouped_layout has groups, None"),
    ("einsum", {"expr": "ij,jk->ik"}, NotImplementedError,
     "expr is 'ij,jk->ik'; accepted: 'bmk,bnk->mn', 'bhr,hdr->bhd', 'bhd,hdr->bhr'"),
    ("einsum", {"b": torch.zeros(6, 7, 41, dtype=BF16)}, ValueError, "b has shape [6, 7, 41], needs [6, any, 40]"),
    ("fp8_fp4_mqa_logits", {"max_seqlen_k": 5}, ValueError, "clean_logits is True; accepted with max_seqlen_k, which is 5: False"),
    ("fp8_fp4_mqa_logits", {"q": (torch.zeros(6, 4, 64).to(F8), ints(1))}, NotImplementedError,
     "q[1] is a Tensor, which holds the scales of FP4 queries, which SM100's matrix cores take and no chip that quern serves; accepted: None"),
    ("fp8_fp4_paged_mqa_logits", {"max_context_len": 129}, ValueError,
     "max_context_len is 129; accepted: up to 128, for which block_table has pages"),
    ("tf32_hc_prenorm_gemm", {"num_splits": 0}, ValueError, "num_splits is 0; accepted: an integer of 1 or above"),
    ("set_tc_util", {"new_tc_util": 101}, ValueError, "new_tc_util is 101; accepted: an integer from 0 to 100"),
    ("set_pdl", {"new_enable_pdl": 2}, ValueError, "new_enable_pdl is 2; accepted: True, False"),
    ("per_channel_cast_to_fp8", {"x": torch.zeros(100, 4)}, ValueError, "x has 100 rows, needs a multiple of gran_k, 128"),
    ("per_token_cast_to_fp8", {"use_packed_ue8m0": True}, ValueError, "use_packed_ue8m0 is True; accepted without use_ue8m0: False"),
    ("pack_ue8m0_to_int", {"x": torch.full((2, 4), 3.0)}, ValueError,
     "x has numbers that are no powers of two; accepted: powers of two, which ceil_to_ue8m0 gives"),
    ("get_col_major_tma_aligned_tensor", {"x": torch.ones(3)}, ValueError, "x has shape [3], needs 2 or 3 dimensions"),
]


@pytest.mark.parametrize("name, changed, error, message", WRONG, ids=[f"{name}-{'-'.join(changed)}" for name, changed, *_ in WRONG])
def test_message(name, changed, error, message):
    with pytest.raises(error) as raised:
        CALLS[name].run(**changed)
    assert type(raised.value) is error and str(raised.value).startswith(f"{name}: {message}"), raised.value


def test_fp4_is_refused():
    b = torch.zeros(N, K // 2, dtype=torch.int8)
    with pytest.raises(NotImplementedError, match=r"^fp8_fp4_gemm_nt: a\[0\] has dtype torch.int8, packed FP4, which SM100's"):
        deep_gemm.fp8_fp4_gemm_nt((FP4, A[1]), (b, B[1]), torch.empty(5, N))


def test_groups_of_other_scales_and_alignments():
    call = CALLS["m_grouped_fp8_fp4_gemm_nt_contiguous"]
    with pytest.raises(NotImplementedError, match="scales stand for 1 x 128 elements of a and 1 x 32 of b, for which there is no"):
        call.run(b=quantised(2, N, K, gran=(1, 32)), recipe_a=(1, 128), recipe_b=(1, 32))
    deep_gemm.set_mk_alignment_for_contiguous_layout(64)
    with pytest.raises(NotImplementedError, match="the alignment is 64; accepted without use_psum_layout"):
        call.run(use_psum_layout=False, grouped_layout=ints(*[0] * 160))


@pytest.mark.parametrize("name", sorted(name for name, call in CALLS.items() if "d" in call.arguments() or name.endswith("mqa_logits")))
def test_gradients_are_refused(name):
    """No gradient is cut in silence."""
    call = CALLS[name]
    key = next(key for key in ("weights", "c", "b") if key in call.arguments())
    value = call.arguments()[key]
    given = (value[0], value[1].clone().requires_grad_()) if isinstance(value, tuple) else value.clone().requires_grad_()
    with pytest.raises(RuntimeError, match=rf"^{name}: {key}(\[1\])? requires a gradient, and quern computes none of this call; accepted: "):
        call.run(**{key: given})
    with torch.no_grad():
        call.run(**{key: given})


def test_devices_must_be_one():
    with pytest.raises(ValueError, match=r"^fp8_fp4_gemm_nt: a\[0\] is on meta, needs cpu, where d is"):
        CALLS["fp8_fp4_gemm_nt"].run(a=(A[0].to("meta"), A[1]))


# ---- what is absent, and the table of it

ABSENT = [("deep_gemm", name) for name in deep_gemm.__all__ if name not in ("__version__", "SymmBuffer") and
          callable(getattr(deep_gemm, name)) and is_absent(getattr(deep_gemm, name))] + [("deep_gemm", "SymmBuffer")]


def test_absent_functions():
    page = (TOP / "docs/deep_gemm.md").read_text()
    assert len(ABSENT) > 5
    for _, name in ABSENT:
        assert f"`{name}`" in page, name
        with pytest.raises(NotImplementedError, match=f"^{name}: .*docs/deep_gemm.md lists what is served"):
            getattr(deep_gemm, name)(1, b=2)
    with pytest.raises(AttributeError, match="quern.compat.deep_gemm has no jit; docs/deep_gemm.md lists what it has"):
        deep_gemm.jit  # noqa: B018


def test_page_names_everything():
    page = (TOP / "docs/deep_gemm.md").read_text()
    assert not [name for name in deep_gemm.__all__ if f"`{name}`" not in page and name != "__version__"]
    assert not [name for name in vars(deep_gemm.legacy) if name.endswith("_tl") and f"`{name}`" not in page]


# ---- settings and utilities

def test_settings():
    most = deep_gemm.get_num_sms()
    deep_gemm.set_num_sms(1)
    assert deep_gemm.get_num_sms() == 1 and deep_gemm.get_tc_util() == 100 and deep_gemm.get_pdl() is False
    with pytest.raises(ValueError, match=f"new_num_sms is {most + 1}; accepted: an integer from 0 to {most}"):
        deep_gemm.set_num_sms(most + 1)
    deep_gemm.set_mk_alignment_for_contiguous_layout(64)
    names = "mk", "m", "k"
    assert [getattr(deep_gemm, f"get_{name}_alignment_for_contiguous_layout")() for name in names] == [64] * 3
    assert deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout(20) == 128 and deep_gemm.testing.get_arch_major() == 9


@pytest.mark.parametrize("powers", [False, True])
def test_casts(powers):
    x = randn(130, 300, dtype=BF16)
    x[3, 5] = 1e-6
    rows = [(deep_gemm.per_token_cast_to_fp8(x, powers), 1, 128), (deep_gemm.per_token_cast_to_fp8(x, powers, 32), 1, 32),
            (deep_gemm.per_block_cast_to_fp8(x, powers), 128, 128), (deep_gemm.per_channel_cast_to_fp8(x[:128], powers), 128, 1)]
    for (values, scale), height, width in rows:
        given = x[:len(values)]
        whole = scale.repeat_interleave(height, 0)[:len(given)].repeat_interleave(width, 1)[:, :300]
        assert values.dtype == F8 and values.shape == given.shape and (not powers or (scale.log2() % 1 == 0).all())
        assert ((values.float() * whole - given.float()).abs() <= given.float().abs() * 2**-4 + whole * 2**-10).all()
        tops = torch.nn.functional.max_pool2d(torch.nn.functional.pad(given.float().abs(), (0, -300 % width, 0, -len(given) % height))[
            None], (height, width))[0].clamp(1e-4) / 448
        assert torch.equal(scale, tops) if not powers else ((tops <= scale) & (scale < 2 * tops)).all()
    values, scale = deep_gemm.per_custom_dims_cast_to_fp8(x, (0,), powers)
    assert scale.shape == (130,) and ((values.float() * scale[:, None] - x.float()).abs() <= x.float().abs() * 2**-4 + 1e-2).all()


def test_fp4():
    x = randn(6, 64, seed=4)
    packed, scale = deep_gemm.per_token_cast_to_fp4(x, False, 32)
    back = deep_gemm.cast_back_from_fp4(packed, scale, 32)
    # The largest step of e2m1 is 2, from 4 to 6.
    assert packed.shape == (6, 32) and ((back - x).abs() <= scale.repeat_interleave(32, 1) * 1.001).all()
    assert torch.equal((back / scale.repeat_interleave(32, 1)).abs().unique().round(decimals=3),
                       torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6]))
    turned = deep_gemm.transpose_packed_fp4(packed)
    ones = torch.ones(64, 1)
    assert torch.equal(deep_gemm.cast_back_from_fp4(turned, ones, 6), deep_gemm.cast_back_from_fp4(packed, ones[:6], 64).T)
    packed, words = deep_gemm.per_token_cast_to_fp4(x, True, 32, True)
    assert words.dtype == torch.int32 and words.shape == (6, 1)
    again = deep_gemm.cast_back_from_fp4(packed, words, 32, True)
    assert ((again - x).abs() <= 2 * scale.repeat_interleave(32, 1)).all()


def test_scales_as_words():
    x = torch.tensor([[[1.0, 3.0, 0.3, 2.0**-140]]])
    rounded = deep_gemm.ceil_to_ue8m0(x)
    assert rounded.tolist() == [[[1.0, 4.0, 0.5, 2.0**-126]]]
    words = deep_gemm.pack_ue8m0_to_int(rounded)
    assert words.shape == (1, 1, 1) and torch.equal(deep_gemm.unpack_ue8m0_from_int(words), rounded)
    sf = rand(5, 6)
    assert deep_gemm.get_mn_major_tma_aligned_tensor(sf).stride() == (1, 8)
    assert deep_gemm.transform_sf_into_required_layout(sf, 5, 768, (1, 128, 128), is_sfa=True).stride() == (1, 8)


def test_helpers_of_tests(capsys, monkeypatch):
    testing, x = deep_gemm.testing, torch.arange(6.0).view(2, 3)
    assert testing.calc_diff(x, x) == 0 and testing.calc_diff(0 * x, 0 * x) == 0 and abs(testing.calc_diff(x, -x) - 2) < 1e-12
    assert testing.count_bytes(x, (x, None), [x.half()]) == 60
    testing.assert_bitwise_equal(x, x.clone(), "equal")
    with pytest.raises(AssertionError, match=r"mine: 1 elements of 6 differ, the first at \(1, 2\): 5.0 and 9.0"):
        testing.assert_bitwise_equal(x, torch.cat([x.flatten()[:5], torch.tensor([9.0])]).view(2, 3), "mine")
    with pytest.raises(AssertionError, match="dtype torch.float32 and torch.float16"):
        testing.assert_bitwise_equal(x, x.half())
    testing.test_filter(lambda: False)(lambda: 1 / 0)()
    assert "Filtered" in capsys.readouterr().out
    monkeypatch.setenv("DEEP_GEMM_TEST", "1")
    seen = []
    testing.ignore_env("DEEP_GEMM_TEST", lambda: True)(lambda: seen.append("DEEP_GEMM_TEST" in __import__("os").environ))()
    assert seen == [False] and __import__("os").environ["DEEP_GEMM_TEST"] == "1"


def test_timings():
    calls = []
    assert deep_gemm.bench(lambda: calls.append(1), 2, 3) > 0 and len(calls) == 5
    deep_gemm.bench(lambda: calls.append(1), num_warmups=0, num_tests=1, high_precision=True)
    one = deep_gemm.bench_kineto(lambda: calls.append(1), "gemm", 2, True, None, False, True, lambda: calls.append(2))
    assert one > 0 and 2 in calls
    halves = deep_gemm.bench_kineto(lambda: None, ("a", "b"))
    assert len(halves) == 2 and halves[0] == halves[1] > 0
    for wrong, error, message in (({"trace_path": "x"}, NotImplementedError, "trace_path is 'x'"),
                                  ({"num_tests": 0}, ValueError, "num_tests is 0"), ({"flush_l2": "y"}, ValueError, "flush_l2 is 'y'"),
                                  ({"kernel_names": 3}, TypeError, "kernel_names is 3")):
        with pytest.raises(error, match=f"^bench_kineto: {message}"):
            deep_gemm.bench_kineto(lambda: None, **{"kernel_names": "a", **wrong})
    with pytest.raises(ValueError, match="^bench: num_warmups is -1"):
        deep_gemm.bench(lambda: None, -1)


# ---- under the library's name

def test_install_refuses(monkeypatch):
    with pytest.raises(ValueError, match="^install: name is 'triton'; accepted: 'aiter', 'deep_gemm', 'flashinfer'"):
        quern.compat.install("triton")
    monkeypatch.setitem(sys.modules, "deep_gemm", types.ModuleType("deep_gemm"))
    with pytest.raises(RuntimeError, match="^install: deep_gemm is imported already, from None; accepted: before its first import"):
        quern.compat.install("deep_gemm")


def test_runner(tmp_path):
    """A checkout of five tests in a process of its own: one has sizes cut and tensors on the CPU, one fails, one asks for what is
    refused, one imports the stand-ins by the libraries' names, of which the runner installs one; of one keys, queries and requests
    are divided."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "generators.py").write_text("def enumerate_normal():\n    yield None, None, 4096, 640, 640\n    yield None, None, 300, 500, 640\n")
    (folder / "test_two.py").write_text("""
import torch, deep_gemm
from generators import enumerate_normal

def test_right():
    (_, _, m, n, k), = enumerate_normal()
    a = torch.ones((m, k), device="cuda", dtype=torch.bfloat16)
    d = torch.empty((m, n), device="cuda", dtype=torch.bfloat16)
    deep_gemm.bf16_gemm_nt(a, a, d)
    assert (m, n, k) == (200, 200, 200) and (d == 200).all() and d.device.type == "cpu"

def test_wrong():
    torch.cuda.synchronize()
    assert False, "as it must"

def test_refused():
    deep_gemm.fp8_fp4_mega_moe()

def test_installed():
    import quern.compat, sys
    import deep_gemm.utils.math, deep_gemm.testing.bench, deep_gemm.mega
    from deep_gemm.utils.layout import get_mn_major_tma_aligned_tensor
    assert deep_gemm is quern.compat.install("deep_gemm") is sys.modules["quern.compat.deep_gemm"]
    assert sys.modules["deep_gemm.gemm"].fp8_gemm_nt is deep_gemm.fp8_gemm_nt
    quern.compat.install("flashinfer")
    import flashinfer
    from flashinfer.norm import rmsnorm
    assert rmsnorm is flashinfer.rmsnorm and flashinfer.__name__ == "quern.compat.flashinfer"
""")
    (folder / "test_attention.py").write_text("""
def sample_mqa_cases(name, cases):
    return cases

def test_scores():
    assert sample_mqa_cases("prefill", [(*range(1000, 1005), 8192, 65536, 32)]) == [(*range(1000, 1005), 25, 200, 32)]
    assert sample_mqa_cases("paged", [(*range(7), 4096, *range(4), 9999, 8192)]) == [(*range(7), 102, *range(4), 30, 8192)]
""")
    done = subprocess.run([sys.executable, str(TOP / "tools/deepgemm_tests.py"), "--cpu", "--max-size", "200", str(tmp_path)],
                          capture_output=True, text=True)
    assert done.returncode == 1 and "test_two.test_right: passed" in done.stdout, done.stdout + done.stderr
    assert "test_two.test_wrong: FAILED" in done.stdout and "as it must" in done.stderr
    assert "test_two.test_refused: not served: fp8_fp4_mega_moe: " in done.stdout and "test_two.test_installed: passed" in done.stdout
    assert "test_attention.test_scores: passed" in done.stdout and "3 passed, 1 failed, of 5" in done.stdout
