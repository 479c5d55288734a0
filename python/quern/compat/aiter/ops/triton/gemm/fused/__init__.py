# SPDX-License-Identifier: Apache-2.0
"""Modules that AITER has in this folder."""
