# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit for PyTorch: optimizers that average gradients themselves, and hooks for DistributedDataParallel and FSDP2."""

from onebit.torch._checkpoint import checkpoint_state, load_checkpoint
from onebit.torch._communicator import communicator
from onebit.torch._ddp import HookState, ddp_hook
from onebit.torch._deepspeed import from_deepspeed
from onebit.torch._fsdp import FsdpHook, fsdp_hook
from onebit.torch._saved import merge_state_dicts
from onebit.torch.optimizers import Adam, Lamb, OneBitAdam, OneBitLamb, ZeroOneAdam

__all__ = [
    "Adam",
    "FsdpHook",
    "HookState",
    "Lamb",
    "OneBitAdam",
    "OneBitLamb",
    "ZeroOneAdam",
    "checkpoint_state",
    "communicator",
    "ddp_hook",
    "from_deepspeed",
    "fsdp_hook",
    "load_checkpoint",
    "merge_state_dicts",
]
