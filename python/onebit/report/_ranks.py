# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""The ranks that take part, however they were started, and the exact average that they have without onebit."""

import os
from typing import Any, Callable, List, NamedTuple

import onebit

_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OF_MPIRUN = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")


class NoRanks(Exception):
    """There are no ranks to measure. The text says what to do."""


class Ranks(NamedTuple):
    comm: onebit.Communicator
    dense: str
    """The name of the exact average that they have without onebit."""
    sum: Callable[[Any], Any]
    """That average, of a NumPy array of zeros, in place. Collective."""
    gather: Callable[[Any], List[Any]]
    """Every rank's object, by rank. Collective."""
    barrier: Callable[[], Any]
    """Collective."""
    close: Callable[[], Any]
    """Collective."""
    note: str = ""
    """What the measurement leaves out, as far as this rank sees."""


def find_ranks() -> Ranks:
    """The ranks that torchrun's or mpirun's variables name. Collective."""
    if all(name in os.environ for name in _OF_TORCHRUN):
        return _of_torch()
    if any(name in os.environ for name in _OF_MPIRUN):
        return _of_mpi()
    raise NoRanks(
        "no ranks: start it as your training is started, for example\n"
        "  torchrun --nproc_per_node 2 -m onebit.report\n"
        "  mpirun -n 2 python -m onebit.report"
    )


def _of_torch() -> Ranks:
    try:
        import torch
        import torch.distributed as dist

        import onebit.torch
    except ImportError as error:
        raise NoRanks(f"torchrun's variables are set, but PyTorch can't be imported: {error}") from error
    dist.init_process_group("gloo")
    comm = onebit.torch.communicator()

    def gather(mine: Any) -> List[Any]:
        all_: List[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(all_, mine)
        return all_

    def close() -> None:
        comm.close()
        dist.destroy_process_group()

    return Ranks(
        comm,
        "gloo's all_reduce",
        lambda array: dist.all_reduce(torch.from_numpy(array)),
        gather,
        dist.barrier,
        close,
        "NCCL's average of values in GPUs' memory was not measured." if torch.cuda.is_available() else "",
    )


def _of_mpi() -> Ranks:
    try:
        from mpi4py import MPI
    except ImportError as error:
        raise NoRanks(f"mpirun has started it, but mpi4py can't be imported: {error}") from error
    world = MPI.COMM_WORLD
    comm = onebit.from_mpi4py(world)
    library = MPI.Get_library_version().split(",")[0].splitlines()[0].strip()
    return Ranks(
        comm,
        f"MPI_Allreduce ({library})",
        lambda array: world.Allreduce(MPI.IN_PLACE, array),
        world.allgather,
        world.Barrier,
        comm.close,
    )
