#!/usr/bin/python3
# Copyright 2026 The onebit authors
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's Adam step beside onebit's fused passes: the same tensors, the same number of threads, in turn.

    /usr/bin/python3 bench/torch_adam.py build/release/bench/optimizer_benchmark

Needs Debian's python3-torch. torch.optim.Adam is timed in both of its forms; the quicker one is the rival.
"""

import argparse
import re
import statistics
import subprocess
import time

import torch

SIZES = [1 << 20, 1023, 3 << 18, 4097, 5 << 17, 77]  # as optimizer_benchmark cuts its model


def make_parameters(elements):
    parameters = []
    while elements > 0:
        size = min(SIZES[len(parameters) % len(SIZES)], elements)
        parameters.append(torch.nn.Parameter(torch.zeros(size)))
        parameters[-1].grad = torch.randn(size)
        elements -= size
    return parameters


def milliseconds(optimizer):
    begin = time.perf_counter()
    optimizer.step()
    return 1e3 * (time.perf_counter() - begin)


def onebit_milliseconds(program, elements, threads):
    """Medians of Adam's one pass and of the sum of 1-bit Adam's two."""
    table = subprocess.run([program, "--rounds", "5", "--elements", str(elements), "--threads", str(threads)],
                           check=True, capture_output=True, text=True).stdout
    rows = dict(re.findall(r"^(\S.*?\S)\s+([\d.]+)\s+[\d.]+$", table, re.MULTILINE))
    passes = (rows["1-bit Adam, before the exchange"], rows["1-bit Adam, after it"])
    return float(rows["Adam"]), sum(float(each) for each in passes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("optimizer_benchmark")
    parser.add_argument("--elements", type=int, default=1 << 26)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    parameters = make_parameters(options.elements)
    forms = {name: torch.optim.Adam(parameters, lr=1e-3, foreach=foreach)
             for name, foreach in (("one tensor after the other", False), ("foreach", True))}
    times = {name: [] for name in forms}
    dense, onebit = [], []
    for turn in range(options.turns + 1):
        for name, optimizer in forms.items():
            mine = milliseconds(optimizer)
            if turn > 0:  # the first one allocates
                times[name].append(mine)
        if turn > 0:
            both = onebit_milliseconds(options.optimizer_benchmark, options.elements, options.threads)
            dense.append(both[0])
            onebit.append(both[1])

    rival = min(statistics.median(each) for each in times.values())
    print(f"# {options.elements} float32 elements, {options.threads} threads, {options.turns} turns, medians")
    for name, each in times.items():
        print(f"torch.optim.Adam, {name:<28} {statistics.median(each):9.1f} ms")
    for name, each in (("onebit, Adam", dense), ("onebit, 1-bit Adam's two passes", onebit)):
        median = statistics.median(each)
        print(f"{name:<46} {median:9.1f} ms   {median / rival:.3f} of torch's")


if __name__ == "__main__":
    main()
