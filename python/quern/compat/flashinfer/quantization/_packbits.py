# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's packing of truth values into bits."""

import torch

from .._run import index as _index
from .._run import run as _run

_BIT_ORDERS = {"big": 0, "little": 1}


def _order(op, bitorder):
    if bitorder not in _BIT_ORDERS:
        raise ValueError(f"{op}: bitorder is {bitorder!r}; accepted: 'big', 'little'")
    return _BIT_ORDERS[bitorder]


def packbits(x, bitorder="big"):
    """Packs x [n] bool, eight to a byte as numpy.packbits does. Returns uint8 [ceil(n / 8)]."""
    order = _order("packbits", bitorder)
    out = torch.empty((x.shape[0] + 7) // 8, dtype=torch.uint8, device=x.device)
    _run("packbits", out, x, order)
    return out


def segment_packbits(x, indptr, bitorder="big"):
    """Packs each segment x[indptr[i]:indptr[i + 1]] into bytes of its own. Returns (bytes, new indptr). Waits for the
    device."""
    order, indptr = _order("segment_packbits", bitorder), _index(indptr)
    out = torch.empty(x.shape[0] // 8 + indptr.shape[0] - 1, dtype=torch.uint8, device=x.device)
    new_indptr = torch.empty_like(indptr)
    _run("segment_packbits", out, new_indptr, x, indptr, order)
    return out[:new_indptr[-1].item()], new_indptr
