# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the DLPack capsule of an array (https://dmlc.github.io/dlpack), without taking it over."""

import ctypes
from typing import Any, NamedTuple, Optional, Tuple

_KINDS = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16"}
_DEVICES = {1: "cpu", 3: "cpu", 2: "cuda", 13: "cuda"}  # host, pinned host, CUDA, managed
_NO_SYNCHRONISATION = -1


class _Tensor(ctypes.Structure):
    """DLTensor, the first member of DLManagedTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Found(NamedTuple):
    address: int
    shape: Tuple[int, ...]
    strides: Optional[Tuple[int, ...]]  # in elements; None: contiguous
    dtype: str
    device: str
    capsule: Any  # deleting it releases the memory


def read(array) -> Found:
    """Where the elements lie. The caller orders its work on a GPU: no stream is waited for."""
    on_host = _DEVICES.get(int(array.__dlpack_device__()[0])) == "cpu"
    capsule = array.__dlpack__() if on_host else array.__dlpack__(stream=_NO_SYNCHRONISATION)
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    dtype = _KINDS.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    return Found(
        (tensor.data or 0) + tensor.byte_offset,
        tuple(tensor.shape[: tensor.ndim]),
        tuple(tensor.strides[: tensor.ndim]) if tensor.strides else None,
        dtype or f"type {tensor.code} of {tensor.bits} bits",
        _DEVICES.get(tensor.device_type, f"device type {tensor.device_type}"),
        capsule,
    )
