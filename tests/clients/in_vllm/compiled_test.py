# SPDX-License-Identifier: Apache-2.0
"""vLLM's custom ops by quern inside torch.compile, as vLLM compiles models: whole graphs, in which quern's ops are."""

import pytest
import torch
from aiter_tools import BF16
from deep_gemm_tools import randn
from vllm.model_executor.layers import activation, layernorm, rotary_embedding
from vllm.model_executor.layers.quantization.input_quant_fp8 import QuantFP8
from vllm.model_executor.layers.quantization.utils.quant_utils import GroupShape

H = 256
OPS = {
    "rmsnorm": (lambda: layernorm.RMSNorm(H, dtype=BF16), lambda: (randn(5, H, dtype=BF16),)),
    "fused_add_rmsnorm": (lambda: layernorm.RMSNorm(H, dtype=BF16), lambda: (randn(5, H, dtype=BF16), randn(5, H, dtype=BF16, seed=1))),
    "silu_and_mul": (activation.SiluAndMul, lambda: (randn(5, 2 * H, dtype=BF16),)),
    "moe_activate": (activation.SwigluOAIAndMul, lambda: (randn(5, 2 * H, dtype=BF16),)),
    "apply_rope_with_cos_sin_cache": (lambda: rotary_embedding.RotaryEmbedding(64, 64, 128, 1e4, True, BF16),
                                      lambda: (torch.arange(5), randn(5, H, dtype=BF16), randn(5, 128, dtype=BF16, seed=1))),
    "quantize_groups": (lambda: QuantFP8(static=False, group_shape=GroupShape(1, 128)), lambda: (randn(5, H, dtype=BF16),)),
}


@pytest.mark.parametrize("name", list(OPS))
def test_whole_graph(name):
    made, arguments = OPS[name]
    op, graphs = made(), []

    def keep(graph, _):
        graphs.append(graph)
        return graph.forward

    with torch.inference_mode():
        want, got = op(*arguments()), torch.compile(op, fullgraph=True, backend=keep, dynamic=True)(*arguments())
    targets = {str(node.target) for graph in graphs for node in graph.graph.nodes}
    assert any(f"quern.{name}" in target for target in targets), targets
    for x, y in zip(*((t,) if isinstance(t, torch.Tensor) else t for t in (got, want)), strict=True):
        assert torch.equal(x.view(torch.uint8), y.view(torch.uint8))


def test_what_stays_vllms(caplog):
    norm, x = layernorm.RMSNorm(H, var_hidden_size=100, dtype=BF16), randn(5, H, dtype=BF16)
    with torch.inference_mode():
        assert torch.equal(torch.compile(norm, fullgraph=True, backend="eager")(x), norm.forward_native(x))
    assert "its variance is that of some columns" in caplog.text
