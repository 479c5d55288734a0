# SPDX-License-Identifier: Apache-2.0
"""Writes the page of plots, drawn from the JSON in bench/results, which the benchmarks wrote."""

import html
import json

from comments import title

SIDES = ("quern", "copy", "eager", "compile", "triton", "flashinfer", "aiter", "torch", "cudnn", "flash")


def microseconds(side):
    return side["ns"] / 1e3 if isinstance(side, dict) else side


FORMS = (  # a key of a report's rows, the unit, and the sides of a row
    ("share_of_limit", "% of the limit", lambda row: {"quern": 100 * (row["share_of_limit"] or 0)}),
    ("published_tflops", "TFLOP/s", lambda row: {row["side"]: row["tflops"]}),
    ("median_us", "µs", lambda row: {row["side"]: row["median_us"]}),
    ("kernels_us", "µs", lambda row: {row["side"]: row["us"]}),
    ("us", "µs", lambda row: row["us"] if isinstance(row["us"], dict) else {"quern": row["us"], "copy": row.get("copy_us")}),
    ("quern_us", "µs", lambda row: {"quern": row["quern_us"], **row["sides_us"]}),
    ("quern_ns", "µs", lambda row: {side: row[f"{side}_ns"] / 1e3 for side in SIDES if f"{side}_ns" in row}),
    ("quern_ms", "ms", lambda row: {side: row[f"{side}_ms"] for side in SIDES if f"{side}_ms" in row}),
    ("quern", "µs", lambda row: {side: microseconds(row[side]) for side in SIDES if side in row}),
)
MOST = 40  # lines of a plot
BAR, GAP, LEFT, WIDTH = 13, 9, 250, 420


def label_of(row):
    """Returns what names a line of a report."""
    if "m" in row:
        parts = [row.get("kind") or row.get("type") or row.get("form"), row.get("end"), row.get("layout"), row.get("bias") and "bias",
                 f"{row['m']} × {row['n']} × {row['k']}", f"{row['groups']} groups" if row.get("groups", 1) > 1 else None]
    elif "rows" in row:
        parts = [row["op"], f"{row['rows']} × {row.get('dim') or row['vocab']}"]
    elif "problem" in row:
        parts = [row.get("op"), row["problem"]]
    elif "shape" in row:
        parts = [row.get("chip"), " × ".join(map(str, row["shape"]))]
    elif "case" in row:
        parts = [row["chip"], row["case"]]
    elif "dim" in row:
        parts = [f"{row['heads']}/{row['kv_heads']} heads of {row['dim']}, {row['tokens']} tokens", "causal" if row["causal"] else None]
    else:
        parts = [row.get("name"), f"{row['tokens']} tokens", row.get("chip")]
    if "rows" not in row and row.get("threads"):
        parts.append(f"threads {row['threads']}")
    return " ".join(str(part) for part in parts if part)


def lines_of(report):
    """Returns (unit, label -> side -> number) of a report; None for a form that is not drawn."""
    if isinstance(report.get("ms"), dict):  # of a whole step; parts of one are added up
        return "ms", {"a step": {side: sum(ms.values()) if isinstance(ms, dict) else ms for side, ms in report["ms"].items()}}
    rows = report.get("results") or report.get("rows") or [{}]
    for key, unit, sides_of in FORMS:
        if isinstance(rows, list) and key in rows[0]:
            lines = {}
            for row in rows:
                line, sides = lines.setdefault(label_of(row), {}), sides_of(row)
                if line.keys() & sides.keys():  # rows differ in something that labels do not tell
                    return None
                line.update({side: value for side, value in sides.items() if value})
            return unit, {label: line for label, line in lines.items() if line}
    return None


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def svg(unit, lines):
    """Draws bars. Those of a line share a scale, of which the longest is the whole; shares of a limit have one scale."""
    sides = list(dict.fromkeys(side for line in lines.values() for side in line))
    whole = max(max(line.values()) for line in lines.values()) if unit.startswith("%") else None
    parts, y = [], 24
    for at, side in enumerate(sides):
        parts.append(f'<rect class="s{at}" x="{LEFT + 100 * at}" y="4" width="10" height="10"/>'
                     f'<text x="{LEFT + 14 + 100 * at}" y="13">{html.escape(side)}</text>')
    for label, line in lines.items():
        parts.append(f'<text class="label" x="{LEFT - 8}" y="{y + BAR * len(line) / 2 + 4}">{html.escape(label)}</text>')
        for side, value in line.items():
            width = WIDTH * value / (whole or max(line.values()))
            parts.append(f'<rect class="s{sides.index(side)}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}"/>'
                         f'<text x="{LEFT + width + 5:.1f}" y="{y + BAR - 3}">{number(value)}</text>')
            y += BAR
        y += GAP
    wide = max(LEFT + WIDTH + 60, LEFT + 100 * len(sides) + 20)
    return f'<svg class="plot" viewBox="0 0 {wide} {y}" role="img" style="max-width: {wide}px">{"".join(parts)}</svg>'


def machine_of(name, report):
    device = report.get("device") or (report.get("versions") or {}).get("device") or report.get("processor") or report.get("benchmark")
    place = device["name"] if isinstance(device, dict) else device
    return f"{place}, modelled" if name.startswith(("sim_", "clock_")) else place


def plot_rst(name, report, unit, lines):
    """Returns a file's chapter: machine, command, bars."""
    command = f"``{report['command']}``\n\n" if isinstance(report.get("command"), str) else ""
    return (title(name, "-") + f"\n{machine_of(name, report)}. In {unit}"
            + ("" if unit.startswith("%") else ("; longer is faster" if "FLOP" in unit else "; shorter is faster")
               + ". The bars of a line share a scale of their own")
            + f".\n\n{command}.. raw:: html\n\n   {svg(unit, lines)}\n")


def write(top, source):
    """Writes source/plots.rst."""
    parts, others = [], []
    for path in sorted((top / "bench/results").glob("*.json")):
        report = json.loads(path.read_text())
        unit, lines = lines_of(report) or ("", {})
        if 0 < len(lines) <= MOST:
            parts.append(plot_rst(path.name, report, unit, lines))
        else:
            others.append(path.name)
    (source / "plots.rst").write_text(
        title("Plots") + "\nWhat the benchmarks wrote into ``bench/results``. :doc:`performance`, :doc:`performance_h200` and "
        ":doc:`performance_modelled` have tables, "
        "conditions and what is to be learned from them.\n\nFiles of another form, which only those pages show: "
        + ", ".join(f"``{name}``" for name in others) + ".\n\n" + "\n".join(parts))
