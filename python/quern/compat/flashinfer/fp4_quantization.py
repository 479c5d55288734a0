# SPDX-License-Identifier: Apache-2.0
"""quantization.fp4_quantization under FlashInfer's older name."""

from .quantization.fp4_quantization import *  # noqa: F403
