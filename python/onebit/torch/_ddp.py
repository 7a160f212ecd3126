# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed averages inside DistributedDataParallel, with any optimizer."""

from typing import Dict, List, Optional, Tuple

import torch

from onebit._errors import InvalidArgument, Nonfinite
from onebit._values import Algorithm
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator
from onebit.torch._communicator import communicator as communicator_of_group


class HookState:
    """What `ddp_hook` remembers from step to step: what has not been delivered yet of each bucket's gradients.

        model = DistributedDataParallel(model)
        model.register_comm_hook(onebit.torch.HookState(warmup_steps=1000), onebit.torch.ddp_hook)
    """

    def __init__(
        self,
        group=None,
        *,
        communicator: Optional[Communicator] = None,
        warmup_steps: int = 1000,
        **options,
    ):
        """Collective; blocks.

          group         process group of torch.distributed; None: the default one
          communicator  in place of a group: an onebit communicator of the same ranks
          warmup_steps  steps that average exactly, before the first compressed one. Adam needs some
          options       those of `onebit.Allreduce`: algorithm, scale, group, check, threads
        """
        if warmup_steps < 0:
            raise InvalidArgument(f"warmup_steps={warmup_steps}: at least 0")
        self.steps: int = 0
        """Backward passes that were averaged."""
        self.warmup_steps = warmup_steps
        self._options = options
        self._communicator = communicator_of_group(group) if communicator is None else communicator
        self._buckets: Dict[tuple, _Bucket] = {}
        self._loaded: List[Tuple[list, torch.Tensor]] = []

    def average(self, gradients, parameters, last: bool) -> None:
        """Replaces a bucket's gradients by their average over the ranks. `last`: it's the step's last bucket.

        Where any rank's are not finite they become NaN on all ranks, as an exact average would make them: a GradScaler
        skips the step.
        """
        key = tuple(map(id, parameters))
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = self._made(gradients, parameters)
        bucket.average(gradients, exact=self.steps < self.warmup_steps)
        self.steps += last

    def state_dict(self) -> dict:
        """This rank's errors, for torch.save: each rank saves its own. Local."""
        return {
            "steps": self.steps,
            "buckets": [(bucket.counts, bucket.packed()) for bucket in self._buckets.values()],
        }

    def load_state_dict(self, state: dict) -> None:
        """Goes on from what `state_dict` returned on this rank. To be called on every rank.

        A bucket's error is loaded when that bucket is averaged for the first time. DDP lays buckets out anew after the
        first step: that one begins with no error.
        """
        self.steps = state["steps"]
        self._buckets.clear()
        self._loaded = list(state["buckets"])

    def __getstate__(self):
        raise TypeError("HookState can't be copied or pickled: use state_dict()")

    def _made(self, gradients, parameters) -> "_Bucket":
        """A bucket, in place of those that had its parameters before DDP laid buckets out anew."""
        kept = set(map(id, parameters))
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if kept.isdisjoint(key)}
        bucket = _Bucket(self._communicator, gradients, parameters, self._options)
        for i, (counts, packed) in enumerate(self._loaded):
            if counts == bucket.counts:
                bucket.unpack(packed)
                del self._loaded[i]
                break
        return bucket


def ddp_hook(state: HookState, bucket) -> torch.futures.Future[torch.Tensor]:
    """For `DistributedDataParallel.register_comm_hook`. Averages while the backward pass waits."""
    gradients = bucket.buffer()
    state.average(gradients, bucket.parameters(), bucket.is_last())
    future = torch.futures.Future(devices=[gradients.device]) if gradients.is_cuda else torch.futures.Future()
    future.set_result(gradients)
    return future


class _Bucket:
    """One bucket's Allreduce. Gradients that aren't float32, or fewer than there are ranks, go through a buffer."""

    def __init__(self, communicator, gradients, parameters, options):
        self.counts = [parameter.numel() for parameter in parameters]
        self._parameters = parameters  # keeps their ids from being used again
        count = max(gradients.numel(), communicator.size)
        in_place = gradients.dtype is torch.float32 and gradients.numel() == count
        self._buffer = None if in_place else gradients.new_zeros(count, dtype=torch.float32)
        stream = 0
        if gradients.is_cuda:
            stream = torch.cuda.current_stream(gradients.device).cuda_stream
            communicator = communicator.on_gpu(stream)
        self._allreduce = Allreduce(communicator, gradients if in_place else self._buffer, stream=stream, **options)
        self._compressed = self._allreduce.info.algorithm
        self._exact = self._compressed is Algorithm.DENSE

    def average(self, gradients, exact: bool) -> None:
        self._choose(exact)
        try:
            if self._buffer is None:
                self._allreduce.run(gradients)
            else:
                values = self._buffer[: gradients.numel()]
                values.copy_(gradients)
                self._allreduce.run(self._buffer)
                gradients.copy_(values)
        except Nonfinite:
            gradients.fill_(float("nan"))

    def packed(self) -> torch.Tensor:
        return torch.frombuffer(self._allreduce.pack_state(), dtype=torch.uint8)

    def unpack(self, packed: torch.Tensor) -> None:
        self._allreduce.unpack_state(packed.numpy())

    def _choose(self, exact: bool) -> None:
        """Nothing to choose where compression doesn't pay: the Allreduce is dense for good."""
        if self._compressed is not Algorithm.DENSE and exact != self._exact:
            self._allreduce.set_algorithm(Algorithm.DENSE if exact else self._compressed)
            self._exact = exact
