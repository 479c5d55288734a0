# SPDX-License-Identifier: Apache-2.0
"""What tests of quern.compat.flashinfer's attention share: random tensors, batches in pages, the definition in float64."""

import math

import numpy as np
import torch
from attention_tools import definition

HALF = torch.float16
LAYOUTS = ["NHD", "HND"]
MODES = {"NONE": "none", "ROPE_LLAMA": "rope_llama", "ALIBI": "alibi"}


def workspace(size=1 << 20):
    return torch.empty(size, dtype=torch.uint8)


def array(t):
    return t.double().numpy()


def turned(t, layout):
    """Returns [n, heads, dim] or [pages, page, heads, dim] in the layout."""
    return t if layout == "NHD" else t.transpose(-3, -2).contiguous()


def expected(q, k, v, mode="NONE", **options):
    """Returns (out, base-2 lse) as tensors."""
    out, lse = definition(array(q), array(k), array(v), pos_encoding=MODES[mode], **options)
    return torch.from_numpy(out), torch.from_numpy(lse / math.log(2))


def close(got, want, tolerance=1e-3):
    torch.testing.assert_close(got.double(), want.double(), rtol=tolerance, atol=tolerance)


def randn(*shape, dtype=HALF, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape) + seed)).to(dtype)


class Pages:
    """A batch of requests whose keys lie in shuffled pages; unused places are NaN."""

    def __init__(self, lengths, page, kv_heads=2, dim=64, dtype=HALF, layout="NHD", as_one=True):
        counts = [-(-n // page) for n in lengths]
        self.lengths, self.page, self.layout = lengths, page, layout
        self.indptr = torch.tensor([0, *np.cumsum(counts)], dtype=torch.int32)
        self.indices = torch.randperm(sum(counts) + 2, generator=torch.Generator().manual_seed(5))[:sum(counts)].int()
        self.last = torch.tensor([(n - 1) % page + 1 if n else 0 for n in lengths], dtype=torch.int32)
        cache = torch.full((sum(counts) + 2, 2, page, kv_heads, dim), torch.nan)
        self.k, self.v = [], []
        for b, n in enumerate(lengths):
            for side, store in enumerate((self.k, self.v)):
                tokens = randn(n, kv_heads, dim, dtype=torch.float32, seed=7 * b + side).to(dtype).float()
                store.append(tokens)
                for i in range(n):
                    cache[self.indices[self.indptr[b] + i // page], side, i % page] = tokens[i]
        cache = turned(cache, layout).to(dtype)
        self.cache = cache if as_one else (cache[:, 0].contiguous(), cache[:, 1].contiguous())

    def arrays(self):
        return self.indptr, self.indices, self.last

    def part(self, begin, end):
        """Returns the batch of requests begin to end alone."""
        indptr = self.indptr[begin:end + 1]
        return indptr - indptr[0], self.indices[indptr[0]:indptr[-1]], self.last[begin:end]


def offsets(lengths):
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
