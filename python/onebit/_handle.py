# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What communicators, collectives and optimizers have in common: they own a handle of the C library."""

import warnings
import weakref
from typing import Optional

from onebit._errors import Error, InvalidHandle

_kept: list = []


def keep_for_good(buffers) -> None:
    """Keeps buffers that other ranks, or MPI, may still touch: after TransportError, Timeout or a failed destroy."""
    _kept.append(buffers)


class Handle:
    """Owns a handle of the C library. Closed by `close()`, at the end of a `with` block, or by garbage collection.

    Over NCCL closing is collective. Garbage collection can't close there: it warns (ResourceWarning).
    A closed handle keeps its number, which the library never gives out again: calls on it raise InvalidHandle.
    """

    def __init__(self, handle: Optional[int], destroy, *, collective: bool, finished, buffers=None):
        """
        destroy     the library's function
        collective  whether every rank must call it
        finished    a function that tells whether the transport has ended (MPI_Finalize): nothing is destroyed then
        buffers     the library knows their addresses
        """
        self._number = handle
        self._destroy = destroy
        self._collective = collective
        self._finished = finished
        self._buffers = buffers
        self._finalizer: weakref.finalize = (
            weakref.finalize(self, _warn, type(self).__name__)
            if collective
            else weakref.finalize(self, _destroy_left_open, handle, destroy, finished, buffers)
        )
        self._finalizer.atexit = not collective

    @property
    def _handle(self) -> Optional[int]:
        """For calls of the C library. Raises InvalidHandle once MPI has ended: a call of MPI would end the process."""
        if self._finished():
            raise InvalidHandle(f"MPI_Finalize has been called: this {type(self).__name__} can't be used any more")
        return self._number

    @property
    def closed(self) -> bool:
        """Whether `close()` has been called. Local."""
        return not self._finalizer.alive

    def close(self) -> None:
        """Releases the handle; a second call does nothing. Local; over NCCL collective.

        Raises Busy while a started operation isn't finished.
        """
        if self._finalizer.alive:
            if not self._finished():
                self._destroy(self._number)
            self._finalizer.detach()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()


def _destroy_left_open(handle, destroy, finished, buffers) -> None:
    if finished():
        return
    try:
        destroy(handle)
    except Error:
        keep_for_good(buffers)


def _warn(name: str) -> None:
    warnings.warn(
        f"onebit: an {name} over NCCL was not closed: call close() on every rank", ResourceWarning, stacklevel=2
    )
