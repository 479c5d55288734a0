# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch: its ops as custom ops, attention behind scaled_dot_product_attention, and the check of both.

torch.ops.quern.NAME  each op of the library, so that torch.compile keeps it whole; registered when this is imported: with
                      quern where PyTorch was imported before, else when the first PyTorch tensor comes
enable(), disable()   quern under torch.nn.functional.scaled_dot_product_attention
register_transformers(), register_diffusers()   quern's attention as a choice by name in these libraries
calls                 kernel -> how many of these calls it computed
python -m quern.torch  what runs here for scaled_dot_product_attention, what does not, and why
"""

import sys as _sys

# `python -m quern.torch` has -m as its name until __main__.py runs, which looks at the process before PyTorch is in it.
if _sys.argv[:1] != ["-m"] or "torch" in _sys.modules:
    from ._ops import register as _register
    from ._models import register_diffusers, register_transformers  # noqa: F401
    from ._sdpa import calls, disable, enable  # noqa: F401

    _register()
