#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/performance*.md and docs/profiles.md from the JSON in bench/results, which the benchmarks wrote.

    python tools/report.py            rewrites each table from the file that its mark names
    python tools/report.py --check    exits with 1 if a table differs from its file

A table stands between two marks; the first names its file, relative to the top of the tree:

    <!-- report: bench/results/cpu_rows_2t.json -->
    <!-- end report -->
"""

import argparse
import json
import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent
PAGES = [TOP / f"docs/{name}.md" for name in ("performance", "performance_h200", "performance_modelled", "profiles")]
MARKED = re.compile(r"(<!-- report: (\S+) -->\n).*?(<!-- end report -->)", re.S)
CHIPS = {"gfx942": "MI300X", "gfx950": "MI355X"}
MODELLED = {"gfx942": "MI300X", "gfx1151": "Strix Halo", "gfx1201": "Radeon RX 9070 XT"}
SIDES = ["quern", "copy", "eager", "compile", "triton", "flashinfer"]


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def arithmetic(gflops, on_cpu):
    """Returns a speed as the command prints it: GFLOP/s on CPUs, TFLOP/s on GPUs."""
    return f"{gflops:.1f} GFLOP/s" if on_cpu else f"{gflops / 1e3:.2f} TFLOP/s"


def bench_table(report):
    """Returns the table of what `quern bench --json` printed."""
    rows, on_cpu = [], report["device"]["wave_size"] == 1
    for r in report["results"]:
        by_memory = not r["flops"] or " qo=1 kv=" in r["problem"]  # a decode reads its cache
        speed = f"{r['gb_per_s']:.1f} GB/s" if by_memory else arithmetic(r["gflop_per_s"], on_cpu)
        best = r["bytes"] / r["fastest_ns"]
        rows.append([f"`{r['op']}`", r["problem"], f"{r['median_ns'] / 1e6:.3f}", speed, f"{best:.1f}",
                     f"{100 * r['share_of_limit']:.0f} % ({r['limit']})" if r["share_of_limit"] else "-"])
    device = report["device"]
    threads = f", threads: {device['compute_units']}" if on_cpu else ""
    return (f"{device['name']} (`{device['spec']}`{threads}), {device['times']} times, medians of {report['runs']} runs.\n\n" +
            table(["op", "problem", "ms", "speed", "fastest GB/s", "of the limit"], rows))


def graph_table(report):
    """Returns the table of what bench/peer_rows.py --graph wrote: microseconds of a call, and each side's part of
    quern's time."""
    sides = [s for s in SIDES if any(f"{s}_ns" in r for r in report["rows"])]
    rows = [[f"`{r['op']}` {r['rows']} × {r['dim']}",
             *(f"{r[f'{s}_ns'] / 1e3:.2f}" if f"{s}_ns" in r else "-" for s in sides),
             f"{r['quern_ns'] / r['flashinfer_ns']:.2f}" if "flashinfer_ns" in r else "-"] for r in report["rows"]]
    return (f"{machine_of(report)}. Microseconds of a call in a graph that is replayed, medians:\n\n"
            f"    {report['command']}\n\n" + table(["op", *sides, "quern / flashinfer"], rows))


def machine_of(report):
    names = {"torch": "PyTorch", "triton": "Triton", "flashinfer-python": "FlashInfer", "nvidia-cutlass-dsl": "CuTe DSL"}
    versions = report.get("versions", {"torch": report["rows"][0]["torch"]})
    known = [f"{name} {versions[key]}" for key, name in names.items() if key in versions]
    return ", ".join([versions.get("device", report["processor"]), *known])


def attention_table(report):
    """Returns the table of what bench/peer_attention.py wrote: speeds of medians, and the ratio to PyTorch's fastest
    backend. Older results have one backend, PyTorch's own choice, because it did not force backends."""
    def backends_of(r):
        return r.get("backends") or {"PyTorch": {"gflops": r["torch_gflops"], "gb_s": r["torch_gb_s"]}}

    def speed(r, figures, prefix=""):
        if prefix + "gb_s" not in figures:
            return "-"
        if r["problem"].startswith("decode"):
            return f"{figures[prefix + 'gb_s']:.1f} GB/s"
        return arithmetic(figures[prefix + "gflops"], r.get("device", "cpu") == "cpu")
    names = list(backends_of(report["rows"][0]))
    rows = [[str(r["threads"] or "-"), r["problem"], f"{r['quern_ms']:.3f}", speed(r, r, "quern_"),
             *(speed(r, backends_of(r)[name]) for name in names),
             f"{r['ratio']:.2f} ({r['best_ratio']:.2f})" if "ratio" in r else "-"] for r in report["rows"]]
    graph = ", calls replayed in a graph" if report["rows"][0].get("graph") else ""
    return (f"{machine_of(report)}. Medians{graph}; the ratio is to PyTorch's fastest, in brackets of fastest runs:\n\n"
            f"    {report['command']}\n\n" + table(["threads", "problem", "quern ms", "quern", *names, "ratio"], rows))


def gemm_table(report):
    """Returns the table of what bench/peers.py wrote."""
    rows = [[str(r["threads"]), r["form"], str(r["m"]), f"{r['quern_ms']:.3f}", f"{r['torch_ms']:.3f}",
             f"{r['quern_gflops']:.1f}", f"{r['torch_gflops']:.1f}", f"{r['ratio']:.2f} ({r['best_ratio']:.2f})"]
            for r in report["rows"]]
    return (f"{machine_of(report)}. Medians; the ratio in brackets is of fastest runs:\n\n    {report['command']}\n\n" +
            table(["threads", "weights", "M", "quern ms", "PyTorch ms", "quern GFLOP/s", "PyTorch GFLOP/s", "ratio"], rows))


def patch_table(report):
    """Returns the table of what bench/patch_models.py wrote: milliseconds of a pass, and how many times as fast as the
    unpatched model."""
    models = list(report["models"].values())
    rows = [[side, *(f"{m['ms'][side]:.3g}" + ("" if side == "unpatched" else f" ({m['ms']['unpatched'] / m['ms'][side]:.2f})")
                     for m in models)] for side in models[0]["ms"]]
    return (f"{report['device']}, {report['driver']}, PyTorch {report['torch']}, transformers {report['transformers']}, diffusers "
            f"{report['diffusers']}. Milliseconds, medians of {report['rounds']} rounds:\n\n    python {report['command']}\n\n" +
            table(["", *report["models"]], rows))


def step_table(report):
    """Returns the table of what bench/flux_step.py wrote."""
    times = report["ms"]
    best = min(times.get(side, times["eager"]) for side in ("eager", "compile"))
    rows = [[f"`{side}`", f"{ms:.1f}", f"{report['tflop'] / ms * 1e3:.0f}", f"{ms / best:.2f}", f"{report['apart'][side]:.1e}"]
            for side, ms in times.items()]
    return (f"{report['versions']['device']}, PyTorch {report['versions']['torch']}. Medians of {report['rounds']} "
            f"rounds:\n\n    {report['command']}\n\n" +
            table(["side", "ms a step", "TFLOP/s", "of PyTorch's best", "apart from `eager`"], rows))


def modelled_time(side, digits):
    """Returns the microseconds of one side of a run on the clock, in brackets without the limit of power."""
    return f"{side['ns'] / 1e3:.{digits}f} ({side['unlimited_ns'] / 1e3:.{digits}f})" if side else "-"


def modelled_ratio(row, side):
    return f"{row['quern']['ns'] / row[side]['ns']:.2f}" if row.get(side) else "-"


def modelled_rows(report, titles, rows):
    chip = report.get("chip", "gfx942")
    name = MODELLED[chip]
    return (f"Modelled {name}, `sim:{chip}`. Microseconds with the board's limit of power, in brackets without it:\n\n"
            f"    {report['command']}\n\n" + table([*titles, "quern / AITER", "quern / Triton"], rows))


def modelled_table(report):
    """Returns the table of what bench/sim_peers.py wrote: modelled microseconds of each side, in brackets without the power limit."""
    rows = [[f"{r['m']} × {r['n']} × {r['k']}", modelled_time(r["quern"], 1),
             f"{2 * r['m'] * r['n'] * r['k'] / r['quern']['ns'] / 1e3:.0f}", modelled_time(r.get("aiter"), 1),
             modelled_time(r.get("triton"), 1), modelled_ratio(r, "aiter"), modelled_ratio(r, "triton")] for r in report["rows"]]
    return modelled_rows(report, ["M × N × K", "quern", "TFLOP/s", "AITER", "Triton"], rows)


def experts_table(report):
    """Returns the table of what bench/sim_moe.py wrote, likewise."""
    rows = [[str(r["tokens"]), str(r["experts_met"]), *(modelled_time(r.get(s), 0) for s in ("quern", "aiter", "triton")),
             *(modelled_ratio(r, s) for s in ("aiter", "triton"))] for r in report["rows"]]
    return modelled_rows(report, ["tokens", "experts met", "quern", "AITER", "Triton"], rows)


def groups_table(report):
    """Returns the table of what bench/sim_groups.py wrote: modelled microseconds of grouped products and of what bounds them."""
    rows = [[str(r["experts"]), f"{r['n']} × {r['k']}", f"{r['dealt']}, at most {r['most']}", f"`{r['layout']}`", f"{r['ns'] / 1e3:.0f}",
             f"{r['dense_ns'] / 1e3:.0f}", f"{r['read_ns'] / 1e3:.0f}", f"{r['share']:.2f}"] for r in report["rows"]]
    return (f"Modelled MI300X, `sim:gfx942`, {report['rows'][0]['rows']} rows in all. Microseconds with the board's limit of power:\n\n"
            f"    {report['command']}\n\n" +
            table(["experts", "N × K", "rows", "layout", "grouped", "dense", "reading the weights", "the longer / grouped"], rows))


def flux_table(report):
    """Returns the table of what bench/sim_flux.py wrote: modelled milliseconds of a step, by what its launches do."""
    parts = list(next(iter(report["ms"].values())))
    rows = [[f"`{side}`", *(f"{ms[part]:.1f}" for part in parts), f"{sum(ms.values()):.1f}"] for side, ms in report["ms"].items()]
    return ("Modelled MI300X, `sim:gfx942`, with the board's limit of power. Milliseconds of a step:\n\n"
            f"    {report['command']}\n\n" + table(["side", *parts, "all"], rows))


def heads_of(r):
    """Returns the shape of an attention problem as docs/performance_modelled.md writes it."""
    batch = f"{r['batch']} × " if r["batch"] > 1 else ""
    dims = f"{r['qk']}" if r["qk"] == r["vo"] else f"{r['qk']} and {r['vo']} in v"
    fp8 = r.get("cache", "bfloat16").removeprefix("float8_")
    return f"{batch}{r['heads']} × {r['tokens']}, {dims}{', causal' if r['causal'] else ''}{f', k and v {fp8}' if fp8 != 'bfloat16' else ''}"


def clock_attention_table(report):
    """Returns the table of what bench/clock_attention.py wrote, a row a side; what the sides share stands in the first."""
    rows, before = [], None
    for r in report["results"]:
        shape = [CHIPS[r["chip"]], heads_of(r)]
        side = {"quern": "quern", "tile": "quern's tile"}.get(r["side"], f"AITER `{r['side']}`")
        rows.append([*(shape if shape != before else ["", ""]), side, f"{r['us']:.0f}", f"{r['us_without_limit']:.0f}",
                     f"{r['tflops']:.0f}", f"{r['published_tflops'] or ''}"])
        before = shape
    titles = ["chip", "heads × tokens, head_dim", "side", "µs", "µs without the power limit", "TFLOP/s", "published"]
    return f"    {report['command']}\n\n" + table(titles, rows)


def clock_backward_table(report):
    """Returns the table of what bench/clock_backward.py wrote, a row a case."""
    rows = []
    for r in report["results"]:
        (batch, heads, tokens, dim), ours, theirs = r["shape"], r["quern"], r["triton"]
        shape = f"{f'{batch} × ' if batch > 1 else ''}{heads} × {tokens}, {dim}"
        rows.append([CHIPS.get(r["chip"], r["chip"]), shape, f"{ours['ns'] / 1e3:.0f}", f"{theirs['ns'] / 1e3:.0f}",
                     f"{ours['ns'] / theirs['ns']:.2f}", f"{r['operations'] / ours['ns'] / 1e3:.0f}", theirs["choice"]])
    titles = ["chip", "heads × tokens, head_dim", "quern, µs", "Triton, µs", "quern's time of Triton's", "quern, TFLOP/s", "Triton's"]
    return f"    {report['command']}\n\n" + table(titles, rows)


def decode_shape(name):
    """Returns a case of bench/clock_decode.py as the pages write it: the call, the cache, the keys of a chunk."""
    found = re.fullmatch(r"(?:mi355x-)?(mla-)?(\d+)x(\d+)(?:x(\d+))?-(bf16|fp8)(-q8)?(?:@(\d+|all))?", name)
    heads = f"MLA, {found[4]} heads, " if found[1] else ""
    fp8 = "e4m3fn" if name.startswith("mi355x-") else "e4m3fnuz"
    cache = {"bf16": "bf16", "fp8": fp8}[found[5]] + (", q too" if found[6] else "")
    return [f"{heads}{found[2]} × {found[3]}", cache, found[7] or "default"]


def clock_decode_table(report):
    """Returns the table of what bench/clock_decode.py wrote, a row a case."""
    sides = {(r["case"], r["side"]): r for r in report["results"]}
    rows = []
    for (case, side), r in sides.items():
        if side == "aiter":
            continue
        peer = sides.get((case, "aiter"))
        parts = " + ".join(f"{us:.0f}" for us in r["kernels_us"])
        rows.append([CHIPS[r["chip"]], *decode_shape(case), f"{r['us']:.0f} ({parts})", f"{r['us_without_limit']:.0f}", f"{r['tflops']:.0f}",
                     f"{r['gb_s']:.0f}", f"{r['of_limit']:.0%}".replace("%", " %"), f"{peer['us']:.0f}" if peer else "",
                     f"{peer['of_limit']:.0%}".replace("%", " %") if peer else ""])
    titles = ["chip", "requests × keys", "cache", "keys of a chunk", "quern, µs (its kernels)", "without the power limit", "TFLOP/s", "GB/s",
              "of the limit", "AITER, µs", "of the limit"]
    return f"    {report['command']}\n\n" + table(titles, rows)


# ---- the simulator's own speed

INSTRUCTIONS = ("v_add_f32 v1, v2, v3", "v_fma_f32 v1, v2, v3, v4", "v_cmp_lt_f32 vcc, v2, v3", "v_dot4_i32_i8 v1, v2, v3, v4",
                "v_perm_b32 v1, v2, v3, v4", "v_mul_f32_dpp v1, v2, v3 row_newbcast:3", "v_mul_f32 v1, v2, v3 clamp",
                "v_lshl_add_u64 v[2:3], v[4:5], 2, v[6:7]", "v_fma_f64 v[2:3], v[4:5], v[6:7], v[8:9]",
                "v_pk_fma_f32 v[2:3], v[4:5], v[6:7], v[8:9]", "v_fma_f16 v1, v2, v3, v4", "v_div_fixup_f32 v1, v2, v3, v4",
                "v_cvt_pk_fp8_f32 v1, v2, v3", "v_exp_f32 v1, v2", "ds_read_b32 v2, v1 (side by side)", "ds_read_b32 v2, v1",
                "ds_read_b128 v[4:7], v1", "ds_write_b64 v1, v[4:5] (side by side)", "ds_add_u32 v1, v2")


def sim_table(report):
    """Returns the table of what sim_bench wrote: millions of instructions a second, matrix instructions both ways, and
    some of the others."""
    exact = [name for name in report if name.startswith(("v_mfma", "v_wmma")) and not name.endswith(".fast")]
    rows = [[f"`{name.rpartition('.')[0]}` ({name.rpartition('.')[2]})", f"{report[name]['value']:.3g}",
             f"{report[name + '.fast']['value']:.3g}"] for name in exact]
    others = [[f"`{name}`", f"{report[name]['value']:.3g}"] for name in INSTRUCTIONS]
    return table(["matrix instruction", "exact", "`mfma=fast`"], rows) + "\n" + table(["wave64 instruction", "million/s"], others)


def values_table(report):
    """Returns the table of what sim_gemm and sim_load wrote."""
    unit = next(iter(report.values()))["unit"]
    return table(["", unit], [[f"`{name}`" if "=" in name else name, f"{r['value']:.3g}"] for name, r in report.items()])


def emulator_table(report):
    """Returns the table of what bench/tinygrad_emulator.py wrote."""
    names = ["quern_ms", "tinygrad_ms", "ratio", "quern_first_ms", "tinygrad_first_ms"]
    rows = [[chip, *(f"{r[name]:.3g}" if r[name] < 1000 else f"{r[name]:.0f}" for name in names)]
            for chip, r in report.items() if isinstance(r, dict)]
    return table(["target", "quern ms", "tinygrad ms", "ratio", "first run: quern ms", "tinygrad ms"], rows)


def profiles_table(report):
    """Returns the tables of what bench/sim_profiles.py wrote: a launch's facts, and where its cycles went."""
    def share(part):
        return "-" if part is None else f"{100 * part:.0f} %"
    facts = [[r["problem"], f"`{r['kernel']}`", f"{r['us']:.1f} ({r['unlimited_us']:.1f})", str(r["mhz"]), share(r["matrix_busy"]),
              "-" if r["valu_per_mfma"] is None else f"{r['valu_per_mfma']:.1f}", f"{r['gb_per_s'] / 1e3:.2f}",
              share(r["lds_conflicts"]), f"{r['waves']:.1f}", f"{r['vgprs']}, {r['agprs']}", str(r["scratch_bytes"])]
             for r in report["rows"]]
    cycles = [[r["problem"], ", ".join(f"{name} {share(part)}" for name, part in list(r["cycles"].items())[:7])] for r in report["rows"]]
    return (f"Modelled MI300X, `sim:gfx942`:\n\n    {report['command']}\n\n" +
            table(["launch", "kernel", "µs (without the limit of power)", "MHz", "matrix units busy", "vector instructions for an MFMA",
                   "TB/s from memory", "LDS conflicts, of its cycles", "waves a SIMD", "VGPRs, AGPRs among them", "bytes of scratch"], facts) +
            "\n" + table(["launch", "where the SIMDs' cycles went"], cycles))


def modelled_rows_table(report):
    """Returns the table of what bench/sim_rows.py wrote: modelled microseconds of row ops and of a copy of as many bytes."""
    rows = [[f"`{r['op']}`", r["problem"], f"{r['us']:.1f}", f"{r['bytes'] / r['us'] / 1e6:.2f}", f"{r['copy_us']:.1f}",
             f"{r['copy_us'] / r['us']:.2f}"] for r in report["rows"]]
    return (f"Modelled {MODELLED[report['chip']]}, `sim:{report['chip']}`:\n\n    {report['command']}\n\n" +
            table(["op", "problem", "µs", "TB/s", "copy, µs", "speed of the copy's"], rows))


def any_table(report):
    by_name = {"sim_peers": modelled_table, "sim_moe": experts_table, "sim_groups": groups_table, "sim_flux": flux_table,
               "sim_profiles": profiles_table, "sim_rows": modelled_rows_table, "clock_attention": clock_attention_table, "clock_backward": clock_backward_table,
               "clock_decode": clock_decode_table}
    if report.get("benchmark") in by_name:
        return by_name[report["benchmark"]](report)
    if "results" in report:
        return bench_table(report)
    if "rows" in report:
        return gemm_table(report) if "form" in report["rows"][0] else peers_table(report)
    if "models" in report:
        return patch_table(report)
    if "apart" in report:
        return step_table(report)
    if "commit" in report:
        return emulator_table(report)
    return sim_table(report) if "v_add_f32 v1, v2, v3" in report else values_table(report)


def peers_table(report):
    """Returns the table of what bench/peer_rows.py wrote: GB/s of each side, the median and the fastest run."""
    if "problem" in report["rows"][0]:
        return attention_table(report)
    if report["rows"][0].get("graph"):
        return graph_table(report)
    sides = [s for s in SIDES if any(f"{s}_ns" in r for r in report["rows"])]
    rows = []
    for r in report["rows"]:
        speeds = [f"{r['bytes'] / r[f'{s}_ns']:.1f} ({r['bytes'] / r[f'{s}_best_ns']:.1f})" if f"{s}_ns" in r else "-"
                  for s in sides]
        rows.append([f"`{r['op']}` {r['rows']} × {r['dim']}", str(r["threads"] or "-"), *speeds,
                     f"{r['copy_ns'] / r['quern_ns']:.2f} ({r['copy_best_ns'] / r['quern_best_ns']:.2f})"])
    return (f"{machine_of(report)}. GB/s of medians, in brackets of fastest runs:\n\n"
            f"    {report['command']}\n\n" + table(["op", "threads", *sides, "quern of copy"], rows))


def written(match):
    report = json.loads((TOP / match[2]).read_text())
    return match[1] + any_table(report) + match[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not its file's")
    check = parser.parse_args().check
    for page in PAGES:
        before = page.read_text()
        after = MARKED.sub(written, before)
        if check and after != before:
            sys.exit(f"{page.name}: a table differs from its JSON; run tools/report.py")
        if not check:
            page.write_text(after)


if __name__ == "__main__":
    main()
