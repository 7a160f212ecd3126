# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Parameters must be equal on every rank when a training begins: they are sent by rank 0, and compared.

If one rank fails before it comes to a collective call, all ranks fail: they agree first.
"""

import zlib
from typing import Optional

import torch
import torch.distributed as dist

from onebit._errors import Mismatch
from onebit.allreduce import Allreduce
from onebit.torch import _dense
from onebit.torch._communicator import gather, global_ranks, raise_together, reason_of


def broadcast(parameters, group) -> None:
    """Overwrites the parameters with those of the group's rank 0, as DistributedDataParallel does. Collective."""
    source = global_ranks(group)[0]
    for parameter in parameters:
        if parameter.numel() > 0:
            dist.broadcast(_bytes(parameter), source, group=group)


def require_same_shapes(groups, group) -> None:
    """Raises Mismatch on every rank, if any has parameters of other numbers, shapes or types. Collective; blocks."""
    shapes = [[(tuple(p.shape), str(p.dtype)) for p in each["params"]] for each in groups]
    elements = sum(p.numel() for each in groups for p in each["params"])
    mine = f"{sum(map(len, shapes))} parameters of {elements} elements, {zlib.crc32(repr(shapes).encode()):08x}"
    everyones = [text.rstrip(b"\0").decode() for text in gather(group, mine.encode())]
    for rank, theirs in enumerate(everyones):
        if theirs != everyones[0]:
            raise Mismatch(
                f"ranks have different models: rank {rank} has {theirs[:-10]}, rank 0 {everyones[0][:-10]}"
                f"{' in other shapes or types' if theirs[:-10] == everyones[0][:-10] else ''}"
            )


def agree(comm, failure: Optional[Exception]) -> None:
    """If any rank has a failure, raises it there, and InvalidArgument on the others. Collective; blocks."""
    failed = torch.zeros(comm.size)
    failed[comm.rank] = float(failure is not None)
    if _mean(failed, comm).any():
        mine = torch.zeros(comm.size, len(reason_of(None)))
        mine[comm.rank] = torch.tensor(list(reason_of(failure)), dtype=torch.float32)
        reasons = (_mean(mine, comm) * comm.size).round().to(torch.uint8)
        raise_together(failure, [bytes(reason.tolist()) for reason in reasons])


def require_equal(parameters, comm) -> None:
    """Raises Mismatch on every rank, if any parameter differs between ranks. Collective; blocks."""
    numbers = _everyones(len(parameters), comm)
    if len(set(numbers)) > 1:
        raise Mismatch(f"ranks have different models: {numbers} parameters on ranks 0 to {comm.size - 1}")
    sums = torch.tensor([list(_checksum(parameter)) for parameter in parameters], dtype=torch.float32)
    differs = (_mean(sums, comm) - sums).abs().amax(dim=1) > 0.5 / comm.size
    differs = _mean(differs.float(), comm) > 0
    if differs.any():
        first = int(differs.nonzero()[0])
        raise Mismatch(
            f"{int(differs.sum())} of {len(sums)} parameters differ between ranks, first number {first} of shape "
            f"{tuple(parameters[first].shape)}: load or initialise them alike on every rank"
        )


def require_same(number: int, name: str, comm) -> None:
    """Raises Mismatch on every rank, if the ranks' numbers, below 2^24, differ. Collective; blocks."""
    numbers = _everyones(number, comm)
    if len(set(numbers)) > 1:
        raise Mismatch(f"{name}: ranks 0 to {comm.size - 1} pass {numbers}; the same wanted")


def _everyones(number: int, comm) -> list:
    """Each rank's number."""
    numbers = torch.zeros(comm.size)
    numbers[comm.rank] = number
    return (_mean(numbers, comm) * comm.size).round().int().tolist()


def _mean(values, comm):
    """The exact mean over the ranks."""
    padded = torch.zeros(max(values.numel(), comm.size))
    padded[: values.numel()] = values.flatten()
    with Allreduce(comm, padded, algorithm="dense") as allreduce:
        allreduce.run(padded)
    return padded[: values.numel()].view(values.shape)


def _checksum(parameter) -> bytes:
    """Four bytes of shape, type and values: their sums over the ranks are exact in float32."""
    kind = zlib.crc32(f"{tuple(parameter.shape)} {parameter.dtype}".encode())
    return zlib.crc32(_bytes(parameter).cpu().numpy(), kind).to_bytes(4, "little")


def _bytes(parameter):
    return _dense.flat(parameter).view(torch.uint8)
