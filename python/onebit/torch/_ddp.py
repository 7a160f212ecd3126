# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Compressed averages inside DistributedDataParallel, with any optimizer."""

from typing import Dict, List, Optional, Tuple

import torch

from onebit.communicator import Communicator
from onebit.torch._average import Average, Averaging, HookInfo


class HookState(Averaging):
    """What `ddp_hook` keeps from step to step: the undelivered part of each bucket's gradients.

        model = DistributedDataParallel(model)
        model.register_comm_hook(onebit.torch.HookState(warmup_steps=1000), onebit.torch.ddp_hook)
    """

    def __init__(
        self,
        group=None,
        *,
        communicator: Optional[Communicator] = None,
        warmup_steps: Optional[int] = None,
        equalize: Optional[bool] = None,
        **options,
    ):
        """Collective; blocks.

          group         process group of torch.distributed; None: the default one
          communicator  in place of a group: an onebit communicator of the same ranks
          warmup_steps  steps that average exactly, before the first compressed one. None: 1000 for codecs "sign",
                        "means", "ternary", "int2", "topk", "randomk" and "powersgd", which Adam needs, or with
                        equalize=True; else 0
          equalize      after the warm-up each gradient is divided by the magnitude that its element had at the
                        warm-up's end, and the average is multiplied by it: small gradients don't drown. 4 bytes of
                        memory per element. None: True for codecs "sign", "means", "ternary" and "int2", else False
          options       those of `onebit.Allreduce`: algorithm, codec, scale, group, kept, value_bits, matrix_rank,
                        rounding, levels, error_type, check, threads. Matrices of "powersgd" are the parameters
        """
        super().__init__(group, communicator, warmup_steps, equalize, options)
        self.steps: int = 0
        """Backward passes that were averaged."""
        self._buckets: Dict[tuple, _Bucket] = {}
        self._loaded: List[Tuple[list, dict]] = []

    def average(self, gradients, parameters, last: bool) -> None:
        """Replaces a bucket's gradients by their average over the ranks. `last`: it's the step's last bucket."""
        key = tuple(map(id, parameters))
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = self._bucket(gradients, parameters)
        bucket.average.run(gradients, exact=self.steps < self.warmup_steps)
        self.steps += last

    @property
    def info(self) -> HookInfo:
        """Bytes that this rank has sent, and memory. Local."""
        return self._info(bucket.average for bucket in self._buckets.values())

    def state_dict(self) -> dict:
        """This rank's errors, for torch.save: each rank saves its own. Local."""
        return {
            "steps": self.steps,
            "buckets": [(bucket.counts, bucket.average.packed()) for bucket in self._buckets.values()],
        }

    def load_state_dict(self, state: dict) -> None:
        """Goes on from what `state_dict` returned on this rank. To be called on every rank.

        A bucket's error is loaded when that bucket is averaged for the first time. DDP lays buckets out anew after the
        first step: the first step begins with no error.
        """
        self.steps = state["steps"]
        self._bytes_before = self.info.bytes_sent
        self._buckets.clear()
        self._loaded = list(state["buckets"])

    def _bucket(self, gradients, parameters) -> "_Bucket":
        """A bucket. It replaces the buckets that had its parameters before DDP laid buckets out anew."""
        sent = self.info.bytes_sent
        kept = set(map(id, parameters))
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if kept.isdisjoint(key)}
        self._bytes_before += sent - self.info.bytes_sent
        bucket = _Bucket(self._made(gradients, [_shape_in_memory(parameter) for parameter in parameters]), parameters)
        for i, (counts, packed) in enumerate(self._loaded):
            if counts == bucket.counts:
                bucket.average.unpack(packed)
                del self._loaded[i]
                break
        return bucket


def _shape_in_memory(tensor: torch.Tensor) -> List[int]:
    """Sizes, those of the largest stride first: gradients lie in memory as their parameters do."""
    return [size for _, size in sorted(zip(tensor.stride(), tensor.shape), key=lambda pair: -pair[0])]


class _Bucket:
    def __init__(self, average: Average, parameters):
        self.average = average
        self.counts = [parameter.numel() for parameter in parameters]
        self._parameters = parameters  # keeps their ids from being used again


def ddp_hook(state: HookState, bucket) -> torch.futures.Future[torch.Tensor]:
    """For `DistributedDataParallel.register_comm_hook`. Averages while the backward pass waits."""
    gradients = bucket.buffer()
    state.average(gradients, bucket.parameters(), bucket.is_last())
    future = torch.futures.Future(devices=[gradients.device]) if gradients.is_cuda else torch.futures.Future()
    future.set_result(gradients)
    return future
