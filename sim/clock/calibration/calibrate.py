#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs kernels whose time on silicon is published on the simulated GPU's clock, and writes docs/clock_report.md.

    calibrate.py --aiter CLONE --library libquernsim.so.0 --times FILE

CLONE is a clone of github.com/ROCm/aiter that has the commit of objects.py. FILE keeps the modelled times: a row is run
again only if the library, the GPU's chip file or the way in which it is measured has changed."""

import argparse
import csv
import hashlib
import os
import pathlib
import subprocess
import sys
import time

import published
import report

FIELDS = ["row", "state", "us", "seconds"]


def state_of(library, chip, clock):
    """Names what a modelled time depends on."""
    files = [pathlib.Path(library), chip, *(published.HERE / name for name in ("kernels.py", "measure.py"))]
    parts = [clock.encode(), *(f.read_bytes() for f in files)]
    return hashlib.sha256(b"".join(hashlib.sha256(p).digest() for p in parts)).hexdigest()[:16]


def clock_of(row, options):
    return "full" if row.waits_for_others else options.clock


def read_times(path):
    """Returns row and state -> modelled microseconds."""
    if not path.exists():
        return {}
    with open(path, newline="") as file:
        return {(r["row"], r["state"]): float(r["us"]) for r in csv.DictReader(file)}


def add_time(path, values):
    is_new = not path.exists()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([FIELDS, values] if is_new else [values])


def run(number, row, options):
    """Returns a row's modelled microseconds, of a process of its own: the chip is chosen when the library is loaded."""
    simulator = f"arch={row.arch};clock={clock_of(row, options)};chip={row.chip_file}"
    if options.profile:
        simulator += f";profile={options.profile}"
    done = subprocess.run([sys.executable, published.HERE / "measure.py", str(number), "--aiter", options.aiter,
                           "--library", options.library], env=os.environ | {"QUERN_SIM": simulator}, capture_output=True,
                          text=True)
    if done.returncode:
        raise SystemExit(f"{row.name}:\n{done.stderr}")
    return float(done.stdout)


def run_all(rows, options):
    """Returns the number of each row that was run -> modelled microseconds."""
    known, times = read_times(options.times), {}
    wanted = [(i, r) for i, r in enumerate(rows) if r.operations <= options.gflop * 1e9 and options.only in r.name]
    for at, (number, row) in enumerate(sorted(wanted, key=lambda pair: pair[1].operations)):
        key = row.name, state_of(options.library, row.chip_file, clock_of(row, options))
        begin = time.monotonic()
        if key in known:
            times[number] = known[key]
        else:
            times[number] = run(number, row, options)
            add_time(options.times, [*key, f"{times[number]:.3f}", f"{time.monotonic() - begin:.1f}"])
        print(f"[{at + 1}/{len(wanted)}] {row.name}: {times[number]:.2f} us, published {row.us:.2f}", flush=True)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--aiter", required=True, help="a clone of github.com/ROCm/aiter")
    parser.add_argument("--library", required=True, help="libquernsim.so.0")
    parser.add_argument("--times", required=True, type=pathlib.Path, help="file of modelled times, which grows")
    parser.add_argument("--gflop", type=float, default=200000, help="rows of more operations are left out (default 200000: none)")
    parser.add_argument("--only", default="", help="rows whose name holds this text")
    parser.add_argument("--clock", default="sample", help="which workgroups run (docs/clock.md)")
    parser.add_argument("--profile", help="file for the simulator's profile of the last row")
    parser.add_argument("--report", type=pathlib.Path, help="the page to write")
    options = parser.parse_args()
    rows = published.read()
    times = run_all(rows, options)
    if options.report:
        options.report.write_text(report.page(rows, times, options))


if __name__ == "__main__":
    main()
