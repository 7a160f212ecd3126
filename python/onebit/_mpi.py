# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The small library that hands libonebit an MPI's functions: there is one for Open MPI and one for MPICH."""

import functools

from onebit import _c, _errors
from onebit._library import SOVERSION, declare, load_beside


@functools.lru_cache(maxsize=None)
def functions(version: str):
    """The functions of onebit_mpi.h for an MPI whose MPI_Get_library_version says `version`.

    Every MPI but Open MPI is taken for one with MPICH's ABI. Raises Unsupported if there is no library.
    """
    name = f"libonebit_{'openmpi' if 'Open MPI' in version else 'mpich'}.so.{SOVERSION}"
    try:
        library = load_beside(name)
    except OSError as error:
        mpi = version.split(",")[0]
        raise _errors.Unsupported(f"can't load {name}, which onebit needs for {mpi}: {error}") from None
    declare(library, _c.MPI_FUNCTIONS)
    return library
