# SPDX-License-Identifier: Apache-2.0
"""Opens the simulated GPUs once for all files."""
import gpu

gpu.start()
