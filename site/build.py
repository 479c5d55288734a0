#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the site: writes pages out of docs/, headers, the Python package, tables of kernels and measurements, and runs Sphinx on them.

    build/site-tools/bin/python site/build.py --build build/release --output build/site [--devices cpu,sim:gfx942]

A warning of Sphinx, a link without a target among them, fails the build. Needs what tools/setup.sh --site installs.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import c_api
import catalogue
import pages
import plots
import python_api

TOP = pathlib.Path(__file__).resolve().parent.parent
CONTENTS = {
    "Start": ["The front page <self>", "troubleshooting", "news"],
    "Guides": ["python", "engines", "flashinfer", "deep_gemm", "aiter", "checkpoints", "tune", "probe", "simulator", "hip"],
    "Reference": ["c/index", "py/index", "command", "catalogue", "kernels", "kernels_attention", "env", "glossary"],
    "Performance": ["plots", "performance", "performance_h200", "performance_modelled", "profiles"],
    "Internals": ["design", "runtime", "clock", "clock_report", "testing", "Versions, releases, the site <releases>"],
}


def contents():
    """Returns the navigation. Pages of docs/ that CONTENTS does not name are the last guides."""
    named = " ".join(name for names in CONTENTS.values() for name in names)
    others = [page.stem for page in sorted(TOP.glob("docs/*.md")) if not re.search(rf"\b{page.stem}\b", named)]
    return "\n".join(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(names + others * (caption == "Guides")) + "\n```\n"
                     for caption, names in CONTENTS.items())


def cached(build, name):
    """Returns a value of a build's CMakeCache.txt."""
    return re.search(rf"^{name}:\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M)[1]


def devices_of(build):
    """Returns the CPU and the simulated GPUs whose kernels the build has."""
    targets = (build / "targets.txt").read_text().split()
    return ["cpu", *(f"sim:{target}" for target in targets if target.startswith("gfx"))]


def check(build, device):
    """Returns what quern check --quick says of a device. A build's answer is kept until a library of it changes."""
    kept = build / "site" / f"{device.replace(':', '_')}.json"
    newest = max(library.stat().st_mtime for library in build.glob("libquern*.so.0"))
    if not kept.exists() or kept.stat().st_mtime < newest:
        print(f"site: checking every kernel on {device}", flush=True)
        kept.parent.mkdir(exist_ok=True)
        done = subprocess.run([build / "quern", "check", "--quick", "--json", "--device", device], stdout=subprocess.PIPE, check=False)
        if done.returncode not in (0, 1):
            sys.exit(f"site: quern check --device {device} ended with status {done.returncode}")
        kept.write_bytes(done.stdout)
    return json.loads(kept.read_text())


def write_pages(build, source, reports):
    site = pages.Pages(TOP, source, c_api.roles_of(c_api.headers_of(TOP)))
    site.write(contents())
    pages.write_command(build / "quern", source)
    c_api.write(TOP, source)
    python_api.write(TOP, source)
    plots.write(TOP, source)
    for path in catalogue.write(TOP, source, reports, cached(build, "CMAKE_C_COMPILER")):
        site.view(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a build with the command quern")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the folder of the pages, which is made anew")
    parser.add_argument("--devices", type=lambda text: text.split(","), help="devices to check (default: the build's)")
    options = parser.parse_args()
    build, output = options.build.resolve(), options.output.resolve()
    reports = {device.removeprefix("sim:"): check(build, device) for device in options.devices or devices_of(build)}
    source = output.with_name(output.name + ".source")
    for folder in (source, output):
        shutil.rmtree(folder, ignore_errors=True)
    source.mkdir(parents=True)
    write_pages(build, source, reports)
    version = re.search(r'define QN_VERSION "(.*)"', (TOP / "include/quern/core.h").read_text())[1]
    done = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", TOP / "site", "-d", source / ".doctrees",
                           source, output], env={**os.environ, "QUERN_VERSION": version}, check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
