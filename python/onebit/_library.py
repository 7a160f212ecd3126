# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Finds the shared library, and loads it once.

Looked for, in this order:
  1. the file that the environment variable ONEBIT_LIBRARY names
  2. onebit/lib/libonebit.so* in this package
  3. libonebit.so.0.1, where the system's loader looks (LD_LIBRARY_PATH, /etc/ld.so.conf)
"""

import ctypes
import os
from pathlib import Path

from onebit import _c, _errors

SONAME = f"libonebit.so.{_c.VERSION_MAJOR}.{_c.VERSION_MINOR}"


def _find() -> str:
    named = os.environ.get("ONEBIT_LIBRARY")
    if named:
        return named
    bundled = sorted(Path(__file__).parent.glob("lib/libonebit.so*"))
    return str(bundled[0]) if bundled else SONAME


def _load() -> ctypes.CDLL:
    path = _find()
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"onebit: can't load its C library: {error}. Set the environment variable ONEBIT_LIBRARY to the file "
            f"{SONAME}, or put its folder into LD_LIBRARY_PATH"
        ) from error
    _declare(library)
    version = library.onebit_version_number()
    if version // 100 != _c.VERSION_NUMBER // 100:
        raise ImportError(
            f"onebit: {path} is version {library.onebit_version().decode()}; this package needs "
            f"{_c.VERSION_MAJOR}.{_c.VERSION_MINOR}"
        )
    return library


def _declare(library: ctypes.CDLL) -> None:
    """Gives each function its types. A function that returns a status raises it instead, if it isn't SUCCESS."""
    for name, (result, parameters) in _c.FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            setattr(library, name, _missing(name))
            continue
        function.argtypes = parameters
        function.restype = ctypes.c_int if result is None else result
        if result is None:
            function.errcheck = _raise_status


def _missing(name: str):
    """Stands for a function that this build of the library lacks, as one without MPI lacks that of MPI."""

    def function(*_):
        raise _errors.Unsupported(f"the C library that is loaded has no {name}")

    return function


def _raise_status(status, _function, _arguments):
    if status:
        raise _errors.of_status(status, library.onebit_last_error().decode(errors="replace"))
    return status


library = _load()
