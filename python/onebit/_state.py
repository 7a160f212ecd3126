# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Saved states as bytes."""

import ctypes

from onebit import _errors


def packed(size, pack, handle) -> bytearray:
    """The bytes that a pack function of the C library writes; `size` is the function that says how many."""
    count = ctypes.c_uint64()
    size(handle, ctypes.byref(count))
    state = bytearray(count.value)
    pack(handle, (ctypes.c_char * count.value).from_buffer(state), count.value)
    return state


def address(state, name: str):
    """(address, number of bytes, what keeps them) of anything bytes-like."""
    import numpy

    try:
        view = numpy.frombuffer(state, numpy.uint8)
    except (TypeError, ValueError, BufferError) as error:
        raise _errors.InvalidArgument(f"{name}: {error}") from None
    return view.ctypes.data, view.size, view
