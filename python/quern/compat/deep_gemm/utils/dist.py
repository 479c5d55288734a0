# SPDX-License-Identifier: Apache-2.0
"""DeepGEMM's helpers for several processes, which serve kernels that are not here."""

from .._absent import absent

_WHY = "it prepares DeepGEMM's kernels over several GPUs, which quern does not have; torch.distributed has the same"

init_dist = absent("init_dist", _WHY)
uneven_all_gather = absent("uneven_all_gather", _WHY)
dist_print = absent("dist_print", _WHY)
