# SPDX-License-Identifier: Apache-2.0
"""Tests quern tune: what it measures and chooses, the table that it writes, and how it goes on."""
import json
import os
import re
import signal
import subprocess
import time

import pytest
from conftest import BUILD, COMPILER, QUERN, SANITIZER, SOURCE, ok, refused, run

ENV = {name: value for name, value in os.environ.items() if name not in ("QUERN_TUNE", "QUERN_FORCE", "QUERN_SIM")}
SMALL = ["--device", "cpu", "--shapes", "64x128", "--rounds", 3]
on_sim = pytest.mark.skipif(not (BUILD / "libquernsim.so").exists(), reason="there is no simulator")


def tune(*args, env=ENV):
    """Runs quern tune; gives the problems of its report."""
    return json.loads(ok("tune", *args, "--json", env=env))["problems"]


def lines_of(table):
    """Returns the lines that choose, as quern tune list reads them."""
    return json.loads(ok("tune", "list", table, "--json", env=ENV))["lines"]


def kernels_of(problem):
    return [k["kernel"] for k in problem["kernels"]]


def used(table, *args):
    """Returns the kernel that a call takes with the table."""
    (result,) = json.loads(ok("bench", *args, "--json", env=ENV | {"QUERN_TUNE": str(table)}))["results"]
    return result["kernel"]


# ---- on the simulated GPU


@pytest.fixture(scope="module")
def modelled(tmp_path_factory):
    """A table of products for which modelled time prefers another kernel than costs do, and its report."""
    if not (BUILD / "libquernsim.so").exists():
        pytest.skip("there is no simulator")
    table = tmp_path_factory.mktemp("tune") / "sim.tune"
    return table, tune(*MODELLED, "--output", table)


MODELLED = ["gemm", "--device", "sim:gfx942", "--shapes", "224x512", "--tokens", "1,1472", "--dtype", "e4m3fn"]


def test_modelled_choice(modelled):
    """Tests that a line changes the choice for its very problem and for no other."""
    table, (one, many) = modelled
    assert one["chosen"] == kernels_of(one)[0] == kernels_of(many)[0] == "gemm.fp8_rows_16x32"
    assert many["chosen"] == "gemm.fp8_rows_32x64" and not many["for_all_batches"]
    times = {k["kernel"]: k["ns"] for k in many["kernels"]}
    assert times["gemm.fp8_rows_32x64"] == min(times.values()) < times["gemm.fp8_rows_16x32"]
    assert {"gemm.any", "gemm.any_fp8"} < set(times) and not any(k["refused"] for k in many["kernels"])
    (line,) = lines_of(table)
    assert line["kernel"] == many["chosen"] and line["problem"] == f'{many["line"]} {many["batch"]}'
    assert "m=1472" in line["problem"].split() and "by costs gemm.fp8_rows_16x32" in line["comment"]
    for m, kernel in [(1472, many["chosen"]), (1471, "gemm.fp8_rows_16x32"), (1, "gemm.fp8_rows_16x32")]:
        assert used(table, "gemm", "--device", "sim:gfx942", "--n", 224, "--k", 512, "--m", m) == kernel
    assert used(table, "gemm", "--device", "sim:gfx942", "--n", 224, "--k", 384, "--m", 1472) == "gemm.fp8_rows_16x32"


def test_ranges(modelled, tmp_path):
    """Tests that --ranges makes a line hold between the sizes that were measured, and that it is another command."""
    table, text = tmp_path / "t", modelled[0].read_text()
    table.write_text(text.replace(" --dtype", " --ranges --dtype").replace(" m=1472 expected_m=0 -> ", " m=2..1472 expected_m=0 -> "))
    assert [p["chosen"] for p in tune(*MODELLED, "--ranges", "--output", table)] == [p["chosen"] for p in modelled[1]]
    (line,) = lines_of(table)
    assert "m=2..1472" in line["problem"].split()
    for m, kernel in [(1, "gemm.fp8_rows_16x32"), (2, line["kernel"]), (1471, line["kernel"])]:
        assert used(table, "gemm", "--device", "sim:gfx942", "--n", 224, "--k", 512, "--m", m) == kernel
    refused("tune", *MODELLED, "--output", table, env=ENV, says=["its command is ", "--ranges"])


def test_modelled_times_repeat(modelled, tmp_path):
    """Tests that a second table has the same figures, and that bench's for the chosen kernel is the table's."""
    table, problems = modelled
    again = tune(*MODELLED, "--output", tmp_path / "again")
    assert again == problems
    assert re.sub("Z|[-0-9]+T[:0-9]+", "", (tmp_path / "again").read_text()) == re.sub("Z|[-0-9]+T[:0-9]+", "", table.read_text())


def test_sampled_results(tmp_path):
    """Tests that a sample of workgroups gives the same times, and results to compare."""
    if not (BUILD / "libquernsim.so").exists():
        pytest.skip("there is no simulator")
    problems = [tune("gemm", "--device", "sim:gfx942", "--shapes", "1024x128", "--tokens", "16", "--clock", clock, "--output",
                     tmp_path / clock) for clock in ("on", "sample")]
    assert problems[0] == problems[1]


def test_few_kernels(modelled, tmp_path):
    """Tests that --kernels tries the cheapest alone, and leaves the table without lines of the others."""
    few = tune(*MODELLED, "--kernels", 2, "--output", tmp_path / "t")
    for problem, whole in zip(few, modelled[1], strict=True):
        assert all(k["ns"] and not k["refused"] for k in problem["kernels"][:2])
        assert {k["refused"] for k in problem["kernels"][2:]} == {"not tried, as others cost less"}
        assert kernels_of(problem) == kernels_of(whole) and problem["chosen"] in kernels_of(problem)[:2]
    assert "refused" not in ok("tune", *MODELLED, "--kernels", 2, "--output", tmp_path / "t")


def test_choice_follows_figures(modelled, tmp_path):
    """Tests the rules of the choice: a run that finds a finished file measures nothing, and refuses a file whose lines
    do not follow from its figures."""
    table, (_, many) = modelled
    text = table.read_text()
    line = next(text for text in text.splitlines() if text.startswith("gemm "))
    head, usual = line.split(" -> ")[0], re.search("# (gemm.fp8_rows_16x32) .*\n", text[text.index("# problem 2"):])
    base = head.split(" grouping=")[0]
    plain = text.replace(line + "\n", "")

    def times(text, **ns):
        """Sets times and noises, by kernel, of both problems."""
        for kernel, (one, two, noise) in ns.items():
            parts = re.split(f"(# gemm.{kernel} [0-9.]+ us \\+- [0-9.]+)", text)
            parts[1], parts[3] = (f"# gemm.{kernel} {us}.000 us +- {noise}.000" for us in (one, two))
            text = "".join(parts)
        return text

    def choice(kernel, us, usual):
        return f"{head} -> gemm.{kernel} # {us}.000 us, by costs gemm.fp8_rows_16x32 {usual}.000 us\n"

    def check(text, wanted):
        file = tmp_path / "t"
        file.write_text(text + wanted)
        report = json.loads(ok("tune", *MODELLED, "--output", file, "--json", env=ENV))
        assert report["measured_before"] == 2 and file.read_text() == text + wanted
        for wrong in {text + choice("any_fp8", 1, 2), text} - {text + wanted}:
            file.write_text(wrong)
            refused("tune", *MODELLED, "--output", file, env=ENV, says=["changed after quern tune wrote it"])
        return report["problems"]

    assert usual and many["batch"]
    (tmp_path / "t").write_text(text.replace(" packed=yes", " packed=maybe"))  # a line that no call can go by
    refused("tune", *MODELLED, "--output", tmp_path / "t", env=ENV, says=["changed after quern tune wrote it"])
    fast = times(plain, fp8_rows_16x32=(50, 50, 2), fp8_mfma_fn_128x128=(50, 47, 2), any_fp8=(90, 90, 0), any=(90, 90, 0),
                 any_mixed=(90, 90, 0), fp8_decode=(90, 90, 0), fp8_rows_32x64=(90, 90, 0), fp8_split_16x16=(90, 90, 0))
    check(fast, choice("fp8_mfma_fn_128x128", 47, 50))
    check(times(fast, any_fp8=(60, 45, 0)), choice("any_fp8", 45, 50))  # of two, the faster
    check(times(fast, fp8_mfma_fn_128x128=(50, 48, 2)), "")  # within the noise
    check(times(fast, fp8_mfma_fn_128x128=(50, 47, 3)), "")  # within its own noise
    # gemm.any has other bits: for all batches, or for none
    every = f"{base} -> gemm.any # faster than the choice by costs at every size above\n"
    check(times(fast, any=(60, 10, 0)), choice("fp8_mfma_fn_128x128", 47, 50))
    check(times(fast, any=(49, 10, 0)), choice("fp8_mfma_fn_128x128", 47, 50))
    check(times(fast, any=(49, 46, 0)), choice("fp8_mfma_fn_128x128", 47, 50))
    assert all(p["for_all_batches"] for p in check(times(fast, any=(40, 40, 0)), every))


def test_problems_that_share_a_line(tmp_path):
    """Tests that problems that a table cannot tell apart (LayerNorm, plain and adaptive) get one line, if the kernel is
    faster for both."""
    if not (BUILD / "libquernsim.so").exists():
        pytest.skip("there is no simulator")
    table, args = tmp_path / "t", ["norm", "--device", "sim:gfx942", "--shapes", 4096, "--tokens", 64]
    problems = tune(*args, "--output", table)
    plain, adaptive = (next(p for p in problems if p["problem"].startswith(name)) for name in ("layernorm", "adaptive"))
    assert (plain["line"], plain["batch"]) == (adaptive["line"], adaptive["batch"])
    usual, other = kernels_of(plain)[:2]
    assert kernels_of(adaptive)[:2] == [usual, other]
    text = table.read_text()
    assert f"\nnorm gfx942 {plain['line']}" not in text

    def faster(name, text):
        head, rest = text.split(f": {name} 64 x 4096", 1)
        return head + f": {name} 64 x 4096" + re.sub(f"# {other} [0-9.]+ us", f"# {other} 1.000 us", rest, count=1)

    for given in (faster("layernorm", text), faster("adaptive_layernorm", text)):
        table.write_text(given)
        tune(*args, "--output", table)
    given = faster("adaptive_layernorm", faster("layernorm", text))
    time = adaptive["kernels"][0]["ns"] / 1000
    line = f'norm gfx942 {plain["line"]} {plain["batch"]} -> {other} # 1.000 us, by costs {usual} {time:.3f} us\n'
    last = given.index("#\n# problem 8")  # adaptive_layernorm's is problem 7
    table.write_text(given[:last] + line + given[last:])
    tune(*args, "--output", table)
    assert sum(plain["line"] in line["problem"] for line in lines_of(table)) == 1
    table.write_text(given)
    refused("tune", *args, "--output", table, env=ENV, says=["changed after quern tune wrote it"])


@pytest.mark.parametrize("op, shape, count", [("mla", "4", 1), ("norm", "256", 8), ("activation", "256", 3), ("quantize", "256", 1)])
@pytest.mark.parametrize("device", ["cpu", "sim:gfx942"])
def test_other_ops(op, shape, count, device, tmp_path):
    """Tests that all kernels of these ops agree, and that their tables can be followed."""
    if device != "cpu" and not (BUILD / "libquernsim.so").exists():
        pytest.skip("there is no simulator")
    rounds = ["--rounds", 3] if device == "cpu" else []
    size = ["--seq", 20] if op == "mla" else ["--tokens", 3]
    problems = tune(op, "--device", device, "--shapes", shape, *size, *rounds, "--output", tmp_path / "t")
    assert len(problems) == count and all(p["op"] == op and p["kernels"] for p in problems)
    assert not any(k["refused"] for p in problems for k in p["kernels"])
    assert ok("tune", "verify", tmp_path / "t", env=ENV)


# ---- on the CPU, with kernels that are made slow or wrong


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    if SANITIZER:
        pytest.skip("the sanitizer wants to be loaded first")
    library = tmp_path_factory.mktemp("shim") / "wrong_kernel.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-I", SOURCE / "include", "-I", SOURCE / "build/deps/include",
                    "-o", library, SOURCE / "tests/cli/wrong_kernel.c"], check=True)
    return lambda how, kernel: ENV | {"LD_PRELOAD": str(library), how: kernel}


@pytest.fixture(scope="module")
def kernels():
    """The kernels that can multiply here; the first one is the usual one."""
    (problem,) = tune("gemm", *SMALL, "--tokens", 2, "--dry-run")
    if len(problem["kernels"]) < 2:
        pytest.skip("a processor with one kernel")
    return kernels_of(problem)


def test_slow_kernel(shim, kernels, tmp_path):
    """Tests that the usual kernel is replaced if all others are faster, for all batches, as none has its bits."""
    table = tmp_path / "table"
    problems = tune("gemm", *SMALL, "--tokens", "2,3", "--output", table, env=shim("SLOW_KERNEL", kernels[0]))
    assert [p["for_all_batches"] for p in problems] == [True, True]
    (line,) = lines_of(table)
    assert line["kernel"] == problems[0]["chosen"] == problems[1]["chosen"] != kernels[0] and "m=" not in line["problem"]
    assert used(table, "gemm", "--device", "cpu", "--n", 64, "--k", 128, "--m", 2, "--runs", 1) == line["kernel"]
    assert used(table, "gemm", "--device", "cpu", "--n", 64, "--k", 129, "--m", 2, "--runs", 1) == kernels[0]


def test_wrong_kernel(shim, kernels, tmp_path):
    """Tests that a kernel that computes something else is refused, though it is faster, and that this is told."""
    table = tmp_path / "table"
    env = shim("WRONG_KERNEL", kernels[1]) | {"SLOW_KERNEL": kernels[0], "QUERN_DISABLE": ",".join(kernels[2:])}
    (problem,) = tune("gemm", *SMALL, "--tokens", 2, "--output", table, env=env)
    assert problem["chosen"] == kernels[0] and lines_of(table) == []
    assert problem["kernels"][1]["refused"].startswith("1 of 128 elements differ from the usual kernel's: element 1 is ")
    assert f"{kernels[1]}: 1 of 128 elements differ" in ok("tune", "gemm", *SMALL, "--tokens", 2, "--output", table, env=env)


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted(sign, shim, kernels, tmp_path):
    """Tests that what an interrupted run leaves is a sound table, with which the same command goes on."""
    table = tmp_path / "table"
    args = ["tune", "gemm", *map(str, SMALL), "--tokens", ",".join(map(str, range(1, 31))), "--output", str(table)]
    process = subprocess.Popen([QUERN, *args], stderr=subprocess.PIPE, text=True, env=shim("SLOW_KERNEL", kernels[0]))
    while not table.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(sign)
    _, error = process.communicate()
    measured = table.read_text().count("# problem ")
    assert 0 < measured < 30 and ok("tune", "verify", table, env=ENV)
    if sign == signal.SIGKILL:
        assert process.returncode == -sign
    else:
        assert process.returncode == 2 and f"interrupted with {measured} of 30 problems measured; the same command" in error
        assert [file.name for file in tmp_path.iterdir()] == ["table"]
    before = table.read_text()
    report = json.loads(ok(*args, "--json", env=ENV))
    assert report["measured_before"] == measured and len(report["problems"]) == 30
    assert table.read_text().startswith(before[:before.rindex("# problem ")])
    assert ok("tune", "verify", table, env=ENV)


def test_other_runs(tmp_path):
    """Tests that a file goes on with the same command alone, and that --force begins anew."""
    table, one = tmp_path / "table", ["gemm", *SMALL, "--tokens", 1]
    ok("tune", *one, "--output", table, env=ENV)
    text = table.read_text()
    options = [*one[:1], *one[5:], *one[1:5]]  # in another order
    assert json.loads(ok("tune", *options, "--output", table, "--json", env=ENV))["measured_before"] == 1
    refused("tune", "gemm", *SMALL, "--tokens", 2, "--output", table, env=ENV,
            says=[f"{table}:3: its command is 'quern tune gemm ", "--tokens 1 ", "this run's is", "--tokens 2 ", "--force"])
    for new, says in [
        (text.replace("# device: ", "# device: other "), [f"{table}:4: its device is 'other "]),
        (text.replace("# command: ", "# command: QUERN_DISABLE=gemm.cpu "), [f"{table}:3: its command is 'QUERN_DISABLE=gemm.cpu quern"]),
        (text.replace("# library: quern ", "# library: quern 9."), [f"{table}:5: its library is 'quern 9."]),
        (text.replace("# is gemm", "# is gem"), [f"{table}:8: found '# is gem "]),
        (text.replace(" us +- ", " ms +- ", 1), [f"{table}:9: found '# gemm.", "which quern tune did not write"]),
        (text[:-5], [f"{table}:", "which quern tune did not write"]),
        (text + "norm sm_90 -> norm.gpu_any\n", [f"{table}:"]),
        (text.replace("quern tune 1", "quern tune 2"), [f"{table}:1: found 'quern tune 2'"]),
        ("quern tune 1\ngemm gfx942 -> gemm.any\n", [f"{table}:2: found 'gemm gfx942 -> gemm.any'"]),
        ("", [f"{table}:1: found ''"]),
        ("\0" + text, ["is no table of quern tune"]),
    ]:
        table.write_text(new)
        refused("tune", *one, "--output", table, env=ENV, says=says)
        assert table.read_text() == new
    assert json.loads(ok("tune", *one, "--output", table, "--force", "--json", env=ENV))["measured_before"] == 0
    assert table.read_text().startswith(text[:text.index("# problem ")])


def test_where_the_table_goes(tmp_path):
    """Tests the default, QUERN_TUNE, which may not exist yet, and that a damaged table there harms nothing else."""
    one = ["tune", "gemm", *SMALL, "--tokens", 1]
    ok(*one, env=ENV, cwd=tmp_path)
    assert (tmp_path / "quern.tune").read_text().startswith("quern tune 1\n")
    ok(*one, env=ENV | {"QUERN_TUNE": str(tmp_path / "used")})
    assert (tmp_path / "used").exists()
    (tmp_path / "used").write_text("quern tune 1\ngem\n")
    refused(*one, env=ENV | {"QUERN_TUNE": str(tmp_path / "used")}, says=["used:2: found 'gem'"])
    ok(*one, "--output", tmp_path / "other", env=ENV | {"QUERN_TUNE": str(tmp_path / "used")})
    refused(*one, "--output", "/nonesuch/t", env=ENV, says=["/nonesuch/t: cannot be created: No such file"], leaves="/nonesuch/t")
    refused(*one, "--output", "/proc/t", env=ENV, says=["/proc/t: cannot be created"], leaves="/proc/t")
    refused(*one, "--output", tmp_path, env=ENV, says=[f"{tmp_path}: is a folder"])
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        refused(*one, "--output", closed / "t", env=ENV, says=[f"{closed}/t: cannot be created: Permission denied"])


def test_dry_run(tmp_path):
    """Tests that a dry run lists kernels, and writes and measures nothing."""
    problems = tune("gemm", *SMALL, "--tokens", "1,2", "--dry-run", "--output", tmp_path / "table")
    assert [p["problem"] for p in problems] == ["m=1 n=64 k=128 e4m3fn->bf16", "m=2 n=64 k=128 e4m3fn->bf16"]
    assert all(k["ns"] == 0 for p in problems for k in p["kernels"]) and list(tmp_path.iterdir()) == []
    text = ok("tune", "attention", "--device", "cpu", "--shapes", "4x2x64", "--seq", 16, "--dry-run", env=ENV).splitlines()
    assert text[0] == "attention: b=1 heads=4/2 d=64 qo=16 kv=16 bf16 causal" and text[1].endswith(" (by costs)")
    assert "attention: b=8 heads=4/2 d=64 qo=1 kv=16 bf16" in text


def test_attention(tmp_path):
    problems = tune("attention", "--device", "cpu", "--shapes", "4x2x64", "--seq", 16, "--rounds", 3, "--output", tmp_path / "t")
    assert len(problems) == 2 and not any(k["refused"] for p in problems for k in p["kernels"])
    assert len(lines_of(tmp_path / "t")) <= 1


# ---- models


def layers(tmp_path, config, *args):
    """Returns the problems of a model: n and k of products, with bf16 where it is."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    sizes = [] if "mla" in args else ["--tokens", 1]
    sizes += [] if "gemm" in args else ["--seq", 16]
    problems = tune("--device", "cpu", "--model", file, *sizes, "--dry-run", *args)
    return [re.sub("m=1 |->bf16| e4m3fn", "", p["problem"]) for p in problems]


LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 2,
         "vocab_size": 1000}
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
DEEPSEEK = {"model_type": "deepseek_v3", "hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 128, "n_shared_experts": 1, "n_routed_experts": 8,
            "first_k_dense_replace": 1,
            "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
            "qk_rope_head_dim": 16, "v_head_dim": 32, "vocab_size": 1000, **FP8}


def test_models(tmp_path):
    attention = ["b=1 heads=8/2 d=64 qo=16 kv=16 bf16 causal", "b=8 heads=8/2 d=64 qo=1 kv=16 bf16"]
    dense = ["n=768 k=512", "n=512 k=512", "n=2048 k=512", "n=512 k=1024"]
    last = ["n=1000 k=512 bf16"]
    plain = [f"{layer} bf16" for layer in dense]
    rows = ["silu_and_mul 1 x 1024 bf16", "rmsnorm 1 x 512 bf16", "fused_add_rmsnorm 1 x 512 bf16"]
    assert layers(tmp_path, LLAMA) == plain[:2] + attention + plain[2:] + rows + last
    assert layers(tmp_path, LLAMA | FP8)[-2] == "1 x 512 bf16, blocks of 1 x 128"
    assert layers(tmp_path, LLAMA | FP8, "gemm") == dense + last
    assert layers(tmp_path, LLAMA, "gemm", "--dtype", "fp8") == dense + last
    assert layers(tmp_path, {"text_config": LLAMA}, "gemm") == plain + last
    assert layers(tmp_path, LLAMA | {"head_dim": 128}, "gemm")[:2] == ["n=1536 k=512 bf16", "n=512 k=1024 bf16"]
    assert layers(tmp_path, LLAMA | FP8, "gemm", "--tp", 4) == ["n=256 k=512", "n=512 k=128", "n=512 k=512", "n=512 k=256",
                                                               "n=250 k=512 bf16"]
    latent = ["n=176 k=512", "n=384 k=96", "n=512 k=64", "n=512 k=256", "n=2048 k=512", "n=512 k=1024", "n=256 k=512", "n=512 k=128"]
    assert layers(tmp_path, DEEPSEEK, "gemm") == latent + last
    assert layers(tmp_path, DEEPSEEK | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}, "mla", "--tp", 2) == [
        "b=8 heads=4 d=512+64 kv=16 page=64 bf16,bf16"]
    assert layers(tmp_path, DEEPSEEK | {"q_lora_rank": None}, "gemm")[:2] == ["n=80 k=512", "n=384 k=512"]
    moe = LLAMA | {"model_type": "qwen2_moe", "num_experts": 8, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 320}
    shared = ["n=640 k=512 bf16", "n=512 k=320 bf16"]
    assert layers(tmp_path, moe, "gemm") == plain[:2] + shared + last
    assert layers(tmp_path, moe | {"mlp_only_layers": [0]}, "gemm") == plain + shared + last
    assert layers(tmp_path, LLAMA | {"model_type": "mixtral", "num_local_experts": 8}, "gemm") == plain[:2] + last


@pytest.mark.parametrize("change, says", [
    ({"model_type": "gpt2"}, ["model_type is 'gpt2' (accepted: llama, "]),
    ({"model_type": "lama"}, ["; did you mean llama?"]),
    ({"model_type": None}, ["has no model_type"]),
    ({"hidden_size": None}, ["has no hidden_size, which the layers' sizes follow from"]),
    ({"num_attention_heads": None}, ["has no num_attention_heads"]),
    ({"intermediate_size": None}, ["has no intermediate_size"]),
    ({"vocab_size": "many"}, ["vocab_size is no number from 1 to"]),
    ({"vocab_size": -1}, ["vocab_size is no number from 1 to"]),
    ({"num_key_value_heads": 3}, ["8 attention heads are no multiple of 3 key heads"]),
    ({"kv_lora_rank": 64}, ["has no qk_nope_head_dim"]),
    ({"quantization_config": {"quant_method": "awq"}}, ["quant_method is 'awq' (accepted: fp8 with weight_block_size 128 x 128"]),
    ({"quantization_config": {"quant_method": "fp8"}}, ["quant_method is 'fp8' with other blocks"]),
])
def test_models_that_are_refused(change, says, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | change))
    refused("tune", "--device", "cpu", "--model", file, "--dry-run", env=ENV, says=[str(file), *says])


# ---- mistakes


@pytest.mark.parametrize("args, says", [
    ([], ["no problems are given (accepted: --shapes or --model)"]),
    (["nonesuch"], ["unknown word 'nonesuch' (accepted: path, list, verify, gemm, attention, mla, norm, activation, quantize)"]),
    (["gem"], ["; did you mean gemm?"]),
    (["gemm", "liszt"], ["'liszt'", "did you mean list?"]),
    (["gemm", "--shapes", "64x"], ["--shapes", "'64x'", "rows and columns of a weight, as 4096x7168"]),
    (["gemm", "--shapes", "64"], ["--shapes", "'64'"]),
    (["gemm", "--shapes", "64x128,"], ["--shapes", "'64x128,'"]),
    (["gemm", "--shapes", "0x128"], ["--shapes", "'0x128'"]),
    (["gemm", "--shapes", "64x128x4"], ["--shapes", "'64x128x4'"]),
    (["gemm", "--shapes", "99999999999999999999x1"], ["--shapes"]),
    (["attention", "--shapes", "8x2"], ["--shapes", "query heads, key heads and head_dim, as 32x8x128"]),
    (["mla", "--shapes", "8x3"], ["--shapes", "'8x3', accepted: query heads, as 16"]),
    (["norm", "--shapes", "a"], ["--shapes", "elements of a row, as 7168"]),
    (["attention", "--shapes", "8x3x64"], ["8 query heads for 3 key heads"]),
    (["--shapes", "64x128"], ["--shapes: takes one op, found 6"]),
    (["gemm", "--shapes", "64x128", "--tokens", "1,x"], ["--tokens", "'1,x'"]),
    (["gemm", "--shapes", "64x128", "--tokens", "1,1"], ["--tokens: 1 stands twice"]),
    (["gemm", "--shapes", "64x128", "--tp", "2"], ["--tp: goes with --model"]),
    (["attention", "--shapes", "8x2x64", "--tokens", "1"], ["option --tokens: found no op that it is for (accepted: with gemm or row ops)"]),
    (["mla", "--shapes", "8", "--ranges"], ["option --ranges: found no op"]),
    (["gemm", "--shapes", "64x128", "--seq", "1"], ["option --seq: found no op that it is for (accepted: with attention or mla)"]),
    (["norm", "--shapes", "64", "--dtype", "bf16"], ["option --dtype: found no op that it is for (accepted: with gemm)"]),
    (["gemm", "--shapes", "64x128", "--model", "x"], ["--model and --shapes"]),
    (["gemm", "--shapes", "64x128", "--rounds", "2"], ["--rounds", "'2'"]),
    (["gemm", "--shapes", "64x128", "--dtype", "int4"], ["--dtype", "int4", "fp8|e4m3fn|e4m3fnuz|bf16"]),
    (["gemm", "--shapes", "64x128", "--kernels", "0"], ["--kernels", "0", "1", "64"]),
    (["gemm", "--shapes", "64x128", "--clock", "on"], ["option --clock: device cpu has times that are measured"]),
    (["--model", "/nonesuch"], ["/nonesuch"]),
])
def test_mistakes(args, says, tmp_path):
    refused("tune", *args, "--device", "cpu", "--output", tmp_path / "t", env=ENV, says=says, leaves=tmp_path / "t")


@pytest.mark.parametrize("action", ["path", "list", "verify"])
def test_actions_measure_nothing(action):
    refused("tune", action, "--rounds", 5, env=ENV, says=[f"option --rounds: not accepted with {action}, which measures nothing"])


def test_forced_kernels(tmp_path):
    refused("tune", "gemm", *SMALL, "--output", tmp_path / "t", env=ENV | {"QUERN_FORCE": "gemm=gemm.cpu"},
            says=["QUERN_FORCE is set, so that nothing is left to choose"], leaves=tmp_path / "t")


@on_sim
@pytest.mark.parametrize("device, args, says", [
    ("sim:gfx942", ["--rounds", "5"], ["option --rounds: device sim:gfx942 has times that are modelled"]),
    ("sim:gfx12-generic", [], ["device sim:gfx12-generic has no clock"]),
])
def test_simulated_devices(device, args, says, tmp_path):
    refused("tune", "gemm", "--device", device, "--shapes", "64x128", *args, "--output", tmp_path / "t", env=ENV, says=says)
