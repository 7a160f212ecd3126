# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Brings gradients to one magnitude before they are compressed, element by element.

A compressed average has one scale for 4096 elements, and noise of that size for each of them. Adam divides by each
element's own magnitude, so the noise is largest where gradients are small. So the magnitudes D that the ranks'
gradients had at the end of the warm-up are kept: g / D is sent, and the average times D is what the model gets. 1-bit
Adam does the same (docs/OPTIMIZERS.md, "Small variances").
"""

from typing import Any, Callable, Dict, Optional

import torch

_DECAY = 0.95  # of the running mean of squares: the last 20 steps of the warm-up count
_FLOOR = 0.1  # of the root mean square of an element's neighbours: D is no smaller
_NEIGHBOURS = 4096  # the elements that share a scale


class Equalizer:
    """The magnitudes of one buffer's elements."""

    def __init__(self):
        self._squares: Optional[torch.Tensor] = None
        self._magnitudes: Optional[torch.Tensor] = None

    def watch(self, gradients: torch.Tensor) -> None:
        """Takes this rank's gradients of a step of the warm-up into account, unless they are not finite."""
        if self._magnitudes is not None:
            return
        if self._squares is None:  # whatever the gradients are: ranks must come to `settle` alike
            self._squares = torch.zeros_like(gradients)
        squares = gradients.square()
        if squares.sum().isfinite():
            self._squares.lerp_(squares, 1 - _DECAY)

    @property
    def watches(self) -> bool:
        """Whether there was a warm-up, and it isn't over yet."""
        return self._squares is not None

    def settle(self, mean: Callable[[torch.Tensor], Any]) -> None:
        """The warm-up is over. `mean` averages exactly over the ranks, in place.

        It does so with the magnitudes, too: the last bits of a sum differ between processors.
        """
        assert self._squares is not None
        mean(self._squares)
        count = self._squares.numel()
        padded = torch.nn.functional.pad(self._squares, (0, -count % _NEIGHBOURS)).view(-1, _NEIGHBOURS)
        around = padded.mean(dim=1, keepdim=True)
        magnitudes = (padded + _FLOOR**2 * around).sqrt().masked_fill(around == 0, 1.0).flatten()[:count]
        self._magnitudes, self._squares = magnitudes.contiguous(), None
        mean(self._magnitudes)

    def equalize(self, gradients: torch.Tensor) -> None:
        if self._magnitudes is not None:
            gradients.div_(self._magnitudes)

    def restore(self, average: torch.Tensor) -> None:
        if self._magnitudes is not None:
            average.mul_(self._magnitudes)

    def state(self) -> Dict[str, torch.Tensor]:
        found = {"squares": self._squares, "magnitudes": self._magnitudes}
        return {name: values.clone() for name, values in found.items() if values is not None}

    def load(self, state: Dict[str, torch.Tensor], device) -> None:
        self._squares, self._magnitudes = (
            state[name].to(device, copy=True) if name in state else None for name in ("squares", "magnitudes")
        )
