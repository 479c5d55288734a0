# SPDX-License-Identifier: Apache-2.0
"""quern on PyTorch's CUDA tensors: results, streams, graphs, devices, custom ops. Skipped where there is no CUDA device."""

import importlib.util
import shutil
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)
import arguments  # noqa: E402
import quern  # noqa: E402
from torch_tools import arguments_of, opcheck, results  # noqa: E402

import quern.compat.flashinfer as flashinfer  # noqa: E402
from quern.compat import _fallback as plain  # noqa: E402

ON_CPU_ALONE = {"convert_fp8"}
NAMES = [name for name in arguments.NAMES if name not in ON_CPU_ALONE and not name.startswith("gemm")]
# Sums in another order, angles and exponentials of another instruction: a step of the result's type, or a little f32.
STEP = {torch.float32: 2.0**-16, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, torch.float8_e4m3fn: 2.0**-3}


def run(name, device):
    values = arguments_of(name, device)
    getattr(quern._ops, name)(*values)
    return results(name, values)


def slow(stream_cycles=200_000_000):
    """Keeps the current stream busy for about 0.1 s, so that work on another stream would come too early."""
    torch.cuda._sleep(stream_cycles)


@pytest.mark.parametrize("name", NAMES)
def test_same_as_on_the_cpu(name):
    got, want = run(name, "cuda"), run(name, "cpu")
    for a, b in zip(got, want, strict=True):
        assert a.is_cuda and a.dtype == b.dtype
        step = STEP.get(a.dtype, 0.0)
        # weights of attention, and their gradients, are rounded to q's kind: what cancels keeps the error of what it is made from
        floor = step * float(b.float().abs().max()) if name in ("attention", "attention_backward", "mla_decode") else step * 2.0**-6
        torch.testing.assert_close(a.cpu().float(), b.float(), rtol=step, atol=floor)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("rows, hidden", [(1, 4096), (64, 7168), (19, 500), (99, 111), (0, 64)])
def test_norms_and_activations_against_pytorch(rows, hidden, dtype):
    torch.manual_seed(1)
    x, residual = torch.randn(2, rows, hidden, device="cuda").to(dtype)
    weight = torch.randn(hidden, device="cuda").to(dtype)
    step = STEP[dtype]
    out = torch.empty_like(x)
    plain.rmsnorm(out, x, weight, 1e-6)
    torch.testing.assert_close(flashinfer.rmsnorm(x, weight), out, rtol=step, atol=step)
    plain.layernorm(out, x, weight, weight, 1e-6)
    torch.testing.assert_close(flashinfer.layernorm(x, weight, weight), out, rtol=step, atol=4 * step)
    ours, theirs = (x.clone(), residual.clone()), (x.clone(), residual.clone())
    flashinfer.fused_add_rmsnorm(*ours, weight)
    plain.fused_add_rmsnorm(*theirs, weight, 1e-6)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=step, atol=step)
    both = torch.cat([x, residual], -1)
    for name in ("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"):
        getattr(plain, name)(out, both)
        torch.testing.assert_close(getattr(flashinfer, name)(both), out, rtol=step, atol=step)


def test_rope_against_pytorch():
    torch.manual_seed(2)
    qkv = torch.randn(4608, 40, 128, device="cuda").bfloat16()
    q, k, positions = qkv[:, :24], qkv[:, 24:32], torch.randint(1 << 20, (4608,), device="cuda")
    want = torch.empty_like(q), torch.empty_like(k)
    plain.apply_rope_pos_ids(*want, q, k, positions, 128, False, 1.0, 1e4)
    for a, b in zip(flashinfer.apply_rope_pos_ids(q, k, positions), want, strict=True):
        torch.testing.assert_close(a, b, rtol=2.0**-7, atol=2.0**-7)


def test_current_stream():
    """Tests an input that is filled late on a stream of its own: the op has to wait for that, and for nothing else."""
    x, weight = torch.zeros(64, 4096, device="cuda"), torch.ones(4096, device="cuda")
    filled = torch.randn(64, 4096, device="cuda")
    want = quern.rmsnorm(filled, weight)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        slow()
        x.copy_(filled)
        got = quern.rmsnorm(x, weight)
        by_op = torch.empty_like(x)
        torch.ops.quern.rmsnorm(by_op, x, weight, 1e-6)
    stream.synchronize()
    assert torch.equal(got, want) and torch.equal(by_op, want)


def test_a_busy_stream_is_not_waited_for():
    x, weight = torch.randn(4, 64, device="cuda"), torch.ones(64, device="cuda")
    busy, ours = torch.cuda.Stream(), torch.cuda.Stream()
    quern.rmsnorm(x, weight)  # the driver loads a kernel at its first launch, and may wait for the device then
    torch.cuda.synchronize()
    with torch.cuda.stream(busy):
        slow(2_000_000_000)
    with torch.cuda.stream(ours):
        quern.rmsnorm(x, weight)
    ours.synchronize()
    assert not busy.query()
    busy.synchronize()


def test_graph_capture():
    x, weight, positions = torch.randn(16, 512, device="cuda"), torch.ones(512, device="cuda"), torch.arange(16, device="cuda")
    positions, out, cells = positions.int(), torch.empty(16, 512, device="cuda"), None
    quern.apply_rope_pos_ids(x.view(16, 4, 128), None, positions)  # kernels are loaded before the capture
    quern.rmsnorm(x, weight, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        quern.rmsnorm(x, weight, out=out)
        cells = quern.apply_rope_pos_ids(out.view(16, 4, 128), None, positions)[0]
    x.copy_(torch.randn_like(x))
    graph.replay()
    want = quern.rmsnorm(x, weight)
    assert torch.equal(out, want)
    assert torch.equal(cells, quern.apply_rope_pos_ids(want.view(16, 4, 128), None, positions)[0])


def test_the_context_is_left_as_it_was():
    before = torch.cuda.current_device()
    quern.rmsnorm(torch.randn(4, 64, device="cuda"), torch.ones(64, device="cuda"))
    assert torch.cuda.current_device() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one CUDA device")
def test_device_index():
    """Tests tensors of cuda:1 while cuda:0 is current, with and without a stream of cuda:1's."""
    x, weight = torch.randn(64, 4096), torch.randn(4096)
    there = x.to("cuda:1"), weight.to("cuda:1")
    want = quern.rmsnorm(x.cuda(0), weight.cuda(0)).cpu()
    with torch.cuda.device(0):
        got = quern.rmsnorm(*there)
        assert got.device == torch.device("cuda:1") and torch.equal(got.cpu(), want)
        stream = torch.cuda.Stream(device="cuda:1")
        with torch.cuda.stream(stream):
            slow()
            late = torch.zeros_like(there[0])
            late.copy_(there[0])
            got = quern.rmsnorm(late, there[1])
        stream.synchronize()
        assert torch.equal(got.cpu(), want)
    with pytest.raises(ValueError, match="rmsnorm: weight is on DLPack device"):
        quern.rmsnorm(there[0], weight.cuda(0))


def test_mixed_devices_are_refused():
    x, weight = torch.randn(4, 64, device="cuda"), torch.ones(64)
    out = torch.full_like(x, 7)
    with pytest.raises(ValueError, match="rmsnorm: weight is on DLPack device"):
        quern.rmsnorm(x, weight, out=out)
    assert (out == 7).all()


def test_threads_have_streams_of_their_own():
    inputs = [torch.randn(256, 4096, device="cuda") for _ in range(4)]
    weight, got = torch.ones(4096, device="cuda"), [None] * 4
    want = [quern.rmsnorm(x, weight) for x in inputs]
    torch.cuda.synchronize()

    def work(i):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(50):
                got[i] = quern.rmsnorm(inputs[i], weight)
        stream.synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_own_tensors():
    x = torch.randn(5, 7, device="cuda")
    assert (quern.numpy(x) == x.cpu().numpy()).all()
    there = quern.to(x.cpu(), "cuda:0")
    assert torch.equal(torch.from_dlpack(there), x)
    assert quern.device("cuda:0").dlpack == (2, 0)


@pytest.mark.parametrize("first, second", [("quern", "torch"), ("torch", "quern")])
def test_one_context_for_both(first, second):
    """Tests that memory of one library is good in the other, in one process, whichever meets the device first."""
    use = {"quern": "import quern; a = quern.to(__import__('numpy').ones((4, 64), 'float32'), 'cuda:0')",
           "torch": "import torch; b = torch.ones(4, 64, device='cuda')"}
    code = (f"{use[first]}\n{use[second]}\nimport torch\n"
            "w = torch.ones(64, device='cuda'); x = torch.from_dlpack(a)\n"
            "assert torch.allclose(quern.rmsnorm(x, w), b) and torch.allclose(quern.rmsnorm(b, w), b)")
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name):
    opcheck(name, arguments_of(name, "cuda"))


def block(x, residual, weight, positions):
    y = quern.rmsnorm(x * 2, weight)
    quern.fused_add_rmsnorm(y, residual, weight)
    q = quern.apply_rope_pos_ids(y.view(-1, 4, 128), None, positions)[0]
    return quern.silu_and_mul(q.reshape(-1, 512)) + 1, residual


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_is_one_graph_with_the_same_bits(backend):
    if backend == "inductor" and not (importlib.util.find_spec("triton") and (shutil.which("gcc") or shutil.which("clang"))):
        pytest.skip("inductor needs Triton and a C compiler")
    torch.manual_seed(3)
    x, residual, weight = (torch.randn(shape, device="cuda") for shape in ((19, 512), (19, 512), (512,)))
    positions, copy = torch.arange(19, device="cuda", dtype=torch.int32), residual.clone()
    want = block(x, residual, weight, positions)
    got = torch.compile(block, fullgraph=True, backend=backend)(x, copy, weight, positions)
    for a, b in zip(got, want, strict=True):
        assert torch.equal(a, b)
