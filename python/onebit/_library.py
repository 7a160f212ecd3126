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

SOVERSION = f"{_c.VERSION_MAJOR}.{_c.VERSION_MINOR}"
SONAME = f"libonebit.so.{SOVERSION}"


def load_beside(name: str) -> ctypes.CDLL:
    """A library that belongs to libonebit: from libonebit's folder, or from where the system's loader looks.

    Raises OSError.
    """
    beside = Path(_path).parent / name
    return ctypes.CDLL(str(beside) if beside.is_file() else name)


def declare(library: ctypes.CDLL, functions: dict) -> None:
    """Gives each function its types. A function that returns a status raises an Error if the status isn't SUCCESS."""
    for name, (result, parameters) in functions.items():
        function = getattr(library, name)
        function.argtypes = parameters
        function.restype = ctypes.c_int if result is None else result
        if result is None:
            function.errcheck = _raise_status


def _find() -> str:
    named = os.environ.get("ONEBIT_LIBRARY")
    if named:
        return named
    bundled = sorted(Path(__file__).parent.glob("lib/libonebit.so*"))
    return str(bundled[0]) if bundled else SONAME


def _load() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_path)
        version = library.onebit_version_number()
        if version // 100 != _c.VERSION_NUMBER // 100:
            found = f"{version // 10000}.{version // 100 % 100}"
            raise ImportError(f"onebit: {_path} is version {found}; {SOVERSION} wanted")
        declare(library, _c.FUNCTIONS)
    except (AttributeError, OSError) as error:
        raise ImportError(
            f"onebit: can't load its C library: {error}. Set the environment variable ONEBIT_LIBRARY to the file "
            f"{SONAME}, or put its folder into LD_LIBRARY_PATH"
        ) from error
    return library


def _raise_status(status, _function, _arguments):
    if status:
        raise _errors.of_status(status, library.onebit_last_error().decode(errors="replace"))
    return status


_path = _find()
library = _load()
