# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""All ranks' bytes on one rank, through torch.distributed."""

from typing import List

import torch
import torch.distributed as dist

from onebit.torch._communicator import global_ranks

_PIECE = 1 << 26  # bytes of a message, hence of a GPU's memory


def has_ranks(group, rank: int, size: int) -> bool:
    """Whether there is such a process group, and this process is rank `rank` of `size` in it. Local."""
    if not dist.is_available() or not dist.is_initialized():
        return False
    return dist.get_rank(group) == rank and dist.get_world_size(group) == size


def to_rank(to: int, mine: torch.Tensor, group) -> List[torch.Tensor]:
    """Every rank's bytes, in rank order, on the group's rank `to`; on other ranks only `mine`. Collective; blocks.

    mine  flat, uint8, in the host's memory; ranks' sizes may differ
    """
    ranks = global_ranks(group)
    device = torch.device("cuda", torch.cuda.current_device()) if dist.get_backend(group) == "nccl" else mine.device
    if dist.get_rank() == ranks[to]:
        return [mine if rank == ranks[to] else _received(rank, device, group) for rank in ranks]
    dist.send(torch.tensor([mine.numel()], device=device), ranks[to], group=group)
    for piece in mine.split(_PIECE):
        dist.send(piece.to(device), ranks[to], group=group)
    return [mine]


def _received(rank: int, device, group) -> torch.Tensor:
    size = torch.zeros(1, dtype=torch.int64, device=device)
    dist.recv(size, rank, group=group)
    received = torch.empty(int(size), dtype=torch.uint8)
    for piece in received.split(_PIECE):
        message = piece.to(device)  # on the host the piece itself
        dist.recv(message, rank, group=group)
        piece.copy_(message)
    return received
