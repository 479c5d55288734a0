# SPDX-License-Identifier: Apache-2.0
"""quern.Tensor as a user of NumPy expects it: content, views, copies, pickles, and errors where its memory is not the host's."""

import copy
import gc
import pickle
import re

import ml_dtypes
import numpy as np
import pytest
import quern
from tools import normal

SPECS = ["cpu", "sim:gfx942", "sim:gfx1151"]
DTYPES = [np.float32, np.int32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]


def bits(x):
    return np.ascontiguousarray(x).tobytes()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_it_is(spec, dtype):
    x = quern.to((normal(1, (3, 5)) * 9).astype(dtype), spec)
    assert (x.shape, x.strides, x.ndim, x.size, len(x), x.dtype) == ((3, 5), (5, 1), 2, 15, 3, np.dtype(dtype))
    assert (x.itemsize, x.nbytes, x.is_contiguous()) == (np.dtype(dtype).itemsize, 15 * np.dtype(dtype).itemsize, True)
    assert x.device is quern.device(spec) or x.device == quern.device(spec)
    assert str(x.device) == spec


INDICES = [0, -1, slice(1, None), slice(None, None, 2), slice(9, 2), (1, 2), (slice(None), 3), (..., -2), (None, 1),
           (slice(0, 3, 2), slice(4, 0)), (slice(-2, None), None, slice(1, 4, 2)), (), ..., (np.int64(2), slice(None))]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("index", INDICES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_views(spec, index, dtype):
    array = (normal(2, (3, 5)) * 9).astype(dtype)
    view = quern.to(array, spec)[index]
    want = np.asarray(array[index])
    assert view.shape == want.shape and bits(quern.numpy(view)) == bits(want)


@pytest.mark.parametrize("index, text", [(3, "index 3 is out of range; accepted: -3 to 2"), ((0, 0, 0), "found 3 indices; accepted: 2"),
                                         ("a", "an index is a str"), (1.5, "an index is a float"), (slice(None, None, -1), "step -1")])
def test_what_is_no_index(index, text):
    with pytest.raises(IndexError, match=text):
        quern.to(normal(1, (3, 5)), "cpu")[index]


def test_a_view_keeps_the_memory():
    """Tests that a view keeps the memory, also for a taker over DLPack."""
    views = [np.from_dlpack(quern.to(np.full((4, 1 << 12), i, np.float32), "cpu")[1:, ::2]) for i in range(32)]
    views += [quern.to(np.full((4, 1 << 12), i, ml_dtypes.bfloat16), "cpu")[2].numpy() for i in range(32)]
    gc.collect()
    assert all((view == i % 32).all() for i, view in enumerate(views))


@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_on_the_host_shares_memory(dtype):
    x = quern.to(np.zeros((2, 3), dtype), "cpu")
    x[1].numpy()[:] = 1
    assert np.asarray(x).astype(float).tolist() == [[0, 0, 0], [1, 1, 1]] and np.asarray(x).dtype == dtype
    assert np.asarray(x, np.float64).dtype == np.float64 and float(np.add(x, 1).astype(float).sum()) == 9


def test_numpy_elsewhere_is_refused_by_name():
    x = quern.to(np.zeros(3, np.float32), "sim:gfx942")
    for call in (x.numpy, lambda: np.asarray(x), lambda: np.add(x, 1)):
        with pytest.raises(TypeError, match=re.escape("the tensor is on sim:gfx942; quern.numpy(x) copies it to the host")):
            call()


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_and_pickles(spec, dtype):
    array = (normal(3, (3, 5)) * 9).astype(dtype)
    x = quern.to(array, spec)
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.deepcopy(x[:, ::2])):
        want = array if other.shape == (3, 5) else array[:, ::2]
        assert isinstance(other, quern.Tensor) and other.device == x.device and other.data_ptr() != x.data_ptr()
        assert other.dtype == dtype and bits(quern.numpy(other)) == bits(want)


def test_text_and_truth():
    x = quern.to(np.arange(3, dtype=np.float32), "sim:gfx1151")
    assert repr(x) == "quern.Tensor([0., 1., 2.], shape=(3,), dtype=float32, device='sim:gfx1151')"
    assert bool(x[1]) and not x[0]
    with pytest.raises(ValueError, match="ambiguous"):
        bool(x)
    with pytest.raises(TypeError, match="len"):
        len(x[0])
    with pytest.raises(TypeError, match="found a list"):
        quern.Tensor([1])


def test_a_view_is_an_argument():
    x, weight = normal(4, (6, 64)), np.ones(64, np.float32)
    for spec in SPECS:
        there = quern.to(x, spec)
        out = quern.rmsnorm(there[1::2], quern.to(weight, spec))
        assert bits(quern.numpy(out)) == bits(quern.numpy(quern.rmsnorm(quern.to(x[1::2], spec), quern.to(weight, spec))))
