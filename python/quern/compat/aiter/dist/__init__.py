# SPDX-License-Identifier: Apache-2.0
"""AITER over several GPUs, which is not served."""
