# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Communicators of the ranks of a torch.distributed process group."""

import hashlib
from collections import Counter
from datetime import timedelta
from typing import Any, Callable, List, Optional, Tuple

import torch.distributed as dist

from onebit._errors import InvalidArgument
from onebit._store import StoreAllgather, milliseconds_to_wait
from onebit.communicator import Communicator, from_bootstrap

# How many communicators this process has made of the ranks of a group; the same on each of them.
_made: Counter = Counter()
_REASON = 240  # bytes


def communicator(group=None, *, interface: Optional[str] = None, timeout: float = 0.0) -> Communicator:
    """The ranks of a process group, whatever its backend; they talk over TCP of their own. Collective; blocks.

    They find each other through torch.distributed's store, so no group for the CPU is needed beside NCCL's.
      group      None: the default group
      interface  network interface or local address to listen on; None: ONEBIT_INTERFACE, else chosen
      timeout    seconds to wait for others, now and in later calls; 0: ONEBIT_TIMEOUT
    """
    require_initialised()
    ranks = global_ranks(group)
    if dist.get_rank() not in ranks:
        raise ValueError(f"rank {dist.get_rank()} is not in the process group")
    gather = _allgather(ranks, timeout)
    return from_bootstrap(gather.rank, len(ranks), gather, interface=interface, timeout=timeout)


def require_initialised() -> None:
    """Raises RuntimeError without torch.distributed: a forgotten group would train each rank by itself."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "call torch.distributed.init_process_group() first, or pass communicator=; for a single process that is "
            "onebit.loopback(1)[0]"
        )


def attempt(function: Callable[[], Any]) -> Tuple[Any, Optional[Exception]]:
    """What the function returns, or raises: for `agree`."""
    try:
        return function(), None
    except Exception as failure:
        return None, failure


def agree(group, failure: Optional[Exception]) -> None:
    """If any rank has a failure, raises it there, and InvalidArgument on the group's other ranks. Collective."""
    raise_together(failure, gather(group, reason_of(failure)))


def gather(group, text: bytes) -> List[bytes]:
    """Each rank's text, of at most _REASON bytes, filled up with zeros. Collective; blocks."""
    return _allgather(global_ranks(group))(text.ljust(_REASON, b"\0"))


def reason_of(failure: Optional[Exception]) -> bytes:
    """What other ranks are told of a failure; of one length, for allgathers."""
    text = "" if failure is None else f"{type(failure).__name__}: {failure}"
    return text.encode()[:_REASON].ljust(_REASON, b"\0")


def raise_together(failure: Optional[Exception], reasons: List[bytes]) -> None:
    """Raises this rank's failure, or InvalidArgument for the first failure of another rank."""
    if failure is not None:
        raise failure
    for other, reason in enumerate(reasons):
        text = reason.rstrip(b"\0").decode(errors="replace")
        if text:
            raise InvalidArgument(f"rank {other}: {text}")


def global_ranks(group) -> List[int]:
    """The group's ranks, by their numbers in the default group, in the group's order."""
    if group is None or group is dist.group.WORLD:
        return list(range(dist.get_world_size()))
    to_global = getattr(dist, "get_global_rank", None) or dist.distributed_c10d._get_global_rank
    return [to_global(group, rank) for rank in range(dist.get_world_size(group))]


def _allgather(ranks, timeout: float = 0.0) -> StoreAllgather:
    """An allgather of bytes through the default group's store."""
    milliseconds = milliseconds_to_wait(timeout)

    def get(key: str) -> bytes:
        try:
            store.wait([key], timedelta(milliseconds=milliseconds))
        except RuntimeError as error:
            raise TimeoutError(f"{key} has not come within {milliseconds / 1000:g} s: has that rank begun?") from error
        return store.get(key)

    name = ",".join(map(str, ranks))
    store = dist.distributed_c10d._get_default_store()
    prefix = f"onebit/{hashlib.sha256(name.encode()).hexdigest()[:16]}/{_made[name]}"
    _made[name] += 1
    return StoreAllgather(ranks.index(dist.get_rank()), len(ranks), store.set, get, prefix)
