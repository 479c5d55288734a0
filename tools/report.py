#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of docs/performance.md from the JSON of `quern bench`, bench/peer_rows.py and bench/peer_attention.py.

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
PAGE = TOP / "docs/performance.md"
MARKED = re.compile(r"(<!-- report: (\S+) -->\n).*?(<!-- end report -->)", re.S)
SIDES = ["quern", "copy", "eager", "compile", "triton", "flashinfer"]


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def arithmetic(gflops, on_cpu):
    """As the command gives it: GFLOP/s on CPUs, TFLOP/s on GPUs."""
    return f"{gflops:.1f} GFLOP/s" if on_cpu else f"{gflops / 1e3:.2f} TFLOP/s"


def bench_table(report):
    """What `quern bench --json` printed."""
    rows, on_cpu = [], report["device"]["wave_size"] == 1
    for r in report["results"]:
        by_memory = not r["flops"] or " qo=1 kv=" in r["problem"]  # a decode reads its cache
        speed = f"{r['gb_per_s']:.1f} GB/s" if by_memory else arithmetic(r["gflop_per_s"], on_cpu)
        best = r["bytes"] / r["fastest_ns"]
        rows.append([f"`{r['op']}`", r["problem"], f"{r['median_ns'] / 1e6:.3f}", speed, f"{best:.1f}",
                     f"{100 * r['share_of_limit']:.0f} % ({r['limit']})" if r["share_of_limit"] else "-"])
    device = report["device"]
    return (f"{device['name']} (`{device['spec']}`), {device['times']} times, medians of {report['runs']} runs.\n\n" +
            table(["op", "problem", "ms", "speed", "fastest GB/s", "of the limit"], rows))


def graph_table(report):
    """What bench/peer_rows.py --graph wrote: microseconds of a call, and each side's part of quern's time."""
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
    """What bench/peer_attention.py wrote: speeds of medians, and the ratio to PyTorch's fastest backend. Before it forced
    backends there was one, PyTorch's own choice."""
    def backends_of(r):
        return r.get("backends") or {"PyTorch": {"gflops": r["torch_gflops"], "gb_s": r["torch_gb_s"]}}

    def speed(r, figures, prefix=""):
        if prefix + "gb_s" not in figures:
            return "-"
        if r["problem"] == "decode":
            return f"{figures[prefix + 'gb_s']:.1f} GB/s"
        return arithmetic(figures[prefix + "gflops"], r.get("device", "cpu") == "cpu")
    names = list(backends_of(report["rows"][0]))
    rows = [[str(r["threads"] or "-"), r["problem"], f"{r['quern_ms']:.3f}", speed(r, r, "quern_"),
             *(speed(r, backends_of(r)[name]) for name in names),
             f"{r['ratio']:.2f} ({r['best_ratio']:.2f})" if "ratio" in r else "-"] for r in report["rows"]]
    graph = ", calls replayed in a graph" if report["rows"][0].get("graph") else ""
    return (f"{machine_of(report)}. Medians{graph}; the ratio is to PyTorch's fastest, in brackets of fastest runs:\n\n"
            f"    {report['command']}\n\n" + table(["threads", "problem", "quern ms", "quern", *names, "ratio"], rows))


def peers_table(report):
    """What bench/peer_rows.py wrote: GB/s of each side, the median and the fastest run."""
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
    return match[1] + (bench_table(report) if "results" in report else peers_table(report)) + match[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a table is not its file's")
    check = parser.parse_args().check
    before = PAGE.read_text()
    after = MARKED.sub(written, before)
    if check and after != before:
        sys.exit(f"{PAGE.name}: a table differs from its JSON; run tools/report.py")
    if not check:
        PAGE.write_text(after)


if __name__ == "__main__":
    main()
