# SPDX-License-Identifier: Apache-2.0
"""What engines ask AITER's build system: the chip."""
