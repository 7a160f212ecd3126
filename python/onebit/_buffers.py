# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Where an array's elements lie, for arrays of any library. Nothing is copied.

Arrays are PyTorch tensors, or have `__array_interface__` (NumPy), `__cuda_array_interface__` (CuPy, Numba) or
`__dlpack__` (JAX and others).
"""

from typing import Any, NamedTuple

from onebit import _dlpack
from onebit._errors import InvalidArgument

_TYPESTR = {"<f4": "float32", "<f2": "float16"}


class Buffer(NamedTuple):
    """Contiguous elements of one array."""

    address: int
    size: int
    """Elements."""
    dtype: str
    """'float32', 'float16', 'bfloat16', or another library's name for a type that onebit can't use."""
    device: str
    """'cpu' or 'cuda'."""
    readonly: bool
    owner: Any
    """Keeps the memory."""


def view(array, name: str, *, writable: bool = False, dtypes=("float32",)) -> Buffer:
    """The elements of `array`, which messages call `name`.

    Raises TypeError for an object that is no array, and for a type that isn't in `dtypes`. Raises InvalidArgument for
    an array that isn't contiguous, or that is read-only although it must be writable.
    """
    buffer = _of_torch(array, name) if hasattr(array, "data_ptr") else _of_protocol(array, name)
    if buffer.dtype not in dtypes:
        raise TypeError(f"{name} has elements of {buffer.dtype}; {' or '.join(dtypes)} wanted")
    if writable and buffer.readonly:
        raise InvalidArgument(f"{name} is read-only")
    return buffer


def _of_torch(tensor, name) -> Buffer:
    if str(tensor.layout) != "torch.strided" or not tensor.is_contiguous():
        raise InvalidArgument(f"{name} is not contiguous")
    return Buffer(tensor.data_ptr(), tensor.numel(), str(tensor.dtype)[6:], tensor.device.type, False, tensor)


def _of_protocol(array, name) -> Buffer:
    for attribute, device in (("__array_interface__", "cpu"), ("__cuda_array_interface__", "cuda")):
        interface = getattr(array, attribute, None)
        if interface is not None:
            return _of_interface(array, name, interface, device)
    if hasattr(array, "__dlpack__"):
        found = _dlpack.read(array)
        immutable = type(array).__module__.startswith("jax")  # before DLPack 1.0 no array could say so itself
        return Buffer(found.address, _count(found.shape, found.strides, 1, name), found.dtype, found.device, immutable,
                      found.capsule)
    raise TypeError(f"{name} is a {type(array).__name__}; an array or a tensor wanted")


def _of_interface(array, name, interface, device) -> Buffer:
    address, readonly = interface["data"]
    typestr = interface["typestr"]
    count = _count(interface["shape"], interface.get("strides"), int(typestr[2:]), name)
    return Buffer(address, count, _TYPESTR.get(typestr, typestr), device, readonly, array)


def _count(shape, strides, unit, name) -> int:
    """Elements of a contiguous array. `unit`: the stride of neighbours. strides=None: contiguous."""
    count = 1
    for i in range(len(shape) - 1, -1, -1):
        if strides is not None and shape[i] != 1 and strides[i] != count * unit and 0 not in shape:
            raise InvalidArgument(f"{name} is not contiguous")
        count *= shape[i]
    return count
