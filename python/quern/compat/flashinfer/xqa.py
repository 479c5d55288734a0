# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's decodes under XQA's name."""

from ._absent import absent
from ._by_table import xqa

__all__ = ["xqa", "xqa_mla"]

xqa_mla = absent("xqa_mla", "quern has MLA under BatchMLAPagedAttentionWrapper; choose that backend of MLA in the engine")
