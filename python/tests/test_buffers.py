# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

import onebit
from onebit import _buffers

torch = pytest.importorskip("torch")


class OnlyDlpack:
    """An array that has no other door."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **stream):
        return self._array.__dlpack__(**stream)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class OnCuda:
    __cuda_array_interface__ = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None}


@pytest.mark.parametrize("wrap", [lambda a: a, torch.from_numpy, OnlyDlpack, lambda a: OnlyDlpack(torch.from_numpy(a))])
def test_every_door_leads_to_the_same_memory(wrap):
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    buffer = _buffers.view(wrap(array), "array")
    assert (buffer.address, buffer.size, buffer.dtype, buffer.device) == (array.ctypes.data, 24, "float32", "cpu")


@pytest.mark.parametrize("wrap", [lambda a: a, torch.from_numpy, OnlyDlpack])
def test_only_contiguous_arrays(wrap):
    array = np.zeros((4, 6), np.float32)
    _buffers.view(wrap(array[1:3]), "array")
    _buffers.view(wrap(array[:, 2:3][:1]), "array")  # one element, whatever its strides
    for part in (array[:, 1:], array.T, array[::2]):
        with pytest.raises(onebit.InvalidArgument, match="array is not contiguous"):
            _buffers.view(wrap(part), "array")


@pytest.mark.parametrize(
    "array", [np.zeros(3), torch.zeros(3, dtype=torch.int32), OnlyDlpack(np.zeros(3, np.int8)), 7, None]
)
def test_only_float32(array):
    with pytest.raises(TypeError):
        _buffers.view(array, "array")


def test_half_precision_where_it_is_allowed():
    for array, dtype in (
        (np.zeros(3, np.float16), "float16"),
        (torch.zeros(3, dtype=torch.bfloat16), "bfloat16"),
        (OnlyDlpack(torch.zeros(3, dtype=torch.bfloat16)), "bfloat16"),
    ):
        assert _buffers.view(array, "array", dtypes=("float16", "bfloat16")).dtype == dtype


def test_an_array_that_never_changes_is_only_read():
    class OfJax(OnlyDlpack):
        __module__ = "jaxlib.something"

    array = OfJax(np.zeros(3, np.float32))
    assert _buffers.view(array, "array").size == 3
    with pytest.raises(onebit.InvalidArgument, match="array is read-only"):
        _buffers.view(array, "array", writable=True)


def test_a_gpus_memory():
    buffer = _buffers.view(OnCuda(), "array")
    assert (buffer.address, buffer.size, buffer.device) == (4096, 6, "cuda")
    (comm,) = onebit.loopback(1)
    with pytest.raises(onebit.InvalidArgument, match="cuda memory; cpu wanted"):
        onebit.Allreduce(comm, 6).run(OnCuda())


def test_sparse_tensors_are_refused():
    with pytest.raises(onebit.InvalidArgument):
        _buffers.view(torch.zeros(3).to_sparse(), "array")


def test_an_allreduce_of_tensors():
    (comm,) = onebit.loopback(1)
    tensor = torch.ones(2, 512)
    result = torch.empty(2, 512)
    allreduce = onebit.Allreduce(comm, tensor, algorithm="dense")
    assert allreduce.run(tensor, result) is result
    assert torch.equal(tensor, result)
    assert np.array_equal(allreduce.run(tensor.numpy()), np.ones((2, 512)))
