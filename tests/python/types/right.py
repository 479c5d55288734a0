# SPDX-License-Identifier: Apache-2.0
"""What users write, with types: mypy --strict and pyright find nothing wrong with it. It is read, not run."""

import types
from typing import Any

import numpy as np
import numpy.typing as npt

import quern
import quern.compat
import quern.torch

x: npt.NDArray[np.float32] = np.ones((4, 8), np.float32)
weight = np.ones(8, np.float32)
i32 = np.zeros(4, np.int32)

y: npt.NDArray[np.float32] = quern.rmsnorm(x, weight)
y = quern.layernorm(x, out=y, eps=0)
q, scale = quern.quantize_fp8(y, block=(128, 128), dtype="e4m3fnuz")
z: npt.NDArray[Any] = quern.gemm(q, q, scale_a=scale, scale_b=scale, dtype=np.float32)
y = quern.act_and_mul(x, "gelu", limit=7)
quern.fused_add_rmsnorm(x, y, weight)

device: quern.Device = quern.device("sim:gfx942")
there: quern.Tensor = quern.to(x, device)
there = quern.rmsnorm(there, quern.to(weight, device))[1:, ::2]
shape: tuple[int, ...] = there.shape
host: npt.NDArray[Any] = quern.numpy(there)
host = there.numpy()

heads = x.reshape(1, 4, 1, 8)
out: npt.NDArray[np.float32] = quern.attention(heads, heads, heads, is_causal=True)
out, lse = quern.attention(heads, heads, heads, return_lse=True, layout="HND", lse_base="e")
plan: quern.AttentionPlan = quern.attention_plan(4, 2, 32, qo_indptr=[0, 1], kv_indptr=i32)
out = quern.attention(x, x, x, plan=plan, pos_encoding="alibi")
turned, none = quern.apply_rope_pos_ids(out, None, i32, interleave=True)

y = quern.top_k_renorm_probs(x, 4)
token: npt.NDArray[np.int32] = quern.sample(x, 0.7, top_k=i32, top_p=0.9, order="joint", seed=3)

names: list[str] = quern.devices()
kernel: str = quern.last_kernel()
with quern.torch.enable("sim:gfx942", fallback="error") as registration:
    count: int = registration.calls["attention.gpu_tile_64_bf16"]
quern.torch.disable()
with quern.patch(object()) as patch:
    print(patch.counts, patch.device)
standing: types.ModuleType = quern.compat.install("deep_gemm")
