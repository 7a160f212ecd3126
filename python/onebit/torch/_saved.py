# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""How the PyTorch optimizers are saved, loaded and copied."""

import copy
import warnings
from typing import List, Optional, Sequence

import torch

from onebit._errors import BadState
from onebit.communicator import Communicator
from onebit.optimizer import Optimizer
from onebit.torch import _adam_state, _gather, _start
from onebit.torch._communicator import attempt
from onebit.torch._early import EarlyGradients

SETTINGS = ("lr", "betas", "eps", "weight_decay")
_CONSOLIDATE = "call consolidate_state_dict() on every rank before one rank's state_dict() is saved for all"


class SavedOptimizer(torch.optim.Optimizer):
    """The half of FusedOptimizer that handles its state. Not to be instantiated."""

    _communicator: Communicator
    _group = None

    def _begin_without_state(self) -> None:
        self._adding = False  # the groups that it is made with
        self._fused: Optional[Optimizer] = None
        self._packed: list = []  # a copy's state, until its first step
        self._gathered: Optional[List[torch.Tensor]] = None  # of all ranks, or only of this rank, until the next step
        self._said_alone = False
        self._early: Optional[EarlyGradients] = None
        self._scaler = None  # of the last step
        self._parameters: list = []
        self._frozen: list = []
        self._stream = 0
        self._addresses: list = []  # of gradients
        self._settings: list = []  # by group, as C knows them
        self._parts: list = []  # C's groups: (number of ours, averaged exactly?)
        self._gradient_scale = 1.0
        self._warned = False

    def state_dict(self) -> dict:
        """This rank's state, for torch.save. Local.

        "onebit" is a list of byte tensors, which torch.load(weights_only=True) takes, too: this rank's errors and its
        share of the moments; before the first step there are none. Each rank saves its own. Or one rank saves for all:
        `consolidate_state_dict` comes first. Rank 0 warns, once, if it has not been called.
        """
        if self._gathered is not None:
            return self._state_with(self._gathered)
        blobs = self._blobs()
        if blobs and self._communicator.rank == 0 and self._communicator.size > 1:
            self._say_alone()
        return self._state_with(blobs)

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Until the next step, rank `to`'s `state_dict()` has all ranks' states. Collective; blocks.

        For a checkpoint that one rank saves: as many ranks can load it, or any other number. torch's
        ZeroRedundancyOptimizer has a function of this name, which Lightning calls.
          to  the same on every rank

        The states travel through the process group, in the host's memory or, with NCCL, through the GPU's. Rank `to`
        keeps them all until the next step. Raises RuntimeError on every rank if no process group has this
        optimizer's ranks: `merge_state_dicts` takes states that the program has gathered.
        """
        blobs, failure = attempt(lambda: self._blobs_for(to))
        _start.agree(self._communicator, failure)
        _start.require_same(to, "to", self._communicator)
        self._gathered = _gather.to_rank(to, blobs[0], self._group) if blobs else []

    def _state_with(self, blobs: List[torch.Tensor]) -> dict:
        return {**super().state_dict(), "onebit": list(blobs)}

    def _blobs_for(self, to: int) -> List[torch.Tensor]:
        """This rank's state, to be gathered. Raises if gathering is impossible."""
        comm = self._communicator
        if not 0 <= to < comm.size:
            raise ValueError(f"to={to}: a rank wanted, 0 to {comm.size - 1}")
        if not _gather.has_ranks(self._group, comm.rank, comm.size):
            raise RuntimeError(
                "no process group has this optimizer's ranks: call torch.distributed.init_process_group(), or gather "
                "the ranks' state_dict() otherwise, for merge_state_dicts()"
            )
        return self._blobs()

    def _blobs(self) -> List[torch.Tensor]:
        packed = self._packed if self._fused is None else [self._fused.pack_state()]
        return [torch.frombuffer(blob, dtype=torch.uint8) for blob in packed]

    def _say_alone(self) -> None:
        if not self._said_alone:
            self._said_alone = True
            warnings.warn(
                f"this state_dict() has rank 0's part of the state alone: {_CONSOLIDATE}, or save every rank's",
                stacklevel=3,
            )

    def load_state_dict(self, state_dict) -> None:
        """Goes on from what `state_dict` returned on this rank, bit for bit. Overwrites the parameters. Collective.

        A state of another number of ranks, or of ranks with another exchange or on other nodes, is loaded from all its
        ranks' states, on every rank: from one dictionary that `consolidate_state_dict` or `merge_state_dicts` has made.
        Raises BadState or Mismatch on every rank, and changes nothing, if any rank's state doesn't fit, or is missing.
        The state of torch.optim.Adam or AdamW is taken over, too, before the freeze: moments, steps and settings.
        """
        ours = super().state_dict()["param_groups"]
        groups, failure = attempt(lambda: self._groups_of(state_dict, ours))
        _start.agree(self._communicator, failure)
        packed = state_dict.get("onebit")
        self._load_groups(groups)
        try:
            if packed is None:
                self._ready()
                _adam_state.take_over(self._created(), self._parameters, state_dict)
            elif packed:
                self._ready(check=False)
                self._unpack([blob.cpu().numpy() for blob in packed])
        except Exception:
            self._load_groups(ours)
            raise

    @staticmethod
    def _groups_of(state_dict, ours) -> list:
        """The parameter groups with the state's settings. Raises ValueError for a state that can't be loaded."""
        theirs = state_dict["param_groups"]
        if [len(group["params"]) for group in theirs] != [len(group["params"]) for group in ours]:
            raise ValueError("the state's parameter groups have other numbers of parameters")
        if "onebit" in state_dict:
            return theirs
        if not _adam_state.is_adams(state_dict):
            raise ValueError("this is neither the state of a onebit optimizer nor of Adam")
        taken = (*SETTINGS, "params")
        return [{**mine, **{name: group[name] for name in taken}} for mine, group in zip(ours, theirs)]

    def _load_groups(self, groups) -> None:
        self._gathered = None
        super().load_state_dict({"state": {}, "param_groups": groups})
        self._pass_all_settings_next()

    def _pass_all_settings_next(self) -> None:
        """After a load, which has changed the settings in C, too."""
        self._settings = [dict(settings, lr=None) for settings in self._settings]
        self._gradient_scale = 0.0  # none

    def _unpack(self, packed) -> None:
        """Raises InvalidArgument if a setting that can't change any more differs from the state's."""
        self._pass_settings(1.0)  # first: with the state's variances, which may be frozen, some can't change
        try:
            self._created().unpack_state(packed)
        except BadState as error:
            if "no blob of rank" in str(error):
                raise BadState(f"{error}; {_CONSOLIDATE}") from None
            raise
        self._pass_all_settings_next()

    def __deepcopy__(self, memo):
        """An optimizer of copies of the parameters, with this one's settings and state as they are now. Local.

        The copy's first step makes its state; like any step it is collective. The copy shares the communicator, which
        must be open until then. Rank 0 does not send the parameters of a copy.
        """
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        twin.options = dict(self.options)
        twin._exact_1d = self._exact_1d
        twin._group, twin._communicator, twin._is_ours = self._group, self._communicator, False
        twin._begin_without_state()
        torch.optim.Optimizer.__init__(twin, copy.deepcopy(self.param_groups, memo), dict(self.defaults))
        twin._packed = list(self._packed) if self._fused is None else [self._fused.pack_state()]
        return twin

    def __getstate__(self):
        raise TypeError(f"{type(self).__name__} can be copied by copy.deepcopy alone, and saved by state_dict()")

    def _take_over_packed(self) -> None:
        """Takes over a copy's state, except float32 parameters, which may have changed since."""
        if not self._packed:
            return
        now = [(p.tensor.detach(), p.tensor.detach().clone()) for p in self._parameters if p.master is None]
        self._unpack(self._packed)
        self._packed = []
        for tensor, values in now:
            tensor.copy_(values)


def merge_state_dicts(state_dicts: Sequence[dict]) -> dict:
    """All ranks' `state_dict()`, in any order, as one: for one file, which any number of ranks can load. Local."""
    return {**state_dicts[0], "onebit": [blob for state in state_dicts for blob in state["onebit"]]}


def settings_of(group) -> dict:
    """The settings of a parameter group that the C library is told, and may be told anew."""
    values = {name: group[name] for name in SETTINGS}
    values["lr"] = float(values["lr"])
    values["betas"] = tuple(values["betas"])
    return values
