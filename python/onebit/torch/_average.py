# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the hooks of DistributedDataParallel and FSDP2 share: averages of buffers of gradients, step after step."""

from typing import Optional

import torch

from onebit._errors import InvalidArgument, Nonfinite
from onebit._values import Algorithm
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator
from onebit.torch._communicator import communicator as communicator_of_group


class Averaging:
    """What is the same for all buffers of a hook. Not to be instantiated."""

    def __init__(self, group, communicator: Optional[Communicator], warmup_steps: int, options: dict):
        """Collective where there is no communicator; blocks."""
        if warmup_steps < 0:
            raise InvalidArgument(f"warmup_steps={warmup_steps}: at least 0")
        self.warmup_steps = warmup_steps
        self._communicator = communicator_of_group(group) if communicator is None else communicator
        self._options = options

    def _made(self, gradients) -> "Average":
        """Collective; blocks."""
        return Average(self._communicator, gradients, self._options)

    def __getstate__(self):
        raise TypeError(f"{type(self).__name__} can't be copied or pickled: use state_dict()")


class Average:
    """One buffer's Allreduce. Gradients that aren't float32, or fewer than there are ranks, go through a copy."""

    def __init__(self, communicator: Communicator, gradients, options: dict):
        count = max(gradients.numel(), communicator.size)
        in_place = gradients.dtype is torch.float32 and gradients.numel() == count
        self._copy = None if in_place else gradients.new_zeros(count, dtype=torch.float32)
        stream = 0
        if gradients.is_cuda:
            stream = torch.cuda.current_stream(gradients.device).cuda_stream
            communicator = communicator.on_gpu(stream)
        self._allreduce = Allreduce(communicator, gradients if in_place else self._copy, stream=stream, **options)
        self._compressed = self._allreduce.info.algorithm
        self._exact = self._compressed is Algorithm.DENSE

    def run(self, gradients, exact: bool) -> None:
        """Replaces the gradients by their average over the ranks. Collective; blocks.

        Where any rank's are not finite they become NaN on all ranks, as an exact average would make them: a GradScaler
        skips the step.
        """
        self._choose(exact)
        try:
            if self._copy is None:
                self._allreduce.run(gradients)
            else:
                values = self._copy[: gradients.numel()]
                values.copy_(gradients)
                self._allreduce.run(self._copy)
                gradients.copy_(values)
        except Nonfinite:
            gradients.fill_(float("nan"))

    def packed(self) -> torch.Tensor:
        """This rank's error. Local."""
        return torch.frombuffer(self._allreduce.pack_state(), dtype=torch.uint8)

    def unpack(self, packed: torch.Tensor) -> None:
        """Goes on from what `packed` returned on this rank. Collective; blocks."""
        self._allreduce.unpack_state(packed.cpu().numpy())

    def _choose(self, exact: bool) -> None:
        """Nothing to choose where compression doesn't pay: the Allreduce is dense for good."""
        if self._compressed is not Algorithm.DENSE and exact != self._exact:
            self._allreduce.set_algorithm(Algorithm.DENSE if exact else self._compressed)
            self._exact = exact
