# SPDX-License-Identifier: Apache-2.0
"""Runs one row of published.csv, and prints its modelled microseconds.

    QUERN_SIM="clock=on" measure.py NUMBER --aiter CLONE --library libquernsim.so.0

The kernel runs twice and the second time counts, so that its code is in the instruction caches as on silicon, where the
published time is that of many launches. A long one, whose start is no part of its time, runs once."""

import argparse

import hip
import kernels
import objects
import published

COPIES = 101  # of its arguments, which AITER's tuner uses in turn
MALL_BYTES = 256 << 20
LONG = 70e9  # operations
COPY_BYTES_PER_US = 4.11e6  # BabelStream's copy on an MI300X, read and written (Azure's benchmarking guide)
FILL_US = 1.9  # the shortest kernels of an MI308X: AITER's tuner counts the launch that zeroes C before parts are added


def finds_its_data(row):
    """Says whether the memory-side cache holds what a launch of the measurement reads. Attention ran on the same tensors
    again and again."""
    return row.family == "fmha" or COPIES * row.bytes < MALL_BYTES


def measure(row, library, clone):
    api = hip.Hip(library)
    kernel = api.kernel(*objects.load(clone, row.arch, row.family, row.code_object))
    block = kernels.block_of(row, api.buffer)
    if row.operations < LONG:
        api.launch(kernel, kernels.grid_of(row), kernels.threads_of(row), block)
        if not finds_its_data(row):
            block = kernels.block_of(row, api.buffer)
    us = api.launch(kernel, kernels.grid_of(row), kernels.threads_of(row), block)
    return us + row.copied_bytes / COPY_BYTES_PER_US + (FILL_US if row.parts > 1 and row.family in ("fp8", "int8") else 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("number", type=int)
    parser.add_argument("--aiter", required=True)
    parser.add_argument("--library", required=True)
    options = parser.parse_args()
    print(measure(published.read()[options.number], options.library, options.aiter))
