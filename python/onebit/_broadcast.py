# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Sends one rank's bytes to every rank, by the exact sums that all communicators have."""

import contextlib
import zlib
from typing import Iterator

import numpy

from onebit._errors import Mismatch
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator

_PIECE = 1 << 22  # elements of a sum, two bytes each
_SHOWN = 200  # bytes of a description


@contextlib.contextmanager
def failing_together(comm: Communicator) -> Iterator[None]:
    """If the block raises on this rank, the `require_same` that other ranks come to raises Mismatch there."""
    try:
        yield
    except Exception as failure:
        with contextlib.suppress(Mismatch):
            require_same(f"{type(failure).__name__}: {failure}", comm)
        raise


def require_same(description: str, comm: Communicator) -> None:
    """Raises Mismatch on every rank if a rank's description isn't rank 0's. Collective; blocks."""
    text = description.encode()
    mine = _bytes(zlib.crc32(text).to_bytes(4, "little"))
    differs = numpy.zeros(comm.size, numpy.float32)
    differs[comm.rank] = (broadcast(mine, comm) != mine).any()
    with Allreduce(comm, differs, algorithm="dense", op="sum") as allreduce:
        ranks = numpy.flatnonzero(allreduce.run(differs)).tolist()
    if ranks:
        shown = _bytes(text[:_SHOWN].ljust(_SHOWN))
        first, other = (broadcast(shown, comm, rank).tobytes().decode(errors="replace") for rank in (0, ranks[0]))
        raise Mismatch(f"rank {ranks[0]} has {other.strip()}, rank 0 {first.strip()}")


def broadcast(mine: numpy.ndarray, comm: Communicator, source: int = 0) -> numpy.ndarray:
    """Rank `source`'s bytes, a new array. Collective; blocks.

    mine  flat, uint8, as many on every rank

    Two bytes are one element of a sum, exact in float32. The other ranks add zeros.
    """
    halves = numpy.zeros((mine.size + 1) // 2, numpy.uint16)
    halves.view(numpy.uint8)[: mine.size] = mine
    values = numpy.zeros(max(min(halves.size, _PIECE), comm.size), numpy.float32)
    with Allreduce(comm, values, algorithm="dense", op="sum") as allreduce:
        for begin in range(0, halves.size, _PIECE):
            piece = halves[begin : begin + _PIECE]
            values[: piece.size] = piece if comm.rank == source else 0
            allreduce.run(values)
            piece[:] = values[: piece.size]
    return halves.view(numpy.uint8)[: mine.size]


def _bytes(text: bytes) -> numpy.ndarray:
    return numpy.frombuffer(text, numpy.uint8)
