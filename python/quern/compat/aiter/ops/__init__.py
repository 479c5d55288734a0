# SPDX-License-Identifier: Apache-2.0
"""AITER's ops, in the modules in which AITER has them."""
