# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's quantisation, and its packing of truth values."""

from ._packbits import packbits, segment_packbits
from .fp8_quantization import mxfp8_dequantize_host, mxfp8_grouped_quantize, mxfp8_quantize

__all__ = ["mxfp8_dequantize_host", "mxfp8_grouped_quantize", "mxfp8_quantize", "packbits", "segment_packbits"]
