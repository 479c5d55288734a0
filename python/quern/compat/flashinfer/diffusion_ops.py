# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's norms of image and video models, under their second module's name."""

from ._norm_fused import (fused_dit_gate_residual_layernorm_gamma_beta, fused_dit_gate_residual_layernorm_scale_shift,
                          fused_dit_residual_layernorm_scale_shift, fused_qk_rmsnorm_rope)

__all__ = ["fused_dit_gate_residual_layernorm_gamma_beta", "fused_dit_gate_residual_layernorm_scale_shift",
           "fused_dit_residual_layernorm_scale_shift", "fused_qk_rmsnorm_rope"]
