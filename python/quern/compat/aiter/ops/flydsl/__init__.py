# SPDX-License-Identifier: Apache-2.0
"""What engines import of AITER's FlyDSL kernels: an enumeration."""
