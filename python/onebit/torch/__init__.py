# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""onebit for PyTorch: optimizers that average gradients themselves, and hooks for DistributedDataParallel and FSDP2."""

from onebit.torch._average import HookInfo
from onebit.torch._checkpoint import checkpoint_state, load_checkpoint
from onebit.torch._communicator import communicator
from onebit.torch._ddp import HookState, ddp_hook
from onebit.torch._deepspeed import from_deepspeed
from onebit.torch._deepspeed_checkpoint import DeepSpeedCheckpoint, load_deepspeed_checkpoint
from onebit.torch._deepspeed_engine import attach_to_deepspeed
from onebit.torch._fsdp import FsdpHook, fsdp_hook
from onebit.torch._saved import merge_state_dicts
from onebit.torch.optimizers import Adam, Lamb, OneBitAdam, OneBitLamb, ZeroOneAdam

__all__ = [
    "Adam",
    "DeepSpeedCheckpoint",
    "FsdpHook",
    "HookInfo",
    "HookState",
    "Lamb",
    "OneBitAdam",
    "OneBitLamb",
    "ZeroOneAdam",
    "attach_to_deepspeed",
    "checkpoint_state",
    "communicator",
    "ddp_hook",
    "from_deepspeed",
    "fsdp_hook",
    "load_checkpoint",
    "load_deepspeed_checkpoint",
    "merge_state_dicts",
]
