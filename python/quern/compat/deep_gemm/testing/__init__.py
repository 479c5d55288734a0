# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's helpers for tests and timings."""

from . import numeric, utils
from .bench import bench, bench_kineto
from .numeric import assert_bitwise_equal, calc_diff, count_bytes
from .utils import get_arch_major, ignore_env, test_filter

__all__ = ["assert_bitwise_equal", "bench", "bench_kineto", "calc_diff", "count_bytes", "get_arch_major", "ignore_env", "numeric",
           "test_filter", "utils"]
