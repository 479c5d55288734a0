# SPDX-License-Identifier: Apache-2.0
"""Writes the page of all kernels by device: from the tables in ops/*/variants.def, from what `quern check --quick` says of this build
on the CPU and simulated GPUs, and from the measurements of an H200 in bench/results."""

import collections
import dataclasses
import html
import json
import re
import subprocess

from comments import fields, title

STATUSES = {"agrees": "`quern check --quick` ran it on this device, as this build has it, and every result agreed with the op's definition",
            "differs": "a result did not",
            "no short problem": "none of the short check's problems is one that it takes",
            "no such processor": "the processor that made this page lacks what it needs",
            "timed": "a measurement in bench/results, on an H200, names it",
            "compiled": "there is an image of it; this page's machine has no such device",
            "not checked": "this page was made without a check of the device"}
DTYPES = re.compile(r"(?<![a-z0-9])(f64|f32|f16|bf16|e4m3fnuz|e4m3fn|e5m2fnuz|e5m2|i8|i32|u8|bool)(?![a-z0-9])")
IN_NAMES = {"bf16": ["bf16"], "f16": ["f16"], "fp8": ["fp8"]}


@dataclasses.dataclass
class Kernel:
    op: str
    name: str
    folder: str       # ops/gemm
    on_cpu: bool
    needs: set[str]   # features, all of them
    any_of: set[str]  # and one of these, if there are any
    image: str | None


@dataclasses.dataclass
class Seen:
    """What a check of a device saw of a kernel."""
    ran: int = 0
    agreed: int = 0
    dtypes: set[str] = dataclasses.field(default_factory=set)
    reasons: set[str] = dataclasses.field(default_factory=set)


def arguments(text):
    """Returns what stands between commas outside parentheses, braces and strings."""
    parts, depth, quoted = [""], 0, False
    for sign in text:
        quoted ^= sign == '"'
        depth += (sign in "({") - (sign in ")}") if not quoted else 0
        if sign == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def features(text):
    return set(re.findall(r"QNI_F\((\w+)\)", text))


def table_of(definition, compiler, top):
    """Returns the kernels and the images (id -> (source, targets)) of a variants.def, whose macros the compiler expands."""
    text = subprocess.run([compiler, "-E", "-P", "-x", "c", definition], capture_output=True, text=True, check=True).stdout
    text = re.sub(r'"\s+"', "", text)  # neighbouring strings are one
    folder, kernels, images = str(definition.parent.relative_to(top)), [], {}
    for kind, line in re.findall(r"^QN_(VARIANT|IMAGE)\((.*?)\)\s*(?=^QN_|\Z)", text, re.M | re.S):
        if kind == "IMAGE":
            name, source, targets, *_ = (part.strip('"') for part in arguments(line))
            images[name] = (f"{folder}/{source}", targets.split())
            continue
        op, name, where, needs, *rest = arguments(line)
        all_of, any_of = arguments(needs.removeprefix("QN_NEEDS(").removesuffix(")")) if needs.startswith("QN_NEEDS") else (needs, "")
        image = re.search(r'"(\w+)"', ", ".join(rest))
        kernels.append(Kernel(op, f"{op}.{name}", folder, where == "CPU", features(all_of), features(any_of), image and image[1]))
    return kernels, images


def targets_of(top):
    """Returns target -> features of every GPU target."""
    text = (top / "runtime/device/targets.def").read_text()
    return {name: features(rest) for name, rest in re.findall(r'^QN_TARGET\("([\w-]+)",(.*)\)$', text, re.M)}


def runs_on(kernel, target, has, images):
    """Returns whether a kernel is for a GPU target."""
    if kernel.on_cpu or not kernel.needs <= has or (kernel.any_of and not kernel.any_of & has):
        return False
    built = images[kernel.image][1]
    return "all" in built or target in built or ("amd" in built and not target.startswith("sm_"))


def seen_in(report):
    """Returns kernel -> what a report of quern check saw of it."""
    seen = collections.defaultdict(Seen)
    for result in report["results"]:
        of = seen[result["kernel"]]
        if not result["ran"]:
            of.reasons.add(result["reason"])
            continue
        of.ran += 1
        of.agreed += result["passed"]
        of.dtypes |= set(DTYPES.findall(result["problem"]))
    return seen


def status_of(kernel, device, seen, timed):
    if device.startswith("sm_"):
        return "timed" if device == "sm_90a" and kernel.name in timed else "compiled"
    if seen is None:
        return "not checked"
    if seen.ran:
        return "agrees" if seen.agreed == seen.ran else "differs"
    return "no such processor" if any(reason.startswith("needs ") for reason in seen.reasons) else "no short problem"


def rows_of(kernels, images, targets, reports, timed):
    """Yields (kernel, device, dtypes, status, problems) of each kernel on each device that it is for."""
    seen = {device: seen_in(report) for device, report in reports.items()}
    for kernel in kernels:
        known = set().union(*(of[kernel.name].dtypes for of in seen.values())) or \
            {dtype for word in kernel.name.replace(".", "_").split("_") for dtype in IN_NAMES.get(word, [])}
        devices = ["cpu"] if kernel.on_cpu else [target for target, has in targets.items() if runs_on(kernel, target, has, images)]
        for device in devices:
            of = seen[device][kernel.name] if device in seen else None
            status = status_of(kernel, device, of, timed)
            yield kernel, device, sorted(of.dtypes if of and of.ran else known), status, f"{of.agreed} of {of.ran}" if of and of.ran else ""


def timed_on_h200(top):
    """Returns the kernels that measurements of an H200 name."""
    return {name for path in (top / "bench/results").glob("h200_*.json")
            for name in re.findall(r'"(\w+\.\w+)"', path.read_text())}


def chapters_of(top):
    """Returns op -> address of its chapter in docs/kernels*.md."""
    return {op: f"{page.stem}.html#" + re.sub(r"[^\w\- ]", "", chapter).replace(" ", "-") for page in top.glob("docs/kernels*.md")
            for chapter in re.findall(r"^## (.*)$", page.read_text(), re.M) for op in chapter.split(", ")}


def choice(name, values):
    options = "".join(f"<option>{html.escape(value)}</option>" for value in values)
    return f'<label>{name} <select data-column="{name}"><option value="">all</option>{options}</select></label>'


def table_html(rows, images, chapters):
    """Returns the table with its filters, which site/static/catalogue.js makes work."""
    columns = list(zip(*((k.op, device, dtypes, status) for k, device, dtypes, status, _ in rows)))
    every = [sorted(set(columns[0])), list(dict.fromkeys(columns[1])), sorted(set().union(*columns[2])), sorted(set(columns[3]))]
    filters = "".join(choice(*pair) for pair in zip(("op", "device", "dtype", "status"), every))
    lines = [f'<form class="filters" hidden>{filters}<label>name <input type="search" data-column="kernel"></label>'
             '<output></output></form>\n<div class="wide"><table class="catalogue"><thead><tr>']
    lines += [f"<th>{head}</th>" for head in ("op", "kernel", "device", "dtype", "status", "problems")]
    lines.append("</tr></thead><tbody>")
    for kernel, device, dtypes, status, problems in rows:
        source = images[kernel.image][0] if kernel.image else f"{kernel.folder}/variants.def"
        op = f'<a href="{chapters[kernel.op]}">{kernel.op}</a>' if kernel.op in chapters else kernel.op
        lines.append(f'<tr><td>{op}</td><td><a href="tree/{source}.html">{kernel.name}</a></td><td>{device}</td>'
                     f'<td>{" ".join(dtypes)}</td><td class="{status.replace(" ", "-")}">{status}</td><td>{problems}</td></tr>')
    return "\n".join([*lines, "</tbody></table></div>"])


def write(top, source, reports, compiler):
    """Writes source/catalogue.rst. reports: device -> what quern check said of it. Returns the sources that the page links."""
    kernels, images = [], {}
    for definition in sorted(top.glob("ops/*/variants.def")):
        some, their = table_of(definition, compiler, top)
        kernels += some
        images |= their
    rows = list(rows_of(kernels, images, targets_of(top), reports, timed_on_h200(top)))
    (source / "catalogue.html").write_text(table_html(rows, images, chapters_of(top)))
    statuses = fields([(name, [text]) for name, text in STATUSES.items() if name in {row[3] for row in rows}])
    (source / "catalogue.rst").write_text(
        title("All kernels") + f"\n{len(kernels)} kernels, by the devices that they are for. ``sm_90a`` is Hopper, ``sm_80`` every card "
        "from Ampere on. Dtypes are those of the problems that the check ran, or of the kernel's name where none was run. "
        ":doc:`kernels` says why there is each.\n\n" + statuses + "\n\n.. raw:: html\n   :file: catalogue.html\n")
    return sorted({images[k.image][0] if k.image else f"{k.folder}/variants.def" for k in kernels})
