# SPDX-License-Identifier: Apache-2.0
"""quantization.fp8_quantization under FlashInfer's older name."""

from .quantization.fp8_quantization import *  # noqa: F403
