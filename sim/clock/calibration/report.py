# SPDX-License-Identifier: Apache-2.0
"""Writes the page that compares the clock, and a roofline, with published times."""

import itertools
import math
import statistics

import roofline
from published import FAMILIES

WORST = 12  # rows of the table of the largest errors
INTRODUCTION = """# The clock beside published times

`make clock-report AITER=CLONE` wrote this page; [clock.md](clock.md) describes the model. Times that the clock gives are
modelled. Published times are of silicon: of AITER's tuned tables and of two benchmarks of attention, row by row in
`sim/clock/calibration/published.csv`. The very code objects whose times were published run on the simulated GPU.

An error is |log(modelled / published)|: 0.10 is 10 % too long or too short, nearly. The published times of one kernel
and shape differ by 0.003 to 0.08 from one tuning to the next (median), and are the fastest of many.
"""
FITTED = """## What was fitted to what

- Rows marked `fit` may be fitted to. Rows marked `kept` are not: half of the FP8 family's shapes of N and K, every
  second row of bf16 and of int8 on an MI308X, int8 on an MI325X beyond 30 GFLOP, and all of attention.
- Of the clock's numbers, six were chosen with rows: `clock_khz` of `MI308X.chip`, with FP8's; and of
  `sim/chip/timing.c`, with int8's, `launch_ns`, `flop_i8_fj`, and `l2_read_bytes` and `hop_ns`, of which sources gave two
  values each; and `hbm_ns` of an MI355X, with its bf16. `flop_i8_fj` was read off those of whole rounds on an MI325X, which are marked `kept`: for this number they
  are not. All others have the sources that stand beside them. The families to which nothing was fitted are bf16 on an
  MI308X, FP8 on an MI355X, and attention, whose ways to round are one of two sources of `valu_pj`.
- `roofline` is max(operations / F, bytes / B) + L: three numbers for each GPU and type, fitted to the rows marked `fit`.
  `without its family` is one fit to all rows of the other families, with F and B as parts of each GPU's nominal rates.
- Two launches are made and the second counts. Its tensors are new, unless AITER's tuner, which takes 101 copies in turn,
  leaves them in the memory-side cache. Launches of more than 70 GFLOP are made once. A product in parts includes 1.9 us
  for the launch that zeroes the result (FP8 and int8).
- Causal attention's published times (attn-dsl-bench) are of a Python call on an idle GPU, from event to event. The call
  turns the axes of the result, and a copy of that size at 4.11 TB/s is in the modelled time; the tens of microseconds that
  pass until the program has queued the launch are not.
"""
PAIRS = """## Two kernels, one shape

Published times of one family and shape that differ by more than 5 %. AITER's tables keep the fastest kernel of a shape for
each GPU, so that two of its GEMMs are of two GPUs, most with other tiles and parts; attention's have three ways to round.
"""


def table(titles, rows):
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def percentile_90(values):
    ordered = sorted(values)
    return ordered[math.ceil(0.9 * len(ordered)) - 1]


def summary(errors):
    """Returns the median and the 90th percentile as two cells of a table."""
    return [f"{statistics.median(errors):.2f}", f"{percentile_90(errors):.2f}"] if errors else ["-", "-"]


def errors_of(rows, line):
    return [roofline.error(line.us(r), r.us) for r in rows] if line else []


def kind(row):
    return row.gpu, FAMILIES[row.family][1]


def rooflines(ran):
    """Returns (GPU, type) -> the roofline of its rows that may be fitted to, and family -> that of the other families."""
    fits = {k: roofline.fit([r for r in ran if kind(r) == k and r.split == "fit"])
            for k in sorted({kind(r) for r in ran if r.split == "fit"})}
    without = {f: roofline.fit([r for r in ran if r.family != f]) for f in sorted({r.family for r in ran})}
    return fits, without


def family_line(group, times, fits, without):
    first = group[0]
    clock = [roofline.error(times[r], r.us) for r in group]
    return [*summary(clock), *summary(errors_of(group, fits.get(kind(first)))),
            *summary(errors_of(group, without[first.family]))]


def family_table(times, fits, without):
    lines = []
    for family, gpu in sorted({(r.family, r.gpu) for r in times}):
        for split in ("fit", "kept"):
            group = [r for r in times if (r.family, r.gpu, r.split) == (family, gpu, split)]
            if group:
                lines.append([family, gpu, split, len(group), *family_line(group, times, fits, without)])
    everything = [roofline.error(us, r.us) for r, us in times.items()]
    lines.append(["all", "", "", len(times), *summary(everything), "", "", "", ""])
    return table(["family", "GPU", "rows", "count", "clock: median", "90 %", "roofline: median", "90 %",
                  "without its family: median", "90 %"], lines)


def row_cells(row, us):
    return [row.family, row.gpu, "x".join(map(str, row.shape)), row.parts, f"`{row.code_object}`", row.split, f"{us:.2f}",
            f"{row.us:.2f}", f"{math.log(us / row.us):+.2f}"]


def pairs(rows):
    """Returns the pairs of rows of one family and shape whose published times differ by more than 5 %."""
    return [(a, b) for a, b in itertools.combinations(rows, 2)
            if (a.family, a.shape) == (b.family, b.shape) and max(a.us, b.us) > 1.05 * min(a.us, b.us)]


def pair_table(times):
    """Returns what the clock says of each pair: whether it prefers the kernel that silicon prefers."""
    lines, right = [], 0
    for a, b in pairs(times):
        is_right = (times[a] < times[b]) == (a.us < b.us)
        right += is_right
        shape, names = "x".join(map(str, a.shape)), [f"{r.gpu} `{r.code_object}`/{r.parts}" for r in (a, b)]
        lines.append([a.family, shape, *names, f"{a.us / b.us:.2f}", f"{times[a] / times[b]:.2f}", "yes" if is_right else "no"])
    titles = ["family", "shape", "one", "other", "published: one / other", "modelled", "same order"]
    return f"{right} of {len(lines)} pairs are in the published order.\n\n" + table(titles, lines)


def page(rows, by_number, options):
    times = {rows[i]: us for i, us in by_number.items()}
    fits, without = rooflines(list(times))
    titles = ["family", "GPU", "shape", "parts", "code object", "rows", "modelled us", "published us", "log error"]
    worst = sorted(times, key=lambda r: -roofline.error(times[r], r.us))[:WORST]
    lines = [[*k, f"{l.compute * roofline.COMPUTE[k]:.0f}", f"{l.memory * roofline.MEMORY[k[0]]:.2f}", f"{l.launch_us:.1f}"]
             for k, l in fits.items()]
    return "\n".join([
        INTRODUCTION,
        f"{len(times)} of the {len(rows)} rows ran, with `clock={options.clock}`: those of at most {options.gflop:g} GFLOP.\n",
        "## By family and GPU\n", family_table(times, fits, without),
        table(["GPU", "type", "roofline: F in TFLOP/s", "B in TB/s", "L in us"], lines), FITTED,
        PAIRS, pair_table(times), "## The largest errors\n", table(titles, [row_cells(r, times[r]) for r in worst]),
        "## Every row\n", table(titles, [row_cells(r, us) for r, us in times.items()])])
