# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Rank 0's bytes on every rank, by the exact sums that all communicators have."""

import zlib

import numpy

from onebit._errors import Mismatch
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator

_PIECE = 1 << 22  # elements of a sum, two bytes each


def require_same(description: str, comm: Communicator) -> None:
    """Raises Mismatch on every rank, where a rank's description isn't rank 0's. Collective; blocks."""
    mine = zlib.crc32(description.encode()).to_bytes(4, "little")
    theirs = broadcast(numpy.frombuffer(mine, numpy.uint8), comm).tobytes()
    differs = numpy.zeros(comm.size, numpy.float32)
    differs[comm.rank] = mine != theirs
    with Allreduce(comm, differs, algorithm="dense", op="sum") as allreduce:
        ranks = numpy.flatnonzero(allreduce.run(differs)).tolist()
    if ranks:
        raise Mismatch(f"ranks {ranks} have other types, shapes or structures than rank 0; here: {description[:200]}")


def broadcast(mine: numpy.ndarray, comm: Communicator) -> numpy.ndarray:
    """Rank 0's bytes, a new array. Collective; blocks.

    mine  flat, uint8, as many on every rank

    Two bytes are one element of a sum, exact in float32, to which other ranks add zeros.
    """
    halves = numpy.zeros((mine.size + 1) // 2, numpy.uint16)
    halves.view(numpy.uint8)[: mine.size] = mine
    values = numpy.zeros(max(min(halves.size, _PIECE), comm.size), numpy.float32)
    with Allreduce(comm, values, algorithm="dense", op="sum") as allreduce:
        for begin in range(0, halves.size, _PIECE):
            piece = halves[begin : begin + _PIECE]
            values[: piece.size] = piece if comm.rank == 0 else 0
            allreduce.run(values)
            piece[:] = values[: piece.size]
    return halves.view(numpy.uint8)[: mine.size]
