# SPDX-License-Identifier: Apache-2.0
"""What users of quern.compat.deep_gemm write, and get wrong, with types. It is read, not run."""

import torch

from quern.compat import deep_gemm

a = torch.empty(2, 128, dtype=torch.float8_e4m3fn), torch.ones(2, 1)
d = torch.empty(2, 2, dtype=torch.bfloat16)
deep_gemm.fp8_gemm_nt(a, a, d, recipe=(1, 1, 128))
deep_gemm.m_grouped_bf16_gemm_nt_masked(d, d, d, d, expected_m=4)
deep_gemm.k_grouped_fp8_gemm_tn_contiguous(a, a, d, [128], d, c=d)
scores: torch.Tensor = deep_gemm.fp8_mqa_logits(d, a, d, d, d)
sms: int = deep_gemm.get_num_sms()
deep_gemm.set_mk_alignment_for_contiguous_layout(deep_gemm.get_theoretical_mk_alignment_for_contiguous_layout())
cast, by_token = deep_gemm.per_token_cast_to_fp8(d, use_ue8m0=True)
words: torch.Tensor = deep_gemm.utils.layout.get_mn_major_tma_aligned_packed_ue8m0_tensor(by_token)
deep_gemm.legacy.m_grouped_bf16_gemm_nn_contiguous_tl(d, d, d, d)

t = torch.ones(2, 2)
deep_gemm.fp8_gemm_nt(3, (t, t), t)  # wrong
deep_gemm.bf16_gemm_nt(t, t, t, compiled_dims=3)  # wrong
deep_gemm.m_grouped_fp8_gemm_nt_masked((t, t), (t, t), t, t)  # wrong
deep_gemm.set_num_sms("all")  # wrong
deep_gemm.fp8_mqa_logits(t, (t, t), t, t, t, max_seqlen="k")  # wrong
