# SPDX-License-Identifier: Apache-2.0
"""Graphs of torch.compile and quern.torch.enable(), in either order: none runs the attention of another time."""

import logging
import shutil
import threading

import pytest

torch = pytest.importorskip("torch")
import quern.torch  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as sdpa  # noqa: E402

needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")),
                                    reason="inductor needs a C++ compiler")


@pytest.fixture(autouse=True)
def afresh():
    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad():
        yield
    quern.torch.disable()


def attend(x):
    return sdpa(x, x, x) * 2


def other(x):
    return sdpa(x, x, x) * 3


def inputs(n=8):
    return torch.randn(1, 2, n, 64)


def compiled(function, **options):
    return torch.compile(function, fullgraph=True, **{"backend": "aot_eager", **options})


def graphs():
    return counters["stats"]["unique_graphs"]


def said(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "quern.torch"]


def test_a_graph_made_after_another_one():
    """Tests a graph made after another one. PyTorch keeps for tracers which kernel an operator had when it was first
    traced."""
    x = inputs()
    compiled(attend)(x)
    with quern.torch.enable(fallback="error") as registration:
        assert torch.equal(compiled(other)(x), other(x))
        assert registration.calls.total() == 2
    before = quern.torch.calls.total()
    compiled(lambda x: other(x) + 1)(x)
    assert quern.torch.calls.total() == before


def test_a_function_compiled_before_is_compiled_again_once(caplog):
    x, function = inputs(), compiled(attend)
    plain = function(x)
    made = graphs()
    for _ in range(3):
        with quern.torch.enable(fallback="error") as registration:
            function(x)
            assert registration.calls.total() == 1
        assert torch.equal(function(x), plain) and registration.calls.total() == 1
    assert graphs() == made + 1  # each graph stays for its own time
    assert len(said(caplog)) == 1 and f"attend ({__file__}:" in said(caplog)[0]
    with quern.torch.enable("sim:gfx942", allow_slow=True):
        function(x)
        assert quern.last_kernel().startswith("attention.gpu")


def test_nothing_is_said_where_nothing_was_compiled(caplog):
    with caplog.at_level(logging.WARNING, "quern.torch"), quern.torch.enable():
        compiled(attend)(inputs())
    with quern.torch.enable():
        pass
    assert not said(caplog)


@needs_compiler
def test_graphs_on_disk(tmp_path, monkeypatch):
    """Tests graphs on disk. Their keys have PyTorch's operator alone. Each side finds its own again, in other threads
    as well."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    x, calls = inputs(), []
    for is_enabled in (False, True, False, True):
        torch._dynamo.reset()
        before = quern.torch.calls.total()
        if is_enabled:
            quern.torch.enable(fallback="error")
        thread = threading.Thread(target=torch.no_grad()(compiled(attend, backend="inductor")), args=[x])
        thread.start()
        thread.join()
        quern.torch.disable()
        calls.append(quern.torch.calls.total() - before)
    assert calls == [0, 1, 0, 1]
    hits = counters["aot_autograd"]["autograd_cache_hit"]
    assert hits == 2 or "autograd_cache_miss" not in counters["aot_autograd"]  # earlier PyTorch keeps none on disk by itself
