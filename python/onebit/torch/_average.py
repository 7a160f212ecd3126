# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the hooks of DistributedDataParallel and FSDP2 share: averages of buffers of gradients, step after step."""

from typing import Dict, Optional

import torch

from onebit._errors import InvalidArgument, Nonfinite
from onebit._stages import Stages
from onebit.allreduce import Allreduce
from onebit.communicator import Communicator
from onebit.torch._communicator import communicator as communicator_of_group
from onebit.torch._equalizer import Equalizer


class Averaging:
    """What is the same for all buffers of a hook. Not to be instantiated."""

    def __init__(self, group, communicator: Optional[Communicator], warmup_steps: int, equalize: bool, options: dict):
        """Collective where there is no communicator; blocks."""
        if warmup_steps < 0:
            raise InvalidArgument(f"warmup_steps={warmup_steps}: at least 0")
        self.warmup_steps = warmup_steps
        self._communicator = communicator_of_group(group) if communicator is None else communicator
        self._equalize = equalize
        self._options = options

    def _made(self, gradients) -> "Average":
        """Collective; blocks."""
        return Average(self._communicator, gradients, self._equalize, self._options)

    def __getstate__(self):
        raise TypeError(f"{type(self).__name__} can't be copied or pickled: use state_dict()")


class Average:
    """One buffer's Allreduce. Gradients that aren't float32, or fewer than there are ranks, go through a copy."""

    def __init__(self, communicator: Communicator, gradients, equalize: bool, options: dict):
        count = max(gradients.numel(), communicator.size)
        in_place = gradients.dtype is torch.float32 and gradients.numel() == count
        self._copy = None if in_place else gradients.new_zeros(count, dtype=torch.float32)
        stream = 0
        if gradients.is_cuda:
            stream = torch.cuda.current_stream(gradients.device).cuda_stream
            communicator = communicator.on_gpu(stream)
        self._allreduce = Allreduce(communicator, gradients if in_place else self._copy, stream=stream, **options)
        self._stages = Stages(self._allreduce)
        self._equalizer = Equalizer() if equalize and not self._stages.always_exact else None
        self._device = gradients.device

    def run(self, gradients, exact: bool) -> None:
        """Replaces the gradients by their average over the ranks. Collective; blocks.

        Where any rank's are not finite they become NaN on all ranks, as an exact average would make them: a GradScaler
        skips the step.
        """
        try:
            if self._copy is None:
                self._run(gradients, exact)
            else:
                values = self._copy[: gradients.numel()]
                values.copy_(gradients)
                self._run(self._copy, exact)
                gradients.copy_(values)
        except Nonfinite:
            gradients.fill_(float("nan"))

    def _run(self, values, exact: bool) -> None:
        if self._equalizer is not None and not exact:
            self._run_equalized(self._equalizer, values)
            return
        if self._equalizer is not None:
            self._equalizer.watch(values)
        self._stages.choose(exact)
        self._allreduce.run(values)

    def _run_equalized(self, equalizer: Equalizer, values) -> None:
        if equalizer.watches:
            self._stages.choose(exact=True)
            equalizer.settle(self._allreduce.run)
        self._stages.choose(exact=False)
        equalizer.equalize(values)
        self._allreduce.run(values)
        equalizer.restore(values)

    def packed(self) -> Dict[str, torch.Tensor]:
        """This rank's error, and what else is kept. Local."""
        kept = {} if self._equalizer is None else self._equalizer.state()
        return {"error": torch.frombuffer(self._allreduce.pack_state(), dtype=torch.uint8), **kept}

    def unpack(self, packed: Dict[str, torch.Tensor]) -> None:
        """Goes on from what `packed` returned on this rank. Collective; blocks."""
        if self._equalizer is not None:
            self._equalizer.load(packed, self._device)
        self._allreduce.unpack_state(packed["error"].cpu().numpy())
