# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What the hooks of DistributedDataParallel and FSDP2 share: averages of buffers of gradients, step after step."""

from typing import Dict, Iterable, NamedTuple, Optional

import torch

from onebit._errors import Nonfinite
from onebit._stages import StagedAverage, stages_of
from onebit._values import AllreduceInfo, Codec
from onebit.communicator import Communicator
from onebit.torch._communicator import communicator as communicator_of_group


class HookInfo(NamedTuple):
    """What a hook's averages have sent from this rank to others, and the memory that they take, in bytes."""

    bytes_sent: int
    """In all: data and agreement."""
    last_bytes_sent: int
    """In the last average of each buffer: a whole step's, if every buffer was in the step."""
    dense_bytes: int
    """What exact ring allreduces of the same buffers would send in a step."""
    state_bytes: int
    """Allocated for errors."""
    workspace_bytes: int
    """Allocated for everything else, mainly messages."""


class Averaging:
    """What is the same for all buffers of a hook. Not to be instantiated."""

    def __init__(
        self,
        group,
        communicator: Optional[Communicator],
        warmup_steps: Optional[int],
        equalize: Optional[bool],
        options: dict,
    ):
        """Collective if there is no communicator; blocks."""
        self.warmup_steps, self._equalize = stages_of(options.get("codec", Codec.SIGN), warmup_steps, equalize)
        self._communicator = communicator_of_group(group) if communicator is None else communicator
        self._options = options
        self._bytes_before = 0  # sent for buffers that are gone

    def _made(self, gradients, shapes=None) -> "Average":
        """The average of gradients of tensors of these shapes. Collective; blocks."""
        return Average(self._communicator, gradients, shapes, self._equalize, self._options)

    def _info(self, averages: Iterable["Average"]) -> HookInfo:
        """The sums over all averages."""
        infos = [average.info for average in averages]
        info = HookInfo(*(sum(getattr(each, name) for each in infos) for name in HookInfo._fields))
        return info._replace(bytes_sent=info.bytes_sent + self._bytes_before)

    def __getstate__(self):
        raise TypeError(f"{type(self).__name__} can't be copied or pickled: use state_dict()")


class Average:
    """One buffer's Allreduce. Gradients of other types than float32 go through a copy, except 16-bit gradients on the
    host that are not equalized. If gradients are fewer than ranks, they go through a copy, too."""

    def __init__(self, communicator: Communicator, gradients, shapes, equalize: bool, options: dict):
        count = max(gradients.numel(), communicator.size)
        narrow = gradients.dtype in (torch.float16, torch.bfloat16) and not (equalize or gradients.is_cuda)
        as_they_are = gradients.dtype is torch.float32 or narrow
        in_place = as_they_are and gradients.numel() == count
        self._copy = None if in_place else gradients.new_zeros(count, dtype=torch.float32)
        stream = 0
        if gradients.is_cuda:
            stream = torch.cuda.current_stream(gradients.device).cuda_stream
            communicator = communicator.on_gpu(stream)
        buffer = gradients if in_place else self._copy
        self._average = StagedAverage(
            communicator, buffer, equalize, torch.zeros_like, shapes=shapes, stream=stream, **options
        )
        self._device = gradients.device

    def run(self, gradients, exact: bool) -> None:
        """Replaces the gradients by their average over the ranks. Collective; blocks.

        If any rank's gradients are not finite, all become NaN on all ranks, as in an exact average: a GradScaler skips
        the step.
        """
        try:
            if self._copy is None:
                self._average.run(gradients, exact)
            else:
                values = self._copy[: gradients.numel()]
                values.copy_(gradients)
                self._average.run(self._copy, exact)
                gradients.copy_(values)
        except Nonfinite:
            gradients.fill_(float("nan"))

    @property
    def info(self) -> AllreduceInfo:
        """The Allreduce's info. Local."""
        return self._average.info

    def packed(self) -> Dict[str, torch.Tensor]:
        """This rank's error, and what else is kept. Local."""
        state = self._average.state()
        error = torch.frombuffer(state.pop("error"), dtype=torch.uint8)
        return {"error": error, **{name: values.clone() for name, values in state.items()}}

    def unpack(self, packed: Dict[str, torch.Tensor]) -> None:
        """Goes on from what `packed` returned on this rank. Collective; blocks."""
        kept = {name: values.to(self._device, copy=True) for name, values in packed.items() if name != "error"}
        self._average.load({**kept, "error": packed["error"].cpu().numpy()})
