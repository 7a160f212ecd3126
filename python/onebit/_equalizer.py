# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Brings gradients to one magnitude before they are compressed, element by element.

A compressed average has one scale for 4096 elements, and noise of the scale's size in each element. Adam divides by
each element's own magnitude, so the noise is largest where gradients are small. So the magnitudes D that the ranks'
gradients had at the end of the warm-up are kept: g / D is sent, and the model gets the average times D. 1-bit Adam does
the same (docs/OPTIMIZERS.md, "Small variances").
"""

import math
from typing import Any, Callable, Dict, Optional

_DECAY = 0.95  # of the running mean of squares: the last 20 steps of the warm-up count
_FLOOR = 0.1  # D is at least this times the root mean square of an element's neighbours
_NEIGHBOURS = 4096  # the elements that share a scale


class Equalizer:
    """The magnitudes of one buffer's elements. Buffers are flat, float32, all NumPy's or all PyTorch's."""

    def __init__(self, zeros_like: Callable[[Any], Any]):
        """zeros_like: numpy's or torch's."""
        self._zeros_like = zeros_like
        self._squares: Optional[Any] = None
        self._magnitudes: Optional[Any] = None

    def watch(self, gradients) -> None:
        """Takes this rank's gradients of a step of the warm-up into account, unless they are not finite."""
        if self._magnitudes is not None:
            return
        if self._squares is None:  # with any gradients: all ranks must come to `settle`
            self._squares = self._zeros_like(gradients)
        squares = gradients * gradients
        if math.isfinite(float(squares.sum())):
            squares -= self._squares
            squares *= 1 - _DECAY
            self._squares += squares

    @property
    def watches(self) -> bool:
        """Whether there was a warm-up, and it isn't over yet."""
        return self._squares is not None

    def settle(self, mean: Callable[[Any], Any]) -> None:
        """Ends the warm-up. `mean` averages exactly over the ranks, in place.

        `mean` averages the magnitudes, too: the last bits of a sum differ between processors.
        """
        assert self._squares is not None
        mean(self._squares)
        self._magnitudes, self._squares = self._squares, None
        whole = len(self._magnitudes) // _NEIGHBOURS * _NEIGHBOURS
        for part in (self._magnitudes[:whole].reshape(-1, _NEIGHBOURS), self._magnitudes[whole:].reshape(1, -1)):
            if part.shape[0] * part.shape[1] > 0:
                around = part.mean(axis=1, keepdims=True)
                part[:] = (part + _FLOOR**2 * around) ** 0.5 + (around == 0)
        mean(self._magnitudes)

    def equalize(self, gradients) -> None:
        if self._magnitudes is not None:
            gradients /= self._magnitudes

    def restore(self, average) -> None:
        if self._magnitudes is not None:
            average *= self._magnitudes

    def state(self) -> Dict[str, Any]:
        """The kept values, not copied."""
        found = {"squares": self._squares, "magnitudes": self._magnitudes}
        return {name: values for name, values in found.items() if values is not None}

    def load(self, state: Dict[str, Any]) -> None:
        """Goes on from what `state` returned, and owns it."""
        self._squares, self._magnitudes = state.get("squares"), state.get("magnitudes")
