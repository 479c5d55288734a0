# SPDX-License-Identifier: Apache-2.0
"""The chip's FP8 dtypes."""

import torch

from ....utility import dtypes

e4m3_dtype = dtypes.fp8
e5m2_dtype = torch.float8_e5m2fnuz if dtypes.fp8 == torch.float8_e4m3fnuz else torch.float8_e5m2
