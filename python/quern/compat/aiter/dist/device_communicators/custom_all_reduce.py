# SPDX-License-Identifier: Apache-2.0
"""AITER's sums over several GPUs, which are not served."""

from ..._absent import MANY_GPUS, absent

CustomAllreduce = absent("CustomAllreduce", MANY_GPUS)
