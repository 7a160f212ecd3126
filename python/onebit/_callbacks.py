# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the C library calls when a started operation is finished."""

import threading
import weakref
from typing import Callable, List, Optional

from onebit import _c, _errors
from onebit._library import library

_thread = threading.local()


def callback(owner, function: Optional[Callable[[Optional[_errors.Error]], None]]):
    """The C function that has owner._finished_with(error) and function(error) called. It must outlive its use."""
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
    """Behind a call that may have called back: raises the first exception that left a callback in it."""
    failures = _failures()
    if failures:
        failure = failures[0]
        failures.clear()
        raise failure


def _failures() -> List[BaseException]:
    if not hasattr(_thread, "failures"):
        _thread.failures = []
    return _thread.failures
