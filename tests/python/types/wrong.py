# SPDX-License-Identifier: Apache-2.0
"""What users get wrong: mypy --strict and pyright find each line that says so, and no other. It is read, not run."""

import numpy as np

import quern
import quern.compat
import quern.torch

x = np.ones((4, 8), np.float32)
plan = quern.attention_plan(4, 2, 32, batches=1)

quern.rmsnorm("a", 3)  # wrong
quern.rmsnorm([[1.0, 2.0]], x)  # wrong
quern.rmsnorm(x, x, eps="small")  # wrong
quern.rmsnorm(x, x, out=3)  # wrong
quern.rmsnorm(x)  # wrong
quern.rmsnorm(x, x, epsilon=1e-6)  # wrong
quern.act_and_mul(x, "relu")  # wrong
quern.act_and_mul_dynamic_quant(x, group=64)  # wrong
quern.quantize_fp8(x, block=128)  # wrong
quern.quantize_fp8(x, dtype="fp8")  # wrong
quern.quantize_fp8(x, dtype=8)  # wrong
quern.packbits(x, "middle")  # wrong
quern.attention(x, x, x, layout="BSHD")  # wrong
quern.attention(x, x, x, lse_base=10)  # wrong
quern.attention(x, x, x, plan=b"")  # wrong
quern.attention(x, x, x, is_causal="yes")  # wrong
quern.sample(x, order="top_p_first")  # wrong
quern.top_p_renorm_probs(x)  # wrong
quern.attention_plan(4, 2, "32")  # wrong
quern.append_paged_kv_cache(x, x, x, x, [0], x, x, x)  # wrong
quern.get_seq_lens(x, x, 16.0)  # wrong
quern.to(x, 3)  # wrong
quern.empty(4.5, "f32")  # wrong
quern.device(0)  # wrong
quern.numpy(x).nothing()  # wrong
text: str = quern.rmsnorm(x, x)  # wrong
quern.torch.enable(fallback="ignore")  # wrong
quern.rms_norm(x, x)  # wrong
quern.compat.install(3)  # wrong
