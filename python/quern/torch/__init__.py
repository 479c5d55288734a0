# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch: its ops as custom ops, its attention behind scaled_dot_product_attention, and a check of both.

torch.ops.quern.NAME  each op of the library, so that torch.compile keeps it whole. Ops are registered when this module
                      is imported: with quern if PyTorch was imported before, else when the first PyTorch tensor comes
enable(), disable()   quern under torch.nn.functional.scaled_dot_product_attention
register_transformers(), register_diffusers()   quern's attention as a choice by name in these libraries
calls                 kernel -> how many calls of scaled_dot_product_attention and of models it computed, and of row ops that
                      autograd recorded
python -m quern.torch  what runs here for scaled_dot_product_attention, what does not, and why
"""

import sys as _sys

# Under `python -m quern.torch` sys.argv[0] is -m until __main__.py runs. It looks at the process before PyTorch is
# loaded.
if _sys.argv[:1] != ["-m"] or "torch" in _sys.modules:
    from ._ops import register as _register
    from ._models import register_diffusers, register_transformers  # noqa: F401
    from ._sdpa import calls, disable, enable  # noqa: F401

    _register()
