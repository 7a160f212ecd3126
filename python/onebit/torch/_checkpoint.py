# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""States of the optimizers in checkpoints of torch.distributed.checkpoint.

Its get_optimizer_state_dict can't take them: it makes a step of the optimizer to see what the state consists of.
"""

import inspect
import io
import re
import warnings
from typing import Dict

import torch

from onebit._errors import BadState
from onebit.torch import _start
from onebit.torch._communicator import attempt
from onebit.torch._saved import SavedOptimizer, merge_state_dicts


def checkpoint_state(optimizer: SavedOptimizer) -> Dict[str, torch.Tensor]:
    """This rank's state, for torch.distributed.checkpoint.save: one tensor, whose name no other rank has. Local.

    dcp.save({"model": model.state_dict(), "optimizer": onebit.torch.checkpoint_state(optimizer)}, checkpoint_id=path)
    """
    file = io.BytesIO()
    torch.save(optimizer._state_with(optimizer._blobs()), file)
    comm = optimizer._communicator
    return {f"rank {comm.rank} of {comm.size}": torch.frombuffer(file.getbuffer(), dtype=torch.uint8)}


def load_checkpoint(optimizer: SavedOptimizer, path, name: str = "optimizer") -> None:
    """Goes on from a checkpoint that `checkpoint_state` was saved in, of any number of ranks. Collective; blocks.

      path  of the checkpoint, or a storage reader of torch.distributed.checkpoint. Each rank reads its own state, or
            all ranks' states, if the number of ranks or their nodes have changed
      name  that the state has in the checkpoint

    Parameters are overwritten, as by `load_state_dict`. A reading error of one rank is InvalidArgument on the others.
    """
    try:
        _load_read(optimizer, path, name, all_ranks=False)
    except BadState:  # on every rank: with two levels, for example, if one is on another node than the rank that saved
        _load_read(optimizer, path, name, all_ranks=True)


def _load_read(optimizer: SavedOptimizer, path, name: str, *, all_ranks: bool) -> None:
    state, failure = attempt(lambda: _read(optimizer, path, name, all_ranks))
    _start.agree(optimizer._communicator, failure)
    optimizer.load_state_dict(state)


def _read(optimizer: SavedOptimizer, path, name: str, all_ranks: bool) -> dict:
    import torch.distributed.checkpoint as dcp

    comm = optimizer._communicator
    reader = path if hasattr(path, "read_metadata") else dcp.FileSystemReader(path)
    found = {
        key: torch.empty(metadata.size, dtype=torch.uint8)
        for key, metadata in reader.read_metadata().state_dict_metadata.items()
        if re.fullmatch(re.escape(name) + r"\.rank \d+ of \d+", key)
    }
    if not found:
        raise ValueError(f"the checkpoint has no state of a onebit optimizer by the name of {name!r}")
    mine = f"{name}.rank {comm.rank} of {comm.size}"
    wanted = {mine: found[mine]} if mine in found and not all_ranks else found
    _load(dcp, wanted, reader)
    return merge_state_dicts([torch.load(io.BytesIO(saved.numpy()), weights_only=True) for saved in wanted.values()])


def _load(dcp, tensors: dict, reader) -> None:
    """Each rank loads by itself, because ranks want different tensors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dcp.load: a single process loads; load_state_dict: it is deprecated
        if "no_dist" in inspect.signature(dcp.load).parameters:
            dcp.load(tensors, storage_reader=reader, no_dist=True)
        else:
            dcp.load_state_dict(tensors, reader, no_dist=True)
