# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""An Allreduce that averages exactly in a warm-up, and compresses afterwards."""

from onebit._values import Algorithm
from onebit.allreduce import Allreduce


class Stages:
    """Which of the two an Allreduce, just created, does."""

    def __init__(self, allreduce: Allreduce):
        self._allreduce = allreduce
        self._compressed = allreduce.info.algorithm
        self._exact = self.always_exact

    @property
    def always_exact(self) -> bool:
        """Compression doesn't pay: the Allreduce is dense for good, and nothing is to be chosen."""
        return self._compressed is Algorithm.DENSE

    def choose(self, exact: bool) -> None:
        """For the next call. Local; to be called on every rank."""
        if not self.always_exact and exact != self._exact:
            self._allreduce.set_algorithm(Algorithm.DENSE if exact else self._compressed)
            self._exact = exact
