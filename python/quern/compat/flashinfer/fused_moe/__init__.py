# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's layers of experts."""

from .core import *  # noqa: F403
