#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""Measures the time that Python adds to a call of the C library, in microseconds and as a ratio: one process, medians.

  ONEBIT_LIBRARY=build/release/libonebit.so PYTHONPATH=python OMP_NUM_THREADS=1 /usr/bin/python3 python/tools/overhead.py
"""

import statistics
import time

import numpy
import torch

import onebit
import onebit.torch
from onebit._library import library

TENSORS = 200
LARGE = 50_000  # elements of each tensor: ten million in all


def microseconds(function, before=None, calls=1000):
    times = []
    for _ in range(calls):
        if before:
            before()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e6 * statistics.median(times)


def allreduce():
    (comm,) = onebit.loopback(1)
    array = numpy.ones(1024, numpy.float32)
    tensor = torch.ones(1024)
    handle = onebit.Allreduce(comm, 1024, algorithm="dense")
    bare, address = library.onebit_allreduce_run, array.ctypes.data
    call = microseconds(lambda: bare(handle._handle, address, address))
    for name, buffer in (("NumPy array", array), ("tensor", tensor)):
        taken = microseconds(lambda buffer=buffer: handle.run(buffer))
        print(f"Allreduce.run, {name}: {taken:.1f}, of which the C call by ctypes {call:.1f}: adds {taken - call:.1f}")


class Steps:
    """OneBitAdam over 200 tensors, in the compression stage, whose gradients alternate between addresses."""

    def __init__(self, elements):
        (self.comm,) = onebit.loopback(1)
        self.parameters = [torch.nn.Parameter(torch.ones(elements)) for _ in range(TENSORS)]
        self.optimizer = onebit.torch.OneBitAdam(self.parameters, communicator=self.comm, freeze_step=1)
        self.gradients = [[torch.ones(elements) for _ in self.parameters] for _ in range(2)]
        self.turn = 0
        for _ in range(3):
            self.move()
            self.optimizer.step()

    def move(self):
        """Moves every gradient to another address, as zero_grad(set_to_none=True) and a backward pass do."""
        self.turn ^= 1
        for parameter, gradient in zip(self.parameters, self.gradients[self.turn]):
            parameter.grad = gradient

    def in_c(self):
        library.onebit_optimizer_step(self.optimizer._fused._handle)


def optimizer():
    steps = Steps(16)
    call = microseconds(steps.in_c)
    same = microseconds(steps.optimizer.step)
    moved = microseconds(steps.optimizer.step, steps.move)
    print(f"OneBitAdam.step, {TENSORS} tensors: {same:.0f}, of which the C call {call:.0f}: adds {same - call:.0f}")
    print(f"the same, where every gradient has moved: {moved:.0f}: adds {moved - call:.0f}")


def large_step():
    steps = Steps(LARGE)
    ratios = []
    for _ in range(41):  # in turn, as the machine's speed drifts by more than the difference
        call = microseconds(steps.in_c, calls=3)
        ratios.append(microseconds(steps.optimizer.step, steps.move, calls=3) / call)
    print(f"OneBitAdam.step, {TENSORS} tensors, {TENSORS * LARGE} elements, every gradient has moved: "
          f"{statistics.median(ratios):.3f} times the C call, {call / 1000:.1f} ms")


if __name__ == "__main__":
    allreduce()
    optimizer()
    large_step()
