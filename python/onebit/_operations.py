# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Operations that one call starts and other calls finish, and the callbacks of finished operations."""

import threading
import weakref
from typing import Callable, List, Optional

from onebit import _c, _errors
from onebit._errors import Timeout, TransportError
from onebit._handle import Handle, keep_for_good
from onebit._library import library

_thread = threading.local()
Callback = Callable[[Optional[_errors.Error]], None]


class OperationHandle(Handle):
    """A Handle with such operations."""

    _callback = _c.Callback()

    def _finish(self, function, *arguments) -> None:
        """Calls a function that may finish an operation, and then call the callback."""
        try:
            function(self._handle, *arguments)
        except (TransportError, Timeout):
            keep_for_good(tuple(self._buffers))
            raise
        finally:
            raise_failure()

    def _finished_with(self, error: Optional[_errors.Error]) -> None:
        """Called before the callback, which may start the next operation."""
        if isinstance(error, (TransportError, Timeout)):
            keep_for_good(tuple(self._buffers))

    def _set_callback(self, setter, function: Optional[Callback]) -> None:
        """`setter`: the library's function."""
        callback = _callback_of(self, function)
        setter(self._handle, callback, None)
        self._callback = callback  # lives as long as the library may call it


def _callback_of(owner: OperationHandle, function: Optional[Callback]):
    """The C function that calls owner._finished_with(error) and function(error). It must outlive its use."""
    if function is None:
        return _c.Callback()
    reference = weakref.ref(owner)

    def call(_context, status):
        error = None
        if status:
            error = _errors.of_status(status, library.onebit_last_error().decode(errors="replace"))
        try:
            handle = reference()
            if handle is not None:
                handle._finished_with(error)
            function(error)
        except BaseException as failure:  # an exception can't pass through C
            _failures().append(failure)

    return _c.Callback(call)


def raise_failure() -> None:
    """After a call that may have called callbacks: raises the first exception that one of them raised."""
    failures = _failures()
    if failures:
        failure = failures[0]
        failures.clear()
        raise failure


def _failures() -> List[BaseException]:
    if not hasattr(_thread, "failures"):
        _thread.failures = []
    return _thread.failures
