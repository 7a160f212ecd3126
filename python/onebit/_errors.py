# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""One exception for each status of the C library. Its text names the rank and what was wrong."""

from typing import Dict, Type

from onebit._values import Status


class Error(Exception):
    """An error of a call of the C library. All classes below are kinds of it."""

    status = Status.INTERNAL


class InvalidArgument(Error, ValueError):
    """A value is out of range, a buffer is misaligned or overlaps another."""

    status = Status.INVALID_ARGUMENT


class InvalidHandle(Error, ValueError):
    """The object is closed, or belongs to the process that this one was forked from."""

    status = Status.INVALID_HANDLE


class Mismatch(Error, ValueError):
    """The ranks passed different counts, types or settings."""

    status = Status.MISMATCH


class Nonfinite(Error, ArithmeticError):
    """Some rank's values have a NaN or an infinity. Nothing has changed, on any rank."""

    status = Status.NONFINITE


class Busy(Error, RuntimeError):
    """Another thread uses the object, or a started operation isn't finished."""

    status = Status.BUSY


class BadState(Error, ValueError):
    """A saved state is truncated, corrupt or of another shape."""

    status = Status.BAD_STATE


class FileError(Error, OSError):
    """A file could not be read or written."""

    status = Status.IO


class Unsupported(Error, NotImplementedError):
    """Valid, but not in this build of the library."""

    status = Status.UNSUPPORTED


class OutOfMemory(Error, MemoryError):
    """A rank could not allocate."""

    status = Status.OUT_OF_MEMORY


class TransportError(Error, ConnectionError):
    """A peer is gone, or the transport failed. The object is broken: close it."""

    status = Status.TRANSPORT


class Timeout(Error, TimeoutError):
    """A peer did not answer in time. The object is broken: close it."""

    status = Status.TIMEOUT


class Internal(Error, RuntimeError):
    """A GPU failed, if the text says so; otherwise a bug in onebit. The object is broken: close it."""

    status = Status.INTERNAL


class Cancelled(Error, RuntimeError):
    """A rank gave the step up. Nothing has changed, on any rank; the next step may follow."""

    status = Status.CANCELLED


_BY_STATUS: Dict[int, Type[Error]] = {kind.status: kind for kind in Error.__subclasses__()}


def of_status(status: int, text: str) -> Error:
    """The exception for a status other than SUCCESS."""
    return _BY_STATUS.get(status, Error)(text)
