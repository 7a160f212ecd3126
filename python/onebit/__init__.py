# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed allreduce with error feedback, and the optimizers that need it.

Communicators: `loopback`, `from_mpi4py`, `from_bootstrap`, `from_folder`, `onebit.torch.communicator`,
`onebit.jax.communicator`. On one of them: `Allreduce`, its halves `ReduceScatter` and `AllGather`, and `Optimizer`,
over arrays of any library. `onebit.torch` has optimizers and a DDP hook for PyTorch, `onebit.jax` averages inside jit;
they are imported by themselves: `import onebit.torch`.

What is said of the C library in include/onebit/onebit.h holds here, too. Words used throughout:
  collective  every rank of the communicator calls it, in the same order. It fails on every rank, or on none
  local       concerns the calling rank alone
"""

from onebit._errors import (
    BadState,
    Busy,
    Cancelled,
    Error,
    FileError,
    Internal,
    InvalidArgument,
    InvalidHandle,
    Mismatch,
    Nonfinite,
    OutOfMemory,
    Timeout,
    TransportError,
    Unsupported,
)
from onebit._library import library as _library
from onebit._values import (
    Algorithm,
    AllreduceInfo,
    Check,
    Codec,
    CommInfo,
    Compressed,
    Datatype,
    FreezeWait,
    Group,
    LevelInfo,
    LogLevel,
    Op,
    OptimizerInfo,
    OptimizerKind,
    Rounding,
    Scale,
    ShardInfo,
    State,
    Status,
)
from onebit.allreduce import Allreduce, Level
from onebit.communicator import Communicator, from_bootstrap, from_folder, from_mpi4py, from_nccl, loopback
from onebit.log import set_log_callback
from onebit.optimizer import Optimizer, Tensor
from onebit.shards import AllGather, ReduceScatter

__version__: str = _library.onebit_version().decode()
"""The C library's version; the package has the same."""

__all__ = [
    "Algorithm",
    "AllGather",
    "Allreduce",
    "AllreduceInfo",
    "BadState",
    "Busy",
    "Cancelled",
    "Check",
    "Codec",
    "CommInfo",
    "Communicator",
    "Compressed",
    "Datatype",
    "Error",
    "FileError",
    "FreezeWait",
    "Group",
    "Internal",
    "InvalidArgument",
    "InvalidHandle",
    "Level",
    "LevelInfo",
    "LogLevel",
    "Mismatch",
    "Nonfinite",
    "Op",
    "Optimizer",
    "OptimizerInfo",
    "OptimizerKind",
    "OutOfMemory",
    "ReduceScatter",
    "Rounding",
    "Scale",
    "ShardInfo",
    "State",
    "Status",
    "Tensor",
    "Timeout",
    "TransportError",
    "Unsupported",
    "from_bootstrap",
    "from_folder",
    "from_mpi4py",
    "from_nccl",
    "loopback",
    "set_log_callback",
]
