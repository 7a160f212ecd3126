#!/usr/bin/env python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""What Python adds to a call of the C library, in microseconds: one process, medians.

  ONEBIT_LIBRARY=build/release/libonebit.so PYTHONPATH=python python/tools/overhead.py
"""

import statistics
import time

import numpy
import torch

import onebit
import onebit.torch
from onebit._library import library

TENSORS = 200


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


def optimizer():
    (comm,) = onebit.loopback(1)
    parameters = [torch.nn.Parameter(torch.ones(16)) for _ in range(TENSORS)]
    optimizer = onebit.torch.OneBitAdam(parameters, communicator=comm)
    gradients = [[torch.ones(16) for _ in parameters] for _ in range(2)]

    def give(which):
        for parameter, gradient in zip(parameters, gradients[which]):
            parameter.grad = gradient

    give(0)
    optimizer.step()
    call = microseconds(lambda: library.onebit_optimizer_step(optimizer._fused._handle))
    same = microseconds(optimizer.step)
    turn = [0]

    def move():
        turn[0] ^= 1
        give(turn[0])

    moved = microseconds(optimizer.step, move)
    print(f"OneBitAdam.step, {TENSORS} tensors: {same:.0f}, of which the C call {call:.0f}: adds {same - call:.0f}")
    print(f"the same, where every gradient has moved: {moved:.0f}: adds {moved - call:.0f}")


if __name__ == "__main__":
    allreduce()
    optimizer()
