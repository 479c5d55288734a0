# SPDX-License-Identifier: Apache-2.0
"""quern.compat.deep_gemm on CUDA tensors: each function's results beside the CPU's. Skipped where there is no CUDA device."""

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
from deep_gemm_calls import public_calls  # noqa: E402
from table_tools import tensors  # noqa: E402

import quern.compat.deep_gemm as deep_gemm  # noqa: E402

WITH_TENSORS = [(name, call) for name, call, _ in public_calls() if any(isinstance(x, (torch.Tensor, tuple))
                                                                        for x in call.arguments().values())]


def on_cuda(x):
    """Copies a tensor with its strides, and tensors in tuples, to the GPU."""
    if isinstance(x, tuple):
        return tuple(map(on_cuda, x))
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="cuda").copy_(x)


@pytest.mark.parametrize("name, call", WITH_TENSORS, ids=[name for name, _ in WITH_TENSORS])
def test_like_the_cpu(name, call):
    there = {key: on_cuda(value) for key, value in call.arguments().items()}
    got = tensors(call.function(**there)) + [there[key] for key in call.writes]
    want = call.run()
    for x, y in zip(got, want, strict=True):
        x = x.cpu()
        assert x.shape == y.shape and x.dtype == y.dtype
        if not y.is_floating_point():
            assert torch.equal(x, y)
            continue
        x, y = x.double(), y.double()
        seen = y.isfinite()
        assert torch.equal(x.isfinite(), seen)
        assert deep_gemm.calc_diff(x[seen], y[seen]) < 1e-5  # of bf16 results a few are rounded otherwise
