# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What each rank did by itself, before something that all do together."""

from typing import Optional

import torch

from onebit.allreduce import Allreduce
from onebit.communicator import Communicator


def require_success(comm: Communicator, failure: Optional[BaseException], what: str) -> None:
    """Raises on every rank, if any has a failure: its own there, RuntimeError on the others. Collective; blocks.

    what  that the ranks were to do: "load FILE"
    """
    failed = torch.zeros(comm.size)
    failed[comm.rank] = failure is not None
    with Allreduce(comm, failed, algorithm="dense") as allreduce:
        allreduce.run(failed)
    if failure is not None:
        raise failure
    if failed.any():
        raise RuntimeError(f"rank {int(failed.argmax())} could not {what}; what it raises says why")
