# SPDX-License-Identifier: Apache-2.0
"""Types of DeepGEMM's arguments."""

import torch

Tensor = torch.Tensor
Pair = tuple[torch.Tensor, torch.Tensor]  # values and their scales
Recipe = tuple[int, int, int]
Granularity = tuple[int, int]
